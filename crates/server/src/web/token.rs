//! The token that a request carries, and what happens to those who guess.

use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_base::random;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Wrong tokens after which a client waits.
const MAX_WRONG: u32 = 10;
/// The time for which it waits.
const LOCKED_FOR: Duration = Duration::from_secs(60);
/// Clients that are remembered; beyond that, the oldest is forgotten.
const MAX_CLIENTS: usize = 1024;

/// A secret to compare with: only its hash is kept.
pub struct Token([u8; 32]);

impl Token {
    /// The one of this text.
    pub fn new(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Returns whether `given` is it. How long this takes does not depend on `given`'s content: the hashes are compared.
    pub fn is(&self, given: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.0.iter().zip(given).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

/// A new secret: 32 bytes of the kernel's, as base64url.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn random() -> Result<String> {
    random::text::<TOKEN_BYTES>()
}

/// The clients that sent wrong tokens.
#[derive(Default)]
pub struct Lockout(Lock<HashMap<Option<IpAddr>, Wrong>>);

struct Wrong {
    count: u32,
    last: Instant,
}

impl Lockout {
    /// Returns whether `client` has to wait.
    pub fn is_locked(&self, client: Option<IpAddr>) -> bool {
        let mut clients = self.0.lock();
        match clients.get(&client) {
            Some(wrong) if wrong.last.elapsed() > LOCKED_FOR => {
                clients.remove(&client);
                false
            }
            Some(wrong) => wrong.count >= MAX_WRONG,
            None => false,
        }
    }

    /// Counts a wrong token of `client`.
    pub fn count(&self, client: Option<IpAddr>) {
        let mut clients = self.0.lock();
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            let oldest = clients.iter().min_by_key(|(_, wrong)| wrong.last).map(|(client, _)| *client);
            oldest.map(|client| clients.remove(&client));
        }
        let wrong = clients.entry(client).or_insert(Wrong { count: 0, last: Instant::now() });
        wrong.count += 1;
        wrong.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_only_the_right_one_is_accepted() {
        let text = random().expect("random bytes");
        assert_eq!(text.len(), 43);
        assert_ne!(text, random().expect("random bytes"));
        let token = Token::new(&text);
        assert!(token.is(text.as_bytes()));
        assert!(!token.is(b"") && !token.is(&text.as_bytes()[1..]));
    }

    #[test]
    fn a_client_waits_after_ten_wrong_tokens_and_others_do_not() {
        let lockout = Lockout::default();
        let client = |last| Some(IpAddr::from([192, 0, 2, last]));
        for _ in 0..MAX_WRONG {
            assert!(!lockout.is_locked(client(1)));
            lockout.count(client(1));
        }
        assert!(lockout.is_locked(client(1)) && !lockout.is_locked(client(2)));
        for number in 0..3000_u32 {
            lockout.count(Some(IpAddr::from(number.to_be_bytes())));
        }
        assert!(lockout.0.lock().len() <= MAX_CLIENTS);
    }
}
