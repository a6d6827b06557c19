//! The network that is asked for: named hosts, through a proxy, a connection at a time.
//!
//! The sandbox has no interface but loopback. The guest listens at [`PORT`] of that and carries every connection, byte for
//! byte, to this side ([`crate::sandbox::Sandbox::listen`]), where all that decides happens: the proxy's protocol is read
//! (`request.rs`), the host is looked for on the list (`list.rs`) or a person is asked, the name is resolved and its
//! addresses are judged (`dial.rs`, `address.rs`), and exactly an address that was judged is dialled. TLS has to name the
//! host that was asked for (`client_hello.rs`). Every connection, let through or not, is an event.
//!
//! What TLS hides is not seen: which `Host` an HTTPS request names inside, what is sent. A host on the list can be told
//! whatever the sandbox knows.

mod address;
mod client_hello;
mod connection;
mod dial;
mod environment;
mod gateway;
mod host;
mod list;
mod registries;
mod request;
mod rules;
mod traffic;

pub use address::objection;
pub use client_hello::{Hello, Malformed, read as read_hello};
pub use gateway::{Answer, Ask, Gateway};
pub use host::Host;
pub use list::{Entry, entries};
pub use request::{Action, Bad, Request, parse as parse_request};
pub use rules::{Reach, Rules, Verdict};
pub use traffic::Limits;

/// The port of the sandbox's loopback at which the proxy listens: the one that proxies usually have.
pub const PORT: u16 = 3128;
