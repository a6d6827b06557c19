//! The few words about a session beside its title on the page.

use super::frame::visible;
use agent_event::Usage;

/// The facts that these words are made of.
pub struct ChipFacts<'a> {
    /// The sandbox's backend.
    pub sandbox: &'a str,
    /// The network that it may reach.
    pub network: &'a str,
    /// Tokens so far.
    pub used: Usage,
    /// Tokens in the conversation, and what the model takes.
    pub context: (u64, Option<u64>),
    /// The cost, where that is known.
    pub cost: Option<f64>,
    /// Its limits, in words.
    pub limits: &'a [String],
}

/// One text each.
pub fn chips(facts: &ChipFacts<'_>) -> Vec<String> {
    let mut chips = vec![
        format!("sandbox {}", facts.sandbox),
        format!("network {}", visible(facts.network)),
        format!("{} tokens", thousands(facts.used.input + facts.used.output)),
    ];
    if let (used @ 1.., Some(all @ 1..)) = facts.context {
        chips.push(format!("{} % of context", used.saturating_mul(100) / all));
    }
    chips.extend(facts.cost.map(|cost| format!("cost {cost:.4}")));
    chips.extend(facts.limits.iter().cloned());
    chips
}

/// A count in at most four digits: `980`, `1.5k`, `2.3M`.
pub fn thousands(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1e3),
        _ => format!("{:.1}M", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_left_out() {
        let used = Usage { input: 1_000, output: 500, ..Usage::default() };
        let limits = ["10 s a prompt".to_owned()];
        let mut facts = ChipFacts {
            sandbox: "local",
            network: "none",
            used,
            context: (0, None),
            cost: None,
            limits: &limits,
        };
        assert_eq!(chips(&facts), ["sandbox local", "network none", "1.5k tokens", "10 s a prompt"]);
        (facts.context, facts.cost) = ((50, Some(200)), Some(0.5));
        assert_eq!(chips(&facts)[3..5], ["25 % of context", "cost 0.5000"]);
        assert_eq!([thousands(999), thousands(2_300_000)], ["999", "2.3M"]);
    }
}
