//! Tokens that a host gives in exchange for a credential: they stay here as well, and programs get a placeholder.

use super::rule::Placement;
use super::{Bound, Credentials, placeholder};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The largest answer with a token.
pub(super) const MAX_ANSWER: usize = 256 << 10;
/// Tokens that are kept. Those of registries are valid for minutes.
const MAX_KEPT: usize = 32;
/// Shorter texts are not tokens.
const MIN_TOKEN: usize = 16;
/// The fields that hold tokens, in the answers of registries and of OAuth.
const FIELDS: [&str; 4] = ["token", "access_token", "refresh_token", "id_token"];

impl Credentials {
    /// Keeps the tokens of an answer. Returns the answer with placeholders in their places.
    ///
    /// # Errors
    /// It is not one that could be searched for tokens: the reason.
    pub fn exchange(&self, bound: &Bound, answer: &[u8]) -> Result<Vec<u8>, String> {
        let mut fields: Map<String, Value> =
            serde_json::from_slice(answer).map_err(|_| "the answer with a token is not JSON".to_owned())?;
        for name in FIELDS {
            match fields.get_mut(name) {
                None | Some(Value::Null) => {}
                Some(Value::String(token)) if token.len() < MIN_TOKEN => {}
                Some(Value::String(token)) => *token = self.keep(bound, token),
                Some(_) => return Err(format!("{name} in the answer with a token is not text")),
            }
        }
        let mut answer = serde_json::to_vec(&fields)
            .map_err(|_| "the answer with a token cannot be written".to_owned())?;
        self.needles().replace(&mut answer);
        Ok(answer)
    }

    /// The placeholder of a token.
    fn keep(&self, bound: &Bound, token: &str) -> String {
        let mut kept = self.exchanged.lock();
        if let Some(known) = kept.iter().find(|known| known.value.expose_secret() == token) {
            return known.placeholder.clone();
        }
        let placeholder = placeholder(token);
        let mut rule = bound.rule.clone();
        rule.places = vec![Placement::Bearer];
        let mut needles = self.needles.lock();
        let mut changed = (**needles).clone();
        if kept.len() >= MAX_KEPT
            && let Some(oldest) = kept.pop_front()
        {
            changed.remove_plain(oldest.value.expose_secret());
        }
        changed.add_plain(token, &placeholder);
        *needles = Arc::new(changed);
        let value = SecretString::from(token.to_owned());
        kept.push_back(Arc::new(Bound {
            rule,
            value,
            placeholder: placeholder.clone(),
            injects: false,
            key: None,
        }));
        placeholder
    }
}
