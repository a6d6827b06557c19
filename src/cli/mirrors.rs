//! The package mirrors that the user's own tools are set to: what the sandbox's tools need to use the same ones.
//!
//! With `--network registries`, their hosts are allowed as well, and the tools inside get their addresses, without
//! credentials.

use crate::network::Entry;
use crate::plain_file::{self, Links};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::{Host, Url};

/// Bytes of a settings file that are read.
const MAX_FILE: u64 = 1 << 20;
/// Mirrors that are used.
const MAX_MIRRORS: usize = 20;
/// How long their names may take to be resolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mirrors {
    /// Variables for the tools inside.
    pub variables: Vec<(String, String)>,
    /// The addresses, without credentials.
    pub urls: Vec<Url>,
}

impl Mirrors {
    /// Those of pip, npm, Go, Cargo and Maven, by the variables and the files of the user's.
    pub fn find(variable: &dyn Fn(&str) -> Option<String>, home: &Path) -> Self {
        let mut mirrors = Self::default();
        let pip = read(&home.join(".config/pip/pip.conf"))
            .or_else(|| read(&home.join(".pip/pip.conf")))
            .or_else(|| read(Path::new("/etc/pip.conf")))
            .unwrap_or_default();
        for (name, key) in [("PIP_INDEX_URL", "index-url"), ("PIP_EXTRA_INDEX_URL", "extra-index-url")] {
            mirrors.add(name, variable(name).or_else(|| setting(&pip, key)));
        }
        let npm = read(&home.join(".npmrc")).unwrap_or_default();
        let registry = variable("NPM_CONFIG_REGISTRY").or_else(|| variable("npm_config_registry"));
        mirrors.add("npm_config_registry", registry.or_else(|| setting(&npm, "registry")));
        let go = read(&home.join(".config/go/env")).unwrap_or_default();
        mirrors.add("GOPROXY", variable("GOPROXY").or_else(|| setting(&go, "GOPROXY")));
        // These two take their mirrors from files only; their hosts are allowed.
        let cargo = variable("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
        let cargo = read(&cargo.join("config.toml")).unwrap_or_default();
        let cargo: Vec<&str> = cargo.lines().filter_map(|line| value_of(line, "registry")).collect();
        let maven = read(&home.join(".m2/settings.xml")).unwrap_or_default();
        let maven = maven.split("<url>").skip(1).filter_map(|rest| rest.split("</url>").next());
        for text in cargo.into_iter().chain(maven) {
            mirrors.urls.extend(clean(text));
        }
        mirrors.urls.sort();
        mirrors.urls.dedup();
        mirrors.urls.truncate(MAX_MIRRORS);
        mirrors
    }

    /// Takes a setting that is one address or several.
    fn add(&mut self, name: &str, value: Option<String>) {
        let Some(value) = value else { return };
        let mut cleaned = String::new();
        for part in value.split_inclusive([',', '|', ' ']) {
            let (word, end) = part.split_at(part.trim_end_matches([',', '|', ' ']).len());
            match clean(word) {
                Some(url) => {
                    cleaned += url.as_str();
                    self.urls.push(url);
                }
                // `direct` and `off` of Go.
                None => cleaned += word,
            }
            cleaned += end;
        }
        self.variables.push((name.to_owned(), cleaned));
    }

    /// The entries of the list of hosts: each host, and its addresses where they are private, for the user has named it.
    pub async fn entries(&self) -> Vec<String> {
        let hosts: Vec<(String, u16)> = self.urls.iter().filter_map(target).collect();
        let mut entries: Vec<String> = hosts.iter().map(|(host, port)| entry(host, *port)).collect();
        let resolve = move || -> Vec<String> {
            let resolved = hosts.iter().flat_map(|(host, port)| {
                let host = host.trim_matches(['[', ']']);
                (host, *port).to_socket_addrs().into_iter().flatten().take(4)
            });
            let private = resolved.filter(|address| is_private(address.ip()));
            private.map(|address| address.to_string()).collect()
        };
        // On a thread that nothing waits for: the system's resolver may take long, and cannot be stopped.
        let (sender, receiver) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || sender.send(resolve()));
        // A name that is not resolved in time is judged like any other host.
        if let Ok(Ok(private)) = tokio::time::timeout(RESOLVE_TIMEOUT, receiver).await {
            entries.extend(private);
        }
        entries.retain(|entry| Entry::parse(entry).is_ok());
        entries.sort();
        entries.dedup();
        entries
    }
}

fn read(path: &Path) -> Option<String> {
    let bytes = plain_file::read(path, MAX_FILE, Links::Follow).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first value of `key` in a file of `key = value` lines.
fn setting(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| value_of(line, key)).map(str::to_owned)
}

fn value_of<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    let (name, value) = line.split_once('=')?;
    let value = value.trim().trim_matches(['"', '\'']);
    (name.trim() == key && !value.is_empty()).then_some(value)
}

/// An address of a web server, without credentials. Cargo writes `sparse+` in front of it.
fn clean(text: &str) -> Option<Url> {
    let mut url = Url::parse(text.trim().trim_start_matches("sparse+")).ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    Some(url)
}

fn target(url: &Url) -> Option<(String, u16)> {
    Some((url.host_str()?.to_owned(), url.port_or_known_default()?))
}

fn entry(host: &str, port: u16) -> String {
    let is_name = matches!(Host::parse(host), Ok(Host::Domain(_)));
    match port {
        80 | 443 if is_name => host.to_owned(),
        _ => format!("{host}:{port}"),
    }
}

fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_private() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn mirrors_are_found_without_their_credentials() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(".config/pip/pip.conf", "[global]\nindex-url = https://me:token@pypi.corp.example/simple\n");
        write(".npmrc", "registry=http://10.1.2.3:4873/\n//10.1.2.3:4873/:_authToken=secret\n");
        write(
            ".cargo/config.toml",
            "[source.mirror]\nregistry = \"sparse+https://crates.corp.example:8443/index/\"\n",
        );
        write(".m2/settings.xml", "<mirror><url>https://maven.corp.example/all</url></mirror>");
        let goproxy =
            |name: &str| (name == "GOPROXY").then(|| "https://u:p@go.corp.example,direct".to_owned());
        let mirrors = Mirrors::find(&goproxy, home.path());
        let variables: Vec<(&str, &str)> =
            mirrors.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            variables,
            [
                ("PIP_INDEX_URL", "https://pypi.corp.example/simple"),
                ("npm_config_registry", "http://10.1.2.3:4873/"),
                ("GOPROXY", "https://go.corp.example/,direct"),
            ]
        );
        assert_eq!(
            mirrors.entries().await,
            [
                "10.1.2.3:4873",
                "crates.corp.example:8443",
                "go.corp.example",
                "maven.corp.example",
                "pypi.corp.example",
            ]
        );
        assert_eq!(Mirrors::find(&|_| None, &home.path().join("nobody")), Mirrors::default());
    }
}
