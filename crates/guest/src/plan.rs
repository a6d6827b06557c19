//! Prepares a command before the fork: its program, arguments, environment and working directory.

use crate::client::Failure;
use crate::files;
use crate::search::SearchPath;
use crate::simple;
use crate::supervisor::{Execution, Plan};
use agent_wire::{self as wire, Program, TerminalSize};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The shell where there is no bash.
const SHELL: &str = "/bin/sh";

/// Finds every error that can be found before the fork.
pub fn plan(
    command: &wire::Command,
    terminal: Option<TerminalSize>,
    read_only: bool,
    search: &mut SearchPath,
) -> Result<Plan, Failure> {
    let cwd = command.cwd.as_deref().map(working_directory).transpose()?;
    let mut environment: Environment = std::env::vars_os().collect();
    environment.remove(OsStr::new("PWD"));
    for (name, value) in &command.env {
        environment.insert(name.clone(), value.clone());
    }
    let temporary = environment.get(OsStr::new("TMPDIR")).map(PathBuf::from);
    let workspace = std::env::current_dir().ok().filter(|_| read_only);
    if read_only && workspace.is_none() {
        return Err(Failure::new("the workspace cannot be found, so it cannot be kept as it is"));
    }
    // What lies above the workspace cannot be written to as a whole then.
    if temporary.zip(workspace.as_ref()).is_some_and(|(above, workspace)| workspace.starts_with(above)) {
        environment.insert("TMPDIR".into(), "/run".into());
    }
    let attempts: Vec<Execution> = match &command.program {
        Program::Shell(text) => match shortcut(text.as_bytes(), &environment, search) {
            Some(shortcut) => {
                std::iter::once(Ok(shortcut)).chain(Execution::shells(text)).collect::<Result<_, _>>()?
            }
            None => vec![Execution::shell(text, search)?],
        },
        Program::Argv(words) => {
            let name = words.first().ok_or_else(|| Failure::new("there is no program to run"))?;
            // A name that is not found is left to the exec, whose error is the command's: exit code 127.
            let found = search.find(name.as_bytes(), path_of(&environment));
            let program = found.unwrap_or_else(|| name.into());
            vec![Execution::new(&program, words.iter().map(|word| word.as_bytes()))?]
        }
    };
    // A shell alone asks the kernel for its directory, which takes less time than checking a variable.
    let needs_pwd = attempts.len() > 1 || matches!(command.program, Program::Argv(_));
    if needs_pwd && let Some(directory) = cwd.clone().or_else(|| std::env::current_dir().ok()) {
        environment.entry("PWD".into()).or_insert_with(|| directory.into());
    }
    let pair =
        |(name, value): (&OsString, &OsString)| c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat());
    Ok(Plan {
        attempts,
        environment: environment.iter().map(pair).collect::<Result<_, _>>()?,
        cwd: cwd.map(|cwd| c_string(cwd.as_os_str().as_bytes())).transpose()?,
        stdin: command.stdin,
        terminal,
        read_only: workspace,
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
    fn shell(text: &str, search: &mut SearchPath) -> Result<Self, Failure> {
        Self::shell_at(&search.find(b"bash", None).unwrap_or_else(|| SHELL.into()), text)
    }

    /// The shell wherever it may be, without looking for it, for when something else could not be executed: the first that
    /// is there will be.
    fn shells(text: &str) -> impl Iterator<Item = Result<Self, Failure>> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> =
            std::env::split_paths(&path).filter(|directory| directory.is_absolute()).collect();
        let shells = directories.into_iter().map(|directory| directory.join("bash")).chain([SHELL.into()]);
        shells.map(move |shell| Self::shell_at(&shell, text))
    }

    fn shell_at(shell: &Path, text: &str) -> Result<Self, Failure> {
        let name = shell.file_name().unwrap_or_default();
        // Given its whole path, the shell need not look for itself; the name at the end is what it calls itself.
        let words = [shell.as_os_str().as_bytes(), b"-c", b"--", text.as_bytes(), name.as_bytes()];
        Self::new(shell, words.into_iter())
    }
}

/// Returns the program that a shell would execute anyway. Where that fails, the shell is run after all and prints the error.
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

/// An existing directory, and not one reached through a process's descriptors (CVE-2024-21626).
fn working_directory(asked: &Path) -> Result<PathBuf, Failure> {
    let path = files::resolve(asked.to_owned());
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
