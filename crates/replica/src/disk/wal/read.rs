//! Reading a whole log back: every segment, every record, nothing changed.
//!
//! All segments but the last were durable as a whole before the next one got its name, so in them
//! whatever is missing or odd is damage. In the last one, the tail may have been lost.

use super::super::error::{DataDirError, Trying};
use super::super::files::Files;
use super::super::identity::Identity;
use super::super::limits::SEGMENT_BYTES_MAX;
use super::super::names;
use super::Segment;
use super::payload::{Kept, Summary, decode_boot};
use super::record::{self, Found, Kind, WritePosition};
use super::replay::Replay;
use super::segment::{HEADER_BYTES, Header};

/// A log as it was found.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) replay: Replay,
    /// Oldest first; the last one is to be written on.
    pub(crate) segments: Vec<Segment>,
    pub(crate) tail: Tail,
    /// The highest record known from elsewhere to have been durable.
    acked: u64,
    /// Where in the last segment the records begin of which nobody knows that they were durable.
    pub(crate) unacked_at: usize,
}

/// Where a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) at: usize,
    pub(crate) place: WritePosition,
    pub(crate) file_bytes: u64,
    /// The end of what is left of writes that were lost, and must become zeros again; none if nothing
    /// was lost.
    pub(crate) leftover_until: Option<usize>,
}

/// Reads a log; `acked` is the highest record known from elsewhere to have been durable.
pub(crate) fn read(
    files: &dyn Files,
    identity: &Identity,
    numbers: &[u64],
    acked: u64,
) -> Result<Log, DataDirError> {
    let Some((first, others)) = numbers.split_first() else {
        return Err(DataDirError::damaged(&files.path("wal"), 0, "the log is missing"));
    };
    let mut log = read_first(files, identity, *first, acked)?;
    for number in others {
        read_next(files, identity, *number, &mut log)?;
    }
    let last = log.tail.place.number - 1;
    if acked > last {
        let path = files.path(&names::segment(log.segments[others.len()].number));
        let why = format!("the log ends with record {last}, and record {acked} was durable");
        return Err(DataDirError::damaged(&path, log.tail.at, why));
    }
    Ok(log)
}

fn read_first(
    files: &dyn Files,
    identity: &Identity,
    number: u64,
    acked: u64,
) -> Result<Log, DataDirError> {
    let (bytes, header, place) = read_file(files, identity, number)?;
    let (opening, at, place) = opening(files, &bytes, number, place)?;
    let tail = Tail { at, place, file_bytes: header.file_bytes, leftover_until: None };
    let mut log = Log {
        replay: Replay::new(opening),
        segments: vec![Segment { number, index_max: 0 }],
        tail,
        acked,
        unacked_at: at,
    };
    log.records(files, &bytes)?;
    Ok(log)
}

fn read_next(
    files: &dyn Files,
    identity: &Identity,
    number: u64,
    log: &mut Log,
) -> Result<(), DataDirError> {
    let path = files.path(&names::segment(number));
    let before = log.segments.last().map_or(0, |segment| segment.number);
    if number != before + 1 {
        let path = files.path(&names::segment(before + 1));
        return Err(DataDirError::damaged(&path, 0, "this segment of the log is missing"));
    }
    let (bytes, header, place) = read_file(files, identity, number)?;
    let end = log.tail;
    if (place.number, place.chain) != (end.place.number, end.place.chain) {
        let path = files.path(&names::segment(before));
        let why = format!(
            "it ends before record {}, and the next segment begins with record {}",
            end.place.number, place.number
        );
        return Err(DataDirError::damaged(&path, end.at, why));
    }
    let (opening, at, place) = opening(files, &bytes, number, place)?;
    if log.replay.summary() != opening {
        let why = "its opening contradicts the segment before it";
        return Err(DataDirError::damaged(&path, HEADER_BYTES, why));
    }
    log.segments.push(Segment { number, index_max: 0 });
    log.tail = Tail { at, place, file_bytes: header.file_bytes, leftover_until: None };
    log.unacked_at = at;
    log.records(files, &bytes)
}

fn read_file(
    files: &dyn Files,
    identity: &Identity,
    number: u64,
) -> Result<(Vec<u8>, Header, WritePosition), DataDirError> {
    let name = names::segment(number);
    let bytes = files.read(&name, SEGMENT_BYTES_MAX).opening("read", files, &name)?;
    let path = files.path(&name);
    let (header, place) = Header::take(&bytes, number, &path)?;
    identity.check(header.identity, &path)?;
    Ok((bytes, header, place))
}

/// The first record of a segment, which was durable before the segment had its name.
fn opening(
    files: &dyn Files,
    bytes: &[u8],
    number: u64,
    place: WritePosition,
) -> Result<(Summary, usize, WritePosition), DataDirError> {
    let path = files.path(&names::segment(number));
    let damaged = |why: String| DataDirError::damaged(&path, HEADER_BYTES, why);
    match record::read(bytes, HEADER_BYTES, place) {
        Found::Record { kind: Kind::Opening, payload, next_at, next } => {
            let opening = Summary::decode(payload).map_err(|why| damaged(why.to_string()))?;
            Ok((opening, next_at, next))
        }
        Found::Damaged { why } => Err(damaged(format!("its opening: {why}"))),
        Found::Record { .. } | Found::End | Found::Lost => {
            Err(damaged("its opening is missing".into()))
        }
    }
}

impl Log {
    /// Takes all records of the last segment, from its tail on.
    fn records(&mut self, files: &dyn Files, bytes: &[u8]) -> Result<(), DataDirError> {
        let segment = self.segments.last().map_or(0, |segment| segment.number);
        let path = files.path(&names::segment(segment));
        loop {
            let Tail { at, place, .. } = self.tail;
            let damaged = |why: String| {
                DataDirError::damaged(&path, at, format!("record {}: {why}", place.number))
            };
            match record::read(bytes, at, place) {
                Found::Record { kind, payload, next_at, next } => {
                    let taken = match kind {
                        Kind::Opening => Err("it opens a segment and stands within one".into()),
                        Kind::Batch => self.batch(payload),
                        Kind::Boot => decode_boot(payload)
                            .map_err(|why| why.to_string())
                            .and_then(|boot| self.replay.boot(boot)),
                    };
                    taken.map_err(damaged)?;
                    (self.tail.at, self.tail.place) = (next_at, next);
                    if place.number <= self.acked {
                        self.unacked_at = next_at;
                    }
                }
                Found::End => return Ok(()),
                Found::Lost => {
                    let used = bytes.iter().rposition(|byte| *byte != 0);
                    self.tail.leftover_until = used.map(|last| last + 1);
                    return Ok(());
                }
                Found::Damaged { why } => return Err(damaged(why)),
            }
        }
    }

    fn batch(&mut self, payload: &[u8]) -> Result<(), String> {
        let kept = Kept::decode(payload).map_err(|why| why.to_string())?;
        let last = kept.entries.last().map(|entry| entry.index);
        note_indexes(self.segments.iter_mut(), kept.restored.is_some(), last);
        self.replay.batch(kept)
    }
}

/// Follows which segments hold entries up to which index: a snapshot's place makes all before it
/// worthless.
pub(crate) fn note_indexes<'a>(
    segments: impl DoubleEndedIterator<Item = &'a mut Segment>,
    is_restored: bool,
    last: Option<u64>,
) {
    for (age, segment) in segments.rev().enumerate() {
        if is_restored {
            segment.index_max = 0;
        }
        if age == 0 {
            segment.index_max = segment.index_max.max(last.unwrap_or(0));
        } else if !is_restored {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::HardState;

    use super::super::super::files::RealFiles;
    use super::super::{lead, payload, record};
    use super::*;
    use crate::member::ReplicaId;

    fn identity() -> Identity {
        Identity { cluster: 3, replica: ReplicaId::new(1).unwrap(), incarnation: 4 }
    }

    fn summary(vote: u64) -> Summary {
        let mut hard_state = HardState::default();
        (hard_state.term, hard_state.vote) = (2, vote);
        Summary { hard_state, boot: 1, last: (0, 0) }
    }

    /// Segments of one record each after their opening, chained as they should be.
    fn refusal(segments: &[(Summary, Kind, Vec<u8>)]) -> Result<Log, String> {
        let place = tempfile::tempdir().unwrap();
        let files = RealFiles::new(place.path()).unwrap();
        let (mut first_record, mut chain) = (1, 0);
        for (number, (opening, kind, payload)) in (1..).zip(segments) {
            let header =
                Header { identity: identity(), number, first_record, file_bytes: 4096, chain };
            let (mut bytes, place) = lead(&header, 0, opening);
            let place = record::put(place, 0, *kind, payload, &mut bytes);
            (first_record, chain) = (place.number, place.chain);
            bytes.resize(4096, 0);
            files.create(&names::segment(number)).unwrap().write_at(0, &bytes).unwrap();
        }
        let numbers: Vec<u64> = (1..=segments.len() as u64).collect();
        read(&files, &identity(), &numbers, 0).map_err(|error| error.to_string())
    }

    fn nothing() -> Vec<u8> {
        let mut batch = Vec::new();
        payload::put_parts(None, None, &[], &mut batch);
        batch
    }

    #[test]
    fn a_segment_that_remembers_another_vote_than_the_one_before_is_refused() {
        let one = |vote| (summary(vote), Kind::Batch, nothing());
        assert_eq!(refusal(&[one(1), one(1)]).unwrap().segments.len(), 2);
        let refused = refusal(&[one(1), one(2)]).unwrap_err();
        assert!(refused.contains("contradicts the segment before"), "{refused}");
    }

    #[test]
    fn payloads_that_make_no_sense_are_refused_though_their_checksum_is_right() {
        let with = |kind, payload: &[u8]| refusal(&[(summary(0), kind, payload.to_vec())]);
        assert!(with(Kind::Batch, &nothing()).is_ok());
        assert!(with(Kind::Boot, &2u64.to_le_bytes()).is_ok());
        for (kind, payload) in [
            (Kind::Batch, &[][..]),
            (Kind::Batch, &[0, 0, 200, 200, 200, 200, 1]),
            (Kind::Batch, &[0, 0, 0, 9]),
            (Kind::Boot, &1u64.to_le_bytes()),
            (Kind::Boot, &[3]),
            (Kind::Opening, &[0; 48]),
        ] {
            let refused = with(kind, payload).unwrap_err();
            assert!(refused.contains("record 2"), "{kind:?} {payload:?}: {refused}");
        }
    }
}
