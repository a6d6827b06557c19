//! Code that is run on its own: written to a file, built where the language needs that, run.
//!
//! What is built is kept in the sandbox's own cache by the hash of its source, so that the same code is built once. All of it
//! is outside the workspace.

use super::libraries::Libraries;
use super::source::Source;
use super::toolchains::TypeScript;
use super::{CACHE, Language, Toolchains, debian};
use agent_base::error::Result;
use agent_sandbox::{Command, FileWrite, Finished, Node, Outcome, Output, Program, Sandbox, WORKSPACE};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The steps to run code of one language in one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet {
    source: Source,
    directory: PathBuf,
    /// Builds the program, where that is needed: text for `sh`, run in the snippet's directory.
    build: Option<String>,
    /// The program and its arguments.
    run: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

/// The result of running a snippet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnippetRan {
    /// Of the build, where that failed.
    pub finished: Finished,
    /// Set if it failed while it was built.
    pub is_build_failure: bool,
}

/// For Java, whose programs are short.
const JAVA: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];
/// Headers that C++ programs include most; compiled once, in the background of the first program.
const CPP_HEADER: &str = "#include <algorithm>\n#include <array>\n#include <cmath>\n#include <cstdint>\n#include <cstdio>\n\
    #include <cstdlib>\n#include <cstring>\n#include <functional>\n#include <iomanip>\n#include <iostream>\n#include <map>\n\
    #include <memory>\n#include <numeric>\n#include <optional>\n#include <queue>\n#include <random>\n#include <set>\n\
    #include <sstream>\n#include <string>\n#include <unordered_map>\n#include <unordered_set>\n#include <utility>\n#include <vector>\n";

impl Snippet {
    /// Plans a run.
    ///
    /// # Errors
    /// `Usage`: the language is not there.
    pub fn plan(language: Language, code: &str, libraries: &Libraries, there: &Toolchains) -> Result<Self> {
        if !there.runs(language) {
            return Err(super::missing(language, there));
        }
        let source = Source::of(language, code);
        let home = libraries.directory();
        let directory =
            home.join(&hex::encode(Sha256::digest(format!("{}\0{}", source.file, source.text)))[..24]);
        let file = directory.join(&source.file).into_os_string();
        let program = directory.join("program").into_os_string();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let then = |start: &[&str], last: &OsString| [words(start), vec![last.clone()]].concat();
        let (mut build, mut env) = (None, Vec::new());
        let run = match language {
            Language::Python => {
                env.push(("PYTHONPATH".into(), WORKSPACE.into()));
                then(&["python3"], &file)
            }
            Language::JavaScript => then(&["node"], &file),
            Language::TypeScript => match there.type_script() {
                Some(TypeScript::Node { flag: true }) => {
                    then(&["node", "--no-warnings", "--experimental-strip-types"], &file)
                }
                Some(TypeScript::Node { flag: false }) | None => then(&["node", "--no-warnings"], &file),
                Some(TypeScript::Program("deno")) => then(&["deno", "run", "-A"], &file),
                Some(TypeScript::Program(name @ ("esbuild" | "tsc"))) => {
                    build = Some(translate(name));
                    then(&["node"], &directory.join("snippet.mjs").into_os_string())
                }
                Some(TypeScript::Program(name)) => then(&[name], &file),
            },
            Language::Ruby => then(&["ruby", "-I", WORKSPACE], &file),
            Language::R => then(&["Rscript"], &file),
            Language::Bash => then(&["bash"], &file),
            Language::Java => {
                build = Some(java(&source.file));
                let classes = format!("{}/classes:{}/lib/*", directory.display(), home.display());
                [words(&["java"]), words(&JAVA), words(&["-cp", &classes, &source.class])].concat()
            }
            Language::Go => {
                build = Some(go(libraries, code, &directory));
                vec![program]
            }
            Language::Rust => {
                build = Some(rust(libraries, &directory));
                vec![program]
            }
            Language::C => {
                let compiler = there.first(&["gcc", "clang", "cc"]).unwrap_or("cc");
                let libraries = debian::flags(compiler, &libraries.packages());
                build = Some(format!(
                    "{libraries}\n{LINKER}{compiler} -O0 -w $linker -o program.new snippet.c -lm $libraries && mv program.new program"
                ));
                vec![program]
            }
            Language::Cpp => {
                build = Some(cpp(there.first(&["g++", "clang++"]).unwrap_or("g++"), libraries));
                vec![program]
            }
        };
        if matches!(language, Language::JavaScript | Language::TypeScript) {
            env.push(("NODE_PATH".into(), format!("{}/node_modules", home.display()).into()));
        }
        Ok(Self { source, directory, build, run, env })
    }

    /// Runs it with these further variables.
    ///
    /// # Errors
    /// The connection is broken, or the sandbox's own directory cannot be written.
    pub async fn run(
        self,
        sandbox: &Sandbox,
        env: Vec<(OsString, OsString)>,
        timeout: Duration,
        on_output: &mut (dyn FnMut(Output<'_>) + Send),
    ) -> Result<SnippetRan> {
        let begun = Instant::now();
        self.put(sandbox).await?;
        if let Some(command) = self.build_command(timeout) {
            let finished = sandbox.run(command, on_output).await?;
            if finished.outcome != Outcome::Exited(0) {
                return Ok(SnippetRan { finished, is_build_failure: true });
            }
        }
        let timeout = timeout.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        let mut finished = sandbox.run(self.command(env, Some(timeout)), on_output).await?;
        finished.duration = begun.elapsed();
        Ok(SnippetRan { finished, is_build_failure: false })
    }

    /// Writes its source.
    pub async fn put(&self, sandbox: &Sandbox) -> Result<()> {
        let file = FileWrite {
            path: self.directory.join(&self.source.file),
            node: Node::Regular(self.source.text.clone().into_bytes()),
            mode: None,
            mtime_ns: None,
            follow: false,
        };
        match sandbox.write_files(vec![file]).await?.pop() {
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns what builds it, where it has to be built.
    pub fn build_command(&self, timeout: Duration) -> Option<Command> {
        let build = self.build.as_ref()?;
        let script = format!("[ -e built ] && exit 0; {{ {build}\n}} && : > built");
        Some(shell(&script, &self.directory, timeout))
    }

    /// Returns what runs it.
    pub fn command(self, env: Vec<(OsString, OsString)>, timeout: Option<Duration>) -> Command {
        let mut env = env;
        for (name, value) in self.env {
            match env.iter_mut().find(|(other, _)| *other == name) {
                // Both are lists of directories.
                Some((_, there)) => *there = [there.as_os_str(), value.as_os_str()].join(OsStr::new(":")),
                None => env.push((name, value)),
            }
        }
        Command {
            program: Program::Argv(self.run),
            cwd: None,
            env,
            timeout,
            live_bytes: agent_sandbox::TAIL_BYTES as u64,
            stdin: false,
        }
    }
}

/// Shell text, in a directory that is made.
fn shell(text: &str, directory: &Path, timeout: Duration) -> Command {
    Command {
        program: Program::Argv(vec!["sh".into(), "-c".into(), text.into()]),
        cwd: Some(directory.to_owned()),
        env: Vec::new(),
        timeout: Some(timeout),
        live_bytes: agent_sandbox::TAIL_BYTES as u64,
        stdin: false,
    }
}

/// The quickest linker that is there.
const LINKER: &str = "linker=; for name in mold lld gold; do command -v ld.$name >/dev/null && linker=-fuse-ld=$name && break; done; ";

fn translate(program: &str) -> String {
    match program {
        "esbuild" => "esbuild --log-level=warning --format=esm snippet.mts --outfile=snippet.mjs".to_owned(),
        _ => "tsc --module nodenext --target es2022 --skipLibCheck --noEmitOnError false snippet.mts >&2 || [ -e snippet.mjs ]".to_owned(),
    }
}

fn java(file: &str) -> String {
    let flags: Vec<String> = JAVA.iter().map(|flag| format!("-J{flag}")).collect();
    format!("javac {} -nowarn -proc:none -d classes -cp '../lib/*' {file}", flags.join(" "))
}

fn go(libraries: &Libraries, code: &str, directory: &Path) -> String {
    // Without C, programs need no C compiler, and the standard library is compiled without it.
    let cgo = if code.contains("import \"C\"") { 1 } else { 0 };
    let env = format!("export CGO_ENABLED={cgo} GOTOOLCHAIN=local GOFLAGS=-mod=mod");
    let build = match libraries.is_empty() {
        true => format!("{env} GO111MODULE=off; go build -o program main.go"),
        false => {
            let name = directory.file_name().unwrap_or_default().to_string_lossy();
            format!("{env} GOPROXY=off; cd .. && go build -o {name}/program ./{name}")
        }
    };
    // What most programs import is compiled once, in the background of the first program; Go's cache is in the home directory.
    format!(
        "{build}; code=$?\n\
         if mkdir {CACHE}/go/warm 2>/dev/null; then\n\
         (cd / && CGO_ENABLED=0 GO111MODULE=off go build {GO_PACKAGES} && : > {CACHE}/go/warm/done) </dev/null >/dev/null 2>&1 &\n\
         fi\n\
         (exit $code)"
    )
}

/// Packages that Go programs import most; all that these import is compiled with them.
const GO_PACKAGES: &str = "bufio encoding/json errors flag fmt math/rand os regexp sort strings sync time";

fn rust(libraries: &Libraries, directory: &Path) -> String {
    match libraries.is_empty() {
        true => {
            "rustc --edition 2021 -A warnings -C opt-level=0 -C debuginfo=0 -o program snippet.rs".to_owned()
        }
        false => {
            let name = directory.file_name().unwrap_or_default().to_string_lossy();
            format!(
                "cp snippet.rs ../src/bin/s{name}.rs && cd .. && cargo build -q --offline --bin s{name}; code=$?; \
                 rm src/bin/s{name}.rs; [ $code = 0 ] && mv target/debug/s{name} {name}/program"
            )
        }
    }
}

/// With headers that were compiled before. They are compiled in the background of the first program, which does not wait
/// for them; the name has the compiler's version, because another one cannot use them.
fn cpp(compiler: &str, libraries: &Libraries) -> String {
    let libraries = debian::flags(compiler, &libraries.packages());
    let flags = "-std=c++17 -O0 -w";
    if compiler != "g++" {
        return format!(
            "{libraries}\n{LINKER}{compiler} {flags} $linker -o program.new snippet.cpp $libraries && mv program.new program"
        );
    }
    format!(
        "{libraries}\n{LINKER}h={CACHE}/cpp/headers-$({compiler} -dumpfullversion); include=\n\
         if [ -e $h/std.h.gch ]; then include=\"-include $h/std.h\"\n\
         elif mkdir -p {CACHE}/cpp && mkdir $h 2>/dev/null; then\n\
         printf %s '{CPP_HEADER}' > $h/std.h\n\
         ({compiler} {flags} -x c++-header -o $h/new $h/std.h && mv $h/new $h/std.h.gch) </dev/null >/dev/null 2>&1 &\n\
         fi\n\
         {compiler} {flags} $include $linker -o program.new snippet.cpp $libraries && mv program.new program"
    )
}
