//! Files that are read again while a process runs.
//!
//! New connections use what was last read and found good; connections that are there keep what they have. What
//! cannot be used changes nothing, is counted, and is tried again: a certificate that is not valid yet will be.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::error::TlsError;
use crate::files::{Secrecy, read};

/// What a look at the files found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// The same as before.
    Same,
    /// Others, which new connections use from now on.
    Changed {
        /// When the certificate ends, in seconds since 1970.
        expires_at_s: u64,
    },
}

/// Certificates whose files can be looked at again.
pub trait Reload: Send + Sync {
    /// Looks at the files again. If they changed and are good, new connections use them; if they are not,
    /// everything stays as it is.
    ///
    /// # Errors
    /// If what is there now cannot be used.
    fn reload(&self) -> Result<Reloaded, TlsError>;

    /// When the certificate in use ends, in seconds since 1970.
    fn expires_at_s(&self) -> u64;

    /// How often a look found files that cannot be used.
    fn failures(&self) -> u64;
}

/// What is made of some files.
pub(crate) trait Source {
    type Loaded;

    /// The files, in the order in which `load` gets what they hold.
    fn files(&self) -> Vec<(&Path, Secrecy)>;

    /// Everything that new connections need, or the first reason why they cannot have it.
    fn load(&self, bytes: &[Vec<u8>]) -> Result<Self::Loaded, TlsError>;
}

/// What was made of them last.
pub(crate) struct Kept<S: Source> {
    source: S,
    current: RwLock<(u64, Arc<S::Loaded>)>,
    /// The number in `current`, for those who only want to know whether it changed. Written under its lock.
    number: AtomicU64,
    /// What the files in use hold, keys among them.
    in_use: Mutex<Vec<Vec<u8>>>,
    failures: AtomicU64,
}

impl<S: Source> std::fmt::Debug for Kept<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the key.
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl<S: Source> Kept<S> {
    pub(crate) fn open(source: S) -> Result<Self, TlsError> {
        let bytes = contents(&source)?;
        let loaded = Arc::new(source.load(&bytes)?);
        let (current, in_use) = (RwLock::new((0, loaded)), Mutex::new(bytes));
        let (number, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { source, current, number, in_use, failures })
    }

    /// Looks at the files; what they hold if that changed.
    pub(crate) fn reload(&self) -> Result<Option<Arc<S::Loaded>>, TlsError> {
        let reloaded = self.try_reload();
        if reloaded.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        reloaded
    }

    fn try_reload(&self) -> Result<Option<Arc<S::Loaded>>, TlsError> {
        let bytes = contents(&self.source)?;
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if *in_use == bytes {
            return Ok(None);
        }
        let loaded = Arc::new(self.source.load(&bytes)?);
        *in_use = bytes;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = (current.0 + 1, Arc::clone(&loaded));
        self.number.store(current.0, Ordering::Release);
        Ok(Some(loaded))
    }

    pub(crate) fn current(&self) -> Arc<S::Loaded> {
        self.generation().1
    }

    /// What is in use, and how many came before it.
    pub(crate) fn generation(&self) -> (u64, Arc<S::Loaded>) {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many came before what is in use: another number means other files.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    pub(crate) const fn source(&self) -> &S {
        &self.source
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

fn contents(source: &impl Source) -> Result<Vec<Vec<u8>>, TlsError> {
    source.files().into_iter().map(|(path, secrecy)| read(path, secrecy)).collect()
}
