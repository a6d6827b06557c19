//! Commands that the user or the project wrote: `NAME.md` becomes `/NAME ARGUMENTS`, a prompt.

use crate::cli::ui::input::CommandHelp;
use crate::front_matter::{self, field};
use crate::machine::Machine;
use crate::plain_file::{self, Links};
use crate::sanitise::one_line;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The directory of a project's commands, and that of those that projects and users wrote for Claude Code.
const OF_PROJECT: &str = ".agent/commands";
const OF_CLAUDE: &str = ".claude/commands";
/// Commands of one directory.
const MAX_COMMANDS: usize = 64;
/// Bytes of one file.
const MAX_BYTES: u64 = 32 << 10;
const MAX_NAME: usize = 40;
/// Stands for what follows the name at the prompt.
const ARGUMENTS: &str = "$ARGUMENTS";

/// A prompt with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenCommand {
    /// With its slash.
    name: String,
    help: String,
    prompt: String,
}

/// The user's own, then those of the project in `workspace`, each of them before those for Claude Code. What the user wrote goes
/// before what came with a repository.
pub(super) fn written(machine: &Machine, workspace: &Path) -> Vec<WrittenCommand> {
    let own = machine.config_dir().ok().map(|directory| directory.join("commands"));
    let own = own.into_iter().chain(machine.home().map(|home| home.join(OF_CLAUDE)));
    let own = own.flat_map(|directory| read(&directory, "yours"));
    // A link could lead anywhere.
    let is_linked = |directory: &PathBuf| directory.ancestors().take(2).any(Path::is_symlink);
    let of_project = [OF_PROJECT, OF_CLAUDE].map(|name| workspace.join(name));
    let of_project = of_project.into_iter().filter(|directory| !is_linked(directory));
    let of_project = of_project.flat_map(|directory| read(&directory, "this project's"));
    let mut all: Vec<WrittenCommand> = Vec::new();
    for command in own.chain(of_project) {
        if all.iter().all(|other| other.name != command.name) {
            all.push(command);
        }
    }
    all
}

fn read(directory: &Path, whose: &str) -> Vec<WrittenCommand> {
    let Ok(entries) = directory.read_dir() else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok()?.strip_suffix(".md").map(str::to_owned))
        .filter(|name| is_name(name))
        .take(MAX_COMMANDS)
        .collect();
    names.sort();
    names.into_iter().filter_map(|name| parse(&name, &directory.join(format!("{name}.md")), whose)).collect()
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(fits)
}

/// The file, without the front matter that other agents write, of which the description is shown.
fn parse(name: &str, path: &Path, whose: &str) -> Option<WrittenCommand> {
    let bytes = plain_file::read(path, MAX_BYTES, Links::Refuse).ok()?;
    let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
    let (fields, prompt) = front_matter::split(&text);
    let first = prompt.lines().find(|line| !line.trim().is_empty())?;
    let described = field(&fields, "description").unwrap_or(first).trim_matches(['#', ' ']);
    Some(WrittenCommand {
        name: format!("/{name}"),
        help: format!("{whose}: {}", one_line(described, 60)),
        prompt: prompt.trim().to_owned(),
    })
}

impl WrittenCommand {
    pub(super) fn help(&self) -> CommandHelp {
        CommandHelp {
            name: Cow::Owned(self.name.clone()),
            arguments: Cow::Borrowed(if self.prompt.contains(ARGUMENTS) { "ARGUMENTS" } else { "" }),
            help: Cow::Owned(self.help.clone()),
        }
    }

    /// The prompt: the arguments in their place, or behind it where it has none for them.
    fn prompt(&self, arguments: &str) -> String {
        match self.prompt.contains(ARGUMENTS) {
            true => self.prompt.replace(ARGUMENTS, arguments),
            false => format!("{}\n\n{arguments}", self.prompt).trim_end().to_owned(),
        }
    }
}

/// The prompt that `text` stands for, if it names one of `commands`.
pub(super) fn expand(commands: &[WrittenCommand], text: &str) -> Option<String> {
    let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let command = commands.iter().find(|command| command.name == name)?;
    Some(command.prompt(arguments.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::write;

    #[test]
    fn a_file_becomes_a_command_with_arguments() {
        let directory = tempfile::tempdir().unwrap();
        write(
            directory.path().join("issue.md"),
            "---\ndescription: Fix an issue\n---\nFix issue $ARGUMENTS now.\n",
        )
        .unwrap();
        write(directory.path().join("tidy.md"), "# Tidy up\n\nRemove what is unused.").unwrap();
        write(directory.path().join("bad name.md"), "x").unwrap();
        write(directory.path().join("empty.md"), "\n").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("link.md")).unwrap();
        let commands = read(directory.path(), "yours");
        let helps: Vec<String> =
            commands.iter().map(|command| format!("{} {}", command.name, command.help)).collect();
        assert_eq!(helps, ["/issue yours: Fix an issue", "/tidy yours: Tidy up"]);
        assert_eq!(expand(&commands, "/issue 12 and 13").unwrap(), "Fix issue 12 and 13 now.");
        assert_eq!(expand(&commands, "/tidy src").unwrap(), "# Tidy up\n\nRemove what is unused.\n\nsrc");
        assert_eq!(expand(&commands, "/tidy").unwrap(), "# Tidy up\n\nRemove what is unused.");
        assert_eq!(expand(&commands, "/other"), None);
    }
}
