//! Programs that run the command in their arguments, and where that command begins.

use super::findings::Word;
use super::program::without_version;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// The programs, and how many operands come before the command.
const WRAPPERS: &str = include_str!("wrapping.txt");
/// Options of `find` and `fd` behind which a command stands.
pub const EXECUTES: [&str; 8] = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
/// How many ways of reading a wrapper's arguments are followed.
pub const MAX_STARTS: usize = 16;

static OPERANDS: LazyLock<HashMap<&str, Vec<usize>>> = LazyLock::new(|| {
    let mut operands: HashMap<_, Vec<usize>> = HashMap::new();
    for line in WRAPPERS.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, count)) = line.split_once(' ') {
            operands.entry(name).or_default().extend(count.parse::<usize>());
        }
    }
    operands
});

/// How many operands of a program may stand before the command that it runs; nothing where it runs none. `linux64` is a name as it is.
pub fn operands_before(program: &str) -> &'static [usize] {
    let known = OPERANDS.get(program).or_else(|| OPERANDS.get(without_version(program)));
    known.map_or(&[], Vec::as_slice)
}

/// Where the inner command may begin in the words of a rule, whose author may leave out what stands before it: `timeout rm`.
pub fn inner_starts(program: &str, arguments: &[Word]) -> Vec<usize> {
    let mut starts: Vec<usize> = match program {
        "find" | "fd" => {
            let executes = |word: &Word| EXECUTES.contains(&word.text.as_str());
            arguments.iter().position(executes).map(|at| at + 1).into_iter().collect()
        }
        _ => {
            let most = operands_before(program).iter().max();
            let ways = most.into_iter().flat_map(|most| 0..=*most);
            ways.flat_map(|operands| program_starts(program, arguments, operands)).collect()
        }
    };
    starts.sort_unstable();
    starts.dedup();
    starts.retain(|start| *start < arguments.len());
    starts
}

/// Where the wrapped command may start: so many words after a flag may be the flag's values or not, so there may be several.
pub fn program_starts(program: &str, arguments: &[Word], operands: usize) -> Vec<usize> {
    // `bwrap --bind SOURCE TARGET`
    let values = if program == "bwrap" { 2 } else { 1 };
    let mut starts = Vec::new();
    let mut seen = HashSet::new();
    let mut ways = vec![(0, operands)];
    while let Some((at, operands)) = ways.pop() {
        let Some(word) = arguments.get(at) else { continue };
        if starts.len() >= MAX_STARTS || !seen.insert((at, operands)) {
            continue;
        }
        if word.text == "--" {
            ways.push((at + 1, operands));
        } else if word.is_flag() {
            ways.push((at + 1, operands));
            if !word.text.contains('=') {
                ways.extend((1..=values).map(|values| (at + 1 + values, operands)));
            }
        } else if is_assignment(&word.text) {
            ways.push((at + 1, operands));
        } else if operands > 0 {
            ways.push((at + 1, operands - 1));
        } else {
            starts.push(at);
        }
    }
    starts.sort_unstable();
    starts.dedup();
    starts
}

pub fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}
