//! Sessions: open, change of ttl, close, expiry, and being heard again.

use super::office::End;
use super::repeat::Requests;
use super::session::Session;
use super::{Rest, State, Turn, VerbResult, done, weight};
use crate::limits::{SESSIONS_MAX, TTL_MS_FLOOR};
use crate::name::{Group, Node, SessionId, SessionNo};
use crate::outcome::{Answer, Cause, Effect, Refusal};

impl State {
    pub(super) fn open(
        &mut self,
        turn: &mut Turn,
        id: SessionId,
        node: Node,
        ttl_ms: u64,
    ) -> VerbResult {
        let session = match self.known_session(id)? {
            Some((no, session)) if session.node == node && session.ttl_ms == ttl_ms => no,
            Some(_) => return Err(Refusal::SessionMismatch),
            None => self.open_fresh(turn, id, node, ttl_ms, false)?,
        };
        Ok((Answer::Session { session, ttl_ms }, Rest::Nothing))
    }

    /// The open session of this secret, or none if the secret was never used. A secret whose
    /// session has ended is refused: a delayed duplicate must not bring it back.
    pub(super) fn known_session(
        &self,
        id: SessionId,
    ) -> Result<Option<(SessionNo, &Session)>, Refusal> {
        match self.by_secret.get(&id).and_then(|no| self.sessions.get_key_value(no)) {
            Some((no, session)) => Ok(Some((*no, session))),
            None if self.ended.contains(id) => Err(Refusal::SessionUnknown),
            None => Ok(None),
        }
    }

    /// The open session of this secret.
    pub(super) fn session_of(&self, id: SessionId) -> Result<SessionNo, Refusal> {
        self.by_secret.get(&id).copied().ok_or(Refusal::SessionUnknown)
    }

    /// Whether a session with this ttl may be opened at all.
    pub(super) fn check_opening(&self, ttl_ms: u64) -> Result<(), Refusal> {
        let max = self.settings.ttl_ms_ceiling;
        if !(TTL_MS_FLOOR..=max).contains(&ttl_ms) {
            return Err(Refusal::TtlOutOfBounds { group: None, ttl_ms, min: TTL_MS_FLOOR, max });
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(Refusal::Full { what: "the table of sessions", max: SESSIONS_MAX as u64 });
        }
        Ok(())
    }

    pub(super) fn open_fresh(
        &mut self,
        turn: &mut Turn,
        id: SessionId,
        node: Node,
        ttl_ms: u64,
        passing: bool,
    ) -> Result<SessionNo, Refusal> {
        self.check_opening(ttl_ms)?;
        let no = SessionNo(turn.revision.0);
        let session = Session {
            id,
            node,
            owner: turn.who.clone(),
            ttl_ms,
            ttl_ms_longest: ttl_ms,
            passing,
            gone: false,
            epoch: 0,
            leads: Default::default(),
            stands: Default::default(),
            requests: Requests::of_session(),
        };
        self.by_secret.insert(id, no);
        let bytes = weight::session(&session);
        self.sessions_bytes += bytes;
        self.accounts.charge(&session.owner, bytes);
        self.sessions.insert(no, session);
        turn.effects.push(Effect::SessionOpened { session: no, ttl_ms });
        Ok(no)
    }

    pub(super) fn change_ttl(&mut self, turn: &mut Turn, id: SessionId, ttl_ms: u64) -> VerbResult {
        let no = self.session_of(id)?;
        self.may_change_ttl(no, ttl_ms)?;
        if let Some(session) = self.sessions.get_mut(&no)
            && session.ttl_ms != ttl_ms
        {
            session.ttl_ms = ttl_ms;
            session.ttl_ms_longest = session.ttl_ms_longest.max(ttl_ms);
            turn.effects.push(Effect::TtlChanged { session: no, ttl_ms });
        }
        done()
    }

    /// Whether the store and every group that concerns a session allow it this ttl.
    pub(crate) fn may_change_ttl(&self, session: SessionNo, ttl_ms: u64) -> Result<(), Refusal> {
        let max = self.settings.ttl_ms_ceiling;
        if !(TTL_MS_FLOOR..=max).contains(&ttl_ms) {
            return Err(Refusal::TtlOutOfBounds { group: None, ttl_ms, min: TTL_MS_FLOOR, max });
        }
        let session = self.sessions.get(&session).ok_or(Refusal::SessionUnknown)?;
        let mut groups = session.leads.iter().chain(&session.stands);
        groups.try_for_each(|group| self.check_ttl(group, ttl_ms))
    }

    /// Whether the policy of a group allows this ttl.
    pub(super) fn check_ttl(&self, group: &Group, ttl_ms: u64) -> Result<(), Refusal> {
        let policy = self
            .groups
            .get(group)
            .and_then(|state| state.policy.as_deref())
            .unwrap_or(&self.settings.default_policy);
        if policy.fits(ttl_ms) {
            return Ok(());
        }
        Err(Refusal::TtlOutOfBounds {
            group: Some(group.clone()),
            ttl_ms,
            min: policy.ttl_ms_min,
            max: policy.ttl_ms_max,
        })
    }

    /// Closing a session that is not open is done already. A close may also have overtaken what was
    /// to open the session; then it must never open, since nobody would be behind it.
    pub(super) fn close(&mut self, id: SessionId) -> (Answer, Rest) {
        match self.by_secret.get(&id).copied() {
            Some(session) => (Answer::Done, self.mark_gone(vec![session], Cause::Resigned)),
            None => {
                self.ended.remember(id);
                (Answer::Done, Rest::Nothing)
            }
        }
    }

    pub(super) fn expire(&mut self, mut sessions: Vec<SessionNo>) -> (Answer, Rest) {
        sessions.retain(|session| self.sessions.contains_key(session));
        sessions.sort_unstable();
        sessions.dedup();
        sessions.reverse();
        if sessions.is_empty() {
            return (Answer::Overtaken, Rest::Nothing);
        }
        (Answer::Done, self.mark_gone(sessions, Cause::Expired))
    }

    /// None of these may be promoted from this entry on, in whatever order their offices are filled.
    fn mark_gone(&mut self, sessions: Vec<SessionNo>, cause: Cause) -> Rest {
        for session in &sessions {
            if let Some(session) = self.sessions.get_mut(session) {
                session.gone = true;
            }
        }
        Rest::EndSessions(sessions, cause)
    }

    /// Ends one office or standby of a session that goes; true when the session is gone.
    pub(super) fn end_session_step(
        &mut self,
        turn: &mut Turn,
        session: SessionNo,
        cause: Cause,
    ) -> bool {
        let Some(record) = self.sessions.get_mut(&session) else { return true };
        if let Some(group) = record.leads.pop_first() {
            // Whoever closes its session says that it has stopped; an expired one says nothing.
            let stopped = cause == Cause::Resigned;
            // A tenure that was ending keeps the cause for which it was to end.
            let (cause, reason) = self.cause_of_ending(&group).unwrap_or((cause, None));
            self.vacate(turn, &group, End { cause, reason, stopped, asked: true });
            return false;
        }
        if let Some(group) = record.stands.pop_first() {
            self.leave_line(turn, &group, session);
            return false;
        }
        self.forget_session(turn, session);
        true
    }

    /// Removes the record of a session that neither leads nor stands.
    pub(super) fn forget_session(&mut self, turn: &mut Turn, session: SessionNo) {
        if let Some(record) = self.sessions.remove(&session) {
            self.session_weighs_nothing(&record);
            self.by_secret.remove(&record.id);
            self.ended.remember(record.id);
            turn.effects.push(Effect::SessionEnded { session });
        }
    }

    /// A session that was silent is heard: vacant offices it stands for may be filled.
    pub(super) fn refill(&mut self, session: SessionNo) -> (Answer, Rest) {
        let Some(record) = self.sessions.get(&session) else {
            return (Answer::Overtaken, Rest::Nothing);
        };
        let (few, many) = if record.stands.len() < self.index.stranded.len() {
            (&record.stands, &self.index.stranded)
        } else {
            (&self.index.stranded, &record.stands)
        };
        let groups: Vec<Group> =
            few.iter().rev().filter(|group| many.contains(*group)).cloned().collect();
        if groups.is_empty() {
            return (Answer::Overtaken, Rest::Nothing);
        }
        (Answer::Done, Rest::Fill(groups))
    }
}
