//! The tools of one session.

use super::{Tool, builtin};
use agent_base::error::{Error, Result};
use agent_model::ToolSpec;
use std::sync::{Arc, LazyLock};

/// The longest name that every endpoint takes, in characters.
const MAX_NAME: usize = 64;

/// The tools of one session: the built-in ones, then the added ones in the order in which they were added.
///
/// The order never changes, because the specifications are part of every request's prefix.
#[derive(Clone)]
pub struct Registry {
    tools: Vec<Arc<dyn Tool>>,
    specs: Vec<ToolSpec>,
    /// Tools that can be called and are not described.
    undescribed: Vec<Arc<dyn Tool>>,
}

impl Registry {
    /// No tools at all.
    pub fn empty() -> Self {
        Self { tools: Vec::new(), specs: Vec::new(), undescribed: Vec::new() }
    }

    /// The built-in tools.
    pub fn builtin() -> Self {
        /// A schema takes longer to make than to copy, and each session of a batch has these.
        static SPECS: LazyLock<Vec<ToolSpec>> =
            LazyLock::new(|| builtin::all().iter().map(|tool| spec(tool.as_ref())).collect());
        Self { tools: builtin::all(), specs: SPECS.clone(), undescribed: Vec::new() }
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// `Config` where the name is in use or is one that endpoints refuse.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<()> {
        self.check_name(tool.name())?;
        self.specs.push(spec(tool.as_ref()));
        self.tools.push(tool);
        Ok(())
    }

    /// Adds a tool that the model finds out about by another one.
    ///
    /// # Errors
    /// As [`Registry::add`].
    pub fn add_undescribed(&mut self, tool: Arc<dyn Tool>) -> Result<()> {
        self.check_name(tool.name())?;
        self.undescribed.push(tool);
        Ok(())
    }

    /// Removes the tools that have these names.
    pub fn remove(&mut self, names: &[String]) {
        let is_kept = |tool: &Arc<dyn Tool>| !names.iter().any(|name| name == tool.name());
        self.tools.retain(is_kept);
        self.undescribed.retain(is_kept);
        self.specs.retain(|spec| !names.contains(&spec.name));
    }

    fn check_name(&self, name: &str) -> Result<()> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_valid) {
            return Err(Error::config(format!("{name:?} is not a valid tool name"))
                .hint("use at most 64 letters, digits, '_' and '-'"));
        }
        if self.get(name).is_some() {
            return Err(
                Error::config(format!("there are two tools called {name:?}")).hint("rename one of them")
            );
        }
        Ok(())
    }

    /// Puts a tool in the place of the one that has its name; without one nothing happens.
    pub fn replace(&mut self, tool: Arc<dyn Tool>) {
        if let Some(at) = self.tools.iter().position(|other| other.name() == tool.name()) {
            self.specs[at] = spec(tool.as_ref());
            self.tools[at] = tool;
        }
    }

    /// Has every tool discard what it keeps in the sandbox between calls. What was discarded, for the user.
    pub async fn discard_state(&self) -> Vec<String> {
        let mut discarded = Vec::new();
        for tool in self.tools.iter().chain(&self.undescribed) {
            discarded.extend(tool.discard_state().await);
        }
        discarded
    }

    /// The tool called `name`.
    pub fn get(&self, name: &str) -> Option<&dyn Tool> {
        self.tools.iter().chain(&self.undescribed).map(Arc::as_ref).find(|tool| tool.name() == name)
    }

    /// The tools as they are described to the model.
    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }
}

fn spec(tool: &dyn Tool) -> ToolSpec {
    ToolSpec {
        name: tool.name().to_owned(),
        description: tool.description().trim().to_owned(),
        parameters: Arc::new(tool.parameters()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, ToolResult};
    use agent_base::error::Kind;
    use futures_util::future::BoxFuture;
    use serde_json::{Value, json};

    struct Named(&'static str);

    impl Tool for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn description(&self) -> &str {
            "Does nothing.\n"
        }

        fn parameters(&self) -> Value {
            json!({ "type": "object" })
        }

        fn run<'a>(&'a self, _: Context<'a>, _: Value) -> BoxFuture<'a, Result<ToolResult>> {
            Box::pin(async { Ok(ToolResult::success("done")) })
        }
    }

    #[test]
    fn the_schemas_of_the_built_in_tools_are_ones_that_every_endpoint_takes() {
        for spec in Registry::builtin().specs() {
            let plain = agent_model::plain_without_null(&spec.parameters);
            assert_eq!(*spec.parameters, plain, "{}", spec.name);
        }
    }

    #[test]
    fn added_tools_follow_the_built_in_ones_in_order() {
        let mut registry = Registry::builtin();
        let builtin = registry.specs().len();
        for name in ["zebra", "ant"] {
            registry.add(Arc::new(Named(name))).unwrap();
        }
        let added: Vec<&str> = registry.specs()[builtin..].iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(added, ["zebra", "ant"]);
        assert_eq!(registry.specs()[builtin].description, "Does nothing.");
        assert!(registry.get("ant").is_some() && registry.get("bee").is_none());
    }

    #[test]
    fn a_name_that_is_in_use_or_not_valid_is_refused() {
        let mut registry = Registry::builtin();
        for name in ["read_file", "", "web search", "größe"] {
            let error = registry.add(Arc::new(Named(name))).unwrap_err();
            assert_eq!(error.kind(), Kind::Config, "{name}: {error}");
        }
        assert_eq!(registry.specs().len(), Registry::builtin().specs().len());
    }

    /// The tests of `agent-model` need the tools, and cannot use this crate. `UPDATE_TOOLS=1` writes the file.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the process of this test")]
    fn the_copy_of_the_tools_in_the_tests_of_the_model_is_true() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/src/compact/builtin_tools.json");
        let tools = serde_json::to_string_pretty(Registry::builtin().specs()).unwrap() + "\n";
        if std::env::var_os("UPDATE_TOOLS").is_some() {
            std::fs::write(path, &tools).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), tools);
    }
}
