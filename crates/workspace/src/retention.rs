//! How much of a session's contents is kept on disk: beyond the limit, the oldest checkpoints are removed.

use crate::history::History;
use crate::manifest::Node;
use crate::store::Store;
use agent_base::error::{Error, Kind, Result};
use agent_base::hash::Hash;
use std::collections::HashMap;

/// Bytes that the contents of one session may take, by default.
pub const MAX_KEPT: u64 = 4 << 30;
/// Trimming leaves this part of the limit free, so that it is not done again at the next checkpoint.
const FREE_PART: u64 = 4;

/// Keeps `store` within `limit` bytes: forgets as many of the oldest checkpoints as that takes, and removes
/// every content that nothing refers to any more. `others` is what is referred to beside the checkpoints. How many
/// checkpoints were forgotten. Blocking.
///
/// # Errors
/// What the current checkpoint and the others refer to is too much already ([`Kind::Limit`]).
pub fn enforce<'a>(
    store: &Store,
    history: &mut History,
    others: impl Iterator<Item = &'a Node>,
    limit: u64,
) -> Result<usize> {
    if store.bytes()? <= limit {
        return Ok(0);
    }
    let mut fixed = HashMap::new();
    others.for_each(|node| refer(&mut fixed, node));
    let mut forgotten = 0;
    loop {
        let mut wanted = fixed.clone();
        for delta in history.deltas(store)? {
            delta.values().flatten().for_each(|node| refer(&mut wanted, node));
        }
        let bytes: u64 = wanted.iter().filter(|(hash, _)| store.contains(**hash)).map(|(_, size)| size).sum();
        if bytes <= limit - limit / FREE_PART || !history.forget_oldest(store)? {
            store.retain(|hash| wanted.contains_key(&hash))?;
            return if bytes <= limit { Ok(forgotten) } else { Err(too_much(limit)) };
        }
        forgotten += 1;
    }
}

fn refer(wanted: &mut HashMap<Hash, u64>, node: &Node) {
    if let Node::File { hash, size, .. } = node {
        wanted.insert(*hash, *size);
    }
}

fn too_much(limit: u64) -> Error {
    Error::new(Kind::Limit, format!("what the session changed takes more than {} MB", limit >> 20))
        .hint("exclude generated files with .gitignore or --exclude; `agent sessions prune` frees the space of old sessions")
}
