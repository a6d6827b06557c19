//! The user's own git settings that decide about contents, as files of the sandbox's home: with them git says the same
//! inside as outside.
//!
//! Filters are programs of the host (Git LFS, git-crypt) that are not inside, where their files would all look changed. There
//! each has what the index has, so that git neither lists them nor puts a pointer into their place.

use crate::repository::{self, Repository};
use crate::transfer::MAX_CONFIG;
use agent_base::error::Result;
use agent_base::host_git;
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use agent_sandbox::{Command, HomeFile, Program, Sandbox};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time limit for git, and the size limit of its answer, in bytes.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER: u64 = 1 << 20;
/// Bytes of the files that a setting names.
const MAX_RULES: u64 = 256 << 10;
/// Filters that are known, and characters of a name.
const MAX_FILTERS: usize = 20;
const MAX_NAME: usize = 50;
/// Settings that decide about contents. None of them names a program.
const CARRIED: [&str; 7] = [
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.filemode",
    "core.precomposeunicode",
    "core.symlinks",
    "core.ignorecase",
];
/// Gives the files of each filter that is known inside an entry of the index without a size, and that the one of the file.
const SETTLE: &str = "git config --get-regexp '^filter\\..*\\.clean$' | while read -r name rest; do \
    name=${name#filter.}; files=\":(attr:filter=${name%.clean})\"; \
    git ls-files -s -z -- \"$files\" | git update-index -z --index-info; \
    git ls-files -z -- \"$files\" | git --literal-pathspecs add --refresh --pathspec-from-file=- --pathspec-file-nul; \
    done 2> /dev/null; true";
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A filter's `clean`: what the index has, whatever the file has; of a new file its content.
const CLEAN: &str = "git cat-file blob :%f 2>/dev/null || cat";

/// Has git in the sandbox look at the files that a filter passes, as if they had just been checked out: of what it knows from the
/// host, such as their size, it would conclude that they changed, and would write them anew. Only where a filter is named.
pub async fn settle_filtered_files(sandbox: &Sandbox, root: &Path) -> Result<()> {
    let names_filter = |path: &Path| {
        let rules = plain_file::read(path, MAX_RULES, Links::Refuse).unwrap_or_default();
        memchr::memmem::find(&rules, b"filter=").is_some()
    };
    let Ok(Some(repository)) = Repository::find(root) else { return Ok(()) };
    let places = [
        root.join(".gitattributes"),
        repository.top.join(".gitattributes"),
        repository.common.join("info/attributes"),
    ];
    if !places.iter().any(|path| names_filter(path)) {
        return Ok(());
    }
    let command = Command {
        program: Program::Argv(["sh", "-c", SETTLE].map(OsString::from).to_vec()),
        cwd: Some(sandbox.workspace().to_owned()),
        env: Vec::new(),
        timeout: Some(SETTLE_TIMEOUT),
        live_bytes: 0,
        stdin: false,
    };
    // Where there is no git inside, nothing has to be settled.
    sandbox.run(command, &mut |_| {}).await.map(drop)
}

/// The files for a workspace at `root`; none where it is in no repository. Blocking.
pub fn home_files(root: &Path, machine: &Machine) -> Vec<HomeFile> {
    let Ok(Some(repository)) = Repository::find(root) else { return Vec::new() };
    let settings = settings(root, machine).unwrap_or_default();
    let value = |name: &str| settings.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value);
    let mut config = "[safe]\n\tdirectory = *\n[core]\n".to_owned();
    for name in CARRIED {
        if let (Some(value), Some((_, key))) = (value(name), name.split_once('.')) {
            config += &format!("\t{key} = {}\n", quoted(value));
        }
    }
    for name in filters(&settings, &repository) {
        config += &format!("[filter \"{name}\"]\n\tclean = \"{CLEAN}\"\n\tsmudge = cat\n");
    }
    let mut files = vec![file("config", config.into_bytes())];
    for (setting, name) in [("core.excludesfile", "ignore"), ("core.attributesfile", "attributes")] {
        let path = match value(setting) {
            Some(path) => in_home(path, machine),
            None => user_directory(machine).map(|directory| directory.join(name)),
        };
        let rules = path.and_then(|path| plain_file::read(&path, MAX_RULES, Links::Follow).ok());
        files.extend(rules.map(|rules| file(name, rules)));
    }
    files
}

fn file(name: &str, bytes: Vec<u8>) -> HomeFile {
    HomeFile { path: Path::new(".config/git").join(name), bytes, executable: false }
}

/// The settings of the user and of the machine, not those of the repository. Names are in lower case but for a filter's.
fn settings(root: &Path, machine: &Machine) -> Option<Vec<(String, String)>> {
    let scratch = tempfile::TempDir::new().ok()?;
    host_git::make_repository(scratch.path(), "").ok()?;
    let mut git = host_git::config_of_user(scratch.path(), root, machine)?;
    git.args(["--list", "-z"]);
    let listed = host_git::run(git, b"", TIMEOUT, MAX_ANSWER).ok()?;
    let listed = String::from_utf8_lossy(&listed);
    // A name alone stands for `true`.
    let setting = |entry: &str| {
        let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        (name.to_owned(), value.to_owned())
    };
    Some(listed.split('\0').filter(|entry| !entry.is_empty()).map(setting).collect())
}

/// The filters that the host has a program for, and Git LFS, which many repositories use without.
fn filters(settings: &[(String, String)], repository: &Repository) -> BTreeSet<String> {
    let of_user = settings.iter().filter_map(|(name, _)| {
        let name = name.strip_prefix("filter.")?;
        ["clean", "process"].iter().find_map(|key| name.strip_suffix(key)?.strip_suffix('.'))
    });
    let config = repository::read(&repository.common, b"config", MAX_CONFIG).unwrap_or_default();
    let config = String::from_utf8_lossy(&config);
    let of_repository = config
        .lines()
        .filter_map(|line| line.trim().strip_prefix("[filter \"")?.split_once("\"]").map(|(name, _)| name));
    let is_plain = |name: &&str| {
        let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_usual)
    };
    let names = std::iter::once("lfs").chain(of_user).chain(of_repository).filter(is_plain);
    names.take(MAX_FILTERS).map(str::to_owned).collect()
}

fn quoted(value: &str) -> String {
    let clean: String = value.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}

fn in_home(path: &str, machine: &Machine) -> Option<PathBuf> {
    let path = match path.strip_prefix("~/") {
        Some(below) => machine.home()?.join(below),
        None => PathBuf::from(path),
    };
    path.is_absolute().then_some(path)
}

/// Returns the directory in which git looks for the user's rules that no setting names.
fn user_directory(machine: &Machine) -> Option<PathBuf> {
    let base = machine.variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Some(base.or_else(|| Some(machine.home()?.join(".config")))?.join("git"))
}
