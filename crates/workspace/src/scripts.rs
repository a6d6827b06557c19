//! Files that programs read as text whatever is in them. A shell, make and most interpreters run the lines that they understand and
//! pass over the rest, so that bytes which are not text, however many, must not keep the lines from the review.

use crate::diff::Side;
use crate::manifest::Node;
use crate::risks;
use crate::tree_path::TreePath;
use agent_base::text_encoding::Encoding;

/// Endings of what holds other data than text: of pictures, sound and films, fonts, documents, archives, libraries and programs, databases
/// and models, and of what compilers leave. No interpreter looks for its sources under one of them.
const DATA: &str = " 3gp arrow bag blob ckpt core db-shm db-wal dmp dump exr feather fst gob hdr joblib mat mlmodel out parq pcap pcapng \
     pickle pkl ply profdata profraw pt pth rda rdata rds sav sqlite-shm sqlite-wal sqlite3-shm sqlite3-wal stl tflite tfrecord vmdk \
     vdi qcow2 wal 7z a aac ai aif aiff apk appimage avi avif beam bin blend bmp br bz2 cab class cur dat db db3 ddb deb der dll dmg doc docx dwg dylib \
     ear eot epub exe fbx flac flv gguf gif glb gpg gz h5 hdf5 heic heif icns ico idx img ipa iso jar jfif jp2 jpeg jpg jxl ko keystore jks \
     ldb lib lnk lz4 lzma m4a m4v mdb mid mkv mo mobi mov mp3 mp4 mpeg mpg msi node npy npz o obj odp ods odt ogg ogv onnx opus orc otf p12 \
     pack parquet pb pch pdb pdf pfx plist png ppt pptx psd pyc pyd pyo qm rar rdb rlib rmeta rpm safetensors snappy so sqlite sqlite3 suo \
     swf tar tbz tga tgz tif tiff ttc ttf txz war wasm wav webm webp whl wma wmv woff woff2 xcf xls xlsx xz zip zst ";
/// Endings of what a shell reads byte by byte.
const SHELLS: &str = " ash bash bat bats cmd command csh dash env envrc fish ksh mak make mk sh tcsh zsh ";
/// Endings of what programs, those of Windows above all, read as UTF-16 behind a byte order mark.
const WIDE: &str = " cs csv htm html inf ini json md rc resx rst sql strings svg \
     txt vb vbs xaml xhtml xml xsd xsl ";
/// The first bytes of programs for a machine: of Linux, of macOS, of Windows.
const PROGRAMS: [&[u8]; 6] =
    [b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm", b"MZ\x90\0"];

/// Returns whether a program may read a file as text, whatever is in it: all but what is data by its name, and programs of a machine.
/// What the first bytes say counts for nothing else, because a template or a source may begin with those of a picture.
pub(crate) fn may_be_read_as_text(path: &TreePath, after: Option<&Node>, content: &Side) -> bool {
    let ending = ending(path);
    // `tool`, `tool_1.2_linux_amd64`, and the tests of Go, `tool.test`.
    let is_of_program = ending.is_empty() || ending.contains(['_', '-']) || ending == "test";
    let is_program = is_of_program && is_executable(after) && has_format_of_program(content);
    is_run_as_script(after, content) || !(is_program || is_among(DATA, &ending))
}

/// Returns whether `encoding` may hide from a user what a program reads in the file: a shell and most interpreters take each byte for
/// itself, and in some encodings (UTF-16, Shift_JIS, ISO-2022-JP) the bytes of other characters are those of commands. Of control
/// files and symlinks each byte counts. Where characters are made of ASCII alone, a byte order mark decides.
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
    let has_mark = !encoding.mark().is_empty() && is_among(WIDE, &ending);
    is_taken_by_bytes || (encoding.hides_words() && !has_mark)
}

/// The ending of a name in small letters, without the version of `libx.so.1.2`.
fn ending(path: &TreePath) -> String {
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
fn is_run_as_script(after: Option<&Node>, content: &Side) -> bool {
    is_executable(after) && matches!(content, Side::Content(_)) && !has_format_of_program(content)
}

fn is_executable(node: Option<&Node>) -> bool {
    matches!(node, Some(Node::File { mode, .. }) if mode & 0o111 != 0)
}

fn has_format_of_program(content: &Side) -> bool {
    matches!(content, Side::Content(bytes) if PROGRAMS.iter().any(|start| bytes.starts_with(start)))
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
        side.as_shown(&path, change.after.as_ref(), None)
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

    /// Templates of Ruby and PHP files that are included ran from what was `(binary)`; their endings are without number.
    #[test]
    fn bytes_that_are_no_text_hide_no_line_but_in_data_and_programs() {
        let of = |start: &[u8]| {
            [start, &[0, 0x80, 0xff, 1].repeat(3_000), b"\n<% PAYLOAD %>\n", &[0xff; 9_000]].concat()
        };
        for path in [
            "x.erb",
            "x.inc",
            "site.module",
            "x.twig",
            "new.kind",
            "template",
            "a/Makefile",
            "x.snap",
            "x.sh.1",
        ] {
            for start in [&b""[..], b"GIF89a", b"PK\x03\x04", b"\x7fELF", b"SQLite format 3\0"] {
                assert!(
                    shown(path, 0o644, &of(start)).is_some_and(|text| text.contains("PAYLOAD")),
                    "{path}"
                );
            }
        }
        assert!(shown("x.erb", 0o755, &of(b"\x7fELF")).is_some());
        assert!(shown("tool.png", 0o755, &of(b"\x89PNG")).is_some(), "a shell runs it");
        for (path, mode, start) in [
            ("a.png", 0o644, &b"\x89PNG"[..]),
            ("A.SQLITE3", 0o644, b"SQLite format 3\0"),
            ("program", 0o755, b"\x7fELF"),
            ("libx.so.1.2", 0o755, b"\x7fELF"),
            ("tool_1.2.0_linux_amd64", 0o755, b"\x7fELF"),
            ("pkg.test", 0o755, b"\x7fELF"),
            ("model.ckpt", 0o644, b""),
            ("a.tar.gz", 0o600, b"\x1f\x8b"),
        ] {
            assert_eq!(shown(path, mode, &of(start)), None, "{path}");
        }
    }
}
