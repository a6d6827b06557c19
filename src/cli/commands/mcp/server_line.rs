//! A server in one line, and in full.

use crate::mcp::client::{Launch, ServerSettings};
use crate::sanitise::one_line;
use crate::visible::{visible_name, with_counted_blanks};
use secrecy::ExposeSecret;

/// One server, for a terminal.
pub fn line(server: &ServerSettings, remark: &str) -> String {
    let launch = one_line(&server.launch.to_string(), 120);
    format!(
        "  {:<20} {:<8} {launch}{}{remark}\n",
        server.name,
        place(server),
        one_line(&network(server), 120)
    )
}

/// All that a user agrees with: each argument, variable and header on a line of its own, none shortened. They come from a repository,
/// so no value is a secret of the user's.
pub fn in_full(server: &ServerSettings) -> String {
    let shown = |text: &str| with_counted_blanks(&visible_name(text.as_bytes()));
    let mut text = format!("  {} ({}){}\n", shown(&server.name), place(server), shown(&network(server)));
    let mut add = |what: &str, value: &str| text += &format!("    {what:<10} {}\n", shown(value));
    let (args, pairs, cwd) = match &server.launch {
        Launch::Process { command, args, env, cwd } => {
            add("command", command);
            (&args[..], env, cwd.as_ref())
        }
        Launch::Image { image, entrypoint, args, env, cwd } => {
            add("image", image);
            entrypoint.iter().for_each(|entrypoint| add("entrypoint", entrypoint));
            (&args[..], env, cwd.as_ref())
        }
        Launch::Http { url, headers } => {
            add("url", url.as_str());
            (&[][..], headers, None)
        }
    };
    args.iter().for_each(|argument| add("argument", argument));
    cwd.iter().for_each(|cwd| add("directory", cwd));
    let what = if matches!(server.launch, Launch::Http { .. }) { "header" } else { "variable" };
    pairs.iter().for_each(|(name, value)| add(what, &format!("{name}={}", value.expose_secret())));
    text
}

fn place(server: &ServerSettings) -> &'static str {
    match &server.launch {
        Launch::Http { .. } => "remote",
        _ if server.has_own_sandbox() => "own sandbox",
        _ => server.place.as_str(),
    }
}

fn network(server: &ServerSettings) -> String {
    match server.network.is_empty() {
        true => String::new(),
        false => format!("  [{}]", server.network.join(", ")),
    }
}
