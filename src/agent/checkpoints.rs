//! Records the workspace after every turn that changed it, so that each wish can be taken back.

use super::Session;
use crate::error::Result;
use crate::event::{Changes, Event};
use crate::workspace::Checkpoint;
use std::time::{Duration, Instant};

/// A checkpoint between two turns of one wish is made only where it takes at most this part of the time since the
/// last one. The one at the end of a wish is always made.
const SHARE: u32 = 20;

/// How much checkpoints cost, and where the wishes began.
#[derive(Debug, Default)]
pub(super) struct Pace {
    made: Option<Instant>,
    cost: Duration,
    /// For each wish, how many checkpoints there were when it began.
    wishes: Vec<usize>,
}

impl Session {
    /// A wish begins: `/undo` comes back to here.
    pub(super) async fn begin_wish(&mut self) {
        // Without a sandbox nothing has changed yet.
        let at = match self.setup.startup.if_ready() {
            Some(ready) => ready.workspace.checkpoints().await.1,
            None => 0,
        };
        self.pace.wishes.push(at);
    }

    /// Between two turns of a wish: a checkpoint where it is cheap, so that a crash loses little.
    pub(super) async fn checkpoint_if_cheap(&mut self) -> Result<()> {
        match self.pace.made {
            Some(made) if made.elapsed() < self.pace.cost * SHARE => Ok(()),
            _ => self.checkpoint().await,
        }
    }

    /// Records the workspace, if it changed since the last time.
    pub(super) async fn checkpoint(&mut self) -> Result<()> {
        let Some(ready) = self.setup.startup.if_ready() else { return Ok(()) };
        let started = Instant::now();
        let checkpoint = ready.workspace.checkpoint(&ready.sandbox).await?;
        self.pace.cost = started.elapsed();
        self.pace.made = Some(Instant::now());
        match checkpoint {
            Some(Checkpoint { id, files, .. }) => self.emit(Event::Checkpoint { id, files }),
            None => Ok(()),
        }
    }

    /// Takes back the last `wishes` wishes, with everything that shell commands did in the workspace. `None`: there
    /// is nothing to take back.
    pub async fn undo(&mut self, wishes: usize) -> Result<Option<Checkpoint>> {
        self.checkpoint().await?;
        let ready = self.setup.startup.ready().await?;
        let (_, at) = ready.workspace.checkpoints().await;
        let mut target = at;
        for _ in 0..wishes {
            // Wishes that changed nothing are passed over.
            while let Some(begin) = self.pace.wishes.pop() {
                if begin < target {
                    target = begin;
                    break;
                }
            }
        }
        if target == at {
            // Wishes of an earlier process are not known: one checkpoint each, then.
            target = at.saturating_sub(wishes);
        }
        match u32::try_from(at - target) {
            Ok(steps @ 1..) => ready.workspace.undo(&ready.sandbox, steps).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Does again what was undone last, one checkpoint.
    pub async fn redo(&mut self) -> Result<Checkpoint> {
        let ready = self.setup.startup.ready().await?;
        ready.workspace.redo(&ready.sandbox, 1).await
    }

    /// What the session has changed so far, in files, applied or not.
    pub async fn changes(&self) -> Result<Changes> {
        match self.setup.startup.if_ready() {
            Some(ready) => ready.workspace.all_changes().await,
            None => Ok(Changes::default()),
        }
    }
}
