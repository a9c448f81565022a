//! The model's verbs: what each command does and answers.

use regent_election::limits::{REQUESTS_PER_SESSION, TTL_MS_DEFAULT, TTL_MS_FLOOR};
use regent_election::{
    Answer, Cause, Command, Door, Group, IfLost, Node, Opening, Policy, Refusal, SessionId,
    SessionNo, Term,
};

use super::model::{Candidacy, Election, Model, Participant, Window};
use super::office::Farewell;

pub(crate) type VerbResult = Result<Answer, Refusal>;

impl Model {
    pub(crate) fn run(&mut self, command: &Command) -> VerbResult {
        match command {
            Command::Open { session, node, ttl_ms } => self.open(*session, node, *ttl_ms),
            Command::ChangeTtl { session, ttl_ms } => self.change_ttl(*session, *ttl_ms),
            Command::Close { session } => {
                match self.open_session(*session).map(|session| session.no) {
                    Some(no) => self.end_sessions(vec![no], Cause::Resigned),
                    None => self.ended.push(*session),
                }
                Ok(Answer::Done)
            }
            Command::Expire { sessions } => {
                let mut known: Vec<SessionNo> = self.sessions.iter().map(|one| one.no).collect();
                known.retain(|no| sessions.contains(no));
                let overtaken = known.is_empty();
                self.end_sessions(known, Cause::Expired);
                Ok(if overtaken { Answer::Overtaken } else { Answer::Done })
            }
            Command::Campaign { group, session, opening, .. } => {
                self.campaign(command, group, *session, opening.as_ref())
            }
            Command::Withdraw { group, session } => self.withdraw(group, *session),
            Command::Accept { group, session, term } => {
                self.must_lead(group, *session, *term)?;
                self.take_office(group);
                Ok(Answer::Done)
            }
            Command::Resign { group, session, term } => {
                self.must_hold(group, *session, *term)?;
                let end = self.farewell(group, Cause::Resigned, true);
                self.vacate(group, end);
                Ok(Answer::Done)
            }
            Command::Offer { group, session, term, to } => {
                self.must_lead(group, *session, *term)?;
                let to = self.successor(group, to)?;
                let holding = self.holding_mut(group).expect("the leader holds");
                // Offered again, one that is warm stays so.
                let warm = holding.warm && holding.offered == Some(to);
                (holding.offered, holding.warm) = (Some(to), warm);
                Ok(Answer::Done)
            }
            Command::Warm { group, session, term } => self.warm(group, *session, *term),
            Command::Transfer { group, session, term, to } => {
                self.must_lead(group, *session, *term)?;
                let to = self.successor(group, to)?;
                self.group_mut(group).heir = Some(to);
                let cause = Cause::Transferred;
                self.vacate(group, Farewell { cause, reason: None, stopped: true });
                Ok(Answer::Done)
            }
            Command::StepDown { .. } => self.step_down(command),
            Command::PutPolicy { group, policy } => self.put_policy(group, policy.as_deref()),
            Command::Move { group, step } => self.take_step(group, step),
            Command::Admit { group, resource, term } => self.admit(group, resource, *term),
            Command::ForgetFence { group, resource } => self.forget_fence(group, resource),
            Command::Report { group, finding, reason } => self.report(group, *finding, reason),
            Command::Relieve { group, term, to, reason } => self.relieve(group, *term, to, reason),
            Command::PutBindings { expected_version, bindings } => {
                let version = self.bindings.0;
                if *expected_version != version {
                    return Err(Refusal::BindingsChanged { expected: *expected_version, version });
                }
                if self.bindings.1 != *bindings {
                    self.bindings = (version + 1, bindings.clone());
                }
                // Nobody has an owner here: no binding is about any session of the model.
                Ok(Answer::Done)
            }
            Command::CreateToken { token, .. } => {
                if self.tokens.iter().all(|(known, _)| known != token) {
                    self.tokens.push((*token, false));
                }
                Ok(Answer::Done)
            }
            Command::RevokeToken { token } => {
                let known = self.tokens.iter_mut().find(|(known, _)| known == token);
                let (_, revoked) = known.ok_or(Refusal::TokenUnknown { token: *token })?;
                *revoked = true;
                Ok(Answer::Done)
            }
            Command::As { .. } => unreachable!("who asks is the contract's affair"),
            Command::Delete { group } => self.delete(group),
            Command::PutSettings { settings } => self.put_settings(settings),
            Command::Elapsed { group, kind, since } => {
                if self.wait(group).is_none_or(|(of, at, _)| (of, at) != (*kind, *since)) {
                    return Ok(Answer::Overtaken);
                }
                self.elapsed(group, *kind);
                Ok(Answer::Done)
            }
            Command::Refill { session } => Ok(self.refill(*session)),
        }
    }

    fn open(&mut self, id: SessionId, node: &Node, ttl_ms: u64) -> VerbResult {
        if self.ended.contains(&id) {
            return Err(Refusal::SessionUnknown);
        }
        if let Some(session) = self.open_session(id) {
            if session.node != *node || session.ttl_ms != ttl_ms {
                return Err(Refusal::SessionMismatch);
            }
            return Ok(Answer::Session { session: session.no, ttl_ms });
        }
        self.within_ceiling(ttl_ms)?;
        let session = self.add_session(id, node, ttl_ms, false);
        Ok(Answer::Session { session, ttl_ms })
    }

    fn add_session(&mut self, id: SessionId, node: &Node, ttl_ms: u64, passing: bool) -> SessionNo {
        let no = SessionNo(self.revision.0);
        self.sessions.push(Participant {
            no,
            id,
            node: node.clone(),
            ttl_ms,
            ttl_ms_longest: ttl_ms,
            passing,
            window: Window::new(REQUESTS_PER_SESSION),
        });
        no
    }

    fn within_ceiling(&self, ttl_ms: u64) -> Result<(), Refusal> {
        let max = self.settings.ttl_ms_ceiling;
        if ttl_ms < TTL_MS_FLOOR || ttl_ms > max {
            return Err(Refusal::TtlOutOfBounds { group: None, ttl_ms, min: TTL_MS_FLOOR, max });
        }
        Ok(())
    }

    fn within_bounds(&self, group: &Group, ttl_ms: u64) -> Result<(), Refusal> {
        let policy = self.policy(group);
        if ttl_ms < policy.ttl_ms_min || ttl_ms > policy.ttl_ms_max {
            let (group, min, max) = (Some(group.clone()), policy.ttl_ms_min, policy.ttl_ms_max);
            return Err(Refusal::TtlOutOfBounds { group, ttl_ms, min, max });
        }
        Ok(())
    }

    fn change_ttl(&mut self, id: SessionId, ttl_ms: u64) -> VerbResult {
        let no = self.must_be_open(id)?;
        self.within_ceiling(ttl_ms)?;
        for group in self.places(no, true).into_iter().chain(self.places(no, false)) {
            self.within_bounds(&group, ttl_ms)?;
        }
        for session in self.sessions.iter_mut().filter(|session| session.no == no) {
            session.ttl_ms = ttl_ms;
            session.ttl_ms_longest = session.ttl_ms_longest.max(ttl_ms);
        }
        Ok(Answer::Done)
    }

    fn end_sessions(&mut self, mut sessions: Vec<SessionNo>, cause: Cause) {
        sessions.sort();
        self.turn.gone = sessions.clone();
        for session in sessions {
            self.end_session(session, cause);
        }
    }

    fn campaign(
        &mut self,
        command: &Command,
        group: &Group,
        id: SessionId,
        opening: Option<&Opening>,
    ) -> VerbResult {
        let Command::Campaign { if_lost, priority: claimed, metadata, .. } = command else {
            unreachable!("only campaigns come here")
        };
        let (open, node, ttl_ms, passing) = self.candidate(id, opening)?;
        if let Some(session) = open
            && self.holds(group, session)
            && self.ending_answer(group) == Answer::Done
        {
            self.take_office(group);
            let term = self.group(group).expect("it is led").term;
            return Ok(Answer::Elected { session, ttl_ms, term });
        }
        self.may_stand_in(group, &node, ttl_ms)?;
        // Who speaks is heard, whatever the proposer thought of it a moment before.
        self.turn.silent.retain(|silent| Some(*silent) != open);
        let known = open.and_then(|session| self.stands(group, session)).cloned();
        let is_next = known.is_some() && self.best(group).map(|one| one.session) == open;
        let is_free = self.is_open(group)
            && self.holder(group).is_none()
            && self.group(group).is_none_or(|group| group.delayed.is_none());

        // What if it stood with this claim, keeping the arrival it has?
        let mut joined = self.clone();
        let session = open.unwrap_or_else(|| joined.add_session(id, &node, ttl_ms, passing));
        if joined.group(group).is_none() {
            joined.add_group(group, None);
        }
        joined.serials += 1;
        let serial = known.as_ref().map_or(joined.serials, |one| one.serial);
        joined.candidacies.retain(|one| one.serial != serial);
        joined.candidacies.push(Candidacy {
            serial,
            group: group.clone(),
            session,
            claimed: *claimed,
            arrived: known.as_ref().map_or(self.revision, |one| one.arrived),
            metadata: metadata.clone(),
            holds: None,
        });
        let would_be_next = joined.best(group).map(|one| one.session) == Some(session);
        if is_free && (is_next || would_be_next) {
            *self = joined;
            self.grant(serial, true, Cause::Elected, None);
            let term = self.group(group).expect("it is led").term;
            return Ok(Answer::Elected { session, ttl_ms, term });
        }
        if *if_lost == IfLost::Leave {
            self.fill(group, Cause::Elected, None);
            return Ok(Answer::Lost);
        }
        let max = self.policy(group).standbys_max;
        if known.is_none() && self.line(group).len() >= max as usize {
            return Err(Refusal::Full { what: "", max: max.into() });
        }
        *self = joined;
        self.fill(group, Cause::Elected, None);
        self.turn.stood = Some(group.clone());
        Ok(Answer::Standing { session, ttl_ms, place: self.place(group, session) })
    }

    pub(crate) fn place(&self, group: &Group, session: SessionNo) -> u32 {
        let line = self.line(group);
        line.iter().position(|one| one.session == session).expect("it stands") as u32
    }

    fn candidate(
        &self,
        id: SessionId,
        opening: Option<&Opening>,
    ) -> Result<(Option<SessionNo>, Node, u64, bool), Refusal> {
        if let Some(session) = self.open_session(id) {
            let contradicts = opening.is_some_and(|told| {
                told.node != session.node || told.ttl_ms.is_some_and(|ttl| ttl != session.ttl_ms)
            });
            if contradicts {
                return Err(Refusal::SessionMismatch);
            }
            return Ok((Some(session.no), session.node.clone(), session.ttl_ms, session.passing));
        }
        let Some(opening) = opening.filter(|_| !self.ended.contains(&id)) else {
            return Err(Refusal::SessionUnknown);
        };
        let ttl_ms = opening.ttl_ms.unwrap_or(TTL_MS_DEFAULT);
        self.within_ceiling(ttl_ms)?;
        Ok((None, opening.node.clone(), ttl_ms, opening.passing))
    }

    fn may_stand_in(&self, group: &Group, node: &Node, ttl_ms: u64) -> Result<(), Refusal> {
        match self.group(group) {
            None if !self.settings.auto_create => {
                return Err(Refusal::GroupUnknown { group: group.clone() });
            }
            None => self.room_for_a_group()?,
            Some(known) if known.doomed => {
                return Err(Refusal::GroupEnding { group: group.clone() });
            }
            Some(known) if let Door::Moved { to } = &known.door => {
                return Err(Refusal::Moved { group: group.clone(), to: to.clone() });
            }
            Some(_) => {}
        }
        self.within_bounds(group, ttl_ms)?;
        if !self.policy(group).allows(node) {
            return Err(Refusal::NotAllowed { group: group.clone(), node: node.clone() });
        }
        Ok(())
    }

    pub(crate) fn room_for_a_group(&self) -> Result<(), Refusal> {
        let max = self.settings.groups_max;
        if self.groups.len() as u64 >= max {
            return Err(Refusal::Full { what: "", max });
        }
        Ok(())
    }

    pub(crate) fn add_group(&mut self, name: &Group, policy: Option<Policy>) {
        self.groups.push(Election {
            name: name.clone(),
            term: self.floor,
            policy,
            doomed: false,
            door: Door::Open,
            delayed: None,
            heir: None,
            history: Vec::new(),
            deeds: Vec::new(),
        });
    }

    fn must_be_open(&self, id: SessionId) -> Result<SessionNo, Refusal> {
        self.open_session(id).map(|session| session.no).ok_or(Refusal::SessionUnknown)
    }

    fn must_hold(&self, group: &Group, id: SessionId, term: Term) -> Result<(), Refusal> {
        let session = self.must_be_open(id)?;
        let last = self.group(group).map_or(self.floor, |known| known.term);
        if self.holds(group, session) && last == term {
            return Ok(());
        }
        let leader = self.holder(group).map(|one| self.session(one.session).node.clone());
        Err(Refusal::NotLeader { group: group.clone(), given: term, term: last, leader })
    }

    fn must_lead(&self, group: &Group, id: SessionId, term: Term) -> Result<(), Refusal> {
        self.must_hold(group, id, term)?;
        match self.holding(group).and_then(|holding| holding.ending.as_ref()) {
            Some(ending) => {
                let (group, cause) = (group.clone(), ending.cause);
                Err(Refusal::TenureEnding { group, term, cause })
            }
            None => Ok(()),
        }
    }

    pub(crate) fn successor(&self, group: &Group, to: &Node) -> Result<SessionNo, Refusal> {
        let mut named = self.line(group);
        named.retain(|one| self.session(one.session).node == *to);
        let (group, to) = (group.clone(), to.clone());
        match named.as_slice() {
            [] => Err(Refusal::SuccessorUnknown { group, to }),
            [one] if self.turn.silent.contains(&one.session) => {
                Err(Refusal::SuccessorSilent { group, to })
            }
            [one] => Ok(one.session),
            many => Err(Refusal::SuccessorAmbiguous { group, to, count: many.len() as u32 }),
        }
    }

    fn withdraw(&mut self, group: &Group, id: SessionId) -> VerbResult {
        let session = self.must_be_open(id)?;
        let standing = self.stands(group, session).map(|one| one.serial);
        self.candidacies.retain(|one| Some(one.serial) != standing);
        // It names no term: a late duplicate must find a later tenure acting, and let it stop first.
        if self.holds(group, session) {
            return Ok(self.tell_to_stop(group, Cause::Withdrawn, None));
        }
        Ok(Answer::Done)
    }

    fn warm(&mut self, group: &Group, id: SessionId, term: Term) -> VerbResult {
        let session = self.must_be_open(id)?;
        let holding = self.holding_mut(group).filter(|holding| {
            holding.term == term && holding.ending.is_none() && holding.offered == Some(session)
        });
        let Some(holding) = holding else {
            return Err(Refusal::NoOffer { group: group.clone() });
        };
        holding.warm = true;
        Ok(Answer::Done)
    }
}
