//! What the disk costs: durable batches per second, bytes per entry, and the time to start again.
//!
//! `cargo bench -p regent-replica --bench disk` writes to the directory for temporary files, or to the
//! one named by `DISK_BENCH_DIR`: choose one on the disk that is meant. Times depend on that disk and on
//! what else runs; the time without syncs shows what is ours.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use raft::eraftpb::Entry;
use regent_election::Settings;
use regent_replica::disk::{Disk, DiskOptions, Founding, Identity, Opened, RealFiles};
use regent_replica::io::Batch;
use regent_replica::{Member, Members, ReplicaId};

/// Bytes of an ordinary command.
const ENTRY_BYTES: usize = 128;

fn main() {
    // `cargo test --benches` calls this with --test: then one small round shows that it runs.
    let is_test = std::env::args().any(|word| word == "--test");
    let rounds = if is_test { 2 } else { 500 };
    let place = tempfile::tempdir_in(
        std::env::var_os("DISK_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from),
    )
    .expect("the directory for temporary files can be written");
    println!("{:<44} {:>12} {:>14}", "what", "per batch", "entries/s");
    for (entries, must_sync) in [(1, true), (16, true), (256, true), (1, false), (256, false)] {
        let name = if must_sync { "synced" } else { "not synced" };
        let path = place.path().join(format!("{name}-{entries}"));
        let (took, count) = write(found(&path), rounds, entries, must_sync);
        let what = format!("batches of {entries} × {ENTRY_BYTES} B, {name}");
        let per_second = count as f64 / took.as_secs_f64();
        println!("{what:<44} {:>12.1?} {per_second:>14.0}", took / rounds);
    }
    let path = place.path().join("start");
    let (_, count) = write(found(&path), if is_test { 2 } else { 400 }, 256, false);
    let began_at = Instant::now();
    let opened = open(&path);
    assert_eq!(opened.recovered.entries.len() as u64, count);
    println!(
        "{:<44} {:>12.1?}",
        format!("start with {count} entries in the log"),
        began_at.elapsed()
    );
}

fn write(opened: Opened, rounds: u32, entries: u64, must_sync: bool) -> (Duration, u64) {
    let mut disk = opened.disk;
    let mut index = opened.recovered.place.index;
    disk.reserve().fill().expect("the disk takes a spare segment");
    let began_at = Instant::now();
    for number in 1..=u64::from(rounds) {
        let entries: Vec<Entry> = (index + 1..=index + entries).map(entry).collect();
        index += entries.len() as u64;
        let batch = Batch { number, snapshot: None, entries, hard_state: None, must_sync };
        disk.write(&[batch]).expect("the disk takes a batch");
    }
    let took = began_at.elapsed();
    disk.close().expect("the disk takes the rest");
    (took, entries * u64::from(rounds))
}

fn entry(index: u64) -> Entry {
    let mut entry = Entry::default();
    (entry.index, entry.term) = (index, 1);
    entry.data = vec![7; ENTRY_BYTES].into();
    entry
}

fn found(path: &std::path::Path) -> Opened {
    let id = ReplicaId::new(1).expect("one is not zero");
    let member = Member {
        peer_address: "127.0.0.1:1".into(),
        client_address: "127.0.0.1:2".into(),
        is_witness: false,
    };
    let founding = Founding::cluster(Settings::default(), Members::from([(id, member)]));
    let identity = Identity { cluster: 1, replica: id, incarnation: 1 };
    Disk::found(files(path), DiskOptions::default(), identity, &founding)
        .expect("an empty directory")
}

fn open(path: &std::path::Path) -> Opened {
    Disk::open(files(path), DiskOptions::default()).expect("what was written is read")
}

fn files(path: &std::path::Path) -> Arc<RealFiles> {
    Arc::new(RealFiles::new(path).expect("a directory can be made"))
}
