//! Reading tasks: JSONL, CSV, or a directory of Markdown prompts. All of it is checked before anything starts.

use super::task::Task;
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The largest task file, and the largest prompt of a directory, in bytes.
const MAX_FILE: u64 = 256 << 20;
const MAX_TASKS: usize = 100_000;
/// Problems that are listed.
const MAX_SHOWN: usize = 10;

/// The tasks of a batch.
#[derive(Debug, Clone)]
pub struct TaskFile {
    /// In the order of the file.
    pub tasks: Vec<Task>,
    /// The directory that relative paths start from.
    pub directory: PathBuf,
    /// The file that they were read from.
    pub path: PathBuf,
}

/// Reads and checks all tasks of `path`.
///
/// # Errors
/// `Config`, with every problem and its line.
pub fn read_tasks(path: &Path, machine: &Machine) -> Result<TaskFile> {
    let path = path.canonicalize().map_err(|error| unreadable(path, error))?;
    let mut found = Found::default();
    if path.is_dir() {
        found.read_prompts(&path)?;
    } else {
        let bytes = read(&path)?;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => found.read_csv(&bytes),
            _ => found.read_jsonl(&bytes),
        }
    }
    let directory = if path.is_dir() { path.clone() } else { path.parent().unwrap_or(&path).to_owned() };
    found.check(&directory, machine);
    let Found { tasks, problems } = found;
    let tasks = match (problems.len(), tasks.len()) {
        (0, 0) => return Err(Error::config(format!("{} has no task", path.display()))),
        (0, ..=MAX_TASKS) => tasks.into_iter().map(|(_, task)| task).collect(),
        (0, count) => {
            let message =
                format!("{} has {count} tasks: at most {MAX_TASKS} can be run at once", path.display());
            return Err(Error::config(message).hint("split it, one --out directory each"));
        }
        (count, _) => return Err(refused(&path, &problems, count)),
    };
    Ok(TaskFile { tasks, directory, path })
}

fn refused(path: &Path, problems: &[String], count: usize) -> Error {
    let mut message = format!("{} cannot be run; nothing was started", path.display());
    for problem in problems.iter().take(MAX_SHOWN) {
        message += &format!("\n  {problem}");
    }
    if count > MAX_SHOWN {
        message += &format!("\n  and {} more", count - MAX_SHOWN);
    }
    Error::config(message)
        .hint("docs/guides/batch.md describes a task; docs/reference/tasks.schema.json is its JSON Schema")
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::usage(format!("the tasks {} cannot be read", path.display()))
        .hint("name a .jsonl or .csv file, or a directory of .md files")
        .caused_by(error)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes =
        plain_file::read(path, MAX_FILE + 1, Links::Follow).map_err(|error| unreadable(path, error))?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(Error::config(format!("{} is larger than {} MiB", path.display(), MAX_FILE >> 20))),
        false => Ok(bytes),
    }
}

/// Tasks with their places in the file, and what is wrong with others.
#[derive(Default)]
struct Found {
    tasks: Vec<(String, Task)>,
    problems: Vec<String>,
}

impl Found {
    fn add(&mut self, place: String, value: serde_json::Result<Task>) {
        match value {
            Ok(task) => self.tasks.push((place, task)),
            Err(error) => self.problems.push(format!("{place}: {error}")),
        }
    }

    fn read_jsonl(&mut self, bytes: &[u8]) {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if !line.trim_ascii().is_empty() {
                self.add(format!("line {}", number + 1), serde_json::from_slice(line));
            }
        }
    }

    /// A column is a field; `limits.max_turns` or `env.CI` is a field within one. Empty cells are left out.
    fn read_csv(&mut self, bytes: &[u8]) {
        let mut reader = csv::Reader::from_reader(bytes);
        let headers = match reader.headers() {
            Ok(headers) => headers.clone(),
            Err(error) => return self.problems.push(error.to_string()),
        };
        for row in reader.records() {
            let row = match row {
                Ok(row) => row,
                Err(error) => return self.problems.push(error.to_string()),
            };
            let line = row.position().map_or(0, csv::Position::line);
            let mut task = Map::new();
            for (name, cell) in headers.iter().zip(&row).filter(|(_, cell)| !cell.is_empty()) {
                let value = |is_number: bool| match serde_json::from_str::<Value>(cell) {
                    Ok(number @ Value::Number(_)) if is_number => number,
                    _ => Value::from(cell),
                };
                match name.trim().split_once('.') {
                    None => drop(task.insert(name.trim().to_owned(), value(false))),
                    Some((outer, inner)) => {
                        let group = task.entry(outer).or_insert_with(|| Value::Object(Map::new()));
                        if let Value::Object(group) = group {
                            group.insert(inner.to_owned(), value(outer == "limits"));
                        }
                    }
                }
            }
            self.add(format!("line {line}"), serde_json::from_value(Value::Object(task)));
        }
    }

    /// Each `NAME.md` is the prompt of the task NAME.
    fn read_prompts(&mut self, directory: &Path) -> Result<()> {
        let entries = std::fs::read_dir(directory).map_err(|error| unreadable(directory, error))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
        files.sort();
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let prompt = String::from_utf8_lossy(&read(&path)?).into_owned();
            self.add(name, serde_json::from_value(serde_json::json!({ "id": id, "prompt": prompt })));
        }
        Ok(())
    }

    fn check(&mut self, directory: &Path, machine: &Machine) {
        let mut places: BTreeMap<&str, &str> = BTreeMap::new();
        for (place, task) in &self.tasks {
            self.problems.extend(task.problems().into_iter().map(|problem| format!("{place}: {problem}")));
            if let Some(workspace) = &task.workspace
                && let Err(error) = agent_workspace::validate(&directory.join(workspace), true, machine)
            {
                self.problems.push(format!("{place}: {error}"));
            }
            if let Some(first) = places.insert(&task.id, place) {
                self.problems.push(format!("{place}: the id {:?} is that of {first} too", task.id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    #[test]
    fn every_problem_is_listed_with_its_line() {
        let text = "{\"id\": \"a\", \"prompt\": \"p\"}\n\n{\"id\": \"a\", \"prompt\": \"\"}\n{\"id\": \"b\", \"promt\": \"p\"}\n";
        let (_directory, path) = file("tasks.jsonl", text);
        let error = read_tasks(&path, &Machine::new([])).unwrap_err().to_string();
        for part in [
            "line 3: the prompt is empty",
            "the id \"a\" is that of line 1 too",
            "line 4: unknown field `promt`",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_table_has_a_column_for_each_field() {
        let text = "id,prompt,check,limits.max_turns,env.MODE,files.a.txt\none,\"say \"\"hi\"\", now\",true,7,5,x\ntwo,p,,,,\n";
        let (_directory, path) = file("tasks.csv", text);
        let tasks = read_tasks(&path, &Machine::new([])).unwrap().tasks;
        assert_eq!(tasks[0].prompt, "say \"hi\", now");
        assert_eq!((tasks[0].limits.max_turns, tasks[0].env["MODE"].as_str()), (Some(7), "5"));
        assert_eq!(tasks[0].files.as_ref().unwrap()["a.txt"], "x");
        assert!(tasks[1].check.is_empty() && tasks[1].files.is_none());
    }

    #[test]
    fn a_directory_has_a_prompt_in_each_markdown_file() {
        let (directory, _) = file("second.md", "# Do it\n");
        std::fs::write(directory.path().join("first.md"), "p").unwrap();
        std::fs::write(directory.path().join("notes.txt"), "p").unwrap();
        let tasks = read_tasks(directory.path(), &Machine::new([])).unwrap().tasks;
        assert_eq!(tasks.iter().map(|task| task.id.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        assert_eq!(tasks[1].prompt, "# Do it\n");
    }
}
