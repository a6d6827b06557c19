//! Answers that are not accepted at once: the model is reminded of the task, once a prompt.

use crate::model::{CallForm, Reply};

/// What the model has done about the prompt so far.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Calls that succeeded.
    pub succeeded: u32,
    /// The tool of the last call, if that failed.
    pub last_failure: Option<String>,
}

/// The reminder to send in place of accepting `reply`; `None` if it is an answer.
pub fn nudge(reply: &Reply, form: CallForm, prompt: &str, progress: &Progress) -> Option<String> {
    if reply.text.trim().is_empty() {
        return Some("Your message was empty. Continue with the next step, or answer.".to_owned());
    }
    // Large models mean what they answer.
    if form != CallForm::Compact {
        return None;
    }
    if let Some(tool) = &progress.last_failure {
        return Some(format!(
            "The task is not done: your last step, {tool}, failed. Nobody but you does it. Send the JSON object that \
             corrects it, for example a write_file for a file that is missing."
        ));
    }
    (progress.succeeded == 0 && asks_for_work(prompt)).then(|| {
        "You have not changed a file or run a command. Send one JSON object that begins with \"tool\", for example \
         {\"tool\": \"run_commands\", \"command\": \"ls\"}."
            .to_owned()
    })
}

/// Whether a prompt plainly asks for a change or a run.
fn asks_for_work(prompt: &str) -> bool {
    const WORDS: [&str; 20] = [
        "add",
        "append",
        "build",
        "change",
        "create",
        "delete",
        "edit",
        "execute",
        "fix",
        "implement",
        "install",
        "list",
        "make",
        "move",
        "remove",
        "rename",
        "replace",
        "run",
        "save",
        "write",
    ];
    let words = prompt.split(|c: char| !c.is_alphabetic()).map(str::to_ascii_lowercase);
    words.into_iter().any(|word| WORDS.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> Reply {
        Reply { text: text.into(), ..Reply::default() }
    }

    #[test]
    fn an_empty_answer_is_never_accepted_at_once() {
        for form in [CallForm::Native, CallForm::Compact] {
            assert!(nudge(&reply(" \n"), form, "Hello", &Progress::default()).is_some());
        }
    }

    #[test]
    fn a_small_model_that_did_nothing_is_reminded() {
        let nothing = Progress::default();
        let done = Progress { succeeded: 1, last_failure: None };
        let failed = Progress { succeeded: 1, last_failure: Some("run_commands".into()) };
        let answer = reply("Here is the program: …");
        for (prompt, progress, expected) in [
            ("Write hello.py and run it", &nothing, true),
            ("What does this project do?", &nothing, false),
            ("Write hello.py and run it", &done, false),
            ("Write hello.py and run it", &failed, true),
        ] {
            let text = nudge(&answer, CallForm::Compact, prompt, progress);
            assert_eq!(text.is_some(), expected, "{prompt} {progress:?}: {text:?}");
            assert_eq!(nudge(&answer, CallForm::Native, prompt, progress), None, "{prompt}");
        }
    }
}
