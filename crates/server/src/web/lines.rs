//! Events that are one line of the conversation.

use agent_base::count_text::counted;
use agent_base::duration_text::duration_text;
use agent_event::{Event, PlanStep, StepStatus};

/// The line, and how it is marked: `bad` for what failed, `cut` for what divides the conversation, `retry` where an answer begins again.
pub fn of(event: &Event) -> Option<(String, &'static str)> {
    Some(match event {
        Event::SessionStarted { model, sandbox, .. } => {
            (format!("{model} · sandbox {} · network {}", sandbox.backend, sandbox.network), "cut")
        }
        Event::Notice { text } | Event::Nudge { text } => (text.clone(), ""),
        Event::Retry { wait_ms, reason, .. } => {
            (format!("Trying again in {}: {reason}", duration_text(*wait_ms)), "retry")
        }
        Event::Attached { name, .. } => (format!("Attached: {name}"), ""),
        Event::Plan { steps, .. } => (plan(steps), ""),
        Event::Denied { what, rule } => (format!("Denied: {what} ({rule})"), "bad"),
        Event::SecretsRedacted { .. } => {
            ("Secrets in the output were replaced before the model got it".to_owned(), "")
        }
        Event::DelegateStarted { task, .. } => (format!("Delegated: {task}"), ""),
        Event::LimitReached { limit } => (format!("Limit reached: {limit}"), "bad"),
        Event::Compacted { before, after, .. } => {
            (format!("Older messages were summarised: {before} → {after} tokens"), "")
        }
        Event::StartedOver { attempt, .. } => (format!("The model starts over (attempt {attempt})"), "cut"),
        Event::Cleared {} => ("The conversation was cleared".to_owned(), "cut"),
        Event::LinesLost { .. } => ("Lines of the session file are missing here".to_owned(), "bad"),
        Event::SessionFinished { status, error, .. } => match error {
            Some(error) => (format!("{status}: {error}"), "cut"),
            None => (status.clone(), "cut"),
        },
        _ => return outcome(event),
    })
}

fn outcome(event: &Event) -> Option<(String, &'static str)> {
    Some(match event {
        Event::DelegateFinished { status, merged, error, .. } => match error {
            Some(error) => (format!("Delegated part {status}: {error}"), "bad"),
            None => (format!("Delegated part {status}, {} merged", counted(*merged, "file")), ""),
        },
        Event::Connection { host, port, allowed: true, received, .. } => {
            (format!("Connected to {host}:{port}, {received} bytes"), "")
        }
        Event::Connection { host, port, reason, .. } => {
            let reason = reason.as_deref().map(|reason| format!(", {reason}")).unwrap_or_default();
            (format!("Refused: connection to {host}:{port}{reason}"), "bad")
        }
        Event::CheckFinished { command, exit_code, duration_ms, output } => {
            let took = duration_text(*duration_ms);
            match exit_code {
                Some(0) => (format!("Check {command}: passed in {took}"), ""),
                _ => (format!("Check {command}: failed in {took}\n{output}"), "bad"),
            }
        }
        _ => return None,
    })
}

fn plan(steps: &[PlanStep]) -> String {
    let line = |step: &PlanStep| {
        let mark = match step.status {
            StepStatus::Pending => '☐',
            StepStatus::InProgress => '◐',
            StepStatus::Completed => '☑',
        };
        format!("{mark} {}", step.text)
    };
    steps.iter().map(line).collect::<Vec<_>>().join("\n")
}
