//! What has been applied and is not yet durable, and who waits for it.
//!
//! Entries are applied first and written after, many at once: an answer, a read or an event leaves
//! the store only when everything it could have seen is durable. A crash in between loses work that
//! nobody was told of.

use std::collections::VecDeque;

use regent_election::store::{StoreError, StoreResult};
use regent_election::{Event, Revision};
use tokio::sync::oneshot;

use super::frame::put_entry;

/// Bytes that may wait to be written before callers are turned away.
const PENDING_BYTES_MAX: usize = 32 << 20;
/// Space of a full disk that is left for ends: expiries, resignations, confirmations.
const RESERVE_BYTES: u64 = 128 << 10;

/// What waits to be written.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The entries, as [`put_entry`] writes them; empty for a store that writes nothing.
    pub(super) bytes: Vec<u8>,
    /// What they caused, entry by entry.
    pub(super) caused: Vec<(Revision, Vec<Event>)>,
}

impl Batch {
    /// The revision of its first entry and of its last.
    pub(super) fn span(&self) -> Option<(Revision, Revision)> {
        Some((self.caused.first()?.0, self.caused.last()?.0))
    }
}

/// The way from applied to durable.
#[derive(Debug)]
pub(super) struct Log {
    pending: Batch,
    durable: Revision,
    /// In rising order of what they wait for.
    waiters: VecDeque<(Revision, oneshot::Sender<()>)>,
    /// Space ahead in the journal as of the last write; none for a store that writes nothing.
    room_bytes: Option<u64>,
    is_disk_full: bool,
}

impl Log {
    /// A log whose state is durable up to `durable`.
    pub(super) fn new(durable: Revision, room_bytes: Option<u64>) -> Self {
        Self {
            pending: Batch::default(),
            durable,
            waiters: VecDeque::new(),
            room_bytes,
            is_disk_full: false,
        }
    }

    /// Whether entries are written at all.
    pub(super) const fn is_kept(&self) -> bool {
        self.room_bytes.is_some()
    }

    /// Whether another entry may be applied. `is_end` is true of what ends or confirms: that is
    /// let in as long as the reserve of a full disk lasts.
    pub(super) fn admit(&self, is_end: bool) -> StoreResult<()> {
        let waiting = self.pending.bytes.len();
        let room = self.room_bytes.unwrap_or(u64::MAX).saturating_sub(waiting as u64);
        let why = if self.is_disk_full && room < RESERVE_BYTES && !is_end {
            "the disk is full"
        } else if waiting > PENDING_BYTES_MAX {
            "the disk does not keep up"
        } else {
            return Ok(());
        };
        let retry_after = Some(std::time::Duration::from_secs(1));
        Err(StoreError::Unavailable { why: why.into(), retry_after })
    }

    /// Takes an entry that was applied, and what it caused.
    pub(super) fn append(&mut self, entry: &[u8], revision: Revision, events: Vec<Event>) {
        if self.is_kept() {
            put_entry(&mut self.pending.bytes, entry);
        }
        self.pending.caused.push((revision, events));
    }

    /// Whether something waits to be written.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.caused.is_empty()
    }

    /// Everything that waits to be written.
    pub(super) fn take(&mut self) -> Batch {
        std::mem::take(&mut self.pending)
    }

    /// Everything up to `durable` can no longer be lost, and its events are published.
    pub(super) fn settle(&mut self, durable: Revision) {
        self.durable = durable;
        while let Some((_, waiter)) = self.waiters.pop_front_if(|(needs, _)| *needs <= durable) {
            // One who no longer waits does not mind.
            let _ = waiter.send(());
        }
    }

    /// Tells how much space the journal has ahead, and whether the disk refused more.
    pub(super) fn note_space(&mut self, room_bytes: u64, is_disk_full: bool) {
        self.room_bytes = Some(room_bytes);
        self.is_disk_full = is_disk_full;
    }

    pub(super) const fn is_disk_full(&self) -> bool {
        self.is_disk_full
    }

    /// What must be awaited before anything seen at `revision` may be told.
    pub(super) fn ticket(&mut self, revision: Revision) -> Ticket {
        if revision <= self.durable {
            return Ticket(None);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiters.push_back((revision, sender));
        Ticket(Some(receiver))
    }
}

/// A claim to be told when a revision is durable.
#[derive(Debug)]
#[must_use = "nothing may be told before the ticket is redeemed"]
pub(super) struct Ticket(Option<oneshot::Receiver<()>>);

impl Ticket {
    /// Waits until everything seen is durable.
    pub(super) async fn redeem(self) -> StoreResult<()> {
        match self.0 {
            None => Ok(()),
            Some(receiver) => receiver.await.map_err(|_| StoreError::Uncertain {
                why: "the store stopped before it was written".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_takes_ends_as_long_as_its_reserve_lasts_and_nothing_else() {
        let mut log = Log::new(Revision(0), Some(RESERVE_BYTES));
        assert!(log.admit(false).is_ok());
        log.note_space(RESERVE_BYTES, true);
        assert!(log.admit(false).is_ok());
        log.append(&[0; 100], Revision(1), Vec::new());
        let error = log.admit(false).unwrap_err().to_string();
        assert!(error.contains("the disk is full; nothing happened"), "{error}");
        assert!(log.admit(true).is_ok());
        log.note_space(RESERVE_BYTES * 4, false);
        assert!(log.admit(false).is_ok(), "there is space again");
    }

    #[test]
    fn a_disk_that_does_not_keep_up_turns_callers_away() {
        let mut log = Log::new(Revision(0), Some(0));
        log.append(&vec![0; PENDING_BYTES_MAX], Revision(1), Vec::new());
        let error = log.admit(true).unwrap_err().to_string();
        assert!(error.contains("does not keep up"), "{error}");
    }

    #[tokio::test]
    async fn a_ticket_is_good_when_its_revision_is_durable_and_not_before() {
        let mut log = Log::new(Revision(3), Some(0));
        log.ticket(Revision(3)).redeem().await.unwrap();
        let (fourth, fifth) = (log.ticket(Revision(4)), log.ticket(Revision(5)));
        log.settle(Revision(4));
        fourth.redeem().await.unwrap();
        assert_eq!(log.waiters.len(), 1);
        drop(log);
        let lost = fifth.redeem().await;
        assert!(matches!(lost, Err(StoreError::Uncertain { .. })), "{lost:?}");
    }
}
