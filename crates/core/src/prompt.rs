//! The system prompt: short, and the same from the first request to the last, so that prompt caches hit.

use super::instructions::instructions;
use agent_base::secret_scan;
use agent_base::visible::without_tags;
use agent_event::Limits;
use agent_model::compact::INSTRUCTIONS_HEADING;
use agent_sandbox::{Network, WORKSPACE};
use std::path::Path;

/// What the system prompt says about the sandbox.
#[derive(Debug, Clone, Default)]
pub struct SandboxFacts {
    /// What it may reach.
    pub network: Network,
    /// Its resources.
    pub limits: Limits,
    /// The image, where one was named.
    pub image: Option<String>,
    /// Programs that it has, as far as that is known before it starts.
    pub programs: Vec<String>,
    /// What the model learns of the skills, where there are any.
    pub skills: Option<String>,
}

/// Hosts that the prompt names.
const MAX_HOSTS: usize = 40;

/// The first message of every conversation. `AGENTS.md` is the repository's: its secrets are replaced as in the results of tools.
pub fn system_prompt(facts: &SandboxFacts, workspace: &Path, redact_secrets: bool) -> String {
    let mut prompt = agent_prompts::SYSTEM.trim().to_owned();
    prompt += "\n\n# The sandbox\n";
    prompt += &format!("- Workspace: {WORKSPACE}\n- Network: {}\n", network(&facts.network));
    let limits = &facts.limits;
    prompt += &format!(
        "- Limits: {} MiB of memory, {} CPUs, {} processes, {} MiB of disk\n",
        limits.memory >> 20,
        limits.cpus,
        limits.pids,
        limits.disk >> 20
    );
    if let Some(image) = &facts.image {
        prompt += &format!("- Image: {image}\n");
    }
    if !facts.programs.is_empty() {
        prompt += &format!("- Programs: {}\n", facts.programs.join(", "));
    }
    let clean = |text: String| match secret_scan::redact(&text) {
        Some(redacted) if redact_secrets => without_tags(redacted.text),
        _ => without_tags(text),
    };
    // Before the instructions: the compact form sends nothing else, and small models do not read on.
    if let Some(skills) = &facts.skills {
        prompt += &format!("\n{}\n", clean(skills.clone()).trim());
    }
    if let Some(text) = instructions(workspace) {
        prompt += &format!("\n{INSTRUCTIONS_HEADING}\n{}\n", clean(text));
    }
    prompt
}

fn network(network: &Network) -> String {
    match network {
        Network::None => "none, only loopback".to_owned(),
        Network::Full => "open".to_owned(),
        Network::Hosts(hosts) => {
            let more = if hosts.len() > MAX_HOSTS {
                format!(" and {} more", hosts.len() - MAX_HOSTS)
            } else {
                String::new()
            };
            let hosts = hosts[..hosts.len().min(MAX_HOSTS)].join(", ") + &more;
            format!(
                "only to {hosts} through the HTTP proxy that the *_proxy variables name; there is no DNS. What is \
                 refused (403) cannot be reached: report it"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_describes_the_sandbox() {
        let facts =
            SandboxFacts { programs: vec!["git".into(), "python3".into()], ..SandboxFacts::default() };
        let directory = std::env::temp_dir();
        let prompt = system_prompt(&facts, &directory.join("missing directory"), true);
        assert!(
            prompt.contains("Network: none")
                && prompt.contains("2048 MiB")
                && prompt.contains("git, python3")
        );
        assert!(prompt.len() < 2500, "the prompt is paid for in every request: {} bytes", prompt.len());
    }
}
