//! Finds private keys and well-known tokens, and replaces them in text by `[secret: TYPE]`.
//!
//! Only shapes that nothing else has: a fixed prefix with a body of a known alphabet and length, or PEM armour around a
//! body. A hash, a UUID or any other random string has no such prefix. One pass, linear in the text.

use std::collections::BTreeMap;

/// A token: what it is, what it starts with, and how long the rest is, in characters of its alphabet.
struct Shape(&'static str, &'static str, Alphabet, std::ops::RangeInclusive<usize>);

type Alphabet = fn(u8) -> bool;

const ALNUM: Alphabet = |byte| byte.is_ascii_alphanumeric();
const LOWER_HEX: Alphabet = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
const UPPER: Alphabet = |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit();
const BASE32: Alphabet = |byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7');
const BASE64: Alphabet = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
const URL_SAFE: Alphabet = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
const DOTTED: Alphabet = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');

const SHAPES: [Shape; 47] = [
    Shape("AWS access key", "AKIA", BASE32, 16..=16),
    Shape("AWS access key", "ASIA", BASE32, 16..=16),
    Shape("GitHub token", "ghp_", ALNUM, 36..=255),
    Shape("GitHub token", "gho_", ALNUM, 36..=255),
    Shape("GitHub token", "ghu_", ALNUM, 36..=255),
    Shape("GitHub token", "ghs_", ALNUM, 36..=255),
    Shape("GitHub token", "ghr_", ALNUM, 36..=255),
    Shape("GitHub token", "github_pat_", URL_SAFE, 60..=255),
    Shape("GitLab token", "glpat-", DOTTED, 20..=255),
    Shape("GitLab token", "gldt-", URL_SAFE, 20..=64),
    Shape("GitLab token", "glrt-", DOTTED, 20..=255),
    Shape("Slack token", "xoxb-", URL_SAFE, 30..=255),
    Shape("Slack token", "xoxp-", URL_SAFE, 30..=255),
    Shape("Slack token", "xoxa-", URL_SAFE, 30..=255),
    Shape("Slack token", "xoxs-", URL_SAFE, 30..=255),
    Shape("Slack token", "xapp-1-", URL_SAFE, 30..=255),
    Shape("Anthropic key", "sk-ant-", URL_SAFE, 80..=255),
    Shape("OpenAI key", "sk-proj-", URL_SAFE, 40..=255),
    Shape("OpenAI key", "sk-svcacct-", URL_SAFE, 40..=255),
    Shape("OpenAI key", "sk-admin-", URL_SAFE, 40..=255),
    Shape("OpenAI key", "sk-", ALNUM, 48..=48),
    Shape("OpenRouter key", "sk-or-v1-", LOWER_HEX, 64..=64),
    Shape("Groq key", "gsk_", ALNUM, 48..=64),
    Shape("xAI key", "xai-", ALNUM, 70..=90),
    Shape("Hugging Face token", "hf_", ALNUM, 34..=40),
    Shape("Replicate token", "r8_", ALNUM, 37..=37),
    Shape("E2B key", "e2b_", LOWER_HEX, 40..=40),
    Shape("Google API key", "AIza", URL_SAFE, 35..=35),
    Shape("Google OAuth secret", "GOCSPX-", URL_SAFE, 28..=28),
    Shape("Google OAuth token", "ya29.", URL_SAFE, 60..=1024),
    Shape("Stripe key", "sk_live_", ALNUM, 24..=255),
    Shape("Stripe key", "rk_live_", ALNUM, 24..=255),
    Shape("npm token", "npm_", ALNUM, 36..=36),
    Shape("PyPI token", "pypi-AgE", URL_SAFE, 80..=512),
    Shape("RubyGems key", "rubygems_", LOWER_HEX, 48..=48),
    Shape("crates.io token", "cio", ALNUM, 32..=32),
    Shape("Docker token", "dckr_pat_", URL_SAFE, 27..=40),
    Shape("SendGrid key", "SG.", DOTTED, 66..=66),
    Shape("DigitalOcean token", "dop_v1_", LOWER_HEX, 64..=64),
    Shape("Shopify token", "shpat_", LOWER_HEX, 32..=32),
    Shape("Databricks token", "dapi", LOWER_HEX, 32..=34),
    Shape("Vault token", "hvs.", URL_SAFE, 24..=255),
    Shape("Linear key", "lin_api_", ALNUM, 40..=40),
    Shape("Grafana token", "glsa_", URL_SAFE, 41..=41),
    Shape("New Relic key", "NRAK-", UPPER, 27..=27),
    Shape("Tailscale key", "tskey-auth-", URL_SAFE, 24..=80),
    Shape("age key", "AGE-SECRET-KEY-1", UPPER, 58..=58),
];

/// A random body of 16 characters or more has more different characters than this; a placeholder (`xxxx…`) has fewer.
const MIN_DIFFERENT: usize = 8;
/// What AWS calls the secret half of a key, which has no shape of its own.
const AWS_SECRET: [&str; 3] = ["aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey"];
const AWS_SECRET_LENGTH: usize = 40;
const PRIVATE_KEY: &str = "private key";
const ARMOUR: &[u8] = b"-----";
/// The longest label between the dashes: `BEGIN PGP PRIVATE KEY BLOCK`.
const MAX_LABEL: usize = 40;
/// The longest body of a private key, in bytes.
const MAX_KEY: usize = 32 << 10;
/// The body of a key has a line of at least this many characters; a mention of the armour alone has none.
const MIN_KEY_LINE: usize = 40;

/// A text without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    /// The text with `[secret: TYPE]` in place of each.
    pub text: String,
    /// How many of each type were replaced.
    pub types: BTreeMap<String, u64>,
}

/// Replaces the secrets in `text`; `None` where there are none.
pub fn redact(text: &str) -> Option<Redacted> {
    let bytes = text.as_bytes();
    let mut redacted = Redacted { text: String::new(), types: BTreeMap::new() };
    let (mut copied, mut at) = (0, 0);
    while at < bytes.len() {
        let Some((kind, start, end)) = secret_at(bytes, at, copied) else {
            at += 1;
            continue;
        };
        redacted.text += &text[copied..start];
        redacted.text += &format!("[secret: {kind}]");
        *redacted.types.entry(kind.to_owned()).or_default() += 1;
        (copied, at) = (end, end);
    }
    redacted.text += &text[copied..];
    (copied > 0).then_some(redacted)
}

/// The type of the first secret in `bytes`.
pub fn find(bytes: &[u8]) -> Option<&'static str> {
    (0..bytes.len()).find_map(|at| secret_at(bytes, at, 0)).map(|(kind, ..)| kind)
}

/// The secret that is recognised at `at`, and its range, which starts at `floor` or later.
fn secret_at(bytes: &[u8], at: usize, floor: usize) -> Option<(&'static str, usize, usize)> {
    let rest = &bytes[at..];
    if rest.starts_with(ARMOUR) {
        return private_key(bytes, at, floor).map(|(start, end)| (PRIVATE_KEY, start, end));
    }
    let is_inside_word = at > floor && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if is_inside_word {
        return None;
    }
    let token = SHAPES.iter().find_map(|shape| Some((shape.0, at, at + shape.length(rest)?)));
    token.or_else(|| aws_secret(rest).map(|(start, end)| ("AWS secret key", at + start, at + end)))
}

impl Shape {
    /// The length of the token that `text` starts with.
    fn length(&self, text: &[u8]) -> Option<usize> {
        let Shape(_, prefix, alphabet, lengths) = self;
        let rest = text.strip_prefix(prefix.as_bytes())?;
        let length = run(rest, *alphabet, lengths.end() + 1);
        (lengths.contains(&length) && is_random(&rest[..length])).then_some(prefix.len() + length)
    }
}

/// How many of the first bytes are of the alphabet, `limit` at most.
fn run(text: &[u8], alphabet: Alphabet, limit: usize) -> usize {
    text.iter().take(limit).take_while(|byte| alphabet(**byte)).count()
}

fn is_random(body: &[u8]) -> bool {
    let mut seen = [false; 256];
    let different =
        body.iter().filter(|byte| !std::mem::replace(&mut seen[usize::from(**byte)], true)).count();
    different >= MIN_DIFFERENT && !body.to_ascii_uppercase().windows(7).any(|part| part == b"EXAMPLE")
}

/// `aws_secret_access_key = VALUE`: the range of the value.
fn aws_secret(text: &[u8]) -> Option<(usize, usize)> {
    let name = AWS_SECRET.iter().find(|name| text.starts_with(name.as_bytes()))?;
    let separator =
        run(&text[name.len()..], |byte| matches!(byte, b' ' | b'"' | b'\'' | b':' | b'=' | b'\\'), 8);
    let start = name.len() + separator;
    let length = run(&text[start..], BASE64, AWS_SECRET_LENGTH + 1);
    let is_value = separator > 0 && length == AWS_SECRET_LENGTH && is_random(&text[start..start + length]);
    is_value.then_some((start, start + length))
}

/// The private key whose first or, where the beginning is missing, last line is at `at`.
fn private_key(bytes: &[u8], at: usize, floor: usize) -> Option<(usize, usize)> {
    let line = armour_line(&bytes[at..])?;
    if bytes[at..].starts_with(b"-----BEGIN ") {
        let body = at + line;
        let end = body + run(&bytes[body..], is_key_text, MAX_KEY);
        if !has_key_line(&bytes[body..end]) {
            return None;
        }
        let last = armour_line(&bytes[end..]).filter(|_| bytes[end..].starts_with(b"-----END "));
        return Some((at, end + last.unwrap_or(0)));
    }
    let window = &bytes[floor.max(at.saturating_sub(MAX_KEY))..at];
    let length = window.iter().rev().take_while(|byte| is_key_text(**byte)).count();
    has_key_line(&bytes[at - length..at]).then_some((at - length, at + line))
}

/// The length of `-----BEGIN … PRIVATE KEY…-----`, or of the same with `END`.
fn armour_line(text: &[u8]) -> Option<usize> {
    let label = text.strip_prefix(ARMOUR)?;
    let length =
        run(label, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ', MAX_LABEL);
    let is_key = label[..length].windows(11).any(|part| part == b"PRIVATE KEY");
    (is_key && label[length..].starts_with(ARMOUR)).then_some(2 * ARMOUR.len() + length)
}

/// What occurs between the armour lines, also where they are quoted in a program or have line numbers.
fn is_key_text(byte: u8) -> bool {
    BASE64(byte)
        || byte.is_ascii_whitespace()
        || matches!(byte, b'\\' | b'"' | b'\'' | b',' | b':' | b'.' | b'|')
}

fn has_key_line(body: &[u8]) -> bool {
    body.split(|byte| !BASE64(*byte)).any(|word| word.len() >= MIN_KEY_LINE && is_random(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Assembled here, so that no scanner takes this file for a leak.
    fn samples() -> Vec<(&'static str, String)> {
        let body = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0x";
        let hex = "0123456789abcdef0f1e2d3c4b5a69788796a5b4c3d2e1f00123456789abcdef";
        vec![
            ("AWS access key", format!("AKIA{}", "Q3EGRZ7XW2LMN4PT")),
            ("GitHub token", format!("ghp_{}", &body[..36])),
            ("GitHub token", format!("github_pat_{}", &body[..82])),
            ("GitLab token", format!("glpat-{}", &body[..20])),
            ("Slack token", format!("xoxb-123456789012-123456789012-{}", &body[..24])),
            ("Anthropic key", format!("sk-ant-api03-{}", &body[..93])),
            ("OpenAI key", format!("sk-proj-{}", &body[..60])),
            ("OpenAI key", format!("sk-{}", &body[..48])),
            ("OpenRouter key", format!("sk-or-v1-{hex}")),
            ("Google API key", format!("AIza{}", &body[..35])),
            ("npm token", format!("npm_{}", &body[..36])),
            ("DigitalOcean token", format!("dop_v1_{hex}")),
            ("SendGrid key", format!("SG.{}.{}", &body[..22], &body[30..73])),
        ]
    }

    fn pem(label: &str, separator: &str) -> String {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
        let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
        [begin.as_str(), line, line, "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3S", &end].join(separator)
    }

    #[test]
    fn tokens_are_replaced_by_their_type() {
        for (kind, token) in samples() {
            let text = format!("export TOKEN=\"{token}\" # keep");
            let redacted = redact(&text).unwrap_or_else(|| panic!("{kind}: {token}"));
            assert_eq!(redacted.text, format!("export TOKEN=\"[secret: {kind}]\" # keep"));
            assert_eq!(redacted.types, BTreeMap::from([(kind.to_owned(), 1)]));
        }
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY";
        for text in
            [format!("aws_secret_access_key = {secret}"), format!("\"SecretAccessKey\": \"{secret}\"")]
        {
            assert_eq!(redact(&text).unwrap().text, text.replace(secret, "[secret: AWS secret key]"));
        }
    }

    #[test]
    fn private_keys_are_replaced_whole() {
        for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"] {
            for separator in ["\n", "\r\n", "\\n", "\\n\" +\n    \"", "\n   12\t"] {
                let text = format!("before {} after", pem(label, separator));
                assert_eq!(redact(&text).unwrap().text, "before [secret: private key] after", "{text}");
            }
        }
    }

    #[test]
    fn a_key_that_was_cut_in_the_middle_is_replaced_on_both_sides() {
        let key = pem("PRIVATE KEY", "\n");
        let text = format!("{}\n[… 20 lines …]\n{}", &key[..100], &key[110..]);
        let redacted = redact(&text).unwrap();
        assert_eq!(redacted.text, "[secret: private key][… 20 lines …][secret: private key]");
        assert_eq!(redacted.types[PRIVATE_KEY], 2);
    }

    #[test]
    fn hashes_identifiers_and_placeholders_are_kept() {
        for text in [
            "d41d8cd98f00b204e9800998ecf8427e",
            "550e8400-e29b-41d4-a716-446655440000",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "sha512-aWYg3Zl0Kk8dF7mGgG1t4nWg0uN9oY4s0mYJ4v1tK3ZB8c2XwM5hQpTqv7RkLJx0==",
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "sk-ant-…, sk-proj-…, npm_config_registry_and_other_variables",
            "-----BEGIN RSA PRIVATE KEY-----\nthe key goes here\n-----END RSA PRIVATE KEY-----",
            "if line == '-----BEGIN PRIVATE KEY-----': return True",
            "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END CERTIFICATE-----",
        ] {
            assert_eq!(redact(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_scanned_without_a_panic_and_only_once(text in "(\\PC|-----BEGIN PRIVATE KEY-----|ghp_|[a-zA-Z0-9]{36}|\n|é){0,40}") {
            if let Some(redacted) = redact(&text) {
                prop_assert_eq!(redact(&redacted.text), None, "nothing is left to find");
            }
        }

        #[test]
        fn a_token_is_found_wherever_it_stands(
            before in "(\\PC{0,30}[^a-zA-Z0-9_]|)", after in "([^a-zA-Z0-9_.-]\\PC{0,30}|)", index in 0usize..13,
        ) {
            let (_, token) = samples().swap_remove(index);
            let redacted = redact(&format!("{before}{token}{after}"));
            prop_assert!(redacted.is_some_and(|redacted| !redacted.text.contains(&token)));
        }

        #[test]
        fn random_hex_and_base64_are_kept(text in "([0-9a-f]{32,64}|[A-Za-z0-9+/]{20,80}={0,2}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})( [0-9a-f]{40}){0,5}") {
            prop_assert_eq!(redact(&text), None);
        }
    }
}
