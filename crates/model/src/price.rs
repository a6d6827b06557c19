//! Prices of tokens, and what tokens cost.

use agent_event::Usage;

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Price {
    /// Input.
    pub input: f64,
    /// Input that is read from the cache; `input` where absent.
    pub cached: Option<f64>,
    /// Input that is written to the cache; `input` where absent.
    pub written: Option<f64>,
    /// Output.
    pub output: f64,
}

/// The costs of tokens, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Costs {
    /// Input that was read from the cache.
    pub cached: f64,
    /// Input that was written to it.
    pub written: f64,
    /// Other input.
    pub fresh: f64,
    /// Output.
    pub output: f64,
}

impl Costs {
    /// All of them.
    pub fn sum(&self) -> f64 {
        self.cached + self.written + self.fresh + self.output
    }
}

impl Price {
    /// Returns what these tokens cost.
    pub fn of(&self, usage: Usage) -> Costs {
        let cost = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        Costs {
            cached: cost(usage.cached, self.cached.unwrap_or(self.input)),
            written: cost(usage.written, self.written.unwrap_or(self.input)),
            fresh: cost(usage.fresh(), self.input),
            output: cost(usage.output, self.output),
        }
    }
}
