//! Modal: a control plane that makes sandboxes, and a router beside each that runs commands in it, both over gRPC.
//!
//! The protocol is Modal's own and internal. What of it is used is in `messages.rs`.

mod failure;
pub mod messages;
mod router;

use super::api::{LONG, SHORT, below, is_id, is_loopback, quote, server_address};
use super::grpc::{Code, Grpc, Status, framed};
use super::guest;
use super::provider::{CREATION, Creation, Executed, Instance, Provider, is_isolated, leash};
use super::snapshot;
use super::uuid;
use agent_base::error::Error;
use agent_base::error::Result;
use agent_base::hash::Hash;
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_sandbox::Capabilities;
use agent_sandbox::Channel;
use agent_sandbox::OnProgress;
use agent_sandbox::Spec;
use agent_sandbox::State;
use agent_sandbox::ownership::HOST;
use agent_sandbox::ownership::SESSION;
use agent_sandbox::ownership::this_host;
use async_trait::async_trait;
use messages::{
    AppGetOrCreateRequest, AppGetOrCreateResponse, AuthTokenGetResponse, BLOCKED, CREATE_IF_MISSING,
    Definition, Empty, EnvironmentGetOrCreateRequest, EnvironmentGetOrCreateResponse, GenericResult, Image,
    ImageGetOrCreateRequest, ImageGetOrCreateResponse, ImageJoinStreamingRequest, ImageJoinStreamingResponse,
    NetworkAccess, OPEN, PortSpecs, Resources, RouterAccess, SUCCESS, SandboxCreateV2Request,
    SandboxCreateV2Response, SandboxGetTaskIdResponse, SandboxInfo, SandboxListRequest, SandboxListResponse,
    SandboxNamed, SandboxTag, UNFINISHED, WORKSPACE,
};
use prost::Message;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use router::Router;
use secrecy::{ExposeSecret, SecretString};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

/// The addresses of the control plane, tried in this order.
const DEFAULT_URLS: &str = "https://api.modal.com,https://api.modal2.com";
const URLS: &str = "MODAL_SERVER_URL";
const TOKEN_ID: &str = "MODAL_TOKEN_ID";
const TOKEN_SECRET: &str = "MODAL_TOKEN_SECRET";
const ENVIRONMENT: &str = "MODAL_ENVIRONMENT";
const SERVICE: &str = "modal.client.ModalClient";
/// The client and version that requests name: those whose messages these are. `user-agent` names this program.
const CLIENT_TYPE: &str = "1";
const CLIENT_VERSION: &str = "1.6.4";
/// The app that holds the sandboxes.
const APP: &str = "agent";
/// The image where none is named.
const IMAGE: &str = "debian:12-slim";
/// The longest life that a sandbox may be given. It cannot be moved, so it is asked for.
const LIFE: Duration = Duration::from_secs(24 * 3600);
/// The time for which a token for the control plane's second version is used.
const TOKEN_LIFE: Duration = Duration::from_secs(120);
/// Attempts of a call, and the first pause between them, which doubles.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest wait of one request for the end of a build, in seconds, and the number of these requests.
const BUILD_WAIT: f32 = 55.0;
const MAX_BUILD_WAITS: u32 = 20;
/// The time limit for the name of a removed sandbox to be free again.
const REMOVAL: Duration = Duration::from_secs(60);
/// Characters of the longest name that a sandbox may have.
const LONGEST_NAME: usize = 63;
/// Pages of a list.
const MAX_PAGES: usize = 50;
const MIB: u64 = 1 << 20;

/// Modal's API.
pub struct Modal {
    grpc: Arc<Grpc>,
    urls: Vec<Url>,
    id: SecretString,
    secret: SecretString,
    environment: String,
    headers: HeaderMap,
    token: Lock<Option<(String, Instant)>>,
    app: OnceCell<String>,
    images: Lock<HashMap<String, String>>,
}

impl Modal {
    /// Modal, as the environment of this machine describes it.
    ///
    /// # Errors
    /// `Config` where there is no token, or an address is not valid.
    pub fn connect(machine: &Machine) -> Result<Self> {
        let text = |name: &str| machine.text(name).filter(|text| !text.trim().is_empty());
        let urls = text(URLS).unwrap_or_else(|| DEFAULT_URLS.to_owned());
        let urls: Vec<Url> = urls.split(',').map(|url| server_address(URLS, url)).collect::<Result<_>>()?;
        let is_here = urls.iter().all(is_loopback);
        let key = |name: &str| {
            machine.credential(name).ok_or_else(|| {
                Error::config(format!("the modal sandbox needs a token: {name} is not set")).hint(format!(
                    "make one at {} and set {TOKEN_ID} and {TOKEN_SECRET}, or token_id and token_secret in [sandbox.modal] of config.toml",
                    failure::CONSOLE
                ))
            })
        };
        let (id, secret) = (key(TOKEN_ID)?, key(TOKEN_SECRET)?);
        let mut headers = HeaderMap::new();
        for (header, variable, key) in
            [("x-modal-token-id", TOKEN_ID, &id), ("x-modal-token-secret", TOKEN_SECRET, &secret)]
        {
            let mut value = HeaderValue::from_str(key.expose_secret())
                .map_err(|_| Error::config(format!("{variable} holds characters that no token has")))?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(header), value);
        }
        for (header, value) in [
            ("x-modal-client-type", CLIENT_TYPE),
            ("x-modal-client-version", CLIENT_VERSION),
            ("x-modal-platform", std::env::consts::OS),
        ] {
            headers.insert(HeaderName::from_static(header), HeaderValue::from_static(value));
        }
        Ok(Self {
            grpc: Arc::new(Grpc::new(is_here)?),
            urls,
            id,
            secret,
            environment: text(ENVIRONMENT).map(|text| text.trim().to_owned()).unwrap_or_default(),
            headers,
            token: Lock::default(),
            app: OnceCell::new(),
            images: Lock::default(),
        })
    }

    fn failed(&self, status: Status) -> Error {
        let token = self.token.lock().as_ref().map(|(token, _)| token.clone()).unwrap_or_default();
        let secrets = [self.id.expose_secret(), self.secret.expose_secret(), &token];
        failure::of_control(status, &self.location(), &secrets)
    }

    /// Asks the control plane, again where that may help. The same key makes it one request, however often it is sent.
    async fn ask<A: Message + Default>(
        &self,
        method: &str,
        question: &impl Message,
        key: &str,
        token: Option<&str>,
        time: Duration,
    ) -> Result<A, Status> {
        let question = framed(question);
        let mut headers = self.headers.clone();
        let mut add = |name: &'static str, text: &str| {
            let value = HeaderValue::from_str(text)
                .map_err(|_| Status::damaged("names a token that is not valid"))?;
            headers.insert(HeaderName::from_static(name), value);
            Ok::<_, Status>(())
        };
        add("x-idempotency-key", key)?;
        if let Some(token) = token {
            add("x-modal-auth-token", token)?;
        }
        let (mut attempt, mut place) = (0, 0);
        loop {
            headers.insert(HeaderName::from_static("x-retry-attempt"), HeaderValue::from(attempt));
            let url = below(&self.urls[place % self.urls.len()], &format!("{SERVICE}/{method}"));
            let asked = self.grpc.unary(url, headers.clone(), question.clone(), time).await;
            let status = match asked {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            attempt += 1;
            let is_late = !status.is_answer && status.code == Code::DEADLINE_EXCEEDED;
            if attempt == ATTEMPTS || !status.is_passing() || is_late {
                return Err(status);
            }
            place += usize::from(status.is_unreached);
            let pause = FIRST_PAUSE * 2u32.pow(attempt);
            sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        }
    }

    /// [`Modal::ask`] for a method that has no second version.
    async fn ask_once<A: Message + Default>(&self, method: &str, question: &impl Message) -> Result<A> {
        let asked = self.ask(method, question, &uuid::random(), None, SHORT).await;
        asked.map_err(|status| self.failed(status))
    }

    /// The token for methods of the second version, made again where `is_refused`.
    async fn token(&self, is_refused: bool) -> Result<String, Status> {
        let known = self.token.lock().clone().filter(|(_, made)| !is_refused && made.elapsed() < TOKEN_LIFE);
        if let Some((token, _)) = known {
            return Ok(token);
        }
        let made: AuthTokenGetResponse =
            self.ask("AuthTokenGet", &Empty {}, &uuid::random(), None, SHORT).await?;
        *self.token.lock() = Some((made.token.clone(), Instant::now()));
        Ok(made.token)
    }

    /// Asks a method of the second version.
    async fn ask_v2<A: Message + Default>(
        &self,
        method: &str,
        question: &impl Message,
        key: &str,
        time: Duration,
    ) -> Result<A, Status> {
        let token = self.token(false).await?;
        match self.ask(method, question, key, Some(&token), time).await {
            // It may have been the token that is used for a while.
            Err(status) if status.code == Code::UNAUTHENTICATED => {
                let token = self.token(true).await?;
                self.ask(method, question, key, Some(&token), time).await
            }
            asked => asked,
        }
    }

    async fn app(&self) -> Result<String> {
        let app = self.app.get_or_try_init(|| async {
            let question = AppGetOrCreateRequest {
                app_name: APP.to_owned(),
                environment_name: self.environment.clone(),
                object_creation_type: CREATE_IF_MISSING,
            };
            let made: AppGetOrCreateResponse = self.ask_once("AppGetOrCreate", &question).await?;
            checked_id("an app", &made.app_id)
        });
        Ok(app.await?.clone())
    }

    /// The version of the program that builds images.
    async fn builder(&self) -> Result<String> {
        let question = EnvironmentGetOrCreateRequest { deployment_name: self.environment.clone() };
        let found: EnvironmentGetOrCreateResponse =
            self.ask_once("EnvironmentGetOrCreate", &question).await?;
        let settings = found.metadata.and_then(|metadata| metadata.settings).unwrap_or_default();
        Ok(settings.image_builder_version)
    }

    /// The id of an image of a registry, which Modal keeps.
    async fn image(&self, name: &str, on_progress: OnProgress<'_>) -> Result<(String, String)> {
        if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(Error::config(format!("{} is not the name of an image", quote(name))));
        }
        let known = self.images.lock().get(name).cloned();
        if let Some(image) = known {
            return Ok((self.app().await?, image));
        }
        let (app, builder, _) = tokio::try_join!(self.app(), self.builder(), async {
            // Creation needs it next.
            self.token(false).await.map_err(|status| self.failed(status))
        })?;
        let question = ImageGetOrCreateRequest {
            image: Some(Image { dockerfile_commands: vec![format!("FROM {name}")] }),
            app_id: app.clone(),
            namespace: WORKSPACE,
            builder_version: builder,
        };
        let made: ImageGetOrCreateResponse = self.ask_once("ImageGetOrCreate", &question).await?;
        let image = checked_id("an image", &made.image_id)?;
        let result = match made.result.filter(|result| result.status != UNFINISHED) {
            Some(result) => result,
            None => {
                on_progress("building the image", 0, 0);
                self.built(&image).await?
            }
        };
        if result.status != SUCCESS {
            return Err(Error::sandbox(format!(
                "modal cannot build the image {name}: {}",
                quote(&result.exception)
            ))
            .hint("--image is the name of an image in a public registry"));
        }
        self.images.lock().insert(name.to_owned(), image.clone());
        Ok((app, image))
    }

    /// Waits for the end of a build.
    async fn built(&self, image: &str) -> Result<GenericResult> {
        let mut last = String::new();
        for _ in 0..MAX_BUILD_WAITS {
            let question = ImageJoinStreamingRequest {
                image_id: image.to_owned(),
                timeout: BUILD_WAIT,
                last_entry_id: last.clone(),
            };
            let url = below(&self.urls[0], &format!("{SERVICE}/ImageJoinStreaming"));
            let waiting = async {
                let mut answers = self.grpc.stream(url, self.headers.clone(), framed(&question)).await?;
                while let Some(answer) = answers.next::<ImageJoinStreamingResponse>().await? {
                    if !answer.entry_id.is_empty() {
                        last = answer.entry_id;
                    }
                    if let Some(result) = answer.result.filter(|result| result.status != UNFINISHED) {
                        return Ok(Some(result));
                    }
                }
                Ok::<_, Status>(None)
            };
            match tokio::time::timeout(LONG, waiting).await {
                Ok(Ok(Some(result))) => return Ok(result),
                Ok(Err(status)) if !status.is_passing() => return Err(self.failed(status)),
                Ok(Ok(None)) => {}
                // The next one continues behind the last entry.
                Ok(Err(_)) | Err(_) => sleep(FIRST_PAUSE).await,
            }
        }
        Err(Error::sandbox("modal has not built the image in time")
            .hint("try again: a build continues there"))
    }

    /// Makes a sandbox. Where the answer was lost, it is looked for instead of being made twice; where an earlier one of
    /// the session has the name, that is removed.
    async fn post_creation(
        &self,
        creation: &Creation<'_>,
        question: &SandboxCreateV2Request,
    ) -> Result<Instance> {
        let deadline = Instant::now() + REMOVAL;
        let mut key = uuid::random();
        loop {
            let made: Result<SandboxCreateV2Response, _> =
                self.ask_v2("SandboxCreateV2", question, &key, LONG).await;
            let status = match made {
                Ok(made) => return self.made(made, creation).await,
                Err(status) => status,
            };
            let is_taken = status.is_answer && status.code == Code::ALREADY_EXISTS;
            if status.is_answer && !status.is_passing() && !is_taken {
                return Err(self.failed(status));
            }
            let found = self.of_session(&creation.spec.session).await?;
            let is_made = |found: &&Instance| found.labels.get(CREATION) == creation.labels.get(CREATION);
            if let Some(made) = found.iter().find(is_made) {
                return Ok(made.clone());
            }
            if !is_taken || Instant::now() >= deadline {
                return Err(self.failed(status));
            }
            for earlier in &found {
                self.remove(earlier).await?;
            }
            sleep(FIRST_PAUSE).await;
            // The answer to the old one is that the name is taken.
            key = uuid::random();
        }
    }

    /// The sandbox that an answer names, removed where it cannot be used.
    async fn made(&self, made: SandboxCreateV2Response, creation: &Creation<'_>) -> Result<Instance> {
        let id = checked_id("a sandbox", &made.sandbox_id)?;
        let instance = Instance {
            id,
            state: Some(State::Running),
            labels: creation.labels.clone(),
            created: String::new(),
            address: None,
            token: None,
            access: None,
        };
        let usable = async {
            let access = Some(made.task_id).filter(|id| !id.is_empty());
            let access = access.map(|id| checked_id("a task", &id)).transpose()?;
            let instance = Instance { access, ..instance.clone() };
            match made.command_router_access {
                Some(access) => self.with_router(instance, &access),
                None => Ok(instance),
            }
        };
        match usable.await {
            Ok(instance) => Ok(instance),
            Err(error) => {
                // What cannot be removed now ends by its own clock.
                let _ = self.remove(&instance).await;
                Err(error)
            }
        }
    }

    /// The sandbox with its router, whose address Modal names: it gets what the session sends into the sandbox.
    fn with_router(&self, instance: Instance, access: &RouterAccess) -> Result<Instance> {
        let refused = |why: &str| {
            Error::sandbox(format!(
                "modal names a router {}, {why}: nothing is sent there",
                quote(&access.url)
            ))
        };
        let url = Url::parse(&access.url).map_err(|_| refused("which is not an address"))?;
        if url.host_str().is_none() || !url.username().is_empty() || url.password().is_some() {
            return Err(refused("which is not an address of a server"));
        }
        let is_here = is_loopback(&url) && self.urls.iter().all(is_loopback);
        if url.scheme() != "https" && !(url.scheme() == "http" && is_here) {
            return Err(refused("which is not protected on the way"));
        }
        Ok(Instance { address: Some(url), token: Some(access.jwt.clone()), ..instance })
    }

    async fn router(&self, instance: &Instance) -> Result<Router> {
        let named = SandboxNamed { sandbox_id: instance.id.clone() };
        let instance = match (&instance.address, &instance.token) {
            (Some(_), Some(_)) => instance.clone(),
            _ => {
                let access: RouterAccess = self
                    .ask_v2("SandboxGetCommandRouterAccess", &named, &uuid::random(), LONG)
                    .await
                    .map_err(|status| self.failed(status))?;
                self.with_router(instance.clone(), &access)?
            }
        };
        let task = match instance.access {
            Some(task) => task,
            None => {
                let found: SandboxGetTaskIdResponse = self
                    .ask_v2("SandboxGetTaskIdV2", &named, &uuid::random(), LONG)
                    .await
                    .map_err(|status| self.failed(status))?;
                checked_id("a task", &found.task_id)?
            }
        };
        match (instance.address, instance.token) {
            (Some(url), Some(token)) => Ok(Router::new(Arc::clone(&self.grpc), url, token, task)),
            _ => Err(Error::sandbox("modal names no router of the sandbox")),
        }
    }

    /// The sandboxes that run and have this tag.
    async fn with_tag(&self, name: &str, value: &str) -> Result<Vec<Instance>> {
        let tag = SandboxTag { tag_name: name.to_owned(), tag_value: value.to_owned() };
        let mut question = SandboxListRequest {
            app_id: self.app().await?,
            environment_name: self.environment.clone(),
            tags: vec![tag],
            ..SandboxListRequest::default()
        };
        let mut found = Vec::new();
        for _ in 0..MAX_PAGES {
            let page: SandboxListResponse = self
                .ask_v2("SandboxListV2", &question, &uuid::random(), SHORT)
                .await
                .map_err(|status| self.failed(status))?;
            let oldest = page.sandboxes.iter().map(|info| info.created_at).reduce(f64::min);
            // What is not ours, or not understood, is left alone.
            let ours = page.sandboxes.into_iter().filter_map(instance);
            found.extend(ours.filter(|found| found.labels.get(name).is_some_and(|label| label == value)));
            match oldest {
                Some(oldest) if question.before_timestamp == 0.0 || oldest < question.before_timestamp => {
                    question.before_timestamp = oldest;
                }
                _ => break,
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl Provider for Modal {
    fn name(&self) -> &'static str {
        super::MODAL
    }

    fn location(&self) -> String {
        self.urls[0].host_str().unwrap_or(super::MODAL).to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        super::MODAL_CAPABILITIES
    }

    fn fingerprint(&self) -> Hash {
        Hash::of(self.secret.expose_secret())
    }

    fn has_streams(&self) -> bool {
        true
    }

    async fn create(
        &self,
        creation: &Creation<'_>,
        on_progress: OnProgress<'_>,
    ) -> Result<(Instance, Vec<String>)> {
        let spec = creation.spec;
        let (app, image) = match &spec.snapshot {
            Some(image) => (self.app().await?, image.clone()),
            None => self.image(spec.image.as_deref().unwrap_or(IMAGE), on_progress).await?,
        };
        let (definition, missing) = definition(creation, image);
        let tags = creation
            .labels
            .iter()
            .map(|(name, value)| SandboxTag { tag_name: name.clone(), tag_value: value.replace(':', COLON) });
        let question =
            SandboxCreateV2Request { app_id: app, definition: Some(definition), tags: tags.collect() };
        Ok((self.post_creation(creation, &question).await?, missing))
    }

    async fn of_session(&self, session: &str) -> Result<Vec<Instance>> {
        self.with_tag(SESSION, session).await
    }

    async fn list(&self) -> Result<Vec<Instance>> {
        let found = self.with_tag(HOST, &this_host()).await?;
        Ok(found.into_iter().filter(|instance| instance.labels.contains_key(SESSION)).collect())
    }

    async fn upload(&self, instance: &Instance, path: &str, bytes: &[u8]) -> Result<()> {
        self.router(instance).await?.feed(&format!("cat >{path}"), bytes).await
    }

    async fn execute(&self, instance: &Instance, command: &str) -> Result<Executed> {
        self.router(instance).await?.run(command).await
    }

    async fn join(&self, instance: &Instance, guest: &str, socket: &str, time: Duration) -> Result<Channel> {
        let command = guest::join_command(guest, socket, time);
        self.router(instance).await?.join(&command, time).await
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    /// Its life cannot be moved; an open stream holds its idle time off.
    async fn refresh(&self, _instance: &Instance) -> Result<()> {
        Ok(())
    }

    async fn remove(&self, instance: &Instance) -> Result<()> {
        let named = SandboxNamed { sandbox_id: instance.id.clone() };
        match self.ask_v2::<Empty>("SandboxTerminateV2", &named, &uuid::random(), SHORT).await {
            Ok(_) => Ok(()),
            Err(status) if matches!(status.code, Code::NOT_FOUND | Code::FAILED_PRECONDITION) => Ok(()),
            Err(status) => Err(self.failed(status)),
        }
    }

    /// Files alone, in an image that Modal removes by itself.
    async fn snapshot(&self, instance: &Instance, _name: &str) -> Result<Option<String>> {
        let image = self.router(instance).await?.snapshot(snapshot::LIFE).await?;
        checked_id("an image", &image).map(Some)
    }

    async fn pause(&self, _instance: &Instance) -> Result<()> {
        Err(Error::usage("a modal sandbox cannot be paused"))
    }

    async fn resume(&self, _instance: &Instance) -> Result<(Instance, bool)> {
        Err(Error::usage("a modal sandbox cannot be paused"))
    }
}

/// Returns what a sandbox is made of, and what of its limits does not hold.
fn definition(creation: &Creation<'_>, image: String) -> (Definition, Vec<String>) {
    let Spec { limits, .. } = creation.spec;
    let memory = u32::try_from(limits.memory.div_ceil(MIB)).unwrap_or(u32::MAX);
    let milli_cpu = (limits.cpus * 1000.0).ceil() as u32;
    let idle = leash(creation.spec).min(LIFE);
    let network_access_type = if is_isolated(creation.spec) { BLOCKED } else { OPEN };
    let definition = Definition {
        entrypoint_args: ["sleep", "infinity"].map(str::to_owned).into(),
        image_id: image,
        resources: Some(Resources {
            memory_mb: memory,
            milli_cpu,
            memory_mb_max: memory,
            milli_cpu_max: milli_cpu,
        }),
        timeout_secs: seconds(LIFE),
        open_ports: Some(PortSpecs {}),
        network_access: Some(NetworkAccess { network_access_type }),
        name: Some(creation.name.clone()).filter(|name| name.len() <= LONGEST_NAME),
        idle_timeout_secs: Some(seconds(idle)),
    };
    let given = format!(
        "Modal is asked for {} processors and {memory} MiB of memory; memory and processes are limited for each process. \
         The sandbox ends {} hours after its start.",
        limits.cpus,
        LIFE.as_secs() / 3600
    );
    (definition, vec![given])
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Stands for a colon in the value of a tag, which has letters, digits, `-`, `_` and `.` alone. Our labels do not have it.
const COLON: &str = "__";

/// Reads a description of a sandbox in a list; `None` where it has ended, or is not understood.
fn instance(info: SandboxInfo) -> Option<Instance> {
    let task = info.task_info.unwrap_or_default();
    let has_ended = task.finished_at > 0.0 || task.result.is_some_and(|result| result.status != UNFINISHED);
    let created = Duration::try_from_secs_f64(info.created_at).ok()?;
    let created = jiff::Timestamp::UNIX_EPOCH.checked_add(created).ok()?;
    let is_known = is_id(&info.id) && (task.id.is_empty() || is_id(&task.id));
    (is_known && !has_ended).then(|| Instance {
        id: info.id,
        state: Some(State::Running),
        labels: info.tags.into_iter().map(|tag| (tag.tag_name, tag.tag_value.replace(COLON, ":"))).collect(),
        created: created.to_string(),
        address: None,
        token: None,
        access: Some(task.id).filter(|id| !id.is_empty()),
    })
}

fn checked_id(what: &str, id: &str) -> Result<String> {
    match is_id(id) {
        true => Ok(id.to_owned()),
        false => Err(Error::sandbox(format!("modal names {what} {}, which is not a valid id", quote(id)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(variables: &[(&str, &str)]) -> Result<Modal> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let keys = [(TOKEN_ID.into(), "ak-x".into()), (TOKEN_SECRET.into(), "as-x".into())];
        Modal::connect(&Machine::new(variables.chain(keys)))
    }

    fn is_accepted(modal: &Modal, url: &str) -> bool {
        let info = SandboxInfo { id: "sb-1".to_owned(), ..SandboxInfo::default() };
        let access = RouterAccess { jwt: "x".to_owned(), url: url.to_owned() };
        modal.with_router(instance(info).unwrap(), &access).is_ok()
    }

    #[test]
    fn a_router_is_protected_on_the_way_or_on_this_machine() {
        let real = connect(&[]).unwrap();
        assert!(is_accepted(&real, "https://worker.example:8443"));
        for refused in
            ["http://worker.example", "http://127.0.0.1:1", "https://user@worker.example", "worker", ""]
        {
            assert!(!is_accepted(&real, refused), "{refused}");
        }
        let here = connect(&[(URLS, "http://127.0.0.1:9")]).unwrap();
        assert!(is_accepted(&here, "http://127.0.0.1:1") && is_accepted(&here, "https://worker.example"));
        assert!(!is_accepted(&here, "http://worker.example") && !is_accepted(&here, "ftp://127.0.0.1"));
        let mixed = connect(&[(URLS, "http://127.0.0.1:9,https://api.modal.com")]).unwrap();
        assert!(!is_accepted(&mixed, "http://127.0.0.1:1"));
    }

    #[test]
    fn an_address_that_would_reveal_the_token_is_refused() {
        for url in
            ["http://api.modal.com", "https://api.modal.com,http://other.example", "https://user@h", "x"]
        {
            assert!(connect(&[(URLS, url)]).err().unwrap().to_string().contains(URLS), "{url}");
        }
        assert_eq!(connect(&[]).unwrap().location(), "api.modal.com");
    }

    #[test]
    fn a_description_without_sense_is_of_no_sandbox() {
        let info = SandboxInfo { id: "sb-1".to_owned(), created_at: 1e9, ..SandboxInfo::default() };
        assert_eq!(instance(info.clone()).unwrap().created, "2001-09-09T01:46:40Z");
        for created_at in [f64::NAN, -1.0, f64::INFINITY, 1e18] {
            assert!(instance(SandboxInfo { created_at, ..info.clone() }).is_none(), "{created_at}");
        }
        assert!(instance(SandboxInfo { id: "../x".to_owned(), ..info }).is_none());
    }
}
