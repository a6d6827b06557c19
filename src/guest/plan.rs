//! What a command will be, found out before the fork: its program, arguments, environment and working directory.

use crate::client::Failure;
use crate::files;
use crate::search::SearchPath;
use crate::simple;
use crate::supervisor::{Execution, Plan};
use crate::wire::{self, Bytes, Program};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Everything that can go wrong before the fork is found out before the fork.
pub fn plan(command: &wire::Command, stdin: bool, search: &mut SearchPath) -> Result<Plan, Failure> {
    let cwd = command.cwd.as_ref().map(working_directory).transpose()?;
    let mut environment: Environment = std::env::vars_os().collect();
    environment.remove(OsStr::new("PWD"));
    for (name, value) in &command.env {
        environment.insert(OsStr::from_bytes(&name.0).into(), OsStr::from_bytes(&value.0).into());
    }
    let attempts: Vec<Execution> = match &command.program {
        Program::Shell { text } => {
            let shortcut = shortcut(&text.0, &environment, search);
            shortcut.into_iter().chain([Execution::shell(text, search)?]).collect()
        }
        Program::Argv { words } => {
            let name = words.first().ok_or_else(|| Failure::new("there is no program to run"))?;
            // A name that is not found is left to the exec, whose error is the command's: exit code 127.
            let found = search.find(&name.0, path_of(&environment));
            let program = found.unwrap_or_else(|| OsStr::from_bytes(&name.0).into());
            vec![Execution::new(&program, words.iter().map(|word| &*word.0))?]
        }
    };
    // A shell alone asks the kernel, which takes less time than checking what it is told.
    let is_told = attempts.len() > 1 || matches!(command.program, Program::Argv { .. });
    if is_told && let Some(directory) = cwd.clone().or_else(|| std::env::current_dir().ok()) {
        environment.entry("PWD".into()).or_insert_with(|| directory.into());
    }
    let pair =
        |(name, value): (&OsString, &OsString)| c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat());
    Ok(Plan {
        attempts,
        environment: environment.iter().map(pair).collect::<Result<_, _>>()?,
        cwd: cwd.map(|cwd| c_string(cwd.as_os_str().as_bytes())).transpose()?,
        stdin,
    })
}

type Environment = BTreeMap<OsString, OsString>;

fn path_of(environment: &Environment) -> Option<&OsStr> {
    environment.get(OsStr::new("PATH")).map(OsString::as_os_str)
}

fn c_string(bytes: &[u8]) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| Failure::new("a command cannot hold a NUL byte"))
}

impl Execution {
    fn new<'a>(program: &Path, words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Failure> {
        let arguments = words.map(c_string).collect::<Result<_, _>>()?;
        Ok(Self { program: c_string(program.as_os_str().as_bytes())?, arguments })
    }

    /// The shell, with a text to run.
    fn shell(text: &Bytes, search: &mut SearchPath) -> Result<Self, Failure> {
        let (shell, name) =
            search.find(b"bash", None).map_or_else(|| ("/bin/sh".into(), "sh"), |bash| (bash, "bash"));
        // Given its whole path, the shell need not look for itself; the name at the end is what it calls itself.
        let words = [shell.as_os_str().as_bytes(), b"-c", b"--", &text.0, name.as_bytes()];
        Self::new(&shell, words.into_iter())
    }
}

/// What a shell would come to anyway. Where it cannot be executed, the shell is asked after all, and says why.
fn shortcut(text: &[u8], environment: &Environment, search: &mut SearchPath) -> Option<Execution> {
    let words = simple::words(text)?;
    let name = *words.first()?;
    // Functions, and files to be read first, reach a shell this way.
    if environment.keys().any(|name| name.as_bytes().starts_with(b"BASH_") || name == "ENV") {
        return None;
    }
    let program = if name.contains(&b'/') {
        OsStr::from_bytes(name).into()
    } else {
        search.find(name, path_of(environment)).filter(|found| found.is_absolute())?
    };
    Execution::new(&program, words.into_iter()).ok()
}

/// A directory that is there, and not one reached through a process's descriptors (CVE-2024-21626).
fn working_directory(asked: &Bytes) -> Result<PathBuf, Failure> {
    let path = files::resolve(asked);
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
