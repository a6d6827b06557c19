//! Small models calculate in their heads: a result that no program printed is questioned.

use super::asked;
use super::nudge::{MAX_COMMAND, MAX_QUOTED, Reminder};
use super::progress::{Printed, Progress};
use super::small_model::earlier_calls;
use agent_base::shorten::head_and_tail;
use agent_model::Message;
use agent_model::compact::NOT_DONE;

/// Numbers of an answer that no program printed: fewer may be a rounding, or said of the numbers that it did print.
const MIN_NOT_PRINTED: usize = 4;

/// The reminder that what the answer says was not calculated.
pub fn reminder(prompt: &str, answer: &str, progress: &Progress, messages: &[Message]) -> Option<Reminder> {
    if !asked::is_calculation(prompt) {
        return None;
    }
    let is_prompt = |message: &Message| matches!(message, Message::User { text } if text.contains(prompt));
    let since = &messages[messages.iter().rposition(is_prompt).unwrap_or(0)..];
    if let Some(command) = echoed_numbers(prompt, since) {
        return Some(echoed(command));
    }
    let printed = progress.printed.as_ref()?;
    let results = since.iter().filter_map(|message| match message {
        Message::Tool { text, .. } => Some(text.as_str()),
        _ => None,
    });
    has_numbers_not_printed(answer, results.chain([prompt])).then(|| not_printed(printed))
}

/// The command that prints numbers which the model made up: nothing but such an echo has run, and they are not the prompt's.
fn echoed_numbers<'a>(prompt: &str, messages: &'a [Message]) -> Option<&'a str> {
    const NOT_LITERAL: [char; 9] = ['$', '`', '|', '>', '<', '&', ';', '{', '\n'];
    let mut last = None;
    for call in earlier_calls(messages) {
        let command = call.arguments.text("command").filter(|_| call.name == "run_commands")?;
        let is_literal = command.trim_start().starts_with("echo ") && !command.trim().contains(NOT_LITERAL);
        last = Some(command).filter(|_| is_literal);
        last?;
    }
    let of_prompt = numbers(prompt);
    last.filter(|command| numbers(command).iter().any(|number| !of_prompt.contains(number)))
}

/// Whether an answer has several numbers that are in none of the texts.
fn has_numbers_not_printed<'a>(answer: &str, texts: impl Iterator<Item = &'a str>) -> bool {
    let known: Vec<f64> = texts.flat_map(numbers).collect();
    let mut new: Vec<f64> = Vec::new();
    for number in numbers(answer) {
        if !known.contains(&number) && !new.contains(&number) {
            new.push(number);
        }
    }
    new.len() >= MIN_NOT_PRINTED
}

/// The numbers of a text without their signs.
fn numbers(text: &str) -> Vec<f64> {
    let text = ungrouped(text);
    let parts = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    parts.filter_map(|part| part.trim_matches('.').parse().ok()).collect()
}

/// A text without the commas inside of numbers: `2,432,902`.
fn ungrouped(text: &str) -> String {
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let groups = |at: usize| {
        let mut behind = text[at + 1..].chars();
        is_digit(text[..at].chars().next_back())
            && (0..3).all(|_| is_digit(behind.next()))
            && !is_digit(behind.next())
    };
    text.char_indices().filter(|(at, c)| *c != ',' || !groups(*at)).map(|(_, c)| c).collect()
}

/// The reminder that numbers were echoed and not calculated.
fn echoed(command: &str) -> Reminder {
    let command = head_and_tail(command, MAX_COMMAND);
    Reminder::new(format!(
        "`{command}` prints what you wrote, and nothing was calculated. Send the write_file of a Python program that calculates it, and \
         then run that, or answer if nothing is to be calculated."
    ))
}

/// The reminder that an answer has numbers that the program did not print.
fn not_printed(printed: &Printed) -> Reminder {
    let (command, output) =
        (head_and_tail(&printed.command, MAX_COMMAND), head_and_tail(printed.output.trim(), MAX_QUOTED));
    Reminder::new(format!(
        "{NOT_DONE} your answer has numbers that `{command}` did not print. It printed:\n{output}\nSend the write_file of the \
         whole program, which collects every number of the answer in a list and prints that list."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_event::ToolCall;
    use serde_json::json;

    #[test]
    fn numbers_that_are_only_echoed_were_not_calculated() {
        let prompt = "Print the first 5 numbers of the Fibonacci sequence.";
        let after = |commands: &[&str]| {
            let call = |command: &&str| {
                let arguments = json!({ "command": command }).into();
                let call = ToolCall { id: "1".into(), name: "run_commands".into(), arguments };
                Message::Assistant { text: String::new(), reasoning: None, tool_calls: vec![call] }
            };
            let answer = Message::Assistant { text: "Done.".into(), reasoning: None, tool_calls: Vec::new() };
            let messages: Vec<Message> = commands.iter().map(call).chain([answer]).collect();
            echoed_numbers(prompt, &messages).is_some()
        };
        assert!(after(&["echo Fibonacci:", "echo \"0 1 1 2 3\""]));
        for commands in [
            &["echo the first 5 numbers"][..],
            &["python3 fib.py", "echo 0 1 1 2 3"],
            &["echo 0 1 1 2 3 > fib.txt"],
            &["echo $((2 + 3))"],
            &["echo 1 1 2\npython3 fib.py"],
            &[],
        ] {
            assert!(!after(commands), "{commands:?}");
        }
    }

    #[test]
    fn numbers_of_an_answer_that_nothing_printed_are_noticed() {
        let is_new = |answer: &str, output: &str| has_numbers_not_printed(answer, [output].into_iter());
        assert!(is_new("They are 0, 1, 1, 2, 3.", "5\n"));
        for (answer, output) in [
            ("They are 0, 1, 1, 2, 3.", "[0, 1, 1, 2, 3]\n"),
            ("They are 1, 4, 9 and 16.", "[1.0, 4.0, 9.0, 16.0]\n"),
            ("3628800 479001600 1 2 6", "1 2 6 3,628,800 479,001,600"),
            ("It is 2,432,902,008,176,640,000.", "2432902008176640000\n"),
            ("π is about 3.14, or 22/7.", "3.14159\n"),
            ("", ""),
        ] {
            assert!(!is_new(answer, output), "{answer}");
        }
    }
}
