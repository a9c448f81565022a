//! What was written to a register: the witness that every answer of a lease is held against.
//!
//! The engine does one thing after the other, and each replaced entry is an event of the history. So what
//! a replica's log is to the other checkers, the sequence of each entry's values is to those of a lease;
//! who held which term is read off them, without asking the lease.

use std::collections::BTreeMap;

use regent_election::store::OfficeState;
use regent_election::{
    Cause, Command, Event as Change, Frees, Group, Revision, SessionId, SessionNo, Term,
};
use regent_stores::lease::reading::{self, GroupEntry, SessionEntry};
use regent_stores::register::KeyKind;

use crate::checkers::Violation;
use crate::chronicle::{End, Session, Tenure};
use crate::history::{History, Op, What};

/// One value of a group's entry.
#[derive(Clone, Debug)]
pub struct GroupWrite {
    /// When it was written, in true time.
    pub at: u64,
    /// What it says.
    pub entry: GroupEntry,
    /// The changes that it brought.
    pub changes: Vec<Change>,
}

/// One value of a session's entry.
#[derive(Clone, Debug)]
pub struct SessionWrite {
    /// When it was written, in true time.
    pub at: u64,
    /// What it says.
    pub entry: SessionEntry,
}

/// Everything that was written, in the order of the engine.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The values of every group's entry.
    pub groups: BTreeMap<Group, Vec<GroupWrite>>,
    /// The values of every session's entry, by the digest of its secret.
    pub sessions: BTreeMap<u128, Vec<SessionWrite>>,
    /// When the engine heard a session, where it times them.
    pub heartbeats: BTreeMap<u128, Vec<u64>>,
    /// The secrets behind the digests, of all sessions that anybody named.
    pub secrets: BTreeMap<u128, SessionId>,
}

impl Ledger {
    /// Reads what was written.
    ///
    /// # Errors
    /// If an entry cannot be read.
    pub fn of(history: &History) -> Result<Self, Violation> {
        let mut ledger = Self::default();
        for event in &history.events {
            let at = event.at;
            let unreadable = |what: &str, why: String| {
                Violation::new("S8", at, format!("{what} cannot be read: {why}"))
            };
            match &event.what {
                What::Entry { key, value } => match key.kind() {
                    KeyKind::Setting => {}
                    KeyKind::Session => {
                        let entry = reading::session(value)
                            .map_err(|why| unreadable(&key.to_string(), why.to_string()))?;
                        let digest = u128::from_str_radix(key.name(), 16)
                            .map_err(|why| unreadable(&key.to_string(), why.to_string()))?;
                        let writes = ledger.sessions.entry(digest).or_default();
                        writes.push(SessionWrite { at, entry });
                    }
                    KeyKind::Group => {
                        let group = Group::new(key.name())
                            .map_err(|why| unreadable(&key.to_string(), why.to_string()))?;
                        let entry = reading::group(&group, value)
                            .map_err(|why| unreadable(&key.to_string(), why.to_string()))?;
                        let writes = ledger.groups.entry(group).or_default();
                        let changes = fresh(writes.last(), &entry);
                        writes.push(GroupWrite { at, entry, changes });
                    }
                },
                What::Heartbeat { session } => {
                    ledger.heartbeats.entry(*session).or_default().push(at)
                }
                What::Invoke { op, .. } => {
                    if let Some(secret) = session_of(op) {
                        ledger.secrets.insert(reading::digest(secret), secret);
                    }
                }
                _ => {}
            }
        }
        Ok(ledger)
    }

    /// The values that an entry of a group had at some instant between two; the first may be none.
    pub fn between(
        &self,
        group: &Group,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = Option<&GroupWrite>> {
        let writes = self.groups.get(group).map(Vec::as_slice).unwrap_or_default();
        let first = writes.partition_point(|write| write.at < from);
        let last = writes.partition_point(|write| write.at <= to);
        let before = first.checked_sub(1).map(|at| &writes[at]);
        std::iter::once(before).chain(writes[first..last].iter().map(Some))
    }

    /// The sessions, by a number that stands for the digest, and those numbers.
    #[must_use]
    pub fn sessions(&self) -> (BTreeMap<SessionNo, Session>, BTreeMap<u128, SessionNo>) {
        let (mut sessions, mut numbers) = (BTreeMap::new(), BTreeMap::new());
        for ((digest, writes), number) in self.sessions.iter().zip(1..) {
            let Some(secret) = self.secrets.get(digest).copied() else { continue };
            let Some(opened) = writes.iter().find(|write| write.entry.open.is_some()) else {
                continue;
            };
            let ttls = writes.iter().filter_map(|write| Some(write.entry.open.as_ref()?.ttl_ms));
            let ended = writes.iter().find(|write| write.entry.open.is_none());
            let session = Session {
                secret,
                ttl_ms: ttls.min().unwrap_or_default(),
                opened: opened.at,
                opened_index: 0,
                ended: ended.map(|write| write.at),
            };
            sessions.insert(SessionNo(number), session);
            numbers.insert(*digest, SessionNo(number));
        }
        (sessions, numbers)
    }

    /// Who held which term, and for how long.
    #[must_use]
    pub fn tenures(&self, history: &History, numbers: &BTreeMap<u128, SessionNo>) -> Vec<Tenure> {
        let given_up = GivenUp::of(history);
        let mut tenures = Vec::new();
        for (group, writes) in &self.groups {
            let mut open: Option<Tenure> = None;
            for write in writes {
                let state = &write.entry.state;
                let now = (write.at, state.revision());
                let holder = state.holder(group);
                let digest = holder.and_then(|holder| state.id_of(holder.session));
                let session = digest.and_then(|digest| numbers.get(&digest.get()));
                // A holder whom nobody ever named could not have been put there by anybody.
                let session = session.copied().unwrap_or(SessionNo(0));
                let is_same = |tenure: &Tenure| {
                    holder.is_some_and(|it| it.term == tenure.term && session == tenure.session)
                };
                if let Some(mut tenure) = open.take_if(|tenure| !is_same(tenure)) {
                    let secret = self.secret(numbers, tenure.session);
                    tenure.ended = Some(end_of(write, &tenure, secret, &given_up));
                    tenures.push(tenure);
                }
                let Some(holder) = holder else { continue };
                let tenure = open.get_or_insert_with(|| Tenure {
                    group: group.clone(),
                    term: holder.term,
                    session,
                    granted: now,
                    granted_index: 0,
                    is_promotion: false,
                    accepted: None,
                    ending: None,
                    ended: None,
                });
                match holder.state {
                    OfficeState::Leading => tenure.accepted = tenure.accepted.or(Some(now)),
                    OfficeState::Ending => tenure.ending = tenure.ending.or(Some(now)),
                    OfficeState::Vacant | OfficeState::Delayed | OfficeState::Elected => {}
                }
            }
            tenures.extend(open);
        }
        tenures
    }

    fn secret(&self, numbers: &BTreeMap<u128, SessionNo>, no: SessionNo) -> Option<SessionId> {
        let (digest, _) = numbers.iter().find(|(_, number)| **number == no)?;
        self.secrets.get(digest).copied()
    }
}

/// The changes that a value brings beyond the one before it.
fn fresh(before: Option<&GroupWrite>, entry: &GroupEntry) -> Vec<Change> {
    let place = |change: &Change| (change.revision, change.ordinal);
    let last = before.and_then(|write| write.entry.news.last().map(place));
    let since = before.map_or(Revision(0), |write| write.entry.state.revision());
    let is_fresh =
        |change: &&Change| change.revision > since || last.is_some_and(|last| place(change) > last);
    entry.news.iter().filter(is_fresh).cloned().collect()
}

fn end_of(
    write: &GroupWrite,
    tenure: &Tenure,
    holder: Option<SessionId>,
    given_up: &GivenUp,
) -> End {
    let has_cause = |cause| write.changes.iter().any(|change| change.cause == cause);
    End {
        at: write.at,
        revision: write.entry.state.revision(),
        by_holder: holder.is_some_and(|session| {
            given_up.is_before(session, &tenure.group, tenure.term, write.at)
        }),
        forced: has_cause(Cause::Forced),
        expired: has_cause(Cause::Expired),
    }
}

/// When sessions began to give offices up: from that instant on they do not act, whatever is answered.
#[derive(Debug, Default)]
struct GivenUp {
    terms: BTreeMap<(SessionId, Group, Term), u64>,
    groups: BTreeMap<(SessionId, Group), u64>,
    sessions: BTreeMap<SessionId, u64>,
}

impl GivenUp {
    fn of(history: &History) -> Self {
        let mut given_up = Self::default();
        for event in &history.events {
            let What::Invoke { op, .. } = &event.what else { continue };
            match op {
                Op::Submit { command, .. } => given_up.take(event.at, command),
                Op::Heartbeat { session, disowned, .. } => {
                    for (group, term) in disowned {
                        given_up.term(event.at, *session, group, *term);
                    }
                }
                Op::Read { .. } | Op::Members(_) | Op::RaftTransfer { .. } => {}
            }
        }
        given_up
    }

    fn term(&mut self, at: u64, session: SessionId, group: &Group, term: Term) {
        self.terms.entry((session, group.clone(), term)).or_insert(at);
    }

    fn take(&mut self, at: u64, command: &Command) {
        let Some(session) = command.session() else { return };
        match (command.frees(), command.group(), command.term()) {
            (Frees::Office, Some(group), Some(term)) => self.term(at, session, group, term),
            (Frees::Office, Some(group), None) => {
                self.groups.entry((session, group.clone())).or_insert(at);
            }
            (Frees::Session, _, _) => {
                self.sessions.entry(session).or_insert(at);
            }
            (Frees::Office, None, _) | (Frees::Nothing, _, _) => {}
        }
    }

    fn is_before(&self, session: SessionId, group: &Group, term: Term, at: u64) -> bool {
        let began = [
            self.terms.get(&(session, group.clone(), term)),
            self.groups.get(&(session, group.clone())),
            self.sessions.get(&session),
        ];
        began.into_iter().flatten().any(|began| *began <= at)
    }
}

/// The session that a call is about.
fn session_of(op: &Op) -> Option<SessionId> {
    match op {
        Op::Submit { command, .. } => command.session(),
        Op::Heartbeat { session, .. } => Some(*session),
        Op::Read { .. } | Op::Members(_) | Op::RaftTransfer { .. } => None,
    }
}
