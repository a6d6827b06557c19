//! The initial file system of a virtual machine: the guest, kernel modules and the small files of this machine. It is the same for all
//! sessions.

use super::cpio::Archive;
use super::modules::Module;
use agent_base::error::{Error, Result};
use agent_base::plain_file::{self, Links};
use agent_sandbox::host_tree::HostTree;
use agent_wire::boot_spec::{self, BootSpec, IMAGES, INITIAL};
use std::fs;
use std::path::{Path, PathBuf};

/// Images of a machine; what of this machine's directories does not fit in is not seen inside.
const MAX_IMAGES: usize = 5;
/// The most that the small files may take together, and how many there may be.
const MAX_SMALL: usize = 24 << 20;
const MAX_FILES: usize = 20_000;
/// The directory of the small files.
const SMALL: &str = "/small";

/// The part of this machine that is shown in a virtual one.
#[derive(Default)]
pub struct Shown {
    /// Directories that become images.
    pub images: Vec<PathBuf>,
    /// Binds of the sandbox in the machine.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// The files that are packed into the initial file system: the path here, and there.
    pub small: Vec<(PathBuf, PathBuf)>,
}

impl Shown {
    /// Sorts what a sandbox sees of this machine.
    pub fn of(tree: &HostTree) -> Self {
        let mut shown = Self::default();
        for (host, inside) in &tree.binds {
            let from = if !host.is_dir() && !host.is_file() {
                // A device that covers something.
                host.clone()
            } else if host.is_file() || inside.starts_with("/etc") {
                let there = Path::new(SMALL).join(shown.small.len().to_string());
                shown.small.push((host.clone(), there.clone()));
                Path::new(INITIAL).join(there.strip_prefix("/").unwrap_or(&there))
            } else {
                match shown.in_image(host) {
                    Some(from) => from,
                    None => continue,
                }
            };
            shown.binds.push((from, inside.clone()));
        }
        shown
    }

    /// Returns the path of a directory of this machine in the images; `None` where there is no space for another one.
    fn in_image(&mut self, host: &Path) -> Option<PathBuf> {
        let found = self.images.iter().position(|image| host.starts_with(image));
        let index = match found {
            Some(index) => index,
            None if self.images.len() < MAX_IMAGES => {
                self.images.push(host.to_owned());
                self.images.len() - 1
            }
            None => return None,
        };
        let image = Path::new(IMAGES).join(index.to_string());
        match host.strip_prefix(&self.images[index]).ok()? {
            below if below.as_os_str().is_empty() => Some(image),
            below => Some(image.join(below)),
        }
    }
}

/// The archive of a machine with so many `images`.
///
/// # Errors
/// The small files take more than they may.
pub fn archive(guest: &[u8], modules: Vec<Module>, shown: &Shown, images: usize) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    archive.file(Path::new("/init"), guest, true);
    let mut paths = Vec::new();
    for module in modules {
        let path = Path::new("/modules").join(format!("{}.ko", module.name));
        archive.file(&path, &module.content, false);
        paths.push(path);
    }
    let spec = BootSpec { modules: paths, images: images as u32 };
    archive.file(Path::new(boot_spec::FILE), &spec.encode(), false);
    let mut space = Space { bytes: MAX_SMALL, files: MAX_FILES };
    for (host, there) in &shown.small {
        add(&mut archive, host, there, &mut space)?;
    }
    Ok(archive.finish())
}

/// The space in which more may be added.
struct Space {
    bytes: usize,
    files: usize,
}

/// Adds a file, or a directory with what is in it. What cannot be read is left out, as anywhere.
fn add(archive: &mut Archive, host: &Path, there: &Path, space: &mut Space) -> Result<()> {
    let Ok(metadata) = fs::symlink_metadata(host) else { return Ok(()) };
    space.files = space.files.checked_sub(1).ok_or_else(too_much)?;
    if metadata.is_symlink() {
        if let Ok(target) = fs::read_link(host) {
            archive.symlink(there, &target);
        }
    } else if metadata.is_dir() {
        archive.directory(there);
        let mut entries: Vec<_> = fs::read_dir(host).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            add(archive, &entry.path(), &there.join(entry.file_name()), space)?;
        }
    } else if let Ok(content) = plain_file::read(host, space.bytes as u64 + 1, Links::Refuse) {
        space.bytes = space.bytes.checked_sub(content.len()).ok_or_else(too_much)?;
        archive.file(there, &content, false);
    }
    Ok(())
}

fn too_much() -> Error {
    Error::sandbox(format!(
        "this machine's settings take more than the {} MiB that a virtual machine is given",
        MAX_SMALL >> 20
    ))
    .hint("/etc/fonts, /etc/ssl/certs and the like are among them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_within_another_has_no_image_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let (outer, inner) = (directory.path().join("usr"), directory.path().join("usr/lib"));
        fs::create_dir_all(&inner).unwrap();
        let mut tree = HostTree::default();
        tree.binds = vec![
            (outer.clone(), "/usr".into()),
            (inner, "/lib".into()),
            ("/dev/null".into(), "/usr/secret".into()),
        ];
        let shown = Shown::of(&tree);
        assert_eq!(shown.images, [outer]);
        let binds: Vec<&str> = shown.binds.iter().map(|(from, _)| from.to_str().unwrap()).collect();
        assert_eq!(binds, ["/images/0", "/images/0/lib", "/dev/null"]);
    }
}
