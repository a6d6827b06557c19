//! Pausing to disk: the keeper writes the machine's memory to a file and ends QEMU, and starts it again with what is in the file. The
//! keeper is frozen meanwhile, with its clients; where it is gone, as after a restart of this machine, another one takes its place.

use super::start::file_in;
use super::{Vm, status};
use agent_base::error::{Error, Result};
use agent_base::plain_file::{self, Links};
use agent_base::sanitise;
use agent_wire::boot_spec::{PAUSE_SIGNAL, RESUME_SIGNAL, STATE_FILE, UNSAVED_FILE};
use std::fs;
use std::time::{Duration, Instant};

/// The time limit for saving a machine: as long as its memory takes to be written.
const SAVED: Duration = Duration::from_secs(300);
const NEXT_LOOK: Duration = Duration::from_millis(5);
/// The most that is read of why it cannot be saved.
const MAX_REASON: u64 = 4 << 10;

/// Saves the machine of `session`, and ends it.
///
/// # Errors
/// There is none that runs, or it cannot be saved: it goes on then.
pub(super) async fn pause(vm: &Vm, session: &str) -> Result<()> {
    let directory = vm.keeper.directory(session)?;
    let (state, unsaved) = (file_in(&directory, STATE_FILE), file_in(&directory, UNSAVED_FILE));
    if !state.is_file() {
        // That of an earlier attempt.
        let _ = fs::remove_file(&unsaved);
        vm.keeper.signal(session, PAUSE_SIGNAL)?;
        let until = Instant::now() + SAVED;
        while !state.is_file() {
            if let Ok(why) = plain_file::read(&unsaved, MAX_REASON, Links::Refuse) {
                let why = String::from_utf8_lossy(&why).into_owned();
                return Err(not_paused(&sanitise::plain(&why)));
            }
            if !vm.keeper.is_there(session) {
                return Err(not_paused("it has ended"));
            }
            if Instant::now() > until {
                vm.keeper.signal(session, RESUME_SIGNAL)?;
                return Err(not_paused(&format!("it was not saved within {} s", SAVED.as_secs())));
            }
            tokio::time::sleep(NEXT_LOOK).await;
        }
    }
    vm.keeper.pause(session).await
}

/// Restores the machine of `session`, or boots one that has ended, and waits until its guest answers.
///
/// # Errors
/// There is none, or it cannot be restored.
pub(super) async fn resume(vm: &Vm, session: &str) -> Result<()> {
    vm.keeper.resume(session).await?;
    vm.keeper.signal(session, RESUME_SIGNAL)?;
    let boot = Duration::from_secs(vm.host.boot_timeout.into());
    status::admitted(vm.keeper.attach(session).await?, boot).await.map(drop)
}

fn not_paused(why: &str) -> Error {
    Error::sandbox(format!("the virtual machine is not paused: {why}"))
}
