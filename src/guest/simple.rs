//! Commands that need no shell: a program and plain words. GNU make does the same; a shell would only take its time
//! (half of that of a whole `true`) to come to the very same exec.

/// What a shell would not pass to a program: its own commands and words (`compgen -bk`). `true` and `false` are not
/// among them, because the programs of these names do the same.
const OF_THE_SHELL: [&str; 75] = [
    ".",
    ":",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];

/// The words of a command in which a shell would find nothing to do but to run it; `None` leaves it to the shell.
pub fn words(text: &[u8]) -> Option<Vec<&[u8]>> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b" _-./,:=+@%".contains(byte);
    if !text.iter().all(plain) {
        return None;
    }
    let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    let program = words.first()?;
    let is_assignment = program.contains(&b'=');
    let is_job = program.starts_with(b"%");
    let is_of_the_shell = OF_THE_SHELL.iter().any(|own| own.as_bytes() == *program);
    (!is_assignment && !is_job && !is_of_the_shell).then_some(words)
}
