//! `[sandbox.kubernetes]` of the user's file, and `--kube-context`.

use agent_base::machine::Machine;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The user's settings about pods. Everything has a default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The context of the kubeconfig, instead of its current one.
    pub context: Option<String>,
    /// The namespace of the pods, instead of the context's.
    pub namespace: Option<String>,
    /// The image where `--image` names none.
    pub image: Option<String>,
    /// An image with a shell that brings the guest in, for images without one.
    pub init_image: Option<String>,
    /// Where the image has the guest already (`agent guest export`).
    pub guest: Option<String>,
    /// The RuntimeClass where `--runtime` names none.
    pub runtime_class: Option<String>,
    /// The labels of nodes that may run the pods.
    pub node_selector: BTreeMap<String, String>,
    /// The taints that the pods tolerate.
    pub tolerations: Vec<Value>,
    /// The service account that admission judges the pods by. They never get its token.
    pub service_account: Option<String>,
    /// The secrets that images are pulled with.
    pub pull_secrets: Vec<String>,
    /// Further labels of the pods.
    pub labels: BTreeMap<String, String>,
    /// Further annotations of the pods.
    pub annotations: BTreeMap<String, String>,
    /// The share of the limit of processors that a node has to have free (default: 0.1).
    pub cpu_request: Option<f64>,
    /// The most that `/tmp` takes, as `--disk` is written (default: the sandbox's disk).
    pub tmp_size: Option<String>,
    /// The most that `$HOME` takes (default: the sandbox's disk).
    pub home_size: Option<String>,
    /// Set if pods have a user namespace of their own (`hostUsers: false`); where it is not set, where the cluster has them.
    pub user_namespaces: Option<bool>,
    /// The SandboxWarmPool (kubernetes-sigs/agent-sandbox) from which sessions claim their pods, instead of making them.
    pub warm_pool: Option<String>,
    /// How it is made sure that a sandbox without a network has none.
    pub isolation: Isolation,
    /// The longest that a pod lives (default: a day).
    pub max_age: Option<String>,
    /// How long a pod may take to run (default: 5 minutes).
    pub start_timeout: Option<String>,
    /// Fields of a Pod, merged over those that it would have. They cannot weaken what confines it.
    pub pod_template: Map<String, Value>,
}

impl Settings {
    /// Returns what the user of `machine` set.
    pub fn of(machine: &Machine) -> Self {
        machine.kept::<Self>().as_deref().cloned().unwrap_or_default()
    }

    /// Keeps them with `machine`, for the next backend that connects.
    pub fn keep(self, machine: &Machine) {
        machine.keep(self);
    }
}

/// How it is made sure that a sandbox without a network has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// A NetworkPolicy that denies everything is there, and the pod tries to connect in spite of it before anything of the
    /// session is inside.
    #[default]
    Proved,
    /// The cluster's administrator guarantees it: the policy is there, and nothing is tried.
    Trusted,
}
