//! Extended attributes of a file that is replaced, among them its access control list.

use agent_base::hash::Hash;
use agent_base::plain_file::{self, Links};
use rustix::fs::{Mode, OFlags, XattrFlags, fgetxattr, flistxattr, fsetxattr};
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

/// The attribute that holds a file's access control list, and the version of its format (linux/posix_acl_xattr.h).
const LIST: &str = "system.posix_acl_access";
const LIST_VERSION: u32 = 2;

/// Returns the permission bits that give nobody more than the access control list of a file or directory, whose `mode` has the list's mask in the place
/// of the group's bits. `None` where there is no list.
pub fn mode_without_list(parent: &OwnedFd, name: &[u8], mode: u32) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::openat(parent, name, flags, Mode::empty()).ok()?;
    let mut list = vec![0; MAX_BYTES];
    let length = fgetxattr(&file, LIST, &mut list[..]).ok()?;
    without_list(&list[..length], mode)
}

fn without_list(list: &[u8], mode: u32) -> Option<u32> {
    const NAMED_USER: u16 = 2;
    const OWNING_GROUP: u16 = 4;
    const NAMED_GROUP: u16 = 8;
    let (version, entries) = list.split_first_chunk()?;
    if u32::from_le_bytes(*version) != LIST_VERSION {
        // Nobody but its owner has a file whose list is not known.
        return Some(mode & 0o700);
    }
    let mask = mode >> 3 & 7;
    let (mut group, mut others) = (mask, mode & 7);
    for entry in entries.chunks_exact(8) {
        let permitted = u32::from(u16::from_le_bytes([entry[2], entry[3]])) & mask;
        match u16::from_le_bytes([entry[0], entry[1]]) {
            OWNING_GROUP => group &= permitted,
            // Who has an entry may be in the group, or one of the others, once there is none.
            NAMED_USER => (group, others) = (group & permitted, others & permitted),
            NAMED_GROUP => others &= permitted,
            _ => {}
        }
    }
    Some(mode & 0o700 | group << 3 | others)
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

#[cfg(test)]
mod tests {
    use super::without_list;

    /// Tags with their bits.
    type Entries = &'static [(u16, u16)];

    fn list(entries: Entries) -> Vec<u8> {
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, bits) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(bits.to_le_bytes());
            list.extend(1234_u32.to_le_bytes());
        }
        list
    }

    /// The owning group got the list's mask once the list was gone.
    #[test]
    fn without_its_list_a_file_is_for_nobody_who_was_kept_from_it() {
        let cases: [(Entries, u32, u32); 6] = [
            (&[(1, 6), (2, 6), (4, 0), (0x10, 6), (0x20, 0)], 0o660, 0o600),
            (&[(1, 6), (2, 6), (4, 4), (0x10, 6), (0x20, 0)], 0o660, 0o640),
            (&[(1, 6), (2, 0), (4, 4), (0x10, 4), (0x20, 4)], 0o644, 0o600),
            (&[(1, 6), (8, 0), (4, 6), (0x10, 4), (0x20, 4)], 0o644, 0o640),
            (&[(1, 7), (2, 7), (4, 7), (0x10, 5), (0x20, 5)], 0o755, 0o755),
            (&[], 0o644, 0o644),
        ];
        for (entries, mode, expected) in cases {
            assert_eq!(without_list(&list(entries), mode), Some(expected), "{entries:?}");
        }
        assert_eq!(without_list(&[3, 0, 0, 0], 0o664), Some(0o600));
        assert_eq!(without_list(&[], 0o664), None);
    }
}
