//! Small models that repeat themselves until the end of their answer: the answer is stopped there.

use super::read::ANSWER;

/// Bytes of what may be repeated: a word of a list, a line, a few lines.
const MAX_PERIOD: usize = 240;
/// Times that it is repeated, and bytes that all of it has, at least. Rulers and tables in files are shorter.
const MIN_TIMES: usize = 10;
const MIN_BYTES: usize = 2_000;
/// Times that stay in the answer.
const KEPT_TIMES: usize = 2;

/// The same of a final answer, which is short: some sentences are repeated in turn.
const MAX_ANSWER_PERIOD: usize = 600;
const MIN_ANSWER_TIMES: usize = 3;
const MIN_ANSWER_BYTES: usize = 400;

/// Cuts off a text whose end is the same piece again and again; `None` where it is not. An answer is complete then, anything else
/// is cut off: why it ended, as a server would say.
pub fn stop(text: &mut String) -> Option<&'static str> {
    let is_answer = text.trim_start().starts_with(ANSWER);
    if !is_answer {
        text.truncate(repetition(text, MAX_PERIOD, MIN_TIMES, MIN_BYTES)?);
        return Some("length");
    }
    text.truncate(repetition(text, MAX_ANSWER_PERIOD, MIN_ANSWER_TIMES, MIN_ANSWER_BYTES)?);
    // Not in the middle of an escape sequence.
    text.truncate(text.trim_end_matches('\\').len());
    text.push_str("\"}");
    Some("stop")
}

/// Returns the place to cut a text that ends with so many repetitions of a piece, of so many bytes in all; `None` if it
/// does not.
fn repetition(text: &str, max_period: usize, min_times: usize, min_bytes: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.len() < min_bytes {
        return None;
    }
    (1..=max_period).find_map(|period| {
        let needed = min_bytes.max(period * min_times);
        let (earlier, later) = (bytes.get(..bytes.len().checked_sub(period)?)?, &bytes[period..]);
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

    fn runaway(text: &str) -> Option<usize> {
        repetition(text, MAX_PERIOD, MIN_TIMES, MIN_BYTES)
    }

    #[test]
    fn an_answer_that_repeats_itself_is_complete_without_its_repetitions() {
        let begin = r#"{"tool": "answer", "text": "It prints 42."#;
        let mut text = format!("{begin}{}", " The task is done.\\n".repeat(30));
        assert_eq!(stop(&mut text), Some("stop"));
        let answer: serde_json::Value = serde_json::from_str(&text).expect(&text);
        assert_eq!(answer["text"], "It prints 42. The task is done.\n The task is done.\n");
        let sentences: String = (0..40).map(|i| format!("Sentence {i} is right. ")).collect();
        let mut text = format!("{begin} {}", sentences[..500].repeat(3));
        assert_eq!(stop(&mut text), Some("stop"));
        assert!(text.len() < 1_100, "{text}");
        let mut text = format!("{begin} {}", &sentences[..450 - begin.len()]);
        assert_eq!(stop(&mut text), None, "shorter than the longest piece");
        let mut program = format!("{{\"tool\": \"write_file\", \"content\": \"{}", "x = 1\\n".repeat(60));
        assert_eq!(stop(&mut program), None, "a file may have such lines");
        program += &"x = 1\\n".repeat(300);
        assert_eq!(stop(&mut program), Some("length"));
        assert!(program.len() < 80, "{program}");
    }

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
