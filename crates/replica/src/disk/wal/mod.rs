//! The log on disk: segments of records, written front to back, one sync for everything that waits.
//!
//! Entries, hard state and boots go into one stream of records, so one sync makes a whole batch
//! durable, in order. Nothing is ever rewritten: a conflicting suffix gives way to a later record
//! with a lower index, and what a snapshot covers goes by whole segments. Each segment opens with a
//! summary of what came before, so the ones before it are needed only for their entries.
//!
//! Order is what keeps the promise:
//! 1. a batch's records are written, then synced, then confirmed;
//! 2. a segment is synced before the next one gets its name;
//! 3. the oldest segment is removed, and that made durable, before the next oldest.
//!
//! The formats are told in `segment`, `record` and `payload`. The road not taken: rewriting the hard
//! state in a file of its own costs a second sync for every batch, and two truths after a crash.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod payload;
pub(crate) mod read;
mod record;
pub(crate) mod replay;
mod segment;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use raft::eraftpb::HardState;

use super::acked::{Acked, Mark};
use super::error::{Trying, WriteError};
use super::files::{Files, OpenFile};
use super::identity::Identity;
use super::limits::{BUFFER_BYTES_KEPT, SEGMENT_BYTES_MAX, ZEROS_BYTES};
use super::names;
use super::reserve::{Reserve, Spare, zeros};
use crate::io::Batch;
use payload::{OPENING_BYTES, Summary, put_batch, put_parts};
use read::{Log, note_indexes};
use record::{Kind, WritePosition, record_bytes};
use segment::{HEADER_BYTES, Header};

/// Bytes of a segment before its first batch.
const LEAD_BYTES: u64 = (HEADER_BYTES + record_bytes(OPENING_BYTES)) as u64;

/// One segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// The highest index among its entries that still count; zero if there is none.
    pub(crate) index_max: u64,
}

/// A log that is written.
#[derive(Debug)]
pub(crate) struct Wal {
    files: Arc<dyn Files>,
    identity: Identity,
    reserve: Arc<Reserve>,
    acked: Acked,
    /// Oldest first; the last one is written.
    segments: VecDeque<Segment>,
    file: Box<dyn OpenFile>,
    file_bytes: u64,
    /// Where `buffer` goes in the file.
    at: u64,
    /// Records that are not written yet.
    buffer: Vec<u8>,
    place: WritePosition,
    /// The last record that is durable.
    durable: u64,
    summary: Summary,
}

/// Batches made ready: their payloads, and the segments they will need. Nothing is written yet.
#[derive(Debug)]
pub(crate) struct Plan {
    payloads: Vec<u8>,
    steps: VecDeque<(Range<usize>, Option<Spare>)>,
}

/// Makes the first segment of a log; its name is the caller's to sync.
pub(crate) fn found(
    files: &dyn Files,
    identity: Identity,
    file_bytes: u64,
    summary: &Summary,
) -> Result<(), WriteError> {
    let name = names::segment(1);
    let beside = names::beside(&name);
    let mut file = zeros(files, &beside, file_bytes)?;
    let header = Header { identity, number: 1, first_record: 1, file_bytes, chain: 0 };
    let (lead, _) = lead(&header, 0, summary);
    file.write_at(0, &lead).writing("write", files, &beside)?;
    file.sync_data().writing("sync", files, &beside)?;
    files.rename(&beside, &name).writing("name", files, &name)
}

/// How many bytes of its first segment are not zeros when a log was just made.
pub(crate) fn founding_lead_bytes(identity: Identity, summary: &Summary) -> usize {
    let header = Header { identity, number: 1, first_record: 1, file_bytes: 0, chain: 0 };
    lead(&header, 0, summary).0.len()
}

/// The header and the opening of a segment.
fn lead(header: &Header, durable: u64, summary: &Summary) -> (Vec<u8>, WritePosition) {
    let (mut bytes, mut payload) = (Vec::new(), Vec::new());
    let place = header.put(&mut bytes);
    summary.put(&mut payload);
    let place = record::put(place, durable, Kind::Opening, &payload, &mut bytes);
    (bytes, place)
}

impl Wal {
    /// Goes on with a log that was read, all of which counts from here on: what is left of lost
    /// writes becomes zeros, and what was read becomes durable if it was not.
    ///
    /// A sync alone would not do: if the last run ended with a failed one, the system may take what it
    /// holds in memory for written. So whatever nobody knows to be durable is written again.
    pub(crate) fn open(
        files: Arc<dyn Files>,
        reserve: Arc<Reserve>,
        log: &Log,
        mark: Mark,
    ) -> Result<Self, WriteError> {
        let number = log.segments.last().map_or(0, |segment| segment.number);
        let name = names::segment(number);
        let mut file = files.open(&name).writing("open", &*files, &name)?;
        if log.unacked_at < log.tail.at {
            let bytes =
                files.read(&name, SEGMENT_BYTES_MAX).writing("read again", &*files, &name)?;
            let unacked = &bytes[log.unacked_at..log.tail.at];
            file.write_at(log.unacked_at as u64, unacked).writing("write", &*files, &name)?;
        }
        let mut at = log.tail.at;
        while let Some(until) = log.tail.leftover_until.filter(|until| at < *until) {
            let count = (until - at).min(ZEROS_BYTES);
            file.write_at(at as u64, &vec![0; count]).writing("clear", &*files, &name)?;
            at += count;
        }
        file.sync_data().writing("sync", &*files, &name)?;
        let durable = log.tail.place.number - 1;
        let acked = Acked::open(Arc::clone(&files), mark, durable)?;
        Ok(Self {
            identity: mark.identity,
            reserve,
            acked,
            segments: log.segments.iter().copied().collect(),
            file,
            file_bytes: log.tail.file_bytes,
            at: log.tail.at as u64,
            buffer: Vec::new(),
            place: log.tail.place,
            durable,
            summary: log.replay.summary(),
            files,
        })
    }

    /// Begins a run: its number, and what recovery found out, become durable.
    pub(crate) fn boot(
        &mut self,
        restarted: Option<(u64, u64)>,
        hard_state: &HardState,
    ) -> Result<u64, WriteError> {
        let boot = self.summary.boot + 1;
        let mut batch = Vec::new();
        put_parts(restarted, Some(hard_state), &[], &mut batch);
        let bytes = (record_bytes(8) + record_bytes(batch.len())) as u64;
        if self.at + bytes > self.file_bytes {
            let spare = self.reserve.take(LEAD_BYTES + bytes)?;
            self.rotate(&spare)?;
        }
        self.summary.boot = boot;
        self.put(Kind::Boot, &boot.to_le_bytes());
        self.put(Kind::Batch, &batch);
        self.note(restarted, Some(hard_state), None);
        self.flush()?;
        self.sync()?;
        Ok(boot)
    }

    /// Makes batches ready. Whatever may be refused for want of room is refused here.
    pub(crate) fn plan(&self, batches: &[&Batch]) -> Result<Plan, WriteError> {
        let mut plan = Plan { payloads: Vec::new(), steps: VecDeque::new() };
        let mut left = self.file_bytes - self.at;
        for batch in batches {
            let start = plan.payloads.len();
            put_batch(batch, &mut plan.payloads);
            let range = start..plan.payloads.len();
            let bytes = record_bytes(range.len()) as u64;
            assert!(
                LEAD_BYTES + bytes <= SEGMENT_BYTES_MAX,
                "a batch of {bytes} bytes is beyond what Raft leaves uncommitted"
            );
            let spare = if bytes <= left {
                None
            } else {
                match self.reserve.take(LEAD_BYTES + bytes) {
                    Ok(spare) => {
                        left = spare.file_bytes - LEAD_BYTES;
                        Some(spare)
                    }
                    Err(error) => {
                        self.abandon(plan)?;
                        return Err(error);
                    }
                }
            };
            left -= bytes;
            plan.steps.push_back((range, spare));
        }
        Ok(plan)
    }

    fn abandon(&self, plan: Plan) -> Result<(), WriteError> {
        let mut spares = plan.steps.into_iter().filter_map(|(_, spare)| spare);
        spares.try_for_each(|spare| self.reserve.give_back(spare))
    }

    /// Appends the next batch of a plan; it is neither written nor durable yet.
    pub(crate) fn append(&mut self, plan: &mut Plan, batch: &Batch) -> Result<(), WriteError> {
        let restored = batch.snapshot.as_ref().map(|(place, _)| (place.index, place.term));
        let last = batch.entries.last().map(|entry| (entry.index, entry.term));
        let first = batch.entries.first().map(|entry| entry.index);
        let end = restored.map_or(self.summary.last.0, |(index, _)| index);
        assert!(
            first.is_none_or(|first| first <= end + 1),
            "entries from {first:?} leave a gap after {end}"
        );
        let (range, spare) = plan.steps.pop_front().expect("a plan has a step for every batch");
        if let Some(spare) = spare {
            self.rotate(&spare)?;
        }
        self.put(Kind::Batch, &plan.payloads[range]);
        self.note(restored, batch.hard_state.as_ref(), last);
        Ok(())
    }

    /// Follows what was put.
    fn note(
        &mut self,
        restored: Option<(u64, u64)>,
        hard_state: Option<&HardState>,
        last: Option<(u64, u64)>,
    ) {
        if let Some(place) = restored {
            self.summary.last = place;
            let commit = &mut self.summary.hard_state.commit;
            *commit = (*commit).max(place.0);
        }
        if let Some(last) = last {
            self.summary.last = last;
        }
        if let Some(hard_state) = hard_state {
            self.summary.hard_state = hard_state.clone();
        }
        note_indexes(self.segments.iter_mut(), restored.is_some(), last.map(|last| last.0));
    }

    fn put(&mut self, kind: Kind, payload: &[u8]) {
        self.place = record::put(self.place, self.durable, kind, payload, &mut self.buffer);
    }

    /// Writes what was put.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        if !self.buffer.is_empty() {
            let name = self.name();
            self.file.write_at(self.at, &self.buffer).writing("write", &*self.files, &name)?;
            self.at += self.buffer.len() as u64;
            self.buffer.clear();
            self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        }
        Ok(())
    }

    /// Makes durable what was written.
    pub(crate) fn sync(&mut self) -> Result<(), WriteError> {
        let last = self.place.number - 1;
        if self.durable < last {
            let name = self.name();
            self.file.sync_data().writing("sync", &*self.files, &name)?;
            self.durable = last;
            self.acked.mark(last)?;
        }
        Ok(())
    }

    /// Closes this segment, all of it durable, and opens the next.
    fn rotate(&mut self, spare: &Spare) -> Result<(), WriteError> {
        self.flush()?;
        self.sync()?;
        let number = self.segments.back().map_or(0, |segment| segment.number) + 1;
        let header = Header {
            identity: self.identity,
            number,
            first_record: self.place.number,
            file_bytes: spare.file_bytes,
            chain: self.place.chain,
        };
        let (lead, place) = lead(&header, self.durable, &self.summary);
        let (files, name) = (&*self.files, names::segment(number));
        // A spare is zeros only: one that was begun is never a spare again.
        let beside = names::beside(&name);
        files.rename(&spare.name(), &beside).writing("name", files, &beside)?;
        let mut file = files.open(&beside).writing("open", files, &beside)?;
        file.write_at(0, &lead).writing("write", files, &beside)?;
        file.sync_data().writing("sync", files, &beside)?;
        files.rename(&beside, &name).writing("name", files, &name)?;
        files.sync_dir().writing("sync the directory of", files, &name)?;
        self.file = file;
        self.file_bytes = spare.file_bytes;
        self.at = lead.len() as u64;
        self.segments.push_back(Segment { number, index_max: 0 });
        self.place = place;
        self.durable = place.number - 1;
        self.acked.mark(self.durable)
    }

    /// Removes the segments that hold nothing after this index, and says how many.
    pub(crate) fn purge(&mut self, index: u64) -> Result<usize, WriteError> {
        let mut removed = 0;
        while self.segments.len() > 1 && self.segments[0].index_max <= index {
            let name = names::segment(self.segments[0].number);
            self.files.remove(&name).writing("remove", &*self.files, &name)?;
            // One by one: a power cut must not bring an older one back without the one after it.
            self.files.sync_dir().writing("sync the directory of", &*self.files, &name)?;
            self.segments.pop_front();
            removed += 1;
        }
        Ok(removed)
    }

    /// Makes everything durable, the mark of it included.
    pub(crate) fn close(&mut self) -> Result<(), WriteError> {
        self.flush()?;
        self.sync()?;
        self.acked.sync()
    }

    /// How many segments there are.
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    fn name(&self) -> String {
        names::segment(self.segments.back().map_or(0, |segment| segment.number))
    }
}
