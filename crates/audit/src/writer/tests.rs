//! Whole logs, written, broken, continued and judged.

use std::fs;

use regent_signing::{KeyEntry, PublicKeys, SigningAlgorithm};

use super::*;
use crate::chain::{Defect, Omission, Report};
use crate::files::of_directory;
use crate::limits::BYTES_MIN;
use crate::reader;

fn act(verb: &str) -> Act {
    Act {
        who: Some("user:alice".to_owned()),
        from: "10.0.0.1".to_owned(),
        verb: verb.to_owned(),
        code: "OK".to_owned(),
        ..Act::default()
    }
}

fn key(byte: u8) -> KeyEntry {
    KeyEntry::new(SigningAlgorithm::EdDsa, &[byte; 32], 0, 0).unwrap()
}

fn signer(byte: u8) -> Option<Sign> {
    let entry = key(byte);
    let pair = entry.pair().unwrap();
    Some(Box::new(move |checkpoint| checkpoint.sign(&entry.kid, &pair)))
}

fn public(byte: u8) -> PublicKeys {
    PublicKeys::new([key(byte).pair().unwrap().public().clone()])
}

fn run(directory: &Path, verbs: &[&str]) {
    let audit = Audit::start(directory, 1 << 20, "main", signer(1)).unwrap();
    verbs.iter().for_each(|verb| audit.changed(act(verb)));
}

fn judge(directory: &Path) -> Report {
    reader::verify(directory, Some(&public(1)), None).unwrap()
}

fn only_file(directory: &Path) -> PathBuf {
    let files = of_directory(directory).unwrap();
    assert_eq!(files.len(), 1);
    files[0].1.clone()
}

fn words(directory: &Path) -> Vec<String> {
    let mut words = Vec::new();
    reader::lines(directory, |line, _| {
        let act = line.content.act();
        words.push(act.map_or_else(|| line.content.word().to_owned(), |act| act.verb.clone()));
        Ok::<_, reader::ReadError>(())
    })
    .unwrap();
    words
}

/// Writes the lines of a log anew, changed by somebody.
fn edit(directory: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let path = only_file(directory);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(&path, lines.join("\n") + "\n").unwrap();
}

/// Writes a line at once.
fn write(writer: &mut Writer, at_ms: u64, content: Content) {
    writer.add(at_ms, content);
    writer.flush();
}

#[test]
fn a_restart_continues_the_chain_and_it_is_signed_to_its_end() {
    let room = tempfile::tempdir().unwrap();
    run(room.path(), &["a", "b"]);
    run(room.path(), &["c"]);
    let wanted = ["begin", "a", "b", "end", "checkpoint", "start", "c", "end", "checkpoint"];
    assert_eq!(words(room.path()), wanted);
    let report = judge(room.path());
    assert!(report.is_complete() && report.has_ended, "{report:?}");
    assert_eq!((report.first, report.head.seq, report.signed_to), (1, 9, Some(8)));
    let other = reader::verify(room.path(), Some(&public(2)), None).unwrap();
    assert_eq!(other.defects, [Defect::Unsigned]);
    assert_eq!(other.checkpoints_unknown, 2);
}

type Edit = fn(&mut Vec<String>);
type Meant = fn(&Defect) -> bool;

#[test]
fn a_line_that_is_changed_missing_doubled_or_moved_is_found() {
    let changes: [(&str, Edit, Meant); 5] = [
        (
            "changed",
            |lines| lines[2] = lines[2].replace("alice", "bob"),
            |defect| matches!(defect, Defect::Changed { seq: 4, .. }),
        ),
        (
            "removed",
            |lines| drop(lines.remove(2)),
            |defect| matches!(defect, Defect::Missing { from: 3, to: 3, .. }),
        ),
        (
            "doubled",
            |lines| lines.insert(3, lines[2].clone()),
            |defect| matches!(defect, Defect::Repeated { seq: 3, .. }),
        ),
        (
            "moved",
            |lines| lines.swap(2, 3),
            |defect| matches!(defect, Defect::Missing { from: 3, to: 3, .. }),
        ),
        (
            "garbled",
            |lines| lines[2] = "{".to_owned(),
            |defect| matches!(defect, Defect::Unreadable { .. }),
        ),
    ];
    for (what, change, is_meant) in changes {
        let room = tempfile::tempdir().unwrap();
        run(room.path(), &["a", "b", "c", "d"]);
        assert!(judge(room.path()).is_intact());
        edit(room.path(), change);
        let report = judge(room.path());
        assert!(report.defects.iter().any(is_meant), "{what}: {report:?}");
    }
}

#[test]
fn a_chain_that_is_written_anew_without_the_key_is_found() {
    let room = tempfile::tempdir().unwrap();
    run(room.path(), &["a", "b"]);
    let kept = judge(room.path()).head;
    // Somebody removes a line and makes all hashes fit again, checkpoint included.
    edit(room.path(), |lines| {
        lines.remove(1);
        let mut head = Head::none();
        for text in lines.iter_mut() {
            let mut line: Line = serde_json::from_str(text).unwrap();
            (line.seq, line.prev) = (head.seq + 1, head.hash);
            *text = serde_json::to_string(&line).unwrap();
            head = Head::after(line.seq, text.as_bytes());
        }
    });
    let report = judge(room.path());
    assert!(
        matches!(report.defects[..], [Defect::Checkpoint { .. }, Defect::Unsigned]),
        "{report:?}"
    );
    let unsigned = reader::verify(room.path(), None, None).unwrap();
    assert!(unsigned.is_intact(), "without keys the chain alone cannot tell: {unsigned:?}");
    let compared = reader::verify(room.path(), None, Some(kept)).unwrap();
    assert!(matches!(compared.defects[..], [Defect::CutOff { .. }]), "{compared:?}");
}

#[test]
fn an_end_that_was_cut_off_is_found_by_a_head_that_was_kept() {
    let room = tempfile::tempdir().unwrap();
    run(room.path(), &["a", "b"]);
    let kept = judge(room.path()).head;
    assert_eq!(kept.to_string().parse::<Head>(), Ok(kept.clone()));
    assert!(reader::verify(room.path(), None, Some(kept.clone())).unwrap().is_intact());
    run(room.path(), &["c"]);
    assert!(reader::verify(room.path(), None, Some(kept.clone())).unwrap().is_intact());
    edit(room.path(), |lines| lines.truncate(4));
    assert!(reader::verify(room.path(), None, None).unwrap().is_intact(), "nothing shows it");
    let compared = reader::verify(room.path(), None, Some(kept)).unwrap();
    assert!(matches!(compared.defects[..], [Defect::CutOff { last: 4, kept: 5 }]), "{compared:?}");
}

#[test]
fn half_a_line_after_a_kill_is_repaired_and_recorded() {
    let room = tempfile::tempdir().unwrap();
    run(room.path(), &["a"]);
    let path = only_file(room.path());
    // As a kill leaves it: without an end, and with half a line.
    let text = fs::read_to_string(&path).unwrap();
    let kept: Vec<&str> = text.lines().take(2).collect();
    fs::write(&path, kept.join("\n") + "\n{\"seq\":3,\"pre").unwrap();
    assert_eq!(reader::verify(room.path(), None, None).unwrap().torn_bytes, 13);
    run(room.path(), &["b"]);
    let wanted = ["begin", "a", "repaired", "start", "b", "end", "checkpoint"];
    assert_eq!(words(room.path()), wanted);
    let report = judge(room.path());
    assert!(report.is_intact() && !report.is_complete(), "{report:?}");
    let wanted = [Omission::Repaired { seq: 3, bytes: 13 }, Omission::Killed { seq: 4 }];
    assert_eq!(report.found, wanted);
}

#[test]
fn a_chain_that_does_not_hold_is_left_as_it_is_and_another_begins() {
    let room = tempfile::tempdir().unwrap();
    run(room.path(), &["a", "b"]);
    edit(room.path(), |lines| lines[1] = lines[1].replace("alice", "bob"));
    let before = fs::read_to_string(only_file(room.path())).unwrap();
    run(room.path(), &["c"]);
    let files = of_directory(room.path()).unwrap();
    assert_eq!(files.len(), 2);
    assert_eq!(fs::read_to_string(&files[0].1).unwrap(), before);
    let report = judge(room.path());
    let why = report.defects.iter().find_map(|defect| match defect {
        Defect::NewChain { why, .. } => Some(why.clone()),
        _ => None,
    });
    assert_eq!(why.as_deref(), Some("line 3 of the newest file does not follow"));
}

#[test]
fn a_line_with_the_last_of_all_numbers_ends_its_chain_and_no_process() {
    let room = tempfile::tempdir().unwrap();
    run(room.path(), &["a"]);
    edit(room.path(), |lines| {
        let mut line: Line = serde_json::from_str(&lines[0]).unwrap();
        line.seq = u64::MAX;
        *lines = vec![serde_json::to_string(&line).unwrap()];
    });
    run(room.path(), &["b"]);
    let report = judge(room.path());
    let begins_anew =
        |defect: &Defect| matches!(defect, Defect::NewChain { why, .. } if why.contains("number"));
    assert!(report.defects.iter().any(begins_anew), "{report:?}");
    assert_eq!(words(room.path())[1..3], ["begin", "b"]);
}

#[test]
fn old_files_go_and_what_is_left_can_be_verified_and_says_where_it_begins() {
    let room = tempfile::tempdir().unwrap();
    let audit = Audit::start(room.path(), BYTES_MIN, "main", signer(1)).unwrap();
    // The queue is longer than this: nothing is lost.
    (0..3000).for_each(|number| audit.changed(act(&format!("v{number}"))));
    drop(audit);
    let files = of_directory(room.path()).unwrap();
    assert!(files.len() <= 9 && files[0].0 > 1, "{files:?}");
    let bytes: u64 = files.iter().map(|(_, path)| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes < 2 * BYTES_MIN, "{bytes}");
    let report = judge(room.path());
    assert!(report.is_complete(), "{report:?}");
    assert!(report.first > 1 && report.head.seq > 3000, "{report:?}");
    // One more that goes was not removed by the log itself.
    fs::remove_file(&files[0].1).unwrap();
    let report = judge(room.path());
    assert!(matches!(report.defects[..], [Defect::StartMissing { .. }]), "{report:?}");
    fs::remove_file(&files[3].1).unwrap();
    assert!(judge(room.path()).defects.iter().any(|it| matches!(it, Defect::Missing { .. })));
}

#[test]
fn what_found_no_room_stands_in_the_chain_as_a_gap_where_it_is_missing() {
    let room = tempfile::tempdir().unwrap();
    let shared = Arc::<Shared>::default();
    let mut writer = Writer::open(room.path(), 1 << 20, "main", None, Arc::clone(&shared)).unwrap();
    let (queue, queued) = sync_channel(2);
    let audit = Audit { queue: Some(queue), shared, thread: None };
    ["a", "b", "c", "d"].iter().for_each(|verb| audit.changed(act(verb)));
    assert_eq!(audit.figures().lost, 2);
    queued.try_iter().for_each(|queued| writer.take(queued));
    ["e", "f", "g"].iter().for_each(|verb| audit.changed(act(verb)));
    drop(audit);
    writer.run(&queued);
    assert_eq!(words(room.path()), ["begin", "a", "b", "gap", "e", "f", "gap", "end"]);
    let report = reader::verify(room.path(), None, None).unwrap();
    let lost: Vec<_> = report.found.iter().map(ToString::to_string).collect();
    assert!(report.is_intact() && !report.is_complete(), "{report:?}");
    assert!(lost[0].contains("2 lines were lost") && lost[1].contains("1 lines"), "{lost:?}");
}

#[test]
fn a_disk_that_refuses_is_told_and_its_lines_are_counted_as_lost() {
    let room = tempfile::tempdir().unwrap();
    let shared = Arc::<Shared>::default();
    let mut writer = Writer::open(room.path(), 1 << 20, "main", None, Arc::clone(&shared)).unwrap();
    write(&mut writer, 1, Content::Change(act("a")));
    // The file is open for reading only: writing to it is refused.
    let files = &mut writer.chain.as_mut().unwrap().files;
    files.replace_file(fs::File::open(only_file(room.path())).unwrap());
    write(&mut writer, 2, Content::Change(act("b")));
    write(&mut writer, 3, Content::Change(act("c")));
    assert!(shared.is_failing.load(Ordering::Relaxed));
    assert_eq!(shared.lost.load(Ordering::Relaxed), 2);
    writer.refused_at = Moment::ZERO;
    write(&mut writer, 4, Content::Change(act("d")));
    assert!(!shared.is_failing.load(Ordering::Relaxed));
    drop(writer);
    assert_eq!(words(room.path()), ["begin", "a", "start", "gap", "d"]);
}

/// Lines are written together, and counted one by one.
#[test]
fn of_a_batch_that_the_disk_takes_in_part_only_the_rest_is_lost() {
    let room = tempfile::tempdir().unwrap();
    let shared = Arc::<Shared>::default();
    let mut writer = Writer::open(room.path(), 1 << 30, "main", None, Arc::clone(&shared)).unwrap();
    // A pipe that nobody reads has room for less than this.
    let (mut taken, pipe) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).unwrap();
    let file = fs::File::from(std::os::fd::OwnedFd::from(pipe));
    writer.chain.as_mut().unwrap().files.replace_file(file);
    let count = 2000;
    (0..count).for_each(|number| writer.add(number, Content::Change(act("a"))));
    assert_eq!(shared.lost.load(Ordering::Relaxed), 0);
    writer.flush();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut taken, &mut bytes).unwrap();
    let whole = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert!(whole > 0 && whole < count, "{whole}");
    assert_eq!(shared.lost.load(Ordering::Relaxed), count - whole);
    write(&mut writer, 1, Content::Change(act("b")));
    assert_eq!(
        shared.lost.load(Ordering::Relaxed),
        count - whole + 1,
        "it is left alone for a while"
    );
    writer.refused_at = Moment::ZERO;
    write(&mut writer, 1, Content::Change(act("c")));
    assert_eq!(words(room.path()), ["begin", "start", "gap", "c"]);
    let report = reader::verify(room.path(), None, None).unwrap();
    let lost = count - whole + 1;
    assert!(
        report
            .found
            .iter()
            .any(|it| matches!(it, Omission::Gap { lost: told, .. } if *told == lost))
    );
}

/// A log to which nothing is added is neither synced nor signed again.
#[test]
fn an_idle_log_is_left_alone() {
    let room = tempfile::tempdir().unwrap();
    let shared = Arc::<Shared>::default();
    let mut writer = Writer::open(room.path(), 1 << 20, "main", signer(1), shared).unwrap();
    writer.checkpoint();
    for _ in 0..3 {
        writer.flush();
        writer.keep_up();
    }
    assert_eq!((writer.uncovered_since, writer.unsynced_since), (None, None));
}

#[test]
fn two_processes_do_not_write_one_log() {
    let room = tempfile::tempdir().unwrap();
    let _first = Audit::start(room.path(), 1 << 20, "main", None).unwrap();
    let error = Audit::start(room.path(), 1 << 20, "main", None).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    let error = Audit::start(room.path(), 5, "main", None).unwrap_err();
    assert!(matches!(error, OpenError::TooSmall { bytes: 5 }), "{error}");
}

#[test]
fn lines_that_go_from_the_beginning_of_the_log_are_found() {
    let room = tempfile::tempdir().unwrap();
    run(room.path(), &["a", "b", "c"]);
    edit(room.path(), |lines| drop(lines.drain(..3)));
    let report = judge(room.path());
    assert!(
        matches!(report.defects[..], [Defect::NoBeginning { seq: 4, .. }]),
        "begin, a and b were removed: {report:?}"
    );
}

#[test]
fn files_that_are_removed_and_renamed_are_found() {
    let room = tempfile::tempdir().unwrap();
    let audit = Audit::start(room.path(), BYTES_MIN, "main", signer(1)).unwrap();
    (0..150).for_each(|number| audit.changed(act(&format!("v{number}"))));
    drop(audit);
    let files = of_directory(room.path()).unwrap();
    assert!(files.len() > 2 && files[0].0 == 1, "{files:?}");
    assert!(judge(room.path()).is_complete());
    // The first file goes, and every other takes the name of the one before.
    files.windows(2).for_each(|two| fs::rename(&two[1].1, &two[0].1).unwrap());
    let report = judge(room.path());
    let renamed = |defect: &Defect| matches!(defect, Defect::Renamed { place, file } if place.file + 1 == *file);
    assert!(report.defects.iter().any(renamed), "{report:?}");
}

#[test]
fn a_chain_whose_predecessor_was_removed_says_so() {
    let room = tempfile::tempdir().unwrap();
    run(room.path(), &["a", "b"]);
    edit(room.path(), |lines| lines[1] = lines[1].replace("alice", "bob"));
    run(room.path(), &["c"]);
    let files = of_directory(room.path()).unwrap();
    fs::rename(&files[1].1, &files[0].1).unwrap();
    let report = judge(room.path());
    assert!(matches!(report.defects[..], [Defect::NewChain { .. }]), "{report:?}");
}

/// Who has no key can write behind the last checkpoint. What stands there explains no file that is missing.
#[test]
fn a_forged_word_of_removed_files_explains_nothing() {
    let room = tempfile::tempdir().unwrap();
    let audit = Audit::start(room.path(), BYTES_MIN, "main", signer(1)).unwrap();
    (0..150).for_each(|number| audit.changed(act(&format!("v{number}"))));
    drop(audit);
    let files = of_directory(room.path()).unwrap();
    let Head { seq, hash } = judge(room.path()).head;
    let (newest, path) = files.last().unwrap();
    let forged =
        Line { seq: seq + 1, prev: hash, at_ms: 1, content: Content::Trimmed { file: *newest } };
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, text + &serde_json::to_string(&forged).unwrap() + "\n").unwrap();
    let (_, others) = files.split_last().unwrap();
    others.iter().for_each(|(_, path)| fs::remove_file(path).unwrap());
    let report = judge(room.path());
    assert!(matches!(report.defects[..], [Defect::StartMissing { .. }]), "{report:?}");
}

/// The word that explains removed files is signed before they go: a kill right after leaves a log that verifies.
#[test]
fn files_go_only_after_the_word_of_it_is_signed() {
    let room = tempfile::tempdir().unwrap();
    let shared = Arc::<Shared>::default();
    let mut writer = Writer::open(room.path(), BYTES_MIN, "main", signer(1), shared).unwrap();
    let is_trimmed = |path: &Path| of_directory(path).unwrap()[0].0 > 1;
    while !is_trimmed(room.path()) {
        write(&mut writer, 1, Content::Change(act("a")));
        writer.keep_up();
    }
    // As a kill leaves it.
    drop(writer);
    let report = judge(room.path());
    assert!(report.is_intact(), "{report:?}");
}

#[test]
fn a_file_with_the_last_of_all_numbers_ends_no_process() {
    let room = tempfile::tempdir().unwrap();
    fs::write(room.path().join(format!("audit-{}.jsonl", u64::MAX)), "{}\n").unwrap();
    let error = Audit::start(room.path(), 1 << 20, "main", None).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}
