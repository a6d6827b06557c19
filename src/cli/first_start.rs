//! The first start at a terminal: the endpoint and the model are picked from what this machine has, tried, and written to `config.toml`.

use super::config::Config;
use super::console::Console;
use super::endpoint;
use super::ui::confirm;
use super::ui::picker::pick;
use super::ui::style::{Colours, HEADING};
use crate::error::{Error, Kind, Result};
use crate::model::endpoint::{Retries, Timeouts};
use crate::model::providers::{self, Provider};
use crate::model::{ChatModel, Message, OpenAi, Request};
use crate::paths;
use crate::sanitise::one_line;
use futures_util::future::join_all;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// The time that a server of this machine has to list its models. One that takes longer, because it loads a model or the machine
/// is busy, can still be picked.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit for an endpoint to list its models, and to answer the request that tries it.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(60);
/// Prompts to begin with.
const EXAMPLES: [&str; 3] = [
    "what does this project do, and how is it tested?",
    "run the tests and fix what fails",
    "add a test for the case that nobody thought of",
];

/// An endpoint that this machine can use.
struct Candidate {
    provider: &'static Provider,
    /// The variable with its key, or the models that a local server offers.
    because: String,
}

/// Asks for an endpoint and a model where the call and the configuration name none, or for the model of an endpoint that offers
/// several, and puts them into `config`.
///
/// # Errors
/// Nothing was found, with every way to name an endpoint; [`Kind::Interrupted`] where the user picks nothing.
pub async fn choose(config: &mut Config, console: &Console) -> Result<()> {
    let chosen = endpoint::choose(config);
    let has_model = chosen.as_ref().is_ok_and(|choice| choice.model.is_some());
    if has_model || config.options.replay.replay.is_some() {
        return Ok(());
    }
    if config.names_endpoint() {
        let usual = chosen?.provider.and_then(|provider| provider.default_model);
        config.options.model.model = Some(pick_model(config, usual, console).await?);
        return Ok(());
    }
    loop {
        let provider = pick_provider(config, console).await?;
        config.options.endpoint.provider = Some(provider.name.to_owned());
        match try_one(config, provider, console).await {
            Ok(model) => return offer_to_write(config, provider.name, &model, console).await,
            Err(error) if error.kind() == Kind::Interrupted => return Err(error),
            // Another one can be picked.
            Err(error) => console.screen.failure(&error),
        }
        config.options.model.model = None;
    }
}

async fn pick_provider(config: &Config, console: &Console) -> Result<&'static Provider> {
    let candidates = candidates(config, console).await;
    if candidates.is_empty() {
        return endpoint::choose(config).and(Err(Error::config("no model is named")));
    }
    let line = |candidate: &Candidate| {
        format!("{:<12} {}  ({})", candidate.provider.name, candidate.provider.base_url, candidate.because)
    };
    let lines: Vec<String> = candidates.iter().map(line).collect();
    let picked = pick(console.screen.progress(), "Which endpoint is to answer?", &lines, 0).await?;
    picked
        .and_then(|number| candidates.get(number))
        .map(|candidate| candidate.provider)
        .ok_or_else(nothing_picked)
}

/// The providers whose key is in the environment or in `.env`, and the servers of this machine that answer.
async fn candidates(config: &Config, console: &Console) -> Vec<Candidate> {
    console.screen.progress().show("looking for model servers on this machine");
    let look = providers::ALL.iter().map(async |provider| {
        let because = match provider.is_local() {
            true => offered_locally(config, provider).await?,
            false => {
                provider.address(|name| config.layers.get(name).map(|setting| setting.value)).ok()?;
                provider.key_variables.iter().find(|name| config.layers.get(name).is_some())?.to_string()
            }
        };
        Some(Candidate { provider, because })
    });
    let found = join_all(look).await;
    console.screen.progress().clear();
    found.into_iter().flatten().collect()
}

/// Returns the only model that a server of this machine offers, or their number, or that it has not answered yet; `None`
/// where no such server is at its usual port.
async fn offered_locally(config: &Config, provider: &Provider) -> Option<String> {
    let mut config = config.clone();
    config.options.endpoint.provider = Some(provider.name.to_owned());
    let client = endpoint::without_model(&config).await.ok()?;
    let Ok(names) = timeout(LOCAL_TIMEOUT, client.models()).await else {
        return Some("has not answered yet".to_owned());
    };
    Some(match names.ok()?.as_slice() {
        [only] => one_line(only, 40),
        names => format!("{} models", names.len()),
    })
}

/// A model of the provider that answers.
async fn try_one(config: &mut Config, provider: &Provider, console: &Console) -> Result<String> {
    let model = pick_model(config, provider.default_model, console).await?;
    config.options.model.model = Some(model.clone());
    let progress = console.screen.progress();
    progress.show(&format!("trying {}", one_line(&model, 60)));
    let answered = ask_once(config).await;
    progress.clear();
    answered.map(|()| model)
}

/// The only model of the endpoint, or the one that the user picks.
async fn pick_model(config: &Config, usual: Option<&str>, console: &Console) -> Result<String> {
    let progress = console.screen.progress();
    progress.show("asking the endpoint for its models");
    let offered = timeout(TRIAL_TIMEOUT, endpoint::models(config)).await;
    progress.clear();
    let names = offered.map_err(|_| Error::endpoint("the endpoint did not list its models in time"))??;
    match names.as_slice() {
        [] => confirm::line(progress, "The endpoint lists no models. Which one is to answer? ").await,
        [only] => Ok(only.clone()),
        names => {
            let selected = names.iter().position(|name| Some(name.as_str()) == usual).unwrap_or(0);
            let picked = pick(progress, "Which model?", names, selected).await?;
            picked.and_then(|number| names.get(number)).cloned().ok_or_else(nothing_picked)
        }
    }
}

/// One request, with the shortest answer there is.
async fn ask_once(config: &Config) -> Result<()> {
    let mut endpoint = endpoint::without_model(config).await?.endpoint().clone();
    endpoint.retries = Retries { attempts: 0, ..endpoint.retries };
    endpoint.timeouts = Timeouts { first: TRIAL_TIMEOUT, ..endpoint.timeouts };
    let messages = vec![Message::User { text: "Say hello.".to_owned() }].into();
    OpenAi::new(endpoint)?.ask(Request::plain(&messages), &mut |_| {}).await.map(drop)
}

/// Writes what was picked to the user's `config.toml`, if they want that, and shows prompts to begin with.
async fn offer_to_write(config: &Config, provider: &str, model: &str, console: &Console) -> Result<()> {
    let path = config.machine.config_dir()?.join("config.toml");
    let question = format!("{} answers. Keep this in {}?", one_line(model, 60), path.display());
    if confirm::ask(console.screen.progress(), &question, &["yes", "no"]).await? == "yes" {
        write(&path, provider, model)?;
    }
    let colours = Colours::of(&std::io::stderr());
    let examples = EXAMPLES.map(|example| format!("  {}\n", colours.paint(HEADING, example)));
    console.screen.say(&format!("For example:\n{}", examples.concat()));
    Ok(())
}

/// Puts the two settings before everything else in the file: what follows may be tables.
fn write(path: &Path, provider: &str, model: &str) -> Result<()> {
    let failed = |error| Error::config(format!("{} cannot be written", path.display())).caused_by(error);
    let directory = path.parent().unwrap_or(Path::new("."));
    paths::make_dir(directory)?;
    let before = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    // A string of JSON is one of TOML.
    let value = |text: &str| serde_json::Value::from(text);
    let text = format!("provider = {}\nmodel = {}\n{before}", value(provider), value(model));
    toml::from_str::<toml::Table>(&text)
        .map_err(|error| Error::config(format!("{}: {error}", path.display())))?;
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn nothing_picked() -> Error {
    Error::new(Kind::Interrupted, "nothing was picked")
}
