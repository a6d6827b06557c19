//! Finds private keys and well-known tokens, and replaces them in text by `[secret: TYPE]`.
//!
//! Only shapes that nothing else has: a fixed prefix with a body of a known alphabet and length, a well-known setting
//! with a value of exactly its length, or PEM armour around a whole key. A hash or a UUID has no such prefix, and the
//! sample keys of documentation are shortened, repetitive or say EXAMPLE. One pass, linear in the text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64_ENGINE;
use std::collections::BTreeMap;

/// A token: its type, its prefix, how many characters of which alphabet follow at least, and what may stand around it.
struct Shape(&'static str, &'static str, Alphabet, usize, PrefixPosition);

/// The place where a prefix begins a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrefixPosition {
    /// Wherever it stands: nothing else has this prefix and so long a body.
    Anywhere,
    /// Not behind a letter of its own case, where it is the end of a word (`task-…`).
    AtWord,
    /// The same, with a body of exactly this length.
    Alone,
}

use PrefixPosition::{Alone, Anywhere, AtWord};

type Alphabet = fn(u8) -> bool;

const ALNUM: Alphabet = |byte| byte.is_ascii_alphanumeric();
const LOWER_HEX: Alphabet = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
const UPPER: Alphabet = |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit();
const BASE32: Alphabet = |byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7');
const BASE64: Alphabet = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
const URL_SAFE: Alphabet = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
const DOTTED: Alphabet = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');

const SHAPES: [Shape; 48] = [
    Shape("AWS access key", "AKIA", BASE32, 16, Alone),
    Shape("AWS access key", "ASIA", BASE32, 16, Alone),
    Shape("GitHub token", "ghp_", ALNUM, 36, Anywhere),
    Shape("GitHub token", "gho_", ALNUM, 36, Anywhere),
    Shape("GitHub token", "ghu_", ALNUM, 36, Anywhere),
    Shape("GitHub token", "ghs_", ALNUM, 36, Anywhere),
    Shape("GitHub token", "ghr_", ALNUM, 36, Anywhere),
    Shape("GitHub token", "github_pat_", URL_SAFE, 60, Anywhere),
    Shape("GitLab token", "glpat-", DOTTED, 20, Anywhere),
    Shape("GitLab token", "gldt-", URL_SAFE, 20, Anywhere),
    Shape("GitLab token", "glrt-", DOTTED, 20, Anywhere),
    Shape("Slack token", "xoxb-", URL_SAFE, 30, Anywhere),
    Shape("Slack token", "xoxp-", URL_SAFE, 30, Anywhere),
    Shape("Slack token", "xoxa-", URL_SAFE, 30, Anywhere),
    Shape("Slack token", "xoxs-", URL_SAFE, 30, Anywhere),
    Shape("Slack token", "xapp-1-", URL_SAFE, 30, Anywhere),
    Shape("Anthropic key", "sk-ant-", URL_SAFE, 80, Anywhere),
    Shape("OpenAI key", "sk-proj-", URL_SAFE, 40, Anywhere),
    Shape("OpenAI key", "sk-svcacct-", URL_SAFE, 40, Anywhere),
    Shape("OpenAI key", "sk-admin-", URL_SAFE, 40, Anywhere),
    Shape("OpenAI key", "sk-", ALNUM, 48, AtWord),
    Shape("OpenRouter key", "sk-or-v1-", LOWER_HEX, 64, Anywhere),
    Shape("Groq key", "gsk_", ALNUM, 48, Anywhere),
    Shape("xAI key", "xai-", ALNUM, 70, Anywhere),
    Shape("Hugging Face token", "hf_", ALNUM, 34, AtWord),
    Shape("Replicate token", "r8_", ALNUM, 37, AtWord),
    Shape("Daytona key", "dtn_", LOWER_HEX, 64, Anywhere),
    Shape("E2B key", "e2b_", LOWER_HEX, 40, Anywhere),
    Shape("Google API key", "AIza", URL_SAFE, 35, Anywhere),
    Shape("Google OAuth secret", "GOCSPX-", URL_SAFE, 28, Anywhere),
    Shape("Google OAuth token", "ya29.", URL_SAFE, 60, Anywhere),
    Shape("Stripe key", "sk_live_", ALNUM, 24, Anywhere),
    Shape("Stripe key", "rk_live_", ALNUM, 24, Anywhere),
    Shape("npm token", "npm_", ALNUM, 36, Anywhere),
    Shape("PyPI token", "pypi-AgE", URL_SAFE, 80, Anywhere),
    Shape("RubyGems key", "rubygems_", LOWER_HEX, 48, Anywhere),
    Shape("crates.io token", "cio", ALNUM, 32, Alone),
    Shape("Docker token", "dckr_pat_", URL_SAFE, 27, Anywhere),
    Shape("SendGrid key", "SG.", DOTTED, 66, Alone),
    Shape("DigitalOcean token", "dop_v1_", LOWER_HEX, 64, Anywhere),
    Shape("Shopify token", "shpat_", LOWER_HEX, 32, Anywhere),
    Shape("Databricks token", "dapi", LOWER_HEX, 32, Anywhere),
    Shape("Vault token", "hvs.", URL_SAFE, 24, AtWord),
    Shape("Linear key", "lin_api_", ALNUM, 40, Anywhere),
    Shape("Grafana token", "glsa_", URL_SAFE, 41, Anywhere),
    Shape("New Relic key", "NRAK-", UPPER, 27, Anywhere),
    Shape("Tailscale key", "tskey-auth-", URL_SAFE, 24, Anywhere),
    Shape("age key", "AGE-SECRET-KEY-1", UPPER, 58, Anywhere),
];

/// Settings whose values have no prefix of their own, in lower case: the name, which may be the end of a longer one, the type, and the
/// length of the value in base64.
const ASSIGNED: [(&str, &str, usize); 7] = [
    ("secret_access_key", "AWS secret key", 40),
    ("secret-access-key", "AWS secret key", 40),
    ("secretaccesskey", "AWS secret key", 40),
    ("accountkey", "Azure storage key", 88),
    ("account_key", "Azure storage key", 88),
    ("privatekey", "WireGuard key", 44),
    ("private_key", "WireGuard key", 44),
];
/// The longest run of quotes, blanks and signs between a setting's name and its value.
const MAX_SEPARATOR: usize = 16;

/// The number of the first bytes of a prefix that are looked up before it is compared.
const LOOKED_UP: usize = 3;

/// For each of the first bytes, the shapes (by bit) that have it there; [`ASSIGNED`] follows [`SHAPES`].
const STARTS: [[u64; 256]; LOOKED_UP] = {
    let mut starts = [[0; 256]; LOOKED_UP];
    let mut index = 0;
    while index < SHAPES.len() + ASSIGNED.len() {
        let is_setting = index >= SHAPES.len();
        let prefix = if is_setting { ASSIGNED[index - SHAPES.len()].0 } else { SHAPES[index].1 }.as_bytes();
        let mut at = 0;
        while at < LOOKED_UP {
            starts[at][prefix[at] as usize] |= 1 << index;
            if is_setting {
                starts[at][prefix[at].to_ascii_uppercase() as usize] |= 1 << index;
            }
            at += 1;
        }
        index += 1;
    }
    starts
};

/// The body of a placeholder (`xxxx…`) has fewer different characters.
const MIN_DIFFERENT: usize = 8;
/// Only a placeholder counts up this far (`12345678`, `abcdefgh`).
const MAX_COUNTING: usize = 8;
const PRIVATE_KEY: &str = "private key";
const ARMOUR: &[u8] = b"-----";
/// The longest label between the dashes: `BEGIN PGP PRIVATE KEY BLOCK`.
const MAX_LABEL: usize = 40;
/// The longest body of a private key, in bytes.
const MAX_KEY: usize = 32 << 10;
/// A line of a key has at least this many characters.
const MIN_KEY_LINE: usize = 40;
/// The first line of a key whose end is missing has at least this many.
const MIN_WHOLE_LINE: usize = 60;

/// A text without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    /// The text with `[secret: TYPE]` in place of each.
    pub text: String,
    /// The number of secrets that were replaced, by type.
    pub types: BTreeMap<String, u64>,
}

/// Replaces the secrets in `text`; `None` where there are none.
pub fn redact(text: &str) -> Option<Redacted> {
    let mut redacted = Redacted { text: String::new(), types: BTreeMap::new() };
    let mut copied = 0;
    while let Some(secret) = next_secret(text.as_bytes(), copied) {
        redacted.text += &text[copied..secret.start];
        redacted.text += &format!("[secret: {}]", secret.kind);
        *redacted.types.entry(secret.kind.to_owned()).or_default() += 1;
        copied = secret.end;
    }
    redacted.text += &text[copied..];
    (copied > 0).then_some(redacted)
}

/// The type of the first secret in `bytes`, which need not be text.
pub fn find(bytes: &[u8]) -> Option<&'static str> {
    next_secret(bytes, 0).map(|secret| secret.kind)
}

struct Secret {
    kind: &'static str,
    start: usize,
    end: usize,
}

/// The first secret at `from` or later.
fn next_secret(bytes: &[u8], from: usize) -> Option<Secret> {
    (from..bytes.len()).find_map(|at| match bytes[at] {
        b'-' => private_key(bytes, at, from),
        _ => token(bytes, at, from),
    })
}

/// Returns whether text ends in the written form of another character: a token is a word behind it too, as in JSON (`\\nghp_…`), in an
/// address (`%3Dghp_…`) and behind a colour that is shown.
fn ends_in_escape(text: &[u8]) -> bool {
    const LONGEST: usize = 20;
    let text = &text[text.len().saturating_sub(LONGEST)..];
    let hex = text.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let before = |digits: usize| if hex >= digits { &text[..text.len() - digits] } else { b"".as_slice() };
    let colour = text.strip_suffix(b"m").map(|text| {
        let codes = text.iter().rev().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
        &text[..text.len() - codes]
    });
    matches!(text, [.., b'\\', b'n' | b'r' | b't' | b'a' | b'b' | b'e' | b'f' | b'v' | b'0'])
        || before(2).ends_with(b"%")
        || before(2).ends_with(b"\\x")
        || before(3).ends_with(b"\\")
        || before(4).ends_with(b"\\u")
        || colour.is_some_and(|text| text.ends_with(b"\x1b[") || text.ends_with("␛[".as_bytes()))
}

/// The token at `at`; what is before `from` is the end of another secret.
fn token(bytes: &[u8], at: usize, from: usize) -> Option<Secret> {
    let text = bytes.get(at..).filter(|text| text.len() > LOOKED_UP)?;
    let mut candidates =
        (0..LOOKED_UP).fold(u64::MAX, |all, place| all & STARTS[place][usize::from(text[place])]);
    while candidates != 0 {
        let index = candidates.trailing_zeros() as usize;
        candidates &= candidates - 1;
        let found = match SHAPES.get(index) {
            Some(shape) => shape.length(&bytes[from..at], text).map(|length| (shape.0, 0, length)),
            None => assigned(text, ASSIGNED[index - SHAPES.len()]),
        };
        if let Some((kind, start, end)) = found {
            return Some(Secret { kind, start: at + start, end: at + end });
        }
    }
    None
}

impl Shape {
    /// The length of the token that `text` starts with, behind `before`.
    fn length(&self, before: &[u8], text: &[u8]) -> Option<usize> {
        let Shape(_, prefix, alphabet, least, place) = self;
        let rest = text.strip_prefix(prefix.as_bytes())?;
        let body = rest.get(..*least).filter(|body| body.iter().all(|byte| alphabet(*byte)))?;
        if !is_random(body) || *place != Anywhere && ends_in_word(before, text[0]) {
            return None;
        }
        if *place == Alone && rest.get(*least).is_some_and(|byte| alphabet(*byte)) {
            return None;
        }
        // Where a token ends that a word follows cannot be known, so it is as long as it can be.
        Some(prefix.len() + run(rest, *alphabet, rest.len()))
    }
}

/// Returns whether a prefix that begins with `first` goes on a word that text ends in: `task-` does not begin with `sk-`.
fn ends_in_word(text: &[u8], first: u8) -> bool {
    let is_letter = |byte: &u8| match first.is_ascii_lowercase() {
        true => byte.is_ascii_lowercase(),
        false => byte.is_ascii_uppercase(),
    };
    text.last().is_some_and(is_letter) && !ends_in_escape(text)
}

/// `NAME = VALUE`, `"NAME": "VALUE"`, `<NAME>VALUE`, `["NAME"] = VALUE`: the type and the range of the value.
fn assigned(
    text: &[u8],
    (name, kind, length): (&str, &'static str, usize),
) -> Option<(&'static str, usize, usize)> {
    let (given, rest) = text.split_at_checked(name.len())?;
    let is_between = |byte: u8| byte.is_ascii_whitespace() || b"\"'`:=\\>[](),|".contains(&byte);
    let separator = run(rest, is_between, MAX_SEPARATOR);
    let value = &rest[separator..];
    let is_value = given.eq_ignore_ascii_case(name.as_bytes())
        && separator > 0
        && run(value, BASE64, length + 1) == length
        && is_random(&value[..length]);
    let start = name.len() + separator;
    is_value.then_some((kind, start, start + length))
}

/// Counts the first bytes that are of the alphabet, up to `limit`.
fn run(text: &[u8], alphabet: impl Fn(u8) -> bool, limit: usize) -> usize {
    text.iter().take(limit).take_while(|byte| alphabet(**byte)).count()
}

fn is_random(body: &[u8]) -> bool {
    let mut seen = [false; 256];
    let different =
        body.iter().filter(|byte| !std::mem::replace(&mut seen[usize::from(**byte)], true)).count();
    let mut counting = body.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    different >= MIN_DIFFERENT
        && counting.all(|part| part.len() < MAX_COUNTING)
        && !body.to_ascii_uppercase().windows(7).any(|part| part == b"EXAMPLE")
}

/// The private key whose first or, where the beginning is missing, last line is at `at`.
fn private_key(bytes: &[u8], at: usize, floor: usize) -> Option<Secret> {
    let line = armour_line(&bytes[at..])?;
    let secret = |start, end| Some(Secret { kind: PRIVATE_KEY, start, end });
    if bytes[at..].starts_with(b"-----BEGIN ") {
        let body = at + line;
        let end = body + run(&bytes[body..], is_key_text, MAX_KEY);
        let last = armour_line(&bytes[end..]).filter(|_| bytes[end..].starts_with(b"-----END "));
        let is_key = is_key(&bytes[body..end], last.is_some());
        return if is_key { secret(at, end + last.unwrap_or(0)) } else { None };
    }
    let before = &bytes[floor.max(at.saturating_sub(MAX_KEY))..at];
    let start = at - before.iter().rev().take_while(|byte| is_key_text(**byte)).count();
    // A body whose first line is there was judged with that line.
    let is_cut = !bytes[..start].ends_with(ARMOUR);
    if is_cut && key_lines(&bytes[start..at]).next().is_some() { secret(start, at + line) } else { None }
}

/// The length of `-----BEGIN … PRIVATE KEY…-----`, or of the same with `END`.
fn armour_line(text: &[u8]) -> Option<usize> {
    let label = text.strip_prefix(ARMOUR)?;
    let length =
        run(label, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ', MAX_LABEL);
    let is_key = label[..length].windows(11).any(|part| part == b"PRIVATE KEY");
    (is_key && label[length..].starts_with(ARMOUR)).then_some(2 * ARMOUR.len() + length)
}

/// Returns what occurs between the armour lines, also where they are quoted in a program or have line numbers.
fn is_key_text(byte: u8) -> bool {
    BASE64(byte)
        || byte.is_ascii_whitespace()
        || matches!(byte, b'\\' | b'"' | b'\'' | b',' | b':' | b'.' | b'|')
}

/// The lines of a key, also where something short comes before or after them.
fn key_lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| !BASE64(*byte)).filter(|word| word.len() >= MIN_KEY_LINE && is_random(word))
}

/// Returns whether this is the beginning of a key and, where it `is_complete`, not a shortened one.
fn is_key(body: &[u8], is_complete: bool) -> bool {
    let Some(first) = key_lines(body).next() else { return false };
    // The mark of an added line in a patch, or the rest of an escaped line feed in a string.
    let first = first.strip_prefix(b"+").or_else(|| first.strip_prefix(b"n")).unwrap_or(first);
    let characters = body.iter().filter(|byte| BASE64(**byte)).count();
    least_characters(first).is_some_and(|least| match is_complete {
        true => characters >= least,
        false => first.len() >= MIN_WHOLE_LINE.min(least),
    })
}

/// Returns the least number of base64 characters of a key with this first line; `None` where no key starts like this.
fn least_characters(first: &[u8]) -> Option<usize> {
    const OPENSSH: &[u8] = b"b3BlbnNzaC1rZXktdjE";
    if first.starts_with(OPENSSH) {
        return Some(300);
    }
    let start = BASE64_ENGINE.decode(first.get(..8)?).ok()?;
    match start[..] {
        // A sequence in DER: the length of its content in one, two or three bytes.
        [0x30, 0x82, high, low, ..] => Some((usize::from(high) * 256 + usize::from(low) + 4) * 4 / 3),
        [0x30, 0x81, length, ..] => Some((usize::from(length) + 3) * 4 / 3),
        [0x30, length @ 40..=0x7f, ..] => Some((usize::from(length) + 2) * 4 / 3),
        // A packet of OpenPGP: a secret key, in the old and the new format.
        [0x94 | 0x95 | 0xc5, ..] => Some(200),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Assembled here, so that no scanner takes this file for a leak.
    fn samples() -> Vec<(&'static str, String)> {
        let body = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0x";
        let hex = "0f1e2d3c4b5a69788796a5b4c3d2e1f01e2d3c4b5a69788796a5b4c3d2e1f0a9";
        vec![
            ("AWS access key", format!("AKIA{}", "Q3EGRZ7XW2LMN4PT")),
            ("GitHub token", format!("ghp_{}", &body[..36])),
            ("GitHub token", format!("github_pat_{}", &body[..82])),
            ("GitLab token", format!("glpat-{}", &body[..20])),
            ("Slack token", format!("xoxb-120948571630-310284756190-{}", &body[..24])),
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

    /// An elliptic-curve key with 121 bytes of DER. Assembled, too.
    fn pem(label: &str, separator: &str) -> String {
        let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
        let lines = [
            "MHcCAQEEIObtRo8tkUqoMjeHhsOh2ouPpXCgBcP+EDxZCB/tws15oAoGCCqGSM49",
            "AwEHoUQDQgAEHGzpcRJ4XzfBJCCPMQeXQpTXwlblimODQCuQ4mzkzTv0dXyB750f",
            "OGN02HtkpBOZzzvUARTR10JQoSe2/5PIwQ==",
        ];
        [begin.as_str(), lines[0], lines[1], lines[2], &end].join(separator)
    }

    /// A token of each shape.
    fn of_every_shape() -> impl Iterator<Item = (&'static Shape, String)> {
        const POOL: &str =
            "Q3EGRZ7XW2LMN4PTaB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYz0f1e2d3c4b5a69788796a5b4c3d2e1f0";
        SHAPES.iter().map(|shape| {
            let body = POOL.chars().cycle().filter(|c| (shape.2)(*c as u8)).take(shape.3);
            (shape, format!("{}{}", shape.1, body.collect::<String>()))
        })
    }

    /// A token behind an underscore or a digit was taken for a part of a word, and so was one before a letter.
    #[test]
    fn a_token_is_found_between_what_may_be_a_name() {
        for (Shape(kind, .., place), token) in of_every_shape() {
            for before in [
                "", "1", "MY_", "name=", "é", "\\n", "%3D", "\\t", "\\u005f", "\\x3d", "\\075", "\x1b[31m",
                "␛[0;1m",
            ] {
                for after in ["", "_OLD", "é", "-", "\\n", "\"", "Next", "1"] {
                    if *place == Alone && !matches!(after, "" | "é" | "\\n" | "\"") {
                        continue;
                    }
                    let text = format!("a {before}{token}{after} b");
                    let redacted = redact(&text).unwrap_or_else(|| panic!("{kind}: {text}"));
                    assert!(!redacted.text.contains(&token[token.len() - 8..]), "{text}: {}", redacted.text);
                }
            }
        }
    }

    #[test]
    fn a_word_that_ends_like_a_prefix_begins_no_token() {
        let body = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC3dE5fG7hJ9k";
        for word in ["task-", "disk-", "perhf_", "servicio", "archvs."] {
            assert_eq!(redact(&format!("{word}{}", &body[..32])), None, "{word}");
            assert_eq!(redact(&format!("{word}{body}")), None, "{word}");
        }
        assert_eq!(redact("SLOVAKIAISABEAUTIFULCOUNTRY3Q7W"), None);
    }

    #[test]
    fn tokens_are_replaced_by_their_type() {
        for (kind, token) in samples() {
            let text = format!("export TOKEN=\"{token}\" # keep");
            let redacted = redact(&text).unwrap_or_else(|| panic!("{kind}: {token}"));
            assert_eq!(redacted.text, format!("export TOKEN=\"[secret: {kind}]\" # keep"));
            assert_eq!(redacted.types, BTreeMap::from([(kind.to_owned(), 1)]));
            assert_eq!(find(text.as_bytes()), Some(kind));
        }
    }

    #[test]
    fn a_value_without_a_prefix_is_replaced_where_its_setting_is_well_known() {
        let aws = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY";
        let wireguard = format!("{aws}q7w=");
        for (kind, before, secret) in [
            ("AWS secret key", "aws_secret_access_key = ", aws),
            ("AWS secret key", "\"SecretAccessKey\": \"", aws),
            ("WireGuard key", "[Interface]\nPrivateKey = ", &wireguard),
            ("Azure storage key", "AccountKey=", &wireguard.repeat(2)),
            ("Azure storage key", "storageAccountKey: '", &wireguard.repeat(2)),
            ("AWS secret key", "PROD_SECRET_ACCESS_KEY=", aws),
            ("AWS secret key", "<SecretAccessKey>", aws),
            ("AWS secret key", "config[\"secretAccessKey\"] = \"", aws),
        ] {
            let redacted = redact(&format!("{before}{secret}\n")).unwrap_or_else(|| panic!("{before}"));
            assert_eq!(redacted.text, format!("{before}[secret: {kind}]\n"));
        }
    }

    #[test]
    fn private_keys_are_replaced_whole() {
        for separator in ["\n", "\r\n", "\\n", "\\n\" +\n    \"", "\n   12\t", "\n+"] {
            let text = format!("before {} after", pem("EC PRIVATE KEY", separator));
            assert_eq!(redact(&text).unwrap().text, "before [secret: private key] after", "{text}");
        }
    }

    #[test]
    fn private_keys_of_every_format_are_found() {
        let line = "7VJTUt9Us8cKjMzEfYyjiWA4R4M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNb";
        let body = |first: &str| format!("{first}{}\n{}", &line[first.len()..], [line; 30].join("\n"));
        for (label, body) in [
            ("PRIVATE KEY", "MC4CAQAwBQYDK2VwBCIEIObtRo8tkUqoMjeHhsOh2ouPpXCgBcP+EDxZCB/tws15".to_owned()),
            ("PRIVATE KEY", body("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC")),
            ("ENCRYPTED PRIVATE KEY", body("MIIFHDBOBgkqhkiG9w0BBQ0wQTApBgkqhkiG9w0BBQwwHA")),
            ("RSA PRIVATE KEY", body("MIIEpQIBAAKCAQEA")),
            (
                "RSA PRIVATE KEY",
                format!("Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,A823\n\n{}", body("q")),
            ),
            ("OPENSSH PRIVATE KEY", body("b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ")),
            ("PGP PRIVATE KEY BLOCK", format!("\n{}\n=aB3d", body("lQcYBF0L9gUBEACrYsKI"))),
            ("PGP PRIVATE KEY BLOCK", format!("Version: GnuPG v2 (Linux)\n\n{}", body("lQcYBF0L9gUB"))),
        ] {
            let text = format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
            let redacted = redact(&text).unwrap_or_else(|| panic!("{text}"));
            assert!(!redacted.text.contains(&line[..40]), "{}", redacted.text);
            assert!(redacted.text.ends_with("[secret: private key]\n"), "{}", redacted.text);
        }
    }

    #[test]
    fn a_key_that_was_cut_in_the_middle_is_replaced_on_both_sides() {
        let key = pem("EC PRIVATE KEY", "\n");
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
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "sk-ant-…, sk-proj-…, npm_config_registry_and_other_variables",
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END CERTIFICATE-----",
        ] {
            assert_eq!(redact(text), None, "{text}");
        }
    }

    #[test]
    fn shortened_keys_of_documentation_are_kept() {
        for body in [
            "the key goes here",
            "...",
            "MIIEpAIBAAKCAQEA...",
            "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7…",
            "MIIEvgIBADANBgkqhkiG9w0BAQEFAASCBKgwggSkAgEAAoIB..DL45vSN+ZZinAu\n\
             L25W0+cz1Oi69AKkI7d9nbFics2ay5+7o+4rKqf3en2R4MSx..vy+iDlOmATib5O",
            "MIIEvwIBADANBgkqhkiG9w0BAQEFAASCBKkwggSlAgEAAoIBAQD0LMcJUdWmTtxi\n\
             7U7ByldDRfyCD9W+QJ1Ygm7E9iFwvkThUCV5q+DIcgSfogoSKaQuHaImLXMZn36Q",
            "DBVFTEVDVFJJQ0lURSBERSBGUkFOQ0UxFzAVBgNVBAsMDjAwMDIgNTUyMDgxMzE3",
        ] {
            let text = format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----");
            assert_eq!(redact(&text), None, "{text}");
        }
        assert_eq!(redact("if line == '-----BEGIN PRIVATE KEY-----': return True"), None);
    }

    #[test]
    fn the_time_is_linear_whatever_the_text_is() {
        for part in ["-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----MIIE", "-", "A", "sk-", "xoxb-"]
        {
            let text = part.repeat((128 << 10) / part.len());
            let started = std::time::Instant::now();
            assert_eq!(redact(&text), None);
            // Quadratic time would be minutes.
            assert!(started.elapsed() < std::time::Duration::from_secs(20), "{part}");
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
        fn a_token_is_found_wherever_it_stands(before in "\\PC{0,30}", after in "\\PC{0,30}", index in 0..SHAPES.len()) {
            let (shape, token) = of_every_shape().nth(index).expect("a shape");
            let stands = shape.4 == Anywhere
                || !before.ends_with(|c: char| c.is_ascii_alphabetic())
                    && (shape.4 == AtWord || !after.starts_with(|c: char| c.is_ascii() && (shape.2)(c as u8)));
            let redacted = redact(&format!("{before}{token}{after}")).map(|redacted| redacted.text);
            prop_assert!(!stands || redacted.is_some_and(|text| !text.contains(&token)));
        }

        #[test]
        fn random_hex_and_base64_are_kept(text in "([0-9a-f]{32,64}|[A-Za-z0-9+/]{20,80}={0,2}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})( [0-9a-f]{40}){0,5}") {
            prop_assert_eq!(redact(&text), None);
        }
    }
}
