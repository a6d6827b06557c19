//! How a command ended, for the model, the trace and the events.

use super::{Collector, ToolResult};
use agent_base::duration_text::duration_text;
use agent_base::error::Result;
use agent_event::Event;
use agent_event::Events;
use agent_model::compact::TIMED_OUT;
pub use agent_model::results::NO_OUTPUT;
use agent_sandbox::Finished;
use agent_sandbox::Outcome;
use agent_sandbox::wire;
use std::time::Duration;

/// Emits an event for each of the sandbox's limits that a command reached.
pub fn report_limits(events: &Events, finished: &Finished) -> Result<()> {
    let mut reached = finished.limits_reached();
    reached.try_for_each(|limit| events.emit(Event::LimitReached { limit: limit.to_owned() }))
}

/// Describes the end of a command.
pub fn describe(outcome: Outcome, timeout: Option<Duration>) -> String {
    match outcome {
        Outcome::Exited(code) => format!("exit code {code}"),
        Outcome::TimedOut => match timeout {
            Some(limit) => format!("{TIMED_OUT} after {} s", limit.as_secs_f64()),
            None => TIMED_OUT.to_owned(),
        },
        Outcome::OomKilled => "killed: out of memory".to_owned(),
        Outcome::OverQuota { bytes } => {
            format!("killed: {}; remove what is not needed", wire::quota_used_up(bytes))
        }
        Outcome::Signaled(libc::SIGXFSZ) => {
            format!("killed by signal {}: a file grew past the disk quota", libc::SIGXFSZ)
        }
        Outcome::Signaled(signal) => format!("killed by signal {signal}"),
        Outcome::Lost => "lost: the sandbox did not say how the command ended".to_owned(),
    }
}

/// Describes the end of a command of the user's and the time that it took: `exit 0 in 12 ms`.
pub fn ending(finished: &Finished) -> String {
    let how = match finished.outcome {
        Outcome::Exited(code) => format!("exit {code}"),
        Outcome::Signaled(signal) => format!("killed by signal {signal}"),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::OomKilled => "killed: out of memory".to_owned(),
        Outcome::OverQuota { bytes } => format!("killed: {}", wire::quota_used_up(bytes)),
        Outcome::Lost => "lost: the sandbox did not say how it ended".to_owned(),
    };
    let time = duration_text(finished.duration.as_millis() as u64);
    match finished.left_running {
        0 => format!("{how} in {time}"),
        left => format!("{how} in {time}; {left} process(es) are still running"),
    }
}

/// The result of a command: how it ended, what it left behind, its output.
pub fn command_result(finished: &Finished, timeout: Option<Duration>, collector: Collector) -> ToolResult {
    let exit_code = match finished.outcome {
        Outcome::Exited(code) => Some(code),
        _ => None,
    };
    let collected = collector.finish(finished.spool.as_deref());
    let mut text =
        format!("{}, {:.2} s\n", describe(finished.outcome, timeout), finished.duration.as_secs_f64());
    if finished.left_running > 0 {
        text += &format!("{} process(es) that it started are still running\n", finished.left_running);
    }
    if finished.oom_kills > 0 && finished.outcome != Outcome::OomKilled {
        text += &format!("{} process(es) were killed meanwhile: out of memory\n", finished.oom_kills);
    }
    text += match collected.text.is_empty() {
        true => NO_OUTPUT,
        false => &collected.text,
    };
    ToolResult {
        ok: exit_code == Some(0),
        exit_code,
        truncated: collected.truncated,
        text,
        ..ToolResult::default()
    }
}
