//! Small models write programs that get from the command what the task does not give: `python3 longest.py words.txt`, `sh count.sh <
//! notes.txt`. The task says that the program alone does it.

use super::asked;
use super::nudge::{MAX_COMMAND, Reminder};
use super::progress::{Printed, interpreter};
use crate::model::compact::NOT_DONE;
use crate::shorten::head_and_tail;
use std::path::{Path, PathBuf};

const INTERPRETERS: [&str; 6] = ["bash", "node", "python", "python3", "ruby", "sh"];

/// The reminder that a command gave the program arguments or a file, where the prompt says nothing of either.
pub fn not_of_the_task(prompt: &str, printed: &Printed) -> Option<Reminder> {
    let command = head_and_tail(&printed.command, MAX_COMMAND);
    if let Some(file) = redirected(prompt, &printed.command) {
        let file = file.display();
        return Some(Reminder::new(format!(
            "The program got {file} from `{command}` only. Send the write_file of the program that opens {file} itself, or answer if \
             this is right."
        )));
    }
    let (program, arguments) = with_arguments(prompt, &printed.command)?;
    let (shown, arguments) = (program.display(), arguments.join(" "));
    let arguments = head_and_tail(&arguments, MAX_COMMAND);
    let alone = format!("{} {shown}", interpreter(&program)?);
    Some(Reminder::new(format!(
        "{NOT_DONE} it names no argument, but `{command}` gives {arguments} to the program. `{alone}` alone is to print this. Send the \
         write_file of {shown} with {arguments} in the program."
    )))
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
    // As the prompt has it: `Run python3 greet.py Ada`.
    let is_given = arguments.is_empty() || prompt.contains(&words[at..].join(" "));
    (!is_given).then_some((program, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str =
        "Create letters.py, which prints how many letters the word strawberry has, and start it.";

    fn reminder(prompt: &str, command: &str) -> Option<String> {
        let printed = Printed { command: command.to_owned(), output: "10".to_owned() };
        not_of_the_task(prompt, &printed).map(|reminder| reminder.text)
    }

    #[test]
    fn arguments_that_the_task_does_not_name_belong_into_the_program() {
        let text = reminder(PROMPT, "python letters.py strawberry").expect("a reminder");
        assert!(text.contains("gives strawberry to the program. `python3 letters.py` alone"), "{text}");
        assert!(reminder(PROMPT, "python3 /workspace/letters.py 'a b'").is_some());
        let file = "Write biggest.py that prints the biggest number in numbers.txt and run it.";
        assert!(reminder(file, "python3 ./biggest.py numbers.txt").is_some());
    }

    #[test]
    fn arguments_that_the_task_names_or_may_mean_are_right() {
        for command in
            ["python3 letters.py", "cat letters.py letters.py", "wc -c letters.py", "python3 letters.py | wc"]
        {
            assert_eq!(reminder(PROMPT, command), None, "{command}");
        }
        for prompt in [
            "Write reverse.py that prints its first command line argument reversed. Run it with abc.",
            "Write lines.py that counts the lines of a file. Run it on notes.txt.",
            "Write greet.py that greets. Then run python3 greet.py Ada.",
            "Write echo.py that prints its input.",
        ] {
            let file = asked::files_to_make(prompt).pop().expect("a file");
            let command = format!("python3 {} Ada", file.display());
            assert_eq!(reminder(prompt, &command), None, "{prompt}");
        }
    }

    #[test]
    fn a_program_opens_the_file_that_the_task_names() {
        let prompt = "Write count.sh that prints how many lines notes.txt has. Run it.";
        assert!(
            reminder(prompt, "sh count.sh < notes.txt").is_some_and(|text| text.contains("opens notes.txt"))
        );
        assert_eq!(reminder(prompt, "sh count.sh < other.txt"), None);
        assert_eq!(
            reminder("Write up.py that reads names.txt from stdin.", "python3 up.py < names.txt"),
            None
        );
    }
}
