//! Metadata that clients give to files: extended attributes whose names have a prefix of their own.

use super::connect::{Code, Failure};
use super::filesystem::failure;
use super::hosted::Hosted;
use agent_sandbox::Attribute;
use http::HeaderMap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The prefix of the names of the attributes, and of the headers of an upload.
const PREFIX: &str = "user.e2b.";
const HEADER: &str = "x-metadata-";
/// The longest name, as the kernel bounds it with the prefix, and the most bytes of one file's metadata with all prefixes.
const MAX_NAME: usize = 255 - PREFIX.len();
const MAX_BYTES: usize = 4096;

/// Names and values.
pub type Metadata = BTreeMap<String, String>;

/// The metadata that an upload asks for.
pub fn wanted(headers: &HeaderMap) -> Result<Metadata, Failure> {
    let refused = |why: &str| Failure::new(Code::InvalidArgument, format!("metadata {why}"));
    let (mut wanted, mut size) = (Metadata::new(), 0);
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(HEADER) else { continue };
        // Of several the first counts.
        let value = headers.get(name).map(http::HeaderValue::as_bytes).unwrap_or_default();
        if !(1..=MAX_NAME).contains(&key.len()) {
            return Err(refused(&format!("needs names of 1 to {MAX_NAME} characters")));
        }
        if !value.iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
            return Err(refused(&format!("{key:?} is not printable ASCII")));
        }
        size += PREFIX.len() + key.len() + value.len();
        wanted.insert(key.to_owned(), String::from_utf8_lossy(value).into_owned());
    }
    match size <= MAX_BYTES {
        true => Ok(wanted),
        false => Err(refused(&format!("is longer than {MAX_BYTES} bytes"))),
    }
}

/// Gives it to a file that was just written, which has none.
pub async fn set(hosted: &Hosted, path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    if metadata.is_empty() {
        return Ok(());
    }
    let attribute = |(name, value): (&String, &String)| Attribute {
        name: name.into(),
        value: value.clone().into_bytes(),
    };
    let attributes = metadata.iter().map(attribute).collect();
    let set = hosted.sandbox.set_attributes(path, PREFIX, attributes).await;
    set.map_err(|error| match error.known_errno() {
        Some(libc::EOPNOTSUPP) => {
            let message =
                format!("the file system of {} keeps no metadata", hosted.paths.shown(path).display());
            Failure::new(Code::FailedPrecondition, message)
        }
        _ => failure(&error),
    })
}

/// That of these files, in order.
pub async fn of(hosted: &Hosted, paths: &[PathBuf]) -> Result<Vec<Metadata>, Failure> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let of_file = |attributes: Vec<Attribute>| {
        let pairs = attributes.iter().map(|it| (text(it.name.as_encoded_bytes()), text(&it.value)));
        pairs.collect()
    };
    let files = hosted.sandbox.attributes(paths, PREFIX).await.map_err(|error| failure(&error))?;
    Ok(files.into_iter().map(of_file).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(headers: &[(&str, &str)]) -> Result<Metadata, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, value.parse().unwrap());
        }
        wanted(&map).map_err(|failure| failure.message)
    }

    #[test]
    fn the_headers_of_an_upload_name_it() {
        let metadata =
            asked(&[("X-Metadata-Author", "mish"), ("X-Metadata-Author", "other"), ("X-Other", "x")]);
        assert_eq!(metadata, Ok(Metadata::from([("author".to_owned(), "mish".to_owned())])));
    }

    #[test]
    fn it_is_bounded_and_printable() {
        let long = "v".repeat(MAX_BYTES);
        for (name, value, why) in [
            ("x-metadata-", "v", "1 to 246"),
            ("x-metadata-a", "\u{e9}", "not printable"),
            ("x-metadata-a", long.as_str(), "longer than 4096"),
            (&format!("{HEADER}{}", "n".repeat(MAX_NAME + 1)), "v", "1 to 246"),
        ] {
            let refused = asked(&[(name, value)]).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
