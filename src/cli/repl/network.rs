//! `/network`: what the sandbox may reach.

use super::{Flow, Repl};
use crate::error::{Error, Result};
use crate::network::{Entry, Gateway, entries};
use std::sync::Arc;

impl Repl<'_> {
    /// Shows the list, or changes it.
    pub(super) async fn network(&mut self, arguments: &str) -> Result<Flow> {
        let gateway = Arc::clone(self.session.startup().gateway());
        if gateway.is_full() {
            return match arguments {
                "" => self
                    .show("full: the engine's ordinary network; connections are neither judged nor logged"),
                _ => Err(Error::usage("with --network full there is no list")
                    .hint("start again with --network and a list of hosts")),
            };
        }
        let (verb, hosts) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
        match verb {
            "" => return self.show_network(&gateway, false),
            "allow" => {
                let hosts = entries(hosts)?;
                gateway.change(|rules| hosts.into_iter().for_each(|entry| rules.allow(entry)));
                // From here on a proxy runs, and commands find it.
                let ready = self.session.startup().ready().await?;
                gateway.attach(&ready.sandbox).await?;
            }
            "deny" => {
                let hosts = entries(hosts)?;
                gateway.forget_in_project(&hosts)?;
                gateway.change(|rules| hosts.into_iter().for_each(|entry| rules.deny(entry)));
            }
            _ => {
                return Err(Error::usage(
                    "/network shows the list; /network allow HOST,… and /network deny HOST,… change it",
                ));
            }
        }
        self.show_network(&gateway, true)
    }

    /// Shows the rules, to the model as well where they have changed.
    fn show_network(&mut self, gateway: &Gateway, changed: bool) -> Result<Flow> {
        let rules = gateway.rules();
        let mut words = match rules.allowed() {
            [] if gateway.asks_about_all() => {
                "none: nothing but the sandbox's own loopback; you are asked about each host".to_owned()
            }
            [] => "none: nothing but the sandbox's own loopback".to_owned(),
            allowed => format!("allowed: {}", list(allowed)),
        };
        if let denied @ [_, ..] = rules.denied() {
            words += &format!("; denied: {}", list(denied));
        }
        if changed {
            self.note(&format!("The user changed what the sandbox may reach: {words}."))?;
        }
        self.show(&words)
    }

    fn show(&self, text: &str) -> Result<Flow> {
        self.remark(text);
        Ok(Flow::Continue)
    }
}

fn list(entries: &[Entry]) -> String {
    entries.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
