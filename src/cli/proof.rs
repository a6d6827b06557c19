//! The proof that a backend works: a sandbox that runs one command and is removed.

use crate::cli::config::Config;
use crate::error::{Error, Result};
use crate::log::SessionId;
use crate::sandbox::{Backend, Command, Outcome, Program, Sandbox, Spec};
use std::time::{Duration, Instant};

/// The time limit for the sandbox that proves a backend, and for its command.
const PROOF_TTL: Duration = Duration::from_secs(10);

/// Starts a sandbox, runs `true` in it, and removes it: how long that took, and what the sandbox lacks of its protection.
pub async fn prove(config: &Config, backend: &dyn Backend) -> Result<(Duration, Vec<String>)> {
    let started = Instant::now();
    let spec = spec(config);
    let run = async {
        let (channel, info) = backend.start(&spec, &|_, _, _| {}).await?;
        let sandbox = Sandbox::connect(channel).await?;
        let command = Command {
            program: Program::Argv(vec!["true".into()]),
            cwd: None,
            env: Vec::new(),
            timeout: Some(PROOF_TTL),
            live_bytes: 0,
            stdin: false,
        };
        let finished = sandbox.run(command, &mut |_| {}).await?;
        sandbox.shutdown().await;
        match finished.outcome {
            Outcome::Exited(0) => Ok((started.elapsed(), info.missing)),
            other => Err(Error::sandbox(format!("`true` did not succeed in a sandbox ({other:?})"))),
        }
    };
    let result = run.await;
    // A failure of the removal is repaired by the next sweep.
    let _ = backend.destroy(&spec.session).await;
    result
}

/// The sandbox that would be made for a session, for a short time.
pub fn spec(config: &Config) -> Spec {
    let wanted = &config.sandbox;
    Spec {
        image: wanted.image.clone(),
        limits: wanted.limits.clone(),
        network: wanted.network.clone(),
        runtime: wanted.runtime.clone(),
        docker: wanted.docker,
        idle_ttl: PROOF_TTL,
        ..Spec::new(SessionId::generate().to_string())
    }
}
