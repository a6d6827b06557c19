//! The entries of the list that `--network` and `/network` take.

use super::address::objection;
use super::host::Host;
use super::registries::REGISTRIES;
use agent_base::error::{Error, Result};
use std::fmt;

/// The most entries that a list may have.
const MAX_ENTRIES: usize = 1000;
/// The entry for all package registries.
const REGISTRIES_WORD: &str = "registries";
/// The entry for every public host.
const PUBLIC_WORD: &str = "public";
/// The ports of an entry that names none: HTTP and HTTPS.
pub(super) const WEB_PORTS: [u16; 2] = [80, 443];

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Entry {
    /// `registries`: the package registries.
    Registries,
    /// `public`: every host, as long as its address is public.
    Public(Option<u16>),
    /// A host, and a port where one was named.
    Host(Host, Option<u16>),
    /// `*.example.com`: every name below, not the name itself.
    Below(String, Option<u16>),
}

/// Reads entries separated by commas.
///
/// # Errors
///
/// An entry is not a valid host; the hint says how to write one.
pub fn entries(text: &str) -> Result<Vec<Entry>> {
    let mut entries = words(text)?.into_iter().map(Entry::parse).collect::<Result<Vec<_>>>()?;
    let mut seen = std::collections::HashSet::new();
    entries.retain(|entry| seen.insert(entry.clone()));
    Ok(entries)
}

/// The words between the commas, at least one and at most [`MAX_ENTRIES`].
pub(super) fn words(text: &str) -> Result<Vec<&str>> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    match words.len() {
        0 => Err(Error::config("the list of hosts is empty").hint("name hosts like example.com, or none")),
        1..=MAX_ENTRIES => Ok(words),
        many => Err(Error::config(format!("{many} hosts are too many: at most {MAX_ENTRIES}"))),
    }
}

impl Entry {
    /// Reads one entry.
    ///
    /// # Errors
    ///
    /// It is not a valid host; the hint says how to write one.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            REGISTRIES_WORD => return Ok(Self::Registries),
            PUBLIC_WORD => return Ok(Self::Public(None)),
            _ => {}
        }
        let wrong = |hint: &str| {
            Error::config(format!(
                "{:?} is not a valid host for --network",
                text.chars().take(100).collect::<String>()
            ))
            .hint(hint)
        };
        if text.contains('/') {
            return Err(wrong(
                "name the host alone, like example.com or example.com:8443: no scheme, path or range",
            ));
        }
        if text == "*" {
            return Err(wrong("public is every public host, full is everything"));
        }
        let (below, host) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if ["none", "full"].contains(&host) {
            return Err(wrong("none and full stand alone"));
        }
        let hint =
            "write it as example.com, *.example.com, example.com:8443, 192.0.2.1:8080 or [2001:db8::1]:8080";
        let (host, port) = Host::with_port(host).ok_or_else(|| wrong(hint))?;
        match host {
            Host::Name(name) if name == PUBLIC_WORD && !below => Ok(Self::Public(port)),
            Host::Name(name) if below && name.contains('.') => Ok(Self::Below(name, port)),
            _ if below => Err(wrong("a wildcard needs two labels behind it, like *.example.com")),
            Host::Name(name) if name == "localhost" || name.ends_with(".localhost") => {
                Err(wrong("name the address and the port themselves, like 127.0.0.1:8080"))
            }
            Host::Ip(address) if port.is_none() && objection(address).is_some() => Err(wrong(&format!(
                "it is {}: name its port as well",
                objection(address).unwrap_or_default()
            ))),
            host => Ok(Self::Host(host, port)),
        }
    }

    /// The entry for one target. For a name and a web port it covers both web ports, and only the web's protocols.
    pub(super) fn exactly(host: &Host, port: u16) -> Self {
        match host {
            Host::Name(_) if WEB_PORTS.contains(&port) => Self::Host(host.clone(), None),
            _ => Self::Host(host.clone(), Some(port)),
        }
    }

    /// Returns whether the entry covers the target.
    pub(super) fn covers(&self, host: &Host, port: u16) -> bool {
        self.matches(host, |named| named.map_or(WEB_PORTS.contains(&port), |named| named == port))
    }

    /// Returns whether the entry denies the target where it is on the list of what is denied: without a port it is every port.
    pub(super) fn denies(&self, host: &Host, port: u16) -> bool {
        self.matches(host, |named| named.is_none_or(|named| named == port))
    }

    fn matches(&self, host: &Host, is_port: impl Fn(Option<u16>) -> bool) -> bool {
        match (self, host) {
            (Self::Public(named), _) => is_port(*named),
            (Self::Registries, Host::Name(name)) => is_port(None) && REGISTRIES.contains(&name.as_str()),
            (Self::Host(entry, named), host) => entry == host && is_port(*named),
            (Self::Below(suffix, named), Host::Name(name)) => {
                let is_below =
                    name.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'));
                is_below && is_port(*named)
            }
            _ => false,
        }
    }

    /// Returns whether a port was named: then any protocol is allowed there.
    pub(super) fn names_port(&self) -> bool {
        matches!(self, Self::Host(_, Some(_)) | Self::Below(_, Some(_)) | Self::Public(Some(_)))
    }
}

/// As it is written on the command line.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = match self {
            Self::Registries => return f.write_str(REGISTRIES_WORD),
            Self::Public(port) => {
                f.write_str(PUBLIC_WORD)?;
                port
            }
            Self::Host(host, port) => {
                host.fmt(f)?;
                port
            }
            Self::Below(name, port) => {
                write!(f, "*.{name}")?;
                port
            }
        };
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(entry: &str, host: &str, port: u16) -> bool {
        Entry::parse(entry).unwrap().covers(&Host::parse(host).unwrap(), port)
    }

    #[test]
    fn an_entry_covers_what_it_names() {
        assert!(covers("example.com", "EXAMPLE.com.", 443) && covers("example.com", "example.com", 80));
        assert!(covers("bücher.example", "xn--bcher-kva.example", 443));
        assert!(covers("example.com:8443", "example.com", 8443));
        assert!(covers("[2001:4860::8888]", "[2001:4860:0::8888]", 443));
        assert!(covers("127.0.0.1:8080", "127.1", 8080) && covers("[::1]:8080", "[::1]", 8080));
        assert!(covers("registries", "pypi.org", 443) && covers("registries", "deb.debian.org", 80));
    }

    #[test]
    fn an_entry_covers_nothing_else() {
        for (entry, host, port) in [
            ("example.com", "example.com", 8443),
            ("example.com:8443", "example.com", 443),
            ("example.com", "www.example.com", 443),
            ("example.com", "example.com.evil.org", 443),
            ("example.com", "evilexample.com", 443),
            ("1.2.3.4", "1.2.3.5", 443),
            ("127.0.0.1:8080", "127.0.0.1", 8081),
            ("registries", "pypi.org", 22),
            ("registries", "evil.pypi.org", 443),
        ] {
            assert!(!covers(entry, host, port), "{entry} {host}:{port}");
        }
    }

    #[test]
    fn a_wildcard_covers_the_names_below() {
        assert!(
            covers("*.example.com", "a.example.com", 443) && covers("*.example.com", "a.b.example.com", 80)
        );
        assert!(covers("*.example.com:5432", "db.example.com", 5432));
        for host in ["example.com", "evilexample.com", "example.com.evil.org", "a.example.org"] {
            assert!(!covers("*.example.com", host, 443), "{host}");
        }
        assert!(!covers("*.example.com", "a.example.com", 8443));
        assert!(Entry::parse("*.0.0.1:80").is_err(), "addresses have none below them");
    }

    #[test]
    fn an_invalid_entry_says_how_to_write_one() {
        for text in [
            "",
            ",",
            "https://a.com",
            "a.com/x",
            "10.0.0.0/8",
            "*",
            "*.com",
            "*.*.com",
            "a.*.com",
            "a com",
            "a.com:http",
            "::1",
            "[::1]",
            "127.0.0.1",
            "10.0.0.1",
            "localhost",
            "localhost:80",
            "none,a.com",
            "a.com,full",
            "a@b.com",
        ] {
            let error = entries(text).expect_err(text);
            assert_eq!(error.exit_code().code(), 2, "{text}");
            assert!(error.hint_text().is_some_and(|hint| !hint.is_empty()), "{text}");
        }
    }

    #[test]
    fn a_list_is_displayed_as_it_is_written() {
        let list = entries(" registries, A.com ,*.b.org:8443,[::1]:80,a.com").unwrap();
        let words: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["registries", "a.com", "*.b.org:8443", "[::1]:80"]);
    }

    #[test]
    fn the_registries_are_hosts() {
        for name in REGISTRIES {
            assert_eq!(Host::parse(name), Some(Host::Name(name.to_owned())));
        }
    }
}
