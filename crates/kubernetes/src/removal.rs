//! The end of a sandbox: its pod or its claim is deleted, and the one that was meant alone.

use super::backend::Kubernetes;
use super::cluster::Cluster;
use super::warm::CLAIMS;
use super::{failure, wait, warm};
use agent_base::error::Result;
use agent_sandbox::removals;
use serde_json::{Value, json};

/// A pod that is ending: its object is there, and counts for the namespace's quota, until its containers have ended.
pub(super) struct Ending {
    cluster: Cluster,
    path: String,
    name: String,
    uid: String,
}

impl Ending {
    /// Waits until the pod is gone, for half a minute at most. It goes as soon as its containers have ended: an older kubelet alone
    /// takes up to ten seconds more.
    pub async fn gone(self) {
        if wait::ended(&self.cluster, &self.name, &self.uid).await {
            let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": self.uid } });
            // The pods of a pool may not be this user's to delete. Then the kubelet does it.
            if self.cluster.delete(&self.path, &options).await.is_err() {
                let _ = wait::gone(&self.cluster, &self.name, &self.uid, wait::REMOVAL).await;
            }
        }
    }

    /// Has that go on beside other work.
    pub fn go_on(self) {
        removals::go_on(self.gone());
    }
}

impl Kubernetes {
    /// Deletes the pod `name`, or the claim of that name; only the one with this `uid`, where that is given. Its processes have a second to end.
    /// Returns the pod that ends with it.
    pub(super) async fn delete(&self, name: &str, uid: Option<&str>) -> Result<Option<Ending>> {
        // The pod of a claim has another name. A session of before the setting has a pod of its own.
        if self.settings.warm_pool.is_some() {
            let pod = self.pod_of_claim(name).await.ok().flatten();
            if self.delete_claim(name, uid).await? {
                return Ok(pod);
            }
            // Pods may not be this user's to delete, and one that is not there need not be.
            if wait::read(&self.cluster, name).await?.is_none() {
                return Ok(None);
            }
        }
        let mut options = json!({ "gracePeriodSeconds": 1, "propagationPolicy": "Background" });
        if let Some(uid) = uid {
            options["preconditions"] = json!({ "uid": uid });
        }
        let path = self.cluster.path(&format!("pods/{name}"));
        let deleted = self.cluster.delete(&path, &options).await;
        let deleted = deleted
            .map_err(|error| failure::error(&format!("the pod {name} could not be removed"), error))?;
        Ok(deleted.map(|pod| self.ending(&pod, name)))
    }

    fn ending(&self, pod: &Value, name: &str) -> Ending {
        Ending {
            cluster: self.cluster.clone(),
            path: self.cluster.path(&format!("pods/{name}")),
            name: name.to_owned(),
            uid: wait::text(pod, "/metadata/uid").to_owned(),
        }
    }

    /// The pod that the claim `name` has.
    async fn pod_of_claim(&self, name: &str) -> Result<Option<Ending>> {
        let Some((_, sandbox)) = self.claim_and_sandbox(name).await? else { return Ok(None) };
        let name = warm::pod_name(&sandbox)?;
        let pod = wait::read(&self.cluster, &name).await?;
        Ok(pod.map(|pod| self.ending(&pod, &name)))
    }

    /// Removes a claim, with its pod; `false` where there is none.
    async fn delete_claim(&self, name: &str, uid: Option<&str>) -> Result<bool> {
        let mut options = json!({ "propagationPolicy": "Background" });
        if let Some(uid) = uid {
            options["preconditions"] = json!({ "uid": uid });
        }
        let path = self.cluster.group_path(CLAIMS, &format!("sandboxclaims/{name}"));
        let deleted = self.cluster.delete(&path, &options).await.map(|claim| claim.is_some());
        deleted.map_err(|error| failure::error(&format!("the claim {name} could not be removed"), error))
    }

    /// Removes the pod or claim of a start that failed. What cannot be removed now ends by its own clock, and is swept later.
    pub(super) async fn give_back(&self, name: &str, uid: &str) {
        if let Ok(Some(ending)) = self.delete(name, Some(uid)).await {
            ending.go_on();
        }
    }

    /// Returns what removes the pod or claim `name` with this `uid` unless it is disarmed.
    pub(super) fn unfinished(&self, name: &str, uid: Option<&str>) -> Unfinished {
        let what = uid.map(|uid| (name.to_owned(), uid.to_owned()));
        Unfinished { kubernetes: self.clone(), what }
    }
}

/// Removes the pod or claim of a start that was given up half-way.
pub(super) struct Unfinished {
    kubernetes: Kubernetes,
    what: Option<(String, String)>,
}

impl Unfinished {
    pub fn disarm(mut self) {
        self.what = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some((name, uid)) = self.what.take() {
            let kubernetes = self.kubernetes.clone();
            removals::go_on(async move {
                if let Ok(Some(ending)) = kubernetes.delete(&name, Some(&uid)).await {
                    ending.gone().await;
                }
            });
        }
    }
}
