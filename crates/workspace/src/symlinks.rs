//! The other names of a path: those under which programs reach it through symlinks.

use crate::bare_repository;
use crate::manifest::{Delta, Manifest, Node, Target};
use crate::tree_path::{TreePath, names_git};
use agent_base::machine::Machine;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Links that the kernel follows on the way to a path, `MAXSYMLINKS`.
const MAX_FOLLOWED: usize = 40;
/// Bytes of paths that are looked up to follow all links: half a second.
const MAX_WORK: usize = 64 << 20;

/// The symlinks of a tree, by the path in it that each stands for. The top is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symlinks {
    by_target: Arc<BTreeMap<Vec<u8>, BTreeSet<TreePath>>>,
    /// Set if not all were followed.
    is_partial: bool,
    /// The places that each link stands for with each of its targets; without those that were not followed.
    places: Arc<BTreeMap<TreePath, Vec<Places>>>,
}

/// A target of a link, and what it stands for in the tree: the names on the way may be links with several targets.
type Places = (Target, Vec<Vec<u8>>);

/// The reason why a symlink into git's own directory is not written, to stand after a colon.
pub(crate) const INTO_GIT: &str = "a symlink that leads into git's own directory";
const NOT_FOLLOWED: &str = "a symlink that leads through too many others to be followed";

/// The symlinks of `base`, and of what `delta` has otherwise: a user may apply a part of it.
pub(crate) fn links(base: &Manifest, delta: &Delta) -> Vec<(TreePath, Target)> {
    let changed = delta.iter().filter_map(|(path, node)| Some((path, node.as_ref()?)));
    let link = |(path, node): (&TreePath, &Node)| match node {
        Node::Symlink { target } => Some((path.clone(), target.clone())),
        _ => None,
    };
    base.iter().chain(changed).filter_map(link).collect()
}

/// The absolute paths of `root`: itself, and the one through a home that is a symlink.
pub(crate) fn names_of(root: &Path, machine: &Machine) -> Vec<PathBuf> {
    let of_home = machine.home().and_then(|home| {
        let below = root.strip_prefix(home.canonicalize().ok()?).ok()?;
        Some(home.join(below))
    });
    std::iter::once(root.to_owned()).chain(of_home).collect()
}

impl Symlinks {
    /// Those of the tree whose absolute paths are `roots`. One may have several targets.
    pub(crate) fn of(roots: &[PathBuf], links: impl IntoIterator<Item = (TreePath, Target)>) -> Self {
        let mut targets: HashMap<TreePath, Vec<Target>> = HashMap::new();
        for (link, target) in links {
            let targets = targets.entry(link).or_default();
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        let roots: Vec<Vec<&[u8]>> = roots.iter().map(|root| names(root)).collect();
        let tree = LinkedTree { roots: &roots, targets: &targets };
        let (mut by_target, mut is_partial) = (BTreeMap::<_, BTreeSet<TreePath>>::new(), false);
        let mut room = MAX_WORK;
        let mut places = BTreeMap::<_, Vec<Places>>::new();
        for (link, of_link) in &targets {
            for target in of_link {
                let Ok(found) = tree.follow(link.as_bytes(), target, &mut room) else {
                    is_partial = true;
                    continue;
                };
                for place in &found {
                    by_target.entry(place.clone()).or_default().insert(link.clone());
                }
                places.entry(link.clone()).or_default().push((target.clone(), found));
            }
        }
        Self { by_target: Arc::new(by_target), is_partial, places: Arc::new(places) }
    }

    /// Returns the reason why a link with this target is not written, to stand after a colon, where it leads into git's own directory, which may
    /// have another name: `is_there` says whether something is at a path.
    pub(crate) fn refusal(
        &self,
        link: &TreePath,
        target: &Target,
        is_there: impl Fn(&TreePath) -> bool,
    ) -> Option<&'static str> {
        if target.names_git() {
            return Some(INTO_GIT);
        }
        let followed = self.places.get(link).into_iter().flatten().find(|(followed, _)| followed == target);
        let Some((_, places)) = followed else { return Some(NOT_FOLLOWED) };
        let is_gits = |place: &Vec<u8>| names_git(place) || bare_repository::is_within(place, &is_there);
        places.iter().any(is_gits).then_some(INTO_GIT)
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
        let mut seen = BTreeSet::from([path.clone()]);
        // Each with the links in it: one that leads to a directory above itself is in endless names, and the first has them all.
        let mut last = vec![(path.clone(), Vec::new())];
        for _ in 0..MAX_FOLLOWED {
            let mut next = Vec::new();
            for (path, used) in &last {
                for (link, name) in self.names_by_one_link(path) {
                    if used.contains(&link) || !seen.insert(name.clone()) {
                        continue;
                    }
                    *room = room.checked_sub(1).ok_or(TooMany)?;
                    if let Some(found) = visit(&name) {
                        return Ok(Some(found));
                    }
                    next.push((name, used.iter().copied().chain([link]).collect()));
                }
            }
            last = next;
        }
        if self.is_partial || !last.is_empty() { Err(TooMany) } else { Ok(None) }
    }

    /// The names of `path` through one link to it or to a directory above it, each with the link.
    fn names_by_one_link(&self, path: &TreePath) -> Vec<(&TreePath, TreePath)> {
        let bytes = path.as_bytes();
        let above = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        let ends = std::iter::once(bytes.len()).chain(above).chain([0]);
        let by_link = |end: usize| {
            let links = self.by_target.get(&bytes[..end]).into_iter().flatten();
            let rest = bytes[end..].strip_prefix(b"/").unwrap_or(&bytes[end..]);
            // A name that is too long is none that a program uses.
            links.filter_map(move |link| match rest {
                [] => Some((link, link.clone())),
                rest => Some((link, TreePath::new(&[link.as_bytes(), b"/", rest].concat()).ok()?)),
            })
        };
        ends.flat_map(by_link).collect()
    }
}

/// A path has more names than are looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The links of a tree with their targets.
struct LinkedTree<'a> {
    /// The tree's absolute paths. What is found is below the first.
    roots: &'a [Vec<&'a [u8]>],
    targets: &'a HashMap<TreePath, Vec<Target>>,
}

/// A place on the way to what a link stands for.
struct Way<'a> {
    /// The names of the absolute path so far, in which no link is left.
    at: Vec<&'a [u8]>,
    /// The names that follow, the next one last.
    rest: Vec<&'a [u8]>,
    /// Links so far.
    followed: usize,
}

impl<'a> Way<'a> {
    /// The way with the target of a link in the place of its name, which was the last.
    fn through(&self, target: &'a Target) -> Self {
        let target = target.0.as_slice();
        let is_absolute = target.first() == Some(&b'/');
        let above = if is_absolute { 0 } else { self.at.len().saturating_sub(1) };
        let names = target.split(|byte| *byte == b'/').rev();
        Self {
            at: self.at[..above].to_vec(),
            rest: self.rest.iter().copied().chain(names).collect(),
            followed: self.followed + 1,
        }
    }
}

impl<'a> LinkedTree<'a> {
    /// The paths in the tree that the link at `path` stands for with this target, found as the kernel follows links, of which it knows those
    /// of the tree. `room`: bytes that may still be looked at.
    fn follow(&self, path: &'a [u8], target: &'a Target, room: &mut usize) -> Result<Vec<Vec<u8>>, TooMany> {
        let root = self.roots.first().map(Vec::as_slice).unwrap_or_default();
        let mut found = Vec::new();
        // Above it may be another link now, where a part of a change has become one: this one stands where it was found.
        let at = root.iter().copied().chain(path.split(|byte| *byte == b'/')).collect();
        let link = Way { at, rest: Vec::new(), followed: 0 };
        *room = room.checked_sub(path.len() + target.0.len() + 1).ok_or(TooMany)?;
        let mut ways = vec![link.through(target)];
        while let Some(mut way) = ways.pop() {
            let mut targets = None;
            while targets.is_none()
                && let Some(name) = way.rest.pop()
            {
                match name {
                    b"" | b"." => continue,
                    b".." => drop(way.at.pop()),
                    name => way.at.push(name),
                }
                if self.roots.contains(&way.at) {
                    way.at = root.to_vec();
                }
                if let Some(below) = way.at.strip_prefix(root) {
                    let below = below.join(&b'/');
                    *room = room.checked_sub(below.len() + 1).ok_or(TooMany)?;
                    targets = self.targets.get(below.as_slice());
                }
            }
            match (targets, way.at.strip_prefix(root)) {
                // The kernel gives up.
                (Some(_), _) if way.followed == MAX_FOLLOWED => {}
                (Some(targets), _) => {
                    for target in targets {
                        *room = room.checked_sub(target.0.len() + way.rest.len()).ok_or(TooMany)?;
                        ways.push(way.through(target));
                    }
                }
                (None, Some(below)) => found.push(below.join(&b'/')),
                (None, None) => {}
            }
        }
        Ok(found)
    }
}

fn names(path: &Path) -> Vec<&[u8]> {
    let name = |part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).expect("a path")
    }

    fn symlinks(links: &[(&str, &str)]) -> Symlinks {
        let link = |(link, target): &(&str, &str)| (path(link), Target(target.as_bytes().to_vec()));
        Symlinks::of(&["/home/me/tree".into(), "/h/tree".into()], links.iter().map(link))
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
        let symlinks = symlinks(&[
            ("CLAUDE.md", "docs/agents.md"),
            ("sub/.vscode", "../config/./editor/"),
            (".vscode", "sub/.vscode"),
            (".claude", "ai"),
            ("ai/x.json", "../x"),
            ("out", "../docs"),
            ("outside", "/docs"),
            ("self", "self"),
            ("docs/up", "x/../agents.md"),
        ]);
        assert_eq!(names(&symlinks, "docs/agents.md", 9).expect("few"), ["CLAUDE.md", "docs/up"]);
        let editor = names(&symlinks, "config/editor/tasks.json", 9).expect("few");
        assert_eq!(editor, [".vscode/tasks.json", "sub/.vscode/tasks.json"]);
        assert_eq!(names(&symlinks, "x", 9).expect("few"), ["ai/x.json", ".claude/x.json"]);
        assert_eq!(names(&symlinks, "docs/other.md", 9).expect("few"), [] as [&str; 0]);
    }

    /// Those through a chain of more than four, through `..` behind a link, and by an absolute target were not found.
    #[test]
    fn links_are_followed_as_the_kernel_does() {
        let chain: Vec<(String, String)> =
            (0..39).map(|at| (format!("l{at}"), format!("l{}", at + 1))).collect();
        let mut links: Vec<(&str, &str)> = chain.iter().map(|(link, target)| (&**link, &**target)).collect();
        links.extend([
            ("l39", "end"),
            ("too-long", "l0"),
            ("d", "docs/sub"),
            ("behind", "d/../x.md"),
            ("absolute", "/home/me/tree/docs/x.md"),
            ("home", "/h/tree/docs/sub/../x.md"),
            ("docs/back", "../../tree/d/../x.md"),
            ("top", "/home/me"),
            ("sub/around", "../top/tree/docs/x.md"),
            ("two", "nowhere"),
            ("two", "docs/x.md"),
        ]);
        let symlinks = symlinks(&links);
        let found = names(&symlinks, "docs/x.md", 50).expect("few");
        assert_eq!(found, ["absolute", "behind", "docs/back", "home", "sub/around", "two"]);
        assert_eq!(names(&symlinks, "x.md", 50).expect("few"), [] as [&str; 0]);
        let of_chain = names(&symlinks, "end", 50).expect("few");
        assert!(
            of_chain.contains(&"l0".to_owned()) && !of_chain.contains(&"too-long".to_owned()),
            "{of_chain:?}"
        );
    }

    #[test]
    fn links_in_circles_end_and_many_are_an_error() {
        let circles = symlinks(&[("a", "."), ("b", "a"), ("c/d", "..")]);
        assert!(names(&circles, "x", 100).expect("few").contains(&"a/x".to_owned()));
        assert_eq!(names(&circles, "x", 3), Err(TooMany));
        let long = format!("{}x", "y/../".repeat(800));
        let many: Vec<(String, &str)> = (0..20_000).map(|at| (format!("{at}"), &*long)).collect();
        let many = symlinks(&many.iter().map(|(link, target)| (&**link, *target)).collect::<Vec<_>>());
        assert_eq!(names(&many, "z", 9), Err(TooMany));
    }

    #[test]
    fn links_that_lead_into_git_through_others_are_known() {
        let links = [
            ("g", ".git", true),
            ("sub/h", "../g/hooks", true),
            ("i", "/home/me/tree/sub/h/pre-commit", true),
            ("case", "a/.GIT ", true),
            ("of-bare", ".bare/hooks", true),
            ("docs/ignore", "../.gitignore", false),
            ("github", ".github/x", false),
            ("of-bares-sibling", ".bare.txt", false),
            ("above", ".", false),
            // What the session made of it counts, not what it was.
            ("turned", ".git/hooks", true),
            ("turned", "docs", false),
            ("through", "turned/x", true),
        ];
        let is_there =
            |path: &TreePath| [".bare/HEAD", ".bare/objects", ".bare/refs"].contains(&&*path.to_string());
        let symlinks = symlinks(&links.map(|(link, target, _)| (link, target)));
        let refusal =
            |link: &str, to: &str| symlinks.refusal(&path(link), &Target(to.as_bytes().to_vec()), is_there);
        for (link, target, leads) in links {
            assert_eq!(refusal(link, target), leads.then_some(INTO_GIT), "{link} -> {target}");
        }
        assert_eq!(refusal("g", "never followed"), Some(NOT_FOLLOWED));
    }

    #[test]
    fn both_targets_of_a_link_that_the_session_changed_count() {
        let node = |target: &str| Node::Symlink { target: Target(target.as_bytes().to_vec()) };
        let base = Manifest::from([(path("CLAUDE.md"), node("a")), (path("x"), node("b"))]);
        let delta = Delta::from([(path("CLAUDE.md"), Some(node("c"))), (path("x"), None)]);
        let symlinks = Symlinks::of(&["/r".into()], links(&base, &delta));
        for (of, name) in [("a", "CLAUDE.md"), ("c", "CLAUDE.md"), ("b", "x")] {
            assert_eq!(names(&symlinks, of, 9).expect("few"), [name]);
        }
    }
}
