//! The report on a session.

use agent_event::{Event, Record, Usage};
use agent_log::report::Report;
use agent_picture::Pixels;
use agent_testing::session_samples::{
    answer, artifact, prompt, record, started, tool_finished, tool_started,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

fn connection(host: &str, allowed: bool) -> Event {
    Event::Connection {
        host: host.to_owned(),
        port: 443,
        allowed,
        sent: 10,
        received: 20,
        duration_ms: 1,
        reason: None,
    }
}

/// An allowed connection to a name that does not resolve.
fn unreachable(host: &str) -> Event {
    Event::Connection {
        host: host.to_owned(),
        port: 443,
        allowed: true,
        sent: 0,
        received: 0,
        duration_ms: 1,
        reason: Some("the name does not resolve".to_owned()),
    }
}

fn failed(id: &str, name: &str, code: i32) -> Event {
    Event::ToolFinished {
        id: id.to_owned(),
        name: name.to_owned(),
        ok: false,
        exit_code: Some(code),
        duration_ms: 1500,
        truncated: false,
        result: "exit code 1".to_owned(),
        content: Vec::new(),
        edits: Vec::new(),
    }
}

fn session() -> Vec<Record> {
    let events = [
        started(),
        prompt("fix it"),
        Event::TurnStarted { turn: 1 },
        Event::Retry { attempt: 1, wait_ms: 5, reason: "429".to_owned() },
        answer("", Vec::new()),
        tool_started("1", "run_commands", json!({"command": "pip install requests &&\npytest"})),
        failed("1", "run_commands", 1),
        tool_started("2", "read_file", json!({"path": "/workspace/src/a.py"})),
        tool_finished("2", "read_file", "…"),
        tool_started(
            "3",
            "write_files",
            json!({"files": [{"path": "src/a.py", "data": ""}, {"path": "b", "data": ""}]}),
        ),
        tool_finished("3", "write_files", "wrote 2 files"),
        tool_started("4", "edit_file", json!({"path": "./b", "old": "", "new": ""})),
        failed("4", "edit_file", 0),
        tool_started("5", "run_commands", json!("{not JSON")),
        failed("5", "run_commands", 2),
        connection("example.org", true),
        unreachable("example.org"),
        connection("example.org", false),
        Event::Denied { what: "connect to 10.0.0.1:22".to_owned(), rule: "private address".to_owned() },
        Event::CheckFinished {
            command: "cargo test".to_owned(),
            exit_code: Some(0),
            duration_ms: 61_000,
            output: String::new(),
        },
        Event::LimitReached { limit: "tokens".to_owned() },
        Event::Notice { text: "2 files are excluded".to_owned() },
        Event::Artifact { artifact: artifact("plot.png", "image/png"), tool_call: "4".to_owned() },
        tool_started("6", "run_commands", json!({"command": "sleep 100"})),
    ];
    let records = (1..).zip(events).map(|(seq, event)| record(seq, event));
    let at = |record: Record| Record { time: format!("2026-11-20T15:30:{:02}.500Z", record.seq), ..record };
    records.map(at).collect()
}

#[test]
fn the_report_names_everything_that_the_session_touched() {
    insta::assert_snapshot!(Report::on(&session()).to_text());
}

#[test]
fn the_report_as_json_has_the_same_data() {
    let report = serde_json::to_value(Report::on(&session())).unwrap();
    assert_eq!(report["packages"], json!([{"manager": "pip", "name": "requests", "ok": null}]));
    assert_eq!(report["hosts"][0]["allowed"], 1);
    assert_eq!(report["hosts"][0]["failed"], 1, "a name that does not resolve is a failed connection");
    assert_eq!(report["files"][0], json!({"path": "b", "reads": 0, "writes": 1, "failures": 1}));
    assert_eq!(report["model_ms"], 2000);
    assert_eq!(
        report["usage"],
        serde_json::to_value(Usage { input: 10, output: 5, cached: 2, written: 0 }).unwrap()
    );
    assert_eq!(report["commands"][2]["time"], "");
}

#[test]
fn the_page_needs_no_network_and_escapes_everything() {
    let hostile = "<script>alert(1)</script><img src=x onerror=y>\u{1b}[2J\u{202e}\"'&";
    let mut records = session();
    records.push(record(90, prompt(hostile)));
    records.push(record(91, Event::Denied { what: hostile.to_owned(), rule: hostile.to_owned() }));
    records.push(record(92, tool_started("7", "run_commands", json!({"command": hostile}))));
    records.push(record(93, tool_started("8", "read_file", json!({"path": hostile}))));
    records.push(record(94, connection(hostile, false)));
    records.push(Record { session: hostile.to_owned(), ..record(95, started()) });
    let page = Report::on(&records).to_html(|_| None);
    assert!(page.contains("default-src 'none'; style-src 'sha256-"));
    assert!(page.matches("&lt;script&gt;alert(1)&lt;/script&gt;").count() >= 6);
    for forbidden in
        ["<script", "<img", "\u{1b}", "\u{202e}", "http://", "https://", "url(", "@import", "src=\""]
    {
        let quoted = page.replace("http://127.0.0.1:1/v1", "");
        assert!(!quoted.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn an_empty_session_has_an_empty_report() {
    let report = Report::on(&[]);
    assert_eq!(report.status, "unfinished");
    assert!(report.to_text().contains("unfinished"));
    assert!(report.to_html(|_| None).ends_with("</html>\n"));
}

/// An image is in the page only if its bytes are one, whatever the event says of them.
#[test]
fn images_are_in_the_page_and_nothing_else_is() {
    let png = Pixels { width: 2, height: 2, rgb: vec![7; 12] }.to_png().unwrap();
    let mut records = session();
    for (seq, name) in [(90, "good.png"), (91, "<img src=x>\".png"), (92, "missing.png")] {
        let artifact = artifact(name, "text/html\"><script>");
        records.push(record(seq, Event::Artifact { artifact, tool_call: "1".to_owned() }));
    }
    let page = Report::on(&records).to_html(|artifact| match artifact.name.as_str() {
        "good.png" => Some(png.clone()),
        "missing.png" => None,
        _ => Some(b"<svg onload=alert(1)>".to_vec()),
    });
    assert!(page.contains("; img-src data:; base-uri 'none'"), "{page}");
    let image = format!("<img alt=\"good.png\" src=\"data:image/png;base64,{}\">", STANDARD.encode(&png));
    assert_eq!((page.matches("<img ").count(), page.matches(&image).count()), (1, 1), "{page}");
    assert!(
        page.contains("&lt;img src=x&gt;&quot;.png") && !page.contains("<script") && !page.contains("<svg")
    );
}
