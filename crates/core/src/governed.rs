//! A model that is paid together with those of other sessions.

use super::{Budget, Price};
use agent_base::error::Result;
use agent_event::CallForm;
use agent_model::{ChatModel, OnProgress, Progress, Reply, Request, ToolSpec};
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Receives the wait before the next attempt, and why the last one failed.
pub type OnRetry = Arc<dyn Fn(Duration, &str) + Send + Sync>;

/// A model whose answers are counted in a [`Budget`], and which is not asked once that is used up.
pub struct Governed {
    /// The model.
    pub model: Arc<dyn ChatModel>,
    /// The price of a million of its tokens.
    pub price: Option<Price>,
    /// Shared by everything that is paid together.
    pub budget: Arc<Budget>,
    /// Called when the endpoint fails and is asked again.
    pub on_retry: OnRetry,
}

impl Governed {
    /// `model`, whose answers are counted in each of `budgets`.
    pub fn by(
        budgets: &[Arc<Budget>],
        model: Arc<dyn ChatModel>,
        price: Option<Price>,
    ) -> Arc<dyn ChatModel> {
        budgets.iter().fold(model, |model, budget| {
            let budget = Arc::clone(budget);
            Arc::new(Self { model, price, budget, on_retry: Arc::new(|_, _| ()) })
        })
    }

    async fn ask_within_budget(&self, request: Request<'_>, on_progress: OnProgress<'_>) -> Result<Reply> {
        if let Some(error) = self.budget.exhausted() {
            return Err(error);
        }
        let mut watched = |progress: Progress<'_>| {
            if let Progress::Retry { wait, reason, .. } = progress {
                (self.on_retry)(wait, reason);
            }
            on_progress(progress);
        };
        let reply = self.model.ask(request, &mut watched).await?;
        self.budget.add(reply.usage, self.price);
        Ok(reply)
    }
}

impl ChatModel for Governed {
    fn ask<'a>(&'a self, request: Request<'a>, on_progress: OnProgress<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(self.ask_within_budget(request, on_progress))
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        self.model.models()
    }

    fn name(&self) -> &str {
        self.model.name()
    }

    fn context_window(&self) -> Option<u64> {
        self.model.context_window()
    }

    fn decide_form<'a>(&'a self, tools: &'a [ToolSpec], on_progress: OnProgress<'a>) -> BoxFuture<'a, ()> {
        self.model.decide_form(tools, on_progress)
    }

    fn form(&self) -> CallForm {
        self.model.form()
    }

    fn is_assisted(&self) -> bool {
        self.model.is_assisted()
    }

    fn resume_form(&self, form: CallForm) {
        self.model.resume_form(form);
    }

    fn learned(&self) -> Option<Value> {
        self.model.learned()
    }

    fn resume_learned(&self, learned: &Value) {
        self.model.resume_learned(learned);
    }

    fn takes_images(&self) -> bool {
        self.model.takes_images()
    }

    fn for_another_conversation(&self) -> Option<Arc<dyn ChatModel>> {
        let model = self.model.for_another_conversation()?;
        let (price, budget, on_retry) = (self.price, Arc::clone(&self.budget), Arc::clone(&self.on_retry));
        Some(Arc::new(Self { model, price, budget, on_retry }))
    }

    fn add_images(&self, to: &str, images: Vec<String>) {
        self.model.add_images(to, images);
    }
}
