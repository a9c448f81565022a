//! A state that keeps one group: what a store needs that gives every group an entry of its own.
//!
//! Such a store has no log: it reads a small state, applies a command and writes it back as a whole.
//! Three things differ from a state that keeps everything. Its **revisions** may leap, so that those of
//! different groups can be compared as far as one caused the other. What it **remembers** must stay
//! small, since all of it is written every time. And it may be **older than what somebody has seen**,
//! if the engine was restored or emptied: then its terms are raised before anything is granted.

use super::group::Office;
use super::{State, Turn};
use crate::name::{Group, SessionId, SessionNo};
use crate::outcome::{Answer, Applied, Cause};
use crate::term::{Revision, Term};

/// One session as a small state knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// Its handle: the revision at which it came, so higher if it came again.
    pub no: SessionNo,
    /// What it is known by.
    pub id: SessionId,
    /// Rises with every change to its tenures that it did not ask for.
    pub epoch: u64,
    /// Whether it leads or stands anywhere.
    pub is_concerned: bool,
    /// Whether it ends by itself once it is not.
    pub is_passing: bool,
}

impl State {
    /// The next entry's revision will be above `seen`.
    pub fn leap(&mut self, seen: Revision) {
        self.revision = self.revision.max(seen);
    }

    /// Whether this group is known.
    #[must_use]
    pub fn knows(&self, group: &Group) -> bool {
        self.groups.get(group).is_some()
    }

    /// The last term granted in a group, or the floor under those to come.
    #[must_use]
    pub fn last_term(&self, group: &Group) -> Term {
        self.groups.get(group).map_or(self.term_floor, |state| state.term)
    }

    /// Everybody who is remembered, in the order of their coming.
    pub fn session_summaries(&self) -> impl Iterator<Item = SessionSummary> {
        self.sessions.iter().map(|(no, session)| SessionSummary {
            no: *no,
            id: session.id,
            epoch: session.epoch,
            is_concerned: !session.leads.is_empty() || !session.stands.is_empty(),
            is_passing: session.passing,
        })
    }

    /// One who is remembered.
    #[must_use]
    pub fn session_summary(&self, id: SessionId) -> Option<SessionSummary> {
        let no = self.by_secret.get(&id)?;
        let session = self.sessions.get(no)?;
        Some(SessionSummary {
            no: *no,
            id,
            epoch: session.epoch,
            is_concerned: !session.leads.is_empty() || !session.stands.is_empty(),
            is_passing: session.passing,
        })
    }

    /// What a session is known by.
    #[must_use]
    pub fn id_of(&self, session: SessionNo) -> Option<SessionId> {
        self.sessions.get(&session).map(|session| session.id)
    }

    /// Forgets what can be forgotten: ids of ended sessions (another entry tells), all but the last
    /// `requests_max` ids of requests without a session, and all but the last `idle_max` sessions that
    /// neither lead nor stand, with their request ids. A forgotten id of a request is refused, never run
    /// again; one that is forgotten with its session may run again, and what it names is over by then.
    pub fn trim(&mut self, requests_max: usize, idle_max: usize) {
        self.ended = super::EndedSessions::default();
        self.requests.trim(requests_max);
        let idle: Vec<SessionNo> = self
            .session_summaries()
            .filter(|summary| !summary.is_concerned)
            .map(|summary| summary.no)
            .collect();
        for no in idle.iter().take(idle.len().saturating_sub(idle_max)) {
            if let Some(session) = self.sessions.remove(no) {
                self.session_weighs_nothing(&session);
                self.by_secret.remove(&session.id);
            }
        }
    }

    /// Makes sure that no term at or below `term` is granted in this group (again), for a store that has
    /// seen higher ones than it finds. A tenure of a lower term is over: somebody followed it. None if
    /// there is nothing to raise.
    pub fn raise_terms(&mut self, group: &Group, term: Term, wall_ms: u64) -> Option<Applied> {
        if self.last_term(group) >= term {
            return None;
        }
        self.revision = self.revision.next();
        let mut turn = Turn {
            revision: self.revision,
            wall_ms,
            silent: Vec::new(),
            who: None,
            events: Vec::new(),
            effects: Vec::new(),
        };
        self.term_floor = self.term_floor.max(term);
        if let Some(state) = self.groups.get_mut(group) {
            let holder = state.office.tenure().map(|tenure| tenure.session);
            state.office = Office::Vacant;
            state.term = term;
            if let Some(fences) = &mut state.fences {
                fences.raise(term);
            }
            if let Some(session) = holder.and_then(|holder| self.sessions.get_mut(&holder)) {
                session.leads.remove(group);
                session.epoch += 1;
            }
            let is_doomed = std::mem::take(&mut state.doomed);
            self.announce(&mut turn, group, Cause::Expired, None);
            if is_doomed {
                self.forget(&mut turn, group);
            } else {
                self.fill(&mut turn, group, Cause::Elected, None);
            }
            if let Some(holder) = holder {
                self.settle(&mut turn, holder);
            }
        }
        self.groups.weigh(&mut self.accounts);
        Some(Applied {
            revision: turn.revision,
            answer: Ok(Answer::Done),
            events: turn.events,
            effects: turn.effects,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Entry, IfLost, Opening};
    use crate::name::{Metadata, Node, RequestId};
    use crate::outcome::Refusal;
    use crate::policy::Settings;

    fn group() -> Group {
        Group::new("billing").unwrap()
    }

    fn id(number: u128) -> SessionId {
        SessionId::new(number).unwrap()
    }

    fn campaign(state: &mut State, session: u128) -> Result<Answer, Refusal> {
        let opening = Opening {
            node: Node::new(&format!("n{session}")).unwrap(),
            ttl_ms: Some(10_000),
            passing: false,
        };
        let command = Command::Campaign {
            group: group(),
            session: id(session),
            opening: Some(opening),
            if_lost: IfLost::Stand,
            priority: 0,
            metadata: Metadata::NONE,
        };
        state.apply(Entry::bare(command)).answer
    }

    fn term(number: u64) -> Term {
        Term::new(number).unwrap()
    }

    #[test]
    fn terms_that_somebody_has_seen_are_never_granted_again() {
        let mut fresh = State::new(Settings::default());
        assert!(fresh.raise_terms(&group(), term(41), 0).is_some());
        assert!(fresh.raise_terms(&group(), term(41), 0).is_none());
        assert_eq!(campaign(&mut fresh, 1).unwrap().elected(), Some(term(42)));
        fresh.check_invariants().unwrap();
    }

    #[test]
    fn a_tenure_of_a_lower_term_is_over_and_the_next_in_line_follows() {
        let mut state = State::new(Settings::default());
        campaign(&mut state, 1).unwrap();
        campaign(&mut state, 2).unwrap();
        let applied = state.raise_terms(&group(), term(9), 0).unwrap();
        state.check_invariants().unwrap();
        assert_eq!(State::decode(&state.encode()).unwrap(), state);
        let holder = state.holder(&group()).unwrap();
        assert_eq!((holder.term, state.id_of(holder.session)), (term(10), Some(id(2))));
        assert_eq!(applied.events.len(), 2);
        assert!(
            state.session_summary(id(1)).is_some_and(|one| one.epoch == 1 && !one.is_concerned)
        );
        assert!(state.session_summary(id(2)).is_some_and(|two| two.epoch == 1 && two.is_concerned));
    }

    #[test]
    fn what_is_trimmed_is_refused_or_over() {
        let mut state = State::new(Settings::default());
        for number in 1..=5 {
            let answer = campaign(&mut state, number).unwrap();
            let resign = Command::Resign {
                group: group(),
                session: id(number),
                term: answer.elected().unwrap(),
            };
            state.apply(Entry::bare(resign)).answer.unwrap();
        }
        campaign(&mut state, 6).unwrap();
        let ask = |state: &mut State, name: &str| {
            let request = Some(RequestId::new(Revision(0), name).unwrap());
            let command = Command::PutPolicy { group: group(), policy: None };
            state.apply(Entry { request, ..Entry::bare(command) }).answer
        };
        for name in ["a", "b", "c"] {
            ask(&mut state, name).unwrap();
        }
        state.trim(2, 2);
        state.check_invariants().unwrap();
        assert_eq!(State::decode(&state.encode()).unwrap(), state);
        let left: Vec<u128> = state.session_summaries().map(|summary| summary.id.get()).collect();
        assert_eq!(left, [4, 5, 6]);
        assert!(matches!(ask(&mut state, "a"), Err(Refusal::RequestTooOld { .. })));
        assert_eq!(ask(&mut state, "c"), Ok(Answer::Done));
    }

    #[test]
    fn a_revision_leaps_forward_only() {
        let mut state = State::new(Settings::default());
        state.leap(Revision(100));
        state.leap(Revision(7));
        campaign(&mut state, 1).unwrap();
        assert_eq!(state.revision(), Revision(101));
    }
}
