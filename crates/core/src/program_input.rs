//! Small models write programs that get from the command what the task does not give: `python3 longest.py words.txt`, `sh count.sh <
//! notes.txt`. The task says that the program alone does it.

use super::asked;
use super::nudge::{MAX_COMMAND, Reminder};
use super::progress::{Printed, interpreter};
use super::small_model::{MAX_KEPT, text_file};
use agent_base::shorten::head_and_tail;
use agent_model::compact::NOT_DONE;
use agent_sandbox::Sandbox;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const INTERPRETERS: [&str; 6] = ["bash", "node", "python", "python3", "ruby", "sh"];

/// What programs take their arguments from.
const TAKES_ARGUMENTS: [&str; 9] =
    ["$1", "${1", "$@", "$*", "argparse", "sys.argv", "import click", "process.argv", "ARGV"];

/// How programs read their standard input.
const READS_INPUT: [&str; 5] = ["sys.stdin", "= input()", "(input()", "process.stdin", "STDIN.read"];

/// The reminder that a command gave the program arguments or a file, where the prompt says nothing of either.
pub async fn not_of_the_task(sandbox: &Sandbox, prompt: &str, printed: &Printed) -> Option<Reminder> {
    if let Some(file) = redirected(prompt, &printed.command) {
        let (command, file) = (head_and_tail(&printed.command, MAX_COMMAND), file.display());
        return Some(Reminder::new(format!(
            "The program got {file} from `{command}` only. Send the write_file of the program that opens {file} itself, or answer if \
             this is right."
        )));
    }
    if let Some(reminder) = reads_empty_input(sandbox, prompt, printed).await {
        return Some(reminder);
    }
    let (program, arguments) = with_arguments(prompt, &printed.command)?;
    let content = text_file(sandbox, &program.to_string_lossy(), MAX_KEPT).await?;
    if interpreter(&program) == Some("sh") && has_other_first(&content) || ignores_arguments(&content) {
        return None;
    }
    let source = words_of_a_file(sandbox, prompt, &arguments).await;
    Some(names_no_argument(&printed.command, &program, &arguments, source.as_deref(), &content))
}

/// The reminder that the program reads its standard input, in which there is nothing, and not the file that the prompt names.
async fn reads_empty_input(sandbox: &Sandbox, prompt: &str, printed: &Printed) -> Option<Reminder> {
    if asked::is_about_input(prompt) || printed.command.contains(['|', '<']) {
        return None;
    }
    let program = printed.program(prompt)?;
    let content = text_file(sandbox, &program.to_string_lossy(), MAX_KEPT).await?;
    if !READS_INPUT.iter().any(|reads| content.contains(reads)) {
        return None;
    }
    let is_missing = |file: &PathBuf| *file != program && !content.contains(&*file.to_string_lossy());
    let file = asked::files_named(prompt).into_iter().find(is_missing)?;
    text_file(sandbox, &file.to_string_lossy(), MAX_KEPT).await?;
    let (program, file) = (program.display(), file.display());
    Some(Reminder::new(format!(
        "{NOT_DONE} {program} reads its standard input, in which there is nothing. Send the write_file of {program} that opens {file} \
         itself."
    )))
}

/// The file that the prompt names and whose words the arguments are.
async fn words_of_a_file(sandbox: &Sandbox, prompt: &str, arguments: &[String]) -> Option<PathBuf> {
    for file in asked::files_named(prompt) {
        let content = text_file(sandbox, &file.to_string_lossy(), MAX_KEPT).await;
        if content.is_some_and(|content| content.split_whitespace().eq(arguments)) {
            return Some(file);
        }
    }
    None
}

fn names_no_argument(
    command: &str,
    program: &Path,
    arguments: &[String],
    source: Option<&Path>,
    content: &str,
) -> Reminder {
    let (command, shown, joined) =
        (head_and_tail(command, MAX_COMMAND), program.display(), arguments.join(" "));
    let given = head_and_tail(&joined, MAX_COMMAND);
    let what_to_do = match in_the_program(program, arguments, source, content) {
        Some(step) => format!("Send the step that puts it into the program: {step}"),
        None => {
            format!("Send the write_file of {shown} that takes no arguments, with {given} in the program.")
        }
    };
    Reminder::new(format!(
        "{NOT_DONE} it names no argument, but `{command}` gives {given} to the program. {shown} alone is to print this. {what_to_do}"
    ))
}

/// The step that writes the arguments in the place where the program takes them, or where it counts its arguments, gives it one at its
/// beginning.
fn in_the_program(
    program: &Path,
    arguments: &[String],
    source: Option<&Path>,
    content: &str,
) -> Option<Value> {
    let path = program.to_string_lossy();
    let quoted: Vec<String> = arguments.iter().map(|argument| format!("'{argument}'")).collect();
    let (taken, written) = match (interpreter(program)?, arguments, source) {
        ("python3", _, Some(source)) if content.contains("sys.argv[1:]") => {
            ("sys.argv[1:]", format!("open('{}').read().split()", source.display()))
        }
        ("python3", _, None) if content.contains("sys.argv[1:]") => {
            ("sys.argv[1:]", format!("[{}]", quoted.join(", ")))
        }
        ("python3", [argument], _)
            if content.contains("len(sys.argv)")
                && (content.starts_with("import sys\n") || content.contains("\nimport sys\n")) =>
        {
            ("import sys\n", format!("import sys\nsys.argv = ['{path}', '{argument}']\n"))
        }
        ("python3", [_], _) => ("sys.argv[1]", quoted.concat()),
        ("sh", [argument], _) if !content.contains("$#") => ("$1", argument.clone()),
        _ => return None,
    };
    // Python has it in quotation marks.
    let punctuation = if taken == "$1" { "._-/" } else { "._-/ ,!?" };
    let mut characters = arguments.iter().flat_map(|argument| argument.chars());
    let is_plain = characters.all(|c| c.is_ascii_alphanumeric() || punctuation.contains(c));
    let is_step = is_plain && content.matches(taken).count() == 1;
    is_step.then(|| json!({ "tool": "edit_file", "path": path, "old": taken, "new": written }))
}

/// Whether a program takes no arguments, or has the step of [`in_the_program`] that gives it its own.
fn ignores_arguments(content: &str) -> bool {
    content.contains("sys.argv = [") || !TAKES_ARGUMENTS.iter().any(|taken| content.contains(taken))
}

/// Whether `$1` may be something else than the first argument of a script: a field of awk, or what a function is called with.
fn has_other_first(content: &str) -> bool {
    ["awk", "perl", "sed", "()"].iter().any(|other| content.contains(other))
}

/// A file that the prompt names and that a command gives to the program's standard input.
fn redirected(prompt: &str, command: &str) -> Option<PathBuf> {
    let (_, input) = command.split_once('<').filter(|(_, input)| !input.starts_with(['<', '(']))?;
    let name = input.split_whitespace().next()?;
    let is_named = |file: &PathBuf| file.as_os_str() == name;
    asked::files_named(prompt).into_iter().find(is_named).filter(|_| !asked::is_about_input(prompt))
}

/// The program that the prompt says to write, and the arguments that a command gives it.
fn with_arguments(prompt: &str, command: &str) -> Option<(PathBuf, Vec<String>)> {
    if asked::is_about_arguments(prompt) || command.contains(['|', '<', '>', ';', '&', '\n', '$', '`']) {
        return None;
    }
    let words = shell_words::split(command).ok()?;
    let program = asked::files_to_make(prompt).into_iter().find(|file| interpreter(file).is_some())?;
    let is_interpreter = INTERPRETERS.contains(&words.first()?.as_str());
    let at = usize::from(is_interpreter);
    words.get(at).filter(|word| Path::new(word).ends_with(&program))?;
    let arguments = words[at + 1..].to_vec();
    let (prompt, given) = (prompt.replace(['\'', '"', '`'], ""), arguments.join(" "));
    // What is not in the prompt may be a try of a program that works with anything.
    if !arguments.iter().all(|argument| prompt.contains(argument.as_str()))
        && asked::files_named(&prompt).len() < 2
    {
        return None;
    }
    // As the prompt has it: `Run python3 greet.py Ada`.
    let is_given = arguments.is_empty() || prompt.contains(&format!("{} {given}", program.display()));
    (!is_given).then_some((program, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str =
        "Create letters.py, which prints how many letters the word strawberry has, and start it.";

    fn given(prompt: &str, command: &str) -> Option<Vec<String>> {
        with_arguments(prompt, command).map(|(_, arguments)| arguments)
    }

    #[test]
    fn arguments_that_the_task_does_not_name_belong_into_the_program() {
        assert_eq!(given(PROMPT, "python letters.py strawberry"), Some(vec!["strawberry".to_owned()]));
        assert_eq!(
            given(PROMPT, "python3 /workspace/letters.py 'word strawberry'"),
            Some(vec!["word strawberry".to_owned()])
        );
        let file = "Write biggest.py that prints the biggest number in numbers.txt and run it.";
        assert!(given(file, "python3 ./biggest.py numbers.txt").is_some());
    }

    #[test]
    fn arguments_that_the_task_names_or_may_mean_are_right() {
        for command in
            ["python3 letters.py", "cat letters.py letters.py", "wc -c letters.py", "python3 letters.py | wc"]
        {
            assert_eq!(given(PROMPT, command), None, "{command}");
        }
        for prompt in [
            "Write reverse.py that prints its first command line argument reversed. Run it with abc.",
            "Write lines.py that counts the lines of a file. Run it on notes.txt.",
            "Write greet.py that greets. Then run python3 greet.py Ada.",
            "Write greet.py that greets somebody. Run the script with Ada.",
            "Write greet.py that greets somebody, and run it.",
            "Write echo.py that prints its input.",
        ] {
            let file = asked::files_to_make(prompt).pop().expect("a file");
            let command = format!("python3 {} Ada", file.display());
            assert_eq!(given(prompt, &command), None, "{prompt}");
        }
    }

    #[test]
    fn the_step_that_puts_an_argument_into_the_program_is_offered() {
        let reminder = |program: &str, argument: &str, content: &str| {
            names_no_argument("the command", Path::new(program), &[argument.to_owned()], None, content).text
        };
        let python = reminder("letters.py", "strawberry", "import sys\nprint(len(sys.argv[1]))\n");
        assert!(
            python.ends_with(
                r#"{"tool":"edit_file","path":"letters.py","old":"sys.argv[1]","new":"'strawberry'"}"#
            ),
            "{python}"
        );
        assert!(
            reminder("up.sh", "a.txt", "tr a-z A-Z < \"$1\"\n").ends_with(r#""old":"$1","new":"a.txt"}"#)
        );
        let counted = "import sys\nif len(sys.argv) < 2:\n    exit(1)\nprint(sys.argv[1])\n";
        assert!(
            reminder("a.py", "x", counted).ends_with(r#""new":"import sys\nsys.argv = ['a.py', 'x']\n"}"#)
        );
        for (program, argument, content) in [
            ("a.sh", "x", "test $# = 1 && echo $1\n"),
            ("a.py", "x", "print(sys.argv[1] + sys.argv[1])\n"),
            ("a.py", "x'y", "print(sys.argv[1])\n"),
            ("a.sh", "x y", "echo $1\n"),
            ("a.py", "x\\", "print(sys.argv[1])\n"),
        ] {
            let text = reminder(program, argument, content);
            assert!(text.contains(&format!("write_file of {program} that takes no arguments")), "{text}");
        }
        let all = |source: Option<&Path>| {
            let numbers = ["10".to_owned(), "20".to_owned()];
            let content = "print(sum(int(x) for x in sys.argv[1:]))\n";
            in_the_program(Path::new("sum.py"), &numbers, source, content).map(|step| step["new"].clone())
        };
        assert_eq!(all(None), Some(json!("['10', '20']")));
        assert_eq!(all(Some(Path::new("in.txt"))), Some(json!("open('in.txt').read().split()")));
    }

    #[test]
    fn a_program_with_arguments_of_its_own_ignores_others() {
        assert!(ignores_arguments("import sys\nsys.argv = ['a.py', 'x']\nprint(sys.argv[1])\n"));
        assert!(ignores_arguments("print(1)\n"));
        assert!(!ignores_arguments("import sys\nprint(sys.argv[1])\n"));
    }

    #[test]
    fn a_program_opens_the_file_that_the_task_names() {
        let prompt = "Write count.sh that prints how many lines notes.txt has. Run it.";
        assert_eq!(redirected(prompt, "sh count.sh < notes.txt"), Some("notes.txt".into()));
        assert_eq!(redirected(prompt, "sh count.sh < other.txt"), None);
        let prompt = "Write up.py that reads names.txt from stdin.";
        assert_eq!(redirected(prompt, "python3 up.py < names.txt"), None);
    }
}
