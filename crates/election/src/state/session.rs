//! A session's record, and the memory of sessions that ended.

use std::collections::{BTreeSet, VecDeque};

use super::accounts::Payer;
use super::repeat::Requests;
use crate::limits::SESSIONS_ENDED_REMEMBERED;
use crate::name::{Group, Node, SessionId};

/// Everything remembered of one open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) node: Node,
    /// Who opened it, and is charged for it: nobody else may use it. None if it was opened without authentication.
    pub(super) owner: Payer,
    pub(super) ttl_ms: u64,
    /// The longest ttl this session ever had. Its holder may still count on it, and the machine
    /// knows no time, so waits for this session's holder use it.
    pub(super) ttl_ms_longest: u64,
    /// Ends by itself once it neither leads nor stands.
    pub(super) passing: bool,
    /// It is ending in this very entry: nobody may promote it any more.
    pub(super) gone: bool,
    /// Rises with every change to its tenures or standbys that it did not ask for.
    pub(super) epoch: u64,
    pub(super) leads: BTreeSet<Group>,
    pub(super) stands: BTreeSet<Group>,
    pub(super) requests: Requests,
}

/// The ids of sessions that ended, so that a delayed duplicate cannot open one again.
///
/// Kept as 64-bit prints: a wrong match refuses a random id once in 10^14, and never grants anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EndedSessions {
    order: VecDeque<u64>,
    known: BTreeSet<u64>,
}

impl EndedSessions {
    pub(super) fn remember(&mut self, session: SessionId) {
        self.push(print(session));
    }

    pub(super) fn push(&mut self, print: u64) {
        if !self.known.insert(print) {
            return;
        }
        self.order.push_back(print);
        if self.order.len() > SESSIONS_ENDED_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, session: SessionId) -> bool {
        self.known.contains(&print(session))
    }

    /// The prints in the order in which they were remembered.
    pub(super) fn prints(&self) -> impl ExactSizeIterator<Item = u64> {
        self.order.iter().copied()
    }
}

const fn print(session: SessionId) -> u64 {
    let number = session.get();
    (number as u64) ^ ((number >> 64) as u64)
}
