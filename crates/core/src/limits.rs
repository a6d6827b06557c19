//! The budget of a run, and its expenses.

use agent_base::count_text::counted;
use agent_base::error::{Error, Kind};
use agent_event::Usage;
use agent_model::Price;
use std::time::Duration;

/// Requests to the model that one prompt may take by default.
pub const DEFAULT_MAX_TURNS: u64 = 100;

/// The limits that end the work on one prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLimits {
    /// Requests to the model.
    pub turns: u64,
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
    /// Cost, in the currency of the prices.
    pub cost: Option<f64>,
    /// Wall time.
    pub time: Option<Duration>,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { turns: DEFAULT_MAX_TURNS, tokens: None, cost: None, time: None }
    }
}

/// The expenses of a run so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// Requests that the model answered.
    pub turns: u64,
    /// Tokens.
    pub usage: Usage,
    /// Cost, where prices are configured.
    pub cost: f64,
}

/// A limit that is reached.
pub struct Reached {
    /// Its name in events: `turns`, `tokens` or `cost`.
    pub name: &'static str,
    /// The error that the run ends with.
    pub error: Error,
}

impl Spent {
    /// Counts one answered request.
    pub fn add(&mut self, usage: Option<Usage>, price: Option<Price>) {
        self.turns += 1;
        self.add_usage(usage, price);
    }

    /// Counts the tokens of a summary, which is not a turn.
    pub fn add_usage(&mut self, usage: Option<Usage>, price: Option<Price>) {
        let Some(usage) = usage else { return };
        self.usage.add(usage);
        if let Some(price) = price {
            self.cost += price.of(usage).sum();
        }
    }

    /// The first limit that allows no further request.
    pub fn reached(&self, limits: &RunLimits) -> Option<Reached> {
        let tokens = self.usage.input.saturating_add(self.usage.output);
        if self.turns >= limits.turns {
            let hint = "raise --max-turns, or continue with `agent resume`";
            return Some(reached(
                "turns",
                format!("the limit of {} is reached", counted(limits.turns, "turn")),
                hint,
            ));
        }
        if let Some(limit) = limits.tokens.filter(|limit| tokens >= *limit) {
            let message = format!("the limit of {limit} tokens is reached: {tokens} were used");
            return Some(reached("tokens", message, "raise --max-tokens-total"));
        }
        if let Some(limit) = limits.cost.filter(|limit| self.cost >= *limit) {
            let message = format!("the cost limit of {limit} is reached: {:.4} was spent", self.cost);
            return Some(reached("cost", message, "raise --max-cost"));
        }
        None
    }
}

fn reached(name: &'static str, message: String, hint: &str) -> Reached {
    Reached { name, error: Error::new(Kind::Limit, message).hint(hint) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> RunLimits {
        RunLimits { turns: 10, tokens: Some(1000), cost: Some(1.0), time: None }
    }

    #[test]
    fn each_limit_is_named() {
        let mut spent = Spent::default();
        assert!(spent.reached(&limits()).is_none());
        spent.turns = 10;
        assert_eq!(spent.reached(&limits()).map(|r| r.name), Some("turns"));
        spent = Spent { usage: Usage { input: 600, output: 400, cached: 0, written: 0 }, ..Spent::default() };
        assert_eq!(spent.reached(&limits()).map(|r| r.name), Some("tokens"));
        spent = Spent { cost: 1.0, ..Spent::default() };
        assert_eq!(spent.reached(&limits()).map(|r| r.name), Some("cost"));
    }

    #[test]
    fn cached_tokens_cost_what_they_cost() {
        let mut spent = Spent::default();
        let price = Price { input: 2.0, cached: Some(0.5), written: Some(4.0), output: 8.0 };
        spent.add(
            Some(Usage { input: 1_000_000, output: 500_000, cached: 400_000, written: 100_000 }),
            Some(price),
        );
        assert!((spent.cost - (1.0 + 0.2 + 0.4 + 4.0)).abs() < 1e-9, "{}", spent.cost);
    }
}
