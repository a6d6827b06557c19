//! The meaning of Modal's failures for a user.

use crate::api::quote;
use crate::grpc::{Code, Status};
use agent_base::error::{Error, Scope};

/// The page on which a user gets a key and sees what runs.
pub const CONSOLE: &str = "https://modal.com/settings/tokens";
/// The hint for a session whose sandbox is not there.
const AGAIN: &str = "`agent resume` starts another sandbox from the session's checkpoints";
/// Characters of Modal's words that are looked at.
const MAX_MASKED: usize = 4 << 10;

/// A failure of the control plane, whose words must not show `secrets`.
pub fn of_control(status: Status, location: &str, secrets: &[&str]) -> Error {
    let said = masked(&status.message, secrets);
    if !status.is_answer && status.code != Code(u32::MAX) {
        let what = if status.is_unreached { "cannot be reached" } else { "did not answer" };
        return Error::sandbox(format!("modal at {location} {what}: {said}"))
            .hint("look at the network of this machine, and at https://status.modal.com");
    }
    let (what, hint) = match status.code {
        Code::UNAUTHENTICATED => (
            "does not accept the token",
            format!("MODAL_TOKEN_ID and MODAL_TOKEN_SECRET have to be a pair that is valid: {CONSOLE}"),
        ),
        Code::PERMISSION_DENIED => {
            ("does not allow this to the token", format!("look at the token's workspace at {CONSOLE}"))
        }
        Code::RESOURCE_EXHAUSTED => (
            "refuses for the account's limits",
            "look at the workspace's usage, or remove sandboxes with `agent sandbox rm`".to_owned(),
        ),
        Code::NOT_FOUND => (
            "does not know what was asked for",
            "the sandbox is gone, or the environment's name (MODAL_ENVIRONMENT) is wrong".to_owned(),
        ),
        Code::UNIMPLEMENTED | Code(u32::MAX) => (
            "does not speak the protocol that this build knows",
            "Modal's protocol is internal and may have changed: a newer agent may know it; `agent doctor --sandbox modal` tries it"
                .to_owned(),
        ),
        Code::FAILED_PRECONDITION | Code::INVALID_ARGUMENT | Code::ALREADY_EXISTS => (
            "refuses the request",
            "Modal's words say why; where they name the client's version, a newer agent is needed".to_owned(),
        ),
        _ => ("failed", "try again; https://status.modal.com may know more".to_owned()),
    };
    let scope = if status.code == Code::RESOURCE_EXHAUSTED { Scope::Room } else { Scope::Unknown };
    Error::sandbox(format!("modal {what}{}", with_words(status.code, &said))).hint(hint).concerns(scope)
}

/// A failure of a sandbox's router.
pub fn of_router(status: Status, token: &str) -> Error {
    let said = masked(&status.message, &[token]);
    let message = match status.code {
        Code::NOT_FOUND | Code::FAILED_PRECONDITION => "the modal sandbox is gone, or what ran in it",
        Code::UNAUTHENTICATED | Code::PERMISSION_DENIED => {
            "the router of the modal sandbox refuses its own token"
        }
        _ if !status.is_answer => "the router of the modal sandbox does not answer",
        _ => "the router of the modal sandbox failed",
    };
    Error::sandbox(format!("{message}{}", with_words(status.code, &said))).hint(AGAIN)
}

fn with_words(code: Code, said: &str) -> String {
    let code = if code == Code(u32::MAX) { String::new() } else { format!(" ({})", code.0) };
    let colon = if said.is_empty() { "" } else { ": " };
    format!("{code}{colon}{said}")
}

/// Words of others, bounded, without `secrets`.
fn masked(text: &str, secrets: &[&str]) -> String {
    let text: String = text.chars().take(MAX_MASKED).collect();
    let secrets = secrets.iter().filter(|secret| !secret.is_empty());
    quote(&secrets.fold(text, |text, secret| text.replace(secret, "(a secret)")))
}
