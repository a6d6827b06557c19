//! Skills: instructions for particular kinds of task, as other agents read them too. The model learns their names and
//! descriptions, and reads the file of one when it needs it.
//!
//! They are text for the model and permit nothing. Those of the project are in the workspace; those of the user, and those
//! in the workspace that git ignores, are put into `$HOME` of the sandbox, so that they are in no diff.

use agent_base::front_matter::{self, field};
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use agent_base::sanitise::one_line;
use agent_sandbox::{HOME, HomeFile, WORKSPACE};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The directory of a project's skills, and of the user's in the sandbox, below `$HOME`.
const DIRECTORY: &str = ".agents/skills";
/// The directory of skills that projects and users wrote for Claude Code.
const OF_CLAUDE: &str = ".claude/skills";
/// The directory in the sandbox, below `$HOME`, of those skills of the project that git ignores.
const IGNORED: &str = ".agents/project-skills";
const FILE: &str = "SKILL.md";
/// Skills of one directory that are looked at.
const MAX_SKILLS: usize = 64;
/// Bytes of a `SKILL.md` that are looked at here; the model reads as much as it wants.
const MAX_LOOKED_AT: u64 = 64 << 10;
const MAX_NAME: usize = 64;
/// Columns of a description, and bytes of all of them, in the system prompt.
const MAX_DESCRIPTION: usize = 500;
const MAX_LISTED: usize = 8 << 10;
/// Files of one skill of the user's, the directories that they may be in, and bytes of all files of all skills.
const MAX_FILES: usize = 100;
const MAX_DEPTH: usize = 4;
const MAX_BYTES: u64 = 4 << 20;

/// A skill that the model knows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// Its purpose, on one line.
    pub description: String,
    /// Set if it is the user's own, and not the project's.
    pub is_own: bool,
    /// Its `SKILL.md` in the sandbox.
    pub file: String,
}

/// The state of a file of the workspace in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is copied, or mounted.
    Copied,
    /// Git ignores it.
    Ignored,
    /// The user excludes it.
    Excluded,
}

/// The skills of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skills {
    /// The user's own, then those of the project.
    pub list: Vec<Skill>,
    /// Skills that the model does not know of, and why.
    pub left_out: Vec<String>,
    /// Files that the sandbox needs for those that are not in its workspace.
    pub files: Vec<HomeFile>,
}

impl Skills {
    /// Those of the user and of the project in `workspace`, of whose files `presence` is known. What the user wrote goes before
    /// what came with a repository.
    pub fn find(workspace: &Path, machine: &Machine, presence: &dyn Fn(&Path) -> Presence) -> Self {
        let mut skills = Self::default();
        let own = machine.config_dir().ok().map(|directory| directory.join("skills"));
        let shared = machine.home().map(|home| [DIRECTORY, OF_CLAUDE].map(|name| home.join(name)));
        for directory in own.into_iter().chain(shared.into_iter().flatten()) {
            skills.add_own(&directory);
        }
        for directory in [DIRECTORY, OF_CLAUDE] {
            skills.add_of_project(workspace, directory, presence);
        }
        let mut bytes = 0;
        let listed = skills.list.iter().take_while(|skill| {
            bytes += skill.line().len();
            bytes <= MAX_LISTED
        });
        let listed = listed.count();
        let further = skills.list.split_off(listed);
        skills
            .left_out
            .extend(further.iter().map(|skill| format!("{}: there are too many skills", skill.name)));
        skills
    }

    /// Returns what the system prompt says about them; `None` where there are none.
    pub fn in_prompt(&self) -> Option<String> {
        let lines: String = self.list.iter().map(Skill::line).collect();
        (!lines.is_empty()).then(|| format!("{}\n{lines}", agent_prompts::SKILLS.trim()))
    }

    fn add_own(&mut self, directory: &Path) {
        for name in self.names(directory) {
            let inside = Path::new(DIRECTORY).join(&name);
            let file = Path::new(HOME).join(&inside).join(FILE);
            // Users like to keep such directories elsewhere.
            let Some(skill) = self.read(&directory.join(&name), &name, file, true) else { continue };
            self.add_with_files(skill, &directory.join(&name), &inside);
        }
    }

    /// Adds a skill whose files the sandbox gets at `inside`, below `$HOME`.
    fn add_with_files(&mut self, skill: Skill, directory: &Path, inside: &Path) {
        let used: u64 = self.files.iter().map(|file| file.bytes.len() as u64).sum();
        match files(directory, inside, MAX_BYTES.saturating_sub(used)) {
            Ok(files) => {
                self.files.extend(files);
                self.list.push(skill);
            }
            Err(why) => self.left_out.push(format!("{}: {why}", skill.name)),
        }
    }

    fn add_of_project(&mut self, workspace: &Path, within: &str, presence: &dyn Fn(&Path) -> Presence) {
        let directory = &workspace.join(within);
        // A link could lead anywhere, and the sandbox has the link alone.
        let is_linked = directory.ancestors().take(2).any(Path::is_symlink);
        for name in if is_linked { Vec::new() } else { self.names(directory) } {
            let in_workspace = Path::new(within).join(&name).join(FILE);
            let path = directory.join(&name);
            let (presence, inside) = (presence(&in_workspace), Path::new(IGNORED).join(&name));
            let file = match presence {
                Presence::Ignored => Path::new(HOME).join(&inside).join(FILE),
                Presence::Copied | Presence::Excluded => Path::new(WORKSPACE).join(in_workspace),
            };
            if path.is_symlink() {
                self.left_out.push(format!("{name}: it is a symlink"));
            } else if presence == Presence::Excluded {
                self.left_out.push(format!("{name}: it is excluded from the workspace"));
            } else if let Some(skill) = self.read(&path, &name, file, false) {
                match presence {
                    Presence::Ignored => self.add_with_files(skill, &path, &inside),
                    _ => self.list.push(skill),
                }
            }
        }
    }

    /// The names of the directories that have a `SKILL.md`, in order.
    fn names(&mut self, directory: &Path) -> Vec<String> {
        let entries = directory.read_dir().into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.path().join(FILE).symlink_metadata().is_ok())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_name(name))
            .take(MAX_SKILLS)
            .collect();
        names.sort();
        names
    }

    fn read(&mut self, directory: &Path, name: &str, file: PathBuf, is_own: bool) -> Option<Skill> {
        let links = if is_own { Links::Follow } else { Links::Refuse };
        let read = plain_file::read(&directory.join(FILE), MAX_LOOKED_AT, links);
        let Ok(bytes) = read else {
            self.left_out.push(format!("{name}: {FILE} cannot be read"));
            return None;
        };
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        let (fields, _) = front_matter::split(&text);
        let name = field(&fields, "name").filter(|name| is_name(name)).unwrap_or(name).to_owned();
        if self.list.iter().any(|other| other.name == name) {
            self.left_out.push(format!("{name}: there is another one of this name"));
            return None;
        }
        let Some(description) = field(&fields, "description") else {
            self.left_out.push(format!("{name}: {FILE} has no description in its front matter"));
            return None;
        };
        let description = one_line(description, MAX_DESCRIPTION);
        Some(Skill { name, description, is_own, file: file.display().to_string() })
    }
}

impl Skill {
    fn line(&self) -> String {
        format!("- {}: {} ({})\n", self.name, self.description, self.file)
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && !name.starts_with('.') && name.len() <= MAX_NAME && name.bytes().all(fits)
}

/// The files of a skill, to be put at `inside`. Hidden files and symlinks are left out.
fn files(directory: &Path, inside: &Path, mut bytes_left: u64) -> Result<Vec<HomeFile>, String> {
    let mut found = Vec::new();
    let mut waiting = vec![(directory.to_owned(), inside.to_owned(), 0)];
    while let Some((directory, inside, depth)) = waiting.pop() {
        for entry in directory.read_dir().into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Ok(metadata) = entry.metadata() else { continue };
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if metadata.is_dir() && depth < MAX_DEPTH {
                waiting.push((entry.path(), inside.join(&name), depth + 1));
            }
            // That `SKILL.md` itself may be a link was decided where it was read.
            let is_skill =
                depth == 0 && name == FILE && fs::metadata(entry.path()).is_ok_and(|it| it.is_file());
            if !metadata.is_file() && !is_skill {
                continue;
            }
            let bytes = plain_file::read(&entry.path(), bytes_left + 1, Links::Follow)
                .map_err(|error| format!("{} cannot be read: {error}", entry.path().display()))?;
            let size = bytes.len() as u64;
            if size > bytes_left || found.len() == MAX_FILES {
                return Err(format!(
                    "a skill has at most {MAX_FILES} files, and all of them {} MiB together",
                    MAX_BYTES >> 20
                ));
            }
            bytes_left -= size;
            let executable = metadata.permissions().mode() & 0o100 != 0;
            found.push(HomeFile {
                path: inside.join(&name),
                bytes,
                executable: executable && metadata.is_file(),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    fn skill(directory: &Path, text: &str) {
        create_dir_all(directory).unwrap();
        write(directory.join(FILE), text).unwrap();
    }

    fn machine(root: &Path) -> Machine {
        Machine::new([
            ("HOME".into(), root.join("home").into()),
            ("AGENT_HOME".into(), root.join("agent").into()),
        ])
    }

    #[test]
    fn the_users_skills_go_before_those_of_the_project() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let own = root.join("agent/config/skills");
        skill(&own.join("pdf"), "---\nname: pdf\ndescription: Fill in forms\n---\nRun fill.sh.");
        write(own.join("pdf/fill.sh"), "true").unwrap();
        write(own.join("pdf/.env"), "PASSWORD=x").unwrap();
        symlink("/etc/passwd", own.join("pdf/users")).unwrap();
        let project = root.join("workspace/.agents/skills");
        skill(&project.join("pdf"), "---\ndescription: theirs\n---\n");
        skill(&project.join("deploy"), "---\ndescription: 'Deploy\u{1b}[2J it'\n---\n");
        skill(&project.join("mute"), "No front matter.");
        create_dir_all(project.join("link")).unwrap();
        symlink("/etc/passwd", project.join("link").join(FILE)).unwrap();
        let skills = Skills::find(&root.join("workspace"), &machine(root), &|_| Presence::Copied);
        let prompt = skills.in_prompt().unwrap();
        let lines: Vec<&str> = prompt.lines().filter(|line| line.starts_with("- ")).collect();
        assert_eq!(
            lines,
            [
                "- pdf: Fill in forms (/home/agent/.agents/skills/pdf/SKILL.md)",
                "- deploy: Deploy it (/workspace/.agents/skills/deploy/SKILL.md)",
            ]
        );
        let mut files: Vec<_> = skills.files.iter().map(|file| file.path.display().to_string()).collect();
        files.sort();
        assert_eq!(files, [".agents/skills/pdf/SKILL.md", ".agents/skills/pdf/fill.sh"]);
        assert_eq!(skills.left_out.len(), 3, "{:?}", skills.left_out);
    }

    #[test]
    fn their_number_and_size_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let project = root.join("workspace/.agents/skills");
        for number in 0..100 {
            let text = format!("---\ndescription: {}\n---\n", "long ".repeat(1000));
            skill(&project.join(format!("s{number}")), &text);
        }
        let own = root.join("home/.agents/skills/big");
        skill(&own, "---\ndescription: Big\n---\n");
        write(own.join("data"), vec![0; MAX_BYTES as usize + 1]).unwrap();
        let skills = Skills::find(&root.join("workspace"), &machine(root), &|_| Presence::Copied);
        assert!(skills.in_prompt().unwrap().len() < MAX_LISTED + 300);
        assert!(skills.files.is_empty() && skills.left_out.iter().any(|why| why.contains("4 MiB")));
        let nobody = machine(&root.join("nobody"));
        assert_eq!(Skills::find(&root.join("empty"), &nobody, &|_| Presence::Copied), Skills::default());
    }
}
