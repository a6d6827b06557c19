//! `agent batch` with pods: the cluster says how many run at once.

use crate::kubernetes::program_in;
use agent_testbed::agent::agent;
use agent_testbed::batch::{batch, prompt_of, results, tasks, writer};
use agent_testbed::cluster::{Api, Node};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The part of the controller manager that counts the pods of a namespace, which a small cluster does not have.
async fn count_pods(api: &Api, namespace: &str) {
    let quota = format!("/api/v1/namespaces/{namespace}/resourcequotas/small");
    loop {
        let pods = api.send("GET", &format!("/api/v1/namespaces/{namespace}/pods"), None).await;
        let used = pods.expect("the pods")["items"].as_array().map_or(0, Vec::len).to_string();
        let mut found = api.send("GET", &quota, None).await.expect("the quota");
        if found["status"]["used"]["pods"] != used {
            found["status"]["used"]["pods"] = json!(used);
            // A pod that was made meanwhile is counted the next time.
            let _ = api.send("PUT", &format!("{quota}/status"), Some(&found)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_slows_a_batch_down_and_costs_no_task() {
    let Some(api) = Api::connect().await else { return };
    let namespace = api.namespace("batch").await;
    let quota = json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "2" } } });
    let counted = json!({ "hard": { "pods": "2" }, "used": { "pods": "0" } });
    api.create_with_status(&namespace, "resourcequotas", quota, counted).await;
    let model = writer();
    let call = program_in(&api, agent(), &namespace).file("tasks.jsonl", tasks(6));
    let workspace = call.workspace().to_owned();
    // A kubelet that is busy with the pods of other tests may take a minute to let go of these.
    let call = call.deadline(Duration::from_secs(300));
    let running = batch(call, &model, &["--parallel", "6"]).start();
    let finished = tokio::select! {
        () = count_pods(&api, &namespace) => unreachable!("it counts until the batch has ended"),
        finished = tokio::task::spawn_blocking(|| running.wait()) => finished.expect("it is waited for"),
    };
    let finished = finished.expect_code(0);
    assert!(finished.stderr.contains("exceeded quota"), "{}", finished.stderr);
    let results = results(&workspace);
    assert!(results.iter().all(|result| result["status"] == "completed"), "{results:?}");
    let mut ids: Vec<&str> = results.iter().filter_map(|result| result["id"].as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["task-0", "task-1", "task-2", "task-3", "task-4", "task-5"]);
    for id in ids {
        let patch = std::fs::read_to_string(workspace.join(format!("out/patches/{id}.patch")));
        assert!(patch.expect("a patch").contains("+write f"), "{id}");
    }
    assert_eq!(pods(&api, &namespace).await, Vec::<String>::new(), "no pod is left behind");
    api.remove_namespace(&namespace).await;
}

/// The place of a task was free while its pod was still ending, and counted for the quota.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_never_has_more_pods_than_it_runs_tasks_at_once() {
    let Some(api) = Api::connect().await else { return };
    let namespace = api.namespace("places").await;
    let model = writer();
    let call = program_in(&api, agent(), &namespace).file("tasks.jsonl", tasks(6));
    let running = batch(call, &model, &["--parallel", "2"]).start();
    let mut most = 0;
    let count = async {
        loop {
            let pods = api.send("GET", &format!("/api/v1/namespaces/{namespace}/pods"), None).await;
            most = most.max(pods.expect("the pods")["items"].as_array().map_or(0, Vec::len));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let finished = tokio::select! {
        () = count => unreachable!("it counts until the batch has ended"),
        finished = tokio::task::spawn_blocking(|| running.wait()) => finished.expect("it is waited for"),
    };
    finished.expect_code(0);
    assert_eq!(most, 2);
    api.remove_namespace(&namespace).await;
}

/// The pods of a namespace that are not being removed, without those that have ended.
async fn pods(api: &Api, namespace: &str) -> Vec<String> {
    let pods = api.send("GET", &format!("/api/v1/namespaces/{namespace}/pods"), None).await;
    let is_left = |pod: &&Value| pod.pointer("/metadata/deletionTimestamp").is_none();
    let pods = pods.expect("the pods")["items"].as_array().cloned().unwrap_or_default();
    let names = pods.iter().filter(is_left).filter_map(|pod| pod.pointer("/metadata/name")?.as_str());
    names.map(str::to_owned).collect()
}

async fn until_results(workspace: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while results(workspace).len() < count {
        assert!(Instant::now() < deadline, "{} results", results(workspace).len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Pods were left whose removal failed while the API server was away. With the cluster of `.ci/cluster` alone: it restarts its API
/// server. `AGENT_TEST_BATCH_TASKS` names another number of tasks.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "restarts the cluster's programs under other tests: .ci/cluster runs it alone"]
async fn each_task_of_a_batch_is_done_once_while_the_api_server_is_killed_and_no_pod_is_left() {
    let Some(api) = Api::connect().await else { return };
    let Some(node) = Node::of_this_machine() else { return };
    let count: usize =
        std::env::var("AGENT_TEST_BATCH_TASKS").map_or(40, |count| count.parse().expect("a number of tasks"));
    let namespace = api.namespace("many").await;
    let model = writer();
    let call = program_in(&api, agent(), &namespace).file("tasks.jsonl", tasks(count));
    let workspace = call.workspace().to_owned();
    let begun = Instant::now();
    let running = batch(call, &model, &["--parallel", "20"]).deadline(Duration::from_secs(900)).start();
    until_results(&workspace, count / 2).await;
    let before = begun.elapsed();
    node.restart("apiserver");
    let finished = tokio::task::block_in_place(|| running.wait()).expect_code(0);
    println!("{count} tasks: {:?}, the API server was killed after {before:?}", begun.elapsed());
    let results = results(&workspace);
    assert!(results.iter().all(|result| result["status"] == "completed"), "{results:?}");
    let mut ids: Vec<&str> = results.iter().filter_map(|result| result["id"].as_str()).collect();
    ids.sort_unstable();
    let mut expected: Vec<String> = (0..count).map(|i| format!("task-{i}")).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected, "each task once; {}", finished.stderr);
    for i in 0..count {
        let patch = std::fs::read_to_string(workspace.join(format!("out/patches/task-{i}.patch")));
        assert!(patch.expect("a patch").contains(&format!("+write f{i}")), "task-{i}");
    }
    assert_eq!(pods(&api, &namespace).await, Vec::<String>::new(), "no pod is left behind");
    api.remove_namespace(&namespace).await;
}

/// The garbage collector removes the pods of a dead node as this test does: at once, whatever runs in them.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_is_a_lost_sandbox_and_no_lost_task() {
    let Some(api) = Api::connect().await else { return };
    let namespace = api.namespace("node").await;
    let model = endpoint()
        .by_rule(|body| {
            let (prompt, is_first) = prompt_of(body);
            let name = prompt.split_whitespace().last().unwrap_or_default().to_owned();
            match is_first {
                true => endpoint().tool_call(
                    "run_commands",
                    json!({ "command": format!("sleep 5; echo {prompt} > {name}") }),
                ),
                false => endpoint().text("done"),
            }
        })
        .start();
    let call = program_in(&api, agent(), &namespace).file("tasks.jsonl", tasks(2));
    let workspace = call.workspace().to_owned();
    let running = batch(call, &model, &["--parallel", "2"]).start();
    // A task that has its first answer is in the middle of its command.
    let deadline = Instant::now() + Duration::from_secs(60);
    let lost = loop {
        let found = pods(&api, &namespace).await;
        if found.len() == 2 && model.chat_requests().len() == 2 {
            break found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    for pod in lost {
        let now = json!({ "gracePeriodSeconds": 0 });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
        api.send("DELETE", &path, Some(&now)).await.expect("it is removed");
    }
    let finished = tokio::task::block_in_place(|| running.wait()).expect_code(0);
    let results = results(&workspace);
    assert!(
        results.len() == 2 && results.iter().all(|it| it["status"] == "completed"),
        "{}",
        finished.stderr
    );
    assert!(results.iter().all(|it| it["attempts"] == 2), "{results:?}");
    assert_eq!(pods(&api, &namespace).await, Vec::<String>::new(), "no pod is left behind");
    api.remove_namespace(&namespace).await;
}
