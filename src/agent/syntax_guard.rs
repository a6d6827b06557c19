//! Small models break a program that was right, copy an error message into it, or end it in the middle, and do not find back. What
//! a change would make of a program in Python is parsed before it is written.

use super::small_model::NOT_WRITTEN;
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
/// Characters of the error message.
const MAX_ERROR: usize = 1_000;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Parses both programs and executes neither. Ends with 3 where only the changed one is wrong, and with 4 where both are.
const PARSER: &str = "
import sys, traceback
def error(text):
    try:
        compile(text, sys.argv[1], 'exec', dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return ''.join(traceback.format_exception_only(type(error), error))
new = error(sys.argv[2])
print(new or '')
sys.exit(0 if new is None else 3 if sys.argv[3].strip() and error(sys.argv[3]) is None else 4)
";

/// What is wrong with the syntax of a program after a change.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    /// The parser's message.
    pub error: String,
    /// Whether the program was right before.
    was_right: bool,
}

/// What a `write_file` or `edit_file` would break in a program in Python that holds `before`. `None` as well where the sandbox has
/// no Python.
pub async fn broken_by(
    sandbox: &Sandbox,
    tool: &str,
    arguments: &Value,
    before: Option<&str>,
) -> Option<Broken> {
    let path = Path::new(arguments.get("path")?.as_str()?);
    path.extension().filter(|extension| *extension == "py")?;
    let after = after(tool, arguments, before)?;
    let before = before.unwrap_or_default();
    // The kernel takes no zero byte in an argument.
    if after.len().max(before.len()) > MAX_PROGRAM || after.contains('\0') {
        return None;
    }
    let shown = Path::new(WORKSPACE).join(path).display().to_string();
    let argv = ["python3", "-IS", "-W", "ignore", "-c", PARSER, &shown, &after, before];
    let command = Command {
        program: Program::Argv(argv.map(Into::into).to_vec()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(TIMEOUT),
        live_bytes: 64 << 10,
        stdin: false,
    };
    let mut collector = Collector::new(MAX_ERROR);
    // A connection that is broken is reported by the tool.
    let finished = sandbox.run(command, &mut |output| collector.push(output)).await.ok()?;
    let was_right = match finished.outcome {
        Outcome::Exited(3) => true,
        Outcome::Exited(4) => false,
        _ => return None,
    };
    Some(Broken { error: collector.finish(None).text.trim_end().to_owned(), was_right })
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
        let is_one =
            |message: &&Message| matches!(message, Message::Tool { text, .. } if text.starts_with(&begin));
        if !self.was_right || messages.iter().filter(is_one).count() >= MAX_REFUSALS {
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
        let field = if tool == "write_file" { "data" } else { "new" };
        let text = arguments.get(field)?.as_str()?.trim_end();
        text.ends_with(['(', '[', '{', ',', '=', '+', ':']).then_some(
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
    fn what_was_right_is_kept_until_the_model_insists() {
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
