//! Facts of this machine: its paths, and what its environment says about it.
//!
//! The one place below the command line that reads the environment of the process. The caller of a session reads it once
//! and passes it on, so that two sessions of one process, or a test, can have different ones.

use crate::error::{Error, Result};
use crate::host_program;
use crate::lock::Lock;
use secrecy::SecretString;
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// This machine, or one made up by a test.
#[derive(Clone)]
pub struct Machine {
    /// `/`, but for tests.
    root: PathBuf,
    /// The user's home, as a path of that machine.
    home: PathBuf,
    /// The directories of `PATH`.
    path: Vec<PathBuf>,
    /// The variables of [`is_fact`] that are set.
    variables: BTreeMap<OsString, OsString>,
    /// The variables that add settings to git's, or name files with them.
    git_settings: BTreeMap<OsString, OsString>,
    /// The variables of [`GIT_PROGRAMS`] that are set.
    git_programs: BTreeMap<OsString, OsString>,
    /// The keys of sandbox providers.
    credentials: BTreeMap<&'static str, SecretString>,
    /// Values that other parts of the program keep with this machine, one of each type.
    kept: Arc<Lock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>,
}

/// Variables that name programs which git starts itself or by those, directories with them, or what the shells of hooks read first:
/// <https://git-scm.com/docs/git#_environment_variables>, bash(1), man(1).
const GIT_PROGRAMS: [&str; 20] = [
    "BASH_ENV",
    "BROWSER",
    "EDITOR",
    "ENV",
    "GIT_ASKPASS",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_TEMPLATE_DIR",
    "LESSCLOSE",
    "LESSOPEN",
    "MANPAGER",
    "PAGER",
    "SSH_ASKPASS",
    "VISUAL",
];

/// Variables that say something about the machine, beside those whose name begins with one of [`PREFIXES`]: where files
/// are, and toolchains. What programs of the machine get ([`host_program::may_get`]) belongs to them as well. No key is
/// among them.
const NAMES: [&str; 64] = [
    "PATH",
    "HOME",
    "AGENT_HOME",
    "AGENT_GUEST",
    // Toolchains: which one, or where they are kept.
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "RBENV_ROOT",
    "RBENV_VERSION",
    "VOLTA_HOME",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
    "NVM_DIR",
    "SDKMAN_DIR",
    "JAVA_HOME",
    "PAGER",
    // Where package managers keep what they fetch.
    "CARGO_HOME",
    "PIP_CACHE_DIR",
    "UV_CACHE_DIR",
    "UV_PYTHON_INSTALL_DIR",
    "UV_TOOL_DIR",
    "POETRY_CACHE_DIR",
    "WORKON_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "MAMBA_ROOT_PREFIX",
    "PIXI_HOME",
    "PRE_COMMIT_HOME",
    "npm_config_cache",
    "YARN_CACHE_FOLDER",
    "YARN_GLOBAL_FOLDER",
    "FNM_DIR",
    "BUN_INSTALL",
    "DENO_DIR",
    "PLAYWRIGHT_BROWSERS_PATH",
    "GOPATH",
    "GOMODCACHE",
    "GOCACHE",
    "GRADLE_USER_HOME",
    "COURSIER_CACHE",
    "NUGET_PACKAGES",
    "DOTNET_ROOT",
    "GEM_HOME",
    "BUNDLE_USER_CACHE",
    "COMPOSER_CACHE_DIR",
    "COMPOSER_HOME",
    "OPAMROOT",
    "CCACHE_DIR",
    "VCPKG_DEFAULT_BINARY_CACHE",
    "TF_PLUGIN_CACHE_DIR",
    "HF_HOME",
    // Where sandbox providers are.
    "KUBECONFIG",
    "DAYTONA_API_URL",
    "DAYTONA_TARGET",
    "E2B_API_URL",
    "E2B_DOMAIN",
    "E2B_SANDBOX_URL",
    "NOVITA_API_URL",
    "NOVITA_DOMAIN",
    "NOVITA_SANDBOX_URL",
    "RUNLOOP_BASE_URL",
    "MODAL_SERVER_URL",
    "MODAL_ENVIRONMENT",
];
/// Variables that say who commits, and when. git reads them before its settings.
pub const COMMITTER_NAMES: [&str; 6] = [
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
];
/// The beginning of variables that add settings to git's, or name files with them. They are kept apart: a setting can hold a key, and
/// no git that works for `agent` obeys them.
const GIT_SETTINGS: &[u8] = b"GIT_CONFIG_";
const PREFIXES: [&str; 3] = ["LC_", "XDG_", "DOCKER_"];

/// Variables that hold the key of a sandbox provider. They are kept apart: no program and no listing gets them.
const CREDENTIALS: [&str; 6] = [
    "DAYTONA_API_KEY",
    "E2B_API_KEY",
    "NOVITA_API_KEY",
    "RUNLOOP_API_KEY",
    "MODAL_TOKEN_ID",
    "MODAL_TOKEN_SECRET",
];

impl Machine {
    /// The machine of this process, as it is now.
    #[expect(clippy::disallowed_methods, reason = "the one place below the command line")]
    pub fn of_this_process() -> Self {
        Self::new(std::env::vars_os())
    }

    /// This machine with these variables, of which those are kept that it needs.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let (mut facts, mut credentials, mut git_settings) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut git_programs = BTreeMap::new();
        for (name, value) in variables {
            if GIT_PROGRAMS.iter().any(|program| name == *program) {
                git_programs.insert(name.clone(), value.clone());
            }
            let credential = CREDENTIALS.into_iter().find(|credential| name == *credential);
            match (credential, value.to_str().map(str::trim)) {
                (Some(credential), Some(key)) if !key.is_empty() => {
                    credentials.insert(credential, SecretString::from(key.to_owned()));
                }
                (None, _) if is_fact(&name) => drop(facts.insert(name, value)),
                (None, _) if name.as_encoded_bytes().starts_with(GIT_SETTINGS) => {
                    git_settings.insert(name, value);
                }
                _ => {}
            }
        }
        let variables = facts;
        let path = variables.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        Self {
            root: "/".into(),
            // Without a home there is nothing to find; `/nonexistent` is what Debian calls that.
            home: absolute(&variables, "HOME").unwrap_or_else(|| "/nonexistent".into()),
            path: std::env::split_paths(&path).filter(|directory| directory.is_absolute()).collect(),
            variables,
            git_settings,
            git_programs,
            credentials,
            kept: Arc::default(),
        }
    }

    /// The same machine with these variables instead of its own: what the user's configuration says of sandbox providers.
    pub fn with(self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let others = Self::new(variables);
        let mut machine = self;
        machine.variables.extend(others.variables);
        machine.credentials.extend(others.credentials);
        machine
    }

    /// A machine whose files are below `root`, made up by a test.
    pub fn made_up(root: &Path, home: &str, path: &[&str]) -> Self {
        let path = path.iter().map(PathBuf::from).collect();
        Self { root: root.into(), home: home.into(), path, ..Self::new([]) }
    }

    /// The directory below which the machine's files are: `/`, but for tests.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The user's home as a path of that machine; `/nonexistent` where there is none.
    pub fn home_or_nowhere(&self) -> &Path {
        &self.home
    }

    /// The absolute directories of `PATH`.
    pub fn path(&self) -> &[PathBuf] {
        &self.path
    }

    /// Returns the real path of a path of that machine.
    pub fn on_host(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Keeps a value of another part of the program, in place of an earlier one of its type. Clones of the machine share it.
    pub fn keep<T: Any + Send + Sync>(&self, value: T) {
        self.kept.lock().insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of this type that was kept.
    pub fn kept<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.kept.lock().get(&TypeId::of::<T>()).cloned()?.downcast().ok()
    }

    /// A variable of the environment.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// A variable that is text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.variable(name)?.to_str().map(str::to_owned)
    }

    /// The key of a sandbox provider, by the variable that holds it.
    pub fn credential(&self, name: &str) -> Option<SecretString> {
        self.credentials.get(name).cloned()
    }

    /// Those that are kept, with their values.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// The variables that add settings to git's, or name files with them.
    pub fn git_settings(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.git_settings.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// The variables that name programs which git starts, or directories that it takes some from. No program of ours gets them.
    pub fn git_programs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.git_programs.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// The user's home, where there is one.
    pub fn home(&self) -> Option<PathBuf> {
        absolute(&self.variables, "HOME")
    }

    /// The path, which may begin with `~`.
    pub fn in_home(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), self.home()) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        }
    }

    /// The first of the variables that name an HTTP proxy, in lower case.
    pub fn proxy_variable(&self) -> Option<&'static str> {
        let is_set = |name: &str| self.variable(name).is_some_and(|value| !value.is_empty());
        let names = ["http_proxy", "https_proxy", "all_proxy"];
        names.into_iter().find(|name| is_set(name) || is_set(&name.to_uppercase()))
    }

    /// The proxy for all connections where it is written as `socks://`, as GNOME does: the HTTP client knows it as `socks5h://`.
    pub fn socks_proxy(&self) -> Option<String> {
        let value = ["all_proxy", "ALL_PROXY"].into_iter().find_map(|name| {
            self.variable(name).and_then(|value| value.to_str()).filter(|value| !value.is_empty())
        })?;
        Some(format!("socks5h://{}", value.strip_prefix("socks://")?))
    }

    /// `~/.config/agent`: `config.toml`.
    ///
    /// # Errors
    /// `Config` where the user has no home directory, as for the other directories.
    pub fn config_dir(&self) -> Result<PathBuf> {
        self.own_dir("config", "XDG_CONFIG_HOME", ".config")
    }

    /// `~/.local/share/agent`: sessions and the REPL's history.
    pub fn data_dir(&self) -> Result<PathBuf> {
        self.own_dir("data", "XDG_DATA_HOME", ".local/share")
    }

    /// `~/.cache/agent`: files that can be recreated.
    pub fn cache_dir(&self) -> Result<PathBuf> {
        self.own_dir("cache", "XDG_CACHE_HOME", ".cache")
    }

    /// The XDG base directory, or the one below `AGENT_HOME`.
    fn own_dir(&self, under_agent_home: &str, variable: &str, under_home: &str) -> Result<PathBuf> {
        match self.variable("AGENT_HOME").filter(|home| !home.is_empty()).map(PathBuf::from) {
            Some(base) if base.is_absolute() => return Ok(base.join(under_agent_home)),
            Some(base) => {
                return Err(Error::config(format!("AGENT_HOME={} is not an absolute path", base.display()))
                    .hint("use an absolute path, or unset it"));
            }
            None => {}
        }
        absolute(&self.variables, variable)
            .or_else(|| self.home().map(|home| home.join(under_home)))
            .map(|base| base.join("agent"))
            .ok_or_else(|| {
                Error::config("no directory for sessions: HOME is not set").hint("set HOME or AGENT_HOME")
            })
    }
}

/// The names alone: the address of a proxy may contain a password.
impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("home", &self.home).field("path", &self.path).finish_non_exhaustive()
    }
}

fn is_fact(name: &OsStr) -> bool {
    if host_program::may_get(name) {
        return true;
    }
    let name = name.to_str().unwrap_or_default();
    NAMES.contains(&name)
        || COMMITTER_NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// A variable that holds an absolute path. The XDG specification says to ignore any other.
fn absolute(variables: &BTreeMap<OsString, OsString>, name: &str) -> Option<PathBuf> {
    variables.get(OsStr::new(name)).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(variables: &[(&str, &str)]) -> Machine {
        Machine::new(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn directories_are_those_of_agent_home_or_of_xdg() {
        let dir = |variables| machine(variables).data_dir().map(|path| path.display().to_string()).ok();
        assert_eq!(dir(&[("AGENT_HOME", "/a"), ("HOME", "/h")]).as_deref(), Some("/a/data"));
        assert_eq!(dir(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")]).as_deref(), Some("/x/agent"));
        assert_eq!(dir(&[("XDG_DATA_HOME", "x"), ("HOME", "/h")]).as_deref(), Some("/h/.local/share/agent"));
        assert_eq!(dir(&[("AGENT_HOME", "a"), ("HOME", "/h")]), None);
        assert_eq!(dir(&[("HOME", "")]), None);
    }

    #[test]
    fn keys_are_not_facts() {
        let machine = machine(&[
            ("OPENAI_API_KEY", "secret"),
            ("AGENT_API_KEY", "secret"),
            ("DAYTONA_API_KEY", "secret"),
            ("HTTPS_PROXY", "http://p"),
            ("GIT_CONFIG_VALUE_0", "secret"),
        ]);
        assert_eq!(machine.variables().count(), 1);
        assert!(
            machine.credential("DAYTONA_API_KEY").is_some() && machine.credential("OPENAI_API_KEY").is_none()
        );
        assert!(!format!("{machine:?}").contains("secret"));
        assert_eq!(machine.proxy_variable(), Some("https_proxy"));
        assert!(!format!("{machine:?}").contains("http"));
    }
}
