//! A server in one line, and in full.

use crate::cli::config::servers::options::ServerOptions;
use crate::mcp::client::{Launch, ServerSettings};
use crate::sanitise::one_line;
use crate::secret_scan::redact;
use crate::visible::{visible_name, with_counted_blanks};

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

/// The author of the file that names a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinedBy {
    /// The user: what variables and headers hold may be a secret of theirs.
    User,
    /// Somebody else, as in a repository: no value is a secret of the user's, and each may decide what runs.
    Other,
}

/// All that a user agrees with: each argument, variable and header on a line of its own, none shortened, with `remark` behind the name.
pub fn in_full(server: &ServerSettings, options: &ServerOptions, author: DefinedBy, remark: &str) -> String {
    let mut text =
        format!("  {} ({}){}{remark}\n", as_it_is(&server.name), place(server), as_it_is(&network(server)));
    for (what, value) in settings(server, options, author) {
        // The author of a repository could hide a host or a program behind what has the shape of a secret.
        let shown = if author == DefinedBy::User { without_secrets(&value) } else { as_it_is(&value) };
        text += &format!("    {what:<10} {shown}\n");
    }
    text
}

/// Returns what a file sets for a server, beside what [`in_full`] begins with.
fn settings(
    server: &ServerSettings,
    options: &ServerOptions,
    author: DefinedBy,
) -> Vec<(&'static str, String)> {
    // All of its fields, so that a new one is not forgotten here.
    let ServerOptions {
        command,
        image,
        args,
        env,
        env_vars,
        cwd,
        url,
        bearer_token_env_var,
        http_headers,
        env_http_headers,
        place: _,
        network: _,
        memory,
        cpus,
        pids,
        timeout,
        start_timeout,
        enabled,
        enabled_tools,
        disabled_tools,
    } = options;
    let held = |(name, value): (&String, &String)| match author {
        DefinedBy::User => format!("{name} (its value is not shown)"),
        DefinedBy::Other => format!("{name}={value}"),
    };
    let of_machine = |name: &String| format!("the variable {name} of this machine");
    let mut lines = Vec::new();
    let mut add = |what, values: Vec<String>| lines.extend(values.into_iter().map(|value| (what, value)));
    let one = |text: &Option<String>| text.iter().cloned().collect();
    add("command", one(command));
    add("image", one(image));
    // As it is used: a host that is written in look-alike letters shows what it is.
    add(
        "url",
        match &server.launch {
            Launch::Http { url, .. } => vec![url.to_string()],
            _ => one(url),
        },
    );
    add("argument", args.clone());
    add("directory", one(cwd));
    add("variable", env.iter().map(held).collect());
    add("variable", env_vars.iter().map(of_machine).collect());
    add("header", http_headers.iter().map(held).collect());
    add("header", env_http_headers.iter().map(|(name, of)| format!("{name}: {}", of_machine(of))).collect());
    add("token", bearer_token_env_var.iter().map(of_machine).collect());
    add("memory", one(memory));
    add("cpus", cpus.iter().map(f64::to_string).collect());
    add("processes", pids.iter().map(u64::to_string).collect());
    add("timeout", one(timeout));
    add("to start", one(start_timeout));
    add("enabled", enabled.iter().map(bool::to_string).collect());
    add("only tools", enabled_tools.iter().map(|tools| tools.join(", ")).collect());
    add("no tools", disabled_tools.clone());
    lines
}

/// As it is, on one line.
fn as_it_is(text: &str) -> String {
    with_counted_blanks(&visible_name(text.as_bytes()))
}

/// On one line, without what has the shape of a secret.
fn without_secrets(text: &str) -> String {
    let redacted = redact(text).map(|redacted| redacted.text);
    as_it_is(redacted.as_deref().unwrap_or(text))
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
