//! From the configuration to a model that can be asked.

use super::{offered_models, print};
use crate::batch::Models;
use crate::cli::config::key_command::{CommandOutput, KeyCommand};
use crate::cli::config::{Config, EndpointChoice, SettingSource, choose_endpoint};
use crate::error::{Error, Result};
use crate::log::{History, Recording};
use crate::machine::Machine;
use crate::model::endpoint::Retries;
use crate::model::probe::{self, Probe, SpokenProtocol, Step};
use crate::model::{ChatModel, Endpoint, KeySource, Limiter, OpenAi, Protocol, Replayed, Reply, Secret};
use crate::session::{ModelSettings, Resume};
use crate::tools::Registry;
use std::sync::Arc;
use std::time::Duration;

/// A model that can be asked.
pub struct Connected {
    pub settings: ModelSettings,
    /// Notices for the user.
    pub notices: Vec<String>,
}

/// The model that answers: the configured one, or with `--replay` one whose answers were recorded. A call that continues a
/// session gets that session's model, unless it names another one.
pub async fn model(config: &mut Config, resume: Option<&Resume>) -> Result<Connected> {
    if let Some(path) = &config.options.replay.replay {
        let settings = recorded("recorded", Recording::load(path)?.replies());
        return Ok(Connected { settings, notices: Vec::new() });
    }
    match resume {
        Some(resume) => connect_again(&resume.history, config).await,
        None => connect(config).await,
    }
}

/// A model whose replies were recorded.
pub fn recorded(name: &str, replies: Vec<Reply>) -> ModelSettings {
    let model = ModelSettings::new(Arc::new(Replayed::new(name, replies)));
    ModelSettings { base_url: "recorded".to_owned(), ..model }
}

/// The model that the configuration names. If it names none and the endpoint offers exactly one, that one.
pub async fn connect(config: &Config) -> Result<Connected> {
    let (client, notices) = connect_client(config).await?;
    Ok(Connected { settings: settings(config, client), notices })
}

/// The model of an earlier session, where the endpoint is the same and the call does not name another model.
pub async fn connect_again(history: &History, config: &mut Config) -> Result<Connected> {
    let connected = connect(config).await?;
    let History { base_url, model, .. } = history;
    if config.options.model.model.is_some() || model.is_empty() || connected.settings.base_url != *base_url {
        return Ok(connected);
    }
    config.options.model.model = Some(model.clone());
    connect(config).await
}

fn settings(config: &Config, client: OpenAi) -> ModelSettings {
    let endpoint = client.endpoint();
    ModelSettings {
        price: config.price(endpoint),
        base_url: endpoint.base_url.clone(),
        context_window: window(config, endpoint),
        compaction: config.file.compaction.unwrap_or(true),
        ..ModelSettings::new(Arc::new(client))
    }
}

/// The models of the configured endpoint for many sessions at once, over one pool of connections.
pub struct ManyModels {
    config: Config,
    first: OpenAi,
}

impl ManyModels {
    /// With the notices for the user. All requests wait for `limiter`, and are repeated for longer than those of one session:
    /// the work of many is not lost because the endpoint is gone for some minutes.
    pub async fn connect(config: &Config, limiter: Arc<Limiter>) -> Result<(Self, Vec<String>)> {
        let (first, notices) = connect_client(config).await?;
        let endpoint = Endpoint { retries: RETRIES_OF_MANY, ..first.endpoint().clone() };
        let first = OpenAi::new(endpoint)?.limited_by(limiter);
        Ok((Self { config: config.clone(), first }, notices))
    }
}

const RETRIES_OF_MANY: Retries = Retries {
    attempts: 60,
    first_wait: Duration::from_millis(500),
    longest_wait: Duration::from_secs(60),
    total_wait: Duration::from_secs(900),
};

impl ManyModels {
    /// The model of this name, or the default one, at another temperature.
    pub fn at(&self, name: Option<&str>, temperature: Option<f64>) -> Result<ModelSettings> {
        let name = name.unwrap_or(&self.first.endpoint().model);
        let choice = choose(&self.config)?;
        let endpoint = endpoint(&self.config, &choice, name)?;
        let temperature = temperature.or(endpoint.temperature);
        let client = self.first.sibling(Endpoint { retries: RETRIES_OF_MANY, temperature, ..endpoint })?;
        let client = client.with_fallbacks(fallbacks(&self.config, &choice, name)?)?;
        Ok(settings(&self.config, client))
    }
}

impl Models for ManyModels {
    fn settings(&self, name: Option<&str>) -> Result<ModelSettings> {
        self.at(name, None)
    }
}

async fn connect_client(config: &Config) -> Result<(OpenAi, Vec<String>)> {
    let mut choice = choose_with_key(config).await?;
    let mut notices = std::mem::take(&mut choice.notices);
    if let Some(warning) = choice.warning.clone() {
        if config.options.is_quiet() {
            // With -q the screen shows no notices.
            print::notice(&warning);
        }
        notices.push(warning);
    }
    let model = match choice.model.take() {
        Some(model) => model,
        None => {
            let only = only_model(&config.machine, &open(config, &choice, PLACEHOLDER)?).await?;
            notices.push(format!(
                "no model is named: taking {only}, the only one that {} offers",
                choice.base_url
            ));
            only
        }
    };
    Ok((open(config, &choice, &model)?, notices))
}

/// The context window: from config.toml, else what is documented of the provider.
fn window(config: &Config, endpoint: &Endpoint) -> Option<u64> {
    let configured = config.file.context.get(&endpoint.model).copied();
    configured.or_else(|| endpoint.provider.context_window(&endpoint.model))
}

/// The endpoint alone, to ask what it offers.
pub async fn without_model(config: &Config) -> Result<OpenAi> {
    let choice = choose_with_key(config).await?;
    let model = choice.model.clone().unwrap_or_else(|| PLACEHOLDER.to_owned());
    open(config, &choice, &model)
}

/// The variable whose key Anthropic takes as a bearer token.
const BEARER_VARIABLE: &str = "ANTHROPIC_AUTH_TOKEN";

/// Replaces a model's name that is not known yet; it is never sent.
const PLACEHOLDER: &str = "unnamed";

/// The endpoint of the configuration.
pub fn choose(config: &Config) -> Result<EndpointChoice> {
    choose_endpoint(&config.options, &config.layers, &config.file)
}

/// The endpoint of the configuration, once the command that prints its key has run, where there is one.
async fn choose_with_key(config: &Config) -> Result<EndpointChoice> {
    let choice = choose(config)?;
    if let Some(command) = &choice.key_command {
        config.printed_key.of(&command_output(config, command)).await?;
    }
    Ok(choice)
}

fn command_output(config: &Config, command: &KeyCommand) -> CommandOutput {
    CommandOutput::new(command.clone(), &config.workspace, &config.machine)
}

fn open(config: &Config, choice: &EndpointChoice, model: &str) -> Result<OpenAi> {
    OpenAi::new(endpoint(config, choice, model)?)?.with_fallbacks(fallbacks(config, choice, model)?)
}

/// The models that answer while `model` is overloaded. They are of the same endpoint: no key goes elsewhere.
fn fallbacks(config: &Config, choice: &EndpointChoice, model: &str) -> Result<Vec<Endpoint>> {
    let names = config.file.models.get(model).map(|options| options.fallback.as_slice()).unwrap_or_default();
    names.iter().map(|name| endpoint(config, choice, name)).collect()
}

/// Tests what the endpoint can do.
pub async fn probe(
    config: &Config,
    model: &str,
    on_step: &mut (dyn FnMut(Step<'_>) + Send),
) -> Result<Probe> {
    let endpoint = endpoint(config, &choose_with_key(config).await?, model)?;
    probe::probe(endpoint, Registry::builtin().specs(), on_step).await
}

/// Tests in which protocols, of those that it is not asked in, the endpoint answers.
pub async fn probe_protocols(
    config: &Config,
    model: &str,
    on_step: &mut (dyn FnMut(Step<'_>) + Send),
) -> Result<Vec<SpokenProtocol>> {
    let choice = choose_with_key(config).await?;
    let usual = protocol(config, &choice, model);
    let others = Protocol::ALL.into_iter().filter(|other| *other != usual);
    let endpoints =
        others.map(|other| endpoint_in(other, config, &choice, model)).collect::<Result<Vec<_>>>()?;
    Ok(probe::spoken_protocols(endpoints, on_step).await)
}

/// The protocol in which `model` is asked.
fn protocol(config: &Config, choice: &EndpointChoice, model: &str) -> Protocol {
    let of_model = config.file.models.get(model).and_then(|options| options.protocol);
    of_model.or(config.file.protocol).unwrap_or_else(|| choice.usual_protocol())
}

fn endpoint(config: &Config, choice: &EndpointChoice, model: &str) -> Result<Endpoint> {
    endpoint_in(protocol(config, choice, model), config, choice, model)
}

fn endpoint_in(
    protocol: Protocol,
    config: &Config,
    choice: &EndpointChoice,
    model: &str,
) -> Result<Endpoint> {
    let options = config.file.models.get(model).cloned().unwrap_or_default();
    let mut endpoint = Endpoint::new(choice.base_url_of(protocol), model)?;
    endpoint.protocol = protocol;
    if let Some(provider) = choice.provider {
        endpoint.provider = provider;
    }
    endpoint.is_bearer = choice.key_name.as_deref() == Some(BEARER_VARIABLE);
    endpoint.key = choice.key.as_deref().map(Secret::new).transpose()?;
    if let Some(command) = &choice.key_command {
        endpoint.key = config.printed_key.known();
        endpoint.key_source = Some(Arc::new(command_output(config, command)) as Arc<dyn KeySource>);
    }
    endpoint.max_tokens = config.file.max_answer_tokens;
    endpoint.temperature = config.file.temperature;
    endpoint.context_window = config.file.context.get(model).copied();
    endpoint.form = options.form;
    endpoint.assist = config.file.assist(model);
    endpoint.images = options.images;
    endpoint.temperature = options.temperature.or(endpoint.temperature);
    endpoint.top_p = options.top_p;
    endpoint.reasoning_effort = options.reasoning_effort;
    endpoint.reasoning_budget = options.reasoning_budget;
    endpoint.body = options.body;
    // A header may hold a secret, which an endpoint that a repository named must not get.
    if choice.warning.is_none() {
        endpoint.headers.extend(options.headers);
    }
    endpoint.ca_file =
        config.layers.get_from("AGENT_CA_FILE", SettingSource::Environment).map(|file| file.value.into());
    endpoint.proxy_variable = config.machine.proxy_variable();
    endpoint.proxy = config.machine.socks_proxy();
    Ok(endpoint)
}

/// The models that the configured endpoint offers.
pub async fn models(config: &Config) -> Result<Vec<String>> {
    models_of(&config.machine, &without_model(config).await?).await
}

/// The models that the endpoint offers, which are kept for completion.
async fn models_of(machine: &Machine, client: &OpenAi) -> Result<Vec<String>> {
    let names = client.models().await?;
    // The answer does not depend on the cache.
    let _ = offered_models::remember(machine, &client.endpoint().base_url, &names);
    Ok(names)
}

async fn only_model(machine: &Machine, client: &OpenAi) -> Result<String> {
    let hint = "name one with --model or AGENT_MODEL";
    let mut names = models_of(machine, client).await.map_err(|error| {
        Error::config(format!("no model is named, and the endpoint does not list its models: {error}"))
            .hint(hint)
    })?;
    match (names.pop(), names.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => Err(Error::config("no model is named, and the endpoint offers none").hint(hint)),
        (Some(last), _) => {
            names.push(last);
            names.truncate(8);
            Err(Error::config("no model is named")
                .hint(format!("{hint}; the endpoint offers {}, …", names.join(", "))))
        }
    }
}
