//! The encoding and the line ends that a project's settings give a file: `charset` and `end_of_line` of `.editorconfig`,
//! `working-tree-encoding` and `eol` of `.gitattributes`.

use agent_base::text_encoding::{Encoding, TextFile};
use agent_sandbox::Sandbox;
use futures_util::future::join_all;
use globset::GlobBuilder;
use std::path::Path;

/// Directories above a file, and bytes of one settings file, that are looked at.
const MAX_DIRECTORIES: usize = 16;
const MAX_BYTES: u64 = 64 << 10;

/// The file with this content, into which `new` is going to be written. Its settings are read where its content alone does not
/// say the encoding.
pub async fn text_file(sandbox: &Sandbox, path: &Path, bytes: Vec<u8>, new: &str) -> TextFile {
    let is_open = match std::str::from_utf8(&bytes) {
        Ok(text) => text.is_empty() || text.contains('\0') || text.is_ascii() && !new.is_ascii(),
        Err(_) => true,
    };
    let declared = if is_open { declared(sandbox, path).await } else { Declared::default() };
    TextFile::new(bytes, declared.encoding)
}

/// A file that is not there yet, and whether its lines are to end with CRLF.
pub async fn new_text_file(sandbox: &Sandbox, path: &Path) -> (TextFile, bool) {
    let declared = declared(sandbox, path).await;
    (TextFile::new(Vec::new(), declared.encoding), declared.has_crlf)
}

/// The form that the settings give a file.
#[derive(Default)]
struct Declared {
    encoding: Option<Encoding>,
    has_crlf: bool,
}

/// Returns what the settings say about the file, from those nearest to it up to the workspace's own.
async fn declared(sandbox: &Sandbox, path: &Path) -> Declared {
    let workspace = sandbox.workspace();
    let above = path.ancestors().skip(1).take(MAX_DIRECTORIES);
    let directories: Vec<&Path> = above.take_while(|directory| directory.starts_with(workspace)).collect();
    let read = async |directory: &Path, name: &str| {
        let file = sandbox.read_file(&directory.join(name), 0, MAX_BYTES).await.ok()?;
        String::from_utf8(file.bytes).ok()
    };
    let files = directories.iter().map(async |directory| {
        let inner = path.strip_prefix(directory).unwrap_or(path);
        (read(directory, ".gitattributes").await, read(directory, ".editorconfig").await, inner)
    });
    let files = join_all(files).await;
    let of_git =
        |name| files.iter().find_map(|(text, _, inner)| of_attributes(text.as_deref()?, inner, name));
    let of_editor = |key: &str| {
        for (_, editor_config, inner) in &files {
            let Some(config) = editor_config else { continue };
            let (value, is_root) = of_editor_config(config, inner, key);
            if value.is_some() || is_root {
                return value;
            }
        }
        None
    };
    let encoding = of_git("working-tree-encoding").or_else(|| of_editor("charset"));
    let line_end = of_git("eol").or_else(|| of_editor("end_of_line"));
    Declared {
        encoding: encoding.and_then(|name| Encoding::named(&name)),
        has_crlf: line_end.is_some_and(|end| end.eq_ignore_ascii_case("crlf")),
    }
}

/// The last matching line's attribute of this name; empty where it takes it back, or makes the file a binary one.
fn of_attributes(text: &str, path: &Path, name: &str) -> Option<String> {
    let value = |line: &str| {
        let mut words = line.split_whitespace();
        let pattern = words.next().filter(|pattern| !pattern.starts_with('#'))?;
        let mut values = words.filter_map(|word| match word.strip_prefix(['-', '!']) {
            Some(other) => (other == name || other == "text" && name == "eol").then_some(""),
            None if word == "binary" && name == "eol" => Some(""),
            None => word.strip_prefix(name)?.strip_prefix('='),
        });
        let value = values.next_back()?;
        matches(pattern, path).then(|| value.to_owned())
    };
    text.lines().rev().find_map(value)
}

/// The last matching section's value of `wanted`, and whether the file is the topmost one.
fn of_editor_config(text: &str, path: &Path, wanted: &str) -> (Option<String>, bool) {
    let (mut found, mut is_root, mut section) = (None, false, None);
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(pattern) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = Some(matches(pattern, path));
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim().to_ascii_lowercase());
            is_root |= section.is_none() && key == "root" && value == "true";
            if section == Some(true) && key == wanted {
                found = Some(value);
            }
        }
    }
    (found, is_root)
}

/// Returns whether a pattern of either file matches: without a slash the name in any directory, with one the path from there.
fn matches(pattern: &str, path: &Path) -> bool {
    let pattern = match pattern.strip_prefix('/') {
        Some(pattern) => pattern.to_owned(),
        None if pattern.contains('/') => pattern.to_owned(),
        None => format!("**/{pattern}"),
    };
    let glob = GlobBuilder::new(&pattern).literal_separator(true).build();
    glob.is_ok_and(|glob| glob.compile_matcher().is_match(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_of_a_settings_file_counts() {
        let config =
            "root = true\n[*]\ncharset = utf-8\n[*.{c,h}]\nCharset = latin1\n[lib/**.py]\ncharset=utf-16le\n";
        let of = |path| of_editor_config(config, Path::new(path), "charset").0;
        assert_eq!(of("a/b.c").as_deref(), Some("latin1"));
        assert_eq!(of("x.py").as_deref(), Some("utf-8"));
        assert_eq!(of("lib/x.py").as_deref(), Some("utf-16le"));
        assert!(of_editor_config(config, Path::new("x"), "charset").1);
        let attributes = "*.txt text\n*.ps1 text working-tree-encoding=UTF-16LE-BOM eol=crlf\n/old/*.ps1 working-tree-encoding=latin1\n";
        let of = |path| of_attributes(attributes, Path::new(path), "working-tree-encoding");
        assert_eq!(of("a/x.ps1").as_deref(), Some("UTF-16LE-BOM"));
        assert_eq!(of("old/x.ps1").as_deref(), Some("latin1"));
        assert_eq!(of("x.txt"), None);
        assert_eq!(of_attributes(attributes, Path::new("x.ps1"), "eol").as_deref(), Some("crlf"));
        for taken_back in ["-text", "binary", "!eol", "-eol"] {
            let attributes = format!("* text eol=crlf\n*.sh {taken_back}\n");
            let of = |path| of_attributes(&attributes, Path::new(path), "eol");
            assert_eq!(
                (of("n.sh").as_deref(), of("n.c").as_deref()),
                (Some(""), Some("crlf")),
                "{taken_back}"
            );
        }
    }
}
