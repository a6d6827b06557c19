//! What a small model would have to find out about a command that failed: the line that does, and the step that corrects what is
//! often wrong with its programs.

use super::edit_repair::{step_that_appends, unclosed};
use super::failing_line::{self, Place};
use super::progress::interpreter;
use super::small_model::{MAX_KEPT, text_file};
use agent_sandbox::Sandbox;
use serde_json::json;
use std::path::Path;

/// The longest name of a variable or a module that is quoted, in bytes.
const MAX_NAME: usize = 40;
/// The longest line that is quoted in an example, in bytes.
const MAX_LINE: usize = 200;

/// What to add to the output of a failed command; with the line that fails, if `shows_line`.
pub async fn hints(sandbox: &Sandbox, command: &str, output: &str, shows_line: bool) -> String {
    let whole = || unclosed_command(command, output).or_else(|| loop_on_one_line(command, output));
    if let Some(hint) = other_language(command).or_else(whole) {
        return hint;
    }
    let mut text = missing_input(output).or_else(|| hidden_function(output)).unwrap_or_default();
    if let Some(excerpt) = failing_line::in_here_document(command, output).filter(|_| shows_line) {
        return text + &format!("\n\nThese lines of the command failed:\n{excerpt}");
    }
    let Some(place) = failing_line::place(output) else { return text };
    let Some(content) = text_file(sandbox, &place.path.to_string_lossy(), MAX_KEPT).await else {
        return text;
    };
    if let Some(excerpt) = failing_line::excerpt(&content, place.line).filter(|_| shows_line) {
        text +=
            &format!("\n\nLine {} of {}, with those around it:\n{excerpt}", place.line, place.path.display());
    }
    text.extend(missing_indentation(output, &place, &content));
    text.extend(missing_end(output, &place.path, &content));
    text.extend(empty_list(output, &place, &content));
    text.extend(added_words(output, &place, &content));
    let name = || missing_import(output, &place).or_else(|| misspelt_name(output, &place, &content));
    text.extend(missing_module(output).or_else(name));
    text
}

/// That a program in Python was given to a shell.
fn other_language(command: &str) -> Option<String> {
    let mut words = command.split_whitespace();
    let (shell, program) = (words.next()?, words.next()?);
    let is_mistaken = ["sh", "bash"].contains(&shell) && program.ends_with(".py");
    let step = json!({ "tool": "run_commands", "command": command.replacen(shell, "python3", 1) });
    is_mistaken.then(|| format!("\n\n{program} is a Python program, not a shell script. Run it so: {step}"))
}

/// That a program on the command line lacks its last brackets, with the command that has them.
fn unclosed_command(command: &str, output: &str) -> Option<String> {
    let (head, rest) = command.split_once("python3 -c ").filter(|_| output.contains("' was never closed"))?;
    let quote = rest.chars().next().filter(|c| ['\'', '"'].contains(c))?;
    let (program, tail) = rest[1..].rsplit_once(quote)?;
    let missing = unclosed(program).filter(|missing| !missing.is_empty())?;
    let command = format!("{head}python3 -c {quote}{program}{missing}{quote}{tail}");
    let step = json!({ "tool": "run_commands", "command": command });
    Some(format!("\n\nThe command lacks {missing} at the end of the program. Send it so: {step}"))
}

/// That a program on the command line has a loop or condition behind a semicolon, which Python does not read.
fn loop_on_one_line(command: &str, output: &str) -> Option<String> {
    let (_, program) = command.split_once(" -c ")?;
    let is_on_one_line = ["; for ", "; while ", "; if ", "; def "].iter().any(|part| program.contains(part));
    let is_it =
        output.contains("File \"<string>\", line 1") && output.contains("SyntaxError: invalid syntax");
    (is_it && is_on_one_line).then(|| {
        "\n\nA program with a loop does not fit on one line. Send the write_file that writes it into a file that ends in .py, one \
         statement a line, and then run that file."
            .to_owned()
    })
}

/// What a model that writes interactive programs does not see in the error of one that had nobody to ask.
fn missing_input(output: &str) -> Option<String> {
    if !output.contains("EOFError: EOF when reading a line") {
        return None;
    }
    // `    word = input('Enter a word: ')`, as the traceback quotes it.
    let line = output.lines().map(str::trim).find(|line| line.contains("input(") && line.contains('='));
    let name = line.and_then(|line| line.split_once('=')).map(|(name, _)| name.trim());
    let example =
        name.filter(|name| is_name(name)).map(|name| format!(", in a line {name} = …")).unwrap_or_default();
    Some(format!(
        "\n\nNobody types anything while a program runs, so input() always fails. Write the file again without input(): put \
         the value that the task says into the program{example}"
    ))
}

/// That a function calls itself in place of Python's own, which it hides.
fn hidden_function(output: &str) -> Option<String> {
    let (frames, _) = output.split_once("RecursionError: ")?;
    // `  File "/workspace/min.py", line 2, in min`
    let name = frames.lines().rev().find_map(|line| Some(line.split_once(", in ")?.1.trim()))?;
    FUNCTIONS.contains(&name).then(|| {
        format!(
            "\n\nThe function {name} of this program hides Python's own {name}, so that it calls itself for ever. Write the file \
             again with another name for it, for example my_{name}, or without it."
        )
    })
}

/// What to do about a line of a Python program that lacks its indentation, with the step that does it.
fn missing_indentation(output: &str, place: &Place, content: &str) -> Option<String> {
    if !output.contains("IndentationError: expected an indented block") {
        return None;
    }
    let line = content.lines().nth(place.line - 1).filter(|line| line.len() <= MAX_LINE)?;
    let step = edit(place, content, line, &format!("    {line}"));
    Some(format!(
        "\n\nLine {} of {} lacks four spaces at its beginning. Send the step that adds them{step}",
        place.line,
        place.path.display()
    ))
}

/// What to do about a shell script whose last word is missing, `fi` or `done`, with the step that adds it.
fn missing_end(output: &str, script: &Path, content: &str) -> Option<String> {
    // `a.sh: 3: Syntax error: end of file unexpected (expecting "fi")`
    let error = output.lines().find(|line| line.contains("end of file unexpected (expecting \""))?;
    if failing_line::place(error)?.path != script {
        return None;
    }
    let (_, rest) = error.split_once("(expecting \"")?;
    let word = rest.split('"').next().filter(|word| ["fi", "done", "esac", "}"].contains(word))?;
    let path = script.to_string_lossy();
    // The end of what is indented belongs behind it.
    let is_indented = content.lines().rfind(|line| !line.trim().is_empty())?.starts_with([' ', '\t']);
    let step = step_that_appends(&path, content, &format!("\n{word}")).filter(|_| is_indented);
    let step = step.map(|step| format!(": {step}")).unwrap_or_default();
    Some(format!("\n\n{path} lacks a line `{word}`. Send the step that adds it{step}"))
}

/// That the words of a file are added up, with the step that makes numbers of them.
fn added_words(output: &str, place: &Place, content: &str) -> Option<String> {
    const WORDS: &str = ".read().split()";
    if !output.contains("TypeError: unsupported operand type(s) for +: 'int' and 'str'") {
        return None;
    }
    let end = content.find(WORDS)? + WORDS.len();
    let words = &content[content[..end].rfind("open(")?..end];
    if words.len() > MAX_LINE || words.contains('\n') {
        return None;
    }
    let step = edit(place, content, words, &format!("[int(word) for word in {words}]"));
    Some(format!(
        "\n\nsplit() makes words, which are not added up as numbers. Send the step that makes numbers of them{step}"
    ))
}

/// What to do about a line that takes the first or last element of a list, and nothing else of any, with the step that does it where
/// its function returns a list.
fn empty_list(output: &str, place: &Place, content: &str) -> Option<String> {
    if !output.contains("IndexError: list index out of range") {
        return None;
    }
    let line = content.lines().nth(place.line - 1).filter(|line| line.len() <= MAX_LINE)?;
    let (before, _) = line.split_once("[0]").or_else(|| line.split_once("[-1]"))?;
    let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    let name = before.get(start..).filter(|name| is_name(name) && line.matches('[').count() == 1)?;
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let is_def = |line: &&str| line.trim_start().starts_with("def ");
    let function = content.lines().take(place.line).filter(is_def).last()?;
    let begins_statement =
        !["elif", "else", "while", "def "].iter().any(|word| line.trim_start().starts_with(word));
    let returns_list = function.contains("-> List") || function.contains("-> list");
    let step = match returns_list && begins_statement && indentation(line) > indentation(function) {
        true => {
            let margin = &line[..indentation(line)];
            edit(place, content, line, &format!("{margin}if not {name}:\n{margin}    return []\n{line}"))
        }
        false => String::new(),
    };
    Some(format!(
        "\n\n{name} may be empty in line {} of {}. Send the step that handles that before this line, with `if not {name}:`{step}",
        place.line,
        place.path.display()
    ))
}

/// What to do about a name of Python's own library that a program uses without importing it, with the step that does it.
fn missing_import(output: &str, place: &Place) -> Option<String> {
    let import = import(output)?;
    let path = place.path.display();
    // Shorter than an edit_file, and so copied without a mistake.
    let step = match interpreter(&place.path) {
        Some(_) => {
            let command = format!("sed -i '1i {import}' {path}");
            format!(": {}", json!({ "tool": "run_commands", "command": command }))
        }
        None => String::new(),
    };
    Some(format!("\n\n{path} lacks the line `{import}`. Send the step that adds it{step}"))
}

/// What to do about a misspelt name, with the step that does it.
fn misspelt_name(output: &str, place: &Place, content: &str) -> Option<String> {
    let (wrong, right) = suggestion(output).or_else(|| misspelt_module(output))?;
    let line = content.lines().nth(place.line - 1).filter(|line| line.len() <= MAX_LINE)?;
    if !is_name(wrong) || !is_name(right) || !line.contains(wrong) {
        return None;
    }
    let step = edit(place, content, line, &line.replace(wrong, right));
    Some(format!("\n\nWrite {right} for {wrong} in line {} of {}{step}", place.line, place.path.display()))
}

/// A name, and the one that Python suggests: `NameError: name 'itmes' is not defined. Did you mean: 'items'?`
fn suggestion(output: &str) -> Option<(&str, &str)> {
    let (error, suggestion) = output.rsplit_once(" Did you mean: '")?;
    Some((error.rsplit('\'').nth(1)?, suggestion.split_once('\'')?.0))
}

/// That a module is not there, which small models try to install.
fn missing_module(output: &str) -> Option<String> {
    let name = absent_module(output).filter(|_| misspelt_module(output).is_none())?;
    Some(format!(
        "\n\nThere is no {name}.py here, and no package {name} is installed. If the task asks for {name}.py, send the \
         write_file that writes it; otherwise do without it."
    ))
}

/// A module that is not there, and the one of Python's own library that is called almost so.
fn misspelt_module(output: &str) -> Option<(&str, &str)> {
    let wrong = absent_module(output)?;
    let right = MODULES.iter().find(|module| strsim::damerau_levenshtein(module, wrong) == 1)?;
    Some((wrong, right))
}

fn absent_module(output: &str) -> Option<&str> {
    let (_, rest) = output.rsplit_once("ModuleNotFoundError: No module named '")?;
    rest.split_once('\'').map(|(name, _)| name).filter(|name| is_name(name))
}

fn is_name(text: &str) -> bool {
    let length = 1..=MAX_NAME;
    length.contains(&text.len()) && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The step that replaces a line, behind a colon; nothing where the line is not the only one of its kind.
fn edit(place: &Place, content: &str, old: &str, new: &str) -> String {
    if old.trim().is_empty() || content.matches(old).count() != 1 {
        return String::new();
    }
    let path = place.path.to_string_lossy();
    format!(": {}", json!({ "tool": "edit_file", "path": path, "old": old, "new": new }))
}

/// The import that an error asks for: `import sys` for `NameError: name 'sys' is not defined`.
fn import(output: &str) -> Option<String> {
    let (_, rest) = output.split_once("NameError: name '")?;
    let (name, _) = rest.split_once("' is not defined")?;
    import_of(name)
}

/// The line that imports a name of Python's own library.
pub(super) fn import_of(name: &str) -> Option<String> {
    if MODULES.contains(&name) {
        return Some(format!("import {name}"));
    }
    if TYPES.contains(&name) {
        return Some(format!("from typing import {name}"));
    }
    let (module, _) = FUNCTIONS_OF_MODULES.iter().find(|(_, names)| names.contains(&name))?;
    Some(format!("from {module} import {name}"))
}

/// Modules that programs of small models use without importing them, and names of `typing`.
pub(super) const MODULES: [&str; 14] = [
    "collections",
    "csv",
    "datetime",
    "glob",
    "itertools",
    "json",
    "math",
    "os",
    "random",
    "re",
    "string",
    "subprocess",
    "sys",
    "time",
];
/// What programs of small models use of other modules without importing it.
const FUNCTIONS_OF_MODULES: [(&str, &[&str]); 4] = [
    ("collections", &["Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"]),
    ("functools", &["lru_cache", "reduce"]),
    ("itertools", &["accumulate", "combinations", "groupby", "islice", "permutations"]),
    ("math", &["ceil", "factorial", "floor", "gcd", "isclose", "prod", "sqrt"]),
];
/// Functions of Python that programs of small models define again.
const FUNCTIONS: [&str; 12] =
    ["abs", "all", "any", "filter", "len", "map", "max", "min", "print", "round", "sorted", "sum"];
const TYPES: [&str; 8] = ["Any", "Dict", "Iterable", "List", "Optional", "Set", "Tuple", "Union"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_program_in_a_shell_is_recognised() {
        let hint = other_language("sh tool.py 3").unwrap();
        assert!(
            hint.ends_with(r#"Run it so: {"tool":"run_commands","command":"python3 tool.py 3"}"#),
            "{hint}"
        );
        for command in ["sh tool.sh", "python3 tool.py", "sh", ""] {
            assert_eq!(other_language(command), None, "{command}");
        }
    }

    #[test]
    fn a_function_that_hides_one_of_pythons_is_recognised() {
        let output = "  File \"/workspace/min.py\", line 2, in min\n    return min(a)\n  [Previous line repeated 996 more times]\nRecursionError: maximum recursion depth exceeded\n";
        let hint = hidden_function(output).unwrap();
        assert!(hint.contains("hides Python's own min") && hint.contains("my_min"), "{hint}");
        assert_eq!(hidden_function(&output.replace("in min", "in walk")), None);
        assert_eq!(hidden_function("RecursionError: "), None);
    }

    #[test]
    fn words_that_are_added_up_become_numbers() {
        let output = "  File \"/workspace/sum.py\", line 1, in <module>\n    print(sum(open('n.txt').read().split()))\nTypeError: unsupported operand type(s) for +: 'int' and 'str'\n";
        let place = failing_line::place(output).unwrap();
        let hint = added_words(output, &place, "print(sum(open('n.txt').read().split()))\n").unwrap();
        let new = r#""new":"[int(word) for word in open('n.txt').read().split()]"}"#;
        assert!(hint.contains(r#""old":"open('n.txt').read().split()""#) && hint.ends_with(new), "{hint}");
        assert_eq!(added_words(output, &place, "print(1 + '1')\n"), None);
        assert_eq!(added_words("ValueError", &place, "open('n.txt').read().split()"), None);
    }

    #[test]
    fn the_word_that_ends_a_shell_script_is_added() {
        let output = "build.sh: 3: Syntax error: end of file unexpected (expecting \"fi\")\n";
        let hint = |content: &str| missing_end(output, Path::new("build.sh"), content).unwrap();
        let step = r#"{"tool":"edit_file","path":"build.sh","old":"  echo built","new":"  echo built\nfi"}"#;
        let begin = "\n\nbuild.sh lacks a line `fi`. Send the step that adds it";
        assert_eq!(hint("if true; then\n  echo built\n\n"), format!("{begin}: {step}"));
        assert_eq!(hint("if true; then\n  echo built\necho ready\n"), begin, "where it belongs is not known");
        assert_eq!(missing_end(output, Path::new("b.py"), "  x\n"), None);
        assert_eq!(missing_end(&output.replace("fi\"", "word\""), Path::new("build.sh"), "  x\n"), None);
    }

    #[test]
    fn a_name_for_which_python_has_another_is_corrected() {
        let output = "  File \"/workspace/a.py\", line 2, in <module>\nNameError: name 'itmes' is not defined. Did you mean: 'items'?\n";
        let place = failing_line::place(output).unwrap();
        let hint = misspelt_name(output, &place, "items = [1]\nprint(len(itmes))\n").unwrap();
        let step =
            r#"{"tool":"edit_file","path":"a.py","old":"print(len(itmes))","new":"print(len(items))"}"#;
        assert_eq!(hint, format!("\n\nWrite items for itmes in line 2 of a.py: {step}"));
        assert_eq!(misspelt_name(output, &place, "items = [1]\nprint(1)\n"), None);
        assert_eq!(misspelt_name(output, &place, ""), None);
        assert_eq!(
            misspelt_module("ModuleNotFoundError: No module named 'maths'\n"),
            Some(("maths", "math"))
        );
        let other = "ModuleNotFoundError: No module named 'mathlib'\n";
        assert_eq!(misspelt_module(other), None);
        assert!(missing_module(other).is_some_and(|hint| hint.contains("asks for mathlib.py")));
    }

    #[test]
    fn a_command_without_its_last_brackets_is_completed() {
        let output = "SyntaxError: '(' was never closed\n";
        let hint = unclosed_command("cd a && python3 -c 'print(len([1])' | cat", output).unwrap();
        assert!(hint.ends_with(r#""command":"cd a && python3 -c 'print(len([1]))' | cat"}"#), "{hint}");
        for (command, output) in
            [("python3 -c 'print(1)'", output), ("python3 -c 'print('", ""), ("python3 -c print(", output)]
        {
            assert_eq!(unclosed_command(command, output), None, "{command}");
        }
    }

    #[test]
    fn a_loop_on_one_line_goes_into_a_file() {
        let output = "  File \"<string>\", line 1\n    x = 0; for i in range(9): x += i\nSyntaxError: invalid syntax\n";
        let command = "python3 -c 'x = 0; for i in range(9): x += i'";
        assert!(loop_on_one_line(command, output).is_some_and(|hint| hint.contains("ends in .py")));
        assert_eq!(loop_on_one_line("python3 -c 'x = = 0'", output), None);
        assert_eq!(loop_on_one_line(command, "SyntaxError: invalid syntax"), None);
        assert_eq!(loop_on_one_line("python3 a.py", output), None);
    }

    #[test]
    fn an_empty_list_is_explained() {
        let output = "  File \"/workspace/a.py\", line 2, in largest\nIndexError: list index out of range\n";
        let place = failing_line::place(output).unwrap();
        let program = "def largest(numbers) -> List[int]:\n    current = numbers[0]\n    return [current]\n";
        let hint = empty_list(output, &place, program).unwrap();
        let new = "    if not numbers:\n        return []\n    current = numbers[0]";
        let step =
            json!({ "tool": "edit_file", "path": "a.py", "old": "    current = numbers[0]", "new": new });
        assert!(
            hint.starts_with("\n\nnumbers may be empty in line 2 of a.py")
                && hint.ends_with(&step.to_string()),
            "{hint}"
        );
        let hint = empty_list(output, &place, &program.replace(" -> List[int]", "")).unwrap();
        assert!(hint.ends_with("with `if not numbers:`"), "{hint}");
        for program in [program.replace("[0]", "[4]"), program.replace("numbers[0]", "f()[0]"), String::new()]
        {
            assert_eq!(empty_list(output, &place, &program), None, "{program}");
        }
    }

    #[test]
    fn a_program_that_waits_for_input_is_explained() {
        let output = "Enter a word: Traceback (most recent call last):\n    word = input('Enter a word: ')\nEOFError: EOF when reading a line\n";
        let text = missing_input(output).unwrap();
        assert!(text.contains("without input()") && text.ends_with("in a line word = …"), "{text}");
        assert!(missing_input("EOFError: EOF when reading a line\n").is_some());
        assert_eq!(missing_input("EOFError: Ran out of input\n"), None);
    }
}
