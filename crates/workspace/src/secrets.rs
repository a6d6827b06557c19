//! Which files hold secrets, by name and by content.

use crate::tree_path::TreePath;
use agent_base::secret_scan;
use memchr::memmem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The number of bytes at the beginning of a file that are looked at.
pub const HEAD: usize = 64 << 10;

/// The suspicion that a file's name raises about its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspicion {
    /// Nothing.
    None,
    /// It is a secret, whatever it holds. The word names the kind.
    Certain(&'static str),
    /// Its kind of file holds secrets: it is one where [`content`] finds one in its beginning.
    Look,
    /// Its kind of file holds settings, which may be secrets: it is one where it is small and [`content`] finds one.
    Settings,
    /// It lies in a git directory that is not called `.git`, where it is not rewritten: it is one where other programs keep keys there, or
    /// where it holds credentials.
    OfGit,
}

/// Judges by the path alone.
pub fn name(path: &TreePath) -> Suspicion {
    let name = String::from_utf8_lossy(path.name()).to_ascii_lowercase();
    match certain(&name).or_else(|| in_directory(path)) {
        Some(kind) => Suspicion::Certain(kind),
        None => by_extension(&name),
    }
}

/// Returns whether a file that is not part of a workspace is a secret by its name.
pub fn is_named_like_one(path: &Path) -> bool {
    match TreePath::new(path.as_os_str().as_bytes()) {
        Ok(path) => matches!(name(&path), Suspicion::Certain(_)),
        Err(_) => true,
    }
}

/// Returns whether a file of this name may be a secret because of the directory that it stands in.
pub fn is_known_by_place(directory: &TreePath, name: &[u8]) -> bool {
    let directory = directory.as_bytes();
    if directory.first() != Some(&b'.') && memmem::find(directory, b"/.").is_none() {
        return false;
    }
    let is_name =
        |place: &str| place.rsplit('/').next().is_some_and(|last| last.as_bytes().eq_ignore_ascii_case(name));
    memmem::find(directory, b".envs").is_some() || PLACES.iter().any(|(place, _)| is_name(place))
}

fn certain(name: &str) -> Option<&'static str> {
    const PUBLIC_ENV: [&str; 6] = ["example", "sample", "template", "dist", "defaults", "schema"];
    if name.starts_with(".env")
        || name.ends_with(".env")
        || name == ".dev.vars"
        || name.starts_with(".dev.vars.")
    {
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
        | "credentials.tfrc.json"
        | "kubeconfig" => Some("cloud credentials"),
        "master.key" | "credentials.yml.enc.key" | "age.key" | "keys.txt.age" => Some("private key"),
        ".vault_pass" | ".vault_pass.txt" | ".vault-password" | "vault_password" => Some("vault password"),
        "secrets.yml" | "secrets.yaml" | "secrets.json" | "secrets.toml" => Some("secrets file"),
        ".bash_history" | ".zsh_history" | ".sh_history" | ".python_history" | ".psql_history"
        | ".mysql_history" | ".node_repl_history" | "fish_history" => Some("shell history"),
        _ if name.ends_with(".tfvars") || name.ends_with(".tfvars.json") => Some("Terraform variables"),
        _ if memmem::find(name.as_bytes(), b".tfstate").is_some() => Some("Terraform state"),
        _ if is_swap_of_environment(name) => Some("environment file"),
        _ if is_private_key_name(name) => Some("private key"),
        _ => None,
    }
}

/// An editor's swap or backup file of a `.env`.
fn is_swap_of_environment(name: &str) -> bool {
    let Some(stem) = name.strip_suffix('~').or_else(|| name.rsplit_once(".sw").map(|(stem, _)| stem)) else {
        return false;
    };
    stem.trim_start_matches(['.', '#']).starts_with("env")
}

fn is_private_key_name(name: &str) -> bool {
    const STEMS: [&str; 6] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk"];
    const EXTENSIONS: [&str; 6] = [".ppk", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"];
    STEMS.contains(&name) || EXTENSIONS.iter().any(|extension| name.ends_with(extension))
}

/// Credential files, with the directory that makes them ones.
const PLACES: [(&str, &str); 15] = [
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
    (".m2/settings.xml", "registry token"),
    (".gradle/gradle.properties", "registry token"),
    (".hg/hgrc", "repository credentials"),
    (".git/credentials", "git credentials"),
];

/// Credential files that are known by the directory they stand in.
fn in_directory(path: &TreePath) -> Option<&'static str> {
    // The directories in question are all hidden ones.
    let directory = path.parent_bytes();
    if directory.first() != Some(&b'.') && memmem::find(directory, b"/.").is_none() {
        return None;
    }
    let path = path.as_bytes().to_ascii_lowercase();
    let ends = |place: &str| {
        path.strip_suffix(place.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.ends_with(b"/"))
    };
    if path.split(|&b| b == b'/').rev().skip(1).any(|name| name == b".envs") {
        return Some("environment file");
    }
    PLACES.iter().find(|(place, _)| ends(place)).map(|(_, kind)| *kind)
}

fn by_extension(name: &str) -> Suspicion {
    const NAMES: [&str; 5] = [".npmrc", ".pypirc", ".yarnrc.yml", ".htpasswd", "gradle.properties"];
    const KEYS: [&str; 9] = ["pem", "key", "crt", "cert", "cer", "p8", "pk8", "asc", "gpg"];
    const SETTINGS: [&str; 11] =
        ["json", "yml", "yaml", "toml", "ini", "cfg", "conf", "config", "properties", "xml", "sh"];
    match name.rsplit_once('.') {
        _ if NAMES.contains(&name) => Suspicion::Look,
        Some((stem, extension)) if !stem.is_empty() => match extension {
            _ if KEYS.contains(&extension) => Suspicion::Look,
            _ if SETTINGS.contains(&extension) => Suspicion::Settings,
            _ => Suspicion::None,
        },
        // Keys made by ssh-keygen have no extension, nor have many dot files.
        _ => Suspicion::Settings,
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
        "gradle.properties" => {
            lines.any(|line| sets_any(line, &["password", "token", "secret"])).then_some("registry token")
        }
        ".htpasswd" => (!head.trim_ascii().is_empty()).then_some("password file"),
        _ if name.ends_with(".json") => {
            let service_account = contains(head, b"\"private_key\"") && contains(head, b"PRIVATE KEY-----");
            if service_account { Some("cloud credentials") } else { secret_scan::find(head) }
        }
        _ if lines.any(is_private_key_header) => Some("private key"),
        _ => secret_scan::find(head),
    }
}

/// Returns whether a line of a `key = value` or `key: value` file sets a non-empty value that is no `${VARIABLE}` to a key
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
