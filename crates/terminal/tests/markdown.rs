//! Markdown on a terminal.

use agent_terminal::markdown::Markdown;
use agent_terminal::style::Colours;
use proptest::prelude::*;

const SAMPLE: &str = include_str!("samples/answer.md");

fn render(text: &str, columns: usize, colours: bool) -> String {
    stream(&[text], columns, colours)
}

fn stream(pieces: &[&str], columns: usize, colours: bool) -> String {
    let mut markdown = Markdown::new(columns, Colours(colours));
    let mut shown: String = pieces.iter().map(|piece| markdown.push(piece)).collect();
    shown.push_str(&markdown.finish());
    shown
}

#[test]
fn a_sample_of_all_elements_is_rendered() {
    insta::assert_snapshot!(render(SAMPLE, 60, false));
}

#[test]
fn the_sample_is_rendered_in_colour() {
    insta::assert_snapshot!(render(SAMPLE, 60, true).replace('\x1b', "␛"));
}

#[test]
fn a_diff_in_an_answer_has_its_colours() {
    let text = "```diff\n@@ -1 +1 @@\n-old\n+new\n same\n```\n";
    let shown = render(text, 60, true);
    for line in ["\x1b[31m  -old\x1b[0m\n", "\x1b[32m  +new\x1b[0m\n", "\n   same\n"] {
        assert!(shown.contains(line), "{shown:?}");
    }
    assert_eq!(render(text, 60, false), "  @@ -1 +1 @@\n  -old\n  +new\n   same\n");
}

#[test]
fn the_result_does_not_depend_on_the_pieces() {
    let whole = render(SAMPLE, 60, true);
    let characters: Vec<String> = SAMPLE.chars().map(String::from).collect();
    let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
    assert_eq!(stream(&characters, 60, true), whole);
    let lines: Vec<&str> = SAMPLE.split_inclusive('\n').collect();
    assert_eq!(stream(&lines, 60, true), whole);
}

#[test]
fn a_block_appears_as_soon_as_it_is_complete() {
    let mut markdown = Markdown::new(80, Colours(false));
    assert_eq!(markdown.push("# Title\n"), "# Title\n");
    assert_eq!(markdown.push("First para"), "");
    assert_eq!(markdown.push("graph\n"), "");
    assert_eq!(markdown.pending(), "First paragraph\n");
    assert_eq!(markdown.push("\n"), "\nFirst paragraph\n");
    assert_eq!(markdown.push("```rust\nfn main() {}\n"), "\n  fn main() {}\n");
    assert_eq!(markdown.push("// more"), "");
    assert_eq!(markdown.push("\n```\n"), "  // more\n");
    assert_eq!(markdown.push("- a\n- b\n"), "");
    assert_eq!(markdown.finish(), "\n• a\n• b\n");
    assert_eq!(markdown.push("next\n\n"), "next\n", "a new text begins without an empty line");
}

#[test]
fn entities_and_raw_escapes_cannot_control_the_terminal() {
    let tricks = "&#27;]0;pwned&#7; &#x9b;2J \x1b[2J [a&#27;[c](http://x&#27;[6n) `\x1b[5n`\n\n```\n\x1b]52;c;AA\x07x\n```\n";
    let shown = render(tricks, 80, false);
    assert!(shown.chars().all(|c| !c.is_control() || c == '\n'), "{shown:?}");
}

#[test]
fn the_cost_of_a_long_list_is_not_quadratic() {
    let list: String = (0..20_000).map(|n| format!("- item {n}\n")).collect();
    let pieces: Vec<&str> = list.split_inclusive(' ').collect();
    assert_eq!(stream(&pieces, 80, true).lines().count(), 20_000);
}

proptest! {
    #[test]
    fn any_text_is_rendered_without_controls(text in "[a-z#>*_`|~\\-+0-9.\\[\\]()<>&;! \t\n\\x1b\u{9b}]{0,300}", columns in 1usize..120) {
        let shown = render(&text, columns, false);
        prop_assert!(shown.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')));
    }

    #[test]
    fn no_word_is_lost(words in prop::collection::vec("[a-z]{1,12}", 1..60), columns in 20usize..80) {
        let shown = render(&words.join(" "), columns, false);
        prop_assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), words);
        prop_assert!(shown.lines().all(|line| line.len() <= columns));
    }
}
