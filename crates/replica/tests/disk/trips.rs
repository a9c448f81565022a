//! There and back: what is kept is found, on the real file system too, and strangers are refused.

use std::path::Path;
use std::sync::Arc;

use regent_election::Settings;
use regent_replica::disk::error::{DataDirError, SnapshotError};
use regent_replica::disk::files::Files;
use regent_replica::disk::snapshot::{SnapshotResult, advance};
use regent_replica::disk::{Disk, DiskOptions, Founding, Identity, Opened, RealFiles};
use regent_replica::{Core, CoreConfig, Members, ReplicaId};

use super::model::{
    Model, SEGMENT_BYTES, digest, entry, found, founding, identity, open, options, try_found,
};
use super::sim::SimFiles;

fn commit_all(model: &mut Model, disk: &mut Disk, count: u64) {
    let last = model.now().last().0;
    let entries = (last + 1..=last + count).map(|index| entry(index, 1, 50)).collect();
    let mut hard_state = model.now().hard_state.clone();
    hard_state.commit = last + count;
    let batch = model.batch(entries, Some(hard_state));
    disk.write(&[batch]).unwrap();
}

fn real(path: &Path) -> Arc<RealFiles> {
    Arc::new(RealFiles::new(path).unwrap())
}

#[test]
fn a_real_directory_keeps_what_it_was_given() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data");
    let opened = Disk::found(real(&path), options(), identity(), &founding()).unwrap();
    assert_eq!(opened.boot, 1);
    let mut model = Model::new(&opened);
    let mut disk = opened.disk;
    for round in 0..12 {
        assert!(disk.reserve().fill().unwrap());
        commit_all(&mut model, &mut disk, 20);
        if round % 4 == 3 {
            assert_eq!(
                disk.snapshots().make(&model.task().unwrap()).unwrap(),
                SnapshotResult::Durable
            );
            disk.purge().unwrap();
        }
    }
    let busy = Disk::open(real(&path), options()).unwrap_err();
    assert!(matches!(busy, DataDirError::InUse { .. }), "{busy}");
    disk.close().unwrap();
    for boot in 2..5 {
        let opened = Disk::open(real(&path), options()).unwrap();
        assert_eq!((opened.boot, opened.identity), (boot, identity()));
        assert_eq!(opened.repairs, Vec::<String>::new());
        let state = model.check(&opened, model.states.len() - 1);
        model.resume(&opened, state);
    }
    #[cfg(unix)]
    for entry in std::fs::read_dir(&path).unwrap() {
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &entry.as_ref().unwrap().metadata().unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600, "{entry:?}");
    }
}

#[test]
fn a_core_starts_from_what_a_founded_or_joining_disk_remembers() {
    let joining = SimFiles::default();
    let opened =
        Disk::found(Arc::new(joining.clone()), options(), identity(), &Founding::joining())
            .unwrap();
    assert_eq!(opened.recovered.place.index, 0);
    assert!(opened.recovered.replicated.members.is_empty());
    let founded = found(&SimFiles::default());
    assert_eq!((founded.recovered.place.index, founded.recovered.place.term), (1, 1));
    assert_eq!(founded.recovered.place.get_conf_state().voters, [1]);
    for Opened { recovered, boot, .. } in [opened, founded] {
        let config = CoreConfig::new(ReplicaId::new(1).unwrap(), boot, 7);
        Core::new(config, recovered, regent_election::Moment::from_millis(1)).unwrap();
    }
}

#[test]
fn old_segments_go_when_two_snapshots_cover_them() {
    let files = SimFiles::default();
    let opened = found(&files);
    let mut model = Model::new(&opened);
    let mut disk = opened.disk;
    let mut segments = Vec::new();
    for _ in 0..6 {
        for _ in 0..6 {
            commit_all(&mut model, &mut disk, 10);
        }
        let grown = disk.segments();
        disk.snapshots().make(&model.task().unwrap()).unwrap();
        disk.purge().unwrap();
        segments.push((grown, disk.segments()));
    }
    assert!(segments.last().unwrap().0 < 2 * segments[0].0 + 3, "the log is bounded: {segments:?}");
    assert!(segments[1..].iter().all(|(grown, left)| left < grown), "{segments:?}");
    assert_eq!(disk.purge().unwrap(), 0, "once is enough");
    assert_eq!(files.all().keys().filter(|name| name.starts_with("snapshot")).count(), 2);
    let newest = disk.snapshots().newest().unwrap();
    assert_eq!(newest.0, model.snapshots.last().unwrap().0);
    assert_eq!(&*newest.1, model.snapshots.last().unwrap().1.encode());
    drop(disk);
    model.check(&open(&files).unwrap(), model.states.len() - 1);
}

#[test]
fn a_damaged_snapshot_is_replaced_by_the_one_before_if_the_log_reaches_back() {
    let files = SimFiles::default();
    let opened = found(&files);
    let mut model = Model::new(&opened);
    let mut disk = opened.disk;
    for _ in 0..3 {
        commit_all(&mut model, &mut disk, 60);
        disk.snapshots().make(&model.task().unwrap()).unwrap();
        disk.purge().unwrap();
    }
    drop(disk);
    files.kill();
    let before = digest(&open(&files.copy()).unwrap().recovered);
    let snapshots: Vec<String> =
        files.all().into_keys().filter(|name| name.starts_with("snapshot")).collect();
    let [older, newer] = &snapshots[..] else { panic!("{snapshots:?}") };

    let both = files.copy();
    for name in [older, newer] {
        both.edit(name, |bytes| bytes[100] ^= 1);
    }
    let refused = open(&both).unwrap_err().to_string();
    assert!(refused.contains(newer) && refused.contains("learner"), "{refused}");

    files.edit(newer, |bytes| bytes[100] ^= 1);
    let opened = open(&files).unwrap();
    assert!(opened.repairs[0].contains(newer), "{:?}", opened.repairs);
    assert_eq!(opened.recovered.place, model.snapshots[2].0, "the one before");
    assert_eq!(digest(&opened.recovered), before);
    drop(opened);
    assert!(open(&files).unwrap().repairs.is_empty(), "it was repaired for good");
}

#[test]
fn a_damaged_snapshot_from_the_leader_is_refused_because_the_log_starts_after_it() {
    let files = SimFiles::default();
    let opened = found(&files);
    let mut model = Model::new(&opened);
    let mut disk = opened.disk;
    commit_all(&mut model, &mut disk, 60);
    let install = model.install(100, 3);
    disk.write(&[install]).unwrap();
    disk.purge().unwrap();
    assert_eq!(disk.segments(), 1, "what the snapshot replaced is gone");
    drop(disk);
    let name = files.all().into_keys().rfind(|name| name.starts_with("snapshot")).unwrap();
    files.edit(&name, |bytes| bytes[70] ^= 4);
    let refused = open(&files).unwrap_err().to_string();
    assert!(refused.contains("the log begins at entry 163"), "{refused}");
    assert!(refused.contains("learner"), "{refused}");
}

#[test]
fn a_snapshot_that_was_overtaken_is_dropped() {
    let files = SimFiles::default();
    let opened = found(&files);
    let mut model = Model::new(&opened);
    let mut disk = opened.disk;
    commit_all(&mut model, &mut disk, 5);
    let task = model.task().unwrap();
    let previous = disk.snapshots().newest().unwrap();
    let bytes = advance((&previous.0, &previous.1), &task).unwrap();
    let install = model.install(10, 2);
    disk.write(&[install]).unwrap();
    let error = disk.snapshots().make(&task).unwrap_err();
    assert!(matches!(error, SnapshotError::Overtaken { first: 2, newest: 17 }), "{error}");
    assert_eq!(disk.snapshots().keep(&task.place, &bytes).unwrap(), SnapshotResult::Overtaken);
    assert_eq!(disk.snapshots().newest_index(), 17);
}

#[test]
fn directories_of_others_are_refused_with_both_names() {
    let files = SimFiles::default();
    drop(found(&files));
    let ask = |options| Disk::open(Arc::new(files.clone()), options).unwrap_err().to_string();
    let wrong_cluster = ask(DiskOptions { cluster: Some(0xc2), ..options() });
    assert!(wrong_cluster.contains("00c1") && wrong_cluster.contains("00c2"), "{wrong_cluster}");
    let wrong_replica = ask(DiskOptions { replica: ReplicaId::new(2), ..options() });
    assert!(wrong_replica.contains("replica 2"), "{wrong_replica}");
    let right = DiskOptions { cluster: Some(0xc1), replica: ReplicaId::new(1), ..options() };
    Disk::open(Arc::new(files.clone()), right).unwrap();

    // A file of another life of the same replica, copied in.
    let other = SimFiles::default();
    let stranger = Identity { incarnation: 5, ..identity() };
    let opened = Disk::found(Arc::new(other.clone()), options(), stranger, &founding()).unwrap();
    drop(opened);
    for (name, bytes) in other.all() {
        let mixed = files.copy();
        mixed.edit(&name, |content| *content = bytes);
        let refused = open(&mixed).unwrap_err();
        assert!(matches!(refused, DataDirError::Stranger { .. }), "{name}: {refused}");
    }
}

#[test]
fn empty_taken_and_half_founded_directories_say_what_to_do() {
    let files = SimFiles::default();
    let error = open(&files).unwrap_err();
    assert!(matches!(error, DataDirError::Empty { .. }), "{error}");
    drop(found(&files));
    let error = try_found(&files).unwrap_err();
    assert!(matches!(error, DataDirError::Founded { .. }), "{error}");
    for (name, _) in files.all() {
        let rest = files.copy();
        rest.remove(&name).unwrap();
        let error = try_found(&rest).unwrap_err();
        assert!(matches!(error, DataDirError::Founded { .. }), "without {name}: {error}");
        assert!(open(&rest).is_err(), "without {name}");
    }
    files.create("founding").unwrap();
    let error = open(&files).unwrap_err();
    assert!(matches!(error, DataDirError::HalfFounded { .. }), "{error}");
}

/// A marker says that a bootstrap was cut short, and anybody can make one.
#[test]
fn a_marker_of_founding_beside_anything_else_deletes_nothing() {
    let used = SimFiles::default();
    drop(found(&used));
    used.create("founding").unwrap();
    let refused = |files: &SimFiles, name: &str| {
        let before = files.all();
        let error = try_found(files).unwrap_err();
        assert!(
            matches!(&error, DataDirError::Occupied { found, .. } if found.contains(&name.into()))
        );
        assert!(error.to_string().contains("remove founding"), "{error}");
        assert_eq!(files.all(), before, "{name}: nothing was changed");
    };
    let lone = |name: &str, bytes: Vec<u8>| {
        let lone = SimFiles::default();
        lone.create("founding").unwrap();
        lone.create(name).map(drop).or_else(ignore_taken).unwrap();
        lone.edit(name, |content| *content = bytes);
        lone
    };
    refused(&used, "acked");
    for (name, bytes) in used.all() {
        if !name.starts_with("snapshot-") && name != "founding" {
            refused(&lone(&name, bytes), &name);
        }
    }
    let first = "snapshot-00000000000000000001";
    let (_, snapshot) = used.all().into_iter().find(|(name, _)| name == first).unwrap();
    found(&lone(first, snapshot.clone()));
    found(&lone(&format!("{first}.tmp"), snapshot[..snapshot.len() / 2].to_vec()));
    let mut other = snapshot.clone();
    let at = other.len() - 6;
    other[at] ^= 0x55;
    refused(&lone(first, other), first);
    refused(&lone(first, [&*snapshot, b"x"].concat()), first);
    refused(&lone("founding", b"x".to_vec()), "founding");
    refused(&lone("notes", b"x".to_vec()), "notes");
    refused(&lone("snapshot-00000000000000000002", snapshot), "snapshot-00000000000000000002");
}

fn ignore_taken(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

#[test]
fn files_of_a_later_format_are_left_to_the_later_program() {
    let files = SimFiles::default();
    drop(found(&files));
    for (name, mut bytes) in files.all() {
        // A later version with a right checksum, as a later program would write it.
        let (end, from) = match name.get(..3) {
            Some("ack") => (56, 56),
            Some("wal") => (76, 76),
            Some(_) | None => (64, 64),
        };
        bytes[8] = 2;
        let sum = crc32fast::hash(&bytes[..end]).to_le_bytes();
        bytes[from..from + 4].copy_from_slice(&sum);
        let later = files.copy();
        later.edit(&name, |content| *content = bytes.clone());
        if name == "acked" {
            // All of its marks must be later ones.
            later.edit(&name, |content| content.truncate(512));
        }
        let refused = open(&later).unwrap_err();
        assert!(
            matches!(refused, DataDirError::Newer { found: 2, known: 1, .. }),
            "{name}: {refused}"
        );
    }
}

#[test]
fn segments_that_are_too_small_or_odd_are_refused() {
    for segment_bytes in [0, 4095, 4097, u64::MAX] {
        let options = DiskOptions { segment_bytes, ..DiskOptions::default() };
        let error = Disk::open(Arc::new(SimFiles::default()), options).unwrap_err();
        assert!(matches!(error, DataDirError::Options(_)), "{error}");
    }
    assert_eq!(SEGMENT_BYTES, 4096);
}

#[test]
fn founding_gives_every_member_the_same_start() {
    let one = Founding::cluster(Settings::default(), Members::new());
    let two = Founding::cluster(Settings::default(), Members::new());
    assert_eq!((one.place, one.replicated.encode()), (two.place, two.replicated.encode()));
}

/// `docs/formats.md` in code.
#[test]
fn files_are_laid_out_as_documented() {
    let files = SimFiles::default();
    let opened = found(&files);
    let (mut model, mut disk) = (Model::new(&opened), opened.disk);
    commit_all(&mut model, &mut disk, 1);
    let nothing = model.batch(Vec::new(), None);
    let number = nothing.number;
    assert_eq!(disk.write(&[nothing]).unwrap(), Some(number), "confirmed, and not written");
    disk.close().unwrap();
    let all = files.all();
    let u32_at = |bytes: &[u8], at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    let u64_at = |bytes: &[u8], at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    let crc = |from: u32, bytes: &[u8]| {
        let mut hasher = crc32fast::Hasher::new_with_initial(from);
        hasher.update(bytes);
        hasher.finalize()
    };
    let prefix = |bytes: &[u8]| {
        assert_eq!((u32_at(bytes, 8), u32_at(bytes, 12)), (1, 0));
        assert_eq!((u64_at(bytes, 16), u64_at(bytes, 24)), (0xc1, 0));
        assert_eq!((u64_at(bytes, 32), u64_at(bytes, 40)), (1, 0x11fe));
        String::from_utf8(bytes[..8].to_vec()).unwrap()
    };

    let wal = &all["wal-00000000000000000001"];
    assert_eq!(prefix(wal), "regntwal");
    assert_eq!([48, 56, 64].map(|at| u64_at(wal, at)), [1, 1, SEGMENT_BYTES]);
    assert_eq!((u32_at(wal, 72), u32_at(wal, 76)), (0, crc(0, &wal[..76])));
    let (mut at, mut chain, mut records) = (80, 0, Vec::new());
    while wal[at] != 0 {
        assert_eq!(&wal[at..at + 3], b"rec");
        let length = u32_at(wal, at + 4) as usize;
        assert_eq!(u64_at(wal, at + 8), records.len() as u64 + 1, "numbers rise by one");
        assert_eq!(u32_at(wal, at + 24), chain);
        let head = u32_at(wal, at + 28);
        assert_eq!(head, crc(u32_at(wal, 76), &wal[at..at + 28]));
        let body = at + 32..at + 32 + length.next_multiple_of(8);
        chain = u32_at(wal, body.end);
        assert_eq!(chain, crc(head, &wal[body.clone()]));
        assert_eq!(&wal[body.end + 4..body.end + 8], b"end.");
        records.push((wal[at + 3], u64_at(wal, at + 16), wal[at + 32..at + 32 + length].to_vec()));
        at = body.end + 8;
    }
    let kinds: Vec<(u8, u64)> =
        records.iter().map(|(kind, durable, _)| (*kind, *durable)).collect();
    assert_eq!(kinds, [(1, 0), (3, 1), (2, 1), (2, 3)]);
    let opening = &records[0].2;
    assert_eq!([0, 8, 16, 24, 32, 40].map(|at| u64_at(opening, at)), [1, 0, 1, 0, 1, 1]);
    assert_eq!(records[1].2, 1u64.to_le_bytes(), "the first boot");
    assert_eq!(records[2].2, [0, 1, 1, 0, 1, 0], "no snapshot, the hard state, no entries");
    assert_eq!(records[3].2[..9], [0, 1, 1, 0, 2, 1, 1, 1, 2], "commit 2, one ordinary entry, 2");

    let acked = &all["acked"];
    let marks: Vec<u64> = [0, 512, 1024]
        .into_iter()
        .filter_map(|at| acked.get(at..at + 60))
        .filter(|slot| u32_at(slot, 56) == crc(0, &slot[..56]))
        .inspect(|slot| assert_eq!(prefix(slot), "regntack"))
        .map(|slot| u64_at(slot, 48))
        .collect();
    assert_eq!(marks.into_iter().max(), Some(4), "the last record");

    let snapshot = &all["snapshot-00000000000000000001"];
    assert_eq!(prefix(snapshot), "regntsnp");
    let replicated = founding().replicated.encode();
    let place = [1, 1, 0, 0, 0, 0, 1, 1];
    assert_eq!(
        [48, 56].map(|at| u64_at(snapshot, at)),
        [place.len() as u64, replicated.len() as u64]
    );
    assert_eq!(u32_at(snapshot, 64), crc(0, &snapshot[..64]));
    assert_eq!(snapshot[68..76], place, "one voter, index 1, Raft term 1");
    assert_eq!(snapshot[76..76 + replicated.len()], replicated);
    let sum = crc(u32_at(snapshot, 64), &snapshot[68..76 + replicated.len()]);
    assert_eq!(snapshot[76 + replicated.len()..], sum.to_le_bytes());
}
