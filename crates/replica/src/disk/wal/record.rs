//! One record of the log, and how to tell a write that was lost from one that was damaged.
//!
//! | byte | field |
//! |---|---|
//! | 0 | 3 bytes `rec` |
//! | 3 | u8 kind: 1 opening, 2 batch, 3 boot |
//! | 4 | u32 bytes of the payload |
//! | 8 | u64 number: one above that of the record before, across segments |
//! | 16 | u64 the highest number known to be durable when this was written |
//! | 24 | u32 the checksum of the record before |
//! | 28 | u32 checksum of the 28 bytes above, going on from the segment's header's |
//! | 32 | the payload, then zeros up to a multiple of 8 |
//! | … | u32 checksum of payload and zeros, going on from the one above |
//! | … | 4 bytes `end.` |
//!
//! Numbers are little-endian. The segment's header is in every checksum and every record names the
//! one before, so a record from an earlier life of the same place, or from another file, is never
//! believed.
//!
//! **Lost or damaged?** A segment is zeros, synced, before it is written. What a power cut loses of
//! an unsynced write therefore reads as zeros: whole sectors, or everything after some byte; or
//! everything before some byte, if what was left of it was being cleared. So a bad record is a *lost*
//! one, and may be cut off, only if
//! 1. there is such a hole in it, and
//! 2. no record behind it, and no mark apart from the log, says that it was durable.
//!
//! Everything else was damaged after it was written, and is refused: among what was promised there
//! may be a vote. "The last record is bad, so it was torn" would believe a flipped bit; "a good one
//! follows, so it is damaged" would refuse a disk that wrote two unsynced records out of order.

use super::super::bytes::{checksum, is_zero, u32_at, u64_at};
use super::super::files::SECTOR_BYTES;

/// Bytes before the payload.
pub(crate) const HEAD_BYTES: usize = 32;
/// Bytes after the payload and its zeros.
const TAIL_BYTES: usize = 8;
/// The smallest record.
const RECORD_BYTES_MIN: usize = HEAD_BYTES + TAIL_BYTES;
const MARK: [u8; 3] = *b"rec";
const END: [u8; 4] = *b"end.";
/// Zeros at the end of a sector that no record has there by chance.
const HOLE_BYTES: usize = 8;

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Opening,
    Batch,
    Boot,
}

impl Kind {
    const fn tag(self) -> u8 {
        match self {
            Self::Opening => 1,
            Self::Batch => 2,
            Self::Boot => 3,
        }
    }

    const fn of(tag: u8) -> Option<Self> {
        match tag {
            1 => Some(Self::Opening),
            2 => Some(Self::Batch),
            3 => Some(Self::Boot),
            _ => None,
        }
    }
}

/// What a record says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    length: usize,
    kind: Kind,
    number: u64,
    durable: u64,
    chain: u32,
    checksum: u32,
}

/// Where the next record goes and what it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WritePosition {
    /// The checksum of the segment's header.
    pub(crate) seed: u32,
    pub(crate) number: u64,
    /// The checksum of the record before.
    pub(crate) chain: u32,
}

/// What stands at one place of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// The record that belongs there.
    Record { kind: Kind, payload: &'a [u8], next_at: usize, next: WritePosition },
    /// Zeros up to the end.
    End,
    /// What is left of a write that was lost before it was durable.
    Lost,
    /// Something that was never written so.
    Damaged { why: String },
}

/// Bytes that a payload of this length takes as a record.
pub(crate) const fn record_bytes(payload: usize) -> usize {
    HEAD_BYTES + payload.next_multiple_of(8) + TAIL_BYTES
}

/// Appends a record and says what follows it.
pub(crate) fn put(
    place: WritePosition,
    durable: u64,
    kind: Kind,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> WritePosition {
    let start = out.len();
    let length =
        u32::try_from(payload.len()).expect("a batch is far smaller than a segment's bound");
    out.extend(MARK);
    out.push(kind.tag());
    out.extend(length.to_le_bytes());
    out.extend(place.number.to_le_bytes());
    out.extend(durable.to_le_bytes());
    out.extend(place.chain.to_le_bytes());
    let head = checksum(place.seed, &out[start..]);
    out.extend(head.to_le_bytes());
    out.extend(payload);
    out.resize(start + record_bytes(payload.len()) - TAIL_BYTES, 0);
    let chain = checksum(head, &out[start + HEAD_BYTES..]);
    out.extend(chain.to_le_bytes());
    out.extend(END);
    WritePosition { seed: place.seed, number: place.number + 1, chain }
}

/// Reads what stands `at` a place of a whole segment.
pub(crate) fn read(segment: &[u8], at: usize, place: WritePosition) -> Found<'_> {
    let Some(rest) = segment.get(at..).filter(|rest| rest.len() >= RECORD_BYTES_MIN) else {
        return Found::End;
    };
    let Some(head) = head_at(rest, place.seed) else {
        if is_zero(rest) {
            return Found::End;
        }
        // How long it is is not known: the least that any record has is looked at.
        let has_hole = has_hole(segment, at, RECORD_BYTES_MIN);
        return judge(segment, at, has_hole, place, "its head does not match its checksum");
    };
    if head.number != place.number || head.chain != place.chain {
        let why = format!(
            "record {} stands where record {} belongs, or follows another one",
            head.number, place.number
        );
        return Found::Damaged { why };
    }
    let total = record_bytes(head.length);
    let Some(record) = rest.get(..total) else {
        return Found::Damaged { why: "it ends beyond its segment".into() };
    };
    let (body, tail) = record[HEAD_BYTES..].split_at(total - HEAD_BYTES - TAIL_BYTES);
    let chain = checksum(head.checksum, body);
    if u32_at(tail, 0) != chain || tail[4..] != END {
        // No whole record ends in a zero.
        let has_hole = has_hole(segment, at, total) || tail[TAIL_BYTES - 1] == 0;
        return judge(segment, at, has_hole, place, "its payload does not match its checksum");
    }
    let next = WritePosition { seed: place.seed, number: place.number + 1, chain };
    Found::Record { kind: head.kind, payload: &body[..head.length], next_at: at + total, next }
}

/// The head at the start of these bytes, if it is whole and of this segment.
fn head_at(bytes: &[u8], seed: u32) -> Option<Head> {
    let bytes = bytes.get(..HEAD_BYTES)?;
    let sum = u32_at(bytes, 28);
    if bytes[..3] != MARK || checksum(seed, &bytes[..28]) != sum {
        return None;
    }
    Some(Head {
        length: u32_at(bytes, 4) as usize,
        kind: Kind::of(bytes[3])?,
        number: u64_at(bytes, 8),
        durable: u64_at(bytes, 16),
        chain: u32_at(bytes, 24),
        checksum: sum,
    })
}

/// Lost or damaged: see the module's header.
fn judge(
    segment: &[u8],
    at: usize,
    has_hole: bool,
    place: WritePosition,
    why: &str,
) -> Found<'static> {
    if !has_hole {
        return Found::Damaged { why: why.into() };
    }
    match proof_behind(segment, at, place) {
        Some(number) => Found::Damaged {
            why: format!("{why}, and record {number} behind it says that it was durable"),
        },
        None => Found::Lost,
    }
}

/// Whether part of these bytes was never written, or was cleared: a sector that ends in zeros, or a
/// first byte that is zero, which no whole record's is.
fn has_hole(segment: &[u8], at: usize, total: usize) -> bool {
    let end = at + total;
    let mut start = at;
    while start < end {
        let sector_end = (start / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let part = &segment[start..sector_end.min(end)];
        let last = &part[part.len().saturating_sub(HOLE_BYTES)..];
        if last.iter().all(|byte| *byte == 0) {
            return true;
        }
        start = sector_end;
    }
    segment[at] == 0
}

/// A record behind this place that was written when the one at this place was durable.
fn proof_behind(segment: &[u8], at: usize, place: WritePosition) -> Option<u64> {
    let behind = (at + 8..segment.len().saturating_sub(RECORD_BYTES_MIN - 1)).step_by(8);
    behind
        .filter_map(|offset| head_at(&segment[offset..], place.seed))
        .find(|head| head.number > place.number && head.durable >= place.number)
        .map(|head| head.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: WritePosition = WritePosition { seed: 77, number: 5, chain: 99 };

    /// A segment of 4 KiB whose records begin at byte 80, and where each begins.
    fn segment(records: &[(u64, Vec<u8>)]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts, mut place) = (vec![1; 80], Vec::new(), START);
        for (durable, payload) in records {
            starts.push(bytes.len());
            place = put(place, *durable, Kind::Batch, payload, &mut bytes);
        }
        starts.push(bytes.len());
        bytes.resize(4096, 0);
        (bytes, starts)
    }

    fn payload(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8 + 1).collect()
    }

    fn walk(bytes: &[u8]) -> (usize, Found<'_>) {
        let (mut at, mut place, mut count) = (80, START, 0);
        loop {
            match read(bytes, at, place) {
                Found::Record { next_at, next, .. } => {
                    (at, place, count) = (next_at, next, count + 1)
                }
                other => return (count, other),
            }
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let records: Vec<_> = [0, 1, 7, 8, 9, 600].map(|length| (4, payload(length))).to_vec();
        let (bytes, starts) = segment(&records);
        let mut place = START;
        for (start, (_, written)) in starts.iter().zip(&records) {
            let Found::Record { kind, payload, next, .. } = read(&bytes, *start, place) else {
                panic!("no record at {start}");
            };
            assert_eq!((kind, payload), (Kind::Batch, &written[..]));
            place = next;
        }
        assert_eq!(walk(&bytes), (6, Found::End));
    }

    #[test]
    fn a_flipped_bit_is_damage_even_in_the_very_last_record() {
        let (bytes, starts) = segment(&[(4, payload(30)), (5, payload(700))]);
        for at in starts[0]..starts[2] {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let (count, found) = walk(&flipped);
                assert_eq!(count, usize::from(at >= starts[1]), "byte {at} bit {bit}");
                assert!(matches!(found, Found::Damaged { .. }), "byte {at} bit {bit}: {found:?}");
            }
        }
    }

    #[test]
    fn a_write_cut_at_any_byte_is_lost_and_not_damage() {
        let (bytes, starts) = segment(&[(4, payload(30)), (4, payload(700)), (4, payload(9))]);
        for cut in starts[0]..starts[3] {
            let mut torn = bytes.clone();
            torn[cut..].fill(0);
            let (count, found) = walk(&torn);
            let whole = starts[1..].iter().filter(|start| **start <= cut).count();
            assert_eq!(count, whole, "cut at {cut}");
            let is_clean = starts.contains(&cut);
            let expected = if is_clean { Found::End } else { Found::Lost };
            assert_eq!(found, expected, "cut at {cut}");
        }
    }

    #[test]
    fn clearing_what_was_lost_may_be_cut_at_any_byte_too() {
        let (bytes, starts) = segment(&[(4, payload(30)), (4, payload(700))]);
        let mut lost = bytes.clone();
        lost[starts[2] - 100..].fill(0);
        for cut in starts[1]..starts[2] {
            let mut half_cleared = lost.clone();
            half_cleared[starts[1]..cut].fill(0);
            assert!(matches!(walk(&half_cleared), (1, Found::Lost | Found::End)), "cut at {cut}");
        }
    }

    #[test]
    fn unsynced_sectors_that_reached_the_disk_in_any_order_are_lost_and_not_damage() {
        let records = [30, 700, 9, 400].map(|length| (4, payload(length)));
        let (bytes, starts) = segment(&records);
        let sectors = starts[4].div_ceil(SECTOR_BYTES);
        for there in 0..1u32 << sectors {
            let mut torn = bytes.clone();
            for sector in (0..sectors).filter(|sector| there >> sector & 1 == 0) {
                let start = (sector * SECTOR_BYTES).max(80);
                torn[start..(sector + 1) * SECTOR_BYTES].fill(0);
            }
            let (count, found) = walk(&torn);
            assert!(count <= 4 && matches!(found, Found::Lost | Found::End), "{there:b} {found:?}");
        }
    }

    #[test]
    fn a_hole_is_damage_if_a_later_record_says_that_it_was_durable() {
        let (bytes, starts) = segment(&[(4, payload(600)), (4, payload(9)), (5, payload(9))]);
        let mut zeroed = bytes.clone();
        zeroed[starts[0]..starts[1]].fill(0);
        let (_, found) = walk(&zeroed);
        assert!(matches!(&found, Found::Damaged { why } if why.contains("record 7")), "{found:?}");
        zeroed[starts[2]..].fill(0);
        assert_eq!(walk(&zeroed).1, Found::Lost, "record 6 was written in the same breath");
    }

    #[test]
    fn records_of_another_life_or_place_are_never_believed() {
        let (bytes, starts) = segment(&[(4, payload(30)), (4, payload(30))]);
        let stale = WritePosition { seed: 78, ..START };
        assert!(matches!(read(&bytes, 80, stale), Found::Damaged { .. }));
        for other in [WritePosition { number: 6, ..START }, WritePosition { chain: 98, ..START }] {
            assert!(matches!(read(&bytes, 80, other), Found::Damaged { .. }));
        }
        let mut twice = bytes.clone();
        twice.copy_within(starts[0]..starts[1], starts[1]);
        assert!(matches!(walk(&twice), (1, Found::Damaged { .. })), "a record copied over another");
    }
}
