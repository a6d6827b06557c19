//! How the choices of the library are written on the command line: nothing else knows clap.

use crate::approval::Approve;
use crate::backends::{KINDS, SandboxChoice};
use crate::cli::ui::pictures::Images;
use crate::workspace::Mode;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Returns the parser for the values of `--approve`: when the user is asked before a tool runs.
pub fn approve() -> impl TypedValueParser<Value = Approve> {
    one_of(vec![
        (Approve::Never, "never", "The sandbox is the protection"),
        (Approve::Risky, "risky", "Where a policy rule says `ask`"),
        (Approve::Always, "always", "Before every command and every write"),
    ])
}

/// Returns the parser for the values of `--sandbox`.
pub fn sandbox() -> impl TypedValueParser<Value = SandboxChoice> {
    let auto = (SandboxChoice::Auto, SandboxChoice::AUTO, "Docker if its engine answers, else local");
    let kinds = KINDS.iter().map(|kind| (SandboxChoice::Named(kind.name), kind.name, kind.about));
    one_of([auto].into_iter().chain(kinds).collect())
}

/// Returns the parser for the values of `--workspace-mode`.
pub fn workspace_mode() -> impl TypedValueParser<Value = Mode> {
    one_of(vec![
        (Mode::Auto, "auto", "Overlay for a large tree where it works, else copy"),
        (Mode::Copy, "copy", "Every file is copied into the sandbox"),
        (Mode::Overlay, "overlay", "The directory read-only underneath, writes in a layer of the sandbox"),
        (Mode::Bind, "bind", "The sandbox writes directly into the directory"),
    ])
}

/// Returns the parser for the values of `--images`: when pictures are drawn.
pub fn images() -> impl TypedValueParser<Value = Images> {
    one_of(vec![
        (Images::Auto, "auto", "In a terminal, as well as it can"),
        (Images::Always, "always", "Also where the output is not a terminal"),
        (Images::Never, "never", "Only a line with the file"),
    ])
}

/// Values with their names and what they mean.
fn one_of<T: Copy + Send + Sync + 'static>(
    choices: Vec<(T, &'static str, &'static str)>,
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|(_, name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).try_map(move |given| {
        let known = choices.iter().find(|(_, name, _)| *name == given);
        known.map(|(value, ..)| *value).ok_or("it is not one of the possible values")
    })
}
