//! What an overlay is not to show, and that came to the host, or into sight, while the session was open.

use super::records::WITHHELD;
use super::state::SessionState;
use super::{Workspace, shows_host};
use crate::host_dir::HostDir;
use crate::notices;
use crate::tree_path::TreePath;
use crate::withheld::{hide, withhold_new};
use agent_base::error::Result;
use agent_sandbox::{Sandbox, WorkspaceMount};
use std::collections::BTreeMap;

impl Workspace {
    /// Hides from an overlay what has come to lie among the ignored files since the last look, and is never shown.
    pub(super) async fn withhold_new(
        &self,
        state: &mut SessionState,
        sandbox: &Sandbox,
    ) -> Result<Option<String>> {
        let Some(view) = state.view.as_ref().filter(|_| shows_host(&state.mount)) else { return Ok(None) };
        let ignored = view.ignored().cloned().collect();
        let found = withhold_new(&self.root, &self.options, ignored, &state.withheld, sandbox).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let notice = notices::withheld(&found);
        state.withheld.extend(found.into_keys());
        if !self.is_transient {
            self.save(WITHHELD, state.withheld.clone()).await?;
        }
        Ok(notice)
    }

    /// Hides in overlays what is to be hidden and was not shown until now. Nothing else was looked for.
    pub(super) async fn own_hide_out_of_sight(&self, sandbox: &Sandbox) -> Result<()> {
        let mut state = self.state().await?;
        self.hide_in_overlay(&mut state, sandbox).await
    }

    pub(super) async fn hide_in_overlay(&self, state: &mut SessionState, sandbox: &Sandbox) -> Result<()> {
        if !matches!(state.mount, WorkspaceMount::Overlay { .. }) {
            state.out_of_sight.clear();
        }
        if state.out_of_sight.is_empty() {
            return Ok(());
        }
        // What the session has made there is its own, as long as it is there, and not what the host has.
        let (delta, host) = (state.history.delta(), HostDir::open(&self.root)?);
        let is_own = |path: &TreePath| {
            let made = delta.get(path).and_then(Option::as_ref);
            let now = host.observe(path).ok().and_then(|found| found.node);
            made.is_some_and(|made| !now.is_some_and(|now| made.same_content(&now)))
        };
        let (own, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            state.out_of_sight.clone().into_iter().partition(|(path, _)| is_own(path));
        state.out_of_sight = own;
        if !others.is_empty() {
            state.out_of_sight.extend(hide(&self.root, others, sandbox).await?);
        }
        Ok(())
    }
}
