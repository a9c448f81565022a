//! The model takes an entry: repeats, the command, and what follows from it.

use std::collections::BTreeSet;

use regent_election::{Answer, Command, Entry, Group, Refusal, RequestId, SessionNo};

use super::model::{Candidacy, Election, Memory, Model, Told, Turn, Window};
use super::verbs::VerbResult;

/// What the model expects of the state machine.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) answer: VerbResult,
    pub(crate) told: Vec<Told>,
    /// Sessions whose epoch must rise, since something changed that they did not ask for.
    pub(crate) must_rise: BTreeSet<SessionNo>,
    /// Sessions whose epoch may rise besides: they asked for what changed.
    pub(crate) may_rise: BTreeSet<SessionNo>,
}

impl Model {
    pub(crate) fn apply(&mut self, entry: &Entry) -> Expected {
        let before = self.clone();
        self.revision = self.revision.next();
        self.turn =
            Turn { silent: entry.silent.clone(), wall_ms: entry.wall_ms, ..Turn::default() };
        let answer = match &entry.request {
            None => self.run(&entry.command),
            Some(id) => self.run_once(id, &entry.command),
        };
        self.drop_void_promises();
        for name in self.names() {
            if self.turn.stood.as_ref() == Some(&name) || self.differs(&before, &name) {
                self.prefer(&name);
            }
        }
        self.end_idle_passing_sessions();
        let (must_rise, may_rise) = self.rises(&before, &entry.command);
        Expected { answer, told: self.turn.told.clone(), must_rise, may_rise }
    }

    fn differs(&self, before: &Self, name: &Group) -> bool {
        let of = |model: &Self| -> Vec<Candidacy> {
            model.candidacies.iter().filter(|one| one.group == *name).cloned().collect()
        };
        // Neither a line more in the history nor a fence changes who should lead: a finding is the one, and
        // a resource that admits a term the other.
        let office = |model: &Self| -> Option<Election> {
            let group = model.group(name)?.clone();
            Some(Election { history: Vec::new(), deeds: Vec::new(), ..group })
        };
        self.policy(name) != before.policy(name)
            || office(self) != office(before)
            || of(self) != of(before)
    }

    fn end_idle_passing_sessions(&mut self) {
        let idle: Vec<SessionNo> = self
            .sessions
            .iter()
            .filter(|session| session.passing)
            .map(|session| session.no)
            .filter(|no| self.candidacies.iter().all(|one| one.session != *no))
            .collect();
        for no in idle {
            self.end_session(no, regent_election::Cause::Resigned);
        }
    }

    fn window(&mut self, command: &Command) -> Option<&mut Window> {
        match command.session() {
            None => Some(&mut self.window),
            Some(id) => self
                .sessions
                .iter_mut()
                .find(|session| session.id == id)
                .map(|session| &mut session.window),
        }
    }

    fn run_once(&mut self, id: &RequestId, command: &Command) -> VerbResult {
        let revision = self.revision;
        if id.seen >= revision {
            return Err(Refusal::RequestAhead { seen: id.seen, revision });
        }
        if let Some(window) = self.window(command) {
            if let Some(memory) = window.known.iter().find(|memory| memory.id == *id).cloned() {
                if memory.command != *command {
                    return Err(Refusal::RequestReused);
                }
                return self.run_again(command, &memory);
            }
            if let Some(forgotten) = window.forgotten.filter(|forgotten| id.seen <= *forgotten) {
                return Err(Refusal::RequestTooOld { seen: id.seen, forgotten });
            }
        }
        let answer = self.run(command)?;
        if !matches!(answer, Answer::Lost | Answer::Overtaken) {
            let serial = self.candidacy_of(command, &answer);
            let (id, command) = (id.clone(), command.clone());
            if let Some(window) = self.window(&command) {
                window.remember(Memory { id, command, applied: revision, serial });
            }
        }
        Ok(answer)
    }

    /// The candidacy that a campaign is about, after it ran.
    fn candidacy_of(&self, command: &Command, answer: &Answer) -> Option<u64> {
        let Command::Campaign { group, .. } = command else { return None };
        match answer {
            Answer::Elected { .. } => self.holder(group).map(|one| one.serial),
            Answer::Standing { session, .. } => self.stands(group, *session).map(|one| one.serial),
            _ => None,
        }
    }

    fn run_again(&mut self, command: &Command, memory: &Memory) -> VerbResult {
        match command {
            Command::Campaign { group, session, .. } => {
                let session = self.open_session(*session).ok_or(Refusal::SessionUnknown)?;
                let (no, ttl_ms) = (session.no, session.ttl_ms);
                let own = self.candidacies.iter().find(|one| Some(one.serial) == memory.serial);
                match own.map(|one| one.holds.clone()) {
                    None => Ok(Answer::Lost),
                    Some(Some(holding)) if holding.ending.is_some() => Ok(Answer::Lost),
                    Some(Some(holding)) => {
                        self.take_office(group);
                        Ok(Answer::Elected { session: no, ttl_ms, term: holding.term })
                    }
                    Some(None) => {
                        Ok(Answer::Standing { session: no, ttl_ms, place: self.place(group, no) })
                    }
                }
            }
            Command::Open { .. } | Command::Accept { .. } | Command::Admit { .. } => {
                self.run(command)
            }
            Command::StepDown { group, .. } | Command::Delete { group } => {
                Ok(self.ending_answer(group))
            }
            Command::Expire { .. } | Command::Elapsed { .. } | Command::Refill { .. } => {
                Ok(Answer::Overtaken)
            }
            _ => Ok(Answer::Done),
        }
    }

    /// Whose list of tenures changed by this entry, and whether by its own wish.
    fn rises(
        &self,
        before: &Self,
        command: &Command,
    ) -> (BTreeSet<SessionNo>, BTreeSet<SessionNo>) {
        let (mut must, mut may) = (BTreeSet::new(), BTreeSet::new());
        for session in &before.sessions {
            if self.open_session(session.id).is_none() {
                continue;
            }
            let asked = command.session() == Some(session.id);
            let mine = before.candidacies.iter().filter(|one| one.session == session.no);
            for was in mine {
                let is = self.candidacies.iter().find(|one| one.serial == was.serial);
                let changed = match (&was.holds, is.map(|one| &one.holds)) {
                    (None, Some(None)) => false,
                    (None, Some(Some(holding))) => !holding.accepted,
                    (None | Some(_), None) => !asked,
                    (Some(was), Some(Some(is))) => {
                        is.ending.is_some() != was.ending.is_some()
                            || (is.offered, is.warm) != (was.offered, was.warm)
                    }
                    (Some(_), Some(None)) => unreachable!("nobody goes back into the line"),
                };
                let own_offer = asked && matches!(command, Command::Offer { .. });
                match (changed, own_offer) {
                    (true, false) => must.insert(session.no),
                    (_, true) => may.insert(session.no),
                    (false, false) => false,
                };
            }
        }
        for is in &self.candidacies {
            let Some(to) = is.holds.as_ref().and_then(|holding| holding.offered) else { continue };
            let was = before.candidacies.iter().find(|one| one.serial == is.serial);
            let was = was.and_then(|one| one.holds.as_ref()).and_then(|holding| holding.offered);
            if was != Some(to) {
                must.insert(to);
                match command {
                    // Who is not asked any more must hear of it, too.
                    Command::Offer { .. } => {
                        must.extend(was);
                        may.insert(is.session)
                    }
                    _ => must.insert(is.session),
                };
            }
            // A standby may say that it is warm as often as it likes; an offer may be repeated.
            let again = matches!(command, Command::Warm { .. } | Command::Offer { .. });
            if again && command_group(command) == Some(&is.group) {
                may.extend([is.session, to]);
            }
        }
        (must, may)
    }
}

fn command_group(command: &Command) -> Option<&Group> {
    match command {
        Command::Offer { group, .. } | Command::Warm { group, .. } => Some(group),
        _ => None,
    }
}
