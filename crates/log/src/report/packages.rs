//! Recognising package installations in shell commands.

use regex_lite::Regex;
use serde::Serialize;
use std::sync::LazyLock;

/// A package that a command installs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Package {
    /// The package manager: `pip`, `npm`, `cargo`, …
    pub manager: String,
    /// The package as the command names it, version included; `(the project's)` for the packages of the project's own
    /// files.
    pub name: String,
}

/// Managers by the name of their program, and the words after which packages follow.
const MANAGERS: [(&str, &[&str]); 31] = [
    ("pip", &["install"]),
    ("pip3", &["install"]),
    ("pipx", &["install"]),
    ("uv", &["add", "pip install", "tool install"]),
    ("poetry", &["add"]),
    ("pdm", &["add"]),
    ("conda", &["install"]),
    ("mamba", &["install"]),
    ("micromamba", &["install"]),
    ("npm", &["install", "i", "add", "ci"]),
    ("pnpm", &["add", "install", "i"]),
    ("yarn", &["add", "install"]),
    ("bun", &["add", "install"]),
    ("cargo", &["add", "install"]),
    ("go", &["get", "install"]),
    ("gem", &["install"]),
    ("bundle", &["add", "install"]),
    ("composer", &["require"]),
    ("apt", &["install"]),
    ("apt-get", &["install"]),
    ("aptitude", &["install"]),
    ("apk", &["add"]),
    ("dnf", &["install"]),
    ("yum", &["install"]),
    ("microdnf", &["install"]),
    ("zypper", &["install"]),
    ("pacman", &["-S", "-Sy", "-Syu"]),
    ("brew", &["install"]),
    ("nix-env", &["-i", "-iA"]),
    ("cabal", &["install"]),
    ("opam", &["install"]),
];

/// Options of these managers whose value is a separate word, and not a package.
const OPTIONS_WITH_VALUE: [&str; 24] = [
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "-c",
    "--constraint",
    "-t",
    "--target",
    "--prefix",
    "--root",
    "--path",
    "--branch",
    "--tag",
    "--rev",
    "--features",
    "-F",
    "-p",
    "--package",
    "--registry",
    "--version",
    "--vers",
    "-n",
    "--name",
];

/// Options whose value names what is installed.
const PACKAGE_OPTIONS: [&str; 5] = ["-r", "--requirement", "-e", "--editable", "--git"];

/// Programs that run another program, with their own options.
const PREFIXES: [&str; 7] = ["sudo", "env", "time", "nohup", "command", "exec", "nice"];

/// An installation in a shell text, and what the exit code of the whole text shows about it.
pub struct Installation {
    pub package: Package,
    /// Exit code 0 shows that the package was installed.
    success_shows_it: bool,
    /// Any other exit code shows that it was not.
    failure_shows_it: bool,
}

impl Installation {
    /// Returns whether the package was installed if the text exited with 0 (`ok`) or otherwise; `None` if that is unknown.
    pub fn outcome(&self, ok: bool) -> Option<bool> {
        (if ok { self.success_shows_it } else { self.failure_shows_it }).then_some(ok)
    }
}

/// The packages that a shell text installs. A heuristic for a report: scripts that the text runs are not examined.
pub fn installations(text: &str) -> Vec<Installation> {
    let commands = simple_commands(text);
    let first_certain = first_certain(&commands);
    let is_alone = first_certain == 0 && commands.len() == 1;
    let installation = |(index, command): (usize, &SimpleCommand)| {
        packages(&command.words).into_iter().map(move |package| Installation {
            package,
            success_shows_it: index >= first_certain,
            failure_shows_it: is_alone,
        })
    };
    commands.iter().enumerate().flat_map(installation).collect()
}

/// The index of the first of the commands that have all succeeded if the text exits with 0: the chain of `&&` at its end.
fn first_certain(commands: &[SimpleCommand]) -> usize {
    let ends = |command: &SimpleCommand| matches!(command.operator, Operator::End | Operator::Background);
    let Some((last, before)) = commands.split_last() else { return 0 };
    let start = before.iter().rposition(ends).map_or(0, |end| end + 1);
    let is_chain = before[start..].iter().all(|command| command.operator == Operator::And);
    if is_chain && last.operator == Operator::End { start } else { commands.len() }
}

fn packages(words: &[String]) -> Vec<Package> {
    let is_prefix = |word: &&String| {
        PREFIXES.contains(&word.as_str())
            || word.starts_with('-')
            || (word.contains('=') && !word.contains('/'))
    };
    let mut words: Vec<&str> = words.iter().skip_while(is_prefix).map(String::as_str).collect();
    if let [python, "-m", module @ ..] = words.as_slice()
        && program(python).starts_with("python")
    {
        words = module.to_vec();
    }
    let Some((first, rest)) = words.split_first() else { return Vec::new() };
    // pip3.12 and pip3 are pip.
    let name = program(first).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let manager = MANAGERS.iter().find(|(manager, _)| *manager == program(first) || *manager == name);
    let Some((manager, verbs)) = manager else { return Vec::new() };
    let Some(arguments) = verbs.iter().find_map(|verb| after_verb(rest, verb)) else { return Vec::new() };
    let manager = manager.trim_end_matches('3').to_owned();
    let named = names(arguments);
    let names = if named.is_empty() { vec!["(the project's)".to_owned()] } else { named };
    names.into_iter().map(|name| Package { manager: manager.clone(), name }).collect()
}

fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The words after `verb` (one word or two), before which only options are allowed.
fn after_verb<'a, 'b>(words: &'a [&'b str], verb: &str) -> Option<&'a [&'b str]> {
    let at = words.iter().position(|word| !word.starts_with('-') || *word == verb)?;
    verb.split(' ').try_fold(&words[at..], |rest, word| {
        rest.split_first().filter(|(first, _)| **first == word).map(|(_, rest)| rest)
    })
}

fn names(arguments: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if PACKAGE_OPTIONS.contains(word) {
            names.extend(words.next().map(|value| format!("{word} {value}")));
        } else if OPTIONS_WITH_VALUE.contains(word) {
            words.next();
        } else if !word.starts_with('-') && !word.is_empty() {
            names.push((*word).to_owned());
        }
    }
    names
}

/// The operator after a command.
#[derive(Clone, Copy, PartialEq)]
enum Operator {
    /// `;`, a line end, the end of the text.
    End,
    /// `&`
    Background,
    /// `&&`
    And,
    /// `|`, `||`, a parenthesis: the exit code of the text need not be this command's.
    Other,
}

/// A command without operators.
struct SimpleCommand {
    words: Vec<String>,
    operator: Operator,
}

/// Quoted text, escapes, redirections and operators. `shell_words` splits what is between operators.
static TOKEN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let quoted = r#"'[^']*'|"(?:\\.|[^"\\])*""#;
    let pattern = format!(
        r"(?s)(?<kept>{quoted}|\\[^\n])|\\\n|[0-9]*[<>][<>&|]* *[^\s;&|()]*|(?<operator>&&|[;&|()\n])"
    );
    Regex::new(&pattern).ok()
});

/// The simple commands of a shell text, without redirections.
fn simple_commands(text: &str) -> Vec<SimpleCommand> {
    let mut commands: Vec<SimpleCommand> = Vec::new();
    let (mut command, mut rest) = (String::new(), 0);
    for token in TOKEN.iter().flat_map(|token| token.captures_iter(text)) {
        let Some(range) = token.get(0).map(|found| found.range()) else { continue };
        command.push_str(&text[rest..range.start]);
        rest = range.end;
        command.push_str(token.name("kept").map_or("", |kept| kept.as_str()));
        let operator = match token.name("operator").map(|operator| operator.as_str()) {
            None => continue,
            Some(";" | "\n") => Operator::End,
            Some("&&") => Operator::And,
            Some("&") => Operator::Background,
            Some(_) => Operator::Other,
        };
        push_command(&mut commands, &std::mem::take(&mut command), operator);
    }
    push_command(&mut commands, &(command + &text[rest..]), Operator::End);
    commands
}

fn push_command(commands: &mut Vec<SimpleCommand>, text: &str, operator: Operator) {
    // Text with an open quote is not a valid command, but its words may still name packages.
    let words =
        shell_words::split(text).unwrap_or_else(|_| text.split_whitespace().map(str::to_owned).collect());
    match commands.last_mut() {
        // An empty line changes nothing; the second `|` of `||`, or a parenthesis, does.
        Some(last) if words.is_empty() && operator == Operator::Other => last.operator = operator,
        _ if words.is_empty() && operator != Operator::Other => {}
        _ => commands.push(SimpleCommand { words, operator }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(command: &str) -> String {
        let packages = installations(command)
            .into_iter()
            .map(|installation| format!("{}:{}", installation.package.manager, installation.package.name));
        packages.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn installations_are_recognised() {
        for (command, packages) in [
            ("pip install requests 'flask>=2' ", "pip:requests pip:flask>=2"),
            ("pip3.12 install --user -i https://mirror numpy", "pip:numpy"),
            ("python3 -m pip install -q -r requirements.txt 2>&1 | tail -3", "pip:-r requirements.txt"),
            ("cd app && npm install --save-dev jest@29 >/dev/null", "npm:jest@29"),
            ("npm ci", "npm:(the project's)"),
            ("sudo -E DEBIAN_FRONTEND=noninteractive apt-get -y install curl jq", "apt-get:curl apt-get:jq"),
            ("apt-get update; apt-get install -y \\\n  git", "apt-get:git"),
            ("FOO=1 cargo add serde --features derive", "cargo:serde"),
            ("(go install golang.org/x/tools/gopls@latest &)", "go:golang.org/x/tools/gopls@latest"),
            ("uv pip install httpx || uv add httpx", "uv:httpx uv:httpx"),
            ("/usr/bin/pip install .", "pip:."),
            ("apk add --no-cache bash", "apk:bash"),
            ("echo \"a; b\" 2>log; pip install 'six>=1;x'", "pip:six>=1;x"),
        ] {
            assert_eq!(found(command), packages, "{command}");
        }
    }

    /// Returns what the exit codes show about each package: `+` for 0, `-` for any other, `?` if neither shows anything.
    fn shown(command: &str) -> String {
        let shown =
            |installation: &Installation| match (installation.outcome(true), installation.outcome(false)) {
                (Some(true), Some(false)) => "+-",
                (Some(true), None) => "+",
                (None, None) => "?",
                other => panic!("{other:?}"),
            };
        installations(command).iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_exit_code_shows_only_the_outcome_of_the_last_chain() {
        for (command, expected) in [
            ("pip install six", "+-"),
            ("pip install six\n", "+-"),
            ("pip install six;", "+-"),
            ("pip install six; npm install left-pad; cargo add serde; echo x", "? ? ?"),
            ("pip install six\npip install seven", "? +"),
            ("cd app && npm install jest &&\n npm test", "+"),
            ("apt-get update; apt-get install -y git", "+"),
            ("pip install six || true", "?"),
            ("pip install six | tail -3", "?"),
            ("false || pip install six && echo x", "?"),
            ("pip install six &", "?"),
            ("(pip install six; true)", "?"),
            ("(pip install six)", "?"),
            ("echo $(pip install six)", "?"),
        ] {
            assert_eq!(shown(command), expected, "{command}");
        }
    }

    #[test]
    fn other_commands_are_not_installations() {
        for command in [
            "echo pip install x",
            "pip list",
            "echo 'a; pip install x'",
            "cargo build",
            "npm run install-all",
            "",
            "'",
            "pip",
        ] {
            assert_eq!(found(command), "", "{command}");
        }
    }
}
