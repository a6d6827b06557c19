//! What a prompt plainly asks for: a change, a run, output, files.

mod calculation;
mod files;

pub use calculation::is_calculation;
pub use files::{
    Line, files_a_program_reads, files_asked_for, files_named, files_to_make, is_about_files,
    is_written_into, line_asked_for,
};

use super::progress::interpreter;
use files::{ARTICLES, is_file_name};
use std::path::PathBuf;

/// Whether one of its words asks for a change, or it says to make a file.
pub fn asks_for_change(prompt: &str) -> bool {
    let has_verb = words(prompt).any(|word| CHANGES.contains(&word.as_str()));
    has_verb || completes(prompt) || !files_to_make(prompt).is_empty()
}

/// Whether it orders to complete a program.
pub fn completes(prompt: &str) -> bool {
    orders(prompt, &COMPLETES) && files_named(prompt).iter().any(|file| interpreter(file).is_some())
}

/// Whether one of its words asks to add something to what is there.
pub fn asks_to_add(prompt: &str) -> bool {
    words(prompt).any(|word| ["add", "append", "insert", "keep"].contains(&word.as_str()))
}

/// Whether one of its words asks for a command.
pub fn asks_for_run(prompt: &str) -> bool {
    words(prompt).any(|word| RUNS.contains(&word.as_str()))
}

/// Whether it orders a run: `Run it`, `then execute it with sh`.
pub fn orders_run(prompt: &str) -> bool {
    orders(prompt, &["execute", "launch", "run", "start"])
}

/// Whether one of its words asks for output of a program.
pub fn asks_for_output(prompt: &str) -> bool {
    words(prompt).any(|word| PRINTS.contains(&word.as_str()))
}

/// Whether it says that a program prints something, without a condition: one that prints nothing is not what it asks for.
pub fn orders_output(prompt: &str) -> bool {
    let has = |known: &[&str]| words(prompt).any(|word| known.contains(&word.as_str()));
    has(&["print", "printing", "prints", "outputs"])
        && !has(&CONDITIONS)
        && !has(&NEGATES)
        && !has(&["nothing"])
}

/// Whether it asks for something that is in the files: `Find the file that …`, `Which file …`.
pub fn asks_to_find(prompt: &str) -> bool {
    orders(prompt, &FINDS)
}

/// Whether it is about what a program reads from its standard input.
pub fn is_about_input(prompt: &str) -> bool {
    words(prompt).any(|word| INPUT.contains(&word.as_str()))
}

/// Whether it is about the arguments of a program, or may be: `Run it on a.txt`.
pub fn is_about_arguments(prompt: &str) -> bool {
    let words: Vec<String> = words(prompt).collect();
    let is_run_on = |pair: &[String]| {
        ["it", "program", "script", "them"].contains(&pair[0].as_str())
            && ["against", "for", "on", "using", "with"].contains(&pair[1].as_str())
    };
    is_about_input(prompt)
        || words.iter().any(|word| ARGUMENTS.contains(&word.as_str()))
        || words.windows(2).any(is_run_on)
}

/// Whether it asks for a number of things: `Count the files`, `How many files …`.
pub fn asks_to_count(prompt: &str) -> bool {
    words(prompt).any(|word| ["count", "many"].contains(&word.as_str()))
}

/// Whether a list of files answers what it asks for: `Count the files`, `Find the largest file`.
pub fn is_answered_by_a_list(prompt: &str) -> bool {
    words(prompt).any(|word| LISTED.contains(&word.as_str()))
}

/// A word to search the files for: a name in capitals, or what follows a word like `function`.
pub fn search_word(prompt: &str) -> Option<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut follows = false;
    let mut candidates = prompt.split_whitespace().filter_map(|word| {
        let name = word.trim_matches(|c: char| !is_name(c));
        let is_word = name.len() > 2 && name.chars().all(is_name);
        let is_constant = name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
        if ARTICLES.contains(&bare(word).as_str()) {
            return None;
        }
        let is_named = is_word && (follows || is_constant);
        follows = BEFORE_NAMES.contains(&bare(word).as_str());
        is_named.then_some(name)
    });
    candidates.next()
}

/// Whether it is about something that fails, so that a failure may be what it asks for.
pub fn expects_failure(prompt: &str) -> bool {
    words(prompt).any(|word| FAILURES.iter().any(|failure| word.starts_with(failure)))
}

/// Whether it orders a change of a file that it names, without a condition: `Fix add.py`, `then change PORT in settings.py`.
pub fn orders_change(prompt: &str) -> bool {
    let is_conditional = words(prompt).any(|word| CONDITIONS.contains(&word.as_str()));
    !files_named(prompt).is_empty() && (orders(prompt, &CHANGES) || completes(prompt)) && !is_conditional
}

/// The program that it orders to change, where it names no other: `Fix a.py`, `build.sh fails. Correct it.`, `Add a function to
/// a.py`; not `Rename old.py`, `Build it with build.sh`, `Add tests for a.py`.
pub fn program_to_change(prompt: &str) -> Option<PathBuf> {
    let has = |known: &[&str]| words(prompt).any(|word| known.contains(&word.as_str()));
    let mut programs = files_named(prompt).into_iter().filter(|file| interpreter(file).is_some());
    let (program, None) = (programs.next()?, programs.next()) else { return None };
    let corrects = orders(prompt, &CORRECTS) && files_to_make(prompt).is_empty() && !removes(prompt);
    let adds = orders(prompt, &ADDS) && is_written_into(prompt, &program) && !removes(prompt);
    let is_ordered = corrects || adds || renames(prompt).is_some();
    (is_ordered && !has(&CONDITIONS) && !has(&["test", "tests"])).then_some(program)
}

/// A name in a program that it orders to rename, and the new one: `Rename the function calc in a.py to compute`.
pub fn renames(prompt: &str) -> Option<(String, String)> {
    let is_name = |word: &&str| {
        !word.is_empty()
            && !word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let words: Vec<&str> = prompt
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect();
    let behind = |before: &[&str]| {
        let at = words.iter().position(|word| before.contains(&word.to_ascii_lowercase().as_str()))?;
        words.get(at + 1).copied().filter(is_name)
    };
    let (old, new) = (behind(&NAMED_THINGS)?, behind(&["to"])?);
    orders(prompt, &["rename"]).then(|| (old.to_owned(), new.to_owned()))
}

/// Whether docstrings stay as they are: they are not what is to be completed, changed or removed.
pub fn keeps_docstrings(prompt: &str) -> bool {
    let words: Vec<String> = prompt.split_whitespace().map(bare).collect();
    let is_verb = |word: &String| {
        [&CHANGES[..], &COMPLETES, &REMOVES].iter().any(|verbs| verbs.contains(&word.as_str()))
    };
    !words.iter().enumerate().any(|(at, word)| {
        let before = &words[at.saturating_sub(MAX_BEFORE_OBJECT)..at];
        DOCUMENTATION.contains(&word.as_str()) && before.iter().any(is_verb)
    })
}

/// Whether it asks for a part of something: `the longest line`, `the first word`.
pub fn asks_for_part(prompt: &str) -> bool {
    words(prompt).any(|word| PARTS.contains(&word.as_str()))
}

/// Whether it orders to add something, and to take nothing away.
pub fn only_adds(prompt: &str) -> bool {
    const REWRITES: [&str; 5] = ["refactor", "rename", "replace", "rewrite", "simplify"];
    orders(prompt, &ADDS) && !removes(prompt) && !words(prompt).any(|word| REWRITES.contains(&word.as_str()))
}

/// Whether something is to be taken away, or to another place.
pub fn removes(prompt: &str) -> bool {
    words(prompt).any(|word| REMOVES.contains(&word.as_str()))
}

/// Whether one of the verbs is an order: it begins a sentence, or follows `and`, `then`, `please`, or `In a.py` at its beginning.
fn orders(prompt: &str, verbs: &[&str]) -> bool {
    let (mut is_imperative, mut follows_in) = (true, false);
    prompt.split_whitespace().any(|word| {
        let bare = bare(word);
        let orders = is_imperative && verbs.contains(&bare.as_str());
        let is_place =
            follows_in && crate::small_model::names(word, "").iter().any(|name| is_file_name(name));
        follows_in = is_imperative && bare == "in";
        is_imperative = ends_sentence(word) || is_place || BEFORE_ORDERS.contains(&bare.as_str());
        orders
    })
}

fn bare(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase()
}

fn ends_sentence(word: &str) -> bool {
    word.ends_with(['.', '!', '?', ':', ';'])
}

pub(super) fn words(prompt: &str) -> impl Iterator<Item = String> {
    prompt.split(|c: char| !c.is_alphabetic()).map(str::to_ascii_lowercase)
}

/// Words of prompts that plainly ask for a change.
const CHANGES: [&str; 23] = [
    "add",
    "append",
    "build",
    "change",
    "convert",
    "correct",
    "create",
    "delete",
    "edit",
    "fix",
    "generate",
    "implement",
    "insert",
    "install",
    "make",
    "move",
    "refactor",
    "remove",
    "rename",
    "repair",
    "replace",
    "save",
    "write",
];
/// Words that ask for a change only where they are orders about a program.
const COMPLETES: [&str; 2] = ["complete", "finish"];
/// Words for what explains a program.
const DOCUMENTATION: [&str; 6] = ["comment", "comments", "docstring", "docstrings", "documentation", "docs"];
/// Words before one of those among which a verb is about it.
const MAX_BEFORE_OBJECT: usize = 3;
/// Words for a part of what is there.
const PARTS: [&str; 12] = [
    "first", "highest", "largest", "last", "longest", "lowest", "newest", "oldest", "only", "part",
    "shortest", "smallest",
];
/// Words in front of names in programs.
const NAMED_THINGS: [&str; 5] = ["class", "constant", "function", "method", "variable"];
/// Orders that put something into a file that is there.
const ADDS: [&str; 3] = ["add", "append", "insert"];
/// Orders that are about what a program holds.
const CORRECTS: [&str; 8] = ["change", "complete", "correct", "edit", "finish", "fix", "repair", "replace"];
/// Words of prompts that plainly ask for a command.
const RUNS: [&str; 8] = ["execute", "launch", "list", "ls", "run", "start", "test", "try"];
/// Words of prompts that plainly ask for output of a program.
const PRINTS: [&str; 12] = [
    "display", "displays", "echo", "echoes", "output", "outputs", "print", "prints", "printed", "printing",
    "show", "shows",
];
/// Words of prompts after which a file that is named may be missing in the end.
const REMOVES: [&str; 8] = ["delete", "deletes", "drop", "move", "moves", "remove", "removes", "rename"];
/// Words of prompts that are about what a program reads from its standard input, or about its arguments.
const INPUT: [&str; 5] = ["input", "pipe", "pipes", "redirect", "stdin"];
const ARGUMENTS: [&str; 23] = [
    "accept",
    "accepts",
    "arg",
    "args",
    "argument",
    "arguments",
    "argv",
    "command",
    "flag",
    "flags",
    "given",
    "option",
    "options",
    "parameter",
    "parameters",
    "pass",
    "passed",
    "receive",
    "receives",
    "supplied",
    "take",
    "takes",
    "usage",
];
/// Words that ask for something that is in the files, where they begin a sentence.
const FINDS: [&str; 7] = ["count", "find", "how", "search", "what", "where", "which"];
/// Words of prompts that ask for what a list of files shows.
const LISTED: [&str; 9] =
    ["called", "count", "extension", "largest", "many", "named", "newest", "oldest", "smallest"];
/// Words behind which something is named that is in the files.
const BEFORE_NAMES: [&str; 8] =
    ["calls", "class", "constant", "function", "import", "imports", "named", "variable"];
const NEGATES: [&str; 6] = ["don", "don't", "never", "no", "not", "without"];
/// Words behind which a verb is an order.
const BEFORE_ORDERS: [&str; 5] = ["and", "finally", "now", "please", "then"];
const CONDITIONS: [&str; 5] = ["if", "necessary", "needed", "unless", "whether"];
/// What the words about failures begin with.
const FAILURES: [&str; 9] =
    ["bug", "crash", "error", "exception", "exit", "fail", "raise", "reproduce", "test"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn docstrings_stay_unless_they_are_what_the_prompt_is_about() {
        for (prompt, keeps) in [
            ("Complete the function f in a.py, as its docstring says.", true),
            ("Complete dedupe in a.py, which removes duplicates.", true),
            ("Complete the docstring of f in a.py.", false),
            ("Remove every comment and docstring from a.py.", false),
            ("Fix the comments in a.py.", false),
        ] {
            assert_eq!(keeps_docstrings(prompt), keeps, "{prompt}");
        }
    }

    #[test]
    fn a_name_that_is_to_be_renamed_is_known() {
        let prompt = "Rename the function calc in tool.py to compute, everywhere in that file.";
        assert_eq!(renames(prompt), Some(("calc".to_owned(), "compute".to_owned())));
        assert_eq!(program_to_change(prompt), Some("tool.py".into()));
        for prompt in
            ["Rename old.py to new.py.", "Rename the function calc.", "The function calc calls to compute."]
        {
            assert_eq!(renames(prompt), None, "{prompt}");
        }
        assert_eq!(program_to_change("Rename old.py to new.py."), None);
        assert_eq!(program_to_change("In hello.py change the printed text."), Some("hello.py".into()));
        assert_eq!(program_to_change("In general change nothing in hello.py."), None);
    }

    #[test]
    fn what_something_is_written_into_is_known() {
        let into = |prompt: &str, file: &str| is_written_into(prompt, Path::new(file));
        assert!(into("Add sub to ops.py.", "ops.py"));
        assert!(into("Write the first line of a.txt into the file b.txt.", "b.txt"));
        assert!(!into("Write the first line of a.txt into b.txt.", "a.txt"));
        assert!(!into("Add the functions in util.py to README.md.", "util.py"));
        let added = |prompt: &str| program_to_change(prompt);
        assert_eq!(added("Add a function sub to ops.py. Keep add."), Some("ops.py".into()));
        assert_eq!(added("Add tests to ops.py."), None);
        assert_eq!(added("Add the functions in util.py to README.md."), None);
    }

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn files_that_a_prompt_asks_for_are_its_names_with_an_extension() {
        let asked = files_asked_for(
            "Write src/greet.sh (see https://x.org/a.b, v1.2, e.g. 3.14) and log to `out.txt`.",
        );
        assert_eq!(asked, paths(&["src/greet.sh", "out.txt"]));
        assert!(files_asked_for("Rename a.py to b.py").is_empty());
    }

    #[test]
    fn files_to_make_are_named_behind_a_verb_that_makes_them() {
        for (prompt, expected) in [
            ("List the files, then write hello.py that prints hi.", &["hello.py"][..]),
            ("Create `fizz.py`: for 1 to 15 …", &["fizz.py"]),
            ("put a Python program named area.py in this folder", &["area.py"]),
            ("make a bash script today.sh that logs to out.log", &["today.sh"]),
            ("Make a directory src and write src/app.py in it.", &["src/app.py"]),
            ("Find the answer and write its path into answer.txt.", &["answer.txt"]),
            ("Write a summary of report.md", &[]),
            ("Write a program that reads config.json.", &[]),
            ("Do not write hello.py. Run main.py.", &[]),
            ("Make it fast. main.py is slow.", &[]),
            ("What does a.py do?", &[]),
        ] {
            assert_eq!(files_to_make(prompt), paths(expected), "{prompt}");
        }
    }

    #[test]
    fn what_to_search_for_is_named() {
        for (prompt, expected) in [
            ("What is the value of TIMEOUT in this project?", Some("TIMEOUT")),
            ("Which file imports load? Write its name into answer.txt.", Some("load")),
            ("Find the file that defines the class `Parser`.", Some("Parser")),
            ("Count the .py files here.", None),
        ] {
            assert!(asks_to_find(prompt), "{prompt}");
            assert_eq!(search_word(prompt), expected, "{prompt}");
        }
        assert!(!asks_to_find("Write fib.py which prints what count says, and run it"));
    }

    #[test]
    fn files_that_a_program_reads_are_named_behind_the_verb() {
        for (prompt, expected) in [
            ("Write upper.py that reads names.txt and prints each name", &["names.txt"][..]),
            ("words.py: it reads the file poem.txt.", &["poem.txt"]),
            ("Read notes.txt and write a.py", &[]),
            ("a program that reads its input, and notes.txt", &[]),
        ] {
            assert_eq!(files_a_program_reads(prompt), paths(expected), "{prompt}");
        }
    }

    #[test]
    fn to_complete_is_a_change_where_it_is_about_a_program() {
        assert!(asks_for_change("Complete the function f in a.py."));
        assert!(!asks_for_change("Finish reading notes.md and tell me the result."));
    }

    #[test]
    fn a_program_to_change_is_what_the_prompt_is_about() {
        for (prompt, expected) in [
            ("Complete the function f in a.py, as its docstring says.", Some("a.py")),
            ("build.sh fails. Fix it.", Some("build.sh")),
            ("Run python3 test_add.py. It fails because of a bug in add.py. Fix add.py.", None),
            ("Build the project with build.sh.", None),
            ("Add tests for calc.py.", None),
            ("Finish reading notes.md and tell me the result.", None),
            ("Rename old.py to new.py.", None),
            ("Change a.py and write notes.md about it.", None),
            ("Fix the numbers in data.csv", None),
            ("What does a.py do?", None),
        ] {
            assert_eq!(program_to_change(prompt), expected.map(PathBuf::from), "{prompt}");
        }
    }

    #[test]
    fn a_change_is_ordered_by_a_verb_that_begins_a_sentence() {
        for (prompt, expected) in [
            ("Change PORT in settings.py to 9000.", true),
            ("Run python3 test_add.py. Fix add.py, not the test.", true),
            ("Look at a.py and replace x with y", true),
            ("Fix the build", false),
            ("Fix a.py if it is broken", false),
            ("How does a.py add numbers? I want to change it.", false),
            ("Explain the change in a.py", false),
        ] {
            assert_eq!(orders_change(prompt), expected, "{prompt}");
        }
    }
}
