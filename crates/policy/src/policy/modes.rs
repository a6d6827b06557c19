//! Modes of files, as `chmod` reads them.

/// Returns whether a mode gives the same permissions as one in digits: with other zeros in front, as `=777`, or in letters (`a+rwx`,
/// which the umask does not change where it says for whom).
pub fn is_same_mode(given: &str, wanted: &str) -> bool {
    let Some(wanted) = digits(wanted) else { return false };
    digits(given.trim_start_matches(['=', '+'])).or_else(|| letters(given)) == Some(wanted)
}

fn digits(mode: &str) -> Option<u32> {
    let is_octal = !mode.is_empty() && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    is_octal.then(|| u32::from_str_radix(mode, 8).ok()).flatten()
}

/// The permissions that a mode in letters gives a file that has none.
fn letters(mode: &str) -> Option<u32> {
    let mut given = 0;
    for clause in mode.split(',') {
        let (whom, actions) = clause.split_at(clause.find(['+', '-', '='])?);
        let whom = whom.chars().try_fold(0, |mask, letter| Some(mask | of(letter)?))?;
        let whom = if whom == 0 { 0o777 } else { whom };
        let mut change = '=';
        for letter in actions.chars() {
            let bits = match letter {
                '+' | '-' | '=' => {
                    change = letter;
                    continue;
                }
                'r' => 0o444,
                'w' => 0o222,
                'x' | 'X' => 0o111,
                's' | 't' => 0,
                _ => return None,
            };
            given = if change == '-' { given & !(bits & whom) } else { given | bits & whom };
        }
    }
    Some(given)
}

fn of(letter: char) -> Option<u32> {
    match letter {
        'u' => Some(0o700),
        'g' => Some(0o070),
        'o' => Some(0o007),
        'a' => Some(0o777),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_same_mode;

    #[test]
    fn a_mode_is_the_same_in_digits_and_in_letters() {
        for given in
            ["777", "0777", "00777", "=777", "a+rwx", "ugo=rwx", "u+rwx,g+rwx,o+rwx", "+rwx", "a=rw,a+x"]
        {
            assert!(is_same_mode(given, "777"), "{given}");
        }
        for given in ["755", "+x", "a+rx", "u+rwx", "a+rwx,o-w", "file", "", "a+q"] {
            assert!(!is_same_mode(given, "777"), "{given}");
        }
        assert!(is_same_mode("u=rw,go=r", "0644") && is_same_mode("+x", "111") && !is_same_mode("x", "file"));
    }
}
