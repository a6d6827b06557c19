//! The certificate authority of a session: in memory alone, and trusted only inside.

use super::http2;
use crate::host::Host;
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The validity of a certificate in days: longer than sessions run, as clients accept it.
const VALID_DAYS: u64 = 390;
/// The time before now at which it begins: clocks inside may differ.
const EARLIER: Duration = Duration::from_secs(24 * 3600);
/// Certificates that are kept.
const MAX_KEPT: usize = 256;

pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Of all certificates for hosts.
    key: KeyPair,
    hosts: Lock<HashMap<Host, Arc<ServerConfig>>>,
}

impl Authority {
    pub fn new() -> Result<Self> {
        let failed = |error: rcgen::Error| {
            Error::unexpected("the session's certificate authority cannot be made").caused_by(error)
        };
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "agent: this session's credentials");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        limit(&mut params);
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
        Ok(Self { issuer, key: KeyPair::generate().map_err(failed)?, hosts: Lock::default() })
    }

    /// Its own certificate, for clients inside.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Returns the TLS configuration that shows programs inside that they speak to `host`.
    pub fn server(&self, host: &Host) -> std::result::Result<Arc<ServerConfig>, String> {
        if let Some(known) = self.hosts.lock().get(host) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(self.make(host)?);
        let mut hosts = self.hosts.lock();
        if hosts.len() >= MAX_KEPT {
            hosts.clear();
        }
        hosts.insert(host.clone(), Arc::clone(&made));
        Ok(made)
    }

    fn make(&self, host: &Host) -> std::result::Result<ServerConfig, String> {
        let failed = |error: &dyn std::fmt::Display| format!("there is no certificate for it: {error}");
        let name = host.to_string().trim_matches(['[', ']']).to_owned();
        let mut params = CertificateParams::new(vec![name]).map_err(|error| failed(&error))?;
        params.distinguished_name.push(DnType::CommonName, "agent: a bound host");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        limit(&mut params);
        let certificate = params.signed_by(&self.key, &self.issuer).map_err(|error| failed(&error))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key)
            })
            .map_err(|error| failed(&error))?;
        // HTTP/2 for those who speak nothing else: on one machine it has no advantage, and costs more.
        config.alpn_protocols = vec![b"http/1.1".to_vec(), http2::ALPN.to_vec()];
        Ok(config)
    }
}

fn limit(params: &mut CertificateParams) {
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + Duration::from_secs(VALID_DAYS * 24 * 3600)).into();
}
