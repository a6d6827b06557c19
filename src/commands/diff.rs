//! `agent diff [ID] [PATH…]`: what a session changed.

use super::review::find;
use crate::cli::{DiffArgs, Options};
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::ui::style::Colours;
use crate::workspace::{diff, git_patch};
use std::io::{BufWriter, ErrorKind, IsTerminal, Write, stdout};
use std::process::{Command, Stdio};

/// Shows the change on stdout, through the person's pager where that is a terminal.
pub async fn diff(options: &Options, arguments: DiffArgs) -> Result<ExitCode> {
    let kept = find(options, arguments.id, arguments.paths).await?;
    let changes = kept.workspace.recorded_changes().await?.select(&kept.paths)?;
    let store = kept.workspace.store();
    let color = Colours::of(&stdout()).0;
    let write = |out: &mut dyn Write| {
        if arguments.stat {
            diff::write_stat(out, &changes, store)
        } else if arguments.name_only {
            diff::write_names(out, &changes)
        } else if arguments.patch {
            git_patch::write(out, &changes, store)
        } else {
            diff::write_for_people(out, &changes, store, color)
        }
    };
    // A patch may hold anything, and a pager shows it raw; the others are safe to show.
    if stdout().is_terminal() && !arguments.patch && page(&write)? {
        return Ok(ExitCode::Success);
    }
    let mut out = BufWriter::new(stdout().lock());
    write(&mut out)?;
    out.flush()?;
    Ok(ExitCode::Success)
}

/// Writes through `$PAGER` (`less`, where it is not set); `false` where there is none. As git does, `less` gets `FRX`:
/// colours, and no pager for what fits the screen.
fn page(write: &dyn Fn(&mut dyn Write) -> Result<()>) -> Result<bool> {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    if pager.is_empty() || pager == "cat" {
        return Ok(false);
    }
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("set -- {pager}; command -v \"$1\" >/dev/null || exec cat; exec \"$@\""))
        .stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return Ok(false) };
    let mut text = Vec::new();
    write(&mut text)?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(&text) {
            // The person has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            result => result?,
        }
    }
    child.wait()?;
    Ok(true)
}
