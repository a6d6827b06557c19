//! Files of a workspace that the user's git executes or obeys: its hooks, and what its settings name.

use crate::repository::{Repository, normalised};
use crate::tree_path::TreePath;
use agent_base::host_git;
use agent_base::machine::Machine;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time limit for git to list its settings, and the size limit of its answer, in bytes.
const TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ANSWER: u64 = 1 << 20;
/// Repositories whose settings are asked for.
const MAX_REPOSITORIES: usize = 20;
/// Paths that the settings of one name.
const MAX_NAMED: usize = 2_000;
/// The longest of them.
const MAX_PATH: usize = 4096;
/// Entries of a directory of hooks that are looked at, and symlinks one after the other.
const MAX_HOOKS: usize = 1000;
const MAX_STEPS: usize = 8;

/// Settings that name a directory with hooks, and the same for others that name a file.
const DIRECTORIES: [&str; 2] = ["core.hookspath", "init.templatedir"];
const FILES: [&str; 7] = [
    "core.attributesfile",
    "core.excludesfile",
    "commit.template",
    "blame.ignorerevsfile",
    "mailmap.file",
    "gpg.ssh.allowedsignersfile",
    "format.signaturefile",
];
/// The last part of settings that hold a command, whatever is before it.
const COMMANDS: [&str; 28] = [
    "alternaterefscommand",
    "askpass",
    "cccmd",
    "clean",
    "cmd",
    "command",
    "defaultkeycommand",
    "difffilter",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "gitproxy",
    "headercmd",
    "helper",
    "packobjectshook",
    "pager",
    "process",
    "program",
    "receivepack",
    "recentobjectshook",
    "sendmailcmd",
    "smudge",
    "sshcommand",
    "textconv",
    "tocmd",
    "tunnel",
    "uploadpack",
];
/// Variables that name a directory with programs, or with hooks for repositories that are made.
const DIRECTORY_VARIABLES: [&str; 2] = ["GIT_EXEC_PATH", "GIT_TEMPLATE_DIR"];
/// Sections in which `path` is a program, and sections in which a value is a command that begins with `!`.
const OF_PROGRAMS: [&str; 4] = ["browser", "difftool", "man", "mergetool"];
const OF_SHELL: [&str; 2] = ["alias", "submodule"];

/// Files and directories of a workspace, relative to its top, which is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitFiles {
    /// The directories in which git looks for hooks, and hooks by themselves.
    pub hooks: BTreeSet<Vec<u8>>,
    /// The files that settings name: programs, and further settings.
    pub programs: BTreeSet<Vec<u8>>,
}

impl GitFiles {
    /// Those of the repository that the workspace `root` is in, and of those of its directories `inner`. Blocking.
    pub(crate) fn of(root: &Path, inner: &[TreePath], machine: &Machine) -> Self {
        let is_top = |top: &&Path| top.join(".git").symlink_metadata().is_ok();
        let outer = root.ancestors().find(is_top).map(Path::to_owned);
        let inner = inner.iter().map(|directory| root.join(directory.as_path()));
        let mut found = Self::default();
        // They hold where nothing is a repository yet, too.
        let of_environment = Named::by_variables(root, machine);
        found.add_named(root, of_environment);
        for top in outer.into_iter().chain(inner).take(MAX_REPOSITORIES) {
            found.add(root, &top, machine);
        }
        found
    }

    /// Adds what git obeys in the work tree `top`.
    fn add(&mut self, root: &Path, top: &Path, machine: &Machine) {
        let repository = Repository::find(top).ok().flatten();
        let own = repository.map_or_else(|| top.join(".git"), |repository| repository.common).join("hooks");
        let mut named = Named::by_settings(root, top, machine);
        named.directories.insert(own);
        if top != root {
            let Named { directories, files } = Named::by_variables(top, machine);
            named.directories.extend(directories);
            named.files.extend(files);
        }
        self.add_named(root, named);
    }

    fn add_named(&mut self, root: &Path, named: Named) {
        let in_tree = |place: PathBuf| Some(place.strip_prefix(root).ok()?.as_os_str().as_bytes().to_owned());
        let Named { directories, files } = named;
        for directory in directories {
            let entries = fs::read_dir(&directory).into_iter().flatten().take(MAX_HOOKS).flatten();
            let links = entries.map(|entry| entry.path()).filter(|path| path.is_symlink());
            let places = links.flat_map(|link| on_the_way(&link)).chain(on_the_way(&directory));
            self.hooks.extend(places.filter_map(in_tree));
        }
        let places = files.iter().flat_map(|file| on_the_way(file));
        self.programs.extend(places.filter_map(in_tree).filter(|place| !place.is_empty()));
    }
}

/// Absolute paths that settings name.
#[derive(Default)]
struct Named {
    directories: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
}

impl Named {
    /// Those that the caller's environment names beside settings, for a git that is started in `top`.
    fn by_variables(top: &Path, machine: &Machine) -> Self {
        let mut named = Self::default();
        let place = SettingPlace { top, origin: None, home: machine.home() };
        for (name, value) in machine.git_programs() {
            let value = value.as_bytes();
            match DIRECTORY_VARIABLES.iter().any(|directory| name == *directory) {
                true => named.directories.extend(place.path(value, top)),
                false => {
                    // Some are commands for a shell, others the path of a program, whatever is in it.
                    named.files.extend(place.path(value, top));
                    named.add_command(value, &place);
                }
            }
        }
        named
    }

    /// Those that the user's git has in the work tree `top`, with what the caller's environment adds.
    fn by_settings(root: &Path, top: &Path, machine: &Machine) -> Self {
        let mut named = Self::default();
        let Some(mut git) = host_git::config_of_caller(root, machine) else { return named };
        git.current_dir(top).args(["--list", "--show-origin", "-z"]);
        // Where git cannot read its settings, it does nothing for the user either.
        let listed = host_git::run(git, b"", TIMEOUT, MAX_ANSWER).unwrap_or_default();
        let mut entries = listed.split(|byte| *byte == 0);
        while let (Some(origin), Some(setting)) = (entries.next(), entries.next()) {
            let origin = origin.strip_prefix(b"file:").map(|path| top.join(OsStr::from_bytes(path)));
            let mut setting = setting.splitn(2, |byte| *byte == b'\n');
            let key = String::from_utf8_lossy(setting.next().unwrap_or_default()).into_owned();
            let place = SettingPlace { top, origin: origin.as_deref(), home: machine.home() };
            named.add(&key, setting.next().unwrap_or_default(), &place);
            named.files.extend(origin.as_deref().map(normalised));
            if named.directories.len() + named.files.len() > MAX_NAMED {
                break;
            }
        }
        named
    }

    fn add(&mut self, key: &str, value: &[u8], place: &SettingPlace<'_>) {
        let (section, name) =
            (key.split('.').next().unwrap_or_default(), key.rsplit('.').next().unwrap_or_default());
        let is_command = COMMANDS.contains(&name)
            || section == "pager"
            || (name == "path" && OF_PROGRAMS.contains(&section))
            || (value.starts_with(b"!") && OF_SHELL.contains(&section));
        match key {
            _ if DIRECTORIES.contains(&key) => self.directories.extend(place.path(value, place.top)),
            _ if FILES.contains(&key) => self.files.extend(place.path(value, place.top)),
            _ if name == "path" && matches!(section, "include" | "includeif") => {
                let directory = place.origin.and_then(Path::parent).unwrap_or(place.top);
                self.files.extend(place.path(value, directory));
            }
            _ if is_command => self.add_command(value, place),
            _ => {}
        }
    }

    fn add_command(&mut self, command: &[u8], place: &SettingPlace<'_>) {
        self.files.extend(words(command).filter_map(|word| place.path(word, place.top)));
        // `$(git rev-parse --show-toplevel)/tools/x`, `$PWD/tools/x`
        let below = words(command).filter(|word| word.starts_with(b"/") || word.starts_with(b"$"));
        let below = below.filter_map(|word| word.splitn(2, |byte| *byte == b'/').nth(1));
        self.files.extend(below.filter_map(|word| place.path(word, place.top)));
    }
}

/// Facts that decide which path a setting names.
struct SettingPlace<'a> {
    top: &'a Path,
    /// The file that the setting is in.
    origin: Option<&'a Path>,
    home: Option<PathBuf>,
}

impl SettingPlace<'_> {
    fn path(&self, path: &[u8], base: &Path) -> Option<PathBuf> {
        if path.is_empty() || path.len() > MAX_PATH {
            return None;
        }
        match path.strip_prefix(b"~/") {
            Some(below) => Some(normalised(&self.home.as_ref()?.join(OsStr::from_bytes(below)))),
            None => Some(normalised(&base.join(OsStr::from_bytes(path)))),
        }
    }
}

/// The words of a command as a shell might see them, and what is between its quotes.
fn words(command: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || b"!;|&()<>\"'`=\\{}".contains(byte);
    command.split(is_between).chain(command.split(|byte| b"\"'".contains(byte)))
}

/// A path without symlinks in those of its directories that are there.
fn real(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match there.and_then(|(above, found)| Some(found.join(path.strip_prefix(above).ok()?))) {
        Some(real) => normalised(&real),
        None => path.to_owned(),
    }
}

/// A path and those that it stands for, one symlink after the other, although the last one may not be there yet.
fn on_the_way(path: &Path) -> Vec<PathBuf> {
    let mut places = vec![path.to_owned()];
    let mut next = path.to_owned();
    for _ in 0..MAX_STEPS {
        let (Some(parent), Some(name)) = (next.parent(), next.file_name()) else { break };
        let parent = real(parent);
        places.push(parent.join(name));
        let Ok(target) = parent.join(name).read_link() else { break };
        next = normalised(&parent.join(target));
        places.push(next.clone());
    }
    places
}

#[cfg(test)]
mod tests {
    use super::GitFiles;
    use crate::tree_path::TreePath;
    use agent_base::machine::Machine;
    use std::collections::BTreeSet;
    use std::ffi::OsString;
    use std::path::Path;
    use std::process::Command;

    /// A work tree that a script of the shell has made in `tree`, below a home, and what git obeys in it with these variables.
    fn made(script: &str, inner: &[&str], variables: &[(&str, &str)]) -> GitFiles {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path().canonicalize().expect("a directory");
        let tree = home.join("tree");
        std::fs::create_dir(&tree).expect("a directory");
        let done = Command::new("sh")
            .args(["-ec", script])
            .current_dir(&tree)
            .env("HOME", &home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .status();
        assert!(done.expect("sh").success(), "{script}");
        let path = Machine::of_this_process().variable("PATH").unwrap_or_default().to_owned();
        let own: [(OsString, OsString); 2] = [("PATH".into(), path), ("HOME".into(), home.into())];
        let others = [("GIT_CONFIG_NOSYSTEM", "1")].iter().chain(variables);
        let others = others.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let machine = Machine::new(own.into_iter().chain(others));
        let inner: Vec<TreePath> =
            inner.iter().map(|path| TreePath::new(path.as_bytes()).expect("a path")).collect();
        GitFiles::of(Path::new(&tree), &inner, &machine)
    }

    fn has(paths: &BTreeSet<Vec<u8>>, path: &str) -> bool {
        paths.contains(path.as_bytes())
    }

    /// Programs of settings were not named, nor files with further settings.
    #[test]
    fn files_that_settings_of_the_repository_name_are_known() {
        let settings = [
            ("core.fsmonitor", "./tools/0"),
            ("core.sshCommand", "sh tools/1 -v"),
            ("core.pager", "less | $PWD/tools/2"),
            ("pager.log", "tools/3"),
            ("sequence.editor", "\"tools/4\" --wait"),
            ("gpg.ssh.program", "tools/5"),
            ("credential.https://example.com.helper", "!tools/6"),
            ("filter.A.b.clean", "tools/7 %f"),
            ("diff.Mine.textconv", "tools/link"),
            ("merge.mine.driver", "./tools/9 %O %A"),
            ("mergetool.mine.path", "tools/10"),
            ("alias.go", "!\"$(git rev-parse --show-toplevel)\"/tools/11 \"$@\""),
            ("alias.there", "!f() { ~/tree/tools/12; }; f"),
            ("core.attributesFile", "tools/13"),
            ("commit.template", "~/tree/tools/14"),
            ("include.path", "../tools/15"),
            ("includeIf.onbranch:other.path", "../tools/16"),
            ("core.editor", "'tools/my editor' -w"),
            ("alias.not", "log tools/not"),
            ("remote.a.url", "tools/not"),
            ("alias.cd", "!cd ."),
        ];
        let mut script = "git init -q; mkdir tools; ln -s 8 tools/link".to_owned();
        for (key, value) in settings {
            script += &format!("; git config '{key}' '{}'", value.replace('\'', "'\\''"));
        }
        let GitFiles { programs, .. } = made(&script, &[], &[]);
        for name in (0..17).map(|at| at.to_string()).chain(["my editor".into()]) {
            assert!(has(&programs, &format!("tools/{name}")), "{name}: {programs:?}");
        }
        assert!(!has(&programs, "tools/not") && !has(&programs, ""), "{programs:?}");
    }

    /// What the caller's environment names was not known beside its settings.
    #[test]
    fn programs_that_variables_name_are_known() {
        let commands = [
            ("GIT_EXTERNAL_DIFF", "tools/my diff", "tools/my diff"),
            ("GIT_SSH_COMMAND", "env A=b ./tools/1 -v", "tools/1"),
            ("GIT_SSH", "./tools/2", "tools/2"),
            ("GIT_EDITOR", "$PWD/tools/3 --wait", "tools/3"),
            ("GIT_SEQUENCE_EDITOR", "~/tree/tools/4", "tools/4"),
            ("GIT_PAGER", "tools/5 | less", "tools/5"),
            ("GIT_ASKPASS", "tools/6", "tools/6"),
            ("SSH_ASKPASS", "tools/7", "tools/7"),
            ("GIT_PROXY_COMMAND", "tools/8", "tools/8"),
            ("EDITOR", "tools/9", "tools/9"),
            ("VISUAL", "tools/10", "tools/10"),
            ("PAGER", "tools/link", "tools/11"),
            ("LESSOPEN", "|tools/12 %s", "tools/12"),
        ];
        let variables = commands.map(|(name, value, _)| (name, value));
        for (script, inner) in [("git init -q", &[][..]), ("true", &[]), ("git init -q lib", &["lib"])] {
            let script = format!("{script}; mkdir -p tools; ln -s 11 tools/link");
            let found = made(&script, inner, &variables);
            for (name, _, path) in commands {
                assert!(has(&found.programs, path), "{name}: {found:?}");
            }
            assert!(inner.is_empty() || has(&found.programs, "lib/tools/1"), "{found:?}");
        }
        let directories = [("GIT_EXEC_PATH", "libexec"), ("GIT_TEMPLATE_DIR", "./template")];
        let found = made("git init -q", &[], &directories);
        assert!(has(&found.hooks, "libexec") && has(&found.hooks, "template"), "{found:?}");
    }

    /// Those of the caller's environment, of repositories below the workspace and of included files were not asked.
    #[test]
    fn hooks_and_settings_of_every_origin_are_known() {
        let one = [
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "core.hooksPath"),
            ("GIT_CONFIG_VALUE_0", "tools"),
        ];
        assert!(has(&made("git init -q", &[], &one).hooks, "tools"));
        let mark = tempfile::tempdir().expect("a directory");
        let touch = format!("!touch {}/ran", mark.path().display());
        let of_environment = [
            ("GIT_CONFIG_COUNT", "4"),
            ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
            ("GIT_CONFIG_VALUE_0", &touch[1..]),
            ("GIT_CONFIG_KEY_1", "pager.config"),
            ("GIT_CONFIG_VALUE_1", &touch[1..]),
            ("GIT_CONFIG_KEY_2", "alias.config"),
            ("GIT_CONFIG_VALUE_2", &touch),
            ("GIT_CONFIG_KEY_3", "core.pager"),
            ("GIT_CONFIG_VALUE_3", &touch[1..]),
        ];
        made("git init -q", &[], &of_environment);
        assert!(!mark.path().join("ran").exists(), "a program ran");
        let global = "git init -q; git config -f global core.hooksPath tools";
        let found = made(global, &[], &[("GIT_CONFIG_GLOBAL", "global")]);
        assert!(has(&found.hooks, "tools") && has(&found.programs, "global"), "{found:?}");
        let inner = "git init -q; git init -q lib; git -C lib config core.hooksPath hk";
        assert!(has(&made(inner, &["lib"], &[]).hooks, "lib/hk"));
        let linked = "git init -q lib; rm -rf lib/.git/hooks; ln -s ../hk lib/.git/hooks";
        assert!(has(&made(linked, &["lib"], &[]).hooks, "lib/hk"));
        let included =
            "git init -q; git config include.path ../team; git config -f team core.hooksPath tools";
        let found = made(included, &[], &[]);
        assert!(has(&found.hooks, "tools") && has(&found.programs, "team"), "{found:?}");
    }
}
