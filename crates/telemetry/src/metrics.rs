//! Tokens, times and costs, added up between two requests.

use crate::otlp::{Attribute, text};
use std::collections::BTreeMap;

/// Combinations of model and kind that are kept apart between two requests.
const MAX_SERIES: usize = 128;
/// The bounds that the conventions name for tokens and for seconds.
const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
const SECONDS: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// The labels of a number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Of {
    pub model: String,
    pub provider: String,
    /// `input` or `output`, of tokens.
    pub tokens: Option<&'static str>,
    /// A word for what went wrong.
    pub error: Option<&'static str>,
}

impl Of {
    pub fn attributes(&self) -> Vec<Attribute> {
        let mut attributes = vec![
            text("gen_ai.operation.name", "chat"),
            text("gen_ai.provider.name", &self.provider),
            text("gen_ai.request.model", &self.model),
        ];
        attributes.extend(self.tokens.map(|kind| text("gen_ai.token.type", kind)));
        attributes.extend(self.error.map(|error| text("error.type", error)));
        attributes
    }
}

/// The numbers of values between bounds.
#[derive(Debug, Clone)]
pub struct Histogram {
    pub bounds: &'static [f64],
    pub counts: Vec<u64>,
    pub sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn add(&mut self, value: f64) {
        let bucket = self.bounds.iter().take_while(|bound| value > **bound).count();
        self.counts[bucket] += 1;
        self.sum += value;
    }
}

type Series = BTreeMap<Of, Histogram>;

/// All metrics since the last request.
#[derive(Debug, Default)]
pub struct Metrics {
    tokens: Series,
    seconds: Series,
    costs: BTreeMap<Of, f64>,
}

impl Metrics {
    pub fn add_tokens(&mut self, of: Of, tokens: u64) {
        add(&mut self.tokens, of, TOKENS, tokens as f64);
    }

    pub fn add_seconds(&mut self, of: Of, seconds: f64) {
        add(&mut self.seconds, of, SECONDS, seconds);
    }

    pub fn add_cost(&mut self, of: Of, cost: f64) {
        if self.costs.len() < MAX_SERIES || self.costs.contains_key(&of) {
            *self.costs.entry(of).or_default() += cost;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.seconds.is_empty() && self.costs.is_empty()
    }

    /// Names and units with their numbers.
    pub fn histograms(&self) -> [(&'static str, &'static str, &Series); 2] {
        [
            ("gen_ai.client.token.usage", "{token}", &self.tokens),
            ("gen_ai.client.operation.duration", "s", &self.seconds),
        ]
    }

    pub fn costs(&self) -> &BTreeMap<Of, f64> {
        &self.costs
    }
}

fn add(series: &mut Series, of: Of, bounds: &'static [f64], value: f64) {
    if series.len() < MAX_SERIES || series.contains_key(&of) {
        series.entry(of).or_insert_with(|| Histogram::new(bounds)).add(value);
    }
}
