//! Extended attributes of a file that is replaced, among them its access control list.

use agent_base::hash::Hash;
use agent_base::plain_file::{self, Links};
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::fd::OwnedFd;

/// Bytes of the names of a file's attributes, and of one value: what Linux allows.
const MAX_BYTES: usize = 64 << 10;
/// Said about the content by the kernel or a signer: not true of another one.
const OF_CONTENT: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];

/// Copies the attributes of a file in a directory to another one; what identifies them.
///
/// # Errors
/// The other one may not have one of them.
pub fn copy(parent: &OwnedFd, name: &[u8], to: &File) -> Result<Hash, Errno> {
    let mut there = vec![0; MAX_BYTES];
    each(parent, name, |name, value| {
        // A label that the kernel gives every file need not be set, and often may not.
        let has_it = fgetxattr(to, name, &mut there[..]).is_ok_and(|length| &there[..length] == value);
        if has_it { Ok(()) } else { fsetxattr(to, name, value, XattrFlags::empty()) }
    })
}

/// Returns what identifies the attributes of a file in a directory.
///
/// # Errors
/// One cannot be read.
pub fn identify(parent: &OwnedFd, name: &[u8]) -> Result<Hash, Errno> {
    each(parent, name, |_, _| Ok(()))
}

fn each(
    parent: &OwnedFd,
    name: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Errno>,
) -> Result<Hash, Errno> {
    let mut all = Sha256::new();
    // One that cannot be read has none that can be read.
    let Ok(from) = plain_file::open_at(parent, name, Links::Refuse) else { return Ok(finished(all)) };
    let mut names = vec![0; MAX_BYTES];
    let length = match flistxattr(&from, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(finished(all)),
        Err(error) => return Err(error),
    };
    let mut value = vec![0; MAX_BYTES];
    let names = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    for name in names.filter(|name| !OF_CONTENT.contains(name)) {
        let length = fgetxattr(&from, name, &mut value[..])?;
        let value = &value[..length];
        for part in [name, value] {
            all.update((part.len() as u64).to_le_bytes());
            all.update(part);
        }
        visit(name, value)?;
    }
    Ok(finished(all))
}

fn finished(all: Sha256) -> Hash {
    Hash(all.finalize().into())
}
