//! What small models are sent with a prompt: the short files that it names, because they change a file without a look at it; and how to
//! calculate, because they guess the result, or try it with the shell's arithmetic.

use super::Conversation;
use super::asked;
use super::small_model::{is_known, text_file};
use super::turn::report;
use agent_base::error::Result;
use agent_event::CallForm;
use agent_model::Progress;

/// Files of one prompt that are sent, and the longest of them, in bytes.
const MAX_FILES: usize = 2;
const MAX_BYTES: u64 = 2_500;

const CALCULATE: &str = "Calculate it with a Python program: send the write_file of /tmp/calc.py, one statement a line, and then run \
                         python3 /tmp/calc.py.";

impl Conversation {
    /// Sends what belongs to `prompt` with it, where the model is a small one.
    ///
    /// # Errors
    /// An event cannot be written.
    pub async fn send_with(&mut self, prompt: &str) -> Result<()> {
        let (names, calculates) = (asked::files_named(prompt), asked::is_calculation(prompt));
        if names.is_empty() && !calculates || self.form_of_prompt().await? != CallForm::Compact {
            return Ok(());
        }
        if calculates {
            return self.note(CALCULATE);
        }
        // A sandbox that does not start is reported by the first step.
        let Ok(sandbox) = self.setup.environment.sandbox().await else { return Ok(()) };
        let mut found = Vec::new();
        for name in names {
            let name = name.to_string_lossy().into_owned();
            if prompt.contains(&format!("@{name}")) {
                continue;
            }
            let content = text_file(&sandbox, &name, MAX_BYTES).await;
            let is_new = |content: &String| !content.trim().is_empty() && !is_known(content, &self.messages);
            found.extend(content.filter(is_new).map(|content| (name, content)));
        }
        found.into_iter().take(MAX_FILES).try_for_each(|(name, content)| self.attach(&name, &content))
    }

    /// The form of the tool calls, decided now if it is not yet.
    async fn form_of_prompt(&self) -> Result<CallForm> {
        let model = &self.setup.model;
        let (mut emitted, events) = (Ok(()), &self.setup.events);
        let mut on_progress = |progress: Progress<'_>| {
            if emitted.is_ok() {
                emitted = report(events, model.name(), progress);
            }
        };
        model.decide_form(self.setup.tools.specs(), &mut on_progress).await;
        emitted.map(|()| model.form())
    }
}
