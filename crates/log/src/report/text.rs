//! The report for a terminal.

use super::{Command, Delegated, Produced, Report};
use agent_base::count_text::counted;
use agent_base::duration_text::duration_text as duration;
use agent_base::sanitise::one_line;
use agent_event::Artifact;

/// The report as text, sanitised for a terminal.
pub(super) fn render(report: &Report) -> String {
    let mut out = facts(report);
    section(&mut out, "Prompts", report.prompts.iter().map(|prompt| line(prompt)));
    section(&mut out, "Commands", report.commands.iter().map(command));
    section(&mut out, "Delegated", report.delegated.iter().map(part));
    let files = report.files.iter().map(|file| {
        let failures = if file.failures > 0 { format!(", {} failed", file.failures) } else { String::new() };
        format!("{} ({} read, {} written{failures})", line(&file.path), file.reads, file.writes)
    });
    section(&mut out, "Files", files);
    let hosts = report.hosts.iter().map(|host| {
        let failed = if host.failed > 0 { format!(", {} failed", host.failed) } else { String::new() };
        let (sent, received) = (host.sent, host.received);
        let (name, port) = (line(&host.host), host.port);
        format!(
            "{name}:{port} ({} allowed{failed}, {} refused, {sent} bytes out, {received} in)",
            host.allowed, host.refused
        )
    });
    section(&mut out, "Hosts", hosts);
    section(
        &mut out,
        "Refused",
        report.denied.iter().map(|denied| format!("{}: {}", line(&denied.what), line(&denied.rule))),
    );
    let packages = report.packages.iter().map(|installed| {
        let outcome = match installed.ok {
            Some(true) => "",
            Some(false) => " (the command failed)",
            None => " (requested: the exit code does not show whether it was installed)",
        };
        format!("{} {}{outcome}", installed.package.manager, line(&installed.package.name))
    });
    section(&mut out, "Packages", packages);
    let artifacts = report.artifacts.iter().map(|Produced { artifact, .. }| {
        let Artifact { id, name, media_type, bytes, .. } = artifact;
        format!("{}  {} ({}, {bytes} bytes)", line(id), line(name), line(media_type))
    });
    section(&mut out, "Artifacts", artifacts);
    section(&mut out, "Limits reached", report.limits.iter().map(|limit| line(limit)));
    let checks = report.checks.iter().map(|check| {
        format!("{:>9} {:>8}  {}", exit(check.exit_code), duration(check.duration_ms), line(&check.command))
    });
    section(&mut out, "Checks", checks);
    section(&mut out, "Notices", report.notices.iter().map(|notice| line(notice)));
    out
}

/// One line for each thing that every session has.
fn facts(report: &Report) -> String {
    let Report { usage, changes, sandbox, .. } = report;
    let error = report.error.as_deref().map(|error| format!(": {}", line(error))).unwrap_or_default();
    let facts = [
        ("session", format!("{}, {}{error}", report.session, report.status)),
        ("workspace", line(&report.workspace)),
        (
            "changes",
            format!("{} added, {} modified, {} deleted", changes.added, changes.modified, changes.deleted),
        ),
        ("model", line(&report.model_and_endpoint())),
        ("sandbox", format!("{}, network {}", line(&sandbox.backend), line(&sandbox.network))),
        ("time", format!("{} to {}", report.began, report.ended)),
        ("", format!("model {}, tools {}", duration(report.model_ms), duration(report.tools_ms))),
        ("turns", format!("{}, {} retries", report.turns, report.retries)),
        ("tokens", format!("{} in ({} cached), {} out", usage.input, usage.cached, usage.output)),
    ];
    facts.iter().map(|(name, fact)| format!("{name:<10} {fact}\n")).collect()
}

fn section(out: &mut String, title: &str, lines: impl ExactSizeIterator<Item = String>) {
    if lines.len() > 0 {
        out.push_str(&format!("\n{title} ({})\n", lines.len()));
        out.extend(lines.map(|line| format!("  {line}\n")));
    }
}

fn command(command: &Command) -> String {
    let (exit, time) = (exit(command.exit_code), duration(command.duration_ms));
    format!("{exit:>9} {time:>8}  {}", line(&command.command))
}

/// A delegated part, and below it what its session did.
fn part(part: &Delegated) -> String {
    let Delegated { session, task, status, error, turns, usage, merged, conflicts, outside, .. } = part;
    let error = error.as_deref().map(|error| format!(": {}", line(error))).unwrap_or_default();
    let time = duration(part.duration_ms);
    let mut text = format!("{} {}{error} in {time}: {}", line(session), line(status), line(task));
    let mut add = |entry: String| text.push_str(&format!("\n    {entry}"));
    add(format!(
        "{}, {} tokens in, {} out, {} merged",
        counted(*turns, "turn"),
        usage.input,
        usage.output,
        counted(*merged, "file")
    ));
    conflicts.iter().for_each(|path| add(format!("conflict: {}", line(path))));
    outside.iter().for_each(|path| add(format!("outside of its paths: {}", line(path))));
    if let Some(report) = &part.report {
        report.commands.iter().for_each(|ran| add(command(ran)));
        report
            .files
            .iter()
            .filter(|file| file.writes > 0)
            .for_each(|file| add(format!("wrote {}", line(&file.path))));
    }
    text
}

/// The text on one line, safe for a terminal.
fn line(text: &str) -> String {
    one_line(text, 200)
}

/// An exit code, or that there was none.
pub(super) fn exit(code: Option<i32>) -> String {
    code.map_or_else(|| "no exit".to_owned(), |code| format!("exit {code}"))
}
