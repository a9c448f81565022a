//! The ledger with the lease clock: everything behind the one lock.
//!
//! Every change goes through [`Core::run`], which reads the clock and keeps what watchers are to be
//! told.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regent_election::ledger::{HeartbeatOutcome, Ledger};
use regent_election::state::{Query, State, View};
use regent_election::store::{HeartbeatView, StoreError, StoreResult};
use regent_election::{
    Applied, Command, Event, Incarnation, Moment, Refusal, RequestId, Revision, SessionId,
    SessionNo, StateBudget, StateGrowth,
};

/// How far the store has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Nothing is applied any more.
    Stopped,
}

/// Everything behind the lock.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) ledger: Ledger,
    /// What entries have caused and watchers have not been told, in order.
    pub(super) caused: Vec<(Revision, Vec<Event>)>,
    pub(super) phase: Phase,
    /// When the driver looks next by itself.
    pub(super) driver_wakes_at: Moment,
}

impl Core {
    /// A state that is served from `now` on.
    pub(super) fn new(
        state: State,
        incarnation: Incarnation,
        now: Moment,
        budget: StateBudget,
    ) -> Self {
        let mut ledger = Ledger::new(state, incarnation, now).with_budget(budget);
        ledger.serve(now);
        Self { ledger, caused: Vec::new(), phase: Phase::Open, driver_wakes_at: now }
    }

    pub(super) fn state(&self) -> &State {
        self.ledger.state()
    }

    /// Whether callers are served.
    pub(super) fn check_open(&self) -> StoreResult<()> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Stopped => Err(StoreError::Unavailable {
                why: "it is shutting down".into(),
                retry_after: None,
            }),
        }
    }

    /// Applies a caller's command, unless the store cannot take it.
    pub(super) fn ask(
        &mut self,
        command: Command,
        request: Option<RequestId>,
    ) -> StoreResult<Applied> {
        self.check_open()?;
        if let Some(session) = self.ledger.asker(&command) {
            // Whoever asks is alive, and must not be passed over as silent by its own campaign.
            self.ledger.shows_life(regent_clock::now(), session);
        }
        self.ledger.check_budget(&command, request.as_ref(), StateGrowth::default())?;
        Ok(self.run(command, request))
    }

    /// Applies a command. Not to be called once the store has stopped.
    pub(super) fn run(&mut self, command: Command, request: Option<RequestId>) -> Applied {
        assert!(self.phase != Phase::Stopped, "a stopped store applied an entry");
        let entry = self.ledger.entry(command, request, wall_ms(), &BTreeSet::new());
        let mut applied = self.ledger.apply(regent_clock::now(), entry, |_| {});
        self.caused.push((applied.revision, std::mem::take(&mut applied.events)));
        applied
    }

    /// The open session of this secret.
    pub(super) fn session(&self, id: SessionId) -> StoreResult<SessionNo> {
        self.state().find_session(id).ok_or(StoreError::Refused(Refusal::SessionUnknown))
    }

    /// Takes a sign of life, if its number is newer than the last.
    pub(super) fn count_heartbeat(
        &mut self,
        id: SessionId,
        sequence: Option<u64>,
    ) -> StoreResult<()> {
        match self.ledger.heartbeat(regent_clock::now(), id, sequence) {
            HeartbeatOutcome::Extended => Ok(()),
            HeartbeatOutcome::NotNewer { last } => {
                let given = sequence.unwrap_or_default();
                Err(Refusal::HeartbeatNotNewer { given, last }.into())
            }
            // Expiries are found and applied under one lock, so nobody meets one in between.
            HeartbeatOutcome::Expiring | HeartbeatOutcome::Unknown => {
                Err(Refusal::SessionUnknown.into())
            }
        }
    }

    /// What an acknowledged heartbeat says.
    pub(super) fn heartbeat_view(&self, session: SessionNo) -> StoreResult<HeartbeatView> {
        match (self.state().ttl_ms(session), self.state().epoch(session)) {
            (Some(ttl_ms), Some(epoch)) => {
                Ok(HeartbeatView { ttl_ms, epoch, revision: self.state().revision() })
            }
            (Some(_) | None, _) => Err(Refusal::SessionUnknown.into()),
        }
    }

    /// Answers a question by the state as it is.
    pub(super) fn query(&self, query: &Query) -> StoreResult<View> {
        Ok(self.ledger.read(regent_clock::now(), query)?)
    }
}

/// The wall clock, as a note for people.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
