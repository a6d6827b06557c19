//! The writable disk of a virtual machine: a sparse file with an empty file system in it.

use super::host::MKE2FS;
use super::tool;
use agent_base::error::{Error, Result};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::Path;

/// Space beyond what the sandbox may use: the guest notices that it uses more, as on every backend, before the disk is full.
const SPARE: u64 = 512 << 20;
/// So many that the guest's limit on files is reached first.
const BYTES_FOR_EACH_FILE: u64 = 4 << 10;

/// Bytes of the file, which takes only what was written, for a sandbox that may use `limit`.
pub fn bytes(limit: u64) -> u64 {
    limit.saturating_add(limit / 8).saturating_add(SPARE) >> 20 << 20
}

/// Makes the disk at `path` for `owner`. One that is kept has a journal.
///
/// # Errors
/// It cannot be made.
pub async fn make(path: &Path, limit: u64, owner: (u32, u32), is_kept: bool) -> Result<()> {
    let create = || -> io::Result<()> {
        let file = File::options().create_new(true).write(true).mode(0o600).open(path)?;
        file.set_len(bytes(limit))
    };
    create().map_err(|error| Error::sandbox("the virtual machine's disk cannot be made").caused_by(error))?;
    let features = if is_kept { "has_journal" } else { "^has_journal" };
    let inode_ratio = BYTES_FOR_EACH_FILE.to_string();
    let options = [
        "-t",
        "ext4",
        "-q",
        "-F",
        "-m",
        "0",
        "-i",
        &inode_ratio,
        "-O",
        features,
        "-E",
        "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
    ];
    let arguments = options.map(OsString::from).into_iter().chain([path.into()]);
    tool::run(MKE2FS, arguments).await?;
    chown(path, Some(owner.0), Some(owner.1))
        .map_err(|error| Error::sandbox("the virtual machine's disk cannot be given away").caused_by(error))
}
