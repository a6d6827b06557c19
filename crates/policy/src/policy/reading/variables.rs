//! Variables: which of them decide what runs.

/// Variables that programs obey, and that name neither a program nor a file of code.
const HARMLESS: &str = "\
    LANG LANGUAGE TZ TERM COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR CI DEBUG VERBOSE RUST_BACKTRACE RUST_LOG NODE_ENV PORT HOST \
    PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONHASHSEED CARGO_TERM_COLOR GOOS GOARCH CGO_ENABLED \
    DEBIAN_FRONTEND GIT_TERMINAL_PROMPT";
/// Variables that the shell obeys, or that are in the environment already and so reach programs without being exported.
const OBEYED: &str = "\
    PATH IFS ENV HOME SHELL CDPATH PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND GLOBIGNORE EXECIGNORE SHELLOPTS FCEDIT HISTFILE INPUTRC \
    POSIXLY_CORRECT EDITOR VISUAL PAGER BROWSER TMPDIR CC CXX AR RUSTC_WRAPPER OPTARG REPLY TAPE ZIPOPT UNZIP GZIP \
    DIRSTACK FUNCNAME GROUPS PIPESTATUS MAPFILE COPROC COMPREPLY \
    ZIP UNZIPOPT ZIPINFO ZIPINFOOPT WGETRC SYSTEM_WGETRC NETRC SSLKEYLOGFILE RSH GNUPGHOME \
    GCONV_PATH GETCONF_DIR LOCPATH I18NPATH NLSPATH TZDIR HOSTALIASES LOCALDOMAIN RES_OPTIONS GLIBC_TUNABLES GMON_OUT_PREFIX \
    TERMCAP TERMINFO TERMINFO_DIRS MANPATH MANPAGER MANOPT MANROFFOPT \
    LD AS NM RANLIB STRIP CPP FC CFLAGS CXXFLAGS CPPFLAGS LDFLAGS LDLIBS COMPILER_PATH LIBRARY_PATH CPATH CLASSPATH VIRTUAL_ENV \
    GOFLAGS GOROOT GOPATH GOBIN GOENV GOTOOLCHAIN GOTOOLDIR GOTMPDIR GOPROXY GOSUMDB GONOSUMDB GONOSUMCHECK GONOPROXY GOPRIVATE GOINSECURE \
    GOVCS GOAUTH GOWORK GOMODCACHE GOCACHE GOCACHEPROG GO111MODULE GODEBUG GOEXPERIMENT GOFIPS140 GCCGO GCCGOTOOLDIR";
const OBEYED_PREFIXES: &str = "\
    BASH LD_ DYLD_ GIT_ PYTHON PERL RUBY NODE_ npm_ NPM_ JAVA _JAVA JDK_ MAKE CARGO_ RUST LESS TAR_ XDG_ SSH_ SUDO_ GREP_ TEXTDOMAIN \
    RIPGREP_ CURL_ OPENSSL_ SSL_ KRB5 GSS_ GPG_ AWK GAWK_ PKG_CONFIG GCC_ CMAKE_ CTEST_ MESON_ NINJA_ GRADLE_ MAVEN_ M2_ GEM_ BUNDLE_ \
    PIP_ POETRY_ UV_ TOX_ NOX_ PYTEST_ MYPY YARN_ PNPM_ COREPACK_ VOLTA_ DENO_ BUN_ DOTNET_ MSBUILD NUGET_ BAZEL MIX_ ERL_ ELIXIR_ \
    ASDF_ MISE_ PYENV_ RBENV_ DOCKER_ CONTAINER KUBE AWS_ BOTO GH_ SYSTEMD_ DEBUGINFOD_ REDISCLI_";
/// Variables of the shell that hold whole numbers, so that what they are given is evaluated.
const INTEGERS: [&str; 5] = ["RANDOM", "SRANDOM", "OPTIND", "HISTCMD", "SECONDS"];
/// Variables that the shell gives other texts than the script does: of the last command, and of directories.
const OVERWRITTEN: [&str; 3] = ["_", "PWD", "OLDPWD"];
/// The longest option that a name may be joined to, in bytes with the name.
pub const MAX_JOINED: usize = 32;
/// Variables that hold a number where a script gives them nothing else.
pub const NUMBERS: [&str; 3] = ["RANDOM", "SECONDS", "LINENO"];

/// Returns whether a variable that programs get decides nothing about what they run.
pub fn is_harmless(name: &str) -> bool {
    name.starts_with("LC_") || HARMLESS.split_ascii_whitespace().any(|known| known == name)
}

/// Returns whether a variable of the shell decides what runs.
pub fn decides(name: &str) -> bool {
    OBEYED_PREFIXES.split_ascii_whitespace().any(|prefix| name.starts_with(prefix))
        || OBEYED.split_ascii_whitespace().any(|known| known == name)
}

/// Returns whether a name is one that programs usually obey: of several capital letters.
pub fn looks_obeyed(name: &str) -> bool {
    name.len() > 1 && !name.bytes().any(|byte| byte.is_ascii_lowercase()) && !is_harmless(name)
}

/// Returns whether a variable may hold something else than the script has given it.
pub fn is_overwritten(name: &str) -> bool {
    OVERWRITTEN.contains(&name)
}

/// Returns whether a shell refuses to give this variable another value.
pub fn is_read_only(name: &str) -> bool {
    ["UID", "EUID", "PPID"].contains(&name)
}

/// Returns whether the shell evaluates what this variable of its own is given.
pub fn is_integer(name: &str) -> bool {
    INTEGERS.contains(&name)
}

/// Returns whether a variable may say in which encoding the shell reads what follows, and is given another one than that of this text.
pub fn changes_encoding(name: &str, value: Option<&str>) -> bool {
    let keeps = |value: &str| {
        let value = value.to_ascii_lowercase();
        ["", "c", "posix"].contains(&value.as_str()) || value.ends_with("utf-8") || value.ends_with("utf8")
    };
    (name.starts_with("LC_") || name.starts_with("LANG")) && !value.is_some_and(keeps)
}

/// The names that a command may find in a word: the word, and of `-rax` what may be joined to a letter.
pub fn names_in(word: &str) -> impl Iterator<Item = &str> {
    let letters = if word.starts_with('-') { word.len().min(MAX_JOINED) } else { 1 };
    (0..letters).filter_map(|at| word.get(at..))
}
