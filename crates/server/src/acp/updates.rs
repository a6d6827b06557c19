//! From the events of a session to what a client of the protocol shows.

use agent_base::count_text::counted;
use agent_base::sanitise::{Sanitiser, one_line, plain};
use agent_event::{Artifact, Content, Event, PlanStep, StepStatus};
use agent_log::{ArtifactLimits, Artifacts, SessionId, Store};
use agent_sandbox::WORKSPACE;
use agent_workspace::host_dir::HostDir;
use agent_workspace::tree_path::TreePath;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// Characters of a title.
const TITLE: usize = 120;
/// Bytes of a running command's output that a client is shown which has no terminal for it.
const TAIL: usize = 16 << 10;
/// The pause between two of them: each replaces all of those before.
const PAUSE: Duration = Duration::from_millis(300);
/// The largest file whose former text is shown beside what is written over it, in bytes.
const MAX_FORMER: u64 = 1 << 20;
/// Calls whose state is kept.
const MAX_CALLS: usize = 256;

/// Makes `session/update`s of the events of one session, in order.
pub struct Updates {
    root: PathBuf,
    store: Store,
    session: String,
    /// Set if the client shows the output of a command by the extension `terminal_output`.
    has_terminals: bool,
    /// Set if these are the events of an earlier process, of which there are no pieces.
    is_replay: bool,
    calls: HashMap<String, Call>,
    turn: u64,
    prompts: u64,
    /// Set if pieces of the message under way were sent.
    streamed: bool,
    /// Of the answer and of the reasoning under way, whose pieces are cut anywhere.
    answer: Sanitiser,
    thought: Sanitiser,
}

struct Call {
    in_terminal: bool,
    diff: Vec<Value>,
    tail: String,
    sent: Instant,
    /// Of its output for a terminal of the client's.
    screen: Sanitiser,
}

impl Updates {
    /// Those of a session on `root`.
    pub fn new(root: &Path, store: Store, has_terminals: bool, is_replay: bool) -> Self {
        Self {
            root: root.to_owned(),
            store,
            session: String::new(),
            has_terminals,
            is_replay,
            calls: HashMap::new(),
            turn: 0,
            prompts: 0,
            streamed: false,
            answer: Sanitiser::new(false),
            thought: Sanitiser::new(false),
        }
    }

    /// Returns what a client is sent because of `event` of `session`.
    pub fn of(&mut self, session: &str, event: &Event) -> Vec<Value> {
        if self.session != session {
            session.clone_into(&mut self.session);
        }
        match event {
            Event::UserMessage { text } => {
                self.prompts += 1;
                let id = format!("prompt-{}", self.prompts);
                if self.is_replay { vec![chunk("user_message_chunk", &id, text)] } else { Vec::new() }
            }
            Event::TurnStarted { turn } => {
                (self.turn, self.streamed) = (*turn, false);
                (self.answer, self.thought) = (Sanitiser::new(false), Sanitiser::new(false));
                Vec::new()
            }
            Event::TextDelta { text } => {
                self.streamed = true;
                let message = self.message();
                piece(&mut self.answer, "agent_message_chunk", &message, text)
            }
            Event::ReasoningDelta { text } => {
                let message = self.message();
                piece(&mut self.thought, "agent_thought_chunk", &message, text)
            }
            Event::AssistantMessage { text, reasoning, .. } => self.whole_message(text, reasoning.as_deref()),
            Event::Notice { text } => {
                vec![chunk("agent_thought_chunk", &format!("notice-{}", self.turn), &format!("{text}\n\n"))]
            }
            Event::Plan { steps, .. } => vec![plan(steps)],
            Event::ToolStarted { id, name, arguments } => self.started(id, name, arguments),
            Event::ToolOutput { id, data, .. } => self.output(id, data),
            Event::ToolFinished { .. } => self.finished(event),
            _ => Vec::new(),
        }
    }

    fn message(&self) -> String {
        format!("answer-{}", self.turn)
    }

    /// Returns what has not been sent in pieces.
    fn whole_message(&mut self, text: &str, reasoning: Option<&str>) -> Vec<Value> {
        if std::mem::take(&mut self.streamed) {
            return Vec::new();
        }
        let thought = reasoning.filter(|text| self.is_replay && !text.is_empty());
        let thought = thought.map(|text| chunk("agent_thought_chunk", &self.message(), text));
        let answer = (!text.is_empty()).then(|| chunk("agent_message_chunk", &self.message(), text));
        thought.into_iter().chain(answer).collect()
    }

    fn started(&mut self, id: &str, name: &str, arguments: &Value) -> Vec<Value> {
        if name == "update_plan" {
            return Vec::new();
        }
        let in_terminal = self.has_terminals && !self.is_replay && kind(name) == "execute";
        let diff = self.proposed(name, arguments);
        let content = match in_terminal {
            true => vec![json!({ "type": "terminal", "terminalId": id })],
            false => diff.clone(),
        };
        let mut update = json!({
            "sessionUpdate": "tool_call",
            "toolCallId": id,
            "title": title(name, arguments),
            "name": name,
            "kind": kind(name),
            "status": "in_progress",
            "content": content,
            "locations": self.locations(arguments),
            "rawInput": arguments,
        });
        if in_terminal {
            update["_meta"] = json!({ "terminal_info": { "terminal_id": id, "cwd": self.root } });
        }
        if self.calls.len() < MAX_CALLS {
            let call = Call {
                in_terminal,
                diff,
                tail: String::new(),
                sent: Instant::now(),
                screen: Sanitiser::new(true),
            };
            self.calls.insert(id.to_owned(), call);
        }
        vec![update]
    }

    fn output(&mut self, id: &str, data: &str) -> Vec<Value> {
        let Some(call) = self.calls.get_mut(id) else { return Vec::new() };
        let update = |more: Value| {
            let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": id });
            if let (Some(update), Value::Object(more)) = (update.as_object_mut(), more) {
                update.extend(more);
            }
            vec![update]
        };
        if call.in_terminal {
            let mut clean = String::new();
            call.screen.push(data, &mut clean);
            return update(json!({ "_meta": { "terminal_output": { "terminal_id": id, "data": clean } } }));
        }
        call.tail.push_str(data);
        if call.tail.len() > TAIL {
            let mut cut = call.tail.len() - TAIL;
            while !call.tail.is_char_boundary(cut) {
                cut += 1;
            }
            call.tail.drain(..cut);
        }
        if call.sent.elapsed() < PAUSE {
            return Vec::new();
        }
        call.sent = Instant::now();
        update(json!({ "content": [text_content(&fenced(&call.tail))] }))
    }

    fn finished(&mut self, event: &Event) -> Vec<Value> {
        let Event::ToolFinished { id, name, ok, exit_code, result, content, .. } = event else {
            return Vec::new();
        };
        if name == "update_plan" {
            return Vec::new();
        }
        let call = self.calls.remove(id);
        let mut update = json!({
            "sessionUpdate": "tool_call_update",
            "toolCallId": id,
            "status": if *ok { "completed" } else { "failed" },
            "rawOutput": { "text": result, "exit_code": exit_code },
        });
        let pictures = content.iter().filter_map(|part| match part {
            Content::Image { artifact } => self.picture(artifact),
            _ => None,
        });
        let pictures: Vec<Value> = pictures.collect();
        let (in_terminal, diff) = call.map_or((false, Vec::new()), |call| (call.in_terminal, call.diff));
        if in_terminal {
            let exit = json!({ "terminal_id": id, "exit_code": exit_code, "signal": null });
            update["_meta"] = json!({ "terminal_exit": exit });
            if !pictures.is_empty() {
                let terminal = json!({ "type": "terminal", "terminalId": id });
                update["content"] = std::iter::once(terminal).chain(pictures).collect();
            }
            return vec![update];
        }
        let text = match kind(name) {
            "execute" => fenced(result),
            _ => result.clone(),
        };
        // A diff says what was written; what failed is said as well.
        let shown = if *ok && !diff.is_empty() { Vec::new() } else { vec![text_content(&text)] };
        update["content"] = diff.into_iter().chain(shown).chain(pictures).collect();
        vec![update]
    }

    fn picture(&self, artifact: &Artifact) -> Option<Value> {
        let directory = self.store.dir(&SessionId::parse(&self.session).ok()?);
        let bytes = Artifacts::of_session(&directory, ArtifactLimits::default()).read(artifact).ok()?;
        let image =
            json!({ "type": "image", "data": STANDARD.encode(bytes), "mimeType": artifact.media_type });
        Some(json!({ "type": "content", "content": image }))
    }

    /// The edits that a call proposes: what is written to the user's own files is shown when it is asked for.
    fn proposed(&self, name: &str, arguments: &Value) -> Vec<Value> {
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let diff = |path: &str, old: Option<String>, new: String| json!({ "type": "diff", "path": self.host_path(path), "oldText": old, "newText": new });
        let whole = |file: &Value| {
            let path = text(file, "path")?;
            Some(diff(&path, self.former(&path), text(file, "data")?))
        };
        match name {
            "edit_file" => {
                let edit = || {
                    let (old, new) = (text(arguments, "old")?, text(arguments, "new")?);
                    Some(diff(&text(arguments, "path")?, Some(old), new))
                };
                edit().into_iter().collect()
            }
            "write_file" => whole(arguments).into_iter().collect(),
            "write_files" => {
                let files = arguments.get("files").and_then(Value::as_array);
                files.into_iter().flatten().filter_map(whole).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The text of the user's own file, which is all that a client knows. Of files outside of the workspace, and of those behind
    /// a symlink, nothing is read: the path is the model's.
    fn former(&self, path: &str) -> Option<String> {
        let path = Path::new(path);
        let path = path.strip_prefix(WORKSPACE).or(path.strip_prefix(&self.root)).unwrap_or(path);
        let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
        let path = TreePath::new(plain.as_os_str().as_bytes()).ok()?;
        let (file, mut text) = (HostDir::open(&self.root).ok()?.open_file(&path).ok()?, String::new());
        file.take(MAX_FORMER).read_to_string(&mut text).ok()?;
        (text.len() < MAX_FORMER as usize).then_some(text)
    }

    fn locations(&self, arguments: &Value) -> Vec<Value> {
        let path = |value: &Value| {
            let path = value.get("path")?.as_str()?;
            let line = value.get("offset").and_then(Value::as_u64).and_then(|line| u32::try_from(line).ok());
            Some(json!({ "path": self.host_path(path), "line": line }))
        };
        let files = arguments.get("files").and_then(Value::as_array);
        path(arguments).into_iter().chain(files.into_iter().flatten().filter_map(path)).collect()
    }

    /// The user's own file that a path in the sandbox stands for.
    fn host_path(&self, path: &str) -> PathBuf {
        match Path::new(path).strip_prefix(WORKSPACE) {
            Ok(inside) => self.root.join(inside),
            // What is elsewhere in the sandbox is named as it is there.
            Err(_) => self.root.join(path),
        }
    }
}

/// A message, or a piece of one, without what a terminal obeys and what nobody sees: not every editor shows plain text.
pub fn chunk(kind: &str, message: &str, text: &str) -> Value {
    json!({ "sessionUpdate": kind, "messageId": message, "content": { "type": "text", "text": plain(text) } })
}

/// The next piece of a message that comes in pieces, of which nothing may be left.
fn piece(sanitiser: &mut Sanitiser, kind: &str, message: &str, text: &str) -> Vec<Value> {
    let mut clean = String::new();
    sanitiser.push(text, &mut clean);
    if clean.is_empty() { Vec::new() } else { vec![chunk(kind, message, &clean)] }
}

/// Text as a part of a call, as [`chunk`] has it.
pub fn text_content(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": plain(text) } })
}

/// Output as a block of Markdown, whatever it contains.
pub(super) fn fenced(text: &str) -> String {
    let fence = fence(text);
    format!("{fence}\n{}\n{fence}", text.trim_end())
}

/// Returns what begins and ends a block of Markdown with `text` in it.
pub(super) fn fence(text: &str) -> String {
    let mut longest = 2;
    let mut run = 0;
    for char in text.chars() {
        run = if char == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    "`".repeat(longest + 1)
}

fn plan(steps: &[PlanStep]) -> Value {
    let entry = |step: &PlanStep| {
        let status = match step.status {
            StepStatus::Pending => "pending",
            StepStatus::InProgress => "in_progress",
            StepStatus::Completed => "completed",
        };
        json!({ "content": step.text, "priority": "medium", "status": status })
    };
    json!({ "sessionUpdate": "plan", "entries": steps.iter().map(entry).collect::<Vec<_>>() })
}

fn kind(tool: &str) -> &'static str {
    match tool {
        "read_file" | "job_output" => "read",
        "write_file" | "write_files" | "edit_file" => "edit",
        "run_commands" | "run_code" => "execute",
        _ => "other",
    }
}

/// Returns what a user reads about a call. It happens in the sandbox, and an editor must not take it for a change on disk.
fn title(tool: &str, arguments: &Value) -> String {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let path = || text("path").strip_prefix(WORKSPACE).unwrap_or(text("path")).trim_start_matches('/');
    let title = match tool {
        "run_commands" => text("command").to_owned(),
        "run_code" => {
            format!("{}: {}", text("language"), text("code").lines().next().unwrap_or_default())
        }
        "read_file" => format!("read {}", path()),
        "write_file" | "edit_file" => format!("in the sandbox: {}", path()),
        "write_files" => {
            let count = arguments.get("files").and_then(Value::as_array).map_or(0, Vec::len);
            format!("in the sandbox: {}", counted(count, "file"))
        }
        "delegate" => format!("delegate: {}", text("task")),
        "job_output" | "job_kill" => format!("{tool} {}", arguments.get("job").unwrap_or(&Value::Null)),
        other => other.to_owned(),
    };
    one_line(&title, TITLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_event::Stream;

    fn updates(has_terminals: bool) -> Updates {
        Updates::new(Path::new("/home/me/project"), Store::at("/nowhere"), has_terminals, false)
    }

    fn started(name: &str, arguments: Value) -> Event {
        Event::ToolStarted { id: "c1".into(), name: name.into(), arguments }
    }

    #[test]
    fn an_edit_is_shown_as_a_proposal_with_the_path_on_this_machine() {
        let event =
            started("edit_file", json!({ "path": "/workspace/src/a.rs", "old": "one", "new": "two" }));
        let update = &updates(false).of("s", &event)[0];
        assert_eq!(update["title"], "in the sandbox: src/a.rs");
        assert_eq!(update["kind"], "edit");
        assert_eq!(update["content"][0]["path"], "/home/me/project/src/a.rs");
        assert_eq!(update["content"][0]["oldText"], "one");
        assert_eq!(update["locations"][0]["path"], "/home/me/project/src/a.rs");
    }

    #[test]
    fn output_goes_to_a_terminal_of_the_client_where_it_has_one() {
        let mut updates = updates(true);
        let call = &updates.of("s", &started("run_commands", json!({ "command": "make" })))[0];
        assert_eq!(call["content"][0]["type"], "terminal");
        let output = Event::ToolOutput { id: "c1".into(), stream: Stream::Stdout, data: "hi\n".into() };
        assert_eq!(updates.of("s", &output)[0]["_meta"]["terminal_output"]["data"], "hi\n");
    }

    #[test]
    fn output_without_a_terminal_is_bounded() {
        let mut updates = updates(false);
        updates.of("s", &started("run_commands", json!({ "command": "yes" })));
        let output = Event::ToolOutput { id: "c1".into(), stream: Stream::Stdout, data: "é".repeat(TAIL) };
        updates.of("s", &output);
        assert!(updates.calls["c1"].tail.len() <= TAIL);
    }

    #[test]
    fn a_fence_is_longer_than_those_in_the_text() {
        assert!(fenced("a ```` b").starts_with("`````\n"));
    }

    #[test]
    fn the_former_text_is_that_of_files_of_the_workspace_alone() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(root.path().join("a.txt"), "inside").unwrap();
        std::fs::write(outside.path().join("a.txt"), "outside").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("a.txt"), root.path().join("b.txt")).unwrap();
        let updates = Updates::new(root.path(), Store::at("/nowhere"), false, false);
        for path in ["a.txt", "./a.txt", "/workspace/a.txt", "/workspace/./a.txt"] {
            assert_eq!(updates.former(path).as_deref(), Some("inside"), "{path}");
        }
        let name = outside.path().file_name().unwrap().to_str().unwrap();
        let elsewhere = [format!("../{name}/a.txt"), outside.path().join("a.txt").display().to_string()];
        for path in ["link/a.txt", "b.txt", "/workspace/../a.txt", ""]
            .into_iter()
            .chain(elsewhere.iter().map(|path| &**path))
        {
            assert_eq!(updates.former(path), None, "{path}");
        }
    }
}
