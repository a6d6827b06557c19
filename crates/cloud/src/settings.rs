//! The user's settings of a provider: each setting of `config.toml` has the provider's own variable.

/// A setting of a provider.
pub struct ProviderSetting {
    /// The backend's name.
    pub provider: &'static str,
    /// The setting's name: that of a key, or of what says where the provider is.
    pub name: &'static str,
    /// The variable of the same meaning.
    pub variable: &'static str,
}

/// The name of a setting that is a key, of most providers; Modal has two.
const API_KEY: &str = "api_key";
const KEYS: [&str; 3] = [API_KEY, "token_id", "token_secret"];

const fn setting(provider: &'static str, name: &'static str, variable: &'static str) -> ProviderSetting {
    ProviderSetting { provider, name, variable }
}

/// All settings.
pub static SETTINGS: [ProviderSetting; 17] = [
    setting("e2b", API_KEY, "E2B_API_KEY"),
    setting("e2b", "domain", "E2B_DOMAIN"),
    setting("e2b", "api_url", "E2B_API_URL"),
    setting("e2b", "sandbox_url", "E2B_SANDBOX_URL"),
    setting("novita", API_KEY, "NOVITA_API_KEY"),
    setting("novita", "domain", "NOVITA_DOMAIN"),
    setting("novita", "api_url", "NOVITA_API_URL"),
    setting("novita", "sandbox_url", "NOVITA_SANDBOX_URL"),
    setting("daytona", API_KEY, "DAYTONA_API_KEY"),
    setting("daytona", "api_url", "DAYTONA_API_URL"),
    setting("daytona", "target", "DAYTONA_TARGET"),
    setting("runloop", API_KEY, "RUNLOOP_API_KEY"),
    setting("runloop", "api_url", "RUNLOOP_BASE_URL"),
    setting("modal", "token_id", "MODAL_TOKEN_ID"),
    setting("modal", "token_secret", "MODAL_TOKEN_SECRET"),
    setting("modal", "server_url", "MODAL_SERVER_URL"),
    setting("modal", "environment", "MODAL_ENVIRONMENT"),
];

impl ProviderSetting {
    /// Returns whether it names a place that gets the key.
    pub fn is_place(&self) -> bool {
        !self.is_key() && !matches!(self.name, "target" | "environment")
    }

    /// Returns whether it is a key, or a part of one.
    pub fn is_key(&self) -> bool {
        KEYS.contains(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_base::machine::Machine;

    #[test]
    fn every_variable_is_one_that_a_machine_keeps() {
        let machine = Machine::new(SETTINGS.iter().map(|setting| (setting.variable.into(), "x".into())));
        for setting in &SETTINGS {
            let is_key = setting.is_key();
            assert_eq!(machine.credential(setting.variable).is_some(), is_key, "{}", setting.variable);
            assert_eq!(machine.text(setting.variable).is_some(), !is_key, "{}", setting.variable);
        }
    }
}
