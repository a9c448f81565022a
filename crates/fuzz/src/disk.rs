//! What lies on disks and in other people's stores: a replica's log, snapshots, backups, records, the audit log, recordings.

use regent_audit::{Line, Place, Verifier};
use regent_election::State;
use regent_election::codec::{decode_entry, encode_entry};
use regent_recording::Row;
use regent_replica::backup::Backup;
use regent_replica::replicated::ReplicatedState;

use crate::tokens::keys;
use crate::with_text;

/// The log, as it is and with its checksums set right.
pub(crate) fn log(bytes: &[u8]) {
    regent_replica::disk::fuzz_log(bytes);
}

/// An entry, and what it does to a state.
pub(crate) fn entry(bytes: &[u8]) {
    let Ok(entry) = decode_entry(bytes) else { return };
    let again = decode_entry(&encode_entry(&entry));
    assert_eq!(again.as_ref(), Ok(&entry), "an entry is not read as it was written");
    let mut state = State::new(regent_election::Settings::default());
    state.apply(entry.clone());
    state.apply(entry);
    state_again(&state);
}

/// A state and everything that is replicated beside it.
pub(crate) fn snapshot(bytes: &[u8]) {
    if let Ok(state) = State::decode(bytes) {
        state_again(&state);
    }
    if let Ok(replicated) = ReplicatedState::decode(bytes) {
        let again = ReplicatedState::decode(&replicated.encode());
        assert_eq!(again.as_ref(), Ok(&replicated), "a snapshot is not read as it was written");
    }
}

fn state_again(state: &State) {
    let encoded = state.encode();
    let again = State::decode(&encoded).map(|again| again.encode());
    assert_eq!(again, Ok(encoded), "a state is not read as it was written");
}

/// A backup, as it is and with its checksums set right.
pub(crate) fn backup(bytes: &[u8]) {
    let _ = Backup::decode(bytes);
    let Ok(replicated) = ReplicatedState::decode(bytes) else { return };
    let whole = Backup::of(7, 9, 11, replicated).into_bytes();
    let read = Backup::decode(&whole).map(Backup::into_bytes);
    assert!(read.is_ok_and(|read| read == whole), "a backup is not read as it was written");
}

/// What other people's stores keep of a group or a session.
pub(crate) fn record(bytes: &[u8]) {
    regent_stores::lease::fuzz(bytes);
    regent_stores::file::fuzz(bytes);
}

/// What a ZooKeeper server says.
pub(crate) fn zookeeper(bytes: &[u8]) {
    regent_stores::zookeeper::fuzz(bytes);
}

/// What a Consul agent answers.
pub(crate) fn consul(bytes: &[u8]) {
    regent_stores::consul::fuzz(bytes);
}

/// The lines of an audit log, for the verifier and for people.
pub(crate) fn audit(bytes: &[u8]) {
    let keys = keys();
    let kept = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let kept = std::str::from_utf8(kept).ok().and_then(|text| text.parse().ok());
    let mut verifier = Verifier::new(Some(&keys), kept);
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        verifier.line(Place { file: 1, line: number }, line);
        if let Ok(line) = serde_json::from_slice::<Line>(line) {
            let _ = line.sentence();
        }
    }
    verifier.torn(Place { file: 1, line: 1 }, 1, true);
    let report = verifier.finish();
    report.defects.iter().for_each(|defect| drop(defect.to_string()));
}

/// The lines of a recording, and what it would take to act them again.
pub(crate) fn recording(bytes: &[u8]) {
    with_text(bytes, |text| {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let Ok(row) = Row::parse(line) else { continue };
            let _ = (row.revision(), row.group(), row.session());
            let again = Row::parse(&row.to_json());
            assert_eq!(again.as_ref(), Ok(&row), "a line is not read as it was written");
            lines.extend(row.line(number));
        }
        let _ = regent_lab::trace::Trace::new(lines);
    });
}
