//! What the durable store keeps through restarts, crashes and damage (S2, S6, S10).
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{bid, campaign, copy, group, leader, refusal, reign, secret, waiting, win};
use regent_election::store::{CampaignSession, OfficeState, Scope, Store, WatchItem};
use regent_election::{Cursor, Incarnation, Policy, Term};
use regent_stores::{LocalError, LocalStore, Options};

const FRESH_JOURNAL: &str = "journal-0.log";
const HEADER_BYTES: usize = 40;

fn files(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    names.sort();
    names
}

/// A directory with a few entries, each its own frame, and the journal's bytes without its zeros.
async fn small_store(place: &Path) -> (PathBuf, Vec<u8>, Term) {
    let directory = place.join("small");
    let store = LocalStore::open(&directory).unwrap();
    let alice = secret();
    let mut term = Term::NONE;
    for _ in 0..2 {
        term = reign(&store, "billing", alice).await;
    }
    drop(store);
    let mut bytes = fs::read(directory.join(FRESH_JOURNAL)).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes.truncate(end);
    (directory, bytes, term)
}

/// Where each frame begins, and where the last one ends.
fn frames(journal: &[u8]) -> Vec<usize> {
    let mut starts = vec![HEADER_BYTES];
    while let Some(at) = starts.last().copied().filter(|at| *at < journal.len()) {
        let length = u32::from_le_bytes(journal[at..at + 4].try_into().unwrap());
        starts.push(at + 8 + length as usize);
    }
    starts
}

#[tokio::test]
async fn everything_acknowledged_survives_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let (alice, bob) = (secret(), secret());
    let policy = Policy { lock_delay_ms: 250, ..Policy::default() };
    let store = LocalStore::open(place.path()).unwrap();
    store.put_policy(&group("billing"), Some(policy), None).await.unwrap();
    let term = win(&store, "alice", "billing", alice).await;
    assert!(campaign(&store, "bob", "billing", bob).await.unwrap().standing);
    let before = (
        store.group(&group("billing")).await.unwrap(),
        store.history(&group("billing")).await.unwrap(),
        store.session(alice).await.unwrap(),
    );
    drop(store);

    let store = LocalStore::open(place.path()).unwrap();
    let after = (
        store.group(&group("billing")).await.unwrap(),
        store.history(&group("billing")).await.unwrap(),
        store.session(alice).await.unwrap(),
    );
    assert_eq!(before.0.policy, after.0.policy);
    assert_eq!(before.0.standbys, after.0.standbys);
    assert_eq!((before.1, before.2), (after.1, after.2));
    assert_eq!(after.0.office.term, term);
    store.renew(&group("billing"), alice, term, None).await.unwrap();
    store.resign(&group("billing"), alice, term, None).await.unwrap();
    let next = win(&store, "bob", "billing", bob).await;
    assert_eq!(Some(next), term.next());
}

#[tokio::test]
async fn terms_never_fall_and_nothing_is_lost_through_restarts_and_snapshots() {
    let place = tempfile::tempdir().unwrap();
    let options = || Options {
        journal_bytes_max: 4 << 10,
        leftover_bytes_max: 1 << 10,
        ..Options::default()
    };
    let alice = secret();
    let mut last = Term::NONE;
    for round in 0..8 {
        let store = LocalStore::open_with(place.path(), options()).unwrap();
        assert_eq!(leader(&store, "kept").await.term, last, "round {round}");
        for _ in 0..120 {
            let term = reign(&store, "kept", alice).await;
            assert!(term > last);
            last = term;
        }
        let doomed = reign(&store, "doomed", alice).await;
        store.delete(&group("doomed"), None).await.unwrap();
        let again = reign(&store, "doomed", alice).await;
        assert!(again > doomed, "a deleted group's term came back");
        if round == 5 {
            store.shut_down().await;
        }
        drop(store);
        let names = files(place.path());
        assert!(names.iter().any(|name| name.ends_with(".snap")), "{names:?}");
        assert!(names.len() <= 6, "old files pile up: {names:?}");
    }
}

#[tokio::test]
async fn a_copy_taken_at_any_moment_holds_everything_acknowledged_before_it() {
    let place = tempfile::tempdir().unwrap();
    let running = place.path().join("running");
    let store = LocalStore::open(&running).unwrap();
    let alice = secret();
    for copies in 0..25 {
        let term = reign(&store, "billing", alice).await;
        let unacknowledged = campaign(&store, "alice", "billing", alice);
        let taken = place.path().join(format!("copy-{copies}"));
        let copying = std::thread::spawn({
            let (running, taken) = (running.clone(), taken.clone());
            move || copy(&running, &taken)
        });
        let next = unacknowledged.await.unwrap().elected.unwrap();
        copying.join().unwrap();
        let copied = LocalStore::open(&taken).unwrap();
        let found = leader(&copied, "billing").await.term;
        assert!(found == term || found == next, "{found} is neither {term} nor {next}");
        store.resign(&group("billing"), alice, next, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_journal_cut_anywhere_opens_to_the_frames_that_are_whole() {
    let place = tempfile::tempdir().unwrap();
    let (directory, journal, _) = small_store(place.path()).await;
    let starts = frames(&journal);
    for cut in HEADER_BYTES..journal.len() {
        fs::write(directory.join(FRESH_JOURNAL), &journal[..cut]).unwrap();
        let store = LocalStore::open(&directory).unwrap();
        let whole = starts.iter().filter(|start| **start <= cut).count() as u64 - 1;
        assert_eq!(store.census().await.unwrap().revision.0, whole, "cut at {cut}");
        // What follows a cut is as good as what follows anything else.
        store.put_policy(&group("later"), None, None).await.unwrap();
        drop(store);
        if cut % 5 == 0 {
            let store = LocalStore::open(&directory).unwrap();
            assert_eq!(store.census().await.unwrap().revision.0, whole + 1, "cut at {cut}");
            store.group(&group("later")).await.unwrap();
        }
    }
    for cut in 0..HEADER_BYTES {
        fs::write(directory.join(FRESH_JOURNAL), &journal[..cut]).unwrap();
        assert!(matches!(refusal(&directory), LocalError::Damaged { .. }), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_flipped_bit_is_cut_at_the_tail_refused_in_the_middle_and_never_believed() {
    let place = tempfile::tempdir().unwrap();
    let (directory, journal, last) = small_store(place.path()).await;
    let starts = frames(&journal);
    let last_frame = starts[starts.len() - 2];
    for at in 0..journal.len() + 16 {
        let mut bytes = journal.clone();
        bytes.resize(journal.len() + 64, 0);
        bytes[at] ^= 1 << (at % 8);
        fs::write(directory.join(FRESH_JOURNAL), &bytes).unwrap();
        if at < last_frame {
            match refusal(&directory) {
                LocalError::Damaged { offset, .. } => assert!(offset as usize <= at, "{at}"),
                other => panic!("byte {at}: {other}"),
            }
            assert_eq!(fs::read(directory.join(FRESH_JOURNAL)).unwrap(), bytes, "it was changed");
        } else {
            let store = LocalStore::open(&directory).unwrap();
            let office = leader(&store, "billing").await;
            let is_whole = at >= journal.len();
            assert_eq!(office.term, last, "byte {at}");
            // The last entry was alice's resignation.
            assert_eq!(office.state == OfficeState::Vacant, is_whole, "byte {at}");
        }
    }
}

#[tokio::test]
async fn a_damaged_snapshot_is_refused_unless_the_journals_tell_everything() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("data");
    let options = Options { leftover_bytes_max: 0, ..Options::default() };
    let store = LocalStore::open_with(&directory, options).unwrap();
    let term = reign(&store, "billing", secret()).await;
    let before = place.path().join("before");
    copy(&directory, &before);
    store.shut_down().await;
    drop(store);
    assert_eq!(files(&directory), ["journal-1.log", "state-1.snap"]);
    let path = directory.join("state-1.snap");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, bytes).unwrap();
        let error = refusal(&directory).to_string();
        assert!(error.contains("state-1.snap is damaged at byte"), "{error}");
    }
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        refusal(&directory);
    }
    let mut longer = whole.clone();
    longer.push(0);
    fs::write(&path, longer).unwrap();
    refusal(&directory);
    // The journal before it leads to the same state, so nothing is lost with the snapshot.
    fs::copy(before.join(FRESH_JOURNAL), directory.join(FRESH_JOURNAL)).unwrap();
    let store = LocalStore::open(&directory).unwrap();
    assert_eq!(leader(&store, "billing").await.term, term);
}

#[tokio::test]
async fn a_missing_foreign_or_renamed_file_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("data");
    let options = Options { leftover_bytes_max: 0, ..Options::default() };
    let store = LocalStore::open_with(&directory, options).unwrap();
    reign(&store, "billing", secret()).await;
    store.shut_down().await;
    drop(store);
    let (journal, snapshot) = (directory.join("journal-1.log"), directory.join("state-1.snap"));
    let aside = place.path().join("aside");

    for missing in [&journal, &snapshot] {
        fs::rename(missing, &aside).unwrap();
        let error = refusal(&directory);
        assert!(matches!(error, LocalError::Missing { .. }), "{error}");
        fs::rename(&aside, missing).unwrap();
    }

    let (other, _, _) = small_store(place.path()).await;
    fs::rename(&journal, &aside).unwrap();
    fs::copy(other.join(FRESH_JOURNAL), &journal).unwrap();
    assert!(refusal(&directory).to_string().contains("another number"));
    fs::rename(&aside, &journal).unwrap();

    let stranger = place.path().join("stranger");
    fs::create_dir(&stranger).unwrap();
    fs::copy(other.join(FRESH_JOURNAL), stranger.join(FRESH_JOURNAL)).unwrap();
    fs::copy(&journal, stranger.join("journal-1.log")).unwrap();
    assert!(refusal(&stranger).to_string().contains("another store"));
    LocalStore::open(&directory).unwrap();
}

#[tokio::test]
async fn files_of_a_newer_program_are_refused_with_the_version() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal, _) = small_store(place.path()).await;
    journal[8] = 9;
    let checksum = crc32fast::hash(&journal[..36]).to_le_bytes();
    journal[36..40].copy_from_slice(&checksum);
    fs::write(directory.join(FRESH_JOURNAL), journal).unwrap();
    let error = refusal(&directory);
    assert!(matches!(error, LocalError::Newer { .. }), "{error}");
    assert!(error.to_string().contains("format version 9"), "{error}");
}

#[tokio::test]
async fn a_directory_in_use_is_refused_and_free_again_afterwards() {
    let place = tempfile::tempdir().unwrap();
    let store = LocalStore::open(place.path()).unwrap();
    let error = refusal(place.path());
    assert!(matches!(error, LocalError::InUse { .. }), "{error}");
    store.shut_down().await;
    drop(store);
    LocalStore::open(place.path()).unwrap();
}

#[tokio::test]
async fn a_restart_gives_every_session_a_whole_ttl() {
    let place = tempfile::tempdir().unwrap();
    let store = LocalStore::open(place.path()).unwrap();
    let ttl_ms = 600;
    let bid_of = |node, session| bid(node, "billing", CampaignSession::Own(session), ttl_ms);
    let alice = secret();
    let term = store.campaign(bid_of("alice", alice)).await.unwrap().elected.unwrap();
    drop(store);
    tokio::time::sleep(std::time::Duration::from_millis(ttl_ms + 200)).await;

    let opening_at = regent_clock::now();
    let store = LocalStore::open(place.path()).unwrap();
    let bob = bid("bob", "billing", CampaignSession::Own(secret()), 10_000);
    let next = store.campaign(waiting(bob)).await.unwrap().elected.unwrap();
    let waited_for = regent_clock::now().since(opening_at);
    assert_eq!(Some(next), term.next());
    assert!(waited_for.as_millis() >= u128::from(ttl_ms), "succeeded after {waited_for:?}");
}

#[tokio::test]
async fn a_watch_goes_on_after_a_restart_and_says_gap_only_if_it_must() {
    let place = tempfile::tempdir().unwrap();
    let alice = secret();
    let store = LocalStore::open(place.path()).unwrap();
    let mut watch = store.watch(Scope::Prefix(String::new()), None).await.unwrap();
    reign(&store, "billing", alice).await;
    watch.next().await.unwrap();
    let cursor = watch.cursor();
    drop(watch);
    reign(&store, "other", alice).await;
    drop(store);

    // The journal remembers what the process forgot.
    let options = Options { leftover_bytes_max: 0, ..Options::default() };
    let store = LocalStore::open_with(place.path(), options).unwrap();
    let mut watch = store.watch(Scope::Prefix(String::new()), Some(cursor)).await.unwrap();
    let mut cursors = Vec::new();
    for (name, leads) in [("billing", false), ("other", true), ("other", false)] {
        let Some(WatchItem::Changed(event)) = watch.next().await else { panic!("no change") };
        assert_eq!((event.group.as_str(), event.leader.is_some()), (name, leads));
        cursors.push(watch.cursor());
    }
    let read = leader(&store, "billing").await.cursor;
    let last = reign(&store, "billing", alice).await;
    drop(watch);
    store.shut_down().await;
    drop(store);

    // A snapshot remembers each group's own last changes, and nothing across groups.
    let store = LocalStore::open(place.path()).unwrap();
    let mut one = store.watch(Scope::Group(group("billing")), Some(read)).await.unwrap();
    for leads in [true, false] {
        let Some(WatchItem::Changed(event)) = one.next().await else { panic!("no change") };
        assert_eq!((event.term, event.leader.is_some()), (last, leads));
    }
    let resumed = store.watch(Scope::Group(group("billing")), Some(one.cursor())).await;
    let mut resumed = resumed.unwrap();
    let next = reign(&store, "billing", alice).await;
    for watch in [&mut one, &mut resumed] {
        let Some(WatchItem::Changed(event)) = watch.next().await else { panic!("no change") };
        assert_eq!((event.term, event.leader.is_some()), (next, true));
    }
    let foreign = Cursor { incarnation: Incarnation(read.incarnation.0 ^ 1), ..read };
    for (scope, cursor) in [
        (Scope::Prefix(String::new()), read),
        (Scope::Group(group("billing")), cursor),
        // Whether this one stands before or after the group's change of its revision, only the
        // forgotten ordinals could tell.
        (Scope::Group(group("billing")), cursors[0]),
        (Scope::Group(group("billing")), foreign),
    ] {
        let mut watch = store.watch(scope.clone(), Some(cursor)).await.unwrap();
        let item = watch.next().await;
        assert!(matches!(item, Some(WatchItem::Gap { .. })), "{scope:?} {cursor}: {item:?}");
    }
}
