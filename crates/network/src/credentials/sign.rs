//! Signing requests with a key of AWS (Signature Version 4) in the place of the placeholder's.
//!
//! The key itself is sent nowhere. What the program signed (the date, the region, the service, the fields) is signed again.

use agent_base::hash::Hash;
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const END: &str = "aws4_request";
const CONTENT_HASH: &str = "x-amz-content-sha256";
const DATE: &str = "x-amz-date";
const TOKEN: &str = "x-amz-security-token";
/// Fields that a signature may cover.
const MAX_FIELDS: usize = 100;
/// The services whose paths are encoded once.
const ENCODED_ONCE: [&str; 4] = ["s3", "s3-outposts", "s3-object-lambda", "s3express"];
/// The characters of a path that are not encoded.
const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A key, as `aws configure export-credentials` prints it.
#[derive(Clone)]
pub(super) struct Key {
    access_key_id: String,
    pub secret_access_key: SecretString,
    pub session_token: Option<SecretString>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
}

impl Key {
    /// Reads it.
    pub fn parse(text: &str) -> Option<Self> {
        let Printed { access_key_id, secret_access_key, session_token } = serde_json::from_str(text).ok()?;
        let session_token = session_token.map(SecretString::from);
        let key = Self { access_key_id, secret_access_key: secret_access_key.into(), session_token };
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_token =
            |token: &SecretString| token.expose_secret().len() >= 8 && is_word(token.expose_secret());
        (is_word(&key.access_key_id)
            && key.secret_access_key.expose_secret().len() >= 8
            && key.session_token.as_ref().is_none_or(is_token))
        .then_some(key)
    }
}

/// The parts of a request that a program signed, with its placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signed {
    date: String,
    region: String,
    service: String,
    fields: Vec<HeaderName>,
}

impl Signed {
    /// Reads `Authorization`, if it is signed with this id.
    pub fn by(headers: &HeaderMap, id: &str) -> Option<Self> {
        let text = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix(ALGORITHM)?;
        let mut parts = text.split(',').filter_map(|part| part.trim().split_once('='));
        let mut part = |name: &str| parts.find(|(known, _)| *known == name).map(|(_, value)| value);
        let mut scope = part("Credential")?.split('/');
        let mut next = || scope.next().map(str::to_owned);
        let (named, date, region, service, end) = (next()?, next()?, next()?, next()?, next()?);
        let fields: Vec<_> =
            part("SignedHeaders")?.split(';').filter_map(|name| HeaderName::try_from(name).ok()).collect();
        let is_it = named == id && end == END && next().is_none() && fields.len() <= MAX_FIELDS;
        is_it.then_some(Self { date, region, service, fields })
    }

    /// The service that it is for.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Signs the request again. `body`: the hash of its body, where the request does not name it.
    ///
    /// # Errors
    /// It cannot be signed: the reason.
    pub fn sign(
        &self,
        key: &Key,
        (method, path, query): (&Method, &str, &str),
        headers: &mut HeaderMap,
        body: Option<Hash>,
    ) -> Result<(), String> {
        let secret = |text: &str| {
            let mut value =
                HeaderValue::try_from(text).map_err(|_| "the key fits into no field".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        headers.remove(TOKEN);
        let mut fields: Vec<_> = self.fields.iter().filter(|name| *name != TOKEN).cloned().collect();
        if let Some(token) = &key.session_token {
            headers.insert(TOKEN, secret(token.expose_secret())?);
            fields.push(HeaderName::from_static(TOKEN));
        }
        fields.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        let date = headers.get(DATE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !date.starts_with(&self.date) || self.date.len() != 8 {
            return Err(format!("it is signed without the field {DATE}, or for another day"));
        }
        let body = match (content_hash(headers), body) {
            (Some(named), _) => named.to_owned(),
            (None, Some(hash)) => hash.to_string(),
            (None, None) => return Err("the hash of its body is not known".to_owned()),
        };
        let names = fields.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(";");
        let mut canonical = format!("{method}\n{}\n{}\n", self.path(path), sorted(query));
        for name in &fields {
            canonical += &format!("{name}:{}\n", joined(headers, name)?);
        }
        canonical += &format!("\n{names}\n{body}");
        let scope = format!("{}/{}/{}/{END}", self.date, self.region, self.service);
        let text = format!("{ALGORITHM}\n{date}\n{scope}\n{}", Hash::of(canonical));
        let mut derived =
            hmac(format!("AWS4{}", key.secret_access_key.expose_secret()).as_bytes(), &self.date);
        for part in [&self.region, &self.service, END] {
            derived = hmac(&derived.0, part);
        }
        let signature = hmac(&derived.0, &text);
        let value = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            key.access_key_id
        );
        headers.insert(AUTHORIZATION, secret(&value)?);
        Ok(())
    }

    fn path(&self, path: &str) -> String {
        match ENCODED_ONCE.contains(&self.service.as_str()) {
            true => path.to_owned(),
            false => utf8_percent_encode(path, &KEPT).to_string(),
        }
    }
}

/// Returns the hash of its body that a request names.
pub(super) fn content_hash(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_HASH)?.to_str().ok()
}

/// Returns why a body cannot be signed again.
pub(super) fn objection(headers: &HeaderMap) -> Option<&'static str> {
    let is_in_parts = content_hash(headers).is_some_and(|named| named.starts_with("STREAMING-AWS4"));
    is_in_parts.then_some(
        "each chunk of its body is signed with the key, which is not supported: have the client sign the body as a whole, or not at all \
         (UNSIGNED-PAYLOAD)",
    )
}

fn sorted(query: &str) -> String {
    let mut pairs: Vec<_> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn joined(headers: &HeaderMap, name: &HeaderName) -> Result<String, String> {
    let one = |value: &HeaderValue| {
        let text = value.to_str().map_err(|_| format!("the field {name} is not text"))?;
        Ok(text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
    };
    let values: Result<Vec<_>, String> = headers.get_all(name).iter().map(one).collect();
    let values = values?;
    match values.is_empty() {
        true => Err(format!("the field {name} is signed and not there")),
        false => Ok(values.join(",")),
    }
}

/// HMAC with SHA-256 (RFC 2104).
fn hmac(key: &[u8], text: &str) -> Hash {
    const BLOCK: usize = 64;
    let mut block = [0; BLOCK];
    match key.len() <= BLOCK {
        true => block[..key.len()].copy_from_slice(key),
        false => block[..32].copy_from_slice(&Hash::of(key).0),
    }
    let padded = |with: u8| block.map(|byte| byte ^ with).to_vec();
    let inner = Hash::of([&padded(0x36), text.as_bytes()].concat());
    Hash::of([&padded(0x5c), &inner.0[..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn key(more: &str) -> Key {
        let text = format!(
            "{{\"Version\": 1, \"AccessKeyId\": \"AKIDEXAMPLE\", \"SecretAccessKey\": \"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\"{more}}}"
        );
        Key::parse(&text).unwrap()
    }

    const BY_PLACEHOLDER: &str = "AWS4-HMAC-SHA256 Credential=AKIAPLACEHOLDER/20150830/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=0123";

    #[test]
    fn the_example_of_the_documentation_is_signed_as_it_says() {
        let mut fields = headers(&[
            ("host", "iam.amazonaws.com"),
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("x-amz-date", "20150830T123600Z"),
            ("authorization", BY_PLACEHOLDER),
        ]);
        let signed = Signed::by(&fields, "AKIAPLACEHOLDER").unwrap();
        let request = (&Method::GET, "/", "Version=2010-05-08&Action=ListUsers");
        signed.sign(&key(""), request, &mut fields, Some(Hash::of(""))).unwrap();
        let text = fields[AUTHORIZATION].to_str().unwrap();
        assert!(text.ends_with("5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"), "{text}");
        assert!(text.contains("Credential=AKIDEXAMPLE/20150830/"), "{text}");
        // A token is sent, and covered by the signature.
        signed
            .sign(&key(", \"SessionToken\": \"session-token\""), request, &mut fields, Some(Hash::of("")))
            .unwrap();
        assert_eq!(fields[TOKEN], "session-token");
        assert!(fields[AUTHORIZATION].to_str().unwrap().contains("x-amz-date;x-amz-security-token,"));
    }

    #[test]
    fn what_cannot_be_signed_is_said() {
        let fields = headers(&[("x-amz-date", "20150830T123600Z"), ("authorization", BY_PLACEHOLDER)]);
        assert_eq!(Signed::by(&fields, "AKIAOTHER"), None);
        let signed = Signed::by(&fields, "AKIAPLACEHOLDER").unwrap();
        let sign = |mut fields: HeaderMap| {
            signed.sign(&key(""), (&Method::GET, "/", ""), &mut fields, Some(Hash::of(""))).unwrap_err()
        };
        assert!(sign(fields).contains("content-type is signed and not there"));
        assert!(sign(headers(&[("x-amz-date", "20150831T000000Z")])).contains("another day"));
        let in_parts = headers(&[(CONTENT_HASH, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")]);
        assert!(objection(&in_parts).is_some());
        assert!(objection(&headers(&[(CONTENT_HASH, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")])).is_none());
        assert!(
            Key::parse("{}").is_none()
                && Key::parse("{\"AccessKeyId\": \"\", \"SecretAccessKey\": \"12345678\"}").is_none()
        );
    }

    #[test]
    fn paths_of_other_services_than_s3_are_encoded_twice() {
        let signed = |service: &str| Signed {
            date: String::new(),
            region: String::new(),
            service: service.into(),
            fields: vec![],
        };
        assert_eq!(signed("s3").path("/a%20b/~c"), "/a%20b/~c");
        assert_eq!(signed("lambda").path("/a%3Ab/~c"), "/a%253Ab/~c");
        assert_eq!(sorted("b=2&a&b=1"), "a=&b=1&b=2");
    }
}
