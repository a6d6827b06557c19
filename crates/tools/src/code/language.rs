//! The languages, and what each needs in the sandbox.

use std::path::Path;

/// A language that code can be run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Keeps its state between calls.
    Python,
    /// Keeps its state between calls.
    JavaScript,
    TypeScript,
    Java,
    Cpp,
    Go,
    Ruby,
    C,
    Rust,
    R,
    Bash,
}

impl Language {
    /// All of them, in the order in which they are named.
    pub const ALL: [Self; 11] = [
        Self::Python,
        Self::JavaScript,
        Self::TypeScript,
        Self::Java,
        Self::Cpp,
        Self::Go,
        Self::Ruby,
        Self::C,
        Self::Rust,
        Self::R,
        Self::Bash,
    ];

    /// The name as the model and the command line have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::Java => "java",
            Self::Cpp => "cpp",
            Self::Go => "go",
            Self::Ruby => "ruby",
            Self::C => "c",
            Self::Rust => "rust",
            Self::R => "r",
            Self::Bash => "bash",
        }
    }

    /// The language of that name or alias, whatever its case.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text.trim().to_ascii_lowercase().as_str() {
            "python" | "python3" | "py" | "ipython" => Self::Python,
            "javascript" | "js" | "node" | "nodejs" | "mjs" | "cjs" => Self::JavaScript,
            "typescript" | "ts" => Self::TypeScript,
            "java" => Self::Java,
            "cpp" | "c++" | "cxx" | "cc" | "g++" => Self::Cpp,
            "go" | "golang" => Self::Go,
            "ruby" | "rb" => Self::Ruby,
            "c" | "gcc" => Self::C,
            "rust" | "rs" => Self::Rust,
            "r" | "rscript" => Self::R,
            "bash" | "sh" | "shell" => Self::Bash,
            _ => return None,
        })
    }

    /// The language of a file, by its extension.
    pub fn of_path(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "py" => Self::Python,
            "js" | "mjs" | "cjs" => Self::JavaScript,
            "ts" | "mts" | "cts" => Self::TypeScript,
            "java" => Self::Java,
            "cpp" | "cc" | "cxx" | "C" => Self::Cpp,
            "go" => Self::Go,
            "rb" => Self::Ruby,
            "c" => Self::C,
            "rs" => Self::Rust,
            "r" | "R" => Self::R,
            "sh" | "bash" => Self::Bash,
            _ => return None,
        })
    }

    /// The language of a first line like `#!/usr/bin/env python3`.
    pub fn of_shebang(code: &str) -> Option<Self> {
        let line = code.strip_prefix("#!")?.lines().next()?;
        let names = line.split_whitespace().filter_map(|word| word.rsplit('/').next());
        names.filter(|name| *name != "env").find_map(|name| {
            Self::parse(name)
                .or_else(|| Self::parse(name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')))
        })
    }

    /// Returns whether variables, imports and functions are kept from one call to the next.
    pub fn keeps_state(self) -> bool {
        matches!(self, Self::Python | Self::JavaScript)
    }

    /// The extension of its files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Python => "py",
            Self::JavaScript => "js",
            Self::TypeScript => "ts",
            Self::Java => "java",
            Self::Cpp => "cpp",
            Self::Go => "go",
            Self::Ruby => "rb",
            Self::C => "c",
            Self::Rust => "rs",
            Self::R => "R",
            Self::Bash => "sh",
        }
    }

    /// Returns what brings it where it is missing: an image, Debian's package.
    pub fn brought_by(self) -> (&'static str, &'static str) {
        match self {
            Self::Python => ("python:3", "python3"),
            Self::JavaScript => ("node:22", "nodejs"),
            Self::TypeScript => ("node:24", "esbuild"),
            Self::Java => ("eclipse-temurin:21", "default-jdk-headless"),
            Self::Cpp => ("gcc:14", "g++"),
            Self::Go => ("golang:1", "golang-go"),
            Self::Ruby => ("ruby:3", "ruby"),
            Self::C => ("gcc:14", "gcc"),
            Self::Rust => ("rust:1", "rustc"),
            Self::R => ("r-base", "r-base-core"),
            Self::Bash => ("debian:stable", "bash"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_the_usual_aliases_are_understood() {
        for language in Language::ALL {
            assert_eq!(Language::parse(language.name()), Some(language));
            let file = format!("a.{}", language.extension());
            assert_eq!(Language::of_path(Path::new(&file)), Some(language), "{file}");
        }
        for (alias, language) in [
            ("py", Language::Python),
            ("JS", Language::JavaScript),
            ("node", Language::JavaScript),
            ("C++", Language::Cpp),
            (" golang ", Language::Go),
            ("sh", Language::Bash),
        ] {
            assert_eq!(Language::parse(alias), Some(language), "{alias}");
        }
        assert_eq!(Language::parse("cobol"), None);
    }

    #[test]
    fn a_first_line_names_the_language() {
        for (line, language) in [
            ("#!/usr/bin/env python3\n", Some(Language::Python)),
            ("#!/usr/bin/python3.11\n", Some(Language::Python)),
            ("#!/usr/bin/env -S node --no-warnings\n", Some(Language::JavaScript)),
            ("#!/bin/bash", Some(Language::Bash)),
            ("#!/usr/bin/perl\n", None),
            ("print(1)", None),
        ] {
            assert_eq!(Language::of_shebang(line), language, "{line}");
        }
    }
}
