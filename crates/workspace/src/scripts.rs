//! Files that programs read as text whatever is in them. A shell, make and most interpreters run the lines that they understand and
//! pass over the rest, so that bytes which are not text, however many, must not keep the lines from the review.

use crate::diff::Side;
use crate::manifest::Node;
use crate::risks;
use crate::tree_path::TreePath;
use agent_base::text_encoding::Encoding;

/// Endings of the names of scripts, sources and settings.
const TEXTS: &str = " adb asm astro awk bas bash bat bats bazel bzl c cc cfg cjs clj cljs cmake cmd coffee conf cpp cs csh css csx cts \
     cxx d dart el elm erl ex exs f f90 fish fs fsx gd gn go gradle graphql groovy h hcl hh hpp hrl hs html hxx ini ipynb java jl js json \
     json5 jsonc jsx ksh kt kts less lisp lua m mak make md mjs mk ml mli mm mts nim ninja nix nu pas php phtml pl pm pp properties proto \
     ps1 psd1 psm1 py pyi pyw pyx r rake rb rkt rs rst s sass sbt scala scm scss sed sh sql svelte svg swift t tcl tcsh tex tf tfvars toml \
     ts tsx txt v vb vbs vhd vim vue xhtml xml xsd xsl yaml yml zig zsh ";
/// Endings of what lies among control files and holds other data than text.
const BINARIES: &str = " bin bmp class dll dylib eot exe gif gz icns ico jar jpeg jpg lib lnk mp4 o otf pdf plist png pyc pyd snap so suo tar \
     tgz ttf wasm webm webp whl woff woff2 xz zip zst ";
/// Endings of what a shell reads byte by byte.
const SHELLS: &str = " ash bash bat bats cmd command csh dash env envrc fish ksh mak make mk sh tcsh zsh ";
/// Endings of what programs, those of Windows above all, read as UTF-16 where a byte order mark says that.
const WIDE: &str = " cs csv htm html inf ini json md ps1 psd1 psm1 rc reg resx rst sql strings svg \
     txt vb vbs xaml xhtml xml xsd xsl ";
/// The first bytes of programs for a machine: of Linux, of macOS, of Windows.
const PROGRAMS: [&[u8]; 6] =
    [b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm", b"MZ\x90\0"];

/// Returns whether a program reads a file as a script by its name or its mode, whatever is in it.
pub(crate) fn is_read_as_text(path: &TreePath, after: Option<&Node>, content: &Side) -> bool {
    is_text_by_name(path) || is_run_as_script(after, content)
}

/// Returns whether `encoding` may hide from a user what a program reads in the file: a shell and most interpreters take each byte for
/// itself, and in some encodings (UTF-16, Shift_JIS, ISO-2022-JP) the bytes of other characters are those of commands. Of control
/// files and symlinks each byte counts. Where characters are made of ASCII alone, a byte order mark has to say so.
pub(crate) fn may_not_be_decoded(
    path: &TreePath,
    after: Option<&Node>,
    content: &Side,
    encoding: Encoding,
) -> bool {
    let ending = ending(path);
    let is_taken_by_bytes = matches!(after, Some(Node::Symlink { .. }))
        || is_among(SHELLS, &ending)
        || is_run_as_script(after, content)
        || risks::is_control_file(path);
    let says_so = !encoding.mark().is_empty() && is_among(WIDE, &ending);
    is_taken_by_bytes || (encoding.hides_words() && !says_so)
}

fn is_text_by_name(path: &TreePath) -> bool {
    let ending = ending(path);
    is_among(TEXTS, &ending) || (!is_among(BINARIES, &ending) && risks::is_control_file(path))
}

fn ending(path: &TreePath) -> String {
    let name = String::from_utf8_lossy(path.name()).to_lowercase();
    name.rsplit_once('.').map_or_else(String::new, |(_, ending)| ending.to_owned())
}

fn is_among(list: &str, ending: &str) -> bool {
    !ending.is_empty() && list.contains(&format!(" {ending} "))
}

/// The kernel refuses an executable that has another format than programs of the machine, and a shell then runs it as a script.
fn is_run_as_script(after: Option<&Node>, content: &Side) -> bool {
    let Side::Content(bytes) = content else { return false };
    matches!(after, Some(Node::File { mode, .. }) if mode & 0o111 != 0)
        && !PROGRAMS.iter().any(|start| bytes.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Change;
    use agent_base::hash::Hash;
    use std::borrow::Cow;

    fn shown(path: &str, mode: u32, bytes: &[u8]) -> Option<String> {
        let after = Node::File { hash: Hash::UNKNOWN, size: bytes.len() as u64, mode };
        let change = Change { before: None, after: Some(after) };
        let side = Side::Content(bytes.to_vec());
        let path = TreePath::new(path.as_bytes()).expect("a path");
        side.as_shown(&path, &change, None)
            .map(|(_, text): (_, Cow<'_, [u8]>)| String::from_utf8_lossy(&text).into_owned())
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
}
