//! The model's findings: the schema of its answer, and what is kept of it.

use crate::error::Result;
use crate::sandbox::Sandbox;
use crate::visible::{visible, visible_name};
use crate::workspace::tree_path::TreePath;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Findings that are looked at.
const MAX_FINDINGS: usize = 200;
/// Characters of a title and of a message.
const MAX_TITLE: usize = 300;
const MAX_MESSAGE: usize = 4_000;
/// Bytes of a file in which lines are counted.
const MAX_FILE: u64 = 16 << 20;

/// How bad a finding is: the levels of SARIF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth a look
    Note,
    /// Fails in cases that will occur
    Warning,
    /// Wrong results, crashes, lost data, security holes
    Error,
}

impl Severity {
    /// Its name, as the model, the user and SARIF write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One finding; its texts are shown as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The path from the workspace's root.
    #[serde(serialize_with = "shown")]
    pub file: TreePath,
    pub line: u64,
    pub end_line: u64,
    pub severity: Severity,
    pub title: String,
    pub message: String,
}

fn shown<S: serde::Serializer>(file: &TreePath, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&visible_name(file.as_bytes()))
}

/// The answer of the model.
#[derive(Deserialize)]
struct Answer {
    findings: Vec<Claim>,
}

/// A finding that nobody has looked at.
#[derive(Deserialize)]
struct Claim {
    file: String,
    line: u64,
    end_line: Option<u64>,
    severity: Severity,
    title: String,
    message: String,
}

/// The schema of the answer.
pub fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["findings"],
        "properties": { "findings": { "type": "array", "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["file", "line", "severity", "title", "message"],
            "properties": {
                "file": { "type": "string" },
                "line": { "type": "integer", "minimum": 1 },
                "end_line": { "type": ["integer", "null"] },
                "severity": { "enum": ["error", "warning", "note"] },
                "title": { "type": "string" },
                "message": { "type": "string" },
            },
        } } },
    })
}

/// The findings of an answer that satisfies the schema, the worst first, and a notice for each that names no place in the tree.
pub async fn findings(answer: &str, sandbox: &Sandbox) -> Result<(Vec<Finding>, Vec<String>)> {
    let Answer { findings: claims } = serde_json::from_str(answer)?;
    let (mut kept, mut notices) = (Vec::new(), Vec::new());
    let surplus = claims.len().saturating_sub(MAX_FINDINGS);
    if surplus > 0 {
        notices.push(format!("findings are left out: {surplus}; the first {MAX_FINDINGS} are enough"));
    }
    let mut lines = BTreeMap::new();
    for claim in claims.into_iter().take(MAX_FINDINGS) {
        match place(&claim, sandbox, &mut lines).await? {
            Ok((file, end_line)) => kept.push(Finding {
                file,
                line: claim.line,
                end_line,
                severity: claim.severity,
                title: in_one_line(&claim.title, MAX_TITLE),
                message: bounded(visible(claim.message.trim()), MAX_MESSAGE),
            }),
            Err(why) => notices.push(format!(
                "a finding is left out, because {}:{} {why}: {}",
                in_one_line(&claim.file, MAX_TITLE),
                claim.line,
                in_one_line(&claim.title, MAX_TITLE),
            )),
        }
    }
    kept.sort_by(|a, b| (b.severity, &a.file, a.line).cmp(&(a.severity, &b.file, b.line)));
    Ok((kept, notices))
}

/// The file and the last line of a claim, or why there is no such place.
async fn place(
    claim: &Claim,
    sandbox: &Sandbox,
    known: &mut BTreeMap<TreePath, Option<u64>>,
) -> Result<std::result::Result<(TreePath, u64), &'static str>> {
    let named = claim.file.strip_prefix("./").unwrap_or(&claim.file);
    let inside = sandbox.clone().in_whole_workspace();
    let Some(path) = inside.in_workspace(Path::new(named)) else {
        return Ok(Err("is outside of the workspace"));
    };
    let file = match TreePath::new(path.as_os_str().as_bytes()) {
        Ok(file) if !file.is_git_internal() => file,
        _ => return Ok(Err("is not a file of the workspace")),
    };
    let count = match known.get(&file) {
        Some(count) => *count,
        None => {
            let count = count_lines(&inside, &file).await?;
            known.insert(file.clone(), count);
            count
        }
    };
    let Some(count) = count else { return Ok(Err("is not a file of the workspace")) };
    let end = claim.end_line.unwrap_or(claim.line).max(claim.line);
    // An empty file has a first line to point at.
    Ok(if claim.line == 0 || end > count.max(1) {
        Err("is behind the end of the file")
    } else {
        Ok((file, end))
    })
}

/// The lines of a file. `None`: there is no such file.
async fn count_lines(sandbox: &Sandbox, file: &TreePath) -> Result<Option<u64>> {
    let path = sandbox.workspace().join(file.as_path());
    let bytes = match sandbox.read_file(&path, 0, MAX_FILE).await {
        Ok(read) => read.bytes,
        Err(error) if error.kind() == crate::error::Kind::InSandbox => return Ok(None),
        Err(error) => return Err(error),
    };
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    Ok(Some(ends + u64::from(bytes.last().is_some_and(|last| *last != b'\n'))))
}

fn in_one_line(text: &str, max: usize) -> String {
    bounded(visible(text.trim()).replace(['\n', '\t'], " "), max)
}

fn bounded(text: String, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
