//! Formats of data: the endings of names that stand for them, and the first bytes of such a file. A format without such bytes is not
//! among them, nor an ending under which some interpreter looks for sources, templates or dumps (`bin`, `class`, `dat`, `dump`, `lib`,
//! `out`, `pkl`, `plist`, `pt`, `pth`).

/// A format of data.
struct Format {
    endings: &'static str,
    /// The offset of the bytes that tell it, of which there is one of several.
    at: usize,
    magic: &'static [&'static [u8]],
}

const fn format(endings: &'static str, at: usize, magic: &'static [&'static [u8]]) -> Format {
    Format { endings, at, magic }
}

const ZIP: &[&[u8]] = &[b"PK\x03\x04", b"PK\x05\x06"];
const ELF: &[&[u8]] = &[b"\x7fELF"];
const MACH_O: &[&[u8]] = &[b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe"];
const SQLITE: &[&[u8]] = &[b"SQLite format 3\0"];
const JPEG_2000: &[u8] = b"\0\0\0\x0cjP  \r\n\x87\n";
const GZIP: &[&[u8]] = &[b"\x1f\x8b\x08"];

const FORMATS: &[Format] = &[
    // Pictures.
    format("png", 0, &[b"\x89PNG\r\n\x1a\n"]),
    format("jpg jpeg jfif", 0, &[b"\xff\xd8\xff"]),
    format("gif", 0, &[b"GIF87a", b"GIF89a"]),
    format("webp wav avi ani", 0, &[b"RIFF"]),
    format("bmp", 0, &[b"BM"]),
    format("ico", 0, &[b"\0\0\x01\0"]),
    format("cur", 0, &[b"\0\0\x02\0"]),
    format("icns", 0, &[b"icns"]),
    format("tif tiff", 0, &[b"II*\0", b"MM\0*"]),
    format("jp2", 0, &[JPEG_2000]),
    format("jxl", 0, &[b"\xff\x0a", b"\0\0\0\x0cJXL "]),
    format("psd", 0, &[b"8BPS"]),
    format("xcf", 0, &[b"gimp xcf"]),
    format("dds", 0, &[b"DDS "]),
    format("exr", 0, &[b"v/1\x01"]),
    format("svgz", 0, GZIP),
    format("blend", 0, &[b"BLENDER"]),
    format("glb", 0, &[b"glTF"]),
    format("fbx", 0, &[b"Kaydara FBX Binary"]),
    format("dwg", 0, &[b"AC10"]),
    // Sound and films.
    format("mp3", 0, &[b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"]),
    format("aac", 0, &[b"\xff\xf1", b"\xff\xf9"]),
    format("flac", 0, &[b"fLaC"]),
    format("ogg ogv oga opus", 0, &[b"OggS"]),
    format("mid", 0, &[b"MThd"]),
    format("aif aiff", 0, &[b"FORM"]),
    format("mp4 m4a m4v mov 3gp heic heif avif", 4, &[b"ftyp"]),
    format("mkv webm", 0, &[b"\x1aE\xdf\xa3"]),
    format("flv", 0, &[b"FLV\x01"]),
    format("swf", 0, &[b"FWS", b"CWS", b"ZWS"]),
    format("wma wmv", 0, &[b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"]),
    format("mpg mpeg", 0, &[b"\0\0\x01\xba", b"\0\0\x01\xb3"]),
    // Fonts.
    format("ttf", 0, &[b"\0\x01\0\0", b"true"]),
    format("otf", 0, &[b"OTTO"]),
    format("ttc", 0, &[b"ttcf"]),
    format("woff", 0, &[b"wOFF"]),
    format("woff2", 0, &[b"wOF2"]),
    format("eot", 34, &[b"LP"]),
    // Archives and packages.
    format("zip jar war ear apk ipa aar whl egg nupkg vsix xpi epub kmz npz keras", 0, ZIP),
    format("docx xlsx pptx docm xlsm pptm odt ods odp odg", 0, ZIP),
    format("gz tgz rds rda rdata", 0, GZIP),
    format("bz2 tbz", 0, &[b"BZh"]),
    format("xz txz", 0, &[b"\xfd7zXZ\0"]),
    format("zst", 0, &[b"\x28\xb5\x2f\xfd"]),
    format("lz4", 0, &[b"\x04\x22\x4d\x18"]),
    format("lzma", 0, &[b"\x5d\0\0"]),
    format("7z", 0, &[b"7z\xbc\xaf\x27\x1c"]),
    format("rar", 0, &[b"Rar!\x1a\x07"]),
    format("tar", 257, &[b"ustar\0", b"ustar  \0"]),
    format("cab", 0, &[b"MSCF"]),
    format("a deb rlib", 0, &[b"!<arch>\n", b"!<thin>\n"]),
    format("rpm", 0, &[b"\xed\xab\xee\xdb"]),
    format("iso", 32_769, &[b"CD001"]),
    format("qcow2", 0, &[b"QFI\xfb"]),
    format("vmdk", 0, &[b"KDMV"]),
    format("vdi", 64, &[b"\x7f\x10\xda\xbe"]),
    format("pack", 0, &[b"PACK"]),
    format("idx", 0, &[b"\xfftOc"]),
    // Documents and keys.
    format("pdf", 0, &[b"%PDF-"]),
    format("doc xls ppt msi msg suo vsd", 0, &[b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"]),
    format("mobi", 60, &[b"BOOKMOBI"]),
    format("mo", 0, &[b"\xde\x12\x04\x95", b"\x95\x04\x12\xde"]),
    format("qm", 0, &[b"\x3c\xb8\x64\x18"]),
    format("nib webarchive", 0, &[b"bplist00"]),
    format("lnk", 0, &[b"L\0\0\0\x01\x14\x02\0"]),
    format("der p12 pfx keystore", 0, &[b"\x30\x82"]),
    format("jks keystore", 0, &[b"\xfe\xed\xfe\xed"]),
    // Databases and data of programs.
    format("db db3 sqlite sqlite3", 0, SQLITE),
    format("db-wal sqlite-wal sqlite3-wal", 0, &[b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"]),
    format("db-shm sqlite-shm sqlite3-shm", 0, &[b"\x18\xe2\x2d\0"]),
    format("mdb", 0, &[b"\0\x01\0\0Standard Jet DB"]),
    format("rdb", 0, &[b"REDIS"]),
    format("pcap", 0, &[b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1"]),
    format("pcapng", 0, &[b"\x0a\x0d\x0d\x0a"]),
    format("dmp", 0, &[b"MDMP"]),
    format("profraw profdata", 0, &[b"\x81rforpl\xff", b"\xfflprofr\x81", b"\xfflprofi\x81"]),
    format("npy", 0, &[b"\x93NUMPY"]),
    format("h5 hdf5", 0, &[b"\x89HDF\r\n\x1a\n"]),
    format("mat", 0, &[b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file"]),
    format("parquet parq", 0, &[b"PAR1"]),
    format("arrow feather", 0, &[b"ARROW1", b"FEA1"]),
    format("orc", 0, &[b"ORC"]),
    format("avro", 0, &[b"Obj\x01"]),
    format("gguf", 0, &[b"GGUF"]),
    format("safetensors", 8, &[b"{\""]),
    format("tflite", 4, &[b"TFL3"]),
    format("ckpt", 0, ZIP),
    format("pickle joblib", 0, &[b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"]),
    // Programs, libraries and what compilers leave.
    format("so ko o appimage core node", 0, ELF),
    format("dylib o node", 0, MACH_O),
    format("exe dll pyd node", 0, &[b"MZ"]),
    format("pdb", 0, &[b"Microsoft C/C++ MSF 7.00"]),
    format("wasm", 0, &[b"\0asm"]),
    format("pyc pyo", 2, &[b"\r\n"]),
    format("beam", 0, &[b"FOR1"]),
    format("rmeta", 0, &[b"rust"]),
    format("pch", 0, &[b"CPCH", b"gpch"]),
];

/// Returns whether `bytes` begin as files of the format do that `ending`, in small letters, stands for.
pub(crate) fn is_data(ending: &str, bytes: &[u8]) -> bool {
    let begins = |format: &Format, is_enough: fn(&[u8]) -> bool| {
        let from = bytes.get(format.at..).unwrap_or_default();
        format.magic.iter().any(|magic| is_enough(magic) && from.starts_with(magic))
    };
    let is_meant = |format: &&Format| format.endings.split(' ').any(|other| other == ending);
    if ending.is_empty() || !FORMATS.iter().any(|format| is_meant(&format)) {
        return false;
    }
    // A favicon may be a PNG, and a picture of the camera may have got another ending.
    let is_of_any = FORMATS.iter().any(|format| begins(format, is_no_word));
    let is_of_own = || FORMATS.iter().filter(is_meant).any(|format| begins(format, |_| true));
    // Words as `GIF89a` may begin a source of JavaScript, and no picture is UTF-8.
    is_of_any || is_of_own() && std::str::from_utf8(bytes).is_err()
}

/// Returns whether no source of a program can begin with these bytes.
fn is_no_word(magic: &[u8]) -> bool {
    magic.iter().any(|byte| !(b' '..=b'~').contains(byte) && !byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_is_of_data_with_the_first_bytes_of_its_format_alone() {
        let tar = [&[b'x'; 257][..], b"ustar\0"].concat();
        for (ending, bytes) in [
            ("png", &b"\x89PNG\r\n\x1a\n\0"[..]),
            ("docx", b"PK\x03\x04\0"),
            ("db", b"SQLite format 3\0"),
            ("mp4", b"\0\0\0\x20ftypisom\xff"),
            ("ico", b"\x89PNG\r\n\x1a\n"),
            ("gif", b"GIF89a\x01\0\xff"),
            ("tar", &tar),
            ("so", b"\x7fELF"),
        ] {
            assert!(is_data(ending, bytes), "{ending}");
            assert!(!is_data(ending, b"") && !is_data(ending, b"#") && !is_data("txt", bytes), "{ending}");
            assert!(!is_data(ending, &[b" ", bytes].concat()), "{ending}");
        }
        // node ran such a picture.
        assert!(!is_data("gif", b"GIF89a=1//\x01\nrequire('fs')") && !is_data("bmp", b"BM:=1\n"));
        for ending in "bin class dat dump lib out pkl plist pt pth".split(' ') {
            assert!(!FORMATS.iter().any(|format| is_data(ending, format.magic[0])), "{ending}");
        }
    }
}
