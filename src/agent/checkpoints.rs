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
    /// What each undo took back that can still be done again.
    undone: Vec<Undone>,
}

/// What one undo took back.
#[derive(Debug)]
struct Undone {
    /// How many checkpoints.
    steps: u32,
    /// Where the wishes among them began.
    wishes: Vec<usize>,
}

/// Where `count` wishes back from the checkpoint `at` is, and how many of the `begins` (where wishes began) are left then.
fn back(begins: &[usize], at: usize, count: usize) -> (usize, usize) {
    let (mut target, mut left) = (at, begins.len());
    for taken in 0..count {
        // Wishes that changed nothing are passed over.
        match begins[..left].iter().rposition(|&begin| begin < target) {
            Some(wish) => (target, left) = (begins[wish], wish),
            // Wishes of an earlier process are not known: one checkpoint each, then.
            None => return (target.saturating_sub(count - taken), 0),
        }
    }
    (target, left)
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
            Some(Checkpoint { id, files, forgotten, .. }) => {
                self.pace.undone.clear();
                self.emit(Event::Checkpoint { id, files })?;
                self.note_forgotten(forgotten)
            }
            None => Ok(()),
        }
    }

    /// Checkpoints were forgotten for want of room: wishes that began at them cannot be taken back any more.
    fn note_forgotten(&mut self, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.pace.wishes.iter_mut().for_each(|begin| *begin = begin.saturating_sub(count));
        let text = format!(
            "The {count} oldest state(s) of the workspace were forgotten, because what the session keeps takes too much \
             room: /undo does not go back to them any more."
        );
        self.emit(Event::Notice { text })
    }

    /// Takes back the last `wishes` wishes, with everything that shell commands did in the workspace. `None`: there
    /// is nothing to take back.
    pub async fn undo(&mut self, wishes: usize) -> Result<Option<Checkpoint>> {
        self.checkpoint().await?;
        let ready = self.setup.startup.ready().await?;
        let (_, at) = ready.workspace.checkpoints().await;
        let (target, known) = back(&self.pace.wishes, at, wishes);
        match u32::try_from(at - target) {
            Ok(steps @ 1..) => {
                let checkpoint = ready.workspace.undo(&ready.sandbox, steps).await?;
                let wishes = self.pace.wishes.split_off(known);
                self.pace.undone.push(Undone { steps, wishes });
                Ok(Some(checkpoint))
            }
            _ => Ok(None),
        }
    }

    /// Does again what was undone last; of an undo by an earlier process, one checkpoint.
    pub async fn redo(&mut self) -> Result<Checkpoint> {
        let ready = self.setup.startup.ready().await?;
        let (_, at) = ready.workspace.checkpoints().await;
        let steps = self.pace.undone.last().map_or(1, |undone| undone.steps);
        let checkpoint = ready.workspace.redo(&ready.sandbox, steps).await?;
        let wishes = self.pace.undone.pop().map(|undone| undone.wishes).filter(|wishes| !wishes.is_empty());
        self.pace.wishes.extend(wishes.unwrap_or_else(|| vec![at]));
        Ok(checkpoint)
    }

    /// What the session has changed so far, in files, applied or not.
    pub async fn changes(&self) -> Result<Changes> {
        match self.setup.startup.if_ready() {
            Some(ready) => ready.workspace.all_changes().await,
            None => Ok(Changes::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::back;

    #[test]
    fn wishes_are_taken_back_one_at_a_time_or_several() {
        assert_eq!(back(&[0, 1, 2], 3, 1), (2, 2));
        assert_eq!(back(&[0, 1, 2], 3, 3), (0, 0));
        assert_eq!(back(&[0, 4, 4, 4], 7, 1), (4, 3));
        assert_eq!(back(&[0, 4, 7, 7], 7, 1), (4, 1));
    }

    #[test]
    fn wishes_of_an_earlier_process_count_as_one_checkpoint() {
        assert_eq!(back(&[], 3, 2), (1, 0));
        assert_eq!(back(&[1], 2, 2), (0, 0));
        assert_eq!(back(&[], 1, 5), (0, 0));
        assert_eq!(back(&[], 0, 1), (0, 0));
    }
}
