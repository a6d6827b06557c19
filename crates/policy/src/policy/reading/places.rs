//! The texts that a word of a script may be as the path of a file: of each of its braces, and where an expansion is nothing.

use super::super::findings::Word;

/// In a word of a script: an expansion that may be nothing, so that what follows it may be the beginning.
pub const MARK: char = '\0';
/// The most words that braces are taken for.
const MAX_BRACES: usize = 64;

/// The words that a text may be divided into.
pub fn tokens(word: &Word) -> Vec<Word> {
    let ends = |c: char| c.is_whitespace() || "\"'<>;&|(){},\\".contains(c);
    word.text.split(ends).filter(|token| !token.is_empty()).map(Word::fixed).collect()
}

/// A text that a word may be.
pub struct MaybePath {
    pub word: Word,
    /// Set if something stands before it that is usually not empty, so that a glob in it hardly means the root.
    pub is_rest: bool,
}

/// The texts that a word may be: of each of its braces, and without what may be nothing at its beginning.
pub fn places(word: &Word) -> Vec<MaybePath> {
    let texts = match word.fixed {
        true => vec![word.text.clone()],
        false => alternatives(&word.text),
    };
    let place = |text: &str, is_rest: bool| MaybePath {
        word: Word { text: text.replace(MARK, ""), ..word.clone() },
        is_rest,
    };
    texts
        .iter()
        .flat_map(|text| {
            let rests = text.match_indices(MARK).map(|(at, _)| place(&text[at..], true));
            std::iter::once(place(text, false)).chain(rests.collect::<Vec<_>>())
        })
        .collect()
}

/// The word itself and those that its braces make of it; of too many, one that leads to such a file.
fn alternatives(text: &str) -> Vec<String> {
    let (mut texts, mut at) = (vec![text.to_owned()], 0);
    while let Some(text) = texts.get(at) {
        let made = braces(text);
        if texts.len() + made.len() > MAX_BRACES {
            return vec!["/sys".to_owned()];
        }
        texts.extend(made);
        at += 1;
    }
    texts
}

/// The words that the first braces of a text make of it, which have a comma.
fn braces(text: &str) -> Vec<String> {
    for (start, _) in text.match_indices('{') {
        let (mut depth, mut commas) = (0_usize, vec![start]);
        for (at, c) in text[start..].char_indices().map(|(at, c)| (start + at, c)) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => commas.push(at),
                _ => {}
            }
            if depth == 0 {
                let ends = commas[1..].iter().copied().chain([at]);
                let inner = commas.iter().zip(ends).map(|(from, to)| &text[from + 1..to]);
                let made = inner.map(|inner| format!("{}{inner}{}", &text[..start], &text[at + 1..]));
                if commas.len() > 1 {
                    return made.collect();
                }
                break;
            }
        }
    }
    Vec::new()
}
