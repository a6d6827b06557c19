//! Libraries: their names, and how each language's package manager installs them.
//!
//! A name comes from a model and becomes an argument of a package manager, which takes options, paths and addresses in the
//! same place. So only names that a registry can have are accepted.

use super::{CACHE, Language, debian};
use agent_base::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// The most libraries of one call.
const MAX_LIBRARIES: usize = 20;
/// The longest name, its version included.
const MAX_LENGTH: usize = 200;
/// Endings that package managers take for files.
const ARCHIVES: [&str; 9] = [".whl", ".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".gem", ".git"];

/// Libraries of one language, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Libraries {
    language: Language,
    names: Vec<Library>,
}

/// A library, and the version that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Library {
    name: String,
    version: Option<String>,
}

impl Libraries {
    /// Checks the names.
    ///
    /// # Errors
    /// `Usage`: a name is not valid, or the language has no registry.
    pub fn parse(language: Language, names: &[String]) -> Result<Self> {
        if names.len() > MAX_LIBRARIES {
            return Err(Error::usage(format!(
                "{} libraries are too many: at most {MAX_LIBRARIES}",
                names.len()
            )));
        }
        let Some(registry) = registry(language) else {
            return match names.is_empty() {
                true => Ok(Self { language, names: Vec::new() }),
                false => {
                    Err(Error::usage(format!("libraries for {} cannot be installed here", language.name()))
                        .hint("use what is in the sandbox, or an image (--image) that has them"))
                }
            };
        };
        let mut names =
            names.iter().map(|name| Library::parse(registry, name.trim())).collect::<Result<Vec<_>>>()?;
        names.sort();
        names.dedup();
        Ok(Self { language, names })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Their language.
    pub fn language(&self) -> Language {
        self.language
    }

    /// Returns whether each is installed for itself, or all of them as a set.
    pub fn are_separate(&self) -> bool {
        matches!(
            self.language,
            Language::Python
                | Language::JavaScript
                | Language::TypeScript
                | Language::Ruby
                | Language::Cpp
                | Language::C
        )
    }

    /// The file that says that they are installed.
    pub fn stamp(&self) -> PathBuf {
        let hash = hex::encode(Sha256::digest(self.keys().join("\n")));
        self.directory().join(format!(".installed-{}", &hash[..16]))
    }

    /// Those that are not installed.
    pub fn missing(&self, is_installed: impl Fn(&str) -> bool) -> Self {
        let names = self.names.iter().filter(|library| !is_installed(&self.key(library)));
        Self { language: self.language, names: names.cloned().collect() }
    }

    /// Returns what [`Libraries::missing`] asks about.
    pub fn keys(&self) -> Vec<String> {
        self.names.iter().map(|library| self.key(library)).collect()
    }

    /// Of a set, every member's key names the set.
    fn key(&self, library: &Library) -> String {
        let written = match self.are_separate() {
            true => library.written(),
            false => self.names.iter().map(Library::written).collect::<Vec<_>>().join(" "),
        };
        format!("{} {written}", self.directory_name())
    }

    /// JavaScript and TypeScript share their libraries, and so do C and C++.
    fn directory_name(&self) -> &'static str {
        match self.language {
            Language::TypeScript => Language::JavaScript.name(),
            Language::C => Language::Cpp.name(),
            language => language.name(),
        }
    }

    /// The directory that is theirs: for all libraries of Python, JavaScript, Ruby and C++ one, for the others one for each set.
    pub fn directory(&self) -> PathBuf {
        let root = PathBuf::from(CACHE).join(self.directory_name());
        match self.are_separate() {
            true => root,
            _ if self.names.is_empty() => root.join("plain"),
            _ => root.join(&hex::encode(Sha256::digest(self.keys().join("\n")))[..16]),
        }
    }

    /// The hosts that they come from.
    pub fn hosts(&self) -> &'static [&'static str] {
        registry(self.language).map_or(&[], |registry| registry.hosts)
    }

    /// As the package manager's command line, for the policy and for messages: `pip install numpy`.
    pub fn command(&self) -> String {
        let manager = registry(self.language).map_or("install", |registry| registry.command);
        let names: Vec<String> = self.names.iter().map(Library::written).collect();
        format!("{manager} {}", names.join(" "))
    }

    /// Their names alone.
    pub fn packages(&self) -> Vec<&str> {
        self.names.iter().map(|library| library.name.as_str()).collect()
    }

    /// Their names, for messages.
    pub fn names(&self) -> String {
        self.packages().join(", ")
    }

    /// The program that installs them.
    pub fn manager(&self) -> &'static str {
        match self.language {
            Language::Python => "python3",
            Language::JavaScript | Language::TypeScript => "npm",
            Language::Java => "mvn",
            Language::Go => "go",
            Language::Ruby => "gem",
            Language::Cpp | Language::C => "apt-get",
            _ => "cargo",
        }
    }

    /// Installs them, in their directory: a script for `sh`, and its arguments. With `offline` it succeeds only where nothing
    /// has to be fetched.
    pub fn install(&self, offline: bool) -> (String, Vec<String>) {
        let versioned = |separator: &str| -> Vec<String> {
            let join = |library: &Library| match &library.version {
                Some(version) => format!("{}{separator}{version}", library.name),
                None => library.name.clone(),
            };
            self.names.iter().map(join).collect()
        };
        let (script, arguments) = match self.language {
            Language::Python => {
                let arguments = self.names.iter().map(|library| match &library.version {
                    Some(version) if version.starts_with(['=', '<', '>', '~', '!']) => {
                        format!("{}{version}", library.name)
                    }
                    Some(version) => format!("{}=={version}", library.name),
                    None => library.name.clone(),
                });
                let arguments = arguments.collect();
                let index = if offline { "--no-index" } else { "" };
                (format!("{PIP} {index} -- \"$@\""), arguments)
            }
            Language::JavaScript | Language::TypeScript => {
                let offline = if offline { "--offline" } else { "" };
                (format!("{NPM} {offline} -- \"$@\""), versioned("@"))
            }
            Language::Ruby => (GEM.to_owned(), versioned(":")),
            Language::Go => {
                let latest = |library: &Library| {
                    format!("{}@{}", library.name, library.version.as_deref().unwrap_or("latest"))
                };
                (GO.to_owned(), self.names.iter().map(latest).collect())
            }
            Language::Java => (MAVEN.to_owned(), vec![self.pom()]),
            Language::Cpp | Language::C => (debian::INSTALL.to_owned(), versioned("=")),
            _ => (CARGO.to_owned(), vec![self.cargo_toml()]),
        };
        (script, arguments)
    }

    fn pom(&self) -> String {
        let dependencies = self.names.iter().map(|library| {
            let (group, artifact) = library.name.split_once(':').unwrap_or((&library.name, ""));
            let version = library.version.as_deref().unwrap_or("[0,)");
            format!(
                "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
            )
        });
        format!(
            "<project><modelVersion>4.0.0</modelVersion><groupId>snippet</groupId><artifactId>snippet</artifactId>\
             <version>1</version><dependencies>{}</dependencies></project>",
            dependencies.collect::<String>()
        )
    }

    fn cargo_toml(&self) -> String {
        let dependencies = self
            .names
            .iter()
            .map(|library| format!("{} = \"{}\"\n", library.name, library.version.as_deref().unwrap_or("*")));
        format!(
            "[package]\nname = \"snippet\"\nversion = \"0.1.0\"\nedition = \"2021\"\nautobins = true\n\
             [profile.dev]\ndebug = 0\n[dependencies]\n{}",
            dependencies.collect::<String>()
        )
    }
}

const PIP: &str = "user=--user; [ \"$(python3 -c 'import sys; print(sys.prefix != sys.base_prefix)')\" = True ] && user=; \
                   PIP_BREAK_SYSTEM_PACKAGES=1 exec python3 -m pip install -q --no-warn-script-location --retries 2 $user";
/// Node has a list of authorities of its own; the machine's may have one more, of a company.
const NPM: &str = "ca=/etc/ssl/certs/ca-certificates.crt; [ -n \"$NODE_EXTRA_CA_CERTS\" ] || [ ! -e $ca ] || export NODE_EXTRA_CA_CERTS=$ca; \
                   [ -e load.mjs ] || { echo '{\"private\": true}' > package.json && \
                   echo 'export default (name) => import(name);' > load.mjs; }; exec npm install --silent --no-audit --no-fund";
const GEM: &str = "exec gem install --silent --remote --user-install --no-document \"$@\"";
const GO: &str = "[ -e go.mod ] || go mod init snippet >/dev/null 2>&1; go get -- \"$@\"";
const MAVEN: &str =
    "printf %s \"$1\" > pom.xml; mvn -B -q dependency:copy-dependencies -DoutputDirectory=lib";
const CARGO: &str = "mkdir -p src/bin; printf %s \"$1\" > Cargo.toml; [ -e src/bin/empty.rs ] || echo 'fn main() {}' > src/bin/empty.rs; \
                     exec cargo fetch -q";

/// The source of a language's libraries, and what their names are made of.
#[derive(Clone, Copy)]
struct PackageRegistry {
    command: &'static str,
    hosts: &'static [&'static str],
    /// The texts that may stand between name and version.
    separators: &'static [&'static str],
    is_name: fn(&str) -> bool,
    /// An example of a name, for messages.
    example: &'static str,
}

fn registry(language: Language) -> Option<PackageRegistry> {
    Some(match language {
        Language::Python => PackageRegistry {
            command: "pip install",
            hosts: &["pypi.org", "files.pythonhosted.org"],
            separators: &["==", "@", ">=", "<=", "~=", "!=", ">", "<"],
            is_name: is_python_name,
            example: "numpy or numpy==2.2.0",
        },
        Language::JavaScript | Language::TypeScript => PackageRegistry {
            command: "npm install",
            hosts: &["registry.npmjs.org"],
            separators: &["@"],
            is_name: is_npm_name,
            example: "lodash, lodash@4.17.21 or @scope/name",
        },
        Language::Ruby => PackageRegistry {
            command: "gem install",
            hosts: &["rubygems.org", "index.rubygems.org"],
            separators: &["==", "@", ":"],
            is_name: is_plain_name,
            example: "rainbow or rainbow@3.1.1",
        },
        Language::Go => PackageRegistry {
            command: "go get",
            hosts: &["proxy.golang.org", "sum.golang.org"],
            separators: &["@"],
            is_name: is_go_module,
            example: "github.com/google/uuid or github.com/google/uuid@v1.6.0",
        },
        Language::Java => PackageRegistry {
            command: "mvn dependency:get",
            hosts: &["repo.maven.apache.org", "repo1.maven.org"],
            separators: &[":"],
            is_name: is_maven_name,
            example: "com.google.code.gson:gson:2.11.0",
        },
        Language::Rust => PackageRegistry {
            command: "cargo add",
            hosts: &["index.crates.io", "static.crates.io", "crates.io"],
            separators: &["@", "=="],
            is_name: |name| {
                is_plain_name(name) && !name.contains('.') && !name.starts_with(|c: char| c.is_ascii_digit())
            },
            example: "itoa or itoa@1.0.11",
        },
        Language::Cpp | Language::C => PackageRegistry {
            command: "apt-get install",
            hosts: &["deb.debian.org", "security.debian.org"],
            separators: &["="],
            is_name: is_debian_name,
            example: "libfmt-dev or nlohmann-json3-dev",
        },
        Language::R | Language::Bash => return None,
    })
}

impl Library {
    fn parse(registry: PackageRegistry, text: &str) -> Result<Self> {
        let refused = || {
            let shown: String = text.chars().take(100).collect();
            Error::usage(format!("{shown:?} is not a valid library name")).hint(format!(
                "name what the registry has, like {}; paths, addresses and options are not taken",
                registry.example
            ))
        };
        let lower = text.to_ascii_lowercase();
        if text.len() > MAX_LENGTH || ARCHIVES.iter().any(|ending| lower.ends_with(ending)) {
            return Err(refused());
        }
        let (name, version) = split(registry, text);
        let is_version = |version: &str| {
            let number = version.trim_start_matches(['=', '<', '>', '~', '!', '^']);
            number.starts_with(|c: char| c.is_ascii_alphanumeric())
                && number.chars().all(|c| {
                    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_' | '*' | '!' | '~')
                })
        };
        if !(registry.is_name)(name) || !version.is_none_or(is_version) {
            return Err(refused());
        }
        Ok(Self { name: name.to_owned(), version: version.map(str::to_owned) })
    }

    fn written(&self) -> String {
        match &self.version {
            Some(version) => format!("{}@{version}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Name and version. A separator at the beginning is part of the name (`@scope/name`), and so is the first `:` of Maven.
fn split(registry: PackageRegistry, text: &str) -> (&str, Option<&str>) {
    let skip = match registry.separators {
        [":"] => text.find(':').map_or(0, |at| at + 1),
        _ => 1,
    };
    let Some(rest) = text.get(skip..) else { return (text, None) };
    let first = registry
        .separators
        .iter()
        .filter_map(|separator| Some((skip + rest.find(separator)?, *separator)))
        .min_by_key(|(at, separator)| (*at, usize::MAX - separator.len()));
    match first {
        // A comparison is part of the version.
        Some((at, "==" | "=" | "@" | ":")) => {
            let length = if text[at..].starts_with("==") { 2 } else { 1 };
            (&text[..at], Some(&text[at + length..]))
        }
        Some((at, _)) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    }
}

/// As Debian's policy has it.
fn is_debian_name(name: &str) -> bool {
    name.len() > 1
        && !name.ends_with('-')
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '.' | '-'))
}

fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// A name, and perhaps extras: `uvicorn[standard]`.
fn is_python_name(name: &str) -> bool {
    match name.split_once('[') {
        None => is_plain_name(name),
        Some((name, extras)) => {
            let extras = extras.strip_suffix(']');
            is_plain_name(name) && extras.is_some_and(|extras| extras.split(',').all(is_plain_name))
        }
    }
}

fn is_npm_name(name: &str) -> bool {
    match name.strip_prefix('@').map(|scoped| scoped.split_once('/')) {
        None => is_plain_name(name),
        Some(Some((scope, name))) => is_plain_name(scope) && is_plain_name(name),
        Some(None) => false,
    }
}

fn is_go_module(name: &str) -> bool {
    let part = |part: &str| is_plain_name(part.trim_start_matches(['~', '_']));
    let host = name.split('/').next().unwrap_or_default();
    host.contains('.') && name.split('/').all(part)
}

fn is_maven_name(name: &str) -> bool {
    name.split_once(':').is_some_and(|(group, artifact)| is_plain_name(group) && is_plain_name(artifact))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(language: Language, name: &str) -> Result<Libraries> {
        Libraries::parse(language, &[name.to_owned()])
    }

    #[test]
    fn names_and_versions_become_what_each_manager_takes() {
        for (language, name, argument) in [
            (Language::Python, "numpy", "numpy"),
            (Language::Python, "numpy==2.2.0", "numpy==2.2.0"),
            (Language::Python, "numpy@2.2.0", "numpy==2.2.0"),
            (Language::Python, "numpy>=2", "numpy>=2"),
            (Language::Python, "uvicorn[standard]==0.30", "uvicorn[standard]==0.30"),
            (Language::JavaScript, "lodash@4.17.21", "lodash@4.17.21"),
            (Language::TypeScript, "@types/node@^22", "@types/node@^22"),
            (Language::JavaScript, "@scope/name", "@scope/name"),
            (Language::Ruby, "rainbow@3.1.1", "rainbow:3.1.1"),
            (Language::Go, "github.com/google/uuid", "github.com/google/uuid@latest"),
            (Language::Cpp, "libfmt-dev=9.1.0+ds1-2", "libfmt-dev=9.1.0+ds1-2"),
            (Language::C, "zlib1g-dev", "zlib1g-dev"),
            (Language::Go, "gopkg.in/yaml.v3@v3.0.1", "gopkg.in/yaml.v3@v3.0.1"),
        ] {
            assert_eq!(parse(language, name).unwrap().install(false).1, [argument], "{name}");
        }
        let pom = parse(Language::Java, "com.google.code.gson:gson:2.11.0").unwrap().pom();
        assert!(pom.contains("<artifactId>gson</artifactId><version>2.11.0</version>"), "{pom}");
        let manifest = parse(Language::Rust, "itoa@1.0.11").unwrap().cargo_toml();
        assert!(manifest.ends_with("itoa = \"1.0.11\"\n"), "{manifest}");
    }

    #[test]
    fn options_addresses_paths_and_shell_text_are_refused() {
        for language in Language::ALL {
            for name in [
                "",
                "-r",
                "--index-url=http://x",
                "git+https://example.com/x",
                "https://example.com/x.tgz",
                "./local",
                "../local",
                "/etc/passwd",
                "local.whl",
                "archive.tgz",
                "name; rm -rf /",
                "$(id)",
                "a b",
                "a\nb",
                "name @ https://example.com",
                "x\"]\n[patch]",
                "a:b</version>",
                "github:user/repo",
                "@-x/y",
                "name==-1",
                "name@file:x",
            ] {
                assert!(parse(language, name).is_err(), "{}: {name:?}", language.name());
            }
        }
    }

    #[test]
    fn the_same_libraries_share_a_directory_whatever_their_order() {
        let both =
            |names: [&str; 2]| Libraries::parse(Language::Go, &names.map(str::to_owned)).unwrap().directory();
        assert_eq!(both(["example.com/a", "example.com/b"]), both(["example.com/b", "example.com/a"]));
        assert_ne!(both(["example.com/a", "example.com/b"]), both(["example.com/a", "example.com/c"]));
    }
}
