//! Other names of the subcommands that a rule names.

use std::sync::LazyLock;

/// Names of subcommands that mean the same, by program.
const OTHER_NAMES: &str = include_str!("other_names.txt");

/// The programs, and the names, each of one or more words.
struct NameRow {
    programs: Vec<&'static str>,
    names: Vec<Vec<&'static str>>,
}

static ROWS: LazyLock<Vec<NameRow>> = LazyLock::new(|| OTHER_NAMES.lines().filter_map(row).collect());

fn row(line: &'static str) -> Option<NameRow> {
    let (programs, names) = line.split_once(": ").filter(|_| !line.starts_with('#'))?;
    let words = |name: &'static str| name.split(' ').collect();
    Some(NameRow { programs: programs.split(' ').collect(), names: names.split(" = ").map(words).collect() })
}

/// The names that mean the same as the one with which these operands begin, that one among them, the usual one first; and how many operands
/// it has.
pub fn of(program: &str, operands: &[&str]) -> Option<(usize, &'static [Vec<&'static str>])> {
    let rows = ROWS.iter().filter(|row| row.programs.contains(&program));
    rows.filter_map(|row| {
        let name = row.names.iter().find(|name| operands.starts_with(name))?;
        Some((name.len(), row.names.as_slice()))
    })
    .max_by_key(|(length, _)| *length)
}

/// Returns whether a program takes the beginning of a name for it: npm does where it is none itself.
pub fn is_beginning(program: &str, given: &str, wanted: &str) -> bool {
    program == "npm" && given.len() > 1 && wanted.starts_with(given) && of(program, &[given]).is_none()
}
