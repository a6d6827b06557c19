//! Numbers of things, as users read them.

use std::fmt::Display;

/// `1 turn`, `2 turns`: `one` is the noun for one of them, which forms its plural with an s.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {one}{plural}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!([0_usize, 1, 2].map(|count| counted(count, "file")), ["0 files", "1 file", "2 files"]);
    }
}
