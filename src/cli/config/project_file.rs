//! `.agent/config.toml` of a project: what it may say of its sandboxes, none of which widens anything.

use super::dev_container::{is_image, is_variable};
use super::project::{NAME, ProjectSettings, Request, Source, read_file};
use super::project_setup::{self, SetupOptions};
use crate::approval::policy::Rules;
use crate::error::{Error, Result};
use crate::sanitise::one_line;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// Entries of a list or table that are taken at most.
const MAX_ENTRIES: usize = 100;
/// The keys that have an effect; of `[workspace]` those after them.
const KEYS: [&str; 4] = ["image", "env", "policy", "workspace"];
const WORKSPACE_KEYS: [&str; 2] = ["setup", "exclude"];
const POLICY_KEYS: [&str; 2] = ["deny", "ask"];

/// The keys of the file that have an effect.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProjectFile {
    image: Option<String>,
    env: BTreeMap<String, String>,
    policy: Rules,
    workspace: ProjectWorkspace,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProjectWorkspace {
    setup: Option<SetupOptions>,
    exclude: Vec<String>,
}

/// Reads the request of the file of the project in `root`, and the part of its content that makes it; `None` where there
/// is none.
///
/// # Errors
/// It cannot be read, or a value is of no use.
pub(super) fn read(root: &Path) -> Result<Option<(Request, Vec<u8>)>> {
    let Some(bytes) = read_file(&root.join(NAME), MAX_BYTES)? else { return Ok(None) };
    let invalid = |error: toml::de::Error| Error::config(one_line(&error.to_string(), 300));
    let mut table: Table = toml::from_slice(&bytes).map_err(invalid)?;
    let remarks = take_others(&mut table);
    if table.is_empty() {
        return Ok(None);
    }
    let content = serde_json::to_vec(&table).unwrap_or(bytes);
    let file: ProjectFile = table.try_into().map_err(invalid)?;
    if let Some(image) = file.image.as_ref().filter(|image| !is_image(image)) {
        return Err(Error::config(format!("image: {} is not the name of an image", one_line(image, 100))));
    }
    if let Some((name, _)) = file.env.iter().find(|(name, value)| !is_variable(name, value)) {
        return Err(Error::config(format!(
            "[env] {}: not the name and value of a variable",
            one_line(name, 60)
        )));
    }
    let settings = ProjectSettings {
        setup: file.workspace.setup.as_ref().map(project_setup::setup).transpose()?,
        image: file.image,
        env: file.env.into_iter().take(MAX_ENTRIES).collect(),
        exclude: file.workspace.exclude.into_iter().take(MAX_ENTRIES).collect(),
        rules: file.policy,
    };
    let request = Request { source: Source::Project, settings, remarks };
    Ok((!request.is_empty()).then_some((request, content)))
}

/// Takes out what has no effect in a project's file, and returns a remark for each key.
fn take_others(table: &mut Table) -> Vec<String> {
    let mut others = keep(table, &KEYS, "");
    if let Some(Value::Table(policy)) = table.get_mut("policy") {
        others.extend(keep(policy, &POLICY_KEYS, "policy."));
        if policy.is_empty() {
            table.remove("policy");
        }
    }
    if let Some(Value::Table(workspace)) = table.get_mut("workspace") {
        others.extend(keep(workspace, &WORKSPACE_KEYS, "workspace."));
        if workspace.is_empty() {
            table.remove("workspace");
        }
    }
    let remark = |key: &String| format!("{key}: only your own config.toml sets it");
    others.iter().take(MAX_ENTRIES).map(remark).collect()
}

/// Removes all but these keys from the table, and returns the names of the others.
fn keep(table: &mut Table, keys: &[&str], prefix: &str) -> Vec<String> {
    let others: Vec<String> = table.keys().filter(|key| !keys.contains(&key.as_str())).cloned().collect();
    others.iter().for_each(|key| drop(table.remove(key)));
    others.iter().map(|key| format!("{prefix}{}", one_line(key, 60))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Request>> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join(".agent")).unwrap();
        std::fs::write(root.path().join(NAME), text).unwrap();
        Ok(read(root.path())?.map(|(request, _)| request))
    }

    #[test]
    fn what_cannot_widen_anything_is_read_and_the_rest_is_named() {
        let text = "image = 'python:3.12'\nnetwork = 'full'\nmodel = 'x'\n[env]\nCI = '1'\n[workspace]\n\
             exclude = ['*.bin']\ninclude = ['.env']\n[policy.deny.publishing]\ncommands = ['npm publish']\n\
             [policy.allow.all]\ncommands = ['sh']\n";
        let request = of(text).unwrap().unwrap();
        assert_eq!(request.settings.image.as_deref(), Some("python:3.12"));
        assert_eq!((request.settings.env.len(), request.settings.exclude), (1, vec!["*.bin".to_owned()]));
        assert!(request.settings.rules.deny.contains_key("publishing"));
        let named: Vec<&str> = request.remarks.iter().filter_map(|remark| remark.split(':').next()).collect();
        assert_eq!(named, ["model", "network", "policy.allow", "workspace.include"]);
        assert_eq!(of("network = 'full'\n[workspace]\ninclude = ['.env']").unwrap(), None);
    }

    #[test]
    fn what_is_of_no_use_is_an_error() {
        for text in [
            "image = '--privileged'",
            "[env]\n'A=B' = '1'",
            "image = 1",
            "[policy.deny.x]\ncomands = []",
            "[",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
