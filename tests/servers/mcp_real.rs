//! MCP servers of others, in the sandbox: those that `.ci/mcp-servers` installs, and one that `npx` downloads.

use agent_testbed::agent::{Agent, agent};
use agent_testing::endpoint::{Endpoint, endpoint};
use agent_testing::site::Site;
use serde_json::{Value, json};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

const SERVERS: &str = "/usr/local/lib/agent-mcp";

/// The configuration of a server `name`. Without it the test is skipped by name, but not in CI.
fn installed(name: &str, program: &str, arguments: &str, more: &str) -> Option<Agent> {
    let directory = Path::new(SERVERS).join(name);
    if !directory.join("installed").exists() {
        agent_testing::skip::missing("the servers that .ci/mcp-servers installs");
        return None;
    }
    Some(agent().deadline(Duration::from_secs(300)).config(&format!(
        "[mcp.servers.{name}]\ncommand = \"{}/{program}\"\nargs = {arguments}\n{more}\n",
        directory.display()
    )))
}

fn run(call: Agent, model: &Endpoint) -> agent_testbed::agent::Finished {
    call.endpoint(model).args(["run", "--json", "use it"]).run().expect_code(0)
}

fn results(model: &Endpoint) -> Vec<String> {
    let read = |request: &agent_testing::endpoint::Request| {
        request.messages().last().unwrap()["content"].as_str().unwrap_or_default().to_owned()
    };
    model.requests()[1..].iter().map(read).collect()
}

#[test]
fn mcp_server_time_tells_the_time() {
    let Some(call) = installed("time", "bin/mcp-server-time", "[]", "") else { return };
    let arguments = json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    let model = endpoint().tool_call("mcp__time__convert_time", arguments).text("Nine.").start();
    run(call, &model);
    let converted: Value = serde_json::from_str(&results(&model)[0]).unwrap();
    assert!(converted["target"]["datetime"].as_str().unwrap().contains("T21:00"), "{converted}");
}

#[test]
fn mcp_server_git_commits_in_the_sandbox() {
    let Some(call) = installed("git", "bin/mcp-server-git", "[]", "") else { return };
    let call = call.file("a.txt", "one\n");
    let git = "git init -q && git -c user.name=a -c user.email=a@a.example commit -q --allow-empty -m first && git config user.name a \
               && git config user.email a@a.example";
    let repository = json!({ "repo_path": "/workspace", "files": ["a.txt"] });
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": git }))
        .tool_call("mcp__git__git_add", repository)
        .tool_call("mcp__git__git_commit", json!({ "repo_path": "/workspace", "message": "second" }))
        .tool_call("run_commands", json!({ "command": "git log --oneline" }))
        .text("Committed.")
        .start();
    run(call, &model);
    assert!(results(&model)[3].contains("second"), "{:?}", results(&model));
}

#[test]
fn mcp_server_fetch_reaches_the_hosts_of_its_own_list() {
    let site = Site::http().file("/page.html", "<html><body><p>Served here.</p></body></html>");
    let arguments = "[\"--ignore-robots-txt\", \"--allow-private-ips\"]";
    let page = format!("http://{}/page.html", site.host_and_port());
    let list = format!("network = [\"{}\"]", site.host_and_port());
    let Some(call) = installed("fetch", "bin/mcp-server-fetch", arguments, &list) else { return };
    let model = endpoint()
        .tool_call("mcp__fetch__fetch", json!({ "url": page, "raw": true }))
        .tool_call("mcp__fetch__fetch", json!({ "url": "http://other.example/" }))
        .text("Fetched.")
        .start();
    let finished = run(call, &model);
    let results = results(&model);
    assert!(results[0].contains("Served here."), "{results:?}");
    assert!(results[1].contains("refused") || results[1].contains("403"), "{results:?}");
    let denied = finished.events_of("denied");
    assert!(denied[0]["rule"].as_str().unwrap().contains("[mcp.servers.fetch]"), "{denied:?}");
}

#[test]
fn mcp_server_sqlite_of_the_earlier_era_keeps_a_database_and_a_memo() {
    let arguments = "[\"--db-path\", \"/tmp/test.db\"]";
    let Some(call) = installed("sqlite", "bin/mcp-server-sqlite", arguments, "") else { return };
    let model = endpoint()
        .tool_call("mcp__sqlite__create_table", json!({ "query": "CREATE TABLE t (n INTEGER)" }))
        .tool_call("mcp__sqlite__write_query", json!({ "query": "INSERT INTO t VALUES (41)" }))
        .tool_call("mcp__sqlite__read_query", json!({ "query": "SELECT n + 1 AS answer FROM t" }))
        .tool_call("mcp__sqlite__append_insight", json!({ "insight": "it counts" }))
        .tool_call("mcp_read_resource", json!({ "server": "sqlite", "uri": "memo://insights" }))
        .text("42.")
        .start();
    run(call, &model);
    let results = results(&model);
    assert!(results[2].contains("42"), "{results:?}");
    assert!(results[4].contains("it counts"), "{results:?}");
}

#[test]
fn the_reference_server_of_npm_is_used_with_images_and_progress() {
    let program = "node_modules/.bin/mcp-server-everything";
    let Some(call) = installed("node", program, "[\"stdio\"]", "") else { return };
    let model = endpoint()
        .tool_call("mcp__node__echo", json!({ "message": "hello" }))
        .tool_call("mcp__node__get-tiny-image", json!({}))
        .text("Done.")
        .start();
    let finished = run(call, &model);
    assert!(results(&model)[0].contains("hello"), "{:?}", results(&model));
    assert_eq!(finished.events_of("artifact").len(), 1, "{:?}", results(&model));
}

#[test]
fn npx_downloads_a_server_within_the_list_of_the_server_alone() {
    if installed("node", "", "[]", "").is_none() {
        return;
    }
    let package = "@modelcontextprotocol/server-filesystem@2026.8.31";
    let call = agent();
    // The server knows directories by their names without symlinks.
    let file = call.workspace().join("new.txt");
    let model = endpoint()
        .tool_call("mcp__files__write_file", json!({ "path": file, "content": "from npm\n" }))
        .tool_call("run_commands", json!({ "command": "env | grep -i http_proxy; cat new.txt" }))
        .text("Written.")
        .start();
    // On a network that resolves the registry to an address of its own, that is named as well.
    let addresses = ("registry.npmjs.org", 443).to_socket_addrs().into_iter().flatten();
    let hosts: String = addresses.map(|address| format!(", \"{address}\"")).collect();
    let hosts = format!("\"registries\"{hosts}");
    // A proxy that opens TLS has a certificate of its own.
    let certificates = std::env::var("NODE_EXTRA_CA_CERTS").unwrap_or_default();
    let call = call.deadline(Duration::from_secs(400)).config(&format!(
        "[mcp.servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"{package}\", \"/workspace\"]\nnetwork = [{hosts}]\n\
         start_timeout = \"300s\"\nenv = {{ NODE_EXTRA_CA_CERTS = \"{certificates}\" }}\n"
    ));
    let home = call.home("").parent().unwrap().join("home");
    std::fs::create_dir_all(&home).unwrap();
    if let Some(npmrc) =
        std::env::var_os("HOME").map(|home| Path::new(&home).join(".npmrc")).filter(|path| path.exists())
    {
        std::fs::copy(npmrc, home.join(".npmrc")).unwrap();
    }
    let call = match std::env::var("npm_config_registry") {
        Ok(registry) => call.env("npm_config_registry", registry),
        Err(_) => call,
    };
    run(call, &model);
    assert_eq!(results(&model)[1].lines().last(), Some("from npm"), "{:?}", results(&model));
    assert!(!results(&model)[1].contains("http_proxy"), "{:?}", results(&model));
}
