//! From files to a state: the newest snapshot, and every entry that was acknowledged after it.
//!
//! Journal N goes on from snapshot N, and journal N + 1 from the end of journal N; each says in its
//! header at which revision. A journal is sealed when the next one exists, so a missing last journal
//! is noticed as surely as a missing middle one. A torn frame is passed over wherever a journal ends:
//! if it held entries, the next journal's revision does not fit; if it fits, only a seal was torn.
//!
//! Nothing is changed here except that torn end; a directory that is refused stays as it was found.

use std::fs;
use std::path::Path;

use regent_election::codec::decode_entry;
use regent_election::state::State;
use regent_election::watch::{Bounds, EventRing};
use regent_election::{Incarnation, Revision, Settings};

use super::files::{Directory, LocalError, LocalResult, Trying};
use super::frame::{FileKind, Found, HEADER_BYTES, Payload, look};
use super::snapshot;

/// What a directory holds.
pub(super) struct Recovered {
    pub(super) state: State,
    pub(super) incarnation: Incarnation,
    /// The last journal, and where its last whole frame ends.
    pub(super) journal: u64,
    pub(super) end: u64,
    /// What the journals caused, for watchers that resume.
    pub(super) ring: EventRing,
    /// Bytes of a torn frame that the journal must lose.
    pub(super) torn_bytes: u64,
}

/// The state that a directory holds, its events kept within `bounds`; none for one that has no files yet.
pub(super) fn recover(directory: &Directory, bounds: Bounds) -> LocalResult<Option<Recovered>> {
    let journals = directory.numbers(FileKind::Journal)?;
    let snapshots = directory.numbers(FileKind::Snapshot)?;
    let Some(last) = journals.last().copied() else {
        return match snapshots.last() {
            None => Ok(None),
            Some(number) => {
                Err(LocalError::Missing { path: directory.path_of(FileKind::Journal, *number) })
            }
        };
    };
    recover_through(directory, last, bounds).map(Some)
}

/// The state at the end of journal `last`, from the newest snapshot that is whole.
///
/// An older snapshot serves as well if all journals since are there: it leads to the same state. A
/// damaged one is told, in the end, only if no other way is left.
pub(super) fn recover_through(
    directory: &Directory,
    last: u64,
    bounds: Bounds,
) -> LocalResult<Recovered> {
    let mut damage = None;
    for number in directory.numbers(FileKind::Snapshot)?.into_iter().rev() {
        if number > last {
            return Err(LocalError::Missing { path: directory.path_of(FileKind::Journal, number) });
        }
        match snapshot::read(directory, number) {
            Ok((header, state)) => {
                let replay = Replay::starting(state, header.incarnation, bounds);
                match replay.run(directory, number, last) {
                    Err(LocalError::Missing { .. }) if damage.is_some() => break,
                    other => return other,
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a snapshot cannot be used; trying an older one");
                damage.get_or_insert(error);
            }
        }
    }
    let from_the_start = directory.numbers(FileKind::Journal)?.first() == Some(&0);
    if let Some(error) = damage
        && !from_the_start
    {
        return Err(error);
    }
    let header = read_journal_header(directory, 0)?;
    let replay = Replay::starting(State::new(Settings::default()), header.incarnation, bounds);
    replay.run(directory, 0, last)
}

struct Replay {
    state: State,
    incarnation: Incarnation,
    ring: EventRing,
}

/// How a journal ended.
struct Ended {
    end: usize,
    torn_bytes: usize,
    is_sealed: bool,
}

impl Replay {
    const fn starting(state: State, incarnation: Incarnation, bounds: Bounds) -> Self {
        let ring = EventRing::new(incarnation, state.revision(), bounds);
        Self { state, incarnation, ring }
    }

    fn run(mut self, directory: &Directory, first: u64, last: u64) -> LocalResult<Recovered> {
        for number in first..=last {
            let path = directory.path_of(FileKind::Journal, number);
            if !path.exists() {
                return Err(LocalError::Missing { path });
            }
            let bytes = fs::read(&path).trying("read", &path)?;
            let ended = self.journal(number, &path, &bytes)?;
            let next = directory.path_of(FileKind::Journal, number + 1);
            if ended.is_sealed && !next.exists() {
                return Err(LocalError::Missing { path: next });
            }
            if number == last {
                return Ok(Recovered {
                    state: self.state,
                    incarnation: self.incarnation,
                    journal: number,
                    end: ended.end as u64,
                    ring: self.ring,
                    torn_bytes: ended.torn_bytes as u64,
                });
            }
        }
        Err(LocalError::Missing { path: directory.path_of(FileKind::Journal, last) })
    }

    /// Applies all of one journal.
    fn journal(&mut self, number: u64, path: &Path, bytes: &[u8]) -> LocalResult<Ended> {
        let header = snapshot::read_header(FileKind::Journal, number, path, bytes)?;
        if header.incarnation != self.incarnation {
            return Err(damaged(path, 20, "it belongs to another store"));
        }
        if header.revision != self.state.revision() {
            let why = format!(
                "it goes on from revision {}, but what precedes it ends at {}",
                header.revision,
                self.state.revision()
            );
            return Err(damaged(path, 28, &why));
        }
        let mut at = HEADER_BYTES;
        loop {
            match look(bytes, at) {
                Found::Frame { payload: Payload::Entries { first, entries }, next_at } => {
                    self.entries(path, at, first, &entries)?;
                    at = next_at;
                }
                Found::Frame { payload: Payload::Seal { next }, next_at } => {
                    let is_end = matches!(look(bytes, next_at), Found::End);
                    if next != number + 1 || !is_end {
                        return Err(damaged(path, at, "it was sealed, and yet goes on"));
                    }
                    return Ok(Ended { end: next_at, torn_bytes: 0, is_sealed: true });
                }
                Found::End => return Ok(Ended { end: at, torn_bytes: 0, is_sealed: false }),
                Found::Torn => {
                    let rest = &bytes[at..];
                    let torn = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                    return Ok(Ended { end: at, torn_bytes: torn, is_sealed: false });
                }
                Found::Damaged { why } => return Err(damaged(path, at, why)),
            }
        }
    }

    /// Applies the entries of the frame at `at`.
    fn entries(
        &mut self,
        path: &Path,
        at: usize,
        first: Revision,
        entries: &[&[u8]],
    ) -> LocalResult<()> {
        let expected = self.state.revision().next();
        if first != expected {
            let why = format!("it goes on with revision {first} instead of {expected}");
            return Err(damaged(path, at, &why));
        }
        for bytes in entries {
            let entry =
                decode_entry(bytes).map_err(|error| snapshot::not_ours(path, at, &error))?;
            let applied = self.state.apply(entry);
            self.ring.record(applied.revision, &applied.events);
        }
        Ok(())
    }
}

fn read_journal_header(directory: &Directory, number: u64) -> LocalResult<super::frame::Header> {
    let path = directory.path_of(FileKind::Journal, number);
    if !path.exists() {
        return Err(LocalError::Missing { path });
    }
    let bytes = fs::read(&path).trying("read", &path)?;
    snapshot::read_header(FileKind::Journal, number, &path, &bytes)
}

fn damaged(path: &Path, offset: usize, why: &str) -> LocalError {
    LocalError::Damaged { path: path.to_owned(), offset: offset as u64, why: why.into() }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{Seek, SeekFrom, Write};

    use regent_election::codec::encode_entry;
    use regent_election::{Command, Entry, Group};

    use super::super::frame::put_entry;
    use super::super::journal::Journal;
    use super::*;

    const LIFE: Incarnation = Incarnation(5);

    fn pending(name: &str) -> Vec<u8> {
        let group = Group::new(name).unwrap();
        let entry = Entry::bare(Command::PutPolicy { group, policy: None });
        let mut bytes = Vec::new();
        put_entry(&mut bytes, &encode_entry(&entry));
        bytes
    }

    /// Journals 0 to 2 with one entry each; the first two are sealed.
    fn three_journals() -> (tempfile::TempDir, Directory) {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        for number in 0..3 {
            let before = Revision(number);
            let mut journal = Journal::create(&directory, number, LIFE, before).unwrap();
            journal.append(before.next(), &pending(&format!("group-{number}"))).unwrap();
            if number < 2 {
                journal.seal().unwrap();
            }
        }
        (place, directory)
    }

    fn open(directory: &Directory) -> LocalResult<Recovered> {
        recover(directory, Bounds::default()).map(Option::unwrap)
    }

    fn path(directory: &Directory, number: u64) -> std::path::PathBuf {
        directory.path_of(FileKind::Journal, number)
    }

    /// Where the last frame of a journal begins.
    fn last_frame(bytes: &[u8]) -> usize {
        let (mut at, mut last) = (HEADER_BYTES, HEADER_BYTES);
        while let Found::Frame { next_at, .. } = look(bytes, at) {
            (last, at) = (at, next_at);
        }
        last
    }

    /// Spoils the last frame of a journal, as a write that was cut short would.
    fn tear(path: &Path) {
        let at = last_frame(&fs::read(path).unwrap());
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        file.seek(SeekFrom::Start(at as u64 + 10)).unwrap();
        file.write_all(&[0xff; 4]).unwrap();
    }

    #[test]
    fn journals_follow_each_other() {
        let (_place, directory) = three_journals();
        let recovered = open(&directory).unwrap();
        assert_eq!((recovered.state.revision(), recovered.journal), (Revision(3), 2));
        assert_eq!(recovered.torn_bytes, 0);
    }

    #[test]
    fn a_missing_journal_is_noticed_wherever_it_was() {
        for number in 0..3 {
            let (_place, directory) = three_journals();
            fs::remove_file(path(&directory, number)).unwrap();
            let missing = open(&directory).err().unwrap();
            assert!(matches!(missing, LocalError::Missing { .. }), "{number}: {missing}");
        }
    }

    #[test]
    fn a_torn_seal_loses_nothing_and_a_torn_entry_before_another_journal_is_refused() {
        let (_place, directory) = three_journals();
        tear(&path(&directory, 1));
        assert_eq!(open(&directory).unwrap().state.revision(), Revision(3));
        // With its seal gone, the last frame of journal 1 is its entry.
        let bytes = fs::read(path(&directory, 1)).unwrap();
        let seal_at = last_frame(&bytes);
        let Found::Frame { next_at, .. } = look(&bytes, seal_at) else { panic!("no frame") };
        fs::write(path(&directory, 1), &bytes[..next_at]).unwrap();
        tear(&path(&directory, 1));
        let error = open(&directory).err().unwrap().to_string();
        assert!(
            error.contains("goes on from revision 2, but what precedes it ends at 1"),
            "{error}"
        );
    }

    #[test]
    fn a_torn_entry_at_the_very_end_is_cut() {
        let (_place, directory) = three_journals();
        tear(&path(&directory, 2));
        let recovered = open(&directory).unwrap();
        assert_eq!(recovered.state.revision(), Revision(2));
        assert_eq!(recovered.end, HEADER_BYTES as u64);
        assert!(recovered.torn_bytes > 0);
    }

    #[test]
    fn an_entry_that_repeats_or_skips_a_revision_is_refused() {
        for first in [1, 3] {
            let place = tempfile::tempdir().unwrap();
            let directory = Directory::open(place.path()).unwrap();
            let mut journal = Journal::create(&directory, 0, LIFE, Revision(0)).unwrap();
            journal.append(Revision(1), &pending("one")).unwrap();
            journal.append(Revision(first), &pending("two")).unwrap();
            let error = open(&directory).err().unwrap().to_string();
            assert!(error.contains(&format!("revision {first} instead of 2")), "{error}");
        }
    }

    #[test]
    fn an_entry_of_a_newer_program_is_not_called_damage() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let mut journal = Journal::create(&directory, 0, LIFE, Revision(0)).unwrap();
        let mut bytes = Vec::new();
        put_entry(&mut bytes, &[99, 1, 2, 3]);
        journal.append(Revision(1), &bytes).unwrap();
        let error = open(&directory).err().unwrap();
        assert!(matches!(error, LocalError::Newer { .. }), "{error}");
    }
}
