//! The store's machine: a state and the clock of its sessions, as one.
//!
//! The state machine knows no time and the deadlines know no groups. Whoever serves elections needs
//! both, and has to keep them together: an entry carries who is silent, an applied entry says what
//! to count from now on, and what time brings is proposed as another entry.
//!
//! ```text
//!  command ──► entry: + who is silent ──► (log, disk, peers) ──► begin, advance: State
//!     ▲                                                                    │ effects
//!     └── due: Expire, Elapsed, Refill ◄── Deadlines ◄── heard ◄───────────┘
//! ```
//!
//! A replica, the memory store, the simulator's session store and the tests drive this one machine.
//! It reads no clock and touches no disk: a driver brings the moment with every call, and decides what
//! lies between an entry and its apply. A driver whose state lies in something larger, such as a
//! replica's, keeps that in place of the bare state: anything that gives a [`State`] will do.
//!
//! **Serving.** Every replica follows which sessions are open, so that becoming responsible costs one
//! number and not a walk over a million of them; only the one that *serves* counts waits, judges who is
//! due, and says how long a leader has left ([`Ledger::serve`], [`Ledger::stop_serving`]).
//!
//! The road not taken: a driver couples the two by hand. There were five such drivers, with three
//! answers to the question who is silent.
//!
//! Left to the driver: to count heartbeats before it asks what is due (semantics 5), to confirm after a
//! gap that it may still expire anybody (semantics 8), to make entries durable, and to answer.

#[cfg(test)]
mod election_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::command::{Command, Entry, IfLost};
use crate::deadlines::Deadlines;
use crate::elections::ElectionTimer;
use crate::limits::{
    REFILL_EVERY_MS, SILENT_LOOKED_AT_MAX, SILENT_WHOLE_MAX, STATE_BYTES_MAX_DEFAULT,
    STRANDED_PER_LOOK_MAX, TTL_MS_DEFAULT,
};
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::name::{Group, RequestId, SessionId, SessionNo};
use crate::outcome::{Answer, Applied, Cause, Effect, OfficeChange, Refusal};
use crate::state::{Lens, Query, State, StateBudget, StateGrowth, View};
use crate::store::{Census, OfficesView, SharesView};
use crate::term::Incarnation;

pub use crate::deadlines::{HeartbeatOutcome, Turn};

/// How much of an entry is done at once, so that messages and heartbeats get their turn.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Groups' worth of work on the state.
    pub groups_max: usize,
    /// Effects that are timed.
    pub effects_max: usize,
}

impl Slice {
    /// All of it.
    pub const WHOLE: Self = Self { groups_max: usize::MAX, effects_max: usize::MAX };
}

/// A state with the deadlines of its sessions. `S` is where the state lies.
#[derive(Clone, Debug)]
pub struct Ledger<S = State> {
    kept: S,
    incarnation: Incarnation,
    deadlines: Deadlines,
    is_serving: bool,
    /// The most that the state may weigh, and a principal's part of it, before growth is refused.
    budget: StateBudget,
    /// Sessions whose expiry is proposed and not applied.
    expiring: BTreeSet<SessionNo>,
    /// A wait that was over could not be proposed: all of them start again.
    wants_waits: bool,
    /// When offices that nobody audible stood for were last looked at, and up to which group.
    refilled_at: Option<Moment>,
    refilled_up_to: Option<Group>,
    /// How long elections take, while it serves.
    elections: ElectionTimer,
    /// The group and the ttl of the campaign under way that leaves nothing behind if it loses.
    campaigning: Option<(Group, u64)>,
    /// An entry that has changed the state, with those of its effects that are not timed yet.
    timing: Option<(Applied, std::vec::IntoIter<Effect>)>,
}

impl AsRef<State> for State {
    fn as_ref(&self) -> &State {
        self
    }
}

impl AsMut<State> for State {
    fn as_mut(&mut self) -> &mut State {
        self
    }
}

impl<S: AsRef<State> + AsMut<State>> Ledger<S> {
    /// Follows the sessions of a state that was found, made or sent. It does not serve yet.
    pub fn new(kept: S, incarnation: Incarnation, now: Moment) -> Self {
        let mut deadlines = Deadlines::new();
        for (session, ttl_ms) in kept.as_ref().sessions() {
            deadlines.open(session, ttl_ms, now);
        }
        Self {
            kept,
            incarnation,
            deadlines,
            is_serving: false,
            budget: StateBudget::whole(STATE_BYTES_MAX_DEFAULT),
            expiring: BTreeSet::new(),
            wants_waits: false,
            refilled_at: None,
            refilled_up_to: None,
            elections: ElectionTimer::default(),
            campaigning: None,
            timing: None,
        }
    }

    /// The same with another budget for the state.
    #[must_use]
    pub fn with_budget(self, budget: StateBudget) -> Self {
        Self { budget: budget.at_least_usable(), ..self }
    }

    /// Whether a command may be proposed, `pending` growth being proposed and not applied: of everybody, and of this
    /// command's caller. Says how much it may add. Not to be asked while an entry is under way.
    pub fn check_budget(
        &self,
        command: &Command,
        request: Option<&RequestId>,
        pending: StateGrowth,
    ) -> Result<StateGrowth, Refusal> {
        self.state().check_budget(command, request, pending, self.budget)
    }

    /// The state. Not to be read while an entry is under way.
    pub fn state(&self) -> &State {
        self.kept.as_ref()
    }

    /// What the state lies in.
    pub const fn kept(&self) -> &S {
        &self.kept
    }

    /// The same, to change what lies beside the state. The state itself changes by entries only.
    pub const fn kept_mut(&mut self) -> &mut S {
        &mut self.kept
    }

    // ----- Serving -----

    /// Begins to judge: every session has a full ttl from this moment, and every wait starts again.
    pub fn serve(&mut self, now: Moment) {
        self.is_serving = true;
        self.elections.forget();
        if !mutant::is(Mutant::NoTtlAfterPromotion) {
            self.deadlines.promote(now);
        }
        self.feed_waits(now);
    }

    /// Stops judging: expiries under way may or may not come true, and another driver will see.
    pub fn stop_serving(&mut self) {
        self.is_serving = false;
        self.elections.forget();
        for session in std::mem::take(&mut self.expiring) {
            self.deadlines.spare(session);
        }
        self.deadlines.forget_waits();
    }

    /// Whether it judges.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        self.is_serving
    }

    /// To be called once per turn of the driver's loop, after counting heartbeats and before asking
    /// what is due. A loop that was away too long to know who was silent gives everybody a full ttl.
    pub fn turn(&mut self, now: Moment) -> Turn {
        let turn = self.deadlines.turn(now);
        if self.wants_waits {
            self.feed_waits(now);
        }
        turn
    }

    fn feed_waits(&mut self, now: Moment) {
        self.wants_waits = false;
        self.deadlines.forget_waits();
        for wait in self.kept.as_ref().waits() {
            self.deadlines.wait(wait.group, wait.kind, wait.since, wait.for_ms, now);
        }
    }

    /// What time has brought, to be proposed in this order. Each is said once: what could not be
    /// proposed goes to [`Ledger::not_proposed`].
    ///
    /// Looks at no more than `checks_max` sessions and as many waits, so that one turn stays short;
    /// there may be more while [`Ledger::next_at`] is not after `now`.
    pub fn due(&mut self, now: Moment, checks_max: usize) -> Vec<Command> {
        let mut due = Vec::new();
        let sessions = self.deadlines.due(now, checks_max);
        if !sessions.is_empty() {
            self.expiring.extend(sessions.iter().copied());
            due.push(Command::Expire { sessions });
        }
        for (group, kind, since) in self.deadlines.elapsed(now, checks_max) {
            due.push(Command::Elapsed { group, kind, since });
        }
        due.extend(self.refills(now).into_iter().map(|session| Command::Refill { session }));
        due
    }

    /// Something that was due is certainly not in any log: sessions go on, waits start again.
    pub fn not_proposed(&mut self, command: &Command) {
        if let Command::Expire { sessions } = command {
            for session in sessions {
                self.expiring.remove(session);
                self.deadlines.spare(*session);
            }
        }
        // Said once and not proposed: start all of them again rather than forget one.
        self.wants_waits |= matches!(command, Command::Elapsed { .. });
    }

    /// The sessions for which offices may be filled that stayed vacant because all who stand were silent.
    ///
    /// Who became audible is looked up from the state rather than remembered: a session may be heard
    /// between the proposal that passed it over and its apply. One look goes on where the last one
    /// ended, so that many lines of silent sessions do not hide an audible one.
    fn refills(&mut self, now: Moment) -> BTreeSet<SessionNo> {
        let state = self.kept.as_ref();
        let every = Duration::from_millis(REFILL_EVERY_MS);
        let is_early = self.refilled_at.is_some_and(|at| now.since(at) < every);
        if !state.has_stranded() || is_early {
            return BTreeSet::new();
        }
        self.refilled_at = Some(now);
        let silent = self.deadlines.silent();
        let (mut audible, mut looked_at, mut last) = (BTreeSet::new(), 0, None);
        for group in state.stranded_after(self.refilled_up_to.as_ref()) {
            audible.extend(state.standbys(group).find(|session| !silent.contains(session)));
            (looked_at, last) = (looked_at + 1, Some(group));
            if looked_at == STRANDED_PER_LOOK_MAX {
                break;
            }
        }
        self.refilled_up_to = last.filter(|_| looked_at == STRANDED_PER_LOOK_MAX).cloned();
        audible
    }

    /// When the next turn is needed at the latest; none while there is nothing to count.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        let every = Duration::from_millis(REFILL_EVERY_MS);
        let refill_at = self.refilled_at.filter(|_| self.state().has_stranded());
        self.deadlines.next_at().into_iter().chain(refill_at.map(|at| at + every)).min()
    }

    // ----- Entries -----

    /// The session that asks for a command, if it is open. Whatever a driver appends for a session is a
    /// sign of its life, save for a ttl that will be refused: that is part of a renewal, and a refused
    /// renewal extends nothing.
    pub fn asker(&self, command: &Command) -> Option<SessionNo> {
        let session = command.session().and_then(|id| self.state().find_session(id))?;
        // A caller whose credential is over may still give something up, and must not live on by that.
        if command.who().is_some() && command.gives_up() {
            return None;
        }
        // What another principal asks for is no sign of life of the session that it names.
        // Nor is what a revoked token asks for.
        self.state().admits(command).ok()?;
        if let Command::ChangeTtl { ttl_ms, .. } = command.plain() {
            self.state().may_change_ttl(session, *ttl_ms).ok()?;
        }
        Some(session)
    }

    /// A command with what travels beside it: the silent sessions among the standbys that it may
    /// promote, save for those `just_heard`.
    ///
    /// If few are silent at all, all of them travel; else those of the groups concerned, of which no
    /// more than a bounded number is looked at. Who is not looked at may be promoted though silent,
    /// and is passed over later.
    pub fn entry(
        &self,
        command: Command,
        request: Option<RequestId>,
        wall_ms: u64,
        just_heard: &BTreeSet<SessionNo>,
    ) -> Entry {
        let mut silent = self.silent_for(&command);
        silent.retain(|session| !just_heard.contains(session));
        Entry { command, request, silent, wall_ms }
    }

    fn silent_for(&self, command: &Command) -> Vec<SessionNo> {
        if mutant::is(Mutant::SilentPromoted) || !command.may_promote() {
            return Vec::new();
        }
        let silent = self.deadlines.silent();
        if silent.len() <= SILENT_WHOLE_MAX {
            return silent.iter().copied().collect();
        }
        let state = self.state();
        let standbys = command.promotes_in(state).flat_map(|group| state.standbys(group));
        let concerned: BTreeSet<SessionNo> =
            standbys.take(SILENT_LOOKED_AT_MAX).filter(|no| silent.contains(no)).collect();
        concerned.into_iter().collect()
    }

    /// Begins an entry whose work [`Ledger::advance`] then does in slices.
    pub fn begin(&mut self, entry: Entry) {
        assert!(self.timing.is_none(), "an entry began before the one before it was timed");
        if let Command::Campaign { group, opening, if_lost: IfLost::Leave, .. } =
            entry.command.plain()
        {
            let ttl_ms = opening.as_ref().and_then(|opening| opening.ttl_ms);
            self.campaigning = Some((group.clone(), ttl_ms.unwrap_or(TTL_MS_DEFAULT)));
        }
        self.kept.as_mut().begin(entry);
    }

    /// Does a slice of the entry that was begun: first on the state, then by timing what it asks for.
    /// `each` is told every effect as it is timed. Returns the result when all is done, without the
    /// effects; until then the state is between two revisions.
    pub fn advance(
        &mut self,
        now: Moment,
        slice: Slice,
        mut each: impl FnMut(&Effect),
    ) -> Option<Applied> {
        let (applied, mut effects) = match self.timing.take() {
            Some(timing) => timing,
            None => {
                let mut applied = self.kept.as_mut().advance(slice.groups_max)?;
                let effects = std::mem::take(&mut applied.effects).into_iter();
                (applied, effects)
            }
        };
        for effect in effects.by_ref().take(slice.effects_max) {
            each(&effect);
            self.time(effect, now);
        }
        if effects.len() == 0 {
            self.note_loser(&applied, now);
            return Some(applied);
        }
        self.timing = Some((applied, effects));
        None
    }

    /// Applies one entry as a whole.
    pub fn apply(&mut self, now: Moment, entry: Entry, mut each: impl FnMut(&Effect)) -> Applied {
        self.begin(entry);
        loop {
            if let Some(applied) = self.advance(now, Slice::WHOLE, &mut each) {
                return applied;
            }
        }
    }

    fn time(&mut self, effect: Effect, now: Moment) {
        match effect {
            Effect::SessionOpened { session, ttl_ms } => self.deadlines.open(session, ttl_ms, now),
            Effect::TtlChanged { session, ttl_ms } => {
                self.deadlines.change_ttl(session, ttl_ms, now);
            }
            Effect::SessionEnded { session } => {
                self.deadlines.close(session);
                self.expiring.remove(&session);
            }
            Effect::Wait { group, kind, since, for_ms } => {
                if self.is_serving {
                    self.deadlines.wait(group, kind, since, for_ms, now);
                }
            }
            Effect::WaitDropped { group, kind, since } => {
                self.deadlines.drop_wait(group, kind, since);
            }
            Effect::Office { group, change } if self.is_serving => {
                let over_at = match change {
                    OfficeChange::Vacated { session, cause: Cause::Expired, .. } => {
                        self.deadlines.deadline(session)
                    }
                    OfficeChange::Vacated { .. }
                    | OfficeChange::NotAccepted
                    | OfficeChange::Wanted
                    | OfficeChange::Unwanted
                    | OfficeChange::Filled { .. }
                    | OfficeChange::Gone => None,
                };
                self.elections.note(now, &group, change, over_at);
            }
            Effect::Office { .. } => {}
        }
    }

    /// A campaign that lost and left nothing behind wants the office all the same, until its pause is over.
    fn note_loser(&mut self, applied: &Applied, now: Moment) {
        let Some((group, ttl_ms)) = self.campaigning.take() else { return };
        if self.is_serving && matches!(applied.answer, Ok(Answer::Lost)) {
            let state = self.kept.as_ref();
            let pause = Duration::from_millis(state.policy(&group).retry_ms_max_for(ttl_ms));
            let is_led = state.leads(&group);
            self.elections.asked(now, &group, is_led, now + pause);
        }
    }

    // ----- Heartbeats -----

    /// A heartbeat arrived. Its arrival alone extends the session; the answer is the driver's.
    pub fn heartbeat(
        &mut self,
        now: Moment,
        session: SessionId,
        sequence: Option<u64>,
    ) -> HeartbeatOutcome {
        match self.kept.as_ref().find_session(session) {
            None => HeartbeatOutcome::Unknown,
            Some(session) => self.deadlines.heartbeat(session, sequence, now),
        }
    }

    /// Another sign of a session's life: something was appended for it.
    pub fn shows_life(&mut self, now: Moment, session: SessionNo) {
        // An expiry under way is not taken back by it.
        let _ = self.deadlines.heartbeat(session, None, now);
    }

    /// When a session is due if it is not heard again, whether its expiry is proposed or not.
    pub fn deadline(&self, session: SessionNo) -> Option<Moment> {
        self.deadlines.deadline(session)
    }

    /// How many sessions are about to expire.
    #[must_use]
    pub fn expiring(&self) -> usize {
        self.expiring.len()
    }

    // ----- Reads -----

    /// Answers a question, with what only the one who serves knows: how long a leader has left, and who
    /// is silent (semantics 30).
    pub fn read(&self, now: Moment, query: &Query) -> Result<View, Refusal> {
        let remaining = |session| self.remaining(now, session);
        let is_silent = |session| self.is_silent(session);
        let incarnation = self.incarnation;
        let lens = Lens { incarnation, remaining: &remaining, is_silent: &is_silent };
        Ok(match self.state().query(query, lens)? {
            View::Census(census) => {
                View::Census(Census { state_bytes_max: self.budget.bytes_max, ..census })
            }
            View::Shares(shares) => {
                View::Shares(SharesView { share_bytes_max: self.budget.share_max, ..shares })
            }
            View::Offices(offices) => {
                let times = Some(self.elections.times().clone());
                View::Offices(OfficesView { times, ..offices })
            }
            view => view,
        })
    }

    /// How long a session lives if it is not heard again; none if it is not judged here.
    pub fn remaining(&self, now: Moment, session: SessionNo) -> Option<Duration> {
        self.is_serving.then(|| self.deadlines.remaining(session, now)).flatten()
    }

    /// Whether a session was not heard for half its ttl.
    pub fn is_silent(&self, session: SessionNo) -> bool {
        self.is_serving && self.deadlines.silent().contains(&session)
    }

    /// What the one who serves knows of a group beside its state: how long its leader has left, and
    /// which of its standbys are silent.
    pub fn sight(&self, now: Moment, group: &Group) -> (Option<Duration>, Vec<SessionNo>) {
        let state = self.state();
        let holder = state.holder(group).map(|holder| holder.session);
        let remaining = holder.and_then(|session| self.deadlines.remaining(session, now));
        let silent = self.deadlines.silent();
        (remaining, state.standbys(group).filter(|no| silent.contains(no)).collect())
    }
}
