//! Answers of a terminal, among whatever the user types meanwhile.

/// Bytes that wait for the rest of a sequence; those of real answers stay below 200.
const MAX_WAITING: usize = 4096;

/// The answers so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalAnswers {
    waiting: Vec<u8>,
    /// It shows pictures by kitty's protocol.
    pub kitty: bool,
    /// Its name and version, as it gives them.
    pub name: String,
    /// Width and height of a cell in pixels.
    pub cell: Option<(u16, u16)>,
    /// It has answered the last question (DA1), so no other answer follows.
    pub is_complete: bool,
}

impl TerminalAnswers {
    /// Takes what was read. What is not part of an answer is dropped.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.waiting);
        all.extend_from_slice(bytes);
        let mut rest = all.as_slice();
        while let Some(start) = rest.iter().position(|byte| *byte == 0x1b) {
            rest = &rest[start..];
            let Some(length) = length_of_sequence(rest) else {
                // A sequence that never ends is not an answer.
                if rest.len() <= MAX_WAITING {
                    self.waiting = rest.to_vec();
                }
                return;
            };
            self.understand(&rest[..length]);
            rest = &rest[length..];
        }
    }

    fn understand(&mut self, sequence: &[u8]) {
        let text = String::from_utf8_lossy(sequence);
        if text.starts_with("\x1b[?") && text.ends_with('c') {
            self.is_complete = true;
        } else if let Some(size) = text.strip_prefix("\x1b[6;").and_then(|text| text.strip_suffix('t')) {
            let side = |text: &str| text.parse().ok().filter(|side| *side > 0);
            self.cell = size.split_once(';').and_then(|(height, width)| Some((side(width)?, side(height)?)));
        } else if let Some(name) = text.strip_prefix("\x1bP>|") {
            self.name = name.trim_end_matches("\x1b\\").to_owned();
        } else if text.strip_prefix("\x1b_G").is_some_and(|answer| answer.ends_with(";OK\x1b\\")) {
            self.kitty = true;
        }
    }
}

/// The length of the escape sequence at the beginning of `bytes`; `None` if its end is missing.
fn length_of_sequence(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1)? {
        b'[' => bytes[2..].iter().position(|byte| (0x40..=0x7e).contains(byte)).map(|end| end + 3),
        b'_' | b'P' | b']' | b'^' | b'X' => {
            let end = bytes[2..].windows(2).position(|pair| pair == b"\x1b\\").map(|end| end + 4);
            let bell = bytes[2..].iter().position(|byte| *byte == 0x07).map(|end| end + 3);
            end.into_iter().chain(bell).min()
        }
        0x1b => Some(1),
        _ => Some(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(pieces: &[&str]) -> TerminalAnswers {
        let mut answers = TerminalAnswers::default();
        pieces.iter().for_each(|piece| answers.push(piece.as_bytes()));
        answers
    }

    #[test]
    fn answers_are_understood_wherever_they_are_cut_and_whatever_is_typed_between_them() {
        let text = "ls\x1b_Gi=31;OK\x1b\\x\x1bP>|kitty(0.35.2)\x1b\\\x1b[A\x1b[6;20;10ty\x1b[?62;4;22cz";
        for cut in 0..text.len() {
            let answers = of(&[&text[..cut], &text[cut..]]);
            assert!(answers.kitty && answers.is_complete, "{cut}");
            assert_eq!((answers.name.as_str(), answers.cell), ("kitty(0.35.2)", Some((10, 20))));
        }
    }

    #[test]
    fn refusals_and_other_terminals_are_understood() {
        let answers = of(&["\x1b_Gi=31;EINVAL:no\x1b\\\x1b[?6c"]);
        assert!(!answers.kitty && answers.is_complete);
        assert_eq!(of(&["\x1b[6;0;0t", "\x1b[6;x;1t"]).cell, None);
        assert!(!of(&["\x1b[62;4c", "typed"]).is_complete);
    }

    proptest! {
        #[test]
        fn any_input_is_bounded(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..8)) {
            let mut answers = TerminalAnswers::default();
            for piece in pieces {
                answers.push(&piece);
                prop_assert!(answers.waiting.len() <= MAX_WAITING);
            }
        }
    }
}
