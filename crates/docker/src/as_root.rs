//! Containers that do one thing on this machine that takes its root, and are gone. They have the image `host`, the guest's program or those of
//! the machine, no network, and of the session only what they are about: nothing of the session's runs in them.

use super::container::{bind, binds, no_log};
use super::engine::Engine;
use super::image::Image;
use super::skeleton::GUEST;
use super::{failure, host_image};
use agent_base::error::Result;
use agent_sandbox::WORKSPACE;
use bollard::errors::Error as EngineError;
use bollard::models::{ContainerCreateBody, ContainerWaitResponse, HostConfig, Mount, MountType};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, StartContainerOptions, WaitContainerOptionsBuilder,
};
use futures_util::StreamExt;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The time that emptying a directory of millions of files may take, and that showing overlays anew may.
const EMPTYING: Duration = Duration::from_secs(600);
const SHOWING: Duration = Duration::from_secs(30);

/// Empties a directory, in which the kernel or the sandbox has left what an ordinary user cannot remove.
pub(super) async fn empty(engine: &Engine, directory: &Path) -> Result<()> {
    let container = |image: &Image| {
        let mut mounts = binds(image)?;
        mounts.push(bind(directory, Path::new(WORKSPACE), false)?);
        // To look into directories that their owner closed.
        Ok(body(image, &["find", WORKSPACE, "-mindepth", "1", "-delete"], mounts, &["DAC_OVERRIDE"]))
    };
    // Whether it did its work shows when the directory is removed.
    let failed = format!("{} could not be emptied", directory.display());
    run(engine, EMPTYING, &failed, container).await.map(drop)
}

/// Has the overlays of a container show what is underneath now: asked at one mount of an overlay, the kernel does it for all.
///
/// # Errors
/// The engine may not have a container do that: it has not the rights of this machine's root.
pub(super) async fn show_anew(engine: &Engine, container: &str) -> Result<()> {
    const FAILED: &str = "the sandbox may show former files";
    let inspected = engine.client.inspect_container(container, None::<InspectContainerOptions>);
    let inspected = inspected.await.map_err(|error| failure::error(FAILED, error))?;
    let volumes = inspected.mounts.into_iter().flatten();
    let volumes = volumes.filter(|mount| mount.typ.as_deref() == Some("volume"));
    // The workspace is at more than one path.
    let names: BTreeSet<String> = volumes.filter_map(|mount| mount.name).collect();
    let mount = |(number, name)| Mount {
        typ: Some(MountType::VOLUME),
        source: Some(name),
        target: Some(format!("{WORKSPACE}/{number}")),
        ..Mount::default()
    };
    let mounts: Vec<Mount> = names.into_iter().enumerate().map(mount).collect();
    let container = |image: &Image| {
        // The guest is the first process there, which looks at its own mounts: joining them takes the second of the capabilities.
        let mut body = body(image, &[GUEST, "anew", "1"], mounts.clone(), &["SYS_ADMIN", "SYS_CHROOT"]);
        let options = body.host_config.get_or_insert_default().security_opt.get_or_insert_default();
        // By default both refuse what changes a mount.
        options.extend(["seccomp=unconfined", "apparmor=unconfined"].map(str::to_owned));
        Ok(body)
    };
    let ended = run(engine, SHOWING, FAILED, container).await?;
    ended.map_err(|error| failure::error(FAILED, error))
}

fn body(image: &Image, command: &[&str], mounts: Vec<Mount>, capabilities: &[&str]) -> ContainerCreateBody {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    ContainerCreateBody {
        image: Some(image.tag.clone()),
        entrypoint: Some(owned(command)),
        user: Some("0:0".to_owned()),
        host_config: Some(HostConfig {
            mounts: Some(mounts),
            network_mode: Some("none".to_owned()),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: Some(owned(capabilities)),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            readonly_rootfs: Some(true),
            log_config: Some(no_log()),
            auto_remove: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Runs a container of the image `host` until it is gone, `deadline` at most. Returns how it ended, if the engine could start it; `failed`
/// says what it means that it could not.
async fn run(
    engine: &Engine,
    deadline: Duration,
    failed: &str,
    container: impl Fn(&Image) -> Result<ContainerCreateBody>,
) -> Result<Result<(), EngineError>> {
    let (image, skeleton) = host_image::describe(&engine.machine)?;
    let body = container(&image)?;
    let create = || engine.client.create_container(None::<CreateContainerOptions>, body.clone());
    let created = match create().await {
        Err(error) if failure::status(&error) == Some(404) => {
            host_image::make(engine, &image, &skeleton).await?;
            create().await
        }
        result => result,
    };
    let failed = |error| failure::error(failed, error);
    let id = created.map_err(failed)?.id;
    let options = WaitContainerOptionsBuilder::default().condition("removed").build();
    let mut gone = engine.client.wait_container(&id, Some(options));
    engine.client.start_container(&id, None::<StartContainerOptions>).await.map_err(failed)?;
    match tokio::time::timeout(deadline, gone.next()).await {
        Ok(ended) => Ok(ended.unwrap_or_else(|| Ok(ContainerWaitResponse::default())).map(drop)),
        Err(_) => Ok(Err(EngineError::RequestTimeoutError)),
    }
}
