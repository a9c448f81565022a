//! The naive model: what the rules say, written down without any thought of speed.
//!
//! One flat list of candidacies, whoever stands or holds; no index, no sorted line, nothing cached.
//! Whatever is asked is computed from scratch by scanning. It is written from the rules of the
//! hard corners, and what it does not know (a fast state) it cannot get wrong.

use regent_election::access::{Binding, TokenId};
use regent_election::{
    Cause, Change, Command, Door, Group, Metadata, Node, Policy, Priority, Reason, RequestId,
    Revision, SessionId, SessionNo, Settings, Term, WaitKind,
};

use super::fences::Deed;

/// Everything there is to know.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) revision: Revision,
    pub(crate) settings: Settings,
    pub(crate) floor: Term,
    pub(crate) sessions: Vec<Participant>,
    pub(crate) ended: Vec<SessionId>,
    pub(crate) groups: Vec<Election>,
    pub(crate) candidacies: Vec<Candidacy>,
    pub(crate) bindings: (u64, Vec<Binding>),
    /// Tokens, and whether each was revoked.
    pub(crate) tokens: Vec<(TokenId, bool)>,
    pub(crate) window: Window,
    pub(crate) serials: u64,
    pub(crate) turn: Turn,
}

/// What belongs to the entry under way only.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Turn {
    pub(crate) silent: Vec<SessionNo>,
    pub(crate) gone: Vec<SessionNo>,
    pub(crate) wall_ms: u64,
    pub(crate) told: Vec<Told>,
    /// A standby that says again that it stands, even if nothing changes by it.
    pub(crate) stood: Option<Group>,
}

/// An event, without its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) group: Group,
    pub(crate) term: Term,
    pub(crate) leader: Option<Node>,
    pub(crate) metadata: Metadata,
    pub(crate) cause: Cause,
}

/// An open session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Participant {
    pub(crate) no: SessionNo,
    pub(crate) id: SessionId,
    pub(crate) node: Node,
    pub(crate) ttl_ms: u64,
    pub(crate) ttl_ms_longest: u64,
    pub(crate) passing: bool,
    pub(crate) window: Window,
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Election {
    pub(crate) name: Group,
    pub(crate) term: Term,
    pub(crate) policy: Option<Policy>,
    pub(crate) doomed: bool,
    pub(crate) door: Door,
    pub(crate) delayed: Option<Revision>,
    pub(crate) heir: Option<SessionNo>,
    pub(crate) history: Vec<Change>,
    pub(crate) deeds: Vec<Deed>,
}

/// Somebody stands in a group, or holds its office.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidacy {
    /// Which one: a session that leaves and comes back has another.
    pub(crate) serial: u64,
    pub(crate) group: Group,
    pub(crate) session: SessionNo,
    pub(crate) claimed: Priority,
    pub(crate) arrived: Revision,
    pub(crate) metadata: Metadata,
    pub(crate) holds: Option<Holding>,
}

/// A candidacy that came to office.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Holding {
    pub(crate) term: Term,
    pub(crate) since: Revision,
    pub(crate) accepted: bool,
    pub(crate) preemption_window: PreemptionWindow,
    pub(crate) offered: Option<SessionNo>,
    pub(crate) warm: bool,
    pub(crate) ending: Option<Ending>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PreemptionWindow {
    Never,
    Waiting(Revision),
    Open,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ending {
    pub(crate) since: Revision,
    pub(crate) cause: Cause,
    pub(crate) reason: Option<Reason>,
}

/// Requests that took effect, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    pub(crate) size: usize,
    pub(crate) known: Vec<Memory>,
    pub(crate) forgotten: Option<Revision>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Memory {
    pub(crate) id: RequestId,
    pub(crate) command: Command,
    pub(crate) applied: Revision,
    /// The candidacy that a campaign began, renewed or confirmed.
    pub(crate) serial: Option<u64>,
}

impl Window {
    pub(crate) fn new(size: usize) -> Self {
        Self { size, known: Vec::new(), forgotten: None }
    }

    pub(crate) fn remember(&mut self, memory: Memory) {
        self.known.push(memory);
        if self.known.len() > self.size {
            self.forgotten = Some(self.known.remove(0).applied);
        }
    }
}

impl Model {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            revision: Revision(0),
            settings,
            floor: Term::NONE,
            sessions: Vec::new(),
            ended: Vec::new(),
            groups: Vec::new(),
            candidacies: Vec::new(),
            window: Window::new(regent_election::limits::REQUESTS_WITHOUT_SESSION),
            bindings: (0, Vec::new()),
            tokens: Vec::new(),
            serials: 0,
            turn: Turn::default(),
        }
    }

    pub(crate) fn open_session(&self, id: SessionId) -> Option<&Participant> {
        self.sessions.iter().find(|session| session.id == id)
    }

    pub(crate) fn session(&self, no: SessionNo) -> &Participant {
        self.sessions.iter().find(|session| session.no == no).expect("candidacies have sessions")
    }

    pub(crate) fn group(&self, name: &Group) -> Option<&Election> {
        self.groups.iter().find(|group| group.name == *name)
    }

    pub(crate) fn group_mut(&mut self, name: &Group) -> &mut Election {
        self.groups.iter_mut().find(|group| group.name == *name).expect("a known group")
    }

    /// All names, in order.
    pub(crate) fn names(&self) -> Vec<Group> {
        let mut names: Vec<Group> = self.groups.iter().map(|group| group.name.clone()).collect();
        names.sort();
        names
    }

    pub(crate) fn policy(&self, name: &Group) -> &Policy {
        let own = self.group(name).and_then(|group| group.policy.as_ref());
        own.unwrap_or(&self.settings.default_policy)
    }

    /// Who is in office, ending or not.
    pub(crate) fn holder(&self, name: &Group) -> Option<&Candidacy> {
        self.candidacies.iter().find(|one| one.group == *name && one.holds.is_some())
    }

    pub(crate) fn holding(&self, name: &Group) -> Option<&Holding> {
        self.holder(name).and_then(|one| one.holds.as_ref())
    }

    pub(crate) fn holding_mut(&mut self, name: &Group) -> Option<&mut Holding> {
        let held = |one: &&mut Candidacy| one.group == *name && one.holds.is_some();
        self.candidacies.iter_mut().find(held).and_then(|one| one.holds.as_mut())
    }

    pub(crate) fn holds(&self, name: &Group, session: SessionNo) -> bool {
        self.holder(name).is_some_and(|one| one.session == session)
    }

    pub(crate) fn priority(&self, one: &Candidacy) -> Priority {
        self.policy(&one.group).priority(&self.session(one.session).node, one.claimed)
    }

    /// Who waits, the next one first.
    pub(crate) fn line(&self, name: &Group) -> Vec<&Candidacy> {
        let mut line: Vec<&Candidacy> = self
            .candidacies
            .iter()
            .filter(|one| one.group == *name && one.holds.is_none())
            .collect();
        line.sort_by_key(|one| (-i32::from(self.priority(one)), one.arrived));
        line
    }

    pub(crate) fn stands(&self, name: &Group, session: SessionNo) -> Option<&Candidacy> {
        self.candidacies
            .iter()
            .find(|one| one.group == *name && one.session == session && one.holds.is_none())
    }

    /// The groups in which a session holds (or stands), in order.
    pub(crate) fn places(&self, session: SessionNo, holding: bool) -> Vec<Group> {
        let mut places: Vec<Group> = self
            .candidacies
            .iter()
            .filter(|one| one.session == session && one.holds.is_some() == holding)
            .map(|one| one.group.clone())
            .collect();
        places.sort();
        places
    }

    pub(crate) fn is_heard(&self, session: SessionNo) -> bool {
        !self.turn.silent.contains(&session) && !self.turn.gone.contains(&session)
    }

    /// Who would follow: the heir, otherwise the first in line; only those that can be heard.
    pub(crate) fn best(&self, name: &Group) -> Option<&Candidacy> {
        let heir = self.group(name).and_then(|group| group.heir);
        let heard = || self.line(name).into_iter().filter(|one| self.is_heard(one.session));
        heard().find(|one| Some(one.session) == heir).or_else(|| heard().next())
    }

    /// What is being waited for in a group.
    pub(crate) fn wait(&self, name: &Group) -> Option<(WaitKind, Revision, u64)> {
        if let Some(since) = self.group(name)?.delayed {
            return Some((WaitKind::LockDelay, since, self.policy(name).lock_delay_ms));
        }
        let holder = self.holder(name)?;
        let session = self.session(holder.session);
        let holding = holder.holds.as_ref()?;
        if let Some(ending) = &holding.ending {
            return Some((WaitKind::Ending, ending.since, session.ttl_ms_longest));
        }
        if !holding.accepted {
            return Some((WaitKind::Acceptance, holding.since, session.ttl_ms / 3));
        }
        match holding.preemption_window {
            PreemptionWindow::Waiting(since) => {
                Some((WaitKind::MinimumTenure, since, self.policy(name).minimum_tenure_ms))
            }
            PreemptionWindow::Never | PreemptionWindow::Open => None,
        }
    }
}
