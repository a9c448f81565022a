//! Entries: every read and write of entries, and the settling of writes whose reply was lost.
//!
//! A write names the version it replaces, so it lands at most once, and never after another has taken
//! its place. A lost reply is settled by looking: the nonce tells. What cannot be settled is told as
//! [`StoreError::Uncertain`], never guessed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use regent_election::store::{StoreError, StoreResult};
use regent_election::{Group, Incarnation, Moment, Refusal, Revision, Term};
use tokio::sync::OnceCell;

use super::mutant::{self, Mutant};
use super::observed::{Liveness, ObservedSessions};
use super::record::{GroupRecord, Landed};
use super::session::SessionRecord;
use super::wake_order;
use super::{Locked, lock};
use crate::register::{
    Found, Key, Record, Register, RegisterError, ServerSessions, Swapped, Version,
};
use crate::time::Time;

/// Tries of one change before it is given up; each failed one means that another's succeeded, or that
/// the engine gave no answer.
const TRIES_MAX: u32 = 48;
/// Tries to settle a write whose reply was lost, before the caller is told so.
pub(super) const SETTLES_MAX: u32 = 6;
/// Longest pause between two tries.
const PAUSE_MS_MAX: u64 = 200;
/// Most versions of sessions that are remembered between two heartbeats.
const CACHED_MAX: usize = 65_536;
/// Most groups whose terms are remembered.
const TERMS_MAX: usize = 1 << 20;

/// A group as it was read.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) record: GroupRecord,
    pub(super) version: Option<Version>,
}

/// A session's entry as it was read; none if it is not there.
pub(super) type SessionEntry = Option<(SessionRecord, Version)>;

/// What a change of a session's entry starts from.
pub(super) enum Start {
    /// What this process wrote last, or else a read.
    Written,
    /// What the same verb read before. It may be stale, and then a write on its version conflicts; nothing else
    /// is decided from it.
    Earlier(SessionEntry),
    /// What the request read that heard the session: as good as a read of its own.
    Now(SessionEntry),
}

/// What a change of a session's entry comes to.
pub(super) enum Alter<T> {
    /// It is so already.
    Is(T),
    /// This must be written.
    Write(SessionRecord, T),
}

/// Reads and writes entries.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) register: Arc<dyn Register>,
    pub(super) time: Arc<dyn Time>,
    pub(super) observed: Locked<ObservedSessions>,
    /// What this process wrote last to the entries of the sessions it serves.
    cached: Locked<BTreeMap<u128, (SessionRecord, Version)>>,
    /// The highest term ever seen in each group.
    terms: Locked<BTreeMap<Group, Term>>,
    /// The highest revision ever seen.
    highest: AtomicU64,
    life: OnceCell<Incarnation>,
}

pub(super) fn store_error(error: RegisterError) -> StoreError {
    match error {
        RegisterError::Unavailable { why } | RegisterError::Unfit { why } => {
            StoreError::Unavailable { why, retry_after: None }
        }
        RegisterError::Uncertain { why } => StoreError::Uncertain { why },
        RegisterError::Corrupt { what } => StoreError::Corrupt(what),
    }
}

pub(super) fn crowded() -> StoreError {
    let why = "too many write the same entry at once".into();
    StoreError::Unavailable { why, retry_after: Some(Duration::from_millis(PAUSE_MS_MAX)) }
}

impl Entries {
    pub(super) fn new(register: Arc<dyn Register>, time: Arc<dyn Time>) -> Self {
        let observed = ObservedSessions::new(time.drift_ppm(), register.sessions().is_some());
        Self {
            register,
            time,
            observed: Locked::new(observed),
            cached: Locked::new(BTreeMap::new()),
            terms: Locked::new(BTreeMap::new()),
            highest: AtomicU64::new(0),
            life: OnceCell::new(),
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.time.now()
    }

    /// The highest revision ever seen: higher than everything that caused what happens next.
    pub(super) fn highest(&self) -> Revision {
        Revision(self.highest.load(Ordering::Acquire))
    }

    /// The highest term ever seen in a group.
    pub(super) fn seen_term(&self, group: &Group) -> Term {
        lock(&self.terms).get(group).copied().unwrap_or_default()
    }

    /// Remembers what was seen of a group.
    fn note(&self, group: &Group, record: &GroupRecord) {
        self.highest.fetch_max(record.state.revision().0, Ordering::AcqRel);
        let term = record.state.last_term(group);
        let mut terms = lock(&self.terms);
        if terms.len() >= TERMS_MAX && !terms.contains_key(group) {
            return;
        }
        let known = terms.entry(group.clone()).or_default();
        *known = term.max(*known);
    }

    /// The life of this store's numbering: made once, by whoever comes first.
    pub(super) async fn life(&self) -> StoreResult<Incarnation> {
        let life = self.life.get_or_try_init(|| async {
            let key = Key::setting("life");
            for tried in 0..SETTLES_MAX {
                if let Some(found) = self.register.load(&key).await.map_err(store_error)? {
                    let bytes = found.value.first_chunk().ok_or_else(|| {
                        StoreError::Corrupt("the entry of the store's life is too short".into())
                    })?;
                    return Ok(Incarnation(u64::from_be_bytes(*bytes)));
                }
                let bytes = self.time.chance().to_be_bytes();
                match self.register.swap(&key, None, Record::bare(bytes.to_vec())).await {
                    Ok(_) | Err(RegisterError::Uncertain { .. }) => self.pause(tried).await,
                    Err(error) => return Err(store_error(error)),
                }
            }
            Err(crowded())
        });
        life.await.copied()
    }

    /// Waits a little before the next try; not for as long as everybody else.
    pub(super) async fn pause(&self, tried: u32) {
        let longest = (1u64 << tried.min(16)).min(PAUSE_MS_MAX);
        let chance = u64::try_from(self.time.chance() % u128::from(longest * 1000)).unwrap_or(0);
        self.time.sleep(Duration::from_micros(chance)).await;
    }

    /// Reads a group.
    pub(super) async fn load(&self, group: &Group) -> StoreResult<Seen> {
        let found = self.register.load(&Key::group(group)).await.map_err(store_error)?;
        let seen = decode_group(group, found)?;
        self.note(group, &seen.record);
        Ok(seen)
    }

    /// Notes a group that was read otherwise.
    pub(super) fn listed(&self, group: &Group, found: Found) -> StoreResult<Seen> {
        let seen = decode_group(group, Some(found))?;
        self.note(group, &seen.record);
        Ok(seen)
    }

    /// Replaces a group that was read: its new version, or none if another came first and this write
    /// will never be.
    pub(super) async fn replace(
        &self,
        group: &Group,
        seen: &Seen,
        next: &GroupRecord,
        write: Record,
    ) -> StoreResult<bool> {
        let key = Key::group(group);
        let mut doubt: Option<String> = None;
        for tried in 0..SETTLES_MAX {
            let (version, write) = (seen.version.as_ref(), write.clone());
            let swapped = match self.register.wake_orders() {
                None => self.register.swap(&key, version, write).await,
                Some(wake_orders) => {
                    let wake_order = wake_order::after(group, &seen.record, next);
                    wake_orders.swap(&key, version, write, &wake_order).await
                }
            };
            match (swapped, &doubt) {
                (Ok(Swapped::Done(_)), _) => {
                    self.note(group, next);
                    return Ok(true);
                }
                (Ok(Swapped::Conflict), None) => return Ok(mutant::is(Mutant::ConflictIgnored)),
                (Err(RegisterError::Corrupt { what }), _) => return Err(StoreError::Corrupt(what)),
                (Err(RegisterError::Unavailable { why } | RegisterError::Unfit { why }), None) => {
                    return Err(StoreError::Unavailable { why, retry_after: None });
                }
                (Err(RegisterError::Uncertain { why }), _) => doubt = Some(why),
                (
                    Ok(Swapped::Conflict)
                    | Err(RegisterError::Unavailable { .. } | RegisterError::Unfit { .. }),
                    Some(_),
                ) => {}
            }
            if mutant::is(Mutant::NonceIgnored) {
                return Ok(true);
            }
            self.pause(tried).await;
            let Ok(found) = self.register.load(&key).await else { continue };
            let found = decode_group(group, found)?;
            if found.version == seen.version {
                // It has not landed, or not yet: the same write again lands at most once with it.
                continue;
            }
            match found.record.has_landed(next.nonce, seen.record.writes) {
                Landed::Yes => {
                    self.note(group, &found.record);
                    return Ok(true);
                }
                Landed::No => return Ok(false),
                Landed::Unknown => break,
            }
        }
        let why = doubt.unwrap_or_else(|| "the write could not be settled".into());
        Err(StoreError::Uncertain { why })
    }

    /// Looks at a session. What its entry says, and what this process thinks of it.
    pub(super) async fn look(
        &self,
        session: u128,
    ) -> StoreResult<(Option<SessionRecord>, Liveness)> {
        let found = self.read_session(session).await?;
        let record = found.map(|(record, _)| record);
        if let Some(sessions) = self.register.sessions()
            && record.as_ref().is_some_and(|record| record.as_open().is_some())
            && !sessions.is_alive(session).await.map_err(store_error)?
        {
            lock(&self.observed).miss(session);
        }
        let verdict = match &record {
            // Nobody is named anywhere before its entry is written: the engine has forgotten it.
            None => Liveness::Ended,
            Some(_) => self.verdict(session),
        };
        Ok((record, verdict))
    }

    /// What this process thinks of a session.
    pub(super) fn verdict(&self, session: u128) -> Liveness {
        lock(&self.observed).verdict(session, self.now())
    }

    /// Reads a session's entry.
    pub(super) async fn read_session(&self, session: u128) -> StoreResult<SessionEntry> {
        let found = self.register.load(&Key::session(session)).await.map_err(store_error)?;
        self.session_read(session, found)
    }

    /// Lets the server hear a session if its entry is open: the entry, and whether the session was heard.
    pub(super) async fn hear(
        &self,
        sessions: &dyn ServerSessions,
        session: u128,
    ) -> StoreResult<(SessionEntry, bool)> {
        let hold = |found: &Found| {
            let record = SessionRecord::decode(&found.value).ok()?;
            record.as_open().map(|open| Duration::from_millis(open.hold_ms))
        };
        let (found, is_heard) =
            sessions.heartbeat_with_entry(session, &hold).await.map_err(store_error)?;
        Ok((self.session_read(session, found)?, is_heard))
    }

    /// Notes a session's entry that was read.
    fn session_read(&self, session: u128, found: Option<Found>) -> StoreResult<SessionEntry> {
        let found = found
            .map(|Found { value, version }| Ok((SessionRecord::decode(&value)?, version)))
            .transpose()
            .map_err(|error: regent_election::codec::CodecError| {
                StoreError::Corrupt(error.to_string())
            })?;
        let seen = found.as_ref().map(|(record, version)| (record, version));
        lock(&self.observed).see(session, seen, self.now());
        Ok(found)
    }

    /// Changes a session's entry. `decide` is asked what is to be written over what was found, with the
    /// nonce to use and those that this call has used: finding one of them means that a write whose
    /// reply was lost is done.
    pub(super) async fn alter<T>(
        &self,
        session: u128,
        start: Start,
        mut decide: impl FnMut(Option<&SessionRecord>, u128, &[u128]) -> Result<Alter<T>, Refusal>,
    ) -> StoreResult<(Option<SessionRecord>, T)> {
        let key = Key::session(session);
        let mut doubt: Option<String> = None;
        let mut used: Vec<u128> = Vec::new();
        let written = lock(&self.cached).remove(&session);
        let (mut known, may_be_stale) = match start {
            Start::Written => (written.map(Some), true),
            Start::Earlier(entry) => (Some(entry), true),
            Start::Now(entry) => (Some(entry), false),
        };
        for tried in 0..TRIES_MAX {
            let is_stale = may_be_stale && known.is_some();
            // After a conflict or a lost reply there is nothing left to start from: it is read again.
            let found = match known.take() {
                Some(found) => found,
                None => match self.read_session(session).await {
                    Ok(found) => found,
                    Err(error) => match doubt {
                        None => return Err(error),
                        Some(_) if tried >= SETTLES_MAX => break,
                        Some(_) => {
                            self.pause(tried).await;
                            continue;
                        }
                    },
                },
            };
            let nonce = self.time.chance();
            let decided = decide(found.as_ref().map(|(record, _)| record), nonce, &used);
            let (next, value) = match decided {
                // Only what is stored refuses.
                Ok(Alter::Is(_)) | Err(_) if is_stale => continue,
                Err(refusal) => return Err(refusal.into()),
                Ok(Alter::Is(value)) => {
                    let Some((record, version)) = found else { return Ok((None, value)) };
                    self.remember(session, &record, version);
                    return Ok((Some(record), value));
                }
                Ok(Alter::Write(next, value)) => (next, value),
            };
            used.push(nonce);
            let version = found.map(|(_, version)| version);
            match self.register.swap(&key, version.as_ref(), next.record()).await {
                Ok(Swapped::Done(version)) => {
                    self.remember(session, &next, version);
                    return Ok((Some(next), value));
                }
                Ok(Swapped::Conflict) => {}
                Err(RegisterError::Corrupt { what }) => return Err(StoreError::Corrupt(what)),
                Err(RegisterError::Unavailable { why } | RegisterError::Unfit { why }) => {
                    match doubt {
                        None => return Err(StoreError::Unavailable { why, retry_after: None }),
                        Some(_) if tried >= SETTLES_MAX => break,
                        Some(_) => {}
                    }
                }
                Err(RegisterError::Uncertain { why }) => {
                    doubt = Some(why);
                    if tried >= SETTLES_MAX {
                        break;
                    }
                }
            }
            self.pause(tried).await;
        }
        Err(doubt.map_or_else(crowded, |why| StoreError::Uncertain { why }))
    }

    /// Remembers what lies in a session's entry, and that it was seen.
    pub(super) fn remember(&self, session: u128, record: &SessionRecord, version: Version) {
        lock(&self.observed).see(session, Some((record, &version)), self.now());
        let mut cached = lock(&self.cached);
        if record.as_open().is_some() && cached.len() < CACHED_MAX {
            cached.insert(session, (record.clone(), version));
        }
    }

    /// Ends a session that is due, from exactly the version that was watched, so that it lives on if it
    /// was heard in the meantime. True if it has ended.
    pub(super) async fn lapse(&self, session: u128) -> StoreResult<bool> {
        for tried in 0..SETTLES_MAX {
            // Looking notes any change: a session that was heard is no longer due.
            let (record, verdict) = self.look(session).await?;
            let (record, version) = match (record, verdict) {
                (Some(record), Liveness::Due { version }) => (record, version),
                (_, Liveness::Ended) => return Ok(true),
                (_, _) => return Ok(false),
            };
            if mutant::is(Mutant::ExpiresWithoutEnding) {
                return Ok(true);
            }
            let next = record.over(self.time.chance());
            let key = Key::session(session);
            match self.register.swap(&key, Some(&version), next.record()).await {
                Ok(Swapped::Done(version)) => {
                    lock(&self.observed).see(session, Some((&next, &version)), self.now());
                    return Ok(true);
                }
                Ok(Swapped::Conflict) | Err(RegisterError::Uncertain { .. }) => {
                    self.pause(tried).await;
                }
                Err(error) => return Err(store_error(error)),
            }
        }
        Ok(false)
    }
}

fn decode_group(group: &Group, found: Option<Found>) -> StoreResult<Seen> {
    let Some(Found { value, version }) = found else {
        return Ok(Seen { record: GroupRecord::new(), version: None });
    };
    let record = GroupRecord::decode(group, &value)
        .map_err(|error| StoreError::Corrupt(format!("{group}: {error}")))?;
    Ok(Seen { record, version: Some(version) })
}
