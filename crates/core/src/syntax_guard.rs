//! Small models break a program that was right, copy an error message into it, or end it in the middle, and do not recover. What
//! a change would make of a program in Python is parsed before it is written.

use super::asked;
use super::failure_hints::{MODULES, import_of};
use super::small_model::{NOT_WRITTEN, refusals};
use super::syntax_repair::{self, field, is_cut};
use agent_model::Message;
use agent_sandbox::{Command, Outcome, Program, Sandbox, WORKSPACE};
use agent_tools::Collector;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The longest program that is parsed, in bytes: it is an argument of the parser's command.
const MAX_PROGRAM: usize = 48 << 10;
/// How often a change of one file is refused.
const MAX_REFUSALS: usize = 3;
/// Characters of what the parser prints.
const MAX_REPORT: usize = 2_000;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Places of one program that are put right.
const MAX_REPAIRS: usize = 5;
/// Names that a program may lack the imports of.
const MAX_NAMES: usize = 8;
/// Parses both programs and executes neither. Ends with 3 where only the changed one is wrong, and with 4 where both are. Of one that is
/// right it prints a [`Report`] as JSON.
const PARSER: &str = include_str!("syntax_guard.py");

/// What is wrong with the syntax of a program after a change.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    /// The parser's message.
    pub error: String,
    /// Whether the program was right before.
    was_right: bool,
}

/// What was found in a program.
enum Parsed {
    Right(Report),
    Broken(Broken),
}

/// What was found in a program whose syntax is right. It comes from the sandbox: any of it may be made up.
#[derive(Debug, Default, Deserialize)]
struct Report {
    /// The line behind which imports belong.
    imports_behind: usize,
    /// Names that nothing in it defines.
    missing: Vec<String>,
    /// Docstrings that the program had before and lacks, or has otherwise: their first and last line there, the first line now that they
    /// replace, and the line after those, which is the same one where they replace nothing.
    docstrings: Vec<(usize, usize, usize, usize)>,
    /// A function or class that is not there any more.
    removed: Vec<String>,
    /// A function that has a docstring and nothing else, where that is so of all that had no more before.
    without_body: Vec<String>,
}

/// What was found about a change.
#[derive(Debug, Default)]
pub struct Guarded {
    /// What it would break.
    pub broken: Option<Broken>,
    /// What was corrected in it, for the model.
    pub corrected: String,
    /// A function or class that it would remove.
    removed: Option<String>,
    /// A function that has a docstring and nothing else, as before.
    without_body: Option<String>,
}

/// Parses what a `write_file` or `edit_file` makes of a program in Python that holds `before`, where the sandbox has Python. What is
/// plainly meant is corrected in the arguments: brackets at the end, imports of Python's own library, and the docstrings of functions that
/// are written anew.
pub async fn guard(
    sandbox: &Sandbox,
    prompt: &str,
    tool: &str,
    arguments: &mut Value,
    before: Option<&str>,
) -> Guarded {
    let mut guarded = Guarded::default();
    let Some(mut parsed) = parse(sandbox, tool, arguments, before).await else { return guarded };
    if let Parsed::Broken(broken) = &parsed
        && let Some((repaired, corrected, right)) =
            repair(sandbox, tool, arguments, before, &broken.error).await
    {
        guarded.corrected += &corrected;
        (*arguments, parsed) = (repaired, right);
    }
    match parsed {
        Parsed::Broken(broken) => guarded.broken = Some(broken),
        Parsed::Right(mut report) => {
            if asked::only_adds(prompt)
                && let Some(kept) = syntax_repair::with_replaced(tool, arguments, before, &report.removed)
                && let Some(Parsed::Right(again)) = parse(sandbox, tool, &kept, before).await
                && again.removed.is_empty()
            {
                guarded.corrected += "\nWhat stood in its place was kept.";
                (*arguments, report) = (kept, again);
            }
            if asked::keeps_docstrings(prompt)
                && let Some(kept) = with_docstrings(prompt, tool, arguments, before, &report)
                && let Some(Parsed::Right(_)) = parse(sandbox, tool, &kept, before).await
            {
                guarded.corrected += "\nThe docstring was kept.";
                *arguments = kept;
            }
            if let Some((imported, imports)) = with_imports(tool, arguments, before, &report) {
                guarded.corrected += &format!("\nAdded what it lacked: `{}`.", imports.join("`, `"));
                *arguments = imported;
            }
            guarded.removed = report.removed.into_iter().next();
            guarded.without_body = report.without_body.into_iter().next();
        }
    }
    guarded
}

impl Guarded {
    /// Why the change is not made.
    pub fn refusal(
        &self,
        prompt: &str,
        tool: &str,
        arguments: &Value,
        messages: &[Message],
    ) -> Option<String> {
        match &self.broken {
            Some(broken) => broken.refusal(tool, arguments, messages),
            None if asked::completes(prompt) => self
                .removes(tool, prompt, arguments, messages)
                .or_else(|| self.still_without_body(prompt, arguments, messages)),
            None if asked::only_adds(prompt) => self.removes(tool, prompt, arguments, messages),
            None => None,
        }
    }

    /// Why a program is not replaced that the task is to complete or to add to: by one that lacks something of it.
    fn removes(&self, tool: &str, prompt: &str, arguments: &Value, messages: &[Message]) -> Option<String> {
        let (path, name) = (arguments.get("path")?.as_str()?, self.removed.as_deref()?);
        let begin = format!("{NOT_WRITTEN} this would remove {name} from {path}.");
        let is_refused = tool == "write_file" && refusals(&begin, messages) < MAX_REFUSALS;
        let what_to_do = match asked::completes(prompt) {
            true => format!("Change a part of {path} with edit_file."),
            false => format!("Send the write_file of {path} with {name} and with what is to be added."),
        };
        is_refused.then(|| format!("{begin} {what_to_do}"))
    }

    /// Why a program is not written that the task is to complete, and that is as incomplete as before.
    fn still_without_body(&self, prompt: &str, arguments: &Value, messages: &[Message]) -> Option<String> {
        let (path, name) = (arguments.get("path")?.as_str()?, self.without_body.as_deref()?);
        let begin = format!("{NOT_WRITTEN} {name} in {path} would have no code, only a docstring.");
        let hint =
            if asked::keeps_docstrings(prompt) { ", without the docstring, which is kept" } else { "" };
        (refusals(&begin, messages) < MAX_REFUSALS)
            .then(|| format!("{begin} Send the write_file with def {name} and its code{hint}."))
    }
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
        Outcome::Exited(0) => serde_json::from_str(&report).ok().map(Parsed::Right),
        Outcome::Exited(code @ 3..=4) => Some(Parsed::Broken(Broken { error: report, was_right: code == 3 })),
        _ => None,
    }
}

/// The arguments with the imports that the parser's report asks for.
fn with_imports(
    tool: &str,
    arguments: &Value,
    before: Option<&str>,
    report: &Report,
) -> Option<(Value, Vec<String>)> {
    let line = report.imports_behind;
    let imports: Vec<String> =
        report.missing.iter().take(MAX_NAMES).filter_map(|name| import_of(name)).collect();
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

/// The arguments with the docstrings that the whole program had before. One that was changed is put back only where it says what to
/// write: small models make mistakes in copies.
fn with_docstrings(
    prompt: &str,
    tool: &str,
    arguments: &Value,
    before: Option<&str>,
    report: &Report,
) -> Option<Value> {
    let old: Vec<&str> = before?.lines().collect();
    let data = arguments.get("data").and_then(Value::as_str).filter(|_| tool == "write_file")?;
    let mut lines: Vec<&str> = data.lines().collect();
    let mut is_kept = false;
    for (first, last, line, end) in report.docstrings.iter().rev() {
        if end > line && !asked::completes(prompt) {
            continue;
        }
        let docstring = old.get(first.checked_sub(1)?..*last)?;
        let replaced = line.checked_sub(1)?..end.checked_sub(1)?;
        lines.get(replaced.clone()).filter(|_| replaced.start < lines.len())?;
        lines.splice(replaced, docstring.iter().copied());
        is_kept = true;
    }
    let mut kept = arguments.clone();
    kept["data"] = (lines.join("\n") + "\n").into();
    is_kept.then_some(kept)
}

/// The arguments with what is plainly wrong put right, what that was, and what is found then, where the program is right then.
async fn repair(
    sandbox: &Sandbox,
    tool: &str,
    arguments: &Value,
    before: Option<&str>,
    error: &str,
) -> Option<(Value, String, Parsed)> {
    let (mut arguments, mut error) = (arguments.clone(), error.to_owned());
    let mut all_corrected = String::new();
    for _ in 0..MAX_REPAIRS {
        let (repaired, corrected) = syntax_repair::corrected(tool, &arguments, &error)?;
        if !all_corrected.contains(corrected) {
            all_corrected += corrected;
        }
        match parse(sandbox, tool, &repaired, before).await? {
            right @ Parsed::Right(_) => return Some((repaired, all_corrected, right)),
            Parsed::Broken(broken) => (arguments, error) = (repaired, broken.error),
        }
    }
    None
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
    fn missing_imports_are_added_where_they_belong() {
        let write = json!({ "path": "a.py", "data": "#!/usr/bin/python3\nprint(sys.argv, prod([]))\n" });
        let report = |imports_behind, names: &[&str]| {
            let missing = names.iter().map(|name| (*name).to_owned()).collect();
            Report { imports_behind, missing, ..Report::default() }
        };
        let lacks = report(1, &["prod", "sys", "other"]);
        let (imported, _) = with_imports("write_file", &write, None, &lacks).unwrap();
        let program = "#!/usr/bin/python3\nfrom math import prod\nimport sys\nprint(sys.argv, prod([]))\n";
        assert_eq!(imported["data"], program);
        let edit = json!({ "path": "a.py", "old": "1", "new": "len(sys.argv)" });
        let (imported, _) = with_imports("edit_file", &edit, Some("x = 1\n"), &report(0, &["sys"])).unwrap();
        let expected = json!({ "path": "a.py", "old": "x = 1\n", "new": "import sys\nx = len(sys.argv)\n" });
        assert_eq!(imported, expected);
        for names in [&[][..], &["other"]] {
            assert_eq!(with_imports("write_file", &write, None, &report(0, names)), None, "{names:?}");
        }
    }

    #[test]
    fn docstrings_stay_where_a_function_is_written_anew() {
        let before = "def f(x):\n    \"\"\"Doubles.\n    >>> f(1)\n    2\n    \"\"\"\n";
        let write = json!({ "path": "a.py", "data": "def f(x):\n    return 2 * x" });
        let kept = |prompt: &str, docstrings: &[(usize, usize, usize, usize)]| {
            let report = Report { docstrings: docstrings.to_vec(), ..Report::default() };
            with_docstrings(prompt, "write_file", &write, Some(before), &report)
        };
        let prompt = "Complete f in a.py.";
        assert_eq!(
            kept("Fix a.py.", &[(2, 5, 2, 2)]).unwrap()["data"],
            format!("{before}    return 2 * x\n")
        );
        assert_eq!(kept(prompt, &[(2, 5, 2, 3)]).unwrap()["data"], before);
        assert_eq!(kept("Fix a.py.", &[(2, 5, 2, 3)]), None);
        let wrong = [
            (0, 5, 2, 2),
            (2, 6, 2, 2),
            (5, 2, 2, 2),
            (2, 5, 0, 0),
            (2, 5, 3, 3),
            (2, 5, 2, 1),
            (2, 5, 2, 4),
        ];
        for docstring in wrong {
            assert_eq!(kept(prompt, &[docstring]), None, "{docstring:?}");
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
