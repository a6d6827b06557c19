//! Commands that run other commands, and interpreters that are given code.

use super::super::findings::{Becomes, Language, Word};
use super::super::program::{base_name, without_version};
use super::super::wrapping::{self, EXECUTES, MAX_STARTS};
use super::shell::Stdin;

/// An interpreter: its names, what it reads, and which of its options take code or a module.
struct Interpreter {
    names: &'static [&'static str],
    language: Language,
    code: &'static [&'static str],
    module: &'static [&'static str],
    /// Set if its first operand is a script, and its standard input one where there is none.
    takes_script: bool,
}

const INTERPRETERS: [Interpreter; 6] = [
    Interpreter {
        names: &["sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "mksh", "yash", "fish", "csh", "tcsh"],
        language: Language::Shell,
        code: &["-c"],
        module: &[],
        takes_script: true,
    },
    Interpreter {
        names: &["su", "script", "runuser", "flock"],
        language: Language::Shell,
        code: &["-c", "--command"],
        module: &[],
        takes_script: false,
    },
    Interpreter {
        names: &["npx", "npm", "pnpm", "pnpx", "mise", "vagrant", "nix-shell"],
        language: Language::Shell,
        code: &["-c", "--call", "--command", "--run"],
        module: &[],
        takes_script: false,
    },
    Interpreter {
        names: &["python", "pypy", "ipython"],
        language: Language::Python,
        code: &["-c"],
        module: &["-m"],
        takes_script: true,
    },
    Interpreter {
        names: &["node", "nodejs", "bun", "deno", "ts-node", "tsx"],
        language: Language::JavaScript,
        code: &["-e", "-p", "--eval", "--print", "eval"],
        module: &["-r", "--require", "--import"],
        takes_script: true,
    },
    Interpreter {
        names: &["ruby", "jruby"],
        language: Language::Ruby,
        code: &["-e"],
        module: &["-r"],
        takes_script: true,
    },
];

/// Options of shells that name no file of commands, the last of which takes what may follow them.
const PLAIN_FLAGS: &str = "euxo";
const PLAIN_SETTINGS: [&str; 4] = ["pipefail", "errexit", "nounset", "xtrace"];

/// The commands that a command runs beside itself.
#[derive(Debug, Default)]
pub struct Inside {
    /// Commands: of `sudo rm x`, `rm x`.
    pub commands: Vec<Vec<Word>>,
    /// Code: of `python3 -c X`, X.
    pub code: Vec<(Language, String)>,
    /// Modules: of `python3 -m x`, x.
    pub modules: Vec<(Language, String)>,
    /// The part that only the run can know: `curl … | sh`.
    pub unreadable: Option<&'static str>,
    /// Set if the code is not, or not all of, what runs: the shell puts something in, or an option is not known.
    pub is_inexact: bool,
    /// The language, where it is an interpreter.
    pub interprets: Option<Language>,
    /// Set if it runs a file.
    pub has_script: bool,
    /// The shell that runs its code, where it is not the one that runs the command.
    pub shell: Option<Shell>,
}

/// The knowledge of the shell that runs a script.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Shell {
    /// Set if the shell may be another one than bash.
    pub may_be_another: bool,
    /// Set if the shell reads it piece by piece from its standard input, which its commands read from too.
    pub reads_input: bool,
    /// Set if commands around it may run at the same time.
    pub has_company: bool,
}

impl Inside {
    /// Takes what a wrapper or launcher runs by its arguments.
    fn take_commands(&mut self, program: &str, arguments: &[Word]) {
        let starts = wrapping::command_starts(program, arguments, false);
        if starts.len() >= MAX_STARTS {
            self.unreadable = Some("more commands than are read");
        }
        self.commands.extend(starts.into_iter().map(|start| arguments[start..].to_vec()));
    }

    /// Returns whether all that it runs is what is inside.
    pub fn is_all(&self) -> bool {
        !self.is_inexact && self.unreadable.is_none() && !self.has_script
    }
}

/// Looks inside a command.
pub fn look_inside(words: &[Word], stdin: &Stdin) -> Inside {
    let mut inside = Inside::default();
    let Some((program, arguments)) = words.split_first() else { return inside };
    let base = base_name(&program.text);
    // A lone dot is a command, and not a version; `linux64` is a name as it is.
    let name = if base == "." { base } else { without_version(base) };
    let only_asks = name == "command"
        && arguments
            .first()
            .is_some_and(|word| word.text.starts_with(['-']) && word.text.contains(['v', 'V']));
    if !only_asks {
        inside.take_commands(base, arguments);
    }
    let scripts: Vec<String> = scripts(&inside.commands).collect();
    inside.code.extend(scripts.into_iter().map(|script| (Language::Shell, script)));
    // The loader takes the program's path.
    if ["ld-linux", "ld-musl", "ld.so"].iter().any(|loader| base.starts_with(loader)) {
        let starts = wrapping::command_starts("ld.so", arguments, false);
        inside.commands.extend(starts.into_iter().map(|start| arguments[start..].to_vec()));
    }
    match name {
        "find" | "fd" => match executed(arguments) {
            Some(commands) => inside.commands.extend(commands),
            None => inside.unreadable = Some("more commands than are read"),
        },
        "eval" | "trap" | "watch" => {
            inside.is_inexact = arguments.iter().any(|word| !word.fixed);
            let code = match name {
                "eval" => Some(joined(arguments)),
                "trap" => trapped(arguments),
                _ => with_blank(arguments),
            };
            inside.code.extend(code.map(|code| (Language::Shell, code)));
        }
        "alias" => {
            let values = arguments.iter().filter_map(|word| word.text.split_once('='));
            inside.code.extend(values.map(|(_, value)| (Language::Shell, value.to_owned())));
        }
        "env" => inside.code.extend(split_strings(arguments).map(|code| (Language::Shell, code))),
        "source" | "." => match (arguments.first(), stdin) {
            (Some(file), Stdin::Text { text, .. }) if is_stdin(&file.text) => {
                inside.code.push((Language::Shell, text.clone()));
            }
            (Some(file), Stdin::Pipe) if is_stdin(&file.text) => {
                inside.unreadable = Some("what the shell reads from a pipe");
            }
            (Some(file), _) if file.text.starts_with("<(") => {
                inside.unreadable = Some("what the shell is given by a process substitution");
            }
            _ => {}
        },
        _ => {}
    }
    let is_named =
        |interpreter: &&Interpreter| interpreter.names.iter().any(|known| *known == name || *known == base);
    if let Some(interpreter) = INTERPRETERS.iter().find(is_named) {
        if interpreter.language == Language::Shell {
            inside.shell = Some(Shell { may_be_another: name != "bash", ..Shell::default() });
        }
        interpret(interpreter, arguments, stdin, &mut inside);
    }
    inside
}

/// Reads an interpreter's options up to its script. What is joined to an option and what follows it are both read:
/// where one of them is only an argument, reading it as code does no harm.
fn interpret(interpreter: &Interpreter, arguments: &[Word], stdin: &Stdin, inside: &mut Inside) {
    let language = interpreter.language;
    inside.interprets = interpreter.takes_script.then_some(language);
    let is_shell = language == Language::Shell;
    let (mut after_flag, mut has_script, mut code_at) = (false, !interpreter.takes_script, usize::MAX);
    for (at, word) in arguments.iter().enumerate() {
        let rest = &arguments[at + 1..];
        if let Some(joined) = interpreter.option(interpreter.code, word) {
            let next = interpreter.operand(arguments, at);
            code_at = next.filter(|_| joined.is_none()).unwrap_or(at);
            inside.is_inexact |= !word.fixed || !arguments[code_at].fixed;
            inside.is_inexact |=
                is_shell && !word.text.trim_start_matches('-').chars().all(|c| "ceuxo".contains(c));
            let next = next.map(|next| arguments[next].text.clone());
            inside.code.extend(joined.into_iter().chain(next).map(|code| (language, code)));
            has_script = true;
        } else if let Some(joined) = interpreter.option(interpreter.module, word) {
            let rest = if joined.is_some() { rest } else { rest.get(1..).unwrap_or_default() };
            let next = arguments.get(at + 1).map(|word| word.text.clone());
            let Some(module) = joined.or(next) else { break };
            inside.modules.push((language, module.clone()));
            if language == Language::Python {
                let program = std::iter::once(Word::fixed(module));
                inside.commands.push(program.chain(rest.iter().cloned()).collect());
                has_script = true;
                break;
            }
        } else if word.text.starts_with("<(") {
            inside.unreadable = Some("what an interpreter is given by a process substitution");
        } else if interpreter.reads_stdin(word) {
            break;
        } else if !interpreter.is_flag(word) && !interpreter.ends_options(word) && !after_flag {
            inside.has_script |= !has_script;
            has_script = true;
            if interpreter.takes_script {
                break;
            }
        } else if interpreter.is_flag(word) {
            inside.is_inexact |= is_shell && at < code_at && !is_plain_group(&word.text);
        } else if after_flag {
            inside.is_inexact |= is_shell && at < code_at && !PLAIN_SETTINGS.contains(&word.text.as_str());
        }
        // A shell takes a setting behind `o` alone; behind other flags the name of one is a script.
        let takes_more = !is_shell || word.text.contains(['o', 'O']);
        after_flag = interpreter.is_flag(word) && !word.text.contains('=') && takes_more;
    }
    match stdin {
        Stdin::Text { text, is_exact } if !has_script => {
            inside.is_inexact |= !is_exact;
            inside.shell.get_or_insert_default().reads_input = true;
            inside.code.push((language, text.clone()));
        }
        Stdin::Inherited if !has_script => inside.is_inexact = true,
        Stdin::Pipe if !has_script => inside.unreadable = Some("what an interpreter reads from a pipe"),
        _ => {}
    }
}

/// Returns whether the options of a shell in a word name no file of commands, and at most one takes a setting.
fn is_plain_group(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    letters.chars().all(|letter| PLAIN_FLAGS.contains(letter)) && letters.matches('o').count() < 2
}

impl Interpreter {
    /// Returns whether a word says that the script comes on standard input; what follows it are the script's arguments.
    fn reads_stdin(&self, word: &Word) -> bool {
        let is_shell = self.language == Language::Shell;
        let is_group = word.text.starts_with('-') && !word.text.starts_with("--");
        let says_so = if is_shell { is_group && word.text.contains('s') } else { word.text == "-" };
        self.takes_script && (says_so || is_stdin(&word.text))
    }

    /// Returns whether a word ends the options; to a shell a lone dash does.
    fn ends_options(&self, word: &Word) -> bool {
        word.text == "--" || self.language == Language::Shell && word.text == "-"
    }

    /// Returns whether a word is an option; shells take those that begin with `+` too.
    fn is_flag(&self, word: &Word) -> bool {
        word.is_flag()
            || (self.language == Language::Shell && word.text.len() > 1 && word.text.starts_with('+'))
    }

    /// Returns where the first operand behind an option stands. In the options of a shell each `o` takes the name of a setting.
    fn operand(&self, arguments: &[Word], option: usize) -> Option<usize> {
        let is_operand = |word: &Word| !self.is_flag(word) && word.text != "--";
        if !self.is_shell() {
            return (option + 1..arguments.len()).find(|&at| is_operand(&arguments[at]));
        }
        let mut at = option;
        while let Some(word) = arguments.get(at) {
            let is_group = self.is_flag(word) && !word.text.starts_with("--");
            match is_group {
                true => at += 1 + word.text.matches(['o', 'O']).count(),
                false if self.is_flag(word) => at += 1,
                false => break,
            }
        }
        at += usize::from(arguments.get(at).is_some_and(|word| self.ends_options(word)));
        (at < arguments.len()).then_some(at)
    }

    /// Returns whether its standard input may be a script of a shell.
    fn is_shell(&self) -> bool {
        self.language == Language::Shell && self.takes_script
    }

    /// Returns whether a word is one of the options: alone (`-c`), in a group (`-lc`), or with its value joined (`-cX`,
    /// `--eval=X`), which is then given back.
    fn option(&self, options: &[&str], word: &Word) -> Option<Option<String>> {
        let text = word.text.as_str();
        if options.contains(&text) {
            return Some(None);
        }
        if text.starts_with("--") {
            let value = |option: &&str| text.strip_prefix(*option)?.strip_prefix('=').map(str::to_owned);
            return options.iter().find_map(value).map(Some);
        }
        let group = text.strip_prefix('-')?;
        let letter_of = |option: &&str| {
            option.strip_prefix('-').filter(|name| name.len() == 1).and_then(|name| name.chars().next())
        };
        let takes_value =
            |c: char| self.code.iter().chain(self.module).any(|option| letter_of(option) == Some(c));
        // The first letter that takes a value ends the group.
        let at =
            group.find(takes_value).filter(|at| group[..*at].chars().all(|c| c.is_ascii_alphabetic()))?;
        let is_ours = options.iter().any(|option| letter_of(option) == group[at..].chars().next());
        // To a shell the rest of the group are options.
        let value = Some(group[at + 1..].to_owned()).filter(|value| !value.is_empty() && !self.is_shell());
        is_ours.then_some(value)
    }
}

/// In place of the braces that a file's name replaces: to another program they are none any more.
const FILE: &str = "$…";

/// `find … -exec rm {} \;`; nothing where there are too many.
pub fn executed(arguments: &[Word]) -> Option<Vec<Vec<Word>>> {
    let runs = |word: &Word| EXECUTES.contains(&word.text.as_str());
    let starts = arguments.iter().enumerate().filter(|(_, word)| runs(word)).map(|(at, _)| at + 1);
    // Its name begins as the directory does where the search begins.
    let begins = |first: &Word| {
        first.fixed && first.text.starts_with(|c: char| "./".contains(c) || c.is_ascii_alphanumeric())
    };
    let is_other = |word: &Word| word.text.starts_with("-files0") || word.text.ends_with("dir");
    let is_path = arguments.first().is_some_and(begins) && !arguments.iter().skip(1).any(is_other);
    let command = |start: usize| {
        // A plus ends it behind the braces alone, and none that asks.
        let asks = arguments[start - 1].text.starts_with("-ok");
        let is_end = |at: &usize| match arguments[*at].text.as_str() {
            ";" => true,
            "+" => !asks && *at > start && arguments[*at - 1].text == "{}",
            _ => false,
        };
        let end = (start..arguments.len()).find(is_end).unwrap_or(arguments.len());
        // A file's name takes the place of the braces.
        let named = |word: &Word| match word.text.as_str() {
            "{}" if is_path => Word::changed(FILE, Becomes::Operands),
            text => Word {
                fixed: word.fixed && !text.contains("{}"),
                text: text.replace("{}", FILE),
                ..word.clone()
            },
        };
        arguments[start.min(end)..end].iter().map(named).collect()
    };
    let starts: Vec<usize> = starts.collect();
    (starts.len() <= MAX_STARTS).then(|| starts.into_iter().map(command).collect())
}

fn joined(words: &[Word]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

/// The code of `trap`: its first operand. A dash takes back what was set.
fn trapped(words: &[Word]) -> Option<String> {
    let code = words.iter().find(|word| !word.is_flag() && word.text != "--")?;
    Some(if code.text == "-" { String::new() } else { code.text.clone() })
}

fn with_blank(words: &[Word]) -> Option<String> {
    words.iter().find(|word| !word.is_flag() && word.text.contains(' ')).map(|word| word.text.clone())
}

/// Commands that are one word with blanks: a launcher may give them to a shell.
fn scripts(commands: &[Vec<Word>]) -> impl Iterator<Item = String> {
    let one = commands.iter().filter_map(|words| <&[Word; 1]>::try_from(words.as_slice()).ok());
    one.filter(|[word]| word.text.contains(' ')).map(|[word]| word.text.clone())
}

/// Returns what `env` divides into a command, with the words behind it: `-S X`, `-SX`, `-vS X`, `--split-string X`, and the beginnings of that
/// name.
fn split_strings(words: &[Word]) -> impl Iterator<Item = String> {
    let with_rest = |text: String, at: usize| {
        let quoted = words.get(at..).unwrap_or_default().iter().map(|word| match word.fixed {
            true => format!(" '{}'", word.text.replace('\'', "'\\''")),
            false => format!(" {}", word.text),
        });
        [text].into_iter().chain(quoted).collect::<String>()
    };
    words.iter().enumerate().filter_map(move |(at, word)| {
        let next = || words.get(at + 1).map(|word| with_rest(word.text.clone(), at + 2));
        if let Some(long) = word.text.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let is_it = name.starts_with('s') && "split-string".starts_with(name);
            let value = value.map(|value| with_rest(value.to_owned(), at + 1));
            return if is_it { value.or_else(next) } else { None };
        }
        let (_, value) = word.text.strip_prefix('-')?.split_once('S')?;
        if value.is_empty() { next() } else { Some(with_rest(value.to_owned(), at + 1)) }
    })
}

fn is_stdin(path: &str) -> bool {
    matches!(path, "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

/// Returns what a program interprets, by its name or path.
pub fn language_of(program: &str) -> Option<Language> {
    let base = base_name(program);
    let scripted = INTERPRETERS.iter().filter(|interpreter| interpreter.takes_script);
    let is_it = |interpreter: &&Interpreter| {
        interpreter.names.iter().any(|name| *name == base || *name == without_version(base))
    };
    scripted.into_iter().find(is_it).map(|interpreter| interpreter.language)
}
