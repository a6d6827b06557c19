//! Credentials of well-known services, as a table.

use super::rule::{HomeFileKind, Placement, Rule};
use crate::list::Entry;

/// A well-known service.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    hosts: &'static [&'static str],
    /// The sources of the value unless the user says something else.
    pub sources: &'static [&'static str],
    places: &'static [Placement],
    /// Fields of their own that hold it as well.
    fields: &'static [&'static str],
    methods: &'static [&'static str],
    write_methods: &'static [&'static str],
    git: bool,
    login: &'static str,
    variables: &'static [&'static str],
    files: &'static [HomeFileKind],
    /// Paths whose answers hold tokens in exchange for it.
    exchanges: &'static [&'static str],
    /// The beginnings of its values.
    pub(super) prefixes: &'static [&'static str],
}

const READ: &[&str] = &["GET", "HEAD"];
const ASK: &[&str] = &["GET", "HEAD", "POST"];
const WRITE: &[&str] = &["POST", "PUT", "PATCH", "DELETE"];
const NETRC: &[HomeFileKind] = &[HomeFileKind::Netrc];

/// The preset with what most of them have in common.
const PLAIN: Preset = Preset {
    name: "",
    hosts: &[],
    sources: &[],
    places: &[],
    fields: &[],
    methods: READ,
    write_methods: WRITE,
    git: false,
    login: "",
    variables: &[],
    files: &[],
    exchanges: &[],
    prefixes: &[],
};

/// All of them.
pub const ALL: &[Preset] = &[
    Preset {
        name: "github",
        hosts: &["github.com", "api.github.com", "raw.githubusercontent.com"],
        sources: &["GH_TOKEN", "GITHUB_TOKEN"],
        places: &[Placement::Bearer, Placement::Basic],
        git: true,
        login: "x-access-token",
        variables: &["GH_TOKEN", "GITHUB_TOKEN"],
        files: NETRC,
        prefixes: &["github_pat_", "ghp_", "gho_", "ghs_", "ghu_"],
        ..PLAIN
    },
    Preset {
        name: "gitlab",
        hosts: &["gitlab.com", "registry.gitlab.com"],
        sources: &["GITLAB_TOKEN"],
        places: &[Placement::Bearer, Placement::Basic],
        fields: &["private-token"],
        git: true,
        login: "oauth2",
        variables: &["GITLAB_TOKEN"],
        files: NETRC,
        exchanges: &["/jwt/auth"],
        prefixes: &["glpat-", "gloas-"],
        ..PLAIN
    },
    Preset {
        name: "npm",
        hosts: &["registry.npmjs.org"],
        sources: &["NPM_TOKEN", "NODE_AUTH_TOKEN"],
        places: &[Placement::Bearer],
        variables: &["NPM_TOKEN", "NODE_AUTH_TOKEN"],
        files: &[HomeFileKind::Npmrc],
        prefixes: &["npm_"],
        ..PLAIN
    },
    Preset {
        name: "pypi",
        hosts: &["pypi.org", "upload.pypi.org"],
        sources: &["PYPI_TOKEN", "TWINE_PASSWORD"],
        places: &[Placement::Basic],
        login: "__token__",
        variables: &["TWINE_PASSWORD"],
        files: NETRC,
        prefixes: &["pypi-"],
        ..PLAIN
    },
    Preset {
        name: "crates",
        hosts: &["crates.io"],
        sources: &["CARGO_REGISTRY_TOKEN"],
        places: &[Placement::Token],
        variables: &["CARGO_REGISTRY_TOKEN"],
        prefixes: &["cio"],
        ..PLAIN
    },
    Preset {
        name: "maven",
        hosts: &["maven.pkg.github.com"],
        sources: &["MAVEN_PASSWORD"],
        places: &[Placement::Basic],
        login: "token",
        variables: &["MAVEN_PASSWORD"],
        files: &[HomeFileKind::Netrc, HomeFileKind::Maven],
        ..PLAIN
    },
    Preset {
        name: "ghcr",
        hosts: &["ghcr.io"],
        sources: &["GHCR_TOKEN"],
        places: &[Placement::Basic],
        login: "token",
        variables: &["GHCR_TOKEN"],
        files: &[HomeFileKind::Netrc, HomeFileKind::Docker],
        exchanges: &["/token"],
        ..PLAIN
    },
    Preset {
        name: "docker",
        hosts: &["registry-1.docker.io", "auth.docker.io"],
        sources: &["DOCKER_TOKEN"],
        places: &[Placement::Basic],
        login: "token",
        files: &[HomeFileKind::Docker],
        exchanges: &["/token"],
        prefixes: &["dckr_pat_"],
        ..PLAIN
    },
    Preset {
        name: "huggingface",
        hosts: &["huggingface.co"],
        sources: &["HF_TOKEN"],
        places: &[Placement::Bearer, Placement::Basic],
        git: true,
        login: "user",
        variables: &["HF_TOKEN"],
        files: NETRC,
        prefixes: &["hf_"],
        ..PLAIN
    },
    Preset {
        name: "openai",
        hosts: &["api.openai.com"],
        sources: &["OPENAI_API_KEY"],
        places: &[Placement::Bearer],
        methods: ASK,
        variables: &["OPENAI_API_KEY"],
        prefixes: &["sk-proj-", "sk-"],
        ..PLAIN
    },
    Preset {
        name: "aws",
        hosts: &["*.amazonaws.com"],
        sources: &["AWS_ACCESS_KEY_ID"],
        places: &[Placement::Aws],
        prefixes: &["AKIA"],
        ..PLAIN
    },
];

/// The preset with this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// Its rule, for a credential with this name.
    pub fn rule(&self, name: &str) -> Rule {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let fields = self.fields.iter().map(|field| Placement::Header((*field).to_owned()));
        Rule {
            name: name.to_owned(),
            hosts: self.hosts.iter().filter_map(|host| Entry::parse(host).ok()).collect(),
            methods: owned(self.methods),
            write_methods: owned(self.write_methods),
            paths: vec!["/".to_owned()],
            places: [self.places.to_vec(), fields.collect()].concat(),
            git: self.git,
            websockets: false,
            exchanges: owned(self.exchanges),
            write_paths: Rule::usual_write_paths(self.git),
            write: false,
            write_if_asked: false,
            login: self.login.to_owned(),
            variables: owned(self.variables),
            files: self.files.to_vec(),
        }
    }
}
