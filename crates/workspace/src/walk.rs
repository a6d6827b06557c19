//! Walks directories on several threads.

use agent_base::lock::Lock;
use std::sync::{Condvar, PoisonError};

/// Most threads of one walk: beyond this the disk is what takes the time.
const MAX_THREADS: usize = 8;

/// The directories that are still to be listed.
pub struct Queue<D> {
    state: Lock<WalkState<D>>,
    changed: Condvar,
}

struct WalkState<D> {
    waiting: Vec<D>,
    /// Threads that list a directory right now, and may push others.
    busy: usize,
    /// Threads that have none to list.
    idle: usize,
}

impl<D> Queue<D> {
    /// Adds directories.
    pub fn extend(&self, directories: impl IntoIterator<Item = D>) {
        let mut state = self.state.lock();
        state.waiting.extend(directories);
        // Waking nobody takes a system call too.
        let wakes = state.idle.min(state.waiting.len());
        drop(state);
        (0..wakes).for_each(|_| self.changed.notify_one());
    }

    /// The next directory; `None` once none is left and no thread can add one.
    fn next(&self) -> Option<D> {
        let mut state = self.state.lock();
        loop {
            if let Some(directory) = state.waiting.pop() {
                state.busy += 1;
                return Some(directory);
            }
            if state.busy == 0 {
                return None;
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// Marks a directory as listed, even where listing it panicked: the other threads would wait for ever.
struct Listing<'a, D>(&'a Queue<D>);

impl<D> Drop for Listing<'_, D> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.busy -= 1;
        if state.busy == 0 && state.waiting.is_empty() {
            self.0.changed.notify_all();
        }
    }
}

/// Calls `list` for each of `first` and for every directory that it pushes. Returns what each thread found. Blocking.
pub fn each_directory<D: Send, F: Default + Send>(
    first: Vec<D>,
    list: impl Fn(D, &Queue<D>, &mut F) + Sync,
) -> Vec<F> {
    let queue =
        Queue { state: Lock::new(WalkState { waiting: first, busy: 0, idle: 0 }), changed: Condvar::new() };
    let run = || {
        let mut found = F::default();
        while let Some(directory) = queue.next() {
            let _listing = Listing(&queue);
            list(directory, &queue, &mut found);
        }
        found
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut found = vec![run()];
        for other in others {
            match other.join() {
                Ok(other) => found.push(other),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::each_directory;

    #[test]
    fn every_directory_is_listed_once() {
        let found = each_directory(vec![1u64], |number, queue, found: &mut Vec<u64>| {
            found.push(number);
            queue.extend([number * 2, number * 2 + 1].into_iter().filter(|child| *child < 1000));
        });
        let mut all = found.concat();
        all.sort_unstable();
        assert_eq!(all, (1..1000).collect::<Vec<_>>());
    }
}
