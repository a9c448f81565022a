//! The 80 bytes that open a segment of the log.
//!
//! | byte | field |
//! |---|---|
//! | 0 | whose it is (see `identity`), kind `regntwal`, version 1 |
//! | 48 | u64 number of the segment: one above that of the segment before |
//! | 56 | u64 number of its first record |
//! | 64 | u64 bytes of the file, made in advance |
//! | 72 | u32 checksum of the last record of the segment before |
//! | 76 | u32 checksum of the 76 bytes above |
//!
//! A segment gets its name when its header and its first record, the opening, are durable, and only
//! when everything in the segment before it is: so only the last one can have lost something.

use std::path::Path;

use super::super::bytes::{checksum, u32_at, u64_at};
use super::super::error::DataDirError;
use super::super::identity::{self, Identity, Kind};
use super::record::WritePosition;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 80;

const KIND: Kind = Kind { magic: *b"regntwal", version: 1 };

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) identity: Identity,
    pub(crate) number: u64,
    pub(crate) first_record: u64,
    pub(crate) file_bytes: u64,
    pub(crate) chain: u32,
}

impl Header {
    /// Appends the header and says where its first record belongs.
    pub(crate) fn put(&self, out: &mut Vec<u8>) -> WritePosition {
        let start = out.len();
        self.identity.put(KIND, out);
        out.extend(self.number.to_le_bytes());
        out.extend(self.first_record.to_le_bytes());
        out.extend(self.file_bytes.to_le_bytes());
        out.extend(self.chain.to_le_bytes());
        let seed = checksum(0, &out[start..]);
        out.extend(seed.to_le_bytes());
        WritePosition { seed, number: self.first_record, chain: self.chain }
    }

    /// Reads the header of a whole segment and says where its first record belongs.
    pub(crate) fn take(
        bytes: &[u8],
        number: u64,
        path: &Path,
    ) -> Result<(Self, WritePosition), DataDirError> {
        let damaged = |offset, why: &str| Err(DataDirError::damaged(path, offset, why));
        let Some(header) = bytes.get(..HEADER_BYTES) else {
            return damaged(bytes.len(), "it is shorter than its header");
        };
        if header[..8] != KIND.magic {
            return damaged(0, "it does not open like a segment of a log");
        }
        let seed = u32_at(header, 76);
        if checksum(0, &header[..76]) != seed {
            return damaged(76, "its header does not match its checksum");
        }
        let this = Self {
            identity: Identity::take(KIND, header, path)?,
            number: u64_at(header, 48),
            first_record: u64_at(header, 56),
            file_bytes: u64_at(header, 64),
            chain: u32_at(header, 72),
        };
        if this.number != number {
            return damaged(identity::PREFIX_BYTES, "it is another segment than its name says");
        }
        if this.file_bytes != bytes.len() as u64 {
            let why = format!("it has {} bytes and was made with {}", bytes.len(), this.file_bytes);
            return damaged(bytes.len(), &why);
        }
        let place = WritePosition { seed, number: this.first_record, chain: this.chain };
        Ok((this, place))
    }
}
