//! Waiting for a pod, by a watch, and every reason to give up.

use super::cluster::Cluster;
use super::failure::{self, quote};
use super::pod::CONTAINER;
use agent_base::error::{Error, Result, Scope};
use agent_base::lock::Lock;
use agent_sandbox::OnProgress;
use futures_util::TryStreamExt;
use kube::core::WatchEvent;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// The pause after a watch that broke, before the next.
const AGAIN: Duration = Duration::from_millis(500);
/// The time for which a pod that is being removed is looked at.
pub(super) const REMOVAL: Duration = Duration::from_secs(30);
/// Reasons of a waiting container that do not pass by themselves.
const HOPELESS: [&str; 8] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// The interval in which the reason for a pod's wait is shown, again and again: the display takes no notice of what
/// passes at once.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// The stage of a pod's start.
enum Stage {
    /// The container runs.
    Running,
    /// It does not yet, for this reason.
    Waiting(String),
}

/// Waits until `container` of the pod `seen` has been started: by the kubelet's event, which comes up to a second before the pod's
/// status, where events may be watched, or else by the status. `true`: by the event, so that it may have ended already.
pub(super) async fn started(
    cluster: &Cluster,
    seen: &Value,
    container: &str,
    longest: Duration,
    on_progress: OnProgress<'_>,
) -> Result<bool> {
    tokio::select! {
        running = running(cluster, seen.clone(), container, longest, on_progress) => running.map(|()| false),
        () = started_event(cluster, seen, container) => Ok(true),
    }
}

/// Waits for the event of the container's start. Never ends where it cannot be seen.
async fn started_event(cluster: &Cluster, pod: &Value, container: &str) {
    let list = if container == CONTAINER { "containers" } else { "initContainers" };
    let selector = format!(
        "involvedObject.uid={},involvedObject.fieldPath=spec.{list}{{{container}}},reason=Started",
        text(pod, "/metadata/uid")
    );
    if let Ok(events) = cluster.watch_selected(&cluster.path("events"), &selector, "").await {
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            if matches!(event, WatchEvent::Added(_) | WatchEvent::Modified(_)) {
                return;
            }
        }
    }
    std::future::pending().await
}

/// Waits until `container` of the pod `seen` runs. A watch tells of every change.
pub(super) async fn running(
    cluster: &Cluster,
    mut seen: Value,
    container: &str,
    longest: Duration,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let (pods, name) = (cluster.path("pods"), text(&seen, "/metadata/name").to_owned());
    let deadline = Instant::now() + longest;
    loop {
        let mut why = match stage(&seen, container)? {
            Stage::Running => return Ok(()),
            Stage::Waiting(why) => why,
        };
        let shown = Lock::new(why.clone());
        let followed =
            follow(cluster, &pods, &name, &seen, |pod| match pod.map(|pod| stage(pod, container)) {
                None => Some(Err(deleted())),
                Some(Ok(Stage::Running)) => Some(Ok(())),
                Some(Ok(Stage::Waiting(now))) => {
                    let before = std::mem::replace(&mut *shown.lock(), now.clone());
                    if now != before {
                        on_progress(&now, 0, 0);
                    }
                    None
                }
                Some(Err(error)) => Some(Err(error)),
            });
        let followed = timeout_at(deadline, repeating(followed, || on_progress(&shown.lock(), 0, 0))).await;
        why.clone_from(&shown.lock());
        match followed {
            Ok(Some(ended)) => return ended,
            // The watch has ended, and not the wait.
            Ok(None) => sleep(AGAIN).await,
            Err(_) => return Err(too_long(longest, &why)),
        }
        seen = read(cluster, &name).await?.ok_or_else(deleted)?;
        if Instant::now() >= deadline {
            return Err(too_long(longest, &why));
        }
    }
}

/// Waits for `done`, and calls `show` every [`SHOWN_AFTER`] meanwhile.
async fn repeating<T>(done: impl Future<Output = T>, show: impl Fn()) -> T {
    let mut done = std::pin::pin!(done);
    loop {
        tokio::select! {
            biased;
            done = &mut done => return done,
            () = sleep(SHOWN_AFTER) => show(),
        }
    }
}

/// Watches the object `name` of the list at `path`, which was last seen as `seen`, until `decide` has an answer: it gets every
/// change, and `None` where the object was deleted. `None` where the watch ends before: then the object is read again.
async fn follow<T>(
    cluster: &Cluster,
    path: &str,
    name: &str,
    seen: &Value,
    mut decide: impl FnMut(Option<&Value>) -> Option<T>,
) -> Option<T> {
    let events = cluster.watch(path, name, text(seen, "/metadata/resourceVersion")).await.ok()?;
    let mut events = std::pin::pin!(events);
    while let Ok(Some(event)) = events.try_next().await {
        let decided = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => decide(Some(&object)),
            WatchEvent::Deleted(_) => decide(None),
            WatchEvent::Bookmark(_) => None,
            // Too old a version.
            WatchEvent::Error(_) => return None,
        };
        if decided.is_some() {
            return decided;
        }
    }
    None
}

/// Waits until `done` has what it looks for in the object `name` of the list at `path`: `Ok(Err(why))` goes on waiting, and is
/// shown.
pub(super) async fn until<T>(
    cluster: &Cluster,
    path: &str,
    name: &str,
    longest: Duration,
    on_progress: OnProgress<'_>,
    done: impl Fn(&Value) -> Result<Result<T, String>>,
) -> Result<T> {
    let deadline = Instant::now() + longest;
    let failed = |error| failure::error(&format!("{name} could not be looked at"), error);
    loop {
        let seen = cluster.get(&format!("{path}/{name}")).await.map_err(failed)?.ok_or_else(deleted)?;
        let why = match done(&seen)? {
            Ok(found) => return Ok(found),
            Err(why) => Lock::new(why),
        };
        let followed = follow(cluster, path, name, &seen, |object| match object.map(&done) {
            None => Some(Err(deleted())),
            Some(Ok(Ok(found))) => Some(Ok(found)),
            Some(Ok(Err(now))) => {
                *why.lock() = now;
                None
            }
            Some(Err(error)) => Some(Err(error)),
        });
        match timeout_at(deadline, repeating(followed, || on_progress(&why.lock(), 0, 0))).await {
            Ok(Some(ended)) => return ended,
            Ok(None) => sleep(AGAIN).await,
            Err(_) => return Err(too_long(longest, &why.lock())),
        }
    }
}

/// Waits until the pod `name` with this `uid` is gone.
pub(super) async fn gone(cluster: &Cluster, name: &str, uid: &str, longest: Duration) -> Result<()> {
    gone_from(cluster, &cluster.path("pods"), name, uid, longest).await
}

/// Waits until the object `name` of the list at `path` with this `uid` is gone.
pub(super) async fn gone_from(
    cluster: &Cluster,
    path: &str,
    name: &str,
    uid: &str,
    longest: Duration,
) -> Result<()> {
    let is_it = |object: &Value| text(object, "/metadata/uid") == uid;
    let deadline = Instant::now() + longest;
    let failed = |error| failure::error(&format!("{name} could not be looked at"), error);
    while let Some(seen) = cluster.get(&format!("{path}/{name}")).await.map_err(failed)?.filter(&is_it) {
        let followed =
            follow(cluster, path, name, &seen, |object| (!object.is_some_and(&is_it)).then_some(()));
        match timeout_at(deadline, followed).await {
            Ok(Some(())) => return Ok(()),
            Ok(None) => sleep(AGAIN).await,
            Err(_) => {
                return Err(Error::sandbox(format!(
                    "{name} is still being removed after {} s",
                    longest.as_secs()
                ))
                .hint("its node may be gone: `kubectl get nodes`"));
            }
        }
    }
    Ok(())
}

/// Waits until the pod with this `uid` is gone, or is being removed and all of its containers have ended. `true` where they have.
pub(super) async fn ended(cluster: &Cluster, name: &str, uid: &str) -> bool {
    let decide = |pod: Option<&Value>| match pod.filter(|pod| text(pod, "/metadata/uid") == uid) {
        None => Some(false),
        Some(pod) => has_ended(pod).then_some(true),
    };
    let (deadline, pods) = (Instant::now() + REMOVAL, cluster.path("pods"));
    while Instant::now() < deadline {
        if let Ok(seen) = read(cluster, name).await {
            if let Some(ended) = decide(seen.as_ref()) {
                return ended;
            }
            let seen = seen.unwrap_or_default();
            let followed = follow(cluster, &pods, name, &seen, &decide);
            if let Ok(Some(ended)) = timeout_at(deadline, followed).await {
                return ended;
            }
        }
        sleep(AGAIN).await;
    }
    false
}

/// Returns whether every container of a pod that is being removed has ended. An older kubelet says that by the phase alone.
///
/// One that nobody removes yet has an owner who would make another in its place.
fn has_ended(pod: &Value) -> bool {
    if pod.pointer("/metadata/deletionTimestamp").is_none() {
        return false;
    }
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let is_terminated = |status: &Value| status.pointer("/state/terminated").is_some();
    matches!(text(pod, "/status/phase"), "Failed" | "Succeeded")
        || statuses.is_some_and(|all| !all.is_empty() && all.iter().all(is_terminated))
}

/// The pod called `name`.
pub(super) async fn read(cluster: &Cluster, name: &str) -> Result<Option<Value>> {
    let found = cluster.get(&cluster.path(&format!("pods/{name}"))).await;
    found.map_err(|error| failure::error(&format!("the pod {name} could not be looked at"), error))
}

pub(super) fn deleted() -> Error {
    Error::sandbox("the pod was deleted").hint(
        "by somebody, or because its node went away: `kubectl get events` may tell; `agent resume` restores the session in another",
    )
}

fn too_long(longest: Duration, why: &str) -> Error {
    let (hint, scope) = match why.starts_with("waiting for a node") {
        true => (
            "ask for less with --memory, --cpus and --disk, or give the cluster more: `kubectl describe nodes` shows what is used",
            Scope::Room,
        ),
        false => (
            "`kubectl describe pods` and `kubectl get events` show what it waits for; start_timeout in [sandbox.kubernetes] waits longer",
            Scope::Unknown,
        ),
    };
    let message = format!("the pod did not run after {} s: {why}", longest.as_secs());
    Error::sandbox(message).hint(hint).concerns(scope)
}

/// A text of an object, empty where there is none.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the stage of the pod. An error is a reason to give up.
fn stage(pod: &Value, container: &str) -> Result<Stage> {
    if let Some(error) = end(pod) {
        return Err(error);
    }
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"]
        .into_iter()
        .flat_map(|list| pod.pointer(list).and_then(Value::as_array).into_iter().flatten());
    let mut why = String::new();
    for status in statuses {
        if status.pointer("/state/running").is_some() && text(status, "/name") == container {
            return Ok(Stage::Running);
        }
        let reason = text(status, "/state/waiting/reason");
        if HOPELESS.contains(&reason) {
            return Err(hopeless(reason, text(status, "/image"), text(status, "/state/waiting/message")));
        }
        if !reason.is_empty() {
            why = format!("starting the container ({})", quote(reason));
        }
    }
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let scheduled = conditions.into_iter().flatten().find(|it| text(it, "/type") == "PodScheduled");
    Ok(Stage::Waiting(match scheduled {
        Some(condition) if text(condition, "/status") == "False" => {
            format!("waiting for a node: {}", quote(text(condition, "/message")))
        }
        Some(_) if !why.is_empty() => why,
        Some(_) => "starting the container".to_owned(),
        None => "waiting for a node".to_owned(),
    }))
}

fn hopeless(reason: &str, image: &str, message: &str) -> Error {
    let (image, message) = (quote(image), quote(message));
    let of_an_image =
        ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"].contains(&reason);
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if of_an_image {
        // A registry that is busy or unreachable hands it out later.
        let is_final =
            reason == "InvalidImageName" || says(&["not found", "manifest unknown", "denied", "nauthorized"]);
        let scope = if is_final { Scope::Image } else { Scope::Unknown };
        return Error::sandbox(format!("the image {image} cannot be pulled: {message}")).concerns(scope).hint(
            "check its name; a private registry needs pull_secrets in [sandbox.kubernetes]; the cluster's nodes pull it, not this machine",
        );
    }
    let (hint, scope) = if says(&["executable file not found", "no such file"]) {
        (
            "the image has no shell: init_image in [sandbox.kubernetes] names one that brings the guest in",
            Scope::Image,
        )
    } else if says(&["non-root", "runAsNonRoot"]) {
        ("the image needs root, which no sandbox is: build it with USER and a number", Scope::Image)
    } else {
        ("`kubectl describe pods` shows the events of the pod", Scope::Unknown)
    };
    Error::sandbox(format!("the container could not be started ({reason}): {message}"))
        .hint(hint)
        .concerns(scope)
}

/// Returns the reason why the pod has ended; `None` where it has not.
pub(super) fn end(pod: &Value) -> Option<Error> {
    let (reason, message) = (text(pod, "/status/reason"), quote(text(pod, "/status/message")));
    let of_a_node = "`agent resume` restores the session in another pod";
    let sentence = |what: &str, hint: &str| Some(Error::sandbox(what.to_owned()).hint(hint.to_owned()));
    match reason {
        "Evicted" => {
            return sentence(
                &format!("the pod was evicted: {message}"),
                "more than --disk or the node's own space was used; `agent resume` restores the session in another pod",
            );
        }
        "DeadlineExceeded" => {
            return sentence(
                "the pod has reached its greatest age and was ended",
                "max_age in [sandbox.kubernetes] sets it; `agent resume` restores the session in another pod",
            );
        }
        // The node had less than the scheduler thought.
        "OutOfcpu" | "OutOfmemory" | "OutOfpods" | "OutOfephemeral-storage" => {
            return sentence(&format!("the pod was refused by its node ({reason}): {message}"), of_a_node)
                .map(|error| error.concerns(Scope::Room));
        }
        "NodeLost" | "NodeShutdown" | "Shutdown" | "Terminated" => {
            return sentence(&format!("the node of the pod went away ({reason}): {message}"), of_a_node);
        }
        _ => {}
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return Some(deleted());
    }
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let ended = statuses.into_iter().flatten().find(|status| text(status, "/name") == CONTAINER);
    let ended = ended.and_then(|status| status.pointer("/state/terminated"));
    let phase = text(pod, "/status/phase");
    if ended.is_none() && !matches!(phase, "Failed" | "Succeeded") {
        return None;
    }
    let code = ended.and_then(|ended| ended.get("exitCode")).and_then(Value::as_i64);
    match ended.map(|ended| text(ended, "/reason")) {
        Some("OOMKilled") => sentence(
            "the sandbox ran out of memory and was ended",
            "--memory gives it more; `agent resume` restores the session in another pod",
        ),
        Some("Completed") => sentence("the sandbox has ended: nobody was connected", of_a_node),
        Some(reason @ ("StartError" | "ContainerCannotRun")) => {
            let message = ended.map(|ended| text(ended, "/message")).unwrap_or_default();
            Some(hopeless(reason, "", message))
        }
        _ => {
            let said = ended.map(|ended| quote(text(ended, "/message"))).unwrap_or_default();
            let code = code.map(|code| format!(" with code {code}")).unwrap_or_default();
            sentence(
                &format!("the container of the sandbox has ended{code}: {reason}{message}{said}"),
                "`kubectl logs` shows what it said",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(status: Value) -> Value {
        json!({ "metadata": { "name": "p" }, "status": status })
    }

    #[tokio::test(start_paused = true)]
    async fn the_reason_of_a_wait_is_shown_after_two_seconds() {
        let shown = Lock::new(0);
        repeating(sleep(Duration::from_millis(1900)), || *shown.lock() += 1).await;
        assert_eq!(*shown.lock(), 0);
        repeating(sleep(Duration::from_secs(5)), || *shown.lock() += 1).await;
        assert_eq!(*shown.lock(), 2);
    }

    #[test]
    fn every_reason_to_give_up_is_a_sentence() {
        let waiting = |reason: &str, message: &str| {
            let status = json!([{ "name": CONTAINER, "image": "x:1", "state": { "waiting": { "reason": reason, "message": message } } }]);
            json!({ "phase": "Pending", "containerStatuses": status })
        };
        let ended = |reason: &str, code: i64| {
            let status = json!([{ "name": CONTAINER, "state": { "terminated": { "reason": reason, "exitCode": code } } }]);
            json!({ "phase": "Failed", "containerStatuses": status })
        };
        for (status, sentence, hint) in [
            (
                waiting("ImagePullBackOff", "not found"),
                "the image x:1 cannot be pulled: not found",
                "pull_secrets",
            ),
            (
                waiting("RunContainerError", "exec: \"sh\": executable file not found"),
                "RunContainerError",
                "init_image",
            ),
            (
                waiting("CreateContainerConfigError", "image has non-numeric user: non-root"),
                "CreateContainerConfigError",
                "USER",
            ),
            (
                json!({ "phase": "Failed", "reason": "Evicted", "message": "disk" }),
                "the pod was evicted: disk",
                "--disk",
            ),
            (json!({ "phase": "Failed", "reason": "DeadlineExceeded" }), "greatest age", "max_age"),
            (ended("OOMKilled", 137), "ran out of memory", "--memory"),
            (ended("Completed", 0), "nobody was connected", "resume"),
            (ended("Error", 3), "has ended with code 3", "kubectl logs"),
        ] {
            let error = stage(&pod(status.clone()), CONTAINER).err().expect("an end");
            assert!(error.to_string().contains(sentence), "{status}: {error}");
            assert!(error.hint_text().is_some_and(|text| text.contains(hint)), "{status}: {error:?}");
        }
    }

    #[test]
    fn a_pod_has_ended_when_all_of_its_containers_have() {
        let state = |state: Value| json!({ "name": CONTAINER, "state": state });
        let (ended, waits) = (state(json!({ "terminated": {} })), state(json!({ "waiting": {} })));
        let has_ended = |status: Value| {
            let metadata = json!({ "name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z" });
            super::has_ended(&json!({ "metadata": metadata, "status": status }))
        };
        assert!(has_ended(json!({ "phase": "Running", "containerStatuses": [ended] })));
        assert!(!has_ended(json!({ "phase": "Running", "containerStatuses": [ended, waits] })));
        assert!(has_ended(json!({ "phase": "Failed", "containerStatuses": [waits] })), "Kubernetes 1.20");
        assert!(!has_ended(json!({ "phase": "Pending", "containerStatuses": [] })) && !has_ended(json!({})));
        let of_a_pool = pod(json!({ "phase": "Succeeded", "containerStatuses": [ended] }));
        assert!(!super::has_ended(&of_a_pool), "its sandbox would have another");
    }

    #[test]
    fn a_pod_that_finds_no_node_is_waited_for() {
        let condition = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes" }]);
        let unschedulable = pod(json!({ "phase": "Pending", "conditions": condition }));
        let Ok(Stage::Waiting(why)) = stage(&unschedulable, CONTAINER) else { panic!("it waits") };
        assert!(too_long(Duration::from_secs(1), &why).is_shortage(), "a batch waits for others to end");
        assert_eq!(why, "waiting for a node: 0/1 nodes");
        assert!(
            too_long(Duration::from_secs(9), &why).hint_text().is_some_and(|hint| hint.contains("--cpus"))
        );
        let running = json!([{ "name": CONTAINER, "state": { "running": {} } }]);
        assert!(matches!(
            stage(&pod(json!({ "containerStatuses": running })), CONTAINER),
            Ok(Stage::Running)
        ));
    }

    #[test]
    fn an_image_that_is_not_there_concerns_nobody_else() {
        let scope = |reason, message| hopeless(reason, "x:1", message).scope();
        assert_eq!(scope("ImagePullBackOff", "x:1: not found"), Scope::Image);
        assert_eq!(scope("InvalidImageName", "invalid reference format"), Scope::Image);
        assert_eq!(scope("ErrImagePull", "toomanyrequests: pull rate limit"), Scope::Unknown);
        assert_eq!(scope("CreateContainerError", "context deadline exceeded"), Scope::Unknown);
    }
}
