//! What an entry did, told without any secret: the lines of a flight recorder.
//!
//! A history in the state is short, and a watch tells only who leads. Whoever asks later *why* also wants
//! to know who opened, stood, resigned, was stepped down or fell silent. That is in the entry and in the
//! state it met, and gone once both are: so whoever drives the state machine takes a [`Draft`] before
//! it applies an entry, and completes it to a [`DeedRecord`] after.
//!
//! Sessions are told by their public number ([`SessionNo`]); no [`crate::SessionId`] is in here. What changed
//! nothing is not told: refusals, repeats of what holds already, and waits that were overtaken.
//!
//! Road not taken: writing down the entries themselves. They hold every session's secret, and say
//! nothing of what came of them.

use crate::command::{Entry, Finding, WaitKind};
use crate::name::{Group, Node, Reason, SessionId, SessionNo};
use crate::outcome::{Answer, Event, Refusal};
use crate::policy::{Policy, Priority};
use crate::state::State;
use crate::term::{Revision, Term};

/// A session, as everybody may know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// Its public number: another one for every run of a node.
    pub session: SessionNo,
    pub node: Node,
    /// How long it lives unheard.
    pub ttl_ms: u64,
}

/// What was done: the command's name and those of its fields that are no secret. A field that the command does not
/// have is none, zero or false.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deed {
    /// The name of the command.
    pub verb: &'static str,
    /// The group it is about.
    pub group: Option<Group>,
    /// The term that the command names. For a campaign: the term it won, none if it stands in line.
    pub term: Option<Term>,
    /// The successor that the command names.
    pub to: Option<Node>,
    /// The candidate's claim in the line.
    pub priority: Priority,
    /// The reason for the history, if it is not empty.
    pub reason: Option<Reason>,
    /// Whether a step-down did not wait for the holder.
    pub immediate: bool,
    /// The new policy; none is the default policy.
    pub policy: Option<Box<Policy>>,
    /// The finding of a report.
    pub finding: Option<Finding>,
    /// The wait that elapsed.
    pub wait: Option<WaitKind>,
}

/// One applied entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeedRecord {
    /// When, in the order of the store.
    pub revision: Revision,
    /// When, on the proposer's wall clock: a note for people.
    pub wall_ms: u64,
    /// What was done.
    pub deed: Deed,
    /// The sessions that did it, or to which it was done; the administrator has none.
    pub parties: Vec<Party>,
    /// What watchers were told, in order.
    pub events: Vec<Event>,
}

/// What is known of an entry before it is applied.
#[derive(Debug)]
pub struct Draft {
    wall_ms: u64,
    /// None for what is never told.
    deed: Option<Deed>,
    recorded_if_changed: bool,
    /// Whose entry it is: its session may be opened only by it.
    owner: Option<SessionId>,
    parties: Vec<Party>,
}

impl Draft {
    /// Notes what an entry is about to do to this state.
    #[must_use]
    pub fn of(state: &State, entry: &Entry) -> Self {
        let command = &entry.command;
        let owner = command.session();
        let named = owner.and_then(|id| state.find_session(id)).into_iter();
        let sessions = named.chain(command.sessions().iter().copied());
        let parties = sessions.filter_map(|session| party(state, session)).collect();
        let (deed, recorded_if_changed) = (command.deed(), command.recorded_if_changed());
        Self { wall_ms: entry.wall_ms, deed, recorded_if_changed, owner, parties }
    }

    /// Completes the note with what came of it; none if nothing did.
    #[must_use]
    pub fn complete(
        self,
        state: &State,
        revision: Revision,
        answer: &Result<Answer, Refusal>,
        events: &[Event],
    ) -> Option<DeedRecord> {
        let Self { wall_ms, deed, recorded_if_changed, owner, mut parties } = self;
        let mut deed = deed?;
        let needs_change = match answer {
            Ok(Answer::Elected { term, .. }) => {
                deed.term = Some(*term);
                true
            }
            Ok(
                Answer::Done
                | Answer::Standing { .. }
                | Answer::Session { .. }
                | Answer::Ending { .. }
                | Answer::Forced { .. },
            ) => recorded_if_changed,
            Ok(Answer::Lost | Answer::Overtaken) | Err(_) => return None,
        };
        if needs_change && events.is_empty() {
            return None;
        }
        // A ttl that was just changed, or a session that was just opened, is in the state after it.
        if let Some(party) = owner.and_then(|id| owner_of(state, id)) {
            parties = vec![party];
        }
        // Closing what was never open is no mistake, and nothing happened.
        if owner.is_some() && parties.is_empty() {
            return None;
        }
        Some(DeedRecord { revision, wall_ms, deed, parties, events: events.to_vec() })
    }
}

fn owner_of(state: &State, id: SessionId) -> Option<Party> {
    state.find_session(id).and_then(|session| party(state, session))
}

fn party(state: &State, session: SessionNo) -> Option<Party> {
    let (node, ttl_ms) = (state.node(session)?.clone(), state.ttl_ms(session)?);
    Some(Party { session, node, ttl_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, IfLost, Opening};
    use crate::name::Metadata;
    use crate::outcome::Cause;
    use crate::policy::Settings;

    const SECRET: u128 = 0x5ec2_e75e_c2e7;

    fn secret(number: u128) -> SessionId {
        SessionId::new(SECRET + number).unwrap()
    }

    fn group() -> Group {
        Group::new("g").unwrap()
    }

    fn stand(number: u128, node: &str) -> Command {
        let opening =
            Opening { node: Node::new(node).unwrap(), ttl_ms: Some(5_000), passing: false };
        Command::Campaign {
            group: group(),
            session: secret(number),
            opening: Some(opening),
            if_lost: IfLost::Stand,
            priority: 0,
            metadata: Metadata::NONE,
        }
    }

    fn tell(state: &mut State, command: Command) -> Option<DeedRecord> {
        let entry = Entry { wall_ms: 7, ..Entry::bare(command) };
        let draft = Draft::of(state, &entry);
        let applied = state.apply(entry);
        draft.complete(state, applied.revision, &applied.answer, &applied.events)
    }

    #[test]
    fn who_stood_and_who_fell_silent_is_told_by_number_and_name_and_never_by_secret() {
        let mut state = State::new(Settings::default());
        let first = tell(&mut state, stand(1, "a")).unwrap();
        let second = tell(&mut state, stand(2, "b")).unwrap();
        let stands = Deed { verb: "campaign", group: Some(group()), ..Deed::default() };
        assert_eq!(first.deed, Deed { term: Term::new(1), ..stands.clone() });
        assert_eq!(first.events.len(), 1);
        assert_eq!(second.deed, stands);
        let a = &first.parties[0];
        assert_eq!((a.node.as_str(), a.ttl_ms, first.wall_ms), ("a", 5_000, 7));

        let expired = tell(&mut state, Command::Expire { sessions: vec![a.session] }).unwrap();
        assert_eq!((expired.deed.verb, &expired.parties), ("expire", &first.parties));
        assert_eq!(expired.events[0].cause, Cause::Expired);
        let all = format!("{first:?}{second:?}{expired:?}");
        for number in [1, 2] {
            let (hex, decimal) = (format!("{:x}", SECRET + number), format!("{}", SECRET + number));
            assert!(!all.contains(&hex) && !all.contains(&decimal), "{all}");
        }
    }

    #[test]
    fn what_changed_nothing_is_not_told() {
        let mut state = State::new(Settings::default());
        assert!(
            tell(&mut state, Command::Close { session: secret(1) }).is_none(),
            "no such session"
        );
        let term = Term::new(3).unwrap();
        let resign = Command::Resign { group: group(), session: secret(1), term };
        assert!(tell(&mut state, resign).is_none(), "a refusal");
        // The id of a session that was closed is not used again.
        assert!(tell(&mut state, stand(1, "a")).is_none(), "a refusal");
        tell(&mut state, stand(2, "a")).unwrap();
        assert!(tell(&mut state, stand(2, "a")).is_none(), "it leads already");
        let late = Command::Elapsed { group: group(), kind: WaitKind::Ending, since: Revision(1) };
        assert!(tell(&mut state, late).is_none(), "a wait that is not waited for");
    }

    #[test]
    fn a_finding_and_a_relief_are_told_once() {
        let mut state = State::new(Settings::default());
        tell(&mut state, stand(1, "a")).unwrap();
        tell(&mut state, stand(2, "b")).unwrap();
        let reason = Reason::new("a is slow").unwrap();
        let finding = Finding::NearMiss;
        let report = Command::Report { group: group(), finding, reason: reason.clone() };
        assert_eq!(tell(&mut state, report.clone()).unwrap().events[0].cause, Cause::NearMiss);
        assert!(tell(&mut state, report).is_none(), "it is known");
        let (term, to) = (Term::new(1).unwrap(), Node::new("b").unwrap());
        let relieve = Command::Relieve { group: group(), term, to, reason };
        assert_eq!(tell(&mut state, relieve.clone()).unwrap().events[0].cause, Cause::Failing);
        assert!(tell(&mut state, relieve).is_none(), "b is asked already");
    }
}
