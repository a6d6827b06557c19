//! Ordinary projects, with what their tools have installed and built on this machine: inside, each runs its own test command
//! as it does outside, with no option.

use crate::support::agent::{Agent, agent};
use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A project in the workspace of a call, and what the tools of both sides find in their environment.
pub struct Project {
    agent: Agent,
    pub directory: PathBuf,
    env: Vec<(&'static str, OsString)>,
}

impl Project {
    pub fn new() -> Self {
        let agent = agent();
        let directory = agent.workspace().to_owned();
        let home = directory.with_file_name("home");
        std::fs::create_dir_all(&home).expect("a home");
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self { agent, directory, env: vec![("PATH", path), ("HOME", home.into())] }
    }

    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.env.retain(|(other, _)| *other != name);
        self.env.push((name, value.into()));
    }

    /// Puts a directory before the others of `PATH`.
    fn find_first(&mut self, directory: &Path) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
        self.set("PATH", std::env::join_paths(all).expect("a search path"));
    }

    /// A path beside the project.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.with_file_name(name)
    }

    /// A call of the binary with the same environment.
    pub fn agent(&self) -> Agent {
        self.env.iter().fold(self.agent.again(), |agent, (name, value)| agent.env(name, value))
    }

    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(&path, content).expect("a file");
        path
    }

    fn program(&self, name: &str, content: &str) {
        let path = self.file(name, content);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    fn outside(&self, directory: &str, command: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.directory.join(directory)).env_clear();
        shell.envs(self.env.iter().map(|(name, value)| (name, value))).output().expect("a shell")
    }

    /// Runs what prepares the project on this machine.
    pub fn prepare(&self, command: &str) {
        let done = self.outside("", command);
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    }

    pub fn repository(&self) {
        self.prepare(
            "git init -q . && git config user.name me && git config user.email me@example.org && git add -A && \
             git commit -qm first",
        );
    }

    /// The command's output inside, after it has ended as it does outside, in `directory` of the project.
    fn runs_as_outside_in(&self, directory: &str, command: &str) -> String {
        let outside = self.outside(directory, command);
        let code = outside.status.code().expect("it ends");
        let error = String::from_utf8_lossy(&outside.stderr);
        assert_eq!(code, 0, "{command} does not pass outside: {error}");
        let place = self.directory.join(directory);
        let inside =
            self.agent().args(["exec", "-C", place.to_str().expect("text"), "--", "sh", "-c", command]);
        inside.run().expect_code(code).stdout
    }

    fn runs_as_outside(&self, command: &str) -> String {
        self.runs_as_outside_in("", command)
    }
}

/// Whether a tool is there; without one, what needs it is not tested, but where every tool has to be there.
fn has(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
    let is_there = found.is_ok_and(|found| found.status.success());
    let is_required = std::env::var_os("AGENT_TEST_REQUIRE_LANGUAGES").is_some();
    assert!(is_there || !is_required, "there is no {tool}");
    if !is_there {
        eprintln!("not tested: there is no {tool}");
    }
    is_there
}

fn text_of(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_test_runner_of_node_modules_runs() {
    if !has("node") {
        return;
    }
    let project = Project::new();
    project.file(".gitignore", "node_modules/\n");
    project.file("package.json", r#"{"name": "p", "scripts": {"test": "runner test.js"}}"#);
    project.file("test.js", "require('assert').strictEqual(require('dep')(2), 4)");
    project.file("node_modules/dep/index.js", "module.exports = n => n * 2");
    project.program(
        "node_modules/runner/cli.js",
        "#!/usr/bin/env node\nrequire(process.cwd() + '/' + process.argv[2])",
    );
    std::fs::create_dir(project.directory.join("node_modules/.bin")).expect("a directory");
    symlink("../runner/cli.js", project.directory.join("node_modules/.bin/runner")).expect("a link");
    project.repository();
    project.runs_as_outside("PATH=$PWD/node_modules/.bin:$PATH; runner test.js");
}

#[test]
fn a_virtual_environment_runs_its_scripts() {
    if !has("python3") {
        return;
    }
    let mut project = Project::new();
    let base = PathBuf::from(text_of(&["python3", "-c", "import sys; print(sys.base_prefix)"]));
    // A version manager's, wherever that is.
    if let Some(root) = base.parent().filter(|versions| versions.ends_with("versions")).and_then(Path::parent)
    {
        project.set("PYENV_ROOT", root);
        project.find_first(&base.join("bin"));
    }
    project.file(".gitignore", ".venv/\n");
    project.file("test_p.py", "import dep\nassert dep.double(2) == 4\nprint('passed', dep.__file__)\n");
    project.prepare(
        "python3 -m venv --without-pip .venv && site=$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
         printf 'def double(n):\\n    return 2 * n\\n' > $site/dep.py && \
         printf '#!%s/.venv/bin/python\\nimport runpy, sys\\nrunpy.run_path(sys.argv[1])\\n' \"$PWD\" > .venv/bin/tool && \
         chmod +x .venv/bin/tool",
    );
    project.repository();
    let place = project.directory.clone();
    let output = project.runs_as_outside(".venv/bin/tool test_p.py");
    assert!(output.contains(&format!("passed {}", place.join(".venv").display())), "{output}");
}

/// A project with the toolchain of Rust that runs these tests.
fn with_rust() -> Option<Project> {
    if !has("cargo") {
        return None;
    }
    let mut project = Project::new();
    let sysroot = PathBuf::from(text_of(&["rustc", "--print", "sysroot"]));
    if let Some(root) =
        sysroot.parent().filter(|toolchains| toolchains.ends_with("toolchains")).and_then(Path::parent)
    {
        project.set("RUSTUP_HOME", root);
    }
    project.find_first(&sysroot.join("bin"));
    Some(project)
}

#[test]
fn a_crate_that_cargo_has_fetched_is_there_and_what_was_built_is_fresh() {
    let Some(project) = with_rust() else { return };
    let dependency = project.beside("dependency");
    std::fs::create_dir_all(dependency.join("src")).expect("a directory");
    std::fs::write(
        dependency.join("Cargo.toml"),
        "[package]\nname = \"dep\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
    )
    .expect("a file");
    std::fs::write(dependency.join("src/lib.rs"), "pub fn double(n: u32) -> u32 { 2 * n }\n")
        .expect("a file");
    project.file(".gitignore", "/target\n");
    project.file(
        "Cargo.toml",
        &format!(
            "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ndep = {{ git = \"file://{}\" }}\n",
            dependency.display()
        ),
    );
    project.file("src/lib.rs", "#[test]\nfn doubles() { assert_eq!(dep::double(2), 4); }\n");
    project.prepare(&format!(
        "cd {} && git init -q . && git -c user.name=me -c user.email=me@example.org add -A && git -c user.name=me -c \
         user.email=me@example.org commit -qm first",
        dependency.display()
    ));
    project.prepare("cargo test -q --no-run");
    project.repository();
    let output = project.runs_as_outside("cargo test --offline 2>&1");
    assert!(output.contains("1 passed") && !output.contains("Compiling"), "{output}");
}

#[test]
fn a_member_of_a_cargo_workspace_is_tested_from_its_directory() {
    let Some(project) = with_rust() else { return };
    project.file(".gitignore", "/target\n");
    project.file("Cargo.toml", "[workspace]\nmembers = [\"member\"]\nresolver = \"2\"\n");
    project
        .file("member/Cargo.toml", "[package]\nname = \"member\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    project.file("member/src/lib.rs", "#[test]\nfn passes() {}\n");
    project.repository();
    let output =
        project.runs_as_outside_in("member", "cargo test --offline 2>&1; git rev-parse --show-prefix");
    assert!(output.contains("1 passed") && output.ends_with("member/\n"), "{output}");
}

#[test]
fn a_go_module_of_the_cache_is_found() {
    if !has("go") {
        return;
    }
    let mut project = Project::new();
    let proxy = project.beside("proxy");
    let version = proxy.join("example.org/dep/@v");
    std::fs::create_dir_all(&version).expect("a directory");
    std::fs::write(version.join("list"), "v1.0.0\n").expect("a file");
    std::fs::write(version.join("v1.0.0.info"), r#"{"Version":"v1.0.0"}"#).expect("a file");
    std::fs::write(version.join("v1.0.0.mod"), "module example.org/dep\n").expect("a file");
    let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1], 'w')\n\
                  z.writestr('example.org/dep@v1.0.0/go.mod', 'module example.org/dep\\n')\n\
                  z.writestr('example.org/dep@v1.0.0/dep.go', 'package dep\\n\\nfunc Double(n int) int { return 2 * n }\\n')\n";
    if !has("python3") {
        return;
    }
    text_of(&["python3", "-c", script, version.join("v1.0.0.zip").to_str().expect("text")]);
    project.file("go.mod", "module example.org/p\n\ngo 1.20\n\nrequire example.org/dep v1.0.0\n");
    project.file(
        "p_test.go",
        "package p\n\nimport (\n\t\"testing\"\n\n\t\"example.org/dep\"\n)\n\nfunc TestDouble(t *testing.T) {\n\tif dep.Double(2) != 4 {\n\t\t\
         t.Fatal()\n\t}\n}\n",
    );
    project.set("GOTOOLCHAIN", "local");
    project.prepare(&format!(
        "GOPROXY=file://{} GONOSUMDB=* GONOSUMCHECK=1 GOFLAGS=-mod=mod GOSUMDB=off go test ./...",
        proxy.display()
    ));
    project.repository();
    project.runs_as_outside("GOPROXY=off GOTOOLCHAIN=local go test -count=1 ./...");
}

#[test]
fn a_build_directory_of_cmake_is_used_as_it_is() {
    if !has("cmake") || !has("cc") || !has("make") {
        return;
    }
    let project = Project::new();
    project.file(".gitignore", "build/\n");
    project.file(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_executable(p main.c)\n",
    );
    project.file("main.c", "int main(void) { return 0; }\n");
    project.prepare("cmake -S . -B build -G 'Unix Makefiles' > /dev/null && cmake --build build > /dev/null");
    project.repository();
    let output = project.runs_as_outside("cmake --build build && build/p");
    assert!(!output.contains("Building"), "{output}");
}

#[test]
fn settings_that_git_ignores_are_read() {
    let project = Project::new();
    project.file(".gitignore", "local.cfg\n");
    project.file("local.cfg", "port = 1\n");
    project.repository();
    assert_eq!(project.runs_as_outside("cat local.cfg"), "port = 1\n");
}

#[test]
fn a_repository_with_a_submodule_and_a_linked_work_tree_know_their_history() {
    let project = Project::new();
    project.prepare(
        "git init -q ../library && cd ../library && git config user.name me && git config user.email me@example.org && \
         echo 1 > one && git add one && git commit -qm library",
    );
    project.file("a", "a\n");
    project.repository();
    project.prepare(
        "git -c protocol.file.allow=always submodule --quiet add ../library lib && git commit -qm 'with a library' && \
         git worktree add -q ../linked",
    );
    let history = "git status --porcelain && git log --format=%s -1";
    let library = "cat lib/one && git -C lib log --format=%s";
    assert_eq!(project.runs_as_outside(history), "with a library\n");
    assert_eq!(project.runs_as_outside(library), "1\nlibrary\n");
    let linked = project.beside("linked");
    assert_eq!(project.runs_as_outside_in(linked.to_str().expect("text"), history), "with a library\n");
}

#[test]
fn what_git_ignores_can_be_removed_and_directories_can_be_renamed() {
    let project = Project::new();
    project.file(".gitignore", "node_modules/\nbuild/\n");
    project.file("src/deep/a.txt", "a\n");
    project.file("package/b.txt", "b\n");
    project.file("package/build/c.o", "c\n");
    project.file("node_modules/dep/index.js", "1\n");
    project.repository();
    let kept = project.directory.join("node_modules/dep/index.js");
    let command = "git mv src/deep lib && rm -rf node_modules && mkdir node_modules && echo 2 > node_modules/new && \
                   git clean -qfdx && test ! -e package/build && test ! -e node_modules && \
                   perl -e 'rename(\"lib\", \"again\") or die $!' && ls";
    let output = project.agent().args(["exec", "--", "sh", "-c", command]).run().expect_code(0).stdout;
    assert_eq!(output, "again\npackage\n");
    assert_eq!(
        std::fs::read_to_string(kept).expect("it is there"),
        "1\n",
        "on this machine nothing has changed"
    );
}
