//! The files of a release: fetched over TLS, bounded, and taken only with the hash and the signature of the release.

use super::owner::Receipt;
use crate::error::{Error, Result};
use crate::hash::Hash;
use agent_base::tls;
use flate2::read::GzDecoder;
use futures_util::StreamExt;
use minisign_verify::{PublicKey, Signature};
use reqwest::redirect;
use std::io::Read;
use std::time::Duration;
use url::{Host, Url};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The time for which the server may be silent.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Redirects that are followed: releases are kept elsewhere.
const MOST_REDIRECTS: usize = 5;
/// Bytes of the list of hashes and of a signature, of an archive, and of the program in it.
const MAX_SUMS: usize = 1 << 20;
const MAX_ARCHIVE: usize = 256 << 20;
const MAX_PROGRAM: u64 = 1 << 30;

/// A release whose list of hashes was fetched.
pub struct Release {
    client: reqwest::Client,
    from: String,
    name: String,
    /// The hash of the archive for this machine.
    pub archive: Hash,
}

impl Release {
    /// The newest one, or this version.
    ///
    /// # Errors
    /// It is not there, or is not signed with the key of the receipt.
    pub async fn find(receipt: &Receipt, version: Option<&str>) -> Result<Self> {
        let releases = receipt.releases.trim_end_matches('/');
        let from = match version {
            Some(version) => format!("{releases}/download/v{version}"),
            None => format!("{releases}/latest/download"),
        };
        let client = client()?;
        let name = format!("agent-{}-unknown-linux-musl.tar.gz", std::env::consts::ARCH);
        let sums = fetch(&client, &format!("{from}/SHA256SUMS"), MAX_SUMS).await?;
        if !receipt.key.is_empty() {
            let signature = fetch(&client, &format!("{from}/SHA256SUMS.minisig"), MAX_SUMS).await?;
            verify(&receipt.key, &sums, &signature)?;
        }
        let archive = hash_of(&name, &String::from_utf8_lossy(&sums)).ok_or_else(|| {
            Error::unexpected(format!("the release has no {name}"))
                .hint("there are releases for Linux on x86_64 and aarch64")
        })?;
        Ok(Self { client, from, name, archive })
    }

    /// The program in its archive.
    ///
    /// # Errors
    /// The archive is not the one that the release names.
    pub async fn program(&self) -> Result<Vec<u8>> {
        let archive = fetch(&self.client, &format!("{}/{}", self.from, self.name), MAX_ARCHIVE).await?;
        if Hash::of(&archive) != self.archive {
            return Err(Error::unexpected(format!(
                "the hash of {} is not that of the release: nothing was changed",
                self.name
            )));
        }
        unpack(&archive)
            .map_err(|error| Error::unexpected(format!("{} cannot be unpacked", self.name)).caused_by(error))
    }
}

fn client() -> Result<reqwest::Client> {
    tls::install_provider();
    let policy = redirect::Policy::custom(|attempt| match is_trusted(attempt.url()) {
        true if attempt.previous().len() <= MOST_REDIRECTS => attempt.follow(),
        _ => attempt.stop(),
    });
    reqwest::Client::builder()
        .user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        // A server may close a connection while the next request is on its way.
        .pool_max_idle_per_host(0)
        .redirect(policy)
        .build()
        .map_err(|error| Error::config("the HTTP client cannot be set up").caused_by(error))
}

/// Returns whether nobody on the way can change what comes from there.
fn is_trusted(url: &Url) -> bool {
    let is_here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(_)) | None => false,
    };
    url.scheme() == "https" || url.scheme() == "http" && is_here
}

async fn fetch(client: &reqwest::Client, address: &str, max: usize) -> Result<Vec<u8>> {
    let failed = |why: String| Error::unexpected(format!("{address} could not be fetched: {why}"));
    let url = Url::parse(address).map_err(|error| failed(error.to_string()))?;
    if !is_trusted(&url) {
        return Err(failed("it is not an https address".to_owned()));
    }
    let answer = client.get(url).send().await.map_err(|error| failed(error.without_url().to_string()))?;
    if !answer.status().is_success() {
        return Err(failed(format!("the server answered {}", answer.status())));
    }
    let (mut bytes, mut stream) = (Vec::new(), answer.bytes_stream());
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.map_err(|error| failed(error.without_url().to_string()))?);
        if bytes.len() > max {
            return Err(failed(format!("it is larger than {max} bytes")));
        }
    }
    Ok(bytes)
}

/// # Errors
/// The list is not signed with the key.
fn verify(key: &str, sums: &[u8], signature: &[u8]) -> Result<()> {
    let wrong = |error: minisign_verify::Error| {
        Error::unexpected("the signature of the release is not valid: nothing was changed").caused_by(error)
    };
    let signature = Signature::decode(&String::from_utf8_lossy(signature)).map_err(wrong)?;
    PublicKey::from_base64(key).and_then(|key| key.verify(sums, &signature, false)).map_err(wrong)
}

/// The hash of a file in the output of `sha256sum`.
fn hash_of(name: &str, sums: &str) -> Option<Hash> {
    sums.lines().find_map(|line| {
        let (hash, file) = line.split_once(' ')?;
        // A blank or an asterisk stands before the name.
        (file.get(1..)? == name).then(|| Hash::parse(hash.as_bytes()))?
    })
}

fn unpack(archive: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    for entry in archive.entries()? {
        let entry = entry?;
        if entry.path_bytes().as_ref() == b"agent" && entry.header().entry_type().is_file() {
            let mut program = Vec::new();
            entry.take(MAX_PROGRAM).read_to_end(&mut program)?;
            return Ok(program);
        }
    }
    Err(std::io::Error::new(std::io::ErrorKind::NotFound, "there is no program in it"))
}
