//! Cells of languages without a kept interpreter, as notebooks have them: they begin in the context's directory, and the value of
//! the last expression is a result.

use agent_base::error::Result;
use agent_event::Stream;
use agent_sandbox::{Command, Outcome, Output, Program, Sandbox};
use agent_tools::code::Language;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const R: &str = include_str!("cells/cell.R");
const JAVA: &str = include_str!("cells/Main.java");
/// Text without the types, from the variable `AGENT_CELL`.
const STRIP_TYPES: &str = "printf %s \"$AGENT_CELL\" | \
    esbuild --loader=ts --log-level=silent --tsconfig-raw='{\"compilerOptions\":{\"preserveValueImports\":true}}' 2>/dev/null || \
    node --no-warnings -e 'process.stdout.write(require(\"module\").stripTypeScriptTypes(process.env.AGENT_CELL))' 2>/dev/null";
/// The time limit for the translation.
const STRIP_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest code that is a constant of a class file, or a variable of a program.
const MAX_CONSTANT: usize = 60_000;

/// The program that runs `code` as a cell that begins in `cwd`, and its language.
///
/// # Errors
/// The connection is broken.
pub async fn program(
    sandbox: &Sandbox,
    language: Language,
    cwd: &Path,
    code: String,
) -> Result<(Language, String)> {
    let is_short = code.len() <= MAX_CONSTANT;
    let around = |template: &str| {
        template.replacen("@CWD@", &json!(cwd.to_string_lossy()).to_string(), 1).replacen(
            "@CODE@",
            &json!(code).to_string(),
            1,
        )
    };
    Ok(match (language, cwd.to_str()) {
        (Language::Bash, Some(cwd)) => (language, format!("cd {} || exit\n{code}", shell_words::quote(cwd))),
        (Language::R, _) => (language, around(R)),
        // One with a class of its own is a program.
        (Language::Java, _) if is_short && !code.contains(" void main") => (language, around(JAVA)),
        (Language::TypeScript, _) if is_short => match without_types(sandbox, &code).await? {
            Some(code) => (Language::JavaScript, code),
            None => (language, code),
        },
        _ => (language, code),
    })
}

/// The JavaScript of TypeScript; `None` where nothing in the sandbox translates it, or where it has errors.
async fn without_types(sandbox: &Sandbox, code: &str) -> Result<Option<String>> {
    let command = Command {
        program: Program::Argv(["sh", "-c", STRIP_TYPES].map(Into::into).to_vec()),
        cwd: Some("/".into()),
        env: vec![("AGENT_CELL".into(), code.into())],
        timeout: Some(STRIP_TIMEOUT),
        live_bytes: 4 * MAX_CONSTANT as u64,
        stdin: false,
    };
    let mut text = Vec::new();
    let mut keep = |output: Output<'_>| {
        if let Output::Data(Stream::Stdout, bytes) = output {
            text.extend_from_slice(bytes);
        }
    };
    let finished = sandbox.run(command, &mut keep).await?;
    let is_translated = finished.outcome == Outcome::Exited(0) && text.len() < 4 * MAX_CONSTANT;
    Ok(is_translated.then(|| String::from_utf8(text).ok()).flatten())
}

/// Output in the pieces in which E2B's kernel of the language sends it.
pub struct Pieces {
    language: Language,
    /// R: a line whose end is still to come.
    line: Vec<u8>,
}

/// The longest line that is waited for.
const MAX_LINE: usize = 64 << 10;

impl Pieces {
    /// Those of `language`.
    pub fn of(language: Language) -> Self {
        Self { language, line: Vec::new() }
    }

    /// Passes output on to `send`.
    pub fn push(&mut self, stream: Stream, bytes: &[u8], mut send: impl FnMut(Stream, &[u8])) {
        match (self.language, stream) {
            // R writes what it prints word by word.
            (Language::R, Stream::Stdout) => {
                self.line.extend_from_slice(bytes);
                if self.line.ends_with(b"\n") || self.line.len() > MAX_LINE {
                    self.finish(send);
                }
            }
            // `println` is two pieces.
            (Language::Java, Stream::Stdout) => {
                for line in bytes.split_inclusive(|&byte| byte == b'\n') {
                    let text = line.strip_suffix(b"\n").unwrap_or(line);
                    [text, &line[text.len()..]]
                        .into_iter()
                        .filter(|piece| !piece.is_empty())
                        .for_each(|piece| send(stream, piece));
                }
            }
            _ => send(stream, bytes),
        }
    }

    /// Passes on what has no end of a line.
    pub fn finish(&mut self, mut send: impl FnMut(Stream, &[u8])) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            send(Stream::Stdout, &line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_has_the_pieces_of_the_languages_kernel() {
        let pieces = |language: Language, written: &[&str]| {
            let (mut pieces, mut sent) = (Pieces::of(language), Vec::new());
            let mut send = |_: Stream, bytes: &[u8]| sent.push(String::from_utf8_lossy(bytes).into_owned());
            for text in written {
                pieces.push(Stream::Stdout, text.as_bytes(), &mut send);
            }
            pieces.finish(&mut send);
            sent
        };
        assert_eq!(pieces(Language::R, &["[1]", " \"a\"", "\n", "end"]), ["[1] \"a\"\n", "end"]);
        assert_eq!(pieces(Language::Java, &["a\nb", "\n"]), ["a", "\n", "b", "\n"]);
        assert_eq!(pieces(Language::Bash, &["a\nb"]), ["a\nb"]);
    }
}
