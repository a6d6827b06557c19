//! Programs that start others where certain options are given, and the words that are options and not their values.

use super::super::super::findings::{Becomes, Word};
use super::is_in;

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

/// Options of git that take no value in any of these subcommands, nor in the programs above.
pub const SWITCHES: [&str; 8] =
    ["--oneline", "--stat", "--numstat", "--cached", "--staged", "--name-only", "--name-status", "--quiet"];

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

/// Returns whether a program that starts others by its options is given none of them; nothing where it is not such a program.
pub fn start_nothing(name: &str, arguments: &[Word]) -> Option<bool> {
    let (_, options) = EXCEPT.iter().find(|(known, _)| *known == name)?;
    let others = match name {
        "tar" => is_local_archive(arguments),
        "curl" => !may_write_by_url(arguments) && !may_name_engine(arguments),
        _ => true,
    };
    Some(others && lacks(name, arguments, options))
}

/// Returns whether none of the options is given, in any spelling that they have, by the options of `name` that take a value. Two dashes may be
/// the value of another option before them, so that only what the shell puts in after them is taken for an operand, and only where nothing
/// before them may take a value.
pub fn lacks(name: &str, arguments: &[Word], options: &[&str]) -> bool {
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

/// Returns whether a certificate or a key of curl's may be one that a library holds, which OpenSSL loads by the configuration of the user.
fn may_name_engine(arguments: &[Word]) -> bool {
    let is_open = |at: usize| {
        let is_value = arguments[at].text.starts_with("-E") || at > 0 && arguments[at - 1].text == "-E";
        is_value && !arguments[at].fixed || arguments[at].text.to_ascii_lowercase().contains("pkcs11:")
    };
    (0..arguments.len()).any(is_open)
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
    // URLs may stand in a file.
    let are_elsewhere = |at: usize| {
        let text = arguments[at].text.as_str();
        let is_url = |option: &str| option.len() > 2 && "--url".starts_with(option);
        text.split_once('=').is_some_and(|(option, value)| is_url(option) && value.starts_with('@'))
            || text.starts_with('@') && at > 0 && is_url(&arguments[at - 1].text)
    };
    // Another option says what a URL without a scheme is, and where one may lead.
    let is_doubtful = |at: usize| {
        arguments[at].text.starts_with("--prot")
            || !is_sent(at) && is_file(&arguments[at])
            || are_elsewhere(at)
    };
    arguments.iter().any(sends) && (0..arguments.len()).any(is_doubtful)
}
