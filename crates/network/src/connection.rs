//! One connection of a program in the sandbox, from its request to its event.

use super::client_hello::{self, Hello};
use super::credentials::{self, HostSide};
use super::dial::{dial, judge_all};
use super::gateway::Gateway;
use super::host::Host;
use super::list::Entry;
use super::request::{self, Action, BadRequest, Request};
use super::rules::Reach;
use super::traffic::{Direction, Meter, Rewound};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, split};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// The time limit for a program to send its request, or to read a refusal.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval in which a connection is checked for traffic.
const TICK: Duration = Duration::from_secs(30);
/// A connection that is idle for this many ticks is closed.
const IDLE_TICKS: u32 = 20;
/// The same once one side has finished sending: most often it is gone.
const CLOSING_TICKS: u32 = 2;
/// The TLS alert `unrecognized_name`, fatal (RFC 6066 section 3).
const UNRECOGNISED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The reason why a connection ended, other than by a regular end of both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The rules do not allow it.
    Refused(Refusal),
    /// It could not be made, or was idle for too long; the reason.
    Failed(String),
    /// A limit is reached: its name in events, and the reason.
    Limit(&'static str, String),
    /// One of the two ends is gone.
    Gone,
}

impl CloseReason {
    /// The reason, for the event.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(&refusal.reason),
            Self::Failed(reason) | Self::Limit(_, reason) => Some(reason),
            Self::Gone => None,
        }
    }
}

/// The reason why the rules do not allow a connection, and what would allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub reason: String,
    remedy: Remedy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Remedy {
    /// Naming this entry.
    Name(String),
    /// Taking back a denial of the user's.
    Undeny,
    /// Nothing: the program spoke a protocol that is not allowed.
    None,
}

impl Refusal {
    /// No entry covers the target.
    pub fn unlisted(host: &Host, port: u16) -> Self {
        let reason = "it is not on the list of --network".to_owned();
        Self { reason, remedy: Remedy::Name(Entry::exactly(host, port).to_string()) }
    }

    /// The host is allowed, but not this address of it.
    pub fn address(reason: String, target: SocketAddr) -> Self {
        Self { reason, remedy: Remedy::Name(target.to_string()) }
    }

    /// The user denied it.
    pub fn denied(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: Remedy::Undeny }
    }

    /// The client that the sandbox was made for has denied it.
    pub fn narrowed() -> Self {
        Self { reason: "the client that created this sandbox denied it".to_owned(), remedy: Remedy::None }
    }

    /// No entry of the list that the program goes by covers the target.
    pub fn unlisted_of(holder: &str) -> Self {
        Self { reason: format!("it is not on the list `network` of {holder}"), remedy: Remedy::None }
    }

    fn protocol(reason: String) -> Self {
        Self { reason, remedy: Remedy::None }
    }

    /// Returns what the user of `agent` can do.
    fn hint(&self, command: &str) -> String {
        match &self.remedy {
            Remedy::Name(entry) => format!("The user of agent can allow it with {command} {entry}."),
            Remedy::Undeny => {
                "The user of agent can remove the denial from the list of --network.".to_owned()
            }
            Remedy::None => String::new(),
        }
    }
}

/// Serves one connection to its end, and reports it.
pub(super) async fn serve(gateway: Arc<Gateway>, mut client: DuplexStream) {
    let (request, rest) = match timeout(REQUEST_TIMEOUT, read_request(&mut client)).await {
        Ok(Ok(Some(request))) => request,
        Ok(Err(BadRequest(status, reason))) => {
            return respond(&mut client, status, "Bad request", reason).await;
        }
        // Without a request there is nothing to report.
        Ok(Ok(None)) | Err(_) => return,
    };
    let (host, port, meter) = (&request.host, request.port, Arc::new(gateway.meter()));
    let report = |allowed, end: Option<&CloseReason>| gateway.report(&request, &meter, allowed, end);
    let admitted = gateway.admit();
    let reached = match &admitted {
        // What is not encrypted could neither have the credential nor be searched for it.
        Ok(_) if request.action != Action::Connect && gateway.is_bound(host, port) => {
            let reason = "a credential is bound to it, and it is reached by https:// alone";
            Err(CloseReason::Refused(Refusal::protocol(reason.to_owned())))
        }
        Ok(_) => gateway.until_end(reach(&gateway, host, port, request.pass.as_deref())).await,
        Err(end) => Err(end.clone()),
    };
    // Reported before the program gets its response: what the program does next comes after the event.
    match reached {
        Ok((server, _)) if request.action == Action::Connect && gateway.ends_tls(host, port) => {
            let served = intercept(&gateway, &request, &rest, client, server, &meter);
            let end = gateway.until_end(watched(&meter, served)).await;
            report(!matches!(end, Err(CloseReason::Refused(_))), end.as_ref().err());
        }
        Ok((server, reach)) => {
            let carried = carry(&request, reach, &rest, &mut client, server, &meter);
            let end = gateway.until_end(watched(&meter, carried)).await;
            let is_refused = matches!(end, Err(CloseReason::Refused(_)));
            report(!is_refused, end.as_ref().err());
            if is_refused {
                // So that the program reports something better than a broken connection.
                let _ = timeout(REQUEST_TIMEOUT, client.write_all(&UNRECOGNISED_NAME)).await;
            }
        }
        Err(end) => {
            let is_refused = !matches!(end, CloseReason::Failed(_));
            report(!is_refused, Some(&end));
            respond_with_reason(&gateway, &mut client, (host, port), &end).await;
        }
    }
}

/// Reads a request, and what followed its head. `None` where there was none.
async fn read_request(client: &mut DuplexStream) -> Result<Option<(Request, Vec<u8>)>, BadRequest> {
    let mut bytes = Vec::new();
    loop {
        // Bounded: `parse` rejects a head that is too long.
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

/// Connects to the host, if the rules allow it.
pub(super) async fn reach(
    gateway: &Gateway,
    host: &Host,
    port: u16,
    pass: Option<&str>,
) -> Result<(TcpStream, Reach), CloseReason> {
    let permit = match pass.and_then(|pass| gateway.holder(pass)) {
        Some(holder) => gateway.judge_by(&holder, host, port)?,
        None => gateway.judge(host, port).await?,
    };
    let rule_of = |address| gateway.judge_address(&permit, host, address, port);
    let upstream = gateway.upstream();
    if let Some(proxy) = upstream.as_ref().and_then(|upstream| upstream.to(host, port)) {
        // A proxy resolves the name itself. Where this machine can, too, its addresses are judged all the same; where it
        // cannot, the name has to be on the list.
        judge_all(host, port, gateway.names(&permit, host, port), rule_of).await?;
        return Ok((proxy.connect(host, port).await?, permit.reach));
    }
    let server = dial(host, port, rule_of).await.map_err(|reason| gateway.mention_proxy(reason))?;
    Ok((server, permit.reach))
}

async fn carry(
    request: &Request,
    reach: Reach,
    rest: &[u8],
    client: &mut DuplexStream,
    server: TcpStream,
    meter: &Meter,
) -> Result<(), CloseReason> {
    match &request.action {
        Action::Connect => tunnel(&request.host, reach, rest, client, server, meter).await,
        Action::Http { head, body } => exchange(head, *body, rest, client, server, meter).await,
    }
}

/// Ends TLS for a host that a credential is bound to, and serves the requests.
async fn intercept(
    gateway: &Arc<Gateway>,
    request: &Request,
    rest: &[u8],
    mut client: DuplexStream,
    server: TcpStream,
    meter: &Arc<Meter>,
) -> Result<(), CloseReason> {
    let Some(credentials) = gateway.credentials() else { return Err(CloseReason::Gone) };
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.map_err(|_| CloseReason::Gone)?;
    // Whatever else the list allows: TLS alone.
    let greeting =
        match timeout(REQUEST_TIMEOUT, greeting(&request.host, Reach::Web, rest, &mut client)).await {
            Ok(Ok(greeting)) => greeting,
            Ok(Err(end)) => {
                // So that the program reports something better than a broken connection.
                let _ = timeout(REQUEST_TIMEOUT, client.write_all(&UNRECOGNISED_NAME)).await;
                return Err(end);
            }
            Err(_) => return Err(CloseReason::Gone),
        };
    let target = (request.host.clone(), request.port);
    let host_side = HostSide::new(gateway, credentials, target, request.pass.clone(), meter, server);
    credentials::serve(host_side, Rewound::new(greeting, client)).await
}

/// Copies bytes in both directions, once the program's first ones have been judged.
async fn tunnel(
    host: &Host,
    reach: Reach,
    rest: &[u8],
    client: &mut DuplexStream,
    mut server: TcpStream,
    meter: &Meter,
) -> Result<(), CloseReason> {
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.map_err(|_| CloseReason::Gone)?;
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = server.split();
    let outgoing = async {
        let greeting = greeting(host, reach, rest, &mut from_client).await?;
        meter.write(Direction::Out, &mut to_server, &greeting).await?;
        meter.pump(Direction::Out, &mut from_client, &mut to_server, None).await
    };
    let incoming = meter.pump(Direction::In, &mut from_server, &mut to_client, None);
    tokio::try_join!(outgoing, incoming).map(drop)
}

/// The first bytes of the program: TLS that names the host; where the port was named, anything but TLS that names another.
async fn greeting(
    host: &Host,
    reach: Reach,
    rest: &[u8],
    client: &mut (impl AsyncRead + Unpin),
) -> Result<Vec<u8>, CloseReason> {
    let protocol = |reason| CloseReason::Refused(Refusal::protocol(reason));
    let mut bytes = rest.to_vec();
    let mut buffer = [0; 4096];
    loop {
        match client_hello::read(&bytes) {
            Ok(Hello::Partial) => {}
            Ok(Hello::NotTls) if reach == Reach::Anything => return Ok(bytes),
            Ok(Hello::NotTls) => {
                return Err(protocol(format!(
                    "it is not TLS, and other protocols need the port on the list ({host}:PORT)"
                )));
            }
            Ok(Hello::Tls(Some(name))) if Host::parse(&name).as_ref() == Some(host) => return Ok(bytes),
            Ok(Hello::Tls(Some(name))) => {
                let name: String = name.chars().take(100).collect();
                return Err(protocol(format!("TLS asks for {name:?} there")));
            }
            Ok(Hello::Tls(None)) if reach == Reach::Anything || matches!(host, Host::Ip(_)) => {
                return Ok(bytes);
            }
            Ok(Hello::Tls(None)) => return Err(protocol("TLS does not name the host".to_owned())),
            Err(malformed) => return Err(protocol(malformed.to_string())),
        }
        match client.read(&mut buffer).await {
            Ok(0) if bytes.is_empty() => return Ok(bytes),
            Ok(0) | Err(_) => return Err(CloseReason::Gone),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
        }
    }
}

/// One plain HTTP request of exactly its declared length, and the response, after which the server closes. A second
/// request needs its own connection.
async fn exchange(
    head: &[u8],
    body: u64,
    rest: &[u8],
    client: &mut DuplexStream,
    mut server: TcpStream,
    meter: &Meter,
) -> Result<(), CloseReason> {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = server.split();
    let (start_of_body, more) = rest.split_at(rest.len().min(usize::try_from(body).unwrap_or(usize::MAX)));
    let outgoing = async {
        let sent = async {
            meter.write(Direction::Out, &mut to_server, head).await?;
            meter.write(Direction::Out, &mut to_server, start_of_body).await?;
            meter
                .pump(
                    Direction::Out,
                    &mut from_client,
                    &mut to_server,
                    Some(body - start_of_body.len() as u64),
                )
                .await
        };
        match sent.await {
            // A server that closes before the whole body may have sent its response already.
            Ok(()) | Err(CloseReason::Gone) => {}
            Err(end) => return Err(end),
        }
        if more.is_empty() {
            let _ = from_client.read(&mut [0]).await;
        }
        // The program is gone, or sends what is never forwarded: it still gets the response, with a shorter timeout.
        meter.close();
        std::future::pending().await
    };
    tokio::select! {
        end = outgoing => end,
        end = meter.pump(Direction::In, &mut from_server, &mut to_client, None) => end,
    }
}

/// Runs `work` until it ends or the connection has been idle for too long.
async fn watched(
    meter: &Meter,
    work: impl Future<Output = Result<(), CloseReason>>,
) -> Result<(), CloseReason> {
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
            return Err(CloseReason::Failed(format!("nothing was sent for {} s", (TICK * limit).as_secs())));
        }
    }
}

/// Responds with the reason for which there is no connection, and what would allow it.
async fn respond_with_reason(
    gateway: &Gateway,
    client: &mut DuplexStream,
    (host, port): (&Host, u16),
    end: &CloseReason,
) {
    let reason = end.reason().unwrap_or("the session has ended");
    let (status, phrase) = match end {
        CloseReason::Refused(refusal) => {
            let text = format!(
                "The sandbox may not connect to {host}:{port}: {reason}.\n\
                 Nothing inside the sandbox can change that. {}",
                refusal.hint(gateway.command())
            );
            return respond(client, 403, &format!("{host}:{port} refused: {reason}"), text.trim_end()).await;
        }
        CloseReason::Failed(_) => (502, "The host cannot be reached"),
        CloseReason::Limit(..) | CloseReason::Gone => (503, "No more connections"),
    };
    respond(client, status, phrase, &format!("{host}:{port}: {reason}")).await;
}

/// A response of the proxy itself. Of one to CONNECT, many programs show only the status line.
async fn respond(client: &mut DuplexStream, status: u16, phrase: &str, text: &str) {
    let length = text.len() + 1;
    let response = format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}\n"
    );
    let sent = async {
        client.write_all(response.as_bytes()).await?;
        client.shutdown().await
    };
    // A program that does not read it misses it.
    let _ = timeout(REQUEST_TIMEOUT, sent).await;
}
