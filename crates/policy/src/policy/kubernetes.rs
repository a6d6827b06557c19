//! The resources of Kubernetes, as `kubectl` takes them: `pod`, `pods,svc`, `po/x`, `deployments.v1.apps`.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The plural, the singular and the short names of each resource, and categories.
const RESOURCES: &str = include_str!("kubernetes.txt");

/// The plural by any name, and what belongs to a category.
static PLURALS: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut plurals = HashMap::new();
    for line in RESOURCES.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(": ") {
            Some((category, names)) => drop(plurals.insert(category, names.split(' ').collect())),
            None => {
                let plural = line.split(' ').take(1).collect::<Vec<_>>();
                plurals.extend(line.split(' ').map(|name| (name, plural.clone())));
            }
        }
    }
    plurals
});

/// Returns whether a word of a command names what one of a rule does: a resource of its type, and the object where the rule names one.
pub fn is_same_resource(given: &str, wanted: &str) -> bool {
    let given: Vec<_> = resources(given).collect();
    resources(wanted).any(|(wanted, object)| {
        given.iter().any(|(types, name)| {
            // All that belongs to a category.
            wanted.iter().all(|plural| types.contains(plural))
                && object.is_none_or(|object| *name == Some(object))
        })
    })
}

/// The types in a word, each with the object that is named.
fn resources(word: &str) -> impl Iterator<Item = (Vec<String>, Option<&str>)> {
    let (types, shared) = word.split_once('/').filter(|(types, _)| types.contains(',')).unzip();
    types.unwrap_or(word).split(',').map(move |part| {
        let (name, object) =
            part.split_once('/').map_or((part, shared), |(name, object)| (name, Some(object)));
        let name = name.split('.').next().unwrap_or_default().to_lowercase();
        let known = PLURALS.get(name.as_str());
        let plurals = known.map(|plurals| plurals.iter().map(|plural| (*plural).to_owned()).collect());
        (plurals.unwrap_or_else(|| vec![singular(&name)]), object)
    })
}

/// The singular of a custom resource, by the rule that most plurals follow.
fn singular(name: &str) -> String {
    match (name.strip_suffix("ies"), name.strip_suffix("es"), name.strip_suffix('s')) {
        (Some(stem), ..) => format!("{stem}y"),
        (_, Some(stem), _) if stem.ends_with(['s', 'x']) || stem.ends_with("ch") || stem.ends_with("sh") => {
            stem.to_owned()
        }
        (.., Some(stem)) if !stem.ends_with('s') => stem.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_same_resource;

    #[test]
    fn a_resource_has_many_spellings() {
        for given in [
            "pod",
            "pods",
            "po",
            "Pod",
            "PODS",
            "pod/x",
            "svc,pod",
            "pods.v1.core",
            "all",
            "po/x",
            "svc,pod/x",
        ] {
            assert!(is_same_resource(given, "pod"), "{given}");
        }
        for given in ["svc", "podtemplates", "svc/pod", "svc,cm", "secret", ""] {
            assert!(!is_same_resource(given, "pod"), "{given}");
        }
        assert!(is_same_resource("all", "all") && !is_same_resource("pods", "all"));
        assert!(is_same_resource("secrets/x", "secret/x") && !is_same_resource("secrets/y", "secret/x"));
        assert!(is_same_resource("widgets.example.com", "widget") && is_same_resource("policies", "policy"));
    }
}
