//! `agent serve` with the vendors' own SDKs. `.ci/sdks` installs them.

use agent_testbed::agent::agent;
use agent_testbed::serve::{KEY, Server, sdk};
use agent_testing::counterpart;
use agent_testing::site::Site;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

fn server(options: &[&str]) -> Server {
    Server::start("local", options)
}

#[test]
fn e2bs_own_python_sdk_works_unchanged() {
    let Some(e2b) = sdk("e2b") else { return };
    e2b.run(&server(&["--max-sandboxes", "2"]), "sandboxes.py");
}

#[test]
fn e2bs_own_javascript_sdk_works_unchanged() {
    let Some(npm) = sdk("npm") else { return };
    npm.run(&server(&[]), "sandboxes.mjs");
}

#[test]
fn frameworks_that_use_e2b_run_the_programs_of_their_guide() {
    let Some(python) = counterpart::python("frameworks") else { return };
    let guide =
        std::fs::read_to_string(counterpart::root().join("docs/guides/frameworks.md")).expect("the guide");
    let programs: Vec<&str> =
        guide.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(programs.len(), 3);
    let server = server(&[]);
    for program in programs {
        let output = std::process::Command::new(&python)
            .args(["-c", program])
            .envs(server.variables(&[]))
            .output()
            .expect("Python starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && printed.contains("190\n"), "{program}\n{printed}\n{errors}");
    }
}

#[test]
fn novitas_own_python_sdk_works_unchanged() {
    let Some(novita) = sdk("novita") else { return };
    novita.run(&server(&[]), "novita.py");
}

#[test]
fn e2bs_own_code_interpreter_works_unchanged() {
    let Some(e2b) = sdk("e2b") else { return };
    e2b.run(&server(&[]), "code_interpreter.py");
}

#[test]
fn novitas_own_code_interpreter_works_unchanged() {
    let Some(novita) = sdk("novita") else { return };
    novita.run(&server(&[]), "by_name.py novita");
}

#[test]
fn an_sdk_that_knows_sandboxes_by_name_alone_stays_here() {
    let Some(older) = sdk("e2b-older") else { return };
    older.run(&server(&[]), "by_name.py");
    let server = server(&["--domain", "sandboxes.localhost:1"]);
    let (_, answer) = request(&server, "POST /sandboxes HTTP/1.1", &[&key()], b"{}");
    assert!(answer.contains("\"domain\":\"sandboxes.localhost:1\""), "{answer}");
    let printed = server.variables(&["--domain", "sandboxes.localhost:1"]);
    assert!(printed.contains(&("E2B_DOMAIN".to_owned(), "sandboxes.localhost:1".to_owned())), "{printed:?}");
}

#[test]
fn code_runs_by_the_token_or_the_name_of_its_sandbox() {
    let server = server(&[]);
    let (id, token) = create(&server);
    let body = br#"{"code":"6 * 7"}"#;
    let token = format!("X-Access-Token: {token}");
    let basic = {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(format!("49999-{id}.:"))
    };
    for name in ["Accept: */*".to_owned(), format!("Authorization: Basic {basic}")] {
        let (status, answer) = request(&server, "POST /execute HTTP/1.1", &[&token, &name], body);
        assert!(status == 200 && answer.contains("\"text\":\"42\""), "{name}: {answer}");
    }
    assert_eq!(request(&server, "POST /execute HTTP/1.1", &["X-Access-Token: wrong"], body).0, 401);
}

#[test]
fn what_is_not_offered_is_no_sandbox_that_is_gone() {
    // The SDKs reported "sandbox not found".
    let server = server(&[]);
    let (id, _) = create(&server);
    for line in [
        format!("POST /sandboxes/{id}/reset HTTP/1.1"),
        format!("POST /sandboxes/{id}/commit HTTP/1.1"),
        "GET /quota HTTP/1.1".to_owned(),
        "POST /v3/templates HTTP/1.1".to_owned(),
        "POST /v2/templates/x/builds/y HTTP/1.1".to_owned(),
        "GET /volumes HTTP/1.1".to_owned(),
    ] {
        let (status, answer) = request(&server, &line, &[&key()], b"{}");
        assert_eq!(status, 501, "{line}: {answer}");
    }
    assert_eq!(request(&server, "POST /sandboxes/inotthere/reset HTTP/1.1", &[&key()], b"{}").0, 404);
}

#[test]
fn the_usual_templates_exist_and_lists_begin_with_the_newest() {
    let server = server(&[]);
    let get = |path: &str| request(&server, &format!("GET {path} HTTP/1.1"), &[&key()], b"");
    assert_eq!(get("/templates/aliases/base").0, 200);
    assert_eq!(get("/templates/aliases/nothing").0, 404);
    assert!(get("/templates").1.contains("\"templateID\":\"code-interpreter-v1\""));
    let (first, _) = create(&server);
    let (second, _) = create(&server);
    let order = |answer: &str| answer.find(&second).zip(answer.find(&first)).map(|(two, one)| two < one);
    assert_eq!(order(&get("/v2/sandboxes").1), Some(true));
    assert_eq!(order(&get("/v2/sandboxes?order=asc").1), Some(false));
    let page = get("/v2/sandboxes?limit=1").1;
    let token = page.split("x-next-token: ").nth(1).and_then(|rest| rest.split("\r\n").next()).expect(&page);
    let next = get(&format!("/v2/sandboxes?limit=1&nextToken={token}")).1;
    assert!(page.contains(&second) && !page.contains(&first) && next.contains(&first), "{page}{next}");
    // The time of a measurement was not asked about.
    assert!(get(&format!("/sandboxes/{first}/metrics")).1.contains("\"memTotal\""));
    assert!(get(&format!("/sandboxes/{first}/metrics?start=0&end=1")).1.ends_with("[]"));
}

#[test]
fn a_link_has_the_type_of_what_it_leads_to() {
    // Clients that list by type left `/bin` out.
    let server = server(&[]);
    let (id, token) = create(&server);
    let headers = [
        format!("E2b-Sandbox-Id: {id}"),
        format!("X-Access-Token: {token}"),
        "Content-Type: application/json".to_owned(),
    ];
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let stat = |path: &str| {
        let body = format!("{{\"path\":\"{path}\"}}");
        request(&server, "POST /filesystem.Filesystem/Stat HTTP/1.1", &headers, body.as_bytes()).1
    };
    let programs = stat("/bin");
    assert!(programs.contains("FILE_TYPE_DIRECTORY") && programs.contains("symlinkTarget"), "{programs}");
    assert!(stat("/dev/stdin").contains("symlinkTarget"), "{}", stat("/dev/stdin"));
}

#[test]
fn an_upload_is_read_to_its_end_before_it_is_refused() {
    // A client that sends all of it before it reads saw its connection break, and not why.
    let server = server(&[]);
    let (id, token) = create(&server);
    let (id, token) = (format!("E2b-Sandbox-Id: {id}"), format!("X-Access-Token: {token}"));
    let part = |name: &str, size: usize| {
        let head =
            format!("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n");
        [head.as_bytes(), &vec![b'x'; size], b"\r\n"].concat()
    };
    let body = [part("/proc/no", 10), part("a.txt", 30 << 20), b"--b--\r\n".to_vec()].concat();
    let form = "Content-Type: multipart/form-data; boundary=b";
    let (status, answer) = request(&server, "POST /files HTTP/1.1", &[&id, &token, form], &body);
    assert!((400..500).contains(&status), "{status} {answer}");
}

#[test]
fn the_key_that_is_made_has_the_form_that_sdks_check() {
    let printed = || {
        let call = agent().args(["serve", "--print-env", "--listen", "127.0.0.1:4321"]);
        call.run().expect_code(0).stdout
    };
    let text = printed();
    let key = text.split("E2B_API_KEY=e2b_").nth(1).and_then(|rest| rest.lines().next()).expect(&text);
    assert!(key.len() == 40 && key.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{key}");
}

#[test]
fn a_paused_sandbox_keeps_its_processes() {
    let Some(e2b) = sdk("e2b") else { return };
    e2b.run(&server(&[]), "pause.py");
}

#[test]
fn a_sandbox_is_created_from_a_snapshot_and_forked() {
    let Some(e2b) = sdk("e2b") else { return };
    e2b.run(&server(&["--max-sandboxes", "4"]), "snapshots.py");
}

/// The status and body of a request with these lines of its head.
fn request(server: &Server, line: &str, headers: &[&str], body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    let length = format!("Content-Length: {}", body.len());
    let head: Vec<&str> =
        [line, "Host: x", "Connection: close", &length].into_iter().chain(headers.iter().copied()).collect();
    stream.write_all(format!("{}\r\n\r\n", head.join("\r\n")).as_bytes()).expect("sent");
    // A server that refuses may have closed the connection.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer)
}

fn key() -> String {
    format!("X-API-Key: {KEY}")
}

/// A sandbox's id and token.
fn create(server: &Server) -> (String, String) {
    let (status, answer) =
        request(server, "POST /sandboxes HTTP/1.1", &[&key()], br#"{"templateID":"base","timeout":600}"#);
    assert_eq!(status, 201, "{answer}");
    let json = answer.split_once("\r\n\r\n").expect("a body").1;
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let text = |name: &str| json[name].as_str().expect("text").to_owned();
    (text("sandboxID"), text("envdAccessToken"))
}

#[test]
fn a_wrong_key_or_token_opens_nothing() {
    let server = server(&[]);
    for headers in [&[][..], &["X-API-Key: wrong"], &["Authorization: Bearer wrong"]] {
        for line in ["POST /sandboxes HTTP/1.1", "GET /v2/sandboxes HTTP/1.1", "GET /x HTTP/1.1"] {
            assert_eq!(request(&server, line, headers, b"{}").0, 401, "{line} {headers:?}");
        }
    }
    let (one, token) = create(&server);
    let (other, _) = create(&server);
    let list = |id: &str, token: &str| {
        let headers = [
            format!("E2b-Sandbox-Id: {id}"),
            format!("X-Access-Token: {token}"),
            "Content-Type: application/json".to_owned(),
        ];
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        request(&server, "POST /process.Process/List HTTP/1.1", &headers, b"{}").0
    };
    assert_eq!(list(&one, &token), 200);
    assert_eq!(list(&one, "wrong"), 401);
    assert_eq!(list(&one, KEY), 401);
    assert_eq!(list(&other, &token), 401);
    assert_eq!(list("inotthere", &token), 502);
    let paths = ["/files?path=/etc/passwd", "/files?path=x&signature=v1_x", "/envs", "/metrics"];
    for path in paths {
        let id = format!("E2b-Sandbox-Id: {one}");
        assert_eq!(request(&server, &format!("GET {path} HTTP/1.1"), &[&id], b"").0, 401, "{path}");
    }
    assert_eq!(request(&server, "GET /files?path=x&signature=v1_x HTTP/1.1", &[], b"").0, 401);
}

#[test]
fn malformed_requests_cost_one_answer_each() {
    let server = server(&[]);
    let (id, token) = create(&server);
    let (id, token) = (format!("E2b-Sandbox-Id: {id}"), format!("X-Access-Token: {token}"));
    let stream = "Content-Type: application/connect+json";
    let proto = "Content-Type: application/connect+proto";
    for (kind, body, expected) in [
        (stream, &b""[..], "no message"),
        (stream, b"\0\0\0\0\x09{", "ended within a message"),
        (stream, b"\0\xff\xff\xff\xff", "longer than"),
        (stream, b"\x01\0\0\0\0", "compressed"),
        (stream, b"\x70\0\0\0\0", "unknown flags"),
        (stream, b"\0\0\0\0\x02{]", "cannot be read"),
        (stream, b"\0\0\0\0\x02{}", "no process"),
        (proto, b"\0\0\0\0\x03\xff\xff\xff", "cannot be read"),
    ] {
        let answer = request(&server, "POST /process.Process/Start HTTP/1.1", &[&id, &token, kind], body).1;
        assert!(answer.contains(expected), "{body:?}: {answer}");
    }
    let line = "POST /process.Process/Start HTTP/1.1";
    assert_eq!(request(&server, line, &[&id, &token, "Content-Type: text/plain"], b"x").0, 415);
    assert_eq!(request(&server, "POST /sandboxes HTTP/1.1", &[&key()], b"{").0, 400);
    assert_eq!(request(&server, "POST /sandboxes HTTP/1.1", &[&key()], br#"{"timeout":99999999}"#).0, 400);
    assert_eq!(request(&server, "GET /sandboxes/../../x HTTP/1.1", &[&key()], b"").0, 404);
    // It still works.
    assert_eq!(request(&server, "GET /v2/sandboxes HTTP/1.1", &[&key()], b"").0, 200);
}

#[test]
fn there_are_never_more_sandboxes_than_allowed() {
    let server = server(&["--max-sandboxes", "2"]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let create = || request(&server, "POST /sandboxes HTTP/1.1", &[&key()], br#"{"timeout":600}"#).0;
        let threads: Vec<_> = (0..20).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 2, "{statuses:?}");
    assert!(statuses.iter().all(|status| [201, 429].contains(status)), "{statuses:?}");
}

#[test]
fn no_sandbox_outlives_a_server_that_is_stopped() {
    let mut server = server(&[]);
    create(&server);
    create(&server);
    let sandboxes = server.sandboxes();
    assert_eq!(sandboxes.len(), 2, "{sandboxes:?}");
    assert_eq!(server.stop(), Some(143));
    assert_eq!(server.sandboxes(), Vec::<String>::new());
}

#[test]
fn snapshots_are_bounded_and_end_with_their_server() {
    let mut server = server(&[]);
    let id = create(&server).0;
    let line = format!("POST /sandboxes/{id}/snapshots HTTP/1.1");
    let statuses: Vec<u16> = (0..21).map(|_| request(&server, &line, &[&key()], b"").0).collect();
    assert_eq!((&statuses[..20], statuses[20]), (&[201; 20][..], 429));
    for (line, status) in [
        ("DELETE /templates/base HTTP/1.1", 501),
        ("DELETE /templates/%2e%2e%2fx HTTP/1.1", 404),
        ("GET /snapshots?limit=0 HTTP/1.1", 400),
        ("POST /sandboxes/inotthere/snapshots HTTP/1.1", 404),
        ("POST /sandboxes/inotthere/fork HTTP/1.1", 404),
    ] {
        assert_eq!(request(&server, line, &[&key()], b"").0, status, "{line}");
        assert_eq!(request(&server, line, &[], b"").0, 401, "{line}");
    }
    let forked = format!("POST /sandboxes/{id}/fork HTTP/1.1");
    assert_eq!(request(&server, &forked, &[&key()], br#"{"count":21}"#).0, 400);
    assert_eq!(server.kept_snapshots().len(), 20);
    // What a server that was killed has kept is removed by the next one.
    server.kill();
    let mut again = server.restart();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !again.kept_snapshots().is_empty() {
        assert!(std::time::Instant::now() < deadline, "{:?}", again.kept_snapshots());
        std::thread::sleep(Duration::from_millis(50));
    }
    let line = format!("POST /sandboxes/{}/snapshots HTTP/1.1", create(&again).0);
    assert_eq!(request(&again, &line, &[&key()], b"").0, 201);
    assert_eq!(again.kept_snapshots().len(), 1);
    again.stop();
    assert_eq!(again.kept_snapshots().len(), 0);
}

#[test]
fn no_sandbox_outlives_a_server_that_is_killed() {
    let mut server = server(&[]);
    create(&server);
    server.kill();
    // The guest ends ten seconds after its last client has gone; the directory is the next one's to remove.
    server.wait_until_nothing_runs();
    let again = server.restart();
    create(&again);
    again.wait_for_sandboxes(1);
}

#[test]
fn the_printed_variables_are_those_of_the_server() {
    let call = agent().args(["serve", "--print-env", "--listen", "127.0.0.1:4321"]);
    let printed = call.env("AGENT_SERVE_KEY", KEY).run().expect_code(0).stdout;
    for variable in ["E2B_API_KEY", "NOVITA_API_KEY"] {
        assert!(printed.contains(&format!("export {variable}={KEY}\n")), "{printed}");
    }
    for variable in ["E2B_API_URL", "E2B_SANDBOX_URL", "NOVITA_API_URL", "NOVITA_SANDBOX_URL"] {
        assert!(printed.contains(&format!("export {variable}=http://127.0.0.1:4321\n")), "{printed}");
    }
}

#[test]
fn a_server_that_others_could_reach_has_to_be_asked_for() {
    let call = agent().args(["serve", "--listen", "0.0.0.0:0"]).env("AGENT_SERVE_KEY", KEY);
    let finished = call.run().expect_code(2);
    assert!(finished.stderr.contains("--allow-remote"), "{}", finished.stderr);
}

#[test]
fn a_creation_that_is_sent_again_makes_no_second_sandbox() {
    let server = server(&["--max-sandboxes", "2"]);
    let create = |key: &str, body: &[u8]| {
        let key_header = format!("Idempotency-Key: {key}");
        let (status, answer) =
            request(&server, "POST /v2/sandboxes HTTP/1.1", &[&self::key(), &key_header], body);
        let id = answer.split("\"sandboxID\":\"").nth(1).and_then(|rest| rest.split('"').next());
        (status, id.unwrap_or_default().to_owned())
    };
    let made: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| create("one", b"{}"))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert!(made.iter().all(|one| one.0 == 201 && one == &made[0]), "{made:?}");
    assert_ne!(create("another", b"{}"), made[0]);
    assert_eq!(create("one", br#"{"timeout":99}"#).0, 422);
    assert_eq!(create("Not Valid", b"{}").0, 400);
    assert_eq!(server.sandboxes().len(), 2);
    // One that was removed is not counted any more, though its key is still known.
    let line = format!("DELETE /sandboxes/{} HTTP/1.1", made[0].1);
    assert_eq!(request(&server, &line, &[&key()], b"").0, 204);
    assert_eq!(create("one", b"{}"), made[0]);
    assert_eq!(create("a-third", b"{}").0, 201);
}

#[test]
fn a_port_of_a_sandbox_is_reached_with_the_token_where_it_is_not_public() {
    let Some(e2b) = sdk("e2b") else { return };
    e2b.run(&server(&[]), "ports.py");
}

#[test]
fn a_client_takes_hosts_and_addresses_away_and_gives_itself_none() {
    let Some(e2b) = sdk("e2b") else { return };
    let site = Site::http().file("/hello", "from the site\n");
    let server = server(&["--network", &site.address.to_string()]);
    e2b.run(&server, &format!("egress.py http://{}/hello", site.address));
}
