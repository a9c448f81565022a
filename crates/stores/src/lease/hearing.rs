//! Sessions: opened, heard, told, ended. Each is one swap of the session's own entry.

use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{StoreError, StoreResult};
use regent_election::{
    Command, Entry, Group, Moment, Opening, Refusal, SessionId, Settings, State,
};

use super::desk::{Alter, store_error};
use super::mutant::{self, Mutant};
use super::record::GroupRecord;
use super::session::{Life, Open, SessionRecord};
use super::sight::Verdict;
use super::{Shared, lock};
use crate::register::VALUE_BYTES_MAX;

/// Most bytes of a session's entry; what is written at every heartbeat had better be small.
const SESSION_BYTES_MAX: usize = VALUE_BYTES_MAX / 2;

/// Sessions that come before those which went are forgotten.
const LOCALS_SWEEP: usize = 256;

/// A session that is heard through this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    heard_at: Moment,
    ttl_ms: u64,
    /// The number of its last heartbeat here, where the entry does not keep it.
    sequence: Option<u64>,
    /// When nobody can count on its longer ttl any more, if it had one.
    shorter_at: Option<Moment>,
    /// When every group on its list was last followed for it.
    followed_at: Moment,
}

impl Local {
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

fn open_of(record: Option<SessionRecord>) -> StoreResult<Open> {
    match record.map(|record| record.life) {
        Some(Life::Open(open)) => Ok(open),
        Some(Life::Ended(_)) | None => Err(Refusal::SessionUnknown.into()),
    }
}

impl Shared {
    /// A sign of life of a session that is open, or that is opened by it; `group` is where it is about
    /// to campaign, and is listed before it does.
    pub(super) async fn touch(
        self: &Arc<Self>,
        session: u128,
        opening: Option<&Opening>,
        group: Option<&Group>,
    ) -> StoreResult<Open> {
        let sent_at = self.desk.now();
        self.hear_at_server(session, opening).await?;
        let is_servers = self.desk.register.sessions().is_some();
        let (record, ()) = self
            .desk
            .alter(session, |found, nonce, used| {
                let lists = |open: &Open| group.is_none_or(|group| open.groups.contains_key(group));
                let list = |open: &mut Open| {
                    if let Some(group) = group {
                        open.groups.entry(group.clone()).or_default();
                    }
                };
                let next = match (found, opening) {
                    (None, None) => return Err(Refusal::SessionUnknown),
                    (None, Some(told)) => {
                        let ttl_ms = told.ttl_ms.unwrap_or_default();
                        SessionRecord::open(nonce, told.node.clone(), ttl_ms, told.passing)
                            .heard(nonce, list)
                    }
                    (Some(record), told) => {
                        let Some(open) = record.as_open() else {
                            return Err(Refusal::SessionUnknown);
                        };
                        check_same(open, told)?;
                        let is_mine = used.contains(&record.beat);
                        if lists(open) && (is_mine || is_servers) {
                            return Ok(Alter::Is(()));
                        }
                        record.heard(nonce, list)
                    }
                };
                check_size(&next)?;
                Ok(Alter::Write(next, ()))
            })
            .await?;
        let open = open_of(record)?;
        self.heard(session, &open, sent_at, None);
        Ok(open)
    }

    /// A heartbeat. With another ttl it changes that of the session.
    pub(super) async fn beat(
        self: &Arc<Self>,
        session: u128,
        sequence: Option<u64>,
        ttl_ms: Option<u64>,
    ) -> StoreResult<Open> {
        let sent_at = self.desk.now();
        let is_servers = self.desk.register.sessions().is_some();
        let local = lock(&self.locals).get(&session).copied();
        if is_servers && let Some(local) = local {
            check_sequence(local.sequence, sequence)?;
        }
        self.hear_at_server(session, None).await?;
        let may_shorten = local
            .and_then(|local| local.shorter_at)
            .is_some_and(|shorter_at| shorter_at <= sent_at);
        let (record, ()) = self
            .desk
            .alter(session, |found, nonce, used| {
                let Some((record, open)) = found.and_then(|it| Some((it, it.as_open()?))) else {
                    return Err(Refusal::SessionUnknown);
                };
                if used.contains(&record.beat) {
                    return Ok(Alter::Is(()));
                }
                if !is_servers {
                    check_sequence(open.sequence, sequence)?;
                }
                let has_new_ttl = ttl_ms.is_some_and(|ttl_ms| ttl_ms != open.ttl_ms);
                if is_servers && !has_new_ttl {
                    return Ok(Alter::Is(()));
                }
                let next = record.heard(nonce, |open| {
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
        if is_servers && ttl_ms.is_some() {
            // The server counts the longer ttl only from here on.
            self.hear_at_server(session, None).await?;
        }
        self.heard(session, &open, sent_at, sequence);
        Ok(open)
    }

    /// Where the server times sessions, it hears this one. One that it has let go is ended.
    async fn hear_at_server(&self, session: u128, opening: Option<&Opening>) -> StoreResult<()> {
        let Some(sessions) = self.desk.register.sessions() else { return Ok(()) };
        let (record, verdict) = self.desk.look(session).await?;
        let is_heard = match (record.as_ref().map(|record| &record.life), opening) {
            (None, None) | (Some(Life::Ended(_)), _) => {
                return Err(Refusal::SessionUnknown.into());
            }
            (None, Some(told)) => {
                let ttl = Duration::from_millis(told.ttl_ms.unwrap_or_default());
                sessions.begin(session, ttl).await.map_err(store_error)?
            }
            (Some(Life::Open(open)), _) => {
                let ttl = Duration::from_millis(open.hold_ms);
                !matches!(verdict, Verdict::Due { .. })
                    && sessions.beat(session, ttl).await.map_err(store_error)?
            }
        };
        if is_heard {
            return Ok(());
        }
        self.desk.lapse(session).await?;
        Err(Refusal::SessionUnknown.into())
    }

    /// Notes that a session was heard through this process. If that is news its groups are followed, and if
    /// it was silent for long they are looked at. Once in a ttl they are followed anyway: it may have joined a
    /// line through another process that is gone since, or while a keeper here was just about to leave.
    fn heard(self: &Arc<Self>, session: u128, open: &Open, sent_at: Moment, sequence: Option<u64>) {
        let mut locals = lock(&self.locals);
        let known = locals.get(&session).copied();
        let is_news =
            known.is_none_or(|known| !known.is_heard(sent_at) || known.must_follow(sent_at));
        let shorter_at = match known.and_then(|known| known.shorter_at) {
            _ if open.hold_ms <= open.ttl_ms => None,
            Some(at) => Some(at),
            None => Some(self.desk.now() + lock(&self.desk.sights).lengthened(open.hold_ms)),
        };
        let local = Local {
            heard_at: sent_at,
            ttl_ms: open.ttl_ms,
            sequence: sequence.or(known.and_then(|known| known.sequence)),
            shorter_at,
            followed_at: match known {
                Some(known) if !is_news => known.followed_at,
                Some(_) | None => sent_at,
            },
        };
        locals.insert(session, local);
        if known.is_none() && locals.len().is_multiple_of(LOCALS_SWEEP) {
            locals.retain(|_, local| local.is_heard(sent_at));
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
        let now = self.desk.now();
        let locals = lock(&self.locals);
        let is_local = |id: &u128| locals.get(id).is_some_and(|local| local.is_heard(now));
        record.state.people().map(|person| person.id.get()).filter(is_local).collect()
    }

    /// Whether every sign of life of a session passes through this process, as far as it knows. Where the
    /// server times sessions it does not show here when one is over.
    pub(super) fn sees_without_looking(&self, session: u128) -> bool {
        let now = self.desk.now();
        let is_heard = lock(&self.locals).get(&session).is_some_and(|local| local.is_heard(now));
        is_heard && self.desk.register.sessions().is_none()
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
        let Some(person) = record.state.person(id) else { return Ok(()) };
        self.desk
            .alter(session, |found, nonce, _| {
                Ok(match found {
                    Some(record) if record.is_untold(group, person) => {
                        Alter::Write(record.told(nonce, group, person), ())
                    }
                    Some(_) | None => Alter::Is(()),
                })
            })
            .await?;
        Ok(())
    }

    /// Ends a session by its owner's wish, or because it was passing: the groups in which it may still
    /// be remembered.
    pub(super) async fn end(&self, session: u128) -> StoreResult<Vec<Group>> {
        lock(&self.locals).remove(&session);
        let (record, ()) = self
            .desk
            .alter(session, |found, nonce, _| {
                Ok(match found {
                    None => Alter::Write(SessionRecord::ended(nonce, Vec::new()), ()),
                    Some(record) if record.as_open().is_some() => {
                        Alter::Write(record.over(nonce), ())
                    }
                    Some(_) => Alter::Is(()),
                })
            })
            .await?;
        if let Some(sessions) = self.desk.register.sessions() {
            sessions.end(session).await.map_err(store_error)?;
        }
        Ok(record.map(|record| record.groups()).unwrap_or_default())
    }

    /// Takes groups out of a session's list in which it was found to be nobody. Only a tidying up, so it
    /// may fail, and it is left to a time when the session does not campaign.
    pub(super) async fn unlist(&self, session: u128, groups: &[Group]) {
        let tidied = self.desk.alter(session, |found, nonce, _| {
            Ok(match found {
                Some(record) if record.as_open().is_some() => {
                    let mut next = record.heard(nonce, |open| {
                        open.groups.retain(|group, _| !groups.contains(group));
                    });
                    next.beat = record.beat;
                    Alter::Write(next, ())
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
    Err(Refusal::SessionMismatch { node: open.node.clone(), ttl_ms: open.ttl_ms })
}

fn check_size(record: &SessionRecord) -> Result<(), Refusal> {
    if record.record().value.len() <= SESSION_BYTES_MAX {
        return Ok(());
    }
    let what = "the list of this session's groups, in bytes,";
    Err(Refusal::Full { what, max: SESSION_BYTES_MAX as u64 })
}
