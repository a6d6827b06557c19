//! Ids that clients make: UUIDs of RFC 9562.

use jiff::Timestamp;

/// A random one (version 4).
#[cfg_attr(not(feature = "modal"), allow(dead_code))]
pub fn random() -> String {
    text(fastrand::u128(..), 4)
}

/// A random one that begins with the time in milliseconds (version 7).
pub fn of_now() -> String {
    let time = u128::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    text(time << 80 | fastrand::u128(..) >> 48, 7)
}

fn text(bits: u128, version: u128) -> String {
    let bits = bits & !(0xf << 76) | (version << 76);
    let bits = bits & !(0x3 << 62) | (0x2 << 62);
    let digits = format!("{bits:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_its_form() {
        for (id, version) in [(random(), b'4'), (of_now(), b'7')] {
            let at = |index: usize| id.as_bytes()[index];
            assert_eq!((id.len(), at(8), at(13), at(14), at(23)), (36, b'-', b'-', version, b'-'), "{id}");
            assert!(b"89ab".contains(&at(19)), "{id}");
        }
    }

    #[test]
    fn a_uuid_of_now_begins_with_the_time() {
        let before = Timestamp::now().as_millisecond();
        let id = of_now();
        let time = i64::from_str_radix(&id[..13].replace('-', ""), 16).unwrap();
        assert!((before..=Timestamp::now().as_millisecond()).contains(&time), "{id}");
        assert_ne!(of_now(), id);
    }
}
