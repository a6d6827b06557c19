//! The date after which a kept sandbox is removed. Whoever starts the next sandbox looks at it: there is no daemon.

use std::time::Duration;

/// The date `after` now, RFC 3339. A time beyond what a date can say is never.
pub fn date(after: Duration) -> Option<String> {
    let date = jiff::Timestamp::now().checked_add(after).ok()?;
    Some(date.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Whether `date` has passed. What is no date never does.
pub fn is_past(date: &str) -> bool {
    date.parse::<jiff::Timestamp>().is_ok_and(|date| date < jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_passes_and_nothing_else_does() {
        assert!(!is_past(&date(Duration::from_secs(60)).unwrap()));
        assert!(is_past("2020-01-01T00:00:00Z"));
        for other in ["never", "owner", ""] {
            assert!(!is_past(other), "{other}");
        }
        assert_eq!(date(Duration::MAX), None);
    }
}
