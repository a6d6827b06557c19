//! Records the workspace after every turn that changed it, so that each wish can be taken back.

use super::Session;
use crate::error::{Error, Result};
use crate::event::{Changes, Event};
use crate::workspace::Checkpoint;
use std::time::{Duration, Instant};

/// A checkpoint between two turns of one wish is made only where it takes at most this part of the time since the
/// last one. The one at the end of a wish is always made.
const SHARE: u32 = 20;

/// How much checkpoints cost, and which wish they belong to.
#[derive(Debug, Default)]
pub(super) struct Pace {
    made: Option<Instant>,
    cost: Duration,
    /// The wish under way, or the last one, counting from 1 over the whole session.
    pub(super) wish: u64,
    /// How many wishes each undo took back that can still be done again.
    undone: Vec<usize>,
}

/// Where `count` wishes back from the checkpoint `at` is, and how many of them there are. Wishes that changed nothing
/// have no checkpoint, and are passed over. It stops at a wish before which the workspace is not kept any more.
fn back(list: &[Checkpoint], at: usize, count: usize) -> (usize, usize) {
    let (mut target, mut taken) = (at, 0);
    while target > 0 && taken < count {
        let wish = list[target].wish;
        let before = list[..target].iter().rposition(|checkpoint| checkpoint.wish != wish).unwrap_or(0);
        if list[before + 1..=target].iter().any(|checkpoint| checkpoint.after_gap) {
            break;
        }
        (target, taken) = (before, taken + 1);
    }
    (target, taken)
}

/// Where `count` wishes forward from the checkpoint `at` is.
fn forth(list: &[Checkpoint], at: usize, count: usize) -> usize {
    (0..count).fold(at, |at, _| {
        let Some(next) = list.get(at + 1) else { return at };
        at + list[at + 1..].iter().take_while(|checkpoint| checkpoint.wish == next.wish).count()
    })
}

impl Session {
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
        let checkpoint = ready.workspace.checkpoint(&ready.sandbox, self.pace.wish).await?;
        self.pace.cost = started.elapsed();
        self.pace.made = Some(Instant::now());
        match checkpoint {
            Some(Checkpoint { id, files, wish, forgotten, .. }) => {
                self.pace.undone.clear();
                self.emit(Event::Checkpoint { id, files, prompt: Some(wish) })?;
                self.note_forgotten(forgotten)
            }
            None => Ok(()),
        }
    }

    /// Checkpoints were forgotten for want of room.
    fn note_forgotten(&self, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let text = format!(
            "The {count} oldest state(s) of the workspace were forgotten, because what the session keeps takes too much \
             room: /undo does not go back to them any more."
        );
        self.emit(Event::Notice { text })
    }

    /// Takes back the last `wishes` wishes, with everything that shell commands did in the workspace: where that leads, and
    /// how many there were. `None`: there is nothing to take back.
    pub async fn undo(&mut self, wishes: usize) -> Result<Option<(Checkpoint, usize)>> {
        self.checkpoint().await?;
        let ready = self.setup.startup.ready().await?;
        let (list, at) = ready.workspace.checkpoints().await;
        let (target, taken) = back(&list, at, wishes);
        match u32::try_from(at - target) {
            Ok(steps @ 1..) => {
                let checkpoint = ready.workspace.undo(&ready.sandbox, steps).await?;
                self.pace.undone.push(taken);
                Ok(Some((checkpoint, taken)))
            }
            _ if at > 0 && wishes > 0 => Err(Error::usage(
                "the workspace as it was before this wish is not kept any more: it took too much room",
            )
            .hint("`agent diff` shows what the session changed; your own files are untouched until you apply it")),
            _ => Ok(None),
        }
    }

    /// Does again what was undone last; of an undo by an earlier process, one wish.
    pub async fn redo(&mut self) -> Result<Checkpoint> {
        let ready = self.setup.startup.ready().await?;
        let (list, at) = ready.workspace.checkpoints().await;
        let target = forth(&list, at, self.pace.undone.last().copied().unwrap_or(1));
        // Where there is nothing more, the workspace says so.
        let steps = u32::try_from(target - at).unwrap_or(u32::MAX).max(1);
        let checkpoint = ready.workspace.redo(&ready.sandbox, steps).await?;
        self.pace.undone.pop();
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
    use super::{back, forth};
    use crate::workspace::Checkpoint;

    fn list(wishes: &[u64]) -> Vec<Checkpoint> {
        let checkpoint = |(id, wish): (usize, &u64)| Checkpoint {
            id: id.to_string(),
            time: String::new(),
            files: 1,
            wish: *wish,
            forgotten: 0,
            after_gap: false,
        };
        wishes.iter().enumerate().map(checkpoint).collect()
    }

    #[test]
    fn wishes_are_taken_back_one_at_a_time_or_several() {
        let list = list(&[0, 1, 3, 3, 3, 7]);
        assert_eq!(back(&list, 5, 1), (4, 1));
        assert_eq!(back(&list, 4, 1), (1, 1));
        assert_eq!(back(&list, 5, 2), (1, 2));
        assert_eq!(back(&list, 5, 9), (0, 3));
        assert_eq!(back(&list, 0, 1), (0, 0));
    }

    #[test]
    fn no_wish_is_taken_back_whose_beginning_is_forgotten() {
        // It went back to the very beginning, over everything that was forgotten.
        let mut list = list(&[0, 3, 3, 7]);
        list[1].after_gap = true;
        assert_eq!(back(&list, 3, 1), (2, 1));
        assert_eq!(back(&list, 3, 9), (2, 1));
        assert_eq!(back(&list, 2, 1), (2, 0));
    }

    #[test]
    fn wishes_are_done_again_as_wholes() {
        let list = list(&[0, 1, 3, 3, 3, 7]);
        assert_eq!(forth(&list, 0, 1), 1);
        assert_eq!(forth(&list, 1, 1), 4);
        assert_eq!(forth(&list, 1, 2), 5);
        assert_eq!(forth(&list, 0, 9), 5);
        assert_eq!(forth(&list, 5, 1), 5);
    }
}
