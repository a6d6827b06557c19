//! `agent models`: what the endpoint offers.

use super::arguments::{EndpointArgs, JsonArg};
use super::endpoint;
use super::print::offer;
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::sanitise;
use clap::Args;
use serde_json::json;

/// `agent models`
#[derive(Debug, Args)]
pub struct ModelsArgs {
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    json: JsonArg,
}

impl ModelsArgs {
    pub fn options(&self) -> Options {
        Options::of(&[&self.endpoint, &self.json])
    }
}

/// One name a line, or one JSON array.
pub async fn models(options: &Options) -> Result<ExitCode> {
    let names = endpoint::models(&endpoint::without_model(&Config::load(options)?)?).await?;
    let text = match options.json {
        true => format!("{}\n", json!(names)),
        false => names.iter().map(|name| format!("{}\n", sanitise::one_line(name, 200))).collect(),
    };
    offer(text.as_bytes())?;
    Ok(ExitCode::Success)
}
