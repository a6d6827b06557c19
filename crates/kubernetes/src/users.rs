//! User namespaces of pods (`hostUsers: false`): root inside would then be nobody outside.
//!
//! Servers that do not know the field drop it without an error, and nodes that cannot do it leave the pod waiting for ever. So
//! without a setting it is asked for only where the server keeps it and every node says that its runtime can.

use super::backend::Kubernetes;
use super::wait::text;
use agent_sandbox::Spec;
use serde_json::Value;

/// The first version that has them by default.
const SINCE: u64 = 33;

/// The availability of user namespaces for pods, or the reason why there are none.
pub(super) type UserNamespaces = Result<(), String>;

impl Kubernetes {
    /// Returns whether the pod of `spec` has one. The cluster is asked once.
    pub(super) async fn user_namespaces(&self, spec: &Spec) -> UserNamespaces {
        if let Some(is_set) = self.settings.user_namespaces {
            return is_set.then_some(()).ok_or_else(|| "user_namespaces = false".to_owned());
        }
        if let Some(class) = spec.runtime.as_deref().or(self.settings.runtime_class.as_deref()) {
            return Err(format!(
                "whether the runtime {class} has them is not known: user_namespaces = true asks for them"
            ));
        }
        self.user_namespaces.get_or_init(|| self.ask_for_user_namespaces(spec)).await.clone()
    }

    async fn ask_for_user_namespaces(&self, spec: &Spec) -> UserNamespaces {
        let version = self.cluster.get("/version").await.ok().flatten().unwrap_or_default();
        is_recent(&version)?;
        let manifest = self.pod(spec, true).manifest().map_err(|error| error.to_string())?;
        let tried = self.cluster.create(&self.cluster.path("pods?dryRun=All"), &manifest).await;
        if tried.ok().as_ref().and_then(|pod| pod.pointer("/spec/hostUsers")) != Some(&Value::Bool(false)) {
            return Err("the API server does not keep hostUsers: false".to_owned());
        }
        let nodes = self.cluster.get("/api/v1/nodes?limit=500").await.ok().flatten();
        have_them(nodes.as_ref())
    }
}

fn is_recent(version: &Value) -> UserNamespaces {
    let number = |path| {
        let digits: String = text(version, path).chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap_or(0)
    };
    match (number("/major"), number("/minor")) {
        (2.., _) | (1, SINCE..) => Ok(()),
        (major, minor) => {
            Err(format!("Kubernetes {major}.{minor} does not have them by default, 1.{SINCE} does"))
        }
    }
}

/// Returns whether every node that takes pods says that its runtime can.
fn have_them(nodes: Option<&Value>) -> UserNamespaces {
    let Some(nodes) = nodes.and_then(|nodes| nodes.get("items")).and_then(Value::as_array) else {
        return Err("the nodes may not be listed, so what they can is not known: user_namespaces = true asks for them".to_owned());
    };
    let takes_pods = |node: &&Value| node.pointer("/spec/unschedulable") != Some(&Value::Bool(true));
    let can = |node: &Value| {
        let handlers = node.pointer("/status/runtimeHandlers").and_then(Value::as_array);
        let mut default = handlers.into_iter().flatten().filter(|handler| text(handler, "/name").is_empty());
        default.any(|handler| handler.pointer("/features/userNamespaces") == Some(&Value::Bool(true)))
    };
    let mut nodes = nodes.iter().filter(takes_pods).peekable();
    if nodes.peek().is_none() {
        return Err("no node takes pods".to_owned());
    }
    match nodes.find(|node| !can(node)) {
        Some(node) => Err(format!(
            "the runtime of node {} does not say that it has them",
            super::failure::quote(text(node, "/metadata/name"))
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn they_are_asked_for_only_where_server_and_nodes_have_them() {
        for (minor, is_enough) in [("20", false), ("32+", false), ("33", true), ("36+", true), ("", false)] {
            assert_eq!(is_recent(&json!({ "major": "1", "minor": minor })).is_ok(), is_enough, "{minor}");
        }
        let node = |name: &str, handler: &str, can: bool| {
            let handlers = json!([{ "name": handler, "features": { "userNamespaces": can } }]);
            json!({ "metadata": { "name": name }, "status": { "runtimeHandlers": handlers } })
        };
        let list = |nodes: &[Value]| have_them(Some(&json!({ "items": nodes })));
        assert_eq!(list(&[node("a", "", true), node("b", "", true)]), Ok(()));
        let why = |answer: UserNamespaces| answer.unwrap_err();
        assert!(why(list(&[node("a", "", true), node("b", "", false)])).contains("node b"));
        assert!(why(list(&[node("a", "other", true)])).contains("node a"));
        assert!(why(list(&[json!({ "metadata": { "name": "old" } })])).contains("node old"));
        let mut away = node("b", "", false);
        away["spec"] = json!({ "unschedulable": true });
        assert_eq!(list(&[node("a", "", true), away.clone()]), Ok(()));
        assert!(why(list(&[away])).contains("no node"));
        assert!(why(have_them(None)).contains("user_namespaces = true"));
    }
}
