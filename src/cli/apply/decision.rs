//! The user's answers about the parts of a change.

use crate::cli::ui::wrap::hanging;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Yes,
    /// With the reason, where one was given.
    No(Option<String>),
    /// This part and all later ones of the file.
    All,
    /// Neither this part nor any later one of the file.
    Decline,
    Split,
    Edit,
    /// Shows all of it in the pager.
    Print,
    /// The end of the questions: what was chosen so far counts.
    Quit,
    Help,
}

/// The decisions that a part has, each with its letter, its word, and what it does.
#[derive(Debug, Clone, Copy)]
pub struct PossibleDecisions {
    /// Set if it is a part of a file that has several.
    pub in_file: bool,
    pub can_split: bool,
    pub can_edit: bool,
}

const ALL: [(char, &str, &str); 9] = [
    ('y', "yes", "apply this"),
    (
        'n',
        "no",
        "do not apply it; what follows, or what you say in words, is the reason, which the model gets: n this breaks the API",
    ),
    ('a', "all", "apply this and all later hunks of the file"),
    ('d', "decline", "apply neither this nor any later hunk of the file"),
    ('s', "split", "split the hunk into smaller ones"),
    ('e', "edit", "edit the hunk in $EDITOR"),
    ('p', "print", "show all of it in the pager"),
    ('q', "quit", "apply what was chosen so far, and nothing more"),
    ('?', "help", "this list"),
];

impl PossibleDecisions {
    fn has(self, letter: char) -> bool {
        match letter {
            'a' | 'd' => self.in_file,
            's' => self.can_split,
            'e' => self.can_edit,
            _ => true,
        }
    }

    /// `yes`, `no`, `quit`, `help`
    pub fn words(self) -> Vec<&'static str> {
        ALL.iter().filter(|(letter, ..)| self.has(*letter)).map(|(_, word, _)| *word).collect()
    }

    /// `y,n,q,?`
    pub fn letters(self) -> String {
        let letters = ALL.iter().filter(|(letter, ..)| self.has(*letter));
        letters.map(|(letter, ..)| letter.to_string()).collect::<Vec<_>>().join(",")
    }

    /// The decisions, in lines of at most `columns`.
    pub fn help(self, columns: Option<usize>) -> String {
        let lines = ALL.iter().filter(|(letter, ..)| self.has(*letter));
        let line = |letter: char, help| format!("{letter}  {}\n", hanging(help, 3, columns));
        let lines: String = lines.map(|(letter, _, help)| line(*letter, help)).collect();
        lines + "Ctrl-C applies nothing.\n"
    }

    /// The decision that `line` is: a letter or its word, for `no` with a reason behind it.
    pub fn read(self, line: &str) -> Option<Decision> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let word = word.trim_end_matches(':').to_lowercase();
        let is_meant = |letter: char, name: &str| word == name || word == letter.to_string();
        let (letter, ..) =
            ALL.iter().find(|(letter, name, _)| self.has(*letter) && is_meant(*letter, name))?;
        let reason = Some(rest.trim().to_owned()).filter(|reason| !reason.is_empty());
        // Only a refusal has a reason: anything else with more words may be meant otherwise.
        match (letter, reason) {
            ('n', reason) => Some(Decision::No(reason)),
            (_, Some(_)) => None,
            ('y', _) => Some(Decision::Yes),
            ('a', _) => Some(Decision::All),
            ('d', _) => Some(Decision::Decline),
            ('s', _) => Some(Decision::Split),
            ('e', _) => Some(Decision::Edit),
            ('p', _) => Some(Decision::Print),
            ('q', _) => Some(Decision::Quit),
            _ => Some(Decision::Help),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Decision, PossibleDecisions};

    const HUNK: PossibleDecisions = PossibleDecisions { in_file: true, can_split: false, can_edit: true };

    #[test]
    fn a_letter_and_its_word_are_the_same_and_only_no_takes_a_reason() {
        assert_eq!(HUNK.read("y"), Some(Decision::Yes));
        assert_eq!(HUNK.read(" Quit "), Some(Decision::Quit));
        assert_eq!(HUNK.read("n"), Some(Decision::No(None)));
        assert_eq!(HUNK.read("no: wrong name"), Some(Decision::No(Some("wrong name".to_owned()))));
        for unclear in ["", "yes but", "x", "yep", "s"] {
            assert_eq!(HUNK.read(unclear), None, "{unclear}");
        }
    }

    #[test]
    fn only_what_is_possible_is_offered() {
        assert_eq!(HUNK.letters(), "y,n,a,d,e,p,q,?");
        let whole = PossibleDecisions { in_file: false, can_split: false, can_edit: false };
        assert_eq!(whole.letters(), "y,n,p,q,?");
        assert!(!whole.help(None).contains("hunk"), "{}", whole.help(None));
    }

    /// It was broken within a word.
    #[test]
    fn the_help_fits_the_terminal() {
        let help = HUNK.help(Some(80));
        assert!(help.lines().all(|line| line.len() <= 80), "{help}");
        assert!(help.contains("the reason, which\n   the model gets: n this breaks the API\n"), "{help}");
    }
}
