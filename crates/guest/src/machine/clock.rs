//! Jumps of this machine's clock: it was set, or the machine was suspended.

use std::time::{Duration, Instant, SystemTime};

/// A clock that differs more than this from what it should say was set, or this machine was suspended.
const JUMP: Duration = Duration::from_millis(200);

/// This machine's clock, as it should go on.
pub struct Clock {
    at: Instant,
    pub(super) time: SystemTime,
}

impl Clock {
    pub fn now() -> Self {
        Self { at: Instant::now(), time: SystemTime::now() }
    }

    /// Returns whether the time is another one than it should be, once for each jump.
    pub fn has_jumped(&mut self) -> bool {
        let (should_be, is) = (self.time + self.at.elapsed(), SystemTime::now());
        let difference = is.duration_since(should_be).unwrap_or_else(|error| error.duration());
        let has_jumped = difference > JUMP;
        if has_jumped {
            *self = Self::now();
        }
        has_jumped
    }
}
