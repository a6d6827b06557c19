//! Caches, packages and interpreters that package managers and version managers of this machine keep for all projects,
//! at the very paths that they have on the host, because compiled programs, virtual environments and build directories name
//! them. One table; nothing else of `$HOME` is shown.
//!
//! A row names the directories that hold packages and never the one above them, where tools keep their credentials: what is
//! not named here cannot be seen, whenever it is made. Settings that tools need to find what is cached (the registry that
//! npm's keys are made of, the mirror that Maven binds artifacts to) are copied without their secrets.

use agent_base::machine::Machine;
use agent_base::plain_file::{self, Links};
use agent_base::secret_scan;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A directory that is shown copy-on-write at its own path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// Its path without symlinks.
    pub host: PathBuf,
    /// The path inside, as its variable, or `$HOME`, names it.
    pub inside: PathBuf,
    /// Relative paths of it that are not shown.
    pub hidden: Vec<PathBuf>,
}

/// Directories of package managers that are shown inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caches {
    /// A parent stands before what is below it.
    pub directories: Vec<Cache>,
    /// Settings without their secrets, by their path below `$HOME`.
    pub settings: Vec<(PathBuf, Vec<u8>)>,
    /// The variables that say where something of this is, as they are on the host.
    pub env: Vec<(String, String)>,
}

/// One tool's place.
struct ToolCache {
    /// The variable that moves it; empty where there is none.
    variable: &'static str,
    /// Its usual path below `$HOME`. `.cache`, `.local/share` and `.local/state` are where the XDG variables say.
    usual: &'static str,
    /// The parts of it that are shown; `""` is all of it.
    shown: &'static [&'static str],
    /// The files in it that are hidden. Where a name is `*`, each file that this stands for is hidden if its URLs hold a login.
    hidden: &'static [&'static str],
}

const fn place(variable: &'static str, usual: &'static str, shown: &'static [&'static str]) -> ToolCache {
    ToolCache { variable, usual, shown, hidden: &[] }
}

/// All of it.
const WHOLE: &[&str] = &[""];

const PLACES: &[ToolCache] = &[
    // Rust.
    place("CARGO_HOME", ".cargo", &["registry", "bin"]),
    ToolCache { variable: "CARGO_HOME", usual: ".cargo", shown: &["git"], hidden: &["db/*/config"] },
    place("RUSTUP_HOME", ".rustup", WHOLE),
    // Python. Poetry's and pipenv's virtual environments are named by the project's path.
    place("PIP_CACHE_DIR", ".cache/pip", WHOLE),
    place("UV_CACHE_DIR", ".cache/uv", WHOLE),
    place("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", WHOLE),
    place("UV_TOOL_DIR", ".local/share/uv/tools", WHOLE),
    place("POETRY_CACHE_DIR", ".cache/pypoetry", WHOLE),
    place("WORKON_HOME", ".local/share/virtualenvs", WHOLE),
    place("", ".virtualenvs", WHOLE),
    place("VIRTUAL_ENV", "", WHOLE),
    place("CONDA_PREFIX", "", WHOLE),
    place("", ".conda", &["envs", "pkgs"]),
    place("", "miniconda3", WHOLE),
    place("", "anaconda3", WHOLE),
    place("", "miniforge3", WHOLE),
    place("MAMBA_ROOT_PREFIX", "micromamba", WHOLE),
    place("PIXI_HOME", ".pixi", &["bin", "envs"]),
    place("", ".cache/rattler/cache", WHOLE),
    place("PYENV_ROOT", ".pyenv", WHOLE),
    place("PRE_COMMIT_HOME", ".cache/pre-commit", WHOLE),
    // JavaScript.
    ToolCache { variable: "npm_config_cache", usual: ".npm", shown: WHOLE, hidden: &["_logs"] },
    place("", ".local/share/pnpm/store", WHOLE),
    place("", ".cache/pnpm", WHOLE),
    place("YARN_CACHE_FOLDER", ".cache/yarn", WHOLE),
    place("YARN_GLOBAL_FOLDER", ".yarn/berry", &["cache", "index"]),
    place("NVM_DIR", ".nvm", WHOLE),
    place("VOLTA_HOME", ".volta", &["bin", "tools", "cache"]),
    place("FNM_DIR", ".local/share/fnm", WHOLE),
    place("", ".fnm", WHOLE),
    place("BUN_INSTALL", ".bun", &["bin", "install/cache"]),
    place("DENO_DIR", ".cache/deno", WHOLE),
    place("", ".deno", &["bin"]),
    place("", ".cache/node-gyp", WHOLE),
    place("PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright", WHOLE),
    place("", ".cache/puppeteer", WHOLE),
    // Go.
    ToolCache { variable: "GOPATH", usual: "go", shown: &["pkg/mod"], hidden: &["cache/vcs"] },
    place("GOPATH", "go", &["bin"]),
    ToolCache { variable: "GOMODCACHE", usual: "", shown: WHOLE, hidden: &["cache/vcs"] },
    place("GOCACHE", ".cache/go-build", WHOLE),
    place("", "sdk", WHOLE),
    // Java. Gradle's daemons and their registry are the host's own.
    place("", ".m2", &["repository", "wrapper"]),
    place("GRADLE_USER_HOME", ".gradle", &["caches", "wrapper", "native", "jdks"]),
    place("SDKMAN_DIR", ".sdkman", &["candidates"]),
    place("", ".ivy2", &["cache", "local"]),
    place("", ".sbt", &["boot", "launchers"]),
    place("COURSIER_CACHE", ".cache/coursier", WHOLE),
    // .NET, Ruby, PHP, Elixir.
    place("NUGET_PACKAGES", ".nuget/packages", WHOLE),
    place("", ".local/share/NuGet/http-cache", WHOLE),
    place("DOTNET_ROOT", ".dotnet", WHOLE),
    place("GEM_HOME", ".local/share/gem", &["ruby", "gems", "specifications", "extensions", "bin"]),
    place("", ".gem", &["ruby", "specs"]),
    place("BUNDLE_USER_CACHE", ".bundle/cache", WHOLE),
    place("RBENV_ROOT", ".rbenv", WHOLE),
    place("COMPOSER_CACHE_DIR", ".cache/composer", WHOLE),
    place("COMPOSER_HOME", ".config/composer", &["vendor", "cache"]),
    place("", ".mix", &["archives", "escripts", "elixir"]),
    place("", ".hex", &["packages"]),
    // Haskell, OCaml, Zig, C and C++.
    place("", ".stack", &["pantry", "snapshots", "programs", "setup-exe-cache", "setup-exe-src"]),
    place("", ".ghcup", &["bin", "ghc"]),
    place("", ".cabal", &["packages", "store", "bin"]),
    place("OPAMROOT", ".opam", WHOLE),
    place("", ".cache/zig", WHOLE),
    place("CCACHE_DIR", ".cache/ccache", WHOLE),
    place("", ".ccache", WHOLE),
    place("", ".conan2", &["p"]),
    place("VCPKG_DEFAULT_BINARY_CACHE", ".cache/vcpkg", WHOLE),
    place("", ".cache/bazelisk", WHOLE),
    // Several languages.
    place("ASDF_DATA_DIR", ".asdf", WHOLE),
    place("MISE_DATA_DIR", ".local/share/mise", &["installs", "shims", "plugins"]),
    place("TF_PLUGIN_CACHE_DIR", "", WHOLE),
    ToolCache {
        variable: "HF_HOME",
        usual: ".cache/huggingface",
        shown: WHOLE,
        hidden: &["token", "stored_tokens"],
    },
];

/// Settings that tools need to find what is cached, below `$HOME`.
const SETTINGS: &[&str] = &[
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".config/pnpm/rc",
    ".cargo/config.toml",
    ".cargo/config",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".config/uv/uv.toml",
    ".config/pypoetry/config.toml",
    ".config/go/env",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".bundle/config",
    ".gemrc",
    ".nuget/NuGet/NuGet.Config",
    ".condarc",
    ".tool-versions",
    ".config/mise/config.toml",
    ".local/state/mise/trusted-configs",
];
/// A larger file is not a settings file.
const MAX_SETTINGS: u64 = 256 << 10;

/// Files that a `*` stands for at most.
const MAX_STARRED: usize = 4096;

/// Variables that select among what is shown without being a place of it.
const SELECTING: [&str; 3] = ["RUSTUP_TOOLCHAIN", "PYENV_VERSION", "RBENV_VERSION"];

/// Names that are never shown, wherever they are.
const CREDENTIALS: [&str; 9] = [
    "credentials",
    "credentials.toml",
    "credentials.json",
    "auth.json",
    ".npmrc",
    ".netrc",
    ".pypirc",
    "settings-security.xml",
    "pip.conf",
];

/// The variables that [`find`] looks at.
pub fn variables() -> impl Iterator<Item = &'static str> {
    PLACES.iter().map(|place| place.variable).chain(SELECTING).filter(|name| !name.is_empty())
}

/// Looks at the machine: a call of the system or two for each row.
pub fn find(machine: &Machine) -> Caches {
    let mut found = Caches::default();
    for place in PLACES {
        let named = machine.variable(place.variable).map(PathBuf::from).filter(|path| is_plain(path));
        let Some(base) = named.clone().or_else(|| usual(machine, place.usual)) else { continue };
        let mut is_there = false;
        for shown in place.shown {
            let inside = if shown.is_empty() { base.clone() } else { base.join(shown) };
            is_there |= found.add(machine, inside, place.hidden);
        }
        if let (true, Some(value)) = (is_there, named.as_deref().and_then(Path::to_str)) {
            let variable = (place.variable.to_owned(), value.to_owned());
            if !found.env.contains(&variable) {
                found.env.push(variable);
            }
        }
    }
    found.directories.sort_by(|a, b| a.inside.cmp(&b.inside));
    // What lies in another one is shown with it.
    let mut outer: Vec<Cache> = Vec::new();
    for cache in std::mem::take(&mut found.directories) {
        if !outer.iter().any(|other| cache.inside.starts_with(&other.inside)) {
            outer.push(cache);
        }
    }
    found.directories = outer;
    for name in SELECTING {
        found.env.extend(machine.text(name).map(|value| (name.to_owned(), value)));
    }
    found.settings = SETTINGS.iter().filter_map(|name| settings(machine, name)).collect();
    found
}

impl Caches {
    /// Returns whether a path of the host is in one of them.
    pub fn shows(&self, path: &Path) -> bool {
        self.directories.iter().any(|cache| path.starts_with(&cache.inside))
    }

    /// Adds a directory, where it is one and may be shown.
    fn add(&mut self, machine: &Machine, inside: PathBuf, hidden: &[&str]) -> bool {
        let Ok(host) = fs::canonicalize(machine.on_host(&inside)) else { return false };
        let home = machine.home_or_nowhere();
        // The directory of everything, or one that holds `$HOME`, is nobody's cache.
        let is_wide = home.starts_with(&inside) || inside.components().count() < 3;
        let is_shown_anyway = SYSTEM_DIRECTORIES.iter().any(|root| inside.starts_with(root));
        if !host.is_dir() || is_wide || is_shown_anyway {
            return false;
        }
        // Whiteouts of names that are not there hide them when they are made.
        let hidden = hidden.iter().chain(&CREDENTIALS).flat_map(|name| hidden_by(&host, name)).collect();
        self.directories.push(Cache { host, inside, hidden });
        true
    }
}

/// The paths in `directory` that an entry of [`Place::hidden`] stands for.
fn hidden_by(directory: &Path, name: &str) -> Vec<PathBuf> {
    let Some((above, below)) = name.split_once("/*/") else {
        let path = PathBuf::from(name);
        let has_place = path.parent().is_some_and(|parent| directory.join(parent).is_dir());
        return if has_place { vec![path] } else { Vec::new() };
    };
    let entries = fs::read_dir(directory.join(above)).into_iter().flatten().flatten().take(MAX_STARRED);
    let paths = entries.map(|entry| Path::new(above).join(entry.file_name()).join(below));
    let has_login = |path: &PathBuf| {
        let content =
            plain_file::read(&directory.join(path), MAX_SETTINGS, Links::Refuse).unwrap_or_default();
        String::from_utf8_lossy(&content).lines().any(|line| without_userinfo(line) != line)
    };
    paths.filter(has_login).collect()
}

/// Directories of the system: every sandbox has them of the host, has some of its own, or has none of them.
pub const SYSTEM_DIRECTORIES: [&str; 15] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/boot",
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/nix",
    "/workspace",
];

/// An absolute path that means what it says.
fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Returns the path of something below `$HOME`, as the XDG variables say; `None` if `below` is empty.
fn usual(machine: &Machine, below: &str) -> Option<PathBuf> {
    const XDG: [(&str, &str); 4] = [
        (".cache/", "XDG_CACHE_HOME"),
        (".local/share/", "XDG_DATA_HOME"),
        (".local/state/", "XDG_STATE_HOME"),
        (".config/", "XDG_CONFIG_HOME"),
    ];
    if below.is_empty() {
        return None;
    }
    let moved = XDG.iter().find_map(|(prefix, variable)| {
        let base = machine.variable(variable).map(PathBuf::from).filter(|base| is_plain(base))?;
        Some(base.join(below.strip_prefix(prefix)?))
    });
    Some(moved.unwrap_or_else(|| machine.home_or_nowhere().join(below)))
}

/// A settings file without its secrets.
fn settings(machine: &Machine, name: &str) -> Option<(PathBuf, Vec<u8>)> {
    let path = machine.on_host(&machine.home_or_nowhere().join(name));
    let content = plain_file::read(&path, MAX_SETTINGS, Links::Follow).ok()?;
    let text = String::from_utf8(content).ok()?;
    Some((name.into(), without_secrets(&text).into_bytes()))
}

/// The settings without lines that set a secret, without what stands between user and host in URLs, and, of XML, without the
/// elements that hold passwords.
fn without_secrets(text: &str) -> String {
    let text = ["servers", "packageSourceCredentials", "apikeys"]
        .iter()
        .fold(text.to_owned(), |text, element| without_element(&text, element));
    let text = ["password", "passphrase", "privateKey", "username"]
        .iter()
        .fold(text, |text, element| without_element(&text, element));
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let line = without_userinfo(line);
        if !sets_secret(&line) && secret_scan::find(line.as_bytes()).is_none() {
            kept.push_str(&line);
        }
    }
    kept
}

/// Returns whether a line of a `key = value` or `key: value` file sets something that is named like a secret.
fn sets_secret(line: &str) -> bool {
    const WORDS: [&str; 8] =
        ["auth", "password", "passwd", "token", "secret", "credential", "apikey", "api_key"];
    let key =
        line.split_once('=').or_else(|| line.rsplit_once(": ")).map(|(key, _)| key.to_ascii_lowercase());
    key.is_some_and(|key| WORDS.iter().any(|word| key.contains(word)))
}

/// `scheme://user:password@host` becomes `scheme://host`.
fn without_userinfo(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(['/', '"', '\'', ' ', '<', '\t', '\r', '\n', '?']).unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(at) => &after[at + 1..],
            None => after,
        };
    }
    out.push_str(rest);
    out
}

/// `text` without each `<name>…</name>`.
fn without_element(text: &str, name: &str) -> String {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(&open) {
        let begins = rest[start + open.len()..].starts_with(['>', ' ', '\n', '\t']);
        let end = rest[start..].find(&close).map(|end| start + end + close.len());
        match (begins, end) {
            (true, Some(end)) => {
                out.push_str(&rest[..start]);
                rest = &rest[end..];
            }
            // One that does not end holds the rest.
            (true, None) => {
                out.push_str(&rest[..start]);
                return out;
            }
            (false, _) => {
                out.push_str(&rest[..start + open.len()]);
                rest = &rest[start + open.len()..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine_with(
        files: &[(&str, &str)],
        variables: &[(&'static str, &str)],
    ) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let machine = Machine::made_up(root.path(), "/home/me", &[]).with(variables);
        (root, machine)
    }

    fn insides(caches: &Caches) -> Vec<&str> {
        caches.directories.iter().filter_map(|cache| cache.inside.to_str()).collect()
    }

    #[test]
    fn of_cargo_the_packages_are_shown_and_not_the_directory_with_the_credentials() {
        let files = [
            ("home/me/.cargo/registry/index", ""),
            ("home/me/.cargo/bin/cargo", ""),
            ("home/me/.cargo/credentials.toml", "token"),
            ("home/me/.ssh/id_ed25519", "key"),
        ];
        let (_root, machine) = machine_with(&files, &[]);
        assert_eq!(insides(&find(&machine)), ["/home/me/.cargo/bin", "/home/me/.cargo/registry"]);
    }

    #[test]
    fn variables_move_a_place_and_are_passed_on() {
        let files = [("data/mod/x", ""), ("home/me/.cache/uv/y", ""), ("xdg/uv/z", "")];
        let variables = [("GOMODCACHE", "/data/mod"), ("XDG_CACHE_HOME", "/xdg"), ("CARGO_HOME", "/nowhere")];
        let (_root, machine) = machine_with(&files, &variables);
        let found = find(&machine);
        assert_eq!(insides(&found), ["/data/mod", "/xdg/uv"]);
        assert_eq!(found.env, [("GOMODCACHE".to_owned(), "/data/mod".to_owned())]);
    }

    #[test]
    fn a_variable_that_names_more_than_a_cache_shows_nothing() {
        for named in ["/", "/home", "/home/me", "/etc/x", "relative", "/home/me/../other"] {
            let files = [("home/me/x", ""), ("etc/x/y", ""), ("home/other/z", "")];
            let (_root, machine) = machine_with(&files, &[("GOCACHE", named)]);
            assert_eq!(insides(&find(&machine)), [""; 0], "{named}");
        }
    }

    #[test]
    fn settings_keep_registries_and_lose_secrets() {
        let npm = "registry=https://user:pw@npm.example/\n//npm.example/:_authToken=abc\nsave-exact=true\n";
        assert_eq!(without_secrets(npm), "registry=https://npm.example/\nsave-exact=true\n");
        let maven = "<settings><servers><server><id>a</id><password>p</password></server></servers>\
                     <mirrors><mirror><id>m</id><url>https://u:p@maven.example/x</url></mirror></mirrors></settings>";
        assert_eq!(
            without_secrets(maven),
            "<settings><mirrors><mirror><id>m</id><url>https://maven.example/x</url></mirror></mirrors></settings>"
        );
        assert_eq!(without_secrets("<servers><password>p"), "");
        assert_eq!(without_secrets("a=1\nsigning.password=x\n"), "a=1\n");
    }
}
