//! `agent doctor`: is everything there that the main job needs?

use super::endpoint;
use super::print::offer;
use crate::cli::config::{Config, SandboxConfig};
use crate::cli::options::{DoctorArgs, Options};
use crate::cli::ui::{sanitise, wrap};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::model::probe::{Finding, Outcome};
use crate::sandbox::docker::checks::Checks;
use crate::sandbox::docker::{DEFAULT_IMAGE, Docker};
use crate::sandbox::{SandboxChoice, local};
use serde::Serialize;
use std::io::IsTerminal;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    /// What: `engine`, `local`, `endpoint`, `key`, …
    name: &'static str,
    /// `ok`, `warning` or `failed`.
    state: State,
    /// What was found.
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warning,
    Failed,
}

#[derive(Debug, Serialize)]
struct Report {
    /// Whether the main job could run.
    ok: bool,
    checks: Vec<Check>,
}

/// Looks at everything, prints it, and fails with the exit code of the first thing that stands in the way.
pub async fn doctor(options: &Options, arguments: DoctorArgs) -> Result<ExitCode> {
    let config = Config::load(options)?;
    let (sandbox, mut checks) = sandboxes(&config.sandbox).await?;
    let endpoint = endpoints(&config, arguments.endpoint, &mut checks).await;
    let code = match (sandbox, endpoint) {
        (false, _) => ExitCode::Sandbox,
        (true, Err(error)) => error.exit_code(),
        (true, Ok(())) => ExitCode::Success,
    };
    let report = Report { ok: code == ExitCode::Success, checks };
    let text = match options.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => words(&report, columns()),
    };
    offer(text.as_bytes())?;
    Ok(code)
}

/// Looks at the backend that was named, which is never replaced by another. Otherwise at both: one that works is enough.
///
/// # Errors
/// What was asked for can be had nowhere.
async fn sandboxes(wanted: &SandboxConfig) -> Result<(bool, Vec<Check>)> {
    let needs_engine =
        local::CAPABILITIES.check_image(local::NAME, wanted.image.as_deref(), wanted.runtime.as_deref());
    let (mut groups, mut looks_local) = (Vec::new(), true);
    match wanted.choice {
        SandboxChoice::Named(local::NAME) => needs_engine?,
        choice => {
            groups.push(engine(wanted).await?);
            looks_local = choice == SandboxChoice::Auto && needs_engine.is_ok();
        }
    }
    if looks_local {
        groups.push(vec![namespaces()]);
    }
    let is_missing = |check: &Check| check.state == State::Failed;
    let works = groups.iter().any(|checks| !checks.iter().any(is_missing));
    let mut checks: Vec<Check> = groups.into_iter().flatten().collect();
    // Where the other backend works, this one missing is worth knowing but stands in nobody's way.
    for check in checks.iter_mut().filter(|check| works && is_missing(check)) {
        check.state = State::Warning;
    }
    Ok((works, checks))
}

/// The engine, and what of it the sandbox needs.
async fn engine(wanted: &SandboxConfig) -> Result<Vec<Check>> {
    let engine = async {
        let docker = Docker::connect().await?;
        docker.checks().await.map(|checks| (docker, checks))
    };
    let (docker, engine) = match engine.await {
        Ok(engine) => engine,
        Err(error) => return Ok(vec![failed("engine", State::Failed, &error)]),
    };
    let mut checks = vec![ok("engine", engine.words().join("; "))];
    checks.push(image(&docker, &engine, wanted.image.as_deref()).await?);
    checks.extend(wanted.runtime.as_deref().map(|name| match engine.has_runtime(name) {
        true => ok("runtime", format!("the engine has {name}")),
        false => Check {
            name: "runtime",
            state: State::Failed,
            found: format!("the engine has no runtime {name}"),
            hint: Some(format!(
                "it has {}; others are set up in its configuration",
                engine.runtimes.join(", ")
            )),
        },
    }));
    Ok(checks)
}

async fn image(docker: &Docker, engine: &Checks, named: Option<&str>) -> Result<Check> {
    let here = engine.on_this_machine;
    let name = match named {
        None | Some("host") if here => {
            return Ok(ok("image", "host: this machine's own /usr, read-only; nothing to pull".to_owned()));
        }
        Some("host") => return Ok(failed("image", State::Failed, &docker.host_is_not_here())),
        None => DEFAULT_IMAGE,
        Some(name) => name,
    };
    Ok(match docker.has_image(name).await? {
        true => ok("image", format!("{name} is there")),
        false => Check {
            state: State::Warning,
            hint: Some("whether a registry has it shows then; `docker pull` tries it now".to_owned()),
            ..ok("image", format!("{name} is not there yet: it is pulled with the first sandbox"))
        },
    })
}

/// What local sandboxes need.
fn namespaces() -> Check {
    let local = local::checks();
    match local.obstacles.first() {
        None if local.weaknesses.is_empty() => ok("local", "namespaces and control groups work".to_owned()),
        None => ok("local", format!("works; weaker than a container: {}", local.weaknesses.join("; "))),
        Some(obstacle) => Check {
            name: "local",
            state: State::Failed,
            found: obstacle.what.clone(),
            hint: Some(obstacle.hint.clone()),
        },
    }
}

async fn endpoints(config: &Config, probe: bool, checks: &mut Vec<Check>) -> Result<()> {
    let choice = endpoint::choose(config).inspect_err(|error| {
        checks.push(failed("endpoint", State::Failed, error));
    })?;
    checks.push(match &choice.key_name {
        Some(name) => ok("key", format!("from {name}")),
        None => ok("key", "none; local servers need none".to_owned()),
    });
    let reached = async {
        let connected = endpoint::connect(config).await?;
        match probe {
            true => {
                let probe = endpoint::probe(config, connected.model.name()).await?;
                let usable = probe.is_usable();
                checks.extend(probe.findings.iter().map(finding));
                match usable {
                    true => Ok(()),
                    false => Err(Error::endpoint(format!("{} cannot serve an agent", connected.base_url))),
                }
            }
            false => connected.model.models().await.map(|models| {
                let model = connected.model.name();
                let listed = models.iter().any(|name| name == model);
                let found = format!("{} answers, {} models; model {model}", connected.base_url, models.len());
                checks.push(match listed || models.is_empty() {
                    true => ok("endpoint", found),
                    false => Check {
                        state: State::Warning,
                        hint: Some("`agent models` lists what there is".to_owned()),
                        ..ok("endpoint", format!("{found}, which it does not list"))
                    },
                });
            }),
        }
    };
    let result: Result<()> = reached.await;
    result.inspect_err(|error| checks.push(failed("endpoint", State::Failed, error)))
}

fn finding(finding: &Finding) -> Check {
    let state = match finding.outcome {
        Outcome::Works => State::Ok,
        Outcome::Fallback => State::Warning,
        Outcome::Fails => State::Failed,
    };
    Check { name: finding.what, state, found: finding.detail.clone(), hint: None }
}

fn ok(name: &'static str, found: String) -> Check {
    Check { name, state: State::Ok, found, hint: None }
}

fn failed(name: &'static str, state: State, error: &Error) -> Check {
    Check { name, state, found: error.to_string(), hint: error.hint_text().map(str::to_owned) }
}

/// The width of the terminal that the report is printed on.
fn columns() -> usize {
    let stdout = std::io::stdout();
    if stdout.is_terminal() { wrap::terminal_columns(&stdout) } else { usize::MAX }
}

/// `text` in lines that all begin at column `indent`.
fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let lines = text.lines().flat_map(|line| wrap::words(line, columns.saturating_sub(indent).max(20)));
    lines.collect::<Vec<_>>().join(&format!("\n{}", " ".repeat(indent)))
}

fn words(report: &Report, columns: usize) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let mark = match check.state {
            State::Ok => "ok     ",
            State::Warning => "warning",
            State::Failed => "FAILED ",
        };
        let found = wrapped(&sanitise::plain(&check.found), 19, columns);
        text += &format!("{mark}  {:<9} {found}\n", check.name);
        if let Some(hint) = &check.hint {
            text += &format!("{:19}→ {}\n", "", wrapped(&sanitise::plain(hint), 21, columns));
        }
    }
    text + match report.ok {
        true => "\nEverything is there.\n",
        false => "\nThe main job cannot run yet.\n",
    }
}
