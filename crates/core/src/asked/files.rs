//! The files that a prompt names, and what it says of each.

use super::{NEGATES, bare, ends_sentence, removes, words};
use crate::small_model::names;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Files of a prompt that are looked for.
const MAX_FILES: usize = 6;
/// Words between a verb and the name of the file that it makes.
const MAX_BETWEEN: usize = 8;

/// The names of files in a prompt, relative to the workspace.
pub fn files_named(prompt: &str) -> Vec<PathBuf> {
    let names = names(prompt, "");
    names.into_iter().filter(|name| is_file_name(name)).take(MAX_FILES).collect()
}

/// The names of files in a prompt, for the reminder that one is missing: relative to the workspace.
pub fn files_asked_for(prompt: &str) -> Vec<PathBuf> {
    if removes(prompt) {
        return Vec::new();
    }
    files_named(prompt)
}

/// The files that a prompt says to write, without doubt: `write hello.py`, `a script named area.py` behind "create".
pub fn files_to_make(prompt: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // Words since the verb; `None` where there is none that the next name belongs to.
    let (mut since, mut is_negated) = (None, false);
    for word in prompt.split_whitespace() {
        let bare = bare(word);
        let name = names(word, "").into_iter().find(|name| is_file_name(name));
        since = match (name, since) {
            (Some(name), Some(_)) => {
                found.push(name);
                None
            }
            _ if MAKES.contains(&bare.as_str()) && !is_negated => Some(0),
            _ if ends_sentence(word) || OTHER_FILES.contains(&bare.as_str()) => None,
            (_, since) => since.map(|words: usize| words + 1).filter(|words| *words < MAX_BETWEEN),
        };
        is_negated = NEGATES.contains(&bare.as_str());
    }
    found.truncate(MAX_FILES);
    found
}

/// The files that a prompt says a program reads: `upper.py that reads names.txt`.
pub fn files_a_program_reads(prompt: &str) -> Vec<PathBuf> {
    let mut follows_verb = false;
    let mut found: Vec<PathBuf> = Vec::new();
    for word in prompt.split_whitespace() {
        let name = names(word, "").into_iter().find(|name| is_file_name(name));
        found.extend(name.filter(|_| follows_verb));
        follows_verb =
            READS.contains(&bare(word).as_str()) || follows_verb && ARTICLES.contains(&bare(word).as_str());
    }
    found.truncate(MAX_FILES);
    found
}

/// Whether a file is named behind `to` or `into`: `Add a function to a.py`.
pub fn is_written_into(prompt: &str, file: &Path) -> bool {
    let mut follows = false;
    prompt.split_whitespace().any(|word| {
        let is_it = follows && names(word, "").iter().any(|name| name == file);
        let bare = bare(word);
        follows = ["into", "to"].contains(&bare.as_str()) || follows && ARTICLES.contains(&bare.as_str());
        is_it
    })
}

/// Whether a prompt is about files, and not about other entries of a directory.
pub fn is_about_files(prompt: &str) -> bool {
    let others = ["directories", "entries", "folders", "subdirectories"];
    words(prompt).any(|word| word == "files") && !words(prompt).any(|word| others.contains(&word.as_str()))
}

/// A line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Its first one.
    First,
    /// Its last one.
    Last,
}

/// The line that a prompt asks for: `the first line of a.txt`.
pub fn line_asked_for(prompt: &str) -> Option<Line> {
    const EXCEPT: [&str; 8] = ["after", "but", "each", "every", "except", "not", "skip", "without"];
    let words: Vec<String> = words(prompt).collect();
    if words.iter().any(|word| EXCEPT.contains(&word.as_str())) {
        return None;
    }
    words.windows(2).find_map(|pair| match (pair[0].as_str(), pair[1].as_str()) {
        ("first", "line") => Some(Line::First),
        ("last", "line") => Some(Line::Last),
        _ => None,
    })
}

/// Whether a word is the name of a file, with an extension of letters: not a version, a host or an abbreviation.
pub(super) fn is_file_name(name: &Path) -> bool {
    let (Some(stem), Some(extension)) = (name.file_stem(), name.extension()) else { return false };
    let is_letters = |text: &OsStr| text.as_encoded_bytes().iter().all(u8::is_ascii_alphabetic);
    let is_known = EXTENSIONS.iter().any(|known| extension == *known);
    is_known && is_letters(extension) && stem.len() + extension.len() > 2
}

/// Verbs that make the file that is named behind them.
const MAKES: [&str; 14] = [
    "add", "build", "code", "compose", "create", "develop", "draft", "generate", "make", "prepare",
    "produce", "put", "save", "write",
];
/// Words behind which another file is named.
const OTHER_FILES: [&str; 14] = [
    "about", "as", "for", "from", "how", "if", "like", "of", "reads", "that", "using", "what", "which",
    "with",
];
/// What a program does with a file that is there, and what may stand between the verb and the name.
const READS: [&str; 4] = ["loads", "opens", "parses", "reads"];
pub(super) const ARTICLES: [&str; 4] = ["data", "file", "from", "the"];
/// Extensions of files that tasks name.
const EXTENSIONS: [&str; 24] = [
    "c", "cfg", "cpp", "css", "csv", "go", "h", "html", "ini", "java", "js", "json", "log", "md", "py", "rb",
    "rs", "sh", "sql", "toml", "ts", "txt", "xml", "yaml",
];
