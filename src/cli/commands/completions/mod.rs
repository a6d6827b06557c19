//! `agent completions SHELL`: a script, which asks `agent` while the user types; `completion.rs` answers.

mod bash;

use crate::cli::print::offer;
use crate::cli::ui::json::output_error;
use crate::error::Result;
use crate::exit_code::ExitCode;
use clap::{Args, ValueEnum};
use clap_complete::Shell;
use clap_complete::env::{Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

/// Set by the script: what is completed then is the command line after `--`.
pub const VARIABLE: &str = "AGENT_COMPLETE";

pub const SHELLS: Shells<'static> = Shells(&[
    &bash::Bash,
    &ValuesFirst(&Elvish),
    &ValuesFirst(&Fish),
    &ValuesFirst(&Powershell),
    &ValuesFirst(&Zsh),
]);

/// `agent completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script on standard output.
pub fn completions(arguments: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    let named = arguments.shell.to_possible_value();
    if let Some(shell) = named.and_then(|shell| SHELLS.completer(shell.get_name())) {
        // By name: a path would be wrong after the next installation.
        shell.write_registration(VARIABLE, "agent", "agent", "agent", &mut script).map_err(output_error)?;
    }
    offer(&script)?;
    Ok(ExitCode::Success)
}

/// A shell whose user gets options where there is nothing else, or after a `-`.
struct ValuesFirst<'a>(&'a (dyn EnvCompleter + Sync));

impl EnvCompleter for ValuesFirst<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn is(&self, name: &str) -> bool {
        self.0.is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        bin: &str,
        completer: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.0.write_registration(variable, name, bin, completer, out)
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        arguments: Vec<OsString>,
        directory: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut lines = Vec::new();
        self.0.write_complete(command, arguments, directory, &mut lines)?;
        let lines: Vec<&[u8]> = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        out.write_all(&without_options(&lines, |line| line.starts_with(b"-")).join(&b'\n'))
    }
}

/// `candidates` without the options among them, unless they are all options.
fn without_options<T: Copy>(candidates: &[T], is_option: impl Fn(&T) -> bool) -> Vec<T> {
    let values: Vec<T> = candidates.iter().copied().filter(|candidate| !is_option(candidate)).collect();
    if values.is_empty() { candidates.to_vec() } else { values }
}
