//! Programs that a model has escaped once too often: `\n` in place of line ends, `\"` in place of quotation marks. They are put
//! right only where the program could not be one otherwise.

use std::path::Path;

/// Bytes of a program that is looked at.
const MAX_BYTES: usize = 64 << 10;
/// Places that are put right in one program; more of them would take long.
const MAX_PLACES: usize = 200;
/// Files whose whole text may be one line that stands for several.
const PROGRAMS: [&str; 12] = ["c", "cpp", "go", "h", "java", "js", "py", "rb", "rs", "sh", "sql", "ts"];

/// The program `text` of the file `path` as it was meant; `None` where it is right, or in doubt.
pub fn meant(path: &str, text: &str) -> Option<String> {
    let extension = Path::new(path).extension()?.to_str()?;
    if text.len() > MAX_BYTES || !text.contains('\\') || !PROGRAMS.contains(&extension) {
        return None;
    }
    if is_one_line_for_several(text) {
        // In a string, line ends are escaped.
        return stray_escape(text).and_then(|_| unescaped(text));
    }
    if extension == "py" { python(text) } else { None }
}

/// Returns whether line ends were escaped, all of them.
fn is_one_line_for_several(text: &str) -> bool {
    let line_ends = text.matches("\\n").count();
    !text.contains('\n') && line_ends >= 2 && (text.ends_with("\\n") || text.contains("\\n    "))
}

/// Python knows a backslash outside of strings only at the end of a line.
fn python(text: &str) -> Option<String> {
    let mut program = text.to_owned();
    for _ in 0..MAX_PLACES {
        let Some(at) = stray_escape(&program) else { return (program != text).then_some(program) };
        let end = program[at..].find('\n').map_or(program.len(), |length| at + length);
        let line = unescaped(&program[at..end])?;
        program.replace_range(at..end, &line);
    }
    None
}

/// Where the first backslash is that cannot be there: outside of strings and comments, or before the quotation marks without
/// which a string has no end.
fn stray_escape(program: &str) -> Option<usize> {
    let bytes = program.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'#' => at += line_length(&bytes[at..]),
            b'\\' => match bytes.get(at + 1) {
                None => return None,
                Some(b'\n' | b'\r') => at += 2,
                Some(_) => return Some(at),
            },
            b'"' | b'\'' => {
                let triple = [*byte; 3];
                if bytes[at..].starts_with(&triple) {
                    match string_end(bytes, at + 3, &triple) {
                        Some(end) => at = end,
                        None => {
                            let mark = [b'\\', *byte].repeat(3);
                            let found =
                                bytes[at + 3..].windows(mark.len()).position(|window| window == mark)?;
                            return Some(at + 3 + found);
                        }
                    }
                } else {
                    let line = at + line_length(&bytes[at..]);
                    at = string_end(&bytes[..line], at + 1, &[*byte]).unwrap_or(line);
                }
            }
            _ => at += 1,
        }
    }
    None
}

fn line_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len())
}

/// Behind the mark that ends the string from `at` on.
fn string_end(bytes: &[u8], mut at: usize, mark: &[u8]) -> Option<usize> {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            _ if bytes[at..].starts_with(mark) => return Some(at + mark.len()),
            _ => at += 1,
        }
    }
    None
}

/// A text with one level of escapes less; `None` where one of them is none that JSON or Python has.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some(quoted @ ('"' | '\'' | '\\')) => out.push(quoted),
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_escaped_twice_is_put_right() {
        for (path, text, expected) in [
            ("a.sh", r"echo one\necho two\n", "echo one\necho two\n"),
            ("a.py", r#"def f():\n    print(\"a\\n\")\n"#, "def f():\n    print(\"a\\n\")\n"),
            // The line ends of a part that was copied are right.
            (
                "a.py",
                "def f(a):\n    \\\"\\\"\\\"\\n    Adds.\n    >>> f(1)\n    \\\"\\\"\\\"\\n    return a\\n",
                "def f(a):\n    \"\"\"\n    Adds.\n    >>> f(1)\n    \"\"\"\n    return a\n",
            ),
            ("a.py", "print(\\\"it's\\\")\nprint('a\\n')\n", "print(\"it's\")\nprint('a\\n')\n"),
        ] {
            assert_eq!(meant(path, text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_may_be_meant_as_it_is_stays() {
        for (path, text) in [
            ("a.py", "print(\"a\\n\\\"b\\\"\")\n"),
            ("a.py", "x = 1 + \\\n    2\n"),
            ("a.py", "# C:\\new \\\"x\\\"\nx = r'\\d'\n"),
            ("a.py", "\"\"\"It says \\\"\\\"\\\" here.\"\"\"\n"),
            ("a.py", "x = \\d\n"),
            ("a.py", "print(\"Usage:\\n    a.py FILE\\n\")"),
            ("a.js", "console.log(\"a\\n    b\\n\")"),
            ("a.sh", "printf \"a\\nb\\n\"\n"),
            ("a.sh", "printf 'a\\nb\\n'"),
            ("a.txt", r"one\ntwo\n"),
            ("Makefile", r"one\ntwo\n"),
        ] {
            assert_eq!(meant(path, text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_program_is_looked_at(text in "(\\\\|\"|'|\"\"\"|\\\\n|\n|#|[a-z ]|é){0,60}") {
            if let Some(meant) = meant("a.py", &text) {
                proptest::prop_assert!(meant != text && meant.len() < text.len());
            }
        }
    }
}
