//! The API server's errors in our words.

use agent_base::error::{Error, Scope};
use agent_base::sanitise::one_line;
use std::error::Error as _;

/// Characters of the server's words that are shown.
const LONGEST_QUOTE: usize = 400;

/// `what` could not be done, for the reason that the server gives.
pub(super) fn error(what: &str, error: kube::Error) -> Error {
    let (text, code) = (text(&error), code(&error));
    let scope = match code {
        Some(403) if text.contains("exceeded quota") => Scope::Room,
        Some(429 | 503) => Scope::Room,
        _ => Scope::Unknown,
    };
    Error::sandbox(format!("{what}: {text}")).hint(hint(code, &text)).concerns(scope)
}

/// The HTTP status that the server answered with, where it answered.
pub(super) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The server's own message where it sent one, else the chain of causes.
pub(super) fn text(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("status {}", status.code),
        other => {
            let mut text = other.to_string();
            let mut cause = other.source();
            while let Some(error) = cause {
                let line = error.to_string();
                if !text.contains(&line) {
                    text = format!("{text}: {line}");
                }
                cause = error.source();
            }
            text
        }
    };
    quote(&text)
}

/// The server's words on one line, bounded.
pub(super) fn quote(text: &str) -> String {
    one_line(text, LONGEST_QUOTE)
}

fn hint(code: Option<u16>, text: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match code {
        Some(401) => {
            "the cluster does not accept these credentials: a token may have expired; `kubectl get pods` tries them"
        }
        Some(403) if has(&["exceeded quota"]) => {
            "the namespace's quota is used up: `kubectl describe quota` shows it, `agent sandbox list` what is ours; or ask for \
             less with --memory, --cpus and --disk"
        }
        Some(403) if has(&["violates PodSecurity", "PodSecurityPolicy", "admission webhook"]) => {
            "admission refuses the pod, which is made for the level `restricted`: pod_template in [sandbox.kubernetes] may ask for \
             too much, or the cluster has rules of its own"
        }
        Some(403) if has(&["RuntimeClass", "runtimeClass"]) => {
            "`kubectl get runtimeclass` lists the runtimes that the cluster has"
        }
        Some(403) => {
            "`agent doctor --sandbox kubernetes` lists the rights that are missing; examples/kubernetes/rbac.yaml grants them"
        }
        Some(404) => {
            "does the namespace exist? `kubectl get namespaces`; [sandbox.kubernetes] namespace chooses another"
        }
        Some(422) => "a setting in [sandbox.kubernetes] may not be what the API takes",
        Some(429) => "the API server is busy: try again later",
        Some(_) => "`kubectl get --raw /readyz` asks the API server for its state",
        None => "is the API server reachable? `kubectl version` tries it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16, message: &str) -> Error {
        let mut status = kube::core::Status::failure(message, "Forbidden");
        status.code = code;
        error("the pod could not be made", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn a_quota_that_is_used_up_is_a_shortage_and_a_refusal_is_not() {
        assert!(
            answered(403, "pods \"x\" is forbidden: exceeded quota: small, requested: pods=1").is_shortage()
        );
        assert!(answered(429, "too many requests").is_shortage());
        assert!(!answered(403, "User \"x\" cannot create resource \"pods\"").is_shortage());
        assert!(!answered(422, "spec.containers: Required value").is_shortage());
    }

    #[test]
    fn a_refusal_has_the_hint_that_fits() {
        let refused = |message: &str| answered(403, message);
        let hint = |message| refused(message).hint_text().unwrap_or_default().to_owned();
        assert!(hint("exceeded quota: small, requested: pods=1").contains("--memory"));
        assert!(
            hint("pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"")
                .contains("restricted")
        );
        assert!(hint("User \"x\" cannot create resource \"pods\"").contains("rbac.yaml"));
        assert!(refused("exceeded quota").to_string().starts_with("the pod could not be made: exceeded"));
    }
}
