//! The report as one HTML page without scripts and network access. Everything from the session is escaped.

use super::text::exit;
use super::{Command, Delegated, Produced, Report};
use agent_base::count_text::counted;
use agent_base::duration_text::duration_text as duration;
use agent_base::visible::is_hidden;
use agent_event::Artifact;
use agent_picture::Header;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// Asks for the coloured form of an emoji.
const EMOJI_FORM: char = '\u{fe0f}';
const STYLE: &str = include_str!("page.css");

/// Bytes of images that one page has; further ones are only named.
const MAX_IMAGES: usize = 32 << 20;

/// The page.
pub(super) fn page(report: &Report, read: &dyn Fn(&Artifact) -> Option<Vec<u8>>) -> String {
    let body = [
        summary(report),
        prompts(report),
        commands(report),
        delegated(report),
        touched(report),
        artifacts(report, read),
        outcome(report),
    ];
    document(&format!("Session {}", report.session), &body.concat())
}

/// A page with this title and this body, which is HTML. Its content security policy allows its own style sheet, by hash, and
/// images that are in the page itself.
pub fn document(title: &str, body: &str) -> String {
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    let images = if body.contains("<img ") { " img-src data:;" } else { "" };
    let policy =
        format!("default-src 'none'; style-src 'sha256-{hash}';{images} base-uri 'none'; form-action 'none'");
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

/// Text as HTML or XML. Hidden characters are shown as their code.
pub fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            '\n' | '\t' => html.push(c),
            c if is_hidden(c) && c != EMOJI_FORM => html.extend(c.escape_unicode()),
            c => html.push(c),
        }
    }
    html
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", escape(text))
}

/// The time of day of an RFC 3339 time; the date is at the top of the page.
fn clock(time: &str) -> String {
    escape(time.get(11..19).unwrap_or(time))
}

fn verdict(ok: bool, text: &str) -> String {
    format!("<span class=\"{}\">{}</span>", if ok { "good" } else { "bad" }, escape(text))
}

fn summary(report: &Report) -> String {
    let Report { usage, changes, sandbox, .. } = report;
    let image = sandbox.image.as_deref().map(|image| format!(", image {image}")).unwrap_or_default();
    let error = report.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    let facts = [
        ("Status", verdict(report.status == "completed", &format!("{}{error}", report.status))),
        ("Workspace", code(&report.workspace)),
        (
            "Changes",
            format!("{} added, {} modified, {} deleted", changes.added, changes.modified, changes.deleted),
        ),
        ("Model", escape(&report.model_and_endpoint())),
        ("Sandbox", escape(&format!("{}{image}", sandbox.backend))),
        ("Network", escape(&sandbox.network)),
        ("Time", format!("model {}, tools {}", duration(report.model_ms), duration(report.tools_ms))),
        ("Turns", format!("{}, {} retries", report.turns, report.retries)),
        ("Tokens", format!("{} in ({} cached), {} out", usage.input, usage.cached, usage.output)),
    ];
    let facts: String =
        facts.iter().map(|(name, fact)| format!("<div><dt>{name}</dt><dd>{fact}</dd></div>\n")).collect();
    let (began, ended) = (escape(&report.began), escape(&report.ended));
    format!(
        "<p class=\"about\">{began} to {ended}: what it touched, from the session file alone.</p>\n<dl>\n{facts}</dl>\n"
    )
}

fn prompts(report: &Report) -> String {
    section(
        "Prompts",
        report.prompts.iter().map(|prompt| format!("<blockquote>{}</blockquote>\n", escape(prompt))),
    )
}

fn commands(report: &Report) -> String {
    let row = |command: &Command| {
        let exit = verdict(command.ok, &exit(command.exit_code));
        [clock(&command.time), code(&command.command), exit, duration(command.duration_ms)]
    };
    table("Commands", ["When", "Command", "", "Time"], report.commands.iter().map(row))
}

/// Each delegated part, with what its session did below it.
fn delegated(report: &Report) -> String {
    section("Delegated", report.delegated.iter().map(part))
}

fn part(part: &Delegated) -> String {
    let Delegated { session, task, status, error, turns, usage, merged, conflicts, outside, .. } = part;
    let error = error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    let status = verdict(status == "completed", &format!("{status}{error}"));
    let about = escape(&format!(
        "{}, {}, {} tokens in, {} out, {} merged",
        duration(part.duration_ms),
        counted(*turns, "turn"),
        usage.input,
        usage.output,
        counted(*merged, "file")
    ));
    let named = |what: &str, paths: &[String]| match paths {
        [] => String::new(),
        paths => format!("<p>{}</p>\n", verdict(false, &format!("{what}: {}", paths.join(", ")))),
    };
    let (conflicts, outside) = (named("Conflicts", conflicts), named("Outside of its paths", outside));
    let below = part.report.as_ref().map(|report| commands(report) + &touched(report)).unwrap_or_default();
    let (session, task) = (code(session), escape(task));
    format!(
        "<details open>\n<summary>{session} {status}, {about}</summary>\n<blockquote>{task}</blockquote>\n\
         {conflicts}{outside}{below}</details>\n"
    )
}

/// Files, hosts, refusals, packages.
fn touched(report: &Report) -> String {
    let files = report.files.iter().map(|file| {
        let failures =
            if file.failures == 0 { String::new() } else { verdict(false, &file.failures.to_string()) };
        [code(&file.path), file.reads.to_string(), file.writes.to_string(), failures]
    });
    let hosts = report.hosts.iter().map(|host| {
        let refused = verdict(host.refused == 0, &host.refused.to_string());
        let name = code(&format!("{}:{}", host.host, host.port));
        let failed = verdict(host.failed == 0, &host.failed.to_string());
        [name, host.allowed.to_string(), failed, refused, host.sent.to_string(), host.received.to_string()]
    });
    let denied =
        report.denied.iter().map(|denied| [clock(&denied.time), code(&denied.what), escape(&denied.rule)]);
    let packages = report.packages.iter().map(|installed| {
        let ok = match installed.ok {
            Some(true) => verdict(true, "installed"),
            Some(false) => verdict(false, "failed"),
            None => "requested".to_owned(),
        };
        [escape(&installed.package.manager), code(&installed.package.name), ok]
    });
    [
        table("Files", ["Path", "Read", "Written", "Failed"], files),
        table("Hosts", ["Host", "Allowed", "Failed", "Refused", "Bytes out", "Bytes in"], hosts),
        table("Refused", ["When", "What", "Rule"], denied),
        table("Packages", ["Manager", "Package", ""], packages),
    ]
    .concat()
}

/// Images, and the names of other files.
fn artifacts(report: &Report, read: &dyn Fn(&Artifact) -> Option<Vec<u8>>) -> String {
    let mut left = MAX_IMAGES;
    let figures = report.artifacts.iter().map(|Produced { artifact, .. }| {
        let Artifact { id, name, media_type, bytes, .. } = artifact;
        let image = read(artifact).filter(|bytes| bytes.len() <= left).and_then(|bytes| {
            let header = Header::of(&bytes).ok()?;
            left -= bytes.len();
            let (name, data) = (escape(name), STANDARD.encode(&bytes));
            Some(format!("<img alt=\"{name}\" src=\"data:{};base64,{data}\">\n", header.format.media_type()))
        });
        let (image, name) = (image.unwrap_or_default(), code(name));
        let about = escape(&format!("{media_type}, {bytes} bytes, {id}"));
        format!("<figure>\n{image}<figcaption>{name} {about}</figcaption>\n</figure>\n")
    });
    section("Artifacts", figures.collect::<Vec<_>>().into_iter())
}

/// Limits, checks, notices.
fn outcome(report: &Report) -> String {
    let checks = report.checks.iter().map(|check| {
        let passed = verdict(check.exit_code == Some(0), &exit(check.exit_code));
        [code(&check.command), passed, duration(check.duration_ms)]
    });
    let paragraph = |text: &String| format!("<p>{}</p>\n", escape(text));
    [
        section("Limits reached", report.limits.iter().map(paragraph)),
        table("Checks", ["Command", "", "Time"], checks),
        section("Notices", report.notices.iter().map(paragraph)),
    ]
    .concat()
}

/// A heading with the number of entries, and the entries; empty if there are none.
fn section(title: &str, parts: impl ExactSizeIterator<Item = String>) -> String {
    match parts.len() {
        0 => String::new(),
        count => format!("<h2>{title} <small>{count}</small></h2>\n{}", parts.collect::<String>()),
    }
}

/// A section that is a table; cells are HTML.
fn table<const N: usize>(
    title: &str,
    head: [&str; N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
) -> String {
    if rows.len() == 0 {
        return String::new();
    }
    let count = rows.len();
    let head: String = head.iter().map(|cell| format!("<th>{cell}</th>")).collect();
    let rows: String = rows
        .map(|row| format!("<tr>{}</tr>\n", row.map(|cell| format!("<td>{cell}</td>")).concat()))
        .collect();
    format!("<h2>{title} <small>{count}</small></h2>\n<table>\n<tr>{head}</tr>\n{rows}</table>\n")
}
