//! The end of sandboxes whose backend is away for a moment, or takes its time.

use ::agent::agent::{Budget, Spent};
use ::agent::batch::{Batch, Halt, Models, Observer, Output, Settings, Update, read_tasks};
use ::agent::error::{Error, Result};
use ::agent::event::{Events, SandboxInfo};
use ::agent::log::Store;
use ::agent::model::Endpoint;
use ::agent::sandbox::local::Local;
use ::agent::sandbox::{Backend, Capabilities, Channel, Listed, OnProgress, Spec, State, removals};
use ::agent::session::{Builder, CheckRules, ModelSettings, Population, Resume, Retention};
use agent_testing::endpoint::endpoint;
use agent_testing::machine;
use async_trait::async_trait;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Local sandboxes, whose removal fails while the backend is away, and takes as long as it says.
struct Slow {
    local: Local,
    is_away: AtomicBool,
    refused: AtomicU32,
    removal: Duration,
    /// The sessions whose sandboxes are there, and the most that were at once.
    there: Mutex<(BTreeSet<String>, usize)>,
}

impl Slow {
    fn new(is_away: bool, removal: Duration) -> Arc<Self> {
        Arc::new(Self {
            local: Local::new(machine()),
            is_away: AtomicBool::new(is_away),
            refused: AtomicU32::new(0),
            removal,
            there: Mutex::default(),
        })
    }

    async fn runs(&self, session: &str) -> bool {
        let listed = self.local.list().await.expect("a list");
        listed.iter().any(|listed| listed.session == session && listed.state == State::Running)
    }
}

#[async_trait]
impl Backend for Slow {
    fn name(&self) -> &'static str {
        self.local.name()
    }
    fn location(&self) -> String {
        self.local.location()
    }
    fn capabilities(&self) -> Capabilities {
        self.local.capabilities()
    }
    async fn start(&self, spec: &Spec, on_progress: OnProgress<'_>) -> Result<(Channel, SandboxInfo)> {
        {
            let (there, most) = &mut *self.there.lock().unwrap();
            there.insert(spec.session.clone());
            *most = there.len().max(*most);
        }
        self.local.start(spec, on_progress).await
    }
    async fn attach(&self, session: &str) -> Result<Channel> {
        self.local.attach(session).await
    }
    async fn destroy(&self, session: &str) -> Result<()> {
        if self.is_away.load(SeqCst) {
            self.refused.fetch_add(1, SeqCst);
            return Err(Error::sandbox("away"));
        }
        tokio::time::sleep(self.removal).await;
        self.local.destroy(session).await?;
        self.there.lock().unwrap().0.remove(session);
        Ok(())
    }
    async fn list(&self) -> Result<Vec<Listed>> {
        self.local.list().await
    }
    async fn sweep(&self) -> Result<()> {
        self.local.sweep().await
    }
}

fn settings_of(url: &str) -> ModelSettings {
    ModelSettings::openai(Endpoint::new(url, "model").unwrap()).unwrap()
}

#[tokio::test]
async fn a_session_that_another_process_resumes_keeps_the_sandbox_whose_removal_had_failed() {
    let model =
        endpoint().tool_call("run_commands", json!({ "command": "echo kept > ~/note" })).text("done").start();
    let (workspace, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::at(kept.path());
    let backend = Slow::new(true, Duration::ZERO);
    let shared = Arc::clone(&backend) as Arc<dyn Backend>;
    let mut builder = Builder {
        store: store.clone(),
        ..Builder::new(machine(), workspace.path(), settings_of(&model.url())).unwrap()
    };
    builder.sandbox.backend = Arc::clone(&shared);
    builder.sandbox.retention = Retention::Keep { ttl: Duration::from_secs(600), delete_after: None };
    let frontend = Arc::new(Arc::new(Events::new(1)));
    let mut session = builder.open(frontend).await.unwrap();
    let answer = session.prompt("keep a note").await;
    let id = session.id().clone();
    // As at the end of a session that keeps none, whose guest could not be reached either.
    let removal = removals::remove(&shared, id.as_str(), Some(store.removal(&id)));
    session.finish(&answer).await.unwrap();
    drop(session);
    while backend.refused.load(SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // What another process does.
    let resume = Resume::open(&store, id.clone()).unwrap();
    let local: Arc<dyn Backend> = Arc::new(Local::new(machine()));
    let found = resume.find_workspace(&store, &local, machine()).await.unwrap();
    assert!(matches!(found, Some(Population::Reattach(..))), "its sandbox runs");
    backend.is_away.store(false, SeqCst);
    removal.wait(Duration::from_secs(60)).await;
    assert!(backend.runs(id.as_str()).await, "it was removed under the session");
    backend.local.destroy(id.as_str()).await.unwrap();
}

#[tokio::test]
async fn a_resume_that_fails_leaves_the_removal_that_it_took_over_under_way() {
    let (workspace, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::at(kept.path());
    let backend = Slow::new(true, Duration::ZERO);
    let shared = Arc::clone(&backend) as Arc<dyn Backend>;
    let model = endpoint().text("done").start();
    let mut builder = Builder {
        store: store.clone(),
        ..Builder::new(machine(), workspace.path(), settings_of(&model.url())).unwrap()
    };
    builder.sandbox.backend = Arc::clone(&shared);
    let mut session = builder.open(Arc::new(Arc::new(Events::new(1)))).await.unwrap();
    let answer = session.prompt("say done").await;
    let id = session.id().clone();
    session.finish(&answer).await.unwrap();
    drop(session);
    // As a process leaves it that was killed while it tried to remove the sandbox.
    std::fs::write(store.removal(&id), "").unwrap();
    let resume = Resume::open(&store, id.clone()).unwrap();
    let error = resume.find_workspace(&store, &shared, machine()).await.err().expect("the backend is away");
    assert!(error.to_string().contains("away"), "{error}");
    assert!(store.removal(&id).exists(), "it is being removed again");
    backend.is_away.store(false, SeqCst);
    let removed = async {
        while store.removal(&id).exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), removed)
        .await
        .expect("it is removed, and the mark with it");
}

struct One(ModelSettings);

impl Models for One {
    fn settings(&self, _: Option<&str>) -> Result<ModelSettings> {
        Ok(self.0.clone())
    }
}

struct Nobody;

impl Observer for Nobody {
    fn on(&self, _: Update<'_>) {}
}

/// Tasks `0` and `1` of a batch that runs one at a time.
async fn batch_of_two(backend: &Arc<Slow>, directory: &Path, url: &str) {
    let tasks = directory.join("tasks.jsonl");
    std::fs::write(&tasks, "{\"id\":\"0\",\"prompt\":\"go\"}\n{\"id\":\"1\",\"prompt\":\"go\"}\n").unwrap();
    let workspace = directory.join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let Builder { mut sandbox, workspace, governance, .. } =
        Builder::new(machine(), &workspace, settings_of(url)).unwrap();
    sandbox.backend = Arc::clone(backend) as Arc<dyn Backend>;
    sandbox.retention = Retention::Remove;
    let store = Store::at(directory);
    let file = read_tasks(&tasks, &machine()).unwrap();
    let output = Output::open(&directory.join("out"), &file, &store, false).unwrap();
    let check_rules = CheckRules { attempts: 1, is_clean: false };
    let batch = Batch {
        file,
        output,
        settings: Settings { parallel: 1, check_rules, governance, workspace, sandbox, store },
        models: Arc::new(One(settings_of(url))),
        budget: Arc::new(Budget::new(None, None, Spent::default())),
        observer: Arc::new(Nobody),
        halt: Arc::new(watch::Sender::new(Halt::No)),
    };
    let ran = tokio::time::timeout(Duration::from_secs(120), batch.run()).await;
    let summary = ran.expect("a batch comes to its end").unwrap();
    assert_eq!((summary.tasks, summary.passed), (2, 2));
}

#[tokio::test]
async fn a_batch_begins_no_task_while_the_sandbox_of_another_is_being_removed() {
    // The place was free after five seconds, whether or not the sandbox was gone: a pod that ends counts for the quota.
    let model = endpoint()
        .by_rule(|body| {
            match body["messages"].as_array().is_some_and(|all| all.iter().any(|it| it["role"] == "tool")) {
                true => endpoint().text("done"),
                false => endpoint().tool_call("run_commands", json!({ "command": "true" })),
            }
        })
        .start();
    let directory = tempfile::tempdir().unwrap();
    let backend = Slow::new(false, Duration::from_secs(9));
    batch_of_two(&backend, directory.path(), &model.url()).await;
    let (_, most) = *backend.there.lock().unwrap();
    assert_eq!(most, 1);
}
