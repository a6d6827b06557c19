//! Long texts cut to their beginning and their end.

use std::borrow::Cow;

/// `text`, or about `chars` characters of it, half from its beginning and half from its end, with a note of what is missing.
pub fn head_and_tail(text: &str, chars: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= chars {
        return Cow::Borrowed(text);
    }
    let half = chars / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(length - half).collect();
    Cow::Owned(format!("{head}\n[{} characters left out]\n{tail}", length - half * 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_their_beginning_and_end() {
        let text = format!("first{}last", "ä".repeat(10_000));
        let short = head_and_tail(&text, 100);
        assert!(short.starts_with("first") && short.ends_with("last"), "{short}");
        assert!(short.contains("\n[9909 characters left out]\n"), "{short}");
        assert_eq!(head_and_tail("ää", 2), "ää");
        assert_eq!(head_and_tail("abc", 0), "\n[3 characters left out]\n");
    }
}
