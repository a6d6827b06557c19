//! What a session's gateway refused: for the model beside a tool's output, for the user at the end, and for the events.

use super::registries::REGISTRIES;
use agent_base::lock::Lock;
use agent_event::Event;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Refusals that are kept for the model.
const MAX_REFUSALS: usize = 10;
/// Different refusals that get a `denied` event each; a notice says that there are more. Every connection gets its own event
/// in any case.
const MAX_DENIALS: usize = 100;
/// Messages of programs that cannot reach a host because the sandbox has no network.
const NO_NETWORK: [&str; 5] = [
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "Name or service not known",
    "getaddrinfo EAI_AGAIN",
];

/// Refusals and failures for lack of a network, each said or counted once.
#[derive(Default)]
pub struct Refusals {
    for_model: Lock<Vec<String>>,
    reported_limits: Lock<HashSet<&'static str>>,
    /// Targets and reasons that have had their `denied` event.
    reported_denials: Lock<HashSet<String>>,
    /// Outputs of programs that failed because the sandbox has no network, and those of them that name a package registry.
    without_network: AtomicU64,
    without_registry: AtomicU64,
    /// Refused connections to package registries.
    registries: AtomicU64,
}

/// Returns whether a program says in its output that it cannot reach a host.
pub fn names_missing_network(output: &str) -> bool {
    NO_NETWORK.iter().any(|message| output.contains(message))
}

impl Refusals {
    /// Takes what was refused since the last call, as a note for the model.
    pub fn take(&self) -> Option<String> {
        let refused = std::mem::take(&mut *self.for_model.lock());
        (!refused.is_empty()).then(|| format!("[the network refused: {}]", refused.join("; ")))
    }

    /// Counts the output of a program that failed because there is no network.
    pub fn count_missing_network(&self, output: &str) {
        self.without_network.fetch_add(1, Relaxed);
        if REGISTRIES.iter().any(|host| output.contains(host)) {
            self.without_registry.fetch_add(1, Relaxed);
        }
    }

    /// Counts a refused connection to a package registry.
    pub fn count_registry(&self) {
        self.registries.fetch_add(1, Relaxed);
    }

    /// Returns whether a limit is reached for the first time.
    pub fn is_new_limit(&self, limit: &'static str) -> bool {
        self.reported_limits.lock().insert(limit)
    }

    /// Keeps a refusal for the model, and returns the `denied` event for the first of its kind: programs try again and again.
    pub fn denied(&self, verb: &str, target: &str, reason: &str) -> Option<Event> {
        let refusal = format!("{target} ({reason})");
        let mut kept = self.for_model.lock();
        if kept.len() < MAX_REFUSALS && !kept.contains(&refusal) {
            kept.push(refusal.clone());
        }
        drop(kept);
        let mut reported = self.reported_denials.lock();
        if reported.len() > MAX_DENIALS || !reported.insert(refusal) {
            return None;
        }
        Some(match reported.len() > MAX_DENIALS {
            false => Event::Denied { what: format!("{verb}{target}"), rule: reason.to_owned() },
            true => Event::Notice {
                text: format!(
                    "the network refused more than {MAX_DENIALS} targets; further ones appear only as connection events"
                ),
            },
        })
    }

    /// Returns what needed a network and had none, and how `command` allows it.
    pub fn missed(&self, command: &str, remedy: &str) -> Option<String> {
        let counted = |count: u64, one: &str, more: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {more}"),
        };
        let (refused, registry, without) = (
            self.registries.load(Relaxed),
            self.without_registry.load(Relaxed),
            self.without_network.load(Relaxed),
        );
        if refused > 0 {
            let was = counted(
                refused,
                "connection to a package registry was refused",
                "connections to a package registry were refused",
            );
            return Some(format!("{was}; {command} registries allows them"));
        }
        if registry > 0 {
            let was =
                counted(registry, "command needs a package registry", "commands need a package registry");
            return Some(format!("{was} and the sandbox has none: {command} registries allows it"));
        }
        let was = counted(without, "command needs a network", "commands need a network");
        (without > 0).then(|| format!("{was} and the sandbox has none: {remedy}"))
    }
}
