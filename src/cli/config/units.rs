//! Sizes and durations as users write them.

use crate::error::{Error, Result};
use std::time::Duration;

/// Bytes: `512m`, `2g`, `1.5GiB`, `1048576`. Units are powers of 1024, as the docker client reads them.
pub fn bytes(text: &str) -> Result<u64> {
    let (number, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 1u64,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return Err(bad("size", text, "512m or 2g")),
    };
    let number: f64 = number.parse().map_err(|_| bad("size", text, "512m or 2g"))?;
    let bytes = number * factor as f64;
    // A float beyond u64 saturates; the engine rejects such a size.
    if bytes.is_finite() && bytes >= 1.0 { Ok(bytes as u64) } else { Err(bad("size", text, "512m or 2g")) }
}

/// A time: `90`, `90s`, `1.5m`, `2h`, `7d`. Without a unit: seconds. At most ten years.
pub fn duration(text: &str) -> Result<Duration> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ => return Err(bad("time", text, "90s, 10m or 2h")),
    };
    let seconds = number.parse::<f64>().map_err(|_| bad("time", text, "90s, 10m or 2h"))? * factor;
    match seconds.is_finite() && seconds > 0.0 && seconds < 315_360_000.0 {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(bad("time", text, "90s, 10m or 2h")),
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

fn bad(what: &str, text: &str, example: &str) -> Error {
    Error::config(format!("{text:?} is not a valid {what}")).hint(format!("write it like {example}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in
            [("512m", 512 << 20), ("2g", 2 << 30), ("1.5GiB", 3 << 29), ("100", 100), ("1kb", 1024)]
        {
            assert_eq!(bytes(text).ok(), Some(expected), "{text}");
        }
        for text in ["", "g", "-1", "1x", "nan", "0", "1e9", "1..2m"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, expected) in
            [("90", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("7d", 604_800.0), ("250ms", 0.25)]
        {
            assert_eq!(duration(text).ok(), Some(Duration::from_secs_f64(expected)), "{text}");
        }
        for text in ["", "0", "soon", "1y", "-3s", "1e300"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
