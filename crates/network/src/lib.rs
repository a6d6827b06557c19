//! The sandbox's network: allowed hosts, through a proxy, one connection at a time.
//!
//! The sandbox has no interface but loopback. The guest listens on its port [`PORT`] and forwards every connection, byte for
//! byte, to the host ([`agent_sandbox::Sandbox::listen`]), where all decisions are made: the proxy request is parsed
//! (`request.rs`), the host is looked up in the list (`list.rs`, `rules.rs`) or the user is asked, the name is resolved, its
//! addresses are judged (`address.rs`), and only an address that passed is connected to (`dial.rs`), or, where this machine
//! reaches others through a proxy, that connects to the host (`upstream.rs`). TLS has to name the
//! host of the request (`client_hello.rs`). Every connection, allowed or refused, is an event.
//!
//! What TLS encrypts is not seen: the `Host` of an HTTPS request, and what is sent. A host on the list can receive
//! whatever the sandbox knows.

mod address;
pub mod client_hello;
mod connection;
pub mod credentials;
mod dial;
mod environment;
mod gateway;
mod host;
mod list;
mod narrowing;
mod project;
mod refusals;
mod registries;
mod request;
mod rules;
mod traffic;
mod upstream;

pub use address::objection;
pub use client_hello::{Hello, Malformed, read as read_hello};
pub use gateway::Gateway;
pub use host::Host;
pub use list::{Entry, entries};
pub use narrowing::Narrowing;
pub use project::Project;
pub use request::{Action, BadRequest, Request, parse as parse_request};
pub use rules::{Reach, Rules, Verdict};
pub use traffic::Limits;
pub use upstream::Upstream;

/// The port on the sandbox's loopback at which the proxy listens: the usual one for proxies.
pub const PORT: u16 = agent_sandbox::PROXY_PORT;
