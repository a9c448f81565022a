//! A file on one host: a lock, a mark beside it, and content that is replaced in one step.
//!
//! ```text
//!   ledger.json          the content, replaced by rename
//!   ledger.json.term     the highest term admitted, in digits; replaced by rename, never deleted
//!   ledger.json.lock     empty; held (flock) from the look at the mark until the content is in place
//! ```
//!
//! The mark is made durable before the content is touched. A crash in between leaves a mark that is
//! higher than the content, which keeps out whom it must and nobody else; the other order would leave
//! content of a higher term behind a fence that a lower one still passes.
//!
//! Only for the processes of one host, on a file system of its own: locks over a network are promises of
//! whoever exports it. Who writes the file without this adapter is not kept from it.
//!
//! ```no_run
//! # async fn example(leadership: &regent::Leadership) -> Result<(), Box<dyn std::error::Error>> {
//! use regent::fencing::file::FencedFile;
//!
//! let ledger = FencedFile::at("/var/lib/billing/ledger.json");
//! let permit = leadership.check()?;
//! ledger.replace(&permit, b"{}")?; // a refusal for a higher term has also ended the leadership
//! # Ok(())
//! # }
//! ```

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use regent_election::{Fence, Term};
use rustix::fs::{FlockOperation, flock};

use super::{Proof, WriteError, WriteResult, refuse};

/// A file behind a fence.
///
/// Its calls wait for the disk, and for whoever holds the lock: in a Tokio runtime, call them within
/// `spawn_blocking`.
#[derive(Clone, Debug)]
pub struct FencedFile {
    content: PathBuf,
}

impl FencedFile {
    /// The file at this path. Its directory must be there; the file need not.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { content: path.into() }
    }

    /// Replaces the content, if no higher term was here.
    pub fn replace(&self, proof: &impl Proof, content: &[u8]) -> WriteResult<()> {
        let _lock = self.admit(proof)?;
        self.put(&self.content, content).map_err(halfway)
    }

    /// Removes the content, if no higher term was here. The mark stays.
    pub fn remove(&self, proof: &impl Proof) -> WriteResult<()> {
        let _lock = self.admit(proof)?;
        match fs::remove_file(&self.content) {
            Ok(()) => self.sync_directory().map_err(|error| WriteError::Uncertain(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(WriteError::Failed(error.into())),
        }
    }

    /// The content; none if there is none.
    pub fn read(&self) -> io::Result<Option<Vec<u8>>> {
        optional(fs::read(&self.content))
    }

    /// The highest term admitted; zero if there was none.
    pub fn mark(&self) -> io::Result<Term> {
        let Some(text) = optional(fs::read_to_string(self.beside(".term")))? else {
            return Ok(Term::NONE);
        };
        // An empty or strange mark was not written here, and must not admit everybody.
        let mark = text.strip_suffix('\n').and_then(|it| it.parse().ok()).and_then(Term::new);
        mark.filter(|mark| *mark != Term::NONE).ok_or_else(|| {
            let mark = self.beside(".term");
            let why = format!("{} holds no term; put the highest one there", mark.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    /// Takes the lock and raises the mark, or refuses.
    fn admit(&self, proof: &impl Proof) -> WriteResult<File> {
        let failed = |error: io::Error| WriteError::Failed(error.into());
        let lock = self.lock().map_err(failed)?;
        let mark = self.mark().map_err(failed)?;
        let mut fence = Fence::at(mark);
        fence.admit(proof.term()).map_err(|why| refuse(proof, why))?;
        if fence.mark() != mark {
            let text = format!("{}\n", fence.mark());
            self.put(&self.beside(".term"), text.as_bytes()).map_err(failed)?;
        }
        Ok(lock)
    }

    /// Waits for the lock. It is freed when the file is dropped, also by the end of the process.
    fn lock(&self) -> io::Result<File> {
        let path = self.beside(".lock");
        let lock = File::options().create(true).truncate(false).write(true).open(path)?;
        loop {
            match flock(&lock, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(lock),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Replaces a file in one step, and makes that durable. Under the lock, so that one name for what is
    /// not in place yet is enough.
    fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let next = self.beside(".next");
        let mut file = File::create(&next)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&next, path)?;
        self.sync_directory()
    }

    fn sync_directory(&self) -> io::Result<()> {
        let directory = self.content.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = OsString::from(&self.content);
        name.push(ending);
        name.into()
    }
}

fn optional<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The rename may have been made when the directory could not be synced.
fn halfway(error: io::Error) -> WriteError {
    WriteError::Uncertain(error.into())
}

#[cfg(test)]
mod tests {
    use super::super::Pretender;
    use super::*;

    fn leader(term: u64) -> Pretender {
        Pretender::new(Term::new(term).unwrap())
    }

    #[test]
    fn a_file_refuses_a_lower_term_and_keeps_its_content() {
        let place = tempfile::tempdir().unwrap();
        let file = FencedFile::at(place.path().join("ledger"));
        assert_eq!((file.mark().unwrap(), file.read().unwrap()), (Term::NONE, None));
        file.replace(&leader(100), b"old").unwrap();
        file.replace(&leader(101), b"new").unwrap();
        file.replace(&leader(101), b"newer").unwrap();
        let stale = leader(100);
        let refused = file.replace(&stale, b"stale").unwrap_err();
        assert_eq!(refused.to_string(), "STALE_TERM: term 100 < current 101");
        assert!(stale.is_refused());
        assert_eq!(file.read().unwrap().unwrap(), b"newer");
    }

    #[test]
    fn the_mark_of_a_file_outlives_its_content() {
        let place = tempfile::tempdir().unwrap();
        let file = FencedFile::at(place.path().join("ledger"));
        file.replace(&leader(7), b"here").unwrap();
        file.remove(&leader(8)).unwrap();
        file.remove(&leader(8)).unwrap();
        assert_eq!((file.mark().unwrap().get(), file.read().unwrap()), (8, None));
        assert!(file.replace(&leader(7), b"back").unwrap_err().refusal().is_some());
        assert!(file.remove(&leader(7)).unwrap_err().refusal().is_some());
    }

    /// What a crash between the mark and the content leaves behind.
    #[test]
    fn a_mark_without_its_content_keeps_lower_terms_out_all_the_same() {
        let place = tempfile::tempdir().unwrap();
        let file = FencedFile::at(place.path().join("ledger"));
        file.replace(&leader(3), b"three").unwrap();
        drop(file.admit(&leader(4)).unwrap());
        std::fs::write(place.path().join("ledger.next"), b"half of fo").unwrap();
        assert!(file.replace(&leader(3), b"three again").unwrap_err().refusal().is_some());
        assert_eq!(file.read().unwrap().unwrap(), b"three");
        file.replace(&leader(4), b"four").unwrap();
        assert_eq!(file.read().unwrap().unwrap(), b"four");
    }

    #[test]
    fn a_mark_that_cannot_be_read_admits_nobody() {
        let place = tempfile::tempdir().unwrap();
        let file = FencedFile::at(place.path().join("ledger"));
        for mark in ["", "x\n", "0\n", "7", "-1\n"] {
            std::fs::write(place.path().join("ledger.term"), mark).unwrap();
            let error = file.replace(&leader(9), b"in").unwrap_err();
            assert!(matches!(error, WriteError::Failed(_)), "{mark:?}: {error}");
            assert!(error.to_string().contains("holds no term"), "{error}");
        }
        assert_eq!(file.read().unwrap(), None);
    }
}
