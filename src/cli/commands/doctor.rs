//! `agent doctor`: is everything there that the main job needs?

use crate::backends::{Kind, SandboxChoice};
use crate::cli::config::Config;
use crate::cli::endpoint::{self, Connected};
use crate::cli::options::{BackendArgs, DirectoryArg, EndpointArgs, JsonArg, ModelArg, Options};
use crate::cli::print::offer;
use crate::cli::proof;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::wrap;
use crate::count_text::counted;
use crate::error::{Error, Result};
use crate::event::CallForm;
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::model::Protocol;
use crate::model::probe::{Finding, Outcome, Probe, Recommendation, SpokenProtocol, Step};
use crate::sandbox::docker::Docker;
use crate::sandbox::docker::checks::Checks;
use crate::sandbox::image::DEFAULT as DEFAULT_IMAGE;
use crate::sandbox::local::Local;
use crate::sandbox::{Backend, kubernetes, local, vm};
#[cfg(feature = "kubernetes")]
use crate::sandbox::{Network, kubernetes::Isolation};
use crate::sanitise;
use clap::Args;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// `agent doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    endpoint_options: EndpointArgs,
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    output: JsonArg,
    /// Try the endpoint: models, streaming, tools, parallel calls, images, usage
    #[arg(long)]
    endpoint: bool,
    /// With the sandbox of a provider: make one, run a command in it, and remove it
    #[arg(long)]
    live: bool,
}

impl DoctorArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.model, &self.endpoint_options, &self.directory, &self.backend, &self.output])
    }
}

/// The columns before what was found.
const INDENT: usize = 24;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct DoctorCheck {
    /// The subject: `engine`, `local`, `endpoint`, `key`, …
    name: &'static str,
    /// `ok`, `warning` or `failed`.
    state: CheckState,
    /// The finding.
    found: String,
    /// The advice, where there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    Ok,
    Warning,
    Failed,
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    /// Set if the main job could run.
    ok: bool,
    checks: Vec<DoctorCheck>,
}

/// Looks at everything, prints each check as it is done, and fails with the exit code of the first thing that stands in
/// the way.
pub async fn doctor(machine: &Arc<Machine>, arguments: DoctorArgs) -> Result<ExitCode> {
    let options = &arguments.options();
    let config = Config::load(machine, options)?;
    let mut checks = Checklist {
        checks: Vec::new(),
        columns: wrap::columns_of(&std::io::stdout()),
        progress: if options.is_json() || options.is_quiet() {
            Progress::hidden()
        } else {
            Progress::stderr()
        },
        is_json: options.is_json(),
        printed: Ok(()),
    };
    let (sandbox, looked_at) = sandboxes(&config, arguments.live).await?;
    looked_at.into_iter().for_each(|check| checks.push(check));
    let endpoint = endpoints(&config, arguments.endpoint, &mut checks).await;
    let code = match (sandbox, endpoint) {
        (false, _) => ExitCode::Sandbox,
        (true, Err(error)) => error.exit_code(),
        (true, Ok(())) => ExitCode::Success,
    };
    checks.finish(code)
}

/// The checks so far; each is printed as it is added.
struct Checklist {
    checks: Vec<DoctorCheck>,
    columns: Option<usize>,
    progress: Progress,
    is_json: bool,
    printed: Result<()>,
}

impl Checklist {
    fn push(&mut self, check: DoctorCheck) {
        self.progress.clear();
        if !self.is_json && self.printed.is_ok() {
            self.printed = offer(words(&check, self.columns).as_bytes());
        }
        self.checks.push(check);
    }

    fn finish(self, code: ExitCode) -> Result<ExitCode> {
        self.progress.clear();
        self.printed?;
        let ok = code == ExitCode::Success;
        let text = match (self.is_json, ok) {
            (true, _) => {
                format!("{}\n", serde_json::to_string_pretty(&DoctorReport { ok, checks: self.checks })?)
            }
            (false, true) => "\nReady.\n".to_owned(),
            (false, false) => "\nNot ready: fix the FAILED checks above.\n".to_owned(),
        };
        offer(text.as_bytes())?;
        Ok(code)
    }
}

/// Looks at the backend that was named, which is never replaced by another. Otherwise at both: one that works is enough.
///
/// # Errors
/// Nothing has what was asked for.
async fn sandboxes(config: &Config, live: bool) -> Result<(bool, Vec<DoctorCheck>)> {
    let wanted = &config.sandbox;
    let needs_engine =
        local::CAPABILITIES.check_image(local::NAME, wanted.image.as_deref(), wanted.runtime.as_deref());
    let (mut groups, mut looks_local) = (Vec::new(), true);
    match wanted.choice {
        SandboxChoice::Named(local::NAME) => needs_engine?,
        SandboxChoice::Named(name) if !Kind::named(name)?.is_automatic() => {
            looks_local = false;
            groups.push(match name {
                kubernetes::NAME => cluster(config).await,
                vm::NAME => virtual_machine(config).await,
                name => elsewhere(config, Kind::named(name)?, live).await,
            });
        }
        choice => {
            groups.push(engine(config).await?);
            looks_local = choice == SandboxChoice::Auto && needs_engine.is_ok();
        }
    }
    if looks_local {
        groups.push(namespaces(config).await);
    }
    let is_missing = |check: &DoctorCheck| check.state == CheckState::Failed;
    let works = groups.iter().any(|checks| !checks.iter().any(is_missing));
    let mut checks: Vec<DoctorCheck> = groups.into_iter().flatten().collect();
    // Where the other backend works, this one missing is worth knowing but stands in nobody's way.
    for check in checks.iter_mut().filter(|check| works && is_missing(check)) {
        check.state = CheckState::Warning;
    }
    Ok((works, checks))
}

/// A backend on another machine: whether it answers, and with `live` whether a sandbox there does.
async fn elsewhere(config: &Config, kind: &'static Kind, live: bool) -> Vec<DoctorCheck> {
    let reached = async {
        let backend = kind.connect(&config.machine).await?;
        let sandboxes = backend.list().await?.len();
        Ok::<_, Error>((backend, sandboxes))
    };
    let (backend, sandboxes) = match reached.await {
        Ok(reached) => reached,
        Err(error) => return vec![failed(kind.name, CheckState::Failed, &error)],
    };
    let location = backend.location();
    let mut checks = vec![ok(
        kind.name,
        format!("{location} answers and takes the key; {sandboxes} sandboxes of this machine"),
    )];
    if live {
        let started = Instant::now();
        checks.extend(proof(config, backend.as_ref()).await);
        let existed = started.elapsed().as_secs_f64();
        checks.push(ok("cost", format!("that sandbox existed for {existed:.1} s and is removed")));
    } else if let Some(check) = checks.last_mut() {
        check.hint = Some("--live makes a sandbox there, uses it and removes it".to_owned());
    }
    checks
}

/// A cluster: what it says of itself, and whether a pod there does what it should.
#[cfg(feature = "kubernetes")]
async fn cluster(config: &Config) -> Vec<DoctorCheck> {
    let reached = async {
        let backend = kubernetes::Kubernetes::connect(Arc::clone(&config.machine)).await?;
        let findings = backend.findings(&proof::spec(config)).await?;
        Ok::<_, Error>((backend, findings))
    };
    let (backend, findings) = match reached.await {
        Ok(reached) => reached,
        Err(error) => return vec![failed(kubernetes::NAME, CheckState::Failed, &error)],
    };
    let state = |severity| match severity {
        kubernetes::Severity::Fine => CheckState::Ok,
        kubernetes::Severity::Warning => CheckState::Warning,
        kubernetes::Severity::Failed => CheckState::Failed,
    };
    let check = |found: kubernetes::Finding| DoctorCheck {
        name: found.name,
        state: state(found.severity),
        found: found.found,
        hint: found.hint,
    };
    let mut checks: Vec<DoctorCheck> = findings.into_iter().map(check).collect();
    if checks.iter().all(|check| check.state != CheckState::Failed) {
        let proved = proof(config, &backend).await;
        let is_isolated = proved.iter().all(|check| check.state != CheckState::Failed);
        checks.extend(proved);
        if is_isolated && config.sandbox.network != Network::Full {
            checks.push(match kubernetes::Settings::of(&config.machine).isolation {
                Isolation::Proved => ok("isolation", "the cluster enforces network policies".to_owned()),
                Isolation::Trusted => DoctorCheck {
                    state: CheckState::Warning,
                    hint: Some(
                        "isolation = \"proved\" in [sandbox.kubernetes] tries it at each start".to_owned(),
                    ),
                    ..ok("isolation", "whether network policies are enforced was not tried".to_owned())
                },
            });
        }
    }
    checks
}

#[cfg(not(feature = "kubernetes"))]
async fn cluster(config: &Config) -> Vec<DoctorCheck> {
    match Kind::named(kubernetes::NAME) {
        Ok(kind) => elsewhere(config, kind, false).await,
        Err(error) => vec![failed(kubernetes::NAME, CheckState::Failed, &error)],
    }
}

/// Checks what a virtual machine is made of here, and whether one does what it should.
#[cfg(feature = "vm")]
async fn virtual_machine(config: &Config) -> Vec<DoctorCheck> {
    let backend = match vm::Vm::connect(Arc::clone(&config.machine)) {
        Ok(backend) => backend,
        Err(error) => return vec![failed(vm::NAME, CheckState::Failed, &error)],
    };
    let proved = proof(config, &backend).await;
    // Only a machine that was tried shows whether the kernel's own support works.
    let checks = match vm::checks(&config.machine) {
        Ok(checks) => checks,
        Err(error) => return vec![failed(vm::NAME, CheckState::Failed, &error)],
    };
    let state = if checks.is_slow.is_some() { CheckState::Warning } else { CheckState::Ok };
    let parts = DoctorCheck { state, hint: checks.is_slow, ..ok("qemu", checks.found) };
    std::iter::once(parts).chain(proved).collect()
}

#[cfg(not(feature = "vm"))]
async fn virtual_machine(config: &Config) -> Vec<DoctorCheck> {
    match Kind::named(vm::NAME) {
        Ok(kind) => elsewhere(config, kind, false).await,
        Err(error) => vec![failed(vm::NAME, CheckState::Failed, &error)],
    }
}

/// The engine, and what of it the sandbox needs.
async fn engine(config: &Config) -> Result<Vec<DoctorCheck>> {
    let wanted = &config.sandbox;
    let engine = async {
        let docker = Docker::connect(Arc::clone(&config.machine)).await?;
        docker.checks().await.map(|checks| (docker, checks))
    };
    let (docker, engine) = match engine.await {
        Ok(engine) => engine,
        Err(error) => return Ok(vec![failed("engine", CheckState::Failed, &error)]),
    };
    let mut checks = vec![ok("engine", engine.words().join("; "))];
    checks.push(image(&docker, &engine, wanted.image.as_deref()).await?);
    checks.extend(wanted.runtime.as_deref().map(|name| match engine.has_runtime(name) {
        true => ok("runtime", format!("the engine has {name}")),
        false => DoctorCheck {
            name: "runtime",
            state: CheckState::Failed,
            found: format!("the engine has no runtime {name}"),
            hint: Some(format!(
                "it has {}; others are set up in its configuration",
                engine.runtimes.join(", ")
            )),
        },
    }));
    // An image that would have to be pulled first is not tried.
    if checks.iter().all(|check| check.state == CheckState::Ok) {
        checks.extend(proof(config, &docker).await);
    }
    Ok(checks)
}

/// The same as what is reported of it. What it lacks are warnings.
async fn proof(config: &Config, backend: &dyn Backend) -> Vec<DoctorCheck> {
    match proof::prove(config, backend).await {
        Ok((time, missing)) => {
            let found = format!("a sandbox started and ran a command in {} ms", time.as_millis());
            let warning = |found| DoctorCheck { state: CheckState::Warning, ..ok(backend.name(), found) };
            std::iter::once(ok(backend.name(), found)).chain(missing.into_iter().map(warning)).collect()
        }
        Err(error) => vec![failed(backend.name(), CheckState::Failed, &error)],
    }
}

async fn image(docker: &Docker, engine: &Checks, named: Option<&str>) -> Result<DoctorCheck> {
    let here = engine.on_this_machine;
    let name = match named {
        None | Some("host") if here => {
            return Ok(ok("image", "host: this machine's own /usr, read-only; nothing to pull".to_owned()));
        }
        Some("host") => return Ok(failed("image", CheckState::Failed, &docker.host_is_not_here())),
        None => DEFAULT_IMAGE,
        Some(name) => name,
    };
    Ok(match docker.has_image(name).await? {
        true => ok("image", format!("{name} is there")),
        false => DoctorCheck {
            state: CheckState::Warning,
            hint: Some("whether a registry has it shows then; `docker pull` tries it now".to_owned()),
            ..ok("image", format!("{name} is not there yet: it is pulled with the first sandbox"))
        },
    })
}

/// Returns what local sandboxes need.
async fn namespaces(config: &Config) -> Vec<DoctorCheck> {
    let local = local::checks();
    if let Some(obstacle) = local.obstacles.first() {
        return vec![DoctorCheck {
            name: "local",
            state: CheckState::Failed,
            found: obstacle.what.clone(),
            hint: Some(obstacle.hint.clone()),
        }];
    }
    let mut checks = proof(config, &Local::new(Arc::clone(&config.machine))).await;
    if !local.weaknesses.is_empty() {
        checks
            .push(ok("limits", format!("local is weaker than a container: {}", local.weaknesses.join("; "))));
    }
    checks
}

async fn endpoints(config: &Config, probe: bool, checks: &mut Checklist) -> Result<()> {
    let choice = endpoint::choose(config).inspect_err(|error| {
        checks.push(failed("endpoint", CheckState::Failed, error));
    })?;
    checks.push(match &choice.key_name {
        Some(name) => ok("key", format!("from {name}")),
        None => ok("key", "none; local servers need none".to_owned()),
    });
    let reached = async {
        let connected = endpoint::connect(config).await?;
        match probe {
            true => try_endpoint(config, &connected, checks).await,
            false => connected.settings.client.models().await.map(|models| {
                let model = connected.settings.client.name();
                let listed = models.iter().any(|name| name == model);
                let found = format!(
                    "{} answers, {}; model {model}",
                    connected.settings.base_url,
                    counted(models.len(), "model")
                );
                checks.push(match listed || models.is_empty() {
                    true => ok("endpoint", found),
                    false => DoctorCheck {
                        state: CheckState::Warning,
                        hint: Some("`agent models` lists what there is".to_owned()),
                        ..ok("endpoint", format!("{found}, which it does not list"))
                    },
                });
            }),
        }
    };
    let result: Result<()> = reached.await;
    result.inspect_err(|error| checks.push(failed("endpoint", CheckState::Failed, error)))
}

/// Tries the endpoint in its own protocol and in the others, and says how to use it.
async fn try_endpoint(config: &Config, connected: &Connected, checks: &mut Checklist) -> Result<()> {
    let model = connected.settings.client.name();
    let mut on_step = |step: Step<'_>| match step {
        Step::Trying(what) => checks.progress.show(&format!("trying: {what}")),
        Step::Found(found) => checks.push(finding(found)),
    };
    let probe = endpoint::probe(config, model, &mut on_step).await?;
    let others = endpoint::probe_protocols(config, model, &mut on_step).await?;
    if !others.is_empty() {
        checks.push(other_protocols(&others));
    }
    let better = better_protocol(&probe, &others);
    if let Some(recommended) = probe.recommendation {
        checks.push(recommendation(config, model, recommended, connected.settings.context_window, better));
        return Ok(());
    }
    let error = Error::endpoint(format!("{} cannot serve an agent", connected.settings.base_url));
    Err(match better {
        Some(protocol) => error.hint(format!(
            "it can by another protocol; in config.toml: {}",
            protocol_setting(model, protocol)
        )),
        None => error,
    })
}

fn other_protocols(others: &[SpokenProtocol]) -> DoctorCheck {
    let name = |spoken: &SpokenProtocol| match spoken.carries_reasoning {
        true => format!("{}, which carries reasoning from call to call", spoken.protocol.name()),
        false => spoken.protocol.name().to_owned(),
    };
    let names: Vec<String> = others.iter().map(name).collect();
    ok("protocols", format!("it calls tools by these as well: {}", names.join("; ")))
}

/// Another protocol, where the configured one does not serve, or does not carry reasoning and the other one does.
fn better_protocol(probe: &Probe, others: &[SpokenProtocol]) -> Option<Protocol> {
    let serves = probe.is_usable();
    let is_better = |other: &&SpokenProtocol| !serves || other.carries_reasoning && !probe.carries_reasoning;
    others.iter().find(is_better).map(|other| other.protocol)
}

fn protocol_setting(model: &str, protocol: Protocol) -> String {
    format!("[models.{model:?}] protocol = \"{}\"", protocol.name())
}

/// Recommends a use of the model, with the setting for it where it is not used like that anyway.
fn recommendation(
    config: &Config,
    model: &str,
    recommended: Recommendation,
    window: Option<u64>,
    better: Option<Protocol>,
) -> DoctorCheck {
    let Recommendation { form, is_automatic, temperature, context_window, images } = recommended;
    let temperature = temperature.map_or("the server's".to_owned(), |temperature| temperature.to_string());
    let window = window.or(context_window);
    let tokens = window.map_or("unknown".to_owned(), |tokens| format!("{tokens} tokens"));
    let protocol_setting = better.map(|protocol| protocol_setting(model, protocol));
    let form_setting = (!is_automatic).then(|| format!("[models.{model:?}] form = \"{form}\""));
    // It calls no tools otherwise, as small models do.
    let needs_help = !is_automatic && form == CallForm::Compact && config.file.assist(model).is_none();
    let assist_setting = needs_help.then(|| format!("[models.{model:?}] assist = true"));
    let window_setting = window.is_none().then(|| format!("[context] {model:?} = TOKENS"));
    let are_sent = config.file.models.get(model).is_some_and(|options| options.images);
    let images_setting = (images && !are_sent).then(|| format!("[models.{model:?}] images = true"));
    let settings: Vec<String> =
        [protocol_setting, form_setting, assist_setting, images_setting, window_setting]
            .into_iter()
            .flatten()
            .collect();
    DoctorCheck {
        hint: (!settings.is_empty()).then(|| format!("in config.toml: {}", settings.join("; "))),
        ..ok("recommended", format!("form {form}, temperature {temperature}, context window {tokens}"))
    }
}

fn finding(finding: &Finding) -> DoctorCheck {
    let state = match finding.outcome {
        Outcome::Works => CheckState::Ok,
        Outcome::Fallback => CheckState::Warning,
        Outcome::Fails => CheckState::Failed,
    };
    DoctorCheck { name: finding.what, state, found: finding.detail.clone(), hint: None }
}

fn ok(name: &'static str, found: String) -> DoctorCheck {
    DoctorCheck { name, state: CheckState::Ok, found, hint: None }
}

fn failed(name: &'static str, state: CheckState, error: &Error) -> DoctorCheck {
    DoctorCheck { name, state, found: error.to_string(), hint: error.hint_text().map(str::to_owned) }
}

fn words(check: &DoctorCheck, columns: Option<usize>) -> String {
    let mark = match check.state {
        CheckState::Ok => "ok     ",
        CheckState::Warning => "warning",
        CheckState::Failed => "FAILED ",
    };
    let found = wrap::hanging(&sanitise::plain(&check.found), INDENT, columns);
    let mut text = format!("{mark}  {:<14} {found}\n", check.name);
    if let Some(hint) = &check.hint {
        text += &format!("{:INDENT$}→ {}\n", "", wrap::hanging(&sanitise::plain(hint), INDENT + 2, columns));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_broken_between_words_and_aligned_at_any_width() {
        let check = DoctorCheck {
            name: "local",
            state: CheckState::Failed,
            found: "user namespaces are forbidden here: kernel.unprivileged_userns_clone is 0".to_owned(),
            hint: Some(
                "set kernel.unprivileged_userns_clone=1 with sysctl, or start a Docker engine".to_owned(),
            ),
        };
        let unbroken = words(&check, None);
        for columns in [48, 80] {
            let text = words(&check, Some(columns));
            let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
            let fits =
                |line: &&str| line.chars().count() <= columns || line.trim_start().split(' ').count() == 1;
            assert!(lines.iter().all(fits), "{text}");
            assert!(lines[1..].iter().all(|line| line.starts_with(&" ".repeat(INDENT))), "{text}");
            assert!(text.split_whitespace().eq(unbroken.split_whitespace()), "{text}");
        }
    }
}
