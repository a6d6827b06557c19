//! Commands that need no shell: a program and plain words. GNU make does the same; a shell would only add its start-up
//! time (half of that of a whole `true`) to the same exec.

/// The shell's own commands and keywords (`compgen -bk`), but for `true` and `false`: the programs of these names do the
/// same.
const SHELL_WORDS: [&str; 75] = [
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

/// The words of a command that a shell would only execute; `None` where it needs a shell.
pub fn words(text: &[u8]) -> Option<Vec<&[u8]>> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b" _-./,:=+@%".contains(byte);
    if !text.iter().all(plain) {
        return None;
    }
    let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    let program = words.first()?;
    let is_assignment = program.contains(&b'=');
    let is_job = program.starts_with(b"%");
    let is_shell_word = SHELL_WORDS.iter().any(|own| own.as_bytes() == *program);
    (!is_assignment && !is_job && !is_shell_word).then_some(words)
}
