//! How keys are spelled in a bucket: `groups.NAME`, where the dot divides and the name has none.
//!
//! A bucket's key is of letters, digits and `- / _ = .`, and a dot divides a subject, so all else is
//! spelled as `=` and two digits. Each name has one spelling, and no two have the same.

use crate::register::{Key, Kind};

/// A key as the bucket has it.
pub(super) fn encoded(key: &Key) -> String {
    let mut out = format!("{}.", key.kind().word());
    for byte in key.name().bytes() {
        if byte.is_ascii_alphanumeric() || b"-_/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("={byte:02X}"));
        }
    }
    out
}

/// The key that is spelled so; none if it is no spelling of ours.
pub(super) fn decoded(spelled: &str) -> Option<Key> {
    let (word, name) = spelled.split_once('.')?;
    let kind =
        [Kind::Group, Kind::Session, Kind::Setting].into_iter().find(|kind| kind.word() == word)?;
    let mut parts = name.split('=');
    let mut out = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        out.push(char::from(u8::from_str_radix(code, 16).ok()?));
        out.push_str(rest);
    }
    let key = Key::found(kind, &out)?;
    (encoded(&key) == spelled).then_some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_divides_a_subject_is_spelled_out() {
        let key = Key::found(Kind::Group, "a/b.c:d@e-f_G").unwrap();
        assert_eq!(encoded(&key), "groups.a/b=2Ec=3Ad=40e-f_G");
    }

    #[test]
    fn what_is_no_spelling_of_ours_is_no_key() {
        for spelled in
            ["groups", "groups.", "other.a", "groups.a.b", "groups.=2e", "groups.=6", "groups.=61"]
        {
            assert_eq!(decoded(spelled), None, "{spelled}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in "[a-zA-Z0-9][a-zA-Z0-9_.:@-]{0,40}(/[a-zA-Z0-9_.:@-]*[a-zA-Z0-9]){0,3}") {
            if let Some(key) = Key::found(Kind::Session, &name) {
                let spelled = encoded(&key);
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-/_=.".contains(&byte);
                prop_assert!(spelled.bytes().all(is_plain), "{spelled}");
                prop_assert_eq!(decoded(&spelled), Some(key));
            }
        }
    }
}
