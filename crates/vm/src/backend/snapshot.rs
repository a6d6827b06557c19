//! Machines in which a sandbox waits for its first client: state and disk are saved once, in the cache, and restored at each start.
//! Nothing of a session is in them.
//!
//! Only where the processor is emulated: with KVM a machine boots about as soon as a state is restored.

use super::start::{Plan, Way, file_in};
use super::{Vm, disk, images, qemu};
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_sandbox::{OnProgress, Spec};
use agent_wire::boot_spec::{DISK_FILE, STATE_FILE};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "state-";
const DISK_PREFIX: &str = "disk-";
/// States of other limits, or of before an update, are kept up to this number.
const KEPT: usize = 4;
/// The time for which machines boot after a state could not be made or restored.
const GIVEN_UP_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The state of a machine like `plan`, which is made where it is missing. `None` where machines like it have to boot.
pub(super) async fn ready(vm: &Vm, plan: &Plan, spec: &Spec, on_progress: OnProgress<'_>) -> Option<PathBuf> {
    if !plan.is_emulated() {
        return None;
    }
    let state = plan.cache.join(format!("{PREFIX}{}", key(plan)));
    if is_wanted(&state) {
        let _lock = images::lock(&plan.cache, on_progress).await.ok()?;
        if is_wanted(&state) {
            on_progress("booting a virtual machine, once for all that are like it", 0, 0);
            if make(vm, plan, spec, &state).await.is_err() {
                give_up(&state);
            }
            images::remove_older(&plan.cache, PREFIX, "", KEPT, disk_of);
        }
    }
    // An empty one was given up.
    fs::metadata(&state).is_ok_and(|metadata| metadata.len() > 0).then_some(state)
}

/// Returns whether a state is missing, or was given up so long ago that it is tried again.
fn is_wanted(state: &Path) -> bool {
    let Ok(metadata) = fs::metadata(state) else { return true };
    let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
    metadata.len() == 0 && age.is_some_and(|age| age > GIVEN_UP_FOR)
}

/// Has machines boot for which this state was.
pub(super) fn give_up(state: &Path) {
    // Where that cannot be written down, it is found out again.
    let _ = images::write_whole(state, &[]);
}

/// The disk that belongs to a state.
pub(super) fn disk_of(state: &Path) -> PathBuf {
    let name = state.file_name().unwrap_or_default().to_string_lossy();
    state.with_file_name(name.replacen(PREFIX, DISK_PREFIX, 1))
}

/// A hash of everything that a state depends on.
fn key(plan: &Plan) -> String {
    let file = |path: &Path| fs::metadata(path).map(|found| (found.ino(), found.size(), found.mtime())).ok();
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
    let parts = (qemu::command(&plan.host, &plan.parts), &plan.kernel, file(&plan.host.qemu), processor);
    let (initial, session, is_kept) = (Hash::of(&plan.initial), Hash::of(&plan.session), plan.is_kept);
    Hash::of(format!("{initial} {session} {is_kept} {} {parts:?}", qemu::KERNEL_ARGUMENTS)).short(8)
}

/// Boots a machine that becomes nobody's, and keeps its state.
async fn make(vm: &Vm, plan: &Plan, spec: &Spec, state: &Path) -> Result<()> {
    let name = state.file_name().unwrap_or_default().to_string_lossy();
    let session = format!("{name}-{}", std::process::id());
    let spec = Spec { session, ephemeral: true, ..spec.clone() };
    // The directory is there as long as there is a client.
    let client = vm.launch(plan, &spec, &Way::Saved).await?;
    let made = vm.keeper.directory(&spec.session).and_then(|directory| {
        let disk = disk_of(state);
        // That of a state that was given up.
        let _ = fs::remove_file(&disk);
        disk::copy(&file_in(&directory, DISK_FILE), &disk, None)
            .and_then(|()| copy(&file_in(&directory, STATE_FILE), state))
            .map_err(|error| Error::sandbox("the state of a virtual machine cannot be kept").caused_by(error))
    });
    drop(client);
    vm.keeper.destroy(&spec.session).await?;
    made
}

/// Copies it as a whole or not at all. Where this user is root, QEMU is another one and reads it too.
fn copy(saved: &Path, state: &Path) -> io::Result<()> {
    let new = state.with_extension("new");
    let copied = io::copy(&mut File::open(saved)?, &mut File::create(&new)?).and_then(|_| {
        // SAFETY: only reads the process's credentials.
        let mode = if unsafe { libc::geteuid() } == 0 { 0o644 } else { 0o600 };
        fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
        fs::rename(&new, state)
    });
    copied.inspect_err(|_| {
        // It is the rest of a failure that is reported.
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn a_state_that_was_given_up_is_tried_again_after_a_day() {
        let cache = tempfile::tempdir().unwrap();
        let state = cache.path().join("state-1");
        assert!(is_wanted(&state));
        give_up(&state);
        assert!(!is_wanted(&state));
        let long_ago = SystemTime::now() - GIVEN_UP_FOR - Duration::from_secs(1);
        File::options().write(true).open(&state).unwrap().set_modified(long_ago).unwrap();
        assert!(is_wanted(&state));
        fs::write(&state, "a state").unwrap();
        assert!(!is_wanted(&state));
    }

    #[test]
    fn the_newest_states_stay() {
        let cache = tempfile::tempdir().unwrap();
        for age in 0..5 {
            let file = File::create(cache.path().join(format!("{PREFIX}{age}"))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(100 - age)).unwrap();
        }
        for other in ["kernel-1", "disk-0", "disk-4"] {
            File::create(cache.path().join(other)).unwrap();
        }
        images::remove_older(cache.path(), PREFIX, "", KEPT, disk_of);
        let mut left: Vec<_> =
            fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["disk-0", "kernel-1", "state-0", "state-1", "state-2", "state-3"]);
    }
}
