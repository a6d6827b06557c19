//! What git runs by its subcommands and options: nothing but what the repository's own files name, or an editor, a pager and programs of the
//! settings too.

use super::super::super::findings::Word;
use super::is_in;
use super::options::lacks;

/// Formats that git has itself: a setting does not change them.
const FORMATS: &str = "oneline short medium full fuller reference email mboxrd raw";

/// Subcommands of git that run only what the repository's own files name (hooks, filters), and options of theirs that name a program.
const GIT: &str = "\
    add apply blame branch cat-file check-ignore checkout cherry clean commit config describe diff for-each-ref grep init log ls-files \
    ls-tree merge-base mv name-rev reflog remote reset restore rev-list rev-parse rm shortlog show show-ref stash status switch tag version \
    worktree bisect count-objects fsck merge diff-files diff-index diff-tree format-patch hash-object merge-tree submodule symbolic-ref whatchanged";

/// Subcommands that write to no file outside of the repository's own.
const READERS: &str = "\
    add blame branch cat-file check-ignore cherry commit describe diff for-each-ref grep log ls-files ls-tree merge-base name-rev reflog \
    remote rev-list rev-parse shortlog show show-ref status tag count-objects fsck diff-files diff-index diff-tree merge-tree symbolic-ref \
    whatchanged";

/// Options of `git commit` and `git tag` that neither take a value nor open an editor.
const COMMIT: &str = "\
    -a --all -q --quiet -s --signoff -n --no-verify -v --verbose --amend --allow-empty --allow-empty-message --no-gpg-sign --no-status \
    --short --porcelain -o --only --include";

const TAG: &str = "-f --force -d --delete -l --list -n -n1 --contains --no-contains --merged --no-merged --points-at --column";

/// Settings of git that name no program.
const GIT_SETTINGS: &str = "\
    user.name user.email init.defaultBranch color.ui core.quotepath core.autocrlf core.filemode commit.gpgsign pull.rebase \
    push.default advice.detachedHead";

const GIT_EXCEPT: [&str; 6] =
    ["--ext-diff", "--open-files-in-pager", "-O", "--exec", "--textconv", "--show-signature"];

/// `git [-C DIR] [--no-pager] SUBCOMMAND`
pub fn is_plain(arguments: &[Word]) -> bool {
    let Some((subcommand, rest)) = subcommand(arguments) else { return true };
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
        "bisect" => {
            matches!(rest, [word] if word.fixed && matches!(word.text.as_str(), "start" | "log" | "reset"))
        }
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

/// The subcommand, behind options of git itself that are known, and its arguments.
fn subcommand(arguments: &[Word]) -> Option<(&Word, &[Word])> {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += match word.text.as_str() {
            "-C" if arguments.get(at + 1).is_none_or(Word::is_one) => 2,
            "--no-pager" | "-P" => 1,
            "-c" if arguments.get(at + 1).is_some_and(is_plain_setting) => 2,
            _ => break,
        };
    }
    arguments.get(at..).and_then(<[Word]>::split_first)
}

/// Returns whether git, with arguments by which it starts nothing, writes to no file but its own.
pub fn only_reads(arguments: &[Word]) -> bool {
    subcommand(arguments).is_none_or(|(subcommand, rest)| {
        is_in(READERS, &subcommand.text) && !rest.iter().any(|word| word.text.starts_with("--ou"))
    })
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

fn is_plain_setting(setting: &Word) -> bool {
    if setting.fixed && setting.text == "core.pager=cat" {
        return true;
    }
    let keys = ["user.name=", "user.email=", "color.ui=", "core.quotepath=", "commit.gpgsign=false"];
    setting.is_one() && keys.iter().any(|key| setting.text.starts_with(key))
}
