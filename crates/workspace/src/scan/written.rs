//! A look at what the sandbox has written over its workspace, by the names in the writable layer of its overlay: it takes as long as
//! the sandbox has changed much, however large the tree is.

use super::paths::entries;
use super::{Look, MAX_BYTES, Places, Scan, Scanner, delta, is_rules, now_ns, read_rules};
use crate::base::Base;
use crate::entries::validate;
use crate::host_dir::HostDir;
use crate::host_watch::within;
use crate::manifest::Manifest;
use crate::reconcile;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_sandbox::layer::{self, Written};
use agent_sandbox::{Entry, EntryKind, Sandbox};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most paths that are looked at one by one: beyond that a look at everything takes as long.
const MAX_WRITTEN: usize = 2_000;

/// Where the sandbox may differ from the base.
struct Region {
    /// What is to be looked at.
    paths: BTreeSet<TreePath>,
    /// What the base has there, and below what hides it.
    base: Manifest,
}

impl Scanner {
    /// As [`Scanner::scan`], for an overlay whose writable layer is the directory `layer`. `None` where only a look at everything
    /// tells: other rules of what is ignored, very many paths, or names that cannot be read.
    ///
    /// What no layer names is the host's, as far as the base knows it.
    pub async fn scan_written(
        &mut self,
        sandbox: &Sandbox,
        base: &mut Base,
        places: &Places<'_>,
        layer: &Path,
    ) -> Result<Option<Scan>> {
        let Some(known) = places.overlay else { return Ok(None) };
        self.learn_rules(base, places)?;
        let Some(written) = self.list(base, layer).await? else { return Ok(None) };
        let Some(mut region) = Region::of(base, &written) else { return Ok(None) };
        region.add(base, known.keys());
        let mut look = Look { now_ns: now_ns(), budget: MAX_BYTES, ..Look::default() };
        let entries = entries(sandbox, &region.paths, &BTreeSet::new()).await?;
        if entries.iter().any(is_closed) {
            return Ok(None);
        }
        let mut entries = validate(entries, &mut look.rejected);
        entries.retain(|(path, _)| region.paths.contains(path));
        if self.has_other_rules(&region, &entries) {
            return Ok(None);
        }
        for (path, entry) in entries {
            if self.is_kept(&path, &entry, base.nodes.contains_key(&path)) {
                let known = self.known(&path, base);
                look.judge(path, &entry, known);
            } else if !places.shown.is_some_and(|host| host.ignores(&path)) {
                look.note_ignored(&path);
            }
        }
        let present = look.fetch(sandbox, places.store).await?;
        let mut delta = delta(&region.base, &present);
        reconcile::follow_host(base, &mut delta, known, &present, places.root).await?;
        reconcile::settle(base, &mut delta, places).await?;
        self.seen = present;
        Ok(Some(Scan { delta, rejected: look.rejected, ignored: look.ignored }))
    }

    /// Takes the rules of the base, where there was no look at everything: what of them is in no layer is the host's.
    fn learn_rules(&mut self, base: &Base, places: &Places<'_>) -> Result<()> {
        if self.has_looked {
            return Ok(());
        }
        let host = HostDir::open(places.root)?;
        for path in base.nodes.keys().filter(|path| is_rules(path)) {
            self.ignored.set(path.parent().as_ref(), &read_rules(&host, path));
            // The next look at everything reads it again.
            self.rules.insert(path.clone(), Hash::UNKNOWN);
        }
        self.has_looked = true;
        Ok(())
    }

    /// Lists the layer, but for what lies in ignored directories.
    async fn list(&mut self, base: &mut Base, layer: &Path) -> Result<Option<Vec<Written>>> {
        let layer = layer.to_owned();
        let (moved_base, mut ignored) = (std::mem::take(base), std::mem::take(&mut self.ignored));
        let task = tokio::task::spawn_blocking(move || {
            let mut is_skipped = |path: &Path| {
                let Ok(path) = TreePath::new(path.as_os_str().as_bytes()) else { return false };
                let is_tree =
                    moved_base.nodes.contains_key(&path) || path.names().any(|name| name == b".git");
                !is_tree && !ignored.may_include_below() && ignored.contains(&path, true)
            };
            let written = layer::written(&layer, MAX_WRITTEN, &mut is_skipped);
            (moved_base, ignored, written)
        });
        let (listed_base, ignored, written) =
            task.await.map_err(|error| Error::unexpected("a look at the layer failed").caused_by(error))?;
        (*base, self.ignored) = (listed_base, ignored);
        // What cannot be read here, the guest lists.
        Ok(written.unwrap_or_default())
    }

    /// Returns whether the rules of what is ignored are others than those in force.
    fn has_other_rules(&self, region: &Region, entries: &[(TreePath, Entry)]) -> bool {
        let is_in_force = |path: &TreePath| {
            let at = entries.binary_search_by(|(other, _)| other.cmp(path)).ok();
            let file = at.map(|at| &entries[at].1).filter(|entry| matches!(entry.kind, EntryKind::File));
            match (file, self.rules.contains_key(path)) {
                (None, is_known) => !is_known,
                (Some(_), false) => false,
                (Some(entry), true) => {
                    self.sighting(path).is_some_and(|seen| seen.settled && seen.stamp == entry.into())
                }
            }
        };
        let mut rules = region.paths.iter().chain(region.base.keys()).filter(|path| is_rules(path));
        !rules.all(is_in_force)
    }
}

impl Region {
    /// `None` where it is too much, or has a name that no tree can have.
    fn of(base: &Base, written: &[Written]) -> Option<Self> {
        let mut region = Self { paths: BTreeSet::new(), base: Manifest::new() };
        for Written { path, covers } in written {
            let path = TreePath::new(path.as_os_str().as_bytes()).ok()?;
            if *covers {
                let hidden = within(&base.nodes, &path).take(MAX_WRITTEN + 1);
                region.base.extend(hidden.map(|(path, node)| (path.clone(), node.clone())));
            }
            if region.base.len() > MAX_WRITTEN {
                return None;
            }
            region.add(base, std::iter::once(&path));
        }
        Some(region)
    }

    fn add<'a>(&mut self, base: &Base, paths: impl Iterator<Item = &'a TreePath>) {
        for path in paths {
            self.paths.insert(path.clone());
            let node = base.nodes.get_key_value(path).map(|(path, node)| (path.clone(), node.clone()));
            self.base.extend(node);
        }
    }
}

/// Returns whether what is in a directory cannot be looked at inside.
fn is_closed(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Directory) && entry.mode & 0o500 != 0o500
}
