//! Fetching an image from its registry, with progress.

use super::engine::Engine;
use super::failure;
use agent_base::error::{Error, Result, Scope};
use agent_sandbox::OnProgress;
use bollard::errors::Error as EngineError;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::TryStreamExt;
use std::collections::HashMap;

/// Layers that progress is counted for. More are pulled all the same.
const MAX_LAYERS: usize = 1_000;

/// Pulls `name`; `on_progress` hears of every step.
pub(super) async fn pull(engine: &Engine, name: &str, on_progress: OnProgress<'_>) -> Result<()> {
    // A name without tag or digest stands for all its tags, unless one is given.
    let options = CreateImageOptionsBuilder::default().from_image(name);
    let options = if is_exact(name) { options } else { options.tag("latest") };
    let mut progress = Progress::default();
    on_progress("Pulling", 0, 0);
    engine
        .client
        .create_image(Some(options.build()), None, None)
        .try_for_each(|step| {
            if let Some((status, done, total)) = progress.take(step) {
                on_progress(&status, done, total);
            }
            async { Ok(()) }
        })
        .await
        .map_err(|error| refused(name, error))
}

/// Returns whether `name` says which of the repository's images it means. A colon before a slash is a registry's port.
fn is_exact(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.contains([':', '@'])
}

fn refused(name: &str, error: EngineError) -> Error {
    let text = failure::text(&error).to_lowercase();
    let means = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let (hint, scope) = if means(&[
        "no such host",
        "timeout",
        "connection refused",
        "unreachable",
        "server misbehaving",
    ]) {
        (
            "the registry cannot be reached from the engine: is there a network? The image `host` needs none",
            Scope::Unknown,
        )
    } else if means(&["unauthorized", "denied", "authentication required", "no basic auth"]) {
        (
            "the image does not exist, or it is private: `docker pull` it yourself after `docker login`, then try again",
            Scope::Image,
        )
    } else if means(&["not found", "manifest unknown", "no matching manifest"]) {
        ("is the name right? `docker pull` takes the same names", Scope::Image)
    } else {
        ("`docker pull` may tell more", Scope::Unknown)
    };
    failure::error(format!("the image {name} could not be pulled"), error).hint(hint).concerns(scope)
}

/// Bytes of all layers together, from the engine's reports on each.
#[derive(Default)]
struct Progress {
    layers: HashMap<String, (u64, u64)>,
}

impl Progress {
    /// Returns what to show after `step`: a word, the bytes done, and the bytes in all as far as they are known.
    fn take(&mut self, step: CreateImageInfo) -> Option<(String, u64, u64)> {
        let status = step.status?;
        let counts = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
        if let (Some(id), Some(detail)) = (&step.id, &step.progress_detail)
            && status == "Downloading"
            && let (Some(current), Some(total)) = (counts(detail.current), counts(detail.total))
            && (self.layers.len() < MAX_LAYERS || self.layers.contains_key(id))
        {
            self.layers.insert(id.clone(), (current.min(total), total));
        }
        if matches!(status.as_str(), "Download complete" | "Pull complete")
            && let Some((done, total)) = step.id.as_ref().and_then(|id| self.layers.get_mut(id))
        {
            *done = *total;
        }
        let sum = |part: fn(&(u64, u64)) -> u64| self.layers.values().map(part).fold(0, u64::saturating_add);
        Some((status, sum(|layer| layer.0), sum(|layer| layer.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ProgressDetail;

    fn step(id: &str, status: &str, detail: Option<(i64, i64)>) -> CreateImageInfo {
        CreateImageInfo {
            id: Some(id.into()),
            status: Some(status.into()),
            progress_detail: detail
                .map(|(current, total)| ProgressDetail { current: Some(current), total: Some(total) }),
            ..Default::default()
        }
    }

    #[test]
    fn progress_adds_up_over_layers() {
        let mut progress = Progress::default();
        let take = |progress: &mut Progress, step| progress.take(step).map(|(_, done, total)| (done, total));
        assert_eq!(take(&mut progress, step("a", "Pulling fs layer", None)), Some((0, 0)));
        assert_eq!(take(&mut progress, step("a", "Downloading", Some((10, 100)))), Some((10, 100)));
        assert_eq!(take(&mut progress, step("b", "Downloading", Some((5, 50)))), Some((15, 150)));
        assert_eq!(take(&mut progress, step("a", "Download complete", None)), Some((105, 150)));
        assert_eq!(take(&mut progress, step("b", "Downloading", Some((-5, 50)))), Some((105, 150)));
    }

    #[test]
    fn an_image_that_is_not_there_concerns_nobody_else() {
        let scope = |message: &str| {
            refused("x", EngineError::DockerStreamError { error: message.to_owned() }).scope()
        };
        assert_eq!(scope("manifest for x:1 not found: manifest unknown"), Scope::Image);
        assert_eq!(scope("pull access denied for x, repository does not exist"), Scope::Image);
        assert_eq!(scope("lookup registry-1.docker.io: no such host"), Scope::Unknown);
        assert_eq!(scope("toomanyrequests: You have reached your pull rate limit"), Scope::Unknown);
    }

    #[test]
    fn a_port_is_no_tag() {
        assert!(!is_exact("localhost:5000/tool"));
        assert!(is_exact("localhost:5000/tool:1"));
        assert!(is_exact("debian@sha256:00"));
        assert!(!is_exact("debian"));
    }
}
