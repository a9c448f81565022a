//! What a bootstrap that was cut short may have left, told apart from everything else.
//!
//! A bootstrap makes the marker `founding` durable before any other file, and removes it when all of
//! them are. So a marker means: either the bootstrap did not finish, or somebody put the file there.
//! The marker alone does not decide. The bootstrap is finished, and what it left is removed, only if
//! every name in the directory is one that it writes, and every byte is one that it would write again
//! or a zero that a power cut leaves. Then nothing is lost. In every other case the directory is
//! refused with the list of what is in the way.
//!
//! The first bytes of each file differ between two attempts: they hold an incarnation that is drawn by
//! lot, and its checksum. They are not compared.

use std::io;

use super::acked::is_unstarted;
use super::bytes::is_zero;
use super::error::{DataDirError, Trying};
use super::files::Files;
use super::limits::{SEGMENT_BYTES_MAX, SNAPSHOT_BYTES_MAX};
use super::names::{self, ACKED, FOUNDING, Listing};
use super::snapshot;
use super::wal;
use super::{Founding, Identity};

/// The files to remove before a bootstrap begins, none of which holds anything else.
///
/// # Errors
/// [`DataDirError::Founded`] if a replica lives here, [`DataDirError::Occupied`] if anything else is in the way.
pub(super) fn of_founding(
    files: &dyn Files,
    listing: &Listing,
    identity: Identity,
    founding: &Founding,
) -> Result<Vec<String>, DataDirError> {
    if !listing.is_founding && listing.is_inhabited() {
        return Err(DataDirError::Founded { path: files.path("") });
    }
    let mut found: Vec<String> = listing.all().chain(listing.others.iter().cloned()).collect();
    if listing.is_founding {
        found.push(FOUNDING.to_owned());
    }
    let mut in_the_way = Vec::new();
    for name in &found {
        if !listing.is_founding || !is_leftover(files, name, identity, founding)? {
            in_the_way.push(name.clone());
        }
    }
    if in_the_way.is_empty() {
        found.retain(|name| name != FOUNDING);
        return Ok(found);
    }
    let marker = listing.is_founding.then(|| files.path(FOUNDING));
    Err(DataDirError::Occupied { path: files.path(""), found: in_the_way, marker })
}

/// Whether a file holds nothing but what this bootstrap writes.
fn is_leftover(
    files: &dyn Files,
    name: &str,
    identity: Identity,
    founding: &Founding,
) -> Result<bool, DataDirError> {
    let (snapshot, segment) = (names::snapshot(founding.place.index), names::segment(1));
    let is_named = |wanted: &str| name == wanted || *name == names::beside(wanted);
    if name == FOUNDING {
        return holds(files, name, 0, |_| true);
    }
    if name == ACKED {
        return holds(files, name, SEGMENT_BYTES_MAX, is_unstarted);
    }
    if is_named(&snapshot) {
        let replicated = founding.replicated.encode();
        return holds(files, name, SNAPSHOT_BYTES_MAX, |bytes| {
            snapshot::is_part(bytes, &identity, &founding.place, &replicated)
        });
    }
    if is_named(&segment) {
        let lead = wal::founding_lead_bytes(identity, &founding.summary());
        return holds(files, name, SEGMENT_BYTES_MAX, |bytes| {
            bytes.get(lead..).is_none_or(is_zero)
        });
    }
    Ok(false)
}

/// Whether a file is no larger than this and as it should be.
fn holds(
    files: &dyn Files,
    name: &str,
    bytes_max: u64,
    is_good: impl FnOnce(&[u8]) -> bool,
) -> Result<bool, DataDirError> {
    match files.read(name, bytes_max) {
        Ok(bytes) => Ok(is_good(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(false),
        Err(error) => Err(error).opening("read", files, name),
    }
}
