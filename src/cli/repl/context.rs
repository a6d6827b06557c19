//! `/context`: what fills the model's context window.

use super::status::thousands;
use super::{Flow, Repl};
use crate::error::Result;
use crate::sanitise::one_line;

/// Columns of a part's name and of its bar.
const NAME: usize = 32;
const BAR: u64 = 30;
/// Parts that are shown.
const MAX_PARTS: usize = 20;

impl Repl<'_> {
    pub(super) fn context(&mut self) -> Result<Flow> {
        let (used, size) = self.session.conversation.context();
        let parts = self.session.conversation.contents();
        let estimated: u64 = parts.iter().map(|part| part.tokens).sum();
        let most = parts.iter().map(|part| part.tokens).max().unwrap_or(0).max(1);
        let mut text = match size {
            Some(size) if size > 0 => {
                format!("{} of {} tokens, {} %\n", thousands(used), thousands(size), used * 100 / size)
            }
            _ => format!("{} tokens; the endpoint does not say how many fit\n", thousands(used)),
        };
        for part in parts.iter().filter(|part| part.tokens > 0).take(MAX_PARTS) {
            let bar = "▪".repeat((part.tokens.saturating_mul(BAR) / most) as usize);
            text +=
                &format!("  {:<NAME$} {:>6}  {bar}\n", one_line(&part.name, NAME), thousands(part.tokens));
        }
        text += &format!("  {:<NAME$} {:>6}\n", "all of it, as estimated", thousands(estimated));
        self.screen.say(&text);
        self.remark("/compact summarises older turns, /clear forgets them");
        Ok(Flow::Continue)
    }
}
