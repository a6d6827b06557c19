//! `/network`, and the question about a host that is not on the list.

use super::{Flow, Repl};
use crate::cli::ui::confirm;
use crate::cli::ui::screen::Screen;
use crate::error::{Error, Result};
use crate::network::{Answer, Ask, Entry, Gateway, entries};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks at the terminal, while something runs. Nobody is asked in the middle of writing a wish: a background job's
/// connection is refused then, which is shown.
pub(super) fn ask(screen: Screen, at_prompt: Arc<AtomicBool>) -> Ask {
    Arc::new(move |question| {
        let (screen, at_prompt) = (screen.clone(), Arc::clone(&at_prompt));
        Box::pin(async move {
            if at_prompt.load(Ordering::Relaxed) {
                return None;
            }
            let _held = screen.hold();
            match confirm::ask(screen.progress(), &question, &["once", "session", "never"]).await {
                Ok("once") => Some(Answer::Once),
                Ok("session") => Some(Answer::Session),
                Ok(_) => Some(Answer::Never),
                Err(_) => None,
            }
        })
    })
}

impl Repl<'_> {
    /// Shows the list, or changes it.
    pub(super) async fn network(&mut self, arguments: &str) -> Result<Flow> {
        let gateway = Arc::clone(self.opened.startup.gateway());
        if gateway.is_full() {
            return match arguments {
                "" => {
                    self.told("full: the engine's ordinary network; nothing is asked for and nothing is seen")
                }
                _ => Err(Error::usage("with --network full there is no list")
                    .hint("start again with --network and the hosts that are wanted")),
            };
        }
        let (verb, hosts) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
        match verb {
            "" => return self.show_network(&gateway, false),
            "allow" => {
                let hosts = entries(hosts)?;
                gateway.change(|rules| hosts.into_iter().for_each(|entry| rules.allow(entry)));
                // From here on there is a proxy, and commands find it.
                let ready = self.opened.startup.ready().await?;
                gateway.attach(&ready.sandbox).await?;
            }
            "deny" => {
                let hosts = entries(hosts)?;
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

    /// Says how things stand, to the model as well where they have changed.
    fn show_network(&mut self, gateway: &Gateway, changed: bool) -> Result<Flow> {
        let rules = gateway.rules();
        let mut words = match rules.allowed() {
            [] => "none: nothing but the sandbox's own loopback".to_owned(),
            allowed => format!("allowed: {}", list(allowed)),
        };
        if let denied @ [_, ..] = rules.denied() {
            words += &format!("; denied: {}", list(denied));
        }
        if changed {
            self.network_note = Some(words.clone());
        }
        self.told(&words)
    }

    fn told(&self, text: &str) -> Result<Flow> {
        self.remark(text);
        Ok(Flow::GoOn)
    }
}

fn list(entries: &[Entry]) -> String {
    entries.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
