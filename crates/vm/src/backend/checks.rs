//! The facts about virtual machines for `agent doctor`.

use super::host::{Accelerator, Host};
use crate::settings::Board;
use agent_base::error::Result;
use agent_base::machine::Machine;

/// The findings about what machines would be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checks {
    /// QEMU, the kernel and how the processor comes to be, in a sentence.
    pub found: String,
    /// Set if the processor is emulated, and what would help.
    pub is_slow: Option<String>,
}

/// Looks for what machines need.
///
/// # Errors
/// `Config`: what is missing, and what installs it.
pub fn checks(machine: &Machine) -> Result<Checks> {
    let host = Host::find(machine)?;
    let (processor, is_slow) = match &host.accelerator {
        Accelerator::Kvm { .. } => ("with KVM".to_owned(), None),
        Accelerator::Emulated(why) => (
            format!("the processor is emulated, which is some 10 to 30 times slower ({why})"),
            Some(
                "a machine with /dev/kvm, and this user in the group kvm: sudo usermod -aG kvm $USER"
                    .to_owned(),
            ),
        ),
    };
    let board = match host.board {
        Board::Microvm => "microvm",
        Board::Q35 => "q35",
    };
    let found = format!("{} ({board}), kernel {}; {processor}", host.qemu.display(), host.kernel.display());
    Ok(Checks { found, is_slow })
}
