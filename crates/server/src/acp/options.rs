//! The settings of a session that clients offer: when changes are written, the model, and what the sandbox may reach. The first
//! as a mode too, which is what older clients know.

use super::session::ApplyMode;
use agent_base::error::{Error, Result};
use agent_base::sanitise::one_line;
use agent_network::{Rules, entries};
use serde_json::{Value, json};

/// A value: its id, its name, what it means.
type OptionValue<'a> = (&'a str, &'a str, &'a str);

const ALL: [(ApplyMode, OptionValue<'static>); 3] = [
    (ApplyMode::Ask, ("ask", "Ask at the end", "Show one diff at the end of a turn and ask")),
    (
        ApplyMode::Auto,
        ("auto", "Apply at the end", "Write the changes of each turn to your files at its end"),
    ),
    (ApplyMode::Never, ("never", "Keep in the sandbox", "Write nothing until you say /apply")),
];

const NETWORKS: [OptionValue<'static>; 3] = [
    (NONE, "No network", "Nothing but the sandbox's own loopback"),
    ("registries", "Package registries", "The registries of the languages' package managers"),
    ("public", "Public hosts", "Every public host, and nothing of your own networks"),
];

/// The value for a sandbox without a network.
const NONE: &str = "none";
/// The value for the engine's ordinary network, which nothing here can change.
const FULL: &str = "full";

/// The ids of the settings.
pub const APPLY: &str = "apply";
pub const MODEL: &str = "model";
pub const NETWORK: &str = "network";

/// Models that are listed, and characters of a name that is shown.
const MAX_MODELS: usize = 200;
const SHOWN: usize = 100;

impl ApplyMode {
    /// Its id.
    pub fn id(self) -> &'static str {
        ALL.iter().find(|(mode, _)| *mode == self).map_or("ask", |(_, (id, ..))| id)
    }

    /// The mode with this id.
    pub fn parse(id: &str) -> Option<Self> {
        ALL.iter().find(|(_, (known, ..))| *known == id).map(|(mode, _)| *mode)
    }
}

/// The present settings of a session.
pub struct Current {
    /// The mode in which changes are written.
    pub apply: ApplyMode,
    /// The model.
    pub model: String,
    /// All that the endpoint offers, as far as that is known.
    pub models: Vec<String>,
    /// The hosts that the sandbox may reach; `None`: the engine's ordinary network.
    pub network: Option<Rules>,
    /// The network when the session was opened, in words.
    pub first_network: String,
}

impl Current {
    /// As clients offer them.
    pub fn list(&self) -> Value {
        json!([
            select(
                APPLY,
                "Apply",
                "mode",
                "When changes are written to your files",
                self.apply.id(),
                &modes()
            ),
            self.models(),
            self.networks(),
        ])
    }

    fn models(&self) -> Value {
        let others = self.models.iter().filter(|name| **name != self.model).take(MAX_MODELS);
        let names: Vec<(&str, String)> =
            std::iter::once(&self.model).chain(others).map(|name| (&**name, one_line(name, SHOWN))).collect();
        let choices: Vec<OptionValue<'_>> = names.iter().map(|(name, shown)| (*name, &**shown, "")).collect();
        select(MODEL, "Model", "model", "The model that works on your prompts", &self.model, &choices)
    }

    fn networks(&self) -> Value {
        let about = "What programs in the sandbox may connect to";
        let Some(rules) = &self.network else {
            let full = (FULL, "The engine's network", "Set by --network full, and not to be changed here");
            return select(NETWORK, "Network", "_network", about, FULL, &[full]);
        };
        let current = network_value(rules);
        let mut choices = NETWORKS.to_vec();
        for value in [self.first_network.as_str(), &current] {
            if !choices.iter().any(|(known, ..)| *known == value) {
                choices.push((value, value, "The hosts of --network and /network"));
            }
        }
        select(NETWORK, "Network", "_network", about, &current, &choices)
    }
}

/// The words for what `rules` allow.
pub fn network_value(rules: &Rules) -> String {
    match rules.allowed() {
        [] => NONE.to_owned(),
        allowed => allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}

/// Allows what a value of the setting says and nothing else. Denied hosts stay denied.
pub fn set_network(rules: &mut Rules, value: &str) -> Result<()> {
    let allowed = match value {
        NONE => Vec::new(),
        FULL => return Err(Error::usage("the engine's network cannot be chosen in a session")),
        hosts => entries(hosts)?,
    };
    let mut changed = Rules::new(allowed);
    rules.denied().iter().for_each(|entry| changed.deny(entry.clone()));
    *rules = changed;
    Ok(())
}

fn modes() -> Vec<OptionValue<'static>> {
    ALL.iter().map(|(_, choice)| *choice).collect()
}

fn select(
    id: &str,
    name: &str,
    category: &str,
    about: &str,
    current: &str,
    choices: &[OptionValue<'_>],
) -> Value {
    let choice = |(value, name, about): &OptionValue<'_>| match about.is_empty() {
        true => json!({ "value": value, "name": name }),
        false => json!({ "value": value, "name": name, "description": about }),
    };
    json!({
        "type": "select", "id": id, "name": name, "category": category, "description": about,
        "currentValue": current, "options": choices.iter().map(choice).collect::<Vec<_>>(),
    })
}

/// Returns the modes in which changes are written, and the current one, as the protocol has modes.
pub fn mode_state(current: ApplyMode) -> Value {
    let mode = |(id, name, about): &OptionValue<'_>| json!({ "id": id, "name": name, "description": about });
    json!({ "currentModeId": current.id(), "availableModes": modes().iter().map(mode).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(network: Option<Rules>) -> Current {
        Current {
            apply: ApplyMode::Ask,
            model: "two".to_owned(),
            models: vec!["one".to_owned(), "two".to_owned()],
            network,
            first_network: "example.org".to_owned(),
        }
    }

    fn values(option: &Value) -> Vec<&str> {
        let options = option["options"].as_array().unwrap();
        options.iter().map(|option| option["value"].as_str().unwrap()).collect()
    }

    #[test]
    fn the_current_value_of_every_setting_is_among_its_options() {
        let other = Rules::parse("example.com,!pypi.org").unwrap();
        for network in [None, Some(Rules::default()), Some(other)] {
            for option in current(network).list().as_array().unwrap() {
                assert!(values(option).contains(&option["currentValue"].as_str().unwrap()), "{option}");
            }
        }
    }

    #[test]
    fn a_chosen_network_replaces_what_was_allowed_and_keeps_what_is_denied() {
        let mut rules = Rules::parse("example.com,!pypi.org").unwrap();
        set_network(&mut rules, "registries").unwrap();
        assert_eq!(rules.words(), ["registries", "!pypi.org"]);
        set_network(&mut rules, "none").unwrap();
        assert_eq!((rules.words(), network_value(&rules)), (vec!["!pypi.org".to_owned()], "none".to_owned()));
        for wrong in ["full", "", "http://x y"] {
            assert!(set_network(&mut rules, wrong).is_err(), "{wrong}");
        }
    }
}
