//! A host in its one canonical form.

use std::fmt;
use std::net::IpAddr;

/// The longest name that DNS knows, in bytes (RFC 1035, without the root's dot).
const MAX_NAME: usize = 253;
/// The longest label, in bytes (RFC 1035).
const MAX_LABEL: usize = 63;

/// A host as it is requested or listed, in the one form in which two of them can be compared: lower case,
/// internationalised names as `xn--…`, no dot at the end, addresses as numbers however they were written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name.
    Name(String),
    /// An address; an IPv4 address within IPv6 (`::ffff:1.2.3.4`) is the IPv4 address.
    Ip(IpAddr),
}

impl Host {
    /// Reads a name or an address, IPv6 in brackets. `None` where it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        // Longer than any name, whatever its encoding.
        if text.len() > 8 * MAX_NAME {
            return None;
        }
        match url::Host::parse(text).ok()? {
            url::Host::Ipv4(address) => Some(Self::Ip(address.into())),
            url::Host::Ipv6(address) => Some(Self::Ip(IpAddr::from(address).to_canonical())),
            url::Host::Domain(name) => {
                let name = name.strip_suffix('.').unwrap_or(&name);
                is_name(name).then(|| Self::Name(name.to_owned()))
            }
        }
    }

    /// Reads `HOST` or `HOST:PORT`.
    pub fn with_port(text: &str) -> Option<(Self, Option<u16>)> {
        let (host, port) = match text.rsplit_once(':') {
            // A colon inside brackets does not start a port.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            None => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse::<u16>().ok().filter(|port| *port > 0)?)
            }
            Some(_) => return None,
        };
        Some((Self::parse(host)?, port))
    }
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

/// As it is written before a port: IPv6 in brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(address)) => address.fmt(f),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Host;

    fn canonical(text: &str) -> Option<String> {
        Host::parse(text).map(|host| host.to_string())
    }

    #[test]
    fn one_host_has_one_form() {
        for (text, form) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("BÜCHER.example。", "xn--bcher-kva.example"),
            ("ｅｘａｍｐｌｅ.com", "example.com"),
            ("_dmarc.example.com", "_dmarc.example.com"),
            ("127.1", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0177.0.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("[::ffff:127.0.0.1]", "127.0.0.1"),
            ("[0:0::1]", "[::1]"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(form), "{text}");
        }
    }

    #[test]
    fn an_invalid_host_is_rejected() {
        let long = "a.".repeat(127) + "aa";
        let label = "a".repeat(64) + ".com";
        for text in [
            "",
            ".",
            "a..b",
            "a.com..",
            "a b",
            "a/b",
            "a@b",
            "*.com",
            "::1",
            "[::1",
            "a%00b",
            "a\nb",
            "1.2.3.256",
            "a!b",
        ] {
            assert_eq!(canonical(text), None, "{text:?}");
        }
        assert_eq!(
            (canonical(&long), canonical(&label), canonical(&"a".repeat(1 << 20))),
            (None, None, None)
        );
    }

    /// The user reads it in a question, next to words of ours.
    #[test]
    fn a_host_is_shown_in_plain_ascii() {
        for text in [
            "a\u{1b}[2Jb.test",
            "a%1b%5b2Jb.test",
            "\u{202e}tset.a",
            "a\u{200b}b.test",
            "a.test\u{2028}Allow",
            "\u{430}pple.test",
            "a.test. Allow it? yes",
        ] {
            let shown = canonical(text).unwrap_or_default();
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            assert!(shown.bytes().all(is_plain), "{text:?}: {shown:?}");
        }
    }

    #[test]
    fn a_port_follows_a_colon() {
        let read = |text| Host::with_port(text).map(|(host, port)| (host.to_string(), port));
        assert_eq!(read("a.com:8443"), Some(("a.com".to_owned(), Some(8443))));
        assert_eq!(read("[::1]"), Some(("[::1]".to_owned(), None)));
        assert_eq!(read("[::1]:80"), Some(("[::1]".to_owned(), Some(80))));
        for text in ["a.com:", "a.com:0", "a.com:65536", "a.com:+80", "a.com:80:80", "::1:80", ":80"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
