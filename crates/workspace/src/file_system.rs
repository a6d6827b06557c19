//! The kinds of file systems that directories of this machine are on.

use std::path::Path;

/// `f_type` of overlayfs.
pub const OVERLAYFS: u32 = 0x794c_7630;
/// `f_type` of file systems that nobody but this kernel writes to: Btrfs, ext2 to ext4, F2FS, overlayfs, tmpfs, XFS, ZFS, bcachefs.
pub const LOCAL: [u32; 8] =
    [0x9123_683e, 0xef53, 0xf2f5_2010, OVERLAYFS, 0x0102_1994, 0x5846_5342, 0x2fc1_2fc1, 0xca45_1a4e];

/// The `f_type` of the file system that `path` is on; `None` where it cannot be asked.
pub fn kind(path: &Path) -> Option<u32> {
    // The width of this field differs between systems.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    rustix::fs::statfs(path).map(|found| found.f_type as u32).ok()
}
