//! Credentials that programs inside use without holding them, with real clients.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::engine::engine;
use agent_testbed::serve::sdk;
use agent_testing::endpoint::endpoint;
use agent_testing::private_site::{
    AUTHORITY, EXCHANGED, PrivateSite, Sent, forms, on_host, private_repository,
};
use agent_testing::site::Site;
use agent_testing::skip::missing;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

pub const TOKEN: &str = "ghp_r3alT0kenOfTheUsers0123456789abcd";

/// A call whose configuration has the credential `site` for a host.
pub fn configured(site: &PrivateSite, rule: &str) -> Agent {
    configured_for(&site.host(), rule)
}

pub fn configured_for(host: &str, rule: &str) -> Agent {
    let config = format!(
        "[credentials.site]\nhosts = [\"{host}\"]\nenv = \"A_TOKEN\"\nvariables = [\"TOKEN\"]\nca = \"{AUTHORITY}\"\n{rule}\n"
    );
    agent().config(&config).env("A_TOKEN", TOKEN)
}

/// The same for the name `server.test`, to which a proxy of this machine leads.
fn named(site: &PrivateSite, rule: &str) -> Agent {
    let config = format!(
        "[credentials.site]\nhosts = [\"server.test\"]\nenv = \"A_TOKEN\"\nvariables = [\"TOKEN\"]\nca = \"{AUTHORITY}\"\n{rule}\n"
    );
    agent().config(&config).env("A_TOKEN", TOKEN).env("https_proxy", site.behind_proxy())
}

/// Runs a script inside, in which `$H` is the host, with the credential. Nothing that comes out has the token.
pub fn exec(site: &PrivateSite, rule: &str, flag: &str, script: &str) -> Finished {
    exec_by(configured(site, rule), site, flag, script)
}

pub fn exec_by(call: Agent, site: &PrivateSite, flag: &str, script: &str) -> Finished {
    exec_at(call, &site.host(), flag, script)
}

pub fn exec_at(call: Agent, host: &str, flag: &str, script: &str) -> Finished {
    let script = format!("H={host}\n{script}");
    let finished = call.args(["exec", "--credential", flag, "--", "sh", "-c", &script]).run();
    for form in forms(TOKEN) {
        assert!(!finished.stdout.contains(&form), "{form}: {}", finished.stdout);
        assert!(!finished.stderr.contains(&form), "{form}: {}", finished.stderr);
    }
    finished
}

pub fn has(program: &str) -> bool {
    has_by(program, "--version")
}

fn has_by(program: &str, argument: &str) -> bool {
    let is_there = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !is_there {
        missing(program);
    }
    is_there
}

#[test]
fn curl_sends_the_value_and_sees_the_placeholder() {
    let site = PrivateSite::start(TOKEN, None).file("/hello", "hello\n");
    let script = "curl -sS -H \"Authorization: Bearer $TOKEN\" -H \"X-Other: $TOKEN\" https://$H/hello
        echo $TOKEN; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; cat ~/.netrc; true";
    let finished = exec(&site, "", "site", script);
    let mut lines = finished.stdout.lines();
    assert_eq!(lines.next(), Some("hello"), "{}\n{}", finished.stdout, finished.stderr);
    let placeholder = lines.next().expect("a placeholder").to_owned();
    assert!(placeholder.starts_with("ghp_") && placeholder.len() == TOKEN.len(), "{placeholder}");
    let sent = site.requests();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].is_authorised && sent[0].head.matches(TOKEN).count() == 1, "{}", sent[0].head);
    assert!(sent[0].head.contains(&placeholder), "it stays where no rule names it: {}", sent[0].head);
    let again = exec(&site, "", "site", "echo $TOKEN").stdout;
    assert!(again.trim() != placeholder, "each session has another one");
}

#[test]
fn each_place_of_a_request_gets_the_value() {
    for (apply, request) in [
        ("bearer", "-H \"Authorization: token $TOKEN\" https://$H/x"),
        ("basic", "-u \"me:$TOKEN\" https://$H/x"),
        // Where there is none, curl 8.14 and later ends otherwise.
        ("basic", "--netrc-optional https://$H/x"),
        ("token", "-H \"Authorization: $TOKEN\" https://$H/x"),
        ("header:X-Api-Key", "-H \"x-api-key: $TOKEN\" https://$H/x"),
        ("query:key", "\"https://$H/x?a=1&key=$TOKEN&b=2\""),
    ] {
        let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
        let finished = exec(&site, &format!("apply = [\"{apply}\"]"), "site", &format!("curl -sS {request}"));
        assert_eq!(finished.stdout, "x\n", "{apply}: {}", finished.stderr);
        // In no other place.
        let other = exec(&site, "apply = [\"header:X-Some\"]", "site", &format!("curl -sS {request}"));
        assert_eq!(other.stdout, "a token, please\n", "{apply}: {}", other.stderr);
    }
}

#[test]
fn what_comes_back_is_searched() {
    let site = PrivateSite::start(TOKEN, None);
    let script = "for path in reflect reflect-in-pieces compressed; do
            curl -sSi -H \"Authorization: Bearer $TOKEN\" https://$H/$path; echo
        done";
    let finished = exec(&site, "", "site", script);
    let text = &finished.stdout;
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{text}");
    assert!(text.contains("x-echo: Bearer ghp_"), "{text}");
    for gone in ["set-cookie", "alt-svc", "not really"] {
        assert!(!text.to_lowercase().contains(gone), "{gone}: {text}");
    }
    assert!(text.contains("HTTP/1.1 502") && text.contains("cannot be searched"), "{text}");
    assert!(
        site.requests().iter().all(|sent| sent.head.to_lowercase().contains("accept-encoding: identity"))
    );
}

#[test]
fn what_the_rule_does_not_cover_never_reaches_the_host() {
    let site = PrivateSite::start(TOKEN, None).file("/team/x", "x\n").file("/other", "other\n");
    let requests = [
        "-X PUT https://$H/team/x",
        "-X POST -d a=b https://$H/team/x",
        "https://$H/other",
        "https://$H/teams",
        "--path-as-is https://$H/team/../other",
        "--path-as-is https://$H/team/%2e%2e/other",
        "--path-as-is https://$H/team%2f..%2fother",
        "https://$H/team%2fx/../../other",
        "https://$H/%2fteam/x",
        "-H 'Host: other.test' https://$H/team/x",
        "-H 'Host: 127.0.0.2' https://$H/team/x",
        "-H 'Upgrade: websocket' -H 'Connection: upgrade' https://$H/team/x",
        "-H 'Upgrade: websocket' -H 'Connection: upgrade' -H 'Sec-WebSocket-Key: x' -H 'Sec-WebSocket-Version: 13' https://$H/team/x",
        "-H 'X-HTTP-Method-Override: DELETE' https://$H/team/x",
        "-H 'TE: trailers' -H 'Trailer: X' https://$H/team/x",
        "--request-target http://other.test/ https://$H/team/x",
    ];
    let script: String = requests.iter().map(|request| format!("curl -sS {request}\n")).collect();
    let finished = exec(&site, "paths = [\"/team\"]", "site", &script);
    let refusals = finished.stdout.matches("agent did not pass on this request").count();
    assert_eq!(refusals, requests.len(), "{}\n{}", finished.stdout, finished.stderr);
    let plain = exec(&site, "", "site", "curl -sS http://$H/x");
    assert!(plain.stdout.contains("https:// alone"), "{}\n{}", plain.stdout, plain.stderr);
    assert!(site.requests().is_empty());
    let named = "curl -sS -H \"Authorization: Bearer $TOKEN\" https://$H/team/x https://$H/team%2fx";
    assert!(exec(&site, "paths = [\"/team\"]", "site", named).stdout.starts_with("x\nagent did not pass on"));
}

/// Sends each of these over a connection of its own, as they are, and prints the first line of the answer and its last.
const RAW_CLIENT: &str = r#"
import json, os, socket, ssl, sys
host, port = sys.argv[1].split(":")
context = ssl.create_default_context()
for raw in json.load(open("raw.json")):
    plain = socket.create_connection(("127.0.0.1", 3128), timeout=30)
    plain.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
    assert b" 200 " in plain.recv(4096)
    stream = context.wrap_socket(plain, server_hostname=host)
    raw = raw.replace("HOST", sys.argv[1]).replace("TOKEN", os.environ["TOKEN"])
    stream.sendall(raw.encode("latin-1"))
    answer = b""
    try:
        while piece := stream.recv(65536):
            answer += piece
    except OSError:
        pass
    print(json.dumps(answer.decode("latin-1")))
"#;

/// The answers to raw requests inside; `HOST` and `TOKEN` are put into them.
fn raw(site: &PrivateSite, requests: &[&str]) -> Vec<String> {
    raw_by(configured(site, "methods = [\"GET\", \"POST\"]"), site, requests)
}

fn raw_by(call: Agent, site: &PrivateSite, requests: &[&str]) -> Vec<String> {
    let call = call.file("client.py", RAW_CLIENT).file("raw.json", serde_json::to_vec(requests).unwrap());
    let finished = exec_by(call, site, "site", "python3 client.py $H");
    let answers: Vec<String> =
        finished.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(answers.len(), requests.len(), "{}\n{}", finished.stdout, finished.stderr);
    answers
}

#[test]
fn requests_that_servers_read_differently_are_refused() {
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    const HEAD: &str = "POST /x HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n";
    let cases = [
        ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "two lengths"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", "two lengths"),
        ("Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", "twice"),
        ("Content-Length: 0x4\r\n\r\nabcd", "not a number"),
        ("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "chunked alone"),
        ("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "name of a field"),
        ("X: a\r\n b\r\n\r\n", "folded"),
        ("X: a\nTransfer-Encoding: chunked\r\n\r\n", "CR LF"),
        ("Expect: a-surprise\r\nContent-Length: 1\r\n\r\na", "expects"),
        ("Host: HOST\r\n\r\n", "Host"),
        ("Authorization: Bearer TOKEN\r\n\r\n", "twice"),
        (
            "Upgrade: h2c\r\nHTTP2-Settings: x\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n",
            "another protocol",
        ),
        ("Connection: close, Authorization\r\n\r\n", "names other fields"),
        ("Trailer: X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n", "trailers"),
    ];
    let requests: Vec<String> = cases.iter().map(|(rest, _)| format!("{HEAD}{rest}")).collect();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    for (answer, (rest, reason)) in raw(&site, &requests).iter().zip(&cases) {
        assert!(answer.contains("agent did not pass on") && answer.contains(reason), "{rest}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 4") && answer.matches("HTTP/1.1").count() == 1, "{answer}");
    }
    let whole = raw(
        &site,
        &[
            "GET http://other.test/ HTTP/1.1\r\nHost: HOST\r\n\r\n",
            "CONNECT other.test:443 HTTP/1.1\r\nHost: HOST\r\n\r\n",
            "GET /x HTTP/1.0\r\nHost: HOST\r\n\r\n",
            "GET /x HTTP/1.1\r\n\r\n",
            "\0\x01 not HTTP\r\n\r\n",
        ],
    );
    assert!(whole.iter().all(|answer| answer.contains("agent did not pass on")), "{whole:?}");
    assert!(site.requests().is_empty());
}

#[test]
fn a_websocket_is_opened_where_the_rule_says_so_and_what_comes_back_is_searched() {
    const OPEN: &str = "GET /socket HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\nping\n";
    let site = PrivateSite::start(TOKEN, None);
    let refused = raw(&site, &[OPEN]).remove(0);
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("websockets is not set"), "{refused}");
    assert!(site.requests().is_empty());
    let answer = raw_by(configured(&site, "websockets = true"), &site, &[OPEN]).remove(0);
    let (head, rest) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("upgrade: websocket"), "{head}");
    assert!(rest.contains("ping ghp_") && rest.ends_with("end"), "{rest}");
    let sent = &site.requests()[0];
    assert!(sent.is_authorised && !sent.head.to_lowercase().contains("permessage-deflate"), "{}", sent.head);
}

#[test]
fn a_body_that_is_not_valid_never_looks_whole_to_the_host() {
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    const HEAD: &str = "POST /length HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nTransfer-Encoding: chunked\r\n\r\n";
    let smuggled = "GET /x HTTP/1.1\r\nHost: HOST\r\n\r\n";
    let bad = [
        format!("{HEAD}3\r\nabcd\r\n0\r\n\r\n"),
        format!("{HEAD}3;x=y\r\nabc\r\n0\r\n\r\n"),
        format!("{HEAD}3\nabc\n0\n\n"),
        format!("{HEAD}3\r\nabc\r\n0\r\nX: y\r\n\r\n"),
        format!("{HEAD}fffffffff\r\nabc"),
        format!("{HEAD}3\r\nabc\r\n-1\r\n\r\n{smuggled}"),
    ];
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    for (request, answer) in bad.iter().zip(raw(&site, &bad)) {
        assert!(
            answer.contains("400 Bad Request") && answer.contains("agent did not pass on"),
            "{request}: {answer}"
        );
    }
    assert!(site.requests().is_empty(), "the host read no whole request");
    // What is valid passes, and a second request is judged by itself.
    let good = format!("{HEAD}3\r\nabc\r\n02\r\nde\r\n0\r\n\r\nDELETE /x HTTP/1.1\r\nHost: HOST\r\n\r\n");
    let answer = raw(&site, &[&good]).remove(0);
    assert!(answer.contains("\r\n\r\n5HTTP/1.1 403 Forbidden"), "{answer}");
    assert_eq!(site.requests().len(), 1);
    // The proxy itself answers what the program expects, and the host never reads of it.
    let waiting = "POST /length HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab";
    let answer = raw(&site, &[waiting]).remove(0);
    assert!(
        answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK") && answer.ends_with('2'),
        "{answer}"
    );
    assert!(!site.requests()[1].head.to_lowercase().contains("expect"));
}

#[test]
fn bodies_stream_in_both_directions() {
    let site = PrivateSite::start(TOKEN, None);
    let script = "auth=\"Authorization: Bearer $TOKEN\"
        curl -sS -H \"$auth\" 'https://'$H'/large?bytes=20000000' | wc -c
        head -c 3000000 /dev/zero > large; curl -sS -H \"$auth\" -T large -X POST https://$H/length; echo
        cat large | curl -sS -H \"$auth\" -H 'Transfer-Encoding: chunked' -T - -X POST https://$H/length; echo
        curl -sSN -H \"$auth\" https://$H/stream | while read line; do
            echo $line; [ $line != first ] || curl -sS -H \"$auth\" https://$H/go-on
        done";
    let finished = exec(&site, "methods = [\"GET\", \"POST\"]", "site", script);
    assert_eq!(finished.stdout, "20000000\n3000000\n3000000\nfirst\nlast\n", "{}", finished.stderr);
}

#[test]
fn a_redirect_to_another_host_carries_nothing_and_others_pass_untouched() {
    let other = Site::https().file("/", "other\n");
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    let script = format!(
        "curl -sSk -H \"Authorization: Bearer $TOKEN\" https://{0}/
         curl -sSkv https://{0}/ 2>&1 | grep -c 'issuer: CN=agent test server'",
        other.host_and_port()
    );
    let call = configured(&site, "").env("AGENT_NETWORK", other.host_and_port());
    let finished = exec_by(call, &site, "site", &script);
    assert_eq!(finished.stdout, "other\n1\n", "{}", finished.stderr);
    assert!(!other.requests()[0].contains(TOKEN) && other.requests()[0].contains("Bearer ghp_"));
    // The host's certificate is checked on this machine.
    let unknown = format!(
        "[credentials.site]\nhosts = [\"{}\"]\nenv = \"A_TOKEN\"\nvariables = [\"TOKEN\"]\n",
        site.host()
    );
    let call = agent().config(&unknown).env("A_TOKEN", TOKEN);
    let script = "curl -sS -k -H \"Authorization: Bearer $TOKEN\" https://$H/x";
    let finished = exec_by(call, &site, "site", script);
    assert!(finished.stdout.contains("certificate"), "{}\n{}", finished.stdout, finished.stderr);
    assert!(site.requests().is_empty());
}

#[test]
fn uses_and_refusals_are_events_and_nothing_kept_has_the_token() {
    let site = PrivateSite::start(TOKEN, None);
    let command = format!(
        "curl -sS -H \"Authorization: Bearer $TOKEN\" 'https://{0}/reflect?q=1' -o kept; cat kept; curl -sS -X PUT https://{0}/x?q=1; env",
        site.host()
    );
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("Done.").start();
    let finished = configured(&site, "")
        .args(["run", "fetch", "--json", "--credential", "site", "--apply"])
        .endpoint(&model)
        .run()
        .expect_code(0);
    let used = &finished.events_of("credential_used")[0];
    let expected = json!({ "credential": "site", "host": site.host(), "method": "GET", "path": "/reflect" });
    assert!(expected.as_object().unwrap().iter().all(|(key, value)| used[key] == *value), "{used}");
    let refused = &finished.events_of("credential_refused")[0];
    assert_eq!((&refused["method"], &refused["path"]), (&json!("PUT"), &json!("/x")));
    assert!(refused["reason"].as_str().unwrap().contains("--credential site:write"), "{refused}");
    let system = model.requests()[0].messages()[0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains(&format!("site at {}", site.host())) && system.contains("$TOKEN"), "{system}");
    let root = finished.again().home("data").parent().unwrap().parent().unwrap().to_owned();
    let searched = search(&root);
    assert!(searched.files > 5 && searched.found.is_empty(), "{:?}", searched.found);
    let sent = model.requests().iter().map(|request| format!("{:?}", request.messages())).collect::<String>();
    let text = [finished.stdout.as_str(), &finished.stderr, &sent].concat();
    assert!(forms(TOKEN).iter().all(|form| !text.contains(form)));
}

struct Searched {
    files: usize,
    found: Vec<String>,
}

/// Looks for the token in every file below a directory.
fn search(root: &Path) -> Searched {
    let mut searched = Searched { files: 0, found: Vec::new() };
    for entry in std::fs::read_dir(root).expect("a directory").flatten() {
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            let below = search(&entry.path());
            searched.files += below.files;
            searched.found.extend(below.found);
        } else if kind.is_file() {
            searched.files += 1;
            let bytes = std::fs::read(entry.path()).expect("a file");
            let has = |form: &String| bytes.windows(form.len()).any(|window| window == form.as_bytes());
            if forms(TOKEN).iter().any(has) {
                searched.found.push(entry.path().display().to_string());
            }
        }
    }
    searched
}

#[test]
fn git_clones_and_fetches_and_pushes_only_where_the_user_said_write() {
    let directory = private_repository();
    let site = PrivateSite::start(TOKEN, Some(directory.path()));
    let rule = "git = true\napply = [\"basic\"]\nlogin = \"x-access-token\"";
    let script = "git clone -q https://$H/git/private.git copy && cat copy/file && cd copy && git fetch -q && echo fetched
        echo more >> file; git -c user.name=a -c user.email=a@b commit -qam more
        git push -q origin HEAD:refs/heads/pushed && echo pushed";
    let finished = exec(&site, rule, "site", script);
    assert_eq!(finished.stdout, "content\nfetched\n", "{}", finished.stderr);
    assert!(finished.stderr.contains("403"), "{}", finished.stderr);
    let pushes =
        |site: &PrivateSite| site.requests().iter().filter(|sent| sent.head.contains("receive-pack")).count();
    assert_eq!(pushes(&site), 0);
    let finished = exec(&site, rule, "site:write", script);
    assert_eq!(finished.stdout, "content\nfetched\npushed\n", "{}", finished.stderr);
    assert!(pushes(&site) > 0);
    on_host(&directory.path().join("private.git"), &["rev-parse", "pushed"]);
}

/// Everything that the user can do at such a host was allowed with the push.
#[test]
fn to_push_is_not_to_write_by_the_api() {
    let site = PrivateSite::start(TOKEN, None);
    let script = "for path in user/keys repos/o/r/issues/1/comments repos/o/r/issues/../keys; do
            curl -sS --path-as-is -H \"Authorization: Bearer $TOKEN\" -d x https://$H/$path
        done";
    let finished = exec(&site, "git = true", "site:write", script);
    assert_eq!(finished.stdout.matches("not below write_paths of [credentials.site]").count(), 2);
    assert!(site.requests().is_empty());
    let finished = exec(&site, "git = true\nwrite_paths = [\"/repos/o/r/issues\"]", "site:write", script);
    assert_eq!(finished.stdout.matches("agent did not pass on").count(), 2, "{}", finished.stdout);
    assert!(
        site.requests().len() == 1
            && site.requests()[0].head.starts_with("POST /repos/o/r/issues/1/comments ")
    );
}

#[test]
fn a_value_comes_from_the_keyring() {
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    let programs = tempfile::tempdir().expect("a directory");
    let program = programs.path().join("secret-tool");
    let script = format!("#!/bin/sh\n[ \"$*\" = 'lookup service corp username me' ] && echo {TOKEN}\n");
    std::fs::write(&program, script).expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").expect("PATH"));
    let call = |attributes: &str| {
        let config = format!(
            "[credentials.site]\nhosts = [\"{}\"]\nvariables = [\"TOKEN\"]\nca = \"{AUTHORITY}\"\nkeyring = {attributes}\n",
            site.host()
        );
        agent().config(&config).env("PATH", &path)
    };
    let script = "curl -sS -H \"Authorization: Bearer $TOKEN\" https://$H/x";
    let finished = exec_by(call("{ service = \"corp\", username = \"me\" }"), &site, "site", script);
    assert_eq!(finished.stdout, "x\n", "{}", finished.stderr);
    let unknown = exec_by(call("{ service = \"other\" }"), &site, "site", script);
    assert!(unknown.code == 125 && unknown.stderr.contains("secret-tool failed"), "{}", unknown.stderr);
}

/// A site with the package `@team/left`, as npm's registry has it.
fn with_left() -> PrivateSite {
    let directory = tempfile::tempdir().expect("a directory");
    let package = directory.path().join("package");
    std::fs::create_dir(&package).expect("a directory");
    std::fs::write(package.join("package.json"), "{\"name\": \"@team/left\", \"version\": \"1.0.0\"}")
        .unwrap();
    let packed =
        Command::new("tar").current_dir(directory.path()).args(["czf", "left.tgz", "package"]).status();
    assert!(packed.expect("tar").success());
    let versions = json!({ "1.0.0": { "name": "@team/left", "version": "1.0.0",
        "dist": { "tarball": "https://server.test/left.tgz" } } });
    let document: Value =
        json!({ "name": "@team/left", "dist-tags": { "latest": "1.0.0" }, "versions": versions });
    PrivateSite::start(TOKEN, None)
        .file("/left.tgz", std::fs::read(directory.path().join("left.tgz")).expect("the package"))
        .file("/@team%2fleft", document.to_string())
        .file("/@team%2Fleft", document.to_string())
}

#[test]
fn npm_installs_a_private_package() {
    if !has("npm") {
        return;
    }
    let site = with_left();
    // npm checks the names of certificates, but not addresses.
    let call = named(&site, "preset = \"npm\"");
    let script =
        "npm install --no-audit --no-fund --fetch-retries 0 --registry https://server.test/ @team/left
        ls node_modules/@team";
    let finished = exec_by(call, &site, "site", script);
    assert!(finished.stdout.contains("left"), "{}\n{}", finished.stdout, finished.stderr);
    assert!(site.requests().iter().all(|sent| sent.is_authorised));
}

#[test]
fn pnpm_installs_a_private_package() {
    let Some(installed) = sdk("pnpm") else { return };
    let site = with_left();
    let mut call = named(&site, "preset = \"npm\"");
    for name in ["pnpm.cjs", "worker.js"] {
        let program = installed.file(&format!("node_modules/pnpm/dist/{name}"));
        call = call.file(&format!(".pnpm/{name}"), program);
    }
    let script = "echo '{}' > package.json
        node .pnpm/pnpm.cjs add --store-dir $PWD/.store --registry https://server.test/ --fetch-retries 0 @team/left
        ls node_modules/@team";
    let finished = exec_by(call, &site, "site", script);
    assert!(finished.stdout.ends_with("left\n"), "{}\n{}", finished.stdout, finished.stderr);
    assert!(site.requests().iter().all(|sent| sent.is_authorised));
}

#[test]
fn maven_reads_a_private_repository() {
    if !has("mvn") {
        return;
    }
    let parent = "<project><modelVersion>4.0.0</modelVersion><groupId>left.test</groupId><artifactId>parent</artifactId>
        <version>1.0</version><packaging>pom</packaging></project>";
    let site = PrivateSite::start(TOKEN, None).file("/maven/left/test/parent/1.0/parent-1.0.pom", parent);
    let project = "<project><modelVersion>4.0.0</modelVersion>
        <parent><groupId>left.test</groupId><artifactId>parent</artifactId><version>1.0</version><relativePath/></parent>
        <artifactId>mine</artifactId><packaging>pom</packaging>
        <repositories><repository><id>site</id><url>https://server.test/maven</url></repository></repositories></project>";
    let call = named(&site, "preset = \"maven\"").file("pom.xml", project);
    let finished = exec_by(call, &site, "site", "mvn -B -q validate && echo resolved");
    assert!(finished.stdout.ends_with("resolved\n"), "{}\n{}", finished.stdout, finished.stderr);
    let sent = site.requests();
    assert!(sent.iter().any(|sent| sent.is_authorised && sent.head.contains("/parent-1.0.pom ")));
}

#[test]
fn gh_reads_the_api() {
    if !has("gh") {
        return;
    }
    let site = PrivateSite::start(TOKEN, None).file("/api/v3/repos/o/r", "{\"full_name\": \"o/r\"}");
    let call = named(&site, "git = true\napply = [\"bearer\"]");
    let script = "export GH_HOST=server.test GH_ENTERPRISE_TOKEN=$TOKEN; gh api repos/o/r --jq .full_name; gh api repos/o/r/issues -f title=x";
    let finished = exec_by(call, &site, "site:write", script);
    assert!(finished.stdout.starts_with("o/r\n"), "{}\n{}", finished.stdout, finished.stderr);
    assert!(finished.stderr.contains("HTTP 403"), "it pushes, and does not write: {}", finished.stderr);
    let sent = site.requests();
    assert!(sent.len() == 1 && sent[0].is_authorised, "{}", sent.len());
}

#[test]
fn skopeo_reads_a_private_image_with_a_token_that_it_does_not_hold() {
    if !has("skopeo") {
        return;
    }
    let manifest = "{\"schemaVersion\": 2, \"mediaType\": \"application/vnd.oci.image.manifest.v1+json\"}";
    let site = PrivateSite::start(TOKEN, None).file("/v2/x/manifests/latest", manifest);
    let call = named(&site, "preset = \"ghcr\"");
    let script = "skopeo --tmpdir . inspect --raw docker://server.test/x:latest";
    let finished = exec_by(call, &site, "site", script);
    assert_eq!(finished.stdout.trim(), manifest, "{}", finished.stderr);
    let sent = site.requests();
    let last = sent.last().expect("requests");
    assert!(
        last.head.contains(EXCHANGED) && last.head.starts_with("GET /v2/x/manifests/latest "),
        "{}",
        last.head
    );
    assert!(sent.iter().any(|sent| sent.is_authorised && sent.head.starts_with("GET /token?")));
}

#[test]
fn a_token_that_the_host_gives_in_exchange_stays_outside() {
    let site = PrivateSite::start(TOKEN, None).file("/v2/x/manifests/latest", "manifest\n");
    let script = "auth=$(sed 's/.*\"auth\":\"\\([^\"]*\\)\".*/\\1/' ~/.docker/config.json)
        curl -sS -H \"Authorization: Basic $auth\" https://$H/token > answer; cat answer; echo
        token=$(sed 's/.*\"token\":\"\\([^\"]*\\)\".*/\\1/' answer)
        curl -sS -H \"Authorization: Bearer $token\" https://$H/v2/x/manifests/latest";
    let finished = exec(&site, "preset = \"ghcr\"", "site", script);
    assert!(finished.stdout.ends_with("\nmanifest\n"), "{}\n{}", finished.stdout, finished.stderr);
    assert!(
        finished.stdout.contains("\"expires_in\":300") && !finished.stdout.contains("made-up"),
        "{}",
        finished.stdout
    );
    let sent = site.requests();
    assert!(sent[1].head.contains(EXCHANGED), "{}", sent[1].head);
}

#[test]
fn java_trusts_the_authority_of_the_session() {
    const SOURCE: &str = r#"
public class Fetch {
    public static void main(String[] words) throws Exception {
        var connection = new java.net.URL(words[0]).openConnection();
        connection.setRequestProperty("Authorization", "Bearer " + System.getenv("TOKEN"));
        System.out.write(connection.getInputStream().readAllBytes());
        System.out.flush();
    }
}
"#;
    if !has("javac") {
        return;
    }
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    // Java reaches loopback addresses without a proxy.
    let call = named(&site, "").file("Fetch.java", SOURCE);
    let finished = exec_by(call, &site, "site", "java $MAVEN_OPTS Fetch.java https://server.test/x");
    assert_eq!(finished.stdout, "x\n", "{}", finished.stderr);
}

#[test]
fn pip_downloads_a_private_package() {
    if !has("pip") {
        return;
    }
    let page = "<a href=\"left-1.0.tar.gz\">left-1.0.tar.gz</a>";
    let site = PrivateSite::start(TOKEN, None)
        .file("/simple/left/", page)
        .file("/simple/left/left-1.0.tar.gz", b"not looked into".to_vec());
    let script =
        "pip download -q --no-deps --no-build-isolation --no-binary :all: -i https://$H/simple/ left; true";
    let finished = exec(&site, "preset = \"pypi\"", "site", script);
    let sent = site.requests();
    let got = sent
        .iter()
        .any(|sent| sent.is_authorised && sent.head.starts_with("GET /simple/left/left-1.0.tar.gz"));
    assert!(got, "{}\n{}", finished.stdout, finished.stderr);
}

/// Computes the signature of a request anew, from what arrived, and compares it.
const VERIFY: &str = r#"
import hashlib, hmac, json, re, sys, urllib.parse
sent = json.load(sys.stdin)
lines = sent["head"].split("\r\n")
method, target, _ = lines[0].split(" ")
fields = {}
for line in lines[1:]:
    if line:
        name, value = line.split(":", 1)
        fields[name.lower()] = " ".join(value.split())
found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", fields["authorization"])
key, date, region, service, names, signature = found.groups()
path, _, query = target.partition("?")
body = hashlib.sha256(bytes(sent["body"])).hexdigest()
query = "&".join(sorted(query.split("&"))) if query else ""
path = path if service == "s3" else urllib.parse.quote(path, safe="/~")
text = "\n".join([method, path, query] + [f"{name}:{fields[name]}" for name in names.split(";")] + ["", names, fields.get("x-amz-content-sha256", body)])
text = "\n".join(["AWS4-HMAC-SHA256", fields["x-amz-date"], f"{date}/{region}/{service}/aws4_request", hashlib.sha256(text.encode()).hexdigest()])
step = ("AWS4" + sys.argv[1]).encode()
for part in (date, region, service, "aws4_request", text):
    step = hmac.new(step, part.encode(), hashlib.sha256).digest()
print(key, step.hex() == signature, fields.get("x-amz-security-token"), "x-amz-security-token" in names)
"#;

#[test]
fn requests_are_signed_with_a_key_that_is_not_inside() {
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    let site = PrivateSite::start(TOKEN, None);
    let config = format!(
        "[credentials.cloud]\nhosts = [\"{}\"]\napply = [\"aws\"]\nmethods = [\"GET\", \"POST\"]\nca = \"{AUTHORITY}\"\n",
        site.host()
    );
    let call = agent()
        .config(&config)
        .env("AWS_ACCESS_KEY_ID", "AKIAREALKEYOFTHEUSER")
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_SESSION_TOKEN", "a-session-token");
    let script = "sign() { curl -sS --aws-sigv4 \"aws:amz:eu-central-1:$1\" --user \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\" \"$2\" -d \"$3\" -X \"$4\"; }
        sign sts \"https://$H/a/b?y=2&x=1\" Action=GetCallerIdentity POST
        sign s3 \"https://$H/bucket/a%20b\" '' GET
        sign sts https://$H/ 'Version=2011-06-15&Action=GetSessionToken' POST
        sign sts \"https://$H/?Action=AssumeRole\" '' GET
        sign iam https://$H/ Action=CreateAccessKey POST
        curl -sS -H 'x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD' --aws-sigv4 aws:amz:eu-central-1:s3 --user \"$AWS_ACCESS_KEY_ID:x\" -d x https://$H/
        env; cat /proc/*/environ 2>/dev/null; true";
    let finished = exec_by(call, &site, "cloud:write", script);
    let refusals = finished.stdout.matches("returns keys or tokens of AWS").count();
    assert_eq!(refusals, 3, "also with :write: {}", finished.stdout);
    assert!(finished.stdout.contains("signed with the key, which is not supported"), "{}", finished.stdout);
    for text in [SECRET, "AKIAREALKEYOFTHEUSER", "a-session-token"] {
        assert!(!finished.stdout.contains(text) && !finished.stderr.contains(text), "{}", finished.stdout);
    }
    let sent = site.requests();
    assert_eq!(sent.len(), 2, "{}\n{}", finished.stdout, finished.stderr);
    for Sent { head, body, .. } in sent {
        let verified = verified(SECRET, &json!({ "head": head, "body": body }));
        assert_eq!(verified, "AKIAREALKEYOFTHEUSER True a-session-token True\n", "{head}");
    }
}

fn verified(secret: &str, sent: &Value) -> String {
    let mut python = Command::new("python3")
        .args(["-c", VERIFY, secret])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    python.stdin.take().expect("piped").write_all(sent.to_string().as_bytes()).expect("it reads");
    String::from_utf8(python.wait_with_output().expect("it ends").stdout).expect("text")
}

/// Looks for the parts of a text in everything that a program inside can read: its memory and that of others, files and `/proc`.
const LOOK: &str = r#"
import glob, os, re, sys
wanted = [part.encode()[::-1] for part in sys.argv[1:]]
def look(name, data):
    for text in wanted:
        if text in data:
            print("found in", name)
looked = 0
for root in [os.environ["HOME"], "/workspace", os.getcwd(), "/tmp", "/run"]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 20_000_000:
                    look(path, open(path, "rb").read())
                    looked += 1
            except OSError:
                pass
for process in glob.glob("/proc/[0-9]*"):
    for name in ["environ", "cmdline"]:
        try:
            look(f"{process}/{name}", open(f"{process}/{name}", "rb").read())
        except OSError:
            pass
    if process == f"/proc/{os.getpid()}":
        continue
    try:
        memory = open(f"{process}/mem", "rb", 0)
        for line in open(f"{process}/maps"):
            begin, end, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()
            length = int(end, 16) - int(begin, 16)
            if rights.startswith("r") and length < 200_000_000:
                try:
                    memory.seek(int(begin, 16))
                    look(f"{process}/mem", memory.read(length))
                    looked += 1
                except (OSError, ValueError, OverflowError):
                    pass
    except OSError:
        pass
print("looked", looked > 10)
"#;

#[test]
fn the_value_is_in_no_file_and_no_memory_inside() {
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    let call = configured(&site, "preset = \"npm\"").file("look.py", LOOK);
    // Backwards, so that the search does not find itself. A program that has used it still runs.
    let backwards: String = TOKEN.chars().rev().collect();
    let script = format!(
        "curl -sS -H \"Authorization: Bearer $TOKEN\" https://$H/x > kept
        python3 -c 'import os, sys, time, urllib.request
request = urllib.request.Request(sys.argv[1], headers={{\"Authorization\": \"Bearer \" + os.environ[\"TOKEN\"]}})
answer = urllib.request.urlopen(request).read(); print(\"got it\", flush=True); time.sleep(60)' https://$H/reflect > used &
        until grep -q got used; do sleep 0.1; done
        python3 look.py {backwards}; kill %1; cat kept"
    );
    let finished = exec_by(call, &site, "site", &script);
    assert_eq!(finished.stdout, "looked True\nx\n", "{}", finished.stderr);
    assert_eq!(site.requests().iter().filter(|sent| sent.is_authorised).count(), 2);
}

/// Runs a session twice with the credential and once without it. Its programs find another placeholder each time.
fn run_again(on: &dyn Fn(Agent) -> Agent, options: &[&str]) {
    let site = PrivateSite::start(TOKEN, None).file("/x", "x\n");
    let command = format!(
        "curl -sS -H \"Authorization: Bearer $TOKEN\" https://{0}/x; curl -sSn https://{0}/x; cat ~/.netrc >> seen; echo $TOKEN >> seen",
        site.host()
    );
    let run = |call: Agent, arguments: &[&str]| {
        let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("Done.").start();
        let call = on(call).endpoint(&model).env("A_TOKEN", TOKEN);
        let finished = call.args(["run", "--json"]).args(options).args(arguments).run().expect_code(0);
        assert!(forms(TOKEN).iter().all(|form| !finished.stdout.contains(form)));
        finished
    };
    let call = configured(&site, "apply = [\"bearer\", \"basic\"]");
    let finished = run(call, &["--credential", "site", "fetch"]);
    let id = finished.events_of("session_started")[0]["session"].as_str().expect("an id").to_owned();
    let with = ["--session", &id, "--credential", "site", "--apply", "fetch again"];
    let again = run(finished.again(), &with);
    assert_eq!(again.events_of("credential_used").len(), 2, "{}", again.stdout);
    assert_eq!(site.requests().iter().filter(|sent| sent.is_authorised).count(), 4);
    let seen = again.host_file("seen").expect("what the programs saw");
    let tokens: Vec<_> = seen.lines().filter(|line| line.starts_with("ghp_")).collect();
    assert!(tokens.len() == 2 && tokens[0] != tokens[1], "{seen}");
    assert!(tokens.iter().all(|token| seen.matches(token).count() == 2), "in the file as well: {seen}");
    // What was left in its files is of no use without the option.
    let without = run(finished.again(), &["--session", &id, "once more"]);
    assert!(without.events_of("credential_used").is_empty());
    let root = finished.again().home("data").parent().expect("a home").to_owned();
    assert!(search(&root).found.is_empty());
    on(finished.again()).args(["sessions", "rm", &id]).run().expect_code(0);
}

#[test]
fn a_resumed_session_has_its_credential_again() {
    run_again(&|call| call, &[]);
}

#[tokio::test]
async fn a_kept_container_is_rejoined_with_its_credential() {
    if engine().await.is_some() {
        tokio::task::spawn_blocking(|| run_again(&|call| call.sandbox("docker"), &["--keep"]))
            .await
            .expect("the test passes");
    }
}

#[test]
fn go_downloads_a_private_module() {
    if !has_by("go", "version") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let package = directory.path().join("left.test/left@v1.0.0");
    std::fs::create_dir_all(&package).expect("a directory");
    std::fs::write(package.join("go.mod"), "module left.test/left\n\ngo 1.20\n").expect("a file");
    std::fs::write(package.join("left.go"), "package left\n").expect("a file");
    let pack = "import zipfile
with zipfile.ZipFile('left.zip', 'w') as packed:
    for name in ['go.mod', 'left.go']:
        packed.write('left.test/left@v1.0.0/' + name)";
    let packed = Command::new("python3").current_dir(directory.path()).args(["-c", pack]).status();
    assert!(packed.expect("python3").success());
    let version = "{\"Version\": \"v1.0.0\", \"Time\": \"2026-01-01T00:00:00Z\"}";
    let site = PrivateSite::start(TOKEN, None)
        .file("/left.test/left/@v/list", "v1.0.0\n")
        .file("/left.test/left/@v/v1.0.0.info", version)
        .file("/left.test/left/@v/v1.0.0.mod", "module left.test/left\n\ngo 1.20\n")
        .file(
            "/left.test/left/@v/v1.0.0.zip",
            std::fs::read(directory.path().join("left.zip")).expect("the package"),
        );
    let call = named(&site, "apply = [\"basic\"]")
        .file("go.mod", "module mine.test/mine\n\ngo 1.20\n\nrequire left.test/left v1.0.0\n");
    let script = "export GOPROXY=https://server.test GONOSUMDB='*' GOSUMDB=off GOFLAGS=-modcacherw GOMODCACHE=$PWD/.mod GOTOOLCHAIN=local
        go mod download -x left.test/left && ls .mod/left.test";
    let finished = exec_by(call, &site, "site", script);
    assert!(finished.stdout.contains("left@v1.0.0"), "{}\n{}", finished.stdout, finished.stderr);
    let sent = site.requests();
    assert!(sent.iter().any(|sent| sent.is_authorised && sent.head.contains("/@v/v1.0.0.zip ")));
}

#[test]
fn a_credential_has_to_be_described_and_to_have_a_value() {
    for (config, flag, expected) in [
        ("", "no-such", "it names no hosts"),
        ("", "github", "GH_TOKEN or GITHUB_TOKEN is not set"),
        ("", "github:admin", "NAME:write"),
        (
            "[credentials.a]\nhosts = [\"public\"]\nenv = \"A_TOKEN\"",
            "a",
            "not a valid host for a credential",
        ),
        ("[credentials.a]\nhosts = [\"a.test\"]", "a", "it has no source"),
        ("[credentials.a]\nhosts = [\"a.test\"]\nenv = \"X\"\nfile = \"y\"", "a", "two sources"),
        (
            "[credentials.a]\nhosts = [\"a.test\"]\nenv = \"A_TOKEN\"\nmethods = [\"TRACE\"]",
            "a",
            "not a method",
        ),
        (
            "[credentials.a]\nhosts = [\"a.test\"]\nenv = \"A_TOKEN\"\napply = [\"header:Host\"]",
            "a",
            "not a valid place",
        ),
        ("[credentials.a]\nhosts = [\"a.test\"]\nfile = \"/nonexistent\"", "a", "/nonexistent"),
    ] {
        let call = agent().config(config).env("A_TOKEN", TOKEN);
        let finished = call.args(["exec", "--credential", flag, "--", "true"]).run();
        assert!(
            finished.code == 125 && finished.stderr.contains(expected),
            "{flag}: {} {}",
            finished.code,
            finished.stderr
        );
    }
    let full = agent().env("GH_TOKEN", TOKEN).args([
        "exec",
        "--network",
        "full",
        "--credential",
        "github",
        "--",
        "true",
    ]);
    assert!(full.run().stderr.contains("--network full bypasses"));
}

#[test]
fn a_repository_can_neither_define_nor_enable_one() {
    let call =
        agent().env("GH_TOKEN", TOKEN).file(".env", format!("GH_TOKEN={TOKEN}\nAGENT_CREDENTIAL=github\n"));
    let finished = call.args(["exec", "--", "sh", "-c", "env; ls -a ~"]).run().expect_code(0);
    assert!(!finished.stdout.contains("ghp_") && !finished.stdout.contains("agent-credentials"));
}
