//! How the choices of the library are written on the command line: below `cli` nothing knows clap.

use crate::approval::Approve;
use crate::sandbox::{KINDS, SandboxChoice};
use crate::workspace::Mode;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use std::sync::LazyLock;

impl ValueEnum for Approve {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Never, Self::Risky, Self::Always]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Never => PossibleValue::new("never").help("The sandbox is the protection"),
            Self::Risky => PossibleValue::new("risky").help("Where a policy rule says `ask`"),
            Self::Always => PossibleValue::new("always").help("Before every command and every write"),
        })
    }
}

impl ValueEnum for SandboxChoice {
    fn value_variants<'a>() -> &'a [Self] {
        static CHOICES: LazyLock<Vec<SandboxChoice>> = LazyLock::new(|| {
            let named = KINDS.iter().map(|kind| SandboxChoice::Named(kind.name));
            [SandboxChoice::Auto].into_iter().chain(named).collect()
        });
        &CHOICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Auto => {
                Some(PossibleValue::new(Self::AUTO).help("Docker if its engine answers, else local"))
            }
            Self::Named(name) => {
                let kind = KINDS.iter().find(|kind| kind.name == *name)?;
                Some(PossibleValue::new(kind.name).help(kind.about))
            }
        }
    }
}

impl ValueEnum for Mode {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Auto, Self::Copy, Self::Overlay, Self::Bind]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Auto => {
                PossibleValue::new("auto").help("Overlay for a large tree where it works, else copy")
            }
            Self::Copy => PossibleValue::new("copy").help("Every file is copied into the sandbox"),
            Self::Overlay => PossibleValue::new("overlay")
                .help("The directory read-only underneath, writes in a layer of the sandbox"),
            Self::Bind => PossibleValue::new("bind").help("The sandbox writes directly into the directory"),
        })
    }
}
