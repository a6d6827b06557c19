//! Detects loops: the same calls with the same results, again and again.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Identical rounds that count as a loop.
const ROUNDS: usize = 4;
/// The longest cycle that is detected, in calls.
const MAX_CYCLE: usize = 4;

/// The verdict on the last calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Point it out to the model.
    Warn,
    /// It was pointed out and continues: end the run.
    Stop,
}

/// The last calls and their results.
#[derive(Debug, Default)]
pub struct Repetition {
    recent: VecDeque<u64>,
    warned: bool,
}

impl Repetition {
    /// Records a call and its result.
    ///
    /// The first time that the last calls are [`ROUNDS`] rounds of one cycle it warns; if the cycle continues
    /// for another [`ROUNDS`] rounds it stops. Anything else in between clears the warning.
    pub fn record(&mut self, name: &str, arguments: &str, result: &str) -> Verdict {
        if name == "job_output" {
            // Waiting for a job without new output is not a loop.
            return Verdict::Fine;
        }
        let mut hasher = DefaultHasher::new();
        (name, arguments, result).hash(&mut hasher);
        self.recent.push_back(hasher.finish());
        if self.recent.len() > ROUNDS * MAX_CYCLE {
            self.recent.pop_front();
        }
        if !(1..=MAX_CYCLE).any(|length| self.is_cycle(length)) {
            return Verdict::Fine;
        }
        self.recent.clear();
        match std::mem::replace(&mut self.warned, true) {
            false => Verdict::Warn,
            true => Verdict::Stop,
        }
    }

    fn is_cycle(&self, length: usize) -> bool {
        let Some(start) = self.recent.len().checked_sub(length * ROUNDS) else { return false };
        (start..self.recent.len() - length).all(|at| self.recent[at] == self.recent[at + length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(calls: &str) -> Vec<Verdict> {
        let mut repetition = Repetition::default();
        calls.chars().map(|call| repetition.record("run", &call.to_string(), "same")).collect()
    }

    #[test]
    fn the_fourth_identical_call_warns_and_the_eighth_stops() {
        use Verdict::{Fine, Stop, Warn};
        assert_eq!(verdicts("aaaaaaaa"), [Fine, Fine, Fine, Warn, Fine, Fine, Fine, Stop]);
    }

    #[test]
    fn a_cycle_of_calls_is_seen() {
        assert_eq!(verdicts("abababab").last(), Some(&Verdict::Warn));
        assert_eq!(verdicts("abcabcabcabc").last(), Some(&Verdict::Warn));
        assert_eq!(verdicts("abababababababab").last(), Some(&Verdict::Stop));
    }

    #[test]
    fn different_work_is_fine() {
        assert!(verdicts("aabbaabcdefgaab").iter().all(|verdict| *verdict == Verdict::Fine));
    }

    #[test]
    fn the_same_call_with_another_result_is_fine() {
        let mut repetition = Repetition::default();
        for n in 0..20 {
            assert_eq!(repetition.record("run_commands", "{}", &n.to_string()), Verdict::Fine);
        }
    }
}
