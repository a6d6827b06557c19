//! From the blocks of a prompt to its text.

use agent_picture::Header;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::path::Path;
use url::Url;

/// Blocks of one prompt.
const MAX_BLOCKS: usize = 1_000;
/// Bytes of all its text.
const MAX_TEXT: usize = 8 << 20;
/// Pictures of one prompt, and bytes of one.
const MAX_PICTURES: usize = 10;
const MAX_PICTURE: usize = 4 << 20;

/// A prompt.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The user's text.
    pub text: String,
    /// The contents that it refers to, which stand behind it.
    pub behind: String,
    /// Pictures, as `data:` URLs.
    pub pictures: Vec<String>,
}

impl Prompt {
    /// Reads the blocks of a prompt on `root`.
    ///
    /// # Errors
    /// Why they are not a prompt.
    pub fn read(blocks: &Value, root: &Path) -> Result<Self, String> {
        let blocks = blocks.as_array().ok_or("a prompt is a list of content blocks")?;
        if blocks.len() > MAX_BLOCKS {
            return Err(format!("a prompt has at most {MAX_BLOCKS} blocks"));
        }
        let mut prompt = Self::default();
        for block in blocks {
            let text = |name: &str| block.get(name).and_then(Value::as_str);
            match text("type") {
                Some("text") => prompt.text.push_str(text("text").unwrap_or_default()),
                Some("resource_link") => {
                    prompt.text.push_str(&mention(text("uri").unwrap_or_default(), root));
                }
                Some("resource") => {
                    let resource = block.get("resource").unwrap_or(&Value::Null);
                    let part = |name: &str| resource.get(name).and_then(Value::as_str);
                    let name = name_of(part("uri").unwrap_or_default(), root);
                    prompt.text.push_str(&name);
                    if let Some(content) = part("text") {
                        prompt
                            .behind
                            .push_str(&format!("\n\n{name}, as the user's editor has it:\n{content}"));
                    }
                }
                Some("image") => prompt.pictures.push(picture(text("data").unwrap_or_default())?),
                Some(other) => return Err(format!("blocks of type {other:?} are not taken in a prompt")),
                None => return Err("a content block has a type".to_owned()),
            }
            if prompt.text.len() + prompt.behind.len() > MAX_TEXT {
                return Err(format!("the text of a prompt is larger than {MAX_TEXT} bytes"));
            }
            if prompt.pictures.len() > MAX_PICTURES {
                return Err(format!("a prompt has at most {MAX_PICTURES} pictures"));
            }
        }
        match prompt.text.trim().is_empty() && prompt.pictures.is_empty() {
            true => Err("the prompt is empty".to_owned()),
            false => Ok(prompt),
        }
    }
}

/// A file of the workspace is read by the session, as the sandbox has it; anything else is only named.
fn mention(uri: &str, root: &Path) -> String {
    match path_in(uri, root) {
        Some(path) if path.contains(char::is_whitespace) => format!("@\"{path}\" "),
        Some(path) => format!("@{path} "),
        None => format!("{uri} "),
    }
}

fn name_of(uri: &str, root: &Path) -> String {
    path_in(uri, root).unwrap_or_else(|| uri.to_owned())
}

fn path_in(uri: &str, root: &Path) -> Option<String> {
    let path = Url::parse(uri).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()?;
    let inside = path.strip_prefix(root).ok()?.to_str()?.to_owned();
    (!inside.is_empty() && !inside.contains(['"', '\n'])).then_some(inside)
}

/// Reads a picture. Its type follows from its bytes, and not from what the client says.
fn picture(data: &str) -> Result<String, String> {
    if data.len() > MAX_PICTURE / 3 * 4 + 4 {
        return Err(format!("a picture is larger than {MAX_PICTURE} bytes"));
    }
    let bytes = STANDARD.decode(data).map_err(|_| "the data of a picture is not Base64".to_owned())?;
    let header = Header::of(&bytes).map_err(|why| format!("a picture cannot be sent: {why}"))?;
    Ok(format!("data:{};base64,{}", header.format.media_type(), STANDARD.encode(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(blocks: Value) -> Result<Prompt, String> {
        Prompt::read(&blocks, Path::new("/home/me/project"))
    }

    #[test]
    fn links_into_the_workspace_become_mentions() {
        let link = |uri: &str| json!({ "type": "resource_link", "uri": uri, "name": "x" });
        let blocks = json!([
            { "type": "text", "text": "fix " },
            link("file:///home/me/project/src/a.rs"),
            link("file:///home/me/project/two%20words.md"),
            link("file:///etc/passwd"),
            link("file:///home/me/project/../secret"),
        ]);
        let text = read(blocks).unwrap().text;
        assert_eq!(
            text,
            "fix @src/a.rs @\"two words.md\" file:///etc/passwd file:///home/me/project/../secret "
        );
    }

    #[test]
    fn text_that_is_not_saved_follows_the_prompt() {
        let resource = json!({ "uri": "file:///home/me/project/a.txt", "text": "unsaved" });
        let blocks = json!([{ "type": "resource", "resource": resource }, { "type": "text", "text": "?" }]);
        let prompt = read(blocks).unwrap();
        // Apart, so that they are not arguments of a command.
        assert_eq!(prompt.text, "a.txt?");
        assert_eq!(prompt.behind, "\n\na.txt, as the user's editor has it:\nunsaved");
    }

    #[test]
    fn what_is_not_a_prompt_is_refused() {
        for blocks in [
            json!(null),
            json!("text"),
            json!([]),
            json!([{ "type": "text", "text": "  " }]),
            json!([{ "type": "audio", "data": "" }]),
            json!([{ "type": "image", "data": "bm90IGFuIGltYWdl" }]),
            json!([{ "type": "image", "data": "!" }]),
            json!([7]),
        ] {
            assert!(read(blocks.clone()).is_err(), "{blocks}");
        }
    }

    proptest! {
        #[test]
        fn any_blocks_are_read_without_a_panic(kind in ".{0,12}", text in ".{0,60}", uri in ".{0,60}") {
            let block = |kind: &str| json!({ "type": kind, "text": text, "uri": uri, "data": text,
                                             "resource": { "uri": uri, "text": text } });
            let blocks = ["text", "resource_link", "resource", "image", kind.as_str()].map(block);
            let _ = read(json!(blocks));
        }
    }
}
