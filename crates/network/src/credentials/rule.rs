//! The uses that a credential is allowed for: hosts, methods, paths, and the place of a request that it belongs into.

use super::{aws, lfs, path};
use crate::host::Host;
use crate::list::Entry;
use agent_base::error::{Error, Result};
use std::fmt;

/// The place of a request that a credential belongs into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// `Authorization: Bearer VALUE`, and GitHub's `token VALUE`.
    Bearer,
    /// `Authorization: Basic`, as the password.
    Basic,
    /// `Authorization: VALUE`, as Cargo sends it.
    Token,
    /// A field of its own.
    Header(String),
    /// A parameter of the query.
    Query(String),
    /// A signature of AWS, Version 4.
    Aws,
}

impl Placement {
    /// Reads `bearer`, `basic`, `token`, `aws`, `header:NAME` or `query:NAME`.
    ///
    /// # Errors
    /// It is none of them.
    pub fn parse(text: &str) -> Result<Self> {
        // Fields that decide where a message goes or where it ends.
        const FRAMING: [&str; 8] = [
            "host",
            "connection",
            "content-length",
            "transfer-encoding",
            "upgrade",
            "te",
            "trailer",
            "expect",
        ];
        let is_field =
            |name: &str| http::HeaderName::try_from(name).is_ok_and(|name| !FRAMING.contains(&name.as_str()));
        let is_parameter = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        match text.split_once(':') {
            None if text == "bearer" => Ok(Self::Bearer),
            None if text == "basic" => Ok(Self::Basic),
            None if text == "token" => Ok(Self::Token),
            None if text == "aws" => Ok(Self::Aws),
            Some(("header", name)) if is_field(name) => Ok(Self::Header(name.to_ascii_lowercase())),
            Some(("query", name)) if is_parameter(name) => Ok(Self::Query(name.to_owned())),
            _ => Err(Error::config(format!("{text:?} is not a valid place for a credential"))
                .hint("write bearer, basic, token, aws, header:NAME or query:NAME")),
        }
    }
}

/// A file inside that is made with the placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HomeFileKind {
    /// `.netrc`, which git, curl, pip and uv read.
    Netrc,
    /// `.npmrc`, which npm, pnpm and yarn read.
    Npmrc,
    /// `.docker/config.json`, which the clients of registries read.
    Docker,
    /// `.m2/settings.xml`, with a server whose id is the credential's name.
    Maven,
}

/// The rule for the use of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name of the credential.
    pub name: String,
    /// The hosts for which it is valid; the port is 443 unless one is named.
    pub hosts: Vec<Entry>,
    /// Methods that only read.
    pub methods: Vec<String>,
    /// Methods that are allowed beside them where the user said `write`.
    pub write_methods: Vec<String>,
    /// The prefixes of paths, on whole segments.
    pub paths: Vec<String>,
    /// The places where it is put in.
    pub places: Vec<Placement>,
    /// The host serves git: fetching posts to `git-upload-pack`, pushing to `git-receive-pack`.
    pub git: bool,
    /// WebSockets may be opened, after which nothing is judged.
    pub websockets: bool,
    /// Paths whose answers hold tokens in exchange for it.
    pub exchanges: Vec<String>,
    /// The prefixes of the paths below which the methods that write are allowed with `write`. A push needs none.
    pub write_paths: Vec<String>,
    /// The user said `write`.
    pub write: bool,
    /// The same as `write` where there is a user to ask.
    pub write_if_asked: bool,
    /// The user name of `basic`, for the files inside.
    pub login: String,
    /// Variables inside that hold the placeholder.
    pub variables: Vec<String>,
    /// Files inside that hold the placeholder.
    pub files: Vec<HomeFileKind>,
}

/// The port of a host that names none.
pub(super) const PORT: u16 = 443;
const RECEIVE: &str = "git-receive-pack";
const UPLOAD: &str = "git-upload-pack";

impl Rule {
    /// Reads the hosts.
    ///
    /// # Errors
    /// One is not a single host, or several below one name.
    pub fn hosts(words: &[String]) -> Result<Vec<Entry>> {
        let one = |word: &String| match Entry::parse(word)? {
            entry @ (Entry::Host(..) | Entry::Below(..)) => Ok(entry),
            _ => Err(Error::config(format!("{word} is not a valid host for a credential"))
                .hint("name single hosts, like example.com, *.example.com or example.com:8443")),
        };
        words.iter().map(one).collect()
    }

    /// Returns the paths below which it writes unless the user says otherwise: where git is served, only pushes are
    /// allowed, because what else these hosts take by the same methods is everything that their users can do.
    pub fn usual_write_paths(has_git: bool) -> Vec<String> {
        if has_git { Vec::new() } else { vec!["/".to_owned()] }
    }

    /// Describes it to the model, in one line.
    pub fn description(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(ToString::to_string).collect();
        let variables: Vec<_> = self.variables.iter().map(|name| format!("${name}")).collect();
        let placeholder = match variables.is_empty() {
            true => "the settings in $HOME hold a placeholder".to_owned(),
            false => format!("{} has a placeholder", variables.join(" and ")),
        };
        let extent = if self.write { "" } else { ", for reading" };
        format!(
            "{} at {}: {placeholder} that works there and nowhere else{extent}",
            self.name,
            hosts.join(", ")
        )
    }

    /// Returns whether it can be added to requests that have no placeholder.
    pub(super) fn can_be_added(&self) -> bool {
        !matches!(self.places.first(), None | Some(Placement::Query(_) | Placement::Aws))
    }

    /// Returns whether requests are signed with it.
    pub fn signs(&self) -> bool {
        self.places.contains(&Placement::Aws)
    }

    /// Returns whether it is bound to a host and a port.
    pub fn is_bound_to(&self, host: &Host, port: u16) -> bool {
        self.hosts.iter().any(|entry| entry.covers(host, port) && (entry.names_port() || port == PORT))
    }

    /// Returns whether a request brings a push, or what git LFS sends beside it.
    pub(super) fn is_push(&self, method: &http::Method, path: &str) -> bool {
        let is_lfs = || {
            matches!(
                lfs::read(method.as_str(), path),
                Some((lfs::LfsAction::Batch | lfs::LfsAction::Write, _))
            )
        };
        self.git && (*method == http::Method::POST && path.ends_with(&format!("/{RECEIVE}")) || is_lfs())
    }

    /// Judges whether a request is one that the credential may be used for.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn judge(&self, method: &str, path: &str, query: &str) -> std::result::Result<(), String> {
        let readings = path::readings(path)?;
        let is_limited = !self.paths.iter().any(|prefix| prefix == "/");
        if is_limited && readings.iter().any(|reading| reading.contains("//")) {
            return Err("the path has an empty segment".to_owned());
        }
        // In every reading: servers differ in how often they decode.
        let are_below = |prefixes: &[String]| {
            let is_below = |reading: &String| prefixes.iter().any(|prefix| path::is_below(reading, prefix));
            readings.iter().all(is_below)
        };
        if !are_below(&self.paths) {
            return Err("the path is outside of the credential's".to_owned());
        }
        if self.git {
            let queries = path::decodings(query);
            let mentions = |name: &str| {
                readings.iter().chain(&queries).any(|reading| reading.to_ascii_lowercase().contains(name))
            };
            if mentions(RECEIVE) && !self.write {
                return Err(format!("it pushes, and --credential {}:write was not given", self.name));
            }
            let is_service = |name: &str| path.ends_with(&format!("/{name}"));
            // What a server may take for a push is one by its plain path: the user sees those.
            if method != "GET" && mentions(RECEIVE) && !is_service(RECEIVE) && !is_service("info/refs") {
                return Err("it names a push in a path that is spelled differently".to_owned());
            }
            let is_lfs = || readings.iter().all(|reading| lfs::read(method, reading).is_some());
            let is_served = || is_service(UPLOAD) || (self.write && is_service(RECEIVE));
            if method == "POST" && is_served() || self.write && is_lfs() {
                return Ok(());
            }
        }
        if self.signs() && !self.write {
            aws::only_reads(query)?;
        }
        let is_read = self.methods.iter().any(|allowed| allowed == method);
        let is_written = self.write_methods.iter().any(|allowed| allowed == method);
        match (is_read, is_written) {
            (true, _) => Ok(()),
            (false, true) if self.write && are_below(&self.write_paths) => Ok(()),
            (false, true) if self.write => Err(format!(
                "{method} writes, and the path is not below write_paths of [credentials.{}]",
                self.name
            )),
            (false, true) => {
                Err(format!("{method} writes, and --credential {}:write was not given", self.name))
            }
            (false, false) => Err(format!("{method} is not among the credential's methods")),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::presets::preset;
    use super::*;

    #[test]
    fn actions_of_aws_in_a_query_only_read_without_write() {
        let rule = preset("aws").expect("a preset").rule("aws");
        let judge = |query: &str| rule.judge("GET", "/", query).is_ok();
        assert!(
            judge("Action=DescribeInstances&Version=1")
                && judge("list-type=2")
                && judge("Action=GetCallerIdentity")
        );
        for query in [
            "Action=TerminateInstances",
            "a=b&Action=GetSessionToken",
            "%41ction=CreateAccessKey",
            "action=DeleteUser",
            "Action=%44elete",
        ] {
            assert!(!judge(query), "{query}");
        }
    }

    #[test]
    fn a_push_needs_write_however_it_is_spelled() {
        let mut rule = preset("github").unwrap().rule("github");
        for (method, path, query) in [
            ("GET", "/o/r.git/info/refs", "service=git-receive-pack"),
            ("GET", "/o/r.git/info/refs", "service=git%2Dreceive-pack"),
            ("POST", "/o/r.git/git-receive-pack", ""),
            ("POST", "/o/r.git/git%2dreceive-pack", ""),
            ("POST", "/o/r.git/git%252dreceive-pack", ""),
            ("GET", "/o/r.git/GIT-RECEIVE-PACK", ""),
        ] {
            assert!(rule.judge(method, path, query).is_err(), "{method} {path}?{query}");
        }
        assert_eq!(rule.judge("POST", "/o/r.git/git-upload-pack", ""), Ok(()));
        assert!(rule.judge("POST", "/user/repos", "").is_err(), "an API call that writes");
        rule.write = true;
        assert_eq!(rule.judge("POST", "/o/r.git/git-receive-pack", ""), Ok(()));
        assert_eq!(rule.judge("POST", "/o/r.git/info/lfs/objects/batch", ""), Ok(()));
        let upload = format!("/o/r.git/gitlab-lfs/objects/{}/12", "5a".repeat(32));
        assert_eq!(rule.judge("PUT", &upload, ""), Ok(()));
        assert!(rule.judge("PUT", &upload.replace("/o/", "/%72epos/"), "").is_err());
        // Pushing is not writing by the API: that needs paths.
        let refused = rule.judge("POST", "/user/repos", "").unwrap_err();
        assert!(refused.contains("write_paths of [credentials.github]"), "{refused}");
        rule.write_paths = vec!["/repos/o/r/issues".to_owned()];
        assert_eq!(rule.judge("POST", "/repos/o/r/issues", ""), Ok(()));
        assert_eq!(rule.judge("PATCH", "/repos/o/r/issues/1", ""), Ok(()));
        for (method, path) in [
            ("DELETE", "/repos/o/r"),
            ("PUT", "/repos/o/r/contents/x"),
            ("POST", "/repos/o/r/issues%2f..%2fkeys"),
            ("POST", "/repos/o/r/issues-not"),
        ] {
            assert!(rule.judge(method, path, "").is_err(), "{method} {path}");
        }
        rule.write = false;
        assert!(rule.judge("PUT", &upload, "").is_err());
        assert!(rule.judge("POST", "/repos/o/r/issues", "").is_err());
        rule.write = true;
        assert!(rule.judge("TRACE", "/", "").is_err(), "which sends the credential back");
    }

    #[test]
    fn paths_hold_in_every_reading() {
        let rule = Rule { paths: vec!["/team".to_owned()], ..preset("github").unwrap().rule("g") };
        for path in ["/team", "/team/", "/team/a%2fb", "/team/@x%2Fy", "/team/a..b"] {
            assert_eq!(rule.judge("GET", path, ""), Ok(()), "{path}");
        }
        for path in [
            "/",
            "/teams",
            "/other",
            "/team/../other",
            "/team/%2e%2e/other",
            "/team/%2E./other",
            "/team/%252e%252e/other",
            "/team/..%2fother",
            "/team/..;/other",
            "/team\\..\\other",
            "/team/%5c..%5cother",
            "//team/x",
            "/team//x",
            "/team/%2f/x",
            "/%74eam/x/./y",
            "/team/%00",
            "/team/%zz",
            "/%25252525252574eam",
        ] {
            assert!(rule.judge("GET", path, "").is_err(), "{path}");
        }
    }

    #[test]
    fn places_are_fields_that_do_not_frame_a_message() {
        assert_eq!(Placement::parse("header:X-Api-Key").unwrap(), Placement::Header("x-api-key".to_owned()));
        for bad in ["header:Host", "header:Content-Length", "header:a b", "query:", "query:a&b", "body", ""] {
            assert!(Placement::parse(bad).is_err(), "{bad}");
        }
    }
}
