//! What a command will be, found out before the fork: its program, arguments, environment and working directory.

use crate::client::Failure;
use crate::files;
use crate::supervisor::Plan;
use crate::sys;
use crate::wire::{self, Bytes, Program};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Everything that can go wrong before the fork is found out before the fork.
pub fn plan(command: &wire::Command, stdin: bool, workspace: &Path) -> Result<Plan, Failure> {
    let cwd = working_directory(command.cwd.as_ref(), workspace)?;
    let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    environment.insert("PWD".into(), cwd.clone().into());
    for (name, value) in &command.env {
        environment.insert(OsStr::from_bytes(&name.0).into(), OsStr::from_bytes(&value.0).into());
    }
    let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
    let (program, arguments) = match &command.program {
        Program::Shell { text } => {
            let (shell, name) = match find_program(b"bash", path) {
                Some(bash) => (bash, "bash"),
                None => (PathBuf::from("/bin/sh"), "sh"),
            };
            (shell, vec![Bytes::from(name), Bytes::from("-c"), text.clone()])
        }
        Program::Argv { words } => {
            let name = words.first().ok_or_else(|| Failure::new("there is no program to run"))?;
            // A name that is not found is left to the exec, whose error is the command's: exit code 127.
            let found = find_program(&name.0, path);
            (found.unwrap_or_else(|| OsStr::from_bytes(&name.0).into()), words.clone())
        }
    };
    let c_string =
        |bytes: &[u8]| CString::new(bytes).map_err(|_| Failure::new("a command cannot hold a NUL byte"));
    let pair =
        |(name, value): (&OsString, &OsString)| c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat());
    Ok(Plan {
        program: c_string(program.as_os_str().as_bytes())?,
        arguments: arguments.iter().map(|word| c_string(&word.0)).collect::<Result<_, _>>()?,
        environment: environment.iter().map(pair).collect::<Result<_, _>>()?,
        cwd: c_string(cwd.as_os_str().as_bytes())?,
        stdin,
    })
}

/// A directory that is there, and not one reached through a process's descriptors (CVE-2024-21626).
fn working_directory(asked: Option<&Bytes>, workspace: &Path) -> Result<PathBuf, Failure> {
    let path = asked.map_or_else(|| workspace.to_owned(), |path| files::resolve(workspace, path));
    if path.starts_with("/proc") {
        return Err(Failure::new(format!("the working directory {} is not allowed", path.display())));
    }
    let real = fs::canonicalize(&path)
        .map_err(|error| Failure::io(format_args!("the working directory {}", path.display()), &error))?;
    if real.starts_with("/proc") {
        return Err(Failure::new(format!("the working directory {} is not allowed", path.display())));
    }
    if !real.is_dir() {
        return Err(Failure::new(format!("the working directory {} is not a directory", path.display())));
    }
    Ok(real)
}

/// Where a program is on `path` (the guest's own where there is none). A name with a slash is left as it is.
pub fn find_program(name: &[u8], path: Option<&OsStr>) -> Option<PathBuf> {
    if name.is_empty() || name.contains(&b'/') {
        return None;
    }
    let own = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(path.unwrap_or(&own))
        .map(|directory| directory.join(OsStr::from_bytes(name)))
        .find(|file| file.is_file() && sys::c_path(file).is_ok_and(|file| sys::executable(&file)))
}
