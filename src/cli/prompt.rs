//! The prompt of `agent run`: an argument, standard input, or both.

use crate::error::{Error, Result};
use std::borrow::Cow;
use std::io::{IsTerminal, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The longest standard input that is accepted, in bytes.
const MAX_INPUT: u64 = 10 << 20;
/// The time limit for the first byte of standard input if there is a prompt as well: CI systems often leave one open that
/// never gets any.
const INPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// The prompt, and a notice for the user if standard input was not waited for, or is not text.
pub async fn read(argument: Option<String>) -> Result<(String, Option<String>)> {
    let terminal = std::io::stdin().is_terminal();
    match argument.as_deref() {
        Some("-") => input_only().await,
        Some(prompt) if terminal => Ok((not_empty(prompt.to_owned())?, None)),
        Some(prompt) => with_input(not_empty(prompt.to_owned())?).await,
        None if terminal => Err(Error::usage("there is no prompt")
            .hint("agent run \"fix the failing test\", or pipe one in; `agent` alone is the REPL")),
        None => input_only().await,
    }
}

async fn input_only() -> Result<(String, Option<String>)> {
    let (input, notice) = read_input().await?;
    Ok((not_empty(input)?, notice))
}

/// `prompt`, with standard input appended.
async fn with_input(prompt: String) -> Result<(String, Option<String>)> {
    if !is_readable(INPUT_TIMEOUT).await {
        let notice = format!(
            "standard input is open and had nothing to read for {} s: it is ignored",
            INPUT_TIMEOUT.as_secs()
        );
        return Ok((prompt, Some(notice)));
    }
    let (input, notice) = read_input().await?;
    match input.trim().is_empty() {
        true => Ok((prompt, notice)),
        false => Ok((format!("{prompt}\n\n{input}"), notice)),
    }
}

/// Returns whether standard input has bytes or its end to read within `timeout`.
async fn is_readable(timeout: Duration) -> bool {
    let fd = std::io::stdin().as_raw_fd();
    let wait = tokio::task::spawn_blocking(move || {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd; the call returns after the given time at the latest.
        unsafe { libc::poll(&mut poll, 1, timeout.as_millis() as libc::c_int) != 0 }
    });
    wait.await.unwrap_or(false)
}

/// All of standard input, read on another thread: a pipe may stay open for long, and Ctrl-C has to work meanwhile.
async fn read_input() -> Result<(String, Option<String>)> {
    let read = tokio::task::spawn_blocking(|| {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(MAX_INPUT + 1).read_to_end(&mut bytes).map(|_| bytes)
    });
    let bytes = match read.await {
        Ok(result) => {
            result.map_err(|error| Error::usage("standard input could not be read").caused_by(error))?
        }
        Err(error) => return Err(Error::unexpected("standard input could not be read").caused_by(error)),
    };
    if bytes.len() as u64 > MAX_INPUT {
        return Err(Error::usage(format!("standard input is longer than {} MiB", MAX_INPUT >> 20))
            .hint("put it into a file of the workspace and name the file"));
    }
    // A log with one invalid byte is not a reason to fail.
    Ok(match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(text) => (text.to_owned(), None),
        Cow::Owned(text) => {
            let notice = "standard input is not valid UTF-8: invalid bytes were replaced by \u{fffd}";
            (text, Some(notice.to_owned()))
        }
    })
}

fn not_empty(text: String) -> Result<String> {
    match text.trim().is_empty() {
        true => {
            Err(Error::usage("the prompt is empty")
                .hint("describe the task: agent run \"fix the failing test\""))
        }
        false => Ok(text),
    }
}
