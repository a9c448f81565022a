//! A snapshot that arrives from a peer, gathered in a file: many may be on their way, and the memory has room for one.
//!
//! The file is no part of what a replica remembers. It goes when it was read, when the transfer fails, and at the next
//! start if the process dies before (`….tmp`).

use std::io;
use std::sync::Arc;

use super::files::{Files, OpenFile};
use super::names;
use crate::member::ReplicaId;

/// Where snapshots that arrive are gathered.
#[derive(Clone, Debug)]
pub struct Arrivals(Arc<dyn Files>);

impl Arrivals {
    pub(super) const fn new(files: Arc<dyn Files>) -> Self {
        Self(files)
    }

    /// Begins to gather a snapshot of this peer; one at a time. What was left of another one goes.
    pub(crate) fn begin(&self, from: ReplicaId) -> io::Result<ArrivingSnapshot> {
        let name = names::beside(&names::arriving(from.get()));
        match self.0.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = self.0.create(&name)?;
        Ok(ArrivingSnapshot { files: Arc::clone(&self.0), name, file, bytes: 0 })
    }
}

/// A snapshot of which a part has arrived. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct ArrivingSnapshot {
    files: Arc<dyn Files>,
    name: String,
    file: Box<dyn OpenFile>,
    bytes: u64,
}

impl ArrivingSnapshot {
    /// Adds what has arrived.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(self.bytes, bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// How much has arrived.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of it, in memory.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        self.files.read(&self.name, self.bytes)
    }
}

impl Drop for ArrivingSnapshot {
    fn drop(&mut self) {
        // What stays goes at the next start, or when the peer begins again.
        let _ = self.files.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::RealFiles;
    use super::*;

    #[test]
    fn a_snapshot_is_read_as_it_arrived_and_nothing_of_it_stays() {
        let place = tempfile::tempdir().unwrap();
        let arrivals = Arrivals::new(Arc::new(RealFiles::new(place.path()).unwrap()));
        let from = ReplicaId::new(3).unwrap();
        let count = || std::fs::read_dir(place.path()).unwrap().count();
        let mut arriving = arrivals.begin(from).unwrap();
        arriving.append(b"one, ").unwrap();
        arriving.append(b"two").unwrap();
        assert_eq!((arriving.read().unwrap(), arriving.bytes()), (b"one, two".to_vec(), 8));
        assert_eq!(count(), 1);
        drop(arriving);
        assert_eq!(count(), 0);
        // What a process that died has left is in nobody's way, and a start takes it for what it is.
        std::mem::forget(arrivals.begin(from).unwrap());
        let left = std::fs::read_dir(place.path()).unwrap().next().unwrap().unwrap();
        let listing = names::Listing::new(vec![left.file_name().into_string().unwrap()]);
        assert_eq!(listing.half_made.len(), 1);
        let again = arrivals.begin(from).unwrap();
        assert_eq!(again.read().unwrap(), b"");
    }
}
