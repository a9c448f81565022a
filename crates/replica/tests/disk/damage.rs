//! Damage of every kind to every file: noticed or repaired, never believed (S10).

use proptest::prelude::*;
use raft::eraftpb::HardState;
use regent_replica::disk::error::DataDirError;
use regent_replica::disk::files::SECTOR_BYTES;

use super::model::{Model, digest, entry, found, open};
use super::sim::SimFiles;

type Digest = (HardState, u64, Vec<u8>);

/// A directory with several segments and two snapshots, and what it amounted to after every write
/// of its last rounds.
struct Life {
    files: SimFiles,
    digests: Vec<Digest>,
    /// The mark of an early day, as a power cut may leave it.
    old_mark: Vec<u8>,
}

fn life() -> Life {
    let files = SimFiles::default();
    let opened = found(&files);
    let mut model = Model::new(&opened);
    let mut disk = opened.disk;
    let old_mark = files.all()["acked"].clone();
    let mut digests = Vec::new();
    for round in 0..9u64 {
        let (last, term) = (model.now().last().0, round / 3 + 1);
        let mut hard_state = model.now().hard_state.clone();
        (hard_state.term, hard_state.vote) = (term, 1);
        let entries = (last + 1..last + 6).map(|index| entry(index, term, 40)).collect();
        let first = model.batch(entries, Some(hard_state.clone()));
        hard_state.commit = last + 4;
        let second = model.batch(Vec::new(), Some(hard_state.clone()));
        // One entry gives way, so that what stood there before must not come back.
        let third = model.batch(vec![entry(last + 5, term, 7)], None);
        if round > 4 {
            for batch in [first, second, third] {
                disk.write(&[batch]).unwrap();
                digests.push(recovered(&files.copy()).unwrap());
            }
        } else {
            disk.write(&[first, second, third]).unwrap();
        }
        if round == 2 || round == 4 {
            disk.snapshots().make(&model.task().unwrap()).unwrap();
            disk.purge().unwrap();
        }
    }
    drop(disk);
    files.kill();
    let names = files.all();
    assert_eq!(names.keys().filter(|name| name.starts_with("snapshot-")).count(), 2);
    assert!(names.keys().filter(|name| name.starts_with("wal-")).count() >= 2, "{names:?}");
    Life { files, digests, old_mark }
}

fn recovered(files: &SimFiles) -> Result<Digest, DataDirError> {
    open(files).map(|opened| digest(&opened.recovered))
}

/// What became of a damaged directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Same,
    Earlier,
    Refused,
}

impl Life {
    /// Damages a copy and opens it. Panics if something is believed that never was.
    fn fate(&self, what: &str, damage: impl FnOnce(&SimFiles)) -> Fate {
        let files = self.files.copy();
        damage(&files);
        let before = files.all();
        match recovered(&files) {
            Ok(found) if Some(&found) == self.digests.last() => {
                let again = recovered(&files).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(again, found, "{what}: repaired once, repaired for good");
                Fate::Same
            }
            Ok(found) if self.digests.contains(&found) => Fate::Earlier,
            Ok(found) => panic!("{what}: {:?} to {} was believed", found.0, found.1),
            Err(error) => {
                let text = error.to_string();
                let is_clear = matches!(
                    error,
                    DataDirError::Damaged { .. }
                        | DataDirError::Stranger { .. }
                        | DataDirError::Newer { .. }
                );
                assert!(is_clear, "{what}: {text}");
                let is_damaged = matches!(error, DataDirError::Damaged { .. });
                assert!(!is_damaged || text.contains("as a learner"), "no way out: {text}");
                assert!(files.all() == before, "{what}: a refused directory was changed");
                Fate::Refused
            }
        }
    }

    fn names(&self) -> Vec<String> {
        self.files.all().into_keys().collect()
    }

    fn length(&self, name: &str) -> usize {
        self.files.all()[name].len()
    }
}

#[test]
fn every_flipped_byte_is_noticed_or_does_not_matter() {
    let life = life();
    let mut fates = [0, 0];
    for name in life.names() {
        for at in 0..life.length(&name) {
            for mask in [1 << (at % 8), 0xff] {
                let what = format!("{name} byte {at} mask {mask:02x}");
                match life.fate(&what, |files| files.edit(&name, |bytes| bytes[at] ^= mask)) {
                    Fate::Same => fates[0] += 1,
                    Fate::Refused => fates[1] += 1,
                    Fate::Earlier => panic!("{what}: something durable was forgotten"),
                }
            }
        }
    }
    assert!(fates[0] > 100 && fates[1] > 5000, "{fates:?}");
}

#[test]
fn every_shortened_lengthened_or_missing_file_is_noticed_or_does_not_matter() {
    let life = life();
    let mut refused = 0;
    for name in life.names() {
        let length = life.length(&name);
        for at in 0..length {
            let what = format!("{name} cut at {at}");
            let fate = life.fate(&what, |files| files.edit(&name, |bytes| bytes.truncate(at)));
            assert_ne!(fate, Fate::Earlier, "{what}");
            refused += usize::from(fate == Fate::Refused);
        }
        let what = format!("{name} lengthened");
        life.fate(&what, |files| files.edit(&name, |bytes| bytes.extend([7; 9])));
        let what = format!("{name} missing");
        let fate = life.fate(&what, |files| {
            regent_replica::disk::files::Files::remove(files, &name).unwrap();
        });
        assert_ne!(fate, Fate::Earlier, "{what}");
        let may_be_missed = name.starts_with("wal-") || name == "acked";
        assert!(!may_be_missed || fate == Fate::Refused, "{what}");
    }
    assert!(refused > 8000, "{refused}");
}

#[test]
fn a_zeroed_or_misdirected_sector_is_noticed_or_does_not_matter() {
    let life = life();
    let names = life.names();
    for name in &names {
        let sectors = life.length(name) / SECTOR_BYTES;
        for sector in 0..sectors {
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            let what = format!("{name} sector {sector} zeroed");
            let fate =
                life.fate(&what, |files| files.edit(name, |bytes| bytes[range.clone()].fill(0)));
            assert_ne!(fate, Fate::Earlier, "{what}");
            for (other, from) in names.iter().zip(0..) {
                let all = life.files.all();
                let from = from % (all[other].len() / SECTOR_BYTES).max(1) * SECTOR_BYTES;
                let Some(stray) = all[other].get(from..from + SECTOR_BYTES) else { continue };
                let what = format!("{name} sector {sector} overwritten from {other} at {from}");
                let fate = life.fate(&what, |files| {
                    files.edit(name, |bytes| bytes[range.clone()].copy_from_slice(stray));
                });
                assert_ne!(fate, Fate::Earlier, "{what}");
            }
        }
    }
}

/// After a power cut the mark apart from the log may be old. What then looks like a write that was
/// lost is cut off; whatever cannot have been one is refused.
#[test]
fn without_the_mark_a_flipped_bit_is_still_no_lost_write() {
    let mut life = life();
    life.files.edit("acked", |bytes| *bytes = life.old_mark.clone());
    life.old_mark.clear();
    let last = life.names().into_iter().rfind(|name| name.starts_with("wal-")).unwrap();
    let used = life.files.all()[&last].iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for at in 0..used {
        let what = format!("byte {at} of {used}");
        let fate = life.fate(&what, |files| files.edit(&last, |bytes| bytes[at] ^= 1 << (at % 8)));
        assert_eq!(fate, Fate::Refused, "{what}");
    }
    let mut earlier = 0;
    for at in 0..used {
        let what = format!("zeros from byte {at} of {used}");
        let fate = life.fate(&what, |files| files.edit(&last, |bytes| bytes[at..].fill(0)));
        earlier += usize::from(fate == Fate::Earlier);
    }
    assert!(earlier > 0, "what is lost without a trace is cut off");
}

/// The other way round: what a later write knew to be durable is missed, mark or no mark.
#[test]
fn without_the_mark_later_records_speak_for_those_before_them() {
    let life = life();
    life.files.edit("acked", |bytes| *bytes = life.old_mark.clone());
    let last = life.names().into_iter().rfind(|name| name.starts_with("wal-")).unwrap();
    let bytes = life.files.all()[&last].clone();
    let starts: Vec<usize> =
        (80..bytes.len() - 8).step_by(8).filter(|at| bytes[*at..].starts_with(b"rec")).collect();
    assert!(starts.len() > 4, "{starts:?}");
    // The last three were written one by one, each knowing of the one before.
    for pair in starts[..starts.len() - 1].windows(2) {
        let what = format!("record from byte {} zeroed", pair[0]);
        let fate = life.fate(&what, |files| {
            files.edit(&last, |bytes| bytes[pair[0]..pair[1]].fill(0));
        });
        assert_eq!(fate, Fate::Refused, "{what}");
    }
}

#[derive(Clone, Debug)]
enum Wound {
    Flip,
    Fill(u8),
    Scatter(u64),
}

fn wound() -> impl Strategy<Value = (usize, usize, usize, Wound)> {
    let kind = prop_oneof![
        Just(Wound::Flip),
        any::<u8>().prop_map(Wound::Fill),
        any::<u64>().prop_map(Wound::Scatter),
    ];
    (0..64usize, 0..4096usize, 1..300usize, kind)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn many_wounds_at_once_are_noticed_or_do_not_matter(wounds in prop::collection::vec(wound(), 1..6)) {
        let life = life();
        let names = life.names();
        let fate = life.fate(&format!("{wounds:?}"), |files| {
            for (file, at, count, kind) in &wounds {
                files.edit(&names[file % names.len()], |bytes| {
                    let end = (at + count).min(bytes.len());
                    for (offset, byte) in bytes.iter_mut().enumerate().take(end).skip(*at) {
                        *byte = match kind {
                            Wound::Flip => !*byte,
                            Wound::Fill(with) => *with,
                            Wound::Scatter(seed) => {
                                (seed.wrapping_mul(offset as u64 + 1) >> 32) as u8
                            }
                        };
                    }
                });
            }
        });
        prop_assert!(fate != Fate::Earlier);
    }
}
