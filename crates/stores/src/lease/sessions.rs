//! Sessions: opened, heard, told, ended. Each is one swap of the session's own entry.
//!
//! Where the server times sessions, the request that hears one also reads its entry, and the one that begins
//! it also creates the entry. Nothing is read before them as evidence that the session is alive: they check it
//! themselves, and what was read earlier in the verb only chooses between the two. A wrong choice changes nothing:
//! to begin what is there conflicts, and to hear what is not there finds no entry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{StoreError, StoreResult};
use regent_election::{
    Command, Entry, Group, Moment, Opening, Refusal, SessionId, Settings, State,
};

use super::entries::{Alter, SETTLES_MAX, SessionEntry, Start, crowded, store_error};
use super::mutant::{self, Mutant};
use super::record::GroupRecord;
use super::session::{Life, Open, SessionRecord};
use super::{Shared, lock};
use crate::register::{RegisterError, ServerSessions, Swapped, VALUE_BYTES_MAX};

/// Most bytes of a session's entry; what is written at every heartbeat had better be small.
const SESSION_BYTES_MAX: usize = VALUE_BYTES_MAX / 2;

/// Sessions that come before those which went are forgotten.
const LOCALS_SWEEP: usize = 256;

/// A session that is heard through this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    heard_at: Moment,
    ttl_ms: u64,
    /// The highest number of a heartbeat that was sent here, where the entry does not keep it.
    sequence: Option<u64>,
    /// When nobody can count on its longer ttl any more, if it had one.
    shorter_at: Option<Moment>,
    /// When every group on its list was last followed for it.
    followed_at: Moment,
}

impl Local {
    /// One whose first heartbeat is under way.
    const UNHEARD: Self = Self {
        heard_at: Moment::ZERO,
        ttl_ms: 0,
        sequence: None,
        shorter_at: None,
        followed_at: Moment::ZERO,
    };

    /// Whether it was ever heard.
    const fn was_heard(&self) -> bool {
        self.ttl_ms > 0
    }

    /// Whether it was heard within its ttl.
    fn is_heard(&self, now: Moment) -> bool {
        now < self.heard_at + Duration::from_millis(self.ttl_ms)
    }

    /// Whether its groups were not followed for a whole ttl.
    fn must_follow(&self, now: Moment) -> bool {
        self.followed_at + Duration::from_millis(self.ttl_ms) <= now
    }
}

/// The refusal that an opening with this ttl would meet anywhere.
pub(super) fn check_ttl(ttl_ms: u64) -> Result<(), Refusal> {
    let opening = Command::Open {
        session: SessionId::new(1).map_err(|_| Refusal::SessionUnknown)?,
        node: regent_election::Node::new("n").map_err(|_| Refusal::SessionUnknown)?,
        ttl_ms,
    };
    State::new(Settings::default()).apply(Entry::bare(opening)).answer.map(|_| ())
}

/// The entry of a session that opens, with the group in which it is about to campaign.
fn opened(nonce: u128, told: &Opening, group: Option<&Group>) -> SessionRecord {
    let ttl_ms = told.ttl_ms.unwrap_or_default();
    SessionRecord::open(nonce, told.node.clone(), ttl_ms, told.passing)
        .with_heartbeat(nonce, |open| list(open, group))
}

fn list(open: &mut Open, group: Option<&Group>) {
    if let Some(group) = group {
        open.groups.entry(group.clone()).or_default();
    }
}

fn open_of(record: Option<SessionRecord>) -> StoreResult<Open> {
    match record.map(|record| record.life) {
        Some(Life::Open(open)) => Ok(open),
        Some(Life::Ended(_)) | None => Err(Refusal::SessionUnknown.into()),
    }
}

impl Shared {
    /// A sign of life of a session that is open, or that is opened by it; `group` is where it is about
    /// to campaign, and is listed before it does. `entry` is the session's own if this verb has read it.
    pub(super) async fn touch(
        self: &Arc<Self>,
        session: u128,
        opening: &Opening,
        group: Option<&Group>,
        entry: Option<SessionEntry>,
    ) -> StoreResult<Open> {
        let sent_at = self.entries.now();
        let is_servers = self.entries.register.sessions().is_some();
        let (start, begun) = match self.entries.register.sessions() {
            None => (entry.map_or(Start::Written, Start::Earlier), Vec::new()),
            Some(sessions) => {
                let entry = match entry {
                    Some(entry) => entry,
                    None => self.entries.read_session(session).await?,
                };
                let is_absent = entry.is_none();
                let (present, begun) = self
                    .begin_or_hear(sessions, session, opening, group, is_absent, sent_at)
                    .await?;
                (Start::Now(present), begun)
            }
        };
        let (record, ()) = self
            .entries
            .alter(session, start, |found, nonce, used| {
                let lists = |open: &Open| group.is_none_or(|group| open.groups.contains_key(group));
                let next = match found {
                    None => opened(nonce, opening, group),
                    Some(record) => {
                        let Some(open) = record.as_open() else {
                            return Err(Refusal::SessionUnknown);
                        };
                        check_same(open, Some(opening))?;
                        let is_mine =
                            used.contains(&record.heartbeat) || begun.contains(&record.heartbeat);
                        let is_again = open.passing && group.is_some() && lists(open) && !is_mine;
                        if lists(open) && !is_again && (is_mine || is_servers) {
                            return Ok(Alter::Is(()));
                        }
                        record.with_heartbeat(nonce, |open| {
                            list(open, group);
                            // Whoever saw it leave this group may be about to end it (`end_passing`).
                            open.passing &= !is_again;
                        })
                    }
                };
                check_size(&next)?;
                Ok(Alter::Write(next, ()))
            })
            .await?;
        let open = open_of(record)?;
        self.heartbeat_counted(session, &open, sent_at);
        Ok(open)
    }

    /// A heartbeat. With another ttl it changes that of the session.
    pub(super) async fn heartbeat(
        self: &Arc<Self>,
        session: u128,
        sequence: Option<u64>,
        ttl_ms: Option<u64>,
    ) -> StoreResult<Open> {
        if self.entries.register.sessions().is_none() {
            return self.heartbeat_as(session, sequence, ttl_ms).await;
        }
        self.take_number(session, sequence)?;
        let beaten = self.heartbeat_as(session, sequence, ttl_ms).await;
        if beaten.is_err() {
            let mut locals = lock(&self.locals);
            if locals.get(&session).is_some_and(|local| !local.was_heard()) {
                locals.remove(&session);
            }
        }
        beaten
    }

    /// Takes the number of a heartbeat before it is sent, where the entry does not keep it: of two with one number
    /// only one passes, and a slow one does not take a higher number back. Other processes do not know of it.
    fn take_number(&self, session: u128, sequence: Option<u64>) -> Result<(), Refusal> {
        let Some(given) = sequence else { return Ok(()) };
        let mut locals = lock(&self.locals);
        let known = locals.get(&session).copied();
        let local = known.unwrap_or(Local::UNHEARD);
        check_sequence(local.sequence, sequence)?;
        if known.is_none() {
            self.sweep(&mut locals);
        }
        locals.insert(session, Local { sequence: Some(given), ..local });
        Ok(())
    }

    /// Forgets those who went, now and then when somebody came.
    fn sweep(&self, locals: &mut BTreeMap<u128, Local>) {
        if locals.len().is_multiple_of(LOCALS_SWEEP) {
            let now = self.entries.now();
            locals.retain(|_, local| local.is_heard(now));
        }
    }

    async fn heartbeat_as(
        self: &Arc<Self>,
        session: u128,
        sequence: Option<u64>,
        ttl_ms: Option<u64>,
    ) -> StoreResult<Open> {
        let sent_at = self.entries.now();
        let is_servers = self.entries.register.sessions().is_some();
        let local = lock(&self.locals).get(&session).copied();
        let start = match self.entries.register.sessions() {
            None => Start::Written,
            Some(sessions) => Start::Now(self.heartbeat_at_server(sessions, session).await?),
        };
        let may_shorten = local
            .and_then(|local| local.shorter_at)
            .is_some_and(|shorter_at| shorter_at <= sent_at);
        let (record, ()) = self
            .entries
            .alter(session, start, |found, nonce, used| {
                let Some((record, open)) = found.and_then(|it| Some((it, it.as_open()?))) else {
                    return Err(Refusal::SessionUnknown);
                };
                if used.contains(&record.heartbeat) {
                    return Ok(Alter::Is(()));
                }
                if !is_servers {
                    check_sequence(open.sequence, sequence)?;
                }
                let has_new_ttl = ttl_ms.is_some_and(|ttl_ms| ttl_ms != open.ttl_ms);
                if is_servers && !has_new_ttl {
                    return Ok(Alter::Is(()));
                }
                let next = record.with_heartbeat(nonce, |open| {
                    open.sequence = sequence.or(open.sequence);
                    open.ttl_ms = ttl_ms.unwrap_or(open.ttl_ms);
                    open.hold_ms = match may_shorten && !has_new_ttl {
                        true => open.ttl_ms,
                        false => open.hold_ms.max(open.ttl_ms),
                    };
                });
                Ok(Alter::Write(next, ()))
            })
            .await?;
        let open = open_of(record)?;
        if let (Some(sessions), Some(_)) = (self.entries.register.sessions(), ttl_ms) {
            // The server counts the longer ttl only from here on.
            self.heartbeat_at_server(sessions, session).await?.ok_or(Refusal::SessionUnknown)?;
        }
        self.heartbeat_counted(session, &open, sent_at);
        Ok(open)
    }

    /// The server hears a session: its open entry as it was read with that, or none if it has no entry. A session
    /// that the server has let go is ended and refused.
    async fn heartbeat_at_server(
        &self,
        sessions: &dyn ServerSessions,
        session: u128,
    ) -> StoreResult<SessionEntry> {
        let (entry, is_heard) = self.entries.hear(sessions, session).await?;
        let is_open = entry.as_ref().is_some_and(|(record, _)| record.as_open().is_some());
        if is_heard || entry.is_none() {
            return Ok(entry);
        }
        if is_open {
            self.entries.lapse(session).await?;
        }
        Err(Refusal::SessionUnknown.into())
    }

    /// The server begins a session whose entry was not there, or hears one whose entry was; its entry, open. What
    /// was read may be stale, and the reply of a beginning may be lost: both are settled by hearing the session. Also
    /// the nonces with which it may have been begun here.
    async fn begin_or_hear(
        &self,
        sessions: &dyn ServerSessions,
        session: u128,
        opening: &Opening,
        group: Option<&Group>,
        mut is_absent: bool,
        sent_at: Moment,
    ) -> StoreResult<(SessionEntry, Vec<u128>)> {
        let mut doubt: Option<String> = None;
        let mut used = Vec::new();
        let ttl = Duration::from_millis(opening.ttl_ms.unwrap_or_default());
        for tried in 0..SETTLES_MAX {
            // The caller counts from the send: what is settled later has no time left.
            if doubt.is_some() && sent_at + ttl <= self.entries.now() {
                break;
            }
            if is_absent {
                let next = opened(self.entries.time.chance(), opening, group);
                check_size(&next)?;
                used.push(next.nonce);
                match sessions.begin_with_entry(session, ttl, next.record()).await {
                    Ok(Some(Swapped::Done(version))) => return Ok((Some((next, version)), used)),
                    Ok(Some(Swapped::Conflict)) => {}
                    Ok(None) => return Err(Refusal::SessionUnknown.into()),
                    Err(RegisterError::Uncertain { why }) => doubt = Some(why),
                    Err(RegisterError::Unavailable { .. } | RegisterError::Unfit { .. })
                        if doubt.is_some() => {}
                    Err(error) => return Err(store_error(error)),
                }
            }
            match self.heartbeat_at_server(sessions, session).await {
                Ok(None) => is_absent = true,
                Ok(entry) => return Ok((entry, used)),
                Err(StoreError::Unavailable { .. } | StoreError::Uncertain { .. })
                    if doubt.is_some() => {}
                Err(error) => return Err(error),
            }
            self.entries.pause(tried).await;
        }
        Err(doubt.map_or_else(crowded, |why| StoreError::Uncertain { why }))
    }

    /// Notes that a session was heard through this process. If that is news its groups are followed, and if
    /// it was silent for long they are looked at. Once in a ttl they are followed anyway: it may have joined a
    /// line through another process that is gone since, or while a keeper here was just about to leave.
    fn heartbeat_counted(self: &Arc<Self>, session: u128, open: &Open, sent_at: Moment) {
        let mut locals = lock(&self.locals);
        let known = locals.get(&session).copied();
        let is_news =
            known.is_none_or(|known| !known.is_heard(sent_at) || known.must_follow(sent_at));
        let shorter_at = match known.and_then(|known| known.shorter_at) {
            _ if open.hold_ms <= open.ttl_ms => None,
            Some(at) => Some(at),
            None => {
                Some(self.entries.now() + lock(&self.entries.observed).lengthened(open.hold_ms))
            }
        };
        let local = Local {
            heard_at: sent_at,
            ttl_ms: open.ttl_ms,
            sequence: known.and_then(|known| known.sequence),
            shorter_at,
            followed_at: match known {
                Some(known) if !is_news => known.followed_at,
                Some(_) | None => sent_at,
            },
        };
        locals.insert(session, local);
        if known.is_none() {
            self.sweep(&mut locals);
        }
        drop(locals);
        match known {
            _ if is_news => open.groups.keys().for_each(|group| self.follow_for(group, session)),
            // A vacant office may have waited for it, and a sign of life does not touch the group's entry.
            Some(known) if known.heard_at + Duration::from_millis(known.ttl_ms / 2) <= sent_at => {
                open.groups.keys().for_each(|group| self.stir(group));
            }
            Some(_) | None => {}
        }
    }

    /// Those whom a group knows who were heard through this process within their ttl.
    pub(super) fn locals_in(&self, record: &GroupRecord) -> Vec<u128> {
        let now = self.entries.now();
        let locals = lock(&self.locals);
        let is_local = |id: &u128| locals.get(id).is_some_and(|local| local.is_heard(now));
        record.state.session_summaries().map(|summary| summary.id.get()).filter(is_local).collect()
    }

    /// Whether every sign of life of a session passes through this process, as far as it knows. Where the
    /// server times sessions it does not show here when one is over.
    pub(super) fn sees_without_looking(&self, session: u128) -> bool {
        let now = self.entries.now();
        let is_heard = lock(&self.locals).get(&session).is_some_and(|local| local.is_heard(now));
        is_heard && self.entries.register.sessions().is_none()
    }

    /// Makes sure that a session's own entry tells what happened to it in this group.
    pub(super) async fn tell(
        &self,
        group: &Group,
        record: &GroupRecord,
        session: u128,
    ) -> StoreResult<()> {
        if mutant::is(Mutant::NobodyIsTold) {
            return Ok(());
        }
        let id = SessionId::new(session).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let Some(summary) = record.state.session_summary(id) else { return Ok(()) };
        self.entries
            .alter(session, Start::Written, |found, nonce, _| {
                Ok(match found {
                    Some(record) if record.is_untold(group, summary) => {
                        Alter::Write(record.told(nonce, group, summary), ())
                    }
                    Some(_) | None => Alter::Is(()),
                })
            })
            .await?;
        Ok(())
    }

    /// Ends a session by its owner's wish: the groups in which it may still be remembered.
    pub(super) async fn end(&self, session: u128) -> StoreResult<Vec<Group>> {
        lock(&self.locals).remove(&session);
        let (record, ()) = self
            .entries
            .alter(session, Start::Written, |found, nonce, _| {
                Ok(match found {
                    None => Alter::Write(SessionRecord::ended(nonce, Vec::new()), ()),
                    Some(record) if record.as_open().is_some() => {
                        Alter::Write(record.over(nonce), ())
                    }
                    Some(_) => Alter::Is(()),
                })
            })
            .await?;
        if let Some(sessions) = self.entries.register.sessions() {
            sessions.end(session).await.map_err(store_error)?;
        }
        Ok(record.map(|record| record.groups()).unwrap_or_default())
    }

    /// Ends a passing session that is nobody in this group any more, if that is its last one; otherwise only takes
    /// the group off its list.
    ///
    /// It ends nobody who leads or stands elsewhere, or is about to: a campaign lists its group before it may win
    /// there, in this very entry, so either it is seen here or it finds the session ended. One that comes back to
    /// *this* group lists nothing new; it takes the mark of passing off instead, and then nothing is done here.
    pub(super) async fn end_passing(&self, session: u128, group: &Group) -> StoreResult<()> {
        let (record, ()) = self
            .entries
            .alter(session, Start::Written, |found, nonce, _| {
                let Some((record, open)) = found.and_then(|it| Some((it, it.as_open()?))) else {
                    return Ok(Alter::Is(()));
                };
                let has_others = open.groups.keys().any(|listed| listed != group);
                Ok(match (open.passing, has_others) {
                    (true, false) => Alter::Write(record.over(nonce), ()),
                    (true, true) if open.groups.contains_key(group) => {
                        Alter::Write(record.without(nonce, |listed| listed == group), ())
                    }
                    (true, true) | (false, _) => Alter::Is(()),
                })
            })
            .await?;
        if record.is_some_and(|record| record.as_open().is_some()) {
            return Ok(());
        }
        lock(&self.locals).remove(&session);
        match self.entries.register.sessions() {
            None => Ok(()),
            Some(sessions) => sessions.end(session).await.map_err(store_error),
        }
    }

    /// Takes groups out of a session's list in which it was found to be nobody. Only a tidying up, so it
    /// may fail, and it is left to a time when the session does not campaign.
    pub(super) async fn unlist(&self, session: u128, groups: &[Group]) {
        let tidied = self.entries.alter(session, Start::Written, |found, nonce, _| {
            Ok(match found {
                // Not of a passing session: it ends when its list is empty, and a campaign may be about to win in
                // a group that looked strange when it was read.
                Some(record) if record.as_open().is_some_and(|open| !open.passing) => {
                    Alter::Write(record.without(nonce, |group| groups.contains(group)), ())
                }
                Some(_) | None => Alter::Is(()),
            })
        });
        if let Err(error) = tidied.await {
            tracing::debug!(%error, "a session's list was not tidied");
        }
    }
}

fn check_sequence(last: Option<u64>, given: Option<u64>) -> Result<(), Refusal> {
    match (last, given) {
        (Some(last), Some(given)) if given <= last => {
            Err(Refusal::HeartbeatNotNewer { given, last })
        }
        (Some(_) | None, _) => Ok(()),
    }
}

/// Whether a session is what the caller says of it.
pub(super) fn check_same(open: &Open, told: Option<&Opening>) -> Result<(), Refusal> {
    let is_same = told.is_none_or(|told| {
        told.node == open.node && told.ttl_ms.is_none_or(|ttl_ms| ttl_ms == open.ttl_ms)
    });
    if is_same {
        return Ok(());
    }
    Err(Refusal::SessionMismatch)
}

fn check_size(record: &SessionRecord) -> Result<(), Refusal> {
    if record.record().value.len() <= SESSION_BYTES_MAX {
        return Ok(());
    }
    let what = "the list of this session's groups, in bytes,";
    Err(Refusal::Full { what, max: SESSION_BYTES_MAX as u64 })
}
