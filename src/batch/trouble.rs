//! Failures that are not a task's own: the sandbox does not start, the endpoint is gone. The batch slows down, and stops only
//! when nothing works for long.

use std::time::Duration;
use tokio::time::Instant;

/// Pauses in a row, without anything that works in between, after which the batch stops.
const MAX_PAUSES: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often the sandbox of one task may break, and how often it may not start while those of others do: there may be a
/// quota, and room later.
pub const MAX_ATTEMPTS: u32 = 3;
pub const MAX_STARTS: u32 = 8;

/// The pauses between attempts to start something.
#[derive(Debug, Default)]
pub struct Trouble {
    pauses: u32,
    until: Option<Instant>,
}

impl Trouble {
    /// Something failed: the pause that follows from it, if one does. Failures during a pause are those of what had begun
    /// before.
    ///
    /// # Errors
    /// It is enough: nothing has worked for long.
    pub fn failed(&mut self) -> Result<Option<Duration>, ()> {
        let now = Instant::now();
        if self.until.is_some_and(|until| now < until) {
            return Ok(None);
        }
        self.pauses += 1;
        if self.pauses > MAX_PAUSES {
            return Err(());
        }
        let pause = Duration::from_secs(1 << (self.pauses - 1)).min(LONGEST_PAUSE);
        self.until = Some(now + pause);
        Ok(Some(pause))
    }

    /// Something worked.
    pub fn worked(&mut self) {
        self.pauses = 0;
    }

    /// Pauses once more, however often that was.
    pub fn pause_longest(&mut self) -> Duration {
        self.until = Some(Instant::now() + LONGEST_PAUSE);
        LONGEST_PAUSE
    }

    /// Until when nothing is to be started.
    pub fn paused_until(&self) -> Option<Instant> {
        self.until.filter(|until| *until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pauses_grow_until_something_works_or_it_is_enough() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.failed(), Ok(Some(Duration::from_secs(1))));
        assert_eq!(trouble.failed(), Ok(None), "one outage, many victims");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((trouble.paused_until(), trouble.failed()), (None, Ok(Some(Duration::from_secs(2)))));
        trouble.worked();
        tokio::time::sleep(Duration::from_secs(2)).await;
        for _ in 0..MAX_PAUSES {
            assert!(trouble.failed().is_ok());
            tokio::time::sleep(LONGEST_PAUSE).await;
        }
        assert_eq!(trouble.failed(), Err(()));
    }
}
