//! Variables: which of them decide what runs, and which expressions evaluate what a variable holds.

use super::shell::word;
use super::tree::{Source, Visit, children};
use std::collections::HashMap;
use tree_sitter::Node;

/// Variables that programs obey, and that name neither a program nor a file of code.
const HARMLESS: &str = "\
    LANG LANGUAGE TZ TERM COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR CI DEBUG VERBOSE RUST_BACKTRACE RUST_LOG NODE_ENV PORT HOST \
    PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONHASHSEED CARGO_TERM_COLOR GOOS GOARCH CGO_ENABLED \
    DEBIAN_FRONTEND GIT_TERMINAL_PROMPT";
/// Variables that the shell obeys, or that are in the environment already and so reach programs without being exported.
const OBEYED: &str = "\
    PATH IFS ENV HOME SHELL CDPATH PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND GLOBIGNORE EXECIGNORE SHELLOPTS FCEDIT HISTFILE INPUTRC \
    POSIXLY_CORRECT EDITOR VISUAL PAGER BROWSER TMPDIR CC CXX AR RUSTC_WRAPPER OPTARG REPLY \
    GOFLAGS GOROOT GOPATH GOBIN GOENV GOTOOLCHAIN GOTOOLDIR GOTMPDIR GOPROXY GOSUMDB GONOSUMDB GONOSUMCHECK GONOPROXY GOPRIVATE GOINSECURE \
    GOVCS GOAUTH GOWORK GOMODCACHE GOCACHE GOCACHEPROG GO111MODULE GODEBUG GOEXPERIMENT GOFIPS140 GCCGO GCCGOTOOLDIR";
const OBEYED_PREFIXES: [&str; 21] = [
    "BASH",
    "LD_",
    "DYLD_",
    "GIT_",
    "PYTHON",
    "PERL",
    "RUBY",
    "NODE_",
    "npm_",
    "NPM_",
    "JAVA",
    "MAKE",
    "CARGO_",
    "RUST",
    "LESS",
    "TAR_",
    "XDG_",
    "SSH_",
    "SUDO_",
    "GREP_",
    "TEXTDOMAIN",
];
/// Variables of the shell that hold whole numbers, so that what they are given is evaluated.
const INTEGERS: [&str; 5] = ["RANDOM", "SRANDOM", "OPTIND", "HISTCMD", "BASHPID"];
/// The longest option that a name may be joined to, in bytes with the name.
pub const MAX_JOINED: usize = 32;
/// Parameters that hold a number.
const NUMBERS: [&str; 7] = ["#", "?", "$", "!", "RANDOM", "SECONDS", "LINENO"];

/// Returns whether a variable that programs get decides nothing about what they run.
pub fn is_harmless(name: &str) -> bool {
    name.starts_with("LC_") || HARMLESS.split_ascii_whitespace().any(|known| known == name)
}

/// Returns whether a variable of the shell decides what runs.
pub fn decides(name: &str) -> bool {
    OBEYED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || OBEYED.split_ascii_whitespace().any(|known| known == name)
}

/// Returns whether the shell evaluates what this variable of its own is given.
pub fn is_integer(name: &str) -> bool {
    INTEGERS.contains(&name)
}

/// The variables of one script that only ever hold numbers: others are evaluated as expressions, whose subscripts may run commands.
#[derive(Debug, Default)]
pub struct Variables {
    is_number: HashMap<String, bool>,
    /// Functions that the script itself defines, whatever happens before, and where.
    functions: HashMap<String, usize>,
    /// Set if functions may be taken back.
    unsets: bool,
    /// Set if code that stands elsewhere may set variables and take back functions.
    evaluates: bool,
}

impl Variables {
    /// Reads what a script assigns and defines. False where time ran out.
    pub fn of(source: &Source<'_>) -> (Self, bool) {
        let mut variables = Self::default();
        let in_time = source.walk(&mut |visit| {
            variables.note(source, visit);
            super::tree::Descend::Yes
        });
        (variables, in_time)
    }

    fn note(&mut self, source: &Source<'_>, visit: &Visit<'_, '_>) {
        let field = |name| visit.node.child_by_field_name(name);
        match visit.node.kind() {
            "function_definition" => {
                let in_background = visit.node.next_sibling().is_some_and(|next| next.kind() == "&");
                let is_sure = visit.ancestors.len() == 1 && !in_background;
                let name = field("name").filter(|_| is_sure).map(|name| source.of(name).to_owned());
                if let Some(name) = name {
                    self.functions.entry(name).or_insert(visit.node.end_byte());
                }
            }
            "unset_command" => self.unsets = true,
            "variable_assignment" => {
                let is_number = field("value").is_some_and(|value| is_number(source, value));
                self.bind(field("name"), source, is_number);
            }
            "for_statement" => {
                let mut cursor = visit.node.walk();
                let mut values = visit.node.children_by_field_name("value", &mut cursor);
                let has_values = values.next().is_some_and(|value| is_number(source, value));
                let are_numbers = has_values && values.all(|value| is_number(source, value));
                self.bind(field("variable"), source, are_numbers);
            }
            "expansion" => {
                if let Some((name, value)) = default_assignment(source.of(visit.node)) {
                    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                    *self.is_number.entry(name.to_owned()).or_insert(true) &= is_number;
                }
            }
            "command" => self.note_command(source, visit.node),
            _ => {}
        }
    }

    /// `read x`, `read -ax`, `eval …`
    fn note_command(&mut self, source: &Source<'_>, command: Node<'_>) {
        for (at, node) in children(command).into_iter().enumerate() {
            let node = if node.kind() == "command_name" { node.named_child(0).unwrap_or(node) } else { node };
            let word = super::shell::word(source, node, 0);
            self.evaluates |= matches!(word.text.as_str(), "eval" | "trap");
            self.unsets |= word.text == "unset";
            if at > 0 {
                self.is_number.extend(names_in(&word.text).map(|name| (name.to_owned(), false)));
            }
        }
    }

    /// Returns whether a name is a function's for sure, where a command begins.
    pub fn defines(&self, name: &str, start: usize) -> bool {
        !self.unsets && !self.evaluates && self.functions.get(name).is_some_and(|end| *end <= start)
    }

    fn bind(&mut self, name: Option<Node<'_>>, source: &Source<'_>, is_number: bool) {
        let Some(name) = name else { return };
        // `x[0]` is `x`.
        let name = source.of(name).split('[').next().unwrap_or_default();
        let entry = self.is_number.entry(name.to_owned()).or_insert(true);
        *entry &= is_number;
    }

    /// Returns why an assignment or an expression may run something that is not written there.
    pub fn unproven(&self, source: &Source<'_>, visit: &Visit<'_, '_>) -> Option<String> {
        let node = visit.node;
        let text = source.of(node);
        let parent = visit.ancestors.last().map_or("", |parent| parent.kind());
        let is_unproven = match node.kind() {
            "variable_assignment" => is_unproven_assignment(source, visit),
            "declaration_command" => children(node).iter().any(|child| match child.kind() {
                "variable_assignment" => false,
                // An assignment before it, or after it, is of what programs get.
                "variable_name" => text.starts_with("export") && !is_harmless(source.of(*child)),
                "word" => {
                    source.of(*child).contains(['i', 'n', 'f', 'x']) || !source.of(*child).starts_with('-')
                }
                _ => true,
            }),
            "for_statement" => {
                let name = node.child_by_field_name("variable").map_or("", |name| source.of(name));
                decides(name) || is_integer(name)
            }
            "unset_command" => children(node).iter().any(|child| {
                let name = source.of(*child);
                !matches!(child.kind(), "variable_name" | "word") || name.contains('[') || decides(name)
            }),
            kind if kind.ends_with("_redirect") => names_descriptor(source, node),
            "expansion" => {
                is_unproven_expansion(text)
                    || is_bare_in_test(source, visit) && !self.is_number_only(source, node)
            }
            "subscript" => text.split('[').nth(1).is_none_or(|index| !is_plain_subscript(index)),
            "arithmetic_expansion" | "c_style_for_statement" => !self.is_number_only(source, node),
            "compound_statement" => text.starts_with("((") && !self.is_number_only(source, node),
            "binary_expression" => {
                let operator =
                    node.child_by_field_name("operator").map_or("", |operator| source.of(operator));
                let is_evaluated = matches!(operator, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge")
                    && visit.ancestors.iter().any(|above| source.of(*above).starts_with("[["));
                is_evaluated && !self.is_number_only(source, node)
            }
            // In backticks a backslash is taken off before the rest is read.
            "command_substitution" if text.starts_with('`') && text.contains('\\') => true,
            "simple_expansion" | "command_substitution" => {
                is_bare_in_test(source, visit) && !self.is_number_only(source, node)
            }
            "test_operator" => text == "-v" && parent != "command",
            // To a shell `[` is a program, and what follows such an operator another command.
            "test_command" => !text.starts_with("[[") && has_control_operator(source, node),
            // The memory of a process, in which its next commands stand.
            "word" | "concatenation" | "string" | "raw_string" => {
                text.contains("/proc/") && text.contains("mem")
            }
            _ => false,
        };
        is_unproven.then(|| super::super::rules::shortened(text, 200))
    }

    fn holds_number(&self, name: &str) -> bool {
        // What programs get may be set outside of the script.
        let is_set = !self.evaluates && !is_harmless(name);
        let is_number = self.is_number.get(name).copied();
        is_set && is_number.unwrap_or(false) || NUMBERS.contains(&name) && is_number.unwrap_or(!self.unsets)
    }

    /// Returns whether all that an expression names holds numbers.
    fn is_number_only(&self, source: &Source<'_>, node: Node<'_>) -> bool {
        let mut waiting = vec![node];
        let mut seen = 0;
        while let Some(node) = waiting.pop() {
            seen += 1;
            let text = source.of(node);
            let is_number = match node.kind() {
                "simple_expansion" => {
                    if !self.holds_number(&text[1..]) {
                        return false;
                    }
                    continue;
                }
                "variable_name" | "special_variable_name" => self.holds_number(text),
                "word" => self.holds_number(text) || text.bytes().all(|byte| byte.is_ascii_digit()),
                "expansion" if text.starts_with("${#") => continue,
                "command_substitution" | "raw_string" | "ansi_c_string" | "string" | "subscript" => false,
                // `x$i` is the name `x1`.
                "concatenation" => {
                    waiting.extend(children(node));
                    children(node).iter().all(|part| {
                        part.kind() != "word" || source.of(*part).bytes().all(|byte| byte.is_ascii_digit())
                    })
                }
                "do_group" => continue,
                _ => {
                    waiting.extend(children(node));
                    true
                }
            };
            if !is_number || seen > 1_000 {
                return false;
            }
        }
        true
    }
}

/// Returns whether an assignment decides what runs: by its name, as a variable that programs get, or by a place or value that is evaluated.
fn is_unproven_assignment(source: &Source<'_>, visit: &Visit<'_, '_>) -> bool {
    let name = visit.node.child_by_field_name("name").map_or("", |name| source.of(name));
    let value = visit.node.child_by_field_name("value");
    let plain = name.split('[').next().unwrap_or_default();
    let above = visit.ancestors.last();
    let program =
        above.filter(|above| above.kind() == "command").and_then(|it| it.child_by_field_name("name"));
    // How `read` alone divides a line.
    if plain == "IFS" && program.is_some_and(|program| source.of(program) == "read") {
        return false;
    }
    let is_exported = match above.map_or("", |above| above.kind()) {
        "command" => true,
        "declaration_command" => {
            !["local", "readonly", "declare", "typeset"].contains(&first_word(source, visit.ancestors))
        }
        _ => false,
    };
    let is_free = !name.contains('[') || name.split('[').nth(1).is_some_and(is_plain_subscript);
    // To bash what is not ASCII is not a name, but the beginning of a program's.
    !is_free
        || !plain.is_ascii()
        || plain.starts_with(|first: char| first.is_ascii_digit())
        || value.is_some_and(|value| is_list_again(source, value, visit))
        || (decides(plain) || is_exported) && !is_harmless(plain)
        || is_integer(plain) && !value.is_some_and(|value| is_number(source, value))
        || value.is_some_and(|value| has_evaluated_places(source, value, visit))
}

/// The names that a command may find in a word: the word, and of `-rax` what may be joined to a letter.
pub fn names_in(word: &str) -> impl Iterator<Item = &str> {
    let letters = if word.starts_with('-') { word.len().min(MAX_JOINED) } else { 1 };
    (0..letters).filter_map(|at| word.get(at..))
}

/// `${x:=1}`: the name and what it gets where it has nothing.
fn default_assignment(expansion: &str) -> Option<(&str, &str)> {
    let inner = expansion.strip_prefix("${")?.strip_suffix('}')?;
    let (name, value) = inner.split_once('=')?;
    let name = name.strip_suffix(':').unwrap_or(name).split('[').next()?;
    name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()).then_some((name, value))
}

/// `${x@P}`, `${!x}`, `${x[…]}`, `${x:…}`, `${PATH:=…}`
fn is_unproven_expansion(text: &str) -> bool {
    let inner = text.trim_start_matches("${").trim_end_matches('}');
    let name_end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
    let (name, rest) = inner.split_at(name_end);
    // `${@:…}`, `${x[@]:…}`
    let rest = if name.is_empty() { rest.trim_start_matches(['@', '*']) } else { rest };
    let rest = ["[@]", "[*]"].iter().find_map(|all| rest.strip_prefix(all)).unwrap_or(rest);
    let is_offset = rest.starts_with(':')
        && !rest[1..].starts_with(['-', '=', '+', '?'])
        && rest.contains(|c: char| !c.is_ascii_digit() && !" :-".contains(c));
    // The grammar does not look into patterns, nor into backticks, and to it single quotes count between double ones, too.
    let is_default = rest.trim_start_matches(':').starts_with(['-', '=', '+', '?']);
    let is_opaque = rest.contains('`')
        || rest.contains('\'') && rest.contains('$')
        || !is_default
            && ["$(", "${", "$["].iter().any(|opening| without_plain_parameters(rest).contains(opening));
    inner.starts_with('!')
        || rest.contains("@P")
        || is_opaque
        || is_offset
        || (rest.trim_start_matches(':').starts_with('=') && decides(name))
}

/// Without `${x}` of any name.
fn without_plain_parameters(text: &str) -> String {
    let mut parts = text.split("${");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| match part.split_once('}') {
        Some((name, rest)) if name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) => {
            kept + rest
        }
        _ => kept + "${" + part,
    })
}

/// `x=([i]=1)`: returns whether a list has subscripts that are evaluated. Those of what is declared as a dictionary are not.
fn has_evaluated_places(source: &Source<'_>, value: Node<'_>, visit: &Visit<'_, '_>) -> bool {
    let is_place = |item: &Node<'_>| {
        let text = source.of(*item);
        text.starts_with('[') && !text[1..].split(']').next().is_some_and(is_plain_subscript)
    };
    let is_dictionary = || {
        let declared = visit.ancestors.last().filter(|above| above.kind() == "declaration_command");
        declared.is_some_and(|above| {
            children(*above).iter().any(|child| {
                let option = source.of(*child);
                child.kind() == "word" && option.starts_with('-') && option.contains('A')
            })
        })
    };
    value.kind() == "array" && children(value).iter().any(is_place) && !is_dictionary()
}

/// Returns whether a declaration may read its value again as a list, whose items are evaluated: `declare -a x='($(ls))'`.
fn is_list_again(source: &Source<'_>, value: Node<'_>, visit: &Visit<'_, '_>) -> bool {
    let declared = visit.ancestors.last().filter(|above| above.kind() == "declaration_command");
    let Some(declared) = declared.filter(|_| value.kind() != "array") else { return false };
    let value = word(source, value, 0);
    let has_lists =
        || source.text.contains("=(") || source.text.contains("read") || source.text.contains("mapfile");
    let is_list = |child: &Node<'_>| {
        let option = source.of(*child);
        child.kind() != "variable_assignment" && option.starts_with(['-', '+']) && option.contains(['a', 'A'])
    };
    match value.fixed {
        true => value.text.starts_with('('),
        false => children(*declared).iter().any(is_list) || has_lists(),
    }
}

/// Returns whether a redirection stores its descriptor in a variable that decides something or whose place is evaluated: `{PATH}>x`.
fn names_descriptor(source: &Source<'_>, redirect: Node<'_>) -> bool {
    let before = source.text.get(..redirect.start_byte()).and_then(|text| text.strip_suffix('}'));
    let name = before.and_then(|text| text.rsplit_once('{')).map_or("", |(_, name)| name);
    name.contains('[') || decides(name)
}

/// Returns whether one of the tokens in a node divides commands or redirects.
fn has_control_operator(source: &Source<'_>, node: Node<'_>) -> bool {
    let (mut waiting, mut seen) = (vec![node], 0);
    while let Some(node) = waiting.pop() {
        seen += 1;
        let is_token = node.child_count() == 0;
        if seen > 1_000
            || is_token && source.of(node).starts_with(['|', '&', ';', '<', '>', '\n'])
            || node.is_error()
        {
            return true;
        }
        waiting.extend(node.children(&mut node.walk()));
    }
    false
}

/// Returns whether an expansion stands unquoted in `[ … ]`: its value may become the operator that evaluates what follows.
fn is_bare_in_test(source: &Source<'_>, visit: &Visit<'_, '_>) -> bool {
    let mut above = visit.ancestors.iter().rev().filter(|above| !above.kind().ends_with("ary_expression"));
    above.next().is_some_and(|above| above.kind() == "test_command" && !source.of(*above).starts_with("[["))
}

/// Returns whether a value is a number, as it is written.
fn is_number(source: &Source<'_>, value: Node<'_>) -> bool {
    let text = source.of(value);
    match value.kind() {
        "arithmetic_expansion" => true,
        "brace_expression" => text.bytes().all(|byte| b"{}.-".contains(&byte) || byte.is_ascii_digit()),
        _ => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_plain_subscript(index: &str) -> bool {
    let index = index.trim_end_matches(['}', ']']);
    matches!(index, "@" | "*") || index.bytes().all(|byte| byte.is_ascii_digit())
}

fn first_word<'s>(source: &Source<'s>, ancestors: &[Node<'_>]) -> &'s str {
    let text = ancestors.last().map_or("", |node| source.of(*node));
    text.split_whitespace().next().unwrap_or_default()
}
