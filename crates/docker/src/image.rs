//! An image that a sandbox can be made from, and what its container needs to know about it.

use super::accounts::Accounts;
use super::engine::Engine;
use bollard::models::ImageSummary;
use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptions};
use std::collections::HashMap;
use std::path::PathBuf;

/// The label that says which images are ours; its value is `host` or the name of the image underneath.
pub(super) const LABEL: &str = "agent.image";

/// The time for which an image stays in any case, in seconds: another process may have made it just now, for its first
/// container.
const YOUNG: i64 = 3600;

/// The name that older engines give an image without a tag.
const UNTAGGED: &str = "<none>:<none>";

/// An image that holds the guest, and how to use it.
#[derive(Debug, Clone)]
pub(super) struct Image {
    /// The user's name for it: `host`, or the one given by `--image`.
    pub name: String,
    /// The tag to create containers from. It may not exist yet. It begins with `localhost/`: Podman takes a name without
    /// a registry for one of docker.io, but stores an image that was imported under such a name as `localhost/NAME`.
    pub tag: String,
    /// `PATH` inside.
    pub path: String,
    /// Variables that the toolchains inside need.
    pub env: Vec<(String, String)>,
    /// Host paths to show read-only, and where.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Its accounts without that of the user inside, where they are known.
    pub accounts: Option<Accounts>,
}

impl Image {
    /// The tag's two parts.
    pub(super) fn repository_and_tag(&self) -> (&str, &str) {
        self.tag.split_once(':').unwrap_or((&self.tag, "latest"))
    }

    /// Removes what other versions made of the same, as far as no container uses it. To be called where the image was
    /// made: there is one for each version of the guest.
    pub(super) async fn remove_former(&self, engine: &Engine) {
        let ours = format!("{LABEL}={}", self.name);
        let filters = HashMap::from([("label", vec![ours])]);
        let options = ListImagesOptionsBuilder::default().filters(&filters).build();
        // What cannot be listed or removed now is tried again by the next version.
        let images = engine.client.list_images(Some(options)).await.unwrap_or_default();
        let young = jiff::Timestamp::now().as_second() - YOUNG;
        for name in images.iter().filter(|image| image.created <= young).flat_map(|image| self.former(image))
        {
            // Not by force: the engine refuses what a container uses, a stopped one too.
            let _ = engine.client.remove_image(name, None::<RemoveImageOptions>, None).await;
        }
    }

    /// The tags that another version of `agent` gave to `image`: one that the user gave is theirs. The id where it has no
    /// tag at all, because another process made the same at the same time and took the tag.
    fn former<'a>(&self, image: &'a ImageSummary) -> Vec<&'a str> {
        let (repository, tag) = self.repository_and_tag();
        let is_former = |other: &&str| {
            other.split_once(':').is_some_and(|(place, other)| place == repository && other != tag)
        };
        let mut tags = image.repo_tags.iter().map(String::as_str).filter(|tag| *tag != UNTAGGED).peekable();
        match tags.peek() {
            Some(_) => tags.filter(is_former).collect(),
            None => vec![&image.id],
        }
    }
}
