//! `update_plan`: the steps of a task, for the user to see.

use super::describe;
use crate::{Context, Plan, Tool, ToolResult, arguments};
use agent_base::count_text::counted;
use agent_base::error::{Error, Result};
use agent_base::sanitise::one_line;
use agent_event::{PlanStep, StepStatus};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

const MAX_STEPS: usize = 50;
/// Columns of one step.
const MAX_STEP: usize = 300;

/// Writes down the plan of a session.
pub struct UpdatePlan(pub Arc<Plan>);

impl Tool for UpdatePlan {
    describe!("update_plan", UPDATE_PLAN, UpdatePlanArguments);

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { self.update(context, arguments::read(&arguments)?) })
    }
}

#[derive(Deserialize, JsonSchema)]
struct UpdatePlanArguments {
    /// All steps, in order.
    steps: Vec<PlanStep>,
}

impl UpdatePlan {
    fn update(
        &self,
        context: Context<'_>,
        UpdatePlanArguments { mut steps }: UpdatePlanArguments,
    ) -> Result<ToolResult> {
        if steps.is_empty() || steps.len() > MAX_STEPS {
            return Err(Error::usage(format!("a plan has 1 to {MAX_STEPS} steps")));
        }
        for step in &mut steps {
            step.text = one_line(&step.text, MAX_STEP);
        }
        let completed = steps.iter().filter(|step| step.status == StepStatus::Completed).count();
        let text = match self.0.is_read_only() {
            true => "the plan is written down; answer now: the user decides about it then".to_owned(),
            false => format!("{completed} of {} completed", counted(steps.len(), "step")),
        };
        self.0.update(steps, context.events)?;
        Ok(ToolResult::success(text))
    }
}
