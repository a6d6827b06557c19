//! The credentials as programs inside find them: placeholders in variables and files, and the authorities that they have to trust.

use super::rule::HomeFileKind;
use super::{Bound, Credentials, trust_store};
use crate::environment::java;
use crate::host::Host;
use crate::list::Entry;
use agent_sandbox::{HOME, HomeFile};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The file of the authorities that programs inside trust, below `$HOME`.
const AUTHORITIES: &str = ".agent-credentials/authorities.pem";
/// The same for Java.
const TRUST_STORE: &str = ".agent-credentials/authorities.jks";
/// The variables by which programs find them.
const AUTHORITY_VARIABLES: [&str; 10] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "BUNDLE_SSL_CA_CERT",
    "DENO_CERT",
];
/// The variables that hold options of Java's programs.
const JAVA_VARIABLES: [&str; 3] = ["MAVEN_OPTS", "GRADLE_OPTS", "SBT_OPTS"];

impl Credentials {
    /// Variables for programs inside.
    pub fn variables(&self) -> Vec<(String, String)> {
        let authorities = format!("{HOME}/{AUTHORITIES}");
        let java = format!("{} -Djavax.net.ssl.trustStore={HOME}/{TRUST_STORE}", java());
        let names = AUTHORITY_VARIABLES.map(|name| (name.to_owned(), authorities.clone()));
        let of_java = JAVA_VARIABLES.map(|name| (name.to_owned(), java.clone()));
        let placeholders = self.bound.iter().flat_map(|bound| {
            bound.rule.variables.iter().map(|name| (name.clone(), bound.placeholder.clone()))
        });
        let of_aws = self.bound.iter().filter(|bound| bound.key.is_some()).flat_map(|bound| {
            // What a program signs with the second one is signed again, so that it can be anything.
            let pair =
                [("AWS_ACCESS_KEY_ID", &bound.placeholder), ("AWS_SECRET_ACCESS_KEY", &bound.placeholder)];
            pair.map(|(name, value)| (name.to_owned(), value.clone()))
        });
        names.into_iter().chain(of_java).chain(placeholders).chain(of_aws).collect()
    }

    /// Files for programs inside, which trust `inside` or, where nothing is known of that, what this machine trusts.
    pub fn home_files(&self, inside: Option<Vec<u8>>) -> Vec<HomeFile> {
        let mut trusted = inside.unwrap_or_else(|| self.trusted.clone());
        if !trusted.ends_with(b"\n") {
            trusted.push(b'\n');
        }
        trusted.extend_from_slice(self.authority.certificate().as_bytes());
        let file = |path: &str, bytes: Vec<u8>| HomeFile { path: path.into(), bytes, executable: false };
        let mut files = vec![file(TRUST_STORE, trust_store::of(&trusted)), file(AUTHORITIES, trusted)];
        let mut add = |path: &str, kind: HomeFileKind, text: &dyn Fn(&[&Bound]) -> String| {
            let having: Vec<&Bound> = self
                .bound
                .iter()
                .map(AsRef::as_ref)
                .filter(|bound| bound.rule.files.contains(&kind))
                .collect();
            if !having.is_empty() {
                files.push(file(path, text(&having).into_bytes()));
            }
        };
        add(".netrc", HomeFileKind::Netrc, &|bound| lines(bound, netrc));
        add(".npmrc", HomeFileKind::Npmrc, &|bound| lines(bound, npmrc));
        add(".docker/config.json", HomeFileKind::Docker, &docker);
        add(".m2/settings.xml", HomeFileKind::Maven, &maven);
        files
    }
}

/// The single hosts of a rule, and their ports where they name one.
fn hosts(bound: &Bound) -> impl Iterator<Item = (&Host, Option<u16>)> {
    bound.rule.hosts.iter().filter_map(|entry| match entry {
        Entry::Host(host, port) => Some((host, *port)),
        _ => None,
    })
}

fn login(bound: &Bound) -> &str {
    if bound.rule.login.is_empty() { "token" } else { &bound.rule.login }
}

fn lines(all: &[&Bound], line: fn(&Bound, &Host, Option<u16>) -> String) -> String {
    all.iter().flat_map(|bound| hosts(bound).map(|(host, port)| line(bound, host, port))).collect()
}

fn netrc(bound: &Bound, host: &Host, _: Option<u16>) -> String {
    format!("machine {host} login {} password {}\n", login(bound), bound.placeholder)
}

fn npmrc(bound: &Bound, host: &Host, port: Option<u16>) -> String {
    format!("//{}/:_authToken={}\n", host_and_port(host, port), bound.placeholder)
}

fn docker(all: &[&Bound]) -> String {
    let mut registries = Map::new();
    for bound in all {
        let auth = STANDARD.encode(format!("{}:{}", login(bound), bound.placeholder));
        for (host, port) in hosts(bound) {
            // As Docker calls the registry of its own.
            let name = match host_and_port(host, port).as_str() {
                "registry-1.docker.io" => "https://index.docker.io/v1/".to_owned(),
                name => name.to_owned(),
            };
            registries.insert(name, json!({ "auth": auth }));
        }
    }
    let mut settings = agent_sandbox::docker_client_settings();
    settings["auths"] = Value::Object(registries);
    settings.to_string()
}

/// A server of Maven has the credential's name as its id.
fn maven(all: &[&Bound]) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let server = |bound: &&Bound| {
        format!(
            "<server><id>{}</id><username>{}</username><password>{}</password></server>",
            escaped(&bound.rule.name),
            escaped(login(bound)),
            escaped(&bound.placeholder)
        )
    };
    format!("<settings><servers>{}</servers></settings>\n", all.iter().map(server).collect::<String>())
}

fn host_and_port(host: &Host, port: Option<u16>) -> String {
    port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"))
}
