//! How the choices of the library are written on the command line: below `cli` nothing knows clap.

use crate::approval::Approve;
use crate::backends::{KINDS, SandboxChoice};
use crate::workspace::Mode;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// `--approve`.
pub fn approve() -> impl TypedValueParser<Value = Approve> {
    choices([
        (Approve::Never, PossibleValue::new("never").help("The sandbox is the protection")),
        (Approve::Risky, PossibleValue::new("risky").help("Where a policy rule says `ask`")),
        (Approve::Always, PossibleValue::new("always").help("Before every command and every write")),
    ])
}

/// `--sandbox`.
pub fn sandbox() -> impl TypedValueParser<Value = SandboxChoice> {
    let auto = PossibleValue::new(SandboxChoice::AUTO).help("Docker if its engine answers, else local");
    let named = KINDS
        .iter()
        .map(|kind| (SandboxChoice::Named(kind.name), PossibleValue::new(kind.name).help(kind.about)));
    choices([(SandboxChoice::Auto, auto)].into_iter().chain(named))
}

/// `--workspace-mode`.
pub fn workspace_mode() -> impl TypedValueParser<Value = Mode> {
    let value = PossibleValue::new;
    choices([
        (Mode::Auto, value("auto").help("Overlay for a large tree where it works, else copy")),
        (Mode::Copy, value("copy").help("Every file is copied into the sandbox")),
        (
            Mode::Overlay,
            value("overlay").help("The directory read-only underneath, writes in a layer of the sandbox"),
        ),
        (Mode::Bind, value("bind").help("The sandbox writes directly into the directory")),
    ])
}

/// A parser that takes the names of `choices` alone.
fn choices<T: Copy + Send + Sync + 'static>(
    choices: impl IntoIterator<Item = (T, PossibleValue)>,
) -> impl TypedValueParser<Value = T> {
    let choices: Vec<_> = choices.into_iter().collect();
    let names: Vec<PossibleValue> = choices.iter().map(|(_, name)| name.clone()).collect();
    PossibleValuesParser::new(names).map(move |name| {
        let chosen = choices.iter().find(|(_, known)| known.get_name() == name);
        chosen.expect("clap has compared it with these names").0
    })
}
