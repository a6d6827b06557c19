//! Names of files that `@` offers: those that match what was written, the best first.

use super::line_editor::menu::{Menu, MenuItem};
use agent_base::mention;
use nucleo_matcher::pattern::{AtomKind, CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};
use std::sync::Arc;

/// Names in the list.
const MAX_ITEMS: usize = 50;
/// The greatest length, in bytes, of what is written behind an `@` and looked for.
const MAX_QUERY: usize = 200;

/// Knows the names of files.
pub trait FileNames: Send + Sync {
    /// The names as far as they are known now, those first that were changed last. `/` ends a directory's.
    fn known(&self) -> Arc<Vec<String>>;
}

/// Knows none.
pub struct NoNames;

impl FileNames for NoNames {
    fn known(&self) -> Arc<Vec<String>> {
        Arc::default()
    }
}

/// The list for the word before the cursor, if that is a name behind `@`.
pub(super) fn menu(before: &str, names: &dyn FileNames) -> Option<Menu> {
    let start = word_start(before)?;
    let query = before[start + 1..].replace("\\ ", " ");
    // Paths elsewhere, and names in quotes, are completed by Tab.
    if query.len() > MAX_QUERY || query.starts_with(['/', '~', '"', '.']) {
        return None;
    }
    let names = names.known();
    let (found, more) = best(&names, &query);
    if found.is_empty() || found == [query.as_str()] {
        return None;
    }
    let item = |name: &str| MenuItem {
        name: name.to_owned(),
        about: String::new(),
        replacement: format!("@{}{}", name.replace(' ', "\\ "), if name.ends_with('/') { "" } else { " " }),
        is_complete: false,
    };
    Some(Menu { start, items: found.into_iter().map(item).collect(), more, takes_first: false })
}

/// Returns the place of the `@` that begins the word at the end, with blanks behind backslashes in it.
fn word_start(before: &str) -> Option<usize> {
    let mut start = None;
    let mut last = ' ';
    for (at, char) in before.char_indices() {
        if char.is_whitespace() && !(char == ' ' && last == '\\') {
            start = None;
        } else if char == '@' && start.is_none() && mention::may_follow(last) {
            start = Some(at);
        }
        last = char;
    }
    start
}

/// The names that match, the best first, and how many more there are.
fn best<'n>(names: &'n [String], query: &str) -> (Vec<&'n str>, usize) {
    if query.is_empty() {
        return (
            names.iter().take(MAX_ITEMS).map(String::as_str).collect(),
            names.len().saturating_sub(MAX_ITEMS),
        );
    }
    let mut matcher = Matcher::new(Config::DEFAULT.match_paths());
    let pattern = Pattern::new(query, CaseMatching::Smart, Normalization::Smart, AtomKind::Fuzzy);
    let mut buffer = Vec::new();
    let mut found: Vec<(u32, usize)> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        if let Some(score) = pattern.score(Utf32Str::new(name, &mut buffer), &mut matcher) {
            found.push((score, at));
        }
    }
    let more = found.len().saturating_sub(MAX_ITEMS);
    // Of equals the one that was changed last, then the shorter.
    found.sort_by_key(|&(score, at)| (std::cmp::Reverse(score), at, names[at].len()));
    found.truncate(MAX_ITEMS);
    (found.into_iter().map(|(_, at)| names[at].as_str()).collect(), more)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known(Arc<Vec<String>>);

    impl FileNames for Known {
        fn known(&self) -> Arc<Vec<String>> {
            Arc::clone(&self.0)
        }
    }

    fn listed(before: &str) -> Vec<String> {
        let names = ["src/main.rs", "src/cli/repl/mod.rs", "two words.md", "docs/", "文件.md"];
        let names = Known(Arc::new(names.map(str::to_owned).to_vec()));
        menu(before, &names)
            .map_or(Vec::new(), |menu| menu.items.into_iter().map(|item| item.replacement).collect())
    }

    #[test]
    fn names_are_found_by_some_of_their_letters() {
        assert_eq!(listed("fix @repmod"), ["@src/cli/repl/mod.rs "]);
        assert_eq!(listed("fix @mainrs"), ["@src/main.rs "]);
        assert_eq!(listed("@two\\ w"), ["@two\\ words.md "]);
        assert_eq!(listed("看@文"), ["@文件.md "]);
        assert_eq!(listed("see (@docs"), ["@docs/"]);
        assert_eq!(listed("@").len(), 5);
    }

    #[test]
    fn addresses_other_words_and_whole_names_have_no_list() {
        for before in ["me@example", "@src/main.rs", "@main done", "@/etc", "@~/x", "plain", "@zzzz"] {
            assert!(listed(before).is_empty(), "{before}");
        }
    }
}
