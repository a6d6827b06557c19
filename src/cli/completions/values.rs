//! The values that options and arguments can have, as far as this machine's files tell.

use super::models::offered;
use crate::cli::config::{File, Layers};
use crate::cli::machine;
use crate::cli::options::Options;
use crate::demo::TASKS;
use crate::log::Store;
use crate::model::providers;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;

/// Sessions that are offered: the newest that begin with what was typed.
const MAX_SESSIONS: usize = 50;

/// Ids of sessions, the newest first, with their first prompts.
pub fn sessions() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let (Some(typed), Ok(store)) = (typed.to_str(), Store::open(&machine())) else { return Vec::new() };
        let recent = store.recent(typed, MAX_SESSIONS).unwrap_or_default();
        recent.iter().map(|(id, prompt)| candidate(id.as_str(), prompt)).collect()
    })
}

/// A session, or a file.
pub fn sessions_or_files() -> ArgValueCompleter {
    let (sessions, files) = (sessions(), PathCompleter::file());
    ArgValueCompleter::new(move |typed: &OsStr| {
        sessions.complete(typed).into_iter().chain(files.complete(typed)).collect()
    })
}

/// Models: of `config.toml`, of the endpoints that were asked before, and what providers take by default.
pub fn models() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let mut models: BTreeMap<String, String> = BTreeMap::new();
        for provider in providers::ALL {
            models.extend(provider.default_model.map(|model| (model.to_owned(), provider.name.to_owned())));
        }
        for (base_url, names) in offered() {
            models.extend(names.into_iter().map(|name| (name, base_url.clone())));
        }
        // What is wrong in the file is reported by every other command.
        let file = machine()
            .config_dir()
            .and_then(|directory| File::read(&directory, &Layers::default(), &Options::default()))
            .unwrap_or_default();
        let configured =
            file.context.into_keys().chain(file.models.into_keys()).chain(file.prices.into_keys());
        models.extend(file.model.into_iter().chain(configured).map(|name| (name, "config.toml".to_owned())));
        models.iter().filter(|(name, _)| is_plain(name)).map(|(name, from)| candidate(name, from)).collect()
    })
}

/// The well-known providers.
pub fn providers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        providers::ALL.iter().map(|provider| candidate(provider.name, provider.base_url)).collect()
    })
}

/// What `--network` takes: after a comma, one more entry of the list.
pub fn networks() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let typed = typed.to_str().unwrap_or_default();
        let (before, last) = typed.rfind(',').map_or(("", typed), |comma| typed.split_at(comma + 1));
        let alone = [("none", "Only loopback"), ("full", "The engine's ordinary network")];
        let listed = [("registries", "Where package managers get packages"), ("public", "Every public host")];
        let alone = alone.into_iter().filter(|_| before.is_empty());
        let words = alone.chain(listed).filter(|(word, _)| word.starts_with(last));
        words.map(|(word, help)| candidate(&format!("{before}{word}"), help)).collect()
    })
}

/// The recorded tasks.
pub fn demo_tasks() -> ArgValueCandidates {
    ArgValueCandidates::new(|| TASKS.iter().map(|task| CompletionCandidate::new(task.name)).collect())
}

fn candidate(value: &str, help: &str) -> CompletionCandidate {
    let help = (!help.is_empty()).then(|| crate::sanitise::one_line(help, 60).into());
    CompletionCandidate::new(value).help(help)
}

/// Whether a name can be inserted into a command line without quotes. An endpoint may offer `$(reboot)`, and shells insert
/// what is offered as it is.
fn is_plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/@+".contains(&byte);
    !name.is_empty() && name.len() <= 200 && !name.starts_with('-') && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn names_that_a_shell_would_interpret_are_not_offered() {
        for name in ["qwen3:8b", "meta-llama/Llama-3.1-8B@q4", "gpt-5.1"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "$(reboot)", "a b", "a;b", "-x", "`a`", "a\nb", "a'b", "\u{202e}a"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
