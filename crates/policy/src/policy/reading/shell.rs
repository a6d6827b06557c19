//! The shell, by its grammar: the commands that a script may run, with their words, what they read and where their output goes. The grammar is
//! not bash's own, so this is for rules, and proves nothing (see `proven.rs`).

use super::super::findings::{Becomes, Word};
use super::heredocs::{self, Body, Extracted};
use super::tree::{Descend, Source, Visit, children};
use tree_sitter::Node;

/// The longest pipeline in which what one stage prints is what the next one reads.
const MAX_STAGES: usize = 256;

/// A command of a script.
#[derive(Debug, Default)]
pub struct Run {
    /// The program and its arguments.
    pub words: Vec<Word>,
    /// Its standard input.
    pub stdin: Stdin,
    /// The file that its output goes to, and the output itself, where both stand in the script.
    pub written: Option<(String, String)>,
    /// The files that its output goes to, where the script is proven.
    pub targets: Vec<Word>,
    /// Set if more lines come after the one that it begins in.
    pub has_more: bool,
    /// Set if what it runs is among the commands of a proven script.
    pub is_read: bool,
    /// Set if other commands may run at the same time.
    pub has_company: bool,
}

/// The source of a command's standard input.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum Stdin {
    /// Whatever the script itself reads, or a file.
    #[default]
    Inherited,
    /// A text that stands in the script.
    Text {
        text: String,
        /// Set if it is what is read, to the last byte.
        is_exact: bool,
    },
    /// The output of another command.
    Pipe,
}

impl Stdin {
    /// The text of a here-document.
    pub fn of(body: &Body) -> Self {
        let is_exact = !body.expands || !body.text.contains(['$', '`', '\\']);
        Stdin::Text { text: body.text.clone(), is_exact }
    }

    /// The same, where something else may be read instead.
    pub fn inexact(self) -> Self {
        match self {
            Stdin::Text { text, .. } => Stdin::Text { text, is_exact: false },
            other => other,
        }
    }
}

/// A part of a script that counts.
pub enum ScriptPart {
    /// A command.
    Run(Run),
    /// Something other than a command, which decides what commands do (see [`super::super::findings::Findings::is_altered`]).
    Alteration,
}

/// Reads the commands of a parsed script, in order. False where time ran out.
pub fn read(source: &Source<'_>, heredocs: &Extracted, on_part: &mut dyn FnMut(ScriptPart)) -> bool {
    let reader = ScriptReader { source, heredocs };
    source.walk(&mut |visit| {
        if reader.alters(visit.node) {
            on_part(ScriptPart::Alteration);
        }
        if visit.node.kind() == "command" {
            on_part(ScriptPart::Run(Run {
                words: reader.words(visit.node),
                stdin: reader.stdin(visit),
                written: reader.written(visit),
                ..Run::default()
            }));
        }
        Descend::Yes
    })
}

/// Here-documents that the shell expands, as scripts of their own: what stands in `$(…)` there runs. Nothing in place of one that is not
/// understood.
pub fn expanded(heredocs: &Extracted) -> impl Iterator<Item = Option<String>> {
    let expands = |body: &&Body| body.expands && body.text.contains(['$', '`']);
    heredocs
        .bodies
        .iter()
        .filter(expands)
        .map(|body| Some(format!(": \"{}\"", heredocs::as_string(&body.text)?)))
}

struct ScriptReader<'s> {
    source: &'s Source<'s>,
    heredocs: &'s Extracted,
}

impl ScriptReader<'_> {
    /// Returns whether a node sets a variable, defines a function or sends output to a file.
    fn alters(&self, node: Node<'_>) -> bool {
        match node.kind() {
            "variable_assignment" | "declaration_command" | "unset_command" | "function_definition" => true,
            "file_redirect" => {
                let text = self.source.of(node).trim_start_matches(|c: char| c.is_ascii_digit());
                let target = text.trim_start_matches(['>', '&', '|']).trim();
                text.contains('>')
                    && target != "/dev/null"
                    && !target.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
            }
            _ => false,
        }
    }

    fn words(&self, command: Node<'_>) -> Vec<Word> {
        let mut cursor = command.walk();
        let mut words = Vec::new();
        for child in command.children(&mut cursor) {
            match child.kind() {
                "command_name" => words.extend(child.named_child(0).map(|name| word(self.source, name, 0))),
                "variable_assignment" | "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {}
                "variable_assignments" | "comment" | "subshell" => {}
                _ => words.push(word(self.source, child, 0)),
            }
        }
        words
    }

    /// The nearest redirection counts; a pipe only where there is none.
    fn stdin(&self, visit: &Visit<'_, '_>) -> Stdin {
        let mut current = visit.node;
        let statement = visit.ancestors.last().filter(|parent| parent.kind() == "redirected_statement");
        if let Some(input) = self.command_input(current, statement.copied()) {
            return input;
        }
        // Of what a group is given, others may read a part.
        let (mut is_its_own, mut is_last_stage) = (true, true);
        let given = |stdin, is_its_own| match stdin {
            Stdin::Text { text, is_exact } => Stdin::Text { text, is_exact: is_exact && is_its_own },
            other => other,
        };
        for parent in visit.ancestors.iter().rev() {
            match parent.kind() {
                "redirected_statement" => {
                    if let Some(text) = self.redirected_input(*parent) {
                        return given(text, is_its_own && is_last_stage);
                    }
                }
                "pipeline" => {
                    let stages = children(*parent);
                    let is_at =
                        |stage: Option<&Node<'_>>| stage.is_none_or(|stage| stage.id() == current.id());
                    is_last_stage = is_at(stages.last());
                    if !is_at(stages.first()) {
                        // A redirection behind the last stage is of that one.
                        let above =
                            visit.ancestors.iter().rev().skip_while(|above| above.id() != parent.id()).nth(1);
                        let outer =
                            above.filter(|above| is_last_stage && above.kind() == "redirected_statement");
                        let redirected = outer.and_then(|outer| self.redirected_input(*outer));
                        return given(
                            redirected.unwrap_or_else(|| self.stage_before(*parent, current)),
                            is_its_own,
                        );
                    }
                }
                "command_substitution" | "process_substitution" | "function_definition" | "program" => break,
                _ => is_its_own = false,
            }
            current = *parent;
        }
        Stdin::Inherited
    }

    /// Returns what a stage of a pipeline reads. In a very long one nobody looks for the stage before.
    fn stage_before(&self, pipeline: Node<'_>, stage: Node<'_>) -> Stdin {
        if pipeline.named_child_count() > MAX_STAGES {
            return Stdin::Pipe;
        }
        let before = children(pipeline).into_iter().take_while(|other| other.id() != stage.id()).last();
        before.and_then(|before| self.output(before)).unwrap_or(Stdin::Pipe)
    }

    /// Returns the last redirection of standard input. Of several it is not known which one is read.
    fn redirected_input(&self, node: Node<'_>) -> Option<Stdin> {
        let mut inputs: Vec<Stdin> =
            children(node).into_iter().filter_map(|child| self.input(child)).collect();
        let last = inputs.pop()?;
        Some(if inputs.is_empty() { last } else { last.inexact() })
    }

    /// Returns what is redirected to a command, by itself (`sh <<< x`) or by the statement that it is.
    fn command_input(&self, command: Node<'_>, statement: Option<Node<'_>>) -> Option<Stdin> {
        let outer = statement.and_then(|statement| self.redirected_input(statement));
        match (self.redirected_input(command), outer) {
            (Some(own), Some(_)) => Some(own.inexact()),
            (own, outer) => own.or(outer),
        }
    }

    /// Returns what a redirection gives to standard input.
    fn input(&self, redirect: Node<'_>) -> Option<Stdin> {
        let text = self.source.of(redirect);
        let operator = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let descriptor = &text[..text.len() - operator.len()];
        if descriptor.contains(|c| c != '0') {
            return None;
        }
        match redirect.kind() {
            "herestring_redirect" => {
                let word = word(self.source, redirect.named_children(&mut redirect.walk()).last()?, 0);
                Some(Stdin::Text { text: word.text, is_exact: word.fixed })
            }
            // `0>&3` is `0<&3`.
            "file_redirect" if operator.starts_with('<') || !descriptor.is_empty() => {
                let target = word(self.source, redirect.child_by_field_name("destination")?, 0).text;
                let body = self.heredocs.body(&target);
                Some(body.map_or(Stdin::Inherited, Stdin::of))
            }
            _ => None,
        }
    }

    /// Returns what a command prints, where that stands in the script: `echo …`, `printf …`, `cat <<EOF`.
    fn output(&self, node: Node<'_>) -> Option<Stdin> {
        let (command, redirects) = match node.kind() {
            "redirected_statement" => (node.child_by_field_name("body")?, Some(node)),
            _ => (node, None),
        };
        if command.kind() != "command" {
            return None;
        }
        printed(&self.words(command), &|| self.command_input(command, redirects).unwrap_or(Stdin::Inherited))
    }

    fn written(&self, visit: &Visit<'_, '_>) -> Option<(String, String)> {
        let parent = visit.ancestors.last().filter(|parent| parent.kind() == "redirected_statement");
        let statement = parent.copied().unwrap_or(visit.node);
        let words = self.words(visit.node);
        if words.first().is_some_and(|program| program.text == "tee") {
            let file = words.iter().skip(1).find(|word| !word.is_flag())?;
            let Stdin::Text { text, .. } = self.stdin(visit) else { return None };
            return Some((file.text.clone(), text));
        }
        let target = children(statement).into_iter().find_map(|child| {
            let operator = self.source.of(child).trim_start_matches(|c: char| c.is_ascii_digit() || c == '&');
            let is_output =
                child.kind() == "file_redirect" && operator.starts_with('>') && !operator.starts_with(">&");
            is_output.then(|| child.child_by_field_name("destination"))?
        })?;
        let Stdin::Text { text, .. } = self.output(statement)? else { return None };
        Some((word(self.source, target, 0).text, text))
    }
}

/// Returns what a command prints that reads `input`, where that stands in the script.
pub fn printed(words: &[Word], input: &dyn Fn() -> Stdin) -> Option<Stdin> {
    let (program, arguments) = words.split_first()?;
    match program.text.as_str() {
        "echo" | "printf" => {
            let is_option = |word: &&Word| word.is_flag() && word.text.len() <= 3;
            let texts: Vec<&str> =
                arguments.iter().skip_while(is_option).map(|word| word.text.as_str()).collect();
            // What follows a format that has no place for it is not printed.
            let is_exact = arguments.iter().all(|word| word.fixed && !word.text.contains(['\\', '%']))
                && texts.len() == arguments.len()
                && (program.text == "echo" || texts.len() == 1);
            Some(Stdin::Text { text: texts.join(" ").replace("\\n", "\n"), is_exact })
        }
        "cat" | "tee" => {
            // What else cat prints is in files, and any file of tee may be the same output by another name.
            let is_input = |word: &Word| word.text == "-" && program.text == "cat";
            let is_alone = arguments.iter().all(is_input);
            match input() {
                Stdin::Text { text, is_exact } => Some(Stdin::Text { text, is_exact: is_exact && is_alone }),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Reads one word of a command.
pub fn word(source: &Source<'_>, node: Node<'_>, depth: usize) -> Word {
    let text = source.of(node);
    match node.kind() {
        // Empty braces stay; what takes their place is up to the program.
        _ if text == "{}" => Word::changed(text, Becomes::One),
        "raw_string" => Word::fixed(inner(text, 1)),
        "ansi_c_string" => match ansi_c(inner(text, 2)) {
            Some(text) => Word::fixed(text),
            None => Word::changed(unescape_c(inner(text, 2)), Becomes::Any),
        },
        "string" => string(source, node),
        "translated_string" if depth < 2 => {
            node.named_child(0).map_or_else(|| Word::fixed(text), |string| word(source, string, depth + 1))
        }
        "concatenation" if depth < 2 => {
            let parts = children(node).into_iter().map(|part| word(source, part, depth + 1));
            parts.fold(Word::fixed(""), |whole, part| Word {
                text: whole.text + &part.text,
                fixed: whole.fixed && part.fixed,
                becomes: whole.becomes.max(part.becomes),
            })
        }
        "word" | "number" | "variable_name" | "test_operator" => plain(text),
        "arithmetic_expansion" => Word::changed(text, Becomes::One),
        "process_substitution" => Word::changed(text, Becomes::One),
        kind if kind.ends_with("expansion") || kind.ends_with("substitution") || kind == "concatenation" => {
            Word::changed(text, Becomes::Any)
        }
        _ if node.named_child_count() == 0 => plain(text),
        _ => Word::changed(unescape(text), Becomes::Any),
    }
}

/// Returns whether a text begins with `~+`, `~-` or `~1`, or may become one by its braces: directories that a script was in, or says that it
/// was in.
pub fn is_directory_of_stack(text: &str) -> bool {
    text.strip_prefix('~')
        .is_some_and(|rest| rest.starts_with(|c: char| "+-{".contains(c) || c.is_ascii_digit()))
}

/// A word outside quotes, without expansions.
fn plain(text: &str) -> Word {
    match is_glob(text) {
        _ if is_directory_of_stack(text) => Word::changed(unescape(text), Becomes::Any),
        true => Word::changed(unescape(text), Becomes::Alike),
        false => Word::fixed(unescape(text)),
    }
}

/// A word in double quotes: only the parameters, or the values of an array, become several.
fn string(source: &Source<'_>, string: Node<'_>) -> Word {
    let text = unescape_quoted(inner(source.of(string), 1));
    let parts = children(string);
    if parts.iter().all(|part| part.kind() == "string_content") {
        return Word::fixed(text);
    }
    let is_list = |part: &Node<'_>| part.kind().ends_with("expansion") && source.of(*part).contains('@');
    Word::changed(text, if parts.iter().any(is_list) { Becomes::Any } else { Becomes::One })
}

/// Returns whether the shell would make other words of it.
fn is_glob(text: &str) -> bool {
    let mut escaped = false;
    text.chars().any(|c| {
        let counts = !escaped && "*?[{}".contains(c);
        escaped = c == '\\' && !escaped;
        counts
    })
}

/// The text between an opening of `open` bytes and a closing quote.
fn inner(text: &str, open: usize) -> &str {
    text.get(open..text.len().saturating_sub(1)).unwrap_or_default()
}

/// Backslashes outside quotes: `r\m` is `rm`.
fn unescape(text: &str) -> String {
    unescape_where(text, |_| true)
}

/// Backslashes inside double quotes: only some characters need them.
fn unescape_quoted(text: &str) -> String {
    unescape_where(text, |c| "$`\"\\\n".contains(c))
}

fn unescape_where(text: &str, takes: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match characters.peek() {
            Some('\n') if c == '\\' => {
                characters.next();
            }
            Some(&next) if c == '\\' && takes(next) => {
                out.push(next);
                characters.next();
            }
            _ => out.push(c),
        }
    }
    out
}

/// The text that bash makes of `$'…'`; nothing where a byte is not a character, a NUL ends it, or versions differ.
pub fn ansi_c(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out += before;
        let kind = after.chars().next()?;
        let (value, length) = match kind {
            '\\' | '\'' | '"' | '?' => (Some(kind), 1),
            'a' => (Some('\x07'), 1),
            'b' => (Some('\x08'), 1),
            'e' | 'E' => (Some('\x1b'), 1),
            'f' => (Some('\x0c'), 1),
            'n' => (Some('\n'), 1),
            'r' => (Some('\r'), 1),
            't' => (Some('\t'), 1),
            'v' => (Some('\x0b'), 1),
            'x' => number(after, 1, 2, 16),
            'u' => number(after, 1, 4, 16),
            'U' => number(after, 1, 8, 16),
            '0'..='7' => number(after, 0, 3, 8),
            _ => return None,
        };
        let is_character = |c: &char| *c != '\0' && (c.is_ascii() || matches!(kind, 'u' | 'U'));
        out.push(value.filter(is_character)?);
        rest = after.get(length..)?;
    }
    Some(out + rest)
}

/// The escapes that C, bash's `$'…'`, Python and JavaScript have in common: `\n`, `\x72`, `\u0072`, `\162`.
pub fn unescape_c(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out += before;
        let kind = after.chars().next();
        let (value, length) = match kind {
            Some('x') => number(after, 1, 2, 16),
            Some('u') if after.starts_with("u{") => {
                let (value, length) = number(after, 2, 6, 16);
                (value, length + 1)
            }
            Some('u') => number(after, 1, 4, 16),
            Some('U') => number(after, 1, 8, 16),
            Some('0'..='7') => number(after, 0, 3, 8),
            _ => (None, 0),
        };
        match (value, kind) {
            (Some(value), _) => {
                out.push(value);
                rest = after.get(length..).unwrap_or_default();
            }
            (None, Some(c)) => {
                out.extend(match c {
                    'n' => Some('\n'),
                    't' => Some('\t'),
                    'r' => Some('\r'),
                    '\n' => None,
                    other => Some(other),
                });
                rest = &after[c.len_utf8()..];
            }
            (None, None) => rest = "",
        }
    }
    out + rest
}

/// A character by its number, and where the number ends.
fn number(text: &str, start: usize, digits: usize, radix: u32) -> (Option<char>, usize) {
    let text = text.get(start..).unwrap_or_default();
    let length = text.chars().take(digits).take_while(|c| c.is_digit(radix)).count();
    let value = u32::from_str_radix(&text[..length], radix).ok().and_then(char::from_u32);
    (value, start + length)
}
