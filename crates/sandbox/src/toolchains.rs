//! The user's own toolchains: those that version managers keep below `$HOME` and that are on the `PATH`.
//!
//! Each is bound by itself at `/toolchains/NAME`, so that nothing else of `$HOME` is visible. `~/.local/bin`, `~/.cargo`
//! and `~/go` are the user's programs and caches, not toolchains, and are never given.

use agent_base::machine::Machine;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of toolchains inside the sandbox.
const INSIDE: &str = "/toolchains";

/// The reverse of [`Machine::on_host`], for a path without symlinks.
fn as_named_there(machine: &Machine, path: &Path) -> PathBuf {
    let root = fs::canonicalize(machine.root()).unwrap_or_default();
    Path::new("/").join(path.strip_prefix(root).unwrap_or(path))
}

/// A version manager's directory: its variable, or its usual place below `$HOME`.
fn manager(machine: &Machine, variable: &str, usual: &str) -> PathBuf {
    let named = machine.variable(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    machine.on_host(&named.unwrap_or_else(|| machine.home_or_nowhere().join(usual)))
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Toolchains that find their parts by looking from where they are. The others have their place on this machine compiled
/// in (the library path of pyenv's Python, the first lines of `pip` and `gem`), so a symlink stands there inside: the
/// one thing that is shown of `$HOME`, and nothing but the link is there.
const RELOCATABLE: [&str; 6] = ["rust", "node", "go", "java", "bun", "deno"];

/// Toolchains that were found, ready to be added to the tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Toolchains {
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// The places that toolchains have compiled in, as links to where they are inside.
    pub symlinks: Vec<(PathBuf, PathBuf)>,
    /// Directories for `PATH`, as they are inside.
    pub bin_dirs: Vec<PathBuf>,
    pub env: Vec<(String, String)>,
}

/// The toolchains in the order in which `PATH` names them.
pub(super) fn find(machine: &Machine) -> Toolchains {
    let mut found = Toolchains::default();
    for dir in machine.path().iter().filter(|dir| !dir.starts_with("/usr")) {
        for (name, prefix) in behind(machine, &machine.on_host(dir)) {
            found.add(machine, &name, &prefix);
        }
    }
    if let Some(java) = machine.variable("JAVA_HOME").map(PathBuf::from).filter(|java| java.is_absolute())
        && let Some(inside) = found.inside(&machine.on_host(&java)).or_else(|| system_java(&java))
    {
        found.env.push(("JAVA_HOME".into(), inside));
    }
    found
}

/// A Java of the system's is at the same place inside.
fn system_java(path: &Path) -> Option<String> {
    let given = path.starts_with("/usr") || path.starts_with("/opt");
    path.to_str().filter(|_| given).map(str::to_owned)
}

impl Toolchains {
    fn add(&mut self, machine: &Machine, name: &str, prefix: &Path) {
        let Ok(real) = fs::canonicalize(prefix) else { return };
        let known = self.binds.iter().any(|(host, _)| *host == real);
        let (bin, inside) = (real.join("bin"), Path::new(INSIDE).join(name));
        if known || !bin.is_dir() || !plain(name) {
            return;
        }
        self.bin_dirs.push(inside.join("bin"));
        if !RELOCATABLE.iter().any(|language| name.starts_with(language)) {
            self.symlinks.push((as_named_there(machine, &real), inside.clone()));
        }
        // Beside their `bin`, bun and deno keep nothing but caches of what was installed.
        let only_bin = ["bun", "deno"].contains(&name);
        self.binds.push(if only_bin { (bin, inside.join("bin")) } else { (real, inside) });
    }

    /// Returns the path inside of `prefix`; `None` if it was not given to the sandbox.
    fn inside(&self, prefix: &Path) -> Option<String> {
        let real = fs::canonicalize(prefix).ok()?;
        let (_, inside) = self.binds.iter().find(|(host, _)| *host == real)?;
        inside.to_str().map(str::to_owned)
    }
}

/// A name that can stand in a path and in `PATH`.
fn plain(name: &str) -> bool {
    !name.starts_with('.') && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b))
}

/// A toolchain's name and where it is on the host.
type Named = (String, PathBuf);
/// Asks a version manager what its shims would run.
type Finder = fn(&Machine) -> Vec<Named>;

/// The toolchains that a directory of `PATH` stands for: the one whose `bin` it is, or, where it holds a version
/// manager's shims, the ones that these would run.
fn behind(machine: &Machine, dir: &Path) -> Vec<Named> {
    let shims: [(PathBuf, Finder); 6] = [
        (machine.on_host(&machine.home_or_nowhere().join(".cargo/bin")), rustup),
        (manager(machine, "PYENV_ROOT", ".pyenv").join("shims"), pyenv),
        (manager(machine, "RBENV_ROOT", ".rbenv").join("shims"), rbenv),
        (manager(machine, "VOLTA_HOME", ".volta").join("bin"), volta),
        (manager(machine, "ASDF_DATA_DIR", ".asdf").join("shims"), asdf),
        (manager(machine, "MISE_DATA_DIR", ".local/share/mise").join("shims"), mise),
    ];
    if let Some((_, toolchains)) = shims.iter().find(|(shim_dir, _)| dir == shim_dir) {
        return toolchains(machine);
    }
    prefix_of(machine, dir).into_iter().collect()
}

/// The directories in which version managers keep each version in a directory of its own with a `bin` in it, with the
/// toolchain's name: `*` is one component, and a name of `""` is the first `*`.
const PREFIXES: [(&str, &str, &str, &str); 12] = [
    ("RUSTUP_HOME", ".rustup", "toolchains/*", "rust"),
    ("PYENV_ROOT", ".pyenv", "versions/*", "python"),
    ("RBENV_ROOT", ".rbenv", "versions/*", "ruby"),
    ("NVM_DIR", ".nvm", "versions/node/*", "node"),
    ("", ".local/share/fnm", "node-versions/*/installation", "node"),
    ("", ".fnm", "node-versions/*/installation", "node"),
    ("ASDF_DATA_DIR", ".asdf", "installs/*/*", ""),
    ("MISE_DATA_DIR", ".local/share/mise", "installs/*/*", ""),
    ("SDKMAN_DIR", ".sdkman", "candidates/*/*", ""),
    ("", "sdk", "*", "go"),
    ("", ".bun", "", "bun"),
    ("", ".deno", "", "deno"),
];

/// The toolchain whose `bin` the directory `dir` is, symlinks resolved (fnm and sdkman put one there).
fn prefix_of(machine: &Machine, dir: &Path) -> Option<Named> {
    let real = fs::canonicalize(dir).ok()?;
    let prefix = real.parent().filter(|_| real.ends_with("bin"))?;
    PREFIXES.iter().find_map(|(variable, usual, pattern, name)| {
        let base = fs::canonicalize(manager(machine, variable, usual)).ok()?;
        let stars = matches(prefix.strip_prefix(base).ok()?, pattern)?;
        let words = if name.is_empty() { stars } else { [vec![(*name).to_owned()], stars].concat() };
        Some((words.join("-"), prefix.to_owned()))
    })
}

/// Returns what the stars of `pattern` stand for in `path`, where it matches.
fn matches(path: &Path, pattern: &str) -> Option<Vec<String>> {
    let mut stars = Vec::new();
    let mut parts = path.components().map(|c| c.as_os_str());
    for wanted in pattern.split('/').filter(|part| !part.is_empty()) {
        let part = parts.next()?.to_str()?;
        match wanted {
            "*" => stars.push(part.to_owned()),
            _ if wanted != part => return None,
            _ => {}
        }
    }
    parts.next().is_none().then_some(stars)
}

fn rustup(machine: &Machine) -> Vec<Named> {
    let home = manager(machine, "RUSTUP_HOME", ".rustup");
    let toolchains = home.join("toolchains");
    let chosen = machine.text("RUSTUP_TOOLCHAIN").or_else(|| {
        let settings: toml::Table = read(&home.join("settings.toml"))?.parse().ok()?;
        settings.get("default_toolchain")?.as_str().map(str::to_owned)
    });
    let Some(name) = chosen.filter(|name| plain(name)) else { return Vec::new() };
    // `stable` is short for `stable-x86_64-unknown-linux-gnu`.
    let full = toolchains.join(&name);
    let prefix = if full.exists() { Some(full) } else { starting_with(&toolchains, &format!("{name}-")) };
    prefix.map(|prefix| (format!("rust-{name}"), prefix)).into_iter().collect()
}

fn starting_with(directory: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(prefix)))
        .min()
}

fn pyenv(machine: &Machine) -> Vec<Named> {
    listed(machine, manager(machine, "PYENV_ROOT", ".pyenv"), "PYENV_VERSION", "python")
}

fn rbenv(machine: &Machine) -> Vec<Named> {
    listed(machine, manager(machine, "RBENV_ROOT", ".rbenv"), "RBENV_VERSION", "ruby")
}

/// pyenv and rbenv: versions separated by colons in a variable, or a line each in the file `version`.
fn listed(machine: &Machine, base: PathBuf, variable: &str, language: &str) -> Vec<Named> {
    let named = machine.text(variable);
    let text = named.or_else(|| read(&base.join("version"))).unwrap_or_default();
    text.split([':', '\n'])
        .map(str::trim)
        .filter(|version| !version.is_empty() && plain(version))
        .map(|version| (format!("{language}-{version}"), base.join("versions").join(version)))
        .collect()
}

/// `~/.volta/tools/user/platform.json` names the default Node.
fn volta(machine: &Machine) -> Vec<Named> {
    let tools = manager(machine, "VOLTA_HOME", ".volta").join("tools");
    let platform = read(&tools.join("user/platform.json")).unwrap_or_default();
    let platform: serde_json::Value = serde_json::from_str(&platform).unwrap_or_default();
    let version = platform["node"]["runtime"].as_str().filter(|version| plain(version));
    version
        .map(|version| (format!("node-{version}"), tools.join("image/node").join(version)))
        .into_iter()
        .collect()
}

/// `~/.tool-versions`: a tool and its versions a line.
fn asdf(machine: &Machine) -> Vec<Named> {
    let installs = manager(machine, "ASDF_DATA_DIR", ".asdf").join("installs");
    let text = read(&machine.on_host(&machine.home_or_nowhere().join(".tool-versions"))).unwrap_or_default();
    let mut tools = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(tool) = words.next().filter(|tool| plain(tool)) else { continue };
        tools
            .extend(words.filter(|v| plain(v)).map(|v| (format!("{tool}-{v}"), installs.join(tool).join(v))));
    }
    tools
}

/// `~/.config/mise/config.toml`: a version, or a list of them, for each tool.
fn mise(machine: &Machine) -> Vec<Named> {
    let installs = manager(machine, "MISE_DATA_DIR", ".local/share/mise").join("installs");
    let config = machine.on_host(&machine.home_or_nowhere().join(".config/mise/config.toml"));
    let config: Option<toml::Table> = read(&config).and_then(|text| text.parse().ok());
    let mut tools = Vec::new();
    for (tool, wanted) in config.iter().filter_map(|config| config.get("tools")?.as_table()).flatten() {
        let versions = match wanted {
            toml::Value::Array(versions) => versions.iter().filter_map(toml::Value::as_str).collect(),
            toml::Value::Table(table) => {
                table.get("version").and_then(toml::Value::as_str).into_iter().collect()
            }
            one => one.as_str().into_iter().collect::<Vec<_>>(),
        };
        let usable = versions.into_iter().filter(|version| plain(tool) && plain(version));
        tools.extend(usable.map(|v| (format!("{tool}-{v}"), installs.join(tool).join(v))));
    }
    tools
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A made-up machine whose home holds `files`, and what was found on it: names and bin directories.
    fn find_in(files: &[(&str, &str)], path: &[&str], variables: &[(&'static str, &str)]) -> Toolchains {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = root.path().join("home/me").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            match text.strip_prefix("-> ") {
                Some(target) => symlink(target, file).unwrap(),
                None => fs::write(file, text).unwrap(),
            }
        }
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let machine = Machine::made_up(root.path(), "/home/me", path).with(variables);
        let found = find(&machine);
        let base = fs::canonicalize(root.path()).unwrap();
        let binds = found
            .binds
            .into_iter()
            .map(|(host, inside)| (Path::new("/").join(host.strip_prefix(&base).unwrap()), inside));
        Toolchains { binds: binds.collect(), ..found }
    }

    fn bind(host: &str, inside: &str) -> (PathBuf, PathBuf) {
        (host.into(), inside.into())
    }

    #[test]
    fn rustup_gives_the_default_toolchain_and_nothing_of_cargo_home() {
        let files = [
            (".cargo/bin/cargo", ""),
            (".cargo/credentials.toml", "token"),
            (".rustup/settings.toml", "default_toolchain = \"stable-x\""),
            (".rustup/toolchains/stable-x/bin/cargo", ""),
            (".rustup/toolchains/nightly-x/bin/cargo", ""),
        ];
        let found = find_in(&files, &["/home/me/.cargo/bin"], &[]);
        assert_eq!(found.binds, [bind("/home/me/.rustup/toolchains/stable-x", "/toolchains/rust-stable-x")]);
        assert_eq!(found.bin_dirs, [PathBuf::from("/toolchains/rust-stable-x/bin")]);
        assert_eq!(found.symlinks, []);

        let found = find_in(&files, &["/home/me/.cargo/bin"], &[("RUSTUP_TOOLCHAIN", "nightly-x")]);
        assert_eq!(found.bin_dirs, [PathBuf::from("/toolchains/rust-nightly-x/bin")]);

        let found = find_in(&files, &["/home/me/.cargo/bin"], &[("RUSTUP_TOOLCHAIN", "nightly")]);
        assert_eq!(found.binds, [bind("/home/me/.rustup/toolchains/nightly-x", "/toolchains/rust-nightly")]);
    }

    #[test]
    fn a_symlinked_toolchain_is_resolved() {
        let found = find_in(
            &[
                (".rustup/settings.toml", "default_toolchain = \"1.90\""),
                (".rustup/toolchains/1.90", "-> stable-x"),
                (".rustup/toolchains/stable-x/bin/cargo", ""),
            ],
            &["/home/me/.cargo/bin"],
            &[],
        );
        assert_eq!(found.binds, [bind("/home/me/.rustup/toolchains/stable-x", "/toolchains/rust-1.90")]);
    }

    #[test]
    fn pyenv_gives_the_versions_that_its_shims_would_run() {
        let found = find_in(
            &[
                (".pyenv/version", "3.12.1\n3.11.7\n"),
                (".pyenv/shims/python", ""),
                (".pyenv/versions/3.12.1/bin/python", ""),
                (".pyenv/versions/3.11.7/bin/python", ""),
                (".pyenv/versions/3.8.0/bin/python", ""),
            ],
            &["/home/me/.pyenv/shims", "/home/me/.pyenv/bin"],
            &[],
        );
        assert_eq!(
            found.bin_dirs,
            [PathBuf::from("/toolchains/python-3.12.1/bin"), PathBuf::from("/toolchains/python-3.11.7/bin")]
        );
        assert_eq!(found.symlinks[1], bind("/home/me/.pyenv/versions/3.11.7", "/toolchains/python-3.11.7"));
    }

    #[test]
    fn directories_on_the_path_are_recognised_through_symlinks() {
        let found = find_in(
            &[
                (".nvm/versions/node/v20.1.0/bin/node", ""),
                (".sdkman/candidates/java/21-tem/bin/java", ""),
                (".sdkman/candidates/java/current", "-> 21-tem"),
                (".local/share/fnm/node-versions/v22.0.0/installation/bin/node", ""),
                (".local/state/fnm_multishells/7", "-> ../../share/fnm/node-versions/v22.0.0/installation"),
                (".bun/bin/bun", ""),
                (".local/bin/mine", ""),
                ("go/bin/mine", ""),
            ],
            &[
                "/home/me/.nvm/versions/node/v20.1.0/bin",
                "/home/me/.sdkman/candidates/java/current/bin",
                "/home/me/.local/state/fnm_multishells/7/bin",
                "/home/me/.bun/bin",
                "/home/me/.local/bin",
                "/home/me/go/bin",
            ],
            &[("JAVA_HOME", "/home/me/.sdkman/candidates/java/current")],
        );
        let insides: Vec<_> = found.binds.iter().filter_map(|(_, inside)| inside.to_str()).collect();
        let wanted = [
            "/toolchains/node-v20.1.0",
            "/toolchains/java-21-tem",
            "/toolchains/node-v22.0.0",
            "/toolchains/bun/bin",
        ];
        assert_eq!(insides, wanted);
        assert_eq!(found.env, [("JAVA_HOME".to_owned(), "/toolchains/java-21-tem".to_owned())]);
    }

    #[test]
    fn volta_asdf_and_mise_are_asked_for_their_defaults() {
        let found = find_in(
            &[
                (".volta/tools/user/platform.json", r#"{"node": {"runtime": "20.9.0"}}"#),
                (".volta/tools/image/node/20.9.0/bin/node", ""),
                (".tool-versions", "ruby 3.3.0 # ours\nnodejs ../../.ssh\n"),
                (".asdf/installs/ruby/3.3.0/bin/ruby", ""),
                (".config/mise/config.toml", "[tools]\ngo = \"1.22\"\npython = [\"3.13\"]\n"),
                (".local/share/mise/installs/go/1.22/bin/go", ""),
                (".local/share/mise/installs/python/3.13/bin/python", ""),
                (".ssh/bin/id_ed25519", ""),
            ],
            &["/home/me/.volta/bin", "/home/me/.asdf/shims", "/home/me/.local/share/mise/shims"],
            &[],
        );
        let insides: Vec<_> = found.binds.iter().filter_map(|(_, inside)| inside.to_str()).collect();
        let wanted = [
            "/toolchains/node-20.9.0",
            "/toolchains/ruby-3.3.0",
            "/toolchains/go-1.22",
            "/toolchains/python-3.13",
        ];
        assert_eq!(insides, wanted);
    }

    #[test]
    fn hostile_names_lead_nowhere() {
        let settings =
            [(".rustup/settings.toml", "default_toolchain = \"../../.ssh\""), (".ssh/bin/key", "")];
        assert_eq!(find_in(&settings, &["/home/me/.cargo/bin"], &[]), Toolchains::default());
        assert_eq!(
            find_in(&[], &["/home/me/.pyenv/shims"], &[("PYENV_VERSION", "..")]),
            Toolchains::default()
        );
    }
}
