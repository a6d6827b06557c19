//! Recognising package installations in shell commands.

use serde::Serialize;

/// A package that a command installs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Package {
    /// The package manager: `pip`, `npm`, `cargo`, …
    pub manager: String,
    /// The package as it was asked for, version included; what the project's own files name is
    /// `(the project's)`.
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

/// Options of these managers whose value is a word of its own, and no package.
const WITH_VALUE: [&str; 24] = [
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

/// Options whose value is what gets installed.
const NAMING: [&str; 5] = ["-r", "--requirement", "-e", "--editable", "--git"];

/// Words that may stand in front of a program, with their own options.
const PREFIXES: [&str; 7] = ["sudo", "env", "time", "nohup", "command", "exec", "nice"];

/// A package in a shell text, and what the exit code of the text says of its installation.
pub struct Asked {
    /// Which.
    pub package: Package,
    /// Exit code 0 says that it was installed.
    success_tells: bool,
    /// Any other says that it was not.
    failure_tells: bool,
}

impl Asked {
    /// Whether it was installed by a text that exited with 0 (`ok`) or otherwise; `None` where that does not say it.
    pub fn outcome(&self, ok: bool) -> Option<bool> {
        (if ok { self.success_tells } else { self.failure_tells }).then_some(ok)
    }
}

/// The packages that the shell text `command` installs, as far as the words of it tell. A heuristic for a
/// report: what a script does inside is not seen.
pub fn installed_by(command: &str) -> Vec<Asked> {
    let commands = simple_commands(command);
    let told_from = told_from(&commands);
    let is_alone = told_from == 0 && commands.len() == 1;
    let asked = |(index, command): (usize, &Simple)| {
        packages(&command.words).into_iter().map(move |package| Asked {
            package,
            success_tells: index >= told_from,
            failure_tells: is_alone,
        })
    };
    commands.iter().enumerate().flat_map(asked).collect()
}

/// The first of the commands that have all succeeded where the text exits with 0: those that `&&` alone joins at its end.
fn told_from(commands: &[Simple]) -> usize {
    let ends = |command: &Simple| matches!(command.joint, Joint::End | Joint::Background);
    let Some((last, before)) = commands.split_last() else { return 0 };
    let start = before.iter().rposition(ends).map_or(0, |end| end + 1);
    let is_chain = before[start..].iter().all(|command| command.joint == Joint::And);
    if is_chain && last.joint == Joint::End { start } else { commands.len() }
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
    // pip3.12 is pip3 is pip.
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

/// The words after `verb` (one word or two), with nothing but options in front of it.
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
        if NAMING.contains(word) {
            names.extend(words.next().map(|value| format!("{word} {value}")));
        } else if WITH_VALUE.contains(word) {
            words.next();
        } else if !word.starts_with('-') && !word.is_empty() {
            names.push((*word).to_owned());
        }
    }
    names
}

/// What stands behind a command.
#[derive(Clone, Copy, PartialEq)]
enum Joint {
    /// `;`, a line's end, the end of the text.
    End,
    /// `&`
    Background,
    /// `&&`
    And,
    /// `|`, `||`, a parenthesis: what the whole exits with need not be what this one does.
    Other,
}

/// A command without operators.
struct Simple {
    words: Vec<String>,
    joint: Joint,
}

/// The commands of a shell text: parted at `;`, `&`, `|`, parentheses and line ends outside of quotes, redirections left
/// out.
fn simple_commands(text: &str) -> Vec<Simple> {
    let mut pieces: Vec<(String, Joint)> = Vec::new();
    let mut piece = String::new();
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '\\') if chars.peek() == Some(&'\n') => drop(chars.next()),
            (None | Some('"'), '\\') => piece.extend([Some(c), chars.next()].into_iter().flatten()),
            (None, '>' | '<') => {
                // The file descriptor in front, the operator and the file's name.
                piece.truncate(piece.trim_end_matches(|c: char| c.is_ascii_digit()).len());
                while chars.next_if(|c| matches!(c, '>' | '<' | '&' | '|' | ' ')).is_some() {}
                while chars.next_if(|c| !c.is_whitespace() && !";&|()".contains(*c)).is_some() {}
            }
            (None, ';' | '&' | '|' | '(' | ')' | '\n') => {
                let joint = match c {
                    ';' | '\n' => Joint::End,
                    '&' if chars.next_if_eq(&'&').is_some() => Joint::And,
                    '&' => Joint::Background,
                    _ => Joint::Other,
                };
                pieces.push((std::mem::take(&mut piece), joint));
            }
            _ => {
                quote = match quote {
                    None if matches!(c, '\'' | '"') => Some(c),
                    Some(open) if open == c => None,
                    other => other,
                };
                piece.push(c);
            }
        }
    }
    pieces.push((piece, Joint::End));
    let mut commands: Vec<Simple> = Vec::new();
    for (piece, joint) in pieces {
        // Quotes that are left open are no shell text; the plain words still tell something.
        let words = shell_words::split(&piece)
            .unwrap_or_else(|_| piece.split_whitespace().map(str::to_owned).collect());
        match commands.last_mut() {
            // An empty line changes nothing; the second `|` of `||`, or a parenthesis, does.
            Some(last) if words.is_empty() && joint == Joint::Other => last.joint = joint,
            _ if words.is_empty() && joint != Joint::Other => {}
            _ => commands.push(Simple { words, joint }),
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(command: &str) -> String {
        let packages = installed_by(command)
            .into_iter()
            .map(|asked| format!("{}:{}", asked.package.manager, asked.package.name));
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
        ] {
            assert_eq!(found(command), packages, "{command}");
        }
    }

    /// What an exit code of 0 and another one say of each package: `+`, `-` or nothing.
    fn told(command: &str) -> String {
        let said = |asked: &Asked| match (asked.outcome(true), asked.outcome(false)) {
            (Some(true), Some(false)) => "+-",
            (Some(true), None) => "+",
            (None, None) => "?",
            other => panic!("{other:?}"),
        };
        installed_by(command).iter().map(said).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_exit_code_says_no_more_than_it_says() {
        // Five packages counted as installed where `echo` at the end had exited with 0.
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
            assert_eq!(told(command), expected, "{command}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_not() {
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
