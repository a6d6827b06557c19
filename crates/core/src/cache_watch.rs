//! How much of the prompts an endpoint reads from its cache: a long session whose prompts miss it costs many times as much.

use agent_event::Usage;
use std::collections::VecDeque;

/// Requests that are looked at together.
const RECENT: usize = 5;
/// Input tokens of these from which the share counts: short prompts are not cached anywhere.
const MIN_INPUT: u64 = 20_000;
/// The share in percent below which the user learns of it.
const LEAST_SHARE: u64 = 80;

/// The usage of the last requests, as far as it shows what they read from the cache.
#[derive(Debug, Default)]
pub(super) struct CacheWatch {
    recent: VecDeque<Usage>,
    /// Set if the endpoint has a cache, as far as it says.
    has_read: bool,
    is_reported: bool,
}

impl CacheWatch {
    /// Counts a request. Returns the text for the user where they miss the cache, once.
    pub fn add(&mut self, usage: Usage) -> Option<String> {
        self.has_read |= usage.cached > 0;
        self.recent.push_back(usage);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        let sum = |of: fn(&Usage) -> u64| self.recent.iter().map(of).sum::<u64>();
        let (input, cached) = (sum(|usage| usage.input), sum(|usage| usage.cached));
        let share = cached.saturating_mul(100) / input.max(1);
        let counts = self.has_read && self.recent.len() == RECENT && input >= MIN_INPUT;
        if self.is_reported || !counts || share >= LEAST_SHARE {
            return None;
        }
        self.is_reported = true;
        Some(format!(
            "The endpoint read only {share} % of the last {RECENT} prompts from its cache, so they cost more than they could: their \
             beginnings differ (instructions, skills or tools that change), or it keeps them for a shorter time than lay between them."
        ))
    }

    /// Begins anew: the next prompts begin otherwise, or another model reads them.
    pub fn restart(&mut self) {
        self.recent.clear();
        self.has_read = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64) -> Usage {
        Usage { input, output: 10, cached, written: 0 }
    }

    fn reports(requests: &[(u64, u64)]) -> usize {
        let mut watch = CacheWatch::default();
        requests.iter().filter_map(|&(input, cached)| watch.add(usage(input, cached))).count()
    }

    #[test]
    fn prompts_that_miss_the_cache_are_reported_once() {
        assert_eq!(reports(&[(10_000, 9_000); 20]), 0);
        assert_eq!(reports(&[(10_000, 5_000); 20]), 1);
        // An endpoint without a cache, short prompts, and the first prompts of a session say nothing.
        assert_eq!(reports(&[(10_000, 0); 20]), 0);
        assert_eq!(reports(&[(1_000, 100); 20]), 0);
        assert_eq!(reports(&[(10_000, 0), (10_000, 9_000), (10_000, 9_000), (10_000, 9_000)]), 0);
    }

    #[test]
    fn a_conversation_that_begins_otherwise_is_counted_anew() {
        let mut watch = CacheWatch::default();
        for _ in 0..4 {
            assert!(watch.add(usage(10_000, 1)).is_none());
        }
        watch.restart();
        assert!(watch.add(usage(10_000, 0)).is_none());
    }
}
