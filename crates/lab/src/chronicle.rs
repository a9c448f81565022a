//! What the store did, by its own committed log: the witness that every answer is held against.
//!
//! The log is replayed by the real state machine, as a whole entry at a time. What the replicas
//! themselves made of it, in slices, after crashes and from snapshots, must come out the same. Where there
//! is no log but a register, what was written to it is the witness (`ledger`).

use std::collections::BTreeMap;

use raft::eraftpb::Entry as LogEntry;
use regent_election::store::OfficeState;
use regent_election::{
    Answer, Applied, Cause, Command, Effect, Event as Change, Frees, Group, RequestId, Revision,
    SessionId, SessionNo, Term,
};
use regent_replica::replicated::{Origin, Payload, payload};
use regent_replica::{MemberChange, ReplicatedState};

use crate::checkers::Violation;
use crate::history::{History, What};
use crate::ledger::Ledger;

/// One committed entry that the state machine was given.
#[derive(Clone, Debug)]
pub struct AppliedEntry {
    /// Where in the log.
    pub index: u64,
    /// True time of its first application anywhere.
    pub at: u64,
    /// Whose proposal it was.
    pub origin: Origin,
    /// What was to be done.
    pub command: Command,
    pub request: Option<RequestId>,
    /// Who could not be heard when it was proposed.
    pub silent: Vec<SessionNo>,
    /// What came of it.
    pub applied: Applied,
}

/// One holding of one term.
#[derive(Clone, Debug)]
pub struct Tenure {
    pub group: Group,
    pub term: Term,
    pub session: SessionNo,
    /// When it was granted: true time and revision.
    pub granted: (u64, Revision),
    /// The log index of the grant.
    pub granted_index: u64,
    /// Whether it was granted to one who waited, not to one who asked.
    pub is_promotion: bool,
    /// When its holder had accepted it.
    pub accepted: Option<(u64, Revision)>,
    /// When its holder was told to stop.
    pub ending: Option<(u64, Revision)>,
    /// When and how it ended.
    pub ended: Option<End>,
}

/// One session.
#[derive(Clone, Debug)]
pub struct Session {
    pub secret: SessionId,
    /// The shortest ttl it ever had.
    pub ttl_ms: u64,
    /// When it was opened, in true time.
    pub opened: u64,
    /// By which entry.
    pub opened_index: u64,
    /// When it ended.
    pub ended: Option<u64>,
}

/// How a tenure ended.
#[derive(Clone, Debug)]
pub struct End {
    /// True time.
    pub at: u64,
    pub revision: Revision,
    /// Whether the holder itself asked for it.
    pub by_holder: bool,
    /// Whether it was forced.
    pub forced: bool,
    /// Whether the session expired.
    pub expired: bool,
}

/// Everything the store did.
#[derive(Debug)]
pub struct Chronicle {
    /// Entries by revision, from the first on.
    pub records: Vec<AppliedEntry>,
    /// Tenures in the order of their grants.
    pub tenures: Vec<Tenure>,
    /// Sessions, by public number.
    pub sessions: BTreeMap<SessionNo, Session>,
    /// Changes of members, in order, with true time.
    pub members: Vec<(u64, MemberChange)>,
    /// What was written to the register, in a world that has one: there is no log then.
    pub ledger: Ledger,
    /// Places in `tenures`, by group and term.
    places: BTreeMap<(Group, Term), usize>,
    /// The tenures that have not ended.
    open: BTreeMap<Group, usize>,
}

impl Chronicle {
    /// Replays the committed log.
    ///
    /// # Errors
    /// If the log has gaps, or an entry cannot be read.
    pub fn of(history: &History) -> Result<Self, Violation> {
        if history.setup.register.is_some() {
            return Self::of_register(history);
        }
        let mut chronicle = Self {
            ledger: Ledger::default(),
            records: Vec::new(),
            tenures: Vec::new(),
            sessions: BTreeMap::new(),
            members: Vec::new(),
            places: BTreeMap::new(),
            open: BTreeMap::new(),
        };
        replay(history, |replicated, step| chronicle.take(replicated, step))?;
        Ok(chronicle)
    }

    /// What hosts did to the register that they share.
    fn of_register(history: &History) -> Result<Self, Violation> {
        let ledger = Ledger::of(history)?;
        let (sessions, numbers) = ledger.sessions();
        let tenures = ledger.tenures(history, &numbers);
        let place = |(at, tenure): (usize, &Tenure)| ((tenure.group.clone(), tenure.term), at);
        let places = tenures.iter().enumerate().map(place).collect();
        Ok(Self {
            records: Vec::new(),
            tenures,
            sessions,
            members: Vec::new(),
            ledger,
            places,
            open: BTreeMap::new(),
        })
    }

    /// The entry of a revision.
    #[must_use]
    pub fn record(&self, revision: Revision) -> Option<&AppliedEntry> {
        self.records.get(usize::try_from(revision.0.checked_sub(1)?).ok()?)
    }

    /// The tenure of a term.
    #[must_use]
    pub fn tenure(&self, group: &Group, term: Term) -> Option<&Tenure> {
        self.tenures.get(*self.places.get(&(group.clone(), term))?)
    }

    /// The session of a tenure.
    #[must_use]
    pub fn session_of(&self, tenure: &Tenure) -> Option<SessionId> {
        self.secret(tenure.session)
    }

    /// The secret of a session.
    #[must_use]
    pub fn secret(&self, session: SessionNo) -> Option<SessionId> {
        self.sessions.get(&session).map(|session| session.secret)
    }

    /// All changes that watchers may be told, in order.
    pub fn changes(&self) -> impl Iterator<Item = (&AppliedEntry, &Change)> {
        self.records
            .iter()
            .flat_map(|record| record.applied.events.iter().map(move |c| (record, c)))
    }

    fn take(&mut self, replicated: &ReplicatedState, step: Step) {
        match step {
            Step::Nothing => {}
            Step::Members(at, change) => self.members.push((at, change)),
            Step::Applied(record) => {
                self.follow_sessions(&record);
                self.follow_tenures(replicated, &record);
                self.records.push(*record);
            }
        }
    }

    fn follow_sessions(&mut self, record: &AppliedEntry) {
        let at = record.at;
        for effect in &record.applied.effects {
            match effect {
                Effect::SessionOpened { session, ttl_ms } => {
                    if let Some(secret) = record.command.session() {
                        let (ttl_ms, opened_index) = (*ttl_ms, record.index);
                        let opened =
                            Session { secret, ttl_ms, opened: at, opened_index, ended: None };
                        self.sessions.insert(*session, opened);
                    }
                }
                Effect::TtlChanged { session, ttl_ms } => {
                    if let Some(session) = self.sessions.get_mut(session) {
                        session.ttl_ms = session.ttl_ms.min(*ttl_ms);
                    }
                }
                Effect::SessionEnded { session } => {
                    if let Some(session) = self.sessions.get_mut(session) {
                        session.ended = Some(at);
                    }
                }
                Effect::Wait { .. } | Effect::WaitDropped { .. } | Effect::Office { .. } => {}
            }
        }
    }

    /// Compares who holds what before and after the entry, in the groups it touched.
    fn follow_tenures(&mut self, replicated: &ReplicatedState, record: &AppliedEntry) {
        let mut touched: Vec<Group> =
            record.applied.events.iter().map(|change| change.group.clone()).collect();
        touched.extend(record.command.group().cloned());
        touched.sort_unstable();
        touched.dedup();
        let now = (record.at, record.applied.revision);
        for group in touched {
            let holder = replicated.state.holder(&group);
            let open = self.open.get(&group).and_then(|place| self.tenures.get_mut(*place));
            let is_same = |tenure: &Tenure| {
                holder.is_some_and(|h| h.term == tenure.term && h.session == tenure.session)
            };
            let mut is_fresh = holder.is_some();
            if let Some(tenure) = open {
                if is_same(tenure) {
                    is_fresh = false;
                    follow(tenure, holder.map(|h| h.state), now);
                } else {
                    let holder = self.sessions.get(&tenure.session).map(|s| s.secret);
                    tenure.ended = Some(end_of(record, tenure, holder));
                    self.open.remove(&group);
                }
            }
            if let Some(holder) = holder.filter(|_| is_fresh) {
                let asked = record.command.session();
                let is_promotion = self.secret(holder.session) != asked
                    || !matches!(record.command, Command::Campaign { .. });
                self.places.insert((group.clone(), holder.term), self.tenures.len());
                self.open.insert(group.clone(), self.tenures.len());
                self.tenures.push(Tenure {
                    group: group.clone(),
                    term: holder.term,
                    session: holder.session,
                    granted: now,
                    granted_index: record.index,
                    is_promotion,
                    accepted: None,
                    ending: None,
                    ended: None,
                });
                if let Some(tenure) = self.tenures.last_mut() {
                    follow(tenure, Some(holder.state), now);
                }
            }
        }
    }
}

fn follow(tenure: &mut Tenure, state: Option<OfficeState>, now: (u64, Revision)) {
    match state {
        Some(OfficeState::Leading) => {
            tenure.accepted.get_or_insert(now);
        }
        Some(OfficeState::Ending) => {
            tenure.ending.get_or_insert(now);
        }
        Some(OfficeState::Vacant | OfficeState::Delayed | OfficeState::Elected) | None => {}
    }
}

fn end_of(record: &AppliedEntry, tenure: &Tenure, holder: Option<SessionId>) -> End {
    let command = &record.command;
    let is_asked = command.session().is_some() && command.frees() != Frees::Nothing;
    let by_holder = is_asked && command.session() == holder;
    let is_of_group = |change: &&Change| change.group == tenure.group;
    let forced = record
        .applied
        .events
        .iter()
        .filter(is_of_group)
        .any(|change| change.cause == Cause::Forced);
    End {
        at: record.at,
        revision: record.applied.revision,
        by_holder,
        forced,
        expired: matches!(record.command, Command::Expire { .. }),
    }
}

/// One step of a replay.
#[derive(Debug)]
pub enum Step {
    /// An entry without effect: a Raft leader's first, or a repeated proposal.
    Nothing,
    /// A change of members.
    Members(u64, MemberChange),
    /// Something for the state machine.
    Applied(Box<AppliedEntry>),
}

/// Replays the committed log and shows the whole after every entry.
///
/// # Errors
/// If the log has gaps, or an entry cannot be read.
pub fn replay(
    history: &History,
    mut show: impl FnMut(&ReplicatedState, Step),
) -> Result<(), Violation> {
    let setup = &history.setup;
    let mut replicated = setup.founding();
    let mut last = setup.founded_at;
    for event in &history.events {
        let What::Commit { index, raft_term, is_conf, data, context } = &event.what else {
            continue;
        };
        if *index != last + 1 {
            let why = format!("entry {index} was committed after {last}");
            return Err(Violation::new("S8", event.at, why));
        }
        last = *index;
        let entry = log_entry(*index, *raft_term, *is_conf, data, context);
        let unreadable = |why: String| {
            Violation::new("S8", event.at, format!("entry {index} is no entry: {why}"))
        };
        let step = match payload(&entry).map_err(|why| unreadable(why.to_string()))? {
            Payload::Empty => Step::Nothing,
            Payload::Release => {
                replicated.release();
                Step::Nothing
            }
            Payload::Members(change) => {
                replicated.change_members(&change);
                Step::Members(event.at, change)
            }
            Payload::Proposal(origin, proposal) => {
                if replicated.admit(origin) {
                    let (command, request) = (proposal.command.clone(), proposal.request.clone());
                    let silent = proposal.silent.clone();
                    let applied = replicated.state.apply(proposal);
                    let (index, at) = (*index, event.at);
                    let record =
                        AppliedEntry { index, at, origin, command, request, silent, applied };
                    Step::Applied(Box::new(record))
                } else {
                    Step::Nothing
                }
            }
        };
        show(&replicated, step);
    }
    Ok(())
}

fn log_entry(index: u64, raft_term: u64, is_conf: bool, data: &[u8], context: &[u8]) -> LogEntry {
    let mut entry = LogEntry::default();
    entry.index = index;
    entry.term = raft_term;
    if is_conf {
        entry.set_entry_type(raft::eraftpb::EntryType::EntryConfChangeV2);
    }
    entry.data = data.to_vec().into();
    entry.context = context.to_vec().into();
    entry
}
/// Whether an answer says that something took effect.
#[must_use]
pub const fn took_effect(answer: &Answer) -> bool {
    match answer {
        Answer::Lost | Answer::Overtaken => false,
        Answer::Session { .. }
        | Answer::Elected { .. }
        | Answer::Standing { .. }
        | Answer::Done
        | Answer::Ending { .. }
        | Answer::Forced { .. } => true,
    }
}
