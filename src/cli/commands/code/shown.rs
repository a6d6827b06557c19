//! Files that code shows besides text: drawn in the terminal, and copied where the user asks for it.

use crate::cli::artifacts::{check_target, write_file};
use crate::cli::config::Config;
use crate::cli::ui::pictures::{Pictures, is_drawable};
use crate::cli::ui::stderr;
use crate::cli::ui::style::{Colours, DIM};
use crate::error::Result;
use crate::event::{Artifact, Content, Events};
use crate::log::{ArtifactLimits, Artifacts};
use crate::sandbox::Sandbox;
use crate::sanitise::one_line;
use crate::tools::code::display::{Run, collect};
use crate::tools::{Bounds, Context};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The files that the runs of one command show.
pub struct ShownFiles {
    /// Holds the files while the command runs; removed with it.
    _store: TempDir,
    artifacts: Artifacts,
    /// Nobody listens: there is no session.
    events: Events,
    bounds: Bounds,
    pictures: Pictures,
    directory: Option<PathBuf>,
    is_quiet: bool,
}

/// A file that a run showed.
pub struct ShownFile {
    artifact: Artifact,
    /// The path that it was copied to, or the reason why it was not, where that was asked for.
    copy: Option<Result<PathBuf, String>>,
}

impl ShownFiles {
    /// Copies files into `directory`, if there is one.
    pub fn new(config: &Config, directory: Option<PathBuf>) -> Result<Self> {
        let store = tempfile::tempdir()?;
        let artifacts = Artifacts::of_session(&store.path().join("run"), ArtifactLimits::default());
        Ok(Self {
            _store: store,
            artifacts,
            events: Events::new(1),
            bounds: config.bounds,
            pictures: Pictures::new(config.images()),
            directory,
            is_quiet: config.options.is_quiet(),
        })
    }

    /// Takes the files of a run.
    pub async fn take(&self, sandbox: &Sandbox, run: &Run) -> Result<Vec<ShownFile>> {
        let context = Context {
            sandbox,
            events: &self.events,
            artifacts: &self.artifacts,
            call: "",
            reach: &(),
            bounds: self.bounds,
        };
        let content = collect(context, run).await?.content;
        let artifacts = content.into_iter().filter_map(|part| match part {
            Content::Image { artifact } | Content::Artifact { artifact } => Some(artifact),
            Content::Text { .. } => None,
        });
        artifacts.map(|artifact| Ok(ShownFile { copy: self.copy(&artifact)?, artifact })).collect()
    }

    /// Draws the pictures of a run, and prints a line for each file.
    pub async fn show(&mut self, sandbox: &Sandbox, run: &Run) -> Result<()> {
        for file in self.take(sandbox, run).await? {
            if !self.is_quiet {
                let text = self.text(&file);
                stderr::write(&text);
            }
        }
        Ok(())
    }

    fn text(&mut self, ShownFile { artifact, copy }: &ShownFile) -> String {
        let mut text = String::new();
        if is_drawable(artifact) {
            let drawn = self.artifacts.read(artifact).map_err(|error| error.to_string());
            match drawn.and_then(|bytes| self.pictures.draw(bytes)) {
                Ok(picture) => text += &picture.unwrap_or_default(),
                Err(why) => text += &format!("it is not shown: {}\n", one_line(&why, 200)),
            }
        }
        let name = one_line(&artifact.name, 100);
        let what = match copy {
            Some(Ok(path)) => one_line(&path.to_string_lossy(), 4096),
            Some(Err(why)) => one_line(why, 4096),
            None => format!(
                "{name} ({}, {} bytes; --artifacts DIR keeps it)",
                artifact.media_type, artifact.bytes
            ),
        };
        let colours = Colours::of(&std::io::stderr());
        text + &format!("{}\n", colours.paint(DIM, format_args!("    {what}")))
    }

    /// Copies a file. One that is there is never overwritten: if it is another one, the copy gets the hash in its name.
    fn copy(&self, artifact: &Artifact) -> Result<Option<Result<PathBuf, String>>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let bytes = self.artifacts.read(artifact)?;
        let other = directory.join(format!("{}-{}", artifact.id, artifact.name));
        for path in [directory.join(&artifact.name), other.clone()] {
            if let Err(why) = check_target(&path, false) {
                return Ok(Some(Err(why.to_string())));
            }
            if path.symlink_metadata().is_err() {
                write_file(&path, &bytes, false)?;
                return Ok(Some(Ok(path)));
            }
            if is_same(&path, &bytes) {
                return Ok(Some(Ok(path)));
            }
        }
        write_file(&other, &bytes, false).map(|()| Some(Ok(other)))
    }
}

fn is_same(path: &Path, bytes: &[u8]) -> bool {
    let is_file =
        path.symlink_metadata().is_ok_and(|there| there.is_file() && there.len() == bytes.len() as u64);
    is_file && std::fs::read(path).is_ok_and(|there| there == bytes)
}

impl ShownFile {
    /// For `--json`.
    pub fn to_json(&self) -> Value {
        let Artifact { name, media_type, bytes, sha256, .. } = &self.artifact;
        let mut object = json!({ "name": name, "media_type": media_type, "bytes": bytes, "sha256": sha256 });
        match &self.copy {
            Some(Ok(path)) => object["path"] = path.to_string_lossy().into(),
            Some(Err(why)) => object["not_copied"] = why.as_str().into(),
            None => {}
        }
        object
    }
}

/// The variables that a run's programs get.
pub fn environment(run: &Run) -> Vec<(OsString, OsString)> {
    run.environment().into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}
