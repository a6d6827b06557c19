//! `[telemetry]`: spans and metrics at a collector, nothing of contents, and no session that waits for one.

use agent_testbed::agent::agent;
use agent_testing::endpoint::{Endpoint, endpoint};
use agent_testing::skip;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A request to the collector: path, headers in lower case, body.
type Received = (String, String, String);

/// A collector that keeps what it gets.
struct Collector {
    address: String,
    received: Arc<Mutex<Vec<Received>>>,
}

fn collector() -> Collector {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().unwrap());
    let received: Arc<Mutex<Vec<Received>>> = Arc::default();
    let kept = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || {
                while let Some(request) = take(&stream) {
                    kept.lock().unwrap().push(request)
                }
            });
        }
    });
    Collector { address, received }
}

/// Reads one request and answers it; `None` where the client has closed the connection.
fn take(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let (mut headers, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_lowercase();
        if line.is_empty() {
            break;
        }
        length = line.strip_prefix("content-length: ").map_or(length, |length| length.parse().unwrap());
        headers += &format!("{line}\n");
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").ok()?;
    Some((first.split(' ').nth(1)?.to_owned(), headers, String::from_utf8(body).unwrap()))
}

impl Collector {
    fn bodies(&self, path: &str) -> Vec<Value> {
        let received = self.received.lock().unwrap();
        let of_path = received.iter().filter(|(at, ..)| at == path);
        of_path.map(|(_, _, body)| serde_json::from_str(body).expect("JSON")).collect()
    }

    fn spans(&self) -> Vec<Value> {
        let bodies = self.bodies("/v1/traces");
        let spans = bodies.iter().map(|body| &body["resourceSpans"][0]["scopeSpans"][0]["spans"]);
        spans.flat_map(|spans| spans.as_array().expect("spans").clone()).collect()
    }

    fn text(&self) -> String {
        self.received.lock().unwrap().iter().map(|(_, _, body)| body.as_str()).collect()
    }
}

/// The attributes of a span or of a point, as text.
fn attributes(of: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| match value.as_object().and_then(|value| value.values().next()) {
        Some(Value::String(text)) => text.clone(),
        other => other.map(Value::to_string).unwrap_or_default(),
    };
    let all = of["attributes"].as_array().expect("attributes").iter();
    all.map(|attribute| (attribute["key"].as_str().unwrap().to_owned(), text(&attribute["value"]))).collect()
}

fn model() -> Endpoint {
    endpoint()
        .tool_call("write_file", json!({ "path": "needle-path", "data": "needle-data\n" }))
        .tool_call("run_commands", json!({ "command": "cat needle-path; exit 3" }))
        .text("needle-answer")
        .start()
}

const PRICES: &str = "[prices.test-model]\ninput = 100000.0\noutput = 0.0\n";
const CALL: [&str; 7] =
    ["run", "-q", "--apply", "--check", "test -e needle-path", "--session-key=k", "needle-prompt"];

#[test]
fn a_session_is_a_trace_of_prompt_turns_calls_check_and_apply_without_contents() {
    let (collector, model) = (collector(), model());
    let config =
        format!("[telemetry]\notlp = \"{}/\"\nheaders = {{ x-key = \"k1\" }}\n{PRICES}", collector.address);
    let done = agent().config(&config).endpoint(&model).args(CALL).run().expect_code(0);
    assert_eq!(done.stdout, "needle-answer\n");
    let spans = collector.spans();
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    let count = |name: &str| names.iter().filter(|found| **found == name).count();
    let expected = [
        ("invoke_agent agent", 1),
        ("chat test-model", 3),
        ("execute_tool write_file", 1),
        ("execute_tool run_commands", 1),
        ("check", 1),
        ("apply", 1),
    ];
    assert_eq!(expected.map(|(name, _)| (name, count(name))), expected, "{names:?}");
    let of = |name: &str| spans.iter().find(|span| span["name"] == name).unwrap();
    let prompt = of("invoke_agent agent");
    assert!(prompt.get("parentSpanId").is_none());
    for span in spans.iter().filter(|span| span["name"] != "invoke_agent agent") {
        assert_eq!(
            (&span["traceId"], &span["parentSpanId"]),
            (&prompt["traceId"], &prompt["spanId"]),
            "{span}"
        );
        let time = |name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano") && time("startTimeUnixNano") > 1 << 60);
    }
    let chat = attributes(of("chat test-model"));
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", "test-model"),
        ("gen_ai.provider.name", "127.0.0.1"),
        ("gen_ai.usage.input_tokens", "10"),
    ] {
        assert_eq!(chat.get(name).map(String::as_str), Some(value), "{name}: {chat:?}");
    }
    let call = of("execute_tool run_commands");
    assert_eq!(attributes(call)["process.exit.code"], "3");
    assert_eq!(attributes(of("apply"))["agent.files.added"], "1");
    check_metrics(&collector);
    assert!(!collector.text().contains("needle"), "nothing of contents");
    assert!(collector.received.lock().unwrap().iter().all(|(_, headers, _)| headers.contains("x-key: k1")));
    decode(&collector);
}

/// Three turns of ten tokens each, at a price of one for ten.
fn check_metrics(collector: &Collector) {
    let metrics: Vec<Value> = collector.bodies("/v1/metrics");
    let metrics: Vec<&Value> = metrics
        .iter()
        .flat_map(|body| body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap())
        .collect();
    let sum = |name: &str, kind: &str, field: &str| -> f64 {
        let points = metrics
            .iter()
            .filter(|metric| metric["name"] == name)
            .flat_map(|metric| metric[kind]["dataPoints"].as_array().unwrap());
        points
            .filter(|point| attributes(point).get("gen_ai.token.type").is_none_or(|kind| kind == "input"))
            .map(|point| point[field].as_f64().unwrap())
            .sum()
    };
    assert_eq!(sum("gen_ai.client.token.usage", "histogram", "sum"), 30.0);
    assert_eq!(sum("agent.cost", "sum", "asDouble"), 3.0);
    assert!(sum("gen_ai.client.operation.duration", "histogram", "sum") > 0.0);
}

/// Reads every body as the messages of OTLP, where an unknown field or a wrong type is an error. What is not named `agent.` has a name that the
/// conventions have published.
fn decode(collector: &Collector) {
    const SCRIPT: &str = "
import importlib, json, pkgutil, re, sys
import opentelemetry.semconv._incubating.attributes as attributes
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
modules = [importlib.import_module(attributes.__name__ + '.' + found.name) for found in pkgutil.iter_modules(attributes.__path__)]
published = {value for module in [*modules, gen_ai_metrics] for value in vars(module).values() if isinstance(value, str)}
for path, body in json.load(sys.stdin):
    names = set(re.findall(r'\"key\":\"([^\"]+)\"', body)) | set(re.findall(r'\"name\":\"(gen_ai[^\"]+)\"', body))
    unknown = {name for name in names if not name.startswith('agent.')} - published
    assert names and not unknown, unknown
    Parse(body, {'/v1/traces': ExportTraceServiceRequest, '/v1/metrics': ExportMetricsServiceRequest}[path]())
    print(path)
";
    let Some(python) = python_with_messages() else { return };
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let bodies: Vec<_> =
        collector.received.lock().unwrap().iter().map(|(path, _, body)| json!([path, body])).collect();
    child.stdin.take().unwrap().write_all(json!(bodies).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), bodies.len());
}

/// A Python that has OpenTelemetry's own messages.
fn python_with_messages() -> Option<PathBuf> {
    // Two tests need it.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _installing = INSTALLING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let environment = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("otlp-names-0.66");
    let python = environment.join("bin/python");
    if !environment.join("installed").exists() {
        let install = "python3 -m venv \"$1\" && \"$1/bin/pip\" install -q --disable-pip-version-check opentelemetry-proto~=1.30 opentelemetry-semantic-conventions==0.66b2 && touch \"$1/installed\"";
        let installed = Command::new("sh").args(["-c", install, "sh"]).arg(&environment).output().unwrap();
        if !installed.status.success() {
            skip::missing("opentelemetry-proto and opentelemetry-semantic-conventions, from PyPI");
            return None;
        }
    }
    Some(python)
}

#[test]
fn contents_are_sent_where_the_user_asks_for_them() {
    let (collector, model) = (collector(), model());
    let config = format!("[telemetry]\notlp = \"{}\"\ncontent = true\n", collector.address);
    agent().config(&config).endpoint(&model).args(CALL).run().expect_code(0);
    for part in ["needle-prompt", "needle-answer", "needle-path", "needle-data"] {
        assert!(collector.text().contains(part), "{part}");
    }
    decode(&collector);
}

#[test]
fn a_collector_that_is_away_or_silent_neither_breaks_nor_delays_a_session() {
    let run = |config: &str| {
        let (model, started) = (model(), Instant::now());
        let done = agent().config(config).endpoint(&model).args(CALL).run().expect_code(0);
        assert_eq!(done.stdout, "needle-answer\n");
        (started.elapsed(), done.stderr)
    };
    let (alone, quiet) = run("");
    assert!(!quiet.contains("telemetry"), "{quiet}");
    // Accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (took, said) = run(&format!("[telemetry]\notlp = \"http://{address}\"\n"));
    assert!(said.contains("telemetry could not be sent: the collector did not answer for 2 s"), "{said}");
    assert!(took < alone + Duration::from_secs(10), "{took:?} beside {alone:?}");
    drop(silent);
    let (_, said) = run(&format!("[telemetry]\notlp = \"http://{address}\"\n"));
    assert!(said.contains("telemetry could not be sent: Connection refused"), "{said}");
}

#[test]
fn an_address_that_is_none_is_an_error_of_the_configuration() {
    let model = endpoint().text("never").start();
    for wrong in [
        "otlp = \"localhost:4318\"",
        "otlp = \"http://x\"\nheaders = { \"a b\" = \"c\" }",
        "oltp = \"http://x\"",
    ] {
        let refused =
            agent().config(&format!("[telemetry]\n{wrong}\n")).endpoint(&model).args(["run", "hi"]).run();
        assert_eq!(refused.code, 2, "{wrong}: {}", refused.stderr);
    }
}
