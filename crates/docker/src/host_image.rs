//! The image `host`: an empty skeleton onto which the machine's own system and toolchains are bound read-only.
//!
//! Nothing to pull, works offline, and the sandbox has exactly the developer's own tools. The skeleton holds the mount
//! points, the symlinks (`/lib -> usr/lib`), a minimal `/etc`, the workspace, the home, and the guest. Its tag is the
//! hash of all that and of this machine's name and kernel, so an engine that has the tag has been checked before.

use super::accounts::Accounts;
use super::engine::{Engine, uname};
use super::failure;
use super::image::{Image, LABEL};
use super::skeleton::{Node, Skeleton};
use super::submounts::with_submounts;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_sandbox::host_tree::{HostTree, host_tree};
use agent_sandbox::{HOME, sandbox_ids};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::TryStreamExt;
use std::path::Path;

/// The name by which it is asked for.
pub(super) const NAME: &str = "host";

/// The image, whether the engine has it or not, and what to make it of.
pub(super) fn describe(here: &Machine) -> Result<(Image, Skeleton)> {
    let tree = host_tree(here);
    let skeleton = skeleton(&tree, here)?;
    let machine = uname();
    let image = Image {
        name: NAME.to_owned(),
        tag: format!("localhost/agent-host:{}", skeleton.id(&[&machine.nodename, &machine.release])),
        path: tree.path.clone(),
        env: tree.env.clone(),
        binds: with_submounts(tree.binds.clone()),
        accounts: Some(accounts()),
    };
    Ok((image, skeleton))
}

/// Has the engine make the image, if it runs on this machine; `false` says that it does not.
pub(super) async fn make(engine: &Engine, image: &Image, skeleton: &Skeleton) -> Result<bool> {
    if !engine.is_on_this_machine(&engine.info().await?) {
        return Ok(false);
    }
    // Podman 4 takes no notice of a tag that is not part of the name.
    let options = CreateImageOptionsBuilder::default()
        .from_src("-")
        .repo(&image.tag)
        .changes(vec![format!("LABEL {LABEL}={NAME}")])
        .build();
    let archive = bollard::body_full(skeleton.tar()?.into());
    engine
        .client
        .create_image(Some(options), Some(archive), None)
        .try_for_each(|_| async { Ok(()) })
        .await
        .map_err(|error| failure::error("the image `host` could not be made", error))?;
    Ok(true)
}

/// Returns what to say where `host` was asked for by name and cannot serve.
pub(super) fn not_here(engine: &Engine) -> Error {
    Error::sandbox(format!(
        "the image `host` shows this machine's own programs, but the engine at {} runs elsewhere",
        engine.endpoint
    ))
    .hint("name another image, for example `--image python:3-slim`")
}

fn skeleton(tree: &HostTree, here: &Machine) -> Result<Skeleton> {
    let mut skeleton = Skeleton::base(here)?;
    for (path, text) in accounts().with(sandbox_ids(), HOME) {
        skeleton.add(path, Node::File(text));
    }
    let files: [(&str, &str); 5] = [
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        ("/etc/hostname", ""),
        ("/etc/resolv.conf", ""),
        ("/etc/shells", "/bin/sh\n/bin/bash\n"),
    ];
    for (path, text) in files {
        skeleton.add(path, Node::File(text.into()));
    }
    for directory in ["/proc", "/sys", "/dev"] {
        skeleton.add(directory, Node::Directory);
    }
    skeleton.add("/tmp", Node::SharedDirectory);
    // What programs written for hosted sandboxes call their home.
    skeleton.add("/home/user", Node::Symlink("agent".into()));
    for (link, target) in [("/var/tmp", "/tmp"), ("/var/run", "/run")] {
        skeleton.add(link, Node::Symlink(target.into()));
    }
    for (link, target) in &tree.symlinks {
        // Below something that is bound the link is there already.
        if !tree.binds.iter().any(|(_, inside)| link.starts_with(inside)) {
            skeleton.add(link, Node::Symlink(target.clone()));
        }
    }
    for (host, inside) in &tree.binds {
        let is_below_another =
            tree.binds.iter().any(|(_, other)| other != inside && inside.starts_with(other));
        if !is_below_another {
            skeleton.add(inside, mount_point(host));
        }
    }
    Ok(skeleton)
}

fn accounts() -> Accounts {
    Accounts {
        passwd: "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n".into(),
        group: "root:x:0:\nnogroup:x:65534:\n".into(),
    }
}

fn mount_point(host: &Path) -> Node {
    if host.is_dir() { Node::Directory } else { Node::File(Vec::new()) }
}
