//! Bytes of the local store's files, field by field. All numbers are little-endian.
//!
//! **Header**, 40 bytes, opens every file:
//! ```text
//!  0  magic        8 bytes: RGNTJRNL for a journal, RGNTSNAP for a snapshot
//!  8  version      u32, 1
//! 12  number       u64, the N of the file's name: a renamed file is noticed
//! 20  incarnation  u64, the store's life: files of two stores never mix
//! 28  revision     u64, the state's revision before the first entry (journal) or of the state (snapshot)
//! 36  checksum     u32, CRC-32 of the 36 bytes before
//! ```
//! **Frame** of a journal, one per group commit:
//! ```text
//!  0  length       u32, bytes of the payload; 0 means that the journal ends here
//!  4  checksum     u32, CRC-32 of length and payload
//!  8  payload      kind u8, then
//!                  1 entries: revision u64 of the first; for each: length u32, entry (its own version opens it)
//!                  2 seal: number u64 of the journal that goes on
//! ```
//! **Body** of a snapshot: length u64, CRC-32 of the bytes u32, the bytes of the state; nothing after.
//!
//! A frame is what one `fdatasync` made durable, and the next one is written only after that. So a
//! bad frame with nothing valid behind it is a write that was cut short, of which nothing was ever
//! acknowledged: it may be cut off. A bad frame with a valid one behind it was damaged later: it is
//! refused. Had every entry a frame of its own, a crash that kept the second of two unsynced pages
//! would look like damage.

use regent_election::{Incarnation, Revision};

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 40;
/// Bytes of a frame before its payload.
pub(super) const FRAME_HEAD_BYTES: usize = 8;
/// Largest payload: what waits to be written is bounded far below.
pub(super) const PAYLOAD_BYTES_MAX: usize = 256 << 20;
/// The version of the files.
pub(super) const FORMAT_VERSION: u32 = 1;

const KIND_ENTRIES: u8 = 1;
const KIND_SEAL: u8 = 2;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Journal,
    Snapshot,
}

impl FileKind {
    const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Journal => b"RGNTJRNL",
            Self::Snapshot => b"RGNTSNAP",
        }
    }
}

/// What opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: FileKind,
    pub(super) number: u64,
    pub(super) incarnation: Incarnation,
    pub(super) revision: Revision,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// Written by a program that knows more.
    Version(u32),
    /// Not what was written.
    Damaged(&'static str),
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(self.kind.magic());
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.revision.0.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(kind: FileKind, bytes: &[u8]) -> Result<Self, HeaderFault> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(HeaderFault::Damaged("it is shorter than its header"));
        };
        if bytes[..8] != *kind.magic() {
            return Err(HeaderFault::Damaged("it does not open like a file of Regent"));
        }
        if u32_at(bytes, 36) != crc32fast::hash(&bytes[..36]) {
            return Err(HeaderFault::Damaged("its header does not match its checksum"));
        }
        match u32_at(bytes, 8) {
            FORMAT_VERSION => Ok(Self {
                kind,
                number: u64_at(bytes, 12),
                incarnation: Incarnation(u64_at(bytes, 20)),
                revision: Revision(u64_at(bytes, 28)),
            }),
            other => Err(HeaderFault::Version(other)),
        }
    }
}

/// What one frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    /// These entries, the first of which makes this revision.
    Entries { first: Revision, entries: Vec<&'a [u8]> },
    /// The journal goes on in the one of this number.
    Seal { next: u64 },
}

/// What stands at one place of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A frame, and where the next one begins.
    Frame { payload: Payload<'a>, next_at: usize },
    /// Nothing but zeros from here on.
    End,
    /// A write that was cut short: nothing valid follows.
    Torn,
    /// Damage: not a frame, although frames follow.
    Damaged { why: &'static str },
}

/// Appends one entry, with its length, to what will be a frame of entries.
pub(super) fn put_entry(pending: &mut Vec<u8>, entry: &[u8]) {
    let length = u32::try_from(entry.len()).expect("an entry is far smaller than 4 GiB");
    pending.extend_from_slice(&length.to_le_bytes());
    pending.extend_from_slice(entry);
}

/// The frame of entries that [`put_entry`] collected, the first of which makes `first`.
pub(super) fn entries_frame(first: Revision, pending: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(9 + pending.len());
    payload.push(KIND_ENTRIES);
    payload.extend_from_slice(&first.0.to_le_bytes());
    payload.extend_from_slice(pending);
    frame(&payload)
}

/// The frame that ends a journal for good.
pub(super) fn seal_frame(next: u64) -> Vec<u8> {
    let mut payload = vec![KIND_SEAL];
    payload.extend_from_slice(&next.to_le_bytes());
    frame(&payload)
}

/// What stands at `at`.
pub(super) fn look(bytes: &[u8], at: usize) -> Found<'_> {
    match frame_at(bytes, at) {
        Ok(Some((payload, next_at))) => Found::Frame { payload, next_at },
        Ok(None) => Found::End,
        Err(why) if is_followed_by_a_frame(bytes, at + 1) => Found::Damaged { why },
        Err(_) => Found::Torn,
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a frame of {} bytes", payload.len());
    let length = u32::try_from(payload.len()).expect("checked above").to_le_bytes();
    let mut bytes = Vec::with_capacity(FRAME_HEAD_BYTES + payload.len());
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&checksum(&length, payload).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The frame at `at`, or none if nothing but zeros is left, or why it is none.
fn frame_at(bytes: &[u8], at: usize) -> Result<Option<(Payload<'_>, usize)>, &'static str> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some((head, rest)) = rest.split_at_checked(FRAME_HEAD_BYTES) else {
        let is_end = rest.iter().all(|byte| *byte == 0);
        return if is_end { Ok(None) } else { Err("a frame ends within its head") };
    };
    let length = u32_at(head, 0) as usize;
    if length == 0 {
        let is_end = head.iter().chain(rest).all(|byte| *byte == 0);
        return if is_end { Ok(None) } else { Err("a frame has no length") };
    }
    if length > PAYLOAD_BYTES_MAX {
        return Err("a frame is longer than any that is written");
    }
    let payload = rest.get(..length).ok_or("a frame ends before its length")?;
    if u32_at(head, 4) != checksum(&head[..4], payload) {
        return Err("a frame does not match its checksum");
    }
    Ok(Some((read_payload(payload)?, at + FRAME_HEAD_BYTES + length)))
}

/// Whether a valid frame begins anywhere from `from` on. The length and kind are looked at first, so
/// that a checksum is computed for what may be a frame only.
fn is_followed_by_a_frame(bytes: &[u8], from: usize) -> bool {
    let Some(last) = bytes.len().checked_sub(FRAME_HEAD_BYTES + 9) else { return false };
    (from..=last).any(|at| {
        let kind = bytes[at + FRAME_HEAD_BYTES];
        let length = u32_at(bytes, at) as usize;
        (kind == KIND_ENTRIES || kind == KIND_SEAL)
            && (9..=bytes.len() - at - FRAME_HEAD_BYTES).contains(&length)
            && matches!(frame_at(bytes, at), Ok(Some(_)))
    })
}

fn read_payload(payload: &[u8]) -> Result<Payload<'_>, &'static str> {
    let Some((&kind, rest)) = payload.split_first() else { return Err("a frame is empty") };
    let Some((number, mut rest)) = rest.split_at_checked(8) else {
        return Err("a frame has no number");
    };
    let number = u64_at(number, 0);
    match kind {
        KIND_ENTRIES => {
            let mut entries = Vec::new();
            while let Some((length, after)) = rest.split_at_checked(4) {
                let length = u32_at(length, 0) as usize;
                let (entry, after) =
                    after.split_at_checked(length).ok_or("an entry ends before its length")?;
                entries.push(entry);
                rest = after;
            }
            if !rest.is_empty() || entries.is_empty() {
                return Err("a frame's entries do not fill it");
            }
            Ok(Payload::Entries { first: Revision(number), entries })
        }
        KIND_SEAL if rest.is_empty() => Ok(Payload::Seal { next: number }),
        _ => Err("a frame is of no known kind"),
    }
}

fn checksum(length: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(length);
    hasher.update(payload);
    hasher.finalize()
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_frames() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut starts = Vec::new();
        for (first, entries) in [(1, &["one", "two"][..]), (3, &["three"]), (4, &["four"])] {
            let mut pending = Vec::new();
            for entry in entries {
                put_entry(&mut pending, entry.as_bytes());
            }
            starts.push(bytes.len());
            bytes.extend(entries_frame(Revision(first), &pending));
        }
        starts.push(bytes.len());
        (bytes, starts)
    }

    /// How many whole frames are believed, and what stands behind them.
    fn walk(bytes: &[u8]) -> (usize, Found<'_>) {
        let (mut at, mut frames) = (0, 0);
        loop {
            match look(bytes, at) {
                Found::Frame { next_at, .. } => (at, frames) = (next_at, frames + 1),
                end => return (frames, end),
            }
        }
    }

    #[test]
    fn frames_are_read_as_they_were_written_and_zeros_end_them() {
        let (mut bytes, _) = three_frames();
        bytes.extend(seal_frame(9));
        bytes.extend([0; 100]);
        let Found::Frame { payload, next_at } = look(&bytes, 0) else { panic!("no frame") };
        let entries = vec![&b"one"[..], b"two"];
        assert_eq!(payload, Payload::Entries { first: Revision(1), entries });
        assert!(next_at > 0);
        assert_eq!(walk(&bytes), (4, Found::End));
    }

    #[test]
    fn a_journal_cut_anywhere_loses_the_cut_frame_and_no_other() {
        let (whole, starts) = three_frames();
        for padding in [0, 64] {
            for cut in 0..whole.len() {
                let mut bytes = whole[..cut].to_vec();
                bytes.extend(std::iter::repeat_n(0, padding));
                let expected = starts.iter().filter(|start| **start <= cut).count() - 1;
                let (frames, end) = walk(&bytes);
                assert_eq!(frames, expected, "cut at {cut}");
                assert!(matches!(end, Found::End | Found::Torn), "cut at {cut}: {end:?}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_never_believed_and_refused_unless_it_is_in_the_last_frame() {
        let (whole, starts) = three_frames();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes.extend([0; 32]);
                bytes[at] ^= 1 << bit;
                let frame = starts.iter().filter(|start| **start <= at).count() - 1;
                let (frames, end) = walk(&bytes);
                assert_eq!(frames, frame, "bit {bit} of byte {at}");
                let is_last = frame == 2;
                assert_eq!(matches!(end, Found::Torn), is_last, "bit {bit} of byte {at}: {end:?}");
            }
        }
    }

    #[test]
    fn a_header_with_any_flipped_bit_is_refused() {
        let header = Header {
            kind: FileKind::Journal,
            number: 3,
            incarnation: Incarnation(77),
            revision: Revision(12),
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(FileKind::Journal, &bytes), Ok(header));
        assert!(Header::decode(FileKind::Snapshot, &bytes).is_err());
        assert!(Header::decode(FileKind::Journal, &bytes[..39]).is_err());
        for at in 0..HEADER_BYTES {
            for bit in 0..8 {
                let mut bytes = bytes;
                bytes[at] ^= 1 << bit;
                assert!(Header::decode(FileKind::Journal, &bytes).is_err(), "bit {bit} of {at}");
            }
        }
    }

    #[test]
    fn a_header_of_a_later_version_is_told_from_a_damaged_one() {
        let header = Header {
            kind: FileKind::Snapshot,
            number: 0,
            incarnation: Incarnation(1),
            revision: Revision(0),
        };
        let mut bytes = header.encode();
        bytes[8] = 2;
        let checksum = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Header::decode(FileKind::Snapshot, &bytes), Err(HeaderFault::Version(2)));
    }
}
