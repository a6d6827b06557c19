//! The meanings of the names in a piece of code, aliases resolved.
//!
//! Flow does not matter: a name that was ever bound to `eval` counts as `eval` everywhere. That errs on the side of
//! asking.

use super::super::findings::{Kind, Language, Name};
use std::collections::{BTreeMap, HashMap};

/// How many meanings one name may have; more are left out.
const MAX_MEANINGS: usize = 16;
/// The longest path that is followed, in bytes.
const MAX_PATH: usize = 256;
/// How many different names one piece of code may use; beyond that it counts as unreadable.
const MAX_USES: usize = 50_000;

/// The names that one piece of code uses.
#[derive(Debug, Default)]
pub struct Reading {
    /// The name that is used.
    pub uses: Uses,
    /// Code inside the code: `exec("…")`, `os.system("…")`.
    pub nested: Vec<(Language, String)>,
    /// Why some of it could not be read: computed names, not in the language.
    pub unreadable: Vec<&'static str>,
}

impl Reading {
    /// Notes that a module is taken by a name that is computed when the code runs.
    pub fn computed_import(&mut self) {
        if !self.unreadable.contains(&COMPUTED) {
            self.unreadable.push(COMPUTED);
        }
    }
}

/// Names with the line (from 1) of their first use.
#[derive(Debug, Default)]
pub struct Uses(BTreeMap<Name, usize>);

impl Uses {
    /// Notes one use.
    pub fn push(&mut self, (name, line): (Name, usize)) {
        if self.0.len() < MAX_USES {
            self.0.entry(name).or_insert(line);
        }
    }

    /// Notes several.
    pub fn extend(&mut self, uses: impl Iterator<Item = (Name, usize)>) {
        uses.for_each(|named| self.push(named));
    }

    /// Returns whether there were more than are kept.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_USES
    }
}

impl IntoIterator for Uses {
    type Item = (Name, usize);
    type IntoIter = std::collections::btree_map::IntoIter<Name, usize>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

const COMPUTED: &str = "it imports a module by a computed name";

/// A module, by its path.
pub fn module(path: impl Into<String>) -> Name {
    Name { kind: Kind::Module, path: path.into() }
}

/// A built-in, by its name.
pub fn builtin(path: impl Into<String>) -> Name {
    Name { kind: Kind::Builtin, path: path.into() }
}

impl Name {
    /// Returns what lies below: `os` and `system` are `os.system`.
    pub fn member(&self, separator: &str, name: &str) -> Option<Name> {
        (self.path.len() + name.len() < MAX_PATH)
            .then(|| Name { kind: self.kind, path: format!("{}{separator}{name}", self.path) })
    }
}

/// The names that a piece of code bound.
#[derive(Debug, Default)]
pub struct BoundNames {
    meanings: HashMap<String, Vec<Name>>,
    /// Modules whose names all came in: `from os import *`.
    pub stars: Vec<Name>,
}

impl BoundNames {
    /// `name` stands for `meaning` too. True where that is news.
    pub fn bind(&mut self, name: &str, meaning: Name) -> bool {
        let meanings = self.meanings.entry(name.to_owned()).or_default();
        let is_news = meanings.len() < MAX_MEANINGS && !meanings.contains(&meaning);
        if is_news {
            meanings.push(meaning);
        }
        is_news
    }

    /// Returns what an imported or assigned name stands for; nothing where it is neither.
    pub fn bound(&self, name: &str) -> &[Name] {
        self.meanings.get(name).map_or(&[], Vec::as_slice)
    }

    /// Everything that a name may stand for: what it was bound to, what a star brought in, a built-in.
    pub fn meanings(&self, name: &str, separator: &str) -> Vec<Name> {
        let stars = self.stars.iter().take(MAX_MEANINGS).filter_map(|star| star.member(separator, name));
        self.bound(name).iter().cloned().chain(stars).chain([builtin(name)]).collect()
    }
}
