//! What small models leave undone of a change that was ordered: they look at the program and say that it is complete, or do not try the
//! examples that it has.

use super::asked;
use super::edit_repair::step_that_appends;
use super::progress::{Printed, interpreter};
use super::small_model::{MAX_KEPT, changed_files, earlier_calls, is_sent, names, text_file};
use agent_event::ToolCall;
use agent_model::Message;
use agent_sandbox::Sandbox;
use agent_tools::NO_OUTPUT;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What to add to a look at a program before the model has changed it, where that is what the task orders.
pub async fn next_step(
    sandbox: &Sandbox,
    prompt: &str,
    tool: &str,
    arguments: &Value,
    messages: &[Message],
) -> Option<String> {
    let file = looked_at(prompt, tool, arguments, messages)?;
    let shown = file.display();
    let content = text_file(sandbox, &file.to_string_lossy(), MAX_KEPT).await;
    Some(match content.is_some_and(|content| is_one_function(prompt, &file, &content)) {
        // Small models fail at copies of long docstrings.
        true => format!(
            "\n\nNow send the write_file for {shown}: the imports and the function with its body, without the docstring. The \
             docstring is kept."
        ),
        false => format!("\n\nNow send the edit_file or write_file that changes {shown}."),
    })
}

/// The program that the task orders to change, where the call is a look at it and the model has changed nothing.
fn looked_at(prompt: &str, tool: &str, arguments: &Value, messages: &[Message]) -> Option<PathBuf> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let subject = match tool {
        "read_file" => text("path")?,
        "run_commands" => text("command").filter(|command| only_looks(command))?,
        _ => return None,
    };
    if !changed_files(messages).is_empty() {
        return None;
    }
    let looked_at = names(subject, "");
    asked::program_to_change(prompt).filter(|file| looked_at.contains(file))
}

/// What to add to a failed run of the program that the task is to complete, once the model has changed it.
pub async fn correction(
    sandbox: &Sandbox,
    prompt: &str,
    arguments: &Value,
    messages: &[Message],
) -> Option<String> {
    let command = arguments.get("command")?.as_str()?;
    let file = asked::program_to_change(prompt).filter(|_| asked::completes(prompt))?;
    if !names(command, "").contains(&file) || !changed_files(messages).contains(&file) {
        return None;
    }
    let content = text_file(sandbox, &file.to_string_lossy(), MAX_KEPT).await?;
    is_one_function(prompt, &file, &content).then(|| {
        let shown = file.display();
        format!("\n\nNow send the write_file for {shown} with the corrected function, without the docstring, which is kept.")
    })
}

/// The program in Python that was changed last, where its docstrings have examples and no command has tried them.
pub async fn untried_examples(sandbox: &Sandbox, messages: &[Message]) -> Option<PathBuf> {
    let is_python = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "py");
    let program = changed_files(messages).into_iter().rfind(is_python)?;
    let tries = |call: &ToolCall| call.arguments.text("command").is_some_and(|text| text.contains("doctest"));
    if earlier_calls(messages).any(tries) {
        return None;
    }
    let content = text_file(sandbox, &program.to_string_lossy(), MAX_KEPT).await?;
    content.lines().any(|line| line.trim_start().starts_with(">>> ")).then_some(program)
}

/// The step that calls the function of a program in Python that ran and printed nothing, because it calls none; with the program.
pub async fn uncalled_function(
    sandbox: &Sandbox,
    prompt: &str,
    printed: &Printed,
) -> Option<(PathBuf, Value)> {
    if !printed.output.ends_with(NO_OUTPUT) || asked::only_adds(prompt) {
        return None;
    }
    // A module that is only imported, or compiled, is to print nothing.
    let mut words = printed.command.split_whitespace();
    let (interpreter, argument) = (words.next()?, names(words.next()?, "").pop()?);
    let is_run = |program: &PathBuf| interpreter.starts_with("python") && *program == argument;
    let program = asked::files_to_make(prompt).into_iter().find(is_run)?;
    let content = text_file(sandbox, &program.to_string_lossy(), MAX_KEPT).await?;
    let step = call_of_last(&program, &content)?;
    Some((program, step))
}

/// The step that calls the last function of a program that does nothing but define functions, where that takes no arguments.
fn call_of_last(program: &Path, content: &str) -> Option<Value> {
    let begins = |line: &&str| !line.is_empty() && !line.starts_with([' ', '\t', '#', ')']);
    let defines = |line: &str| ["def ", "import ", "from "].iter().any(|word| line.starts_with(word));
    if !content.lines().filter(begins).all(defines) {
        return None;
    }
    let head = content.lines().rfind(|line| line.starts_with("def "))?;
    let (name, rest) = head.strip_prefix("def ")?.split_once('(')?;
    let (_, body) = content.rsplit_once(head)?;
    let returns =
        body.lines().any(|line| line.trim_start().starts_with("return ")) && !body.contains("print(");
    let call = if returns { format!("print({name}())") } else { format!("{name}()") };
    step_that_appends(&program.to_string_lossy(), content, &format!("\n\n\n{call}"))
        .filter(|_| rest.starts_with(')'))
}

/// The program that the task orders to change and that is as it was, where the model has changed no file.
pub async fn unchanged_file(sandbox: &Sandbox, prompt: &str, messages: &[Message]) -> Option<PathBuf> {
    let file = asked::program_to_change(prompt).filter(|_| changed_files(messages).is_empty())?;
    let content = text_file(sandbox, &file.to_string_lossy(), MAX_KEPT).await?;
    (!content.trim().is_empty() && is_sent(&content, messages)).then_some(file)
}

/// Whether the task is to complete a program in Python that is one function: then all of it is written anew, but for the docstring.
fn is_one_function(prompt: &str, program: &Path, content: &str) -> bool {
    let defines = |line: &&str| {
        line.starts_with("def ") || line.starts_with("class ") || line.starts_with("async def ")
    };
    asked::completes(prompt)
        && asked::keeps_docstrings(prompt)
        && interpreter(program) == Some("python3")
        && content.lines().filter(defines).count() == 1
}

/// Whether a command shows or runs a program and no more.
fn only_looks(command: &str) -> bool {
    const PROGRAMS: [&str; 8] = ["bash", "cat", "head", "node", "python", "python3", "ruby", "sh"];
    let first = command.split_whitespace().next().unwrap_or_default();
    PROGRAMS.contains(&first) && !command.contains(['>', '|', ';', '&', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn after_a_look_at_the_program_the_change_is_the_next_step() {
        let prompt = "Change PORT in settings.py to 9000.";
        let after = |tool: &str, arguments: Value| looked_at(prompt, tool, &arguments, &[]).is_some();
        assert!(after("read_file", json!({ "path": "settings.py" })));
        assert!(after("run_commands", json!({ "command": "python3 settings.py" })));
        assert!(!after("read_file", json!({ "path": "other.py" })));
        for command in
            ["sed -i 's/8000/9000/' settings.py", "python3 fix.py > settings.py", "mv settings.py a.py"]
        {
            assert!(!after("run_commands", json!({ "command": command })), "{command}");
        }
        assert!(!after("edit_file", json!({ "path": "settings.py" })));
    }

    #[test]
    fn a_program_that_only_defines_functions_gets_the_call_of_the_last_one() {
        let step = |content: &str| call_of_last(Path::new("sum.py"), content).map(|step| step["new"].clone());
        let prints = "import math\n\ndef total():\n    print(sum(range(5)))\n";
        assert_eq!(step(prints), Some(json!("    print(sum(range(5)))\n\n\ntotal()")));
        let calls = "def show():\n    print(10)\n\ndef main():\n    show()\n";
        assert_eq!(step(calls), Some(json!("    show()\n\n\nmain()")));
        let returns = "def total():\n    return sum(range(5))\n";
        assert_eq!(step(returns), Some(json!("    return sum(range(5))\n\n\nprint(total())")));
        for content in [
            "def total(n):\n    print(n)\n",
            "def total():\n    print(1)\n\nx = total\n",
            "def a():\n    return 1\n\ndef b():\n    return 1\n",
            "x = 1\n",
            "",
        ] {
            assert_eq!(step(content), None, "{content}");
        }
    }
}
