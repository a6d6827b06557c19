//! What a prompt says that a program prints, word for word, compared with what it printed. Where a prompt describes the output
//! instead, nothing is compared.

/// Bytes of a text that is taken for the output.
const MAX_LITERAL: usize = 200;
/// Words of one without quotation marks.
const MAX_WORDS: usize = 8;
/// Texts of one prompt.
const MAX_LITERALS: usize = 8;

/// The texts that the prompt says are printed: in quotation marks, behind a colon or behind "exactly", or a number alone.
pub fn literals(prompt: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in prompt.char_indices().filter(|(at, _)| begins_word(prompt, *at)) {
        let Some(rest) = after_verb(&prompt[at..]) else { continue };
        if let Some(literal) = literal(rest).filter(|literal| !found.contains(literal)) {
            found.push(literal);
        }
        if found.len() == MAX_LITERALS {
            break;
        }
    }
    found
}

/// Whether the output has one of the texts; differences of white space do not count.
pub fn has_one_of(output: &str, literals: &[String]) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let output = words(output);
    literals.iter().any(|literal| output.contains(&words(literal)))
}

/// Whether the prompt says that a number is all that is printed.
pub fn is_number_alone(prompt: &str) -> bool {
    let prompt = prompt.to_ascii_lowercase();
    ["number alone", "only the number", "just the number", "nothing but the number"]
        .iter()
        .any(|phrase| prompt.contains(phrase))
}

/// What an output has that is more than the commas by which the prompt says its parts are separated.
pub fn more_than_commas(prompt: &str, output: &str) -> Option<&'static str> {
    let (prompt, output) = (prompt.to_ascii_lowercase(), output.trim());
    let is_separated = ["separated by comma", "separated by a comma", "comma-separated", "comma separated"];
    let is_list = || ["array", "bracket", "json", "list"].iter().any(|word| prompt.contains(word));
    match output {
        _ if !is_separated.iter().any(|phrase| prompt.contains(phrase)) => None,
        _ if output.ends_with(',') => Some("ends with a comma"),
        _ if output.starts_with('[') && output.ends_with(']') && !is_list() => Some("is in brackets"),
        _ => None,
    }
}

/// Whether an output is one number.
pub fn is_number(output: &str) -> bool {
    output.trim().parse::<f64>().is_ok()
}

/// The only number in a text.
pub fn only_number(text: &str) -> Option<&str> {
    let words = text.split(|c: char| c.is_whitespace() || ",;:!?()'\"`".contains(c));
    let mut with_digits = words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.contains(|c: char| c.is_ascii_digit()));
    let (number, None) = (with_digits.next()?, with_digits.next()) else { return None };
    is_number(number).then_some(number)
}

/// Whether an output is a number and the name of one file, as wc prints it.
pub fn is_of_wc(output: &str) -> bool {
    let words: Vec<&str> = output.split_whitespace().collect();
    matches!(words[..], [number, name] if is_number(number) && name.contains('.'))
}

/// The line that an output consists of again and again, where the prompt names it and does not say that it is repeated.
pub fn repeated_line<'a>(prompt: &str, output: &'a str) -> Option<&'a str> {
    let mut lines = output.trim().lines().map(str::trim);
    let first = lines.next().filter(|line| !line.is_empty() && line.len() <= MAX_LITERAL)?;
    let mut is_repeated = false;
    let is_all = lines.all(|line| {
        is_repeated = true;
        line == first
    });
    let prompt = prompt.to_ascii_lowercase();
    let may_repeat =
        REPEATS.iter().any(|word| prompt.split(|c: char| !c.is_alphanumeric()).any(|other| other == *word));
    (is_all && is_repeated && !may_repeat && prompt.contains(&first.to_ascii_lowercase())).then_some(first)
}

/// A word that an answer quotes and that the output has only without its punctuation: `'cba'` of `['c', 'b', 'a']`.
pub fn taken_apart<'a>(answer: &'a str, output: &str) -> Option<&'a str> {
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(char::is_alphanumeric);
    let letters: String = output.chars().filter(|c| c.is_alphanumeric()).collect();
    let quotes = answer.char_indices().filter(|(at, c)| OPENING.contains(c) && begins(answer, *at));
    let mut words = quotes.filter_map(|(at, _)| quoted(&answer[at..])).filter(is_word);
    words.find(|word| !output.contains(*word) && letters.contains(*word))
}

fn begins(text: &str, at: usize) -> bool {
    text[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric())
}

fn begins_word(text: &str, at: usize) -> bool {
    begins(text, at) && text[at..].chars().next().is_some_and(char::is_alphabetic)
}

/// What stands behind a verb of printing at the beginning of `text`.
fn after_verb(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    let word = text[..end].to_ascii_lowercase();
    VERBS.contains(&word.as_str()).then(|| text[end..].trim_start_matches(' '))
}

fn literal(mut rest: &str) -> Option<String> {
    let mut is_announced = false;
    while let Some(more) = FILLERS.iter().find_map(|(word, announces)| {
        let more = rest.strip_prefix(word).filter(|more| word.ends_with(':') || more.starts_with([' ', ':']));
        is_announced |= *announces && more.is_some();
        more
    }) {
        rest = more.trim_start_matches([' ', '\n']);
    }
    let text = match quoted(rest) {
        Some(text) => text,
        None if rest.starts_with(OPENING) => return None,
        None if is_announced => phrase(rest)?,
        None => number(rest)?,
    };
    let is_literal = !text.trim().is_empty() && text.len() <= MAX_LITERAL && !has_placeholder(text);
    is_literal.then(|| text.trim().to_owned())
}

/// Words of prompts after which the same line is expected more than once.
const REPEATS: [&str; 9] = ["all", "each", "every", "for", "lines", "loop", "repeat", "times", "twice"];
const OPENING: [char; 6] = ['"', '\'', '`', '“', '‘', '«'];

/// What is in the quotation marks at the beginning of `text`.
fn quoted(text: &str) -> Option<&str> {
    let open = text.chars().next().filter(|c| OPENING.contains(c))?;
    let close = match open {
        '“' => '”',
        '‘' => '’',
        '«' => '»',
        same => same,
    };
    let inner = &text[open.len_utf8()..];
    // An apostrophe is not the end.
    let is_end = |at: usize| !inner[at + close.len_utf8()..].starts_with(char::is_alphanumeric);
    let end = inner.match_indices(close).map(|(at, _)| at).find(|at| is_end(*at))?;
    Some(&inner[..end]).filter(|inner| !inner.contains('\n'))
}

/// The rest of the sentence, where that is a text and not a description of one.
fn phrase(text: &str) -> Option<&str> {
    let ends = [". ", ".\n", "! ", "; ", "\n", " and ", ", then", " then ", " when "];
    let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    let phrase = text[..end].trim().trim_end_matches('.');
    let mut words = phrase.split_whitespace();
    let is_described = words
        .next()
        .is_none_or(|first| DESCRIBES.contains(&first.to_ascii_lowercase().trim_end_matches(',')));
    // What a list of several things looks like is not known.
    (!is_described && words.count() < MAX_WORDS && !phrase.contains([',', ':'])).then_some(phrase)
}

/// A number that ends the sentence.
fn number(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, rest) = (text[..end].trim_end_matches('.'), &text[end..]);
    let ends = rest.is_empty() || text[..end].ends_with('.') || rest.starts_with(['\n', ';', '!']);
    (!number.is_empty() && ends).then_some(number)
}

/// Whether a part of the text stands for something else.
fn has_placeholder(text: &str) -> bool {
    let is_capitals = |word: &str| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase());
    let words = || text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let calls = text.match_indices('(').any(|(at, _)| text[..at].ends_with(char::is_alphanumeric));
    text.contains(['{', '}', '<', '>', '%', '$', '…', '\\'])
        || text.contains("...")
        || calls
        || words().any(is_capitals) && !words().all(is_capitals)
}

/// Verbs of printing.
const VERBS: [&str; 13] = [
    "display", "displays", "echo", "echoes", "output", "outputs", "print", "printed", "prints", "printing",
    "say", "says", "writes",
];
/// What may stand between the verb and the text, and whether a text follows it that is without quotation marks.
const FILLERS: [(&str, bool); 13] = [
    ("exactly", true),
    (":", true),
    ("just", false),
    ("only", false),
    ("out", false),
    ("simply", false),
    ("the line", false),
    ("the message", false),
    ("the string", false),
    ("the text", false),
    ("the word", false),
    ("the words", false),
    ("text to", false),
];
/// Words that begin a description.
const DESCRIBES: [&str; 20] = [
    "a", "all", "an", "any", "both", "each", "every", "for", "how", "if", "in", "its", "my", "one", "that",
    "the", "their", "this", "what", "whether",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_printed_again_and_again_is_found() {
        let prompt = "build.sh fails. Fix it so that it prints built.";
        assert_eq!(repeated_line(prompt, "built\nbuilt\n"), Some("built"));
        for (prompt, output) in [
            (prompt, "built\n"),
            (prompt, "built\ndone\n"),
            (prompt, "ok\nok\n"),
            (prompt, ""),
            ("Fix it so that it prints built 3 times.", "built\nbuilt\n"),
        ] {
            assert_eq!(repeated_line(prompt, output), None, "{prompt} {output}");
        }
    }

    #[test]
    fn a_text_that_is_to_be_printed_is_found() {
        for (prompt, expected) in [
            ("Write a.py that prints exactly: hello world. Run it.", &["hello world"][..]),
            ("Write a.sh, a script that prints: good morning. Run it with sh.", &["good morning"]),
            ("make a script that echoes \"done for today\", and launch it", &["done for today"]),
            ("It has to print 'it's late' and nothing else", &["it's late"]),
            ("It prints the words “a b” or says `c`", &["a b", "c"]),
            ("Fix it; it should print 10.", &["10"]),
            ("It prints: ready", &["ready"]),
            ("In a.py change the printed text to: goodbye. Run it.", &["goodbye"]),
            ("prints exactly 3.5.", &["3.5"]),
            ("Print the sum of the numbers from 1 to 100", &[]),
            ("It prints: the squares of 1 to 5", &[]),
            ("It prints 3 items. Then it prints 1 to 5, one a line.", &[]),
            ("It outputs: 1, 2, 3", &[]),
            ("prints double(21) and \"Hello, {name}\" and \"Hello NAME\"", &[]),
            ("prints `double(21)`, prints \"no end", &[]),
            ("prints: x: y", &[]),
            ("fingerprints \"a\" blueprint: b", &[]),
            ("print", &[]),
            ("", &[]),
        ] {
            assert_eq!(literals(prompt), expected, "{prompt}");
        }
    }

    #[test]
    fn commas_separate_and_nothing_else_is_printed() {
        let prompt = "Write even.py printing the even numbers from 2 through 6 separated by commas";
        assert_eq!(more_than_commas(prompt, "2,4,6,\n"), Some("ends with a comma"));
        assert_eq!(more_than_commas(prompt, "[2, 4, 6]\n"), Some("is in brackets"));
        for (prompt, output) in [
            (prompt, "2, 4, 6\n"),
            ("Print the list [2, 4, 6], comma-separated", "[2, 4, 6]\n"),
            ("Print the even numbers", "[2, 4, 6]\n"),
        ] {
            assert_eq!(more_than_commas(prompt, output), None, "{prompt}");
        }
    }

    #[test]
    fn outputs_are_compared_without_their_white_space() {
        let literals = ["hello  world".to_owned(), "10".to_owned()];
        assert!(has_one_of("hello\nworld\n", &literals) && has_one_of("10\n", &literals));
        assert!(!has_one_of("Hello World!\n", &literals) && !has_one_of("", &literals));
    }

    #[test]
    fn a_number_and_a_word_that_are_not_alone_are_noticed() {
        assert!(is_number_alone("prints how many lines notes.txt has (the number alone). Run it."));
        assert!(!is_number_alone("prints the number of lines"));
        assert!(is_number("2\n") && is_number("-1.5") && !is_number("2 notes.txt\n") && !is_number(""));
        assert_eq!(only_number("The value is 30."), Some("30"));
        assert_eq!(only_number("The minimum is -5"), Some("-5"));
        assert!(["30 of 40", "none", "", "v1.2.3"].iter().all(|text| only_number(text).is_none()));
        assert!(is_of_wc("2 notes.txt\n") && !is_of_wc("2\n") && !is_of_wc("2 lines\n"));
        let output = "['c', 'b', 'a']\n";
        assert_eq!(taken_apart("The argument 'abc' reversed is 'cba'.", output), Some("cba"));
        for (answer, output) in [
            ("It is 'cba'.", "cba\n"),
            ("It's c and b.", output),
            ("It prints 'xyz'.", output),
            ("The list is `['c', 'b', 'a']`.", output),
            ("", ""),
        ] {
            assert_eq!(taken_apart(answer, output), None, "{answer}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_prompt_is_searched(prompt in "(print(s|ing)?|exactly|:|[\"'`“”. ,;\\n]|[a-zé0-9{(]{1,3}| ){0,30}") {
            for literal in literals(&prompt) {
                proptest::prop_assert!(prompt.contains(&literal));
            }
        }
    }
}
