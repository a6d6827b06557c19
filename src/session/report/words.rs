//! The report for a terminal.

use super::Report;

/// The report in words. What it quotes is not made safe for a terminal; line breaks in it are.
pub(super) fn words(report: &Report) -> String {
    let Report { usage, changes, sandbox, .. } = report;
    let error = report.error.as_deref().map(|error| format!(": {}", line(error))).unwrap_or_default();
    let facts = [
        ("session", format!("{}, {}{error}", report.session, report.status)),
        ("workspace", line(&report.workspace)),
        (
            "changes",
            format!("{} added, {} modified, {} deleted", changes.added, changes.modified, changes.deleted),
        ),
        ("model", format!("{} at {}", line(&report.model), line(&report.base_url))),
        ("sandbox", format!("{}, network {}", line(&sandbox.backend), line(&sandbox.network))),
        ("time", format!("{} to {}", report.began, report.ended)),
        ("", format!("model {}, tools {}", duration(report.model_ms), duration(report.tools_ms))),
        ("turns", format!("{}, {} retries", report.turns, report.retries)),
        ("tokens", format!("{} in ({} cached), {} out", usage.input, usage.cached, usage.output)),
    ];
    let mut out: String = facts.iter().map(|(name, fact)| format!("{name:<10} {fact}\n")).collect();
    section(&mut out, "Wishes", report.wishes.iter().map(|wish| line(wish)));
    let commands = report.commands.iter().map(|command| {
        format!(
            "{:>9} {:>8}  {}",
            exit(command.exit_code),
            duration(command.duration_ms),
            line(&command.command)
        )
    });
    section(&mut out, "Commands", commands);
    let files = report.files.iter().map(|file| {
        let failures = if file.failures > 0 { format!(", {} failed", file.failures) } else { String::new() };
        format!("{} ({} read, {} written{failures})", line(&file.path), file.reads, file.writes)
    });
    section(&mut out, "Files", files);
    let hosts = report.hosts.iter().map(|host| {
        let (sent, received) = (host.sent, host.received);
        let (name, port) = (line(&host.host), host.port);
        format!(
            "{name}:{port} ({} let through, {} refused, {sent} bytes out, {received} in)",
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
        let failed = if installed.ok { "" } else { " (the command failed)" };
        format!("{} {}{failed}", installed.package.manager, line(&installed.package.name))
    });
    section(&mut out, "Packages", packages);
    section(&mut out, "Limits reached", report.limits.iter().map(|limit| line(limit)));
    let checks = report.checks.iter().map(|check| {
        format!("{:>9} {:>8}  {}", exit(check.exit_code), duration(check.duration_ms), line(&check.command))
    });
    section(&mut out, "Checks", checks);
    section(&mut out, "Notices", report.notices.iter().map(|notice| line(notice)));
    out
}

fn section(out: &mut String, title: &str, lines: impl ExactSizeIterator<Item = String>) {
    if lines.len() > 0 {
        out.push_str(&format!("\n{title} ({})\n", lines.len()));
        out.extend(lines.map(|line| format!("  {line}\n")));
    }
}

/// The text on one line.
fn line(text: &str) -> String {
    text.trim_end().replace('\n', " ⏎ ")
}

/// An exit code, or that there was none.
pub(super) fn exit(code: Option<i32>) -> String {
    code.map_or_else(|| "no exit".to_owned(), |code| format!("exit {code}"))
}

/// Milliseconds for people.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        60_000..3_600_000 => format!("{} m {:02} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {:02} m", ms / 3_600_000, ms / 60_000 % 60),
    }
}
