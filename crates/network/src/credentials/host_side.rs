//! The host's side of a bound connection: TLS that is checked as this machine does, and HTTP in it.

use super::Credentials;
use super::head::MAX_HEAD;
use super::outgoing::Outgoing;
use crate::connection::{CloseReason, reach};
use crate::gateway::Gateway;
use crate::host::Host;
use crate::traffic::{Counted, Meter};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The time limit for a greeting of TLS.
pub(super) const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// Fields of an answer.
pub(super) const MAX_FIELDS: usize = 200;
const BROKEN_OFF: &str = "the host broke off the connection";

/// The way to a host, and what it takes to go there again.
pub(crate) struct HostSide {
    pub gateway: Arc<Gateway>,
    pub credentials: Arc<Credentials>,
    pub host: Host,
    pub port: u16,
    /// The password of the list that the program goes by.
    pub pass: Option<String>,
    pub meter: Arc<Meter>,
    way: Way,
    driver: Driver,
}

/// Moves the bytes of a connection, as a part of what waits for them: a task of its own would cost each request two changes between tasks.
#[derive(Default)]
pub(super) struct Driver(Option<BoxFuture<'static, ()>>);

impl Driver {
    /// Does `work` while the bytes of the connection move.
    pub async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            let Some(connection) = &mut self.0 else { return Poll::Pending };
            if connection.as_mut().poll(context).is_ready() {
                self.0 = None;
            }
            work.as_mut().poll(context)
        })
        .await
    }
}

enum Way {
    /// Connected, without TLS.
    Fresh(TcpStream),
    Open(SendRequest<Outgoing>),
    Gone,
}

impl HostSide {
    pub fn new(
        gateway: &Arc<Gateway>,
        credentials: Arc<Credentials>,
        (host, port): (Host, u16),
        pass: Option<String>,
        meter: &Arc<Meter>,
        stream: TcpStream,
    ) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            credentials,
            host,
            port,
            pass,
            meter: Arc::clone(meter),
            way: Way::Fresh(stream),
            driver: Driver::default(),
        }
    }

    /// Takes it for one connection of the program's. The one that stays connects when it is used.
    pub(super) fn take(&mut self) -> Self {
        let next = Self {
            gateway: Arc::clone(&self.gateway),
            credentials: Arc::clone(&self.credentials),
            host: self.host.clone(),
            port: self.port,
            pass: self.pass.clone(),
            meter: Arc::clone(&self.meter),
            way: Way::Gone,
            driver: Driver::default(),
        };
        std::mem::replace(self, next)
    }

    /// Sends a request. Returns the beginning of the answer.
    ///
    /// # Errors
    /// The host cannot be reached, or does not answer: the reason.
    pub(super) async fn send(&mut self, head: Parts, body: Outgoing) -> Result<Response<Incoming>, String> {
        let is_used_again = self.open().await?;
        // The host may have closed the connection meanwhile: nothing moves its bytes between two requests.
        let may_repeat = is_used_again && head.method.is_safe() && hyper::body::Body::is_end_stream(&body);
        let copy = may_repeat.then(|| Request::from_parts(head.clone(), Outgoing::empty()));
        let unsent = match self.send_once(Request::from_parts(head, body)).await {
            Ok(answer) => return Ok(answer),
            Err(unsent) => unsent.filter(|_| is_used_again),
        };
        // One that was not sent at all is sent whatever it does.
        let again = unsent.or(copy).ok_or(BROKEN_OFF)?;
        self.close();
        self.open().await?;
        self.send_once(again).await.map_err(|_| BROKEN_OFF.to_owned())
    }

    /// Ends the connection; the next request opens another one.
    pub fn close(&mut self) {
        self.way = Way::Gone;
        self.driver = Driver::default();
    }

    /// Moves the bytes of the connection while an answer is passed on.
    pub(super) fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    /// Sends a request over the open connection. The error is the request, where nothing of it was sent.
    async fn send_once(
        &mut self,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, Option<Request<Outgoing>>> {
        let Way::Open(sender) = &mut self.way else { return Err(Some(request)) };
        let answer = self.driver.drive(sender.try_send_request(request)).await;
        answer.map_err(|mut error| error.take_message())
    }

    /// Makes a request possible. Returns whether the connection has served another one.
    async fn open(&mut self) -> Result<bool, String> {
        if let Way::Open(sender) = &mut self.way
            && self.driver.drive(sender.ready()).await.is_ok()
        {
            return Ok(true);
        }
        let stream = match std::mem::replace(&mut self.way, Way::Gone) {
            Way::Fresh(stream) => stream,
            Way::Open(_) | Way::Gone => {
                let reached = reach(&self.gateway, &self.host, self.port, self.pass.as_deref()).await;
                let reason = |end: CloseReason| end.reason().unwrap_or("the host is gone").to_owned();
                reached.map_err(reason)?.0
            }
        };
        self.way = Way::Open(self.greet(stream).await?);
        Ok(false)
    }

    async fn greet(&mut self, stream: TcpStream) -> Result<SendRequest<Outgoing>, String> {
        let name = self.host.to_string().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|_| "no certificate can name the host".to_owned())?;
        let stream = Counted::new(stream, Arc::clone(&self.meter));
        let greeting = TlsConnector::from(Arc::clone(&self.credentials.client)).connect(name, stream);
        let stream = timeout(GREETING_TIMEOUT, greeting)
            .await
            .map_err(|_| "the host does not answer in TLS".to_owned())?
            .map_err(|error| format!("the host's certificate or its TLS is not accepted: {error}"))?;
        let opened = Builder::new()
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_FIELDS)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = opened.map_err(|_| "the host does not speak HTTP".to_owned())?;
        self.driver = Driver(Some(async move { drop(connection.with_upgrades().await) }.boxed()));
        Ok(sender)
    }
}
