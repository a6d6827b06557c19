//! `guest anew PID`: has the overlays of a sandbox show what is underneath now.
//!
//! The kernel keeps what was looked up in an overlay. Where another file or directory has taken the place of one underneath, the former
//! one is shown for ever, and a directory that is gone cannot be listed. Changing the settings of a file system, even to the same ones, drops
//! what nobody holds open (`reconfigure_super` in the kernel's fs/super.c).

use super::mounts::unescaped;
use super::step::{FailedStep, Step};
use super::sys::{self, CLONE_NEWNS, CLONE_NEWUSER};
use std::fs::{self, File};
use std::path::PathBuf;

/// `guest anew PID`: `PID` is a process of the sandbox, whose mounts the caller may change.
pub fn main(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (Some(Ok(process)), None) = (arguments.next().map(|text| text.parse()), arguments.next()) else {
        return Err(crate::USAGE.to_owned());
    };
    show_anew(process).map_err(|failure| failure.to_string())
}

fn show_anew(process: u32) -> Result<(), FailedStep> {
    let of_process = |name: &str| PathBuf::from(format!("/proc/{process}/{name}"));
    // Afterwards no process of this side has a number.
    let mounts = fs::read(of_process("mountinfo")).step("read the sandbox's mounts")?;
    let open = |name: &str| File::open(of_process(name)).step_at("open", &of_process(name));
    let (user, mount) = (open("ns/user")?, open("ns/mnt")?);
    // Where it is the caller's own, it cannot be joined, and need not be.
    drop(sys::join(&user, CLONE_NEWUSER));
    sys::join(&mount, CLONE_NEWNS).step("join the sandbox's mounts")?;
    for overlay in writable_overlays(&mounts) {
        sys::reconfigure(&overlay).step_at("reconfigure", &overlay)?;
    }
    Ok(())
}

/// The mount points of overlays with a writable layer in a `mountinfo` (proc_pid_mountinfo(5)).
fn writable_overlays(mounts: &[u8]) -> Vec<PathBuf> {
    let overlay = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let target = fields.nth(4)?;
        let mut kind = fields.skip_while(|field| *field != b"-").skip(1);
        let is_overlay = kind.next() == Some(b"overlay");
        let options = kind.nth(1)?;
        let is_writable = options.split(|byte| *byte == b',').any(|option| option.starts_with(b"upperdir="));
        (is_overlay && is_writable).then(|| unescaped(target))
    };
    mounts.split(|byte| *byte == b'\n').filter_map(overlay).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlays_with_a_writable_layer_are_found_in_a_list_of_mounts() {
        let mounts = b"30 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
            31 30 0:45 / /workspace rw,nosuid,nodev - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c\n\
            32 30 0:46 / /usr ro,nosuid - overlay overlay ro,lowerdir=/a:/b\n\
            33 30 0:47 / /home/me/a\\040b\\134 rw shared:2 master:1 - overlay none rw,lowerdir=/a,upperdir=/b\n\
            nonsense\n";
        assert_eq!(writable_overlays(mounts), [PathBuf::from("/workspace"), PathBuf::from("/home/me/a b\\")]);
    }
}
