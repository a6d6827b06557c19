//! The model's text of a server's answer to a call.

use crate::protocol::{Block, CallToolResult, ResourceContents};
use agent_base::error::{Kind, Result};
use agent_base::sanitise::one_line;
use agent_event::{Artifact, Event, Stream};
use agent_picture::Header;
use agent_sandbox::{FileWrite, Node, Output};
use agent_tools::{Collector, Context, ToolResult};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::PathBuf;

/// Parts that are read of one answer.
const MAX_PARTS: usize = 200;
/// Files that are kept of one answer.
const MAX_FILES: usize = 20;

/// The answer to a call: its text within bounds, with the whole of it in a file of the sandbox; pictures and files as artifacts.
///
/// # Errors
/// The session file or the connection to the sandbox is broken.
pub async fn of_call(context: Context<'_>, server: &str, answer: CallToolResult) -> Result<ToolResult> {
    let mut reading = Reading { context, server, text: String::new(), files: Vec::new() };
    for block in answer.content.iter().take(MAX_PARTS) {
        reading.block(block)?;
    }
    if answer.content.len() > MAX_PARTS {
        reading.line(&format!("[{} more parts were left out]", answer.content.len() - MAX_PARTS));
    }
    if let (true, Some(data)) =
        (reading.text.is_empty() && reading.files.is_empty(), &answer.structured_content)
    {
        reading.text = serde_json::to_string_pretty(data)?;
    }
    reading.finish(!answer.is_error).await
}

/// The contents of a resource.
///
/// # Errors
/// As [`of_call`].
pub async fn of_resource(
    context: Context<'_>,
    server: &str,
    contents: &[ResourceContents],
) -> Result<ToolResult> {
    let mut reading = Reading { context, server, text: String::new(), files: Vec::new() };
    for resource in contents.iter().take(MAX_PARTS) {
        reading.resource(resource)?;
    }
    reading.finish(true).await
}

/// An answer that is a text.
///
/// # Errors
/// As [`of_call`].
pub async fn of_text(context: Context<'_>, server: &str, text: String) -> Result<ToolResult> {
    Reading { context, server, text, files: Vec::new() }.finish(true).await
}

struct Reading<'a> {
    context: Context<'a>,
    server: &'a str,
    text: String,
    /// Artifacts, and whether they are pictures.
    files: Vec<(Artifact, bool)>,
}

impl Reading<'_> {
    fn block(&mut self, block: &Block) -> Result<()> {
        match block {
            Block::Text { text } => self.line(text),
            Block::Image { data, mime_type } => self.file("image", mime_type, data)?,
            Block::Audio { data, mime_type } => self.file("audio", mime_type, data)?,
            Block::Resource { resource } => self.resource(resource)?,
            Block::ResourceLink { uri, name, description, .. } => {
                let about = description.as_deref().unwrap_or(name);
                self.line(&format!("[resource {}: {}]", one_line(uri, 500), one_line(about, 200)));
            }
            Block::Other => self.line("[a part of a kind that is not known here was left out]"),
        }
        Ok(())
    }

    fn resource(&mut self, resource: &ResourceContents) -> Result<()> {
        let media_type = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
        match (&resource.text, &resource.blob) {
            (Some(text), _) => self.line(text),
            (None, Some(blob)) => {
                let name = resource.uri.rsplit('/').next().filter(|name| !name.is_empty());
                self.file(name.unwrap_or("resource"), media_type, blob)?;
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Stores a file; what cannot be stored is a line. Only what is one counts as a picture, whatever the server calls it.
    fn file(&mut self, name: &str, media_type: &str, data: &str) -> Result<()> {
        if self.files.len() >= MAX_FILES {
            self.line("[a further file was left out]");
            return Ok(());
        }
        let Ok(bytes) = STANDARD.decode(data.trim()) else {
            self.line(&format!("[{}: its Base64 is not valid]", one_line(name, 100)));
            return Ok(());
        };
        let header = Header::of(&bytes);
        let (is_picture, media_type) = match &header {
            Ok(header) => (true, header.format.media_type()),
            Err(_) if media_type.starts_with("image/") => (false, "application/octet-stream"),
            Err(_) => (false, media_type),
        };
        let name = match &header {
            Ok(header) if !name.contains('.') => {
                let ending = header.format.media_type().trim_start_matches("image/").replace("jpeg", "jpg");
                format!("{name}-{}.{ending}", self.files.len() + 1)
            }
            _ => name.to_owned(),
        };
        match self.context.artifacts.add(&name, media_type, &bytes) {
            Ok(artifact) => {
                let tool_call = self.context.call.to_owned();
                self.context.events.emit(Event::Artifact { artifact: artifact.clone(), tool_call })?;
                self.files.push((artifact, is_picture));
            }
            Err(error) if error.kind() == Kind::Usage => {
                self.line(&format!("[{} was not kept: {error}]", one_line(&name, 100)));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn line(&mut self, text: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    async fn finish(self, ok: bool) -> Result<ToolResult> {
        let mut collector = Collector::new(self.context.bounds.output_chars);
        collector.push(Output::Data(Stream::Stdout, self.text.as_bytes()));
        let is_long = self.text.chars().count() > self.context.bounds.output_chars;
        let kept = if is_long { self.keep_whole().await? } else { None };
        let collected = collector.finish(kept.as_deref());
        let text = match collected.text.is_empty() && self.files.is_empty() {
            true => agent_tools::NO_OUTPUT.to_owned(),
            false => collected.text,
        };
        let result = ToolResult { ok, truncated: collected.truncated, text, ..ToolResult::default() };
        Ok(self.files.into_iter().fold(result, |result, (artifact, is_picture)| match is_picture {
            true => result.with_image(artifact),
            false => result.with_artifact(artifact),
        }))
    }

    /// Puts the whole text into the sandbox, where the model can read the rest. Where that is not possible, the rest is gone.
    async fn keep_whole(&self) -> Result<Option<PathBuf>> {
        let name = format!("mcp-{}-{:08x}.txt", self.server, fastrand::u32(..));
        let path = PathBuf::from("/tmp").join(name);
        let write = FileWrite {
            path: path.clone(),
            node: Node::Regular(self.text.clone().into_bytes()),
            mode: None,
            mtime_ns: None,
            follow: false,
        };
        let written = self.context.sandbox.write_files(vec![write]).await?;
        Ok(written.into_iter().all(|written| written.is_ok()).then_some(path))
    }
}
