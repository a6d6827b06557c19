//! An image named by `--image`: pulled where it is missing, then prepared once.
//!
//! Preparing adds the guest, the workspace, the home and the user to it, by way of a container that is created, written
//! to and committed, but never started. After that creating a sandbox is the same for all images, and works on
//! engines that are elsewhere.

use super::accounts::{self, Accounts};
use super::engine::Engine;
use super::image::{Image, LABEL};
use super::skeleton::{Node, Skeleton};
use super::{failure, pull};
use agent_base::error::{Error, Result};
use agent_sandbox::image::ImageProgram;
use agent_sandbox::{HOME, OnProgress, sandbox_ids};
use bollard::models::{ContainerConfig, ContainerCreateBody, ImageInspect};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptions, DownloadFromContainerOptionsBuilder,
    RemoveContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use futures_util::TryStreamExt;
use std::io::Read;

/// `PATH` of an image that says nothing about it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Bytes of `/etc/passwd` or `/etc/group` that are read from an image. A longer one is not such a file.
const MAX_ETC: u64 = 1 << 20;

/// The image underneath and how to use what is prepared from it. Pulls it where the engine does not have it.
pub(super) async fn find(
    engine: &Engine,
    name: &str,
    on_progress: OnProgress<'_>,
) -> Result<(Image, String)> {
    check_name(name)?;
    let found = match inspect(engine, name).await? {
        Some(found) => found,
        None => {
            pull::pull(engine, name, on_progress).await?;
            inspect(engine, name).await?.ok_or_else(|| {
                Error::sandbox(format!("the image {name} was pulled, but the engine does not have it"))
            })?
        }
    };
    let id =
        found.id.ok_or_else(|| Error::sandbox(format!("the engine gives no id for the image {name}")))?;
    let env = found.config.and_then(|config| config.env).unwrap_or_default();
    let path = env.iter().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or(PATH);
    let image = Image {
        name: name.to_owned(),
        tag: format!("localhost/agent-image:{}", Skeleton::base(&engine.machine)?.id(&[&id])),
        path: path.to_owned(),
        env: Vec::new(),
        binds: Vec::new(),
        accounts: None,
    };
    Ok((image, id))
}

/// Returns what the image `name` runs, which is pulled where it is missing.
pub(super) async fn program(
    engine: &Engine,
    name: &str,
    on_progress: OnProgress<'_>,
) -> Result<ImageProgram> {
    check_name(name)?;
    let found = match inspect(engine, name).await? {
        Some(found) => Some(found),
        None => {
            pull::pull(engine, name, on_progress).await?;
            inspect(engine, name).await?
        }
    };
    let config = found.and_then(|found| found.config).unwrap_or_default();
    let split =
        |variable: String| variable.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(ImageProgram {
        entrypoint: config.entrypoint.unwrap_or_default(),
        command: config.cmd.unwrap_or_default(),
        env: config.env.unwrap_or_default().into_iter().filter_map(split).collect(),
        directory: config.working_dir.filter(|directory| !directory.is_empty()),
    })
}

/// Returns whether the engine has the image already.
pub(super) async fn is_there(engine: &Engine, name: &str) -> Result<bool> {
    check_name(name)?;
    Ok(inspect(engine, name).await?.is_some())
}

async fn inspect(engine: &Engine, name: &str) -> Result<Option<ImageInspect>> {
    match engine.client.inspect_image(name).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if failure::status(&error) == Some(404) => Ok(None),
        Err(error) => Err(failure::error(format!("the image {name} could not be looked at"), error)),
    }
}

/// Makes `image` from the image with the id `underneath`, whose accounts are the value.
pub(super) async fn prepare(engine: &Engine, image: &Image, underneath: &str) -> Result<Accounts> {
    let failed = |error| failure::error(format!("the image {} could not be prepared", image.name), error);
    let body = ContainerCreateBody {
        image: Some(underneath.to_owned()),
        // Never run; an image without a command of its own could not be created from otherwise.
        entrypoint: Some(vec![super::skeleton::GUEST.to_owned()]),
        network_disabled: Some(true),
        ..Default::default()
    };
    let created =
        engine.client.create_container(None::<CreateContainerOptions>, body).await.map_err(failed)?;
    let made = fill_and_commit(engine, image, &created.id).await;
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    engine.client.remove_container(&created.id, Some(options)).await.map_err(failed)?;
    made
}

async fn fill_and_commit(engine: &Engine, image: &Image, container: &str) -> Result<Accounts> {
    let failed = |error| failure::error(format!("the image {} could not be prepared", image.name), error);
    let mut skeleton = Skeleton::base(&engine.machine)?;
    let accounts = Accounts {
        passwd: read_file(engine, container, accounts::PASSWD).await?,
        group: read_file(engine, container, accounts::GROUP).await?,
    };
    for (file, text) in accounts.with(sandbox_ids(), HOME) {
        skeleton.add(file, Node::File(text));
    }
    let options = UploadToContainerOptionsBuilder::default().path("/").build();
    let archive = bollard::body_full(skeleton.tar()?.into());
    engine.client.upload_to_container(container, Some(options), archive).await.map_err(failed)?;
    let (repository, tag) = image.repository_and_tag();
    let options =
        CommitContainerOptionsBuilder::default().container(container).repo(repository).tag(tag).build();
    let config = ContainerConfig {
        labels: Some([(LABEL.to_owned(), image.name.clone())].into()),
        ..Default::default()
    };
    engine.client.commit_container(options, config).await.map_err(failed)?;
    accounts::remember(&engine.machine, image, &accounts)?;
    Ok(accounts)
}

/// A small regular file of a container; empty where there is none.
async fn read_file(engine: &Engine, container: &str, path: &str) -> Result<Vec<u8>> {
    let failed = |error| failure::error(format!("{path} of the image could not be read"), error);
    let options = DownloadFromContainerOptionsBuilder::default().path(path).build();
    let mut archive = Vec::new();
    let mut stream = std::pin::pin!(engine.client.download_from_container(container, Some(options)));
    loop {
        match stream.try_next().await {
            Ok(Some(bytes)) if (archive.len() + bytes.len()) as u64 <= 2 * MAX_ETC => {
                archive.extend_from_slice(&bytes);
            }
            Ok(Some(_)) => return Err(Error::sandbox(format!("{path} of the image is too long"))),
            Ok(None) => break,
            Err(error) if failure::status(&error) == Some(404) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        }
    }
    let mut archive = tar::Archive::new(archive.as_slice());
    let mut text = Vec::new();
    if let Some(entry) = archive.entries()?.next() {
        entry?.take(MAX_ETC).read_to_end(&mut text)?;
    }
    Ok(text)
}

/// Refuses what is not an image reference, since it becomes part of a request's path.
fn check_name(name: &str) -> Result<()> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/' | b':' | b'@');
    if name.is_empty()
        || name.len() > 512
        || !name.bytes().all(fits)
        || name.split('/').any(|part| part == "..")
    {
        return Err(Error::usage(format!("`{}` is not a valid image name", name.escape_debug()))
            .hint("for example `--image python:3-slim`, or `--image host`"));
    }
    Ok(())
}
