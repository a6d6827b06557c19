//! Keys and tokens: made from the kernel's random numbers, compared in constant time.

use agent_base::error::Result;
use agent_base::random;
use std::fmt;
use subtle::ConstantTimeEq;

/// Characters of ids: what a host name's first label may hold.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A key or token. It is never printed by accident.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A secret that was made elsewhere.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A new one, of 160 random bits in 40 hexadecimal digits: some SDKs refuse keys of another form.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub fn generate(prefix: &str) -> Result<Self> {
        Ok(Self(format!("{prefix}{}", hex::encode(random::bytes::<20>()?))))
    }

    /// Returns whether `other` is the same, in a time that depends on its length alone.
    pub fn matches(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }

    /// The text, for the owner of the secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// `N` random characters of `[a-z2-7]`, 5 bits each.
pub fn random_text<const N: usize>() -> Result<String> {
    Ok(random::bytes::<N>()?.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_are_not_shown() {
        let (one, other) = (Secret::generate("k_").unwrap(), Secret::generate("k_").unwrap());
        assert!(one.matches(one.reveal()) && !one.matches(other.reveal()) && !one.matches(""));
        let digits = one.reveal().strip_prefix("k_").unwrap();
        assert!(digits.len() == 40 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        assert_eq!(format!("{one:?}"), "Secret(…)");
    }
}
