//! The classes of a program's words, for a terminal that shows them in colours.
//!
//! The grammars are those that rules about code have (the feature `policy`), and as there they read in a subprocess that can
//! reach nothing: a text of the model's or of the sandbox's is not parsed in this process. Without them there are no colours.

#[cfg(feature = "grammars")]
mod read;

use anstyle::{AnsiColor, Style};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

/// The longest text that is read, in bytes.
const MAX_SOURCE: usize = 256 << 10;

/// A language that has a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grammar {
    Shell,
    Python,
    /// And JSON, which is a part of it.
    JavaScript,
    TypeScript,
    Rust,
    Go,
    Ruby,
}

/// The class of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    Comment,
    Keyword,
    Text,
    Number,
    Type,
    Function,
}

impl Class {
    /// How a word looks that has the style `base` already: that of a removed or added line keeps its colour.
    pub fn style(self, base: Style) -> Style {
        let colour = |colour: AnsiColor| match base.get_fg_color() {
            Some(_) => base,
            None => base.fg_color(Some(colour.into())),
        };
        match self {
            Self::Comment => base.dimmed(),
            Self::Keyword => match base.get_fg_color() {
                Some(_) => base.bold(),
                None => colour(AnsiColor::Magenta),
            },
            Self::Text => colour(AnsiColor::Green),
            Self::Number => colour(AnsiColor::Cyan),
            Self::Type => colour(AnsiColor::Yellow),
            Self::Function => colour(AnsiColor::Blue),
        }
    }
}

impl Grammar {
    /// By a file's name.
    pub fn of_file(path: &Path) -> Option<Self> {
        Self::named(path.extension()?.to_str()?)
    }

    /// By its name or the ending of its files, as behind a code fence.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "sh" | "bash" | "shell" | "zsh" | "ksh" => Self::Shell,
            "py" | "python" | "python3" | "pyi" => Self::Python,
            "js" | "javascript" | "jsx" | "mjs" | "cjs" | "json" | "tsx" => Self::JavaScript,
            "ts" | "typescript" | "mts" | "cts" => Self::TypeScript,
            "rs" | "rust" => Self::Rust,
            "go" | "golang" => Self::Go,
            "rb" | "ruby" => Self::Ruby,
            _ => return None,
        })
    }
}

/// The words of a text that have a class, line by line: places in the line in bytes.
#[derive(Debug, Default)]
pub struct Lines(Vec<Vec<(Range<usize>, Class)>>);

impl Lines {
    /// Reads `text`; nothing has a class where it is too long or cannot be read in time.
    pub fn read(language: Grammar, text: &str) -> Self {
        if text.len() > MAX_SOURCE {
            return Self::default();
        }
        #[cfg(feature = "grammars")]
        let words = read::words(language, text);
        #[cfg(not(feature = "grammars"))]
        let words: Vec<(usize, usize, Class)> = {
            let _ = language;
            Vec::new()
        };
        Self::of(text, &words)
    }

    /// The words of one line, counted from 0, in order.
    pub fn line(&self, number: usize) -> &[(Range<usize>, Class)] {
        self.0.get(number).map_or(&[], Vec::as_slice)
    }

    fn of(text: &str, words: &[(usize, usize, Class)]) -> Self {
        let (mut lines, mut start, mut next) = (Vec::new(), 0, 0);
        for line in text.split_inclusive('\n') {
            let end = start + line.len();
            let content = start + line.trim_end_matches('\n').len();
            let mut found: Vec<(Range<usize>, Class)> = Vec::new();
            while let Some((from, to, class)) = words.get(next).filter(|(from, ..)| *from < end) {
                let (from, here) = (from.max(&start) - start, to.min(&content).saturating_sub(start));
                let is_new = found.last().is_none_or(|(last, _)| last.end <= from);
                // What comes from the subprocess is checked like any other answer.
                if from < here && is_new && line.is_char_boundary(from) && line.is_char_boundary(here) {
                    found.push((from..here, *class));
                }
                // A word of several lines continues in the next one.
                if *to > end {
                    break;
                }
                next += 1;
            }
            lines.push(found);
            start = end;
        }
        Self(lines)
    }
}

#[cfg(all(test, feature = "grammars"))]
mod tests {
    use super::{Class, Grammar, Lines};

    /// The words of `text` with their classes.
    fn words(language: Grammar, text: &str) -> Vec<(String, Class)> {
        let lines = Lines::read(language, text);
        let word = |line: &str, number| -> Vec<(String, Class)> {
            lines.line(number).iter().map(|(range, class)| (line[range.clone()].to_owned(), *class)).collect()
        };
        text.lines().enumerate().flat_map(|(number, line)| word(line, number)).collect()
    }

    #[test]
    fn words_have_classes_in_every_language() {
        let rust =
            words(Grammar::Rust, "// ä\nfn add(a: u32) -> u32 { a + 1 } // \"x\"\nlet s = \"two\nlines\";");
        for expected in [
            ("// ä", Class::Comment),
            ("fn", Class::Keyword),
            ("add", Class::Function),
            ("u32", Class::Type),
            ("1", Class::Number),
            ("\"two", Class::Text),
            ("lines\"", Class::Text),
        ] {
            assert!(rust.contains(&(expected.0.to_owned(), expected.1)), "{expected:?} in {rust:?}");
        }
        for (language, text, keyword) in [
            (Grammar::Python, "def f(x):\n    return 'text'  # why\n", "return"),
            (Grammar::JavaScript, "const f = (x) => 'text'; // why\n", "const"),
            (Grammar::TypeScript, "const f = <T>(x: T) => 'text'; // why\n", "const"),
            (Grammar::Go, "package main\nvar x = \"text\" // why\n", "var"),
            (Grammar::Ruby, "def f\n  'text' # why\nend\n", "def"),
            (Grammar::Shell, "if true; then echo 'text'; fi # why\n", "if"),
        ] {
            let words = words(language, text);
            let has =
                |word: &str, class| words.iter().any(|(found, is)| found.contains(word) && *is == class);
            assert!(has(keyword, Class::Keyword), "{language:?}: {words:?}");
            assert!(has("text", Class::Text) && has("why", Class::Comment), "{language:?}: {words:?}");
        }
    }

    #[test]
    fn a_text_that_no_grammar_reads_has_no_classes_and_ends() {
        let nested = "(".repeat(100_000);
        assert!(Lines::read(Grammar::JavaScript, &nested).line(0).len() <= nested.len());
        assert!(Lines::read(Grammar::Rust, &"x".repeat(1 << 20)).line(0).is_empty());
    }

    #[test]
    fn a_broken_answer_breaks_nothing() {
        let words = [(0, 90, Class::Text), (1, 2, Class::Type), (5, 4, Class::Type), (50, 60, Class::Type)];
        let lines = Lines::of("ä\nb\n", &words);
        assert_eq!(lines.line(0), [(0..2, Class::Text)]);
        assert_eq!(lines.line(1), [(0..1, Class::Text)]);
    }
}
