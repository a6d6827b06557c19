//! `/rewind`: back to before an earlier prompt, conversation and files.

use super::{Flow, Repl};
use crate::cli::ui::confirm;
use crate::error::{Error, Kind, Result};
use crate::sanitise::one_line;

/// Prompts that are listed.
const MAX_LISTED: usize = 30;
/// Columns of a prompt in the list.
const SHOWN: usize = 70;

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

    /// Shows the prompts and asks for one; `None` where the user stays here.
    async fn choose_prompt(&self, prompts: &[(u64, String)]) -> Result<Option<String>> {
        let mut list = String::new();
        let skipped = prompts.len().saturating_sub(MAX_LISTED);
        if skipped > 0 {
            list += &format!("  … {skipped} earlier\n");
        }
        for (index, (_, text)) in prompts.iter().enumerate().skip(skipped) {
            list += &format!("{:>4}  {}\n", index + 1, one_line(text, SHOWN));
        }
        self.screen.say(&list);
        self.screen.settle()?;
        let question = "Go back to before which prompt? (Enter: stay) ";
        match confirm::line(self.screen.progress(), question).await {
            Ok(line) => Ok(Some(line.trim().to_owned()).filter(|line| !line.is_empty())),
            Err(error) if error.kind() == Kind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }
}
