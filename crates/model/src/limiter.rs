//! How many requests the endpoint gets at once: as many as it takes without refusing.

use agent_base::lock::Lock;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Requests that are under way at once, for all sessions of a process. Waiting sessions get their turn in order.
///
/// An endpoint that refuses a request (429) or fails halves the number, and no request begins until the wait that it asked
/// for is over. As many answers as requests are allowed raise the number by one.
pub struct Limiter {
    slots: Semaphore,
    state: Lock<State>,
    most: usize,
}

struct State {
    allowed: usize,
    /// Slots that were given up while they were in use.
    owed: usize,
    /// Answers since the last change.
    answers: usize,
    paused_until: Instant,
}

/// The right to one request.
pub struct Slot<'a> {
    limiter: &'a Limiter,
    permit: Option<SemaphorePermit<'a>>,
}

impl Limiter {
    /// At most `most` at once.
    pub fn new(most: usize) -> Self {
        let most = most.max(1);
        let state = State { allowed: most, owed: 0, answers: 0, paused_until: Instant::now() };
        Self { slots: Semaphore::new(most), state: Lock::new(state), most }
    }

    /// Returns the number of requests that are allowed at once now.
    pub fn allowed(&self) -> usize {
        self.state.lock().allowed
    }

    /// Waits for a slot, and until the endpoint takes requests again.
    pub async fn slot(&self) -> Slot<'_> {
        // The semaphore is never closed; without a permit the request would merely not be counted.
        let permit = self.slots.acquire().await.ok();
        loop {
            let until = self.state.lock().paused_until;
            if until <= Instant::now() {
                return Slot { limiter: self, permit };
            }
            tokio::time::sleep_until(until).await;
        }
    }

    /// The endpoint refused a request or failed, and the next attempt is after `wait`. During a pause, further
    /// refusals are those of requests that had begun before.
    pub fn refused(&self, wait: Duration) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let is_new = state.paused_until <= now;
        state.paused_until = state.paused_until.max(now + wait);
        state.answers = 0;
        if is_new {
            let fewer = state.allowed / 2;
            state.allowed -= fewer;
            state.owed += fewer - self.slots.forget_permits(fewer);
        }
    }

    /// The endpoint answered a request.
    pub fn answered(&self) {
        let mut state = self.state.lock();
        state.answers += 1;
        if state.allowed == self.most || state.answers < state.allowed {
            return;
        }
        (state.answers, state.allowed) = (0, state.allowed + 1);
        match state.owed {
            0 => self.slots.add_permits(1),
            _ => state.owed -= 1,
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.state.lock();
        if state.owed > 0
            && let Some(permit) = self.permit.take()
        {
            state.owed -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_halves_the_number_and_answers_raise_it_again() {
        let limiter = Limiter::new(8);
        let slots = futures_util::future::join_all((0..8).map(|_| limiter.slot())).await;
        limiter.refused(Duration::from_secs(5));
        limiter.refused(Duration::from_secs(1));
        assert_eq!(limiter.allowed(), 4, "the second had begun before");
        drop(slots);
        let began = Instant::now();
        let four = futures_util::future::join_all((0..4).map(|_| limiter.slot())).await;
        assert!(began.elapsed() >= Duration::from_secs(5), "nothing begins during the pause");
        let fifth = tokio::time::timeout(Duration::from_secs(1), limiter.slot()).await;
        assert!(fifth.is_err(), "only four at once");
        (0..4).for_each(|_| limiter.answered());
        assert_eq!(limiter.allowed(), 5);
        let fifth = tokio::time::timeout(Duration::from_secs(1), limiter.slot()).await;
        assert!(fifth.is_ok());
        drop((four, fifth));
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_is_always_allowed() {
        let limiter = Limiter::new(2);
        for _ in 0..5 {
            limiter.refused(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(limiter.allowed(), 1);
        drop(limiter.slot().await);
        (0..3).for_each(|_| limiter.answered());
        assert_eq!(limiter.allowed(), 2);
    }
}
