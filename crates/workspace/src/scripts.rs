//! Files that programs read as text whatever is in them. A shell, make and most interpreters run the lines that they understand and
//! pass over the rest, so that bytes which are not text, however many, must not keep the lines from the review.

use crate::changes::ChangeSet;
use crate::diff::Side;
use crate::manifest::Node;
use crate::tree_path::TreePath;
use crate::{formats, programs, risks};
use agent_base::text_encoding::Encoding;

/// Endings of what a shell reads byte by byte.
const SHELLS: &str = " ash bash bat bats cmd command csh dash env envrc fish ksh mak make mk rc sh tcsh zsh ";
/// Endings of what programs, those of Windows above all, read as UTF-16 behind a byte order mark, and nothing that runs or obeys it
/// reads otherwise.
const WIDE: &str = " cs htm html inf ini json resx rst strings svg txt vb vbs xaml xhtml xml xsd xsl ";

/// Bytes of a file that are shown as escapes although most of it cannot be read and nothing obeys it by its name: nobody reads more.
const MAX_ESCAPED: usize = 64 << 10;

/// A side of a change by its name.
#[derive(Clone, Copy)]
pub(crate) struct NamedFile<'a> {
    /// The changes that it is one of.
    pub(crate) changes: &'a ChangeSet,
    pub(crate) path: &'a TreePath,
    pub(crate) node: Option<&'a Node>,
}

/// Returns whether a file is to be shown although it may be no text, because a program may read it as one: all but data, programs that the
/// kernel runs, and much that cannot be read. Of what is found by its name and obeyed, the first bytes say nothing, and of what
/// is executable and no program neither.
pub(crate) fn may_be_read_as_text(file: NamedFile<'_>, content: &Side) -> bool {
    let is_known = is_of_known_format(file, content);
    let is_much = content.bytes().len() > MAX_ESCAPED && content.is_unreadable();
    // Disks of Windows give each file the mode of a program.
    let is_other = is_known || programs::has_header(content.bytes());
    let is_script = is_run_as_script(file.node, content) && !(is_other && is_much);
    !is_known && !is_much || is_script || risks::is_obeyed_text(file.changes, file.path)
}

/// Returns whether the ending and the first bytes of a file are those of one format of data, or it is a program that the kernel runs.
pub(crate) fn is_of_known_format(file: NamedFile<'_>, content: &Side) -> bool {
    let ending = ending(file.path);
    // `tool`, `tool_1.2_linux_amd64`, and the tests of Go, `tool.test`.
    let is_of_program = ending.is_empty() || ending.contains(['_', '-']) || ending == "test";
    let is_program = is_of_program && is_executable(file.node) && is_run_by_kernel(content);
    is_program || formats::is_data(&ending, content.bytes())
}

/// Returns whether `encoding` may hide from a user what a program reads in the file: a shell and most interpreters take each byte for
/// itself, and in some encodings (UTF-16, Shift_JIS, ISO-2022-JP) the bytes of other characters are those of commands. Of control
/// files and symlinks each byte counts. Where characters are made of ASCII alone, a byte order mark decides.
pub(crate) fn may_not_be_decoded(file: NamedFile<'_>, content: &Side, encoding: Encoding) -> bool {
    let ending = ending(file.path);
    let is_taken_by_bytes = matches!(file.node, Some(Node::Symlink { .. }))
        || is_among(SHELLS, &ending)
        || is_run_as_script(file.node, content)
        || risks::is_obeyed_text(file.changes, file.path);
    let has_mark = !encoding.mark().is_empty() && is_among(WIDE, &ending);
    is_taken_by_bytes || (encoding.hides_words() && !has_mark)
}

/// The ending of a name in small letters, without the version of `libx.so.1.2`.
pub(crate) fn ending(path: &TreePath) -> String {
    let name = String::from_utf8_lossy(path.name()).to_lowercase();
    let is_version = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.rsplit('.').skip_while(is_version);
    match (parts.next(), parts.next()) {
        (Some(ending), Some(_)) => ending.to_owned(),
        _ => String::new(),
    }
}

fn is_among(list: &str, ending: &str) -> bool {
    !ending.is_empty() && list.contains(&format!(" {ending} "))
}

/// The kernel refuses an executable that has another format than programs of the machine, and a shell then runs it as a script.
fn is_run_as_script(node: Option<&Node>, content: &Side) -> bool {
    is_executable(node) && matches!(content, Side::Content(_)) && !is_run_by_kernel(content)
}

fn is_executable(node: Option<&Node>) -> bool {
    node.is_some_and(Node::is_executable)
}

fn is_run_by_kernel(content: &Side) -> bool {
    programs::is_run_by_kernel(content.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_files::GitFiles;
    use crate::programs::tests::program;
    use agent_base::hash::Hash;
    use std::borrow::Cow;

    fn shown_in(changes: &ChangeSet, path: &str, mode: u32, bytes: &[u8]) -> Option<String> {
        let node = Node::File { hash: Hash::UNKNOWN, size: bytes.len() as u64, mode };
        let side = Side::Content(bytes.to_vec());
        let path = TreePath::new(path.as_bytes()).expect("a path");
        side.as_shown(NamedFile { changes, path: &path, node: Some(&node) }, None)
            .map(|(_, text): (_, Cow<'_, [u8]>)| String::from_utf8_lossy(&text).into_owned())
    }

    fn shown(path: &str, mode: u32, bytes: &[u8]) -> Option<String> {
        shown_in(&ChangeSet::default(), path, mode, bytes)
    }

    /// A payload among other bytes than those of text.
    fn padded(start: &[u8]) -> Vec<u8> {
        [start, &[0, 0x80, 0xff, 1].repeat(3_000), b"\n<% PAYLOAD %>\n", &[0xff; 9_000]].concat()
    }

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    /// CMake, pytest, pip and agents ran or obeyed such lines, which were halves of Chinese characters to the user.
    #[test]
    fn no_encoding_without_a_mark_hides_the_bytes_of_a_file() {
        let comment = utf16(&"# settings of this project, kept as they were\n".repeat(3));
        let hidden = [&comment[..], b"\nPAYLOAD\nx"].concat();
        let japanese = b"x = 1 # \x1b$BPAYLOADS\x1b(B\n";
        let marked = [b"\xff\xfe", &hidden[..]].concat();
        for path in [
            "CMakeLists.txt",
            "a/pytest.ini",
            "requirements.txt",
            "AGENTS.md",
            "x.html",
            "x.bat",
            "x.tex",
            "x.py",
            "notes.txt",
        ] {
            for bytes in [&hidden[..], japanese] {
                assert!(shown(path, 0o644, bytes).expect(path).contains("PAYLOAD"), "{path}");
            }
            let is_data = ["x.html", "notes.txt"].contains(&path);
            assert_eq!(shown(path, 0o644, &marked).expect(path).contains("PAYLOAD"), !is_data, "{path}");
        }
        assert_eq!(shown("x.txt", 0o644, &utf16("plain text\n")).as_deref(), Some("plain text\n"));
        assert_eq!(shown("pom.xml", 0o644, &utf16("\u{feff}plain\n")).as_deref(), Some("plain\n"));
    }

    /// Templates of Ruby and PHP files that are included ran from what was `(binary)`; their endings are without number. So did files of
    /// Python's start, page templates, dumps of databases and sources of Node.js whose endings were among those of data.
    #[test]
    fn bytes_that_are_no_text_hide_no_line_but_in_data_and_programs() {
        let paths = "x.erb x.inc site.module x.twig new.kind template a/Makefile x.snap x.sh.1 x.pth x.pt hk.pkl x.plist db.dump \
                     prog.bin a.out x.class x.dat x.lib";
        for path in paths.split(' ') {
            for start in [&b""[..], b"GIF89a", b"PK\x03\x04", b"\x7fELF", b"SQLite format 3\0"] {
                let text = shown(path, 0o644, &padded(start));
                assert!(text.is_some_and(|text| text.contains("PAYLOAD")), "{path}");
            }
        }
        for (path, mode, start) in [
            ("x.png", 0o644, &b""[..]),
            ("x.png", 0o644, b"GIF89a"),
            ("tool.png", 0o755, b"\x89PNG\r\n\x1a\n"),
            ("x.erb", 0o755, b"\x7fELF"),
        ] {
            assert!(shown(path, mode, &padded(start)).is_some(), "{path} {start:?}");
        }
        let program = program();
        for (path, mode, start) in [
            ("a.png", 0o644, &b"\x89PNG\r\n\x1a\n"[..]),
            ("A.SQLITE3", 0o644, b"SQLite format 3\0"),
            ("a.tar.gz", 0o600, b"\x1f\x8b\x08"),
            ("program", 0o755, &program),
            ("tool_1.2.0_linux_amd64", 0o755, &program),
            ("pkg.test", 0o755, &program),
        ] {
            assert_eq!(shown(path, mode, &padded(start)), None, "{path}");
        }
        if cfg!(target_os = "linux") {
            assert_eq!(shown("libx.so.1.2", 0o755, &padded(&program)), None);
        }
    }

    /// make, dash and `execvp` ran lines behind the first four bytes of a program, or of one for another machine.
    #[test]
    fn no_header_of_a_program_hides_what_is_obeyed_or_what_the_kernel_refuses() {
        let mut foreign = program();
        foreign[18] ^= 0x40;
        for path in ["Makefile", "lib-x", "a/pre-commit", ".husky/pre-commit", "justfile"] {
            for start in [&b"\x7fELF := 1\n"[..], b"MZ\x90\0 || :\n", &foreign] {
                assert!(shown(path, 0o755, &padded(start)).is_some(), "{path}");
            }
        }
        for path in ["Makefile", ".husky/pre-commit", "justfile"] {
            assert!(shown(path, 0o755, &padded(&program())).is_some(), "{path}");
        }
        let git_files = GitFiles { hooks: [b"tools".to_vec()].into(), ..GitFiles::default() };
        let hooks = ChangeSet { git_files: git_files.into(), ..ChangeSet::default() };
        assert!(shown_in(&hooks, "tools/pre-push", 0o755, &padded(&program())).is_some());
        assert_eq!(shown_in(&hooks, "other/pre-push", 0o755, &padded(&program())), None);
    }

    /// bash dropped the NULs of a file of settings and ran what was Chinese to the user; sqlite3 did with a file of SQL.
    #[test]
    fn a_mark_hides_no_bytes_of_what_is_also_read_without_it() {
        let hidden = [b"\xff\xfe", &utf16("# settings\n")[..], b"\nPAYLOAD\n "].concat();
        for path in ["env.rc", "x.sql", "c.md", "t.csv"] {
            assert!(shown(path, 0o644, &hidden).expect(path).contains("PAYLOAD"), "{path}");
            let plain = [b"\xff\xfe", &utf16("plain\n")[..]].concat();
            assert_eq!(shown(path, 0o644, &plain).as_deref(), Some("plain\n"), "{path}");
        }
    }
}
