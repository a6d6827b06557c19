//! `[sandbox.NAME]` of `config.toml`: keys and addresses of sandbox providers.
//!
//! The rule is that of model endpoints: who names the place names the key. The environment is above the file, but where
//! the file alone says where a provider is, its key goes there before one of the environment.

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::sandbox::cloud::{ProviderSetting, SETTINGS};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// The settings of each provider in the file.
pub type Providers = BTreeMap<String, BTreeMap<String, String>>;

/// The machine with what the file says.
pub fn with_providers(machine: Machine, providers: &Providers) -> Machine {
    let from_file: Vec<_> =
        SETTINGS.iter().filter_map(|setting| chosen(setting, &machine, providers)).collect();
    machine.with(from_file)
}

/// Refuses what no provider has.
///
/// # Errors
/// `Config`, with the settings that there are.
pub fn check(providers: &Providers) -> Result<()> {
    for (provider, settings) in providers {
        let known: Vec<&str> =
            SETTINGS.iter().filter(|known| known.provider == provider).map(|known| known.name).collect();
        if known.is_empty() {
            let mut names: Vec<&str> = SETTINGS.iter().map(|known| known.provider).collect();
            names.dedup();
            let message = format!("[sandbox.{}] in config.toml: unknown provider", provider.escape_debug());
            return Err(Error::config(message).hint(format!("known: {}", names.join(", "))));
        }
        if let Some(unknown) = settings.keys().find(|name| !known.contains(&name.as_str())) {
            let message =
                format!("[sandbox.{provider}] in config.toml: unknown setting {}", unknown.escape_debug());
            return Err(Error::config(message).hint(format!("known: {}", known.join(", "))));
        }
    }
    Ok(())
}

/// The variable of a setting and its value, where the file's counts.
fn chosen(
    setting: &ProviderSetting,
    machine: &Machine,
    providers: &Providers,
) -> Option<(OsString, OsString)> {
    let said = providers.get(setting.provider)?;
    let value = said.get(setting.name).map(|value| value.trim()).filter(|value| !value.is_empty())?;
    let is_set = |known: &ProviderSetting| match known.is_key() {
        true => machine.credential(known.variable).is_some(),
        false => machine.text(known.variable).is_some_and(|text| !text.trim().is_empty()),
    };
    let of_provider = || SETTINGS.iter().filter(|known| known.provider == setting.provider);
    let places = || of_provider().filter(|known| known.is_place());
    let environment_names_place = places().any(is_set);
    let file_names_place = places().any(|place| said.contains_key(place.name));
    let counts = match setting.is_key() {
        // A key that was named with a place goes nowhere else.
        true if file_names_place => !environment_names_place,
        // The parts of a key are of one source.
        true => !of_provider().filter(|known| known.is_key()).any(is_set),
        // A place is named by one source as a whole.
        _ if setting.is_place() => !environment_names_place,
        _ => !is_set(setting),
    };
    counts.then(|| (setting.variable.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::config::File;
    use secrecy::ExposeSecret;

    fn read(file: &str) -> Providers {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.toml"), file).unwrap();
        File::read_alone(directory.path()).unwrap().providers
    }

    fn machine(environment: &[(&str, &str)], file: &str) -> Machine {
        let providers = read(file);
        check(&providers).unwrap();
        let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        with_providers(Machine::new(environment), &providers)
    }

    fn key(machine: &Machine) -> Option<String> {
        machine.credential("E2B_API_KEY").map(|key| key.expose_secret().to_owned())
    }

    #[test]
    fn who_names_the_place_names_the_key() {
        let file = "[sandbox.e2b]\napi_key = \"of-file\"\n";
        assert_eq!(key(&machine(&[], file)).as_deref(), Some("of-file"));
        assert_eq!(
            key(&machine(&[("E2B_API_KEY", "of-environment")], file)).as_deref(),
            Some("of-environment")
        );
        let own = format!("{file}domain = \"own.example\"");
        let both = machine(&[("E2B_API_KEY", "of-environment")], &own);
        assert_eq!(key(&both).as_deref(), Some("of-file"));
        assert_eq!(both.text("E2B_DOMAIN").as_deref(), Some("own.example"));
        // The environment names another place, so nothing of the file's place is left.
        let elsewhere =
            machine(&[("E2B_API_KEY", "of-environment"), ("E2B_API_URL", "https://other.example")], &own);
        assert_eq!(key(&elsewhere).as_deref(), Some("of-environment"));
        assert_eq!(elsewhere.text("E2B_DOMAIN"), None);
        assert_eq!(key(&machine(&[("E2B_API_URL", "https://other.example")], &own)), None);
    }

    #[test]
    fn what_no_provider_has_is_refused_by_name() {
        let failed = |text: &str| check(&read(text)).unwrap_err().to_string();
        assert!(failed("[sandbox.e3b]\napi_key = \"x\"").contains("[sandbox.e3b]"));
        let error = failed("[sandbox.runloop]\ndomain = \"secret\"");
        assert!(error.ends_with("unknown setting domain"), "{error}");
    }
}
