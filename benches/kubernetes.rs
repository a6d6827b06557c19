//! A pod as the sandbox, side by side with what `kubectl` and the cluster itself take, in one run.
//!
//! `AGENT_TEST_KUBECONFIG=… AGENT_TEST_KUBERNETES_IMAGE=… cargo bench --bench kubernetes`; `.ci/cluster` shows how such a cluster and its
//! image are made. Figures are medians; what is printed is each and its ratio.

use agent::machine::Machine;
use agent::sandbox::kubernetes::{Isolation, Kubernetes, Settings};
use agent::sandbox::{Backend, Command, FileWrite, Node, Program, Sandbox, Spec};
use serde_json::{Value, json};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pods that start at once.
const PODS: usize = 20;
/// What this process may take with them.
const MEMORY_MB: u64 = 60;
/// How often each is measured.
const ROUNDS: usize = 5;

#[tokio::main]
async fn main() {
    let (Ok(kubeconfig), Ok(image)) =
        (std::env::var("AGENT_TEST_KUBECONFIG"), std::env::var("AGENT_TEST_KUBERNETES_IMAGE"))
    else {
        eprintln!("not measured: AGENT_TEST_KUBECONFIG and AGENT_TEST_KUBERNETES_IMAGE name no cluster");
        return;
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bench = Bench::new(kubeconfig, image).await;
    bench.start().await;
    // Before the files, which this process holds in memory.
    bench.many().await;
    bench.commands_and_files().await;
}

struct Bench {
    kubeconfig: String,
    image: String,
    backend: Kubernetes,
}

fn requests() -> Value {
    json!({ "cpu": "10m", "memory": "32Mi", "ephemeral-storage": "16Mi" })
}

fn spec() -> Spec {
    Spec::new(format!("bench-{}-{}", std::process::id(), fastrand::u32(..)))
}

fn command(text: &str) -> Command {
    let program = Program::Shell(text.to_owned());
    Command {
        program,
        cwd: None,
        env: Vec::new(),
        timeout: Some(Duration::from_secs(60)),
        live_bytes: 1 << 16,
        stdin: false,
    }
}

impl Bench {
    async fn new(kubeconfig: String, image: String) -> Self {
        let template = json!({ "spec": { "containers": [{ "name": "sandbox", "resources": { "requests": requests() } }] } });
        let settings = Settings {
            image: Some(image.clone()),
            isolation: Isolation::Trusted,
            pod_template: template.as_object().cloned().unwrap_or_default(),
            ..Settings::default()
        };
        let variables = std::env::vars_os().chain([("KUBECONFIG".into(), kubeconfig.clone().into())]);
        let machine = Arc::new(Machine::new(variables));
        let backend = Kubernetes::with_settings(machine, settings).await.expect("the cluster");
        Self { kubeconfig, image, backend }
    }

    async fn sandbox(&self, spec: &Spec) -> Sandbox {
        let (channel, _) = self.backend.start(spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        sandbox.run(command("true"), &mut |_| {}).await.expect("it runs");
        sandbox
    }

    async fn kubectl(&self, arguments: &[&str]) {
        let mut kubectl = tokio::process::Command::new("kubectl");
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments).stdout(std::process::Stdio::null());
        assert!(kubectl.status().await.expect("kubectl").success(), "kubectl {arguments:?}");
    }

    /// The same image without anything of ours: its creation until a watch says that it runs.
    async fn bare(&self, name: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "c", "image": self.image, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"],
                    "resources": { "requests": requests() } }],
            },
        });
        let read = kube::config::Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        let config =
            kube::Config::from_custom_kubeconfig(read, &Default::default()).await.expect("a configuration");
        let client = kube::Client::try_from(config).expect("a client");
        let path = "/api/v1/namespaces/default/pods";
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(pod.to_string().into_bytes());
        let made: Value = client.request(request.expect("a request")).await.expect("the pod is made");
        let version = made["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let uri = format!("{path}?watch=true&fieldSelector=metadata.name={name}&resourceVersion={version}");
        let request = http::Request::get(uri).body(Vec::new()).expect("a request");
        let events = client.request_events::<Value>(request).await.expect("a watch");
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = futures_util::TryStreamExt::try_next(&mut events).await {
            if let kube::core::WatchEvent::Modified(pod) = event
                && pod["status"]["phase"] == "Running"
            {
                return;
            }
        }
        panic!("the pod does not run");
    }

    async fn remove_bare(&self, names: &[String]) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.kubectl(
            &[&["delete", "pod", "--grace-period=0", "--force", "--wait=false"], &names[..]].concat(),
        )
        .await;
    }

    async fn start(&self) {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let name = format!("bare-{}", fastrand::u32(..));
            bare.push(timed(self.bare(&name)).await);
            self.remove_bare(&[name]).await;
            let spec = spec();
            let started = Instant::now();
            let sandbox = self.sandbox(&spec).await;
            ours.push(started.elapsed());
            sandbox.shutdown().await;
            self.backend.destroy(&spec.session).await.expect("removed");
        }
        report("ready, its first command run / bare pod from create to Running", ours, bare, 1.3);
    }

    async fn commands_and_files(&self) {
        let spec = spec();
        let sandbox = self.sandbox(&spec).await;
        let pod = format!("agent-{}", spec.session);
        let (mut exec, mut run) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            exec.push(timed(self.kubectl(&["exec", &pod, "--", "true"])).await);
            for _ in 0..20 {
                run.push(
                    timed(async { drop(sandbox.run(command("true"), &mut |_| {}).await.expect("it runs")) })
                        .await,
                );
            }
        }
        report("`true` / kubectl exec POD -- true", run, exec, 1.0 / 20.0);
        let directory = tempfile::tempdir().expect("a directory");
        for (what, files, size, bar) in
            [("500 files of 4 KB", 500, 4 << 10, 0.2), ("50 MB in 50 files", 50, 1 << 20, 0.7)]
        {
            let source = directory.path().join(files.to_string());
            std::fs::create_dir(&source).expect("a directory");
            let content =
                |number: usize| (0..size).map(|n| ((n * 31 + number * 7) % 251) as u8).collect::<Vec<u8>>();
            for number in 0..files {
                std::fs::write(source.join(number.to_string()), content(number)).expect("written");
            }
            let (mut copied, mut put) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                let to = format!("default/{pod}:/tmp/copied-{files}-{round}");
                copied.push(timed(self.kubectl(&["cp", source.to_str().expect("a path"), &to])).await);
                let write = |number: usize| FileWrite {
                    path: Path::new(&format!("put-{files}-{round}/{number}")).to_owned(),
                    node: Node::Regular(content(number)),
                    mode: None,
                    mtime_ns: None,
                    follow: true,
                };
                let written: Vec<FileWrite> = (0..files).map(write).collect();
                put.push(timed(async { drop(sandbox.write_files(written).await.expect("written")) }).await);
            }
            report(&format!("{what} / kubectl cp"), put, copied, bar);
        }
        self.backend.destroy(&spec.session).await.expect("removed");
    }

    async fn many(&self) {
        let names: Vec<String> =
            (0..PODS).map(|number| format!("bare-{number}-{}", fastrand::u32(..))).collect();
        let bare = timed(futures_util::future::join_all(names.iter().map(|name| self.bare(name)))).await;
        self.remove_bare(&names).await;
        let specs: Vec<Spec> = (0..PODS).map(|_| spec()).collect();
        let started = Instant::now();
        let sandboxes = futures_util::future::join_all(specs.iter().map(|spec| self.sandbox(spec))).await;
        let ours = started.elapsed();
        report(&format!("{PODS} at once / {PODS} bare pods at once"), vec![ours], vec![bare], 2.0);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let peak = peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(u64::MAX) >> 10;
        let held = if peak <= MEMORY_MB { "holds" } else { "DOES NOT HOLD" };
        println!(
            "memory of this process with {PODS} pods at its peak: {peak} MB (at most {MEMORY_MB}: {held})"
        );
        drop(sandboxes);
        for spec in specs {
            self.backend.destroy(&spec.session).await.expect("removed");
        }
    }
}

async fn timed<T>(what: impl Future<Output = T>) -> Duration {
    let started = Instant::now();
    what.await;
    started.elapsed()
}

fn report(what: &str, mut ours: Vec<Duration>, mut theirs: Vec<Duration>, bar: f64) {
    ours.sort();
    theirs.sort();
    let (ours, theirs) = (ours[ours.len() / 2].as_secs_f64(), theirs[theirs.len() / 2].as_secs_f64());
    let (ratio, held) = (ours / theirs, if ours <= theirs * bar { "holds" } else { "DOES NOT HOLD" });
    println!("{what}: {:.1} ms / {:.1} ms = {ratio:.3} (at most {bar:.2}: {held})", ours * 1e3, theirs * 1e3);
}
