//! The variables that every process inside a sandbox starts with. Nothing of the host's environment is among them.

/// The variables, `PATH` and `HOME` included, the same on every backend.
///
/// They keep programs from waiting for a user (pagers, prompts, colours) and point caches into `$HOME`.
pub fn variables(path: &str, home: &str) -> Vec<(String, String)> {
    let fixed = [
        ("HOME", home),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/sh"),
        ("LC_CTYPE", "C.UTF-8"),
        ("TERM", "dumb"),
        ("TMPDIR", "/tmp"),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("MANPAGER", "cat"),
        ("GIT_TERMINAL_PROMPT", "0"),
        // The author of commits where nothing else is configured: what a repository configures comes first, which it would not do
        // before GIT_AUTHOR_EMAIL.
        ("EMAIL", "agent@sandbox.invalid"),
        ("CI", "1"),
        ("NO_COLOR", "1"),
        ("DEBIAN_FRONTEND", "noninteractive"),
        ("PIP_NO_INPUT", "1"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("PYTHONUNBUFFERED", "1"),
        ("npm_config_yes", "true"),
        ("npm_config_update_notifier", "false"),
    ];
    std::iter::once(("PATH".to_owned(), path.to_owned()))
        .chain(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect()
}
