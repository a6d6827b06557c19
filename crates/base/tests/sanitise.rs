//! Sanitising untrusted text for a terminal.

use agent_base::sanitise::{Sanitiser, one_line, plain};
use proptest::prelude::*;

fn coloured(pieces: &[&str]) -> String {
    let mut sanitiser = Sanitiser::new(true);
    let mut clean = String::new();
    pieces.iter().for_each(|piece| sanitiser.push(piece, &mut clean));
    sanitiser.finish(&mut clean);
    clean
}

#[test]
fn text_line_ends_tabs_and_colours_are_kept() {
    assert_eq!(coloured(&["a\tb\nüñ漢🙂"]), "a\tb\nüñ漢🙂");
    assert_eq!(coloured(&["\x1b[1;31mred\x1b[0m"]), "\x1b[1;31mred\x1b[0m");
    assert_eq!(coloured(&["\x1b[38;5;8mgrey\x1b[m"]), "\x1b[38;5;8mgrey\x1b[m");
    assert_eq!(coloured(&["\x1b[38:2::1:2:3mrgb"]), "\x1b[38:2::1:2:3mrgb\x1b[0m");
}

#[test]
fn sequences_that_control_a_terminal_are_removed() {
    let tricks = [
        ("title", "\x1b]0;pwned\x07"),
        ("clipboard", "\x1b]52;c;cm0gLXJmIC8=\x1b\\"),
        ("hyperlink", "\x1b]8;;http://evil\x1b\\"),
        ("cursor report", "\x1b[6n"),
        ("device attributes", "\x1b[c"),
        ("clear", "\x1b[2J\x1b[H"),
        ("alternate screen", "\x1b[?1049h"),
        ("keyboard mode", "\x1b[>4;2m"),
        ("DCS", "\x1bP$q\"p\x1b\\"),
        ("APC", "\x1b_Gf=100;AAAA\x1b\\"),
        ("PM", "\x1b^x\x1b\\"),
        ("SOS", "\x1bXx\x1b\\"),
        ("8-bit CSI", "\u{9b}2J"),
        ("8-bit OSC", "\u{9d}0;title\u{9c}"),
        ("reset", "\x1bc"),
        ("charset", "\x1b(0"),
        ("bell and backspace", "\x07\x08\x08"),
        ("conceal", "\x1b[0;8m"),
        ("right-to-left override", "\u{202e}\u{2066}"),
        ("delete", "\x7f"),
    ];
    for (name, trick) in tricks {
        assert_eq!(coloured(&["before", trick, "after"]), "beforeafter", "{name}");
        let pieces: Vec<String> = trick.chars().map(String::from).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        assert_eq!(coloured(&[&["x"], &pieces[..], &["y"]].concat()), "xy", "{name}, a character at a time");
    }
}

#[test]
fn an_unterminated_sequence_hides_at_most_its_line() {
    assert_eq!(coloured(&["\x1b]0;title\nshown"]), "\nshown");
    assert!(coloured(&["\x1b]0;", &"x".repeat(10_000)]).len() > 5_000);
    assert_eq!(coloured(&["\x1b[", &"1;".repeat(500), "mshown"]), "shown");
}

#[test]
fn carriage_returns_become_line_ends() {
    assert_eq!(coloured(&["a\r\nb\rc\r", "\nd\r"]), "a\nb\nc\nd\n");
}

#[test]
fn bytes_may_be_cut_within_a_character_and_may_be_invalid() {
    let bytes = "漢\x1b[31m🙂".as_bytes();
    for cut in 0..bytes.len() {
        let mut sanitiser = Sanitiser::new(true);
        let mut clean = String::new();
        sanitiser.push_bytes(&bytes[..cut], &mut clean);
        sanitiser.push_bytes(&bytes[cut..], &mut clean);
        assert_eq!(clean, "漢\x1b[31m🙂");
    }
    let mut clean = String::new();
    Sanitiser::new(true).push_bytes(b"a\xff\xfeb\xe6", &mut clean);
    assert_eq!(clean, "a\u{fffd}\u{fffd}b");
}

#[test]
fn one_line_is_one_line_of_limited_width() {
    assert_eq!(one_line("cd src\n\n  make\r\n", 80), "cd src ⏎ make");
    assert_eq!(one_line("漢字漢字", 5), "漢字…");
    assert_eq!(one_line(&"\x1b[31m".repeat(1000), 10), "");
}

/// Control sequences mixed with text.
/// Tags, fillers, controls of hieroglyphs and noncharacters were printed, and were in what is copied from the terminal.
#[test]
fn what_nobody_sees_and_no_writing_needs_is_removed() {
    for c in "\u{ad}\u{115f}\u{200b}\u{2060}\u{2063}\u{3164}\u{fdd0}\u{feff}\u{fff9}\u{fffe}\u{13430}\u{1d173}\u{e0041}\u{e0100}\u{10ffff}".chars() {
        assert_eq!(plain(&format!("a{c}b")), "ab", "{}", c.escape_unicode());
        assert_eq!(coloured(&[&format!("a{c}b")]), "ab", "{}", c.escape_unicode());
    }
    for text in [
        "👩\u{200d}💻 ❤\u{fe0f}",
        "می\u{200c}خواهم",
        "\u{200f}שלום",
        "a\u{a0}b",
        "\u{600}\u{661}",
        "\u{2800}\u{2801}",
    ] {
        assert_eq!(plain(text), text);
    }
    // The quick way past text looks at first bytes alone.
    for c in '\u{80}'..=char::MAX {
        let kept = plain(&c.to_string()).contains(c);
        let is_removed = agent_base::visible::is_unreadable(c) || agent_base::sanitise::is_dangerous(c);
        assert_eq!(kept, !is_removed, "{}", c.escape_unicode());
    }
}

fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<char>().prop_map(String::from),
        "[\\x1b\\[\\]PX^_;:0-9?>a-zA-Z\\\\\\r\\n\\x07]{0,12}",
        prop::char::range('\u{0}', '\u{a0}').prop_map(String::from),
        Just("\x1b[31m".to_string()),
        Just("\u{202e}".to_string()),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Nothing but text, line feeds, tabs and SGR sequences of digits and separators.
fn is_harmless(clean: &str) -> bool {
    let mut rest = clean;
    while let Some(at) = rest.find(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
        let Some(sequence) = rest[at..].strip_prefix("\x1b[") else { return false };
        let end = sequence.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':');
        let Some(end) = end.filter(|end| sequence[*end..].starts_with('m')) else { return false };
        rest = &sequence[end..];
    }
    !clean.contains(|c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}'))
}

proptest! {
    #[test]
    fn nothing_harmful_is_kept(text in hostile()) {
        prop_assert!(is_harmless(&coloured(&[&text])));
        prop_assert!(!plain(&text).contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')));
    }

    #[test]
    fn the_result_does_not_depend_on_the_pieces(text in hostile(), cuts in prop::collection::vec(0usize..200, 0..8)) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(coloured(&pieces), coloured(&[&text]));
    }

    #[test]
    fn sanitising_twice_changes_nothing(text in hostile()) {
        let once = plain(&text).into_owned();
        prop_assert_eq!(plain(&once), once.as_str());
    }
}
