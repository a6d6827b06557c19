//! The path of an image of this machine, as a terminal pastes it where a file is dropped on it.

use std::path::{Path, PathBuf};
use url::Url;

const EXTENSIONS: [&str; 3] = ["png", "jpg", "jpeg"];
/// The longest path in bytes, with what quotes it.
const MAX_PATH: usize = 8 << 10;

/// The image whose path `text` is, and nothing else: absolute, quoted or not, or an address (`file://`). The file is there.
pub fn path(text: &str) -> Option<PathBuf> {
    let text = text.trim();
    if text.len() > MAX_PATH || text.chars().any(char::is_control) {
        return None;
    }
    let path = match text.strip_prefix("file://") {
        Some(_) => Url::parse(text).ok()?.to_file_path().ok()?,
        None => PathBuf::from(unquoted(text)?),
    };
    (path.is_absolute() && is_image(&path) && path.is_file()).then_some(path)
}

/// One word as a shell reads it.
fn unquoted(text: &str) -> Option<String> {
    match shell_words::split(text).ok()?.as_slice() {
        [word] => Some(word.clone()),
        // Some terminals quote nothing.
        _ => Some(text.to_owned()),
    }
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    EXTENSIONS.iter().any(|image| extension.eq_ignore_ascii_case(image))
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn a_dropped_image_is_found_however_its_path_is_quoted() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("my shot.PNG");
        std::fs::write(&image, "").unwrap();
        let text = image.display().to_string();
        let address = url::Url::from_file_path(&image).unwrap().to_string();
        for pasted in [&text, &format!("'{text}' "), &text.replace(' ', "\\ "), &address] {
            assert_eq!(path(pasted).as_ref(), Some(&image), "{pasted}");
        }
        std::fs::write(directory.path().join("notes.txt"), "").unwrap();
        let beside = |name: &str| directory.path().join(name).display().to_string();
        for other in ["my shot.PNG", &beside("none.png"), &beside("notes.txt"), &format!("see {text}"), ""] {
            assert_eq!(path(other), None, "{other}");
        }
    }
}
