//! Runs scripts that are proven, made at random, in the shells of this machine: no program may run but those that were found in them.
//!
//! `PROVEN_SCRIPTS=100000` runs that many; `PROVEN_SEED` begins elsewhere. What the scripts can reach is hostile: variables, parameters, the
//! names of files and the input hold code for `pz`, which no script names. The programs are stubs in a directory that is the whole `PATH`.

#![cfg(feature = "grammars")]

use agent_policy::policy::findings::{Becomes, Findings, Word};
use agent_policy::policy::reading;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Scripts of a usual run.
const USUAL: u64 = 1_000;
/// Programs that record how they are called.
const STUBS: [&str; 12] = ["pw", "px", "pz", "ls", "cat", "sort", "wc", "a", "b", "0", "foo", "ab"];
/// Commands that are asked about and may run anything: a script with one of them is not proven.
const ASKED: &str = "\
    sh bash dash ash eval trap exec command builtin . source alias unalias let hash shopt getopts mapfile readarray enable complete compgen bind \
    caller declare typeset export readonly unset local read printf test [ set wait fc history times suspend logout disown help fg bg time env xargs timeout nice find sed";
/// Words of scripts.
const WORDS: [&str; 90] = [
    "a",
    "b",
    "0",
    "-a",
    "-v",
    "foo",
    "pw",
    "a=b",
    "*",
    "a*",
    "[ab]",
    "?",
    "{a,b}",
    "a{1..2}",
    "~",
    "\\a",
    "\\;",
    "\\$x",
    "'a b'",
    "'$(pz)'",
    "\"a b\"",
    "\"$x\"",
    "\"a$x;pz\"",
    "$x",
    "${y}",
    "${x:-a}",
    "\"${x%b}\"",
    "${z##*/}",
    "\"${#x}\"",
    "$?",
    "$#",
    "$1",
    "\"$@\"",
    "$*",
    "$$",
    "$!",
    "$((1 + 2))",
    "$((n))",
    "$((n+1))",
    "\"$n\"",
    "$n",
    "${n}a",
    "$'a\\tb'",
    "\"\\\"\"",
    "\"\\$(pz)\"",
    "''",
    "\"\"",
    "#a",
    "a#b",
    "5$",
    "\"$\"",
    "=",
    "!",
    "]",
    "-f",
    "-n",
    "-eq",
    "\"a\nb\"",
    "'a\n;pz'",
    "`pw`",
    "\"`pw a`\"",
    "${x:0:1}",
    "${x/a/b}",
    "${y:-$x}",
    "${n:=5}",
    "${x+b}",
    "${@:1}",
    "<(pw)",
    "$_",
    "\"$_\"",
    "${PWD}",
    "$OLDPWD",
    "~+",
    "~-",
    "~{-,+}",
    "~{-,a}",
    "a=~-",
    "a=b:~+",
    "$((_))",
    "$((PWD+1))",
    "\"${OLDPWD}p\"",
    "#'",
    "'a[$(pz)]'",
    "'-exec pz ;'",
    "$(wc -l < f)",
    "$(seq 1 2)",
    "\"$(date +%F)\"",
    "a/$x",
    "\"$e/a\"",
    "d*/$n",
];
/// Commands of real programs.
const WRAPPERS: [&str; 20] = [
    "xargs pw WORD < f",
    "xargs -n 1 pw < f",
    "xargs -I a pw a b < f",
    "xargs -I VALUE pw WORD < f",
    "xargs -n VALUE pw < f",
    "xargs VALUE < f",
    "env pw WORD",
    "env LANG=VALUE pw",
    "env VALUE pw",
    "env -u VALUE pw px",
    "timeout VALUE pw WORD",
    "timeout -k VALUE 1 pw px",
    "nice -n VALUE pw px",
    "nice VALUE px",
    "find . VALUE -name WORD",
    "find VALUE -maxdepth 0",
    "find . -exec pw {} VALUE \\;",
    "sed -n \"${m}p\" f",
    "sed VALUE f",
    "sed -n -e 1p -e VALUE f",
];
/// Values of a variable that expressions evaluate.
const NUMBERS: [&str; 12] = [
    "5",
    "$((n + 1))",
    "$((2*3))",
    "$#",
    "a",
    "$x",
    "$(wc -l < f)",
    "$(seq 1)",
    "$n",
    "$e",
    "a$((1/0))",
    "-$n",
];
/// Expressions that evaluate it, or give it another value.
const EXPRESSIONS: [&str; 11] = [
    "((n++))",
    "((n=5))",
    "((x))",
    "(( n > 1 ))",
    "((n-=9))",
    "((n--))",
    "((-- n))",
    "((n*=-4))",
    "((n<<=60))",
    ": $((n=5))",
    ": $((n-=9))",
];
/// Commands that may write to what a shell reads its script from, or take a part of it: `o` is another name of the input, `p` of the output.
const REACHING: [&str; 10] = [
    "echo pz > o",
    "head -c 9 o < f",
    "head -n 1 < o",
    "read x < o",
    "ls > o",
    "echo pz >> q",
    "tee {o,f} < f",
    "echo pz > ${none:-o}",
    "find . -name f -exec tee o +",
    "env tee o < f",
];
/// The text of a script, the ways that it takes, and the shells that read it.
const TO_SHELL: [&str; 14] = [
    "printf ' ls a; pw' | tee | SHELL",
    "printf ' ls a; pw' | tee p | SHELL",
    "printf ' ls a; pw' | tee -a /dev/stdout | SHELL",
    "printf ls | tee 'none/;pz;' 2>&1 | SHELL",
    "echo 'REACHING' | SHELL",
    "echo 'REACHING' | SHELL 2>&1",
    "SHELL <<'E'\nREACHING\necho \"pz #\"\nE\n",
    "SHELL <<'E' > o\necho pz\npw\nE\n",
    "echo 'echo pz' | SHELL >> o",
    "ln -s /dev/stdin q",
    "env ln -s {/dev/stdin,q}",
    "ln -s $none/dev/stdin q",
    "timeout 5 ln -s ${none:-/dev}/stdin q",
    "setsid -f SHELL -c 'echo pz > o'; echo ls | SHELL",
];
/// Parts of scripts, without a grammar.
const TOKENS: [&str; 68] = [
    "a",
    "b",
    "pw",
    "px",
    " ",
    " ",
    " ",
    " ",
    " ",
    "\n",
    "\n",
    ";",
    ";",
    "&",
    "|",
    "&&",
    "||",
    "(",
    ")",
    "<",
    " f",
    ">",
    "$",
    "x",
    "$x",
    "`",
    "\"",
    "'",
    "\\",
    "\\\n",
    "#",
    "{ ",
    "}",
    "=",
    "! ",
    "*",
    "~",
    "$(",
    "${",
    "<<E",
    "<<'E'",
    "\nE\n",
    "[[ ",
    " ]]",
    "((",
    "))",
    "[ ",
    "]",
    "if ",
    "then ",
    "fi",
    "do ",
    "done",
    "for x in ",
    "while ",
    "case ",
    "esac",
    "-",
    "0",
    "1",
    "2",
    "$((",
    "eval ",
    "x=",
    "_=",
    "$_",
    "~{-,+}",
    "#'",
];
/// Bytes that are put into a script, or take the place of one.
const INSERTED: &[u8] = b"\n\t;&|(){}[]<>$\\`\"'#!*?=~-+@:,0a \n";

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }

    fn word(&mut self, depth: usize) -> String {
        match self.below(12) {
            0 if depth > 0 => format!("$({})", self.list(depth - 1)),
            1 if depth > 0 => format!("\"$({})\"", self.list(depth - 1)),
            2 => self.word(0) + &self.word(0),
            _ => self.of(&WORDS).to_owned(),
        }
    }

    fn words(&mut self, depth: usize) -> String {
        (0..self.below(4)).map(|_| " ".to_owned() + &self.word(depth)).collect()
    }

    fn redirect(&mut self) -> String {
        let target = self.of(&["f", "g", "o", "p", "/dev/null", "\"$x\"", "'f g'"]);
        match self.below(10) {
            0 => format!(" > {target}"),
            1 => format!(" >>{target}"),
            2 => " 2>&1".to_owned(),
            3 => " 2>/dev/null".to_owned(),
            4 => " < f".to_owned(),
            5 => format!(" &> {target}"),
            6 => format!(" <<< {}", self.word(0)),
            _ => String::new(),
        }
    }

    fn simple(&mut self, depth: usize) -> String {
        let quoted = |text: String| format!("'{}'", text.replace('\'', "'\\''"));
        let words = self.words(depth);
        let word = self.word(depth);
        let command = match self.below(52) {
            0 => format!("x={word}"),
            1 => format!("n={}", self.of(&NUMBERS)),
            2 => format!("echo{words}"),
            3 => format!("printf '%s'{words}"),
            4 => format!("[ {word} = {} ]", self.word(depth)),
            5 => format!("[ -n {word} ]"),
            6 => format!("test{words}"),
            7 => format!("[[ {word} == {} ]]", self.word(depth)),
            8 => format!("[[ -f {word} && {} ]]", self.word(depth)),
            9 => self.of(&EXPRESSIONS).to_owned(),
            10 => format!("read {}", self.of(&["x", "-r x", "n", "-r x y"])),
            11 => format!("export LANG={word}"),
            12 if depth > 0 => format!("eval {}", quoted(self.list(depth - 1))),
            13 if depth > 0 => format!("trap {} EXIT", quoted(self.list(depth - 1))),
            14 if depth > 0 => format!("bash -c {}", quoted(self.list(depth - 1))),
            15 if depth > 0 => format!("sh -c {}", quoted(self.list(depth - 1))),
            16 => self
                .of(&[
                    "set -e", "set -u", "set -x", "cd .", "wait", "wait $!", "unset x", "return", "break",
                    "shift", "exit",
                ])
                .to_owned(),
            17 => format!("l=(a {words})"),
            18 => format!("local x={word}"),
            19 => format!("declare y={word}"),
            20 => format!("echo {} | {}", quoted(self.list(0)), self.of(&["sh", "bash"])),
            21 => format!("f{words}"),
            22 => format!("bash <<'E'\n{}\nE\n", self.list(0)),
            23 => format!(
                "cat <<E\n{}\nE\n",
                self.of(&["a", "$x", "${x}", "$(pw a)", "a\n;pz\n", "\\$(pz)", "\"'", "`pz`", "${x:-b}"])
            ),
            24..=27 => self.wrapper(),
            28..=32 => self.of_shell(&word),
            33..=36 => {
                let (shell, reaching) = (self.of(&["sh", "bash"]), self.of(&REACHING));
                self.of(&TO_SHELL).replace("SHELL", shell).replace("REACHING", reaching)
            }
            _ => format!("{}{words}", self.of(&["pw", "px", "ls", "cat", "sort"])),
        };
        let is_document = command.ends_with('\n');
        if is_document { command } else { command + &self.redirect() }
    }

    /// A statement that gives the shell's own variables another value, and remarks where a word may begin.
    fn of_shell(&mut self, word: &str) -> String {
        match self.below(5) {
            0 => format!("{}={word}", self.of(&["_", "PWD", "OLDPWD", "n"])),
            1 => format!(": {word}"),
            2 => {
                format!("cd {}", self.of(&[".", "..", "'d[$(pz)]'", "'d -exec pz ;'", "\"$x\"", "~-", "-"]))
            }
            3 => format!(
                "[[ {}#' ]]\n{word} ]]; pz #' ]]",
                self.of(&["", "a && ", "a || ", "! ", "-n ", "a == ", "a &&"])
            ),
            _ => self
                .of(&["[[ $_ -eq 1 ]]", "((_))", "((PWD++))", "local _=5", "declare -r OLDPWD=1"])
                .to_owned(),
        }
    }

    /// A program of this machine that may run another one, given what a variable holds.
    fn wrapper(&mut self) -> String {
        let text = self.of(&WRAPPERS);
        let word = self.word(0);
        let (variable, value) = (
            self.of(&[
                "$e", "\"$e\"", "${k}", "\"$m\"", "$m", "5", "$e/a", "\"$k/a\"", "\"$e\"a", "$m-exec", "$_",
                "\"$_\"", "$PWD", "$OLDPWD", "~{-,+}",
            ]),
            self.of(&[
                "5",
                "a",
                "-a",
                "$x",
                "\"\"",
                "a/$x",
                "$e/b",
                "\"$k\"",
                "$(seq 1 2)",
                "$(wc -l < f)",
                "$((0-1))",
                "./*",
                "d*",
                "a$((1/0))",
                "$m",
            ]),
        );
        let before = match self.below(6) {
            0 => String::new(),
            // The shell gives these another value than the script.
            3 => format!("_={value}; PWD={value}; : {}; ", self.of(&["-exec", "1e pz", "'a[$(pz)]'", "pz"])),
            4 => format!("OLDPWD={value}; PWD={value}; cd 'd -exec pz ;'; {}", self.of(&["", "cd ..; "])),
            1 => format!("e={value}; k={value}; m={value}; "),
            5 => format!("e=1; (({})); k=$e; m=\"$e\"; ", self.of(&["e-=5", "e--", "e*=-4", "e^=-1", "--e"])),
            _ => format!("for e in a {value}; do k=$e; m={value}; "),
        };
        let after = if before.starts_with("for") { "; done" } else { "" };
        before + &text.replace("VALUE", variable).replace("WORD", &word) + after
    }

    fn command(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.simple(0);
        }
        let less = depth - 1;
        match self.below(15) {
            0 => format!("( {} )", self.list(less)),
            1 => format!("{{ {}; }}{}", self.list(less), self.redirect()),
            2 => format!("if {}; then {}; else {}; fi", self.list(less), self.list(less), self.list(less)),
            3 => format!(
                "while {}; do {}; break; done",
                self.of(&["px", "false", "[ $n -lt 2 ]"]),
                self.list(less)
            ),
            4 => format!(
                "for {} in{}; do {}; done",
                self.of(&["x", "x", "x", "_", "PWD", "OLDPWD"]),
                self.words(less),
                self.list(less)
            ),
            5 => format!("for n in 1 2; do {}; done", self.list(less)),
            6 => format!(
                "case {} in {}) {} ;; *) {};; esac",
                self.word(less),
                self.word(0),
                self.list(less),
                self.list(less)
            ),
            7 => format!("for ((n=0; n<2; n++)); do {}; done", self.list(less)),
            8 => format!("{} | {}", self.command(less), self.command(less)),
            9 => format!("! {}", self.command(less)),
            10 => self.passed_over(),
            _ => self.simple(depth),
        }
    }

    /// A number that a variable is given where the shell may pass over it, and what evaluates the variable.
    fn passed_over(&mut self) -> String {
        let (word, reads) = (self.word(0), self.of(&["$((n))", "$((n+1))", "$n", "\"${n}a\""]));
        let reads = self.of(&["echo ", "((n)); echo ", "[[ $n -eq 1 ]]; sed "]).to_owned() + reads;
        match self.below(6) {
            0 => format!("pw || n=5 && {reads}"),
            1 => format!("px && n=5 || pw && {reads}"),
            2 => format!("case a in a|$((n=5))) {reads};; esac"),
            3 => format!("pw > none/f > $((n=5)); {reads}"),
            4 => {
                format!("echo ${{x:{}}}; n=5\n{reads}", self.of(&["08", "1", "0:09", "99999999999999999999"]))
            }
            _ => format!("for n in {word}; do :; done; {reads}"),
        }
    }

    fn list(&mut self, depth: usize) -> String {
        let mut text = self.command(depth);
        for _ in 0..self.below(3) {
            let divider = self.of(&["; ", "\n", " && ", " || ", " & ", " # a\n", " \\\n && ", " | "]);
            text = text + divider + &self.command(depth);
        }
        text
    }

    /// Tokens in any order, which is hardly ever a script of the subset.
    fn tokens(&mut self) -> String {
        (0..3 + self.below(12)).map(|_| self.of(&TOKENS)).collect()
    }

    fn script(&mut self) -> String {
        if self.below(3) == 0 {
            return self.tokens();
        }
        let functions = match self.below(12) {
            0..=2 => format!("f() {{ {}; }}\n", self.list(1).replace('f', "g")),
            3 => "command_not_found_handle() { echo 'a[$(pz)]'; }\nn=$(nproc)\n: $((n))\n".to_owned(),
            _ => String::new(),
        };
        let depth = self.below(3);
        let mut script = functions + &self.list(depth);
        for _ in 0..self.below(3) {
            let mut at = self.below(script.len() + 1);
            while !script.is_char_boundary(at) {
                at -= 1;
            }
            let byte = char::from(INSERTED[self.below(INSERTED.len())]);
            match self.below(3) {
                0 if at < script.len() => drop(script.remove(at)),
                1 if at < script.len() => script.replace_range(at..=at, &byte.to_string()),
                _ => script.insert(at, byte),
            }
        }
        script
    }
}

/// The commands of a script that runs nothing else, as far as it is read.
fn proven(script: &str) -> Option<Findings> {
    let findings = reading::command(script);
    let asked: HashSet<&str> = ASKED.split_ascii_whitespace().collect();
    let is_open =
        |command: &[Word]| command.first().is_none_or(|program| asked.contains(program.text.as_str()));
    let is_proven =
        findings.unreadable.is_empty() && !findings.unseen.iter().any(|unseen| is_open(&unseen.command));
    is_proven.then_some(findings)
}

/// Returns whether the words of a command may have become these arguments.
fn becomes(words: &[Word], arguments: &[&str]) -> bool {
    let Some((word, rest)) = words.split_first() else { return arguments.is_empty() };
    let least = usize::from(word.fixed || word.is_one());
    let most = match word.becomes {
        _ if least == 1 => 1,
        Becomes::Operand => 1,
        _ => arguments.len(),
    };
    (least..=most.min(arguments.len())).any(|count| {
        (!word.fixed || arguments.first() == Some(&word.text.as_str())) && becomes(rest, &arguments[count..])
    })
}

struct Place {
    directory: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("agent-proven-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("bin")).expect("a directory");
        for stub in STUBS {
            // One write for each call: those of a pipeline run at the same time.
            let text = "#!/bin/sh\nprintf '%s\\037' \"${0##*/}\" \"$@\" \"$(printf '\\036')\" >> \"$LOG\"\n\
                        case $0 in *px) exit 1;; esac\n";
            let file = directory.join("bin").join(stub);
            fs::write(&file, text).expect("a stub");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        let own =
            ["env", "xargs", "timeout", "nice", "find", "sed", "seq", "date", "tee", "head", "ln", "setsid"];
        let own = own.map(|name| (name, name));
        for (name, program) in own.into_iter().chain([("bash", "bash"), ("sh", "dash")]) {
            if let Some(shell) = installed(program) {
                symlink(shell, directory.join("bin").join(name)).expect("a link");
            }
        }
        Self { directory }
    }

    /// Runs a script in a directory of files with hostile names; returns what ran, and what was not there to run.
    fn run(&self, run: u64, shell: &[&str], script: &str) -> (Vec<Vec<String>>, Vec<String>) {
        let work = self.directory.join("work");
        let _ = fs::remove_dir_all(&work);
        fs::create_dir(&work).expect("a directory");
        for name in ["d[$(pz)]", "d -exec pz ;"] {
            fs::create_dir(work.join(name)).expect("a directory");
        }
        for name in ["-v", "a[$(pz)]", ";pz", "f"] {
            fs::write(work.join(name), "a[$(pz)]\npz\n-exec pz ;\n(pz)\n").expect("a file");
        }
        for (name, file) in [("o", "/dev/stdin"), ("p", "/dev/stdout")] {
            symlink(file, work.join(name)).expect("a link");
        }
        let log = self.directory.join(format!("log-{run}"));
        let limits = "ulimit -t 2 -f 200 2>/dev/null; exec \"$@\"";
        let output = Command::new(installed("timeout").expect("timeout"))
            .args(["-s", "KILL", "3", "/bin/sh", "-c", limits, "limits"])
            .args(shell)
            .args(["-c", script, "name", "a[$(pz)]", ";pz"])
            .env_clear()
            .env("PATH", self.directory.join("bin"))
            .env("HOME", &work)
            .env("LOG", &log)
            .envs([
                ("x", "a[$(pz)]"),
                ("y", "(pz)"),
                ("z", "-v"),
                ("n", "a[$(pz)]"),
                ("l", "a[$(pz)]"),
                ("LANG", "C"),
            ])
            .envs([("e", "pz"), ("k", "-exec pz ;"), ("m", "1e pz\n")])
            .current_dir(&work)
            .stdin(fs::File::open(work.join("f")).map_or_else(|_| Stdio::null(), Stdio::from))
            // The end of its output is that of what it left in the background, too.
            .output()
            .expect("the shell ran");
        let recorded = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
        let _ = fs::remove_file(&log);
        let calls = recorded.split_terminator("\u{1e}\u{1f}");
        let ran = calls.map(|call| call.split_terminator('\u{1f}').map(str::to_owned).collect()).collect();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let missing = errors.lines().filter_map(|line| {
            let line =
                line.strip_suffix(": command not found").or_else(|| line.strip_suffix(": not found"))?;
            // With quotes around it, it has lines of its own.
            line.rsplit(": ")
                .next()
                .filter(|name| !name.starts_with("$'") && !name.contains("not found"))
                .map(str::to_owned)
        });
        (ran, missing.collect())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn installed(program: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin"].iter().map(|at| Path::new(at).join(program)).find(|path| path.exists())
}

/// Commands that ran and are not among the commands that were found.
fn not_found(findings: &Findings, ran: &[Vec<String>], missing: &[String]) -> Vec<String> {
    let is_found = |call: &&Vec<String>| {
        let arguments: Vec<&str> = call.iter().map(String::as_str).collect();
        findings.commands.iter().any(|command| becomes(&command.words, &arguments))
    };
    // The message about a name of several lines ends in the last of them.
    let is_named =
        |program: &str, name: &str| program == name || program.contains('\n') && program.ends_with(name);
    let names = |name: &&String| {
        findings
            .commands
            .iter()
            .any(|command| command.words.first().is_some_and(|program| is_named(&program.text, name)))
    };
    let ran = ran.iter().filter(|call| !is_found(call)).map(|call| call.join(" "));
    ran.chain(missing.iter().filter(|name| !names(name)).cloned()).collect()
}

/// Cases that are judged, and what ran unseen in them.
fn check(cases: std::ops::Range<u64>, place: &Place) -> (u64, u64, Vec<String>) {
    let (mut proven_count, mut calls, mut passed) = (0, 0, Vec::new());
    for case in cases {
        let mut random = Random(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            random.below(2);
        }
        let script = random.script();
        // To a shell that would be an option.
        if script.starts_with(['-', '+']) {
            continue;
        }
        let wrapped = format!("sh -c '{}'", script.replace('\'', "'\\''"));
        let shells: [(&str, Vec<&str>, &str); 3] =
            [("bash", vec![], &script), ("dash", vec![], &wrapped), ("busybox", vec!["sh"], &wrapped)];
        for (shell, arguments, text) in shells {
            let Some(path) = installed(shell) else { continue };
            let Some(findings) = proven(text) else { continue };
            proven_count += 1;
            let path = path.to_string_lossy().into_owned();
            let command: Vec<&str> = std::iter::once(path.as_str()).chain(arguments).collect();
            let (ran, missing) = place.run(proven_count, &command, &script);
            calls += ran.len() as u64;
            let unseen = not_found(&findings, &ran, &missing);
            if !unseen.is_empty() {
                passed.push(format!("case {case}, {shell}: {unseen:?} in:\n{script:?}\n{script}"));
            }
        }
    }
    (proven_count, calls, passed)
}

#[expect(clippy::disallowed_methods, reason = "how long a test runs is not a matter of the program")]
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn proven_scripts_run_nothing_else() {
    if installed("bash").is_none() {
        return;
    }
    let (cases, seed) = (number("PROVEN_SCRIPTS").unwrap_or(USUAL), number("PROVEN_SEED").unwrap_or(1));
    let half = seed + cases / 2;
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(move || check(half..seed + cases, &Place::new("b")));
        (check(seed..half, &Place::new("a")), second.join().expect("the other half"))
    });
    let passed = [first.2, second.2].concat();
    println!(
        "{cases} scripts, {} runs of proven ones, {} calls of programs",
        first.0 + second.0,
        first.1 + second.1
    );
    assert!(first.0 + second.0 > cases / 16, "hardly any script is proven");
    assert!(
        passed.is_empty(),
        "{} of {cases} ran what was not found in them:\n{}",
        passed.len(),
        passed.join("\n\n")
    );
}
