//! Which languages a sandbox has.

use super::Language;
use agent_base::error::Result;
use agent_base::machine::Machine;
use agent_base::paths;
use agent_base::plain_file::{self, Links};
use agent_sandbox::{Command, Outcome, Output, Program, Sandbox};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// The programs that matter; nothing else that a sandbox reports is remembered.
pub const PROGRAMS: [&str; 24] = [
    "python3", "node", "npm", "bun", "deno", "tsx", "esbuild", "tsc", "java", "javac", "mvn", "g++",
    "clang++", "gcc", "clang", "cc", "go", "ruby", "gem", "rustc", "cargo", "Rscript", "bash", "apt-get",
];
/// The longest file that is read.
const MAX_FILE: u64 = 16 << 10;
/// The time limit for `node --version`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// The toolchains of one sandbox or image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchains {
    programs: BTreeSet<String>,
    /// The major and minor version of Node, where it was asked for.
    node: Option<(u32, u32)>,
}

impl Toolchains {
    /// Those with these programs.
    pub fn of(programs: impl IntoIterator<Item = String>) -> Self {
        let programs = programs.into_iter().filter(|name| PROGRAMS.contains(&name.as_str())).collect();
        Self { programs, node: None }
    }

    /// Asks the sandbox.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn ask(sandbox: &Sandbox) -> Result<Self> {
        let mut found = Self::of(sandbox.facts(&PROGRAMS).await?.tools);
        // Node runs TypeScript itself from some version on; a translator makes the question unnecessary.
        if found.has("node") && !["bun", "deno", "tsx", "esbuild", "tsc"].iter().any(|name| found.has(name)) {
            found.node = node_version(sandbox).await?;
        }
        Ok(found)
    }

    /// Returns whether a program is there.
    pub fn has(&self, program: &str) -> bool {
        self.programs.contains(program)
    }

    /// The first of the programs that is there.
    pub fn first(&self, programs: &[&'static str]) -> Option<&'static str> {
        programs.iter().copied().find(|program| self.has(program))
    }

    /// Returns whether code of the language can be run.
    pub fn runs(&self, language: Language) -> bool {
        match language {
            Language::Python => self.has("python3"),
            Language::JavaScript => self.has("node"),
            Language::TypeScript => self.type_script().is_some(),
            Language::Java => self.has("javac") && self.has("java"),
            Language::Cpp => self.first(&["g++", "clang++"]).is_some(),
            Language::C => self.first(&["gcc", "clang", "cc"]).is_some(),
            Language::Go => self.has("go"),
            Language::Ruby => self.has("ruby"),
            Language::Rust => self.has("rustc"),
            Language::R => self.has("Rscript"),
            Language::Bash => self.has("bash"),
        }
    }

    /// The languages that can be run.
    pub fn languages(&self) -> Vec<Language> {
        Language::ALL.into_iter().filter(|language| self.runs(*language)).collect()
    }

    /// Returns what runs TypeScript here.
    pub fn type_script(&self) -> Option<TypeScript> {
        match self.node {
            Some((23, minor)) if minor >= 6 => return Some(TypeScript::Node { flag: false }),
            Some((major, _)) if major >= 24 => return Some(TypeScript::Node { flag: false }),
            Some((22, minor)) if minor >= 18 => return Some(TypeScript::Node { flag: false }),
            Some((22 | 23, minor)) if minor >= 6 => return Some(TypeScript::Node { flag: true }),
            _ => {}
        }
        let is_usable = |name: &&str| match *name {
            "esbuild" | "tsc" => self.has(name) && self.has("node"),
            name => self.has(name),
        };
        let program = ["bun", "deno", "tsx", "esbuild", "tsc"].into_iter().find(is_usable)?;
        Some(TypeScript::Program(program))
    }
}

/// The program that runs TypeScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeScript {
    /// Node itself, with or without a flag.
    Node {
        /// Set if it needs `--experimental-strip-types`.
        flag: bool,
    },
    /// A program that runs or translates it.
    Program(&'static str),
}

async fn node_version(sandbox: &Sandbox) -> Result<Option<(u32, u32)>> {
    let mut text = Vec::new();
    let command = Command {
        program: Program::Argv(vec!["node".into(), "--version".into()]),
        cwd: Some("/".into()),
        env: Vec::new(),
        timeout: Some(VERSION_TIMEOUT),
        live_bytes: 64,
        stdin: false,
    };
    let finished = sandbox
        .run(command, &mut |output| {
            if let Output::Data(_, bytes) = output {
                text.extend_from_slice(bytes);
            }
        })
        .await?;
    let text = String::from_utf8_lossy(&text);
    let mut numbers = text.trim().trim_start_matches('v').split('.').map_while(|part| part.parse().ok());
    Ok((finished.outcome == Outcome::Exited(0)).then(|| Some((numbers.next()?, numbers.next()?))).flatten())
}

/// The file that remembers an image's toolchains on this machine, so that the next session can tell the model about them
/// before its sandbox is up.
#[derive(Debug, Clone)]
pub struct Remembered(PathBuf);

impl Remembered {
    /// The file for an image of a backend. What identifies the machine's own programs is part of `image` where they are shown.
    ///
    /// # Errors
    /// The user has no directory for caches.
    pub fn of(machine: &Machine, backend: &str, image: &str) -> Result<Self> {
        let name = hex::encode(Sha256::digest(format!("{backend}\0{image}")));
        Ok(Self(machine.cache_dir()?.join("toolchains").join(&name[..32])))
    }

    /// Returns what was seen last time.
    pub fn read(&self) -> Option<Toolchains> {
        let bytes = plain_file::read(&self.0, MAX_FILE, Links::Refuse).ok()?;
        let seen: Toolchains = serde_json::from_slice(&bytes).ok()?;
        Some(Toolchains { node: seen.node, ..Toolchains::of(seen.programs) })
    }

    /// Remembers what was seen. A cache that cannot be written costs nothing but the next session's knowledge.
    pub fn write(&self, seen: &Toolchains) {
        if self.read().as_ref() == Some(seen) {
            return;
        }
        let Some(directory) = self.0.parent() else { return };
        let Ok(text) = serde_json::to_vec(seen) else { return };
        let written = self.0.with_extension(format!("{}.new", std::process::id()));
        if paths::make_dir(directory).is_ok() && std::fs::write(&written, text).is_ok() {
            let _ = std::fs::rename(&written, &self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolchains(programs: &[&str], node: Option<(u32, u32)>) -> Toolchains {
        Toolchains { node, ..Toolchains::of(programs.iter().map(|name| (*name).to_owned())) }
    }

    #[test]
    fn a_language_is_there_with_all_that_it_needs() {
        let found = toolchains(&["python3", "java", "gcc", "rm", "esbuild"], None);
        assert_eq!(found.languages(), [Language::Python, Language::C]);
        assert!(!found.has("rm"), "nothing else is remembered");
    }

    #[test]
    fn node_runs_type_script_from_some_version_on() {
        let by_node = |version| toolchains(&["node"], Some(version)).type_script();
        assert_eq!(by_node((20, 19)), None);
        assert_eq!(by_node((22, 7)), Some(TypeScript::Node { flag: true }));
        assert_eq!(by_node((22, 18)), Some(TypeScript::Node { flag: false }));
        assert_eq!(by_node((24, 0)), Some(TypeScript::Node { flag: false }));
        let translated = toolchains(&["node", "esbuild"], None);
        assert_eq!(translated.type_script(), Some(TypeScript::Program("esbuild")));
    }
}
