//! The names under which clients reach the sandboxes of `agent serve`, and the variables that tell the SDKs.

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::server::Address;
use crate::server::e2b::Secret;
use crate::server::tls::Identity;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::lookup_host;

/// Names below `localhost` are this machine's own (RFC 6761), where its resolver knows that.
const LOCAL_DOMAIN: &str = "agent.localhost";
/// The time limit for the resolver to say whether it does.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The server's names.
pub struct Names {
    /// The address at which clients of this machine reach it.
    address: SocketAddr,
    /// Below which sandboxes have theirs, with the port.
    pub domain: String,
    identity: Identity,
}

impl Names {
    /// Those of a server that will listen at `address`.
    ///
    /// # Errors
    /// The SDKs could not connect to it.
    pub async fn printable(address: &Address, domain: Option<&str>, machine: &Machine) -> Result<Self> {
        match address {
            Address::Unix(_) => {
                Err(Error::usage("the SDKs connect to a port").hint("use --listen 127.0.0.1:PORT"))
            }
            Address::Tcp(address) if address.port() == 0 => {
                Err(Error::usage("--print-env needs the port that the server listens on")
                    .hint("name it in --listen, here and where the server is started"))
            }
            Address::Tcp(address) => Self::of(*address, domain, machine).await,
        }
    }

    /// Those of a server that listens at `address`.
    ///
    /// # Errors
    /// The domain is not valid, or its certificate cannot be made.
    pub async fn of(mut address: SocketAddr, domain: Option<&str>, machine: &Machine) -> Result<Self> {
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let mut names = vec!["localhost".to_owned(), LOCAL_DOMAIN.to_owned(), format!("*.{LOCAL_DOMAIN}")];
        names.extend(["127.0.0.1", "::1"].map(str::to_owned));
        if !address.ip().is_loopback() {
            names.push(address.ip().to_string());
        }
        let domain = match domain {
            Some(domain) => {
                let host = domain.split(':').next().unwrap_or_default();
                if !is_domain(domain) {
                    return Err(Error::usage(format!("{domain:?} is not a valid domain")).hint(
                        "use a name whose subdomains lead here: --domain sandboxes.example.org, or NAME:PORT",
                    ));
                }
                names.extend([host.to_owned(), format!("*.{host}")]);
                domain.to_owned()
            }
            None if resolves().await => format!("{LOCAL_DOMAIN}:{}", address.port()),
            // Then PORT-ID is the name of a user at this address.
            None => format!("@{address}"),
        };
        let identity = Identity::of(machine, &machine.data_dir()?.join("serve"), &names)?;
        Ok(Self { address, domain, identity })
    }

    /// The certificate for them.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns what a shell has to evaluate.
    pub fn variables(&self, key: &Secret) -> String {
        let (address, mut text) = (self.address, String::new());
        for vendor in ["E2B", "NOVITA"] {
            for (name, value) in [
                ("API_KEY", key.reveal().to_owned()),
                ("API_URL", format!("http://{address}")),
                ("SANDBOX_URL", format!("http://{address}")),
                ("DOMAIN", self.domain.clone()),
            ] {
                text.push_str(&format!("export {vendor}_{name}={}\n", shell_words::quote(&value)));
            }
        }
        let authorities = self.identity.authorities();
        let authorities = shell_words::quote(&authorities.to_string_lossy()).into_owned();
        for name in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
            text.push_str(&format!("export {name}={authorities}\n"));
        }
        // The server has no HTTP/2.
        text.push_str("export E2B_HTTP_VERSION=1.1\n");
        text
    }
}

/// Returns whether programs of this machine find themselves under names of the local domain.
async fn resolves() -> bool {
    let name = format!("1-i.{LOCAL_DOMAIN}:0");
    match tokio::time::timeout(RESOLVE_TIMEOUT, lookup_host(name)).await {
        Ok(Ok(found)) => {
            let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            !found.is_empty() && found.iter().all(IpAddr::is_loopback)
        }
        _ => false,
    }
}

/// A host name of two labels or more, and perhaps a port.
fn is_domain(domain: &str) -> bool {
    let (host, port) = domain.split_once(':').unwrap_or((domain, "443"));
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() < 64
            && !label.starts_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    is_port && host.len() <= 200 && host.contains('.') && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_name_with_a_dot_and_perhaps_a_port() {
        for domain in ["sandboxes.example.org", "a.b:8443"] {
            assert!(is_domain(domain), "{domain}");
        }
        for domain in ["", "example", "a..b", "-a.b", "a.b:0", "a.b:x", "https://a.b", "*.a.b", "a.b/c"] {
            assert!(!is_domain(domain), "{domain}");
        }
    }
}
