//! Every setting as it is in force, and where it comes from, for `agent config show`.

use super::layers::{File, Layers, SETTINGS, SettingSource, file_table, variable};
use crate::cli::options::Options;
use crate::error::Result;
use crate::sanitise::one_line;
use serde::Serialize;
use std::path::Path;
use toml::Value;

/// Characters of a value.
const MAX_VALUE: usize = 200;
/// Values in these tables may be secret, or name programs with secrets among their arguments.
const HIDDEN: [&str; 5] = ["env", "mcp", "models", "sandbox", "telemetry"];

/// A setting and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownSetting {
    /// The key, with those of its tables.
    pub key: String,
    /// The value; a default in words.
    pub value: String,
    /// The variable, the file, or `default`.
    pub from: String,
}

/// The settings of the endpoint, whose key is not shown.
const ENDPOINT: [&str; 4] = ["model", "base_url", "api_key", "provider"];
/// The defaults of the settings, in the reference's words.
const DEFAULTS: [(&str, &str); 27] = [
    ("model", "the provider's, or the only one that the endpoint offers"),
    ("base_url", "that of provider, or of the provider whose key is set"),
    ("api_key", "none"),
    ("api_key_command", "none"),
    ("provider", "none"),
    ("protocol", "the provider's"),
    ("sandbox", "auto"),
    ("image", "host"),
    ("runtime", "the engine's"),
    ("network", "none"),
    ("memory", "2g"),
    ("cpus", "2"),
    ("pids", "512"),
    ("disk", "10g"),
    ("timeout", "120s"),
    ("max_turns", "100"),
    ("max_tokens_total", "none"),
    ("max_cost", "none"),
    ("max_time", "none"),
    ("approve", "never"),
    ("assist", "small models"),
    ("delegate", "false"),
    ("output_chars", "30000"),
    ("redact_secrets", "true"),
    ("max_answer_tokens", "the endpoint's"),
    ("temperature", "the endpoint's"),
    ("compaction", "true"),
];

/// All settings with a variable, then what the file's tables set.
///
/// # Errors
/// The file or a variable is not valid.
pub fn shown(directory: &Path, layers: &Layers) -> Result<Vec<ShownSetting>> {
    // Reports what is wrong with them.
    File::read(directory, layers, &Options::default())?;
    let path = directory.join("config.toml");
    let table = file_table(&path)?;
    let in_file = path.display().to_string();
    let mut all = Vec::new();
    for name in ENDPOINT.iter().chain(SETTINGS) {
        let hide = |value: String| if *name == "api_key" { "(set)".to_owned() } else { value };
        let variable = variable(name);
        let environment = layers.get_from(&variable, SettingSource::Environment);
        let dot_env = layers.get_from(&variable, SettingSource::DotEnv).filter(|_| ENDPOINT.contains(name));
        let set = table.get(*name).filter(|value| !value.is_table());
        let (value, from) = match (environment, set, dot_env) {
            (Some(setting), ..) => (hide(setting.value), format!("the variable {variable}")),
            (None, Some(value), _) => (hide(text(value)), in_file.clone()),
            (None, None, Some(setting)) => (hide(setting.value), format!("{variable} in .env")),
            (None, None, None) => {
                let default = DEFAULTS.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
                (default.to_owned(), "default".to_owned())
            }
        };
        all.push(ShownSetting { key: (*name).to_owned(), value: one_line(&value, MAX_VALUE), from });
    }
    let is_other =
        |key: &str, value: &Value| value.is_table() || !SETTINGS.contains(&key) && !ENDPOINT.contains(&key);
    for (key, value) in table.iter().filter(|(key, value)| is_other(key, value)) {
        add_leaves(&mut all, key, value, HIDDEN.contains(&key.as_str()), &in_file);
    }
    Ok(all)
}

fn add_leaves(all: &mut Vec<ShownSetting>, key: &str, value: &Value, is_hidden: bool, from: &str) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            for (inner, value) in table {
                add_leaves(all, &format!("{key}.{inner}"), value, is_hidden, from);
            }
        }
        value => {
            let value = if is_hidden { "(set)".to_owned() } else { one_line(&text(value), MAX_VALUE) };
            all.push(ShownSetting { key: one_line(key, MAX_VALUE), value, from: from.to_owned() });
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| serde_json::json!(value).to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn the_defaults_are_those_of_the_reference() {
        let reference = include_str!("../../../docs/reference/configuration.md");
        let known: BTreeSet<&str> = ENDPOINT.iter().chain(SETTINGS).copied().collect();
        assert_eq!(known, DEFAULTS.iter().map(|(name, _)| *name).collect());
        for (name, default) in DEFAULTS {
            let begin = format!("| `{name}` | `{}` | ", variable(name));
            let row = reference.lines().find_map(|line| line.strip_prefix(&begin)).expect("a row");
            let column = row.split(" | ").next().unwrap().trim_end_matches(" |").replace('`', "");
            assert_eq!(column, default, "{name}");
        }
    }

    #[test]
    fn each_value_has_its_source_and_no_secret_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let text =
            "memory = '1g'\ncpus = 3\napi_key = 'sk-abc'\n[env]\nTOKEN = 'hidden'\n[ui]\ntitle = false\n";
        std::fs::write(directory.path().join("config.toml"), text).unwrap();
        let variables = BTreeMap::from([("AGENT_CPUS".to_owned(), "4".to_owned())]);
        let layers = Layers::from_values(variables, BTreeMap::new());
        let all = shown(directory.path(), &layers).unwrap();
        let of = |key: &str| all.iter().find(|setting| setting.key == key).unwrap().clone();
        assert!(of("memory").value == "1g" && of("memory").from.ends_with("config.toml"));
        assert_eq!((of("cpus").value, of("cpus").from), ("4".into(), "the variable AGENT_CPUS".into()));
        assert_eq!((of("disk").value, of("disk").from), ("10g".into(), "default".into()));
        assert_eq!((of("env.TOKEN").value, of("ui.title").value), ("(set)".into(), "false".into()));
        assert_eq!(of("api_key").value, "(set)");
    }
}
