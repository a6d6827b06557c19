//! The servers of a session, and the tools that they make together.

use super::cache::{Cache, Offer};
use super::prompts::ServerPrompt;
use super::resources::{ListResources, ReadResource};
use super::search::{CallFound, SearchTools};
use super::server::Server;
use super::settings::ServerSettings;
use super::site::Site;
use super::tool::ServerTool;
use agent_base::error::Result;
use agent_tools::Tool;
use futures_util::future::join_all;
use std::sync::Arc;

/// Up to so many tools are described to the model; more are searched.
const MAX_DESCRIBED: usize = 40;
/// Servers of a session.
const MAX_SERVERS: usize = 50;

/// The servers of a session.
#[derive(Default)]
pub struct Servers {
    all: Vec<Arc<Server>>,
}

/// The offers of all servers together.
#[derive(Default)]
pub struct Offered {
    /// Tools that are described to the model.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Tools that it finds by searching.
    pub found: Vec<Arc<dyn Tool>>,
    /// The instructions of servers: the name, and the text.
    pub instructions: Vec<(String, String)>,
    /// Servers that could not be asked, and why.
    pub failures: Vec<String>,
}

impl Servers {
    /// Servers that run at `site`.
    pub fn new(settings: &[ServerSettings], site: &Arc<dyn Site>, cache: &Cache) -> Self {
        let server =
            |settings: &ServerSettings| Server::new(settings.clone(), Arc::clone(site), cache.clone());
        Self { all: settings.iter().take(MAX_SERVERS).map(server).collect() }
    }

    /// All of them.
    pub fn list(&self) -> &[Arc<Server>] {
        &self.all
    }

    /// Returns what they offer. Those that have not been asked before are started, at the same time.
    pub async fn offered(&self) -> Offered {
        let offers = join_all(self.all.iter().map(|server| server.offer())).await;
        self.together(offers)
    }

    /// Returns what they offer now, if one of them says that it is something else than before.
    pub async fn changed(&self) -> Option<Offered> {
        let changed = join_all(self.all.iter().map(|server| server.take_changed())).await;
        if !changed.contains(&true) {
            return None;
        }
        let offers = self.all.iter().zip(changed).map(|(server, changed)| async move {
            match changed {
                true => server.ask().await,
                false => server.offer().await,
            }
        });
        Some(self.together(join_all(offers).await))
    }

    fn together(&self, offers: Vec<Result<Offer>>) -> Offered {
        let mut offered = Offered::default();
        let (mut tools, mut with_resources) = (Vec::new(), Vec::new());
        for (server, offer) in self.all.iter().zip(offers) {
            match offer {
                Ok(offer) => {
                    tools.extend(offer.tools.iter().map(|tool| Arc::new(ServerTool::new(server, tool))));
                    if offer.resources {
                        with_resources.push(Arc::clone(server));
                    }
                    if let Some(text) = offer.instructions {
                        offered.instructions.push((server.settings.name.clone(), text));
                    }
                }
                Err(error) => offered.failures.push(error.to_string()),
            }
        }
        if tools.len() > MAX_DESCRIBED {
            offered.tools.push(Arc::new(SearchTools::new(tools.clone())));
            offered.tools.push(Arc::new(CallFound));
            offered.found = tools.into_iter().map(|tool| tool as Arc<dyn Tool>).collect();
        } else {
            offered.tools = tools.into_iter().map(|tool| tool as Arc<dyn Tool>).collect();
        }
        if !with_resources.is_empty() {
            offered.tools.push(Arc::new(ListResources(with_resources.clone())));
            offered.tools.push(Arc::new(ReadResource(with_resources)));
        }
        offered
    }

    /// Reads what those offered that were asked in earlier sessions. None is started for this.
    pub async fn remember(&self) {
        join_all(self.all.iter().map(|server| server.remember())).await;
    }

    /// The prompts of all of them, as far as they are known.
    pub fn prompts(&self) -> Vec<ServerPrompt> {
        let of_server = |server: &Arc<Server>| {
            let prompts = server.prompts().into_iter();
            prompts.map(|prompt| ServerPrompt::new(server, prompt)).collect::<Vec<_>>()
        };
        self.all.iter().flat_map(of_server).collect()
    }

    /// The prompt with this command. A server that may have it and was never asked is asked.
    ///
    /// # Errors
    /// That server does not start.
    pub async fn prompt(&self, command: &str) -> Result<Option<ServerPrompt>> {
        let known = |command: &str| self.prompts().into_iter().find(|prompt| prompt.command == command);
        if let Some(prompt) = known(command) {
            return Ok(Some(prompt));
        }
        let may_have = |server: &&Arc<Server>| {
            command.starts_with(&format!("mcp__{}__", server.settings.name)) && !server.is_known()
        };
        for server in self.all.iter().filter(may_have) {
            server.offer().await?;
        }
        Ok(known(command))
    }

    /// Ends all of them.
    pub async fn end(&self) {
        join_all(self.all.iter().map(|server| server.end())).await;
    }
}
