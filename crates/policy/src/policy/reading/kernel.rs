//! Files of the kernel that it obeys, and those through which a process can be written to: no word of a script leads there.

use super::super::findings::{Becomes, Word};
use super::places::{MARK, MaybePath, places, tokens};
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

/// Names of files that the kernel obeys, wherever a link makes them lie.
const OBEYED: [&str; 4] = ["uevent_helper", "core_pattern", "release_agent", "poweroff_cmd"];

/// The words of a script, where each [`MARK`] stands for nothing.
pub struct Words<'w> {
    /// Its commands.
    pub commands: &'w [Vec<Word>],
    /// The files that they are redirected to.
    pub targets: Vec<Word>,
    /// Texts that variables are given.
    pub given: Vec<Word>,
    /// Texts that commands print, and others take for words.
    pub printed: Vec<Word>,
}

/// Refuses a script that may write to such a file, by its own name, a relative one or one that a variable is given.
pub fn check(script: &Words<'_>) -> Read<()> {
    let commands: Vec<Vec<Word>> =
        script.commands.iter().flat_map(|words| plain::with_wrapped(words)).collect();
    // What is asked about by its name may write anything.
    let judged = || commands.iter().filter(|words| plain::is_judged(words));
    if judged().any(|words| fills_root(words)) {
        return refuse("a command that may write anywhere below the root");
    }
    if judged().any(|words| may_link(words)) {
        return refuse("another name of a file of a process, or of the root");
    }
    let written: Vec<Word> = judged().flat_map(|words| written(words)).collect();
    let is_it = |place: &MaybePath| is_of_process(place) || is_of_kernel(place);
    let is_led = |word: &Word| places(word).iter().any(is_it);
    if written.iter().chain(&script.targets).any(is_led) {
        return refuse("a file of a process");
    }
    let moves = || judged().filter(|words| changes_place(words));
    let goes_up = |word: &Word| {
        parts(&word.text).contains(&"..") || places(word).iter().any(|place| is_root(&place.word.text))
    };
    let is_above = moves().flatten().any(goes_up);
    let is_at_root = moves().any(|words| goes_to_root(words, is_above));
    let is_move = |words: &&Vec<Word>| !changes_place(words);
    let mut operands =
        judged().filter(is_move).flat_map(|words| written_below(words)).chain(script.targets.clone());
    if is_at_root && operands.clone().any(|word| is_relative(&word))
        || is_above && operands.any(|word| is_below_root(&word))
    {
        return refuse("a relative path that may lead to a file of a process");
    }
    // Where no word that may be written to is open, no variable is a part of one.
    let is_open = written.iter().chain(&script.targets).any(|word| !word.fixed);
    let is_given = |word: &Word| {
        places(word).iter().any(|place| is_it(place) || !place.is_rest && may_begin_there(&place.word.text))
            || tokens(word).iter().any(is_led)
    };
    let is_printed = |word: &Word| is_led(word) || may_be_open(word);
    if is_open && (script.given.iter().any(is_given) || script.printed.iter().any(is_printed)) {
        return refuse("a variable that may lead to a file of a process");
    }
    Ok(())
}

/// The words of a command that may name a file which it writes to.
fn written(words: &[Word]) -> Vec<Word> {
    let Some((program, arguments)) = words.split_first().filter(|_| !plain::only_reads(words)) else {
        return Vec::new();
    };
    match program.text.as_str() {
        // Of its program, strings may be names of files.
        "awk" | "gawk" | "mawk" | "nawk" => {
            let (programs, others): (Vec<&Word>, Vec<&Word>) =
                arguments.iter().partition(|word| word.text.contains('>'));
            let strings = programs.into_iter().flat_map(|word| word.text.split('"').skip(1).step_by(2));
            strings.map(Word::fixed).chain(others.into_iter().cloned()).collect()
        }
        // What curl puts in may be anything, and its braces are words.
        "curl"
            if arguments.iter().any(|word| {
                word.text.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            }) =>
        {
            arguments
                .iter()
                .map(|word| Word::changed(word.text.replace('#', "$"), Becomes::Any))
                .chain(arguments.iter().flat_map(tokens))
                .collect()
        }
        _ => arguments.to_vec(),
    }
}

/// The same where a directory may be one at the root: to a shell, each word of its code.
fn written_below(words: &[Word]) -> Vec<Word> {
    let is_shell = words.first().is_some_and(|program| plain::is_shell(&program.text));
    let written = written(words);
    let inner: Vec<Word> = written.iter().filter(|_| is_shell).flat_map(tokens).collect();
    written.into_iter().chain(inner).collect()
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

/// Returns whether it names a file of `/proc` through which a process can be written to, or one that the kernel obeys, or may do so.
fn is_of_process(place: &MaybePath) -> bool {
    let (text, is) = (place.word.text.as_str(), matcher(&place.word));
    let parts = parts(text);
    let is_glob_at_root = !place.is_rest && !place.word.fixed && text.starts_with('/') && {
        let first = text.trim_start_matches('/').split('/').next().unwrap_or_default();
        first.contains(GLOB)
    };
    // The root may have other names, too.
    let is_below = |at: usize| match (parts[at], parts[at + 1]) {
        ("sys", next) => next == "kernel",
        ("proc", "sys") => true,
        ("proc", next) => {
            is_process(&place.word, next)
                && (parts.len() > at + 2 || !next.contains('$') && !next.contains(GLOB))
        }
        _ => false,
    };
    let last = parts[parts.len() - 1];
    let is_memory = match parts.len() {
        1 => text == "mem" || text.ends_with("=mem"),
        count => {
            last.contains(char::is_alphabetic) && is(last, "mem") && is_process(&place.word, parts[count - 2])
        }
    };
    (below_root(text, |part| part == "proc").is_some() && !ABOUT_MACHINE.contains(&text))
        || is_glob_at_root
        || is_memory
        || OBEYED.contains(&last)
        || (1..parts.len()).any(|at| is_below(at - 1))
}

/// Returns whether a part of a word may be the directory of a process.
fn is_process(word: &Word, part: &str) -> bool {
    let is_digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    is_digits || !word.fixed && part.contains(GLOB) || part.contains('$') || part.ends_with("self")
}

/// Returns whether a word leads to what the kernel obeys, or to the files that a process has open: `/dev/fd` is a directory of `/proc`, and so
/// is what lies above it.
fn is_of_kernel(place: &MaybePath) -> bool {
    let (word, text) = (&place.word, place.word.text.as_str());
    let is_glob = |part: &str| !word.fixed && part.contains(GLOB);
    // Behind what is usually not empty, a glob of any name means files of the project.
    let matches = matcher(word);
    let is = |part: &str, name: &str| {
        let is_any =
            place.is_rest && is_glob(part) && (!part.contains(char::is_alphabetic) || text.ends_with(part));
        !is_any && matches(part, name)
    };
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = |part: &str| {
        let has_others = part.contains(|c: char| !c.is_ascii_digit() && !matches!(c, '*' | '?'));
        is_digits(part) || is_glob(part) && (!has_others || part.contains(['[', '{']))
    };
    let parts = parts(text);
    let is_open_file = |at: usize| {
        let next = parts.get(at + 2);
        match parts[at + 1] {
            "fd" => is_process(word, parts[at]),
            ".." => matches(parts[at], "fd"),
            file => {
                matches(file, "fd") && is_process(word, parts[at]) && next.is_some_and(|next| is_number(next))
            }
        }
    };
    let is_device = match below_root(text, |part| is(part, "dev")).as_deref() {
        None => false,
        Some([]) => true,
        Some(["fd", file]) => file.len() > 1 || !is_digits(file),
        Some(rest) => is(rest[0], "fd") || rest.contains(&".."),
    };
    let is_computed_at_root = !place.is_rest
        && !word.fixed
        && parts[0].is_empty()
        && parts.get(1).is_some_and(|part| part.contains('$'));
    is_device
        || is_computed_at_root
        || below_root(text, |part| is(part, "sys") || is(part, "proc") && part != "proc").is_some()
        || (1..parts.len()).any(|at| is_open_file(at - 1))
        || matches!(parts.as_slice(), ["fd", file] if is_number(file))
}

/// Returns whether a command may give another name to a file that a process has open, or to the root, which no word leads to any more.
fn may_link(words: &[Word]) -> bool {
    let name = words.first().map_or("", |program| plain::name_of(&program.text));
    let is_open =
        |word: &Word| may_be_open(word) || places(word).iter().any(|place| may_be_open(&place.word));
    let is_above = |word: &Word| {
        places(word).iter().any(|place| is_root(&place.word.text) || is_above(&place.word.text))
    };
    match name {
        "ln" => words[1..].iter().any(|word| is_open(word) || is_above(word)),
        "cp" | "mv" | "tar" => words.iter().any(is_open),
        _ => false,
    }
}

/// Returns whether a word may be an open file of the process itself, below a directory that may be the root by another name.
fn may_be_open(word: &Word) -> bool {
    let (is, parts) = (matcher(word), parts(&word.text));
    let is_open = |file: &str| ["fd", "stdin", "stdout", "stderr"].iter().any(|name| is(file, name));
    let of_root = below_root(&word.text, |part| is(part, "dev"));
    of_root.is_some_and(|rest| rest.first().is_some_and(|file| is_open(file)))
        || parts.windows(2).any(|pair| pair[0] == "dev" && ["stdin", "stdout", "stderr"].contains(&pair[1]))
}

/// Returns whether a command goes to a place from which a relative path leads to such files, given whether others go upwards.
fn goes_to_root(words: &[Word], is_above: bool) -> bool {
    let is_there = |place: &MaybePath| {
        let (text, is) = (place.word.text.as_str(), matcher(&place.word));
        let mut parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
        let has_above = text.split('/').any(|part| part == "..");
        let is_root = |part: &str| {
            part.contains('$') && !place.is_rest || ["dev", "proc", "sys"].iter().any(|name| is(part, name))
        };
        let leads = !place.is_rest && has_above || parts.next().map_or(!place.is_rest, is_root);
        text.starts_with('/') && leads || text.starts_with('~') && has_above
    };
    let is_name = |place: &MaybePath| {
        let (parts, is) = (parts(&place.word.text), matcher(&place.word));
        place.is_rest
            && ["dev", "proc", "sys"].iter().any(|name| parts.get(1).is_some_and(|part| is(part, name)))
    };
    let is_below = |word: &Word| is_above && places(&below(word)).iter().any(is_name);
    words[1..].iter().any(|word| places(word).iter().any(is_there) || is_below(word))
}

/// A relative path as one at the root.
fn below(word: &Word) -> Word {
    Word { text: format!("{MARK}/{}", word.text), fixed: false, ..word.clone() }
}

/// Returns whether a relative path leads to such a file from the root.
fn is_below_root(word: &Word) -> bool {
    let rest = places(&below(word)).into_iter().filter(|place| place.is_rest);
    !word.text.starts_with('/')
        && rest
            .into_iter()
            .any(|place| is_of_process(&place) || is_of_kernel(&place) || may_be_open(&place.word))
}

/// Returns whether a path is the root for sure.
fn is_root(text: &str) -> bool {
    let mut depth = 0_usize;
    for part in text.split('/').filter(|part| !matches!(*part, "" | ".")) {
        depth = if part == ".." { depth.saturating_sub(1) } else { depth + 1 };
    }
    text.starts_with('/') && depth == 0
}

/// Returns whether a text is the root, or the beginning of such a file's name.
fn may_begin_there(text: &str) -> bool {
    is_root(text)
        || text.starts_with('/') && ["/proc", "/sys", "/dev"].iter().any(|name| name.starts_with(text))
}

/// Returns whether a path is nothing but directories above the own one, or above that of a user.
fn is_above(text: &str) -> bool {
    let mut parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
    let is_relative = !text.starts_with('/') && text.contains("..");
    is_relative && parts.all(|part| part == ".." || part.starts_with('~'))
}

/// Returns whether a command may write files below the root whose names stand elsewhere: `tar -C / -xf a.tar`, `find / … -exec cp f {} ;`.
fn fills_root(words: &[Word]) -> bool {
    let name = words.first().map_or("", |program| plain::name_of(&program.text));
    // To a parent alone, much is copied.
    let is_high = |text: &str| {
        is_root(text) || is_above(text) && (name == "find" || name != "git" && text.matches("..").count() > 1)
    };
    let is_there = |place: &MaybePath| {
        let text = place.word.text.as_str();
        let value = match text.split_once('=') {
            Some((_, value)) => value,
            None => text.trim_start_matches(|c: char| c == '-' || c.is_ascii_alphabetic()),
        };
        !place.is_rest && (is_high(text) || place.word.is_flag() && is_high(value))
    };
    let arguments = words.get(1..).unwrap_or_default();
    let has = |is_it: &dyn Fn(&str) -> bool| arguments.iter().any(|word| is_it(&word.text));
    let names_any = match name {
        "tar" => has(&|text| text.starts_with("--ab")) || plain::tar_letters(arguments).contains('P'),
        "unzip" => has(&|text| text.starts_with('-') && text.contains(':')),
        "git" => has(&|text| text.starts_with("--unsafe")),
        _ => false,
    };
    let may_fill = match name {
        "tar" => plain::tar_letters(arguments).contains('x'),
        "cp" | "mv" | "unzip" | "install" | "curl" | "wget" | "find" | "git" => !plain::only_reads(words),
        _ => false,
    };
    may_fill && (names_any || arguments.iter().flat_map(places).any(|place| is_there(&place)))
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
