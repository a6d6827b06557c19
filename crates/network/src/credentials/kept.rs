//! A test of connections that are kept.

use super::presets::preset;
use super::{Credential, Rule};
use crate::connection;
use crate::gateway::Gateway;
use crate::traffic::Limits;
use agent_base::machine::Machine;
use agent_event::Events;
use agent_sandbox::Network;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const TOKEN: &str = "a-real-token-of-the-user";
/// The time for which a connection is idle until a host that does not keep it closes it.
const IDLE: Duration = Duration::from_millis(50);

/// A host over TLS that answers each request with two bytes and keeps its connections for a while.
struct TheHost {
    port: u16,
    authority: String,
    connections: Arc<AtomicUsize>,
}

impl TheHost {
    async fn start(idle: Duration) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Relaxed);
                let _ = stream.set_nodelay(true);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    while let Ok(Some(head)) = timeout(idle, head(&mut stream)).await {
                        let text = if head.contains(TOKEN) { "ok" } else { "no" };
                        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{text}");
                        if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err()
                        {
                            return;
                        }
                    }
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { port, authority: issuer.pem(), connections }
    }
}

async fn head(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

/// A program's connection to the host, through a gateway.
async fn connected(gateway: &Arc<Gateway>, host: &TheHost) -> TlsStream<DuplexStream> {
    let (mut program, client) = tokio::io::duplex(64 << 10);
    tokio::spawn(connection::serve(Arc::clone(gateway), client));
    let request = format!("CONNECT 127.0.0.1:{0} HTTP/1.1\r\nHost: 127.0.0.1:{0}\r\n\r\n", host.port);
    program.write_all(request.as_bytes()).await.unwrap();
    assert!(head(&mut program).await.unwrap().starts_with("HTTP/1.1 200"));
    let mut roots = RootCertStore::empty();
    let of_session = gateway.credentials().map(|credentials| credentials.authority.certificate());
    for pem in of_session.iter().chain([&host.authority]) {
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, program).await.unwrap()
}

/// A gateway with a credential for the host, and its placeholder.
fn bound(host: &TheHost) -> (Arc<Gateway>, String) {
    let entry = format!("127.0.0.1:{}", host.port);
    let network = Network::Hosts(vec![entry.clone()]);
    let gateway = Gateway::new(&network, Arc::new(Events::new(1)), Limits::default()).unwrap();
    let hosts = Rule::hosts(&[entry]).unwrap();
    let rule = Rule { hosts, ..preset("openai").unwrap().rule("site") };
    let credential =
        Credential { rule, value: TOKEN.into(), authorities: host.authority.clone().into_bytes() };
    gateway.bind(&[credential], &[], &Machine::of_this_process()).unwrap();
    let placeholder = gateway.credentials().unwrap().bound[0].placeholder.clone();
    (gateway, placeholder)
}

async fn ask(stream: &mut TlsStream<DuplexStream>, method: &str, host: &TheHost, token: &str) -> String {
    let request = format!(
        "{method} /x HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {token}\r\nAccept: */*\r\n\r\n",
        host.port
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\nok") {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn requests_of_a_kept_connection_go_over_one_to_the_host_and_each_has_the_value() {
    let host = TheHost::start(Duration::from_secs(60)).await;
    let (gateway, placeholder) = bound(&host);
    let mut stream = connected(&gateway, &host).await;
    for _ in 0..20 {
        ask(&mut stream, "GET", &host, &placeholder).await;
    }
    assert_eq!(host.connections.load(Relaxed), 1);
}

#[tokio::test]
async fn a_request_that_writes_goes_over_a_new_connection_where_the_host_closed_the_idle_one() {
    let host = TheHost::start(IDLE).await;
    let (gateway, placeholder) = bound(&host);
    let mut stream = connected(&gateway, &host).await;
    for method in ["POST", "POST", "GET"] {
        ask(&mut stream, method, &host, &placeholder).await;
        sleep(10 * IDLE).await;
    }
    assert_eq!(host.connections.load(Relaxed), 3);
}
