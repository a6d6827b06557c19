//! Extended attributes of files. A symbolic link has those of what it leads to.

use crate::client::Failure;
use crate::files::resolve;
use crate::sys;
use agent_wire::{Attribute, CHUNK, Message};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The most of one file's that are read, and the most bytes of their names and values.
const MAX_ATTRIBUTES: usize = 256;
const MAX_BYTES: usize = 32 << 10;

/// Answers a request that is about them. Another is one that the guest does not know.
pub fn answer(request: Message) -> Result<Message, Failure> {
    match request {
        Message::Attributes { paths, prefix } => {
            Ok(Message::AttributesAre { files: of_files(paths, &prefix) })
        }
        Message::SetAttributes { path, prefix, attributes } => {
            replace(path, &prefix, &attributes).map(|()| Message::Done {})
        }
        _ => Err(Failure::new("the guest does not understand the request")),
    }
}

/// Those of the first of these files whose names begin with `prefix`, as many as fit into an answer.
fn of_files(paths: Vec<PathBuf>, prefix: &OsStr) -> Vec<Vec<Attribute>> {
    let (mut files, mut size) = (Vec::new(), 0);
    for path in paths {
        if size > CHUNK {
            break;
        }
        let attributes = of_file(&resolve(path), prefix).unwrap_or_default();
        size += size_of::<u32>() + attributes.iter().map(bytes).sum::<usize>();
        files.push(attributes);
    }
    files
}

/// Gives a file these attributes, and no others whose names begin with `prefix`.
fn replace(path: PathBuf, prefix: &OsStr, attributes: &[Attribute]) -> Result<(), Failure> {
    let path = resolve(path);
    let replace = || {
        let new: BTreeSet<&OsStr> = attributes.iter().map(|attribute| attribute.name.as_os_str()).collect();
        for name in names(&path, prefix)?.iter().filter(|name| !new.contains(name.as_os_str())) {
            sys::remove_attribute(&path, &full(prefix, name))?;
        }
        attributes.iter().try_for_each(|attribute| {
            sys::set_attribute(&path, &full(prefix, &attribute.name), &attribute.value)
        })
    };
    replace().map_err(|error| Failure::io(path.display(), &error))
}

fn of_file(path: &Path, prefix: &OsStr) -> io::Result<Vec<Attribute>> {
    let (mut attributes, mut size) = (Vec::new(), 0);
    for name in names(path, prefix)?.into_iter().take(MAX_ATTRIBUTES) {
        // It may have been removed just now.
        let Ok(value) = sys::attribute(path, &full(prefix, &name), MAX_BYTES) else { continue };
        let attribute = Attribute { name, value };
        size += bytes(&attribute);
        if size > MAX_BYTES {
            break;
        }
        attributes.push(attribute);
    }
    Ok(attributes)
}

/// The names that begin with `prefix`, without it.
fn names(path: &Path, prefix: &OsStr) -> io::Result<Vec<OsString>> {
    let list = sys::attribute_names(path)?;
    let names = list.split(|&byte| byte == 0).filter_map(|name| name.strip_prefix(prefix.as_bytes()));
    Ok(names.filter(|name| !name.is_empty()).map(|name| OsString::from_vec(name.to_vec())).collect())
}

fn full(prefix: &OsStr, name: &OsStr) -> OsString {
    let mut full = prefix.to_owned();
    full.push(name);
    full
}

/// Returns what an attribute takes in an answer.
fn bytes(attribute: &Attribute) -> usize {
    2 * size_of::<u32>() + attribute.name.len() + attribute.value.len()
}
