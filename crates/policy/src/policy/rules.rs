//! `[policy]` of `config.toml`: what never runs, and what the user is asked about.

use super::findings::{Findings, Kind, Language, Unseen, Use};
use super::likeness::Likeness;
use super::name_pattern::{NamePattern, ToolPattern};
use super::pattern::CommandPattern;
use agent_base::error::{Error, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Deny and ask rules, by the names that the user and the model see.
///
/// ```toml
/// [policy.deny.publishing]
/// commands = ["git push", "npm publish"]
/// because = "the maintainers publish"
///
/// [policy.ask.native-code]
/// python = { modules = ["ctypes"], builtins = ["eval", "exec"] }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Rules for what does not run.
    pub deny: BTreeMap<String, Rule>,
    /// Rules for what the user is asked about, with `--approve risky` or `always`.
    pub ask: BTreeMap<String, Rule>,
    /// Programs that may run others which no rule sees, without a question.
    pub allow: BTreeMap<String, Allowed>,
}

/// Commands that are trusted with what they run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// The words that they begin with, exactly: `["cargo", "make test"]`.
    #[schemars(with = "Vec<String>")]
    pub commands: Vec<CommandPattern>,
}

/// The subject of one rule; any of its patterns is enough.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Programs, with subcommands and flags where that narrows it: `["rm -rf", "git push"]`.
    #[schemars(with = "Vec<String>")]
    pub commands: Vec<CommandPattern>,
    /// Python, by dotted names: `ctypes`, `os.system`.
    pub python: Names,
    /// JavaScript and TypeScript: `child_process`, `fs.rm`; `node:` makes no difference.
    pub javascript: Names,
    /// Rust, by paths: `std::process`; macros (`include_bytes!`) and `unsafe` are built-ins.
    pub rust: Names,
    /// Go, by import paths: `os/exec`, `os/exec.Command`.
    pub go: Names,
    /// Ruby, by the names that `require` takes; `system`, `eval`, `IO.popen` are built-ins.
    pub ruby: Names,
    /// Tools of MCP servers: `mcp__github__create_issue`, `mcp__github__*`.
    #[schemars(with = "Vec<String>")]
    pub tools: Vec<ToolPattern>,
    /// Why, as the model and the user read it.
    pub because: Option<String>,
}

/// Modules and built-ins of one language. A name covers everything below it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Names {
    /// Names that come in through an import.
    #[schemars(with = "Vec<String>")]
    pub modules: Vec<NamePattern>,
    /// Names that the language has without one.
    #[schemars(with = "Vec<String>")]
    pub builtins: Vec<NamePattern>,
}

/// A rule that something falls under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The rule's name.
    pub rule: String,
    /// The pattern of it: `git push`, `python: os.system`.
    pub pattern: String,
    /// The command that fell under it, or the name and where it is used.
    pub what: String,
    /// Why, where the rule gives a reason.
    pub because: Option<String>,
    /// The key that `always` remembers.
    pub(super) key: String,
}

impl Rules {
    /// Returns whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.deny.is_empty() && self.ask.is_empty()
    }

    /// These and the rules of a project, which are named `project.NAME` and take nothing away from these.
    pub fn with_project(mut self, project: &Self) -> Self {
        let named = |(name, rule): (&String, &Rule)| (format!("project.{name}"), rule.clone());
        self.deny.extend(project.deny.iter().map(named));
        self.ask.extend(project.ask.iter().map(named));
        self
    }

    /// Refuses rules that could never apply.
    pub(super) fn check(&self) -> Result<()> {
        let (deny, ask) = (self.deny.iter(), self.ask.iter());
        let named = deny.map(|rule| ("deny", rule)).chain(ask.map(|rule| ("ask", rule)));
        for (verdict, (name, rule)) in named {
            if rule.patterns().next().is_none() && rule.commands.is_empty() && rule.tools.is_empty() {
                return Err(Error::config(format!("the rule [policy.{verdict}.{name}] names nothing")).hint(
                    "give it `commands = [\"…\"]` or, for a language, `python = { modules = [\"…\"] }`",
                ));
            }
        }
        if !cfg!(feature = "grammars") && !self.is_empty() {
            return Err(Error::config(
                "this `agent` was built without the feature `policy`, so [policy] cannot be kept",
            )
            .hint("install it with its default features, or remove [policy] from config.toml"));
        }
        Ok(())
    }

    /// Returns whether a rule could have spoken of what something runs unseen, and the user does not trust it with that.
    pub(super) fn are_passed_by(&self, unseen: &Unseen) -> bool {
        let mut rules = self.deny.values().chain(self.ask.values());
        let is_concerned = rules.any(|rule| {
            // Rules about names were applied to code that was read.
            !rule.commands.is_empty() || (unseen.code.is_none() && rule.patterns().next().is_some())
        });
        let trusted = self.allow.values().flat_map(|allowed| &allowed.commands);
        is_concerned && !trusted.into_iter().any(|pattern| pattern.begins(&unseen.command))
    }

    /// Returns whether any rule depends on what is written in `language`.
    pub(super) fn speak_of(&self, language: Language) -> bool {
        let mut rules = self.deny.values().chain(self.ask.values());
        match language {
            // A command can hold code of every language.
            Language::Shell => !self.is_empty(),
            _ => rules.any(|rule| rule.patterns().any(|(of, ..)| of == language)),
        }
    }
}

impl Rule {
    /// All of its patterns in one line, and the reason.
    pub fn summary(&self) -> String {
        let commands = self.commands.iter().map(|pattern| pattern.text().to_owned());
        let names =
            self.patterns().map(|(language, _, name)| format!("{}: {}", language.name(), name.text()));
        let tools = self.tools.iter().map(|pattern| pattern.text().to_owned());
        let patterns: Vec<String> = commands.chain(names).chain(tools).collect();
        let because = self.because.as_ref().map(|because| format!("; {because}"));
        patterns.join(", ") + &because.unwrap_or_default()
    }

    fn patterns(&self) -> impl Iterator<Item = (Language, Kind, &NamePattern)> {
        let by_language = [
            (Language::Python, &self.python),
            (Language::JavaScript, &self.javascript),
            (Language::Rust, &self.rust),
            (Language::Go, &self.go),
            (Language::Ruby, &self.ruby),
        ];
        by_language.into_iter().flat_map(|(language, names)| {
            let modules = names.modules.iter().map(move |name| (language, Kind::Module, name));
            modules.chain(names.builtins.iter().map(move |name| (language, Kind::Builtin, name)))
        })
    }

    fn names(&self, used: &Use) -> Option<&NamePattern> {
        let is_it = |(language, kind, pattern): &(Language, Kind, &NamePattern)| {
            *language == used.language && *kind == used.name.kind && pattern.covers(&used.name.path)
        };
        self.patterns().find(is_it).map(|(.., pattern)| pattern)
    }
}

/// The rules that `findings` fall under, each once, with the first thing that falls under it. Commands that are not compared before the
/// deadline fall under none.
pub(super) fn matches(rules: &BTreeMap<String, Rule>, findings: &Findings, deadline: Instant) -> Vec<Match> {
    rules.iter().filter_map(|(name, rule)| first_match(name, rule, findings, deadline)).collect()
}

fn first_match(name: &str, rule: &Rule, findings: &Findings, deadline: Instant) -> Option<Match> {
    let found = |pattern: String, what: String| Match {
        rule: name.to_owned(),
        pattern,
        what,
        because: rule.because.clone(),
        key: format!("rule {name}"),
    };
    let commands = rule.commands.iter().find_map(|pattern| {
        let at =
            pattern.likeness(&findings.commands, deadline).iter().position(|like| *like == Likeness::Yes)?;
        Some(found(pattern.text().to_owned(), shown(&findings.commands[at].words)))
    });
    let tools = findings.tools.iter().find_map(|tool| {
        let pattern = rule.tools.iter().find(|pattern| pattern.covers(tool))?;
        Some(found(pattern.text().to_owned(), tool.clone()))
    });
    commands.or(tools).or_else(|| {
        findings.uses.iter().find_map(|used| {
            let pattern = format!("{}: {}", used.language.name(), rule.names(used)?.text());
            Some(found(pattern, format!("{} in {}", used.name.path, used.place)))
        })
    })
}

/// Commands that a rule may mean: a word of them that would decide it cannot be known, or the time is over.
pub(super) fn undecided(rules: &Rules, findings: &Findings, deadline: Instant) -> Vec<String> {
    let patterns = rules.deny.values().chain(rules.ask.values()).flat_map(|rule| &rule.commands);
    let mut undecided = BTreeSet::new();
    for pattern in patterns {
        let likeness = pattern.likeness(&findings.commands, deadline).into_iter().enumerate();
        undecided.extend(likeness.filter(|(_, like)| *like == Likeness::Maybe).map(|(at, _)| at));
    }
    undecided.into_iter().map(|at| shown(&findings.commands[at].words)).collect()
}

/// A command as a user would write it, shortened.
pub(super) fn shown(command: &[super::findings::Word]) -> String {
    let words: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
    shortened(&words.join(" "), 200)
}

/// At most `limit` characters.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(all(test, not(feature = "grammars")))]
mod tests {
    use super::*;

    #[test]
    fn rules_that_cannot_be_kept_are_refused() {
        let pattern = CommandPattern::try_from("git push".to_owned()).unwrap();
        let rule = Rule { commands: vec![pattern], ..Rule::default() };
        let rules = Rules { deny: BTreeMap::from([("a".to_owned(), rule)]), ..Rules::default() };
        assert!(rules.check().unwrap_err().to_string().contains("without the feature `policy`"));
        assert!(Rules::default().check().is_ok());
    }
}
