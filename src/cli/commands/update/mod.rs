//! `agent update`: the newest release in the place of what `install.sh` installed.

mod owner;
mod release;

use crate::cli::options::{JsonArg, Options};
use crate::cli::print::print;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use clap::Args;
use owner::Receipt;
use release::Release;
use serde_json::json;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempPath;
use tokio::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The time limit for the new program to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// `agent update`
#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// A version in place of the newest, which may be older
    version: Option<String>,
    #[command(flatten)]
    output: JsonArg,
}

/// Replaces the program, where a release other than its own is found.
pub async fn update(machine: &Machine, arguments: UpdateArgs) -> Result<ExitCode> {
    let options = Options::of(&[&arguments.output]);
    let program = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(|error| Error::unexpected("the path of this program cannot be found").caused_by(error))?;
    let receipt = Receipt::of(&program, machine)?;
    let asked = arguments.version.as_deref().map(|version| version.trim_start_matches('v'));
    let release = Release::find(&receipt, asked).await?;
    if release.archive == receipt.archive {
        require(asked, VERSION)?;
        let json = json!({ "updated": false, "version": VERSION });
        return print(&options, &format!("agent {VERSION} is what the release has\n"), &json);
    }
    let new = write_beside(&program, &release.program().await?)?;
    let version = version_of(&new).await?;
    require(asked, &version)?;
    if asked.is_none() && numbers(&version) < numbers(VERSION) {
        return Err(Error::unexpected(format!(
            "the newest release is {version}, and this is {VERSION}: nothing was changed"
        ))
        .hint(format!("agent update {version} takes the older one")));
    }
    new.persist(&program).map_err(|error| {
        Error::unexpected(format!("{} could not be replaced", program.display())).caused_by(error.error)
    })?;
    receipt.keep(release.archive, machine)?;
    let text = format!("agent {version} is in {}, in place of {VERSION}\n", program.display());
    let json = json!({ "updated": true, "version": version, "from": VERSION, "program": program });
    print(&options, &text, &json)
}

/// Who serves the releases may have put another one in its place, and its signature is valid too.
///
/// # Errors
/// The release is not the version that was asked for.
fn require(asked: Option<&str>, version: &str) -> Result<()> {
    let is_it = asked.is_none_or(|asked| asked == version);
    let wrong = || {
        let asked = asked.unwrap_or_default();
        Error::unexpected(format!("the release {asked} has agent {version} in it: nothing was changed"))
            .hint("agent update without a version takes the newest release")
    };
    if is_it { Ok(()) } else { Err(wrong()) }
}

/// The new program as a file beside the old one, with its mode.
fn write_beside(program: &Path, content: &[u8]) -> Result<TempPath> {
    const PERMISSIONS: u32 = 0o777;
    let write = || {
        let mode = program.metadata()?.permissions().mode() & PERMISSIONS;
        let directory = program.parent().unwrap_or(program);
        let mut file = tempfile::Builder::new().prefix(".agent.").tempfile_in(directory)?;
        file.write_all(content)?;
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        // A file that is open for writing cannot be executed.
        Ok(file.into_temp_path())
    };
    write().map_err(|error: std::io::Error| {
        Error::unexpected(format!("nothing can be written beside {}", program.display()))
            .hint("run it as the user who installed it")
            .caused_by(error)
    })
}

/// The version that the new program prints: one that does not run here is not installed.
async fn version_of(program: &Path) -> Result<String> {
    let failed =
        |why: &str| Error::unexpected(format!("the program of the release {why}: nothing was changed"));
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(VERSION_TIMEOUT, command.output())
        .await
        .map_err(|_| failed("does not answer"))?
        .map_err(|error| failed("does not start").caused_by(error))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let version = printed.trim().strip_prefix("agent ").filter(|version| numbers(version).is_some());
    version
        .filter(|_| output.status.success())
        .map(str::to_owned)
        .ok_or_else(|| failed("does not print its version"))
}

/// The numbers of `1.2.3`; what follows a `-` does not count.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut parts = version.split('-').next()?.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.9"));
        assert_eq!(numbers("1.2.3-rc.1"), Some([1, 2, 3]));
        assert_eq!([numbers("1.2"), numbers("1.2.3.4"), numbers("a.b.c"), numbers("\u{1b}[2J")], [None; 4]);
    }
}
