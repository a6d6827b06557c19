//! The part of the server's network that a client takes away, at the start or later.

use super::E2bServer;
use super::control::{failure, parse};
use super::hosted::Hosted;
use super::reply::{RefusedCall, empty};
use agent_base::error::{Error, Result};
use agent_network::{Gateway, Narrowing, Rules};
use agent_sandbox::{Network, Sandbox};
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// The range that stands for all traffic.
const EVERYTHING: &str = "0.0.0.0/0";

/// The settings of egress that a client asks for.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EgressWanted {
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    egress_proxy: Option<Value>,
    rules: Option<Value>,
    #[serde(rename = "allow_internet_access", alias = "allowInternetAccess")]
    pub allow_internet_access: Option<bool>,
}

/// The restrictions of a sandbox within the server's network.
#[derive(Debug, Clone, Default)]
pub struct Egress(Narrowing);

impl EgressWanted {
    /// Returns what is left; the message names what the server does not have.
    pub fn egress(self) -> Result<Egress, String> {
        let is_given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
        for (name, value) in [("egressProxy", &self.egress_proxy), ("rules", &self.rules)] {
            if is_given(value) {
                return Err(format!("agent serve does not support network.{name}"));
            }
        }
        let mut denied = self.deny_out.unwrap_or_default();
        if self.allow_internet_access == Some(false) {
            denied.push(EVERYTHING.to_owned());
        }
        let narrowing = Narrowing::new(&self.allow_out.unwrap_or_default(), &denied);
        narrowing.map(Egress).map_err(|error| error.to_string())
    }
}

impl Egress {
    /// The network of a sandbox that starts with it. What is to be judged goes through the proxy.
    pub fn network(&self, server: &Network) -> Network {
        match server {
            _ if self.0.denies_everything() => Network::None,
            Network::Full if !self.0.denies_nothing() => judged(server),
            server => server.clone(),
        }
    }

    /// Has `gateway` judge by it from now on.
    pub fn apply(&self, gateway: &Gateway) {
        gateway.narrow(self.0.clone());
    }

    /// Returns whether anything may be reached.
    pub fn is_open(&self) -> bool {
        !self.0.denies_everything()
    }

    /// Replaces what a running sandbox, which `gateway` judges, was left with.
    ///
    /// # Errors
    /// Its connections bypass the gateway; or it is gone.
    pub async fn replace(&self, gateway: &Arc<Gateway>, sandbox: &Sandbox, server: &Network) -> Result<()> {
        if gateway.is_full() {
            return match self.0.denies_nothing() {
                true => Ok(()),
                false => {
                    Err(Error::usage("this sandbox has the whole network, which cannot be limited later")
                        .hint("create it with a list, or start the server with --network public"))
                }
            };
        }
        if let Network::Hosts(hosts) = judged(server) {
            gateway.begin_with(Rules::parse(&hosts.join(","))?);
        }
        self.apply(gateway);
        gateway.attach(sandbox).await
    }
}

/// The network of a server as a list that can be judged by.
fn judged(server: &Network) -> Network {
    match server {
        Network::Full => Network::Hosts(vec!["public".to_owned()]),
        server => server.clone(),
    }
}

/// `PUT /sandboxes/{id}/network`
pub async fn update(server: &E2bServer, hosted: &Hosted, body: &Bytes) -> Result<Response, RefusedCall> {
    let wanted: EgressWanted = parse(body)?;
    let egress = wanted.egress().map_err(RefusedCall::bad_request)?;
    hosted.replace_egress(egress, &server.network).await.map_err(|failed| failure(&failed))?;
    Ok(empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(body: &str, server: &Network) -> Network {
        let wanted: EgressWanted = serde_json::from_str(body).unwrap();
        wanted.egress().unwrap().network(server)
    }

    #[test]
    fn a_client_can_only_take_from_the_servers_network() {
        let lists = |words: &str| Network::Hosts(vec![words.to_owned()]);
        for body in ["{}", r#"{"allow_internet_access":true}"#, r#"{"allowOut":["1.1.1.1"]}"#] {
            for server in [Network::Full, Network::None, lists("registries")] {
                assert_eq!(left(body, &server), server, "{body}");
            }
        }
        for body in [r#"{"allow_internet_access":false}"#, r#"{"denyOut":["0.0.0.0/0"]}"#] {
            assert_eq!(left(body, &Network::Full), Network::None, "{body}");
        }
        let list = r#"{"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"]}"#;
        assert_eq!(left(list, &Network::Full), lists("public"));
        assert_eq!(left(list, &lists("registries")), lists("registries"));
        assert_eq!(left(list, &Network::None), Network::None);
    }

    #[test]
    fn what_the_server_does_not_have_is_refused_by_name() {
        for (body, name) in
            [(r#"{"rules":{}}"#, "network.rules"), (r#"{"denyOut":["example.com"]}"#, "example.com")]
        {
            let wanted: EgressWanted = serde_json::from_str(body).unwrap();
            assert!(wanted.egress().unwrap_err().contains(name), "{body}");
        }
    }
}
