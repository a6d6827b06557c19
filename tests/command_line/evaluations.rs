//! The adapters to benchmarks in `examples/evals`, each with a scripted model: SWE-bench, mini-swe-agent beside `agent`, Harbor.

use agent_testbed::agent::{agent, binary};
use agent_testbed::engine::engine;
use agent_testing::counterpart::{PYTHONS, python, python_of, root};
use agent_testing::debian_image::{DebianImage, docker, succeeded};
use agent_testing::endpoint::{Script, endpoint};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(300);

fn script(name: &str) -> std::path::PathBuf {
    root().join("examples/evals").join(name)
}

fn git(directory: &Path, script: &str) -> String {
    let output =
        std::process::Command::new("bash").args(["-ec", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A model that writes `data` into `path`, and then answers: for any number of tasks at a time.
fn writes(path: &str, data: &str) -> Script {
    let call = json!({ "path": path, "data": data });
    endpoint().by_rule(move |request| {
        let is_done = request["messages"].as_array().unwrap().iter().any(|message| message["role"] == "tool");
        if is_done { endpoint().text("Done.") } else { endpoint().tool_call("write_file", call.clone()) }
    })
}

#[test]
fn instances_of_swe_bench_become_predictions_and_a_table() {
    let place = agent();
    let work = place.workspace().to_owned();
    let commit = git(
        &work,
        "git init -q clones/o__r; cd clones/o__r; echo 'x = 1' > m.py; git add -A; \
         git -c user.name=A -c user.email=a@example.org commit -qm one; git rev-parse HEAD",
    );
    let gold = "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n";
    let instance = |id: &str| {
        json!({ "instance_id": id, "repo": "o/r", "base_commit": commit, "problem_statement": "x is wrong",
                "patch": gold, "test_patch": "needle-test", "hints_text": "needle-hint" })
    };
    let instances = json!([instance("o__r-1"), instance("o__r-2")]);
    std::fs::write(work.join("instances.json"), instances.to_string()).unwrap();
    let model = writes("m.py", "x = 2\n").start();
    let arguments = ["instances.json", "--out", "out", "--repositories", "clones", "--parallel", "2"];
    let call = |more: &[&str]| {
        let all = arguments.iter().chain(more).copied().collect::<Vec<_>>();
        place
            .again()
            .driven_by(&script("swebench.py"))
            .endpoint(&model)
            .args(["--agent"])
            .args([binary()])
            .args(all)
    };
    let done = call(&[]).deadline(DEADLINE).run().expect_code(0);
    let predictions = |path: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(work.join(path).join("predictions.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let made = predictions("out");
    assert_eq!(made.len(), 2);
    for prediction in made {
        let patch = prediction["model_patch"].as_str().unwrap();
        assert!(patch.ends_with("@@ -1 +1 @@\n-x = 1\n+x = 2\n"), "{patch}");
        assert_eq!(prediction["model_name_or_path"], "test-model");
    }
    let rows: Vec<Vec<&str>> = done.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| {
        rows.iter().find(|row| row.first() == Some(&name)).unwrap_or_else(|| panic!("{}", done.stdout))
    };
    assert_eq!(row("o__r-1")[..5], ["o__r-1", "completed", "2", "20", "10"]);
    assert_eq!(row("all")[..3], ["all", "2/2", "4"]);
    let sent = model.requests().iter().map(|request| request.body.to_string()).collect::<String>();
    assert!(sent.contains("x is wrong") && !sent.contains("needle"), "neither tests nor hints are sent");
    // Again: nothing is left to do, and the table is the same.
    let asked = model.requests().len();
    call(&[]).deadline(DEADLINE).run().expect_code(0);
    assert_eq!(model.requests().len(), asked);
    place
        .again()
        .driven_by(&script("swebench.py"))
        .args(["instances.json", "--out", "gold", "--gold"])
        .run()
        .expect_code(0);
    let gold = predictions("gold");
    std::fs::write(work.join("gold.patch"), gold[0]["model_patch"].as_str().unwrap()).unwrap();
    git(&work.join("clones/o__r"), "git apply --check ../../gold.patch");
}

/// The command by which the grader decides about an instance: it reads the lines that begin with a status.
fn instance_with_image(id: &str, factor: u32, commit: &str, image: &str) -> Value {
    let patch = |line: &str| {
        format!("diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-x = 1\n+{line}\n")
    };
    let eval = format!(
        "#!/bin/bash\nset -uxo pipefail\ncd /testbed\n: '>>>>> Start Test Output'\n\
         if grep -q 'x = {factor}' m.py; then echo 'PASSED t::x'; else echo 'FAILED t::x'; fi\n: '>>>>> End Test Output'\ngit status\n"
    );
    json!({
        "instance_id": id, "repo": "o/r", "base_commit": commit, "problem_statement": "x is wrong", "image": image,
        "patch": patch(&format!("x = {factor}")), "test_patch": "", "hints_text": "", "created_at": "", "version": "1",
        "FAIL_TO_PASS": "[\"t::x\"]", "PASS_TO_PASS": "[]", "environment_setup_commit": commit,
        "log_parser": "parse_log_pytest", "eval_type": "pass_and_fail", "eval_script": eval,
    })
}

/// Two instances in an image of this machine's packages, of which the model solves one; the gold patches solve both.
#[tokio::test]
async fn the_grader_of_swe_bench_itself_reads_the_predictions() {
    let Some(python) = python("swebench") else { return };
    if engine().await.is_none() || !Path::new("/var/lib/dpkg/status").exists() {
        return;
    }
    let place = agent();
    let work = place.workspace().to_owned();
    let directory = tempfile::tempdir().unwrap();
    let Some(base) = DebianImage::of(&["git"], directory.path()) else { return };
    let commit = git(
        &work,
        "git init -q clones/o__r; cd clones/o__r; echo 'x = 1' > m.py; git add -A; \
         git -c user.name=A -c user.email=a@example.org commit -qm one; git rev-parse HEAD; \
         mkdir ../../image; cp -r . ../../image/testbed; printf '[safe]\\n\\tdirectory = *\\n' > ../../image/gitconfig",
    );
    let image = DebianImage(format!("local.test/graded-{}:1", std::process::id()));
    let dockerfile =
        format!("FROM {}\nCOPY gitconfig /etc/gitconfig\nCOPY testbed /testbed\nWORKDIR /testbed\n", base.0);
    std::fs::write(work.join("image/Dockerfile"), dockerfile).unwrap();
    succeeded(&docker(&["build", "--tag", &image.0, &work.join("image").display().to_string()]));
    let instances =
        [("o__r-1", 2), ("o__r-2", 3)].map(|(id, factor)| instance_with_image(id, factor, &commit, &image.0));
    std::fs::write(work.join("set.json"), json!(instances).to_string()).unwrap();
    let model = writes("m.py", "x = 2\n").start();
    let call = |arguments: &[&str]| {
        let call = place.again().driven_by(&script("swebench.py")).endpoint(&model);
        let all = ["set.json", "--repositories", "clones", "--agent", &binary().display().to_string()]
            .map(str::to_owned);
        call.args(all).args(arguments).deadline(DEADLINE).run().expect_code(0);
    };
    call(&["--out", "out", "--sandbox", "docker", "--image-template", "{image}"]);
    call(&["--out", "gold", "--gold"]);
    for (name, by, resolved) in
        [("out", "test-model", json!(["o__r-1"])), ("gold", "gold", json!(["o__r-1", "o__r-2"]))]
    {
        let predictions = format!("{name}/predictions.jsonl");
        let graded = std::process::Command::new(&python)
            .args(["-m", "swebench.harness.run_evaluation", "--dataset_name", "set.json", "--run_id", name])
            .args(["--max_workers", "2", "--predictions_path", &predictions])
            .current_dir(&work)
            .env("HF_HUB_OFFLINE", "1")
            .env("HOME", directory.path())
            .output()
            .unwrap();
        succeeded(&graded);
        let report = std::fs::read_to_string(work.join(format!("{by}.{name}.json"))).unwrap();
        let mut report: Value = serde_json::from_str(&report).unwrap();
        report["resolved_ids"].as_array_mut().unwrap().sort_by_key(Value::to_string);
        assert_eq!(
            (&report["resolved_ids"], &report["error_ids"], &report["completed_instances"]),
            (&resolved, &json!([]), &json!(2))
        );
    }
}

#[test]
fn mini_swe_agent_runs_on_the_same_tasks_and_endpoint() {
    let Some(python) = PYTHONS.into_iter().find_map(python_of) else { return };
    let task = json!({ "id": "one", "prompt": "fix it", "files": { "state": "broken\n" }, "check": "grep -q fixed state" });
    let place = agent().file("tasks.jsonl", format!("{task}\n"));
    let model = endpoint()
        .tool_call("bash", json!({ "command": "echo fixed > state" }))
        .tool_call("bash", json!({ "command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" }))
        .start();
    let done = place
        .again()
        .driven_by(&python)
        .env("PYTHONPATH", root().join("python/src"))
        .args([script("mini.py")])
        .args(["tasks.jsonl", &model.url(), "test-model", "--agent"])
        .args([binary()])
        .deadline(DEADLINE)
        .run()
        .expect_code(0);
    let row = done
        .stdout
        .lines()
        .find(|line| line.starts_with("one "))
        .unwrap_or_else(|| panic!("{}", done.stdout));
    let columns: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(columns[..6], ["one", "yes", "0", "2", "20", "10"], "{row}");
    assert_eq!(done.host_file("tasks.jsonl").map(|text| text.lines().count()), Some(1));
}

#[test]
fn harbor_runs_the_agent_by_its_own_base_class() {
    let Some(python) = python("harbor") else { return };
    let model = writes("answer.txt", "42\n").start();
    let place = agent();
    std::fs::create_dir(place.workspace().join("work")).unwrap();
    let paths = ["examples/evals"].map(|path| root().join(path).display().to_string()).join(":");
    let done = place
        .again()
        .driven_by(&python)
        .endpoint(&model)
        .env("PYTHONPATH", paths)
        .args([root().join("tests/clients/harbor_run.py"), place.workspace().to_owned()])
        .args(["-- write the answer; $(touch pwned)"])
        .deadline(DEADLINE)
        .run()
        .expect_code(0);
    let noted: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (noted["name"].as_str(), noted["version"].as_str()),
        (Some("agent"), Some(env!("CARGO_PKG_VERSION")))
    );
    let context = &noted["context"];
    assert_eq!((&context["n_input_tokens"], &context["n_output_tokens"]), (&json!(20), &json!(10)));
    assert_eq!(
        (&context["metadata"]["turns"], &context["metadata"]["status"]),
        (&json!(2), &json!("completed"))
    );
    assert_eq!(done.host_file("work/answer.txt").as_deref(), Some("42\n"));
    assert!(done.host_file("work/pwned").is_none());
    let prompt = model.requests()[0].messages()[1]["content"].to_string();
    assert!(prompt.contains("-- write the answer; $(touch pwned)"), "{prompt}");
}
