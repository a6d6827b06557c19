//! What stands between the parts of a command. The grammar passes over newlines, remarks and backslashes there that end a command, or join
//! two words, in bash.

use super::tree::{Source, Visit};
use tree_sitter::Node;

/// Nodes whose parts are divided by blanks alone.
const OF_WORDS: [&str; 12] = [
    "command",
    "file_redirect",
    "herestring_redirect",
    "declaration_command",
    "unset_command",
    "test_command",
    "simple_expansion",
    "variable_assignment",
    "concatenation",
    "subscript",
    "unary_expression",
    "binary_expression",
];
/// Nodes of those that have nothing between their parts.
const OF_ONE_WORD: [&str; 2] = ["simple_expansion", "concatenation"];

/// Returns whether bash takes the parts of a node for parts of one, as the grammar does.
pub fn are_as_in_bash(source: &Source<'_>, visit: &Visit<'_, '_>) -> bool {
    let (node, text) = (visit.node, source.of(visit.node));
    let mut cursor = node.walk();
    let parts: Vec<_> = node.children(&mut cursor).collect();
    let is_redirect_as_in_bash = || {
        let target = node.child_by_field_name("destination");
        let is_descriptor =
            |target| source.of(target).bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let mut cursor = node.walk();
        // What follows the first is an argument of the command; bash expands the word behind `>&` twice.
        node.children_by_field_name("destination", &mut cursor).count() <= 1
            && (!text.contains(">&") || target.is_none_or(is_descriptor))
            && (!(text.contains("<&-") || text.contains(">&-")) || target.is_none())
    };
    let is_readable = match node.kind() {
        "file_redirect" => is_redirect_as_in_bash(),
        // `==` and `=~` are words there.
        "command" => !parts.iter().any(|part| matches!(part.kind(), "==" | "=~" | "regex")),
        // `x=$ y` runs y.
        "variable_assignment" => !text.ends_with('$') && !text.contains("$ "),
        // The lengths of special parameters and defaults for them look the same.
        "expansion" => !text.starts_with("${-") && !text.starts_with("${?"),
        _ => true,
    };
    is_readable
        && (!OF_WORDS.contains(&node.kind()) || is_of_several_lines(source, visit.node) || {
            let may_be_on_lines = visit.ancestors.iter().any(|above| is_of_several_lines(source, *above));
            parts.windows(2).all(|pair| is_gap(source, node, [pair[0], pair[1]], may_be_on_lines))
        })
}

/// Returns whether bash, too, divides two parts of `node` by what stands between them.
fn is_gap(source: &Source<'_>, node: Node<'_>, [before, after]: [Node<'_>; 2], on_lines: bool) -> bool {
    let gap = source.text.get(before.end_byte()..after.start_byte()).unwrap_or_default();
    let is_word = |part: Node<'_>| part.is_named() && !part.kind().ends_with("redirect");
    let is_divided = node.kind() != "command"
        || !gap.is_empty()
        || !is_word(before)
        || !is_word(after)
        || after.kind() == "subshell";
    after.kind() != "comment"
        && is_divided
        && (on_lines || !gap.contains(['\n', '\\']))
        && (gap.is_empty() || !OF_ONE_WORD.contains(&node.kind()))
}

/// Returns whether newlines are blanks within a node: `[[ … ]]`, `(( … ))`, `$(( … ))`.
fn is_of_several_lines(source: &Source<'_>, node: Node<'_>) -> bool {
    match node.kind() {
        "test_command" => source.of(node).starts_with("[["),
        "compound_statement" => source.of(node).starts_with("(("),
        "arithmetic_expansion" => true,
        _ => false,
    }
}
