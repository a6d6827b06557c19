//! Resolving a name, judging its addresses, and connecting to exactly one that passed.

use super::address::objection;
use super::connection::{CloseReason, Refusal};
use super::host::Host;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 6;

/// The verdict of the rules about one address of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressRule {
    /// The address was named itself, with its port: it may be private.
    Named,
    /// The address was denied itself.
    Denied,
    /// The rules are about the host's name only.
    Unnamed,
}

/// Connects to `host`, at an address that `rule_of` and [`objection`] allow.
pub(super) async fn dial(
    host: &Host,
    port: u16,
    rule_of: impl Fn(IpAddr) -> AddressRule,
) -> Result<TcpStream, CloseReason> {
    let mut refusal = None;
    let mut failure = "it has no address".to_owned();
    let mut tried = 0;
    for address in resolve(host, port).await? {
        if let Err(reason) = judge(host, port, address, rule_of(address)) {
            refusal.get_or_insert(reason);
            continue;
        }
        tried += 1;
        if tried > MAX_ADDRESSES {
            break;
        }
        match timeout(CONNECT_TIMEOUT, TcpStream::connect((address, port))).await {
            Ok(Ok(stream)) => {
                // An optimisation: a failure changes nothing else.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failure = format!("{address} cannot be reached: {error}"),
            Err(_) => failure = format!("{address} did not answer within {} s", CONNECT_TIMEOUT.as_secs()),
        }
    }
    Err(match refusal {
        Some(refusal) if tried == 0 => CloseReason::Refused(refusal),
        _ => failed(failure),
    })
}

/// Judges every address that this machine knows of `host`, for a connection through a proxy, which may take any of them. A
/// name that cannot be resolved here passes where it `is_named` by the rules.
pub(super) async fn judge_all(
    host: &Host,
    port: u16,
    is_named: bool,
    rule_of: impl Fn(IpAddr) -> AddressRule,
) -> Result<(), CloseReason> {
    let addresses = match resolve(host, port).await {
        Ok(addresses) => addresses,
        Err(_) if is_named => return Ok(()),
        Err(reason) => return Err(reason),
    };
    let mut judged = addresses.into_iter().map(|address| judge(host, port, address, rule_of(address)));
    judged.try_for_each(|judged| judged.map_err(CloseReason::Refused))
}

fn judge(host: &Host, port: u16, address: IpAddr, rule: AddressRule) -> Result<(), Refusal> {
    match rule {
        AddressRule::Named => Ok(()),
        AddressRule::Denied => Err(Refusal::denied(format!("its address {address} is denied"))),
        AddressRule::Unnamed => objection(address).map_or(Ok(()), |what| {
            let target = SocketAddr::new(address, port);
            let what = match host {
                Host::Ip(_) => format!("it is {what}"),
                Host::Name(_) => format!("its address {address} is {what}"),
            };
            Err(Refusal::address(format!("{what}, and {target} is not on the list"), target))
        }),
    }
}

async fn resolve(host: &Host, port: u16) -> Result<Vec<IpAddr>, CloseReason> {
    let name = match host {
        Host::Ip(address) => return Ok(vec![*address]),
        Host::Name(name) => name,
    };
    match timeout(RESOLVE_TIMEOUT, lookup_host((name.as_str(), port))).await {
        Ok(Ok(found)) => Ok(found.map(|address| address.ip().to_canonical()).collect()),
        Ok(Err(error)) => Err(failed(format!("the name cannot be resolved: {error}"))),
        Err(_) => Err(failed(format!("the name was not resolved within {} s", RESOLVE_TIMEOUT.as_secs()))),
    }
}

fn failed(reason: String) -> CloseReason {
    CloseReason::Failed(reason)
}
