//! The messages of Modal's API that are used: a subset of `modal_proto/api.proto` and `task_command_router.proto`, whose
//! field numbers are the contract. Fields that are left out are skipped when they arrive.
#![allow(missing_docs, reason = "the names are Modal's own")]

use prost::Message;
use std::collections::BTreeMap;

/// `ObjectCreationType` and `DeploymentNamespace`.
pub const CREATE_IF_MISSING: i32 = 1;
pub const WORKSPACE: i32 = 1;
/// `NetworkAccessType`.
pub const OPEN: i32 = 1;
pub const BLOCKED: i32 = 2;
/// `GenericStatus`: all others are failures or ends.
pub const UNFINISHED: i32 = 0;
pub const SUCCESS: i32 = 1;
/// `TaskExecStdoutConfig` and `TaskExecStderrConfig`.
pub const DEVNULL: i32 = 0;
pub const PIPE: i32 = 1;
/// `TaskExecStdioFileDescriptor`.
pub const STDOUT: i32 = 0;
pub const STDERR: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct AppGetOrCreateRequest {
    #[prost(string, tag = "1")]
    pub app_name: String,
    #[prost(string, tag = "2")]
    pub environment_name: String,
    #[prost(int32, tag = "3")]
    pub object_creation_type: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct AppGetOrCreateResponse {
    #[prost(string, tag = "1")]
    pub app_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct EnvironmentGetOrCreateRequest {
    #[prost(string, tag = "1")]
    pub deployment_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct EnvironmentGetOrCreateResponse {
    #[prost(string, tag = "1")]
    pub environment_id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<EnvironmentMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EnvironmentMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub settings: Option<EnvironmentSettings>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EnvironmentSettings {
    #[prost(string, tag = "1")]
    pub image_builder_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Image {
    #[prost(string, repeated, tag = "6")]
    pub dockerfile_commands: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ImageGetOrCreateRequest {
    #[prost(message, optional, tag = "2")]
    pub image: Option<Image>,
    #[prost(string, tag = "4")]
    pub app_id: String,
    #[prost(int32, tag = "8")]
    pub namespace: i32,
    #[prost(string, tag = "9")]
    pub builder_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ImageGetOrCreateResponse {
    #[prost(string, tag = "1")]
    pub image_id: String,
    #[prost(message, optional, tag = "2")]
    pub result: Option<GenericResult>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ImageJoinStreamingRequest {
    #[prost(string, tag = "1")]
    pub image_id: String,
    #[prost(float, tag = "2")]
    pub timeout: f32,
    #[prost(string, tag = "3")]
    pub last_entry_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ImageJoinStreamingResponse {
    #[prost(message, optional, tag = "1")]
    pub result: Option<GenericResult>,
    #[prost(string, tag = "3")]
    pub entry_id: String,
    #[prost(bool, tag = "4")]
    pub eof: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct GenericResult {
    #[prost(int32, tag = "1")]
    pub status: i32,
    #[prost(string, tag = "2")]
    pub exception: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AuthTokenGetResponse {
    #[prost(string, tag = "1")]
    pub token: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resources {
    #[prost(uint32, tag = "2")]
    pub memory_mb: u32,
    #[prost(uint32, tag = "3")]
    pub milli_cpu: u32,
    #[prost(uint32, tag = "5")]
    pub memory_mb_max: u32,
    #[prost(uint32, tag = "7")]
    pub milli_cpu_max: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct NetworkAccess {
    #[prost(int32, tag = "1")]
    pub network_access_type: i32,
}

/// `PortSpecs`: an empty one opens none.
pub type PortSpecs = Empty;

/// `Sandbox`: what one is made of.
#[derive(Clone, PartialEq, Message)]
pub struct Definition {
    #[prost(string, repeated, tag = "1")]
    pub entrypoint_args: Vec<String>,
    #[prost(string, tag = "3")]
    pub image_id: String,
    #[prost(message, optional, tag = "5")]
    pub resources: Option<Resources>,
    #[prost(uint32, tag = "7")]
    pub timeout_secs: u32,
    #[prost(message, optional, tag = "20")]
    pub open_ports: Option<PortSpecs>,
    #[prost(message, optional, tag = "22")]
    pub network_access: Option<NetworkAccess>,
    #[prost(string, optional, tag = "30")]
    pub name: Option<String>,
    #[prost(uint32, optional, tag = "33")]
    pub idle_timeout_secs: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SandboxTag {
    #[prost(string, tag = "1")]
    pub tag_name: String,
    #[prost(string, tag = "2")]
    pub tag_value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct SandboxCreateV2Request {
    #[prost(string, tag = "1")]
    pub app_id: String,
    #[prost(message, optional, tag = "2")]
    pub definition: Option<Definition>,
    #[prost(message, repeated, tag = "4")]
    pub tags: Vec<SandboxTag>,
}

/// `CommandRouterAccess` and `SandboxGetCommandRouterAccessResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct RouterAccess {
    #[prost(string, tag = "1")]
    pub jwt: String,
    #[prost(string, tag = "2")]
    pub url: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct SandboxCreateV2Response {
    #[prost(string, tag = "1")]
    pub sandbox_id: String,
    #[prost(string, tag = "3")]
    pub task_id: String,
    #[prost(message, optional, tag = "5")]
    pub command_router_access: Option<RouterAccess>,
    #[prost(string, tag = "6")]
    pub sandbox_token: String,
}

/// `SandboxGetCommandRouterAccessRequest`, `SandboxTerminateRequest`, `SandboxGetTaskIdRequest`, `SandboxWaitRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct SandboxNamed {
    #[prost(string, tag = "1")]
    pub sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct SandboxGetTaskIdResponse {
    #[prost(string, tag = "1")]
    pub task_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct SandboxListRequest {
    #[prost(string, tag = "1")]
    pub app_id: String,
    #[prost(double, tag = "2")]
    pub before_timestamp: f64,
    #[prost(string, tag = "3")]
    pub environment_name: String,
    #[prost(bool, tag = "4")]
    pub include_finished: bool,
    #[prost(message, repeated, tag = "5")]
    pub tags: Vec<SandboxTag>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TaskInfo {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(double, tag = "3")]
    pub finished_at: f64,
    #[prost(message, optional, tag = "4")]
    pub result: Option<GenericResult>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SandboxInfo {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(double, tag = "3")]
    pub created_at: f64,
    #[prost(message, optional, tag = "4")]
    pub task_info: Option<TaskInfo>,
    #[prost(string, tag = "5")]
    pub app_id: String,
    #[prost(message, repeated, tag = "6")]
    pub tags: Vec<SandboxTag>,
    #[prost(string, tag = "7")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct SandboxListResponse {
    #[prost(message, repeated, tag = "1")]
    pub sandboxes: Vec<SandboxInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TaskExecStartRequest {
    #[prost(string, tag = "1")]
    pub task_id: String,
    #[prost(string, tag = "2")]
    pub exec_id: String,
    #[prost(string, repeated, tag = "3")]
    pub command_args: Vec<String>,
    #[prost(int32, tag = "4")]
    pub stdout_config: i32,
    #[prost(int32, tag = "5")]
    pub stderr_config: i32,
    #[prost(uint32, optional, tag = "6")]
    pub timeout_secs: Option<u32>,
    #[prost(string, optional, tag = "7")]
    pub workdir: Option<String>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TaskExecStdioReadRequest {
    #[prost(string, tag = "1")]
    pub task_id: String,
    #[prost(string, tag = "2")]
    pub exec_id: String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(int32, tag = "4")]
    pub file_descriptor: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct TaskExecStdioReadResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: bytes::Bytes,
}

/// `TaskExecWaitRequest`, `TaskExecPollRequest` and `TaskExecStdinStatusRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct TaskExecNamed {
    #[prost(string, tag = "1")]
    pub task_id: String,
    #[prost(string, tag = "2")]
    pub exec_id: String,
}

/// `TaskExecWaitResponse` and `TaskExecPollResponse`: a code or a signal; neither while the command runs.
#[derive(Clone, PartialEq, Message)]
pub struct TaskExecEnd {
    #[prost(int32, optional, tag = "1")]
    pub code: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub signal: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TaskSnapshotFilesystemRequest {
    #[prost(string, tag = "1")]
    pub task_id: String,
    #[prost(string, tag = "2")]
    pub snapshot_id: String,
    #[prost(int64, optional, tag = "3")]
    pub ttl_seconds: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TaskSnapshotFilesystemResponse {
    #[prost(string, tag = "1")]
    pub image_id: String,
}

/// `TaskExecStdinWriteStreamStart`; also the beginning of `TaskExecStdinWriteRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct StdinStart {
    #[prost(string, tag = "1")]
    pub task_id: String,
    #[prost(string, tag = "2")]
    pub exec_id: String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
}

/// `TaskExecStdinWriteStreamRequest`, of whose fields one is set.
#[derive(Clone, PartialEq, Message)]
pub struct StdinMessage {
    #[prost(message, optional, tag = "1")]
    pub start: Option<StdinStart>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub data: Option<bytes::Bytes>,
    #[prost(message, optional, tag = "3")]
    pub end: Option<Empty>,
}
