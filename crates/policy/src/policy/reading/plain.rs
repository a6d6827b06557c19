//! Programs of which it is known what they run: nothing, or what their arguments say and is read.
//!
//! Everything else may run any program. A program is added here only where its manual names every way in which it starts another.

use super::super::findings::{Becomes, Word};
use super::{awk, clients, sed};

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

/// Programs that start others where these options are given. A long option counts by its beginning too. One that ends
/// in a dash stands for all that begin so.
const EXCEPT: &[(&str, &[&str])] = &[
    ("sort", &["--compress-program"]),
    ("split", &["--filter"]),
    ("csplit", &[]),
    ("file", &["-z", "-Z", "--uncompress", "--uncompress-noreport"]),
    ("jobs", &["-x"]),
    ("install", &["--strip-program", "-s"]),
    ("rg", &["--pre", "--hostname-bin", "--search-zip", "-z"]),
    // What listens at a socket of this machine may run programs, as Docker does.
    (
        "curl",
        &["--expand-", "--config", "-K", "--engine", "--ntlm-wb", "--unix-socket", "--abstract-unix-socket"],
    ),
    // Those of wget2 among them.
    (
        "wget",
        &[
            "--execute",
            "-e",
            "--config",
            "--use-askpass",
            "--plugin",
            "--local-plugin",
            "--plugin-dirs",
            "--gnupg-homedir",
            "--verify-sig",
        ],
    ),
    // Older versions write pages by a command of their own arguments.
    ("tree", &["-R"]),
    ("zip", &["--unzip-command", "-T", "--test"]),
    (
        "tar",
        &[
            "-I",
            "-F",
            "--use-compress-program",
            "--checkpoint-action",
            "--to-command",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
            "--rmt-command",
            // Some versions take options from the list of names, and with several volumes the user's answers start a shell.
            "-T",
            "--files-from",
            "-M",
            "--multi-volume",
            "-L",
            "--tape-length",
        ],
    ),
];

/// Commands that run nothing with these arguments and no others.
const WHOLE_COMMANDS: [&str; 7] =
    ["alias", "history", "crontab -l", "top -bn1", "top -b -n 1", "stty size", "redis-cli ping"];

/// Formats that git has itself: a setting does not change them.
const FORMATS: &str = "oneline short medium full fuller reference email mboxrd raw";
/// Subcommands of git that run only what the repository's own files name (hooks, filters), and options of theirs that name a program.
const GIT: &str = "\
    add apply blame branch cat-file check-ignore checkout cherry clean commit config describe diff for-each-ref grep init log ls-files \
    ls-tree merge-base mv name-rev reflog remote reset restore rev-list rev-parse rm shortlog show show-ref stash status switch tag version \
    worktree count-objects fsck merge diff-files diff-index diff-tree format-patch hash-object merge-tree submodule symbolic-ref whatchanged";
/// Options of `git commit` and `git tag` that neither take a value nor open an editor.
const COMMIT: &str = "\
    -a --all -q --quiet -s --signoff -n --no-verify -v --verbose --amend --allow-empty --allow-empty-message --no-gpg-sign --no-status \
    --short --porcelain -o --only --include";
const TAG: &str = "-f --force -d --delete -l --list -n -n1 --contains --no-contains --merged --no-merged --points-at --column";
/// Settings of git that name no program.
const GIT_SETTINGS: &str = "\
    user.name user.email init.defaultBranch color.ui core.quotepath core.autocrlf core.filemode commit.gpgsign pull.rebase \
    push.default advice.detachedHead";
/// Options of git that take no value in any of these subcommands, nor in the programs above.
const SWITCHES: [&str; 8] =
    ["--oneline", "--stat", "--numstat", "--cached", "--staged", "--name-only", "--name-status", "--quiet"];
const GIT_EXCEPT: [&str; 6] =
    ["--ext-diff", "--open-files-in-pager", "-O", "--exec", "--textconv", "--show-signature"];

/// Programs that build and test: what they run stands in the project's files.
const PROJECT: &str = "\
    cargo rustc rustfmt make gmake cmake ctest ninja meson go gofmt npm npx yarn pnpm tsc eslint prettier jest vitest mocha webpack \
    vite pip pip3 pytest tox nox uv poetry ruff mypy black isort flake8 javac mvn gradle gcc g++ cc c++ clang clang++ ld dotnet rake \
    bundle mix just bazel";

/// Options of a program in every version: letters that take a value, which may be joined, long ones that take one, which may stand behind,
/// and letters that take none.
struct Options {
    of: &'static str,
    valued: &'static str,
    long_valued: &'static str,
    switches: &'static str,
}

const OPTIONS: &[Options] = &[
    Options {
        of: "rg",
        valued: "eABCgtTmjMrfE",
        long_valued: "--regexp --glob --iglob --type --type-not --max-count --context --after-context --before-context --replace \
                      --file --sort",
        switches: "nilsSvwFcouNHpPqxUL0aI",
    },
    Options {
        of: "curl",
        valued: "AbcCdDeEFHmoPQrtTuUwxXyYz",
        long_valued: "--header --data --data-raw --data-binary --data-urlencode --request --output --user --user-agent --url --max-time \
                      --connect-timeout --cookie --cookie-jar --form --upload-file --write-out --retry --proxy --referer",
        switches: "sSfLvkiIgNOJGajlnpqRZ#",
    },
    Options {
        of: "wget",
        valued: "OPoUT",
        long_valued: "--output-document --directory-prefix --output-file --user-agent --timeout --header",
        switches: "qcNrkpvSmLHxEFb",
    },
    Options { of: "sort", valued: "koStT", long_valued: "", switches: "bdfgiMhnRrVcCmsuz" },
    Options { of: "install", valued: "mogt", long_valued: "", switches: "bCcdDpvT" },
    Options {
        of: "git log",
        valued: "SGn",
        long_valued: "--since --until --after --before --author --committer --grep --max-count --skip --date",
        switches: "puswbazRMBCgi",
    },
    Options { of: "git show", valued: "SGn", long_valued: "", switches: "puswbazRMBC" },
    Options { of: "git diff", valued: "SG", long_valued: "", switches: "puswbazRMBC" },
    Options {
        of: "git rev-list",
        valued: "n",
        long_valued: "--since --until --after --before --author --committer --grep --max-count --skip",
        switches: "",
    },
    Options { of: "git grep", valued: "eABC", long_valued: "", switches: "nilLwvhHcoEGPFIapWqz" },
    Options { of: "git blame", valued: "L", long_valued: "", switches: "wensfltpbMC" },
];

/// Long options that are the beginning of another one.
const WHOLE: [&str; 1] = ["--file"];

/// Programs that only print their version where that is all they are asked for. Of others (rustup's, yarn, mvn) a project's files choose it, and
/// so the program; or they load what belongs to the project first (flake8, jest).
const VERSIONED: &str = "\
    python python3 node ruby perl php lua bash sed awk docker java deno bun make gmake cmake ctest ninja meson go gofmt npm npx pip pip3 uv \
    ruff mypy black isort javac gcc g++ cc c++ clang clang++ ld just";

/// Options that take no value, options that do, and operands before the command, of programs that run the command in their arguments and
/// do nothing else.
struct Wrapper {
    name: &'static str,
    flags: &'static [&'static str],
    values: &'static [&'static str],
    operands: usize,
}

const fn wrapper(
    name: &'static str,
    flags: &'static [&'static str],
    values: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper { name, flags, values, operands }
}

impl Wrapper {
    /// Returns whether a word that follows an option is its value and nothing beside.
    fn takes(&self, value: &Word) -> bool {
        match self.name {
            "env" => value.fixed && !super::variables::decides(&value.text),
            // What xargs makes of another option there is not known, and what it puts its input in place of has to be.
            "xargs" => !value.is_flag() && (value.fixed || value.text == "{}") && value.is_one(),
            _ => value.is_one(),
        }
    }

    /// Returns whether words are operands before its command. Older versions of busybox take the program there.
    fn takes_before(&self, operands: &[Word]) -> bool {
        let is_time = |text: &str| {
            let number = text.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(text);
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        };
        let is_plain = |word: &Word| self.name != "timeout" || word.fixed && is_time(&word.text);
        operands.iter().all(|word| word.is_one() && is_plain(word))
    }
}

const WRAPPERS: [Wrapper; 14] = [
    wrapper("nohup", &[], &[], 0),
    wrapper("setsid", &["-w", "-f", "-c", "--wait", "--fork"], &[], 0),
    wrapper("nice", &[], &["-n", "--adjustment"], 0),
    wrapper("ionice", &["-t"], &["-c", "-n"], 0),
    wrapper("time", &["-p", "-v", "--verbose", "--portability"], &["-f", "-o", "--format", "--output"], 0),
    wrapper(
        "timeout",
        &["--foreground", "--preserve-status", "-v", "--verbose"],
        &["-k", "-s", "--kill-after", "--signal"],
        1,
    ),
    wrapper("stdbuf", &[], &["-i", "-o", "-e"], 0),
    wrapper("command", &["-p"], &[], 0),
    wrapper("builtin", &[], &[], 0),
    // With -l a shell reads the files of a login.
    wrapper("exec", &[], &[], 0),
    // Without PATH, bash looks for programs in the working directory, too: -i, and -u of some names.
    wrapper("env", &["-0"], &["-u", "--unset"], 0),
    wrapper("sudo", &["-E", "-n", "-H", "-S"], &["-u", "-g"], 0),
    wrapper("busybox", &[], &[], 0),
    wrapper(
        "xargs",
        &["-0", "-r", "-t", "-x", "--null", "--no-run-if-empty"],
        &["-n", "-P", "-L", "-d", "-a", "-s", "-I", "--max-args", "--max-procs"],
        0,
    ),
];

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
    let plain_if = |is_plain: bool| if is_plain { Known::Plain } else { Known::Nothing };
    if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
        let places = |at: &usize| arguments[..*at].iter().filter(|word| word.text.starts_with("-I")).count();
        let at = wrapped(wrapper, arguments).filter(|at| at.as_ref().is_none_or(|at| places(at) <= 1));
        return at.map_or(Known::Nothing, |at| match at {
            Some(at) => Known::Wraps(at + 1),
            None => Known::Plain,
        });
    }
    if let Some((_, options)) = EXCEPT.iter().find(|(known, _)| *known == name) {
        return plain_if(
            lacks(name, arguments, options)
                && (name != "tar" || is_local_archive(arguments))
                && (name != "curl" || !may_write_by_url(arguments)),
        );
    }
    match name {
        "find" => plain_if(is_plain_find(arguments)),
        "sed" => plain_if(sed::runs_nothing(arguments)),
        "awk" | "gawk" | "mawk" | "nawk" => plain_if(awk::runs_nothing(arguments)),
        "git" => plain_if(is_plain_git(arguments)),
        // At a computed place it writes to the memory of a process, as dd does.
        "xxd" if lacks(name, arguments, &["-r", "--revert"]) => Known::Plain,
        "xxd" => plain_if(arguments.iter().all(|word| word.fixed)),
        "dd" => plain_if(arguments.iter().all(|word| word.fixed && !word.text.contains("seek"))),
        "sh" | "bash" | "dash" | "ash" => plain_if(only_parses(arguments)),
        "ip" => plain_if(is_plain_ip(arguments)),
        "nc" => plain_if(only_connects(arguments)),
        "nslookup" => {
            plain_if(!arguments.is_empty() && arguments.iter().all(|word| word.fixed && word.text != "-"))
        }
        // A description of a terminal names the program that prepares it.
        "tput" => plain_if(arguments.iter().all(|word| {
            let is_command = matches!(word.text.as_str(), "init" | "reset");
            word.fixed && !is_command && !word.text.starts_with('-')
        })),
        _ if is_in(PLAIN, name) || clients::only_reads(name, arguments) => Known::Plain,
        _ if is_in(PROJECT, name) => Known::Project,
        _ => plain_if(is_plain_built_in(name, arguments)),
    }
}

/// Returns whether a built-in that may evaluate what it is given evaluates nothing.
fn is_plain_built_in(name: &str, arguments: &[Word]) -> bool {
    match name {
        "set" => {
            let end = arguments.iter().position(|word| word.fixed && word.text == "--");
            arguments[..end.unwrap_or(arguments.len())].iter().all(is_plain_setting)
        }
        // These evaluate the subscripts of a variable's name: `read 'x[$(rm y)]'`, `test -v …`, `printf -v …`.
        "read" => arguments.iter().all(is_plain_name),
        // Other options evaluate what they are given.
        "mapfile" | "readarray" => {
            matches!(arguments, [option, name] if option.fixed && option.text == "-t" && is_plain_name(name) && !name.is_flag())
        }
        "wait" => {
            let has_options = arguments.iter().any(Word::is_flag);
            arguments.iter().all(|word| {
                let is_operand = word.becomes == Becomes::Plain && !has_options;
                is_operand || word.becomes == Becomes::Operand || is_plain_name(word)
            })
        }
        "test" => is_plain_test(arguments),
        "[" => arguments.split_last().is_some_and(|(end, rest)| end.text == "]" && is_plain_test(rest)),
        "printf" => is_plain_format(arguments),
        _ => false,
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

/// `find …`: no word may become `-exec`, but for one where nothing ends a command behind it.
fn is_plain_find(arguments: &[Word]) -> bool {
    let is_open = |word: &&Word| word.text != "{}" && word.may_be_option();
    let ends = |word: &Word| matches!(word.text.as_str(), ";" | "+");
    let is_alone = || arguments.iter().filter(|word| !word.fixed).count() == 1 && !arguments.iter().any(ends);
    arguments.iter().filter(is_open).all(|word| word.is_one() && is_alone())
}

/// `bash -n FILE`, which runs nothing of the file.
fn only_parses(arguments: &[Word]) -> bool {
    let is_file = |file: &Word| match file.fixed {
        true => !file.text.is_empty() && !file.text.starts_with(['-', '+']),
        false => file.becomes == Becomes::Plain,
    };
    matches!(arguments, [option, file] if option.fixed && option.text == "-n" && is_file(file))
}

/// `ip addr show dev eth0`: a type of links with a directory in it is a library's.
fn is_plain_ip(arguments: &[Word]) -> bool {
    let is_option = |word: &&Word| {
        matches!(word.text.as_str(), "-4" | "-6" | "-br" | "-brief" | "-o" | "-s" | "-c" | "-j" | "-p")
    };
    let rest = &arguments[arguments.iter().take_while(is_option).count()..];
    let mut words = rest.iter().map(|word| word.text.as_str());
    let is_object = matches!(
        words.next(),
        Some("a" | "addr" | "address" | "l" | "link" | "r" | "route" | "rule" | "neigh")
    );
    is_object
        && words.next().is_none_or(|verb| matches!(verb, "show" | "list" | "ls" | "get"))
        && rest.iter().all(|word| word.fixed && !word.text.contains('/'))
}

/// `nc -zv localhost 80`
fn only_connects(arguments: &[Word]) -> bool {
    let is_plain = |word: &Word| {
        word.fixed && (!word.is_flag() || word.text[1..].chars().all(|letter| "zvunw46".contains(letter)))
    };
    arguments.iter().all(is_plain) && arguments.first().is_some_and(|word| word.text.starts_with("-z"))
}

/// `test …`: `-v` evaluates the subscript of the name behind it. It may be what a variable holds, and so may the name, but not with a
/// fixed operator between them.
fn is_plain_test(arguments: &[Word]) -> bool {
    let is_number = |word: &Word| word.becomes == Becomes::Operand || word.fixed && word.text == "1";
    let is_operator = |word: &Word| {
        word.fixed
            && (word.text.starts_with('-')
                || matches!(word.text.as_str(), "=" | "==" | "!=" | "<" | ">" | "(" | ")" | "!"))
    };
    let mut is_open = false;
    arguments.iter().all(|word| {
        if word.fixed {
            let is_plain = word.text != "-v" && !(is_open && word.text.contains('['));
            is_open &= !is_operator(word);
            return is_plain;
        }
        if is_number(word) {
            return true;
        }
        let was_open = std::mem::replace(&mut is_open, true);
        word.is_one() && !was_open
    })
}

/// `printf FORMAT …`: no option, and no `%n`, which sets the variable that an argument names.
fn is_plain_format(arguments: &[Word]) -> bool {
    let is_end = |word: &&Word| word.fixed && word.text == "--";
    let arguments = &arguments[usize::from(arguments.first().is_some_and(|word| is_end(&word)))..];
    let Some((format, names)) = arguments.split_first() else { return true };
    let mut conversions = format.text.split('%').skip(1);
    let sets = !format.fixed
        || conversions.any(|rest| {
            rest.trim_start_matches(|c: char| !c.is_ascii_alphabetic() || "hjlLtz".contains(c))
                .starts_with('n')
        });
    let is_name = |word: &Word| !word.fixed || super::variables::decides(&word.text);
    // An option alone has no effect.
    if names.is_empty() && format.is_one() {
        return true;
    }
    let is_option = format.text.starts_with("-v") || format.may_be_option();
    !is_option && (!sets || !names.iter().any(is_name))
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

/// Returns where the wrapped command begins, `Some(None)` where there is none, and `None` where an option is not known.
fn wrapped(wrapper: &Wrapper, arguments: &[Word]) -> Option<Option<usize>> {
    let (mut at, operands) = (0, wrapper.operands);
    while let Some(word) = arguments.get(at) {
        let text = word.text.as_str();
        if wrapper.name == "env" && super::wrappers::is_assignment(text) {
            let name = text.split('=').next().unwrap_or_default();
            let value = text.split_once('=').map(|(_, value)| value).filter(|_| word.fixed);
            let is_obeyed =
                !super::variables::is_harmless(name) || super::variables::changes_encoding(name, value);
            if is_obeyed || !word.is_one() {
                return None;
            }
            at += 1;
        } else if !word.fixed && text != "-I{}" {
            return if operands > 0 && !word.may_be_option() { None } else { Some(Some(at)) };
        } else if text == "--" {
            let (between, rest) = arguments[at + 1..].split_at_checked(operands)?;
            return wrapper.takes_before(between).then(|| rest.first().map(|_| at + 1 + operands));
        } else if wrapper.flags.contains(&text) {
            at += 1;
        } else if wrapper.values.contains(&text) {
            if !arguments.get(at + 1).is_none_or(|value| wrapper.takes(value)) {
                return None;
            }
            at += 2;
        } else if joined(wrapper, word).is_some_and(|value| wrapper.takes(&value)) || is_group(wrapper, text)
        {
            at += 1;
        } else if word.is_flag() {
            return None;
        } else {
            // Behind the first operand, an option is the command's.
            let (between, rest) = arguments[at..].split_at_checked(operands)?;
            return wrapper.takes_before(between).then(|| rest.first().map(|_| at + operands));
        }
    }
    Some(None)
}

/// The command that a wrapper runs. What xargs adds to it, or puts in, is not known.
pub fn wrapped_words(words: &[Word], at: usize) -> Vec<Word> {
    let (before, command) = words.split_at(at.min(words.len()));
    if !before.first().is_some_and(|program| program.text.ends_with("xargs")) {
        return command.to_vec();
    }
    let unknown = |text: &str| Word::changed(text, Becomes::Any);
    let divides = |word: &Word| ["-n", "-L", "--max-args"].iter().any(|option| word.text.starts_with(option));
    // It adds words too where an option that says how many takes the place of `-I`.
    let added = before.iter().any(divides).then(|| unknown("$…"));
    let place = before.iter().enumerate().find_map(|(at, word)| match word.text.strip_prefix("-I")? {
        "" => before.get(at + 1).map(|word| word.text.as_str()),
        joined => Some(joined),
    });
    match place {
        Some(place) => {
            let put_in = |word: &Word| match !place.is_empty() && word.text.contains(place) {
                true => Word { text: word.text.replace(place, "$…"), fixed: false, ..*word },
                false => word.clone(),
            };
            // What a variable holds may be the place.
            let put_in = |word: &Word| match put_in(word) {
                word if word.becomes == Becomes::Plain => Word { becomes: Becomes::One, ..word },
                word if matches!(word.becomes, Becomes::Operand | Becomes::Operands) => {
                    Word { becomes: Becomes::Any, ..word }
                }
                word => word,
            };
            command.iter().map(put_in).chain(added).collect()
        }
        None => command.iter().cloned().chain([unknown("$…")]).collect(),
    }
}

/// `-0r` of `xargs`: options without values.
fn is_group(wrapper: &Wrapper, text: &str) -> bool {
    let is_flag = |letter: char| wrapper.flags.contains(&format!("-{letter}").as_str());
    text.strip_prefix('-').is_some_and(|letters| !letters.is_empty() && letters.chars().all(is_flag))
}

/// The value of `-n1`, `--adjustment=1`.
fn joined(wrapper: &Wrapper, word: &Word) -> Option<Word> {
    let of = |option: &&str| match option.len() {
        2 => word.text.strip_prefix(*option).filter(|value| !value.is_empty()),
        _ => word.text.strip_prefix(*option)?.strip_prefix('='),
    };
    let text = wrapper.values.iter().find_map(of)?.to_owned();
    Some(Word { text, ..word.clone() })
}

/// Returns whether none of the options is given, in any spelling that they have, by the options of `name` that take a value. Two dashes may be
/// the value of another option before them, so that only what the shell puts in after them is taken for an operand, and only where nothing
/// before them may take a value.
fn lacks(name: &str, arguments: &[Word], options: &[&str]) -> bool {
    let row = OPTIONS.iter().find(|row| row.of == name);
    let (valued, long_valued, switches) =
        row.map_or(("", "", ""), |row| (row.valued, row.long_valued, row.switches));
    let is_switch = |text: &str| {
        let letters = text.strip_prefix('-').filter(|letters| !letters.is_empty());
        SWITCHES.contains(&text)
            || letters.is_some_and(|letters| letters.chars().all(|letter| switches.contains(letter)))
    };
    // Git reads its options twice: a value that the first time is an option of its own is not there the second time, and the next word is
    // the value. Of several one may be such an option and another one the option that this moves.
    let may_be_taken_out = |value: &Word| !value.fixed && value.becomes != Becomes::Plain;
    let (mut after_flag, mut only_operands, mut moved) = (false, false, 0);
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        let given = text.split('=').next().unwrap_or_default();
        // The first letter that takes a value ends the group.
        let group = text.strip_prefix('-').filter(|group| !group.starts_with('-') && word.is_one());
        let value_at = group.and_then(|group| group.find(|letter| valued.contains(letter)));
        let letters = match (group, value_at) {
            // Any other letter may take the rest of the group for its value.
            (Some(group), Some(at)) if group[..at].chars().all(|letter| switches.contains(letter)) => {
                &group[..at]
            }
            _ => given.strip_prefix('-').filter(|letters| !letters.starts_with('-')).unwrap_or_default(),
        };
        let is_it = |option: &&str| match option.strip_prefix("--") {
            Some(_) if option.ends_with('-') && given.starts_with(*option) => true,
            Some(_) => given.len() > 2 && option.starts_with(given) && !WHOLE.contains(&given),
            None => letters.contains(&option[1..]),
        };
        let has_value = value_at.is_some_and(|at| letters.len() == at);
        if options.iter().any(is_it) || word.may_be_option() && !only_operands && !has_value {
            return false;
        }
        let takes_next = match value_at {
            Some(at) if has_value => text.len() == at + 2,
            _ => is_in(long_valued, text),
        };
        // Behind two dashes it takes none, and the next word may be any option to a version that takes them for a value.
        // Where the word itself may be a value, the next one may be an option.
        if takes_next && word.fixed && !only_operands && !after_flag {
            let value = rest.next();
            moved += usize::from(value.is_some_and(may_be_taken_out));
            let moves = moved > 1 || value.is_some_and(|value| value.text.starts_with('-'));
            if !value.is_none_or(Word::is_one) || moves && name.starts_with("git ") {
                return false;
            }
            after_flag = false;
        } else {
            only_operands |= text == "--" && !after_flag;
            // What the shell leaves out is not a value.
            if word.is_one() || text.starts_with('-') {
                after_flag = text.starts_with('-') && !is_switch(text);
            }
        }
    }
    true
}

/// Returns whether tar is given no archive on another host, no letter of its first word starts a program, and no word may become an option:
/// the values of those letters come first, and two dashes may be one.
fn is_local_archive(arguments: &[Word]) -> bool {
    let Some((first, rest)) = arguments.split_first() else { return true };
    let is_bundle = !first.text.starts_with('-');
    let of_bundle = first.text.bytes().filter(|letter| b"bfgCHKNVX".contains(letter)).count();
    let is_archive = |at: usize| match at {
        0 => is_bundle && of_bundle > 0,
        _ => {
            rest[at - 1].text.starts_with('-')
                && !matches!(rest[at - 1].text.as_str(), "-C" | "--directory" | "--exclude")
        }
    };
    first.fixed
        && !first.text.contains(':')
        && !(is_bundle && first.text.contains(['I', 'F', 'T', 'M', 'L']))
        && rest.iter().enumerate().all(|(at, word)| {
            let may_name_host =
                !word.fixed && (is_archive(at) || is_bundle && of_bundle > 1 || word.text.starts_with('-'));
            !word.text.contains(':')
                && !word.may_be_option()
                && !may_name_host
                && (at > 0 || is_bundle || word.fixed || !first.text.contains('f'))
        })
}

/// Returns whether curl may send a file to another one of this machine, whose path a URL may spell otherwise: `-T f file:///%70roc/…`.
fn may_write_by_url(arguments: &[Word]) -> bool {
    let sends = |word: &Word| {
        let text = word.text.split('=').next().unwrap_or_default();
        let is_long = text.len() > 2 && "--upload-file".starts_with(text);
        is_long || text.starts_with('-') && !text.starts_with("--") && text.contains('T')
    };
    let is_file = |word: &Word| {
        let value = word.text.split_once('=').filter(|(option, _)| option.starts_with("--"));
        let text = value.map_or(word.text.as_str(), |(_, value)| value);
        let text = text.trim_start().to_ascii_lowercase();
        // What the shell, or curl itself, puts in begins there.
        let head = text.split(['$', '`', '*', '?', '[', '{', '\\']).next().unwrap_or_default();
        head.starts_with("file:") || head.len() < text.len() && "file:".starts_with(head)
    };
    let switches = OPTIONS.iter().find(|row| row.of == "curl").map_or("", |row| row.switches);
    let is_switch = |word: &Word| word.text[1..].chars().all(|letter| switches.contains(letter));
    // The option is none where it is a value itself.
    let is_sent = |at: usize| {
        let is_option = at > 0 && matches!(arguments[at - 1].text.as_str(), "-T" | "--upload-file");
        is_option
            && arguments[at].is_one()
            && (at < 2 || !arguments[at - 2].is_flag() || is_switch(&arguments[at - 2]))
    };
    // Another option says what a URL without a scheme is, and where one may lead.
    let is_doubtful =
        |at: usize| arguments[at].text.starts_with("--prot") || !is_sent(at) && is_file(&arguments[at]);
    arguments.iter().any(sends) && (0..arguments.len()).any(is_doubtful)
}

/// `git [-C DIR] [--no-pager] SUBCOMMAND`
fn is_plain_git(arguments: &[Word]) -> bool {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += match word.text.as_str() {
            "-C" if arguments.get(at + 1).is_none_or(Word::is_one) => 2,
            "--no-pager" | "-P" => 1,
            "-c" if arguments.get(at + 1).is_some_and(is_plain_git_setting) => 2,
            _ => break,
        };
    }
    let Some((subcommand, rest)) = arguments.get(at..).and_then(<[Word]>::split_first) else { return true };
    if subcommand.text == "--version" {
        return rest.is_empty();
    }
    // Help is shown by another program.
    if !subcommand.fixed || !is_in(GIT, &subcommand.text) || rest.iter().any(|word| word.text == "--help") {
        return false;
    }
    let name = subcommand.text.as_str();
    match name {
        "commit" => is_plain_commit(rest),
        // Nothing is merged that a driver or an editor were started for.
        "merge" => {
            let is_plain =
                |word: &Word| matches!(word.text.as_str(), "--ff-only" | "-q" | "--quiet") || !word.is_flag();
            rest.iter().any(|word| word.text == "--ff-only")
                && rest.iter().all(|word| word.fixed && is_plain(word))
        }
        "tag" => is_plain_tag(rest) && !rest.iter().any(may_show_signature),
        "config" => is_plain_config(rest),
        "init" => rest.iter().all(|word| {
            matches!(word.text.as_str(), "-q" | "--quiet" | "-b" | "--bare")
                || word.text.starts_with("--initial-branch=")
                || !word.is_flag() && !word.may_be_option()
        }),
        "remote" => match rest.first().map(|word| word.text.as_str()) {
            None => true,
            Some("-v" | "--verbose") => rest.len() == 1,
            Some("get-url") => rest[1..].iter().all(|word| word.fixed),
            Some(_) => false,
        },
        "worktree" | "submodule" => {
            rest.first().is_some_and(|word| {
                matches!((name, word.text.as_str()), ("worktree", "list") | ("submodule", "status"))
            }) && rest[1..].iter().all(|word| word.fixed)
        }
        _ => {
            lacks(&format!("git {name}"), rest, &GIT_EXCEPT)
                && !opens_editor(name, rest)
                && !rest.iter().any(may_show_signature)
        }
    }
}

/// Returns whether a format or an order may need a signature, which a program that the settings name verifies. The settings may name formats
/// too.
fn may_show_signature(word: &Word) -> bool {
    let of = |option: &str| word.text.strip_prefix(option);
    let is_named = |format: &str| {
        !format.is_empty()
            && !format.contains('%')
            && !format.starts_with("format:")
            && !format.starts_with("tformat:")
            && !is_in(FORMATS, format)
    };
    let is_signed = |format: &str| format.trim_start_matches(['+', '-', ' ']).starts_with('G');
    word.text.split('%').skip(1).any(is_signed)
        || word.text.contains("%(") && word.text.contains("signature")
        || word.text.len() > 3 && "--sort".starts_with(&word.text)
        || word.is_flag() && word.text.contains("signature")
        || of("--pretty=").or_else(|| of("--format=")).is_some_and(is_named)
        || ["--format", "--pretty", "--sort", "--group"].iter().any(|option| of(option).is_some())
            && !word.fixed
}

/// Returns whether git may open an editor, which takes commands from what it reads, or asks about each part of a change in one.
fn opens_editor(subcommand: &str, arguments: &[Word]) -> bool {
    match subcommand {
        "branch" => !lacks(subcommand, arguments, &["--edit-description"]),
        "stash" if arguments.first().is_some_and(|word| word.text == "show") => false,
        "add" | "stash" | "checkout" | "restore" | "reset" => {
            !lacks(subcommand, arguments, &["--edit", "--patch", "--interactive", "-e", "-p", "-i"])
        }
        _ => false,
    }
}

/// `git commit` with a message and options that are known, so that no editor is opened.
fn is_plain_commit(arguments: &[Word]) -> bool {
    let with_message = ["--no-edit", "--dry-run"];
    let is_fixup =
        |word: &Word| word.fixed && word.text.strip_prefix("--fixup=").is_some_and(|of| !of.contains(':'));
    let has = has_message(arguments, "aqsnv", &|word| {
        if with_message.contains(&word.text.as_str()) || is_fixup(word) {
            return Some(true);
        }
        is_in(COMMIT, &word.text).then_some(false)
    });
    has == Some(true)
}

/// `git tag`, likewise.
fn is_plain_tag(arguments: &[Word]) -> bool {
    let is_annotated = arguments.iter().any(|word| {
        word.is_flag()
            && (word.text.contains('a') && !word.text.starts_with("--") || word.text == "--annotate")
    });
    let has = has_message(arguments, "af", &|word| {
        let is_known = is_in(TAG, &word.text) || matches!(word.text.as_str(), "-a" | "--annotate");
        (is_known || word.text.starts_with("--sort=")).then_some(false)
    });
    has.is_some_and(|has| has || !is_annotated)
}

/// Reads options up to `--`, of which `letters` may be grouped, and returns whether there is a message; nothing where an option is not known.
/// `known` says of any other option whether it stands for a message.
fn has_message(arguments: &[Word], letters: &str, known: &dyn Fn(&Word) -> Option<bool>) -> Option<bool> {
    let (mut at, mut has) = (0, false);
    while let Some(word) = arguments.get(at) {
        let text = word.text.as_str();
        at += 1;
        let is_long =
            ["--message=", "--file=", "--reuse-message="].iter().any(|option| text.starts_with(option));
        let group =
            text.strip_prefix('-').map(|group| group.trim_start_matches(|letter| letters.contains(letter)));
        if text == "--" {
            return Some(has);
        } else if word.may_be_option() && !group.is_some_and(|group| group.starts_with('m') && word.is_one())
        {
            return None;
        } else if matches!(
            text,
            "-F" | "-C" | "--message" | "--file" | "--reuse-message" | "--author" | "--date" | "--fixup"
        ) || word.fixed && group == Some("m")
        {
            let opens_editor = |value: &Word| text == "--fixup" && (!value.fixed || value.text.contains(':'));
            arguments.get(at).filter(|value| value.is_one() && !opens_editor(value))?;
            has |= !matches!(text, "--author" | "--date");
            at += 1;
        } else if is_long && word.is_one() || group.is_some_and(|group| group.starts_with('m')) {
            has = true;
        } else if text.starts_with("--author=") || text.starts_with("--date=") {
        } else if word.is_flag() && !(word.fixed && !text.starts_with("--") && group == Some("")) {
            has |= known(word)?;
        }
    }
    Some(has)
}

/// `git config` that only asks, or sets what names no program.
fn is_plain_config(arguments: &[Word]) -> bool {
    let at =
        arguments.iter().position(|word| !matches!(word.text.as_str(), "--global" | "--local")).unwrap_or(0);
    let Some((first, rest)) = arguments.get(at..).and_then(<[Word]>::split_first) else { return true };
    match first.text.as_str() {
        "--get" | "--get-all" | "--get-regexp" => rest.iter().all(|word| word.fixed && !word.is_flag()),
        "--list" | "-l" => rest.iter().all(|word| word.fixed && word.text.starts_with("--show-")),
        name => first.fixed && is_in(GIT_SETTINGS, name) && rest.len() <= 1 && rest.iter().all(Word::is_one),
    }
}

fn is_plain_git_setting(setting: &Word) -> bool {
    if setting.fixed && setting.text == "core.pager=cat" {
        return true;
    }
    let keys = ["user.name=", "user.email=", "color.ui=", "core.quotepath=", "commit.gpgsign=false"];
    setting.is_one() && keys.iter().any(|key| setting.text.starts_with(key))
}

/// `set -euo pipefail`: nothing that exports variables.
fn is_plain_setting(word: &Word) -> bool {
    let names = ["pipefail", "errexit", "nounset", "xtrace", "noglob", "noclobber", "--"];
    let letters = |group: &str| group.chars().all(|letter| "eufxvCo".contains(letter));
    word.fixed
        && (names.contains(&word.text.as_str()) || word.text.strip_prefix(['-', '+']).is_some_and(letters))
}

fn is_plain_name(word: &Word) -> bool {
    let mut names = super::variables::names_in(&word.text);
    let is_short = !word.is_flag() || word.text.len() <= super::variables::MAX_JOINED;
    word.fixed
        && is_short
        && !word.text.contains('[')
        && !names.any(|name| super::variables::decides(name) || super::variables::is_integer(name))
}
