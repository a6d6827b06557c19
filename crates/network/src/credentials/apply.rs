//! Putting the value in the placeholder's place, where the rule says.

use super::Bound;
use super::rule::Placement;
use super::sign::Signed;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret;

impl Bound {
    /// Puts the value into the fields and the query of a request. Returns whether the placeholder was there.
    ///
    /// # Errors
    /// A field that the value belongs into occurs twice, and servers differ in which one they read.
    pub(super) fn apply(&self, headers: &mut HeaderMap, query: &mut String) -> Result<bool, String> {
        let mut applied = false;
        for place in &self.rule.places {
            applied |= match place {
                Placement::Bearer => self.in_field(headers, &AUTHORIZATION, |text| self.bearer(text))?,
                Placement::Basic => self.in_field(headers, &AUTHORIZATION, |text| self.basic(text))?,
                Placement::Token => self.in_field(headers, &AUTHORIZATION, |text| self.alone(text))?,
                Placement::Header(name) => match HeaderName::try_from(name) {
                    Ok(name) => self.in_field(headers, &name, |text| self.alone(text))?,
                    Err(_) => false,
                },
                Placement::Query(name) => self.in_query(query, name),
                // It is signed once its body is known.
                Placement::Aws => Signed::by(headers, &self.placeholder).is_some(),
            };
        }
        Ok(applied)
    }

    /// Adds the value to a request that has none, where the user allowed that. Returns whether it did.
    pub(super) fn inject(&self, headers: &mut HeaderMap, path: &str) -> bool {
        let is_of_git = self.rule.git && (path.ends_with("/info/refs") || path.contains("/git-"));
        let basic = self.rule.places.iter().find(|place| is_of_git && **place == Placement::Basic);
        let Some(place) = basic.or(self.rule.places.first()).filter(|_| self.injects) else { return false };
        let value = self.value.expose_secret();
        let (name, text) = match place {
            Placement::Bearer => (AUTHORIZATION, format!("Bearer {value}")),
            Placement::Token => (AUTHORIZATION, value.to_owned()),
            Placement::Basic => {
                let login = if self.rule.login.is_empty() { "token" } else { &self.rule.login };
                (AUTHORIZATION, format!("Basic {}", STANDARD.encode(format!("{login}:{value}"))))
            }
            Placement::Header(name) => match HeaderName::try_from(name) {
                Ok(name) => (name, value.to_owned()),
                Err(_) => return false,
            },
            Placement::Query(_) | Placement::Aws => return false,
        };
        let Ok(mut value) = HeaderValue::try_from(text) else { return false };
        if headers.contains_key(&name) {
            return false;
        }
        value.set_sensitive(true);
        headers.insert(name, value);
        true
    }

    fn in_field(
        &self,
        headers: &mut HeaderMap,
        name: &HeaderName,
        replaced: impl Fn(&str) -> Option<String>,
    ) -> Result<bool, String> {
        if headers.get_all(name).iter().count() > 1 {
            return Err(format!("the field {name} occurs twice"));
        }
        let text = headers.get(name).and_then(|value| value.to_str().ok());
        let Some(mut value) = text.and_then(replaced).and_then(|text| HeaderValue::try_from(text).ok())
        else {
            return Ok(false);
        };
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(true)
    }

    fn alone(&self, text: &str) -> Option<String> {
        let (text, value) = (text.trim(), self.value.expose_secret());
        if text == self.placeholder {
            return Some(value.to_owned());
        }
        // As GitHub's registry hands it out: what came back was replaced in base64.
        (text == STANDARD.encode(&self.placeholder)).then(|| STANDARD.encode(value))
    }

    fn bearer(&self, text: &str) -> Option<String> {
        let (scheme, token) = text.trim().split_once(' ')?;
        let is_known = ["bearer", "token"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let token = self.alone(token).filter(|_| is_known)?;
        Some(format!("{scheme} {token}"))
    }

    fn basic(&self, text: &str) -> Option<String> {
        let (scheme, encoded) = text.trim().split_once(' ')?;
        let decoded =
            STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
        let decoded = String::from_utf8(decoded).ok()?;
        let (user, password) = decoded.split_once(':')?;
        let value = self.value.expose_secret();
        let pair = match (user == self.placeholder, password == self.placeholder) {
            (_, true) => format!("{user}:{value}"),
            // As the user, beside `x-oauth-basic` or nothing.
            (true, _) => format!("{value}:{password}"),
            _ => return None,
        };
        Some(format!("Basic {}", STANDARD.encode(pair)))
    }

    fn in_query(&self, query: &mut String, name: &str) -> bool {
        let mut found = false;
        let parts = query.split('&').map(|part| match part.split_once('=') {
            Some((key, value)) if key == name && value == self.placeholder => {
                found = true;
                format!("{key}={}", utf8_percent_encode(self.value.expose_secret(), NON_ALPHANUMERIC))
            }
            _ => part.to_owned(),
        });
        *query = parts.collect::<Vec<_>>().join("&");
        found
    }
}
