//! Names of sockets: each is good for one connection to one terminal, soon after it was given out.

use super::Terminal;
use crate::web::token::random;
use agent_base::error::Result;
use agent_base::hash::Hash;
use agent_base::lock::Lock;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Names that are good at the same time; the oldest makes room.
const MAX_TICKETS: usize = 256;
/// The time for which one is valid.
const VALID_FOR: Duration = Duration::from_secs(30);

/// The names that were given out and not used.
#[derive(Default)]
pub struct Tickets(Lock<VecDeque<Ticket>>);

struct Ticket {
    /// Of the name: comparing it tells nothing about the name.
    hash: Hash,
    terminal: Weak<Terminal>,
    made: Instant,
}

impl Tickets {
    /// A name for a socket of `terminal`.
    ///
    /// # Errors
    /// There are no random bytes.
    pub fn give(&self, terminal: &Arc<Terminal>) -> Result<String> {
        let name = random()?;
        let mut tickets = self.0.lock();
        tickets.retain(|ticket| ticket.made.elapsed() < VALID_FOR);
        if tickets.len() == MAX_TICKETS {
            tickets.pop_front();
        }
        let (hash, terminal) = (Hash::of(&name), Arc::downgrade(terminal));
        tickets.push_back(Ticket { hash, terminal, made: Instant::now() });
        Ok(name)
    }

    /// The terminal that `name` is good for; it is not good again.
    pub fn take(&self, name: &str) -> Option<Arc<Terminal>> {
        let hash = Hash::of(name);
        let mut tickets = self.0.lock();
        let at = tickets.iter().position(|ticket| ticket.hash == hash)?;
        let ticket = tickets.remove(at)?;
        (ticket.made.elapsed() < VALID_FOR).then(|| ticket.terminal.upgrade()).flatten()
    }
}
