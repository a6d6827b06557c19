//! Times as users read them.

/// `12 ms`, `1.2 s` or `2 min 5 s`
pub fn duration_text(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{:.1} s", std::time::Duration::from_millis(milliseconds).as_secs_f64()),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds / 1_000 % 60),
    }
}
