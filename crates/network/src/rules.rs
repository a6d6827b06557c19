//! Which hosts are allowed and denied at the moment.

use super::dial::AddressRule;
use super::host::Host;
use super::list::{Entry, words};
use agent_base::error::{Error, Result};
use std::net::IpAddr;

/// The list in force. It starts as `--network` and changes with the user's answers and with `/network`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    allowed: Vec<Entry>,
    denied: Vec<Entry>,
}

/// The protocols that may be spoken with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// HTTP, and TLS that names the host.
    Web,
    /// Any protocol: the port was named.
    Anything,
}

/// The verdict of the rules about a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is on the list.
    Allowed(Reach),
    /// It is denied, whatever allows it.
    Denied,
    /// No entry covers it.
    Unknown,
}

impl Rules {
    /// Rules that allow `allowed`.
    pub fn new(allowed: Vec<Entry>) -> Self {
        Self { allowed, denied: Vec::new() }
    }

    /// Reads what `--network` takes: entries separated by commas, denied ones with a `!` in front.
    ///
    /// # Errors
    ///
    /// An entry is not valid, or nothing is allowed.
    pub fn parse(text: &str) -> Result<Self> {
        let mut rules = Self::default();
        for word in words(text)? {
            match word.strip_prefix('!') {
                Some(denied) => rules.deny(Entry::parse(denied)?),
                None => rules.allow(Entry::parse(word)?),
            }
        }
        match rules.allowed.is_empty() {
            true => Err(Error::config("the list of hosts allows nothing")
                .hint("name what is allowed first, like 'public,!example.com' or 'registries,!pypi.org'")),
            false => Ok(rules),
        }
    }

    /// Reads what [`Rules::words`] has written. What is not valid is left out: a record can only lose entries by that.
    pub fn recorded(words: &[String]) -> Self {
        let mut rules = Self::default();
        for word in words {
            match word.strip_prefix('!').map(Entry::parse) {
                Some(denied) => denied.into_iter().for_each(|entry| rules.deny(entry)),
                None => Entry::parse(word).into_iter().for_each(|entry| rules.allow(entry)),
            }
        }
        rules
    }

    /// The allowed entries, in the order in which they were added.
    pub fn allowed(&self) -> &[Entry] {
        &self.allowed
    }

    /// The denied entries, in the order in which they were added.
    pub fn denied(&self) -> &[Entry] {
        &self.denied
    }

    /// The entries as [`Rules::parse`] reads them.
    pub fn words(&self) -> Vec<String> {
        let allowed = self.allowed.iter().map(ToString::to_string);
        allowed.chain(self.denied.iter().map(|entry| format!("!{entry}"))).collect()
    }

    /// Allows an entry and drops an equal denial.
    pub fn allow(&mut self, entry: Entry) {
        self.denied.retain(|denied| *denied != entry);
        if !self.allowed.contains(&entry) {
            self.allowed.push(entry);
        }
    }

    /// Allows an entry; a denial stays.
    pub(super) fn add(&mut self, entry: &Entry) {
        if !self.allowed.contains(entry) {
            self.allowed.push(entry.clone());
        }
    }

    /// Denies an entry, whatever else allows it.
    pub fn deny(&mut self, entry: Entry) {
        self.allowed.retain(|allowed| *allowed != entry);
        if !self.denied.contains(&entry) {
            self.denied.push(entry);
        }
    }

    /// Judges a target. A denial outweighs every entry that allows it.
    pub fn judge(&self, host: &Host, port: u16) -> Verdict {
        if self.denied.iter().any(|entry| entry.denies(host, port)) {
            return Verdict::Denied;
        }
        let mut covering = self.allowed.iter().filter(|entry| entry.covers(host, port)).peekable();
        match (covering.peek().is_some(), covering.any(Entry::names_port)) {
            (false, _) => Verdict::Unknown,
            (true, false) => Verdict::Allowed(Reach::Web),
            (true, true) => Verdict::Allowed(Reach::Anything),
        }
    }

    /// Judges a target by its name or address as a program writes it; `None` where that is neither.
    pub fn judge_name(&self, host: &str, port: u16) -> Option<Verdict> {
        Host::parse(host).map(|host| self.judge(&host, port))
    }

    /// Returns whether an entry other than `public` covers the target.
    pub(super) fn names(&self, host: &Host, port: u16) -> bool {
        let is_named = |entry: &&Entry| !matches!(entry, Entry::Public(_)) && entry.covers(host, port);
        self.allowed.iter().any(|entry| is_named(&entry))
    }

    /// Returns what the list says about an address itself, whatever name led to it.
    pub(super) fn judge_address(&self, address: IpAddr, port: u16) -> AddressRule {
        let host = Host::Ip(address.to_canonical());
        if self.denied.iter().any(|entry| entry.denies(&host, port)) {
            return AddressRule::Denied;
        }
        match self.allowed.contains(&Entry::Host(host, Some(port))) {
            true => AddressRule::Named,
            false => AddressRule::Unnamed,
        }
    }

    /// Returns whether this address is on the list, whatever the port.
    pub fn names_host(&self, address: IpAddr) -> bool {
        let is_it = |entry: &Entry| matches!(entry, Entry::Host(Host::Ip(named), _) if *named == address);
        self.allowed.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host::parse(name).unwrap()
    }

    #[test]
    fn a_denial_outweighs_and_can_be_taken_back() {
        let mut rules = Rules::parse("registries,*.example.com").unwrap();
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
    fn a_named_port_allows_any_protocol() {
        let rules = Rules::parse("a.com,a.com:443,10.0.0.1:80").unwrap();
        assert_eq!(rules.judge(&host("a.com"), 443), Verdict::Allowed(Reach::Anything));
        assert_eq!(rules.judge(&host("a.com"), 80), Verdict::Allowed(Reach::Web));
        let address = |text: &str, port| rules.judge_address(text.parse().unwrap(), port);
        assert_eq!(address("10.0.0.1", 80), AddressRule::Named);
        assert_eq!(address("::ffff:10.0.0.1", 80), AddressRule::Named);
        assert_eq!(address("10.0.0.1", 81), AddressRule::Unnamed);
    }

    #[test]
    fn public_is_everything_but_what_is_denied() {
        let rules = Rules::parse("public,public:22,!evil.example,!*.evil.example,!8.8.4.4").unwrap();
        assert_eq!(rules.judge(&host("example.com"), 443), Verdict::Allowed(Reach::Web));
        assert_eq!(rules.judge(&host("9.9.9.9"), 80), Verdict::Allowed(Reach::Web));
        assert_eq!(rules.judge(&host("example.com"), 22), Verdict::Allowed(Reach::Anything));
        assert_eq!(rules.judge(&host("example.com"), 8443), Verdict::Unknown);
        for port in [22, 80, 443] {
            for denied in ["evil.example", "EVIL.example.", "a.evil.example", "a.b.evil.example", "8.8.4.4"] {
                assert_eq!(rules.judge(&host(denied), port), Verdict::Denied, "{denied}:{port}");
            }
        }
        assert_eq!(rules.judge(&host("notevil.example"), 443), Verdict::Allowed(Reach::Web));
        assert_eq!(rules.judge_address("8.8.4.4".parse().unwrap(), 443), AddressRule::Denied);
        assert_eq!(rules.words(), ["public", "public:22", "!evil.example", "!*.evil.example", "!8.8.4.4"]);
    }

    #[test]
    fn a_list_that_allows_nothing_says_what_to_write() {
        let error = Rules::parse("!evil.example").unwrap_err();
        assert!(error.hint_text().is_some_and(|hint| hint.contains("public,!")), "{error}");
        assert!(Rules::parse("public,!").is_err() && Rules::parse("public,!!a.com").is_err());
    }
}
