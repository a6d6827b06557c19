//! `/copy`: the last answer, or the last code block in it, into the terminal's clipboard.

use super::{Flow, Repl};
use crate::cli::ui::clipboard;
use crate::count_text::counted;
use crate::error::{Error, Result};
use crate::sanitise::plain;

impl Repl<'_> {
    pub(super) fn copy(&mut self, what: &str) -> Result<Flow> {
        let answer = self.session.conversation.last_answer();
        let answer = answer.ok_or_else(|| Error::usage("there is no answer to copy yet"))?;
        let text = match what {
            "" => answer.trim(),
            "code" => last_code_block(answer).ok_or_else(|| {
                Error::usage("the last answer has no code block").hint("/copy takes all of it")
            })?,
            _ => return Err(Error::usage("/copy takes nothing, or the word code").hint("/copy code")),
        };
        // Without its last line feed, so that what is pasted into a shell does not run at once.
        let text = plain(text.trim_end());
        clipboard::copy(&text)?;
        let lines = counted(text.lines().count(), "line");
        self.remark(&format!("{lines} sent to the terminal's clipboard (OSC 52)"));
        Ok(Flow::Continue)
    }
}

/// The text between the last fences of the answer.
fn last_code_block(answer: &str) -> Option<&str> {
    let (mut last, mut open) = (None, None);
    let mut at = 0;
    for line in answer.split_inclusive('\n') {
        let (begin, end) = (at, at + line.len());
        at = end;
        let marks = line.trim_start();
        let length = marks.len() - marks.trim_start_matches(['`', '~']).len();
        match open {
            None if length >= 3 => open = Some((end, &marks[..length])),
            // A longer fence has shorter ones as text.
            Some((from, fence)) if marks.trim_end().len() == length && marks.starts_with(fence) => {
                last = answer.get(from..begin);
                open = None;
            }
            _ => {}
        }
    }
    // One that was cut off counts too.
    open.and_then(|(from, _)| answer.get(from..)).or(last)
}

#[cfg(test)]
mod tests {
    use super::last_code_block;

    #[test]
    fn the_last_block_is_what_stands_between_its_fences() {
        assert_eq!(last_code_block("a\n```sh\nls\n```\nb\n```\ncd\npwd\n```\nend"), Some("cd\npwd\n"));
        assert_eq!(last_code_block("````md\n```\nx\n```\n````\n"), Some("```\nx\n```\n"));
        assert_eq!(last_code_block("~~~\nx"), Some("x"));
        assert_eq!(last_code_block("no `code` here"), None);
    }
}
