//! The other names of a path: those under which programs reach it through symlinks of the tree.

use crate::manifest::{Delta, Manifest, Node, Target};
use crate::tree_path::TreePath;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Links on the way to a path.
const MAX_STEPS: usize = 4;

/// The symlinks of a tree, by the path that each stands for, as far as names alone tell it. The top is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symlinks(Arc<BTreeMap<Vec<u8>, Vec<TreePath>>>);

impl Symlinks {
    /// Those of `base` and of what `delta` has otherwise: a user may apply a part of it.
    pub(crate) fn of(base: &Manifest, delta: &Delta) -> Self {
        let changed = delta.iter().filter_map(|(path, node)| Some((path, node.as_ref()?)));
        let mut by_target: BTreeMap<Vec<u8>, Vec<TreePath>> = BTreeMap::new();
        for (path, node) in base.iter().chain(changed) {
            if let Node::Symlink { target } = node
                && let Some(target) = resolved(path, target)
            {
                by_target.entry(target).or_default().push(path.clone());
            }
        }
        Self(Arc::new(by_target))
    }

    /// Visits the other names of `path`, the nearest first, until `visit` returns something. `room` is the number of names that may
    /// still be looked at; where it is used up, there is no answer.
    ///
    /// # Errors
    /// There are more.
    pub(crate) fn find<T>(
        &self,
        path: &TreePath,
        room: &mut usize,
        mut visit: impl FnMut(&TreePath) -> Option<T>,
    ) -> Result<Option<T>, TooMany> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (mut seen, mut last) = (BTreeSet::from([path.clone()]), vec![path.clone()]);
        for _ in 0..MAX_STEPS {
            let mut next = Vec::new();
            for name in last.iter().flat_map(|path| self.names_by_one_link(path)) {
                if seen.contains(&name) {
                    continue;
                }
                *room = room.checked_sub(1).ok_or(TooMany)?;
                if let Some(found) = visit(&name) {
                    return Ok(Some(found));
                }
                seen.insert(name.clone());
                next.push(name);
            }
            last = next;
        }
        Ok(None)
    }

    /// The names of `path` through one link to it or to a directory above it.
    fn names_by_one_link<'a>(&'a self, path: &'a TreePath) -> impl Iterator<Item = TreePath> + 'a {
        let bytes = path.as_bytes();
        let above = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        let ends = std::iter::once(bytes.len()).chain(above).chain([0]);
        ends.flat_map(move |end| {
            let links = self.0.get(&bytes[..end]).into_iter().flatten();
            let rest = bytes[end..].strip_prefix(b"/").unwrap_or(&bytes[end..]);
            // A name that is too long is none that a program uses.
            links.filter_map(move |link| match rest {
                [] => Some(link.clone()),
                rest => TreePath::new(&[link.as_bytes(), b"/", rest].concat()).ok(),
            })
        })
    }
}

/// A path has more names than are looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The path in the tree that a link stands for; `None` where it leads out of the tree, or to itself.
fn resolved(link: &TreePath, target: &Target) -> Option<Vec<u8>> {
    if target.0.first().is_none_or(|first| *first == b'/') {
        return None;
    }
    let mut names: Vec<&[u8]> = link.names().collect();
    names.pop();
    for name in target.0.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    let target = names.join(&b'/');
    (target != link.as_bytes()).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).expect("a path")
    }

    fn links(links: &[(&str, &str)]) -> Symlinks {
        let node = |target: &str| Node::Symlink { target: Target(target.as_bytes().to_vec()) };
        let delta = links.iter().map(|(link, target)| (path(link), Some(node(target))));
        Symlinks::of(&Manifest::new(), &delta.collect())
    }

    fn names(symlinks: &Symlinks, of: &str, mut room: usize) -> Result<Vec<String>, TooMany> {
        let mut names = Vec::new();
        symlinks.find(&path(of), &mut room, |name| {
            names.push(name.to_string());
            None::<()>
        })?;
        Ok(names)
    }

    #[test]
    fn a_path_has_the_names_that_links_to_it_and_above_it_give() {
        let symlinks = links(&[
            ("CLAUDE.md", "docs/agents.md"),
            ("sub/.vscode", "../config/./editor/"),
            (".vscode", "sub/.vscode"),
            ("out", "../docs"),
            ("absolute", "/docs"),
            ("self", "self"),
            ("docs/up", "x/../agents.md"),
        ]);
        assert_eq!(names(&symlinks, "docs/agents.md", 9).expect("few"), ["CLAUDE.md", "docs/up"]);
        let editor = names(&symlinks, "config/editor/tasks.json", 9).expect("few");
        assert_eq!(editor, ["sub/.vscode/tasks.json", ".vscode/tasks.json"]);
        assert_eq!(names(&symlinks, "docs/other.md", 9).expect("few"), [] as [&str; 0]);
    }

    #[test]
    fn links_in_circles_end_and_many_are_an_error() {
        let symlinks = links(&[("a", "."), ("b", "a"), ("c/d", "..")]);
        assert!(names(&symlinks, "x", 10_000).expect("few").contains(&"a/x".to_owned()));
        assert_eq!(names(&symlinks, "x", 3), Err(TooMany));
    }
}
