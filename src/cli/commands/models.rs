//! `agent models`: what the endpoint offers.

use crate::cli::config::Config;
use crate::cli::options::{EndpointArgs, JsonArg, Options};
use crate::cli::print::print;
use crate::cli::{endpoint, offered_models};
use crate::error::Result;
use crate::event::CallForm;
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::model::Facts;
use crate::model::size::form_for_size;
use crate::sanitise;
use clap::Args;
use serde::Serialize;
use std::sync::Arc;

/// Characters of a model's name that are shown.
const MAX_NAME: usize = 200;

/// `agent models`
#[derive(Debug, Args)]
pub struct ModelsArgs {
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    output: JsonArg,
}

impl ModelsArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.endpoint, &self.output])
    }
}

/// A model that the endpoint offers.
#[derive(Serialize)]
struct OfferedModel {
    name: String,
    /// In tokens.
    context_window: Option<u64>,
    /// The form in which tools are offered to it; `None` if nothing is known about it.
    form: Option<CallForm>,
}

/// One model a line with its context window and its form where they are known, or one JSON array.
pub async fn models(machine: &Arc<Machine>, arguments: ModelsArgs) -> Result<ExitCode> {
    let options = &arguments.options();
    let config = Config::load(machine, options)?;
    let connected = endpoint::without_model(&config).await?;
    let describe = |(name, facts): (String, Facts)| {
        let configured = config.file.models.get(&name).and_then(|options| options.form);
        let window = config.file.context.get(&name).copied();
        OfferedModel {
            context_window: window.or(facts.context_window),
            form: configured.or(facts.parameters.map(form_for_size)),
            name,
        }
    };
    let models: Vec<OfferedModel> = connected.models_with_facts().await?.into_iter().map(describe).collect();
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let _ = offered_models::remember(machine, &connected.endpoint().base_url, &names);
    print(options, &words(&models), &models)
}

fn words(models: &[OfferedModel]) -> String {
    let name = |model: &OfferedModel| sanitise::one_line(&model.name, MAX_NAME);
    let is_known = |model: &&OfferedModel| model.context_window.is_some() || model.form.is_some();
    let width = models.iter().filter(is_known).map(|model| name(model).chars().count()).max().unwrap_or(0);
    let line = |model: &OfferedModel| {
        let window = model.context_window.map(|tokens| format!("{tokens} tokens"));
        let form = model.form.map(|form| format!("{form} form"));
        let facts: Vec<String> = window.into_iter().chain(form).collect();
        format!("{:width$}  {}", name(model), facts.join(", ")).trim_end().to_owned() + "\n"
    };
    models.iter().map(line).collect()
}
