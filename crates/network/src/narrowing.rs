//! A second list, which can only take away from the first: that of a client who may not allow itself anything.

use super::host::Host;
use agent_base::error::{Error, Result};
use std::net::IpAddr;

/// The most that each of its two sides may name.
const MAX_TARGETS: usize = 1000;

/// The part of the allowed hosts that is not reached all the same. What is allowed outweighs what is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrowing {
    allowed: Vec<Target>,
    denied: Vec<Target>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// A name, or a name with all below it.
    Name(String),
    Below(String),
    /// The addresses that begin with so many bits of this one. Those that begin with none are everything, names as well.
    Range(IpAddr, u32),
}

impl Narrowing {
    /// Denies the addresses and ranges of `denied`, but for the hosts, addresses and ranges of `allowed`.
    ///
    /// # Errors
    /// One of them is not valid, or they are too many.
    pub fn new(allowed: &[String], denied: &[String]) -> Result<Self> {
        if allowed.len().max(denied.len()) > MAX_TARGETS {
            return Err(Error::config(format!("a list of hosts has at most {MAX_TARGETS} entries")));
        }
        let denied = denied.iter().map(|text| match Target::parse(text) {
            Some(range @ Target::Range(..)) => Ok(range),
            Some(_) => {
                Err(Error::config(format!("{text:?} is a name: only addresses and ranges are denied")))
            }
            None => Err(not_valid(text)),
        });
        let allowed = allowed.iter().map(|text| Target::parse(text).ok_or_else(|| not_valid(text)));
        Ok(Self { allowed: allowed.collect::<Result<_>>()?, denied: denied.collect::<Result<_>>()? })
    }

    /// Returns whether nothing is reached.
    pub fn denies_everything(&self) -> bool {
        self.allowed.is_empty() && self.denied.iter().any(Target::is_everything)
    }

    /// Returns whether it denies nothing.
    pub fn denies_nothing(&self) -> bool {
        self.denied.is_empty()
    }

    /// Returns whether a host is not reached, at this address where it is known. A name that is allowed may have any; one that is not
    /// is not allowed because of its address.
    pub(super) fn denies(&self, host: &Host, address: Option<IpAddr>) -> bool {
        let is_denied =
            |target: &Target| target.covers(host) || address.is_some_and(|it| target.contains(it));
        self.denied.iter().any(is_denied) && !self.allowed.iter().any(|target| target.covers(host))
    }
}

fn not_valid(text: &str) -> Error {
    let text: String = text.chars().take(100).collect();
    Error::config(format!("{text:?} is not a valid host, address or range of addresses"))
}

impl Target {
    fn parse(text: &str) -> Option<Self> {
        if let Some((address, bits)) = text.split_once('/') {
            let (address, bits): (IpAddr, u32) = (address.parse().ok()?, bits.parse().ok()?);
            return (bits <= width(address)).then_some(Self::Range(address, bits));
        }
        let (is_below, host) = match text.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, text),
        };
        match Host::parse(host)? {
            Host::Ip(address) => (!is_below).then_some(Self::Range(address, width(address))),
            Host::Name(name) if is_below => Some(Self::Below(name)),
            Host::Name(name) => Some(Self::Name(name)),
        }
    }

    fn is_everything(&self) -> bool {
        matches!(self, Self::Range(_, 0))
    }

    fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Name(named), Host::Name(name)) => named == name,
            (Self::Below(suffix), Host::Name(name)) => {
                name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (_, Host::Ip(address)) => self.contains(*address),
            (Self::Range(..), Host::Name(_)) => self.is_everything(),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        match self {
            Self::Range(range, bits) => {
                *bits == 0
                    || width(*range) == width(address)
                        && (number(*range) ^ number(address)) >> (width(address) - bits) == 0
            }
            _ => false,
        }
    }
}

/// The bits of an address.
fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denies(allowed: &[&str], denied: &[&str], host: &str, address: Option<&str>) -> bool {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let narrowing = Narrowing::new(&list(allowed), &list(denied)).unwrap();
        narrowing.denies(&Host::parse(host).unwrap(), address.map(|address| address.parse().unwrap()))
    }

    #[test]
    fn what_is_denied_is_an_address_or_a_range_of_them() {
        assert!(denies(&[], &["8.8.8.8"], "8.8.8.8", None) && !denies(&[], &["8.8.8.8"], "8.8.4.4", None));
        assert!(
            denies(&[], &["10.0.0.0/8"], "10.200.0.1", None)
                && !denies(&[], &["10.0.0.0/8"], "11.0.0.1", None)
        );
        assert!(denies(&[], &["2001:db8::/32"], "[2001:db8:1::1]", None));
        assert!(!denies(&[], &["2001:db8::/32"], "32.1.13.184", None), "the same first bits");
        assert!(denies(&[], &["8.8.8.8/32"], "dns.google", Some("8.8.8.8")));
        assert!(!denies(&[], &["8.8.8.8/32"], "dns.google", None), "it is not known where that leads");
        for host in ["example.com", "1.1.1.1", "[2001:db8::1]"] {
            assert!(denies(&[], &["0.0.0.0/0"], host, None), "{host}");
        }
    }

    #[test]
    fn what_is_allowed_outweighs_it() {
        let all = ["0.0.0.0/0"];
        assert!(
            !denies(&["1.1.1.1"], &all, "1.1.1.1", Some("1.1.1.1"))
                && denies(&["1.1.1.1"], &all, "8.8.8.8", None)
        );
        assert!(!denies(&["*.example.com"], &all, "a.example.com", Some("8.8.8.8")));
        assert!(
            denies(&["*.example.com"], &all, "example.com", None)
                && denies(&["*.b.org"], &all, "xb.org", None)
        );
        assert!(denies(&["1.1.1.1"], &all, "example.com", Some("1.1.1.1")), "the name is not allowed");
    }

    #[test]
    fn what_is_not_valid_is_refused_by_name() {
        for (allowed, denied) in
            [("", "example.com"), ("", "1.1.1.1/33"), ("*.1.1.1.1", ""), ("a b", ""), ("::/129", "")]
        {
            let list = |word: &str| if word.is_empty() { Vec::new() } else { vec![word.to_owned()] };
            let refused = Narrowing::new(&list(allowed), &list(denied)).unwrap_err().to_string();
            assert!(refused.contains(if denied.is_empty() { allowed } else { denied }), "{refused}");
        }
        assert!(Narrowing::new(&vec!["a.com".to_owned(); MAX_TARGETS + 1], &[]).is_err());
    }
}
