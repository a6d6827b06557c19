//! TLS for clients that take nothing else: a certificate for the server's names, from an authority that signs this one only.
//!
//! The authority's key is thrown away once it has signed. Clients are given a file that holds it beside the machine's own.

use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::paths;
use agent_base::plain_file;
use agent_base::tls::authorities_of;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_rustls::TlsAcceptor;

/// The validity of a certificate in days, and the greatest age of one that is used again.
const VALID_DAYS: i64 = 397;
const MAX_AGE: Duration = Duration::from_secs(300 * 24 * 3600);
/// A certificate for a server's names, in files.
#[derive(Debug)]
pub struct Identity {
    directory: PathBuf,
}

impl Identity {
    /// The identity for these names and addresses: the one that is kept below `directory`, or a new one.
    ///
    /// # Errors
    /// The files cannot be written, or a name cannot be in a certificate.
    pub fn of(machine: &Machine, directory: &Path, names: &[String]) -> Result<Self> {
        let hash = hex::encode(Sha256::digest(names.join("\n")));
        let directory = directory.join(format!("tls-{}", &hash[..16]));
        let identity = Self { directory };
        let made = std::fs::metadata(identity.certificate()).and_then(|file| file.modified());
        let is_fresh =
            made.is_ok_and(|made| SystemTime::now().duration_since(made).is_ok_and(|age| age < MAX_AGE));
        if !is_fresh {
            identity.make(machine, names)?;
        }
        Ok(identity)
    }

    /// The list of authorities that a client of this server needs, with the machine's own.
    pub fn authorities(&self) -> PathBuf {
        self.directory.join("authorities.pem")
    }

    /// Takes greetings of TLS.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let failed = |error: &dyn std::fmt::Display| self.unusable(error);
        let chain = CertificateDer::pem_file_iter(self.certificate())
            .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
            .map_err(|error| failed(&error))?;
        let key = PrivateKeyDer::from_pem_file(self.key()).map_err(|error| failed(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| failed(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn certificate(&self) -> PathBuf {
        self.directory.join("certificate.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.join("key.pem")
    }

    fn make(&self, machine: &Machine, names: &[String]) -> Result<()> {
        paths::make_dir(&self.directory)?;
        let made = make(names).map_err(|error| self.unusable(&error))?;
        let mut authorities = authorities_of(machine);
        authorities.extend_from_slice(made.authority.as_bytes());
        // The certificate last: it says that the others are there.
        for (path, content) in [
            (self.key(), made.key.as_bytes()),
            (self.authorities(), &authorities),
            (self.certificate(), made.certificate.as_bytes()),
        ] {
            plain_file::replace_private(&path, content).map_err(|error| self.unusable(&error))?;
        }
        Ok(())
    }

    fn unusable(&self, error: &dyn std::fmt::Display) -> Error {
        Error::config(format!("the certificate in {} cannot be used: {error}", self.directory.display()))
            .hint("remove the directory: a new one is made")
    }
}

struct Made {
    authority: String,
    certificate: String,
    key: String,
}

fn make(names: &[String]) -> std::result::Result<Made, rcgen::Error> {
    let now = SystemTime::now();
    let valid = |params: &mut CertificateParams| {
        params.not_before = (now - Duration::from_secs(24 * 3600)).into();
        params.not_after = params.not_before + Duration::from_secs(VALID_DAYS as u64 * 24 * 3600);
    };
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "agent serve");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid(&mut authority);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let mut leaf = CertificateParams::new(names)?;
    leaf.distinguished_name.push(DnType::CommonName, "agent serve, its sandboxes");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    valid(&mut leaf);
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &authority)?.pem();
    Ok(Made { authority: authority.pem(), certificate, key: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_kept_for_its_names() {
        let (machine, directory) = (Machine::of_this_process(), tempfile::tempdir().unwrap());
        let names = ["*.agent.localhost".to_owned(), "127.0.0.1".to_owned()];
        let first = Identity::of(&machine, directory.path(), &names).unwrap();
        let certificate = std::fs::read(first.certificate()).unwrap();
        first.acceptor().unwrap();
        let again = Identity::of(&machine, directory.path(), &names).unwrap();
        assert_eq!(std::fs::read(again.certificate()).unwrap(), certificate);
        let other = Identity::of(&machine, directory.path(), &names[..1]).unwrap();
        assert_ne!(std::fs::read(other.certificate()).unwrap(), certificate);
        let authorities = std::fs::read_to_string(first.authorities()).unwrap();
        assert!(authorities.trim_end().ends_with("-----END CERTIFICATE-----"), "{authorities}");
    }
}
