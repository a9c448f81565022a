//! A state that is used again after what followed it was lost: restored from a backup, or from the
//! one replica left when the quorum is gone for good (semantics 23).
//!
//! Terms granted after the backup are not in it, yet somebody may hold one. So every term, and the
//! floor for new groups, jumps ahead of anything that can have been granted: by 2^32, and to at
//! least the wall clock's seconds times 2^20, so that restoring the same backup twice does not give
//! the same terms twice. No rule compares this clock with another machine's; a clock that stands
//! before the backup's own stamp is refused.
//!
//! What is left to the store: a new life (cursors of the old one get a gap), and to grant nothing
//! until every lease of the old one is over, which is the longest ttl that the settings allow.

use super::group::{Marks, Office};
use super::repeat::Requests;
use super::{Index, State, weight};
use crate::limits::{TERM_GIVEN_MAX, TERM_MAX};
use crate::mutant::{self, Mutant};
use crate::name::Group;
use crate::term::{Revision, Term};

/// Terms jump by at least this much.
const LEAP: u64 = 1 << 32;
/// Terms granted in a second stay below this.
const TERMS_PER_SECOND: u64 = 1 << 20;

/// Why a state cannot be used again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebirthError {
    /// The clock would give terms that were given before.
    #[error(
        "the wall clock says {now_s} s, but the backup was made at {stamp_s} s: set the clock, terms are taken from it"
    )]
    ClockBehind {
        /// What the clock says.
        now_s: u64,
        /// When the backup was made.
        stamp_s: u64,
    },
    /// A floor that would leave too few terms.
    #[error(
        "a term floor of {given} is above {max}, half of all terms; name the highest term that was ever granted"
    )]
    FloorTooHigh {
        /// The floor that was asked for.
        given: u64,
        /// The highest that may be.
        max: u64,
    },
    /// No room above.
    #[error(
        "terms would have to start at {wanted}, beyond the last one that can be written exactly"
    )]
    TermsExhausted {
        /// Where they would have to start.
        wanted: u64,
    },
}

impl State {
    /// This state without sessions, tenures and lines, its terms ahead of all that were ever granted.
    pub fn reborn(
        mut self,
        stamp_s: u64,
        now_s: u64,
        term_floor: Term,
    ) -> Result<Self, RebirthError> {
        if now_s < stamp_s {
            return Err(RebirthError::ClockBehind { now_s, stamp_s });
        }
        let (given, max) = (term_floor.get(), TERM_GIVEN_MAX);
        if given > max {
            return Err(RebirthError::FloorTooHigh { given, max });
        }
        let least = now_s.saturating_mul(TERMS_PER_SECOND).max(term_floor.get());
        let ahead = |term: Term| {
            if mutant::is(Mutant::RestoreKeepsTerms) {
                return Ok(term);
            }
            let wanted = term.get().saturating_add(LEAP).max(least);
            // A term at the very end could never be followed by another.
            match Term::new(wanted) {
                Some(term) if wanted < TERM_MAX => Ok(term),
                Some(_) | None => Err(RebirthError::TermsExhausted { wanted }),
            }
        };
        self.forget_sessions();
        self.term_floor = ahead(self.term_floor)?;
        for group in self.groups.values_mut() {
            group.term = ahead(group.term)?;
            // What was admitted after the backup is not known; it was admitted under a term of the old life.
            if let Some(fences) = &mut group.fences {
                fences.raise(group.term);
            }
        }
        self.groups.weigh(&mut self.accounts);
        // Ids of the old life may or may not have run in what was lost: all of them are refused.
        let last = Revision(self.revision.0.saturating_add(LEAP));
        self.requests = Requests::without_session();
        self.requests.forget_up_to(last);
        self.revision = last.next();
        Ok(self)
    }

    /// This state as a backup keeps it: without sessions, tenures and lines, and so without anybody's
    /// secret. Its terms are its own: it must be [`State::reborn`] before it is used.
    #[must_use]
    pub fn without_sessions(mut self) -> Self {
        self.forget_sessions();
        self.requests = Requests::without_session();
        self
    }

    fn forget_sessions(&mut self) {
        // A group that was being deleted is gone in the next life; its terms are not (semantics 22).
        let doomed = self.groups.iter().filter(|(_, group)| group.doomed);
        let doomed: Vec<Group> = doomed.map(|(name, _)| name.clone()).collect();
        for name in doomed {
            let term = self.groups.remove(&name).map(|group| group.term).unwrap_or_default();
            self.term_floor = self.term_floor.max(term);
        }
        for group in self.groups.values_mut() {
            group.office = Office::Vacant;
            group.dismiss(|_| false);
            group.marks = Marks::default();
            // The last line of a history says who leads; nobody does any more.
            group.history.clear();
        }
        self.index = Index::default();
        for (_, session) in std::mem::take(&mut self.sessions) {
            // A ceiling that was lowered ended nobody: the longest lease that may still run counts.
            let ceiling = &mut self.settings.ttl_ms_ceiling;
            *ceiling = session.ttl_ms_longest.max(*ceiling);
            self.session_weighs_nothing(&session);
            self.ended.remember(session.id);
        }
        // What one proposed in the old life is for two in the new one.
        for (_, proposal) in std::mem::take(&mut self.proposals) {
            self.accounts.release(&Some(proposal.who), weight::PROPOSAL);
        }
        self.by_secret.clear();
        self.groups.weigh(&mut self.accounts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Entry, IfLost, Opening};
    use crate::name::{Group, Metadata, Node, SessionId};
    use crate::policy::{Policy, Settings};
    use crate::{Answer, Refusal};

    const NOW_S: u64 = 1_800_000_000;

    fn campaign(state: &mut State, session: u128, group: &str) -> Result<Answer, Refusal> {
        let entry = Entry::bare(Command::Campaign {
            group: Group::new(group).unwrap(),
            session: SessionId::new(session).unwrap(),
            opening: Some(Opening { node: Node::new("a").unwrap(), ttl_ms: None, passing: false }),
            if_lost: IfLost::Stand,
            priority: 0,
            metadata: Metadata::NONE,
        });
        state.apply(entry).answer
    }

    fn term_of(answer: Result<Answer, Refusal>) -> u64 {
        match answer {
            Ok(Answer::Elected { term, .. }) => term.get(),
            other => panic!("{other:?}"),
        }
    }

    fn lived() -> State {
        let mut state = State::new(Settings::default());
        campaign(&mut state, 1, "billing").unwrap();
        campaign(&mut state, 2, "billing").unwrap();
        state
    }

    #[test]
    fn restoring_one_backup_twice_never_repeats_a_term() {
        let mut first = lived().reborn(NOW_S, NOW_S, Term::NONE).unwrap();
        let mut highest = 0;
        for round in 0..1000 {
            let group = format!("g{round}");
            highest = highest.max(term_of(campaign(&mut first, 7, &group)));
        }
        highest = highest.max(term_of(campaign(&mut first, 7, "billing")));
        let mut second = lived().reborn(NOW_S, NOW_S + 1, Term::NONE).unwrap();
        assert!(term_of(campaign(&mut second, 7, "billing")) > highest);
        assert!(term_of(campaign(&mut second, 7, "brand-new")) > highest);
    }

    #[test]
    fn terms_leap_even_if_the_clock_says_little_and_obey_a_higher_floor() {
        let mut state = lived().reborn(0, 0, Term::NONE).unwrap();
        assert_eq!(term_of(campaign(&mut state, 7, "billing")), 1 + LEAP + 1);
        let floor = Term::new(1 << 52).unwrap();
        let mut state = lived().reborn(0, NOW_S, floor).unwrap();
        assert_eq!(term_of(campaign(&mut state, 7, "billing")), (1 << 52) + 1);
    }

    #[test]
    fn nobody_of_the_old_life_is_left_and_nobody_can_come_back() {
        let mut state = lived().reborn(NOW_S, NOW_S, Term::NONE).unwrap();
        assert_eq!(state.check_invariants(), Ok(()));
        assert_eq!(state.census().sessions, 0);
        assert_eq!(campaign(&mut state, 1, "billing"), Err(Refusal::SessionUnknown));
        let decoded = State::decode(&state.encode()).unwrap();
        assert_eq!(decoded, state);
    }

    /// A restored store grants nothing for as long as the longest ttl. A ceiling that was lowered
    /// ends no session, so leases longer than it may still run.
    #[test]
    fn the_longest_ttl_of_the_old_life_is_waited_for_though_the_ceiling_was_lowered_since() {
        let mut state = State::new(Settings::default());
        let hour_ms = 60 * 60 * 1000;
        let (session, node) = (SessionId::new(1).unwrap(), Node::new("a").unwrap());
        let open = Command::Open { session, node, ttl_ms: hour_ms };
        state.apply(Entry::bare(open)).answer.unwrap();
        let default_policy = Policy { ttl_ms_max: 10_000, ..Policy::default() };
        let settings = Settings { ttl_ms_ceiling: 10_000, default_policy, ..Settings::default() };
        let lower = Command::PutSettings { settings: Box::new(settings) };
        assert_eq!(state.apply(Entry::bare(lower)).answer, Ok(Answer::Done));
        let change = Command::ChangeTtl { session, ttl_ms: 10_000 };
        assert_eq!(state.apply(Entry::bare(change)).answer, Ok(Answer::Done));
        let state = state.reborn(NOW_S, NOW_S, Term::NONE).unwrap();
        assert_eq!(state.settings().ttl_ms_ceiling, hour_ms);
    }

    #[test]
    fn a_state_kept_without_sessions_is_reborn_like_the_whole_one() {
        let kept = lived().without_sessions();
        assert_eq!(kept.check_invariants(), Ok(()));
        assert_eq!(State::decode(&kept.encode()).unwrap(), kept);
        let reborn = |state: State| state.reborn(NOW_S, NOW_S, Term::NONE).unwrap();
        assert_eq!(reborn(kept), reborn(lived()));
    }

    #[test]
    fn a_clock_before_the_backup_is_refused() {
        let error = lived().reborn(NOW_S, NOW_S - 1, Term::NONE).unwrap_err();
        assert_eq!(error, RebirthError::ClockBehind { now_s: NOW_S - 1, stamp_s: NOW_S });
        for beyond in [TERM_GIVEN_MAX + 1, TERM_MAX] {
            let error = lived().reborn(0, NOW_S, Term::new(beyond).unwrap()).unwrap_err();
            assert_eq!(error, RebirthError::FloorTooHigh { given: beyond, max: TERM_GIVEN_MAX });
        }
    }
}
