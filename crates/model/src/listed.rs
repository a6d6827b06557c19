//! Windows and prices of well-known models, as their providers list them.

use crate::Price;

/// A line for each model; its head says where the figures are from.
const LIST: &str = include_str!("models.txt");

/// The facts that are listed of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListedModel {
    /// The tokens that a request may have.
    pub context_window: u64,
    /// The price in US dollars, where it is the same for requests of any length.
    pub price: Option<Price>,
}

/// Returns what is listed of a provider's model, under its name or that of one of its versions, which end in a date.
pub fn listed(provider: &str, model: &str) -> Option<ListedModel> {
    let lines = LIST.lines().filter(|line| line.starts_with(provider));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>()).find_map(|fields| {
        let [of, name, window, input, cached, written, output] = fields[..] else { return None };
        if of != provider || !is_version_of(model, name) {
            return None;
        }
        let price = |text: &str| text.parse::<f64>().ok();
        let whole = price(input).zip(price(output));
        let price = whole.map(|(input, output)| Price {
            input,
            cached: price(cached),
            written: price(written),
            output,
        });
        Some(ListedModel { context_window: window.parse().ok()?, price })
    })
}

/// The name itself, or with a date behind it: `-20251101`, `-2025-11-01`, `-2511`.
fn is_version_of(model: &str, name: &str) -> bool {
    let Some(rest) = model.strip_prefix(name) else { return false };
    let digits: String = rest.chars().filter(|character| *character != '-').collect();
    rest.is_empty()
        || rest.starts_with('-')
            && matches!(digits.len(), 4 | 8)
            && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_is_of_a_provider_and_can_be_read() {
        let mut seen = BTreeSet::new();
        for line in LIST.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (provider, model) = (fields[0], fields[1]);
            assert!(providers::find(provider).is_ok() && seen.insert((provider, model)), "{line}");
            let listed = listed(provider, model).unwrap();
            assert!((8_000..=2_000_000).contains(&listed.context_window), "{line}");
            let numbers = fields[3..].iter().filter(|field| **field != "-");
            assert!(
                numbers
                    .into_iter()
                    .all(|field| field.parse::<f64>().is_ok_and(|price| (0.0..200.0).contains(&price)))
            );
            // Nobody gives a discount for output, and a cache costs less than no cache.
            let is_usual = |price: Price| {
                price.input <= price.output && price.cached.is_none_or(|cached| cached < price.input)
            };
            assert!(listed.price.is_none_or(|price| price.input == 0.0 || is_usual(price)), "{line}");
        }
    }

    #[test]
    fn versions_are_found_under_the_name_and_other_models_are_not() {
        let window = |model: &str| listed("openai", model).map(|listed| listed.context_window);
        assert_eq!(window("gpt-4.1-mini"), Some(1_047_576));
        assert_eq!(window("gpt-4.1-mini-2025-04-14"), window("gpt-4.1-mini"));
        assert_eq!((window("gpt-4.1-huge"), window("gpt-4"), window("gpt-4.1-")), (None, None, None));
        assert_eq!(listed("mistral", "gpt-4.1-mini"), None);
        let price = listed("anthropic", "claude-opus-4-5-20251101").unwrap().price.unwrap();
        assert_eq!(
            (price.input, price.cached, price.written, price.output),
            (5.0, Some(0.5), Some(6.25), 25.0)
        );
    }
}
