//! The line of a program that an interpreter's error message names.

use super::files::{MAX_COMPARED, relative, text_file};
use agent_sandbox::Sandbox;
use std::path::{Path, PathBuf};

/// Bytes of an output in which a place is looked for, from its end.
const MAX_SEARCHED: usize = 8 << 10;
/// Lines that are shown before and after the one that fails.
const AROUND: usize = 2;
/// Characters of a line that are shown.
const MAX_LINE: usize = 200;

/// The lines that failed, of a command or of the program that its output names.
pub async fn shown(sandbox: &Sandbox, command: &str, output: &str) -> Option<String> {
    let (command, output) = (&*sandbox.with_usual_names(command), &*sandbox.with_usual_names(output));
    if let Some(excerpt) = in_here_document(command, output) {
        return Some(format!("\n\nThese lines of the command failed:\n{excerpt}"));
    }
    let SourceLine { path, line } = place(output)?;
    let content = text_file(sandbox, &path.to_string_lossy(), MAX_COMPARED).await?;
    let excerpt = excerpt(&content, line)?;
    Some(format!("\n\nLine {line} of {}, with those around it:\n{excerpt}", path.display()))
}

/// A place in a file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceLine {
    /// The file, relative to the workspace.
    path: PathBuf,
    /// The line, counted from 1.
    line: usize,
}

/// The place that an output names last: Python's `File "a.py", line 3`, the `a.sh: line 3:` and `a.sh: 3:` of shells, and the
/// `a.js:3` of others.
fn place(output: &str) -> Option<SourceLine> {
    let start = output.len().saturating_sub(MAX_SEARCHED);
    let start = (start..output.len()).find(|at| output.is_char_boundary(*at))?;
    output[start..].lines().rev().find_map(place_in)
}

fn place_in(line: &str) -> Option<SourceLine> {
    let line = line.trim();
    let (path, rest) = match line.strip_prefix("File \"") {
        Some(rest) => rest.split_once("\", line ")?,
        None => line.split_once(": line ").or(line.split_once(": ")).or(line.split_once(':'))?,
    };
    // `at f (/workspace/a.js:3:7)` and `/workspace/a.js:3`.
    let path = path.rsplit(['(', ' ']).next()?;
    let (path, rest) = match path.split_once(':') {
        Some((path, rest)) => (path, rest),
        None => (path, rest),
    };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let line = rest[..digits].parse().ok().filter(|line| *line > 0)?;
    let path = Path::new(path).extension().and_then(|_| relative(path))?;
    Some(SourceLine { path, line })
}

/// The lines of a here-document in `command` around the one that fails last, where that is not a line of a file.
fn in_here_document(command: &str, output: &str) -> Option<String> {
    let last = output.lines().rev().map(str::trim).find(|line| line.starts_with("File \""))?;
    let line = last.strip_prefix("File \"<stdin>\", line ")?.split(',').next()?.parse().ok()?;
    let (head, rest) = command.split_once('\n')?;
    let (_, delimiter) = head.rsplit_once("<<")?;
    let delimiter = delimiter.trim_matches(|c: char| "-'\" ".contains(c));
    let document: Vec<&str> = rest.lines().take_while(|line| line.trim() != delimiter).collect();
    excerpt(&document.join("\n"), line)
}

/// The line of `content` and those around it, as they are: small models copy what stands before a line as well.
fn excerpt(content: &str, line: usize) -> Option<String> {
    content.lines().nth(line.checked_sub(1)?)?;
    let first = line.saturating_sub(AROUND).max(1);
    let lines = content.lines().skip(first - 1).take(line + AROUND - first + 1);
    let shown: Vec<String> = lines.map(|text| text.chars().take(MAX_LINE).collect()).collect();
    Some(shown.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_read_from_the_messages_of_interpreters() {
        for (output, expected) in [
            (
                "Traceback (most recent call last):\n  File \"/workspace/a.py\", line 9, in <module>\n    f()\n  File \
                 \"/workspace/lib/b.py\", line 3, in f\n    return x\nNameError: name 'x' is not defined",
                Some(("lib/b.py", 3)),
            ),
            ("  File \"/usr/lib/python3.11/json.py\", line 3\nValueError", None),
            ("greet.sh: line 2: good: command not found", Some(("greet.sh", 2))),
            ("./greet.sh: 4: Syntax error: end of file unexpected (expecting \"fi\")", Some(("greet.sh", 4))),
            ("/workspace/a.js:3\n  f(\n", Some(("a.js", 3))),
            ("    at f (/workspace/a.js:7:3)\n    at node:internal/modules:1:2", Some(("a.js", 7))),
            ("main.c:5:2: error: expected ';'", Some(("main.c", 5))),
            ("sh: 1: foo: not found", None),
            ("error: 3 tests failed", None),
            ("a.py, line 0", None),
            ("", None),
        ] {
            let expected = expected.map(|(path, line)| SourceLine { path: path.into(), line });
            assert_eq!(place(output), expected, "{output}");
        }
    }

    #[test]
    fn lines_of_a_here_document_are_found_by_their_number() {
        let command = "python3 - <<'END'\nfrom a import f\nassert f(1) == 2\nEND";
        let output =
            "Traceback (most recent call last):\n  File \"<stdin>\", line 2, in <module>\nAssertionError";
        assert_eq!(in_here_document(command, output).unwrap(), "from a import f\nassert f(1) == 2");
        let in_file = format!("{output}\n  File \"/workspace/a.py\", line 1, in f\nNameError");
        assert_eq!(in_here_document(command, &in_file), None);
        assert_eq!(in_here_document("python3 a.py", output), None);
        assert_eq!(in_here_document(command, "File \"<stdin>\", line 99\n"), None);
    }

    #[test]
    fn an_excerpt_is_the_line_and_those_around_it() {
        assert_eq!(excerpt("a\nb\n c\nd\ne\nf\n", 3).unwrap(), "a\nb\n c\nd\ne");
        assert_eq!(excerpt("a", 1).unwrap(), "a");
        assert_eq!(excerpt("a\n", 3), None);
        assert_eq!(excerpt("", 1), None);
    }

    proptest::proptest! {
        #[test]
        fn any_output_and_line_are_taken(output in "(File \"|a\\.py|\", line |: |:|[0-9é(]{1,30}|\\n| ){0,20}", line in 0usize..9) {
            let _ = place(&output);
            let _ = excerpt(&output, line);
        }
    }
}
