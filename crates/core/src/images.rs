//! The images of a tool's result, for models that see them.

use super::Conversation;
use agent_event::{Artifact, Content};
use agent_model::Message;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The most images of one result that the model is sent.
const MAX_IMAGES: usize = 4;
/// The largest of them, in bytes: well below what endpoints take.
const MAX_BYTES: u64 = 4 << 20;

impl Conversation {
    /// Sends the images with the results of this round, if the model takes images. Its text has a line for each in any case.
    pub(super) fn send_images(&self, call: &str, content: &[Content]) {
        if !self.setup.model.takes_images() {
            return;
        }
        let image = |part: &Content| match part {
            Content::Image { artifact } if artifact.bytes <= MAX_BYTES => self.data_url(artifact),
            _ => None,
        };
        let images: Vec<String> = content.iter().filter_map(image).take(MAX_IMAGES).collect();
        if !images.is_empty() {
            self.setup.model.add_images(call, images);
        }
    }

    /// Sends the images of an earlier process's calls again, so that the conversation is the one that the model knows.
    pub(super) fn send_earlier_images(&self, artifacts: Vec<(String, Artifact)>) {
        let calls = self.messages.iter().filter_map(|message| match message {
            Message::Tool { id, .. } => Some(id),
            _ => None,
        });
        for call in calls {
            let of_call = artifacts.iter().filter(|(id, _)| id == call);
            let images = of_call.filter(|(_, artifact)| artifact.media_type.starts_with("image/"));
            let content: Vec<Content> =
                images.map(|(_, artifact)| Content::Image { artifact: artifact.clone() }).collect();
            self.send_images(call, &content);
        }
    }

    /// A file that cannot be read is only missing from the images.
    fn data_url(&self, artifact: &Artifact) -> Option<String> {
        let bytes = self.setup.artifacts.read(artifact).ok()?;
        Some(format!("data:{};base64,{}", artifact.media_type, STANDARD.encode(bytes)))
    }
}
