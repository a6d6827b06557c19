//! What a small model expects a program to print, asked beside the conversation: there it does not see what its own program printed,
//! which it takes for right. Asked about numbers alone. Small models foretell lists of them well, so those are compared; the result of a
//! calculation they know roughly, so one number is questioned where it is far from it; words they do not foretell.

use super::nudge::{MAX_COMMAND, Reminder};
use super::progress::{Printed, interpreter};
use super::small_model::{MAX_KEPT, text_file};
use super::{Conversation, asked, expected_output};
use agent_base::error::{Kind, Result};
use agent_base::shorten::head_and_tail;
use agent_event::CallForm;
use agent_model::Message;
use agent_model::compact::NOT_DONE;
use serde_json::{Value, json};
use std::time::Duration;

/// The most numbers of a list, and the fewest.
const MAX_NUMBERS: usize = 64;
const MIN_LIST: usize = 3;
/// How many times as large as the other one of two numbers is that are far from each other.
const FAR: f64 = 100.0;
/// How long the model may take: some begin to calculate in words.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Words of tasks whose output depends on chance, on the time, on files or on the machine.
const FOUND_BY_RUNNING: [&str; 44] = [
    "age",
    "ago",
    "benchmark",
    "birthday",
    "born",
    "clock",
    "coin",
    "current",
    "date",
    "deadline",
    "dice",
    "disk",
    "elapsed",
    "estimate",
    "left",
    "long",
    "measure",
    "memory",
    "monte",
    "month",
    "months",
    "now",
    "old",
    "pick",
    "process",
    "processes",
    "rand",
    "random",
    "randomly",
    "shuffle",
    "shuffled",
    "simulate",
    "since",
    "size",
    "sizes",
    "takes",
    "time",
    "timer",
    "timestamp",
    "today",
    "until",
    "weekday",
    "year",
    "years",
];

/// How programs read the clock. Small models take the hours and minutes of a task for a matter of the time.
const CLOCKS: [&str; 6] =
    ["time.time()", "datetime.now()", "datetime.today()", "date.today()", "Date.now()", "new Date()"];

/// What the model expects, once it was asked.
#[derive(Debug, Default)]
pub enum Opinion {
    #[default]
    NotAsked,
    /// `None`: something else than numbers.
    Asked(Option<Vec<f64>>),
}

impl Conversation {
    /// The reminder that the program printed other numbers than the model expects of a right one, or gives in its `answer`.
    ///
    /// # Errors
    /// The user interrupts it.
    pub(super) async fn second_opinion(
        &mut self,
        opinion: &mut Opinion,
        answer: &str,
    ) -> Result<Option<Reminder>> {
        if self.setup.model.form() != CallForm::Compact {
            return Ok(None);
        }
        let Some(printed) = self.progress.printed.clone() else { return Ok(None) };
        let Some(numbers) = numbers(&printed.output).filter(|_| foretells(&self.task)) else {
            return Ok(None);
        };
        if let Some(reminder) = self.reads_clock(&printed).await {
            return Ok(Some(reminder));
        }
        if let Opinion::NotAsked = opinion {
            *opinion = Opinion::Asked(self.expected_numbers().await?);
        }
        let Opinion::Asked(Some(expected)) = opinion else { return Ok(None) };
        if are_others(&numbers, expected) {
            if says_all(answer, expected) && !says_all(answer, &numbers) {
                return Ok(Some(contradicts(&printed, expected)));
            }
            let step = self.step_between(&printed, &numbers, expected).await;
            return Ok(Some(differs(&printed, expected, step)));
        }
        let more = expected_output::more_than_commas(&self.task, &printed.output);
        Ok(more.filter(|_| printed.command.contains(".py")).map(|more| more_than_commas(&printed, more)))
    }

    /// The reminder that what the program prints depends on when it runs.
    async fn reads_clock(&self, printed: &Printed) -> Option<Reminder> {
        let sandbox = self.setup.environment.sandbox().await.ok()?;
        let program = printed.program(&self.task)?;
        let content = text_file(&sandbox, &program.to_string_lossy(), MAX_KEPT).await?;
        let clock = CLOCKS.iter().find(|clock| content.contains(**clock))?;
        let text = format!(
            "{NOT_DONE} it does not ask what time it is now, but {0} uses {clock}. Send the write_file of {0} without it, which multiplies \
             or adds the numbers of the task.",
            program.display()
        );
        Some(Reminder::new(text).doubting())
    }

    /// The edit of the program that printed every number of a range where each second one, or third, is expected.
    async fn step_between(&self, printed: &Printed, numbers: &[f64], expected: &[f64]) -> Option<Value> {
        let width = width(numbers, expected)?;
        let sandbox = self.setup.environment.sandbox().await.ok()?;
        let program = printed.program(&self.task).filter(|file| interpreter(file) == Some("python3"))?;
        let path = program.to_string_lossy();
        let content = text_file(&sandbox, &path, MAX_KEPT).await?;
        let range = only_range(&content)?;
        let new = format!("{}, {width})", range.strip_suffix(')')?);
        Some(json!({ "tool": "edit_file", "path": path, "old": range, "new": new }))
    }

    async fn expected_numbers(&mut self) -> Result<Option<Vec<f64>>> {
        let text = format!(
            "A program is to be written for this task:\n{}\n\nWhich numbers does the right program print? Answer with these numbers alone, \
             on one line, separated by spaces.",
            self.task
        );
        let question = vec![Message::User { text }].into();
        match tokio::time::timeout(TIMEOUT, self.ask_beside(&question)).await {
            Ok(Ok(answer)) => Ok(said_once(block(&answer)).or_else(|| numbers(block(&answer)))),
            Ok(Err(error)) if matches!(error.kind(), Kind::Interrupted | Kind::Terminated) => Err(error),
            Ok(Err(_)) | Err(_) => Ok(None),
        }
    }
}

/// Whether what a program for the task prints follows from the task alone.
fn foretells(task: &str) -> bool {
    let made = asked::files_to_make(task);
    made.iter().any(|file| interpreter(file).is_some())
        && !asked::words(task).any(|word| FOUND_BY_RUNNING.contains(&word.as_str()))
        && asked::asks_for_output(task)
        && !asked::is_about_input(task)
        && expected_output::literals(task).is_empty()
        && asked::files_named(task).iter().all(|file| made.contains(file))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || ",[]".contains(c)).filter(|word| !word.is_empty())
}

/// The number that a text consists of, which may be in it more than once.
fn said_once(text: &str) -> Option<Vec<f64>> {
    let first = words(text).next()?;
    words(text).all(|word| word == first).then(|| numbers(first)).flatten()
}

/// The numbers of a text that has nothing else: one, or a list.
fn numbers(text: &str) -> Option<Vec<f64>> {
    let words = words(text);
    let number = |word: &str| word.parse().ok().filter(|number: &f64| number.is_finite());
    let numbers: Option<Vec<f64>> = words.take(MAX_NUMBERS + 1).map(number).collect();
    numbers.filter(|numbers| numbers.len() == 1 || (MIN_LIST..=MAX_NUMBERS).contains(&numbers.len()))
}

/// Whether the numbers are plainly not those that are expected.
fn are_others(numbers: &[f64], expected: &[f64]) -> bool {
    match (numbers, expected) {
        ([number], [expected]) => {
            let (smaller, larger) = (number.abs().min(expected.abs()), number.abs().max(expected.abs()));
            larger > smaller.max(1.0) * FAR
        }
        ([_], _) | (_, [_]) => false,
        // Of fractions the task rarely says how exact they are.
        _ => {
            let is_near = |(one, other): (&f64, &f64)| {
                let is_whole = one.fract() == 0.0 && other.fract() == 0.0;
                one == other || !is_whole && (one - other).abs() <= other.abs().max(one.abs()) * 0.02
            };
            numbers.len() != expected.len() || !numbers.iter().zip(expected).all(is_near)
        }
    }
}

/// What is in the first block of an answer, or all of it.
fn block(answer: &str) -> &str {
    let inside = answer.split_once("```").and_then(|(_, rest)| rest.split_once('\n'));
    inside.map_or(answer, |(_, rest)| rest.split("```").next().unwrap_or_default())
}

fn differs(printed: &Printed, expected: &[f64], step: Option<Value>) -> Reminder {
    let command = head_and_tail(&printed.command, MAX_COMMAND);
    let seen = format!(
        "`{command}` printed:\n{}\nThe task seems to ask for: {}",
        printed.output.trim(),
        listed(expected)
    );
    let text = match step {
        Some(step) => format!("{NOT_DONE} {seen}\nSend the step that corrects the program: {step}"),
        None => format!(
            "{seen}\nSend the write_file that corrects the program, or answer if what it printed is right."
        ),
    };
    Reminder::new(text).doubting()
}

/// The reminder that the answer has the numbers that are expected, and the program printed others.
fn contradicts(printed: &Printed, expected: &[f64]) -> Reminder {
    let (command, numbers) = (head_and_tail(&printed.command, MAX_COMMAND), listed(expected));
    let text = format!(
        "{NOT_DONE} you answer {numbers}, but `{command}` printed:\n{}\nSend the write_file of a program that calculates {numbers}.",
        printed.output.trim()
    );
    Reminder::new(text).doubting().unfinished_if(true, "the answer is not what the program printed")
}

fn listed(numbers: &[f64]) -> String {
    numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
}

/// Whether a text has all of these numbers.
fn says_all(text: &str, numbers: &[f64]) -> bool {
    let said: Vec<f64> =
        words(text).filter_map(|word| word.trim_end_matches(['.', '!', ':']).parse().ok()).collect();
    numbers.iter().all(|number| said.contains(number))
}

/// How far the numbers that are expected lie apart, where the program printed those between them too.
fn width(numbers: &[f64], expected: &[f64]) -> Option<i64> {
    let apart = |list: &[f64]| {
        let [first, second, ..] = list else { return None };
        let width = second - first;
        let is_even = list.windows(2).all(|pair| pair[1] - pair[0] == width);
        (is_even && width.fract() == 0.0).then_some(width as i64)
    };
    let width = apart(expected).filter(|width| *width > 1)?;
    let is_between = apart(numbers) == Some(1) && numbers.first() == expected.first();
    is_between.then_some(width)
}

/// The only `range(…)` of a program, where it has two plain bounds.
fn only_range(content: &str) -> Option<&str> {
    let (before, rest) = content.split_once("range(")?;
    let bounds = &rest[..rest.find(')')?];
    let (from, to) = bounds.split_once(',')?;
    let is_plain = [from, to].iter().all(|bound| bound.trim().parse::<u32>().is_ok());
    let range = &content[before.len()..before.len() + "range(".len() + bounds.len() + 1];
    (is_plain && !rest.contains("range(")).then_some(range)
}

fn more_than_commas(printed: &Printed, more: &str) -> Reminder {
    let command = head_and_tail(&printed.command, MAX_COMMAND);
    Reminder::new(format!(
        "{NOT_DONE} commas are to separate the numbers, and what `{command}` printed {more}. Send the write_file of a program \
         that collects the numbers in a list and prints them with print(*numbers, sep=',')."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_compared() {
        let list = Some(vec![2.0, 4.0, 6.0]);
        for text in ["2,4,6,", "[2, 4, 6]\n", "2\n4\n6\n"] {
            assert_eq!(numbers(text), list, "{text}");
        }
        assert_eq!(numbers(block("Here it is:\n\n```text\n2 4 6\n```\nand more 8")), list);
        assert_eq!(numbers("64644356880.0"), Some(vec![64_644_356_880.0]));
        assert_eq!(said_once("1080 1080"), Some(vec![1080.0]));
        assert!(["1080 1081", "", "many many"].iter().all(|text| said_once(text).is_none()));
        for text in ["", "1 2", "1 2 3 apples", "inf", &"1 ".repeat(65)] {
            assert_eq!(numbers(text), None, "{text}");
        }
    }

    #[test]
    fn a_list_is_right_or_not_and_one_number_may_be_a_little_off() {
        assert!(are_others(&[2.0, 3.0, 4.0], &[2.0, 4.0, 6.0]));
        assert!(!are_others(&[2.0, 4.0, 6.0], &[2.0, 4.0, 6.0]));
        assert!(are_others(&[64_644_356_880.0], &[2160.0]) && are_others(&[0.0], &[2160.0]));
        for (number, expected) in [(336.0, 456.0), (3_628_800.0, 362_880.0), (0.0, 5.0), (-3.0, 3.0)] {
            assert!(!are_others(&[number], &[expected]), "{number}");
        }
        assert!(!are_others(&[10.0], &[1.0, 2.0, 3.0]));
        assert!(!are_others(&[1.0, 2.2361, 2.6458], &[1.0, 2.24, 2.65]));
        assert!(are_others(&[1.0, 2.2361, 3.6458], &[1.0, 2.24, 2.65]));
    }

    #[test]
    fn a_range_without_its_step_gets_one() {
        let (all, even) = ([2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 4.0, 6.0]);
        assert_eq!(width(&all, &even), Some(2));
        assert_eq!(width(&all[1..], &even), None);
        assert_eq!(width(&even, &all), None);
        assert_eq!(width(&all, &[2.0, 4.0, 8.0]), None);
        assert_eq!(only_range("for i in range(2, 21): print(i)"), Some("range(2, 21)"));
        for content in
            ["range(2, n)", "range(21)", "range(2, 21, 2)", "range(1, 2) range(1, 2)", "range(2, 21", ""]
        {
            assert_eq!(only_range(content), None, "{content}");
        }
    }

    #[test]
    fn an_answer_contradicts_what_was_printed_where_it_says_what_is_expected() {
        assert!(says_all("There are 2160 minutes in 36 hours.", &[2160.0]));
        assert!(says_all("They are 2, 4, 6.", &[2.0, 4.0, 6.0]));
        assert!(!says_all("There are 00 minutes.", &[2160.0]));
    }

    #[test]
    fn the_model_is_asked_where_the_task_alone_says_what_is_printed() {
        assert!(foretells("Write even.py that prints the even numbers from 2 through 20, and run it."));
        for task in [
            "Write sorted.py that prints the numbers of in.txt in order, and run it.",
            "Write up.py that reads numbers from stdin and prints them.",
            "Change PORT in settings.py to 9000.",
            "Write hello.py that prints: 1 2 3",
            "Write dice.py that prints 5 random numbers and run it.",
            "Run nproc and show the number.",
            "Write xmas.py that prints how many days are left until 25 December, and run it.",
            "Write age.py that prints the age of someone born on 1990-05-01, and run it.",
        ] {
            assert!(!foretells(task), "{task}");
        }
    }
}
