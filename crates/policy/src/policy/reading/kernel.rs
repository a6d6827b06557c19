//! Files of the kernel that it obeys, and those through which a process can be written to: no word of a script leads there.

use super::super::findings::Word;
use super::judgement::is_nowhere;
use super::plain;
use super::proven::{Read, refuse};

/// The longest word whose globs are compared with names, in bytes: one of another may match any. And the letters of globs.
const MAX_GLOB: usize = 256;
const GLOB: [char; 4] = ['*', '?', '[', '{'];
/// Files whose text tells about the machine, below `/proc`.
const ABOUT_MACHINE: [&str; 9] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/version",
    "/proc/mounts",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/self/status",
    "/proc/self/cgroup",
    "/proc/sys/kernel/osrelease",
];

/// Refuses commands with these words, whose output goes to these targets, where they may write to such a file; so they may to one that a
/// variable is given.
pub fn check(commands: &[Vec<Word>], targets: &[Vec<Word>], given: &[Word]) -> Read<()> {
    let (mut is_at_root, mut writes_here, mut writes) = (false, false, false);
    for (words, targets) in commands.iter().zip(targets) {
        let may_write = words.first().is_some_and(|program| !plain::writes_nothing(&program.text));
        let mut written = words.iter().filter(|_| may_write).chain(targets);
        if words.iter().chain(targets).any(is_of_process) || written.any(is_of_kernel) {
            return refuse("a file of a process");
        }
        if fills_root(words) {
            return refuse("a command that may write anywhere below the root");
        }
        if may_link(words) {
            return refuse("another name of a file of a process");
        }
        writes |= may_write && words.len() > 1 || targets.iter().any(|target| !is_nowhere(target));
        is_at_root |= goes_to_root(words);
        let operands = words.iter().skip(1).filter(|_| may_write && !changes_place(words));
        writes_here |= operands.chain(targets).any(is_relative);
    }
    if is_at_root && writes_here {
        return refuse("a relative path that may lead to a file of a process");
    }
    let is_set = |words: &&Vec<Word>| words.first().is_some_and(|program| program.text == "set");
    let mut given = given.iter().chain(commands.iter().filter(is_set).flatten());
    if writes && given.any(|word| is_root(&word.text) || is_of_process(word) || is_of_kernel(word)) {
        return refuse("a variable that may lead to a file of a process");
    }
    Ok(())
}

/// The parts of a path.
fn parts(text: &str) -> Vec<&str> {
    let is_part = |(at, part): &(usize, &str)| *at == 0 || !matches!(*part, "" | ".");
    text.split('/').enumerate().filter(is_part).map(|(_, part)| part).collect()
}

/// The parts of a path below a directory that lies at the root, or may lie there.
fn below_root(text: &str, is_it: impl Fn(&str) -> bool) -> Option<Vec<&str>> {
    let parts = parts(text);
    let is_root = |at: usize| {
        let before = parts[at];
        before == ".."
            || before.ends_with(['=', ':'])
            || at == 0 && (before.is_empty() || before.starts_with('-'))
    };
    let at = (1..parts.len()).find(|&at| is_it(parts[at]) && is_root(at - 1))?;
    Some(parts[at + 1..].to_vec())
}

/// Returns whether a part of a path is a name, or a glob that may match it: a bracket or brace stands for anything.
fn may_be(part: &[u8], name: &[u8]) -> bool {
    match (part, name) {
        ([b'[' | b'{', ..], _) => true,
        ([b'*', rest @ ..], _) => {
            let is_end = rest.first() == Some(&b'*') || name.is_empty();
            may_be(rest, name) || !is_end && may_be(part, &name[1..])
        }
        ([b'?', rest @ ..], [_, name @ ..]) => may_be(rest, name),
        ([one, rest @ ..], [other, name @ ..]) => one == other && may_be(rest, name),
        _ => part.is_empty() && name.is_empty(),
    }
}

/// Compares parts of a word with names; its globs are none where the shell does not change it.
fn matcher(word: &Word) -> impl Fn(&str, &str) -> bool {
    let (may_change, is_long) = (!word.fixed, word.text.len() > MAX_GLOB);
    move |part, name| {
        let is_glob = may_change && part.contains(GLOB);
        part == name || is_glob && (is_long || may_be(part.as_bytes(), name.as_bytes()))
    }
}

/// Returns whether a word names a file of `/proc` through which a process can be written to, or may do so.
fn is_of_process(word: &Word) -> bool {
    let text = word.text.as_str();
    let is_glob_at_root = !word.fixed && text.starts_with('/') && {
        let first = text.trim_start_matches('/').split('/').next().unwrap_or_default();
        first.contains(GLOB)
    };
    let is_memory = text == "mem" || text.ends_with("/mem") || text.ends_with("=mem");
    (below_root(text, |part| part == "proc").is_some() && !ABOUT_MACHINE.contains(&text))
        || is_glob_at_root
        || is_memory
        || text == "proc"
        || text.starts_with("proc/")
}

/// Returns whether a word leads to what the kernel obeys, or to the files that a process has open: `/dev/fd` is a directory of `/proc`, and so
/// is what lies above it.
fn is_of_kernel(word: &Word) -> bool {
    let (text, is) = (word.text.as_str(), matcher(word));
    let is_glob = |part: &str| !word.fixed && part.contains(GLOB);
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = |part: &str| {
        let has_others = part.contains(|c: char| !c.is_ascii_digit() && !matches!(c, '*' | '?'));
        is_digits(part) || is_glob(part) && (!has_others || part.contains(['[', '{']))
    };
    let is_process =
        |part: &str| is_number(part) || is_glob(part) || part.contains('$') || part.ends_with("self");
    let parts = parts(text);
    let is_open_file = |at: usize| {
        let next = parts.get(at + 2);
        match parts[at + 1] {
            "fd" => is_process(parts[at]),
            ".." => is(parts[at], "fd"),
            file => is(file, "fd") && is_process(parts[at]) && next.is_some_and(|next| is_number(next)),
        }
    };
    let is_device = match below_root(text, |part| is(part, "dev")).as_deref() {
        None => false,
        Some([]) => true,
        Some(["fd", file]) => file.len() > 1 || !is_digits(file),
        Some(rest) => is(rest[0], "fd") || rest.contains(&".."),
    };
    let is_computed_at_root =
        !word.fixed && parts[0].is_empty() && parts.get(1).is_some_and(|part| part.contains('$'));
    is_device
        || is_computed_at_root
        || below_root(text, |part| is(part, "sys") || is_glob(part) && is(part, "proc")).is_some()
        || (1..parts.len()).any(|at| is_open_file(at - 1))
        || matches!(parts.as_slice(), ["fd", file] if is_number(file))
}

/// Returns whether a command may give another name to a file that a process has open, which no word leads to any more.
fn may_link(words: &[Word]) -> bool {
    let is_link = |word: &Word| {
        let is = matcher(word);
        let rest = below_root(&word.text, |part| is(part, "dev"));
        let is_open = |file: &str| ["fd", "stdin", "stdout", "stderr"].iter().any(|name| is(file, name));
        rest.is_some_and(|rest| rest.first().is_some_and(|file| is_open(file)))
    };
    words.first().is_some_and(|program| matches!(program.text.as_str(), "ln" | "cp" | "mv"))
        && words.iter().any(is_link)
}

/// Returns whether a command may go to a place from which a relative path leads to such files.
fn goes_to_root(words: &[Word]) -> bool {
    let is_there = |word: &Word| {
        let is = matcher(word);
        let mut parts = word.text.split('/').filter(|part| !matches!(*part, "" | "."));
        let has_above = word.text.split('/').any(|part| part == "..");
        let is_root =
            |part: &str| part.contains('$') || ["dev", "proc", "sys"].iter().any(|name| is(part, name));
        word.text.starts_with('/') && (has_above || parts.next().is_none_or(is_root))
            || word.text.starts_with('~') && has_above
    };
    changes_place(words) && words.iter().any(is_there)
}

fn is_root(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| matches!(byte, b'/' | b'.'))
}

/// Returns whether a command may write files below the root whose names stand elsewhere: `tar -C / -xf a.tar`, `find / … -exec cp f {} ;`.
fn fills_root(words: &[Word]) -> bool {
    let is_there = |word: &Word| {
        let value = match word.text.split_once('=') {
            Some((_, value)) => value,
            None => word.text.trim_start_matches(|c: char| c == '-' || c.is_ascii_alphabetic()),
        };
        is_root(&word.text) || word.is_flag() && is_root(value)
    };
    let runs =
        || words.iter().any(|word| matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir"));
    let may_fill = match words.first().map_or("", |program| program.text.as_str()) {
        "cp" | "mv" | "tar" | "unzip" | "install" => true,
        "find" => runs(),
        _ => false,
    };
    may_fill && words.iter().any(is_there)
}

fn changes_place(words: &[Word]) -> bool {
    let mut names = words.iter().map(|word| word.text.as_str());
    let name = names.find(|name| !matches!(*name, "builtin" | "command"));
    name.is_some_and(|name| matches!(name, "cd" | "pushd" | "popd"))
}

/// Returns whether a word may be a path that is not absolute, or hold one behind the letter of an option.
fn is_relative(word: &Word) -> bool {
    match word.text.starts_with('-') {
        true => word.text.contains('=') || !word.text.starts_with("--") && word.text.len() > 3,
        false => !word.text.starts_with('/'),
    }
}
