//! The result of a tool: text, and parts that are more than text.

use super::code::display::ShownOutput;
use agent_event::{Artifact, Content, FileEdit};

/// The result of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolResult {
    /// Set if it did what was asked.
    pub ok: bool,
    /// The command's exit code, where a command ran and exited.
    pub exit_code: Option<i32>,
    /// Set if part of the output is missing.
    pub truncated: bool,
    /// The text view: what a model that takes only text reads. It has a line for each image and artifact.
    pub text: String,
    /// The parts in order; empty where the result is text alone.
    pub content: Vec<Content>,
    /// The files that it wrote, for the user: not for the model.
    pub edits: Vec<FileEdit>,
}

impl ToolResult {
    /// A call that did what was asked.
    pub fn success(text: impl Into<String>) -> Self {
        Self { ok: true, text: text.into(), ..Self::default() }
    }

    /// A call that failed; the text explains why.
    pub fn failure(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Adds what it changed in a file.
    #[must_use]
    pub fn with_edit(mut self, edit: FileEdit) -> Self {
        self.edits.push(edit);
        self
    }

    /// Adds an image, with a line for models that do not take images.
    #[must_use]
    pub fn with_image(self, artifact: Artifact) -> Self {
        self.with("image", artifact, |artifact| Content::Image { artifact })
    }

    /// Adds a file, with a line about it.
    #[must_use]
    pub fn with_artifact(self, artifact: Artifact) -> Self {
        self.with("file", artifact, |artifact| Content::Artifact { artifact })
    }

    /// Adds what a run showed, with its lines.
    #[must_use]
    pub fn with_collected(mut self, collected: ShownOutput) -> Self {
        if !collected.content.is_empty() {
            self.keep_text();
        }
        self.end_line();
        self.text.push_str(&collected.lines);
        self.content.extend(collected.content);
        self
    }

    fn with(mut self, kind: &str, artifact: Artifact, part: impl Fn(Artifact) -> Content) -> Self {
        self.keep_text();
        self.end_line();
        let Artifact { name, media_type, bytes, .. } = &artifact;
        self.text.push_str(&format!("[{kind} {name}: {media_type}, {bytes} bytes]\n"));
        self.content.push(part(artifact));
        self
    }

    /// The text so far becomes the first part.
    fn keep_text(&mut self) {
        if self.content.is_empty() && !self.text.is_empty() {
            self.content.push(Content::Text { text: self.text.clone() });
        }
    }

    fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(name: &str) -> Artifact {
        Artifact {
            id: "a".into(),
            name: name.into(),
            media_type: "image/png".into(),
            bytes: 7,
            sha256: "0".repeat(64),
        }
    }

    #[test]
    fn the_text_view_has_a_line_for_each_part() {
        let result =
            ToolResult::success("drawn").with_image(artifact("plot.png")).with_artifact(artifact("data.csv"));
        assert_eq!(
            result.text,
            "drawn\n[image plot.png: image/png, 7 bytes]\n[file data.csv: image/png, 7 bytes]\n"
        );
        assert_eq!(
            result.content,
            [
                Content::Text { text: "drawn".into() },
                Content::Image { artifact: artifact("plot.png") },
                Content::Artifact { artifact: artifact("data.csv") },
            ]
        );
    }
}
