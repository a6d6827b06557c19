//! Parsing with bounds, and walking a tree without recursion: a hostile text may nest as deep as it is long.

use super::super::findings::Language;
use super::shell::unescape_c;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::Instant;
use tree_sitter::{Node, ParseOptions, Parser, Tree};

/// The longest text that is parsed, in bytes.
const MAX_SOURCE: usize = 1 << 20;
/// How deep an expression is followed.
pub const MAX_DEPTH: usize = 32;
/// Assignments are followed through this many others: `a = eval; b = a; c = b`.
const MAX_ASSIGNMENTS: usize = 4;
/// How many nodes are visited between two looks at the clock.
const NODES_PER_LOOK: usize = 64;

/// A text and its tree.
pub struct Source<'s> {
    pub text: &'s str,
    tree: Tree,
    deadline: Instant,
}

/// The kinds of nodes that make up a string in one language; empty where it has none.
pub struct Strings {
    /// A string with its quotes.
    pub whole: &'static [&'static str],
    /// A piece of text in it, which may have escapes.
    pub content: &'static [&'static str],
    /// The quotes, where they are nodes.
    pub delimiters: &'static [&'static str],
    /// Strings side by side.
    pub adjacent: &'static str,
    /// An operator between two expressions.
    pub sum: &'static str,
}

impl Strings {
    /// Of a language in which no string is looked into.
    pub const NONE: Self = Self { whole: &[], content: &[], delimiters: &[], adjacent: "", sum: "" };
}

/// A place in a tree: the kinds of the parent, and the field that a node stands in, or any.
pub type Place = (&'static [&'static str], Option<&'static str>);

/// A node, its ancestors, and its role there.
pub struct Visit<'v, 't> {
    pub node: Node<'t>,
    /// The field of the parent that the node stands in.
    pub field: Option<&'static str>,
    /// From the root to the parent.
    pub ancestors: &'v [Node<'t>],
}

impl Visit<'_, '_> {
    /// Returns whether the node stands in one of these places.
    pub fn is_in(&self, places: &[Place]) -> bool {
        let parent = self.ancestors.last().map_or("", |parent| parent.kind());
        places
            .iter()
            .any(|(parents, field)| parents.contains(&parent) && (field.is_none() || *field == self.field))
    }
}

/// The way on from a node: into its children, or past them.
#[derive(PartialEq, Eq)]
pub enum Descend {
    Yes,
    No,
}

impl<'s> Source<'s> {
    /// Parses `text`; `None` where it is too long or takes too long.
    pub fn parse(language: Language, dialect: Dialect, text: &'s str, deadline: Instant) -> Option<Self> {
        if text.len() > MAX_SOURCE {
            return None;
        }
        let mut parser = Parser::new();
        parser.set_language(&grammar(language, dialect)).ok()?;
        let mut in_time = |_: &_| match Instant::now() < deadline {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        let options = ParseOptions::new().progress_callback(&mut in_time);
        let seen = seen_by(language, text);
        let mut read = |offset: usize, _| seen.get(offset..).unwrap_or_default();
        let tree = parser.parse_with_options(&mut read, None, Some(options))?;
        Some(Self { text, tree, deadline })
    }

    /// Returns whether some of it is not in the language.
    pub fn has_error(&self) -> bool {
        self.tree.root_node().has_error()
    }

    /// Returns what a node stands for.
    pub fn of(&self, node: Node<'_>) -> &'s str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    /// Visits every node, parents first. False where time ran out before the end.
    pub fn walk<'t>(&'t self, visit: &mut dyn FnMut(&Visit<'_, 't>) -> Descend) -> bool {
        let mut cursor = self.tree.walk();
        let mut ancestors = Vec::new();
        for count in 1.. {
            if count % NODES_PER_LOOK == 0 && Instant::now() >= self.deadline {
                return false;
            }
            let node = cursor.node();
            let descend = visit(&Visit { node, field: cursor.field_name(), ancestors: &ancestors });
            if descend == Descend::Yes && cursor.goto_first_child() {
                ancestors.push(node);
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return true;
                }
                ancestors.pop();
            }
        }
        true
    }

    /// Visits every node until `bind` finds nothing new any more. False where time ran out before the end.
    pub fn walk_until_settled<'t>(&'t self, bind: &mut dyn FnMut(&Visit<'_, 't>) -> bool) -> bool {
        for _ in 0..MAX_ASSIGNMENTS {
            let mut is_news = false;
            let in_time = self.walk(&mut |visit| {
                is_news |= bind(visit);
                Descend::Yes
            });
            if !in_time || !is_news {
                return in_time;
            }
        }
        true
    }

    /// A string that is there as a whole: adjacent and added literals too, but nothing that is computed.
    pub fn literal(&self, node: Node<'_>, strings: &Strings, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let literal = |node| self.literal(node, strings, depth + 1);
        match node.kind() {
            kind if strings.whole.contains(&kind) => {
                let mut text = String::new();
                for part in children(node) {
                    match part.kind() {
                        kind if strings.content.contains(&kind) => text += &unescape_c(self.of(part)),
                        kind if strings.delimiters.contains(&kind) => {}
                        _ => return None,
                    }
                }
                Some(text)
            }
            "parenthesized_expression" => literal(*children(node).first()?),
            kind if kind == strings.adjacent => children(node).into_iter().map(literal).collect(),
            kind if kind == strings.sum && self.of(node.child_by_field_name("operator")?) == "+" => {
                let left = literal(node.child_by_field_name("left")?)?;
                Some(left + &literal(node.child_by_field_name("right")?)?)
            }
            _ => None,
        }
    }
}

/// The text as the parser gets it: as long as the real one, which every name is then taken from.
///
/// The shell's grammar looks characters up in a table that ends at U+00FF, and takes every Unicode space for a blank. To
/// a shell, what is not ASCII is part of a word: so it is here. Of ASCII, it divides words at blanks, tabs and line feeds alone.
fn seen_by(language: Language, text: &str) -> Cow<'_, [u8]> {
    let is_letter = |byte: u8| !byte.is_ascii() || matches!(byte, b'\r' | 0x0b | 0x0c);
    if language != Language::Shell || !text.bytes().any(is_letter) {
        return Cow::Borrowed(text.as_bytes());
    }
    Cow::Owned(text.bytes().map(|byte| if is_letter(byte) { b'x' } else { byte }).collect())
}

/// The line that a node starts at, from 1.
pub fn line(node: Node<'_>) -> usize {
    node.start_position().row + 1
}

/// A node's named children without comments.
pub fn children<'t>(node: Node<'t>) -> Vec<Node<'t>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).filter(|child| !child.is_extra()).collect()
}

/// Which of a language's grammars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The usual one; for JavaScript the one that knows JSX.
    Usual,
    /// TypeScript without JSX, where `<T>x` is a cast.
    TypeScript,
}

fn grammar(language: Language, dialect: Dialect) -> tree_sitter::Language {
    match language {
        Language::Shell => tree_sitter_bash::LANGUAGE.into(),
        Language::Python => tree_sitter_python::LANGUAGE.into(),
        Language::JavaScript if dialect == Dialect::TypeScript => {
            tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into()
        }
        // TypeScript is a superset: one grammar less to carry.
        Language::JavaScript => tree_sitter_typescript::LANGUAGE_TSX.into(),
        Language::Rust => tree_sitter_rust::LANGUAGE.into(),
        Language::Go => tree_sitter_go::LANGUAGE.into(),
        Language::Ruby => tree_sitter_ruby::LANGUAGE.into(),
    }
}
