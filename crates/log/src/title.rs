//! The title that the user gave a session, beside its file.

use super::id::SessionId;
use super::store::Store;
use agent_base::error::{Error, Result};
use agent_base::plain_file::{self, Durability, Links};
use agent_base::sanitise::one_line;
use std::fs;
use std::io::ErrorKind;

/// The file.
const TITLE: &str = "title";
/// Columns of a title, and bytes of its file.
const COLUMNS: usize = 72;
const MAX_BYTES: u64 = 1 << 10;

impl Store {
    /// The title of the session, if it was given one.
    pub fn title(&self, id: &SessionId) -> Option<String> {
        let text = plain_file::read(&self.dir(id).join(TITLE), MAX_BYTES, Links::Refuse).ok()?;
        let title = one_line(&String::from_utf8_lossy(&text), COLUMNS);
        (!title.is_empty()).then_some(title)
    }

    /// Gives the session a title, which lists show instead of its first prompt; an empty one takes it away.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_title(&self, id: &SessionId, title: &str) -> Result<()> {
        let (path, title) = (self.dir(id).join(TITLE), one_line(title.trim(), COLUMNS));
        let written = match title.is_empty() {
            true => fs::remove_file(&path).or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            false => plain_file::replace(&path, title.as_bytes(), Durability::Renamed),
        };
        written.map_err(|error| {
            Error::unexpected(format!("{} could not be written", path.display())).caused_by(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_and_can_be_taken_away() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::at(directory.path());
        let (id, _file) = store.create().expect("a session");
        assert_eq!(store.title(&id), None);
        store.set_title(&id, &format!(" the\nparser\u{1b}[31m {}", "x".repeat(5000))).expect("written");
        let title = store.title(&id).expect("a title");
        assert!(title.starts_with("the ⏎ parser") && title.chars().count() <= COLUMNS, "{title:?}");
        assert_eq!(store.summary(id.clone()).preview, title);
        store.set_title(&id, "  ").expect("removed");
        store.set_title(&id, "").expect("nothing to remove");
        assert_eq!(store.title(&id), None);
    }
}
