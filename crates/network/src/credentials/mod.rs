//! Credentials that programs inside use without holding them.
//!
//! Inside there is a placeholder, another one in each session. For the hosts that a credential is bound to, TLS ends here
//! (`authority.rs`), each request is read strictly (`head.rs`, `chunks.rs`, or `http2.rs` before them) and judged (`rule.rs`, `path.rs`); the value takes the
//! placeholder's place where the rule says (`apply.rs`), and is replaced by it in what comes back (`scrub.rs`). All other connections stay as they are.

mod answers;
mod apply;
mod authority;
mod aws;
mod bindings;
pub mod chunks;
mod exchange;
pub mod head;
mod host_side;
pub mod http2;
mod inside;
mod intercept;
mod judged;
#[cfg(test)]
mod kept;
mod lfs;
mod looked_at;
mod offers;
mod outgoing;
mod path;
pub mod presets;
pub mod push;
mod requests;
mod rule;
mod scrub;
mod sign;
mod source;
mod trust_store;
mod websocket;

pub use offers::{Offered, ReadValue};
pub use rule::{HomeFileKind, Placement, Rule};
pub use source::{Source, SourceContext};

pub(crate) use bindings::Bindings;
pub(crate) use host_side::HostSide;
pub(crate) use intercept::serve;

use crate::host::Host;
use crate::list::Entry;
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_base::tls::authorities_of;
use authority::Authority;
use offers::Offer;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use scrub::Needles;
use secrecy::{ExposeSecret, SecretString};
use sign::Key;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// A credential of the user's: its rule, and its value.
#[derive(Clone)]
pub struct Credential {
    /// The rule for its use.
    pub rule: Rule,
    /// The value.
    pub value: SecretString,
    /// Authorities of the hosts beside those of this machine, as PEM.
    pub authorities: Vec<u8>,
}

/// Without the value.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("rule", &self.rule).finish_non_exhaustive()
    }
}

/// A credential in a session.
pub(super) struct Bound {
    pub rule: Rule,
    value: SecretString,
    pub placeholder: String,
    /// It is added to requests that have none: the user allowed that when the host asked for it.
    injects: bool,
    /// The key that requests are signed with.
    key: Option<Key>,
}

impl Bound {
    /// Makes a placeholder, and has the value searched for.
    fn new(rule: &Rule, value: &SecretString, injects: bool, needles: &mut Needles) -> Result<Self> {
        let (rule, value) = (rule.clone(), value.clone());
        if !rule.signs() {
            let placeholder = placeholder(value.expose_secret());
            needles.add(value.expose_secret(), &placeholder);
            return Ok(Self { rule, value, placeholder, injects, key: None });
        }
        let Some(key) = Key::parse(value.expose_secret()) else {
            return Err(Error::config(format!("the value of the credential {rule} is not a key of AWS")));
        };
        let placeholder = placeholder("AKIA----------------").to_ascii_uppercase();
        for secret in [&key.secret_access_key].into_iter().chain(&key.session_token) {
            needles.add(secret.expose_secret(), &placeholder);
        }
        Ok(Self { rule, value, placeholder, injects, key: Some(key) })
    }
}

/// The credentials of a session.
pub(super) struct Credentials {
    bound: Vec<Arc<Bound>>,
    /// Those that the user is asked about.
    offers: Vec<Offer>,
    /// The credentials that hosts gave in exchange.
    exchanged: Lock<VecDeque<Arc<Bound>>>,
    authority: Authority,
    needles: Lock<Arc<Needles>>,
    client: Arc<ClientConfig>,
    /// The authorities that this machine's programs trust.
    trusted: Vec<u8>,
}

impl Credentials {
    /// Makes an authority and placeholders.
    pub fn new(credentials: &[Credential], offered: &[Offered], machine: &Machine) -> Result<Self> {
        let authority = Authority::new()?;
        let mut needles = Needles::default();
        let mut bound = Vec::new();
        for Credential { rule, value, .. } in credentials {
            bound.push(Arc::new(Bound::new(rule, value, false, &mut needles)?));
        }
        let own = credentials.iter().map(|credential| (&credential.rule, credential.authorities.as_slice()));
        let of_offers = offered.iter().map(|offered| (&offered.rule, offered.authorities.as_slice()));
        let (client, trusted) = (client(own.chain(of_offers))?, authorities_of(machine));
        let (needles, exchanged) = (Lock::new(Arc::new(needles)), Lock::default());
        let offers = offered.iter().cloned().map(Offer::new).collect();
        Ok(Self { bound, offers, exchanged, authority, needles, client, trusted })
    }

    /// Those that are bound to a host, with what hosts gave in exchange for them.
    pub fn at(&self, host: &Host, port: u16) -> Vec<Arc<Bound>> {
        let is_there = |bound: &&Arc<Bound>| bound.rule.is_bound_to(host, port);
        let exchanged = self.exchanged.lock();
        let own = self.bound.iter().chain(exchanged.iter()).filter(is_there).cloned();
        own.chain(self.offers.iter().filter_map(Offer::taken).filter(|bound| is_there(&bound))).collect()
    }

    /// Returns what is searched for in what comes back.
    fn needles(&self) -> Arc<Needles> {
        Arc::clone(&self.needles.lock())
    }

    /// The hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &Entry> {
        self.bound.iter().flat_map(|bound| &bound.rule.hosts)
    }
}

/// Makes the configuration that checks the hosts' certificates: by this machine's authorities, and those that the
/// credentials name.
fn client<'c>(authorities: impl Iterator<Item = (&'c Rule, &'c [u8])>) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for (rule, authorities) in authorities {
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            let unusable = |error: &dyn fmt::Display| {
                Error::config(format!("[credentials.{rule}] ca cannot be used: {error}"))
            };
            let certificate = certificate.map_err(|error| unusable(&error))?;
            roots.add(certificate).map_err(|error| unusable(&error))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::unexpected("TLS cannot be set up").caused_by(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Something of the value's shape and length: its well-known beginning, and letters that differ in each session.
fn placeholder(value: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let prefixes = presets::ALL.iter().flat_map(|preset| preset.prefixes);
    let prefix = prefixes.filter(|prefix| value.starts_with(**prefix)).max_by_key(|prefix| prefix.len());
    let prefix = prefix.filter(|prefix| value.len() >= prefix.len() + 8).copied().unwrap_or_default();
    let mut text = prefix.to_owned();
    while text.len() < value.len() {
        for byte in crate::gateway::random().to_le_bytes() {
            if text.len() < value.len() {
                text.push(char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
            }
        }
    }
    text
}
