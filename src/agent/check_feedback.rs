//! What a small model reads of a check that failed: it takes the command of a check for what it is to correct, so that is not quoted.

use super::Conversation;
use super::asked;
use super::failure_hints::hints;
use super::small_model::{changed_files, text_file};
use crate::model::CallForm;
use crate::shorten::head_and_tail;

/// Characters of the check's output.
const MAX_OUTPUT: usize = 1_200;
/// The longest program that is shown, in bytes.
const MAX_PROGRAM: u64 = 2_500;

impl Conversation {
    /// The prompt that reports a failed check, where the model is a small one.
    pub async fn check_feedback(&self, command: &str, outcome: &str, output: &str) -> Option<String> {
        if self.setup.model.form() != CallForm::Compact {
            return None;
        }
        let sandbox = self.setup.environment.sandbox().await.ok()?;
        let hints = hints(&sandbox, command, output, true).await;
        let output = head_and_tail(output.trim(), MAX_OUTPUT);
        let begin = format!(
            "The task is not done: its check fails ({outcome}). Output of the check:\n{output}{hints}"
        );
        let named = asked::files_named(&self.task);
        let program = changed_files(&self.messages).pop().or(named.into_iter().next());
        let Some(program) = program else {
            return Some(format!("{begin}\n\nSend the step that corrects what the task asks for."));
        };
        let shown = program.display();
        let content = text_file(&sandbox, &program.to_string_lossy(), MAX_PROGRAM).await;
        let holds =
            content.map(|content| format!("\n\n{shown} holds:\n{}", content.trim_end())).unwrap_or_default();
        Some(format!(
            "{begin}{holds}\n\nThe check is right, and is not in a file. Send the edit_file or write_file that corrects {shown}."
        ))
    }
}
