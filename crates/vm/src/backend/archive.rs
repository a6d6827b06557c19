//! Archives of images: what `docker save` and `podman save` write, and the archives of the OCI image layout. Nothing in one is trusted.

use agent_base::error::{Error, Result};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use tar::EntryType;

/// The most entries of an archive, and of all layers together; the most that they may take unpacked.
const MAX_PARTS: usize = 10_000;
const MAX_ENTRIES: usize = 2_000_000;
const MAX_BYTES: u64 = 64 << 30;
/// The most that a description in it may take.
const MAX_JSON: u64 = 4 << 20;
/// The greatest number of symlinks that lead to a layer.
const MAX_LINKS: usize = 8;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The configuration of an image.
#[derive(Debug, Default, Deserialize)]
pub struct Config {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub config: ImageSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ImageSettings {
    #[serde(default)]
    pub env: Option<Vec<String>>,
}

/// An entry of `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: PathBuf,
    layers: Vec<PathBuf>,
}

/// `index.json` of the OCI layout, and what its digests lead to.
#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

impl Descriptor {
    fn path(&self) -> PathBuf {
        Path::new("blobs").join(self.digest.replace(':', "/"))
    }
}

/// The place of a part of an archive.
enum Part {
    Bytes { from: u64, length: u64 },
    Link(PathBuf),
}

/// An archive that is open.
pub struct ImageArchive {
    file: File,
    parts: HashMap<PathBuf, Part>,
}

impl ImageArchive {
    /// Looks through an archive.
    ///
    /// # Errors
    /// It is not one.
    pub fn open(path: &Path) -> Result<Self> {
        let read = || -> io::Result<Self> {
            let mut parts = HashMap::new();
            let mut archive = tar::Archive::new(File::open(path)?);
            for entry in archive.entries_with_seek()?.take(MAX_PARTS) {
                let entry = entry?;
                let name = cleaned(&entry.path()?)?;
                let part = match entry.header().entry_type() {
                    EntryType::Regular | EntryType::Continuous => {
                        Part::Bytes { from: entry.raw_file_position(), length: entry.size() }
                    }
                    EntryType::Symlink | EntryType::Link => {
                        let target = entry.link_name()?.unwrap_or_default().into_owned();
                        let is_relative = entry.header().entry_type() == EntryType::Symlink;
                        let above = if is_relative { name.parent().unwrap_or(&name) } else { Path::new("") };
                        Part::Link(resolved(above, &target))
                    }
                    _ => continue,
                };
                parts.insert(name, part);
            }
            Ok(Self { file: File::open(path)?, parts })
        };
        read().map_err(|error| {
            Error::sandbox(format!("{} is not an archive of an image", path.display())).caused_by(error)
        })
    }

    /// Returns the configuration of its first image, and that image's layers, the lowest first.
    ///
    /// # Errors
    /// It describes none.
    pub fn image(&mut self) -> Result<(Config, Vec<PathBuf>)> {
        let found = match self.parts.contains_key(Path::new("manifest.json")) {
            true => self.json::<Vec<Saved>>(Path::new("manifest.json")).and_then(|all| {
                let first = all.into_iter().next().ok_or(io::ErrorKind::NotFound)?;
                Ok((first.config, first.layers))
            }),
            false => self.json::<Index>(Path::new("index.json")).and_then(|index| {
                let first = index.manifests.first().ok_or(io::ErrorKind::NotFound)?.path();
                let manifest: Manifest = self.json(&first)?;
                Ok((manifest.config.path(), manifest.layers.iter().map(Descriptor::path).collect()))
            }),
        };
        let described = found.and_then(|(config, layers)| Ok((self.json(&config)?, layers)));
        described.map_err(|error| {
            Error::sandbox("the archive describes no image").caused_by(error).hint(
                "`docker save`, `podman save` and `skopeo copy … oci-archive:FILE` write archives of one image",
            )
        })
    }

    /// Unpacks `layers` over one another into the empty directory `root`.
    ///
    /// # Errors
    /// One cannot be read, leads out of the directory, or is larger than images are.
    pub fn unpack(&mut self, layers: &[PathBuf], root: &Path) -> io::Result<()> {
        let mut space = UnpackSpace { entries: MAX_ENTRIES, bytes: MAX_BYTES };
        for layer in layers {
            let mut head = [0; 4];
            let read = self.part(layer)?.read(&mut head)?;
            let part = self.part(layer)?;
            match &head[..read] {
                [0x1f, 0x8b, ..] => unpack_layer(MultiGzDecoder::new(part), root, &mut space)?,
                [0x28, 0xb5, 0x2f, 0xfd] => {
                    return Err(invalid("a layer is packed with zstd, which is not read here"));
                }
                _ => unpack_layer(part, root, &mut space)?,
            }
        }
        Ok(())
    }

    fn json<T: DeserializeOwned>(&mut self, path: &Path) -> io::Result<T> {
        let mut text = Vec::new();
        self.part(path)?.take(MAX_JSON).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    fn part(&mut self, path: &Path) -> io::Result<io::Take<&File>> {
        let mut path = cleaned(path)?;
        for _ in 0..MAX_LINKS {
            match self.parts.get(&path) {
                Some(Part::Link(target)) => path = target.clone(),
                Some(Part::Bytes { from, length }) => {
                    self.file.seek(SeekFrom::Start(*from))?;
                    return Ok((&self.file).take(*length));
                }
                None => break,
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is not in the archive", path.display())))
    }
}

/// The space in which more may be unpacked.
struct UnpackSpace {
    entries: usize,
    bytes: u64,
}

fn unpack_layer(layer: impl Read, root: &Path, space: &mut UnpackSpace) -> io::Result<()> {
    let mut archive = tar::Archive::new(layer);
    archive.set_preserve_permissions(true);
    archive.set_overwrite(true);
    let mut of_this_layer: HashSet<PathBuf> = HashSet::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let too_large = || invalid("the image is larger than images are");
        space.entries = space.entries.checked_sub(1).ok_or_else(too_large)?;
        space.bytes = space.bytes.checked_sub(entry.size()).ok_or_else(too_large)?;
        let path = cleaned(&entry.path()?)?;
        let Some(name) = path.file_name().map(OsStr::as_bytes) else { continue };
        let parent = path.parent().unwrap_or(Path::new(""));
        if name == OPAQUE {
            for below in children(root, parent)? {
                let below = parent.join(below);
                if !of_this_layer.contains(&below) {
                    remove(root, &below)?;
                }
            }
        } else if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            remove(root, &parent.join(OsStr::from_bytes(hidden)))?;
        } else if matches!(
            entry.header().entry_type(),
            EntryType::Regular
                | EntryType::Continuous
                | EntryType::Directory
                | EntryType::Symlink
                | EntryType::Link
        ) {
            let is_directory = entry.header().entry_type() == EntryType::Directory;
            let here = root.join(&path);
            // A directory takes what is in it along; everything else takes the place of what was there.
            if fs::symlink_metadata(&here).is_ok_and(|found| !(is_directory && found.is_dir())) {
                remove(root, &path)?;
            }
            match entry.header().entry_type() {
                EntryType::Link => link(root, &path, &cleaned(&entry.link_name()?.unwrap_or_default())?)?,
                _ if !entry.unpack_in(root)? => return Err(invalid("the image leads out of its directory")),
                _ => make_readable(&here)?,
            }
            of_this_layer.extend(path.ancestors().map(Path::to_owned));
        }
    }
    Ok(())
}

/// Makes `path` another name of `target`. Both begin at the root, also where the archive says it with a slash.
fn link(root: &Path, path: &Path, target: &Path) -> io::Result<()> {
    let real = |path: &Path| -> io::Result<PathBuf> {
        let parent = within(root, path.parent().unwrap_or(Path::new("")))?.ok_or(io::ErrorKind::NotFound)?;
        Ok(parent.join(path.file_name().ok_or(io::ErrorKind::NotFound)?))
    };
    fs::hard_link(real(target)?, real(path)?)
}

/// The owner of what is unpacked is this user, who is to read it, and write below it.
fn make_readable(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let needed = match metadata.is_dir() {
        true => 0o700,
        false if metadata.is_file() => 0o400,
        false => return Ok(()),
    };
    let mode = metadata.permissions().mode();
    if mode & needed == needed {
        Ok(())
    } else {
        fs::set_permissions(path, Permissions::from_mode(mode | needed))
    }
}

fn children(root: &Path, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(directory) = within(root, directory)? else { return Ok(Vec::new()) };
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().into())).collect()
}

/// Removes what is at `path` in `root`, if anything is.
fn remove(root: &Path, path: &Path) -> io::Result<()> {
    let Some(name) = path.file_name() else { return Ok(()) };
    let Some(parent) = within(root, path.parent().unwrap_or(Path::new("")))? else { return Ok(()) };
    let here = parent.join(name);
    match fs::symlink_metadata(&here) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(here),
        Ok(_) => fs::remove_file(here),
        Err(_) => Ok(()),
    }
}

/// A directory of `root`, whatever links lead to it; `None` where it is not there.
fn within(root: &Path, directory: &Path) -> io::Result<Option<PathBuf>> {
    let Ok(real) = fs::canonicalize(root.join(directory)) else { return Ok(None) };
    match real.starts_with(fs::canonicalize(root)?) {
        true => Ok(Some(real).filter(|real| real.is_dir())),
        false => Err(invalid("the image leads out of its directory")),
    }
}

/// A relative path without `.` in it.
fn cleaned(path: &Path) -> io::Result<PathBuf> {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => cleaned.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(invalid("a path in the archive leads out of it"));
            }
        }
    }
    Ok(cleaned)
}

/// Returns the path that a link in `above` leads to.
fn resolved(above: &Path, target: &Path) -> PathBuf {
    let mut path = above.to_owned();
    for component in target.components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => drop(path.pop()),
            Component::RootDir => path = PathBuf::new(),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    path
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn header(kind: EntryType, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o555);
        header
    }

    /// A layer of files with their own names as content, directories (which end with `/`), symlinks (`name -> target`) and links (`name = target`).
    fn layer(entries: &[&str]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for entry in entries {
            if let Some((name, target)) = entry.split_once(" -> ") {
                builder.append_link(&mut header(EntryType::Symlink, 0), name, target).unwrap();
            } else if let Some((name, target)) = entry.split_once(" = ") {
                let mut header = header(EntryType::Link, 0);
                header.set_link_name_literal(target).unwrap();
                builder.append_data(&mut header, name, io::empty()).unwrap();
            } else if entry.ends_with('/') {
                builder.append_data(&mut header(EntryType::Directory, 0), entry, io::empty()).unwrap();
            } else {
                let mut header = header(EntryType::Regular, entry.len() as u64);
                builder.append_data(&mut header, entry, entry.as_bytes()).unwrap();
            }
        }
        builder.into_inner().unwrap()
    }

    fn archive(files: &[(&str, Vec<u8>)]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = header(EntryType::Regular, content.len() as u64);
            builder.append_data(&mut header, name, content.as_slice()).unwrap();
        }
        file.write_all(&builder.into_inner().unwrap()).unwrap();
        file
    }

    fn unpacked(layers: &[&[&str]]) -> io::Result<tempfile::TempDir> {
        let root = tempfile::tempdir()?;
        let mut space = UnpackSpace { entries: 100, bytes: 10_000 };
        for entries in layers {
            unpack_layer(layer(entries).as_slice(), root.path(), &mut space)?;
        }
        Ok(root)
    }

    #[test]
    fn a_layer_adds_to_those_below_and_hides_what_they_had() {
        let below: &[&str] = &["bin/", "bin/sh", "opt/", "opt/old", "etc/", "etc/one", "lib -> usr/lib"];
        let above: &[&str] =
            &["opt/", "opt/new", "opt/.wh..wh..opq", "etc/.wh.one", "bin/sh/", "bin/sh/inner"];
        let root = unpacked(&[below, above]).unwrap();
        let is_there = |path: &str| fs::symlink_metadata(root.path().join(path)).is_ok();
        assert!(is_there("opt/new") && is_there("bin/sh/inner") && is_there("lib"));
        assert!(!is_there("opt/old") && !is_there("etc/one"));
        let linked = unpacked(&[&["bin/", "bin/perl"], &["bin/other = /bin/perl"]]).unwrap();
        assert_eq!(fs::read_to_string(linked.path().join("bin/other")).unwrap(), "bin/perl");
    }

    #[test]
    fn nothing_leads_out_of_the_directory() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), "").unwrap();
        let link = format!("out -> {}", outside.path().display());
        for second in
            ["out/new", "out/.wh.file", "out/.wh..wh..opq", "link = out/file", "out/link = out/file"]
        {
            assert!(unpacked(&[&[&link], &[second]]).is_err(), "{second}");
        }
        assert!(outside.path().join("file").exists() && !outside.path().join("new").exists());
        assert!(cleaned(Path::new("a/../../b")).is_err());
    }

    #[test]
    fn both_kinds_of_archives_describe_their_image() {
        let config = br#"{"architecture": "amd64", "config": {"Env": ["PATH=/bin"]}}"#.to_vec();
        let saved = br#"[{"Config": "c.json", "RepoTags": null, "Layers": ["one/layer.tar"]}]"#.to_vec();
        let index = br#"{"manifests": [{"digest": "sha256:m"}]}"#.to_vec();
        let manifest = br#"{"config": {"digest": "sha256:c"}, "layers": [{"digest": "sha256:l"}]}"#.to_vec();
        // In two members, as some tools pack a layer.
        let whole = layer(&["file"]);
        let pack = |part: &[u8]| {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(part).unwrap();
            packed.finish().unwrap()
        };
        let packed = [pack(&whole[..512]), pack(&whole[512..])].concat();
        for files in [
            vec![("manifest.json", saved), ("c.json", config.clone()), ("one/layer.tar", layer(&["file"]))],
            vec![
                ("index.json", index),
                ("blobs/sha256/m", manifest),
                ("blobs/sha256/c", config),
                ("blobs/sha256/l", packed),
            ],
        ] {
            let file = archive(&files);
            let mut archive = ImageArchive::open(file.path()).unwrap();
            let (config, layers) = archive.image().unwrap();
            assert_eq!(
                (config.architecture.as_str(), config.config.env.as_deref().unwrap()),
                ("amd64", ["PATH=/bin".to_owned()].as_slice())
            );
            let root = tempfile::tempdir().unwrap();
            archive.unpack(&layers, root.path()).unwrap();
            assert_eq!(fs::read_to_string(root.path().join("file")).unwrap(), "file");
        }
        let file = archive(&[("other", Vec::new())]);
        assert!(ImageArchive::open(file.path()).unwrap().image().is_err());
    }
}
