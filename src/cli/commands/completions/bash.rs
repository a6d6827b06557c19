//! Completion in bash, which splits words at `:` and `=`: `--model=qwen3:8b` arrives as five words.

use super::without_options;
use clap_complete::engine::complete;
use clap_complete::env::EnvCompleter;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

/// The variable with the number of the word that is completed.
const INDEX: &str = "_AGENT_COMPLETE_INDEX";

/// Candidates are one a line. A value that ends in `=`, `/` or `:` goes on.
const SCRIPT: &str = r#"_NAME_complete() {
    local IFS=$'\n'
    COMPREPLY=($(INDEX="$COMP_CWORD" VARIABLE=bash "COMPLETER" -- "${COMP_WORDS[@]}" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} =~ [=/:]$ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
if ((BASH_VERSINFO[0] > 4 || BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4)); then
    complete -o bashdefault -o default -o nosort -F _NAME_complete BIN
else
    complete -o bashdefault -o default -F _NAME_complete BIN
fi
"#;

pub struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        bin: &str,
        completer: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let script = SCRIPT
            .replace("VARIABLE", variable)
            .replace("INDEX", INDEX)
            .replace("NAME", name)
            .replace("COMPLETER", completer)
            .replace("BIN", bin);
        out.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        arguments: Vec<OsString>,
        directory: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let index = std::env::var(INDEX).ok().and_then(|index| index.parse().ok()).unwrap_or_default();
        let Words { words, shown } = join(&arguments, index);
        let current = words.len().saturating_sub(1);
        let candidates = complete(command, words, current, directory)?;
        let values: Vec<&OsStr> = candidates.iter().map(|candidate| candidate.get_value()).collect();
        for value in without_options(&values, |value| value.as_encoded_bytes().starts_with(b"-")) {
            // bash replaces only the part behind the last separator.
            out.write_all(value.as_encoded_bytes().get(shown..).unwrap_or_default())?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// A command line up to the word that is completed.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    words: Vec<OsString>,
    /// Bytes of the last word before the part that bash completes.
    shown: usize,
}

/// The words up to the one with this `index` as the user wrote them, together again where bash split them.
fn join(split: &[OsString], index: usize) -> Words {
    let is_separator = |word: &OsString| {
        let word = word.as_encoded_bytes();
        !word.is_empty() && word.iter().all(|byte| matches!(byte, b':' | b'='))
    };
    let empty = OsString::new();
    let (mut words, mut shown): (Vec<OsString>, usize) = (Vec::new(), 0);
    for position in 0..=index.min(split.len()) {
        let word = split.get(position).unwrap_or(&empty);
        let follows = position > 0 && split.get(position - 1).is_some_and(is_separator);
        match words.last_mut() {
            // A separator is never the first word after the program's name.
            Some(last) if position > 1 && (is_separator(word) || follows) => {
                shown = last.len() + if is_separator(word) { word.len() } else { 0 };
                last.push(word);
            }
            _ => {
                shown = 0;
                words.push(word.clone());
            }
        }
    }
    Words { words, shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(split: &[&str], index: usize) -> (Vec<OsString>, usize) {
        let split: Vec<OsString> = split.iter().map(OsString::from).collect();
        let Words { words, shown } = join(&split, index);
        (words, shown)
    }

    #[test]
    fn words_that_bash_split_are_put_together() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(joined(&["agent", "run", ""], 2), (words(&["agent", "run", ""]), 0));
        assert_eq!(joined(&["agent", "run"], 2), (words(&["agent", "run", ""]), 0));
        assert_eq!(joined(&["agent", "-m", "qwen3", ":"], 3), (words(&["agent", "-m", "qwen3:"]), 6));
        assert_eq!(joined(&["agent", "-m", "qwen3", ":", "8"], 4), (words(&["agent", "-m", "qwen3:8"]), 6));
        assert_eq!(
            joined(&["agent", "--model", "=", "qwen3", ":", "8", "x"], 5),
            (words(&["agent", "--model=qwen3:8"]), 14)
        );
        assert_eq!(
            joined(&["agent", "--model", "=", "qwen3", "x"], 4),
            (words(&["agent", "--model=qwen3", "x"]), 0)
        );
    }
}
