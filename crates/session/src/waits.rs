//! The progress of a sandbox's start, as its backend reports it.

use agent_base::lock::Lock;

/// The beginning of a backend's text about a wait.
const WAITING: &str = "waiting for ";

/// Notices a wait that goes on.
#[derive(Default)]
pub struct Waits(Lock<Last>);

#[derive(Default)]
struct Last {
    what: String,
    is_noticed: bool,
}

impl Waits {
    /// Returns whether `what` is a wait that was reported before: once for each.
    pub fn is_repeated(&self, what: &str) -> bool {
        let mut last = self.0.lock();
        if !what.starts_with(WAITING) || last.what != what {
            *last = Last { what: what.to_owned(), is_noticed: false };
            return false;
        }
        !std::mem::replace(&mut last.is_noticed, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_noticed_once_when_it_goes_on() {
        let waits = Waits::default();
        let noticed: Vec<bool> = [
            "creating the pod",
            "creating the pod",
            "waiting for a node",
            "waiting for a node: too little memory",
            "waiting for a node: too little memory",
            "waiting for a node: too little memory",
            "starting the container",
        ]
        .into_iter()
        .map(|what| waits.is_repeated(what))
        .collect();
        assert_eq!(noticed, [false, false, false, false, true, false, false]);
    }
}
