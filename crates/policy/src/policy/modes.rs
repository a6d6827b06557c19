//! Modes of files, as `chmod` reads them.

/// Returns whether a mode gives the permissions that another one names: exactly those of one in digits, with other zeros in front or in
/// letters (`a+rwx`), and at least those of one in letters.
pub fn is_same_mode(given: &str, wanted: &str) -> bool {
    match (permissions(given), permissions(wanted)) {
        // A bit beside the permissions (set-user-ID, sticky) takes none of them away.
        (Some(given), Some(exact)) if digits(wanted).is_some() => given == exact || given & 0o777 == exact,
        (Some(given), Some(least)) => least != 0 && given & least == least,
        _ => false,
    }
}

fn digits(mode: &str) -> Option<u32> {
    let is_octal = !mode.is_empty() && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    is_octal.then(|| u32::from_str_radix(mode, 8).ok()).flatten()
}

/// The permissions that a mode gives a file that has none. The umask, which keeps some of them where nobody is named, does not count.
fn permissions(mode: &str) -> Option<u32> {
    if let Some(mode) = digits(mode) {
        return Some(mode);
    }
    let mut given = 0;
    for clause in mode.split(',') {
        let (whom, mut actions) = clause.split_at(clause.find(['+', '-', '='])?);
        let whom = whom.chars().try_fold(0, |mask, letter| Some(mask | of(letter)?))?;
        let whom = if whom == 0 { 0o777 } else { whom };
        while let Some(change) = actions.chars().next() {
            let end = actions[1..].find(['+', '-', '=']).map_or(actions.len(), |end| end + 1);
            let (action, rest) = actions.split_at(end);
            let bits = whom & bits(&action[1..], given)?;
            given = match change {
                '+' => given | bits,
                '-' => given & !bits,
                _ => given & !whom | bits,
            };
            actions = rest;
        }
    }
    Some(given)
}

/// The permissions of letters or digits, for everybody; `u`, `g` and `o` stand for those that a file with `given` has.
fn bits(named: &str, given: u32) -> Option<u32> {
    let bit = |letter: char| match letter {
        'r' => Some(0o444),
        'w' => Some(0o222),
        'x' | 'X' => Some(0o111),
        's' | 't' => Some(0),
        'u' => Some((given >> 6 & 7) * 0o111),
        'g' => Some((given >> 3 & 7) * 0o111),
        'o' => Some((given & 7) * 0o111),
        _ => None,
    };
    digits(named).or_else(|| named.chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?)))
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
        for (given, wanted) in
            [("777", "a+rwx"), ("a=rwx", "a+rwx"), ("a+w", "o+w"), ("a+x", "+x"), ("755", "+x")]
        {
            assert!(is_same_mode(given, wanted), "{given} {wanted}");
        }
        assert!(!is_same_mode("u+w", "o+w") && !is_same_mode("a-w", "a-r"));
        assert!(is_same_mode("u=rw,go=r", "0644") && is_same_mode("+x", "111") && !is_same_mode("x", "file"));
    }
}
