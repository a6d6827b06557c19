//! The receiving side of a stream's flow control: a window that grows as long as its reader keeps up.

use super::{MAX_WINDOW, WINDOW};

/// The bytes that the windows of one connection may grow by together, so that memory stays bounded however many streams there are.
#[derive(Debug)]
pub struct WindowBudget(u32);

impl WindowBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: u32) -> Self {
        Self(bytes)
    }
}

/// The window of one direction of a stream, as its receiver keeps it.
#[derive(Debug)]
pub struct ReceiveWindow {
    size: u32,
    /// The bytes that the sender may still send.
    available: u32,
    /// Consumed, and not returned to the sender yet.
    consumed: u32,
}

impl Default for ReceiveWindow {
    fn default() -> Self {
        Self { size: WINDOW, available: WINDOW, consumed: 0 }
    }
}

impl ReceiveWindow {
    /// Counts what has arrived. `false` where it is more than allowed.
    #[must_use]
    pub fn receive(&mut self, cost: u32) -> bool {
        let left = self.available.checked_sub(cost);
        self.available = left.unwrap_or(0);
        left.is_some()
    }

    /// Counts what has been consumed; the credit to return, a quarter of the window at a time. With `drained`, nothing
    /// else waits to be consumed: the sender is what is slow, or the window, which is doubled.
    pub fn consume(&mut self, cost: u32, drained: bool, budget: &mut WindowBudget) -> Option<u32> {
        self.consumed = self.consumed.saturating_add(cost);
        if self.consumed < self.size / 4 {
            return None;
        }
        let mut credit = std::mem::take(&mut self.consumed);
        let growth = self.size.min(MAX_WINDOW - self.size).min(budget.0);
        if drained && growth > 0 {
            budget.0 -= growth;
            self.size += growth;
            credit += growth;
        }
        self.available += credit;
        Some(credit)
    }

    /// Gives back what the window grew by when its stream has ended.
    pub fn release(&mut self, budget: &mut WindowBudget) {
        budget.0 += self.size - WINDOW;
        self.size = WINDOW;
    }
}
