//! `agent batch` with pods: the cluster says how many run at once.

use crate::batch::{batch, results, tasks, writer};
use crate::kubernetes::program_in;
use crate::support::agent::agent;
use crate::support::cluster::Api;
use serde_json::{Value, json};
use std::time::Duration;

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
    let pods = api.send("GET", &format!("/api/v1/namespaces/{namespace}/pods"), None).await;
    let is_left = |pod: &Value| pod.pointer("/metadata/deletionTimestamp").is_none();
    let left = pods.expect("the pods")["items"].as_array().is_some_and(|pods| pods.iter().any(is_left));
    assert!(!left, "no pod is left behind");
    api.remove_namespace(&namespace).await;
}
