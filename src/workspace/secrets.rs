//! Which files hold secrets, by name and by content. They stay out of the sandbox unless named.

use crate::workspace::tree_path::TreePath;

/// How much of a file's beginning is looked at.
pub const HEAD: usize = 64 << 10;

/// What a file's name says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspicion {
    /// Nothing.
    None,
    /// It is a secret, whatever it holds. The word names the kind.
    Certain(&'static str),
    /// It is a secret where [`content`] finds one in its beginning.
    Look,
}

/// Judges by the path alone.
pub fn name(path: &TreePath) -> Suspicion {
    let lower = path.as_bytes().to_ascii_lowercase();
    let name = lower.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    match certain(&name).or_else(|| in_directory(&lower)) {
        Some(kind) => Suspicion::Certain(kind),
        None if worth_a_look(&name) => Suspicion::Look,
        None => Suspicion::None,
    }
}

fn certain(name: &str) -> Option<&'static str> {
    const PUBLIC_ENV: [&str; 6] = ["example", "sample", "template", "dist", "defaults", "schema"];
    if name.starts_with(".env") {
        let public = PUBLIC_ENV.iter().any(|word| name.rsplit('.').next() == Some(word));
        return (!public).then_some("environment file");
    }
    match name {
        ".netrc" | "_netrc" => Some("netrc"),
        ".git-credentials" => Some("git credentials"),
        ".pgpass" | ".my.cnf" | ".mylogin.cnf" => Some("database password"),
        ".dockercfg" | ".dockerconfigjson" => Some("registry credentials"),
        ".vault-token"
        | ".s3cfg"
        | ".boto"
        | "application_default_credentials.json"
        | ".terraformrc"
        | "credentials.tfrc.json" => Some("cloud credentials"),
        _ if is_private_key_name(name) => Some("private key"),
        _ => None,
    }
}

fn is_private_key_name(name: &str) -> bool {
    const STEMS: [&str; 6] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk"];
    const EXTENSIONS: [&str; 6] = [".ppk", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"];
    STEMS.contains(&name) || EXTENSIONS.iter().any(|extension| name.ends_with(extension))
}

/// Credential files that are known by the directory they stand in.
fn in_directory(path: &[u8]) -> Option<&'static str> {
    const PLACES: [(&str, &str); 11] = [
        (".aws/credentials", "cloud credentials"),
        (".azure/accesstokens.json", "cloud credentials"),
        (".azure/msal_token_cache.json", "cloud credentials"),
        (".config/gcloud/credentials.db", "cloud credentials"),
        (".config/gcloud/access_tokens.db", "cloud credentials"),
        (".config/gh/hosts.yml", "GitHub token"),
        (".kube/config", "cluster credentials"),
        (".docker/config.json", "registry credentials"),
        (".cargo/credentials", "registry token"),
        (".cargo/credentials.toml", "registry token"),
        (".gem/credentials", "registry token"),
    ];
    let ends = |place: &str| {
        path.strip_suffix(place.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.ends_with(b"/"))
    };
    PLACES.iter().find(|(place, _)| ends(place)).map(|(_, kind)| *kind)
}

fn worth_a_look(name: &str) -> bool {
    const NAMES: [&str; 4] = [".npmrc", ".pypirc", ".yarnrc.yml", ".htpasswd"];
    const EXTENSIONS: [&str; 10] = ["pem", "key", "crt", "cert", "cer", "p8", "pk8", "asc", "gpg", "json"];
    match name.rsplit_once('.') {
        _ if NAMES.contains(&name) => true,
        Some((stem, extension)) if !stem.is_empty() => EXTENSIONS.contains(&extension),
        // Keys made by ssh-keygen have no extension.
        _ => true,
    }
}

/// Judges by the beginning of the content (at most [`HEAD`] bytes are looked at).
///
/// A private key is one where its header begins a line: source code that mentions the header in a string does not
/// count, but in files named for keys and certificates it counts anywhere.
pub fn content(path: &TreePath, head: &[u8]) -> Option<&'static str> {
    let head = &head[..head.len().min(HEAD)];
    let name = String::from_utf8_lossy(path.name()).to_ascii_lowercase();
    let mut lines = head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
    match name.as_str() {
        ".npmrc" | ".yarnrc.yml" => {
            const TOKENS: [&str; 4] = ["_auth", "_password", "npmauthtoken", "npmauthident"];
            lines.any(|line| sets_any(line, &TOKENS)).then_some("registry token")
        }
        ".pypirc" => lines.any(|line| sets_any(line, &["password", "token"])).then_some("registry token"),
        ".htpasswd" => (!head.trim_ascii().is_empty()).then_some("password file"),
        _ if name.ends_with(".json") => {
            let service_account = contains(head, b"\"private_key\"") && contains(head, b"PRIVATE KEY-----");
            service_account.then_some("cloud credentials")
        }
        _ => lines.any(is_private_key_header).then_some("private key"),
    }
}

/// Whether a line of a `key = value` or `key: value` file sets a non-empty value that is no `${VARIABLE}` to a key
/// in which one of `words` appears.
fn sets_any(line: &[u8], words: &[&str]) -> bool {
    let line = String::from_utf8_lossy(line).to_ascii_lowercase();
    if line.starts_with(['#', ';']) {
        return false;
    }
    let is_word = |key: &str| words.iter().any(|word| key.contains(word));
    // The key of npm's scoped settings holds a colon itself: `//host/:_authToken=…`.
    let pair = line.split_once('=').or_else(|| line.rsplit_once(": "));
    pair.is_some_and(|(key, value)| {
        let value = value.trim().trim_matches(['"', '\'']);
        is_word(key) && !value.is_empty() && !value.starts_with("${")
    })
}

fn is_private_key_header(line: &[u8]) -> bool {
    (line.starts_with(b"-----BEGIN ") && contains(line, b"PRIVATE KEY"))
        || line.starts_with(b"PuTTY-User-Key-File-")
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Takes the credentials out of a git configuration: `user:password@` in URLs, and `http.*.extraheader` lines.
/// `None` where there are none.
pub fn without_git_credentials(config: &[u8]) -> Option<Vec<u8>> {
    let mut changed = false;
    let mut clean = Vec::with_capacity(config.len());
    for line in config.split_inclusive(|&b| b == b'\n') {
        let trimmed = line.trim_ascii_start().to_ascii_lowercase();
        if trimmed.starts_with(b"extraheader") || trimmed.starts_with(b"password") {
            changed = true;
        } else if let Some(without) = without_userinfo(line) {
            changed = true;
            clean.extend_from_slice(&without);
        } else {
            clean.extend_from_slice(line);
        }
    }
    changed.then_some(clean)
}

/// The line with every `scheme://user:password@` and `scheme://token@` shortened to `scheme://`; ssh logins stay
/// (they are names, not secrets). `None` where there is nothing to take out.
fn without_userinfo(line: &[u8]) -> Option<Vec<u8>> {
    let mut rest = line;
    let mut out = Vec::new();
    let mut changed = false;
    while let Some(at) = rest.windows(3).position(|window| window == b"://") {
        let (before, after) = rest.split_at(at + 3);
        let end = after
            .iter()
            .position(|b| matches!(b, b'/' | b'"' | b'\'' | b']' | b' ' | b'\t' | b'\r' | b'\n'))
            .unwrap_or(after.len());
        let userinfo = after[..end].iter().rposition(|&b| b == b'@');
        out.extend_from_slice(before);
        rest = match userinfo {
            Some(at) if !before.ends_with(b"ssh://") || after[..at].contains(&b':') => {
                changed = true;
                &after[at + 1..]
            }
            _ => after,
        };
    }
    out.extend_from_slice(rest);
    changed.then_some(out)
}
