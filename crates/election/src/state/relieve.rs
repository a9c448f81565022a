//! Relief: somebody who watches a leader from outside asks it to hand over to a standby, before it fails.
//!
//! It is the offer of a hand-over (semantics 15) in other hands, and as gentle: the leader leads on, the standby gets
//! warm, then the leader drains and transfers in one commit, or does not. Nobody is deposed, so nobody's word for it
//! is needed but the term that is meant: what was decided about an earlier leader does nothing to a later one.
//!
//! An office that is on offer already is left alone. So of several servers that come to the same conclusion one asks
//! and the others change nothing, and a hand-over that the leader itself began is never turned elsewhere.
//!
//! The road not taken: a step-down with a successor (semantics 11). It ends the tenure whether or not the standby is
//! there to take it; a forecast may be wrong, and must cost nothing then but a change of leader.

use super::group::Office;
use super::{State, Turn, VerbResult, done};
use crate::name::{Group, Node, Reason};
use crate::outcome::{Cause, Refusal};
use crate::term::Term;

impl State {
    /// Offers the office to `to` in the leader's stead, and tells everybody why.
    pub(super) fn relieve(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        term: Term,
        to: &Node,
        reason: Reason,
    ) -> VerbResult {
        self.check_home(group)?;
        let Some(state) = self.groups.get(group) else {
            return Err(Refusal::GroupUnknown { group: group.clone() });
        };
        let current = state.term;
        if term < current {
            let (group, resource) = (group.clone(), None);
            return Err(Refusal::StaleTerm { group, resource, given: term, current });
        }
        if term > current {
            return Err(Refusal::NeverGranted { group: group.clone(), given: term, current });
        }
        let tenure = match &state.office {
            Office::Held { tenure } => tenure,
            Office::Ending { cause, .. } => {
                return Err(Refusal::TenureEnding { group: group.clone(), term, cause: *cause });
            }
            Office::Vacant | Office::Delayed { .. } => {
                return Err(Refusal::NobodyLeads { group: group.clone() });
            }
        };
        if tenure.offer.is_some() {
            return done();
        }
        let successor = self.successor(turn, group, to)?;
        self.make_offer(group, successor);
        self.announce(turn, group, Cause::Failing, Some(Box::new(reason)));
        done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionId;
    use crate::command::{Command, Entry, IfLost, Opening};
    use crate::name::{Metadata, SessionNo};
    use crate::outcome::Applied;
    use crate::policy::Settings;

    fn group() -> Group {
        Group::new("g").unwrap()
    }

    fn node(name: &str) -> Node {
        Node::new(name).unwrap()
    }

    fn id(number: u128) -> SessionId {
        SessionId::new(number).unwrap()
    }

    fn term(number: u64) -> Term {
        Term::new(number).unwrap()
    }

    /// The first one leads, the others stand.
    fn crowd(names: &[&str]) -> State {
        let mut state = State::new(Settings::default());
        for (number, name) in names.iter().enumerate() {
            let opening = Opening { node: node(name), ttl_ms: Some(10_000), passing: false };
            let campaign = Command::Campaign {
                group: group(),
                session: id(1 + number as u128),
                opening: Some(opening),
                if_lost: IfLost::Stand,
                priority: 0,
                metadata: Metadata::NONE,
            };
            assert!(state.apply(Entry::bare(campaign)).answer.is_ok());
        }
        state
    }

    fn relief(term: Term, to: &str) -> Command {
        let reason = Reason::new("a is slow").unwrap();
        Command::Relieve { group: group(), term, to: node(to), reason }
    }

    fn relieve(state: &mut State, number: u64, to: &str) -> Applied {
        state.apply(Entry::bare(relief(term(number), to)))
    }

    fn holder(state: &State) -> Option<(SessionNo, Term)> {
        state.holder(&group()).map(|holder| (holder.session, holder.term))
    }

    #[test]
    fn relief_is_an_offer_that_deposes_nobody_and_says_why() {
        let mut state = crowd(&["a", "b", "c"]);
        let before = holder(&state);
        let applied = relieve(&mut state, 1, "c");
        assert!(applied.answer.is_ok(), "{applied:?}");
        let causes: Vec<_> = applied.events.iter().map(|event| event.cause).collect();
        assert_eq!(causes, [Cause::Failing]);
        assert_eq!(holder(&state), before, "it leads on");
        let told = state.history(&group()).last().unwrap().clone();
        assert_eq!(told.reason.as_deref().map(Reason::as_str), Some("a is slow"));
        assert_eq!((told.leader, told.term), (Some(node("a")), term(1)));
        let warm = Command::Warm { group: group(), session: id(3), term: term(1) };
        assert!(state.apply(Entry::bare(warm)).answer.is_ok(), "c was asked, as by the leader");
        let transfer =
            Command::Transfer { group: group(), session: id(1), term: term(1), to: node("c") };
        let applied = state.apply(Entry::bare(transfer));
        assert_eq!(applied.events[0].cause, Cause::Transferred);
        assert_eq!(applied.events[0].leader, Some(node("c")), "one commit");
    }

    #[test]
    fn a_second_relief_and_a_hand_over_under_way_are_left_alone() {
        let mut state = crowd(&["a", "b", "c"]);
        assert_eq!(relieve(&mut state, 1, "b").events.len(), 1);
        let again = relieve(&mut state, 1, "c");
        assert!(again.answer.is_ok() && again.events.is_empty(), "{again:?}");
        let warm = |number| Command::Warm { group: group(), session: id(number), term: term(1) };
        assert!(state.apply(Entry::bare(warm(3))).answer.is_err(), "c is not asked");
        assert!(state.apply(Entry::bare(warm(2))).answer.is_ok(), "b is still asked");
    }

    #[test]
    fn what_was_decided_about_an_earlier_term_does_nothing() {
        let mut state = crowd(&["a", "b", "c"]);
        let resign = Command::Resign { group: group(), session: id(1), term: term(1) };
        state.apply(Entry::bare(resign));
        let before = holder(&state);
        let late = relieve(&mut state, 1, "c");
        assert!(matches!(late.answer, Err(Refusal::StaleTerm { .. })), "{late:?}");
        let early = relieve(&mut state, 3, "c");
        assert!(matches!(early.answer, Err(Refusal::NeverGranted { .. })), "{early:?}");
        assert!(late.events.is_empty() && early.events.is_empty());
        assert_eq!(holder(&state), before);
    }

    #[test]
    fn a_standby_that_is_unknown_silent_or_one_of_two_is_refused() {
        let mut state = crowd(&["a", "b", "twin", "twin"]);
        let unknown = relieve(&mut state, 1, "z").answer;
        assert!(matches!(unknown, Err(Refusal::SuccessorUnknown { .. })), "{unknown:?}");
        let two = relieve(&mut state, 1, "twin").answer;
        assert!(matches!(two, Err(Refusal::SuccessorAmbiguous { .. })), "{two:?}");
        let itself = relieve(&mut state, 1, "a").answer;
        assert!(matches!(itself, Err(Refusal::SuccessorUnknown { .. })), "{itself:?}");
        let silent = state.standbys(&group()).collect();
        let silent = Entry { silent, ..Entry::bare(relief(term(1), "b")) };
        let silent = state.apply(silent).answer;
        assert!(matches!(silent, Err(Refusal::SuccessorSilent { .. })), "{silent:?}");
        assert_eq!(state.history(&group()).len(), 1, "nothing is told that was not done");
    }

    #[test]
    fn a_standby_that_leaves_takes_the_offer_with_it() {
        let mut state = crowd(&["a", "b", "c"]);
        relieve(&mut state, 1, "b");
        state.apply(Entry::bare(Command::Close { session: id(2) }));
        assert_eq!(holder(&state).map(|(_, term)| term), Some(term(1)), "a leads on");
        assert_eq!(relieve(&mut state, 1, "c").events.len(), 1, "another one may be asked");
    }

    #[test]
    fn an_office_that_nobody_holds_or_that_ends_is_not_handed_over() {
        let mut state = crowd(&["a"]);
        let down = Command::StepDown {
            group: group(),
            reason: Reason::default(),
            to: None,
            immediate: false,
        };
        state.apply(Entry::bare(down));
        let ending = relieve(&mut state, 1, "b").answer;
        assert!(matches!(ending, Err(Refusal::TenureEnding { .. })), "{ending:?}");
        let resign = Command::Resign { group: group(), session: id(1), term: term(1) };
        state.apply(Entry::bare(resign));
        let vacant = relieve(&mut state, 1, "b").answer;
        assert!(matches!(vacant, Err(Refusal::NobodyLeads { .. })), "{vacant:?}");
    }
}
