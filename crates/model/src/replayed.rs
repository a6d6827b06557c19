//! A model that was recorded: it gives its answers again, in order, whatever it is asked.

use crate::{ChatModel, OnProgress, Progress, Reply, Request};
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use futures_util::future::BoxFuture;
use std::collections::VecDeque;

/// A recorded model. No key, no network.
#[derive(Debug)]
pub struct Replayed {
    name: String,
    recorded: usize,
    left: Lock<VecDeque<Reply>>,
}

impl Replayed {
    /// The model called `name`, which will give these answers.
    pub fn new(name: impl Into<String>, replies: Vec<Reply>) -> Self {
        Self { name: name.into(), recorded: replies.len(), left: Lock::new(replies.into()) }
    }

    fn next(&self) -> Result<Reply> {
        let next = self.left.lock().pop_front();
        next.ok_or_else(|| {
            Error::endpoint(format!(
                "the recording has run out: it holds {} answers of the model",
                self.recorded
            ))
            .hint("the conversation goes on further than the recorded one did; use a real model from here")
        })
    }
}

impl ChatModel for Replayed {
    fn ask<'a>(&'a self, _: Request<'a>, on_progress: OnProgress<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(async move {
            let reply = self.next()?;
            if let Some(reasoning) = &reply.reasoning {
                on_progress(Progress::Reasoning(reasoning));
            }
            if !reply.text.is_empty() {
                on_progress(Progress::Text(&reply.text));
            }
            Ok(reply)
        })
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async { Ok(vec![self.name.clone()]) })
    }

    fn name(&self) -> &str {
        &self.name
    }
}
