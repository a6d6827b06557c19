//! What is allowed and what is not, as it stands now.

use super::host::Host;
use super::list::Entry;
use std::net::IpAddr;

/// The list in force: it begins with `--network` and changes as a person says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    allowed: Vec<Entry>,
    denied: Vec<Entry>,
}

/// What may be spoken with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// What the web speaks: HTTP, and TLS that names the host.
    Web,
    /// Anything: the port was named.
    Anything,
}

/// What the rules say of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is on the list.
    Allowed(Reach),
    /// A person said no to it.
    Denied,
    /// Nobody said anything.
    Unknown,
}

impl Rules {
    /// Rules that allow these.
    pub fn new(allowed: Vec<Entry>) -> Self {
        Self { allowed, denied: Vec::new() }
    }

    /// What is allowed, in the order in which it was said.
    pub fn allowed(&self) -> &[Entry] {
        &self.allowed
    }

    /// What is denied, in the order in which it was said.
    pub fn denied(&self) -> &[Entry] {
        &self.denied
    }

    /// Allows more; what was said against it before is forgotten.
    pub fn allow(&mut self, entry: Entry) {
        self.denied.retain(|denied| *denied != entry);
        if !self.allowed.contains(&entry) {
            self.allowed.push(entry);
        }
    }

    /// Denies, whatever else allows it.
    pub fn deny(&mut self, entry: Entry) {
        self.allowed.retain(|allowed| *allowed != entry);
        if !self.denied.contains(&entry) {
            self.denied.push(entry);
        }
    }

    /// Judges a target. A denial counts more than what allows.
    pub fn judge(&self, host: &Host, port: u16) -> Verdict {
        if self.denied.iter().any(|entry| entry.covers(host, port)) {
            return Verdict::Denied;
        }
        let mut covering = self.allowed.iter().filter(|entry| entry.covers(host, port)).peekable();
        match (covering.peek().is_some(), covering.any(Entry::names_port)) {
            (false, _) => Verdict::Unknown,
            (true, false) => Verdict::Allowed(Reach::Web),
            (true, true) => Verdict::Allowed(Reach::Anything),
        }
    }

    /// Whether this very address and port is on the list.
    pub fn names(&self, address: IpAddr, port: u16) -> bool {
        let named = Entry::Host(Host::Ip(address.to_canonical()), Some(port));
        self.allowed.contains(&named) && !self.denied.contains(&named)
    }

    /// Whether this address is on the list, whatever the port.
    pub fn names_host(&self, address: IpAddr) -> bool {
        let is_it = |entry: &Entry| matches!(entry, Entry::Host(Host::Ip(named), _) if *named == address);
        self.allowed.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::entries;
    use super::*;

    #[test]
    fn a_denial_counts_more_and_can_be_taken_back() {
        let mut rules = Rules::new(entries("registries,*.example.com").unwrap());
        let host = |name| Host::parse(name).unwrap();
        assert_eq!(rules.judge(&host("pypi.org"), 443), Verdict::Allowed(Reach::Web));
        rules.deny(Entry::parse("pypi.org").unwrap());
        rules.deny(Entry::parse("*.example.com").unwrap());
        assert_eq!(rules.judge(&host("pypi.org"), 443), Verdict::Denied);
        assert_eq!(rules.judge(&host("a.example.com"), 443), Verdict::Denied);
        assert_eq!(rules.allowed(), [Entry::Registries]);
        rules.allow(Entry::parse("pypi.org").unwrap());
        assert_eq!(rules.judge(&host("pypi.org"), 443), Verdict::Allowed(Reach::Web));
        assert_eq!(rules.judge(&host("b.org"), 443), Verdict::Unknown);
    }

    #[test]
    fn whoever_names_a_port_may_speak_anything() {
        let rules = Rules::new(entries("a.com,a.com:443,10.0.0.1:80").unwrap());
        let judge = |name, port| rules.judge(&Host::parse(name).unwrap(), port);
        assert_eq!(judge("a.com", 443), Verdict::Allowed(Reach::Anything));
        assert_eq!(judge("a.com", 80), Verdict::Allowed(Reach::Web));
        assert!(rules.names("10.0.0.1".parse().unwrap(), 80));
        assert!(rules.names("::ffff:10.0.0.1".parse().unwrap(), 80));
        assert!(!rules.names("10.0.0.1".parse().unwrap(), 81));
    }
}
