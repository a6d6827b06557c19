//! What a small model reads of a check that failed: it would take the command of the check for what it is to correct, so the command is
//! left out.

use super::Conversation;
use super::asked;
use super::failure_hints::hints;
use super::small_model::text_file;
use agent_base::shorten::head_and_tail;
use agent_event::CallForm;

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
        let sandbox = tokio::select! {
            biased;
            _ = self.interrupt.triggered() => return None,
            sandbox = self.setup.environment.sandbox() => sandbox.ok()?,
        };
        let hints = hints(&sandbox, command, output, true).await;
        let output = head_and_tail(output.trim(), MAX_OUTPUT);
        let begin = format!("The check of the task fails ({outcome}). Its output:\n{output}{hints}");
        let changed = self.progress.written.last().cloned();
        let text = match changed.or_else(|| asked::program_to_change(&self.task)) {
            Some(file) => {
                let shown = file.display();
                let content = text_file(&sandbox, &file.to_string_lossy(), MAX_PROGRAM).await;
                let holds = content.map(|content| format!("\n\n{shown} holds:\n{}", content.trim_end()));
                let holds = holds.unwrap_or_default();
                format!("{begin}{holds}\n\nSend the edit_file or write_file that corrects {shown}.")
            }
            None => format!("{begin}\n\nSend the step that corrects what the task asks for."),
        };
        Some(self.redacted(text))
    }
}
