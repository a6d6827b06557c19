//! Questions of a part, which name it: the user sees several sessions at once.

use agent_base::error::Result;
use agent_policy::{Answer, Approver, Question, policy};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Asks the user of the session that delegates.
pub(super) struct OfPart {
    pub number: u64,
    pub user: Arc<dyn Approver>,
}

impl Approver for OfPart {
    fn ask<'a>(&'a self, question: &'a Question<'a>) -> BoxFuture<'a, Result<Answer>> {
        let part = format!("part {}", self.number);
        Box::pin(async move {
            match question {
                Question::ToolCall(question) => {
                    let mut named: policy::CallQuestion = (*question).clone();
                    named.what = format!("{part}: {}", question.what);
                    self.user.ask(&Question::ToolCall(&named)).await
                }
                Question::Connect { host, port, remark } => {
                    let remark = match remark {
                        Some(remark) => format!("{remark}, for {part}"),
                        None => format!("for {part}"),
                    };
                    self.user.ask(&Question::Connect { host, port: *port, remark: Some(&remark) }).await
                }
                Question::Credential { name, host } => {
                    let host = format!("{host}, for {part},");
                    self.user.ask(&Question::Credential { name, host: &host }).await
                }
                Question::Push { name, repository, changes } => {
                    let changes = format!("{changes}, for {part}");
                    self.user.ask(&Question::Push { name, repository, changes: &changes }).await
                }
                Question::Reach { purpose, hosts } => {
                    let purpose = format!("{purpose} for {part}");
                    self.user.ask(&Question::Reach { purpose: &purpose, hosts }).await
                } // A part applies nothing.
            }
        })
    }
}
