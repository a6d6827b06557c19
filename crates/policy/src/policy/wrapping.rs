//! Programs that run the command in their arguments, and where that command begins.

use super::arguments::{ArgumentSyntax, usual_name};
use super::findings::Word;
use super::program::without_version;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

/// The programs, some with their subcommand, and what comes before the command.
const WRAPPERS: &str = include_str!("wrapping.txt");
/// Options of `find` and `fd` behind which a command stands.
pub const EXECUTES: [&str; 8] = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
/// How many ways of reading a wrapper's arguments are followed; a command with more is not read.
pub const MAX_STARTS: usize = 16;

/// How a program runs another one.
struct Way {
    /// The subcommand that does it, or none.
    subcommand: Vec<&'static str>,
    /// Operands before the command; `None` where it begins behind `--`.
    operands: Option<usize>,
}

static WAYS: LazyLock<HashMap<&str, Vec<Way>>> = LazyLock::new(|| {
    let mut ways: HashMap<_, Vec<Way>> = HashMap::new();
    for line in WRAPPERS.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        if let (Some(program), Some(before)) = (words.next(), words.next_back()) {
            let way = Way { subcommand: words.collect(), operands: before.parse().ok() };
            ways.entry(program).or_default().push(way);
        }
    }
    ways
});

/// The ways in which a program runs another one. `linux64` is a name as it is.
fn ways(program: &str) -> &'static [Way] {
    let names = [program, without_version(program), usual_name(program)];
    let known = names.into_iter().find_map(|name| WAYS.get(name));
    known.map_or(&[], Vec::as_slice)
}

/// Where the commands begin that a program, or a subcommand of it, runs by its arguments. The author of a rule may leave out what stands before
/// the command: `timeout rm`.
pub fn command_starts(program: &str, arguments: &[Word], is_rule: bool) -> Vec<usize> {
    let starts = |way: &Way| {
        let behind =
            |operands| behind(program, ArgumentSyntax::of(program), arguments, &way.subcommand, operands);
        let Some(most) = way.operands else { return behind(None) };
        let least = if is_rule && way.subcommand.is_empty() { 0 } else { most };
        (least..=most).flat_map(|operands| behind(Some(operands))).collect()
    };
    let mut starts: Vec<usize> = ways(program).iter().flat_map(starts).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

fn behind(
    program: &str,
    syntax: ArgumentSyntax,
    arguments: &[Word],
    subcommand: &[&str],
    operands: Option<usize>,
) -> Vec<usize> {
    let Some((name, rest)) = subcommand.split_first() else {
        let behind_dashes = arguments.iter().position(|word| word.text == "--").map(|at| at + 1);
        return match operands {
            Some(operands) => starts(program, &syntax, arguments, operands),
            None => behind_dashes.into_iter().collect(),
        };
    };
    let named = starts(program, &syntax, arguments, 0).into_iter().filter(|at| arguments[*at].text == *name);
    let below = |at: usize| {
        let starts = behind(program, syntax.behind(name), &arguments[at..], rest, operands);
        starts.into_iter().map(move |start| at + start)
    };
    named.flat_map(|at| below(at + 1)).collect()
}

/// Where the inner command may begin in the words of a rule.
pub fn inner_starts(program: &str, arguments: &[Word]) -> Vec<usize> {
    let mut starts: Vec<usize> = match program {
        "find" | "fd" => {
            let executes = |word: &Word| EXECUTES.contains(&word.text.as_str());
            arguments.iter().position(executes).map(|at| at + 1).into_iter().collect()
        }
        _ => command_starts(program, arguments, true),
    };
    starts.retain(|start| *start < arguments.len());
    starts
}

/// Where the wrapped command may start: the words after a flag of which it is not known may be the flag's values or not, so there may be several.
fn starts(program: &str, syntax: &ArgumentSyntax, arguments: &[Word], operands: usize) -> Vec<usize> {
    // `bwrap --bind SOURCE TARGET`
    let values = if program == "bwrap" { 2 } else { 1 };
    let mut starts = Vec::new();
    // The nearest first, each once: they only go on.
    let mut ways = BTreeSet::from([(0, operands)]);
    while let Some((at, operands)) = ways.pop_first() {
        let Some(word) = arguments.get(at) else { continue };
        if starts.len() >= MAX_STARTS {
            break;
        }
        if word.text == "--" {
            ways.insert((at + 1, operands));
        } else if word.is_flag() {
            let is_known = word.fixed || word.text.contains('=');
            let takes = syntax.takes_next(&word.text).filter(|_| is_known);
            if takes != Some(true) {
                ways.insert((at + 1, operands));
            }
            if matches!(arguments.get(at + 1).map(|next| next.text.as_str()), Some("true" | "false")) {
                ways.insert((at + 2, operands));
            }
            if takes != Some(false) {
                ways.extend((1..=values).map(|values| (at + 1 + values, operands)));
            }
        } else if is_assignment(&word.text) {
            ways.insert((at + 1, operands));
        } else if operands > 0 {
            ways.insert((at + 1, operands - 1));
        } else {
            starts.push(at);
        }
    }
    starts
}

pub fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}
