//! One connection of a program inside: from what it asks for to its event.

use super::client_hello::{self, Hello};
use super::dial::dial;
use super::gateway::Gateway;
use super::host::Host;
use super::request::{self, Action, Bad, Request};
use super::rules::Reach;
use super::traffic::{Meter, Way};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, split};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long a program may take to say what it wants, or to take in why it does not get it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether anything moves.
const TICK: Duration = Duration::from_secs(30);
/// A connection over which nothing goes for so many ticks is ended.
const IDLE_TICKS: u32 = 20;
/// The same where one side has sent its last: most often it is gone.
const CLOSING_TICKS: u32 = 2;
/// TLS for: fatal, unrecognised name (RFC 6066 section 3).
const UNRECOGNISED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Why a connection ended otherwise than by its own will.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The rules are against it; the reason.
    Refused(String),
    /// It could not be made, or fell silent; the reason.
    Failed(String),
    /// A limit is reached: its name in events, and the reason.
    Limit(&'static str, String),
    /// Whoever was at either end is gone.
    Gone,
}

impl End {
    /// The reason, for the event.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused(reason) | Self::Failed(reason) | Self::Limit(_, reason) => Some(reason),
            Self::Gone => None,
        }
    }
}

/// Serves one connection to its end, and says what came of it.
pub(super) async fn serve(gateway: Arc<Gateway>, mut client: DuplexStream) {
    let (request, rest) = match timeout(PATIENCE, ask(&mut client)).await {
        Ok(Ok(Some(asked))) => asked,
        Ok(Err(Bad(status, reason))) => return answer(&mut client, status, "Bad request", reason).await,
        // Nothing was asked for, so there is nothing to tell.
        Ok(Ok(None)) | Err(_) => return,
    };
    let (host, port, meter) = (&request.host, request.port, gateway.meter());
    let tell = |allowed, end: Option<&End>| gateway.tell(&request, &meter, allowed, end);
    let admitted = gateway.admit();
    let reached = match &admitted {
        Ok(_) => gateway.until_over(reach(&gateway, host, port)).await,
        Err(end) => Err(end.clone()),
    };
    // Told before it is answered: what the program does next shall find it told.
    match reached {
        Ok((server, reach)) => {
            let carried = carry(&request, reach, &rest, &mut client, server, &meter);
            let end = gateway.until_over(watched(&meter, carried)).await;
            let is_refused = matches!(end, Err(End::Refused(_)));
            tell(!is_refused, end.as_ref().err());
            if is_refused {
                // So that the program says something better than that the connection broke.
                let _ = timeout(PATIENCE, client.write_all(&UNRECOGNISED_NAME)).await;
            }
        }
        Err(end) => {
            let is_refused = !matches!(end, End::Failed(_));
            tell(!is_refused, Some(&end));
            refuse(&mut client, host, port, &end).await;
        }
    }
}

/// Reads a request, and what came behind its head. `None`: there was none.
async fn ask(client: &mut DuplexStream) -> Result<Option<(Request, Vec<u8>)>, Bad> {
    let mut bytes = Vec::new();
    loop {
        // Bounded: `parse` does not wait for more than a head.
        let mut buffer = [0; 4096];
        match client.read(&mut buffer).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
        }
        if let Some(request) = request::parse(&bytes)? {
            let rest = bytes.split_off(request.length);
            return Ok(Some((request, rest)));
        }
    }
}

/// Gets a connection to the host, if the rules allow it.
async fn reach(gateway: &Gateway, host: &Host, port: u16) -> Result<(TcpStream, Reach), End> {
    let permit = gateway.judge(host, port).await?;
    let server = dial(host, port, |address| gateway.names(&permit, host, address, port)).await?;
    Ok((server, permit.reach))
}

async fn carry(
    request: &Request,
    reach: Reach,
    rest: &[u8],
    client: &mut DuplexStream,
    server: TcpStream,
    meter: &Meter<'_>,
) -> Result<(), End> {
    match &request.action {
        Action::Connect => tunnel(&request.host, reach, rest, client, server, meter).await,
        Action::Http { head, body } => exchange(head, *body, rest, client, server, meter).await,
    }
}

/// Bytes both ways, once the program's first ones have been looked at.
async fn tunnel(
    host: &Host,
    reach: Reach,
    rest: &[u8],
    client: &mut DuplexStream,
    mut server: TcpStream,
    meter: &Meter<'_>,
) -> Result<(), End> {
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.map_err(|_| End::Gone)?;
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = server.split();
    let outward = async {
        let greeting = greeting(host, reach, rest, &mut from_client).await?;
        meter.write(Way::Out, &mut to_server, &greeting).await?;
        meter.pump(Way::Out, &mut from_client, &mut to_server, None).await
    };
    let inward = meter.pump(Way::In, &mut from_server, &mut to_client, None);
    tokio::try_join!(outward, inward).map(drop)
}

/// The first bytes of the program: TLS that names the host; where a port was named, anything but TLS that names another.
async fn greeting(
    host: &Host,
    reach: Reach,
    rest: &[u8],
    client: &mut (impl AsyncRead + Unpin),
) -> Result<Vec<u8>, End> {
    let mut bytes = rest.to_vec();
    let mut buffer = [0; 4096];
    loop {
        match client_hello::read(&bytes) {
            Ok(Hello::Partial) => {}
            Ok(Hello::NotTls) if reach == Reach::Anything => return Ok(bytes),
            Ok(Hello::NotTls) => {
                return Err(End::Refused(format!(
                    "it is not TLS, and only a host that is named with its port ({host}:PORT) may be spoken to otherwise"
                )));
            }
            Ok(Hello::Tls(Some(name))) if Host::parse(&name).as_ref() == Some(host) => return Ok(bytes),
            Ok(Hello::Tls(Some(name))) => {
                let name: String = name.chars().take(100).collect();
                return Err(End::Refused(format!("TLS asks for {name:?} there")));
            }
            Ok(Hello::Tls(None)) if reach == Reach::Anything || matches!(host, Host::Ip(_)) => {
                return Ok(bytes);
            }
            Ok(Hello::Tls(None)) => return Err(End::Refused("TLS does not name the host".to_owned())),
            Err(malformed) => return Err(End::Refused(malformed.to_string())),
        }
        match client.read(&mut buffer).await {
            Ok(0) if bytes.is_empty() => return Ok(bytes),
            Ok(0) | Err(_) => return Err(End::Gone),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
        }
    }
}

/// One plain HTTP request, exactly as long as it says, and its answer, with which the server closes. A second request needs
/// a connection of its own.
async fn exchange(
    head: &[u8],
    body: u64,
    rest: &[u8],
    client: &mut DuplexStream,
    mut server: TcpStream,
    meter: &Meter<'_>,
) -> Result<(), End> {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = server.split();
    let (begun, more) = rest.split_at(rest.len().min(usize::try_from(body).unwrap_or(usize::MAX)));
    let outward = async {
        let sent = async {
            meter.write(Way::Out, &mut to_server, head).await?;
            meter.write(Way::Out, &mut to_server, begun).await?;
            meter.pump(Way::Out, &mut from_client, &mut to_server, Some(body - begun.len() as u64)).await
        };
        match sent.await {
            // A server that wants no more of the body has its answer on the way.
            Ok(()) | Err(End::Gone) => {}
            Err(end) => return Err(end),
        }
        if more.is_empty() {
            let _ = from_client.read(&mut [0]).await;
        }
        // The program is gone, or sends what is never passed on: the answer is still its, but not waited for so long.
        meter.close();
        std::future::pending().await
    };
    tokio::select! {
        end = outward => end,
        end = meter.pump(Way::In, &mut from_server, &mut to_client, None) => end,
    }
}

/// `work`, as long as bytes move.
async fn watched(meter: &Meter<'_>, work: impl Future<Output = Result<(), End>>) -> Result<(), End> {
    tokio::pin!(work);
    let (mut before, mut idle) = (meter.moved(), 0);
    loop {
        tokio::select! {
            end = &mut work => return end,
            () = sleep(TICK) => {}
        }
        let now = meter.moved();
        idle = if now == before { idle + 1 } else { 0 };
        before = now;
        let limit = if meter.is_closing() { CLOSING_TICKS } else { IDLE_TICKS };
        if idle >= limit {
            return Err(End::Failed(format!("nothing was sent for {} s", (TICK * limit).as_secs())));
        }
    }
}

/// Tells the program why it does not get its connection, and what could be done about it.
async fn refuse(client: &mut DuplexStream, host: &Host, port: u16, end: &End) {
    let reason = end.reason().unwrap_or("the session has ended");
    match end {
        End::Failed(_) => {
            answer(client, 502, "The host cannot be reached", &format!("{host}:{port}: {reason}")).await
        }
        End::Refused(_) => {
            let text = format!(
                "The sandbox may not connect to {host}:{port}: {reason}.\n\
                 Nothing inside the sandbox can change that. The person who runs agent can:\n\
                 agent --network {}, or /network allow {0} in the conversation.",
                super::list::Entry::exactly(host, port)
            );
            answer(client, 403, &format!("{host}:{port} is not allowed by --network"), &text).await;
        }
        End::Limit(..) | End::Gone => {
            answer(client, 503, "No more connections", &format!("{host}:{port}: {reason}")).await
        }
    }
}

/// An answer of the proxy's own. Many programs show nothing of one to CONNECT but its first line.
async fn answer(client: &mut DuplexStream, status: u16, phrase: &str, text: &str) {
    let length = text.len() + 1;
    let answer = format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}\n"
    );
    let told = async {
        client.write_all(answer.as_bytes()).await?;
        client.shutdown().await
    };
    // Whoever does not want to know need not.
    let _ = timeout(PATIENCE, told).await;
}
