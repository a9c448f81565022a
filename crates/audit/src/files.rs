//! The files of an audit log: which there are, how they are bounded, repaired and continued.
//!
//! `audit-N.jsonl`, N rising from 1, and `lock`. The newest is appended to; at an eighth of the bytes that may be kept
//! the next one begins. Every file begins with the id of its chain. Before the oldest files go, the log says from which
//! file on it is kept. What is there is never written over: a chain that does not hold is left as it is, and another
//! one begins behind it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::chain::{Head, hash};
use crate::limits::{BYTES_MIN, FILES_MAX, LINE_BYTES_MAX};
use crate::line::{Content, Line};

/// Where the log is inside a data directory.
pub const DIRECTORY: &str = "audit";

/// Why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot write to {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("another process writes the audit log in {}; give each server its own audit_dir", path.display())]
    Locked { path: PathBuf },
    #[error(
        "an audit log of {bytes} bytes is too small; give it {BYTES_MIN} or more, or 0 for none"
    )]
    TooSmall { bytes: u64 },
}

/// The files of a log with their numbers, oldest first.
pub(crate) fn of_directory(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number =
            name.and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse().ok());
        if let Some(number) = number {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("audit-{number:08}.jsonl"))
}

/// What is read of a file, line by line.
pub(crate) enum Read1 {
    /// A line, without its end.
    Line(Vec<u8>),
    /// What stands behind the last end of a line.
    Torn(u64),
    End,
}

/// The next line. One that is longer than any honest one is cut there, and is then none that can be read.
pub(crate) fn next_line(reader: &mut impl BufRead) -> io::Result<Read1> {
    let mut bytes = Vec::new();
    reader.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut bytes)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        return Ok(Read1::Line(bytes));
    }
    match bytes.len() {
        0 => Ok(Read1::End),
        LINE_BYTES_MAX => Ok(Read1::Line(bytes)),
        torn => Ok(Read1::Torn(torn as u64)),
    }
}

/// What a file that is to be continued ends with.
struct Tail {
    /// None for a file without a line.
    head: Option<Head>,
    chain: Option<String>,
    has_ended: bool,
    torn_bytes: u64,
    /// Why it cannot be continued.
    broken: Option<String>,
}

/// Reads a whole file and checks its chain.
fn tail(file: &mut File) -> io::Result<Tail> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::new(file);
    let mut tail = Tail { head: None, chain: None, has_ended: false, torn_bytes: 0, broken: None };
    let mut number = 0;
    loop {
        let bytes = match next_line(&mut reader)? {
            Read1::Line(bytes) => bytes,
            Read1::Torn(bytes) => {
                tail.torn_bytes = bytes;
                return Ok(tail);
            }
            Read1::End => return Ok(tail),
        };
        number += 1;
        let Ok(line) = serde_json::from_slice::<Line>(&bytes) else {
            tail.broken = Some(format!("line {number} of the newest file cannot be read"));
            return Ok(tail);
        };
        let follows = tail
            .head
            .as_ref()
            .is_none_or(|head| head.seq.checked_add(1) == Some(line.seq) && line.prev == head.hash);
        if line.seq == u64::MAX {
            tail.broken = Some(format!("line {number} of the newest file has the last number"));
            return Ok(tail);
        }
        match (&line.content, number) {
            (Content::Begin(begin), 1) => tail.chain = Some(begin.chain.clone()),
            (Content::File { chain, .. }, 1) => tail.chain = Some(chain.clone()),
            (_, 1) => {
                tail.broken = Some("the newest file does not begin with its chain".to_owned());
                return Ok(tail);
            }
            (_, _) if !follows => {
                tail.broken = Some(format!("line {number} of the newest file does not follow"));
                return Ok(tail);
            }
            (_, _) => {}
        }
        // The checkpoint that covers the end stands behind it.
        if !matches!(line.content, Content::Checkpoint { .. }) {
            tail.has_ended = matches!(line.content, Content::End);
        }
        tail.head = Some(Head::after(line.seq, &bytes));
    }
}

/// What was found when the log was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) files: Files,
    /// Where the chain goes on; none if one must begin.
    pub(crate) continues: Option<Continued>,
    /// Why another chain must begin.
    pub(crate) broken: Option<String>,
}

/// A chain that goes on.
#[derive(Debug)]
pub(crate) struct Continued {
    pub(crate) head: Head,
    pub(crate) chain: String,
    pub(crate) has_ended: bool,
    /// Half a line that was taken away: its bytes and their hash.
    pub(crate) repaired: Option<(u64, String)>,
}

/// The newest file, to be appended to.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    file_bytes_max: u64,
    number: u64,
    file: File,
    /// Its bytes, with those that are not written yet.
    bytes: u64,
    /// Lines that are to be written, each with its end.
    unwritten: Vec<u8>,
    /// Held so that no other process writes here.
    _lock: File,
}

impl Files {
    /// Opens the newest file, or begins the first.
    pub(crate) fn open(directory: &Path, bytes_max: u64) -> Result<Opened, OpenError> {
        let failed = |source| OpenError::Io { path: directory.to_owned(), source };
        if bytes_max < BYTES_MIN {
            return Err(OpenError::TooSmall { bytes: bytes_max });
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let lock = open_file(&directory.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::Locked { path: directory.to_owned() },
            TryLockError::Error(source) => failed(source),
        })?;
        Self::continue_newest(directory, bytes_max, lock).map_err(failed)
    }

    fn continue_newest(directory: &Path, bytes_max: u64, lock: File) -> io::Result<Opened> {
        let mut numbers = of_directory(directory)?;
        let newest = numbers.pop().map_or(1, |(number, _)| number);
        let mut file = open_file(&path_of(directory, newest))?;
        let found = tail(&mut file)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        let directory = directory.to_owned();
        let file_bytes_max = bytes_max / FILES_MAX;
        let mut files = Self {
            directory,
            file_bytes_max,
            number: newest,
            file,
            bytes,
            unwritten: Vec::new(),
            _lock: lock,
        };
        if let Some(broken) = found.broken {
            files.begin_next()?;
            return Ok(Opened { files, continues: None, broken: Some(broken) });
        }
        let mut repaired = None;
        if found.torn_bytes > 0 {
            let whole = bytes - found.torn_bytes;
            let mut torn = Vec::new();
            files.file.seek(SeekFrom::Start(whole))?;
            Read::by_ref(&mut files.file).take(found.torn_bytes).read_to_end(&mut torn)?;
            repaired = Some((found.torn_bytes, hash(&torn)));
            files.file.set_len(whole)?;
            files.bytes = whole;
        }
        if let (Some(head), Some(chain)) = (found.head, found.chain) {
            let has_ended = found.has_ended && repaired.is_none();
            let continues = Some(Continued { head, chain, has_ended, repaired });
            return Ok(Opened { files, continues, broken: None });
        }
        // Nothing stands in it yet: the chain goes on from the file before.
        let Some((_, before)) = numbers.pop() else {
            return Ok(Opened { files, continues: None, broken: None });
        };
        let found = tail(&mut open_file(&before)?)?;
        match (found.head, found.chain, found.broken, found.torn_bytes) {
            (Some(head), Some(chain), None, 0) => {
                let has_ended = found.has_ended && repaired.is_none();
                let continues = Some(Continued { head, chain, has_ended, repaired });
                Ok(Opened { files, continues, broken: None })
            }
            (_, _, why, _) => {
                files.begin_next()?;
                let why = why.unwrap_or_else(|| "the file before the newest breaks off".to_owned());
                Ok(Opened { files, continues: None, broken: Some(why) })
            }
        }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Whether nothing is in it yet.
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether the next line belongs into another file.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes >= self.file_bytes_max
    }

    /// Appends a line, which is written with the next [`Files::flush`].
    pub(crate) fn append(&mut self, line: &str) {
        self.unwritten.extend_from_slice(line.as_bytes());
        self.unwritten.push(b'\n');
        self.bytes += line.len() as u64 + 1;
    }

    /// Whether something was appended and is not written yet.
    pub(crate) const fn is_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Writes what was appended. After an error, what was not written stays for [`Files::unwritten_acts`].
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        let ended = loop {
            if written == self.unwritten.len() {
                break Ok(());
            }
            match self.file.write(&self.unwritten[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        // Of a line that was written in part, nothing will be left.
        let whole = self.unwritten[..written].iter().rposition(|byte| *byte == b'\n');
        self.unwritten.drain(..whole.map_or(0, |end| end + 1));
        ended
    }

    /// How many of the lines that are not written tell what somebody did.
    pub(crate) fn unwritten_acts(&self) -> u64 {
        let lines = self.unwritten.split(|byte| *byte == b'\n');
        let tells = |line: &&[u8]| {
            serde_json::from_slice::<Line>(line).is_ok_and(|line| line.content.act().is_some())
        };
        lines.filter(tells).count() as u64
    }

    /// Another file in the place of the newest, for tests of a disk that refuses.
    #[cfg(test)]
    pub(crate) fn replace_file(&mut self, file: File) {
        self.file = file;
    }

    /// Writes what was appended, and waits for the disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_data()
    }

    /// Begins the next file.
    pub(crate) fn begin_next(&mut self) -> io::Result<()> {
        self.sync()?;
        let next = self.number.checked_add(1);
        let next = next.ok_or_else(|| io::Error::other("its newest file has the last number"))?;
        let path = path_of(&self.directory, next);
        let mut options = OpenOptions::new();
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        options.read(true).append(true).create_new(true).mode(0o600).custom_flags(flags);
        self.file = options.open(path)?;
        File::open(&self.directory)?.sync_all()?;
        self.number = next;
        self.bytes = 0;
        Ok(())
    }

    /// The number of the oldest file that is to be kept, if there are older ones.
    pub(crate) fn keeps_from(&self) -> io::Result<Option<u64>> {
        let from = self.number.saturating_add(1).saturating_sub(FILES_MAX);
        let oldest = of_directory(&self.directory)?.first().map(|(number, _)| *number);
        Ok(oldest.is_some_and(|oldest| oldest < from).then_some(from))
    }

    /// Removes the files before this one. One that stays against our will keeps no other.
    pub(crate) fn remove_before(&self, from: u64) -> io::Result<()> {
        for (_, path) in of_directory(&self.directory)?.iter().filter(|(number, _)| *number < from)
        {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(%error, file = %path.display(), "an old file of the audit log cannot be removed");
            }
        }
        Ok(())
    }
}

/// Opens a file of ours for appending; never one that a link leads to.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{} is not a regular file", path.display())));
    }
    Ok(file)
}
