//! Names spelled for servers that take fewer letters than names have.
//!
//! What a server does not take is spelled as `=` and two digits. Each name has one spelling for a given
//! choice of letters, and no two have the same.

/// A name in letters, digits, `-`, `_` and what `kept` adds.
pub(crate) fn spelled(name: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("={byte:02X}"));
        }
    }
    out
}

/// The name that is spelled so; none if it is no spelling of ours.
pub(crate) fn read(given: &str, kept: &[u8]) -> Option<String> {
    let mut parts = given.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        name.push(char::from(u8::from_str_radix(code, 16).ok()?));
        name.push_str(rest);
    }
    (spelled(&name, kept) == given).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_server_does_not_take_is_spelled_out() {
        assert_eq!(spelled("a/b.c:d@e-f_G", b"/"), "a/b=2Ec=3Ad=40e-f_G");
        assert_eq!(spelled("a/b=", b""), "a=2Fb=3D");
    }

    #[test]
    fn what_is_no_spelling_of_ours_is_no_name() {
        for given in ["a.b", "a=2e", "a=2", "a=", "=61", "a/b"] {
            assert_eq!(read(given, b""), None, "{given}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in "[ -~]{0,60}") {
            for kept in [&b""[..], b"/", b"/."] {
                prop_assert_eq!(read(&spelled(&name, kept), kept), Some(name.clone()));
            }
        }
    }
}
