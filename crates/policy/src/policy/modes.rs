//! Modes of files, as `chmod` reads them.

/// The set-user-ID, set-group-ID and sticky bits.
const SPECIAL: u32 = 0o7000;
/// The permissions of everybody, by their letters.
const BY_LETTER: [u32; 3] = [0o444, 0o222, 0o111];

/// Returns whether a mode gives what another one names: exactly the permissions of one in digits, with other zeros in front or in letters
/// (`a+rwx`), and at least those of one in letters, for anybody where that one says nothing of whom; of the special bits, any.
pub fn is_same_mode(given: &str, wanted: &str) -> bool {
    match (permissions(given), permissions(wanted)) {
        // A bit beside the permissions (set-user-ID, sticky) takes none of them away.
        (Some(given), Some(exact)) if digits(wanted).is_some() => given == exact || given & !SPECIAL == exact,
        (Some(given), Some(named)) => {
            let is_of_anybody = wanted.split(',').all(|clause| clause.starts_with(['+', '-', '=']));
            let has_any = |mask: u32| named & mask == 0 || given & named & mask != 0;
            let has_permissions = match is_of_anybody {
                true => BY_LETTER.into_iter().all(has_any),
                false => given & named & !SPECIAL == named & !SPECIAL,
            };
            named != 0 && has_any(SPECIAL) && has_permissions
        }
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
        let whom = if whom == 0 { 0o7777 } else { whom };
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

/// The bits of letters or digits, for everybody; `u`, `g` and `o` stand for those that a file with `given` has.
fn bits(named: &str, given: u32) -> Option<u32> {
    let bit = |letter: char| match letter {
        'r' => Some(0o444),
        'w' => Some(0o222),
        'x' | 'X' => Some(0o111),
        's' => Some(0o6000),
        't' => Some(0o1000),
        'u' => Some((given >> 6 & 7) * 0o111),
        'g' => Some((given >> 3 & 7) * 0o111),
        'o' => Some((given & 7) * 0o111),
        _ => None,
    };
    digits(named).or_else(|| named.chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?)))
}

/// The bits that are of somebody.
fn of(letter: char) -> Option<u32> {
    match letter {
        'u' => Some(0o4700),
        'g' => Some(0o2070),
        'o' => Some(0o1007),
        'a' => Some(0o7777),
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
        for (given, wanted) in [("u+x", "+x"), ("700", "+x"), ("u+rx", "+rx")] {
            assert!(is_same_mode(given, wanted), "{given} {wanted}");
        }
        assert!(!is_same_mode("600", "+x") && !is_same_mode("u+x", "a+x") && !is_same_mode("u+r", "+rx"));
        assert!(!is_same_mode("u+w", "o+w") && !is_same_mode("a-w", "a-r"));
        assert!(is_same_mode("u=rw,go=r", "0644") && is_same_mode("+x", "111") && !is_same_mode("x", "file"));
    }

    #[test]
    fn a_special_bit_counts() {
        for given in ["u+s", "4755", "+s", "ug+s", "u+xs", "6755", "u=srwx", "04755", "u=rwxs,go=rx", "=4000"]
        {
            assert!(is_same_mode(given, "u+s"), "{given}");
        }
        for (given, wanted) in [
            ("u+s", "+s"),
            ("4755", "a+s"),
            ("2755", "g+s"),
            ("1777", "+t"),
            ("o+t", "+t"),
            ("u=rwxs,go=rx", "4755"),
            ("4755", "755"),
        ] {
            assert!(is_same_mode(given, wanted), "{given} {wanted}");
        }
        for (given, wanted) in [
            ("755", "u+s"),
            ("g+s", "u+s"),
            ("1777", "u+s"),
            ("755", "4755"),
            ("4644", "u+xs"),
            ("u+s,u-s", "u+s"),
        ] {
            assert!(!is_same_mode(given, wanted), "{given} {wanted}");
        }
    }
}
