//! The Docker backend with real containers.

use crate::support::container::{Running, run, sandbox_exists, spec, wait_until_removed};
use agent::machine::Machine;
use agent::sandbox::docker::endpoint::Address;
use agent::sandbox::{Backend, Outcome, Sandbox, State, WorkspaceMount, sandbox_ids, session_ids};
use agent_testbed::engine::{DEADLINE, engine, refusing_engine};
use agent_testing::machine;
use agent_testing::registry::Registry;
use bollard::Docker as Client;
use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType};
use bollard::query_parameters::{
    CreateContainerOptions, CreateContainerOptionsBuilder, CreateImageOptionsBuilder, ImportImageOptions,
    InspectContainerOptions, ListImagesOptionsBuilder, RemoveContainerOptionsBuilder, RemoveImageOptions,
};
use futures_util::TryStreamExt;
use serde_json::json;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A client for what the backend has no word for. Tests run where the engine is on the default socket or DOCKER_HOST.
fn client() -> Client {
    Client::connect_with_defaults().expect("the engine's address")
}

#[tokio::test]
async fn a_sandbox_has_the_machines_tools() {
    let Some(docker) = engine().await else { return };
    let running = Running::start(&docker, spec()).await;
    assert_eq!(running.sh("id -un").await, "agent");
    assert_eq!(running.sh("cat /proc/1/comm").await, "guest");
    assert_eq!(running.sh("git --version").await, local("git --version"));
    for path in ["/var/lib", env!("CARGO_MANIFEST_DIR")] {
        assert_eq!(running.sh(&format!("test -e {path} || echo absent")).await, "absent", "{path}");
    }
    // What may be written to belongs to the user inside, and programs may be run from it.
    let builds = "for d in /workspace $HOME /tmp; do printf '#!/bin/sh\\necho ran' > $d/p && chmod +x $d/p && $d/p; done";
    assert_eq!(running.sh(builds).await, "ran\nran\nran");
    running.destroy().await;
}

/// A removal that is tried again later went by the name of the container: the session may have another by then.
#[tokio::test]
async fn a_removal_leaves_the_container_that_was_made_in_place_of_the_one_it_was_for() {
    let Some(docker) = engine().await else { return };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "of the host\n").unwrap();
    let mut spec = spec();
    let (lower, hidden) = (directory.path().canonicalize().unwrap(), Vec::new());
    spec.workspace = WorkspaceMount::Overlay { lower, hidden };
    let first = Running::start(&docker, spec.clone()).await;
    let meant = docker.identity(&spec.session).expect("the id of the container");
    drop(first);
    docker.destroy(&spec.session).await.expect("removed");
    let second = Running::start(&docker, spec.clone()).await;
    let other = docker.identity(&spec.session).expect("the id of the other one");
    assert_ne!(meant, other);
    docker.destroy_only(&spec.session, &meant).await.expect("the one that was meant is gone");
    // Neither its layer is.
    assert_eq!(second.sh("cat file; echo more >> file; cat file").await, "of the host\nof the host\nmore");
    docker.attach(&spec.session).await.expect("attached");
    assert_eq!(docker.identity(&spec.session).as_ref(), Some(&other), "one that attaches knows it, too");
    docker.destroy_only(&spec.session, &other).await.expect("removed");
    assert!(!sandbox_exists(&docker, &spec.session).await);
    assert_eq!(docker.identity(&spec.session), None);
}

#[tokio::test]
async fn its_resources_are_limited() {
    let Some(docker) = engine().await else { return };
    let mut spec = spec();
    spec.limits.memory = 256 << 20;
    spec.limits.pids = 64;
    spec.limits.disk = 1 << 30;
    let running = Running::start(&docker, spec).await;
    let name = format!("agent-{}", running.spec.session);
    let inspected =
        client().inspect_container(&name, None::<InspectContainerOptions>).await.expect("inspected");
    let host = inspected.host_config.expect("a host configuration");
    assert_eq!((host.memory, host.memory_swap), (Some(256 << 20), Some(256 << 20)));
    assert_eq!((host.pids_limit, host.ipc_mode.as_deref()), (Some(64), Some("private")));
    assert_eq!(running.sh("ulimit -c; ulimit -f").await.lines().next(), Some("0"));
    assert_eq!(running.sh("df -m --output=size /tmp /dev/shm | tail -2 | tr -d ' '").await, "128\n64");
    let (finished, _) = run(&running.sandbox, "truncate -s 2G /workspace/big").await;
    assert_ne!(finished.outcome, Outcome::Exited(0), "a file beyond the limit");
    let forks = running.sh("for i in $(seq 100); do sleep 5 & done 2>&1; kill $(jobs -p)").await;
    assert!(forks.contains("fork") || forks.contains("Resource"), "{forks}");
    running.destroy().await;
}

#[tokio::test]
async fn a_second_client_joins_and_commands_cannot_pose_as_one() {
    let Some(docker) = engine().await else { return };
    let running = Running::start(&docker, spec()).await;
    running.sh("echo here > note").await;
    let second = Sandbox::connect(docker.attach(&running.spec.session).await.expect("attached")).await;
    let (_, note) = run(&second.expect("the guest answers"), "cat note").await;
    assert_eq!(note, "here\n");
    let (finished, _) = run(&running.sandbox, "/.agent/guest attach --socket agent-guest < /dev/zero").await;
    assert_ne!(finished.outcome, Outcome::Exited(0));
    running.destroy().await;
    let error = docker.attach("no-such-session").await.err().expect("nothing to attach to");
    assert_eq!(error.to_string(), "session no-such-session has no running sandbox");
}

#[tokio::test]
async fn a_session_has_only_one_sandbox() {
    let Some(docker) = engine().await else { return };
    let one = Running::start(&docker, spec()).await;
    let again = docker.start(&one.spec, &|_, _, _| {}).await.err().expect("refused");
    assert_eq!(again.to_string(), format!("session {} already has a sandbox", one.spec.session));
    one.destroy().await;
    docker.destroy("no-such-session").await.expect("removing nothing is not an error");
}

#[tokio::test]
async fn pause_freezes_and_resume_goes_on() {
    let Some(docker) = engine().await else { return };
    let mut spec = spec();
    spec.ephemeral = false;
    let running = Running::start(&docker, spec).await;
    let session = running.spec.session.clone();
    let state = async || {
        let list = docker.list().await.expect("a list");
        list.into_iter().find(|listed| listed.session == session).map(|listed| listed.state)
    };
    docker.pause(&session).await.expect("paused");
    assert_eq!(state().await, Some(State::Paused));
    docker.resume(&session).await.expect("resumed");
    running.sh("echo kept > note").await;
    running.sandbox.shutdown().await;
    // It was not to be removed when it stops: started again it has its files.
    let start = std::time::Instant::now();
    while state().await != Some(State::Stopped) {
        assert!(start.elapsed() < DEADLINE, "still running");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    docker.resume(&session).await.expect("started again");
    let again =
        Sandbox::connect(docker.attach(&session).await.expect("attached")).await.expect("the guest answers");
    assert_eq!(run(&again, "cat note").await.1, "kept\n");
    running.destroy().await;
}

#[tokio::test]
async fn a_shut_down_guest_takes_its_container_and_volumes_with_it() {
    let Some(docker) = engine().await else { return };
    let running = Running::start(&docker, spec()).await;
    let volumes = volumes(&running.spec.session).await;
    // The workspace, the home, and one for each directory of the host.
    assert!(volumes.len() > 2, "{volumes:?}");
    running.sandbox.shutdown().await;
    wait_until_removed(&docker, &running.spec.session).await;
    assert_absent(&volumes).await;
}

/// The test runs itself as a second process, which is killed in the middle of a command.
#[tokio::test]
async fn kill_nine_leaves_nothing() {
    let Some(docker) = engine().await else { return };
    if std::env::var_os("AGENT_TEST_TO_BE_KILLED").is_some() {
        let running = Running::start(&docker, spec()).await;
        eprintln!("SESSION {}", running.spec.session);
        running.sh("sleep 1000 & sleep 1000").await;
        unreachable!("it is killed");
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["docker::kill_nine_leaves_nothing", "--exact", "--nocapture"])
        .env("AGENT_TEST_TO_BE_KILLED", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a second process");
    let lines = BufReader::new(child.stderr.take().expect("its standard error")).lines();
    let session = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("SESSION ").map(str::to_owned))
        .expect("it says its session");
    let volumes = volumes(&session).await;
    assert!(sandbox_exists(&docker, &session).await);
    child.kill().expect("killed");
    child.wait().expect("reaped");
    wait_until_removed(&docker, &session).await;
    assert_absent(&volumes).await;
}

#[tokio::test]
async fn sweep_removes_what_dead_owners_left_and_nothing_else() {
    let Some(docker) = engine().await else { return };
    let living = Running::start(&docker, spec()).await;
    let labels = client()
        .inspect_container(&format!("agent-{}", living.spec.session), None::<InspectContainerOptions>)
        .await
        .expect("inspected")
        .config
        .and_then(|config| config.labels)
        .expect("labels");
    // An earlier process with this one's number, as the start tells.
    let dead = leftover(&labels, &[("agent.pid_start", "1")]).await;
    let kept = leftover(&labels, &[("agent.pid_start", "1"), ("agent.expires", "never")]).await;
    let elsewhere = leftover(&labels, &[("agent.pid_start", "1"), ("agent.host", "another")]).await;
    docker.sweep().await.expect("swept");
    assert!(!is_container(&dead).await, "the dead owner's");
    assert!(is_container(&kept).await, "the kept one");
    assert!(is_container(&elsewhere).await, "another machine's");
    assert_eq!(living.sh("echo alive").await, "alive");
    for container in [kept, elsewhere] {
        remove(&container).await;
    }
    living.destroy().await;
}

#[tokio::test]
async fn the_workspace_can_lie_over_a_directory_that_stays_as_it_is() {
    let Some(docker) = engine().await else { return };
    let home = tempfile::tempdir().expect("a directory");
    // Where layers are kept is set by a variable, and variables belong to a whole process: a second one.
    if std::env::var_os("AGENT_TEST_WITH_A_HOME").is_none() {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["docker::the_workspace_can_lie_over_a_directory_that_stays_as_it_is", "--exact"])
            .env("AGENT_TEST_WITH_A_HOME", "1")
            .env("AGENT_HOME", home.path())
            .output()
            .expect("a second process");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let (uid, gid) = sandbox_ids();
    let tree = home.path().join("a tree, with: odd name");
    std::fs::create_dir_all(tree.join("old")).expect("a tree");
    std::fs::write(tree.join("file"), "before\n").expect("a file");
    for path in [tree.clone(), tree.join("old"), tree.join("file")] {
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("owned by the user inside");
    }
    let mut spec = spec();
    spec.workspace = WorkspaceMount::Overlay { lower: tree.clone(), hidden: Vec::new() };
    let running = Running::start(&docker, spec).await;
    assert_eq!(
        running.sh("cat file; echo after >> file; rmdir old; touch new; ls").await,
        "before\nfile\nnew"
    );
    assert_eq!(std::fs::read_to_string(tree.join("file")).expect("the file"), "before\n");
    assert!(tree.join("old").exists() && !tree.join("new").exists());
    running.destroy().await;
    let layers = machine().cache_dir().expect("a cache").join("layers");
    assert_eq!(std::fs::read_dir(layers).expect("the layers").count(), 0);
}

#[tokio::test]
async fn a_named_image_is_prepared_once_and_keeps_its_own_variables() {
    let Some(docker) = engine().await else { return };
    let name = format!("agent-test-named-{}:1", std::process::id());
    import(&name, &["ENV PATH=/tools", "ENV TOOL=yes", "LABEL agent.test=1"]).await;
    let mut spec = spec();
    spec.image = Some(name.clone());
    let running = Running::start(&docker, spec.clone()).await;
    let passwd = running.sandbox.read_file("/etc/passwd".as_ref(), 0, 1 << 16).await.expect("passwd").bytes;
    let (uid, gid) = session_ids(&running.spec.session);
    assert_eq!(
        String::from_utf8_lossy(&passwd),
        format!("root:x:0:0::/:/bin/sh\nagent:x:{uid}:{gid}:agent:/home/agent:/bin/sh\n")
    );
    let inspected = client()
        .inspect_container(&format!("agent-{}", running.spec.session), None::<InspectContainerOptions>)
        .await
        .expect("inspected");
    let env = inspected.config.and_then(|config| config.env).expect("variables");
    assert!(env.contains(&"PATH=/tools".to_owned()) && env.contains(&"TOOL=yes".to_owned()), "{env:?}");
    running.destroy().await;
    let prepared = prepared_from(&name).await;
    assert_eq!(prepared.len(), 1);
    spec.session.push_str("-again");
    Running::start(&docker, spec).await.destroy().await;
    assert_eq!(prepared_from(&name).await, prepared);
    for image in [&prepared[0], &name] {
        client().remove_image(image, None::<RemoveImageOptions>, None).await.expect("the image is removed");
    }
}

/// Each version of the guest left an image for ever, and so did each that lost its tag to another process.
#[tokio::test]
async fn what_other_versions_prepared_goes_when_a_new_image_is_made() {
    let Some(docker) = engine().await else { return };
    let pid = std::process::id();
    let name = format!("agent-test-versions-{pid}:1");
    import(&name, &[]).await;
    let [idle, used, young] =
        ["idle", "used", "young"].map(|what| format!("localhost/agent-image:{what}-{pid}"));
    let somebodys = format!("agent-test-mine-{pid}:1");
    for tag in [&idle, &used, &somebodys] {
        load_old(tag, &name).await;
    }
    import(&young, &[&format!("LABEL agent.image={name}")]).await;
    let taken = format!("localhost/agent-image:taken-{pid}");
    load_old(&taken, &name).await;
    let untagged = client().inspect_image(&taken).await.expect("the image").id.expect("an id");
    import(&taken, &[]).await;
    let body = ContainerCreateBody {
        image: Some(used.clone()),
        entrypoint: Some(vec!["/never-run".into()]),
        ..Default::default()
    };
    let stopped =
        client().create_container(None::<CreateContainerOptions>, body).await.expect("a container").id;
    let mut spec = spec();
    spec.image = Some(name.clone());
    Running::start(&docker, spec).await.destroy().await;
    let mut left = prepared_from(&name).await;
    assert!(!left.contains(&idle), "{left:?}");
    for kept in [&used, &young, &somebodys] {
        assert!(left.contains(kept), "{kept} of {left:?}");
    }
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(client().inspect_image(&untagged).await.is_err(), "{untagged} is still there");
    remove(&stopped).await;
    left.extend([name, taken]);
    for image in left {
        client().remove_image(&image, None::<RemoveImageOptions>, None).await.expect("the image is removed");
    }
}

#[tokio::test]
async fn an_image_that_cannot_be_had_is_an_error_with_a_hint() {
    let Some(docker) = engine().await else { return };
    let mut spec = spec();
    spec.image = Some("127.0.0.1:1/none/such".to_owned());
    let said = Mutex::new(Vec::new());
    let error = docker
        .start(&spec, &|status, _, _| said.lock().expect("no panic").push(status.to_owned()))
        .await
        .err()
        .expect("no such registry");
    assert!(
        error.to_string().starts_with("the image 127.0.0.1:1/none/such could not be pulled: "),
        "{error}"
    );
    assert!(error.hint_text().is_some_and(|hint| hint.contains("cannot be reached")), "{error:?}");
    assert_eq!(error.exit_code().code(), 4);
    assert_eq!(said.lock().expect("no panic").first().map(String::as_str), Some("Pulling"));
    spec.image = Some("../../etc".to_owned());
    let error = docker.start(&spec, &|_, _, _| {}).await.err().expect("no name");
    assert_eq!(error.exit_code().code(), 2);
}

#[tokio::test]
async fn an_image_that_is_missing_is_pulled_with_progress() {
    let Some(docker) = engine().await else { return };
    // Another one each time, because an engine that knows a layer does not pull it; and large enough to be told about.
    let padding: String = (0..4 << 20).map(|_| fastrand::alphanumeric()).collect();
    let layer = archive_of_passwd(&padding);
    let registry = Registry::serve(layer.clone());
    let name = format!("127.0.0.1:{}/tool", registry.port);
    let mut spec = spec();
    spec.image = Some(name.clone());
    let said = Mutex::new(Vec::new());
    let (channel, info) = docker
        .start(&spec, &|status, done, total| {
            said.lock().expect("no panic").push((status.to_owned(), done, total))
        })
        .await
        .expect("the sandbox starts");
    assert_eq!(info.image.as_ref(), Some(&name));
    drop(channel);
    docker.destroy(&spec.session).await.expect("removed");
    let said = said.into_inner().expect("no panic");
    assert_eq!(said.first().map(|(status, ..)| status.as_str()), Some("Pulling"));
    assert!(said.iter().any(|(_, done, total)| *total > 0 && done == total), "{said:?}");
    for image in prepared_from(&name).await.iter().chain([&format!("{name}:latest")]) {
        client().remove_image(image, None::<RemoveImageOptions>, None).await.expect("the image is removed");
    }
}

/// A bug: an engine that failed at an overlay once got a request without, in which sockets of the host's programs can be reached.
#[tokio::test]
async fn a_protection_is_not_given_up_because_the_engine_fails_once() {
    let Some(docker) = engine().await else { return };
    let Address::Unix(socket) = docker.engine().endpoint.address.clone() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    for (refusals, gives_up) in [(1, false), (2, true)] {
        let refusing = directory.path().join(refusals.to_string());
        let message = "error mounting overlay: device or resource busy";
        refusing_engine(&refusing, socket.clone(), refusals, message);
        let host = format!("unix://{}", refusing.display());
        let machine = Machine::of_this_process().with([("DOCKER_HOST".into(), host.into())]);
        let through = agent::sandbox::docker::Docker::connect(Arc::new(machine)).await.expect("it answers");
        let spec = spec();
        let (channel, info) = through.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        drop(channel);
        docker.destroy(&spec.session).await.expect("removed");
        let is_told = info.missing.iter().any(|text| text.contains("does not mount overlays"));
        assert_eq!(is_told, gives_up, "{:?}", info.missing);
    }
}

#[tokio::test]
async fn doctor_hears_what_the_engine_is() {
    let Some(docker) = engine().await else { return };
    let checks = docker.checks().await.expect("the engine describes itself");
    assert!(checks.runtimes.iter().any(|runtime| runtime.contains("runc") || runtime.contains("crun")));
    assert!(checks.words()[0].starts_with(&format!("engine {}", checks.version)));
}

/// Returns what this machine itself says.
fn local(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().expect("a shell");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// The names of the volumes of a session's sandbox.
async fn volumes(session: &str) -> Vec<String> {
    let name = format!("agent-{session}");
    let container =
        client().inspect_container(&name, None::<InspectContainerOptions>).await.expect("inspected");
    container.mounts.unwrap_or_default().into_iter().filter_map(|mount| mount.name).collect()
}

/// The container is gone from lists a moment before its volumes are removed.
async fn assert_absent(volumes: &[String]) {
    let start = std::time::Instant::now();
    for volume in volumes {
        while client().inspect_volume(volume).await.is_ok() {
            assert!(start.elapsed() < DEADLINE, "the volume {volume} is still there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A container that was created with these labels and never started.
async fn leftover(labels: &HashMap<String, String>, changes: &[(&str, &str)]) -> String {
    let mut labels = labels.clone();
    labels.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let spec = spec();
    labels.insert("agent.session".to_owned(), spec.session.clone());
    let image = any_host_image().await;
    let volume =
        Mount { typ: Some(MountType::VOLUME), target: Some("/workspace".into()), ..Default::default() };
    let body = ContainerCreateBody {
        image: Some(image),
        entrypoint: Some(vec!["/.agent/guest".into()]),
        labels: Some(labels),
        host_config: Some(HostConfig { mounts: Some(vec![volume]), ..Default::default() }),
        ..Default::default()
    };
    let options = CreateContainerOptionsBuilder::default().name(&format!("agent-{}", spec.session)).build();
    client().create_container(Some(options), body).await.expect("created").id
}

async fn any_host_image() -> String {
    let filters = HashMap::from([("label", vec!["agent.image=host"])]);
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    let images = client().list_images(Some(options)).await.expect("images");
    images.into_iter().next().expect("the living sandbox has one").id
}

async fn is_container(id: &str) -> bool {
    client().inspect_container(id, None::<InspectContainerOptions>).await.is_ok()
}

async fn remove(id: &str) {
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    client().remove_container(id, Some(options)).await.expect("removed");
}

/// A file system of nothing but a user database.
fn archive_of_passwd(padding: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in [("etc/passwd", "root:x:0:0::/:/bin/sh"), ("padding", padding)] {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes()).expect("packed");
    }
    archive.into_inner().expect("packed")
}

/// Makes an image of nothing but a user database.
async fn import(name: &str, changes: &[&str]) {
    let (repository, tag) = name.split_once(':').expect("a tag");
    let options = CreateImageOptionsBuilder::default()
        .from_src("-")
        .repo(repository)
        .tag(tag)
        .changes(changes.iter().map(|&change| change.to_owned()).collect())
        .build();
    client()
        .create_image(Some(options), Some(bollard::body_full(archive_of_passwd("").into())), None)
        .try_for_each(|_| async { Ok(()) })
        .await
        .expect("imported");
}

/// An image that was made of the image `name` years ago.
async fn load_old(tag: &str, name: &str) {
    let layer = archive_of_passwd(tag);
    let digest = agent::hash::Hash::of(&layer);
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "created": "2020-01-01T00:00:00Z",
        "config": { "Labels": { "agent.image": name } },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        "history": [{ "created": "2020-01-01T00:00:00Z" }],
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"] }]);
    let mut archive = tar::Builder::new(Vec::new());
    let (config, manifest) = (config.to_string(), manifest.to_string());
    for (name, content) in [
        ("layer.tar", layer.as_slice()),
        ("config.json", config.as_bytes()),
        ("manifest.json", manifest.as_bytes()),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content).expect("packed");
    }
    let archive = bollard::body_full(archive.into_inner().expect("packed").into());
    client()
        .import_image(ImportImageOptions::default(), archive, None)
        .try_for_each(|_| async { Ok(()) })
        .await
        .expect("loaded");
}

/// The images that were prepared from `name`.
async fn prepared_from(name: &str) -> Vec<String> {
    let label = format!("agent.image={name}");
    let filters = HashMap::from([("label", vec![label.as_str()])]);
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    client()
        .list_images(Some(options))
        .await
        .expect("images")
        .into_iter()
        .flat_map(|image| image.repo_tags)
        .collect()
}
