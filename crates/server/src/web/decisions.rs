//! The parts of a change that the user refused. They stay refused after an apply, a reload and a restart.

use super::review::MAX_FILES;
use agent_base::error::{Error, Result};
use agent_workspace::store::Store;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The record's file, beside the other records of the session's workspace.
const DECISIONS: &str = "decisions.json";
/// Decisions that are kept.
const MAX_DECISIONS: usize = 20 * MAX_FILES;
/// Characters of a key.
const KEY: usize = 64;

/// The decision to take each part of a change or not, by the key that the review gave it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Decisions(BTreeMap<String, bool>);

impl Decisions {
    /// Those of the session whose workspace keeps its records in `store`.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn load(store: &Store) -> Result<Self> {
        Ok(store.load(DECISIONS)?.unwrap_or_default())
    }

    /// Adds `new` to those that are kept.
    ///
    /// # Errors
    /// There are too many, or they cannot be written.
    pub fn add(store: &Store, new: Self) -> Result<()> {
        let mut all = Self::load(store)?;
        all.0.extend(new.0.into_iter().filter(|(key, _)| key.len() <= KEY));
        if all.0.len() > MAX_DECISIONS {
            // Everything that is not known is taken: only what is refused has to be remembered.
            all.0.retain(|_, is_taken| !*is_taken);
        }
        if all.0.len() > MAX_DECISIONS {
            return Err(Error::usage("too much of this change is refused to be remembered")
                .hint("apply what you want of it, and undo the rest"));
        }
        store.mark(DECISIONS, &all)
    }

    /// Returns whether the part with this key is taken; `None` where nobody decided about it.
    pub fn of(&self, key: &str) -> Option<bool> {
        self.0.get(key).copied()
    }
}
