//! Records the workspace after every turn that changed it, so that each prompt can be undone.

use super::frontend::Frontend;
use super::startup::{Ready, Startup};
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};
use agent_core::Moment;
use agent_event::Event;
use agent_workspace::{Checkpoint, Restored};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Between two turns a checkpoint is made only if it takes at most 1 / `MAX_SHARE` of the time since the last one. At the
/// end of a prompt it is always made.
const MAX_SHARE: u32 = 20;

/// The checkpoints of a session's sandbox.
pub struct Checkpoints {
    pub(super) startup: Arc<Startup>,
    pub(super) frontend: Arc<dyn Frontend>,
    state: Mutex<CheckpointState>,
}

struct CheckpointState {
    last: Option<Instant>,
    cost: Duration,
    /// The last prompt, counting from 1 over the whole session.
    prompt: u64,
    /// The numbers of prompts that undos reverted, of those undos that can still be redone; the last one is the last
    /// undo.
    undone: Vec<usize>,
}

impl Checkpoints {
    /// Those of a session that has had `prompts` prompts.
    pub(super) fn new(startup: Arc<Startup>, frontend: Arc<dyn Frontend>, prompts: u64) -> Self {
        let state = CheckpointState { last: None, cost: Duration::ZERO, prompt: prompts, undone: Vec::new() };
        Self { startup, frontend, state: Mutex::new(state) }
    }

    /// Undoes the last `prompts` prompts, with everything that shell commands did in the workspace: the checkpoint that
    /// is restored, and how many prompts that undid. `None`: there is nothing to undo.
    pub async fn undo(&self, prompts: usize) -> Result<Option<(Restored, usize)>> {
        let mut state = self.state.lock().await;
        let ready = self.startup.ready().await?;
        if ready.workspace.is_in_place() {
            return self.undo_in_place(&ready, prompts, 0).await;
        }
        ready.workspace.open_closed(&ready.sandbox).await?;
        self.record(&mut state).await?;
        let (list, at) = ready.workspace.checkpoints().await;
        let (target, undone) = undo_target(&list, at, prompts);
        match u32::try_from(at - target) {
            Ok(steps @ 1..) => {
                let restored = ready.workspace.undo(&ready.sandbox, steps).await?;
                state.undone.push(undone);
                Ok(Some((restored, undone)))
            }
            _ if at > 0 && prompts > 0 => Err(not_kept()),
            _ => Ok(None),
        }
    }

    /// Restores the workspace as it was before a prompt. `None` where it has not changed since.
    pub async fn undo_to(&self, prompt: u64) -> Result<Option<Restored>> {
        let mut state = self.state.lock().await;
        let Some(ready) = self.startup.if_ready() else { return Ok(None) };
        if ready.workspace.is_in_place() {
            let undone = self.undo_in_place(&ready, usize::MAX, prompt).await?;
            return Ok(undone.map(|(restored, _)| restored));
        }
        ready.workspace.open_closed(&ready.sandbox).await?;
        self.record(&mut state).await?;
        let (list, at) = ready.workspace.checkpoints().await;
        let until_now = list.get(..=at).unwrap_or_default();
        let target = until_now.iter().rposition(|checkpoint| checkpoint.prompt < prompt).unwrap_or(0);
        let undone = until_now.get(target + 1..).unwrap_or_default();
        if undone.iter().any(|checkpoint| checkpoint.after_gap) {
            return Err(not_kept());
        }
        let Ok(steps @ 1..) = u32::try_from(undone.len()) else { return Ok(None) };
        let mut prompts: Vec<u64> = undone.iter().map(|checkpoint| checkpoint.prompt).collect();
        prompts.dedup();
        let restored = ready.workspace.undo(&ready.sandbox, steps).await?;
        state.undone.push(prompts.len());
        Ok(Some(restored))
    }

    /// As [`Checkpoints::undo`], where the sandbox writes straight into the user's files, of prompts since number `since`. What the user
    /// wrote since then is not recorded, so that it is a conflict and is not taken back with it.
    async fn undo_in_place(
        &self,
        ready: &Ready,
        prompts: usize,
        since: u64,
    ) -> Result<Option<(Restored, usize)>> {
        let (files, undone, conflict) = ready.workspace.undo_prompts(prompts, since).await?;
        if let Some(conflict) = conflict {
            self.frontend.always_notice(format!("The prompt before is not undone: {conflict}"))?;
        }
        let (list, at) = ready.workspace.checkpoints().await;
        let checkpoint = list.get(at).filter(|_| undone > 0).cloned();
        Ok(checkpoint.map(|checkpoint| (Restored { checkpoint, files }, undone)))
    }

    /// Redoes what was undone last; of an undo by an earlier process, one prompt.
    pub async fn redo(&self) -> Result<Restored> {
        let mut state = self.state.lock().await;
        let ready = self.startup.ready().await?;
        if ready.workspace.is_in_place() {
            let why =
                "what was taken back in your own files is not written there again (--workspace-mode bind)";
            return Err(Error::usage(why).hint("ask for it again"));
        }
        let (list, at) = ready.workspace.checkpoints().await;
        let target = redo_target(&list, at, state.undone.last().copied().unwrap_or(1));
        // The workspace reports that there is nothing to redo.
        let steps = u32::try_from(target - at).unwrap_or(u32::MAX).max(1);
        let restored = ready.workspace.redo(&ready.sandbox, steps).await?;
        state.undone.pop();
        Ok(restored)
    }

    /// Records the workspace, if it changed since the last time.
    pub async fn save(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        self.record(&mut state).await
    }

    /// Records the workspace, and begins a further step that can be undone on its own, in a session without prompts. The number
    /// of that step.
    pub async fn mark(&self) -> Result<u64> {
        let mut state = self.state.lock().await;
        self.record(&mut state).await?;
        state.prompt += 1;
        Ok(state.prompt)
    }

    /// Records the workspace between two steps of a session without prompts, if that is cheap: else, how long it is too early.
    pub async fn between(&self) -> Result<Option<Duration>> {
        let mut state = self.state.lock().await;
        match state.too_early() {
            Some(wait) => Ok(Some(wait)),
            None => self.record(&mut state).await.map(|()| None),
        }
    }

    /// Returns the time of the last recording of the workspace, if there is one in this process.
    pub(super) async fn recorded(&self) -> Option<Instant> {
        self.state.lock().await.last
    }

    /// Records the workspace after work on the session's prompt number `prompt`.
    pub(super) async fn after(&self, prompt: u64, moment: Moment) -> Result<()> {
        let mut state = self.state.lock().await;
        state.prompt = prompt;
        match moment {
            Moment::BetweenTurns if state.too_early().is_some() => Ok(()),
            _ => self.record_prompt(&mut state).await,
        }
    }

    /// Records the workspace, if it changed since the last time. Where the sandbox writes straight into the user's files, only a prompt's
    /// end does: at any other time it may be the user who changed them.
    async fn record(&self, state: &mut CheckpointState) -> Result<()> {
        match self.startup.if_ready() {
            Some(ready) if ready.workspace.is_in_place() => Ok(()),
            _ => self.record_prompt(state).await,
        }
    }

    async fn record_prompt(&self, state: &mut CheckpointState) -> Result<()> {
        let Some(ready) = self.startup.if_ready() else { return Ok(()) };
        let started = Instant::now();
        // An overlay cannot list a directory that the user has replaced meanwhile, and shows the former file. Where that cannot be helped, the
        // look says what it is about.
        drop(self.startup.show_anew(&ready.workspace, false).await);
        ready.workspace.hide_out_of_sight(&ready.sandbox).await?;
        let checkpoint = ready.workspace.checkpoint(&ready.sandbox, state.prompt).await?;
        state.cost = started.elapsed();
        state.last = Some(Instant::now());
        let Some(Checkpoint { id, files, names, prompt, forgotten, .. }) = checkpoint else { return Ok(()) };
        state.undone.clear();
        let events = self.frontend.events();
        let names = names.iter().map(ToString::to_string).collect();
        events.emit(Event::Checkpoint { id, files, names, prompt: Some(prompt) })?;
        match forgotten {
            0 => Ok(()),
            count => events.emit(Event::Notice {
                text: format!(
                    "Removed {}, which cannot be restored any more, because the session takes too much space.",
                    counted(count, "old checkpoint")
                ),
            }),
        }
    }
}

impl CheckpointState {
    /// Returns the wait until another recording would not take more than its share of the time; `None` if it may begin
    /// now.
    fn too_early(&self) -> Option<Duration> {
        let since = self.last?.elapsed();
        (self.cost * MAX_SHARE).checked_sub(since).filter(|wait| !wait.is_zero())
    }
}

fn not_kept() -> Error {
    Error::usage("the workspace as it was before this prompt is not kept any more: it took too much space")
        .hint("`agent diff` shows what the session changed; your own files are untouched until you apply it")
}

/// The checkpoint `count` prompts before the one at `at`, and how many prompts that are. Prompts that changed nothing
/// have no checkpoint and are skipped. It stops at a prompt whose earlier state is not kept any more.
fn undo_target(list: &[Checkpoint], at: usize, count: usize) -> (usize, usize) {
    let (mut target, mut undone) = (at, 0);
    while target > 0 && undone < count {
        let prompt = list[target].prompt;
        let before = list[..target].iter().rposition(|checkpoint| checkpoint.prompt != prompt).unwrap_or(0);
        if list[before + 1..=target].iter().any(|checkpoint| checkpoint.after_gap) {
            break;
        }
        (target, undone) = (before, undone + 1);
    }
    (target, undone)
}

/// The checkpoint `count` prompts after the one at `at`.
fn redo_target(list: &[Checkpoint], at: usize, count: usize) -> usize {
    (0..count).fold(at, |at, _| {
        let Some(next) = list.get(at + 1) else { return at };
        at + list[at + 1..].iter().take_while(|checkpoint| checkpoint.prompt == next.prompt).count()
    })
}

#[cfg(test)]
mod tests {
    use super::{redo_target, undo_target};
    use agent_workspace::Checkpoint;

    fn list(prompts: &[u64]) -> Vec<Checkpoint> {
        let checkpoint = |(id, prompt): (usize, &u64)| Checkpoint {
            id: id.to_string(),
            time: String::new(),
            files: 1,
            names: Vec::new(),
            prompt: *prompt,
            forgotten: 0,
            after_gap: false,
            added: Vec::new(),
        };
        prompts.iter().enumerate().map(checkpoint).collect()
    }

    #[test]
    fn prompts_are_undone_one_at_a_time_or_several() {
        let list = list(&[0, 1, 3, 3, 3, 7]);
        assert_eq!(undo_target(&list, 5, 1), (4, 1));
        assert_eq!(undo_target(&list, 4, 1), (1, 1));
        assert_eq!(undo_target(&list, 5, 2), (1, 2));
        assert_eq!(undo_target(&list, 5, 9), (0, 3));
        assert_eq!(undo_target(&list, 0, 1), (0, 0));
    }

    #[test]
    fn a_prompt_whose_first_checkpoint_was_removed_is_not_undone() {
        let mut list = list(&[0, 3, 3, 7]);
        list[1].after_gap = true;
        assert_eq!(undo_target(&list, 3, 1), (2, 1));
        assert_eq!(undo_target(&list, 3, 9), (2, 1));
        assert_eq!(undo_target(&list, 2, 1), (2, 0));
    }

    #[test]
    fn a_redo_restores_whole_prompts() {
        let list = list(&[0, 1, 3, 3, 3, 7]);
        assert_eq!(redo_target(&list, 0, 1), 1);
        assert_eq!(redo_target(&list, 1, 1), 4);
        assert_eq!(redo_target(&list, 1, 2), 5);
        assert_eq!(redo_target(&list, 0, 9), 5);
        assert_eq!(redo_target(&list, 5, 1), 5);
    }
}
