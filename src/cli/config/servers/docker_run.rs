//! Servers whose command is `docker run …`, as their authors write it: the image runs in a sandbox of its own, which is locked as
//! every sandbox is. What such a sandbox cannot give is refused by name.

use crate::cli::config::units::bytes;
use crate::error::{Error, Result};
use crate::mcp::client::OwnLimits;
use secrecy::SecretString;

/// Options that change nothing here: the container is ours, and its locks are tighter.
const IGNORED: [&str; 6] = ["--interactive", "--rm", "--init", "--read-only", "-i", "--quiet"];
/// The same, with a value.
const IGNORED_WITH_VALUE: [&str; 8] =
    ["--name", "--label", "-l", "--pull", "--cap-drop", "--security-opt", "--log-driver", "--restart"];

/// The container that `docker run …` starts.
#[derive(Debug, Default, PartialEq)]
pub struct DockerRun {
    pub image: String,
    pub args: Vec<String>,
    pub entrypoint: Option<String>,
    pub cwd: Option<String>,
    /// `NAME=VALUE`, or `NAME` for a variable of the client.
    pub env: Vec<String>,
    pub limits: OwnLimits,
}

/// Returns whether a server's command is Docker's, or Podman's.
pub fn is_engine(command: &str) -> bool {
    matches!(command.rsplit('/').next(), Some("docker" | "podman"))
}

/// Returns whether it is `docker run …`.
pub fn is_docker_run(command: &str, args: &[String]) -> bool {
    is_engine(command) && args.first().is_some_and(|first| first == "run")
}

/// Reads the words after `docker run`.
///
/// # Errors
/// An option that the sandbox cannot keep, a value that is missing or not valid, or no image.
pub fn parse(words: &[String]) -> Result<DockerRun> {
    let mut run = DockerRun::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            run.image.clone_from(word);
            run.args = words.cloned().collect();
            return Ok(run);
        }
        let (option, attached) = split(word);
        if IGNORED.contains(&option.as_str()) {
            continue;
        }
        let mut value = || {
            attached
                .clone()
                .or_else(|| words.next().cloned())
                .ok_or_else(|| Error::config(format!("the option {option} of docker run has no value")))
        };
        run.take(&option, &mut value)?;
    }
    Err(Error::config("docker run names no image").hint("write it as docker run -i --rm IMAGE"))
}

/// `--option=value` and `-eNAME` in two.
fn split(word: &str) -> (String, Option<String>) {
    if let Some((option, value)) = word.split_once('=').filter(|_| word.starts_with("--")) {
        return (option.to_owned(), Some(value.to_owned()));
    }
    match word.get(..2).filter(|_| !word.starts_with("--") && word.len() > 2) {
        Some(option @ ("-e" | "-m" | "-w" | "-l")) => (option.to_owned(), Some(word[2..].to_owned())),
        _ => (word.to_owned(), None),
    }
}

impl DockerRun {
    /// The variables inside: those that `-e` names, from the client's `env` or, where it has none of that name, from
    /// `required`.
    ///
    /// # Errors
    /// One of them has no value, or a name is not valid.
    pub fn variables(
        &self,
        env: &[(String, SecretString)],
        required: &dyn Fn(&str) -> Result<String>,
    ) -> Result<Vec<(String, SecretString)>> {
        let variables = self.env.iter().map(|variable| match variable.split_once('=') {
            Some(("", _)) => Err(Error::config("a variable of docker run has no valid name")),
            Some((name, value)) => Ok((name.to_owned(), value.to_owned().into())),
            None => match env.iter().find(|(name, _)| name == variable) {
                Some(found) => Ok(found.clone()),
                None => Ok((variable.clone(), required(variable)?.into())),
            },
        });
        variables.collect()
    }

    fn take(&mut self, option: &str, value: &mut dyn FnMut() -> Result<String>) -> Result<()> {
        let not_a_number = |value: &str| {
            Error::config(format!("{value:?} is not a valid number for {option} of docker run"))
        };
        match option {
            "-e" | "--env" => self.env.push(value()?),
            "--entrypoint" => self.entrypoint = Some(value()?),
            "-w" | "--workdir" => self.cwd = Some(value()?),
            "-m" | "--memory" => self.limits.memory = Some(bytes(&value()?)?),
            "--cpus" => {
                let value = value()?;
                self.limits.cpus = Some(value.parse().map_err(|_| not_a_number(&value))?);
            }
            "--pids-limit" => {
                let value = value()?;
                self.limits.pids = Some(value.parse().map_err(|_| not_a_number(&value))?);
            }
            "--network" | "--net" => match value()?.as_str() {
                "none" | "bridge" | "default" => {}
                other => return Err(refused(&format!("{option} {other}"))),
            },
            option if IGNORED_WITH_VALUE.contains(&option) => drop(value()?),
            option => return Err(refused(option)),
        }
        Ok(())
    }
}

fn refused(option: &str) -> Error {
    Error::config(format!("the sandbox of a server cannot have what docker run {option} asks for")).hint(
        "its image runs without anything of this machine; leave the option out, list the hosts that it may reach as `network`, or \
         set where = \"host\": then docker runs it outside of the sandbox",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<DockerRun> {
        parse(&shell_words::split(text).unwrap())
    }

    #[test]
    fn options_before_the_image_are_read_and_what_follows_it_is_the_servers() {
        let read = run(
            "-i --rm -e TOKEN --env=A=b -eC=d -m 512m --cpus=0.5 --pids-limit 64 --name x --entrypoint /s -w /d mcp/git:1 --rm -v",
        );
        let limits = OwnLimits { memory: Some(512 << 20), cpus: Some(0.5), pids: Some(64) };
        let expected = DockerRun {
            image: "mcp/git:1".into(),
            args: vec!["--rm".into(), "-v".into()],
            entrypoint: Some("/s".into()),
            cwd: Some("/d".into()),
            env: vec!["TOKEN".into(), "A=b".into(), "C=d".into()],
            limits,
        };
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn what_a_sandbox_cannot_give_is_refused_by_name() {
        for (text, named) in [
            ("-v /:/host image", "-v"),
            ("--volume=/:/host image", "--volume"),
            ("--privileged image", "--privileged"),
            ("--network host image", "--network host"),
            ("-p 80:80 image", "-p"),
            ("-d image", "-d"),
            ("-it image", "-it"),
        ] {
            let error = run(text).unwrap_err().to_string();
            assert!(error.contains(&format!("docker run {named} asks")), "{text}: {error}");
        }
        for text in ["", "-i", "-e", "--cpus many image", "-m lots image"] {
            assert!(run(text).is_err(), "{text}");
        }
    }
}
