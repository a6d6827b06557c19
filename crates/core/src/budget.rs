//! A budget that several sessions may spend together.

use super::{Interrupt, Price, Spent};
use agent_base::error::{Error, Kind};
use agent_base::lock::Lock;
use agent_event::Usage;
use std::sync::Arc;

/// The budgets that a conversation shares with the sessions that its model delegates to.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    /// Stops the turn under way, and them.
    pub interrupt: Interrupt,
    /// The budget of the prompt under way, with what they spent on it.
    pub prompt: Arc<Budget>,
    /// The sum that they have spent on all prompts.
    pub delegated: Arc<Budget>,
}

/// Cost and tokens of several sessions together, and their limits.
#[derive(Debug, Default)]
pub struct Budget {
    max_cost: Option<f64>,
    max_tokens: Option<u64>,
    spent: Lock<Spent>,
    /// The owner, and what to do when it is used up, where the owner is not the user of a command.
    words: Option<(&'static str, &'static str)>,
}

impl Budget {
    /// A budget of which `spent` is used already.
    pub fn new(max_cost: Option<f64>, max_tokens: Option<u64>, spent: Spent) -> Self {
        Self { max_cost, max_tokens, spent: Lock::new(spent), words: None }
    }

    /// Returns what `whose` may spend; `hint` is for them.
    pub fn of(whose: &'static str, max_cost: Option<f64>, hint: &'static str) -> Arc<Self> {
        Arc::new(Self { words: Some((whose, hint)), ..Self::new(max_cost, None, Spent::default()) })
    }

    /// Forgets what was spent.
    pub fn reset(&self) {
        *self.spent.lock() = Spent::default();
    }

    /// Counts one answer.
    pub fn add(&self, usage: Option<Usage>, price: Option<Price>) {
        self.spent.lock().add(usage, price);
    }

    /// Returns what was spent.
    pub fn spent(&self) -> Spent {
        *self.spent.lock()
    }

    /// Returns the reason why no further request is allowed; `None` if one is.
    pub fn exhausted(&self) -> Option<Error> {
        let Spent { usage, cost, .. } = self.spent();
        let tokens = usage.input.saturating_add(usage.output);
        let limit = |message: String, hint: &str| Some(Error::new(Kind::Limit, message).hint(hint));
        if let Some(most) = self.max_cost.filter(|most| cost >= *most) {
            let (whose, hint) =
                self.words.unwrap_or(("all together", "raise --max-cost; the same command continues"));
            let message = format!("the cost limit of {most} for {whose} is reached: {cost:.4} was spent");
            return limit(message, hint);
        }
        if let Some(most) = self.max_tokens.filter(|most| tokens >= *most) {
            let message =
                format!("the limit of {most} tokens for all together is reached: {tokens} were used");
            return limit(message, "raise --max-tokens-total");
        }
        None
    }
}
