//! A piece of code that is being read: what its names stand for, and what of it is used. The languages say how theirs is
//! written.

use super::super::findings::Name;
use super::names::{BoundNames, Reading, module};
use super::tree::{Descend, MAX_DEPTH, Source, Strings, Visit, children, line};
use tree_sitter::Node;

/// How one language writes expressions that lead to a module or a built-in.
pub struct Syntax {
    pub strings: Strings,
    /// Names that stand alone.
    pub names: &'static [&'static str],
    /// `X.name`: the node, the field of `X`, the field of `name`.
    pub member: [&'static str; 3],
    /// `X["key"]`: the node, the field of `X`, the field of the key.
    pub element: [&'static str; 3],
    pub call: &'static str,
    /// Expressions that stand for what one part of them does.
    pub same_as_part: &'static [(&'static str, ExpressionPart)],
    /// Gives the meaning of `X.name`.
    pub member_of: fn(Name, &str) -> Option<Name>,
    /// Gives the meaning of `X["key"]`.
    pub elements_of: fn(Vec<Name>, &str) -> Vec<Name>,
    /// Gives the result of a call.
    pub returned: fn(&Code<'_, '_>, &Call<'_>, usize) -> Vec<Name>,
}

/// A part of an expression.
pub enum ExpressionPart {
    First,
    Last,
    Field(&'static str),
}

impl Syntax {
    /// Of a language in which only strings are looked into.
    pub const fn of_strings(strings: Strings) -> Self {
        Self {
            strings,
            names: &[],
            member: [""; 3],
            element: [""; 3],
            call: "",
            same_as_part: &[],
            member_of: |_, _| None,
            elements_of: |_, _| Vec::new(),
            returned: |_, _, _| Vec::new(),
        }
    }
}

pub struct Code<'s, 'r> {
    pub source: &'s Source<'s>,
    pub names: BoundNames,
    pub reading: &'r mut Reading,
    syntax: &'static Syntax,
}

/// A call's parts.
pub struct Call<'t> {
    pub callee: Node<'t>,
    pub arguments: Vec<Node<'t>>,
}

impl<'t> Call<'t> {
    pub fn of(node: Node<'t>) -> Option<Self> {
        let field = |name| node.child_by_field_name(name);
        let callee = field("function").or_else(|| field("constructor"))?;
        Some(Self { callee, arguments: children(field("arguments")?) })
    }
}

impl<'s, 'r> Code<'s, 'r> {
    pub fn new(source: &'s Source<'s>, reading: &'r mut Reading, syntax: &'static Syntax) -> Self {
        Self { source, names: BoundNames::default(), reading, syntax }
    }

    /// Visits every node. False where time ran out.
    pub fn walk(&mut self, visit: fn(&mut Self, &Visit<'_, 's>) -> Descend) -> bool {
        let source = self.source;
        source.walk(&mut |node| visit(self, node))
    }

    /// Visits every node until `bind` finds nothing new any more. False where time ran out.
    pub fn walk_until_settled(&mut self, bind: fn(&mut Self, &Visit<'_, 's>) -> bool) -> bool {
        let source = self.source;
        source.walk_until_settled(&mut |node| bind(self, node))
    }

    /// The text of a node's field; empty where it has none.
    pub fn field(&self, node: Node<'_>, name: &str) -> &'s str {
        node.child_by_field_name(name).map_or("", |child| self.source.of(child))
    }

    pub fn literal(&self, node: Node<'_>, depth: usize) -> Option<String> {
        self.source.literal(node, &self.syntax.strings, depth)
    }

    /// Notes that `names` are used at `node`.
    pub fn note(&mut self, names: impl IntoIterator<Item = Name>, node: Node<'_>) {
        self.reading.uses.extend(names.into_iter().map(|name| (name, line(node))));
    }

    /// Notes what an expression may stand for.
    pub fn note_resolved(&mut self, node: Node<'_>) {
        let names = self.resolve(node, 0);
        self.note(names, node);
    }

    /// Notes that a module is imported under a name.
    pub fn import(&mut self, path: impl Into<String>, alias: &str, node: Node<'_>) {
        let imported = module(path);
        self.note([imported.clone()], node);
        self.names.bind(alias, imported);
    }

    /// The words of a list, as far as they are literals, as a shell command.
    pub fn command(&self, words: impl IntoIterator<Item = Node<'s>>) -> String {
        shell_words::join(words.into_iter().map_while(|word| self.literal(word, 0)))
    }

    pub fn members(&self, of: Vec<Name>, name: &str) -> Vec<Name> {
        of.into_iter().filter_map(|of| (self.syntax.member_of)(of, name)).collect()
    }

    /// Returns what an expression may stand for.
    pub fn resolve(&self, node: Node<'_>, depth: usize) -> Vec<Name> {
        if depth > MAX_DEPTH {
            return Vec::new();
        }
        let resolve =
            |part: Option<Node<'_>>| part.map_or_else(Vec::new, |part| self.resolve(part, depth + 1));
        let field = |name| node.child_by_field_name(name);
        let (syntax, kind) = (self.syntax, node.kind());
        if syntax.names.contains(&kind) {
            return self.names.meanings(self.source.of(node), ".");
        }
        if kind == syntax.member[0] {
            return self.members(resolve(field(syntax.member[1])), self.field(node, syntax.member[2]));
        }
        if kind == syntax.element[0] {
            let key = field(syntax.element[2]).and_then(|key| self.literal(key, depth + 1));
            return key
                .map_or_else(Vec::new, |key| (syntax.elements_of)(resolve(field(syntax.element[1])), &key));
        }
        if kind == syntax.call {
            return Call::of(node).map_or_else(Vec::new, |call| (syntax.returned)(self, &call, depth + 1));
        }
        match syntax.same_as_part.iter().find(|(other, _)| *other == kind) {
            Some((_, ExpressionPart::First)) => resolve(children(node).first().copied()),
            Some((_, ExpressionPart::Last)) => resolve(children(node).last().copied()),
            Some((_, ExpressionPart::Field(name))) => resolve(field(name)),
            None => Vec::new(),
        }
    }
}
