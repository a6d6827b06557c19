//! A name becomes addresses, the addresses are judged, and one that passed is dialled: that very one.

use super::address::objection;
use super::connection::End;
use super::host::Host;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long a name may take to be resolved, and one address to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 6;

/// Connects. `is_named` tells whether an address of the machine's own network was named itself, with its port.
pub(super) async fn dial(
    host: &Host,
    port: u16,
    is_named: impl Fn(IpAddr) -> bool,
) -> Result<TcpStream, End> {
    let found = resolve(host, port).await?;
    let passes = |address: &IpAddr| objection(*address).is_none() || is_named(*address);
    let good: Vec<IpAddr> = found.iter().copied().filter(passes).take(MAX_ADDRESSES).collect();
    if let (true, Some(bad)) = (good.is_empty(), found.first()) {
        let what = objection(*bad).unwrap_or_default();
        return Err(End::Refused(match host {
            Host::Ip(_) => format!("it is {what}, and {} is not on the list", SocketAddr::new(*bad, port)),
            Host::Name(_) => {
                format!("its address {bad} is {what}, and {} is not on the list", SocketAddr::new(*bad, port))
            }
        }));
    }
    let mut failure = "it has no address".to_owned();
    for address in good {
        match timeout(PATIENCE, TcpStream::connect((address, port))).await {
            Ok(Ok(stream)) => {
                // A hint to the kernel, nothing more.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failure = format!("{address} cannot be reached: {error}"),
            Err(_) => failure = format!("{address} did not answer for {} s", PATIENCE.as_secs()),
        }
    }
    Err(failed(failure))
}

async fn resolve(host: &Host, port: u16) -> Result<Vec<IpAddr>, End> {
    let name = match host {
        Host::Ip(address) => return Ok(vec![*address]),
        Host::Name(name) => name,
    };
    match timeout(PATIENCE, lookup_host((name.as_str(), port))).await {
        Ok(Ok(found)) => Ok(found.map(|address| address.ip().to_canonical()).collect()),
        Ok(Err(error)) => Err(failed(format!("the name cannot be resolved: {error}"))),
        Err(_) => Err(failed(format!("the name was not resolved within {} s", PATIENCE.as_secs()))),
    }
}

/// Where this machine itself goes through a proxy, that may be why. It is not used: it would resolve the names anew, and
/// dial what nobody has judged.
fn failed(reason: String) -> End {
    let own = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let has_own = own.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let hint = if has_own { " (this machine's own proxy is not used for the sandbox)" } else { "" };
    End::Failed(reason + hint)
}
