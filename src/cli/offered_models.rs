//! The models that endpoints offered when they were asked last, for completion: it must not ask again.

use crate::error::Result;
use crate::machine::Machine;
use crate::paths;
use crate::plain_file::{self, Links};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Models of one endpoint that are kept.
const MAX_MODELS: usize = 2000;
/// Endpoints that are kept. Somebody who uses more of them loses the others' models in completions, nothing else.
const MAX_ENDPOINTS: usize = 16;

/// The names by endpoint.
pub type OfferedModels = BTreeMap<String, Vec<String>>;

/// Keeps what the endpoint at `base_url` offers.
///
/// # Errors
/// The cache could not be written. Nothing depends on it.
pub fn remember(machine: &Machine, base_url: &str, names: &[String]) -> Result<()> {
    let mut offered = offered(machine);
    if offered.len() >= MAX_ENDPOINTS && !offered.contains_key(base_url) {
        offered.clear();
    }
    offered.insert(base_url.to_owned(), names.iter().take(MAX_MODELS).cloned().collect());
    let path = file(machine)?;
    let directory = machine.cache_dir()?;
    paths::make_dir(&directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&crate::event::json::to_vec(&offered)?)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Returns what was kept; empty where nothing was, or it cannot be read.
pub fn offered(machine: &Machine) -> OfferedModels {
    let bytes = file(machine).ok().and_then(|path| plain_file::read(&path, MAX_FILE, Links::Follow).ok());
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn file(machine: &Machine) -> Result<PathBuf> {
    Ok(machine.cache_dir()?.join("models.json"))
}
