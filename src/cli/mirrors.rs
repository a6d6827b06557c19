//! The package mirrors that the user's own tools are set to: what the sandbox's tools need to use the same ones.
//!
//! With `--network registries`, their hosts are allowed as well, and the tools inside get their addresses, without
//! credentials.

use crate::network::Entry;
use crate::plain_file::{self, Links};
use crate::sandbox::HomeFile;
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
    /// Settings files for those that read no variables.
    pub files: Vec<HomeFile>,
    /// The addresses, without credentials.
    pub urls: Vec<Url>,
}

impl Mirrors {
    /// Those of pip, uv, npm, Go, Cargo, Maven and RubyGems, by the variables and the files of the user's.
    pub fn find(variable: &dyn Fn(&str) -> Option<String>, home: &Path) -> Self {
        let mut mirrors = Self::default();
        let pip = read(&home.join(".config/pip/pip.conf"))
            .or_else(|| read(&home.join(".pip/pip.conf")))
            .or_else(|| read(Path::new("/etc/pip.conf")))
            .unwrap_or_default();
        for (name, key) in [("PIP_INDEX_URL", "index-url"), ("PIP_EXTRA_INDEX_URL", "extra-index-url")] {
            mirrors.add(name, variable(name).or_else(|| setting(&pip, key)));
        }
        let uv = variable("UV_DEFAULT_INDEX").or_else(|| variable("UV_INDEX_URL"));
        let index = variable("PIP_INDEX_URL").or_else(|| setting(&pip, "index-url"));
        mirrors.add("UV_DEFAULT_INDEX", uv.or(index));
        let npm = read(&home.join(".npmrc")).unwrap_or_default();
        let registry = variable("NPM_CONFIG_REGISTRY").or_else(|| variable("npm_config_registry"));
        mirrors.add("npm_config_registry", registry.or_else(|| setting(&npm, "registry")));
        let go = read(&home.join(".config/go/env")).unwrap_or_default();
        mirrors.add("GOPROXY", variable("GOPROXY").or_else(|| setting(&go, "GOPROXY")));
        let cargo = variable("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
        let cargo = read(&cargo.join("config.toml")).or_else(|| read(&cargo.join("config")));
        mirrors.add_file(".cargo/config.toml", cargo.and_then(|text| cargo_settings(&text)));
        let maven = read(&home.join(".m2/settings.xml"));
        mirrors.add_file(".m2/settings.xml", maven.and_then(|text| maven_settings(&text)));
        let gems = read(&home.join(".gemrc")).or_else(|| read(Path::new("/etc/gemrc")));
        mirrors.add_file(".gemrc", gems.and_then(|text| gem_settings(&text)));
        mirrors.urls.sort();
        mirrors.urls.dedup();
        mirrors.urls.truncate(MAX_MIRRORS);
        mirrors
    }

    /// Takes a settings file that was written anew, and the addresses in it.
    fn add_file(&mut self, path: &str, written: Option<(String, Vec<Url>)>) {
        let Some((text, urls)) = written else { return };
        self.files.push(HomeFile { path: path.into(), bytes: text.into_bytes(), executable: false });
        self.urls.extend(urls);
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

/// Cargo's settings about registries alone: which replaces which, and where they are. No tokens, no credential providers, no
/// paths of this machine.
fn cargo_settings(text: &str) -> Option<(String, Vec<Url>)> {
    let table: toml::Table = toml::from_str(text).ok()?;
    let (mut written, mut urls) = (String::new(), Vec::new());
    for (section, address) in [("source", "registry"), ("registries", "index")] {
        let entries = table.get(section).and_then(toml::Value::as_table);
        for (name, entry) in entries.into_iter().flatten().filter(|(name, _)| is_word(name)).take(MAX_MIRRORS)
        {
            let mut lines = String::new();
            if let Some(text) = entry.get(address).and_then(toml::Value::as_str)
                && let Some(url) = clean(text)
            {
                let sparse = if text.trim().starts_with("sparse+") { "sparse+" } else { "" };
                // An address has neither quotation marks nor backslashes.
                lines += &format!("{address} = \"{sparse}{url}\"\n");
                urls.push(url);
            }
            let replacement = entry.get("replace-with").and_then(toml::Value::as_str);
            if let Some(replacement) = replacement.filter(|name| is_word(name)) {
                lines += &format!("replace-with = \"{replacement}\"\n");
            }
            if !lines.is_empty() {
                written += &format!("[{section}.{name}]\n{lines}");
            }
        }
    }
    let default = table.get("registry").and_then(|registry| registry.get("default")?.as_str());
    if let Some(default) = default.filter(|name| is_word(name)) {
        written += &format!("[registry]\ndefault = \"{default}\"\n");
    }
    (!urls.is_empty()).then_some((written, urls))
}

/// Maven's mirrors alone: no servers, which have the passwords.
fn maven_settings(text: &str) -> Option<(String, Vec<Url>)> {
    let mut text = text.to_owned();
    while let Some((before, rest)) = text.split_once("<!--") {
        text = before.to_owned() + rest.split_once("-->").map_or("", |(_, after)| after);
    }
    let (mut mirrors, mut urls) = (String::new(), Vec::new());
    for block in text.split("<mirror>").skip(1).take(MAX_MIRRORS) {
        let block = block.split("</mirror>").next().unwrap_or_default();
        let element = |name: &str| {
            let (_, rest) = block.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(value, _)| value.trim())
        };
        let plain = |value: &&str| !value.contains(['<', '&', '>']);
        let (Some(of), Some(url)) = (element("mirrorOf").filter(plain), element("url")) else { continue };
        let Some(url) = clean(&url.replace("&amp;", "&")) else { continue };
        let id = element("id").filter(plain).map_or_else(|| format!("mirror-{}", urls.len()), str::to_owned);
        let escaped = url.as_str().replace('&', "&amp;").replace('<', "&lt;");
        mirrors += &format!("<mirror><id>{id}</id><mirrorOf>{of}</mirrorOf><url>{escaped}</url></mirror>\n");
        urls.push(url);
    }
    (!urls.is_empty()).then(|| (format!("<settings>\n<mirrors>\n{mirrors}</mirrors>\n</settings>\n"), urls))
}

/// The list of sources in the settings of RubyGems, which is a list in YAML.
fn gem_settings(text: &str) -> Option<(String, Vec<Url>)> {
    let mut lines = text.lines().map(str::trim_end);
    lines.find(|line| matches!(*line, ":sources:" | "sources:"))?;
    let items = lines.map_while(|line| line.trim_start().strip_prefix("- "));
    let urls: Vec<Url> =
        items.filter_map(|item| clean(item.trim().trim_matches(['"', '\'']))).take(MAX_MIRRORS).collect();
    let list: String = urls.iter().map(|url| format!("- {url}\n")).collect();
    (!urls.is_empty()).then(|| (format!("---\n:sources:\n{list}"), urls))
}

fn is_word(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.bytes().all(fits)
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

    /// A home with the settings of six tools.
    fn home() -> tempfile::TempDir {
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
            "[source.crates-io]\nreplace-with = \"mirror\"\n\
             [source.mirror]\nregistry = \"sparse+https://me:token@crates.corp.example:8443/index/\"\n\
             [registries.own]\nindex = \"https://git.corp.example/index\"\ntoken = \"secret\"\n\
             [registry]\ndefault = \"own\"\ntoken = \"secret\"\n[build]\nrustc-wrapper = \"/opt/wrapper\"\n",
        );
        write(
            ".m2/settings.xml",
            "<settings><servers><server><id>m</id><password>secret</password></server></servers><mirrors>\n\
             <!-- <mirror><url>https://old.corp.example/</url></mirror> -->\n\
             <mirror><id>m</id><mirrorOf>*</mirrorOf><url>https://u:secret@maven.corp.example/all?a=1&amp;b=2</url></mirror>\n\
             </mirrors></settings>",
        );
        write(
            ".gemrc",
            "---\n:backtrace: true\n:sources:\n- https://u:secret@gems.corp.example/\n- \"file:///gems\"\n:verbose: true\n\
             :rubygems_api_key: secret\n",
        );
        home
    }

    #[tokio::test]
    async fn mirrors_are_found_without_their_credentials() {
        let home = home();
        let goproxy =
            |name: &str| (name == "GOPROXY").then(|| "https://u:p@go.corp.example,direct".to_owned());
        let mirrors = Mirrors::find(&goproxy, home.path());
        let variables: Vec<(&str, &str)> =
            mirrors.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            variables,
            [
                ("PIP_INDEX_URL", "https://pypi.corp.example/simple"),
                ("UV_DEFAULT_INDEX", "https://pypi.corp.example/simple"),
                ("npm_config_registry", "http://10.1.2.3:4873/"),
                ("GOPROXY", "https://go.corp.example/,direct"),
            ]
        );
        assert_eq!(
            mirrors.entries().await,
            [
                "10.1.2.3:4873",
                "crates.corp.example:8443",
                "gems.corp.example",
                "git.corp.example",
                "go.corp.example",
                "maven.corp.example",
                "pypi.corp.example",
            ]
        );
        assert_eq!(Mirrors::find(&|_| None, &home.path().join("nobody")), Mirrors::default());
    }

    #[tokio::test]
    async fn the_private_addresses_of_a_mirror_that_the_user_named_are_allowed() {
        let npm = |name: &str| {
            (name == "NPM_CONFIG_REGISTRY").then(|| "http://me:secret@localhost:4873/".to_owned())
        };
        let entries = Mirrors::find(&npm, Path::new("/nobody")).entries().await;
        let private = ["127.0.0.1:4873", "[::1]:4873"];
        assert!(entries.iter().any(|entry| private.contains(&entry.as_str())), "{entries:?}");
    }

    #[test]
    fn tools_that_read_files_get_settings_of_mirrors_alone() {
        let mirrors = Mirrors::find(&|_| None, home().path());
        let files: Vec<(String, String)> = mirrors
            .files
            .iter()
            .map(|file| (file.path.display().to_string(), String::from_utf8(file.bytes.clone()).unwrap()))
            .collect();
        assert_eq!(
            files,
            [
                (
                    ".cargo/config.toml".to_owned(),
                    "[source.crates-io]\nreplace-with = \"mirror\"\n\
                     [source.mirror]\nregistry = \"sparse+https://crates.corp.example:8443/index/\"\n\
                     [registries.own]\nindex = \"https://git.corp.example/index\"\n[registry]\ndefault = \"own\"\n"
                        .to_owned()
                ),
                (
                    ".m2/settings.xml".to_owned(),
                    "<settings>\n<mirrors>\n<mirror><id>m</id><mirrorOf>*</mirrorOf>\
                     <url>https://maven.corp.example/all?a=1&amp;b=2</url></mirror>\n</mirrors>\n</settings>\n"
                        .to_owned()
                ),
                (".gemrc".to_owned(), "---\n:sources:\n- https://gems.corp.example/\n".to_owned()),
            ]
        );
    }
}
