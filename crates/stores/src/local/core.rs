//! The state machine with its deadlines and its log: everything behind the one lock.
//!
//! Every change goes through [`Core::run`], which gives an entry its silent sessions, applies it,
//! hands it to the log, and times what it asks for. The lock is held for no I/O.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regent_election::codec::encode_entry;
use regent_election::deadlines::{Deadlines, Hearing};
use regent_election::state::State;
use regent_election::store::{Heard, LeaderView, StoreError, StoreResult};
use regent_election::{
    Applied, Command, Effect, Entry, Group, Incarnation, Moment, Refusal, RequestId, SessionId,
    SessionNo, WaitKind,
};

use super::log::Log;
use super::waiting::Waiting;

/// How far the store has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Serving.
    Open,
    /// Callers are refused; what is under way is finished.
    Closing,
    /// Nothing is applied any more. After a clean end the state may be written as a whole.
    Stopped { is_clean: bool },
}

/// Everything behind the lock.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) state: State,
    pub(super) deadlines: Deadlines,
    pub(super) log: Log,
    pub(super) waiting: Waiting,
    pub(super) phase: Phase,
    /// When the driver looks next by itself.
    pub(super) driver_wakes_at: Moment,
    incarnation: Incarnation,
}

impl Core {
    /// A state that has just been found, or made: every session has a full ttl from `now`, and every
    /// wait begins again.
    pub(super) fn new(state: State, incarnation: Incarnation, log: Log, now: Moment) -> Self {
        let mut deadlines = Deadlines::new();
        for (session, ttl_ms) in state.sessions() {
            deadlines.open(session, ttl_ms, now);
        }
        // An office stays vacant only while all who stand for it are silent; being heard fills it.
        for session in state.stranded().flat_map(|group| state.standbys(group)) {
            deadlines.fall_silent(session);
        }
        for wait in state.waits() {
            deadlines.wait(wait.group, wait.kind, wait.since, wait.for_ms, now);
        }
        deadlines.promote(now);
        Self {
            state,
            deadlines,
            log,
            waiting: Waiting::default(),
            phase: Phase::Open,
            driver_wakes_at: now,
            incarnation,
        }
    }

    /// Whether callers are served.
    pub(super) fn check_open(&self) -> StoreResult<()> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Closing | Phase::Stopped { .. } => Err(StoreError::Unavailable {
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
        self.log.admit(is_end(&command))?;
        Ok(self.run(command, request))
    }

    /// Applies a command. Not to be called once the store has stopped.
    pub(super) fn run(&mut self, command: Command, request: Option<RequestId>) -> Applied {
        assert!(!matches!(self.phase, Phase::Stopped { .. }), "a stopped store applied an entry");
        let silent = self.silent_for(&command);
        let concerned = Concerned::by(&command);
        let entry = Entry { command, request, silent, wall_ms: wall_ms() };
        let bytes = if self.log.is_kept() { encode_entry(&entry) } else { Vec::new() };
        let mut applied = self.state.apply(entry);
        self.log.append(&bytes, applied.revision, std::mem::take(&mut applied.events));
        self.time(&applied.effects, regent_clock::now());
        self.wake(&applied.effects, concerned);
        applied
    }

    /// The open session of this secret.
    pub(super) fn session(&self, id: SessionId) -> StoreResult<SessionNo> {
        self.state.find_session(id).ok_or(StoreError::Refused(Refusal::SessionUnknown))
    }

    /// Takes a sign of life, if its number is newer than the last.
    pub(super) fn hear(&mut self, session: SessionNo, sequence: Option<u64>) -> StoreResult<()> {
        match self.deadlines.heard(session, sequence, regent_clock::now()) {
            Hearing::Heard => Ok(()),
            Hearing::NotNewer { last } => {
                let given = sequence.unwrap_or_default();
                Err(Refusal::HeartbeatNotNewer { given, last }.into())
            }
            // Expiries are found and applied under one lock, so nobody meets one in between.
            Hearing::Expiring | Hearing::Unknown => Err(Refusal::SessionUnknown.into()),
        }
    }

    /// Takes a sign of life of a session that may not be open.
    pub(super) fn hear_of(&mut self, id: SessionId) {
        if let Some(session) = self.state.find_session(id) {
            let _ = self.deadlines.heard(session, None, regent_clock::now());
        }
    }

    /// What an acknowledged heartbeat says.
    pub(super) fn heard(&self, session: SessionNo) -> StoreResult<Heard> {
        match (self.state.ttl_ms(session), self.state.epoch(session)) {
            (Some(ttl_ms), Some(epoch)) => {
                Ok(Heard { ttl_ms, epoch, revision: self.state.revision() })
            }
            (Some(_) | None, _) => Err(Refusal::SessionUnknown.into()),
        }
    }

    /// Who leads, with the hint how long.
    pub(super) fn office(&self, group: &Group) -> LeaderView {
        let mut view = self.state.leader_view(group, self.incarnation);
        self.add_hint(&mut view);
        view
    }

    /// Adds how long the leader's session lives if it is not heard again.
    pub(super) fn add_hint(&self, view: &mut LeaderView) {
        let holder = self.state.holder(&view.group);
        view.valid_for =
            holder.and_then(|holder| self.deadlines.remaining(holder.session, regent_clock::now()));
    }

    /// The silent sessions among the standbys that this command may promote.
    fn silent_for(&self, command: &Command) -> Vec<SessionNo> {
        let silent = self.deadlines.silent();
        if silent.is_empty() {
            return Vec::new();
        }
        let mut found = BTreeSet::new();
        let mut look_in = |group: &Group| {
            found.extend(self.state.standbys(group).filter(|session| silent.contains(session)));
        };
        match command {
            Command::Campaign { group, .. }
            | Command::Withdraw { group, .. }
            | Command::Resign { group, .. }
            | Command::Offer { group, .. }
            | Command::Transfer { group, .. }
            | Command::StepDown { group, .. }
            | Command::PutPolicy { group, .. }
            | Command::Move { group, .. }
            | Command::Delete { group }
            | Command::Relieve { group, .. }
            | Command::Elapsed { group, .. } => look_in(group),
            Command::Close { session } => {
                let session = self.state.find_session(*session);
                session.into_iter().flat_map(|no| self.state.led_by(no)).for_each(look_in);
            }
            Command::Expire { sessions } => {
                sessions.iter().flat_map(|no| self.state.led_by(*no)).for_each(look_in);
            }
            Command::Refill { session } => self.state.stood_by(*session).for_each(look_in),
            Command::Open { .. }
            | Command::ChangeTtl { .. }
            | Command::Accept { .. }
            | Command::Warm { .. }
            | Command::Admit { .. }
            | Command::ForgetFence { .. }
            | Command::Report { .. }
            | Command::PutSettings { .. } => {}
        }
        found.into_iter().collect()
    }

    /// Starts and stops to time what an entry asks for.
    fn time(&mut self, effects: &[Effect], now: Moment) {
        for effect in effects {
            match effect {
                Effect::SessionOpened { session, ttl_ms } => {
                    self.deadlines.open(*session, *ttl_ms, now);
                }
                Effect::TtlChanged { session, ttl_ms } => {
                    self.deadlines.change_ttl(*session, *ttl_ms, now);
                }
                Effect::SessionEnded { session } => self.deadlines.close(*session),
                Effect::Wait { group, kind, since, for_ms } => {
                    self.deadlines.wait(group.clone(), *kind, *since, *for_ms, now);
                }
            }
        }
    }

    /// Wakes the waiting campaigns that an entry may have decided.
    fn wake(&mut self, effects: &[Effect], concerned: Concerned) {
        for effect in effects {
            match effect {
                Effect::Wait { group, kind: WaitKind::Acceptance, .. } => {
                    if let Some(holder) = self.state.holder(group) {
                        self.waiting.wake(holder.session);
                    }
                }
                Effect::SessionEnded { session } => self.waiting.wake(*session),
                Effect::Wait { .. } | Effect::SessionOpened { .. } | Effect::TtlChanged { .. } => {}
            }
        }
        match concerned {
            Concerned::Nobody => {}
            Concerned::Session(id) => {
                if let Some(session) = self.state.find_session(id) {
                    self.waiting.wake(session);
                }
            }
            Concerned::Everybody => self.waiting.wake_all(),
        }
    }
}

/// Whose standing a command may end without an effect that tells.
enum Concerned {
    Nobody,
    Session(SessionId),
    Everybody,
}

impl Concerned {
    const fn by(command: &Command) -> Self {
        match command {
            Command::Withdraw { session, .. }
            | Command::Accept { session, .. }
            | Command::Campaign { session, .. } => Self::Session(*session),
            Command::PutPolicy { .. }
            | Command::Move { .. }
            | Command::Delete { .. }
            | Command::PutSettings { .. } => Self::Everybody,
            Command::Open { .. }
            | Command::ChangeTtl { .. }
            | Command::Close { .. }
            | Command::Expire { .. }
            | Command::Resign { .. }
            | Command::Offer { .. }
            | Command::Warm { .. }
            | Command::Transfer { .. }
            | Command::StepDown { .. }
            | Command::Admit { .. }
            | Command::ForgetFence { .. }
            | Command::Report { .. }
            | Command::Relieve { .. }
            | Command::Elapsed { .. }
            | Command::Refill { .. } => Self::Nobody,
        }
    }
}

/// Whether a command ends or confirms something: these are let in while a full disk has its reserve.
const fn is_end(command: &Command) -> bool {
    match command {
        Command::Close { .. }
        | Command::Expire { .. }
        | Command::Withdraw { .. }
        | Command::Accept { .. }
        | Command::Resign { .. }
        | Command::Elapsed { .. }
        | Command::Refill { .. } => true,
        Command::Open { .. }
        | Command::ChangeTtl { .. }
        | Command::Campaign { .. }
        | Command::Offer { .. }
        | Command::Warm { .. }
        | Command::Transfer { .. }
        | Command::StepDown { .. }
        | Command::PutPolicy { .. }
        | Command::Move { .. }
        | Command::Delete { .. }
        | Command::Admit { .. }
        | Command::ForgetFence { .. }
        | Command::Report { .. }
        | Command::Relieve { .. }
        | Command::PutSettings { .. } => false,
    }
}

/// The wall clock, as a note for people.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
