//! The memory that uploads may take together: each is held until it is complete.

use super::connect::{Code, Failure};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most bytes that all uploads may hold at a time.
const MAX_BYTES: usize = 1 << 30;
/// Memory is counted in pieces of this size.
const UNIT: usize = 64 << 10;

/// That of this process.
static BUDGET: Budget = Budget::new(MAX_BYTES);

/// Memory for uploads.
struct Budget(Semaphore);

impl Budget {
    const fn new(bytes: usize) -> Self {
        Self(Semaphore::const_new(bytes / UNIT))
    }

    fn enter(&self) -> Held<'_> {
        Held { budget: self, permits: None, bytes: 0 }
    }
}

/// The bytes that one upload holds; they are given back in the end.
pub struct Held<'a> {
    budget: &'a Budget,
    permits: Option<SemaphorePermit<'a>>,
    bytes: usize,
}

/// The account of one upload more.
pub fn enter() -> Held<'static> {
    BUDGET.enter()
}

impl Held<'_> {
    /// Takes more bytes.
    ///
    /// # Errors
    /// The uploads of all clients take all there is.
    pub fn grow(&mut self, by: usize) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(by);
        let held = self.permits.as_ref().map_or(0, SemaphorePermit::num_permits);
        let missing = self.bytes.div_ceil(UNIT).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let full = || {
            Failure::new(
                Code::ResourceExhausted,
                "the uploads of all clients take too much memory: try again later",
            )
        };
        let missing = u32::try_from(missing).map_err(|_| full())?;
        let more = self.budget.0.try_acquire_many(missing).map_err(|_| full())?;
        match &mut self.permits {
            Some(permits) => permits.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    /// Gives everything back: what was held is written.
    pub fn clear(&mut self) {
        (self.permits, self.bytes) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_share_their_room_and_give_it_back() {
        let budget = Budget::new(10 * UNIT);
        let (mut one, mut two) = (budget.enter(), budget.enter());
        for _ in 0..6 {
            one.grow(UNIT).unwrap();
        }
        one.grow(0).unwrap();
        two.grow(4 * UNIT - 1).unwrap();
        two.grow(1).unwrap();
        assert!(two.grow(1).is_err() && one.grow(1).is_err());
        drop(two);
        one.grow(UNIT).unwrap();
        one.clear();
        assert_eq!(budget.0.available_permits(), 10);
        assert!(budget.enter().grow(usize::MAX).is_err());
    }
}
