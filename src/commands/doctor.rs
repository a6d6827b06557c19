//! `agent doctor`: is everything there that the main job needs?

use super::endpoint;
use super::print::offer;
use crate::cli::{DoctorArgs, Options};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::model::probe::{Finding, Outcome};
use crate::sandbox::docker::Docker;
use crate::sandbox::local;
use crate::ui::sanitise;
use serde::Serialize;

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
    let (sandbox, mut checks) = sandboxes().await;
    let endpoint = endpoints(&config, arguments.endpoint, &mut checks).await;
    let code = match (sandbox, endpoint) {
        (false, _) => ExitCode::Sandbox,
        (true, Err(error)) => error.exit_code(),
        (true, Ok(())) => ExitCode::Success,
    };
    let report = Report { ok: code == ExitCode::Success, checks };
    let text = match options.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => words(&report),
    };
    offer(text.as_bytes())?;
    Ok(code)
}

/// Looks at both backends; one that works is enough.
async fn sandboxes() -> (bool, Vec<Check>) {
    let mut checks = Vec::new();
    let engine = match Docker::connect().await {
        Ok(docker) => docker.checks().await,
        Err(error) => Err(error),
    };
    let local = local::checks();
    let works = engine.is_ok() || local.obstacles.is_empty();
    // Where the other backend works, this one missing is worth knowing but stands in nobody's way.
    let missing = if works { State::Warning } else { State::Failed };
    match engine {
        Ok(engine) => {
            checks.push(ok("engine", engine.words().join("; ")));
            checks.push(match engine.on_this_machine {
                true => ok("image", "host: this machine's own /usr, read-only; nothing to pull".to_owned()),
                false => ok("image", "a public image is pulled: the engine is on another machine".to_owned()),
            });
        }
        Err(error) => checks.push(failed("engine", missing, &error)),
    }
    checks.push(match local.obstacles.first() {
        None if local.weaknesses.is_empty() => ok("local", "namespaces and control groups work".to_owned()),
        None => ok("local", format!("works; weaker than a container: {}", local.weaknesses.join("; "))),
        Some(obstacle) => Check {
            name: "local",
            state: missing,
            found: obstacle.what.clone(),
            hint: Some(obstacle.hint.clone()),
        },
    });
    (works, checks)
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

fn words(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let mark = match check.state {
            State::Ok => "ok     ",
            State::Warning => "warning",
            State::Failed => "FAILED ",
        };
        text += &format!("{mark}  {:<9} {}\n", check.name, sanitise::plain(&check.found));
        if let Some(hint) = &check.hint {
            text += &format!("         {:<9} → {}\n", "", sanitise::plain(hint));
        }
    }
    text + match report.ok {
        true => "\nEverything is there.\n",
        false => "\nThe main job cannot run yet.\n",
    }
}
