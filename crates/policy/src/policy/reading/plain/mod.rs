//! Programs of which it is known what they run: nothing, or what their arguments say and is read.
//!
//! Everything else may run any program. A program is added here only where its manual names every way in which it starts another.

mod arguments;
mod git;
mod options;
mod wrapper;

use super::super::findings::{Language, Word};
use super::places::MARK;
use super::{clients, wrappers};
use options::lacks;
pub use wrapper::wrapped_words;

/// Where a program's file may lie for its name to mean what it usually means.
const DIRECTORIES: [&str; 4] = ["/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"];

/// Programs and built-ins that start no other program, whatever their arguments are.
const PLAIN: &str = "\
    : true false echo cd pwd pushd popd dirs return exit break continue shift fg bg kill umask ulimit \
    times type which whereis cat tac head tail wc nl od hexdump strings cut paste join tr uniq comm cmp diff rev fold fmt \
    expand unexpand column shuf seq sleep yes tee ls dir vdir stat du df touch mkdir rmdir rm cp mv ln unlink link chmod \
    chown chgrp truncate mktemp sync basename dirname realpath readlink pathchk cksum sum md5sum sha1sum sha224sum sha256sum \
    sha384sum sha512sum b2sum base32 base64 basenc gzip gunzip bzip2 bunzip2 xz unxz lzma zstd unzstd zcat bzcat xzcat unzip \
    grep egrep fgrep jq date cal uname arch hostname whoami id groups users who tty nproc uptime free ss netstat lsof ping bc uuidgen ps pgrep pkill pidof \
    printenv getconf locale clear expr factor numfmt tsort lscpu dig host shellcheck";

/// Those of them that take nothing from standard input, whatever their arguments are.
const WITHOUT_INPUT: &str = "\
    : true false echo cd pwd pushd popd dirs return exit break continue shift kill umask ulimit times type which whereis seq sleep yes \
    ls dir vdir stat df touch mkdir rmdir basename dirname realpath readlink uname arch hostname whoami id groups users tty nproc uptime \
    free ps pgrep pidof printenv getconf locale clear expr test [ printf set wait";

/// Programs that write to no file, whatever their arguments are, beside those.
const READERS: &str = "\
    cat tac head tail wc nl od hexdump strings cut paste join tr comm cmp diff rev fold fmt expand unexpand column grep egrep fgrep cksum \
    md5sum sha1sum sha256sum sha512sum base64 read";

/// Further ones that write to no file of the kernel, whatever their arguments are: some write into none that is there already.
const HARMLESS: &str = "\
    rg ps pgrep pidof jq date cal uuidgen locale numfmt tsort lscpu dig host shellcheck du netstat ping who uptime bc file \
    sum sha224sum sha384sum b2sum base32 basenc zcat bzcat xzcat nm objdump readelf docker kubectl gh aws systemctl journalctl nslookup ip \
    mapfile readarray sed rm touch chmod chown chgrp pkill sync exit return break continue";

/// Programs that print what they are given, or names.
const PRINTERS: &str = "echo printf ls find realpath readlink dirname basename";

/// How many commands one may run that its arguments hold.
const MAX_WRAPPED: usize = 256;

/// Programs that read their standard input where no operand names a file: the number of operands that name none, and letters of options that
/// may name one.
const FILTERS: [(&str, usize, &str); 10] = [
    ("cat", 0, ""),
    ("head", 0, ""),
    ("tail", 0, ""),
    ("wc", 0, ""),
    ("cut", 0, ""),
    ("rev", 0, ""),
    ("uniq", 0, ""),
    ("sort", 0, "oT"),
    ("grep", 1, "efrR"),
    ("tr", 2, ""),
];

/// Commands that run nothing with these arguments and no others.
const WHOLE_COMMANDS: [&str; 7] =
    ["alias", "history", "crontab -l", "top -bn1", "top -b -n 1", "stty size", "redis-cli ping"];

/// Programs that build and test: what they run stands in the project's files.
const PROJECT: &str = "\
    cargo rustc rustfmt make gmake cmake ctest ninja meson go gofmt npm npx yarn pnpm tsc eslint prettier jest vitest mocha webpack \
    vite pip pip3 pytest tox nox uv poetry ruff mypy black isort flake8 javac mvn gradle gcc g++ cc c++ clang clang++ ld dotnet rake \
    bundle mix just bazel";

/// Programs that only print their version where that is all they are asked for. Of others (rustup's, yarn, mvn) a project's files choose it, and
/// so the program; or they load what belongs to the project first (flake8, jest).
const VERSIONED: &str = "\
    python python3 node ruby perl php lua bash sed awk docker java deno bun make gmake cmake ctest ninja meson go gofmt npm npx pip pip3 uv \
    ruff mypy black isort javac gcc g++ cc c++ clang clang++ ld just";

/// The knowledge of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    /// It runs no other program.
    Plain,
    /// It runs the command that begins at this word, and nothing else.
    Wraps(usize),
    /// It runs what the project's files say.
    Project,
    /// It may run anything.
    Nothing,
}

/// Returns what is known of a command.
pub fn known(words: &[Word]) -> Known {
    let Some((program, arguments)) = words.split_first() else { return Known::Plain };
    let name = match program.text.contains('/') {
        true => DIRECTORIES.iter().find_map(|at| program.text.strip_prefix(at)),
        false => Some(program.text.as_str()),
    };
    let Some(name) = name.filter(|name| program.fixed && !name.contains('/')) else { return Known::Nothing };
    let only_asks = is_in(VERSIONED, name) && asks_version(name, arguments)
        || name == "command"
            && arguments.first().is_some_and(|word| matches!(word.text.as_str(), "-v" | "-V"));
    if only_asks || is_whole(name, arguments) {
        return Known::Plain;
    }
    if let Some(known) = wrapper::known(name, arguments) {
        return known;
    }
    let is_plain = match options::start_nothing(name, arguments) {
        Some(is_plain) => is_plain,
        None if name == "git" => git::is_plain(arguments),
        None => {
            is_in(PLAIN, name)
                || clients::only_reads(name, arguments)
                || arguments::are_plain(name, arguments)
        }
    };
    match is_plain {
        true => Known::Plain,
        false if is_in(PROJECT, name) => Known::Project,
        false => Known::Nothing,
    }
}

fn is_whole(name: &str, arguments: &[Word]) -> bool {
    WHOLE_COMMANDS.iter().any(|command| begins(command, name, arguments) == Some(arguments.len()))
}

/// Returns how many arguments stand in a command with which this one begins.
pub fn begins(command: &str, name: &str, arguments: &[Word]) -> Option<usize> {
    let mut words = command.split(' ');
    let is_program = words.next() == Some(name);
    let mut given = arguments.iter();
    let is_same = words.clone().all(|word| given.next().is_some_and(|next| next.fixed && next.text == word));
    (is_program && is_same).then(|| words.count())
}

/// Returns whether a name is one of a program or built-in that is known.
pub fn is_command(name: &str) -> bool {
    known(&[Word::fixed(name)]) != Known::Nothing || is_in(VERSIONED, name)
}

/// Returns whether a program does the same with all digits that it is given.
pub fn takes_numbers(program: &str) -> bool {
    matches!(program, "sed" | "awk" | "[" | "test" | "wait")
}

/// Returns whether a program writes to no file that its arguments name, nor changes the directory.
pub fn writes_nothing(program: &str) -> bool {
    is_in(WITHOUT_INPUT, program) && !matches!(program, "cd" | "pushd" | "popd" | "touch")
        || is_in(READERS, program)
}

/// Returns whether a command writes to no file of the kernel that its words name, and leads nowhere: it neither changes the directory nor makes
/// a link.
pub fn only_reads(words: &[Word]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return true };
    let may_be_option = |word: &Word| {
        let text = word.text.trim_start_matches(MARK).to_owned();
        Word { text, ..word.clone() }.may_be_option()
    };
    match name_of(&program.text) {
        "find" => {
            let prints = arguments.iter().any(|word| {
                word.text.starts_with("-fprint")
                    || word.text == "-fls"
                    || word.text != "{}" && may_be_option(word)
            });
            let executed = wrappers::executed(arguments).unwrap_or_default();
            !prints
                && executed
                    .iter()
                    .flat_map(|command| with_wrapped(command))
                    .all(|command| only_reads(&command))
        }
        "awk" | "gawk" | "mawk" | "nawk" => !arguments.iter().any(|word| word.text.contains('>')),
        "sort" => !arguments
            .iter()
            .any(|word| word.text.starts_with('-') && word.text.contains('o') || may_be_option(word)),
        "uniq" => {
            arguments.iter().filter(|word| !word.is_flag()).count() < 2 && arguments.iter().all(Word::is_one)
        }
        "git" => git::only_reads(arguments),
        name => writes_nothing(name) || is_in(HARMLESS, name),
    }
}

/// Returns whether a command prints what it is given, or names.
pub fn prints_names(words: &[Word]) -> bool {
    words.first().is_some_and(|program| is_in(PRINTERS, name_of(&program.text)))
}

/// The commands that a command consists of: its own words, and the commands in its arguments that it runs.
pub fn with_wrapped(words: &[Word]) -> Vec<Vec<Word>> {
    let (mut all, mut at) = (vec![words.to_vec()], 0);
    while at < all.len() && all.len() < MAX_WRAPPED {
        match known(&all[at]) {
            Known::Wraps(start) => {
                let inner = wrapped_words(&all[at], start);
                all[at].truncate(start);
                all.push(inner);
            }
            Known::Plain if name_of(&all[at][0].text) == "find" => {
                let executed = wrappers::executed(&all[at][1..]);
                all.extend(executed.unwrap_or_default());
            }
            _ => {}
        }
        at += 1;
    }
    all
}

/// Returns whether a command runs without a question because of what it is, so that its words have to be looked at.
pub fn is_judged(words: &[Word]) -> bool {
    let Some(program) = words.first() else { return false };
    match known(words) {
        Known::Plain | Known::Wraps(_) => true,
        Known::Project => false,
        Known::Nothing => is_shell(&program.text),
    }
}

pub fn is_shell(program: &str) -> bool {
    wrappers::language_of(program) == Some(Language::Shell)
}

/// The name of a program without a usual directory.
pub fn name_of(program: &str) -> &str {
    DIRECTORIES.iter().find_map(|at| program.strip_prefix(at)).unwrap_or(program)
}

/// The letters of tar's options; one that extracts is among them where none says what else is done.
pub fn tar_letters(arguments: &[Word]) -> String {
    let is_group = |(at, word): &(usize, &Word)| {
        (*at == 0 || word.text.starts_with('-')) && !word.text.starts_with("--")
    };
    let mut letters: String =
        arguments.iter().enumerate().filter(is_group).map(|(_, word)| word.text.as_str()).collect();
    let long =
        |names: &[&str]| arguments.iter().any(|word| names.iter().any(|name| word.text.starts_with(name)));
    if long(&["--e", "--g"])
        || !letters.contains(['c', 't', 'r', 'u']) && !long(&["--c", "--l", "--a", "--u"])
    {
        letters.push('x');
    }
    letters
}

/// Returns whether a command neither takes anything from its standard input, nor reads or writes what is in a file.
pub fn reads_no_file(words: &[Word]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return true };
    program.fixed
        && match program.text.as_str() {
            name @ ("rm" | "chmod" | "chown") => lacks(name, arguments, &["-i", "-I", "--interactive"]),
            name => is_in(WITHOUT_INPUT, name),
        }
}

/// Returns whether a command reads its standard input alone, and writes to no file.
pub fn is_filter(words: &[Word]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let Some((_, most, refused)) = FILTERS.iter().find(|(name, ..)| *name == program.text) else {
        return false;
    };
    let named = arguments.iter().filter(|word| word.text != "-");
    let (flags, operands): (Vec<&Word>, Vec<&Word>) = named.partition(|word| word.is_flag());
    let is_plain =
        |word: &&Word| !word.text.starts_with("--") && !word.text.contains(|c| refused.contains(c));
    words.iter().all(|word| word.fixed) && flags.iter().all(is_plain) && operands.len() <= *most
}

pub fn is_in(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}

fn asks_version(name: &str, arguments: &[Word]) -> bool {
    let [only] = arguments else { return false };
    let is_short = match name {
        "node" | "npm" | "ruby" | "perl" | "php" => only.text == "-v",
        "python" | "python3" => only.text == "-V",
        "go" => only.text == "version",
        "java" => only.text == "-version",
        _ => false,
    };
    only.fixed && (is_short || only.text == "--version")
}
