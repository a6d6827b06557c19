//! Knowledge about the model, and the form in which tools are offered to it.

use super::{OpenAi, no_list};
use crate::OnProgress;
use crate::Progress;
use crate::ToolSpec;
use crate::client::facts;
use crate::client::facts::Facts;
use crate::client::wire;
use crate::compact;
use crate::endpoint::Endpoint;
use crate::providers::GENERIC;
use crate::size::form_for_size;
use crate::size::parameters_in_name;
use agent_base::error::Result;
use agent_event::CallForm;
use futures_util::future::join_all;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// The time for which the first request may wait for what the server knows about a model.
const FACTS_TIMEOUT: Duration = Duration::from_secs(1);
/// Models of one endpoint that the server is asked about one by one.
const MAX_MODELS_ASKED: usize = 50;
/// The number of times that the server is asked for that, where it did not answer in time.
const MAX_FACTS_REQUESTS: u32 = 3;

/// The form in which tools are offered, and whether that has been reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfferedForm {
    pub chosen: Option<CallForm>,
    pub announced: bool,
}

impl OpenAi {
    /// The form that a session begins with, as far as is known yet.
    pub fn usual_form(&self) -> CallForm {
        let by_size = || self.known().parameters.map_or(CallForm::Native, form_for_size);
        self.endpoint.form.unwrap_or_else(by_size)
    }

    /// The models that the endpoint offers, with what is known of each.
    pub async fn models_with_facts(&self) -> Result<Vec<(String, Facts)>> {
        let list = self.list().await.map_err(|failure| failure.into_error(&self.endpoint))?;
        let names = wire::model_names(&list).ok_or_else(|| no_list().into_error(&self.endpoint))?;
        let Endpoint { base_url, provider, .. } = &self.endpoint;
        let is_asked = names.len() <= MAX_MODELS_ASKED;
        let of_model = async |name: String| {
            let facts = if is_asked {
                let headers = self.address.lock().headers.clone();
                let learn = facts::learn(&self.http, &headers, base_url, &list, &name);
                timeout(FACTS_TIMEOUT, learn).await.unwrap_or_default()
            } else {
                facts::listed(&list, &name)
            };
            let documented = Facts {
                parameters: parameters_in_name(&name),
                context_window: provider.context_window(&name),
            };
            let facts = facts.or(documented);
            (name, facts)
        };
        Ok(join_all(names.into_iter().map(of_model)).await)
    }

    /// Returns what is known about the model so far, without asking anybody.
    pub(super) fn known(&self) -> Facts {
        let Endpoint { provider, model, .. } = &self.endpoint;
        let documented =
            Facts { parameters: parameters_in_name(model), context_window: provider.context_window(model) };
        let configured = Facts { parameters: None, context_window: self.endpoint.context_window };
        configured.or(self.facts.get().copied().unwrap_or_default()).or(documented)
    }

    /// Returns what is known about the model, after the server was asked.
    pub async fn facts(&self) -> Facts {
        if self.asks_for_facts() {
            self.learn_facts().await;
        }
        self.known()
    }

    /// Returns whether the server is to be asked about the model: a local or custom one, until it has answered or all is known.
    pub(super) fn asks_for_facts(&self) -> bool {
        let Endpoint { provider, form, assist, .. } = &self.endpoint;
        let is_hosted = **provider != GENERIC && !provider.is_local();
        let known = self.known();
        let needs_size = form.is_none() || assist.is_none();
        let is_enough = known.context_window.is_some() && (!needs_size || known.parameters.is_some());
        !is_hosted
            && !is_enough
            && !self.facts.initialized()
            && self.facts_requests.load(Ordering::Relaxed) < MAX_FACTS_REQUESTS
    }

    pub(super) async fn learn_facts(&self) {
        self.facts_requests.fetch_add(1, Ordering::Relaxed);
        let Endpoint { base_url, model, .. } = &self.endpoint;
        let learn = async {
            match self.list().await {
                Ok(list) => {
                    let headers = self.address.lock().headers.clone();
                    facts::learn(&self.http, &headers, base_url, &list, model).await
                }
                Err(_) => Facts::default(),
            }
        };
        self.facts.get_or_init(|| learn).await;
    }

    /// Decides the form before a request with tools, and announces it if it is not the usual one. Only where the size of the
    /// model decides, its name does not state it, and the server is near, the first request waits for the server's word.
    pub(super) async fn choose_form(&self, tools: &[ToolSpec], on_progress: OnProgress<'_>) {
        if !compact::fits(tools) {
            return;
        }
        let form = *self.form.lock();
        if let Some(chosen) = form.chosen {
            return self.set_form(chosen, "it is configured", on_progress);
        }
        self.wait_for_size().await;
        if let Some(count) = self.known().parameters {
            let reason = format!("the model has {:.1} billion parameters", count / 1e9);
            self.set_form(form_for_size(count), &reason, on_progress);
        }
    }

    /// Decides the form, and learns the size of the model where help depends on it.
    pub(super) async fn learn_model(&self, tools: &[ToolSpec], on_progress: OnProgress<'_>) {
        self.choose_form(tools, on_progress).await;
        if self.endpoint.assist.is_none() {
            self.wait_for_size().await;
        }
    }

    /// Waits for a near server's word about the size of the model, once, where it is not known.
    async fn wait_for_size(&self) {
        let is_near = self.endpoint.base_url.starts_with("http://");
        let is_first = self.facts_requests.load(Ordering::Relaxed) == 0;
        if self.known().parameters.is_none() && is_near && is_first && self.asks_for_facts() {
            // A server that takes longer is asked beside the request.
            let _ = timeout(FACTS_TIMEOUT, self.learn_facts()).await;
        }
    }

    fn set_form(&self, chosen: CallForm, reason: &str, on_progress: OnProgress<'_>) {
        let before =
            std::mem::replace(&mut *self.form.lock(), OfferedForm { chosen: Some(chosen), announced: true });
        if !before.announced && chosen != CallForm::Native {
            on_progress(Progress::Form { form: chosen, reason });
        }
    }
}
