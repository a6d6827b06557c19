//! Small models break a program that was right, copy an error message into it, or end it in the middle, and do not recover. What
//! a change would make of a program in Python is parsed before it is written.

use super::edit_repair::unclosed;
use super::failure_hints::{MODULES, import_of};
use super::small_model::{NOT_WRITTEN, refusals};
use crate::model::Message;
use crate::sandbox::{Command, Outcome, Program, Sandbox, WORKSPACE};
use crate::tools::Collector;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The longest program that is parsed, in bytes: it is an argument of the parser's command.
const MAX_PROGRAM: usize = 48 << 10;
/// How often a change of one file is refused.
const MAX_REFUSALS: usize = 3;
/// Characters of what the parser prints.
const MAX_REPORT: usize = 1_000;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Names that a program may lack the imports of.
const MAX_NAMES: usize = 8;
/// Parses both programs and executes neither. Ends with 3 where only the changed one is wrong, and with 4 where both are. Of one that is
/// right it prints the line behind which imports belong, and the names that nothing in it defines.
const PARSER: &str = include_str!("syntax_guard.py");

/// What is wrong with the syntax of a program after a change.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    /// The parser's message.
    pub error: String,
    /// Whether the program was right before.
    was_right: bool,
}

/// What the parser says of a program.
enum Parsed {
    Right(String),
    Broken(Broken),
}

/// What was found about a change.
#[derive(Debug, Default)]
pub struct Guarded {
    /// What it would break.
    pub broken: Option<Broken>,
    /// What was corrected in it, for the model.
    pub corrected: String,
}

/// Parses what a `write_file` or `edit_file` makes of a program in Python that holds `before`, where the sandbox has Python. What is
/// plainly meant is corrected in the arguments: brackets at the end, and imports of Python's own library.
pub async fn guard(sandbox: &Sandbox, tool: &str, arguments: &mut Value, before: Option<&str>) -> Guarded {
    let mut guarded = Guarded::default();
    let Some(mut parsed) = parse(sandbox, tool, arguments, before).await else { return guarded };
    if let Parsed::Broken(broken) = &parsed
        && let Some(repaired) = with_brackets(tool, arguments, &broken.error)
        && let Some(right @ Parsed::Right(_)) = parse(sandbox, tool, &repaired, before).await
    {
        guarded.corrected += "\nThe brackets at the end of the text were corrected.";
        (*arguments, parsed) = (repaired, right);
    }
    match parsed {
        Parsed::Broken(broken) => guarded.broken = Some(broken),
        Parsed::Right(report) => {
            if let Some((imported, imports)) = with_imports(tool, arguments, before, &report) {
                guarded.corrected += &format!("\nAdded what it lacked: `{}`.", imports.join("`, `"));
                *arguments = imported;
            }
        }
    }
    guarded
}

async fn parse(sandbox: &Sandbox, tool: &str, arguments: &Value, before: Option<&str>) -> Option<Parsed> {
    let path = Path::new(arguments.get("path")?.as_str()?);
    path.extension().filter(|extension| *extension == "py")?;
    let after = after(tool, arguments, before)?;
    let before = before.unwrap_or_default();
    // The kernel takes no zero byte in an argument.
    if after.len().max(before.len()) > MAX_PROGRAM || after.contains('\0') {
        return None;
    }
    let shown = Path::new(WORKSPACE).join(path).display().to_string();
    let modules = MODULES.join(" ");
    let argv = ["python3", "-IS", "-W", "ignore", "-c", PARSER, &shown, &after, before, &modules];
    let command = Command {
        program: Program::Argv(argv.map(Into::into).to_vec()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(TIMEOUT),
        live_bytes: 64 << 10,
        stdin: false,
    };
    let mut collector = Collector::new(MAX_REPORT);
    // A connection that is broken is reported by the tool.
    let finished = sandbox.run(command, &mut |output| collector.push(output)).await.ok()?;
    let report = collector.finish(None).text.trim_end().to_owned();
    match finished.outcome {
        Outcome::Exited(0) => Some(Parsed::Right(report)),
        Outcome::Exited(code @ 3..=4) => Some(Parsed::Broken(Broken { error: report, was_right: code == 3 })),
        _ => None,
    }
}

/// The arguments with the imports that the parser's report asks for.
fn with_imports(
    tool: &str,
    arguments: &Value,
    before: Option<&str>,
    report: &str,
) -> Option<(Value, Vec<String>)> {
    let (line, names) = report.split_once(' ')?;
    let line: usize = line.parse().ok()?;
    let imports: Vec<String> = names.split(' ').take(MAX_NAMES).filter_map(import_of).collect();
    let program = after(tool, arguments, before).filter(|_| !imports.is_empty())?;
    let mut lines: Vec<&str> = program.lines().collect();
    lines.splice(line.min(lines.len())..line.min(lines.len()), imports.iter().map(String::as_str));
    let mut imported = arguments.clone();
    // The whole file is in it once.
    if tool == "edit_file" {
        imported["old"] = before?.into();
    }
    imported[field(tool)] = (lines.join("\n") + "\n").into();
    Some((imported, imports))
}

/// The argument that is the new text.
fn field(tool: &str) -> &'static str {
    if tool == "write_file" { "data" } else { "new" }
}

/// The arguments with as many brackets at the end of the text as it opens: small models leave out the last ones, and write the brace that
/// ends the arguments into the text as well.
fn with_brackets(tool: &str, arguments: &Value, error: &str) -> Option<Value> {
    let whole = arguments.get(field(tool))?.as_str()?;
    let text = whole.trim_end();
    let corrected = if error.contains("unmatched '}'") {
        text.strip_suffix('}')?.trim_end().to_owned()
    } else if error.contains("was never closed") && !is_cut(text) {
        text.to_owned() + &unclosed(text)?
    } else {
        return None;
    };
    let mut repaired = arguments.clone();
    repaired[field(tool)] = (corrected + &whole[text.len()..]).into();
    Some(repaired)
}

/// Whether a text ends in the middle of a program.
fn is_cut(text: &str) -> bool {
    text.ends_with(['(', '[', '{', ',', '=', '+', ':'])
}

/// What the file would hold.
fn after(tool: &str, arguments: &Value, before: Option<&str>) -> Option<String> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    match tool {
        "write_file" => text("data").map(str::to_owned),
        "edit_file" => {
            let (before, old, new) = (before?, text("old")?, text("new")?);
            (before.matches(old).count() == 1).then(|| before.replacen(old, new, 1))
        }
        _ => None,
    }
}

impl Broken {
    /// Why the change is not made, where it would break what is right and was not refused too often.
    pub fn refusal(&self, tool: &str, arguments: &Value, messages: &[Message]) -> Option<String> {
        let path = arguments.get("path")?.as_str()?;
        let begin = format!("{NOT_WRITTEN} this would be a syntax error in {path}");
        if !self.was_right || refusals(&begin, messages) >= MAX_REFUSALS {
            return None;
        }
        let what_to_do = match self.cut(tool, arguments) {
            Some(hint) => hint.to_owned(),
            None if tool == "write_file" => {
                format!("Send write_file with the whole program, or change a part of {path} with edit_file.")
            }
            None => "Send another edit_file, with all lines that belong together.".to_owned(),
        };
        Some(format!("{begin}, which is as it was:\n{}\n\n{what_to_do}", self.error))
    }

    /// What to add to the result of a change that was made.
    pub fn note(&self, tool: &str, arguments: &Value) -> String {
        let hint = self.cut(tool, arguments).map(|hint| format!("\n\n{hint}")).unwrap_or_default();
        format!("\n\nIt has a syntax error:\n{}{hint}", self.error)
    }

    /// What a model does not see that ended a text at a quotation mark in it.
    fn cut(&self, tool: &str, arguments: &Value) -> Option<&'static str> {
        let text = arguments.get(field(tool))?.as_str()?.trim_end();
        is_cut(text).then_some(
            "The text ends in the middle of the program, at a quotation mark. In the program, use ' for texts, or write \\\" for \
             each quotation mark.",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_change_makes_of_a_file_is_known_where_the_change_is_possible() {
        let edit = json!({ "path": "a.py", "old": "1", "new": "2" });
        assert_eq!(after("edit_file", &edit, Some("x = 1\n")).as_deref(), Some("x = 2\n"));
        assert_eq!(after("edit_file", &edit, Some("x = 1 + 1\n")), None);
        assert_eq!(after("edit_file", &edit, None), None);
        assert_eq!(after("write_file", &json!({ "data": "y" }), None).as_deref(), Some("y"));
        assert_eq!(after("read_file", &edit, Some("1")), None);
    }

    #[test]
    fn brackets_at_the_end_are_corrected() {
        let repaired = |data: &str, error: &str| {
            let arguments = json!({ "path": "a.py", "data": data });
            with_brackets("write_file", &arguments, error).map(|repaired| repaired["data"].clone())
        };
        let never = "SyntaxError: '(' was never closed";
        assert_eq!(repaired("x = [1]}", "SyntaxError: unmatched '}'").unwrap(), "x = [1]");
        assert_eq!(repaired("print(len([1])\n", never).unwrap(), "print(len([1]))\n");
        assert_eq!(repaired("raise ValueError(", never), None, "it ends in the middle");
        assert_eq!(repaired("x = [1]}", "SyntaxError: invalid syntax"), None);
    }

    #[test]
    fn missing_imports_are_added_where_they_belong() {
        let write = json!({ "path": "a.py", "data": "#!/usr/bin/python3\nprint(sys.argv, prod([]))\n" });
        let (imported, _) = with_imports("write_file", &write, None, "1 prod sys other").unwrap();
        let program = "#!/usr/bin/python3\nfrom math import prod\nimport sys\nprint(sys.argv, prod([]))\n";
        assert_eq!(imported["data"], program);
        let edit = json!({ "path": "a.py", "old": "1", "new": "len(sys.argv)" });
        let (imported, _) = with_imports("edit_file", &edit, Some("x = 1\n"), "0 sys").unwrap();
        let expected = json!({ "path": "a.py", "old": "x = 1\n", "new": "import sys\nx = len(sys.argv)\n" });
        assert_eq!(imported, expected);
        for report in ["0", "", "0 other", "x sys"] {
            assert_eq!(with_imports("write_file", &write, None, report), None, "{report}");
        }
    }

    #[test]
    fn what_was_right_is_kept_up_to_three_times() {
        let broken = |was_right| Broken { error: "SyntaxError: '(' was never closed".into(), was_right };
        let arguments = json!({ "path": "a.py", "data": "raise ValueError(" });
        let refusal = broken(true).refusal("write_file", &arguments, &[]).unwrap();
        assert!(refusal.contains("never closed") && refusal.contains("use ' for texts"), "{refusal}");
        let message = Message::Tool { id: "1".into(), name: "write_file".into(), text: refusal };
        let messages = vec![message; MAX_REFUSALS];
        assert_eq!(broken(true).refusal("write_file", &arguments, &messages), None);
        assert_eq!(broken(false).refusal("write_file", &arguments, &[]), None);
        let whole = json!({ "path": "a.py", "data": "def f()\n" });
        assert!(!broken(false).note("write_file", &whole).contains("quotation mark"));
    }
}
