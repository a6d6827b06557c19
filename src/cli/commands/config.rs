//! `agent config`: the user's settings, where each comes from, and the file that holds them.

use crate::cli::config::{File, ShownSetting, check_text, layers_here, shown};
use crate::cli::options::{DirectoryArg, GlobalJsonArg, Options};
use crate::cli::print::{failure, print};
use crate::cli::ui::confirm;
use crate::cli::ui::editor;
use crate::cli::ui::host_programs::HostPrograms;
use crate::cli::ui::progress::Progress;
use crate::cli::working_directory::WorkingDirectory;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::network::Project;
use crate::paths::make_dir;
use crate::plain_file::{self, Durability, Links};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// `agent config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(flatten)]
    output: GlobalJsonArg,
    /// Without one: show
    #[command(subcommand)]
    command: Option<ConfigCommand>,
}

/// Subcommands for the settings.
#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every setting with its value and where that comes from
    Show,
    /// Print the path of config.toml
    Path,
    /// Print the JSON Schema of config.toml, for editors
    Schema,
    /// Write a config.toml that explains itself, where there is none
    Init,
    /// Open config.toml in your editor ($VISUAL, $EDITOR), and keep what is valid
    Edit,
    /// List the hosts and credentials that you allowed for this project when you were asked
    Allowed(AllowedArgs),
    /// Take back what you allowed for this project
    Forget(ForgetArgs),
}

/// `agent config allowed`
#[derive(Debug, Args)]
struct AllowedArgs {
    #[command(flatten)]
    directory: DirectoryArg,
}

/// `agent config forget`
#[derive(Debug, Args)]
struct ForgetArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    /// The hosts and credentials, as `agent config allowed` prints them
    #[arg(required = true, value_name = "HOST|CREDENTIAL")]
    names: Vec<String>,
}

/// Bytes of `config.toml` that are edited.
const MAX_BYTES: u64 = 1 << 20;

/// The file that `agent config init` writes: all of it is commented out.
const TEMPLATE: &str = "\
# Settings of agent. `agent config show` prints what is in force; docs/reference/configuration.md has every key.
#
# provider = \"anthropic\"        # openai, anthropic, gemini, openrouter, ollama, …
# model = \"claude-sonnet-4-5\"
#
# sandbox = \"auto\"              # docker, local, kubernetes, …
# network = \"none\"              # none, registries, full, or hosts: \"example.com,*.b.org:8443\"
# memory = \"2g\"
# max_cost = 1.0                # for one prompt; needs [prices]
# approve = \"never\"             # never, risky, always
#
# [workspace]
# include = [\"*.pem\"]           # copied although it looks like a secret
#
# [ui]
# status = [\"model\", \"context\", \"changes\"]
";

/// Shows or changes the settings.
pub async fn config(machine: &Arc<Machine>, arguments: ConfigArgs) -> Result<ExitCode> {
    let options = &Options::of(&[&arguments.output]);
    let directory = machine.config_dir()?;
    let path = directory.join("config.toml");
    match arguments.command.unwrap_or(ConfigCommand::Show) {
        ConfigCommand::Show => {
            let settings = shown(&directory, &layers_here()?)?;
            let key = settings.iter().map(|setting| setting.key.len()).max().unwrap_or(0);
            let value =
                settings.iter().map(|setting| setting.value.chars().count()).max().unwrap_or(0).min(WIDE);
            let line = |setting: &ShownSetting| {
                let ShownSetting { key: name, value: text, from } = setting;
                format!("{name:<key$}  {text:<value$}  {from}\n")
            };
            let text: String = settings.iter().map(line).collect();
            print(options, &text, &settings)
        }
        ConfigCommand::Path => print(options, &format!("{}\n", path.display()), &json!({ "path": path })),
        ConfigCommand::Schema => {
            let schema = schemars::schema_for!(File);
            print(options, &format!("{}\n", serde_json::to_string_pretty(&schema)?), &schema)
        }
        ConfigCommand::Init => {
            if path.symlink_metadata().is_ok() {
                return Err(Error::usage(format!("{} exists already", path.display()))
                    .hint("`agent config edit` opens it, `agent config show` prints what is in force"));
            }
            replace(&path, TEMPLATE.as_bytes())?;
            print(options, &format!("{}\n", path.display()), &json!({ "path": path }))
        }
        ConfigCommand::Edit => edit(machine, &path).await,
        ConfigCommand::Allowed(AllowedArgs { directory }) => {
            let project = Project::of(&WorkingDirectory::of(machine, &directory)?.root, machine)?;
            let hosts: Vec<String> = project.entries().iter().map(ToString::to_string).collect();
            let credentials = project.credentials();
            let line = |kind: &'static str| move |name: &String| format!("{kind:<12}{name}\n");
            let text: String =
                hosts.iter().map(line("host")).chain(credentials.iter().map(line("credential"))).collect();
            print(options, &text, &json!({ "hosts": hosts, "credentials": credentials }))
        }
        ConfigCommand::Forget(ForgetArgs { directory, names }) => {
            let project = Project::of(&WorkingDirectory::of(machine, &directory)?.root, machine)?;
            let mut unknown = Vec::new();
            for name in names {
                if !project.forget(&name)? {
                    unknown.push(format!("{name:?}"));
                }
            }
            match unknown.is_empty() {
                true => Ok(ExitCode::Success),
                false => Err(Error::usage(format!("not allowed for this project: {}", unknown.join(", ")))
                    .hint("the others were taken back; `agent config allowed` lists what is allowed")),
            }
        }
    }
}

/// Columns of a value that others are aligned with.
const WIDE: usize = 40;

/// Opens the file in the user's editor. What is not valid is never written: the user goes on editing it, or the file stays as it was.
async fn edit(machine: &Arc<Machine>, path: &Path) -> Result<ExitCode> {
    if !confirm::is_possible() {
        return Err(Error::usage("there is no terminal for an editor")
            .hint(format!("the file is {}", path.display())));
    }
    let programs = HostPrograms::new(Arc::clone(machine), Path::new("."));
    let mut text = match plain_file::read(path, MAX_BYTES, Links::Follow) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => TEMPLATE.as_bytes().to_vec(),
        Err(error) => {
            return Err(Error::config(format!("{} cannot be read", path.display())).caused_by(error));
        }
    };
    let before = text.clone();
    loop {
        text = editor::edit(text, ".toml", &programs).await?;
        let Err(error) = check_text(path, &text) else { break };
        failure(&error);
        let progress = Progress::stderr();
        if confirm::ask(&progress, "Edit it again? Otherwise the file stays as it was.", &["yes", "no"])
            .await?
            == "no"
        {
            return Err(error);
        }
    }
    if text != before {
        replace(path, &text)?;
    }
    Ok(ExitCode::Success)
}

fn replace(path: &Path, text: &[u8]) -> Result<()> {
    make_dir(path.parent().unwrap_or(Path::new(".")))?;
    // A link that the user keeps it by stays.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    plain_file::replace(&target, text, Durability::Synced)
        .map_err(|error| Error::config(format!("{} cannot be written", path.display())).caused_by(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid_with_and_without_its_comments() {
        let path = Path::new("config.toml");
        check_text(path, TEMPLATE.as_bytes()).unwrap();
        let lines = TEMPLATE.lines().skip(2).map(|line| line.trim_start_matches(['#', ' ']));
        let text = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(File::from_text(path, text.as_bytes()).unwrap().network.as_deref(), Some("none"));
    }

    /// An editor would underline what a session refuses.
    #[test]
    fn the_schema_takes_what_is_read() {
        let schema = serde_json::to_value(schemars::schema_for!(File)).unwrap();
        let schema = jsonschema::validator_for(&schema).unwrap();
        for (text, is_valid) in [
            ("model = 'm'\nsandbox = 'docker'\nmax_cost = 1.5\nprotocol = 'responses'", true),
            (
                "[sandbox]\nbackend = 'e2b'\n[sandbox.e2b]\napi_key = 'k'\n[sandbox.vm]\nboot_timeout = 9",
                true,
            ),
            ("[workspace]\ninclude = ['*.pem']\n[workspace.setup]\n'/p' = 'npm ci'", true),
            ("[ui]\nnotify = ['notify-send', 'agent']\nstatus = ['model', 'cost']\nimages = 'never'", true),
            (
                "[policy.deny.x]\ncommands = ['git push']\n[[hooks]]\nevent = 'session_start'\ncommand = 'true'",
                true,
            ),
            ("[mcp.servers.s]\ncommand = 'x'\nwhere = 'host'\n[credentials.github]\nenabled = true", true),
            ("[models.m]\nform = 'compact'\nfallback = ['n']\n[prices.m]\ninput = 1.0\noutput = 2.0", true),
            ("modell = 'm'", false),
            ("sandbox = 'dokker'", false),
            ("max_turns = 'many'", false),
            ("[workspace]\ninclude = '*.pem'", false),
            ("[ui]\nstatus = ['weather']", false),
            ("[policy.deny.x]\ncomands = ['git push']", false),
            ("[sandbox.vm]\nspeed = 1", false),
        ] {
            let table: toml::Table = toml::from_str(text).unwrap();
            assert_eq!(
                File::from_text(Path::new("config.toml"), text.as_bytes()).is_ok(),
                is_valid,
                "{text}"
            );
            let value = serde_json::to_value(table).unwrap();
            let errors: Vec<String> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
            assert_eq!(errors.is_empty(), is_valid, "{text}: {errors:?}");
        }
    }
}
