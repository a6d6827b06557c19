//! Commands that are longer than the kernel takes as an argument.
//!
//! The text goes into a file of the sandbox, which the shell reads and removes before anything of the text runs. So `$0`,
//! standard input, `set -e` and the exit code are those of a short command.

use super::Sandbox;
use agent_base::error::{Error, Kind, Result};
use agent_wire::{Command, FileWrite, Node, Program};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest argument, in bytes: Linux takes 32 pages of 4 KiB with the NUL at the end (`MAX_ARG_STRLEN`).
const MAX_ARGUMENT: usize = (128 << 10) - 1;
/// The longest text of a shell command, in bytes.
const MAX_TEXT: usize = 16 << 20;
/// Shells to which the argument behind `-c` is a text to run.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ash"];

impl Sandbox {
    /// The command with a text of any length up to [`MAX_TEXT`].
    pub(super) async fn with_long_text(&self, mut command: Command) -> Result<Command> {
        let Some(text) = long_text(&command.program) else { return Ok(command) };
        if text.len() > MAX_TEXT {
            let message = format!("a shell command is longer than {} MiB", MAX_TEXT >> 20);
            return Err(Error::new(Kind::InSandbox, message).hint("write it to a file, and run that"));
        }
        let path = PathBuf::from(format!("/tmp/.agent-text-{:032x}", fastrand::u128(..)));
        let file = FileWrite {
            path: path.clone(),
            node: Node::Regular(text),
            mode: Some(0o600),
            mtime_ns: None,
            follow: false,
        };
        self.write_files(vec![file]).await?.into_iter().collect::<Result<Vec<()>>>()?;
        match &mut command.program {
            Program::Shell(text) => *text = script(&path),
            Program::Argv(words) => words.iter_mut().skip(2).for_each(|word| {
                if word.len() > MAX_ARGUMENT {
                    *word = script(&path).into();
                }
            }),
        }
        Ok(command)
    }
}

/// The text that is too long for an argument, where a shell would run it. One with a NUL is refused as it is.
fn long_text(program: &Program) -> Option<Vec<u8>> {
    let text = match program {
        Program::Shell(text) => text.as_bytes(),
        Program::Argv(words) => {
            let [shell, options @ .., text] = words.as_slice() else { return None };
            let is_shell =
                Path::new(shell).file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell));
            let is_text = options.last().is_some_and(|option| is_text_option(option));
            let are_short = options.iter().all(|option| option.len() <= MAX_ARGUMENT);
            if is_shell && is_text && are_short { text.as_bytes() } else { return None }
        }
    };
    (text.len() > MAX_ARGUMENT && !text.contains(&0)).then(|| text.to_vec())
}

/// `-c`, alone or as the last of several letters.
fn is_text_option(option: &OsStr) -> bool {
    matches!(option.as_bytes(), [b'-', letters @ .., b'c'] if letters.iter().all(u8::is_ascii_alphabetic))
}

/// Runs the text of the file. Where that cannot be read the command fails as one that cannot be run; the space keeps a text
/// that begins with `-` from being an option.
fn script(path: &Path) -> String {
    let path = path.display();
    format!("eval \" $(command cat {path} || echo exit 126; command rm -f {path})\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_runs_is_long_beyond_the_kernels_limit() {
        let text = |length| "x".repeat(length);
        let argv = |words: &[&str]| Program::Argv(words.iter().map(Into::into).collect());
        assert_eq!(long_text(&Program::Shell(text(131_071))), None);
        assert_eq!(long_text(&Program::Shell(text(131_072))).map(|text| text.len()), Some(131_072));
        assert_eq!(long_text(&Program::Shell(format!("{}\0", text(131_072)))), None);
        let long = text(131_072);
        assert!(long_text(&argv(&["/bin/bash", "-l", "-c", &long])).is_some());
        assert!(long_text(&argv(&["sh", "-ec", &long])).is_some());
        for other in [argv(&["echo", "-c", &long]), argv(&["sh", &long]), argv(&[&long]), argv(&[])] {
            assert_eq!(long_text(&other), None);
        }
    }
}
