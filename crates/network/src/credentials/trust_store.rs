//! Authorities in the file in which Java looks for them: a keystore of the kind JKS, which every version reads.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
/// The digest at the end, which is read only where a password is given.
const DIGEST: [u8; 20] = [0; 20];

/// The keystore with all certificates of a PEM file that can be read.
pub(super) fn of(pem: &[u8]) -> Vec<u8> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).flatten().collect();
    let mut bytes = Vec::with_capacity(pem.len());
    let count = u32::try_from(certificates.len()).unwrap_or_default();
    for number in [MAGIC, VERSION, count] {
        bytes.extend(number.to_be_bytes());
    }
    for (index, certificate) in certificates.iter().enumerate() {
        bytes.extend(TRUSTED_CERTIFICATE.to_be_bytes());
        add_text(&mut bytes, &format!("authority{index}"));
        // When it was added.
        bytes.extend(0_u64.to_be_bytes());
        add_text(&mut bytes, "X.509");
        bytes.extend(u32::try_from(certificate.len()).unwrap_or_default().to_be_bytes());
        bytes.extend_from_slice(certificate);
    }
    bytes.extend(DIGEST);
    bytes
}

fn add_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(u16::try_from(text.len()).unwrap_or_default().to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}
