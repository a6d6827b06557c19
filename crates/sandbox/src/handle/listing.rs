//! A tree that is listed again and again.

use super::link::Link;
use super::{Changes, Sandbox, WalkOptions};
use agent_base::error::Result;
use agent_wire::Entry;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// The tree behind a slow link as it looked the last time, so that only what has changed since crosses the link.
#[derive(Default)]
pub struct Listing {
    last: Option<Last>,
}

struct Last {
    /// A generation means something only to the guest that named it.
    link: Weak<Link>,
    root: PathBuf,
    options: WalkOptions,
    generation: u64,
    entries: HashMap<PathBuf, Entry>,
}

impl Listing {
    /// Lists the tree below `root`, in no particular order. Over a fast link nothing is remembered.
    ///
    /// # Errors
    ///
    /// As [`Sandbox::walk`].
    pub async fn refresh(
        &mut self,
        sandbox: &Sandbox,
        root: &Path,
        options: WalkOptions,
    ) -> Result<Vec<Entry>> {
        if !sandbox.link.is_slow {
            return sandbox.walk(root, options).await;
        }
        let link = Arc::downgrade(&sandbox.link);
        let is_same = |last: &Last| last.link.ptr_eq(&link) && last.root == root && last.options == options;
        let (since, mut entries) = self
            .last
            .take()
            .filter(is_same)
            .map_or((0, HashMap::new()), |last| (last.generation, last.entries));
        let changes = sandbox.walk_since(root, options.clone(), since).await?;
        let Changes { entries: changed, removed, generation, complete } = changes;
        if complete {
            entries.clear();
        }
        removed.iter().for_each(|path| drop(entries.remove(path)));
        entries.extend(changed.into_iter().map(|entry| (entry.path.clone(), entry)));
        // The guest counts what it does not list again as well.
        if entries.len() as u64 > options.max_entries {
            let connection = sandbox.link.latest();
            connection.fail("the guest violates the protocol (a listing that cannot be)");
            return Err(connection.error());
        }
        let listed = entries.values().cloned().collect();
        self.last = Some(Last { link, root: root.to_owned(), options, generation, entries });
        Ok(listed)
    }
}
