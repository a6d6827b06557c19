//! How many tasks run at a time, and what becomes of those that fail through no fault of their own: the sandbox does not start,
//! the endpoint is gone. The batch slows down, and stops only when nothing works for long.

use std::time::Duration;
use tokio::time::Instant;

/// Pauses in a row, without anything that works in between, that are enough: two minutes where the engine is gone, half a minute
/// where it answers and nobody knows why nothing has ever started, an hour where there is no room.
const MAX_PAUSES: u32 = 8;
const MAX_PAUSES_AT_FIRST: u32 = 5;
const MAX_PAUSES_FOR_ROOM: u32 = 124;
/// The number of times that a task fails to start alone until that is its result, where others have started and the
/// engine answers: 15 seconds.
const MAX_STARTS: u32 = 5;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The number of times that a task may fail through what is not its own fault, where that may be the task after all.
const MAX_FAILURES: u32 = 3;
/// So few tasks are worth further pauses: it may be each of them that cannot start.
const FEW: usize = 8;
/// Tasks in a row that the endpoint answers nothing, each after its own retries, until the batch stops.
const MAX_SILENT: u32 = 3;

/// The meaning of a failure that is not the task's own for other tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A sandbox did not start, for a reason that nobody knows: others may not either, for a while.
    Start,
    /// There is no room for another sandbox: a quota is used up, or no node is free. That of others ends some time.
    Room,
    /// The engine does not answer: nothing starts for a while.
    Engine,
    /// The image of the task cannot be used; others can.
    Image,
    /// The endpoint answered nothing, after all of its retries.
    Endpoint,
    /// Something failed that had worked before.
    Broken,
    /// Nothing can be written.
    Disk,
}

/// The next step for a task that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It begins again; nothing else begins during this pause.
    Again(Option<Duration>),
    /// It is the task after all.
    Result,
    /// Nothing works: the batch ends, and the task has no result.
    GiveUp,
}

/// The tasks beside the one that failed.
#[derive(Debug, Clone, Copy)]
pub struct Others {
    /// Those that run.
    pub running: usize,
    /// Those that wait.
    pub waiting: usize,
}

/// The pace of a batch.
pub struct Pace {
    /// Tasks at a time, as the user wants it.
    most: usize,
    /// Tasks at a time now: fewer after a sandbox could not be started beside those that run.
    parallel: usize,
    /// Tasks that were done since that changed.
    done: usize,
    /// Set if anything of the batch has worked, so that a failure may be that of one task.
    has_worked: bool,
    silent: u32,
    pauses: u32,
    until: Option<Instant>,
}

impl Pace {
    /// At most `most` tasks at a time. `has_worked` says whether earlier runs have results that passed.
    pub fn new(most: usize, has_worked: bool) -> Self {
        Self { most, parallel: most, done: 0, has_worked, silent: 0, pauses: 0, until: None }
    }

    /// Tasks at a time.
    pub fn parallel(&self) -> usize {
        self.parallel
    }

    /// Until when nothing is to be started.
    pub fn paused_until(&self) -> Option<Instant> {
        self.until.filter(|until| *until > Instant::now())
    }

    /// A task is done and the endpoint answered it. As many as run at a time raise their number by one: where a quota sets
    /// the number, few starts are refused.
    pub fn done(&mut self) {
        (self.pauses, self.silent) = (0, 0);
        self.done += 1;
        if self.done >= self.parallel {
            (self.done, self.parallel) = (0, (self.parallel + 1).min(self.most));
        }
    }

    /// A sandbox has started.
    pub fn started(&mut self) {
        self.has_worked = true;
    }

    /// A task failed. `failures` are those that count against it.
    pub fn failed(&mut self, cause: Cause, failures: &mut u32, others: Others) -> Next {
        match cause {
            Cause::Disk => Next::GiveUp,
            Cause::Start | Cause::Room | Cause::Engine => self.not_started(cause, failures, others),
            Cause::Endpoint => {
                self.silent += 1;
                if self.silent < MAX_SILENT { Next::Again(None) } else { Next::GiveUp }
            }
            Cause::Image | Cause::Broken => {
                *failures += 1;
                if *failures < MAX_FAILURES { Next::Again(None) } else { Next::Result }
            }
        }
    }

    fn not_started(&mut self, cause: Cause, failures: &mut u32, others: Others) -> Next {
        (self.parallel, self.done) = (others.running.max(1), 0);
        let pause = self.pause();
        if others.running > 0 {
            // One of them may make room: a quota costs no task.
            return Next::Again(pause);
        }
        let most = match cause {
            Cause::Room => MAX_PAUSES_FOR_ROOM,
            Cause::Start if !self.has_worked => MAX_PAUSES_AT_FIRST,
            _ => MAX_PAUSES,
        };
        let has_enough = pause.is_some() && self.pauses > most;
        if cause == Cause::Start && self.has_worked {
            *failures += 1;
            return match *failures {
                MAX_STARTS.. => Next::Result,
                MAX_FAILURES.. if has_enough => Next::Result,
                _ if has_enough && others.waiting >= FEW => self.give_up(),
                _ => Next::Again(pause),
            };
        }
        if has_enough { self.give_up() } else { Next::Again(pause) }
    }

    fn give_up(&mut self) -> Next {
        self.until = None;
        Next::GiveUp
    }

    /// The pause that follows from a failure, if one does: failures during a pause are those of what had begun before.
    fn pause(&mut self) -> Option<Duration> {
        if self.paused_until().is_some() {
            return None;
        }
        self.pauses += 1;
        let pause = Duration::from_secs(1 << (self.pauses - 1).min(5)).min(LONGEST_PAUSE);
        self.until = Some(Instant::now() + pause);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Others = Others { running: 0, waiting: 0 };

    /// A task that cannot start because of `cause` and has no others beside it: what becomes of it, and how long that takes.
    async fn alone(pace: &mut Pace, cause: Cause) -> (Next, u32, Duration) {
        let (began, mut failures) = (Instant::now(), 0);
        loop {
            match pace.failed(cause, &mut failures, ALONE) {
                Next::Again(pause) => tokio::time::sleep(pause.unwrap_or_default()).await,
                next => return (next, failures, began.elapsed()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_grow_until_something_works() {
        let (mut pace, mut failures) = (Pace::new(4, true), 0);
        let mut failed = |pace: &mut Pace| pace.failed(Cause::Start, &mut failures, ALONE);
        assert_eq!(failed(&mut pace), Next::Again(Some(Duration::from_secs(1))));
        assert_eq!(failed(&mut pace), Next::Again(None), "one outage, many victims");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(pace.paused_until(), None);
        assert_eq!(failed(&mut pace), Next::Again(Some(Duration::from_secs(2))));
        pace.done();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(failed(&mut pace), Next::Again(Some(Duration::from_secs(1))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_task_that_cannot_start_fails_and_not_the_batch() {
        // The batch ended with exit code 4, every time it was run again. And it waited for two minutes.
        let (next, failures, took) = alone(&mut Pace::new(4, true), Cause::Start).await;
        assert_eq!(next, Next::Result);
        assert!(failures == MAX_STARTS && took <= Duration::from_secs(15), "{failures} in {took:?}");
        let (next, _, took) = alone(&mut Pace::new(4, false), Cause::Start).await;
        assert_eq!(next, Next::GiveUp, "nothing has ever worked");
        assert!(took <= Duration::from_secs(31), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_is_gone_has_two_minutes_and_costs_no_task() {
        for has_worked in [false, true] {
            let (next, failures, took) = alone(&mut Pace::new(4, has_worked), Cause::Engine).await;
            assert_eq!((next, failures), (Next::GiveUp, 0));
            assert!(took > Duration::from_secs(120) && took < Duration::from_secs(150), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_without_room_is_waited_for_and_costs_no_task() {
        for has_worked in [false, true] {
            let (next, failures, took) = alone(&mut Pace::new(4, has_worked), Cause::Room).await;
            assert_eq!((next, failures), (Next::GiveUp, 0));
            assert!(took > Duration::from_secs(3600), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn several_tasks_that_cannot_start_all_fail_in_the_end() {
        let mut pace = Pace::new(4, true);
        let mut failures = vec![0; 5];
        let mut results = 0;
        while let Some(mut of_task) = (!failures.is_empty()).then(|| failures.remove(0)) {
            let others = Others { running: 0, waiting: failures.len() };
            match pace.failed(Cause::Start, &mut of_task, others) {
                Next::Again(pause) => {
                    tokio::time::sleep(pause.unwrap_or_default()).await;
                    failures.push(of_task);
                }
                Next::Result => results += 1,
                Next::GiveUp => panic!("no progress is made"),
            }
        }
        assert_eq!(results, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_starts_nothing_ends_the_batch_and_fails_no_task() {
        let mut pace = Pace::new(4, true);
        let others = Others { running: 0, waiting: 100 };
        // Each time it is another task.
        while let Next::Again(pause) = pace.failed(Cause::Start, &mut 0, others) {
            tokio::time::sleep(pause.unwrap_or_default()).await;
        }
        assert_eq!(pace.failed(Cause::Start, &mut 0, others), Next::GiveUp);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quota_slows_the_batch_down_and_fails_no_task() {
        // The same task failed again and again because each one that was done made the batch try one too many.
        let (mut pace, mut failures, mut refused, mut running) = (Pace::new(16, true), 0, 0, 0);
        for _ in 0..600 {
            while running < pace.parallel() && pace.paused_until().is_none() {
                if running < 4 {
                    running += 1;
                    continue;
                }
                refused += 1;
                let next = pace.failed(Cause::Start, &mut failures, Others { running, waiting: 100 });
                assert!(matches!(next, Next::Again(_)), "{next:?}");
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            running -= 1;
            pace.done();
        }
        assert_eq!(failures, 0, "another one may make room");
        assert!(refused < 600 / 3, "{refused} of 600 starts were refused");
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_that_cannot_be_used_fails_its_task_and_pauses_nothing() {
        let (mut pace, mut failures) = (Pace::new(4, false), 0);
        let others = Others { running: 3, waiting: 10 };
        let mut next = || (pace.failed(Cause::Image, &mut failures, others), pace.parallel());
        assert_eq!(next(), (Next::Again(None), 4));
        assert_eq!(next(), (Next::Again(None), 4));
        assert_eq!(next(), (Next::Result, 4));
        assert_eq!(pace.paused_until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_is_silent_ends_the_batch_unless_it_answers_others() {
        let mut pace = Pace::new(4, true);
        let silent = |pace: &mut Pace| pace.failed(Cause::Endpoint, &mut 0, ALONE);
        assert_eq!((silent(&mut pace), silent(&mut pace)), (Next::Again(None), Next::Again(None)));
        pace.done();
        assert_eq!((silent(&mut pace), silent(&mut pace)), (Next::Again(None), Next::Again(None)));
        assert_eq!(silent(&mut pace), Next::GiveUp);
    }
}
