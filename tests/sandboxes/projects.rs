//! Ordinary projects, with what their tools have installed and built on this machine: inside, in local sandboxes and in containers,
//! each runs its own test command as it does outside, with no option.

use agent_testbed::agent::{Agent, agent};
use agent_testbed::backends::{backend, is_ordinary_user, is_root, program_on_every_backend};
use agent_testing::endpoint::endpoint;
use agent_testing::skip;
use serde_json::{Value, json};
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

    /// The command's outputs inside, one for each backend of this machine, after it has ended there as it does outside, in
    /// `directory` of the project, and has counted the same tests.
    fn runs_as_outside_in(&self, directory: &str, command: &str) -> Vec<String> {
        let outside = self.outside(directory, command);
        let code = outside.status.code().expect("it ends");
        let (output, error) =
            (String::from_utf8_lossy(&outside.stdout), String::from_utf8_lossy(&outside.stderr));
        assert_eq!(code, 0, "{command} does not pass outside: {output}{error}");
        let place = self.directory.join(directory);
        let run = |backend| {
            let arguments = ["exec", "-C", place.to_str().expect("text"), "--", "sh", "-c", command];
            let inside = self.agent().sandbox(backend).args(arguments).run().expect_code(code).stdout;
            assert_eq!(counts(&inside), counts(&output), "on {backend}: {inside}");
            inside
        };
        backends().into_iter().map(run).collect()
    }

    fn runs_as_outside(&self, command: &str) -> Vec<String> {
        self.runs_as_outside_in("", command)
    }
}

/// The backends that show this machine's programs and are there.
fn backends() -> Vec<&'static str> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let is_there =
        |name: &&str| !(*name == "docker" && is_ordinary_user()) && runtime.block_on(backend(name)).is_some();
    ["local", "docker"].into_iter().filter(is_there).collect()
}

/// How many tests passed, failed and so on, as runners print it: `2 passed`, `Failures: 0`.
fn counts(output: &str) -> Vec<String> {
    const COUNTED: [&str; 12] = [
        "run", "ran", "tests", "test", "passed", "pass", "failed", "fail", "failures", "errors", "skipped",
        "ignored",
    ];
    let plain = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let words: Vec<String> = output.split_whitespace().map(plain).filter(|word| !word.is_empty()).collect();
    let is_count = |pair: &&[String]| {
        let is_number = |word: &String| word.bytes().all(|byte| byte.is_ascii_digit());
        let is_counted = |word: &String| COUNTED.contains(&word.as_str());
        is_number(&pair[0]) && is_counted(&pair[1]) || is_counted(&pair[0]) && is_number(&pair[1])
    };
    words.windows(2).filter(is_count).map(|pair| pair.join(" ")).collect()
}

/// Returns whether a tool is there; without one, what needs it is not tested.
fn has(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("{tool} --version || {tool} version")]).output();
    let is_there = found.is_ok_and(|found| found.status.success());
    match is_ordinary_user() {
        _ if is_there => {}
        true => skip::left_out(format!("an ordinary user has no {tool}")),
        false => skip::missing(tool),
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
fn members_of_npms_workspaces_find_each_other_and_what_is_hoisted() {
    if !has("npm") {
        return;
    }
    let project = Project::new();
    project.file(".gitignore", "node_modules/\n");
    project.file("package.json", r#"{"name": "root", "private": true, "workspaces": ["packages/*"]}"#);
    for (name, test) in [("one", "require('hoisted')"), ("two", "require('one')")] {
        let manifest =
            format!(r#"{{"name": "{name}", "version": "1.0.0", "scripts": {{"test": "node --test"}}}}"#);
        project.file(&format!("packages/{name}/package.json"), &manifest);
        project.file(&format!("packages/{name}/index.js"), "module.exports = 1");
        project.file(
            &format!("packages/{name}/a.test.js"),
            &format!("require('node:test')('{name}', () => {{ {test}; }})"),
        );
    }
    project.file("node_modules/hoisted/index.js", "module.exports = 1");
    for name in ["one", "two"] {
        let link = project.directory.join("node_modules").join(name);
        symlink(format!("../packages/{name}"), link).expect("a link");
    }
    project.repository();
    project.runs_as_outside("npm test --workspaces --offline --no-update-notifier");
    project.runs_as_outside_in("packages/two", "npm test --offline --no-update-notifier");
}

#[test]
fn packages_that_are_links_into_a_store_are_found() {
    if !has("node") {
        return;
    }
    let project = Project::new();
    project.file(".gitignore", "node_modules/\n");
    project.file(
        "a.test.js",
        "require('node:test')('doubles', () => { require('assert').equal(require('dep')(2), 4) })",
    );
    project.file(
        "node_modules/.pnpm/dep@1.0.0/node_modules/dep/index.js",
        "module.exports = n => require('times')(n, 2)",
    );
    let times = project.file(
        "node_modules/.pnpm/times@1.0.0/node_modules/times/index.js",
        "module.exports = (a, b) => a * b",
    );
    let store = project.beside("home").join(".local/share/pnpm/store/v3/files/00");
    std::fs::create_dir_all(&store).expect("a directory");
    std::fs::hard_link(times, store.join("times")).expect("a link");
    let links = [
        ("node_modules/dep", ".pnpm/dep@1.0.0/node_modules/dep"),
        ("node_modules/.pnpm/dep@1.0.0/node_modules/times", "../../times@1.0.0/node_modules/times"),
    ];
    for (link, target) in links {
        symlink(target, project.directory.join(link)).expect("a link");
    }
    project.repository();
    project.runs_as_outside("node --test && cat ~/.local/share/pnpm/store/v3/files/00/times > /dev/null");
}

/// A project with the interpreter of this machine that makes virtual environments.
fn with_python() -> Option<Project> {
    if !has("python3") {
        return None;
    }
    let mut project = Project::new();
    let base = PathBuf::from(text_of(&["python3", "-c", "import sys; print(sys.base_prefix)"]));
    // A version manager's, wherever that is.
    if let Some(root) = base.parent().filter(|versions| versions.ends_with("versions")).and_then(Path::parent)
    {
        project.set("PYENV_ROOT", root);
        project.find_first(&base.join("bin"));
    }
    Some(project)
}

#[test]
fn a_virtual_environment_runs_its_scripts() {
    let Some(project) = with_python() else { return };
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
    for output in project.runs_as_outside(".venv/bin/tool test_p.py") {
        assert!(output.contains(&format!("passed {}", place.join(".venv").display())), "{output}");
    }
}

const TEST_OF_P: &str = "import unittest\nimport p\n\nclass Test(unittest.TestCase):\n    def test_doubles(self):\n        \
                         self.assertEqual(p.double(2), 4)\n";

#[test]
fn an_editable_install_of_a_src_layout_is_imported() {
    let Some(project) = with_python() else { return };
    project.file(".gitignore", ".venv/\n__pycache__/\n");
    project.file("src/p/__init__.py", "def double(n):\n    return 2 * n\n");
    project.file("tests/test_p.py", TEST_OF_P);
    project.prepare(
        "python3 -m venv --without-pip .venv && site=$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
         echo \"$PWD/src\" > $site/__editable__.p.pth",
    );
    project.repository();
    project.runs_as_outside(".venv/bin/python -m unittest discover -s tests 2>&1");
}

#[test]
fn an_environment_outside_of_the_project_has_its_packages() {
    let Some(project) = with_python() else { return };
    project.file("p.py", "from dep import double\n");
    project.file("test_p.py", TEST_OF_P);
    project.prepare(
        "python3 -m venv --without-pip ~/miniconda3/envs/p && cd ~/miniconda3/envs/p && \
         site=$(bin/python -c 'import site; print(site.getsitepackages()[0])') && \
         printf 'def double(n):\\n    return 2 * n\\n' > $site/dep.py",
    );
    project.repository();
    project.runs_as_outside("~/miniconda3/envs/p/bin/python -m unittest 2>&1");
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
    for output in project.runs_as_outside("cargo test --offline 2>&1") {
        assert!(output.contains("1 passed") && !output.contains("Compiling"), "{output}");
    }
}

#[test]
fn crates_of_a_vendored_directory_that_git_ignores_are_used() {
    let Some(project) = with_rust() else { return };
    project.file(".gitignore", "/target\n/vendor\n");
    project.file(
        "Cargo.toml",
        "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ndep = \"1\"\n",
    );
    project.file("src/lib.rs", "#[test]\nfn doubles() { assert_eq!(dep::double(2), 4); }\n");
    project.file(
        ".cargo/config.toml",
        "[source.crates-io]\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = \"vendor\"\n",
    );
    project.file(
        "vendor/dep/Cargo.toml",
        "[package]\nname = \"dep\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
    );
    project.file("vendor/dep/src/lib.rs", "pub fn double(n: u32) -> u32 { 2 * n }\n");
    project.file("vendor/dep/.cargo-checksum.json", r#"{"files": {}}"#);
    project.repository();
    project.runs_as_outside("cargo test --offline 2>&1");
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
    for output in
        project.runs_as_outside_in("member", "cargo test --offline 2>&1; git rev-parse --show-prefix")
    {
        assert!(output.contains("1 passed") && output.ends_with("member/\n"), "{output}");
    }
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
fn maven_finds_the_parent_of_a_project_in_its_repository() {
    if !has("mvn") {
        return;
    }
    let project = Project::new();
    let pom = |parent: &str, name: &str| {
        format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>{parent}\
             <groupId>org.example</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging></project>"
        )
    };
    let repository = project.beside("home").join(".m2/repository/org/example/parent/1");
    std::fs::create_dir_all(&repository).expect("a directory");
    std::fs::write(repository.join("parent-1.pom"), pom("", "parent")).expect("a file");
    let parent = "<parent><groupId>org.example</groupId><artifactId>parent</artifactId><version>1</version><relativePath/></parent>";
    project.file("pom.xml", &pom(parent, "child"));
    project.repository();
    let command = "MAVEN_OPTS=-Duser.home=$HOME mvn -o -B validate";
    project.prepare(command);
    for backend in backends() {
        let call = project.agent().sandbox(backend).args(["exec", "--", "sh", "-c", command]);
        let ran = call.run();
        // Its script asks `ls -l` where it is.
        if ran.stderr.contains("`ls -l`, `stat` and what calls them fail in this sandbox") {
            skip::left_out(format!("mvn needs `ls -l`, which the runtime of {backend} lacks"));
            ran.expect_code(1);
        } else {
            let output = ran.expect_code(0).stdout;
            assert!(output.contains("BUILD SUCCESS"), "on {backend}: {output}");
        }
    }
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
    for output in project.runs_as_outside("cmake --build build && build/p") {
        assert!(!output.contains("Building"), "{output}");
    }
}

#[test]
fn settings_that_git_ignores_are_read() {
    let project = Project::new();
    project.file(".gitignore", "local.cfg\n");
    project.file("local.cfg", "port = 1\n");
    project.repository();
    project.runs_as_outside("cat local.cfg").iter().for_each(|output| assert_eq!(output, "port = 1\n"));
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
    let linked = project.beside("linked");
    let all = [
        (project.runs_as_outside(history), "with a library\n"),
        (project.runs_as_outside(library), "1\nlibrary\n"),
        (project.runs_as_outside_in(linked.to_str().expect("text"), history), "with a library\n"),
    ];
    for (outputs, expected) in all {
        outputs.iter().for_each(|output| assert_eq!(output, expected));
    }
}

#[test]
fn what_git_ignores_can_be_removed_and_directories_can_be_renamed() {
    program_on_every_backend(|backend| {
        let project = Project::new();
        project.file(".gitignore", "node_modules/\nbuild/\n");
        project.file("src/deep/a.txt", "a\n");
        project.file("package/b.txt", "b\n");
        project.file("package/build/c.o", "c\n");
        project.file("node_modules/dep/index.js", "1\n");
        project.repository();
        let kept = project.directory.join("node_modules/dep/index.js");
        // Where the kernel's overlay cannot rename a directory that is underneath, `mv` copies it.
        let rename = if is_root() { "git mv package moved" } else { "mv package moved && git add -A" };
        let command = format!(
            "git mv src/deep lib && {rename} && test -e moved/build/c.o && rm -rf node_modules && mkdir node_modules && \
             echo 2 > node_modules/new && git clean -qfdx && test ! -e moved/build && test ! -e node_modules && \
             perl -e 'rename(\"lib\", \"again\") or die $!' && ls"
        );
        let inside = project.agent().sandbox(backend).args(["exec", "--", "sh", "-c", &command]).run();
        assert_eq!(inside.expect_code(0).stdout, "again\nmoved\n", "on {backend}");
        assert_eq!(
            std::fs::read_to_string(kept).expect("it is there"),
            "1\n",
            "on this machine nothing has changed"
        );
    });
}

/// Keys among very many ignored files were withheld only after these had been looked through, before anything started.
#[test]
fn a_key_in_a_closed_directory_among_ignored_files_is_gone_when_the_first_command_runs() {
    program_on_every_backend(|backend| {
        let project = Project::new();
        project.file(".gitignore", "cache/\n");
        project.file("a", "a\n");
        project.file("cache/module@v1/testdata/id_rsa", "secret\n");
        project.file("cache/module@v1/testdata/a.txt", "a\n");
        project.repository();
        project.prepare("chmod 555 cache/module@v1/testdata");
        let list = [
            "exec",
            "--",
            "sh",
            "-c",
            "find cache -type f; find cache/module@v1/testdata -maxdepth 0 -printf '%m\n'",
        ];
        let ran = project.agent().sandbox(backend).args(list).run().expect_code(0);
        project.prepare("chmod 755 cache/module@v1/testdata");
        assert_eq!(ran.stdout, "cache/module@v1/testdata/a.txt\n555\n", "on {backend}");
        assert!(ran.stderr.contains("cache/module@v1/testdata/id_rsa (secret)"), "{}", ran.stderr);
    });
}

#[test]
fn a_resumed_session_continues_in_the_directory_that_it_was_started_in() {
    let project = Project::new();
    project.file("sub/a.txt", "a\n");
    project.file("other/AGENTS.md", "Nothing of this.\n");
    project.file("sub/AGENTS.md", "Answer in rhymes.\n");
    project.repository();
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "cat a.txt && echo new > b.txt && pwd" }))
        .text("Done.")
        .tool_call("run_commands", json!({ "command": "cat b.txt && mv ../sub ../moved && pwd" }))
        .text("Done.")
        .start();
    let place = |name: &str| project.directory.join(name);
    let run = |directory: &str, arguments: &[&str]| {
        let call = project.agent().endpoint(&model).current_dir(&place(directory));
        call.args(arguments).run().expect_code(0)
    };
    run("sub", &["run", "Read @a.txt"]);
    let list = run("other", &["sessions", "list", "--json"]).stdout;
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let id = list[0]["id"].as_str().expect("an id").to_owned();
    run("other", &["run", "--session", &id, "go on"]);
    let results: Vec<String> = model.requests().iter().map(|request| request.body.to_string()).collect();
    assert!(
        results[0].contains("Answer in rhymes.") && !results[0].contains("Nothing of this."),
        "{}",
        results[0]
    );
    assert!(
        results[0].contains("Working directory: ") && results[1].contains(&*place("sub").to_string_lossy())
    );
    assert!(results[3].contains("new\\n"), "{}", results[3]);
    // Paths are taken from where the user is.
    let patch = run("sub", &["diff", &id, "../moved"]).stdout;
    assert!(patch.contains("moved/b.txt"), "{patch}");
}
