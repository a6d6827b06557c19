//! The failures between a client and its pod: each time the outcome is honest, and what still runs is found again.

use crate::support::wire_tap::{Mode, WireTap};
use agent::sandbox::kubernetes::{Kubernetes, Settings};
use agent::sandbox::{Backend, Command, Outcome, Sandbox, Spec};
use agent_testbed::agent::agent;
use agent_testbed::backends::{output_of, shell, spec};
use agent_testbed::cluster::{self, Api, Node, settings};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

async fn start(backend: &Kubernetes, spec: &Spec) -> Sandbox {
    let (channel, _) = backend.start(spec, &|_, _, _| {}).await.expect("the sandbox starts");
    Sandbox::connect(channel).await.expect("the guest answers")
}

/// A client behind a proxy.
async fn behind(api: &Api, settings: Settings) -> (Kubernetes, WireTap, tempfile::TempDir) {
    let tap = WireTap::start(api.address()).await;
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = directory.path().join("kubeconfig");
    let text = std::fs::read_to_string(&api.kubeconfig).expect("a kubeconfig");
    let text = text.replace(&api.server(), &format!("https://{}", tap.address));
    std::fs::write(&kubeconfig, text).expect("written");
    let backend = cluster::with(kubeconfig.to_str().expect("a path"), settings).await;
    (backend, tap, directory)
}

async fn attached(backend: &Kubernetes, spec: &Spec) -> Sandbox {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let attempt = async { Sandbox::connect(backend.attach(&spec.session).await?).await };
        match attempt.await {
            Ok(sandbox) => return sandbox,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Runs what never ends until the connection does, and returns the outcome and what every later request says.
async fn lost(sandbox: &Sandbox, after: impl Future<Output = ()>) -> (Outcome, String) {
    let mut on_output = |_: agent::sandbox::Output<'_>| {};
    // The kubelet looks at disks about once a minute.
    let endless = Command { timeout: None, ..shell("sleep 100000") };
    let (finished, ()) = tokio::join!(sandbox.run(endless, &mut on_output), after);
    let error = sandbox.run(shell("true"), &mut |_| {}).await.expect_err("the connection has ended");
    assert_eq!(error.exit_code() as u8, 4);
    (finished.expect("an outcome").outcome, error.to_string())
}

/// How a command ends whose connection is cut.
async fn cut(sandbox: &Sandbox, after: impl Future<Output = ()>) -> Outcome {
    let endless = Command { timeout: None, ..shell("sleep 100000") };
    let mut on_output = |_: agent::sandbox::Output<'_>| {};
    let (finished, ()) = tokio::join!(sandbox.run(endless, &mut on_output), after);
    finished.expect("an outcome").outcome
}

async fn job(sandbox: &Sandbox) -> u64 {
    let job = Command { timeout: None, ..shell("while :; do echo up; sleep 1; done") };
    sandbox.start_job(job).await.expect("a job")
}

async fn assert_runs(sandbox: &Sandbox, job: u64) {
    let output = sandbox.job_output(job, Duration::from_secs(20)).await.expect("its output");
    assert!(output.state.is_none() && !output.output.is_empty(), "{output:?}");
}

#[tokio::test]
async fn a_stream_that_is_fed_one_byte_at_a_time_loses_nothing() {
    let Some(api) = Api::connect().await else { return };
    let (backend, tap, _directory) = behind(&api, settings()).await;
    let spec = spec();
    let sandbox = start(&backend, &spec).await;
    tap.set(Mode::Drip);
    let numbers: String = (1..=3000).map(|number| format!("{number}\n")).collect();
    assert_eq!(output_of(&sandbox, "seq 1 3000").await, numbers.trim_end());
    let second = attached(&backend, &spec).await;
    assert_eq!(output_of(&second, "seq 1 3000 | tail -n 1").await, "3000");
    tap.set(Mode::Pass);
    backend.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_client_that_is_cut_off_for_30_s_joins_its_pod_again_and_finds_its_jobs() {
    let Some(api) = Api::connect().await else { return };
    let (backend, tap, _directory) = behind(&api, settings()).await;
    let spec = Spec { idle_ttl: Duration::from_secs(300), ..spec() };
    let sandbox = start(&backend, &spec).await;
    let job = job(&sandbox).await;
    assert_eq!(cut(&sandbox, async { tap.set(Mode::Cut) }).await, Outcome::Lost);
    let error = backend.attach(&spec.session).await.err().expect("it is still cut off");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("kubectl version")), "{error:?}");
    let cut_for = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        tap.set(Mode::Pass);
    };
    // The same handle: what is asked meanwhile waits.
    let (said, ()) = tokio::join!(
        output_of(&sandbox, "echo joined; ps ax -o args | grep -c '[s]leep 100000' || true"),
        cut_for
    );
    assert_eq!(said, "joined\n0", "the command of the cut connection has ended");
    assert_runs(&sandbox, job).await;
    backend.destroy(&spec.session).await.expect("removed");
}

/// A session of the program: the cut is in the middle of a command, and the session goes on to its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_stream_is_cut_goes_on() {
    let Some(api) = Api::connect().await else { return };
    let (backend, tap, directory) = behind(&api, settings()).await;
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo kept > file.txt; echo started; sleep 100000" }))
        .tool_call("run_commands", json!({ "command": "cat file.txt" }))
        .text("done")
        .start();
    let kubeconfig = directory.path().join("kubeconfig");
    let call =
        crate::kubernetes::program(&api, agent()).env("KUBECONFIG", kubeconfig.to_str().expect("a path"));
    let running = call.file("a.txt", "one\n").endpoint(&model).args(["run", "--json", "go"]).start();
    let sessions = || {
        let list = running.again().args(["sessions", "--json"]).run().expect_code(0);
        serde_json::from_str::<Vec<Value>>(&list.stdout).expect("JSON")
    };
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let ids = tokio::task::block_in_place(sessions);
        let id = ids.first().and_then(|session| session["id"].as_str());
        let runs = async {
            let sandbox = Sandbox::connect(backend.attach(id?).await.ok()?).await.ok()?;
            let seen = output_of(&sandbox, "ps ax -o args | grep -c '[s]leep 100000' || true").await;
            (seen != "0").then_some(())
        };
        if runs.await.is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "the command runs");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tap.set(Mode::Cut);
    tokio::time::sleep(Duration::from_secs(3)).await;
    tap.set(Mode::Pass);
    tokio::task::block_in_place(|| {
        let ran = running.wait().expect_code(0);
        assert!(ran.stdout.contains("lost: the sandbox did not say how the command ended"), "{}", ran.stdout);
        let seen = model.requests().last().expect("a request").messages();
        let is_kept =
            |message: &Value| message["role"] == "tool" && message["content"].to_string().contains("kept");
        assert!(seen.iter().any(is_kept), "{seen:?}");
    });
}

#[tokio::test]
async fn credentials_that_are_not_valid_any_more_are_a_sentence() {
    let Some(api) = Api::connect().await else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = directory.path().join("kubeconfig");
    let text = std::fs::read_to_string(&api.kubeconfig).expect("a kubeconfig");
    std::fs::write(&kubeconfig, text.replace("admintoken", "expired")).expect("written");
    let backend = cluster::with(kubeconfig.to_str().expect("a path"), settings()).await;
    let error = backend.list().await.expect_err("it is refused");
    assert_eq!(error.to_string(), "the sandboxes could not be listed: Unauthorized");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("a token may have expired")), "{error:?}");
}

/// Returns what examples/kubernetes/rbac.yaml grants.
fn least_rights() -> Value {
    let text = include_str!("../../examples/kubernetes/rbac.yaml");
    let rules = text.split("rules:\n").nth(1).and_then(|rest| rest.split("---").next()).expect("rules");
    let mut found: Vec<Value> = Vec::new();
    for line in rules.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let (name, list) = line.trim_start_matches("- ").split_once(':').expect("a field");
        let items = list.trim().trim_matches(['[', ']']).split(',').map(|item| item.trim().trim_matches('"'));
        if line.starts_with("- ") {
            found.push(json!({}));
        }
        found.last_mut().expect("a rule")[name] = items.collect::<Value>();
    }
    found.into()
}

/// How a kubeconfig names credentials that somebody renews.
#[derive(Debug, Clone, Copy)]
enum Renewed {
    InTheKubeconfig,
    InAFile,
    ByAPlugin,
}

impl Renewed {
    /// Writes a kubeconfig with `token`, as a login tool does it.
    fn write(self, directory: &std::path::Path, server: &str, token: &str) {
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).expect("written");
        let file = directory.join("token").display().to_string();
        let user = match self {
            Self::InTheKubeconfig => json!({ "token": token }),
            Self::InAFile => json!({ "tokenFile": file }),
            Self::ByAPlugin => json!({ "exec": {
                "apiVersion": "client.authentication.k8s.io/v1beta1", "command": "cat", "args": [file], "interactiveMode": "Never",
            }}),
        };
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": { "token": token },
        });
        match self {
            Self::InTheKubeconfig | Self::InAFile => write("token", token),
            Self::ByAPlugin => write("token", &credential.to_string()),
        }
        cluster::write_kubeconfig(directory, server, user);
    }
}

/// A token that expires in the middle of a session: what is connected stays, what is asked for anew is refused in words, and once the
/// credentials are renewed, a stream that is cut is joined again with them.
async fn with_a_token_that_expires(renewed: Renewed) {
    let (Some(api), Some(node)) = (Api::connect().await, Node::of_this_machine()) else { return };
    let account = api.account(least_rights()).await;
    let tap = WireTap::start(api.address()).await;
    let server = format!("https://{}", tap.address);
    let directory = tempfile::tempdir().expect("a directory");
    renewed.write(directory.path(), &server, &node.token(&account, 25));
    let kubeconfig = directory.path().join("kubeconfig");
    let backend = cluster::with(kubeconfig.to_str().expect("a path"), settings()).await;
    let spec = Spec { idle_ttl: Duration::from_secs(300), ..spec() };
    let sandbox = start(&backend, &spec).await;
    let job = job(&sandbox).await;
    let deadline = Instant::now() + Duration::from_secs(120);
    let refused = loop {
        match backend.list().await {
            Ok(_) => assert!(Instant::now() < deadline, "{renewed:?}: the token does not expire"),
            Err(error) => break error,
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    assert_eq!(refused.to_string(), "the sandboxes could not be listed: Unauthorized", "{renewed:?}");
    assert_eq!(output_of(&sandbox, "echo still here").await, "still here");
    renewed.write(directory.path(), &server, &node.token(&account, 3600));
    assert_eq!(cut(&sandbox, async { tap.set(Mode::Cut) }).await, Outcome::Lost);
    tap.set(Mode::Pass);
    assert_eq!(output_of(&sandbox, "echo joined").await, "joined", "{renewed:?}");
    assert_runs(&sandbox, job).await;
    backend.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_token_that_expires_is_renewed_from_the_kubeconfig() {
    with_a_token_that_expires(Renewed::InTheKubeconfig).await;
}

#[tokio::test]
async fn a_token_that_expires_is_renewed_from_a_file() {
    with_a_token_that_expires(Renewed::InAFile).await;
}

#[tokio::test]
async fn a_token_that_expires_is_renewed_by_a_plugin() {
    with_a_token_that_expires(Renewed::ByAPlugin).await;
}

/// With the rights of examples/kubernetes/rbac.yaml and no more: an attach is refused, and everything goes over exec.
#[tokio::test]
async fn a_session_needs_the_least_rights_and_no_attach() {
    let Some(api) = Api::connect().await else { return };
    let account = api.account(least_rights()).await;
    let directory = tempfile::tempdir().expect("a directory");
    let token = api.token(&account).await;
    Renewed::InTheKubeconfig.write(directory.path(), &api.server(), &token);
    let kubeconfig = directory.path().join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("a path");
    let backend = cluster::with(kubeconfig, settings()).await;
    let spec = Spec { idle_ttl: Duration::from_secs(300), ..spec() };
    let sandbox = start(&backend, &spec).await;
    let job = job(&sandbox).await;
    let other = Api::of(kubeconfig).await;
    let path = format!("/api/v1/namespaces/default/pods/agent-{}/attach?stdout=true", spec.session);
    let refused = other.send("POST", &path, None).await.expect_err("it is refused").to_string();
    assert!(refused.contains("cannot create resource \"pods/attach\""), "{refused}");
    drop(sandbox);
    assert_runs(&attached(&backend, &spec).await, job).await;
    assert!(backend.list().await.expect("a list").iter().any(|listed| listed.session == spec.session));
    backend.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_pod_that_is_evicted_says_why() {
    let Some(api) = Api::connect().await else { return };
    let backend =
        cluster::with(&api.kubeconfig, Settings { tmp_size: Some("1m".to_owned()), ..settings() }).await;
    let spec = Spec { idle_ttl: Duration::from_secs(300), ..spec() };
    let sandbox = start(&backend, &spec).await;
    output_of(&sandbox, "head -c 50000000 /dev/zero > /tmp/large").await;
    let (outcome, said) = lost(&sandbox, async {}).await;
    assert_eq!(outcome, Outcome::Lost);
    assert!(said.contains("the pod was evicted") && said.contains("tmp"), "{said}");
    backend.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_pod_that_has_reached_its_age_says_so() {
    let Some(api) = Api::connect().await else { return };
    let backend =
        cluster::with(&api.kubeconfig, Settings { max_age: Some("25s".to_owned()), ..settings() }).await;
    let spec = Spec { idle_ttl: Duration::from_secs(300), ..spec() };
    let sandbox = start(&backend, &spec).await;
    let (outcome, said) = lost(&sandbox, async {}).await;
    assert_eq!(outcome, Outcome::Lost);
    assert!(said.contains("has reached its greatest age"), "{said}");
    backend.destroy(&spec.session).await.expect("removed");
}

/// With the cluster of `.ci/cluster` alone, and not beside other tests: `.ci/cluster` runs it by itself.
#[tokio::test]
#[ignore = "restarts the cluster's programs under other tests"]
async fn what_runs_in_a_pod_survives_an_api_server_and_a_kubelet_that_are_killed() {
    let Some(api) = Api::connect().await else { return };
    let Some(node) = Node::of_this_machine() else { return };
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    let spec = Spec { idle_ttl: Duration::from_secs(300), ..spec() };
    let sandbox = start(&backend, &spec).await;
    let job = job(&sandbox).await;
    // In the middle of a command, which is lost; the same handle joins the guest again.
    assert_eq!(cut(&sandbox, async { node.restart("apiserver") }).await, Outcome::Lost);
    assert_runs(&sandbox, job).await;
    node.restart("kubelet");
    assert_runs(&sandbox, job).await;
    assert_runs(&attached(&backend, &spec).await, job).await;
    backend.destroy(&spec.session).await.expect("removed");
}
