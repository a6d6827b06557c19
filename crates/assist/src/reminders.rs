//! Questions that a model is asked instead of accepting its answer at once. It may answer again, and then that stands.

use super::observed::{Observed, Reminder, interpreter};
use agent_model::Reply;

const CUT_OFF: &str = "Your message was too long, or repeated itself, and was cut off. Send one short step; write a long file in parts.";
const NOTHING_DONE: &str = "Nothing was done yet: a message without a step changes nothing, and nobody else does what it describes. Send the \
                            first step, or answer if a text is all that is asked for.";

/// The reminder to send, which is counted.
pub fn reminder(observed: &mut Observed, reply: &Reply, has_schema: bool) -> Option<String> {
    let reminders = [
        (Reminder::CutOff, reply.is_cut_off().then(|| CUT_OFF.to_owned())),
        (Reminder::NotCorrected, not_corrected(observed)),
        (Reminder::NotRun, not_run(observed)),
        (Reminder::NothingDone, nothing_done(observed, reply, has_schema)),
    ];
    let (reminder, text) = reminders.into_iter().find_map(|(reminder, text)| Some((reminder, text?)))?;
    observed.take(reminder).then_some(text)
}

fn not_corrected(observed: &Observed) -> Option<String> {
    let failed = observed.failed.as_ref()?;
    let tool = if failed.tool.is_empty() { "The last step" } else { &failed.tool };
    Some(format!(
        "{tool} failed, and nothing was done about it since. Send the step that corrects it, or answer if the failure itself is what the \
         task asks about."
    ))
}

fn not_run(observed: &Observed) -> Option<String> {
    let script = observed.script.as_deref()?;
    let (shown, interpreter) = (script.display(), interpreter(script)?);
    Some(format!(
        "{shown} was written, and nothing has run since. Send the step that runs or tests it, for example with run_commands: {interpreter} \
         {shown}. Or answer if it is not to be run."
    ))
}

/// A message that has code or a plan in it, and no call before it. An answer that is to be JSON may have a block of it.
fn nothing_done(observed: &Observed, reply: &Reply, has_schema: bool) -> Option<String> {
    let is_work = has_code(&reply.text) || has_plan(&reply.text);
    (observed.calls == 0 && !has_schema && is_work).then(|| NOTHING_DONE.to_owned())
}

fn has_code(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~"))
}

/// Returns whether a text has a numbered list: a line that begins with 1, and one with 2.
fn has_plan(text: &str) -> bool {
    let number = |line: &str| {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "#*-".contains(c));
        let digits = line.chars().take_while(char::is_ascii_digit).count();
        let is_item = line[digits..].starts_with(['.', ')', ':', '、', '．', '：']);
        line[..digits].parse::<u32>().ok().filter(|_| is_item)
    };
    let numbers: Vec<u32> = text.lines().filter_map(number).collect();
    numbers.contains(&1) && numbers.contains(&2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::{NewPrompt, ToolUse};
    use agent_tools::ToolResult;
    use serde_json::json;

    fn reply(text: &str) -> Reply {
        Reply { text: text.into(), ..Reply::default() }
    }

    fn task() -> Observed {
        let mut observed = Observed::default();
        observed.begin(&NewPrompt::Task { text: "", is_users: true });
        observed
    }

    #[test]
    fn code_and_plans_without_a_step_are_pointed_out_in_every_language() {
        for text in [
            "Here it is:\n\n```python\nprint(1)\n```",
            "Ich gehe so vor:\n1. Datei lesen\n2. Fehler beheben",
            "计划：\n1、读取文件\n2、修复错误",
            "## 1) Прочитать\n## 2) Исправить",
        ] {
            let mut observed = task();
            assert!(reminder(&mut observed, &reply(text), false).is_some(), "{text}");
            assert_eq!(
                reminder(&mut observed, &reply(text), false),
                None,
                "the second answer stands: {text}"
            );
            assert_eq!(reminder(&mut task(), &reply(text), true), None, "JSON was asked for: {text}");
        }
        for text in ["It is 3.14.", "1. The only item", "Use `ls`.", "2024: a year", ""] {
            assert_eq!(reminder(&mut task(), &reply(text), false), None, "{text}");
        }
    }

    #[test]
    fn an_answer_after_a_step_is_accepted_whatever_it_holds() {
        let mut observed = task();
        let arguments = json!({ "command": "npx tsc --noEmit" });
        let call = ToolUse { id: "1", tool: "run_commands", arguments: &arguments };
        // A command that prints nothing ended a task as not done.
        let silent = ToolResult {
            ok: true,
            exit_code: Some(0),
            text: "exit code 0\n".into(),
            ..ToolResult::default()
        };
        observed.record(call, &silent, false);
        assert_eq!(reminder(&mut observed, &reply("```\nno errors\n```"), false), None);
    }

    #[test]
    fn a_script_that_was_not_run_comes_with_the_command_that_runs_it() {
        let mut observed = task();
        let arguments = json!({ "path": "src/a.rb" });
        let call = ToolUse { id: "1", tool: "write_file", arguments: &arguments };
        observed.record(call, &ToolResult::success("wrote"), false);
        let text = reminder(&mut observed, &reply("Done."), false).unwrap();
        assert!(text.contains("src/a.rb was written") && text.contains("ruby src/a.rb"), "{text}");
        assert_eq!(reminder(&mut observed, &reply("Done."), false), None);
    }
}
