//! `/rewind`: back to before an earlier prompt, conversation and files.

use super::{Flow, Repl};
use crate::cli::ui::picker::pick;
use crate::error::{Error, Result};
use crate::sanitise::one_line;

/// Columns of a prompt in the list.
const SHOWN: usize = 300;

impl Repl<'_> {
    /// Goes back to before prompt `number` of the list, or shows the list and asks. The prompt's text is there to be edited.
    pub(super) async fn rewind(&mut self, number: &str) -> Result<Flow> {
        let prompts = self.session.conversation.prompts();
        if prompts.is_empty() {
            self.remark("there is nothing to go back to yet");
            return Ok(Flow::Continue);
        }
        let asked = match number {
            "" => self.choose_prompt(&prompts).await?,
            number => Some(number.to_owned()),
        };
        let Some(asked) = asked else { return Ok(Flow::Continue) };
        let chosen = asked.parse().ok().and_then(|number: usize| prompts.get(number.checked_sub(1)?));
        let Some((prompt, _)) = chosen else {
            let message = format!("{} is not a prompt of the list", one_line(&asked, 20));
            return Err(Error::usage(message).hint("/rewind lists them"));
        };
        let Some((text, restored)) = self.session.rewind(*prompt).await? else {
            return Err(Error::usage("the conversation does not hold this prompt any more"));
        };
        let files = match restored.map(|restored| restored.files.len()) {
            None => "no files changed since".to_owned(),
            Some(1) => "1 file is as it was".to_owned(),
            Some(files) => format!("{files} files are as they were"),
        };
        self.remark(&format!("back to before prompt {asked}: the conversation, and in the sandbox {files}"));
        self.typing.set_text(&text);
        Ok(Flow::Continue)
    }

    /// The number of the prompt that the user picks; `None` where the user stays here.
    async fn choose_prompt(&self, prompts: &[(u64, String)]) -> Result<Option<String>> {
        self.screen.settle()?;
        let items: Vec<String> = prompts.iter().map(|(_, text)| one_line(text, SHOWN)).collect();
        let title = "Go back to before which prompt?";
        let picked = pick(self.screen.progress(), title, &items, items.len().saturating_sub(1)).await?;
        Ok(picked.map(|index| (index + 1).to_string()))
    }
}
