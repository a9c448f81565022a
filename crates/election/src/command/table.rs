//! What a command is, apart from what it asks for: one table, one row per command.
//!
//! Stores, the simulator and recorders ask the same questions of every command: whose is it, which
//! group is it about, may it promote somebody, does a full disk still take it? Each question is a
//! column here and a method of [`Command`], so a new command is asked all of them in one place, by the
//! compiler, and no two stores can answer differently.
//!
//! The road not taken: one `match` per question, beside whoever asks. There were seventeen of them,
//! and those for a full disk and for silent standbys had come to differ between two stores.
//!
//! Left to others: what a command does (`state`), and its bytes and name (the list below the enum).

use super::{Command, Finding, WaitKind};
use crate::access::Right;
use crate::deed::Deed;
use crate::door::Step;
use crate::name::{Digests, Group, Node, Reason, Resource, SessionId, SessionNo};
use crate::policy::{Policy, Priority};
use crate::state::State;
use crate::term::Term;

/// What a command may free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frees {
    /// Everybody keeps what they have, unless a rule of the group says otherwise.
    Nothing,
    /// An office, or a place in the line: a standby may follow.
    Office,
    /// A session, and with it everything it holds.
    Session,
}

/// Where a command may promote a standby. Whoever proposes it says who is silent there, because
/// silent standbys are passed over (semantics 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotes {
    Nobody,
    /// In the group it names.
    InItsGroup,
    /// In every group that its sessions lead or stand in.
    WhereItsSessionsAre,
    /// In any group that stayed vacant.
    WhereOfficesAreVacant,
}

/// What a command may add to a group for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adds {
    /// Nothing that was not there.
    Nothing,
    Candidate,
    /// The fence of a resource.
    Fence,
}

/// How a command may make the state grow, which decides what a store over its budget still takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grows {
    /// It ends something, or confirms what is decided: always taken.
    Nothing,
    /// By a line of a history, a mark or a request id: it may use the reserve.
    Little,
    /// By whatever its caller sends.
    Freely,
}

/// What a command answers if a request with the same id took effect before (semantics 19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// `Answer::Done`.
    Done,
    /// It runs again: it is idempotent and answers by the current state.
    RunAgain,
    /// `elected`, `standing` or `lost`, by the current state of the candidacy that this request began.
    Candidacy,
    /// How much time the tenure that it ended has left.
    Ending,
    /// `Answer::Overtaken`.
    Overtaken,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    /// What its sender must be allowed.
    right: Right,
    /// Whether it only gives up what its own session holds.
    gives_up: bool,
    session: Option<SessionId>,
    sessions: &'a [SessionNo],
    group: Option<&'a Group>,
    term: Option<Term>,
    successor: Option<&'a Node>,
    resource: Option<&'a Resource>,
    priority: Priority,
    reason: Option<&'a Reason>,
    immediate: bool,
    policy: Option<&'a Policy>,
    finding: Option<Finding>,
    wait: Option<WaitKind>,
    frees: Frees,
    promotes: Promotes,
    adds: Adds,
    grows: Grows,
    repeats: Repeats,
    ends_others: bool,
    recorded_if_changed: bool,
    passes_full_disk: bool,
    waits_after_restore: bool,
    is_for_drivers: bool,
    since_level: u32,
}

/// A row that says "no" in every column but the right that it takes.
const fn row(right: Right) -> Row<'static> {
    Row {
        right,
        gives_up: false,
        session: None,
        sessions: &[],
        group: None,
        term: None,
        successor: None,
        resource: None,
        priority: 0,
        reason: None,
        immediate: false,
        policy: None,
        finding: None,
        wait: None,
        frees: Frees::Nothing,
        promotes: Promotes::Nobody,
        adds: Adds::Nothing,
        grows: Grows::Little,
        repeats: Repeats::Done,
        ends_others: false,
        recorded_if_changed: false,
        passes_full_disk: false,
        waits_after_restore: false,
        is_for_drivers: false,
        since_level: 1,
    }
}

/// The row of what a session asks for itself.
const fn by_session(session: SessionId) -> Row<'static> {
    Row { session: Some(session), ..row(Right::Stand) }
}

/// The row of what time brings: it only frees or fills, so a full disk takes it. No client may ask for it.
const fn by_driver() -> Row<'static> {
    Row {
        is_for_drivers: true,
        passes_full_disk: true,
        grows: Grows::Nothing,
        repeats: Repeats::Overtaken,
        ..row(Right::Replicate)
    }
}

impl Command {
    /// The table.
    const fn row(&self) -> Row<'_> {
        use Promotes::{InItsGroup, WhereItsSessionsAre, WhereOfficesAreVacant};
        match self {
            Self::Open { session, .. } => {
                Row { grows: Grows::Freely, repeats: Repeats::RunAgain, ..by_session(*session) }
            }
            Self::ChangeTtl { session, .. } => by_session(*session),
            Self::Close { session } => Row {
                grows: Grows::Nothing,
                gives_up: true,
                frees: Frees::Session,
                promotes: WhereItsSessionsAre,
                passes_full_disk: true,
                ..by_session(*session)
            },
            Self::Campaign { group, session, priority, .. } => Row {
                group: Some(group),
                priority: *priority,
                promotes: InItsGroup,
                adds: Adds::Candidate,
                grows: Grows::Freely,
                repeats: Repeats::Candidacy,
                waits_after_restore: true,
                ..by_session(*session)
            },
            Self::Withdraw { group, session } => Row {
                group: Some(group),
                gives_up: true,
                frees: Frees::Office,
                promotes: InItsGroup,
                passes_full_disk: true,
                ..by_session(*session)
            },
            // It writes little and ends a vacancy: refused, the office would go from one standby to
            // the next for as long as the disk is full.
            Self::Accept { group, session, term } => Row {
                group: Some(group),
                term: Some(*term),
                repeats: Repeats::RunAgain,
                passes_full_disk: true,
                ..by_session(*session)
            },
            Self::Resign { group, session, term } => Row {
                group: Some(group),
                term: Some(*term),
                gives_up: true,
                frees: Frees::Office,
                promotes: InItsGroup,
                passes_full_disk: true,
                ..by_session(*session)
            },
            Self::Offer { group, session, term, to } => Row {
                group: Some(group),
                term: Some(*term),
                successor: Some(to),
                promotes: InItsGroup,
                ..by_session(*session)
            },
            Self::Warm { group, session, term } => {
                Row { group: Some(group), term: Some(*term), ..by_session(*session) }
            }
            Self::Transfer { group, session, term, to } => Row {
                group: Some(group),
                term: Some(*term),
                successor: Some(to),
                frees: Frees::Office,
                promotes: InItsGroup,
                ..by_session(*session)
            },
            Self::StepDown { group, reason, to, immediate } => Row {
                group: Some(group),
                successor: to.as_ref(),
                reason: Some(reason),
                immediate: *immediate,
                repeats: Repeats::Ending,
                frees: Frees::Office,
                promotes: InItsGroup,
                ends_others: true,
                ..row(Right::Operate)
            },
            Self::PutPolicy { group, policy } => Row {
                group: Some(group),
                policy: match policy {
                    Some(policy) => Some(&**policy),
                    None => None,
                },
                promotes: InItsGroup,
                grows: Grows::Freely,
                ends_others: true,
                since_level: match policy {
                    Some(policy) if policy.four_eyes => 3,
                    Some(_) | None => 1,
                },
                ..row(Right::Operate)
            },
            Self::Delete { group } => Row {
                group: Some(group),
                grows: Grows::Nothing,
                promotes: InItsGroup,
                repeats: Repeats::Ending,
                ends_others: true,
                ..row(Right::Operate)
            },
            Self::Move { group, step } => {
                let known = Row {
                    group: Some(group),
                    promotes: InItsGroup,
                    ends_others: true,
                    ..row(Right::Administer)
                };
                match step {
                    Step::Expect { .. } | Step::Stop => known,
                    // The office of a group that leaves looks vacant after a restore, and may not be.
                    Step::Depart { .. } => Row { waits_after_restore: true, ..known },
                    Step::Arrive { heir, .. } => {
                        Row { successor: heir.as_ref(), waits_after_restore: true, ..known }
                    }
                    Step::Resume { .. } => {
                        Row { frees: Frees::Office, waits_after_restore: true, ..known }
                    }
                }
            }
            Self::Admit { group, resource, .. } => Row {
                group: Some(group),
                resource: Some(resource),
                adds: Adds::Fence,
                grows: Grows::Freely,
                repeats: Repeats::RunAgain,
                ..row(Right::Stand)
            },
            Self::ForgetFence { group, resource } => Row {
                group: Some(group),
                resource: Some(resource),
                grows: Grows::Nothing,
                ..row(Right::Operate)
            },
            Self::Report { group, finding, reason } => Row {
                group: Some(group),
                finding: Some(*finding),
                reason: Some(reason),
                recorded_if_changed: true,
                ..row(Right::Operate)
            },
            Self::Relieve { group, term, to, reason } => Row {
                group: Some(group),
                term: Some(*term),
                successor: Some(to),
                reason: Some(reason),
                promotes: InItsGroup,
                recorded_if_changed: true,
                ..row(Right::Operate)
            },
            // The longest ttl measures how long a restored store waits.
            Self::PutSettings { .. } => Row {
                promotes: WhereOfficesAreVacant,
                waits_after_restore: true,
                ..row(Right::Administer)
            },
            // A principal that may no longer stand leaves its office and its lines.
            Self::PutBindings { .. } => Row {
                promotes: WhereOfficesAreVacant,
                ends_others: true,
                since_level: 2,
                ..row(Right::Administer)
            },
            Self::CreateToken { .. } | Self::RevokeToken { .. } => {
                Row { since_level: 2, ..row(Right::Administer) }
            }
            Self::As { command, .. } => {
                let row = command.get().row();
                let since_level = if row.since_level > 2 { row.since_level } else { 2 };
                Row { since_level, ..row }
            }
            Self::Expire { sessions } => Row {
                sessions: sessions.as_slice(),
                frees: Frees::Session,
                promotes: WhereItsSessionsAre,
                ..by_driver()
            },
            Self::Elapsed { group, kind: WaitKind::Approval, .. } => Row {
                group: Some(group),
                wait: Some(WaitKind::Approval),
                recorded_if_changed: true,
                since_level: 3,
                ..by_driver()
            },
            Self::Elapsed { group, kind, .. } => Row {
                group: Some(group),
                wait: Some(*kind),
                recorded_if_changed: true,
                frees: Frees::Office,
                promotes: InItsGroup,
                ..by_driver()
            },
            // What it fills stayed vacant.
            Self::Refill { session } => Row {
                sessions: std::slice::from_ref(session),
                recorded_if_changed: true,
                frees: Frees::Office,
                promotes: WhereItsSessionsAre,
                ..by_driver()
            },
        }
    }

    /// The one right that its sender needs (S11).
    #[must_use]
    pub const fn right(&self) -> Right {
        self.row().right
    }

    /// Whether it only gives up what its own session holds: whoever holds something may give it up, whatever became
    /// of its rights and its credential.
    #[must_use]
    pub const fn gives_up(&self) -> bool {
        self.row().gives_up
    }

    /// The session that asks for it, whose record keeps its request id. What time and administrators
    /// ask for has none.
    #[must_use]
    pub const fn session(&self) -> Option<SessionId> {
        self.row().session
    }

    /// The command as a store writes it down: without the secret of the session that asks for it.
    #[must_use]
    pub fn with_digest(mut self, digests: &mut Digests) -> Self {
        if let Some(session) = self.session_mut() {
            *session = digests.of(*session);
        }
        self
    }

    const fn session_mut(&mut self) -> Option<&mut SessionId> {
        match self {
            Self::Open { session, .. }
            | Self::ChangeTtl { session, .. }
            | Self::Close { session }
            | Self::Campaign { session, .. }
            | Self::Withdraw { session, .. }
            | Self::Accept { session, .. }
            | Self::Resign { session, .. }
            | Self::Offer { session, .. }
            | Self::Warm { session, .. }
            | Self::Transfer { session, .. } => Some(session),
            Self::As { command, .. } => command.command.session_mut(),
            Self::Expire { .. }
            | Self::StepDown { .. }
            | Self::PutPolicy { .. }
            | Self::Delete { .. }
            | Self::Move { .. }
            | Self::Admit { .. }
            | Self::ForgetFence { .. }
            | Self::Report { .. }
            | Self::Relieve { .. }
            | Self::PutSettings { .. }
            | Self::PutBindings { .. }
            | Self::CreateToken { .. }
            | Self::RevokeToken { .. }
            | Self::Elapsed { .. }
            | Self::Refill { .. } => None,
        }
    }

    /// The sessions that the store's driver names.
    #[must_use]
    pub const fn sessions(&self) -> &[SessionNo] {
        self.row().sessions
    }

    /// The group it names, if it names one.
    #[must_use]
    pub const fn group(&self) -> Option<&Group> {
        self.row().group
    }

    /// The term that must be in office for it to take effect. What is admitted at a fence may be of
    /// any age and is none.
    #[must_use]
    pub const fn term(&self) -> Option<Term> {
        self.row().term
    }

    /// The standby that it wants to follow.
    #[must_use]
    pub const fn successor(&self) -> Option<&Node> {
        self.row().successor
    }

    /// The resource whose fence it is about.
    #[must_use]
    pub const fn resource(&self) -> Option<&Resource> {
        self.row().resource
    }

    /// What it may free.
    #[must_use]
    pub const fn frees(&self) -> Frees {
        self.row().frees
    }

    /// Where it may promote a standby.
    #[must_use]
    pub const fn promotes(&self) -> Promotes {
        self.row().promotes
    }

    /// Whether it may promote a standby anywhere.
    #[must_use]
    pub fn may_promote(&self) -> bool {
        self.promotes() != Promotes::Nobody
    }

    /// The groups of `state` in which it may promote a standby. A group may be named more than once.
    #[must_use]
    pub fn promotes_in<'a>(&'a self, state: &'a State) -> Box<dyn Iterator<Item = &'a Group> + 'a> {
        match self.promotes() {
            Promotes::Nobody => Box::new(std::iter::empty()),
            Promotes::InItsGroup => Box::new(self.group().into_iter()),
            Promotes::WhereItsSessionsAre => {
                let own = self.session().and_then(|secret| state.find_session(secret));
                let sessions = own.into_iter().chain(self.sessions().iter().copied());
                Box::new(sessions.flat_map(|no| state.led_by(no).chain(state.stood_by(no))))
            }
            Promotes::WhereOfficesAreVacant => Box::new(state.stranded()),
        }
    }

    /// What it may add to a group for good.
    #[must_use]
    pub const fn adds(&self) -> Adds {
        self.row().adds
    }

    /// How it may make the state grow.
    #[must_use]
    pub const fn grows(&self) -> Grows {
        self.row().grows
    }

    /// What it answers if a request with the same id took effect before.
    #[must_use]
    pub const fn repeats(&self) -> Repeats {
        self.row().repeats
    }

    /// What recorders keep of it, without the session's secret. Commands about fences are too frequent to record.
    #[must_use]
    pub fn deed(&self) -> Option<Deed> {
        let row = self.row();
        row.resource.is_none().then(|| Deed {
            verb: self.name(),
            group: row.group.cloned(),
            term: row.term,
            to: row.successor.cloned(),
            priority: row.priority,
            reason: row.reason.filter(|reason| !reason.is_empty()).cloned(),
            immediate: row.immediate,
            policy: row.policy.cloned().map(Box::new),
            finding: row.finding,
            wait: row.wait,
        })
    }

    /// Whether recorders keep it only if watchers were told a change: a repeated finding, or a wait that ended
    /// without effect, is not worth a line.
    #[must_use]
    pub const fn recorded_if_changed(&self) -> bool {
        self.row().recorded_if_changed
    }

    /// Whether it may end another's tenure, so that its answer promises that the other was told.
    #[must_use]
    pub const fn ends_others(&self) -> bool {
        self.row().ends_others
    }

    /// Whether a store without room takes it all the same (semantics 29): it ends something, or
    /// confirms what is decided.
    #[must_use]
    pub const fn passes_full_disk(&self) -> bool {
        self.row().passes_full_disk
    }

    /// Whether a restored store refuses it for as long as leases of its earlier life may still run.
    #[must_use]
    pub const fn waits_after_restore(&self) -> bool {
        self.row().waits_after_restore
    }

    /// Whether only the store's driver may propose it: it says what time has brought.
    #[must_use]
    pub const fn is_for_drivers(&self) -> bool {
        self.row().is_for_drivers
    }

    /// The first level of the format that has it. A store writes nothing that is above the level of
    /// everybody who must read it.
    #[must_use]
    pub const fn since_level(&self) -> u32 {
        self.row().since_level
    }
}
