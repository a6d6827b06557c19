//! Which endpoint, and which key goes with it.
//!
//! The rule: a key goes only to the endpoint it was configured with. `AGENT_API_KEY` belongs to the endpoint that the
//! same user chose; a provider's own key (`OPENAI_API_KEY`, …) belongs to that provider, or to the base URL
//! that its own variable names. A base URL from a `.env` is combined with keys from that `.env` alone: an untrusted
//! repository must not be able to redirect the user's key. For the same reason a `.env` chooses an endpoint only where
//! the user has not: flags, the environment and `config.toml` come first, for keys too.

use super::key_command::KeyCommand;
use super::layers::{File, Layers, Setting, SettingSource};
use crate::cli::options::Options;
use crate::error::{Error, Result};
use crate::model::Protocol;
use crate::model::providers::{self, Provider};

/// The setting with the command that prints the key.
const COMMAND: &str = "api_key_command";

/// The endpoint that a call will talk to.
#[derive(Debug, Clone)]
pub struct EndpointChoice {
    /// The base URL as configured.
    pub base_url: String,
    /// The key, if there is one. Never printed.
    pub key: Option<String>,
    /// The command that prints the key, where that is where it is.
    pub key_command: Option<KeyCommand>,
    /// The variable that the key came from, for `agent doctor`.
    pub key_name: Option<String>,
    /// The model's name.
    pub model: Option<String>,
    /// The well-known endpoint, if it is one.
    pub provider: Option<&'static Provider>,
    /// Shown to the user.
    pub notices: Vec<String>,
    /// Shown with `-q` too: a `.env` chose the endpoint that gets the conversation.
    pub warning: Option<String>,
}

impl EndpointChoice {
    /// The protocol where none is configured: the provider's at its own address. What is somewhere else under its name, a gateway
    /// for example, is asked in the usual one, unless the provider has no other.
    pub fn usual_protocol(&self) -> Protocol {
        let Some(provider) = self.provider else { return Protocol::Chat };
        match provider.protocol {
            Protocol::Responses if !same_host(&self.base_url, provider.base_url) => Protocol::Chat,
            protocol => protocol,
        }
    }

    /// The base URL for a protocol: a provider may have one of its own, on the same host.
    pub fn base_url_of(&self, protocol: Protocol) -> &str {
        match self.provider {
            Some(provider) if self.base_url == provider.base_url => provider.base_url_of(protocol),
            _ => &self.base_url,
        }
    }
}

/// A base URL, where it was set, and the well-known endpoint that it belongs to.
struct EndpointAddress {
    url: String,
    setting: Setting,
    provider: Option<&'static Provider>,
    /// Set if the address is the provider's, not one that was named for it.
    is_own: bool,
}

impl EndpointAddress {
    fn of_provider(provider: &'static Provider, setting: Setting, layers: &Layers) -> Result<Self> {
        // Not from a `.env`: an address decides where the key goes.
        let variable =
            |name: &str| layers.get_from(name, SettingSource::Environment).map(|setting| setting.value);
        Ok(Self { url: provider.address(variable)?, setting, provider: Some(provider), is_own: true })
    }
}

/// Chooses endpoint, key and model. Errors are of kind `Config`.
pub fn choose_endpoint(options: &Options, layers: &Layers, file: &File) -> Result<EndpointChoice> {
    let place = place(options, layers, file)?;
    let mut notices = Vec::new();
    let warning = (place.setting.source == SettingSource::DotEnv)
        .then(|| format!("the endpoint {} was chosen by {} in .env", place.url, place.setting.name));
    let ignored = ["AGENT_BASE_URL", "AGENT_PROVIDER"]
        .iter()
        .find_map(|name| layers.get_from(name, SettingSource::DotEnv));
    if let (SettingSource::File, Some(ignored)) = (place.setting.source, ignored) {
        notices.push(format!("{} in .env is ignored: config.toml names the endpoint", ignored.name));
    }
    if !layers.ignored().is_empty() {
        let names: Vec<&str> = layers.ignored().iter().map(String::as_str).collect();
        notices.push(format!(
            "ignored in .env: {} (a .env sets the endpoint, its key and the model; use the environment, config.toml or a flag)",
            names.join(", ")
        ));
    }
    let key = key(&place, layers, file, &mut notices)?;
    if let (None, Some(provider)) = (&key, place.provider)
        && !provider.key_variables.is_empty()
        && place.is_own
    {
        return Err(Error::config(format!("{} needs a key and none is set", provider.name))
            .hint(format!("set {} or AGENT_API_KEY", provider.key_variables.join(" or "))));
    }
    let model = model(options, layers, file, &place);
    let key_command = key.as_ref().filter(|key| key.name == COMMAND).and_then(|_| command(&place, file));
    Ok(EndpointChoice {
        base_url: place.url,
        key_name: key.as_ref().map(|key| key.name.clone()),
        key_command,
        key: key.map(|key| key.value).filter(|value| !value.is_empty()),
        model,
        provider: place.provider,
        notices,
        warning,
    })
}

/// Returns whether anything but a provider's key says which endpoint is meant.
pub fn names_endpoint(options: &Options, layers: &Layers, file: &File) -> bool {
    named_place(options, layers, file).map_or(true, |place| place.is_some())
}

fn place(options: &Options, layers: &Layers, file: &File) -> Result<EndpointAddress> {
    match named_place(options, layers, file)? {
        Some(place) => Ok(place),
        None => implied_by_key(layers),
    }
}

fn named_place(options: &Options, layers: &Layers, file: &File) -> Result<Option<EndpointAddress>> {
    let flag = |value: &Option<String>, name: &str| setting(value, SettingSource::Flag, name);
    let in_file = |value: &Option<String>, name: &str| setting(value, SettingSource::File, name);
    let sources = [SettingSource::Environment, SettingSource::DotEnv];
    let named = |name: &str, source| layers.get_from(name, source);
    let mut choices = vec![(
        flag(&options.endpoint.base_url, "--base-url"),
        flag(&options.endpoint.provider, "--provider"),
    )];
    choices.push((
        named("AGENT_BASE_URL", SettingSource::Environment),
        named("AGENT_PROVIDER", SettingSource::Environment),
    ));
    choices.push((in_file(&file.base_url, "base_url"), in_file(&file.provider, "provider")));
    choices.push((
        named("AGENT_BASE_URL", SettingSource::DotEnv),
        named("AGENT_PROVIDER", SettingSource::DotEnv),
    ));
    choices.extend(sources.map(|source| (named("OPENAI_BASE_URL", source), None)));
    // Within one layer the URL outweighs the provider's; the first layer that sets either wins.
    for (url, provider) in choices {
        let known = provider.as_ref().map(|setting| providers::find(&setting.value)).transpose()?;
        match (url, provider, known) {
            (Some(url), _, known) => {
                let provider = known.or_else(|| well_known(&url.value));
                let is_own = provider.is_some_and(|provider| provider.base_url == url.value);
                return Ok(Some(EndpointAddress { url: url.value.clone(), setting: url, provider, is_own }));
            }
            (None, Some(setting), Some(provider)) => {
                return EndpointAddress::of_provider(provider, setting, layers).map(Some);
            }
            _ => {}
        }
    }
    Ok(None)
}

/// No endpoint was named: a provider's key implies one.
fn implied_by_key(layers: &Layers) -> Result<EndpointAddress> {
    let implied_by = |source| {
        providers::ALL.iter().filter(|provider| provider.is_implied_by_key).find_map(|provider| {
            let key = provider.key_variables.iter().find_map(|name| layers.get_from(name, source))?;
            Some((provider, key))
        })
    };
    let implied = implied_by(SettingSource::Environment).or_else(|| implied_by(SettingSource::DotEnv));
    let openai = || Some((providers::find("openai").ok()?, layers.get("AGENT_API_KEY")?));
    match implied.or_else(openai) {
        Some((provider, setting)) => EndpointAddress::of_provider(provider, setting, layers),
        None => {
            let keys: Vec<&str> = key_variables().collect();
            Err(Error::config("no model endpoint is configured").hint(format!(
                "set the key of a provider ({}), name a server with --provider ollama or --base-url URL, start `agent` at a \
                 terminal to pick one, or try `agent demo`, which needs none",
                keys.join(", ")
            )))
        }
    }
}

/// The provider whose host the URL names; `None` for an unknown server.
fn well_known(url: &str) -> Option<&'static Provider> {
    Some(providers::of_base_url(url)).filter(|provider| !provider.base_url.is_empty())
}

/// The key that belongs to `place`, if there is one.
fn key(
    place: &EndpointAddress,
    layers: &Layers,
    file: &File,
    notices: &mut Vec<String>,
) -> Result<Option<Setting>> {
    let own = own_key_names(place);
    if place.setting.source == SettingSource::DotEnv {
        return key_beside_dot_env(place, layers, file);
    }
    let from = |source| {
        let named = ["AGENT_API_KEY"].into_iter().chain(own.iter().copied());
        named.into_iter().find_map(|name| layers.get_from(name, source))
    };
    let in_file = || key_in_file(file).or_else(|| command(place, file).map(|_| printed()));
    let found = match place.setting.source {
        SettingSource::File => in_file().or_else(|| from(SettingSource::Environment)),
        _ => from(SettingSource::Environment).or_else(in_file),
    };
    let found = found.or_else(|| from(SettingSource::DotEnv));
    if found.is_none()
        && own.is_empty()
        && let Some(unused) = key_variables().find_map(|name| layers.get(name))
    {
        notices.push(format!(
            "{} is not sent to {}: it belongs to another endpoint (set AGENT_API_KEY for this one)",
            unused.name, place.url
        ));
    }
    Ok(found)
}

/// The key of `config.toml`; that of a command has no value before it has run.
fn key_in_file(file: &File) -> Option<Setting> {
    setting(&file.api_key, SettingSource::File, "api_key")
        .or_else(|| file.api_key_command.as_ref().map(|_| printed()))
}

/// A key that a command prints.
fn printed() -> Setting {
    Setting { value: String::new(), source: SettingSource::File, name: COMMAND.to_owned() }
}

/// The command that prints the key: that of `config.toml`, or at the provider's own address the provider's.
fn command(place: &EndpointAddress, file: &File) -> Option<KeyCommand> {
    let of_provider = || {
        let provider = place.provider.filter(|provider| place.is_own && !provider.key_command.is_empty())?;
        Some(KeyCommand::Program(provider.key_command.iter().map(|&word| word.to_owned()).collect()))
    };
    file.api_key_command.clone().or_else(of_provider)
}

/// The variables with a key of any provider, but for those that programs use for other things.
fn key_variables() -> impl Iterator<Item = &'static str> {
    let implying = providers::ALL.iter().filter(|provider| provider.is_implied_by_key);
    implying.flat_map(|provider| provider.key_variables).copied()
}

/// The variables whose keys belong to this endpoint.
fn own_key_names(place: &EndpointAddress) -> Vec<&'static str> {
    if place.setting.name == "OPENAI_BASE_URL" {
        return vec!["OPENAI_API_KEY"];
    }
    match place.provider {
        Some(provider) if place.is_own || same_host(&place.url, provider.base_url) => {
            provider.key_variables.to_vec()
        }
        _ => Vec::new(),
    }
}

/// `.env` chose the endpoint: only its own keys may go there, and a key from elsewhere is an error.
fn key_beside_dot_env(place: &EndpointAddress, layers: &Layers, file: &File) -> Result<Option<Setting>> {
    let mut names = vec!["AGENT_API_KEY"];
    names.extend(own_key_names(place));
    if let Some(key) = names.iter().find_map(|name| layers.get_from(name, SettingSource::DotEnv)) {
        return Ok(Some(key));
    }
    // A provider named by `.env` is a known host: its own key may go there, wherever it was set.
    if place.setting.name == "AGENT_PROVIDER" || own_key_names(place).contains(&place.setting.name.as_str()) {
        // A key that serves other programs too is not for a `.env` to send.
        let may_use = place.provider.is_none_or(|provider| provider.is_implied_by_key);
        let own = own_key_names(place).into_iter().filter(|_| may_use).find_map(|name| layers.get(name));
        if own.is_some() {
            return Ok(own);
        }
    }
    // `AGENT_API_KEY=` in the same file means: no key.
    if layers.dot_env_mentions("AGENT_API_KEY") {
        return Ok(None);
    }
    let keys = ["AGENT_API_KEY"].into_iter().chain(key_variables());
    let elsewhere = keys.filter_map(|name| layers.get_from(name, SettingSource::Environment)).next();
    match elsewhere.or_else(|| key_in_file(file)) {
        None => Ok(None),
        Some(key) => Err(Error::config(format!(
            "{} in .env sets the endpoint to {}, but {} comes from another source: a key is never sent to an endpoint \
             that a .env chose",
            place.setting.name, place.url, key.name
        ))
        .hint(
            "put the key into the same .env (AGENT_API_KEY=… or AGENT_API_KEY= for none), or name the endpoint \
             with --base-url",
        )),
    }
}

fn model(options: &Options, layers: &Layers, file: &File, place: &EndpointAddress) -> Option<String> {
    let openai = place.provider.is_some_and(|provider| provider.name == "openai")
        || place.setting.name == "OPENAI_BASE_URL";
    options
        .model
        .model
        .clone()
        .or_else(|| layers.get("AGENT_MODEL").map(|setting| setting.value))
        .or_else(|| file.model.clone())
        .or_else(|| layers.get("OPENAI_MODEL").filter(|_| openai).map(|setting| setting.value))
        .or_else(|| place.provider.and_then(|provider| provider.default_model).map(str::to_owned))
}

fn same_host(a: &str, b: &str) -> bool {
    let host = |url: &str| reqwest::Url::parse(url).ok().map(|url| url.origin());
    host(a).is_some_and(|origin| Some(origin) == host(b))
}

fn setting(value: &Option<String>, source: SettingSource, name: &str) -> Option<Setting> {
    let value = value.as_ref()?.trim();
    (!value.is_empty()).then(|| Setting { value: value.to_owned(), source, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use std::collections::BTreeMap;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn choose(
        flags: &Options,
        environment: &[(&str, &str)],
        dot_env: &[(&str, &str)],
    ) -> Result<EndpointChoice> {
        let layers = Layers::from_values(values(environment), values(dot_env));
        choose_endpoint(flags, &layers, &File::default())
    }

    fn base_url(url: &str) -> Options {
        let mut options = Options::default();
        options.endpoint.base_url = Some(url.to_owned());
        options
    }

    #[test]
    fn a_dot_env_cannot_redirect_a_key_from_the_environment() {
        for (url, key) in [
            ("AGENT_BASE_URL", "AGENT_API_KEY"),
            ("AGENT_BASE_URL", "OPENAI_API_KEY"),
            ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
            ("OPENAI_BASE_URL", "AGENT_API_KEY"),
            ("AGENT_BASE_URL", "NOVITA_API_KEY"),
        ] {
            let error = choose(&Options::default(), &[(key, "secret")], &[(url, "http://evil.example/v1")])
                .expect_err("the key would be redirected");
            assert_eq!(error.kind(), Kind::Config);
            assert!(error.to_string().contains(key) && error.to_string().contains(".env"), "{error}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn a_dot_env_sets_endpoint_and_key_together() {
        let pairs = [("AGENT_BASE_URL", "http://localhost:1/v1"), ("AGENT_API_KEY", "inside")];
        let choice = choose(&Options::default(), &[("AGENT_API_KEY", "outside")], &pairs).unwrap();
        assert_eq!(choice.key.as_deref(), Some("inside"));
    }

    #[test]
    fn an_empty_key_in_the_dot_env_means_none() {
        let pairs = [("AGENT_BASE_URL", "http://localhost:1/v1"), ("AGENT_API_KEY", "")];
        let choice = choose(&Options::default(), &[("OPENAI_API_KEY", "outside")], &pairs).unwrap();
        assert_eq!(choice.key, None);
    }

    #[test]
    fn a_provider_key_stays_with_its_provider() {
        let choice =
            choose(&base_url("http://localhost:8080/v1"), &[("OPENAI_API_KEY", "secret")], &[]).unwrap();
        assert_eq!(choice.key, None);
        assert!(choice.notices[0].contains("OPENAI_API_KEY is not sent"), "{:?}", choice.notices);
        let mut groq = Options::default();
        groq.endpoint.provider = Some("groq".to_owned());
        let error = choose(&groq, &[("OPENAI_API_KEY", "secret")], &[]).expect_err("groq has no key");
        assert!(error.to_string().contains("groq needs a key"), "{error}");
    }

    #[test]
    fn the_provider_chooses_the_protocol_and_a_gateway_is_asked_in_the_usual_one() {
        let of = |key: &str, url: Option<&str>| {
            let mut flags = Options::default();
            flags.endpoint.base_url = url.map(str::to_owned);
            choose(&flags, &[(key, "k")], &[]).unwrap().usual_protocol()
        };
        assert_eq!(of("OPENAI_API_KEY", None), Protocol::Responses);
        assert_eq!(of("ANTHROPIC_API_KEY", None), Protocol::Messages);
        assert_eq!(of("GROQ_API_KEY", None), Protocol::Chat);
        assert_eq!(of("AGENT_API_KEY", Some("https://api.openai.com/v1")), Protocol::Responses);
        assert_eq!(of("AGENT_API_KEY", Some("http://localhost:4000/v1")), Protocol::Chat);
        let mut flags = Options::default();
        flags.endpoint.provider = Some("openai".to_owned());
        flags.endpoint.base_url = Some("http://localhost:4000/v1".to_owned());
        assert_eq!(choose(&flags, &[], &[]).unwrap().usual_protocol(), Protocol::Chat);
        let deepseek = choose(&Options::default(), &[("DEEPSEEK_API_KEY", "k")], &[]).unwrap();
        assert_eq!(deepseek.base_url_of(Protocol::Messages), "https://api.deepseek.com/anthropic");
    }

    #[test]
    fn an_address_with_variables_comes_from_the_environment_alone() {
        let of = |name: &str, environment: &[(&str, &str)], dot_env: &[(&str, &str)]| {
            let mut flags = Options::default();
            flags.endpoint.provider = Some(name.to_owned());
            choose(&flags, environment, dot_env)
        };
        let azure = [("AZURE_OPENAI_ENDPOINT", "https://mine.example/"), ("AZURE_OPENAI_API_KEY", "k")];
        let choice = of("azure", &azure, &[]).unwrap();
        assert_eq!(
            (choice.base_url.as_str(), choice.key.as_deref()),
            ("https://mine.example/openai/v1", Some("k"))
        );
        let error = of("azure", &azure[1..], &azure[..1]).unwrap_err();
        assert!(error.to_string().contains("AZURE_OPENAI_ENDPOINT"), "{error}");
        let error = of("bedrock", &[("AWS_REGION", "eu-west-1")], &[]).unwrap_err();
        assert!(error.hint_text().unwrap().contains("AWS_BEARER_TOKEN_BEDROCK"), "{error}");
        let google = [("GOOGLE_CLOUD_LOCATION", "europe-west4"), ("GOOGLE_CLOUD_PROJECT", "p")];
        let command = of("vertex", &google, &[]).unwrap().key_command;
        assert!(matches!(command, Some(KeyCommand::Program(words)) if words[0] == "gcloud"));
        // A token of GitHub is in many environments for other reasons.
        assert!(choose(&Options::default(), &[("GITHUB_TOKEN", "t")], &[]).is_err());
        assert_eq!(of("github", &[("GITHUB_TOKEN", "t")], &[]).unwrap().key.as_deref(), Some("t"));
        assert!(
            choose(&Options::default(), &[("GITHUB_TOKEN", "t")], &[("AGENT_PROVIDER", "github")]).is_err()
        );
    }

    #[test]
    fn the_fallback_variables_work_alone() {
        let openai = choose(&Options::default(), &[("OPENAI_API_KEY", "k")], &[]).unwrap();
        assert_eq!((openai.key.as_deref(), openai.provider.map(|p| p.name)), (Some("k"), Some("openai")));
        let novita = choose(&Options::default(), &[("NOVITA_API_KEY", "k")], &[]).unwrap();
        assert_eq!((novita.key.as_deref(), novita.provider.map(|p| p.name)), (Some("k"), Some("novita")));
        let pairs =
            [("OPENAI_BASE_URL", "http://localhost:1/v1"), ("OPENAI_API_KEY", "k"), ("OPENAI_MODEL", "m")];
        let proxied = choose(&Options::default(), &pairs, &[]).unwrap();
        assert_eq!((proxied.key.as_deref(), proxied.model.as_deref()), (Some("k"), Some("m")));
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_dot_env() {
        let environment =
            [("AGENT_BASE_URL", "http://env.example"), ("AGENT_API_KEY", "k"), ("AGENT_MODEL", "m")];
        let dot_env = [("AGENT_BASE_URL", "http://dotenv.example"), ("AGENT_MODEL", "n")];
        let choice = choose(&Options::default(), &environment, &dot_env).unwrap();
        assert_eq!((choice.base_url.as_str(), choice.model.as_deref()), ("http://env.example", Some("m")));
        let choice = choose(&base_url("http://flag.example"), &environment, &dot_env).unwrap();
        assert_eq!(choice.base_url, "http://flag.example");
    }

    #[test]
    fn the_users_file_outranks_the_dot_env() {
        let dot_env = [("AGENT_BASE_URL", "http://evil.example/v1"), ("AGENT_API_KEY", "theirs")];
        let layers = Layers::from_values(values(&[]), values(&dot_env));
        let file = File {
            base_url: Some("http://mine.example/v1".to_owned()),
            api_key: Some("mine".to_owned()),
            ..File::default()
        };
        let choice = choose_endpoint(&Options::default(), &layers, &file).unwrap();
        assert_eq!(
            (choice.base_url.as_str(), choice.key.as_deref()),
            ("http://mine.example/v1", Some("mine"))
        );
        assert_eq!(choice.warning, None);
        assert!(choice.notices[0].contains("AGENT_BASE_URL in .env is ignored"), "{:?}", choice.notices);
        let choice = choose_endpoint(&Options::default(), &layers, &File::default()).unwrap();
        assert!(choice.warning.is_some_and(|text| text.contains("http://evil.example/v1 was chosen by")));
    }

    #[test]
    fn a_missing_endpoint_is_reported_with_a_hint() {
        let error = choose(&Options::default(), &[], &[]).expect_err("nothing is configured");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("agent demo")));
    }
}
