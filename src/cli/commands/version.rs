//! `agent --version`: what this program is, and what it was built from.

use crate::cli::options::Options;
use crate::cli::print::print;
use crate::cli::ui::trace::Verbosity;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sandbox::bootstrap;
use serde_json::json;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const TARGET: &str = env!("AGENT_TARGET");
/// Empty in debug builds, and where the sources are of no repository.
const COMMIT: &str = env!("AGENT_COMMIT");

/// The features of the package, and whether this build has them.
const FEATURES: [(&str, bool); 5] = [
    ("kubernetes", cfg!(feature = "kubernetes")),
    ("modal", cfg!(feature = "modal")),
    ("policy", cfg!(feature = "policy")),
    ("telemetry", cfg!(feature = "telemetry")),
    ("vm", cfg!(feature = "vm")),
];

/// Prints the version; verbose, and as JSON, also what a report of a bug needs.
pub fn version(machine: &Machine, options: &Options) -> Result<ExitCode> {
    let line = format!("agent {VERSION}\n");
    if options.verbosity() != Verbosity::Verbose && !options.is_json() {
        return print(options, &line, &());
    }
    // A build without a guest is a build all the same.
    let guest = bootstrap::bytes(machine).ok().map(|guest| bootstrap::id(&guest));
    let commit = Some(COMMIT).filter(|commit| !commit.is_empty());
    let features: Vec<&str> = FEATURES.iter().filter_map(|(name, has)| has.then_some(*name)).collect();
    let text = format!(
        "{line}commit: {}\ntarget: {TARGET}\nfeatures: {}\nguest: {}\n",
        commit.unwrap_or("not recorded"),
        if features.is_empty() { "none".to_owned() } else { features.join(", ") },
        guest.as_deref().unwrap_or("none"),
    );
    let json = json!({
        "version": VERSION, "commit": commit, "target": TARGET, "features": features, "guest": guest,
    });
    print(options, &text, &json)
}
