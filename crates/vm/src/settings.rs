//! `[sandbox.vm]` of the user's file.

use agent_base::machine::Machine;
use serde::Deserialize;
use std::path::PathBuf;

/// The user's settings about virtual machines. Everything has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The kernel, instead of the newest of this machine's.
    pub kernel: Option<PathBuf>,
    /// The directory of that kernel's modules, instead of `/lib/modules/VERSION`.
    pub modules: Option<PathBuf>,
    /// The board, instead of `microvm`, or `q35` where QEMU has no other.
    pub board: Option<Board>,
    /// Where kernels and images are kept, instead of `vm` in the cache directory: they take as much space as `/usr` does.
    pub cache: Option<PathBuf>,
    /// The seconds that a machine may take to boot (default: 60, or 180 where the processor is emulated).
    pub boot_timeout: Option<u32>,
}

/// A board that QEMU emulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Board {
    /// Nothing but what a virtual machine needs: it boots soonest.
    Microvm,
    /// A PC with PCI Express.
    Q35,
}

impl Settings {
    /// Returns what the user of `machine` set.
    pub fn of(machine: &Machine) -> Self {
        machine.kept::<Self>().as_deref().cloned().unwrap_or_default()
    }

    /// Keeps them with `machine`, for the next backend that connects.
    pub fn keep(self, machine: &Machine) {
        machine.keep(self);
    }
}
