//! A program in the place of git that runs it and writes down how much memory it took.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the program is, and what it has written.
pub struct MeteredGit {
    programs: PathBuf,
    taken: PathBuf,
}

/// Makes one beside `workspace`.
pub fn metered_git(workspace: &Path) -> MeteredGit {
    let found = Command::new("sh").args(["-c", "command -v git"]).output().expect("sh").stdout;
    let git = String::from_utf8(found).expect("a path");
    let (programs, taken) = (workspace.with_file_name("programs"), workspace.with_file_name("taken"));
    let program = format!(
        "#!/usr/bin/env python3\nimport resource, subprocess, sys\ncode = subprocess.call([{:?}, *sys.argv[1:]])\n\
         open({taken:?}, 'a').write(f'{{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}}\\n')\nsys.exit(code)\n",
        git.trim()
    );
    fs::create_dir(&programs).expect("a directory");
    fs::write(programs.join("git"), program).expect("a program");
    fs::set_permissions(programs.join("git"), fs::Permissions::from_mode(0o755)).expect("a mode");
    MeteredGit { programs, taken }
}

impl MeteredGit {
    /// The `PATH` on which it is found.
    pub fn path(&self) -> String {
        format!("{}:{}", self.programs.display(), std::env::var("PATH").expect("a path"))
    }

    /// The most that one call took, in KiB.
    pub fn most(&self) -> u64 {
        let calls = fs::read_to_string(&self.taken).expect("the calls");
        calls.lines().filter_map(|line| line.parse().ok()).max().expect("a call")
    }
}
