//! Findings as text, as JSON and as SARIF 2.1.0.

use super::finding::{Finding, Severity};
use crate::count_text::counted;
use crate::visible::visible_name;
use crate::workspace::tree_path::TreePath;
use serde_json::{Value, json};
use std::fmt::Write;

const SEVERITIES: [Severity; 3] = [Severity::Error, Severity::Warning, Severity::Note];

/// A review.
pub struct Report {
    /// The commit that the change is compared with.
    pub base: String,
    /// The model that found what there is.
    pub model: String,
    pub findings: Vec<Finding>,
    /// Findings that named no place in the tree.
    pub dropped: usize,
}

impl Report {
    /// One line for each finding, as compilers write them, with its message below.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let Finding { file, line, severity, title, message, .. } = finding;
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}:{line}: {}: {title}", visible_name(file.as_bytes()), severity.name());
            message.lines().for_each(|line| {
                let _ = writeln!(text, "    {line}");
            });
        }
        text + &self.summary() + "\n"
    }

    /// `2 findings: 1 error, 1 note`
    pub fn summary(&self) -> String {
        let number = |severity| self.findings.iter().filter(|finding| finding.severity == severity).count();
        let parts: Vec<String> = SEVERITIES
            .into_iter()
            .filter(|severity| number(*severity) > 0)
            .map(|severity| counted(number(severity) as u64, severity.name()))
            .collect();
        match parts.is_empty() {
            true => "no findings".to_owned(),
            false => format!("{}: {}", counted(self.findings.len() as u64, "finding"), parts.join(", ")),
        }
    }

    pub fn json(&self) -> Value {
        let Self { base, model, findings, dropped } = self;
        json!({ "base": base, "model": model, "findings": findings, "dropped": dropped })
    }

    /// For code scanning: one run, one rule for each severity.
    pub fn sarif(&self) -> Value {
        let rules: Vec<Value> = SEVERITIES.into_iter().map(rule).collect();
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": {
                    "name": "agent review",
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "rules": rules,
                } },
                "columnKind": "unicodeCodePoints",
                "results": self.findings.iter().map(result).collect::<Vec<_>>(),
                "properties": { "model": self.model, "base": self.base },
            }],
        })
    }
}

fn rule(severity: Severity) -> Value {
    json!({
        "id": rule_id(severity),
        "shortDescription": { "text": format!("A model's finding of severity {}", severity.name()) },
        "defaultConfiguration": { "level": severity.name() },
    })
}

fn rule_id(severity: Severity) -> String {
    format!("review/{}", severity.name())
}

fn result(finding: &Finding) -> Value {
    let Finding { file, line, end_line, severity, title, message } = finding;
    json!({
        "ruleId": rule_id(*severity),
        "level": severity.name(),
        "message": { "text": without_links(&format!("{title}\n\n{message}")) },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(file), "uriBaseId": "%SRCROOT%" },
            "region": { "startLine": line, "endLine": end_line },
        } }],
    })
}

/// A text in which SARIF sees no link (§3.11.6), whose target the model would have chosen.
fn without_links(text: &str) -> String {
    match text.contains("](") {
        true => text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]"),
        false => text.to_owned(),
    }
}

/// A path as a relative reference (RFC 3986): all but unreserved characters are escaped.
fn uri(path: &TreePath) -> String {
    let mut uri = String::new();
    for byte in path.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(*byte))
            }
            _ => {
                // Writing to a string does not fail.
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}
