//! When to try again: doubling waits with jitter, or what the endpoint asks for.

use crate::endpoint::Retries;
use reqwest::header::HeaderMap;
use std::time::{Duration, SystemTime};

/// Counts the tries of one request.
pub struct Backoff {
    limits: Retries,
    attempt: u32,
    waited: Duration,
}

impl Backoff {
    /// Nothing has been tried again yet.
    pub fn new(limits: Retries) -> Self {
        Self { limits, attempt: 0, waited: Duration::ZERO }
    }

    /// The number of the next try (from 1) and the wait before it; `None` where it is enough.
    /// `most` bounds the tries beside the configuration.
    pub fn next(&mut self, asked: Option<Duration>, most: u32) -> Option<(u32, Duration)> {
        if self.attempt >= self.limits.attempts.min(most) {
            return None;
        }
        let wait = match asked {
            // A little more than asked for, so that many clients do not come back in one moment.
            Some(asked) => {
                asked.saturating_add(asked.min(Duration::from_secs(2)).mul_f64(fastrand::f64() / 4.0))
            }
            None => {
                let doubled = self.limits.first_wait.saturating_mul(1 << self.attempt.min(16));
                doubled.min(self.limits.longest_wait).mul_f64(0.5 + fastrand::f64() / 2.0)
            }
        };
        let wait = wait.min(self.limits.longest_wait);
        if self.waited.saturating_add(wait) > self.limits.total_wait {
            return None;
        }
        self.attempt += 1;
        self.waited += wait;
        Some((self.attempt, wait))
    }
}

/// Returns the wait that an answer's headers ask for, in any of the forms that are in use.
pub fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(milliseconds) = header("retry-after-ms").and_then(seconds) {
        return Some(milliseconds / 1000);
    }
    ["retry-after", "llm_provider-retry-after"]
        .iter()
        .find_map(|name| {
            header(name).and_then(|value| seconds(value).or_else(|| until(value)).or_else(|| units(value)))
        })
        .or_else(|| {
            // These say when the whole allowance is back: only what is short is meant as a wait.
            ["x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-ratelimit-reset"]
                .iter()
                .filter_map(|name| header(name).and_then(reset))
                .max()
        })
        .or_else(|| {
            // Anthropic's name a moment for each allowance, also for those that are not used up.
            ["requests", "tokens", "input-tokens", "output-tokens"]
                .iter()
                .filter(|of| header(&format!("anthropic-ratelimit-{of}-remaining")) == Some("0"))
                .filter_map(|of| moment(header(&format!("anthropic-ratelimit-{of}-reset"))?))
                .max()
        })
}

/// A moment as RFC 3339 writes it, within what is sane; one in the past means now.
fn moment(value: &str) -> Option<Duration> {
    let moment: jiff::Timestamp = value.parse().ok()?;
    let wait = Duration::try_from(moment.duration_since(jiff::Timestamp::now())).unwrap_or_default();
    (wait <= SANE).then_some(wait)
}

/// A reset that is later says when the whole allowance is back.
const SANE: Duration = Duration::from_secs(600);

/// Words that stand in front of a wait in an endpoint's messages.
const BEFORE_A_WAIT: [&str; 11] = [
    "\"retrydelay\":\"",
    "\"retry_after_ms\":",
    "\"retry_after_seconds\":",
    "\"retry_after\":",
    "\"retry-after\":",
    "try again in ",
    "try again after ",
    "retry in ",
    "retry after ",
    "please wait ",
    "wait for ",
];

/// Returns the wait that an endpoint's words (in lower case) ask for: `"retrydelay":"34s"`, `try again in 1.5s`, `retry
/// after 20 seconds`.
pub fn wait_in(words: &str) -> Option<Duration> {
    BEFORE_A_WAIT.iter().find_map(|before| {
        let after = words[words.find(before)? + before.len()..].trim_start_matches(['"', ' ']);
        let end = after.find(|c: char| !(c.is_ascii_digit() || ".hms".contains(c))).unwrap_or(after.len());
        let wait = after[..end].trim_end_matches('.');
        if before.ends_with("_ms\":") {
            return reset(wait).map(|wait| wait / 1000);
        }
        // `20 seconds`: the unit stands apart.
        let unit = after[wait.len()..].trim_start();
        let is_number = wait.ends_with(|c: char| c.is_ascii_digit());
        match UNITS_IN_WORDS.iter().find(|(word, _)| is_number && unit.starts_with(word)) {
            Some((_, short)) => reset(&format!("{wait}{short}")),
            None => reset(wait),
        }
    })
}

/// Units as they are written out, and their signs.
const UNITS_IN_WORDS: [(&str, &str); 6] =
    [("millisecond", "ms"), ("ms", "ms"), ("sec", "s"), ("min", "m"), ("hour", "h"), ("s ", "s")];

/// A number of seconds, possibly with a fraction.
fn seconds(value: &str) -> Option<Duration> {
    value.parse::<f64>().ok().and_then(|n| Duration::try_from_secs_f64(n).ok())
}

/// An HTTP date; one in the past means now.
fn until(value: &str) -> Option<Duration> {
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// `1.5s`, `20ms`, `1m30s`, seconds, or a Unix time in seconds or milliseconds. At most ten minutes are sane.
fn reset(value: &str) -> Option<Duration> {
    let wait = match value.parse::<f64>() {
        Ok(number) if number >= 1e9 => {
            let unix =
                Duration::try_from_secs_f64(if number >= 1e12 { number / 1000.0 } else { number }).ok()?;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
            unix.saturating_sub(now)
        }
        Ok(number) => Duration::try_from_secs_f64(number).ok()?,
        Err(_) => units(value)?,
    };
    (wait <= SANE).then_some(wait)
}

/// `1h2m3.5s` and the like.
fn units(value: &str) -> Option<Duration> {
    let mut total = 0.0;
    let mut rest = Some(value).filter(|value| !value.is_empty())?;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (unit, factor) = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]
            .into_iter()
            .find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        total += number * factor;
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn asked(name: &'static str, value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        asked_wait(&headers)
    }

    #[test]
    fn every_form_of_retry_after() {
        assert_eq!(asked("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(asked("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        assert_eq!(asked("llm_provider-retry-after", "60"), Some(Duration::from_secs(60)));
        assert_eq!(asked("x-ratelimit-reset-requests", "1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(asked("x-ratelimit-reset-tokens", "20ms"), Some(Duration::from_millis(20)));
        assert_eq!(asked("x-ratelimit-reset-tokens", "1m30.5s"), Some(Duration::from_millis(90_500)));
        assert_eq!(asked("retry-after", "1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(asked("x-ratelimit-reset", "99999"), None);
        assert_eq!(asked("retry-after", "soon"), None);
        assert_eq!(asked("retry-after", "-3"), None);
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(30));
        let wait = asked("retry-after", &date).unwrap();
        assert!(wait > Duration::from_secs(25) && wait <= Duration::from_secs(30), "{wait:?}");
        assert_eq!(asked("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
    }

    #[test]
    fn the_moment_when_an_allowance_that_is_used_up_is_back() {
        let after =
            |seconds: i64| (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string();
        let mut headers = HeaderMap::new();
        for (of, remaining, seconds) in
            [("requests", "12", 300), ("input-tokens", "0", 40), ("tokens", "0", 20)]
        {
            for (field, value) in [("remaining", remaining.to_owned()), ("reset", after(seconds))] {
                let name = format!("anthropic-ratelimit-{of}-{field}").parse::<HeaderName>().unwrap();
                headers.insert(name, value.parse().unwrap());
            }
        }
        let wait = asked_wait(&headers).unwrap();
        assert!(wait > Duration::from_secs(35) && wait <= Duration::from_secs(40), "{wait:?}");
        assert_eq!(
            (moment(&after(-5)), moment(&after(86_400)), moment("soon")),
            (Some(Duration::ZERO), None, None)
        );
    }

    #[test]
    fn waits_in_words() {
        assert_eq!(wait_in(r#"{"retrydelay":"34s"}"#), Some(Duration::from_secs(34)));
        assert_eq!(wait_in("please try again in 1m2.5s. visit"), Some(Duration::from_millis(62_500)));
        assert_eq!(wait_in("please retry in 20ms"), Some(Duration::from_millis(20)));
        assert_eq!(wait_in("try again in a while"), None);
        assert_eq!(wait_in("rate limited, try again in 20s"), Some(Duration::from_secs(20)));
        assert_eq!(wait_in("please retry after 20 seconds."), Some(Duration::from_secs(20)));
        assert_eq!(wait_in("please wait 2 minutes and try again"), Some(Duration::from_secs(120)));
        assert_eq!(wait_in("try again in 500 milliseconds"), Some(Duration::from_millis(500)));
        assert_eq!(wait_in(r#"{"retry_after": 3.5}"#), Some(Duration::from_millis(3500)));
        assert_eq!(wait_in(r#"{"retry_after_ms":250}"#), Some(Duration::from_millis(250)));
    }

    #[test]
    fn waits_double_within_their_bounds_and_end() {
        let limits = Retries {
            attempts: 4,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(4),
            total_wait: Duration::from_secs(100),
        };
        let mut backoff = Backoff::new(limits);
        for (attempt, most) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
            let (number, wait) = backoff.next(None, u32::MAX).unwrap();
            assert_eq!(number, attempt);
            let most = Duration::from_secs(most);
            assert!(wait >= most / 2 && wait <= most, "{wait:?}");
        }
        assert_eq!(backoff.next(None, u32::MAX), None);
    }

    #[test]
    fn what_the_endpoint_asks_for_is_capped() {
        let mut backoff = Backoff::new(Retries::default());
        assert_eq!(backoff.next(Some(Duration::from_secs(86_400)), 9), Some((1, Duration::from_secs(60))));
        assert!(backoff.next(Some(Duration::from_secs(50)), 9).is_some());
        assert!(backoff.next(Some(Duration::from_secs(59)), 9).is_some());
        assert_eq!(backoff.next(Some(Duration::from_secs(60)), 9), None, "the waits together are bounded");
    }
}
