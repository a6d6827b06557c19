//! Settings that a project's own files ask for: `.agent/config.toml` and `devcontainer.json`. Nothing of it has an effect before the user has
//! approved it as it is.

use super::approvals::Approvals;
use super::dev_container;
use super::project_file;
use super::project_setup::{self, SetupOptions};
use crate::approval::policy::Rules;
use crate::error::{Error, Result};
use crate::hash::Hash;
use crate::machine::Machine;
use crate::plain_file::{self, Links};
use crate::sanitise::one_line;
use crate::session::ProjectSetup;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file of a project.
pub const NAME: &str = ".agent/config.toml";

/// The file that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// [`NAME`].
    Project,
    /// A `devcontainer.json`, relative to the workspace.
    DevContainer(PathBuf),
}

impl Source {
    /// Its name, for the user.
    pub fn name(&self) -> String {
        match self {
            Self::Project => NAME.to_owned(),
            Self::DevContainer(path) => one_line(&path.display().to_string(), 100),
        }
    }
}

/// Settings of a project's sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectSettings {
    /// The command that prepares it once.
    pub setup: Option<ProjectSetup>,
    /// The image of its sandboxes.
    pub image: Option<String>,
    /// Variables of commands.
    pub env: Vec<(String, String)>,
    /// Globs of what is not copied.
    pub exclude: Vec<String>,
    /// Rules about what does not run, and what is asked about, beside the user's.
    pub rules: Rules,
}

/// The request of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The file.
    pub source: Source,
    /// The settings.
    pub settings: ProjectSettings,
    /// Remarks about what else the file says that has no effect, and why.
    pub remarks: Vec<String>,
}

impl Request {
    /// One line for a question.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(
            self.settings
                .setup
                .as_ref()
                .map(|setup| format!("set it up once with `{}`", one_line(&setup.command, 100))),
        );
        parts.extend(
            self.settings.image.as_ref().map(|image| format!("use the image {}", one_line(image, 100))),
        );
        if !self.settings.env.is_empty() {
            let names: Vec<&str> = self.settings.env.iter().map(|(name, _)| name.as_str()).collect();
            parts.push(format!("set {}", one_line(&names.join(", "), 100)));
        }
        if !self.settings.exclude.is_empty() {
            parts.push(format!("leave out {}", one_line(&self.settings.exclude.join(", "), 100)));
        }
        if !self.settings.rules.is_empty() {
            let names: Vec<&str> = self
                .settings
                .rules
                .deny
                .keys()
                .chain(self.settings.rules.ask.keys())
                .map(String::as_str)
                .collect();
            parts.push(format!("apply the rules {}", one_line(&names.join(", "), 100)));
        }
        parts.join(", and to ")
    }

    /// Returns whether it asks for anything that can be given.
    pub fn is_empty(&self) -> bool {
        self.settings == ProjectSettings::default()
    }
}

/// The request of a project's file, and the user's answer to it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// Set if the user has approved it as it is.
    pub is_approved: bool,
    /// Set if they have refused it as it is.
    pub is_refused: bool,
    /// Identifies it, in this workspace.
    hash: Hash,
}

impl Asked {
    fn new(root: &Path, request: Request, content: &[u8], machine: &Machine) -> Result<Self> {
        let name = match &request.source {
            Source::Project => Vec::new(),
            Source::DevContainer(path) => [path.as_os_str().as_bytes(), b"\0"].concat(),
        };
        let hash = Hash::of([root.as_os_str().as_bytes(), b"\0", &name, content].concat());
        let (is_approved, is_refused) = (approved(machine)?.has(hash), refused(machine)?.has(hash));
        Ok(Self { request, is_approved, is_refused, hash })
    }

    /// Approves it as it is, or takes that back.
    ///
    /// # Errors
    /// The approval cannot be stored.
    pub fn approve(&self, is_approved: bool, machine: &Machine) -> Result<()> {
        refused(machine)?.set(self.hash, false)?;
        approved(machine)?.set(self.hash, is_approved)
    }

    /// Refuses it as it is: nobody is asked again.
    ///
    /// # Errors
    /// That cannot be stored.
    pub fn refuse(&self, machine: &Machine) -> Result<()> {
        refused(machine)?.set(self.hash, true)
    }
}

fn approved(machine: &Machine) -> Result<Approvals> {
    Approvals::of(machine, "approved-setups")
}

fn refused(machine: &Machine) -> Result<Approvals> {
    Approvals::of(machine, "refused-setups")
}

/// The settings that prepare the workspace of a call, and its sandbox.
#[derive(Debug, Clone, Default)]
pub struct ConfiguredProject {
    /// The settings that hold.
    pub settings: ProjectSettings,
    /// The request of a file that is neither approved nor refused.
    pub open: Option<Asked>,
    /// A notice about a file for the user.
    pub notice: Option<String>,
}

/// Returns the settings that the workspace `root` is prepared with: the user's file comes first.
pub(super) fn configured(
    of_user: &BTreeMap<PathBuf, SetupOptions>,
    root: &Path,
    machine: &Machine,
) -> Result<ConfiguredProject> {
    let is_here = |path: &Path| machine.in_home(path).canonicalize().is_ok_and(|path| path == root);
    if let Some((path, options)) = of_user.iter().find(|(path, _)| is_here(path)) {
        let in_table = |error| Error::config(format!("[workspace.setup] {}: {error}", path.display()));
        let setup = Some(project_setup::setup(options).map_err(in_table)?);
        let settings = ProjectSettings { setup, ..ProjectSettings::default() };
        return Ok(ConfiguredProject { settings, ..ConfiguredProject::default() });
    }
    Ok(match read(root, machine) {
        Ok(None) => ConfiguredProject::default(),
        Err(error) => ConfiguredProject { notice: Some(error.to_string()), ..ConfiguredProject::default() },
        Ok(Some(Asked { request, is_approved: true, .. })) => {
            ConfiguredProject { settings: request.settings, ..ConfiguredProject::default() }
        }
        Ok(Some(asked)) if asked.is_refused || asked.request.is_empty() => ConfiguredProject::default(),
        Ok(Some(asked)) => {
            let notice = format!(
                "{} of this project asks to {}, which is not done: `agent sandbox setup` shows that and lets you approve it",
                asked.request.source.name(),
                asked.request.summary()
            );
            ConfiguredProject { open: Some(asked), notice: Some(notice), ..ConfiguredProject::default() }
        }
    })
}

/// Reads what the project in `root` asks for, if anything: its own file comes before a `devcontainer.json`.
///
/// # Errors
/// A file cannot be read, or asks for something that there is not.
pub fn read(root: &Path, machine: &Machine) -> Result<Option<Asked>> {
    let in_file = |error: Error| Error::config(format!("{NAME}: {error}"));
    if let Some((request, content)) = project_file::read(root).map_err(in_file)? {
        return Asked::new(root, request, &content, machine).map(Some);
    }
    let in_file = |error: Error| Error::config(format!("devcontainer.json: {error}"));
    let found = dev_container::read(root).map_err(in_file)?;
    found.map(|(request, content)| Asked::new(root, request, &content, machine)).transpose()
}

/// The content of a file of the project, or `None` where there is none. A link is refused.
pub(super) fn read_file(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    match plain_file::read(path, max + 1, Links::Refuse) {
        Ok(bytes) if bytes.len() as u64 > max => Err(Error::config(format!("it is larger than {max} bytes"))),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Error::config("it cannot be read").caused_by(error)),
    }
}
