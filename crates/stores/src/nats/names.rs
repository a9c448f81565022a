//! How keys are spelled in a bucket: `groups.NAME`, where the dot divides and the name has none.

use crate::engine::names;
use crate::register::{Key, KeyKind};

/// What a bucket takes beside the letters of every spelling.
const KEPT: &[u8] = b"/";

/// A key as the bucket has it.
pub(super) fn encoded(key: &Key) -> String {
    format!("{}.{}", key.kind().word(), names::spelled(key.name(), KEPT))
}

/// The key that is spelled so; none if it is no spelling of ours.
pub(super) fn decoded(spelled: &str) -> Option<Key> {
    let (word, name) = spelled.split_once('.')?;
    let kind = [KeyKind::Group, KeyKind::Session, KeyKind::Setting]
        .into_iter()
        .find(|kind| kind.word() == word)?;
    Key::found(kind, &names::read(name, KEPT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_and_nothing_else_is_one() {
        let key = Key::found(KeyKind::Group, "a/b.c:d@e-f_G").unwrap();
        assert_eq!(encoded(&key), "groups.a/b=2Ec=3Ad=40e-f_G");
        assert_eq!(decoded(&encoded(&key)), Some(key));
        for spelled in ["groups", "groups.", "other.a", "groups.a.b", "groups.=2e", "groups.=61"] {
            assert_eq!(decoded(spelled), None, "{spelled}");
        }
    }
}
