//! Pods as sandboxes: what differs from other backends, on a real cluster. Without one nothing is tested: `.ci/cluster` starts one.

use agent::sandbox::kubernetes::{Isolation, Kubernetes, Settings};
use agent::sandbox::{Backend, Command, Network, Outcome, Sandbox, Spec, State};
use agent_testbed::agent::{Agent, agent};
use agent_testbed::backends::{output_of, shell, spec};
use agent_testbed::cluster::{self, Api, configured, settings};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

async fn start(backend: &Kubernetes, spec: &Spec) -> Sandbox {
    let (channel, _) = backend.start(spec, &|_, _, _| {}).await.expect("the sandbox starts");
    Sandbox::connect(channel).await.expect("the guest answers")
}

/// Asks until the answer is there.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_pod_is_what_the_level_restricted_demands_and_more() {
    let Some(api) = Api::connect().await else { return };
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    let spec = spec();
    let sandbox = start(&backend, &spec).await;
    let pod = api.pod(&spec.session).await.expect("the pod");
    let at = |path: &str| pod.pointer(path).cloned().unwrap_or_default();
    assert_eq!(at("/spec/automountServiceAccountToken"), false);
    assert_eq!(at("/spec/enableServiceLinks"), false);
    assert_eq!(at("/spec/restartPolicy"), "Never");
    assert_eq!(at("/spec/activeDeadlineSeconds"), 86_400);
    assert_eq!(at("/spec/securityContext/runAsNonRoot"), true);
    assert_eq!(at("/spec/securityContext/seccompProfile/type"), "RuntimeDefault");
    assert_eq!(
        at("/spec/securityContext/sysctls"),
        json!([{ "name": "kernel.shm_rmid_forced", "value": "1" }])
    );
    let container = "/spec/containers/0/securityContext";
    assert_eq!(at(&format!("{container}/allowPrivilegeEscalation")), false);
    assert_eq!(at(&format!("{container}/readOnlyRootFilesystem")), true);
    assert_eq!(at(&format!("{container}/capabilities")), json!({ "drop": ["ALL"] }));
    let limits = at("/spec/containers/0/resources/limits");
    assert!(
        ["cpu", "memory", "ephemeral-storage"].iter().all(|limit| limits.get(limit).is_some()),
        "{limits}"
    );
    for volume in at("/spec/volumes").as_array().expect("volumes") {
        assert!(
            volume.get("downwardAPI").is_some() || volume.pointer("/emptyDir/sizeLimit").is_some(),
            "{volume}"
        );
    }
    // What is inside has nothing to do with the cluster.
    let seen = output_of(&sandbox, "env; ls /var/run/secrets 2>&1; id; cat /proc/self/status").await;
    assert!(!seen.contains("KUBERNETES"), "{seen}");
    assert!(seen.contains("cannot access") && seen.contains("CapEff:\t0000000000000000"), "{seen}");
    assert!(seen.contains("Seccomp:\t2") && seen.contains("NoNewPrivs:\t1"), "{seen}");
    // The guest cannot be replaced, nor seen into.
    let ran = output_of(
        &sandbox,
        "(mv /agent/guest /tmp/guest) 2>&1; (touch /etc/x /agent/x) 2>&1; ls -l /proc/1/exe 2>&1 || true",
    )
    .await;
    assert_eq!(ran.matches("denied").count() + ran.matches("Read-only").count(), 4, "{ran}");
    backend.destroy(&spec.session).await.expect("removed");
    until("the pod is gone", async || api.pod(&spec.session).await.is_none().then_some(())).await;
}

#[tokio::test]
async fn another_client_attaches_and_a_stream_that_ends_is_joined_again() {
    let Some(api) = Api::connect().await else { return };
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    let spec = Spec { idle_ttl: Duration::from_secs(120), ..spec() };
    let sandbox = start(&backend, &spec).await;
    let job = sandbox
        .start_job(agent::sandbox::Command { timeout: None, ..shell("echo up; sleep 600") })
        .await
        .expect("a job");
    let second = Sandbox::connect(backend.attach(&spec.session).await.expect("attached"))
        .await
        .expect("the guest answers");
    assert_eq!(output_of(&second, "echo two > /workspace/file; cat /workspace/file").await, "two");
    drop(sandbox);
    drop(second);
    let again = Sandbox::connect(backend.attach(&spec.session).await.expect("attached"))
        .await
        .expect("the guest answers");
    let output = again.job_output(job, Duration::from_secs(20)).await.expect("its output");
    assert!(output.state.is_none() && !output.output.is_empty(), "{output:?}");
    backend.destroy(&spec.session).await.expect("removed");
}

/// One thread, one pod.
#[tokio::test]
async fn two_clients_that_start_one_session_meet_in_one_pod() {
    let Some(api) = Api::connect().await else { return };
    let (first, second) =
        (cluster::with(&api.kubeconfig, settings()).await, cluster::with(&api.kubeconfig, settings()).await);
    let spec = spec();
    let (one, two) = tokio::join!(start(&first, &spec), start(&second, &spec));
    assert_eq!(output_of(&one, "echo here > /workspace/file; hostname").await, "sandbox");
    assert_eq!(output_of(&two, "cat /workspace/file").await, "here");
    first.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_session_whose_pod_has_ended_gets_another() {
    let Some(api) = Api::connect().await else { return };
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    // Longer than a busy cluster takes to close the pod's network and to connect.
    let spec = Spec { idle_ttl: Duration::from_secs(20), ephemeral: false, ..spec() };
    drop(start(&backend, &spec).await);
    let stopped = until("the pod ends by itself", async || {
        let listed =
            backend.list().await.expect("the list").into_iter().find(|it| it.session == spec.session)?;
        (listed.state == State::Stopped).then_some(())
    });
    stopped.await;
    let error = backend.attach(&spec.session).await.err().expect("it has ended");
    assert_eq!(error.to_string(), "the sandbox has ended: nobody was connected");
    let sandbox = start(&backend, &spec).await;
    assert_eq!(output_of(&sandbox, "echo again").await, "again");
    backend.destroy(&spec.session).await.expect("removed");
}

/// A removal that is tried again later went by the name of the pod: the session may have another by then.
#[tokio::test]
async fn a_removal_leaves_the_pod_that_another_process_has_made_in_place_of_the_one_it_was_for() {
    let Some(api) = Api::connect().await else { return };
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    let spec = spec();
    start(&backend, &spec).await;
    let meant = backend.identity(&spec.session).expect("the uid of the pod");
    assert_eq!(api.pod(&spec.session).await.expect("a pod")["metadata"]["uid"], meant.as_str());
    let other = cluster::with(&api.kubeconfig, settings()).await;
    other.destroy(&spec.session).await.expect("removed");
    assert!(api.pod(&spec.session).await.is_none(), "it counts for no quota any more");
    let sandbox = start(&other, &spec).await;
    backend.destroy_only(&spec.session, &meant).await.expect("the one that was meant is gone");
    assert_eq!(output_of(&sandbox, "echo here").await, "here");
    // One that attaches knows which it is, too.
    drop(sandbox);
    backend.attach(&spec.session).await.expect("attached");
    let meant = backend.identity(&spec.session).expect("the uid of the other pod");
    backend.destroy_only(&spec.session, &meant).await.expect("removed");
    assert!(api.pod(&spec.session).await.is_none());
}

/// The policy closes the network of a pod, which is tried from inside, and no other's.
#[tokio::test]
async fn a_cluster_that_enforces_policies_closes_the_network_of_a_pod() {
    let Some(api) = Api::connect().await.filter(|_| cluster::enforces_policies()) else { return };
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let settings = Settings { isolation: Isolation::Proved, ..settings() };
    let backend = cluster::with(&api.kubeconfig, settings).await;
    for (network, expected) in [(Network::None, "closed"), (Network::Full, "open")] {
        let spec = Spec { network, ..spec() };
        let sandbox = start(&backend, &spec).await;
        let gateway = "$(awk '$2 == \"00000000\" { print $3 }' /proc/net/route | sed -E 's/(..)(..)(..)(..)/0x\\4.0x\\3.0x\\2.0x\\1/')";
        let connect = format!(
            "gateway=$(printf '%d.%d.%d.%d' $(echo {gateway} | tr . ' ')); \
             timeout 3 bash -c \"exec 3<>/dev/tcp/$gateway/{port}\" 2>/dev/null && echo open || echo closed"
        );
        assert_eq!(output_of(&sandbox, &connect).await, expected);
        backend.destroy(&spec.session).await.expect("removed");
    }
}

/// The cluster's network plugin enforces nothing here: the hard case.
#[tokio::test]
async fn a_cluster_that_does_not_enforce_policies_is_refused_and_nothing_is_left() {
    let Some(api) = Api::connect().await.filter(|_| !cluster::enforces_policies()) else { return };
    let settings = Settings { isolation: Isolation::Proved, ..settings() };
    let backend = cluster::with(&api.kubeconfig, settings).await;
    let isolated = spec();
    let error = backend.start(&isolated, &|_, _, _| {}).await.err().expect("it is refused");
    let text = error.to_string();
    assert!(
        text.starts_with("the cluster does not enforce network policies") && text.contains(":10250"),
        "{text}"
    );
    assert!(error.hint_text().is_some_and(|hint| hint.contains("isolation = \"trusted\"")), "{error:?}");
    until("the pod is gone", async || api.pod(&isolated.session).await.is_none().then_some(())).await;
    let open = Spec { network: Network::Full, ..spec() };
    let sandbox = start(&backend, &open).await;
    assert_eq!(output_of(&sandbox, "echo here").await, "here");
    backend.destroy(&open.session).await.expect("removed");
}

#[tokio::test]
async fn a_lookup_of_a_name_fails_at_once() {
    let Some(api) = Api::connect().await else { return };
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    let spec = spec();
    let sandbox = start(&backend, &spec).await;
    let look = "python3 -c 'import socket,time\ns=time.time()\ntry: socket.getaddrinfo(\"example.com\",1)\nexcept OSError: print(time.time()-s<3)'";
    assert_eq!(output_of(&sandbox, look).await, "True");
    backend.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn every_reason_to_give_up_is_a_sentence_and_leaves_no_pod() {
    let Some(api) = Api::connect().await else { return };
    let kubeconfig = &api.kubeconfig;
    let refused = async |settings: Settings, spec: Spec| {
        let backend = cluster::with(kubeconfig, settings).await;
        let error = backend.start(&spec, &|_, _, _| {}).await.err().expect("it does not start");
        until("no pod is left", async || api.pod(&spec.session).await.is_none().then_some(())).await;
        format!("{error} → {}", error.hint_text().unwrap_or_default())
    };
    let image = Spec { image: Some("local.test/missing:1".to_owned()), ..spec() };
    let runtime = Spec { runtime: Some("no-such".to_owned()), ..spec() };
    let mut huge = spec();
    huge.limits.cpus = 1000.0;
    let huge_settings =
        Settings { pod_template: Default::default(), start_timeout: Some("3s".to_owned()), ..settings() };
    let no_shell = Settings { image: Some(cluster::EMPTY_IMAGE.to_owned()), ..settings() };
    let (image, runtime, huge, no_shell) = tokio::join!(
        refused(settings(), image),
        refused(settings(), runtime),
        refused(huge_settings, huge),
        refused(no_shell, spec()),
    );
    assert!(
        image.starts_with("the image local.test/missing:1 cannot be pulled")
            && image.contains("pull_secrets"),
        "{image}"
    );
    assert!(runtime.contains("no-such") && runtime.contains("kubectl get runtimeclass"), "{runtime}");
    assert!(huge.starts_with("the pod did not run after 3 s: waiting for a node: 0/1 nodes"), "{huge}");
    assert!(no_shell.contains("init_image"), "{no_shell}");
}

#[tokio::test]
async fn a_full_quota_is_a_sentence() {
    let Some(api) = Api::connect().await else { return };
    let namespace = api.namespace("quota").await;
    // Counting is the controller manager's work, which a small cluster does not have.
    let quota = json!({ "metadata": { "name": "full" }, "spec": { "hard": { "pods": "0" } } });
    let counted = json!({ "hard": { "pods": "0" }, "used": { "pods": "0" } });
    api.create_with_status(&namespace, "resourcequotas", quota, counted).await;
    let backend =
        cluster::with(&api.kubeconfig, Settings { namespace: Some(namespace.clone()), ..settings() }).await;
    let refused = until("the quota counts", async || match backend.start(&spec(), &|_, _, _| {}).await {
        Ok(_) => panic!("there is no quota"),
        Err(error) if error.to_string().contains("exceeded quota") => Some(error),
        Err(_) => None,
    });
    let error = refused.await;
    assert_eq!(error.exit_code() as u8, 4);
    assert!(error.hint_text().is_some_and(|hint| hint.contains("kubectl describe quota")), "{error:?}");
    api.remove_namespace(&namespace).await;
}

/// The error names what ended, not only that something did.
#[tokio::test]
async fn a_pod_that_is_deleted_in_mid_command_is_lost_by_name() {
    let Some(api) = Api::connect().await else { return };
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    let spec = spec();
    let sandbox = start(&backend, &spec).await;
    let mut is_started = Some(());
    let session = spec.session.clone();
    let kubernetes = backend.clone();
    // A busy kubelet takes a while to end the container.
    let command = Command { timeout: Some(Duration::from_secs(240)), ..shell("echo started; sleep 1000") };
    let finished = sandbox
        .run(command, &mut |_| {
            if is_started.take().is_some() {
                let (kubernetes, session) = (kubernetes.clone(), session.clone());
                tokio::spawn(async move { kubernetes.destroy(&session).await });
            }
        })
        .await
        .expect("an outcome");
    assert_eq!(finished.outcome, Outcome::Lost);
    let error = sandbox.run(shell("true"), &mut |_| {}).await.expect_err("the connection has ended");
    assert!(error.to_string().contains("the pod was deleted"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_is_looked_at_by_the_doctor() {
    let Some(api) = Api::connect().await else { return };
    let doctor = || program(&api, agent()).args(["doctor", "--sandbox", "kubernetes", "--json"]).run();
    let ran = tokio::task::block_in_place(doctor);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let found = |name: &str| {
        let checks = report["checks"].as_array().expect("checks").iter();
        checks
            .filter(|check| check["name"] == name)
            .map(|check| check["found"].to_string())
            .collect::<String>()
    };
    assert!(
        found("kubernetes").contains("answers, v") && found("kubernetes").contains("ran a command in"),
        "{report}"
    );
    assert_eq!(found("rights"), "\"all 9 that a session needs\"");
    assert!(found("admission").contains("would be taken"), "{report}");
    let isolation = if cluster::enforces_policies() { "enforces network policies" } else { "not tried" };
    assert!(found("isolation").contains(isolation), "{report}");
}

/// The program, with the cluster as its backend.
pub fn program(api: &Api, call: Agent) -> Agent {
    program_in(api, call, "default")
}

/// The same, with pods of another namespace.
pub fn program_in(api: &Api, call: Agent, namespace: &str) -> Agent {
    configured(call, &api.kubeconfig, namespace)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_works_in_a_pod_and_leaves_none() {
    let Some(api) = Api::connect().await else { return };
    tokio::task::block_in_place(|| {
        let call = program(&api, agent()).file("a.txt", "one\n");
        let listing = program(&api, call.again());
        let ran = call.args(["exec", "sh", "-c", "cat a.txt; pwd; exit 7"]).run().expect_code(7);
        assert_eq!(ran.stdout, "one\n/workspace\n");
        // Others of this machine may be there.
        let listed =
            listing.args(["sandbox", "list", "--sandbox", "kubernetes", "--json"]).run().expect_code(0);
        assert!(serde_json::from_str::<Vec<Value>>(&listed.stdout).is_ok(), "{}", listed.stdout);
    });
}

/// A session whose pod is lost reports that, is complete, and continues in another with its workspace.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_continues_in_a_fresh_pod_with_its_workspace() {
    let Some(api) = Api::connect().await else { return };
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo kept > file.txt" }))
        .tool_call("run_commands", json!({ "command": "echo started; sleep 1000" }))
        // What is asked of the sandbox that is lost ends the run.
        .tool_call("run_commands", json!({ "command": "true" }))
        .tool_call("run_commands", json!({ "command": "cat file.txt" }))
        .text("done")
        .start();
    let call = program(&api, agent()).file("a.txt", "one\n").endpoint(&model);
    let running = call.args(["run", "--json", "--session-key", "one", "go"]).start();
    let sessions = || {
        let list = running.again().args(["sessions", "--json"]).run().expect_code(0);
        serde_json::from_str::<Vec<Value>>(&list.stdout).expect("JSON")
    };
    let session = until("the session starts", async || {
        let id = tokio::task::block_in_place(sessions).first()?["id"].as_str()?.to_owned();
        (model.chat_requests().len() >= 2 && api.pod(&id).await.is_some()).then_some(id)
    });
    let session = session.await;
    // The second command runs.
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    until("the command runs", async || {
        let channel = backend.attach(&session).await.ok()?;
        let sandbox = Sandbox::connect(channel).await.ok()?;
        let seen = output_of(&sandbox, "ps ax -o args | grep -c '[s]leep 1000' || true").await;
        (seen != "0").then_some(())
    })
    .await;
    backend.destroy(&session).await.expect("the pod is deleted");
    tokio::task::block_in_place(|| {
        let again = running.again();
        let lost = running.wait().expect_code(4);
        assert!(
            lost.stderr.contains("the pod was deleted") || lost.stdout.contains("the pod was deleted"),
            "{}",
            lost.stderr
        );
        lost.again().args(["sessions", "verify", &session]).run().expect_code(0);
        let resumed = program(&api, again)
            .endpoint(&model)
            .args(["run", "-q", "--session", &session, "look"])
            .run()
            .expect_code(0);
        let seen = model.requests().last().expect("a request").messages();
        assert!(
            seen.iter()
                .any(|message| message["role"] == "tool" && message["content"].to_string().contains("kept")),
            "{seen:?}"
        );
        program(&api, resumed.again()).args(["sessions", "rm", &session]).run().expect_code(0);
    });
}
