//! Small models that repeat themselves until the end of their answer: the answer is stopped there.

/// Bytes of what may be repeated: a word of a list, a line, a few lines.
const MAX_PERIOD: usize = 240;
/// Times that it is repeated, and bytes that all of it has, at least. Rulers and tables in files are shorter.
const MIN_TIMES: usize = 10;
const MIN_BYTES: usize = 2_000;
/// Times that stay in the answer.
const KEPT_TIMES: usize = 2;

/// Where to cut a text whose end is the same piece again and again; `None` where it is not.
pub fn runaway(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.len() < MIN_BYTES {
        return None;
    }
    (1..=MAX_PERIOD).find_map(|period| {
        let needed = MIN_BYTES.max(period * MIN_TIMES);
        let (earlier, later) = (bytes.get(..bytes.len() - period)?, &bytes[period..]);
        let same =
            earlier.iter().rev().zip(later.iter().rev()).take_while(|(one, other)| one == other).count();
        let begin = earlier.len() - same;
        let cut = begin + period * KEPT_TIMES;
        (same + period >= needed).then(|| (0..=cut).rev().find(|at| text.is_char_boundary(*at)))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_is_repeated_to_the_end_is_cut_off() {
        let list = format!("{{\"text\": \"The files are: {}", "a.txt, ".repeat(300));
        let cut = runaway(&list).unwrap();
        assert_eq!(&list[..cut], "{\"text\": \"The files are: a.txt, a.txt,");
        let lines = "print(1)\\nprint(2)\\n\u{e9}".repeat(100);
        assert!(runaway(&lines).is_some_and(|cut| cut < 100 && lines.is_char_boundary(cut)));
    }

    #[test]
    fn what_only_looks_like_a_repetition_stays() {
        let numbered: String = (0..200).map(|i| format!("line {i}\n")).collect();
        for text in ["".to_owned(), "=".repeat(1_999), numbered, format!("{}\nend", "0, ".repeat(500))] {
            assert_eq!(runaway(&text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_cut_within_it(text in "(ab|é|\n|[a-c]{1,3}){0,2500}") {
            if let Some(cut) = runaway(&text) {
                proptest::prop_assert!(text.is_char_boundary(cut) && cut < text.len());
            }
        }
    }
}
