//! What an entry did, told without any secret: the lines of a flight recorder.
//!
//! A history in the state is short, and a watch tells only who leads. Whoever asks later *why* also wants
//! to know who opened, stood, resigned, was stepped down or fell silent. That is in the entry and in the
//! state it met, and gone once both are: so whoever drives the state machine takes a [`Draft`] before
//! it applies an entry, and completes it to a [`Record`] after.
//!
//! Sessions are told by their public number ([`SessionNo`]); no [`crate::SessionId`] is in here. What changed
//! nothing is not told: refusals, repeats of what holds already, and waits that were overtaken.
//!
//! Road not taken: writing down the entries themselves. They hold every session's secret, and say
//! nothing of what came of them.

use crate::command::{Command, Entry, Finding, WaitKind};
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
    /// Its node.
    pub node: Node,
    /// How long it lives unheard.
    pub ttl_ms: u64,
}

/// What became of a campaign that was not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stood {
    /// It leads, under this term.
    Leads(Term),
    /// It stands in line.
    InLine,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A session was opened.
    Open,
    /// A session has another ttl from here on.
    ChangeTtl,
    /// A session was closed by its owner.
    Close,
    /// Sessions were not heard for their ttl.
    Expire,
    /// A session stands, or leads.
    Campaign {
        /// Where.
        group: Group,
        /// Its claim in the line.
        priority: Priority,
        /// What came of it.
        stood: Stood,
    },
    /// A session left the line, or the office.
    Withdraw {
        /// Where.
        group: Group,
    },
    /// A promoted session said that it will act.
    Accept {
        /// Where.
        group: Group,
        /// Under which term.
        term: Term,
    },
    /// A leader gave its office up, or confirmed that it stopped.
    Resign {
        /// Where.
        group: Group,
        /// Which term.
        term: Term,
    },
    /// A leader began to hand over.
    Offer {
        /// Where.
        group: Group,
        /// Its term.
        term: Term,
        /// To whom.
        to: Node,
    },
    /// The standby of an offer is warm.
    Warm {
        /// Where.
        group: Group,
        /// The term of the leader that offered.
        term: Term,
    },
    /// A leader handed over.
    Transfer {
        /// Where.
        group: Group,
        /// Its term.
        term: Term,
        /// To whom.
        to: Node,
    },
    /// An administrator ended a tenure.
    StepDown {
        /// Where.
        group: Group,
        /// Why.
        reason: Reason,
        /// Who shall follow.
        to: Option<Node>,
        /// Whether the holder was not waited for.
        immediate: bool,
    },
    /// A group has another policy; none is the default.
    PutPolicy {
        /// Which.
        group: Group,
        /// What holds from here on.
        policy: Option<Box<Policy>>,
    },
    /// A group was deleted.
    Delete {
        /// Which.
        group: Group,
    },
    /// A step of a group's move between two stores.
    Move {
        /// Which.
        group: Group,
    },
    /// Something was found out about a group.
    Report {
        /// Which.
        group: Group,
        /// What.
        finding: Finding,
        /// Who did what.
        reason: Reason,
    },
    /// A leader was asked to hand over, because it is about to fail.
    Relieve {
        /// Where.
        group: Group,
        /// Its term.
        term: Term,
        /// To whom.
        to: Node,
        /// Why.
        reason: Reason,
    },
    /// What holds for the whole store changed.
    PutSettings,
    /// A wait was over.
    Elapsed {
        /// Where.
        group: Group,
        /// Which.
        kind: WaitKind,
    },
    /// A session that was silent is heard again, and offices were filled.
    Refill,
}

impl Deed {
    /// The word for files and people.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::ChangeTtl => "change_ttl",
            Self::Close => "close",
            Self::Expire => "expire",
            Self::Campaign { .. } => "campaign",
            Self::Withdraw { .. } => "withdraw",
            Self::Accept { .. } => "accept",
            Self::Resign { .. } => "resign",
            Self::Offer { .. } => "offer",
            Self::Warm { .. } => "warm",
            Self::Transfer { .. } => "transfer",
            Self::StepDown { .. } => "step_down",
            Self::PutPolicy { .. } => "put_policy",
            Self::Delete { .. } => "delete",
            Self::Move { .. } => "move",
            Self::Report { .. } => "report",
            Self::Relieve { .. } => "relieve",
            Self::PutSettings => "put_settings",
            Self::Elapsed { .. } => "elapsed",
            Self::Refill => "refill",
        }
    }

    /// The group it is about, if it is about one.
    #[must_use]
    pub const fn group(&self) -> Option<&Group> {
        match self {
            Self::Campaign { group, .. }
            | Self::Withdraw { group }
            | Self::Accept { group, .. }
            | Self::Resign { group, .. }
            | Self::Offer { group, .. }
            | Self::Warm { group, .. }
            | Self::Transfer { group, .. }
            | Self::StepDown { group, .. }
            | Self::PutPolicy { group, .. }
            | Self::Delete { group }
            | Self::Move { group }
            | Self::Report { group, .. }
            | Self::Relieve { group, .. }
            | Self::Elapsed { group, .. } => Some(group),
            Self::Open
            | Self::ChangeTtl
            | Self::Close
            | Self::Expire
            | Self::PutSettings
            | Self::Refill => None,
        }
    }
}

/// One applied entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
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
    /// Whose entry it is: its session may be opened only by it.
    owner: Option<SessionId>,
    parties: Vec<Party>,
}

impl Draft {
    /// Notes what an entry is about to do to this state.
    #[must_use]
    pub fn of(state: &State, entry: &Entry) -> Self {
        let owner = entry.command.session();
        let parties = match &entry.command {
            Command::Expire { sessions } => {
                sessions.iter().filter_map(|session| party(state, *session)).collect()
            }
            Command::Refill { session } => party(state, *session).into_iter().collect(),
            _ => owner.and_then(|id| owner_of(state, id)).into_iter().collect(),
        };
        Self { wall_ms: entry.wall_ms, deed: deed_of(&entry.command), owner, parties }
    }

    /// Completes the note with what came of it; none if nothing did.
    #[must_use]
    pub fn complete(
        self,
        state: &State,
        revision: Revision,
        answer: &Result<Answer, Refusal>,
        events: &[Event],
    ) -> Option<Record> {
        let Self { wall_ms, deed, owner, mut parties } = self;
        let mut deed = deed?;
        match answer {
            Ok(Answer::Elected { term, .. }) => stood(&mut deed, Stood::Leads(*term)),
            Ok(Answer::Standing { .. }) => stood(&mut deed, Stood::InLine),
            Ok(
                Answer::Done
                | Answer::Session { .. }
                | Answer::Ending { .. }
                | Answer::Forced { .. },
            ) => {}
            Ok(Answer::Lost | Answer::Overtaken) | Err(_) => return None,
        }
        // A wait that was over, a leader that asked once more, what was found out before: told only by what came of
        // them.
        let needs_change = match &deed {
            Deed::Elapsed { .. } | Deed::Refill | Deed::Report { .. } | Deed::Relieve { .. } => {
                true
            }
            Deed::Campaign { stood, .. } => matches!(stood, Stood::Leads(_)),
            _ => false,
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
        Some(Record { revision, wall_ms, deed, parties, events: events.to_vec() })
    }
}

fn owner_of(state: &State, id: SessionId) -> Option<Party> {
    state.find_session(id).and_then(|session| party(state, session))
}

fn party(state: &State, session: SessionNo) -> Option<Party> {
    let (node, ttl_ms) = (state.node(session)?.clone(), state.ttl_ms(session)?);
    Some(Party { session, node, ttl_ms })
}

const fn stood(deed: &mut Deed, came: Stood) {
    if let Deed::Campaign { stood, .. } = deed {
        *stood = came;
    }
}

/// What a command is about; none for those that fences are asked all the time.
fn deed_of(command: &Command) -> Option<Deed> {
    Some(match command.clone() {
        Command::Open { .. } => Deed::Open,
        Command::ChangeTtl { .. } => Deed::ChangeTtl,
        Command::Close { .. } => Deed::Close,
        Command::Expire { .. } => Deed::Expire,
        Command::Campaign { group, priority, .. } => {
            Deed::Campaign { group, priority, stood: Stood::InLine }
        }
        Command::Withdraw { group, .. } => Deed::Withdraw { group },
        Command::Accept { group, term, .. } => Deed::Accept { group, term },
        Command::Resign { group, term, .. } => Deed::Resign { group, term },
        Command::Offer { group, term, to, .. } => Deed::Offer { group, term, to },
        Command::Warm { group, term, .. } => Deed::Warm { group, term },
        Command::Transfer { group, term, to, .. } => Deed::Transfer { group, term, to },
        Command::StepDown { group, reason, to, immediate } => {
            Deed::StepDown { group, reason, to, immediate }
        }
        Command::PutPolicy { group, policy } => Deed::PutPolicy { group, policy },
        Command::Delete { group } => Deed::Delete { group },
        Command::Move { group, .. } => Deed::Move { group },
        Command::Report { group, finding, reason } => Deed::Report { group, finding, reason },
        Command::Relieve { group, term, to, reason } => Deed::Relieve { group, term, to, reason },
        Command::PutSettings { .. } => Deed::PutSettings,
        Command::Elapsed { group, kind, .. } => Deed::Elapsed { group, kind },
        Command::Refill { .. } => Deed::Refill,
        Command::Admit { .. } | Command::ForgetFence { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{IfLost, Opening};
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

    fn tell(state: &mut State, command: Command) -> Option<Record> {
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
        let leads = Stood::Leads(Term::new(1).unwrap());
        assert_eq!(first.deed, Deed::Campaign { group: group(), priority: 0, stood: leads });
        assert_eq!(first.events.len(), 1);
        assert!(matches!(second.deed, Deed::Campaign { stood: Stood::InLine, .. }));
        let a = &first.parties[0];
        assert_eq!((a.node.as_str(), a.ttl_ms, first.wall_ms), ("a", 5_000, 7));

        let expired = tell(&mut state, Command::Expire { sessions: vec![a.session] }).unwrap();
        assert_eq!((&expired.deed, &expired.parties), (&Deed::Expire, &first.parties));
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
