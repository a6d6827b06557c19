//! The operands of a command, compared with those of a rule.

use super::arguments::{ArgumentSyntax, Operands};
use super::findings::Word;
use super::kubernetes::is_same_resource;
use super::likeness::Likeness;
use super::other_names;
use super::pathspecs;
use super::simple_pattern::is_same;

/// Subcommands of git that take paths.
const TAKE_PATHS: [&str; 9] = ["add", "stage", "rm", "mv", "checkout", "restore", "clean", "reset", "commit"];
/// Subcommands of kubectl that take a pod.
const TAKE_PODS: [&str; 4] = ["logs", "exec", "attach", "port-forward"];

/// The operands of a rule, as its program takes them.
pub struct Wanted {
    program: String,
    texts: Vec<String>,
    /// How many have a fixed place: those that name the subcommand.
    fixed: usize,
    /// How sure it is that one behind others counts.
    behind: Likeness,
    /// The kind of those behind the fixed ones.
    kind: Operands,
    /// Set if the program may have more options than are known.
    has_more: bool,
    is_push: bool,
}

impl Wanted {
    pub fn new(program: &str, texts: &[&str]) -> Self {
        let mut syntax = ArgumentSyntax::of(program);
        let mut fixed = 0;
        while syntax.operands() == Operands::Commands && fixed < texts.len() {
            syntax.below(texts[fixed]);
            fixed += 1;
        }
        let (kind, has_more) = (syntax.operands(), syntax.has_more());
        let is_push = program == "git" && texts.first() == Some(&"push");
        let (named, rest) = texts.split_at(fixed);
        let texts: Vec<String> =
            named.iter().map(|text| (*text).to_owned()).chain(objects(kind, rest)).collect();
        let fixed = if kind == Operands::Runs { texts.len() } else { fixed };
        let behind = if kind == Operands::Unknown { Likeness::Maybe } else { Likeness::Yes };
        Self { program: program.to_owned(), texts, fixed, behind, kind, has_more, is_push }
    }

    /// Reads the arguments in every way at once: a word behind an option may be its value or an operand.
    /// `matched[n]` says how sure it is that the first n operands have been seen.
    pub fn likeness(&self, arguments: &[Word]) -> Likeness {
        let mut matched = vec![Likeness::No; self.texts.len() + 1];
        matched[0] = Likeness::Yes;
        let mut syntax = ArgumentSyntax::of(&self.program);
        // Whether the word before takes this one.
        let (mut is_value, mut only_operands, mut object_type) = (Some(false), false, None);
        for word in arguments {
            if !only_operands && word.text == "--" && is_value != Some(true) {
                // Behind an option it may be that one's value: then options go on.
                only_operands = is_value == Some(false);
                continue;
            }
            // A mode may begin with a dash: `chmod -w,+x`.
            let is_mode = || self.texts.iter().any(|wanted| is_same(&self.program, &word.text, wanted));
            if !only_operands && word.is_flag() && is_value != Some(true) && !is_mode() {
                is_value = syntax.takes_next(&word.text);
                continue;
            }
            let role = is_value.replace(false);
            if role == Some(true) {
                continue;
            }
            let kind = syntax.operands();
            let object = object(kind, &word.text, &mut object_type);
            for n in (0..self.texts.len()).rev() {
                let here = self.compare(n, word, &object);
                matched[n + 1] = matched[n + 1].max(matched[n].min(here));
                let passed_by = match role {
                    _ if n >= self.fixed && self.behind == Likeness::Yes => Likeness::Yes,
                    // Of a program of which not all is known, either is as likely: what a rule denies is not let through.
                    None if self.has_more => Likeness::Yes,
                    None => Likeness::Maybe,
                    _ if n >= self.fixed => self.behind,
                    _ => Likeness::No,
                };
                matched[n] = matched[n].min(passed_by);
            }
            if kind == Operands::Commands {
                syntax.below(&word.text);
            }
        }
        matched[self.texts.len()]
    }

    /// Returns whether the operands are paths of git's.
    fn takes_paths(&self) -> bool {
        self.program == "git" && self.texts.first().is_some_and(|name| TAKE_PATHS.contains(&name.as_str()))
    }

    /// Returns whether the operands are pods of a cluster, of which the type may stand in front.
    fn takes_pods(&self) -> bool {
        matches!(self.program.as_str(), "kubectl" | "oc")
            && self.texts.first().is_some_and(|name| TAKE_PODS.contains(&name.as_str()))
    }

    /// Compares an operand with the nth of the rule.
    fn compare(&self, n: usize, word: &Word, object: &str) -> Likeness {
        let wanted = self.texts[n].as_str();
        let is_it = match self.kind {
            Operands::Typed if n >= self.fixed => is_same_resource(object, wanted),
            _ if n == 0 && other_names::is_beginning(&self.program, &word.text, wanted) => true,
            _ if n > 0 && self.takes_paths() && pathspecs::names(&word.text, wanted) => true,
            _ if n > 0 && self.takes_pods() && is_pod(&word.text, wanted) => true,
            _ => is_same(&self.program, &word.text, wanted),
        };
        match self.is_push && n > 0 && word.fixed && !is_it {
            true => destination(&word.text, wanted),
            false => Likeness::of(word, is_it),
        }
    }
}

/// The operands behind a subcommand that takes a type and names, each with its type.
fn objects(kind: Operands, operands: &[&str]) -> Vec<String> {
    let mut object_type = None;
    let objects: Vec<String> = operands.iter().map(|text| object(kind, text, &mut object_type)).collect();
    // The type alone says nothing more than its objects.
    let begins_with_type = object_type.is_some() && objects.len() > 1;
    objects.into_iter().skip(usize::from(begins_with_type)).collect()
}

/// Returns whether `given` is the pod `wanted`: `pod/x` is `x`.
fn is_pod(given: &str, wanted: &str) -> bool {
    fn name(pod: &str) -> &str {
        pod.split_once('/').filter(|(kind, _)| is_same_resource(kind, "pod")).map_or(pod, |(_, name)| name)
    }
    name(given) == name(wanted)
}

/// An operand with the type that stands before it: of `pod x`, `pod/x`.
fn object(kind: Operands, text: &str, object_type: &mut Option<String>) -> String {
    match object_type {
        _ if kind != Operands::Typed || text.contains('/') => text.to_owned(),
        Some(before) => format!("{before}/{text}"),
        None => object_type.insert(text.to_owned()).clone(),
    }
}

/// Compares the branch that a word of `git push` writes with that of a rule. What `HEAD` stands for and a pattern covers is not known.
fn destination(refspec: &str, wanted: &str) -> Likeness {
    let branch = |refspec: &str| {
        let refspec = refspec.trim_start_matches('+');
        let target = refspec.rsplit_once(':').map_or(refspec, |(_, target)| target);
        target.trim_start_matches("refs/").trim_start_matches("heads/").to_owned()
    };
    match branch(refspec) {
        target if target == branch(wanted) => Likeness::Yes,
        target if matches!(target.as_str(), "HEAD" | "@") || target.contains('*') => Likeness::Maybe,
        _ => Likeness::No,
    }
}
