//! A server in one line.

use crate::mcp::client::{Launch, ServerSettings};
use crate::sanitise::one_line;

/// One server, for a terminal.
pub fn line(server: &ServerSettings, remark: &str) -> String {
    let place = match &server.launch {
        Launch::Http { .. } => "remote",
        _ if server.has_own_sandbox() => "own sandbox",
        _ => server.place.as_str(),
    };
    let network = match server.network.is_empty() {
        true => String::new(),
        false => format!("  [{}]", server.network.join(", ")),
    };
    let launch = one_line(&server.launch.to_string(), 120);
    format!("  {:<20} {place:<8} {launch}{}{remark}\n", server.name, one_line(&network, 120))
}
