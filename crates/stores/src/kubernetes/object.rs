//! An entry as a Lease object, and back.
//!
//! | where | what |
//! |---|---|
//! | `metadata.name` | the group's name if it is one for objects, else its beginning and a digest |
//! | label `regent/kind` | `groups`, `sessions` or `settings`: what a listing selects |
//! | annotation `regent/name` | the name, in full |
//! | annotation `regent/value` | the bytes, in base64 |
//! | `spec.holderIdentity`, `leaseDurationSeconds`, `leaseTransitions`, `renewTime` | who leads, ttl, term, when it was written: for people, and read by nobody here |

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::engine::whole_ms;
use crate::register::{Found, Key, KeyKind, Record, RegisterError, RegisterResult, Version};

const KIND: &str = "regent/kind";
const NAME: &str = "regent/name";
const VALUE: &str = "regent/value";

/// Bytes of a name that is one for objects as it is.
const PLAIN_BYTES_MAX: usize = 63;
/// Bytes of a name that are left for people where the rest is a digest.
const STEM_BYTES_MAX: usize = 40;

/// Whether a name is one for objects: small letters, digits and inner dashes.
pub(super) fn is_plain(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_outer = |byte: Option<u8>| byte.is_some_and(|byte| is_inner(byte) && byte != b'-');
    name.len() <= PLAIN_BYTES_MAX
        && name.bytes().all(is_inner)
        && is_outer(name.bytes().next())
        && is_outer(name.bytes().last())
}

/// The object's name. Those with a digest have dots, and plain ones have none, so they never meet.
pub(super) fn name(key: &Key) -> String {
    if key.kind() == KeyKind::Group && is_plain(key.name()) {
        return key.name().to_owned();
    }
    let digest = Sha256::digest(key.to_string().as_bytes());
    let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let stem: String = key
        .name()
        .chars()
        .take(STEM_BYTES_MAX)
        .map(|letter| match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9') => letter,
            _ => '-',
        })
        .collect();
    match stem.trim_matches('-') {
        "" => format!("{digest}.{}", key.kind().word()),
        stem => format!("{stem}.{digest}.{}", key.kind().word()),
    }
}

/// What selects all objects of a kind.
pub(super) fn selector(kind: KeyKind) -> String {
    format!("{KIND}={}", kind.word())
}

/// The version of an object: its resourceVersion, and its uid beside it. A server that is told to replace a
/// Lease that is not there creates it, whatever resourceVersion was given; a uid it must find.
pub(super) fn version(metadata: &ObjectMeta) -> Option<Version> {
    let (revision, uid) = (metadata.resource_version.as_ref()?, metadata.uid.as_ref()?);
    Some(Version(format!("{revision}:{uid}")))
}

/// What a version stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over<'a> {
    revision: &'a str,
    uid: &'a str,
}

impl<'a> Over<'a> {
    /// None for a version that was never given out here.
    pub(super) fn the(version: &'a Version) -> Option<Self> {
        let (revision, uid) = version.0.split_once(':')?;
        (!revision.is_empty() && !uid.is_empty()).then_some(Self { revision, uid })
    }
}

/// The object to be written, at this time by the wall clock; over the one of this version, if any.
pub(super) fn lease(key: &Key, record: &Record, over: Option<Over<'_>>, wall_ms: u64) -> Lease {
    let summary = &record.summary;
    let seconds = summary.ttl.map(|ttl| whole_ms(ttl).div_ceil(1000));
    let written_at =
        i64::try_from(wall_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let number = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    let map = |pairs: &[(&str, String)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(name(key)),
            resource_version: over.map(|over| over.revision.to_owned()),
            uid: over.map(|over| over.uid.to_owned()),
            labels: Some(map(&[
                (KIND, key.kind().word().to_owned()),
                ("app.kubernetes.io/managed-by", "regent".to_owned()),
            ])),
            annotations: Some(map(&[
                (NAME, key.name().to_owned()),
                (VALUE, STANDARD.encode(&record.value)),
            ])),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: summary.leader.as_ref().map(|node| node.as_str().to_owned()),
            lease_duration_seconds: seconds.map(number),
            lease_transitions: summary.term.map(|term| number(term.get())),
            renew_time: written_at.map(MicroTime),
            ..LeaseSpec::default()
        }),
    }
}

/// The entry that an object holds, which must be that of the key if one is given.
pub(super) fn entry(
    kind: KeyKind,
    lease: Lease,
    expected: Option<&Key>,
) -> RegisterResult<(Key, Found)> {
    let version = version(&lease.metadata);
    let ObjectMeta { name: object, annotations, .. } = lease.metadata;
    let object = object.unwrap_or_default();
    let foreign = |why: &str| {
        RegisterError::corrupt(format_args!(
            "the Lease {object} is not one of Regent's ({why}); use a namespace of its own"
        ))
    };
    let mut annotations = annotations.unwrap_or_default();
    let given = annotations.remove(NAME).ok_or_else(|| foreign("it has no regent/name"))?;
    let key = Key::found(kind, &given).ok_or_else(|| foreign("its regent/name is no name"))?;
    if name(&key) != object || expected.is_some_and(|expected| *expected != key) {
        return Err(foreign("its regent/name belongs to another"));
    }
    let value = annotations.remove(VALUE).ok_or_else(|| foreign("it has no regent/value"))?;
    let value = STANDARD.decode(value).map_err(|_| foreign("its regent/value is no base64"))?;
    let version = version.ok_or_else(|| foreign("it has no resourceVersion or no uid"))?;
    Ok((key, Found { value, version }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use regent_election::{Node, Term};

    use super::*;
    use crate::register::HumanSummary;

    fn key(kind: KeyKind, name: &str) -> Key {
        Key::found(kind, name).unwrap()
    }

    #[test]
    fn a_group_with_a_name_for_objects_keeps_it() {
        assert_eq!(name(&key(KeyKind::Group, "billing-2")), "billing-2");
        let odd = name(&key(KeyKind::Group, "Billing/EU:1"));
        assert!(odd.starts_with("billing-eu-1.") && odd.ends_with(".groups"), "{odd}");
        let setting = name(&key(KeyKind::Setting, "billing-2"));
        assert!(setting.ends_with(".settings"), "{setting}");
    }

    #[test]
    fn kubectl_shows_who_leads() {
        let summary = HumanSummary {
            leader: Some(Node::new("pod-1").unwrap()),
            term: Term::new(7),
            ttl: Some(Duration::from_millis(2500)),
        };
        let record = Record { value: vec![0, 255], summary };
        let held = Version("41:abc".into());
        let lease = lease(&key(KeyKind::Group, "billing"), &record, Over::the(&held), 1500);
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("41"));
        assert_eq!(lease.metadata.uid.as_deref(), Some("abc"));
        let spec = lease.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("pod-1"));
        assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(3), Some(7)));
        assert_eq!(spec.renew_time.unwrap().0.to_string(), "1970-01-01T00:00:01.5Z");
    }

    #[test]
    fn what_others_wrote_is_corrupt() {
        let wrong = |lease| entry(KeyKind::Group, lease, None).unwrap_err();
        assert!(wrong(Lease::default()).to_string().contains("no regent/name"));
        let version = Version("1:x".into());
        let over = Over::the(&version);
        let mut moved = lease(&key(KeyKind::Group, "a"), &Record::bare(vec![1]), over, 0);
        moved.metadata.name = Some("b".into());
        assert!(wrong(moved).to_string().contains("belongs to another"));
    }

    #[test]
    fn a_version_that_was_never_given_out_stands_for_nothing() {
        for foreign in ["", "41", ":", "41:", ":abc"] {
            assert!(Over::the(&Version(foreign.into())).is_none(), "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn every_entry_comes_back_from_an_object_that_the_server_takes(
            given in "[a-zA-Z0-9][a-zA-Z0-9_.:@-]{0,60}(/[a-zA-Z0-9_.:@-]{0,60}[a-zA-Z0-9]){0,3}",
            value in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            for kind in [KeyKind::Group, KeyKind::Session, KeyKind::Setting] {
                let Some(key) = Key::found(kind, &given) else { continue };
                let version = Version("9:x".into());
                let object = lease(&key, &Record::bare(value.clone()), Over::the(&version), 0);
                let named = object.metadata.name.clone().unwrap();
                prop_assert!(named.len() <= 253, "{named}");
                for label in named.split('.') {
                    prop_assert!(is_plain(label), "{named}");
                }
                let (found_key, found) = entry(kind, object, Some(&key)).unwrap();
                prop_assert_eq!(&found_key, &key);
                prop_assert_eq!(&found.value, &value);
                prop_assert_eq!(found.version, version);
            }
        }
    }
}
