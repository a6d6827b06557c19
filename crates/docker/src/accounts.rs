//! The accounts inside: `/etc/passwd` and `/etc/group` with the name of the user who works there.
//!
//! An image has them with the one user of [`sandbox_ids`]. Where a session has a user of its own, files of its own cover
//! the image's, made from what the image had before.

use super::image::Image;
use super::overlay;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_sandbox::{HOME, sandbox_ids};
use std::fs::{self, DirBuilder};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file with the accounts.
pub(super) const PASSWD: &str = "/etc/passwd";
pub(super) const GROUP: &str = "/etc/group";

/// The texts of both files, without the user inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Accounts {
    pub passwd: Vec<u8>,
    pub group: Vec<u8>,
}

impl Accounts {
    /// The files that change where the user inside is added.
    pub(super) fn with(&self, (uid, gid): (u32, u32), home: &str) -> Vec<(&'static str, Vec<u8>)> {
        let passwd = with_line(&self.passwd, &format!("agent:x:{uid}:{gid}:agent:{home}:/bin/sh\n"), uid);
        let group = with_line(&self.group, &format!("agent:x:{gid}:\n"), gid);
        [(PASSWD, passwd), (GROUP, group)]
            .into_iter()
            .filter_map(|(path, text)| Some((path, text?)))
            .collect()
    }
}

/// The text with the account added at its end; `None` where the number has a name already.
fn with_line(text: &[u8], line: &str, id: u32) -> Option<Vec<u8>> {
    let id = id.to_string();
    let taken =
        text.split(|&b| b == b'\n').any(|line| line.split(|&b| b == b':').nth(2) == Some(id.as_bytes()));
    if taken {
        return None;
    }
    let mut text = text.to_owned();
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text.extend_from_slice(line.as_bytes());
    Some(text)
}

/// Returns whether the user inside is another than the image's.
pub(super) fn are_needed(ids: (u32, u32)) -> bool {
    ids != sandbox_ids()
}

/// Writes the files of a session whose user inside, or their home, is not the image's: each, and where it is inside.
pub(super) fn write(
    machine: &Machine,
    session: &str,
    image: &Image,
    ids: (u32, u32),
    home: &str,
) -> Result<Vec<(PathBuf, &'static Path)>> {
    let is_needed = are_needed(ids) || home != HOME;
    let Some(accounts) = image.accounts.as_ref().filter(|_| is_needed) else { return Ok(Vec::new()) };
    let directory = overlay::make_directory(machine, session)?;
    let write = |(inside, text): (&'static str, Vec<u8>)| {
        let inside = Path::new(inside);
        let file = directory.join(inside.file_name().unwrap_or_default());
        fs::write(&file, text)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
        Ok((file, inside))
    };
    let written: std::io::Result<_> = accounts.with(ids, home).into_iter().map(write).collect();
    written.map_err(|error| {
        Error::sandbox(format!("the accounts of the sandbox cannot be written to {}", directory.display()))
            .caused_by(error)
    })
}

/// The accounts of an image that was prepared earlier.
pub(super) fn recall(machine: &Machine, image: &Image) -> Result<Option<Accounts>> {
    let directory = kept(machine, image)?;
    let read = || {
        Ok(Accounts {
            passwd: fs::read(directory.join("passwd"))?,
            group: fs::read(directory.join("group"))?,
        })
    };
    match read() {
        Ok(accounts) => Ok(Some(accounts)),
        Err(error) => match std::io::Error::kind(&error) {
            ErrorKind::NotFound => Ok(None),
            _ => Err(error.into()),
        },
    }
}

/// Keeps the accounts of an image that was prepared just now.
pub(super) fn remember(machine: &Machine, image: &Image, accounts: &Accounts) -> Result<()> {
    let directory = kept(machine, image)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    for (name, text) in [("passwd", &accounts.passwd), ("group", &accounts.group)] {
        // Whole or not at all: another process may read it now.
        let mut file = tempfile::NamedTempFile::new_in(&directory)?;
        file.write_all(text)?;
        file.persist(directory.join(name)).map_err(|error| error.error)?;
    }
    Ok(())
}

fn kept(machine: &Machine, image: &Image) -> Result<PathBuf> {
    Ok(machine.cache_dir()?.join("accounts").join(image.repository_and_tag().1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_added_where_its_number_has_no_name() {
        let accounts =
            Accounts { passwd: b"root:x:0:0::/:/bin/sh".to_vec(), group: b"users:x:7:\n".to_vec() };
        let with = accounts.with((5, 7), HOME);
        let expected = "root:x:0:0::/:/bin/sh\nagent:x:5:7:agent:/home/agent:/bin/sh\n";
        assert_eq!(with, [(PASSWD, expected.as_bytes().to_vec())]);
    }
}
