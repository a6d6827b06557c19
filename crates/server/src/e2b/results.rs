//! Results of an execution besides text, in the form of a notebook's results.

use agent_base::error::Result;
use agent_sandbox::{EntryKind, Sandbox};
use agent_tools::code::display::Run;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The most files of one execution.
const MAX_FILES: usize = 100;
/// The most bytes of all of them.
const MAX_BYTES: u64 = 64 << 20;

/// The suffix of the name of a file that has everything that a value can be shown as, by media type.
const BUNDLE: &str = ".bundle.json";
/// The fields of a result for media types; others are extra.
const FIELDS: [(&str, &str); 12] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("e2b/data", "data"),
    ("e2b/chart", "chart"),
];

/// A value with all that it can be shown as, from the sandbox.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Bundle {
    is_main: bool,
    data: Map<String, Value>,
}

impl Bundle {
    fn result(self) -> (Map<String, Value>, bool) {
        let (mut result, mut extra) = (Map::new(), Map::new());
        for (media_type, data) in self.data {
            match FIELDS.iter().find(|(known, _)| *known == media_type) {
                Some((_, field)) => result.insert((*field).to_owned(), data),
                None => extra.insert(media_type, data),
            };
        }
        if !extra.is_empty() {
            result.insert("extra".into(), extra.into());
        }
        (result, self.is_main)
    }
}

/// The files that an execution has shown, in order.
pub struct ShownFiles(Vec<(PathBuf, Vec<u8>)>);

/// Takes the files of a run, and removes them from the sandbox.
///
/// # Errors
/// The connection is broken.
pub async fn collect(sandbox: &Sandbox, run: &Run) -> Result<ShownFiles> {
    let directory = run.directory();
    // A program may have removed it: then it shows nothing.
    let mut entries = sandbox.list_dir(directory, 1, 10_000).await.unwrap_or_default();
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    let paths: Vec<PathBuf> = entries.iter().map(|entry| directory.join(&entry.path)).collect();
    let is_shown = |(entry, path): &(&agent_sandbox::Entry, &PathBuf)| {
        entry.kind == EntryKind::File && field(path).is_some()
    };
    let wanted = entries.iter().zip(&paths).filter(is_shown).take(MAX_FILES);
    let wanted: Vec<PathBuf> = wanted.map(|(_, path)| path.clone()).collect();
    let read = sandbox.read_files(wanted.clone(), MAX_BYTES).await.unwrap_or_default();
    let files = wanted.into_iter().zip(read).filter_map(|(path, read)| Some((path, read.ok()?.bytes)));
    let files = files.collect();
    // What cannot be removed is in /tmp, which is bounded.
    let _ = sandbox.remove_files(paths.into_iter().chain([directory.to_owned()]).collect()).await;
    Ok(ShownFiles(files))
}

/// The field of a result that a file fills, by its extension.
fn field(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    for (ending, field) in [(".plotly.json", "plotly"), (BUNDLE, "bundle")] {
        if name.ends_with(ending) {
            return Some(field);
        }
    }
    Some(match name.rsplit_once('.')?.1 {
        "png" => "png",
        "jpg" | "jpeg" => "jpeg",
        "svg" => "svg",
        "html" => "html",
        "md" => "markdown",
        "pdf" => "pdf",
        "json" => "json",
        _ => return None,
    })
}

/// Returns whether a representation of a value is in the file; others are pictures of their own.
fn is_of_value(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split_once("-d").is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn insert(result: &mut Map<String, Value>, path: &Path, bytes: &[u8]) {
    let text = || json!(String::from_utf8_lossy(bytes));
    match field(path) {
        Some(name @ ("png" | "jpeg" | "pdf")) => result.insert(name.into(), json!(STANDARD.encode(bytes))),
        Some("plotly") => {
            let figure: Value = serde_json::from_slice(bytes).unwrap_or_default();
            result.insert("extra".into(), json!({ "application/vnd.plotly.v1+json": figure }))
        }
        Some("json") => result.insert("json".into(), serde_json::from_slice(bytes).unwrap_or_default()),
        Some(name) => result.insert(name.into(), text()),
        None => None,
    };
}

impl ShownFiles {
    /// The results: one for each picture, and the main one for the value of the last expression with what it can be shown as.
    pub fn results(self, value: Option<&str>) -> Vec<Value> {
        let mut files = self.0;
        let mut main = Map::new();
        let is_main =
            |bytes: &[u8]| serde_json::from_slice::<Bundle>(bytes).is_ok_and(|bundle| bundle.is_main);
        let has_main = files.iter().any(|(path, bytes)| field(path) == Some("bundle") && is_main(bytes));
        let value = value.filter(|_| !has_main);
        if let Some(value) = value {
            main.insert("text".into(), json!(value));
            // Its representations were written last.
            while let Some((path, bytes)) = files.pop_if(|(path, _)| {
                is_of_value(path)
                    && field(path).is_some_and(|field| field != "bundle" && !main.contains_key(field))
            }) {
                insert(&mut main, &path, &bytes);
            }
        }
        let finish = |mut result: Map<String, Value>, is_main: bool| {
            if let Some(Value::String(text)) = result.get_mut("text") {
                *text = unquoted(text).to_owned();
            }
            result.insert("type".into(), json!("result"));
            result.insert("is_main_result".into(), json!(is_main));
            result.entry("extra").or_insert_with(|| json!({}));
            Value::Object(result)
        };
        let mut results: Vec<Value> = Vec::new();
        for (path, bytes) in files {
            if field(&path) == Some("bundle") {
                // Written by a program: what is not one shows nothing.
                let bundle: Bundle = serde_json::from_slice(&bytes).unwrap_or_default();
                let (result, is_main) = bundle.result();
                results.extend((!result.is_empty()).then(|| finish(result, is_main)));
                continue;
            }
            let mut result = Map::new();
            insert(&mut result, &path, &bytes);
            results.push(finish(result, false));
        }
        if value.is_some() {
            results.push(finish(main, true));
        }
        results
    }
}

/// The text of a string without its quotes, as clients expect it.
fn unquoted(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('\'').or_else(|| within('"')).unwrap_or(text)
}

/// The name and text of the exception that a traceback ends with.
pub fn exception(traceback: &str) -> (&str, &str) {
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.')
    };
    // The text of an exception may have several lines; its name begins one.
    let mut position = traceback.len();
    for line in traceback.trim_end().rsplit('\n') {
        position = line.as_ptr() as usize - traceback.as_ptr() as usize;
        let name = line.split(": ").next().unwrap_or_default();
        if is_name(name) && (line.len() == name.len() || line[name.len()..].starts_with(": ")) {
            let value = traceback[position + name.len()..].trim_start_matches(": ").trim_end();
            return (name, value);
        }
    }
    ("Error", traceback[position.min(traceback.len())..].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: &[&str]) -> ShownFiles {
        ShownFiles(names.iter().map(|name| (name.into(), b"x".to_vec())).collect())
    }

    #[test]
    fn the_value_has_its_representations_and_pictures_are_results_of_their_own() {
        let results = shown(&["7-0001.png", "7-d0001.html"]).results(Some("df"));
        assert_eq!(results.len(), 2);
        assert_eq!((&results[0]["png"], &results[0]["is_main_result"]), (&json!("eA=="), &json!(false)));
        assert_eq!((&results[1]["text"], &results[1]["html"]), (&json!("df"), &json!("x")));
        assert_eq!(results[1]["is_main_result"], json!(true));
        assert!(shown(&[]).results(None).is_empty());
    }

    #[test]
    fn a_bundle_is_one_result_with_all_media_types() {
        let bundle = |text: &str| ShownFiles(vec![("7-d0001.bundle.json".into(), text.as_bytes().to_vec())]);
        let shown =
            r#"{"is_main":true,"data":{"text/plain":"'a'","text/latex":"x","e2b/data":{"a":[1]},"x/y":1}}"#;
        let expected = json!([{
            "text": "a", "latex": "x", "data": {"a": [1]}, "extra": {"x/y": 1}, "type": "result", "is_main_result": true,
        }]);
        assert_eq!(json!(bundle(shown).results(Some("'a'"))), expected);
        // What a program wrote there itself.
        for garbage in ["", "[]", r#"{"data":1}"#, "{}"] {
            assert!(bundle(garbage).results(None).is_empty(), "{garbage}");
            assert_eq!(bundle(garbage).results(Some("1")).len(), 1, "{garbage}");
        }
    }

    #[test]
    fn an_exception_is_the_end_of_its_traceback() {
        let traceback = "Traceback (most recent call last):\n  File \"<cell 1>\", line 1\nZeroDivisionError: division by zero\n";
        assert_eq!(exception(traceback), ("ZeroDivisionError", "division by zero"));
        assert_eq!(exception("a.B: one\n two\n"), ("a.B", "one\n two"));
        assert_eq!(exception("KeyboardInterrupt\n"), ("KeyboardInterrupt", ""));
        assert_eq!(exception(""), ("Error", ""));
    }
}
