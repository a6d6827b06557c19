//! `agent web`: a page for the browser.

use crate::agent::{RunLimits, Stop};
use crate::cli::config::Config;
use crate::cli::options::{Options, SessionOptions};
use crate::cli::serving::FromConfig;
use crate::cli::signals::{Received, listen_with};
use crate::cli::ui::stderr;
use crate::cli::{proof, sandbox_settings};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::log::Store;
use crate::machine::Machine;
use crate::server::web::{
    Allowance, Audience, Facts, Guard, Hosts, Lockout, Scope, Token, VisitorLimits, Visitors, Web, random,
    router,
};
use crate::server::{Address, Listener};
use crate::workspace::Mode;
use clap::Args;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use tokio::sync::watch;

/// The variable with the token of a server that others reach.
const TOKEN_VARIABLE: &str = "AGENT_WEB_TOKEN";
/// The port that an address without one means.
const HTTP_PORT: u16 = 80;
/// Characters that such a token has at least.
const MIN_TOKEN: usize = 16;

/// `agent web`
#[derive(Debug, Args)]
pub struct WebArgs {
    #[command(flatten)]
    session_options: SessionOptions,
    /// Where to listen: 127.0.0.1:8080, port 0 for a free one, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", help_heading = "Server")]
    listen: Address,
    /// Open the page in the browser
    #[arg(long, help_heading = "Server")]
    open: bool,
    /// A proxy with TLS is in front, and the page is reached as https://HOST
    #[arg(long, value_name = "HOST", value_delimiter = ',', help_heading = "Server")]
    behind_proxy: Vec<String>,
    /// Give each browser a session, a sandbox and an empty workspace of its own: uploads, and a patch or zip to take away
    #[arg(long, help_heading = "Server")]
    visitors: bool,
    /// With --visitors: without a token
    #[arg(long, requires = "visitors", help_heading = "Server")]
    public: bool,
    /// With --visitors: how many at the same time
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = "Server")]
    max_sessions: usize,
    /// With --visitors: what all of them may cost together; --max-cost is then what one of them may cost
    #[arg(long, value_name = "COST", requires = "visitors", help_heading = "Server")]
    max_cost_total: Option<f64>,
    /// The page that may show this one in a frame: https://huggingface.co
    #[arg(long, value_name = "ORIGIN", help_heading = "Server")]
    framed_by: Option<String>,
}

impl WebArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.session_options])
    }
}

/// Serves the page until Ctrl-C, SIGTERM or the page ends it.
pub async fn web(machine: &Arc<Machine>, arguments: WebArgs) -> Result<ExitCode> {
    let BoundedCall { options, config, words } = bounded(machine, &arguments)?;
    check_proxy(&arguments)?;
    let token = token(&arguments)?;
    if arguments.visitors && config.sandbox.workspace_mode == Mode::Bind {
        return Err(Error::usage("--visitors has no directory to show with --workspace-mode bind")
            .hint("use another mode"));
    }
    let listener = Listener::bind(&arguments.listen).await?;
    let address = listener.address().clone();
    let guard = Guard {
        hosts: hosts(&address, &arguments.behind_proxy),
        is_behind_proxy: !arguments.behind_proxy.is_empty(),
        framed_by: framed_by(&arguments)?,
        token: token.as_ref().map(|token| Token::new(&token.text)),
        lockout: Lockout::default(),
    };
    let is_own = !arguments.visitors;
    let ttl = (!is_own).then_some(config.ttl);
    let facts = Facts { can_apply: is_own, may_widen_network: is_own, limits: words, ttl };
    let opener = Arc::new(FromConfig::new(machine, &options)?);
    let server = Web::new(guard, audience(&config, &arguments, opener, facts).await?);
    announce(&address, &arguments, token.as_ref());
    let (end, mut ended) = watch::channel(None);
    let listening = listen_with(move |signal| match signal {
        Received::Interrupt(1) => drop(end.send(Some(Stop::Interrupted))),
        Received::Interrupt(_) => std::process::exit(ExitCode::Interrupted.code().into()),
        Received::End => drop(end.send(Some(Stop::Terminated))),
    })?;
    let stopped = Arc::clone(&server);
    let asked = ended.clone();
    let stop = async move {
        tokio::select! {
            _ = ended.wait_for(Option::is_some) => {}
            () = stopped.stopped() => {}
        }
        stopped.end_streams();
    };
    listener.serve(router(Arc::clone(&server)), stop).await;
    let terminated = *asked.borrow() == Some(Stop::Terminated);
    let result = || if terminated { Err(Stop::Terminated.error()) } else { Ok(()) };
    server.close(result()).await;
    listening.abort();
    result().map(|()| ExitCode::Success)
}

/// The settings, and the limits in words.
struct BoundedCall {
    options: Options,
    config: Config,
    words: Vec<String>,
}

/// Bounds what a visitor asks for: where nothing else is set, it ends after the time for which one is kept. What all of them may
/// spend is also the limit of one, and of each prompt: so models without a price are refused.
fn bounded(machine: &Arc<Machine>, arguments: &WebArgs) -> Result<BoundedCall> {
    let mut options = arguments.options();
    let config = Config::load(machine, &options)?;
    if !arguments.visitors {
        let words = limits(&config.limits, "a prompt", None);
        return Ok(BoundedCall { options, config, words });
    }
    if config.limits.time.is_none() {
        options.limits.max_time = Some(format!("{}s", config.ttl.as_secs().max(1)));
    }
    let one = config.limits.cost;
    if let Some(total) = arguments.max_cost_total {
        options.cost.max_cost = Some(one.filter(|one| *one < total).unwrap_or(total));
    }
    let config = Config::load(machine, &options)?;
    let shown = RunLimits { cost: one, ..config.limits.clone() };
    let words = limits(&shown, "a visitor", arguments.max_cost_total);
    Ok(BoundedCall { options, config, words })
}

/// The token, and whether the user chose it.
struct ChosenToken {
    text: String,
    is_new: bool,
}

/// Returns the users of the page. For visitors the sandbox has to be there from the start: it is said which one it is.
async fn audience(
    config: &Config,
    arguments: &WebArgs,
    opener: Arc<FromConfig>,
    facts: Facts,
) -> Result<Audience> {
    let store = Store::open(&config.machine)?;
    if !arguments.visitors {
        let workspace = config.workspace.clone();
        return Ok(Audience::One(Scope::new(workspace, store, opener, facts, Allowance::default())));
    }
    let (settings, _) = sandbox_settings::sandbox(config).await?;
    proof::prove(config, settings.backend.as_ref()).await?;
    stderr::write(&format!("Every visitor gets a sandbox of its own: {}\n", settings.backend.name()));
    let limits = VisitorLimits {
        visitors: arguments.max_sessions,
        ttl: config.ttl,
        cost: config.limits.cost,
        total_cost: arguments.max_cost_total,
        command_time: config.limits.time.unwrap_or(config.ttl),
    };
    Visitors::new(store, opener, facts, limits).map(|visitors| Audience::Visitors(Box::new(visitors)))
}

/// The names of the proxy.
fn check_proxy(arguments: &WebArgs) -> Result<()> {
    let is_host = |host: &String| {
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(c))
    };
    match arguments.behind_proxy.iter().find(|host| !is_host(host)) {
        None => Ok(()),
        Some(host) => Err(Error::usage(format!("{host:?} is not a valid host for --behind-proxy"))
            .hint("for example agent.example.org")),
    }
}

/// The page that may frame this one.
fn framed_by(arguments: &WebArgs) -> Result<Option<String>> {
    let is_origin = |origin: &String| {
        let host = origin.strip_prefix("https://").unwrap_or_default();
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:".contains(c))
    };
    match &arguments.framed_by {
        Some(origin) if !is_origin(origin) => Err(Error::usage(format!("{origin:?} is not a valid origin"))
            .hint("for example https://huggingface.co")),
        origin => Ok(origin.clone()),
    }
}

/// A new token; where others reach the server, the one of the environment. `None` with `--public`.
fn token(arguments: &WebArgs) -> Result<Option<ChosenToken>> {
    let is_local = arguments.listen.is_local();
    if !is_local && arguments.behind_proxy.is_empty() {
        return Err(Error::usage(format!("{} can be reached from other machines", arguments.listen))
            .hint("listen on 127.0.0.1, or put a proxy with TLS in front and name it: --behind-proxy HOST"));
    }
    if arguments.public {
        return Ok(None);
    }
    match std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()) {
        Some(text) if text.chars().count() < MIN_TOKEN => {
            Err(Error::usage(format!("{TOKEN_VARIABLE} is shorter than {MIN_TOKEN} characters"))
                .hint("make one with: openssl rand -base64 32"))
        }
        Some(text) => Ok(Some(ChosenToken { text, is_new: false })),
        None if !arguments.behind_proxy.is_empty() => {
            Err(Error::usage(format!("--behind-proxy needs a token in {TOKEN_VARIABLE}"))
                .hint("make one with: openssl rand -base64 32"))
        }
        None => Ok(Some(ChosenToken { text: random()?, is_new: true })),
    }
}

/// The names of the server at `address`.
fn hosts(address: &Address, behind_proxy: &[String]) -> Hosts {
    let port = match address {
        _ if !behind_proxy.is_empty() => {
            return Hosts::Named(behind_proxy.iter().map(|host| host.to_ascii_lowercase()).collect());
        }
        Address::Unix(_) => return Hosts::Loopback,
        Address::Tcp(address) => address.port(),
    };
    let mut names: Vec<String> = ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned).to_vec();
    if let Address::Tcp(address) = address {
        let own = address.to_string();
        names.extend(own.strip_suffix(&format!(":{port}")).map(str::to_owned));
    }
    let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
    if port == HTTP_PORT {
        // Browsers leave it out.
        hosts.extend(names);
    }
    Hosts::Named(hosts)
}

/// Prints where the page is, and opens it.
fn announce(address: &Address, arguments: &WebArgs, token: Option<&ChosenToken>) {
    let base = match (address, arguments.behind_proxy.first()) {
        (_, Some(host)) => format!("https://{host}/"),
        (Address::Tcp(address), None) => format!("http://{address}/"),
        (Address::Unix(path), None) => {
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            stderr::write(&format!(
                "Listening on {}. From another machine: ssh -L 8080:{} HOST\n",
                path.display(),
                path.display()
            ));
            "http://127.0.0.1:8080/".to_owned()
        }
    };
    // Behind `#` it is sent to no server, and stands in no log.
    let url = match token.filter(|token| token.is_new) {
        Some(token) => format!("{base}#t={}", token.text),
        None => base,
    };
    stderr::write(&format!("{url}\n"));
    if arguments.open
        && let Err(error) = open_in_browser(&url)
    {
        not_opened(&error.to_string());
    }
}

/// The page can be used all the same.
fn not_opened(why: &str) {
    stderr::write(&format!("The browser could not be opened: {why}. Open the printed address yourself.\n"));
}

/// Opens `url` through a private file: the arguments of a program can be read by every user of this machine.
fn open_in_browser(url: &str) -> std::io::Result<()> {
    let mut file = tempfile::Builder::new().prefix("agent-web-").suffix(".html").tempfile()?;
    writeln!(
        file,
        "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>agent</title>"
    )?;
    let mut opener = tokio::process::Command::new("xdg-open");
    opener.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut opener = opener
        .spawn()
        .map_err(|error| std::io::Error::new(error.kind(), format!("xdg-open cannot be started: {error}")))?;
    tokio::spawn(async move {
        if let Ok(status) = opener.wait().await
            && !status.success()
        {
            not_opened(&format!("xdg-open: {status}"));
        }
        // The browser reads it after the opener has ended.
        tokio::time::sleep(BROWSER_START).await;
        drop(file);
    });
    Ok(())
}

/// The time limit for the browser to read the file that it was opened with.
const BROWSER_START: std::time::Duration = std::time::Duration::from_secs(60);

/// Returns what one prompt may use, in words; `span` is what the limit of the cost is for.
fn limits(limits: &RunLimits, span: &str, total: Option<f64>) -> Vec<String> {
    let cost = limits.cost.map(|cost| format!("cost {cost} {span}"));
    let total = total.map(|cost| format!("cost {cost} for all visitors"));
    let tokens = limits.tokens.map(|tokens| format!("{tokens} tokens a prompt"));
    let time = limits.time.map(|time| format!("{} s a prompt", time.as_secs()));
    [cost, total, tokens, time].into_iter().flatten().collect()
}
