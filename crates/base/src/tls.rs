//! The one implementation of TLS that this process has, and the authorities that this machine trusts.

use crate::machine::Machine;
use std::path::PathBuf;
use std::sync::Once;

/// The most that is read of a machine's list of authorities.
pub const MAX_AUTHORITIES: u64 = 8 << 20;
/// The files in which machines keep that list.
pub const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Makes ring the provider of rustls, once. Called before the first client is made.
pub fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the embedding program installed one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// The authorities that this machine's programs trust, as far as they are in a file.
pub fn authorities_of(machine: &Machine) -> Vec<u8> {
    let named = machine.variable("SSL_CERT_FILE").map(PathBuf::from);
    let read = |path: PathBuf| {
        let is_small =
            std::fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= MAX_AUTHORITIES);
        if is_small { std::fs::read(&path).ok() } else { None }
    };
    let mut found =
        named.into_iter().chain(AUTHORITIES.map(PathBuf::from)).find_map(read).unwrap_or_default();
    if !found.is_empty() && !found.ends_with(b"\n") {
        found.push(b'\n');
    }
    found
}
