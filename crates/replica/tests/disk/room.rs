//! A full disk refuses and recovers; a failed sync is the end (semantics 29).

use std::sync::Arc;

use regent_replica::disk::error::{DataDirError, SnapshotError, WriteError};
use regent_replica::disk::limits::SPARE_SEGMENTS;
use regent_replica::disk::{Disk, DiskOptions};

use super::model::{Model, SEGMENT_BYTES, digest, entry, found, identity, open, options};
use super::sim::{Dice, SimFiles};

fn full() -> (SimFiles, Disk, Model) {
    let files = SimFiles::default();
    let opened = found(&files);
    let model = Model::new(&opened);
    assert!(opened.disk.reserve().fill().unwrap(), "there is room at first");
    files.leave_room(Some(100));
    (files, opened.disk, model)
}

fn next(model: &mut Model) -> regent_replica::io::Batch {
    let index = model.now().last().0 + 1;
    let entries = (index..index + 8).map(|index| entry(index, 1, 50)).collect();
    model.batch(entries, None)
}

#[test]
fn the_reserve_outlasts_the_room_and_then_nothing_half_is_written() {
    let (files, mut disk, mut model) = full();
    let mut is_told = false;
    let mut written = 0;
    let refused = loop {
        let batch = next(&mut model);
        match disk.write(std::slice::from_ref(&batch)) {
            Ok(_) => written += 1,
            Err(error) => break (batch, error),
        }
        // The driver asks after every write, and tells the core.
        let has_room = disk.reserve().fill().unwrap();
        assert_eq!(has_room, disk.reserve().has_room());
        is_told |= !has_room;
        assert_eq!(has_room, disk.segments() == 1, "told as soon as a spare cannot be replaced");
    };
    assert!(is_told && matches!(refused.1, WriteError::NoRoom { .. }), "{}", refused.1);
    assert_eq!((disk.segments(), disk.reserve().ready()), (1 + SPARE_SEGMENTS, 0));
    assert!(written >= 3 * SPARE_SEGMENTS, "only {written} batches fitted into the reserve");

    let before = files.all();
    assert!(matches!(disk.write(std::slice::from_ref(&refused.0)), Err(WriteError::NoRoom { .. })));
    assert!(files.all() == before, "a refusal leaves nothing behind");
    assert!(!disk.reserve().fill().unwrap());
    assert!(files.all() == before, "nor does the attempt to make a spare");

    files.leave_room(None);
    assert_eq!(disk.write(std::slice::from_ref(&refused.0)).unwrap(), Some(refused.0.number));
    assert!(disk.reserve().fill().unwrap() && disk.reserve().has_room(), "it goes on by itself");
    drop(disk);
    files.power_cut(&mut Dice(7));
    let opened = open(&files).unwrap();
    assert_eq!(model.check(&opened, model.states.len() - 1), model.states.len() - 1);
    assert_eq!(opened.disk.reserve().ready(), SPARE_SEGMENTS, "the reserve outlives the power too");
}

#[test]
fn a_full_disk_still_starts_and_votes() {
    let (files, mut disk, mut model) = full();
    while disk.segments() == 1 {
        disk.write(&[next(&mut model)]).unwrap();
    }
    drop(disk);
    files.power_cut(&mut Dice(8));
    let mut opened = open(&files).unwrap();
    let state = model.check(&opened, model.states.len() - 1);
    model.resume(&opened, state);
    assert!(!opened.disk.reserve().fill().unwrap());
    let mut vote = model.now().hard_state.clone();
    (vote.term, vote.vote) = (9, 1);
    let batch = model.batch(Vec::new(), Some(vote.clone()));
    opened.disk.write(&[batch]).unwrap();
    drop(opened);
    assert_eq!(open(&files).unwrap().recovered.hard_state, vote);
}

#[test]
fn snapshots_that_do_not_fit_are_refused_whole() {
    let (files, mut disk, mut model) = full();
    disk.write(&[next(&mut model)]).unwrap();
    let mut commit = model.now().hard_state.clone();
    commit.commit = model.now().last().0;
    let batch = model.batch(Vec::new(), Some(commit));
    disk.write(&[batch]).unwrap();
    let before = files.all();
    let task = model.task().unwrap();
    let refused = disk.snapshots().make(&task).unwrap_err();
    assert!(matches!(refused, SnapshotError::Write(WriteError::NoRoom { .. })), "{refused}");
    let install = model.install(5, 2);
    let refused = disk.write(std::slice::from_ref(&install)).unwrap_err();
    assert!(matches!(refused, WriteError::NoRoom { .. }), "{refused}");
    assert!(files.all() == before, "nothing is left behind");
    files.leave_room(None);
    disk.snapshots().make(&task).unwrap();
    disk.write(&[install]).unwrap();
    drop(disk);
    files.power_cut(&mut Dice(9));
    let recovered = open(&files).unwrap().recovered;
    assert_eq!(recovered.place, model.snapshots.last().unwrap().0);
}

#[test]
fn a_batch_planned_over_several_segments_is_refused_as_a_whole() {
    let (files, mut disk, mut model) = full();
    let batches: Vec<_> = (0..20).map(|_| next(&mut model)).collect();
    let before = files.all();
    assert!(matches!(disk.write(&batches), Err(WriteError::NoRoom { .. })));
    assert!(files.all() == before);
    assert_eq!(disk.reserve().ready(), SPARE_SEGMENTS, "what was set aside is given back");
    files.leave_room(None);
    disk.write(&batches).unwrap();
    drop(disk);
    files.power_cut(&mut Dice(10));
    model.check(&open(&files).unwrap(), 20);
}

#[test]
fn founding_on_a_full_disk_is_refused_and_can_be_done_later() {
    for free in [0, 100, 1000, SEGMENT_BYTES as usize] {
        let files = SimFiles::default();
        files.leave_room(Some(free));
        let refused = super::model::try_found(&files).unwrap_err();
        let text = refused.to_string();
        assert!(
            matches!(refused, DataDirError::Write(_) | DataDirError::Io { .. }),
            "{free}: {text}"
        );
        files.leave_room(None);
        found(&files);
    }
}

#[test]
fn a_failed_sync_is_the_end_and_forgets_nothing_confirmed() {
    for fails_in in 1..12 {
        let files = SimFiles::default();
        let opened = found(&files);
        let mut model = Model::new(&opened);
        let mut disk = opened.disk;
        files.fail_sync_in(fails_in);
        let mut confirmed = 0;
        let error = loop {
            match disk.write(&[next(&mut model)]) {
                Ok(_) => confirmed = model.states.len() - 1,
                Err(error) => break error,
            }
            assert!(confirmed < 100, "the sync never failed");
        };
        assert!(matches!(error, WriteError::Fatal { .. }), "{error}");
        assert!(error.to_string().contains("must end"), "{error}");
        let before = files.all();
        assert!(matches!(disk.write(&[next(&mut model)]), Err(WriteError::Fatal { .. })));
        assert!(matches!(disk.purge(), Err(WriteError::Fatal { .. })));
        assert!(matches!(disk.close(), Err(WriteError::Fatal { .. })));
        assert!(files.all() == before, "nothing is written after a failure");
        files.power_cut(&mut Dice(fails_in as u64));
        let opened = open(&files).unwrap_or_else(|error| panic!("failed in {fails_in}: {error}"));
        model.check(&opened, confirmed);
    }
}

#[test]
fn what_a_failed_sync_left_in_memory_only_is_written_again_before_it_counts() {
    for fails_in in 1..12 {
        let files = SimFiles::default();
        let opened = found(&files);
        let mut model = Model::new(&opened);
        let mut disk = opened.disk;
        files.fail_sync_in(fails_in);
        while disk.write(&[next(&mut model)]).is_ok() {}
        drop(disk);
        // Only the process ends: the next one reads what the disk never got, and goes on from it.
        files.kill();
        let opened = open(&files).unwrap();
        let state = model.check(&opened, 0);
        model.resume(&opened, state);
        let mut disk = opened.disk;
        for _ in 0..3 {
            disk.write(&[next(&mut model)]).unwrap();
        }
        drop(disk);
        files.power_cut(&mut Dice(fails_in as u64));
        let opened = open(&files).unwrap_or_else(|error| panic!("failed in {fails_in}: {error}"));
        model.check(&opened, model.states.len() - 1);
    }
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_own() {
    let files = SimFiles::default();
    let opened = found(&files);
    let mut model = Model::new(&opened);
    let mut disk = opened.disk;
    disk.write(&[next(&mut model)]).unwrap();
    let index = model.now().last().0 + 1;
    let large = (index..index + 200).map(|index| entry(index, 1, 50)).collect();
    let batches = [next(&mut model), model.batch(large, None), next(&mut model)];
    assert!(batches[1].entries.len() == 200 && disk.segments() == 1);
    // The one in the middle overlaps the first, as a conflicting suffix does.
    disk.write(&batches).unwrap();
    let large = files.all().values().map(Vec::len).max().unwrap();
    assert!(large as u64 > 2 * SEGMENT_BYTES, "{large}");
    drop(disk);
    files.power_cut(&mut Dice(11));
    model.check(&open(&files).unwrap(), model.states.len() - 1);
}

#[test]
fn segments_may_change_their_size_between_two_runs() {
    let files = SimFiles::default();
    let opened = found(&files);
    opened.disk.reserve().fill().unwrap();
    let mut model = Model::new(&opened);
    drop(opened);
    for segment_bytes in [8192, 4096, 65536] {
        let options = DiskOptions { segment_bytes, ..options() };
        let mut opened = Disk::open(Arc::new(files.clone()), options).unwrap();
        let state = model.check(&opened, model.states.len() - 1);
        model.resume(&opened, state);
        assert_eq!(opened.disk.reserve().ready(), 0, "spares of another size are let go");
        assert_eq!(opened.identity, identity());
        for _ in 0..20 {
            opened.disk.write(&[next(&mut model)]).unwrap();
        }
        opened.disk.reserve().fill().unwrap();
        model.confirmed = model.states.len() - 1;
        opened.disk.close().unwrap();
    }
    let found = digest(&open(&files).unwrap().recovered);
    assert_eq!(found.1, 1 + 60 * 8);
}
