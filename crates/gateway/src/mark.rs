//! The mark on disk: the highest term that was ever let through, kept before it is.
//!
//! | file | what |
//! |---|---|
//! | `lock` | held by the one process that uses the directory; `used` stands in it once there was a mark |
//! | `mark` | five lines: what it is, the group, the term, how the last process ended, a checksum |
//! | `resets` | one line for every time that an operator set the mark: when, from, to, why |
//!
//! A mark is replaced whole: written beside, synced, renamed, and the directory synced. What cannot be read,
//! is damaged, or is missing although it was there is a refusal to start: a gateway that begins again at
//! term 0 would let through whom it has refused.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use regent_election::{Group, Term};
use regent_files::{FileError, Trust, check_directory, read};

use crate::limits::REASON_BYTES_MAX;

const HEADING: &str = "regent fence mark, version 1";
const USED: &[u8] = b"used\n";
/// Largest file that is read: a mark is far smaller.
const BYTES_MAX: u64 = 4096;

/// Why a mark cannot be had. Nothing is let through without it.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// The system did not do it.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The mark cannot be trusted: others can change it, or it is no file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process has it.
    #[error("{} is in use by another gateway; stop that one, or give this one a directory of its own", path.display())]
    InUse { path: PathBuf },
    /// It is not what was written.
    #[error(
        "{} is damaged ({why}): the highest term that passed is not known; read it from the service (regent leader GROUP --verbose), stop all leaders, and begin with an empty directory only when none of a lower term can write any more",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        /// In what way.
        why: &'static str,
    },
    /// It was there and is gone.
    #[error(
        "{} is missing although this directory has been used: the highest term that passed is not known; restore the file, or begin with an empty directory only when none of a lower term can write any more",
        path.display()
    )]
    Missing { path: PathBuf },
    /// A mark that is set needs a reason, in one line.
    #[error("a reason is one line of 1 to {REASON_BYTES_MAX} bytes without control characters")]
    Reason,
    /// A mark is not set to no term.
    #[error(
        "the mark cannot be set to term 0: it would let every old leader write; name the term in office"
    )]
    NoTerm,
    /// There is no gateway to set the mark of.
    #[error("{} holds no mark; start the gateway once, or name its directory", path.display())]
    Unused { path: PathBuf },
    /// It is for another group.
    #[error("{} keeps the mark of group {found}, not of {wanted}; give every group a directory of its own", path.display())]
    OtherGroup {
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Who asked.
        wanted: Group,
    },
}

/// How the last process that used a mark ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastEnd {
    /// Nothing that it let through can take effect any more.
    Quiet,
    /// Something may.
    Unknown,
}

/// The directory of one mark, held by this process.
#[derive(Debug)]
pub struct MarkFile {
    directory: PathBuf,
    group: Group,
    /// Held until this is dropped.
    _lock: File,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> MarkError {
    let path = path.to_owned();
    move |source| MarkError::Io { what, path, source }
}

/// Takes the directory for this process alone.
fn lock(directory: &Path) -> Result<File, MarkError> {
    let path = directory.join("lock");
    let lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(MarkError::InUse { path: directory.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed("lock", &path)(source)),
    }
}

impl MarkFile {
    /// Opens or begins the mark of a group, and says what was kept.
    pub fn open(directory: &Path, group: &Group) -> Result<(Self, Term, LastEnd), MarkError> {
        check_directory(directory)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed("make", directory))?;
        let mut lock = lock(directory)?;
        let lock_path = directory.join("lock");
        let mut used = Vec::new();
        (&mut lock).take(BYTES_MAX).read_to_end(&mut used).map_err(failed("read", &lock_path))?;
        let path = directory.join("mark");
        let text = match read(&path, BYTES_MAX, Trust::Own) {
            Err(error) if error.is_missing() => None,
            text => Some(text?),
        };
        let (term, last_end) = match text {
            Some(text) => parse(&text, &path, group)?,
            None if used.is_empty() => (Term::NONE, LastEnd::Quiet),
            None => return Err(MarkError::Missing { path }),
        };
        let mark = Self { directory: directory.to_owned(), group: group.clone(), _lock: lock };
        // From here on this process may let something through.
        mark.keep(term, LastEnd::Unknown)?;
        if used.is_empty() {
            let mut lock = &mark._lock;
            let mut note = || {
                lock.rewind()?;
                lock.write_all(USED)?;
                lock.sync_all()
            };
            note().map_err(failed("write", &lock_path))?;
        }
        Ok((mark, term, last_end))
    }

    /// Sets the mark of a gateway that does not run, up or down, and says what it was. An operator
    /// answers for it: a lower mark lets old leaders write again. Why is kept beside the mark, before it.
    pub fn reset(
        directory: &Path,
        group: &Group,
        term: Term,
        reason: &str,
        wall_s: u64,
    ) -> Result<Term, MarkError> {
        let is_line = !reason.trim().is_empty()
            && reason.len() <= REASON_BYTES_MAX
            && !reason.chars().any(char::is_control);
        if !is_line {
            return Err(MarkError::Reason);
        }
        if term == Term::NONE {
            return Err(MarkError::NoTerm);
        }
        let path = directory.join("mark");
        if !path.exists() {
            return Err(MarkError::Unused { path: directory.to_owned() });
        }
        let lock = lock(directory)?;
        let (was, _) = parse(&read(&path, BYTES_MAX, Trust::Own)?, &path, group)?;
        let resets = directory.join("resets");
        let note = || {
            let mut file =
                OpenOptions::new().append(true).create(true).mode(0o600).open(&resets)?;
            file.write_all(format!("{wall_s} from {was} to {term}: {reason}\n").as_bytes())?;
            file.sync_all()
        };
        note().map_err(failed("write", &resets))?;
        let mark = Self { directory: directory.to_owned(), group: group.clone(), _lock: lock };
        // Nobody knows what the last gateway passed on and what became of it.
        mark.keep(term, LastEnd::Unknown)?;
        Ok(was)
    }

    /// Keeps a mark: when this returns, no crash lowers it.
    pub fn keep(&self, term: Term, end: LastEnd) -> Result<(), MarkError> {
        let path = self.directory.join("mark");
        let beside = self.directory.join("mark.new");
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&beside)?;
            file.write_all(render(&self.group, term, end).as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|source| MarkError::Io { what: "write", path: path.clone(), source })
    }
}

fn render(group: &Group, term: Term, end: LastEnd) -> String {
    let end = match end {
        LastEnd::Quiet => "quiet",
        LastEnd::Unknown => "unknown",
    };
    let text = format!("{HEADING}\ngroup {group}\nterm {term}\nended {end}\n");
    let sum = crc32fast::hash(text.as_bytes());
    format!("{text}crc32 {sum:08x}\n")
}

fn parse(bytes: &[u8], path: &Path, wanted: &Group) -> Result<(Term, LastEnd), MarkError> {
    let damaged = |why| MarkError::Damaged { path: path.to_owned(), why };
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
    let (body, sum) = text.rsplit_once("crc32 ").ok_or_else(|| damaged("it has no checksum"))?;
    if sum != format!("{:08x}\n", crc32fast::hash(body.as_bytes())) {
        return Err(damaged("its checksum is another one"));
    }
    let mut lines = body.lines();
    if lines.next() != Some(HEADING) {
        return Err(damaged("it is of another version"));
    }
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let group = field("group").ok_or_else(|| damaged("it names no group"))?;
    let term = field("term")
        .and_then(|digits| digits.parse().ok())
        .and_then(Term::new)
        .ok_or_else(|| damaged("it holds no term"))?;
    let end = match field("ended") {
        Some("quiet") => LastEnd::Quiet,
        Some("unknown") => LastEnd::Unknown,
        Some(_) | None => return Err(damaged("it does not say how it ended")),
    };
    if group != wanted.as_str() {
        return Err(MarkError::OtherGroup {
            path: path.parent().unwrap_or(path).to_owned(),
            found: group.to_owned(),
            wanted: wanted.clone(),
        });
    }
    Ok((term, end))
}

/// Reads the bytes as a mark, as they are and with their checksum set right, for the fuzzer.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let (path, group) = (Path::new("mark"), Group::new("billing").expect("the name is plain"));
    let _ = parse(bytes, path, &group);
    let sum = format!("crc32 {:08x}\n", crc32fast::hash(bytes));
    let _ = parse(&[bytes, sum.as_bytes()].concat(), path, &group);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group::new("billing").unwrap()
    }

    fn term(number: u64) -> Term {
        Term::new(number).unwrap()
    }

    #[test]
    fn a_mark_is_found_again_and_how_it_ended() {
        let room = tempfile::tempdir().unwrap();
        let (mark, first, end) = MarkFile::open(room.path(), &group()).unwrap();
        assert_eq!((first, end), (Term::NONE, LastEnd::Quiet));
        mark.keep(term(101), LastEnd::Unknown).unwrap();
        drop(mark);
        let (mark, kept, end) = MarkFile::open(room.path(), &group()).unwrap();
        assert_eq!((kept, end), (term(101), LastEnd::Unknown), "it ended without a word");
        mark.keep(term(101), LastEnd::Quiet).unwrap();
        drop(mark);
        let (_mark, kept, end) = MarkFile::open(room.path(), &group()).unwrap();
        assert_eq!((kept, end), (term(101), LastEnd::Quiet));
    }

    #[test]
    fn one_directory_has_one_process() {
        let room = tempfile::tempdir().unwrap();
        let _held = MarkFile::open(room.path(), &group()).unwrap();
        let second = MarkFile::open(room.path(), &group()).unwrap_err();
        assert!(matches!(second, MarkError::InUse { .. }), "{second}");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_mark_is_noticed() {
        let room = tempfile::tempdir().unwrap();
        let (mark, _, _) = MarkFile::open(room.path(), &group()).unwrap();
        mark.keep(term(101), LastEnd::Quiet).unwrap();
        drop(mark);
        let path = room.path().join("mark");
        let whole = fs::read(&path).unwrap();
        let damaged = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let error = MarkFile::open(room.path(), &group()).unwrap_err();
            assert!(matches!(error, MarkError::Damaged { .. }), "{error}");
        };
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                damaged(&flipped);
            }
            damaged(&whole[..at]);
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(MarkFile::open(room.path(), &group()).unwrap().1, term(101));
    }

    #[test]
    fn a_mark_that_was_there_and_is_gone_is_not_term_0() {
        let room = tempfile::tempdir().unwrap();
        drop(MarkFile::open(room.path(), &group()).unwrap());
        fs::remove_file(room.path().join("mark")).unwrap();
        let error = MarkFile::open(room.path(), &group()).unwrap_err();
        assert!(matches!(error, MarkError::Missing { .. }), "{error}");
    }

    #[test]
    fn a_mark_that_cannot_be_read_is_not_term_0() {
        let room = tempfile::tempdir().unwrap();
        drop(MarkFile::open(room.path(), &group()).unwrap());
        let path = room.path().join("mark");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let error = MarkFile::open(room.path(), &group()).unwrap_err();
        assert!(matches!(error, MarkError::File(FileError::NotRegular { .. })), "{error}");
    }

    #[test]
    fn a_mark_of_another_group_is_refused() {
        let room = tempfile::tempdir().unwrap();
        drop(MarkFile::open(room.path(), &group()).unwrap());
        let error = MarkFile::open(room.path(), &Group::new("other").unwrap()).unwrap_err();
        assert!(error.to_string().contains("group billing, not of other"), "{error}");
    }
}
