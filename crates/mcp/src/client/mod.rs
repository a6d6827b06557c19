//! The client: servers whose tools the model may call.
//!
//! A server's program runs in the session's sandbox unless the user names another place. Everything that a server sends is
//! hostile: names, schemas, sizes, silence. Whatever it does costs the call that it was asked for, and the next call starts it anew.

mod cache;
mod connection;
mod failure;
mod http;
pub mod login;
mod names;
mod peer;
mod process;
mod prompts;
mod resources;
mod result;
mod schema;
mod search;
mod server;
mod servers;
mod settings;
mod site;
mod tool;

pub use cache::{Cache, Offer};
pub use http::Exchange;
pub use prompts::ServerPrompt;
pub use server::{Server, State};
pub use servers::{Offered, Servers};
pub use settings::{CALL_TIMEOUT, Launch, OwnLimits, START_TIMEOUT, ServerLocation, ServerSettings, is_name};
pub use site::{OwnSandbox, Site};
