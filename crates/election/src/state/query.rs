//! Reads as values: what can be asked of a state, and what it says.
//!
//! A store that answers from another thread or another machine sends the question to the state
//! instead of the state to the questioner. Across such a boundary a question is a [`Query`] and its
//! answer a [`View`]; who asks has a [`Question`], which knows the type of its answer.

use std::fmt;
use std::time::Duration;

use super::State;
use crate::access::AccessView;
use crate::name::{Digests, Group, Metadata, Resource, SessionId, SessionNo};
use crate::outcome::{Change, Event, Refusal};
use crate::store::{
    Census, FencesPage, GroupView, GroupsPage, HeartbeatView, LeaderView, OfficesView, SessionView,
    SharesView, StoreError, StoreResult,
};
use crate::term::{Cursor, Incarnation};
use crate::watch::Replay;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Who leads a group?
    Leader(Group),
    /// Who leads these groups, all at one moment?
    Leaders(Vec<Group>),
    /// What does this session hold?
    Session(SessionId),
    /// What is an acknowledged heartbeat of this session told?
    Heartbeat(SessionId),
    /// How does this session stand in one group? A session may hold 100,000 others, and a campaign
    /// asks about one.
    Candidacy {
        group: Group,
        session: SessionId,
        /// The ttl that counts if no session of this secret is open.
        ttl_ms: u64,
    },
    /// What does an operator see of a group?
    Group(Group),
    /// Which groups are there?
    Groups {
        /// Names that open with this.
        prefix: String,
        /// Names after this one.
        after: Option<Group>,
        /// At most this many.
        count: usize,
    },
    /// What happened to a group lately? A group that is not known is refused.
    History(Group),
    /// What have the resources of a group admitted?
    Fences {
        group: Group,
        /// Names that open with this.
        prefix: String,
        /// Names after this one.
        after: Option<Resource>,
        /// At most this many.
        count: usize,
    },
    /// What does a group itself remember after a place, for a watch from there?
    Replay(Group, Cursor),
    /// How many of everything?
    Census,
    /// How are these groups led, and all together?
    Offices(Vec<Group>),
    /// Who takes most of the state?
    Shares,
    /// Who may do what, and whose is this session, if one is named?
    Access(Option<SessionId>),
}

impl Query {
    /// The question as a store passes it on: without the secret of the session that it is about.
    #[must_use]
    pub fn with_digest(mut self, digests: &mut Digests) -> Self {
        match &mut self {
            Self::Session(session)
            | Self::Heartbeat(session)
            | Self::Candidacy { session, .. }
            | Self::Access(Some(session)) => *session = digests.of(*session),

            Self::Leader(_)
            | Self::Leaders(_)
            | Self::Offices(_)
            | Self::Group(_)
            | Self::Groups { .. }
            | Self::History(_)
            | Self::Fences { .. }
            | Self::Replay(..)
            | Self::Census
            | Self::Shares
            | Self::Access(None) => {}
        }
        self
    }

    /// The one group that a question is about, if it is about one.
    #[must_use]
    pub const fn group(&self) -> Option<&Group> {
        match self {
            Self::Leader(group)
            | Self::Candidacy { group, .. }
            | Self::Group(group)
            | Self::History(group)
            | Self::Fences { group, .. }
            | Self::Replay(group, _) => Some(group),
            Self::Session(_)
            | Self::Heartbeat(_)
            | Self::Leaders(_)
            | Self::Offices(_)
            | Self::Groups { .. }
            | Self::Census
            | Self::Shares
            | Self::Access(_) => None,
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// To [`Query::Leader`].
    Leader(LeaderView),
    /// To [`Query::Leaders`], in the order of the question. Whoever may not see some gets the others.
    Leaders(Vec<LeaderView>),
    /// To [`Query::Session`].
    Session(SessionView),
    /// To [`Query::Heartbeat`].
    Heartbeat(HeartbeatView),
    /// To [`Query::Candidacy`].
    Candidacy(Candidacy),
    /// To [`Query::Group`].
    Group(GroupView),
    /// To [`Query::Groups`].
    Groups(GroupsPage),
    /// To [`Query::History`].
    History(Vec<Change>),
    /// To [`Query::Fences`].
    Fences(FencesPage),
    /// To [`Query::Replay`]; none if the group does not remember enough.
    Replay(Option<Replay>),
    /// To [`Query::Census`].
    Census(Census),
    /// To [`Query::Shares`].
    Shares(SharesView),
    /// To [`Query::Offices`].
    Offices(OfficesView),
    /// To [`Query::Access`].
    Access(AccessView),
}

/// A question that knows the type of its answer.
#[derive(Debug)]
pub struct Question<V> {
    query: Query,
    typed: Typed<V>,
}

/// Takes the answer of one type out of a view.
pub type Typed<V> = fn(View) -> StoreResult<V>;

/// A question, and the only kind of view that answers it.
macro_rules! question {
    ($query:expr, $kind:ident) => {
        Question {
            query: $query,
            typed: |view| match view {
                View::$kind(view) => Ok(view),
                other => Err(StoreError::Corrupt(format!("a question was answered {other:?}"))),
            },
        }
    };
}

impl<V> Question<V> {
    /// The question as it travels, and what makes its answer of a view.
    #[must_use]
    pub fn parts(self) -> (Query, Typed<V>) {
        (self.query, self.typed)
    }
}

impl Question<LeaderView> {
    /// [`Query::Leader`].
    #[must_use]
    pub fn leader(group: Group) -> Self {
        question!(Query::Leader(group), Leader)
    }
}

impl Question<SessionView> {
    /// [`Query::Session`].
    #[must_use]
    pub fn session(session: SessionId) -> Self {
        question!(Query::Session(session), Session)
    }
}

impl Question<HeartbeatView> {
    /// [`Query::Heartbeat`].
    #[must_use]
    pub fn heartbeat(session: SessionId) -> Self {
        question!(Query::Heartbeat(session), Heartbeat)
    }
}

impl Question<Candidacy> {
    /// [`Query::Candidacy`].
    #[must_use]
    pub fn candidacy(group: Group, session: SessionId, ttl_ms: u64) -> Self {
        question!(Query::Candidacy { group, session, ttl_ms }, Candidacy)
    }
}

impl Question<GroupView> {
    /// [`Query::Group`].
    #[must_use]
    pub fn group(group: Group) -> Self {
        question!(Query::Group(group), Group)
    }
}

impl Question<GroupsPage> {
    /// [`Query::Groups`].
    #[must_use]
    pub fn groups(prefix: String, after: Option<Group>, count: usize) -> Self {
        question!(Query::Groups { prefix, after, count }, Groups)
    }
}

impl Question<Vec<Change>> {
    /// [`Query::History`].
    #[must_use]
    pub fn history(group: Group) -> Self {
        question!(Query::History(group), History)
    }
}

impl Question<FencesPage> {
    /// [`Query::Fences`].
    #[must_use]
    pub fn fences(group: Group, prefix: String, after: Option<Resource>, count: usize) -> Self {
        question!(Query::Fences { group, prefix, after, count }, Fences)
    }
}

impl Question<Option<Replay>> {
    /// [`Query::Replay`].
    #[must_use]
    pub fn replay(group: Group, cursor: Cursor) -> Self {
        question!(Query::Replay(group, cursor), Replay)
    }
}

impl Question<Census> {
    /// [`Query::Census`].
    #[must_use]
    pub fn census() -> Self {
        question!(Query::Census, Census)
    }
}

impl Question<Vec<LeaderView>> {
    /// [`Query::Leaders`].
    #[must_use]
    pub fn leaders(groups: Vec<Group>) -> Self {
        question!(Query::Leaders(groups), Leaders)
    }
}

impl Question<OfficesView> {
    /// [`Query::Offices`].
    #[must_use]
    pub fn offices(groups: Vec<Group>) -> Self {
        question!(Query::Offices(groups), Offices)
    }
}

impl Question<SharesView> {
    /// [`Query::Shares`].
    #[must_use]
    pub fn shares() -> Self {
        question!(Query::Shares, Shares)
    }
}

impl Question<AccessView> {
    /// [`Query::Access`].
    #[must_use]
    pub fn access(session: Option<SessionId>) -> Self {
        question!(Query::Access(session), Access)
    }
}

/// How a session stands in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// The office, whoever holds it.
    pub office: LeaderView,
    /// Whether it is this session that holds it.
    pub is_holder: bool,
    /// Whether it waits in line.
    pub is_standing: bool,
    /// The session's ttl; none if no session of this secret is open.
    pub ttl_ms: Option<u64>,
    /// Shortest and longest pause before a loser tries again, by the policy that holds.
    pub retry_ms: (u64, u64),
}

/// What the state cannot know and its driver adds.
#[derive(Clone, Copy)]
pub struct Lens<'a> {
    /// The life of the store.
    pub incarnation: Incarnation,
    /// How long a session lives unheard, if the driver counts it.
    pub remaining: &'a dyn Fn(SessionNo) -> Option<Duration>,
    /// Whether a session is silent.
    pub is_silent: &'a dyn Fn(SessionNo) -> bool,
}

impl fmt::Debug for Lens<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lens").field("incarnation", &self.incarnation).finish_non_exhaustive()
    }
}

impl State {
    /// Answers a question by the state as it is.
    pub fn query(&self, query: &Query, lens: Lens<'_>) -> Result<View, Refusal> {
        let timed = |mut view: LeaderView| {
            let holder = self.holder(&view.group);
            view.valid_for = holder.and_then(|holder| {
                let left = (lens.remaining)(holder.session)?;
                Some(self.at_most_ttl(holder.session, left))
            });
            view
        };
        Ok(match query {
            Query::Leader(group) => View::Leader(timed(self.leader_view(group, lens.incarnation))),
            Query::Leaders(groups) => {
                let view = |group| timed(self.leader_view(group, lens.incarnation));
                View::Leaders(groups.iter().map(view).collect())
            }
            Query::Offices(groups) => View::Offices(self.offices_view(groups)),
            Query::Session(session) => View::Session(self.session_view(*session)?),
            Query::Heartbeat(session) => {
                let session = self.session_of(*session)?;
                View::Heartbeat(HeartbeatView {
                    ttl_ms: self.ttl_ms(session).unwrap_or_default(),
                    epoch: self.epoch(session).unwrap_or_default(),
                    revision: self.revision(),
                })
            }
            Query::Candidacy { group, session, ttl_ms } => {
                View::Candidacy(self.candidacy(timed, group, *session, *ttl_ms, lens.incarnation))
            }
            Query::Group(group) => {
                let mut view = self.group_view(group, lens.incarnation, lens.is_silent)?;
                view.office = timed(view.office);
                View::Group(view)
            }
            Query::Groups { prefix, after, count } => {
                let mut page = self.groups_page(prefix, after.as_ref(), *count, lens.incarnation);
                page.groups = page.groups.into_iter().map(timed).collect();
                View::Groups(page)
            }
            Query::History(group) => {
                if !self.knows(group) {
                    return Err(Refusal::GroupUnknown { group: group.clone() });
                }
                View::History(self.history(group).to_vec())
            }
            Query::Fences { group, prefix, after, count } => {
                View::Fences(self.fences_page(group, prefix, after.as_ref(), *count))
            }
            Query::Replay(group, cursor) => {
                View::Replay(self.replay(group, *cursor, lens.incarnation))
            }
            Query::Census => View::Census(self.census()),
            Query::Shares => View::Shares(self.shares_view()),
            Query::Access(session) => View::Access(self.access_view(*session)),
        })
    }

    /// What is left of a session, at most its ttl. Drivers wait a little longer, which is their own margin and no
    /// promise to anybody.
    #[must_use]
    pub fn at_most_ttl(&self, session: SessionNo, left: Duration) -> Duration {
        self.ttl_ms(session).map_or(left, |ttl_ms| left.min(Duration::from_millis(ttl_ms)))
    }

    fn candidacy(
        &self,
        timed: impl Fn(LeaderView) -> LeaderView,
        group: &Group,
        session: SessionId,
        ttl_ms: u64,
        incarnation: Incarnation,
    ) -> Candidacy {
        let open = self.find_session(session);
        let holder = self.holder(group).map(|holder| holder.session);
        let open_ttl_ms = open.and_then(|session| self.ttl_ms(session));
        let policy = self.policy(group);
        let longest = policy.retry_ms_max_for(open_ttl_ms.unwrap_or(ttl_ms));
        Candidacy {
            office: timed(self.leader_view(group, incarnation)),
            is_holder: open.is_some() && holder == open,
            is_standing: open.is_some_and(|session| self.stands(group, session)),
            ttl_ms: open_ttl_ms,
            retry_ms: (policy.retry_ms_min, longest),
        }
    }

    /// What a group itself remembers, for a watch from `cursor`.
    ///
    /// A group's history names revisions but not ordinals, so it serves a cursor only if none of its
    /// changes shares the cursor's revision, or the cursor stands after all of that revision. A group
    /// changes at most once in an entry, so what is replayed may call itself the last of its
    /// revision. Of leaders that have gone, the metadata is not remembered.
    #[must_use]
    pub fn replay(
        &self,
        group: &Group,
        cursor: Cursor,
        incarnation: Incarnation,
    ) -> Option<Replay> {
        let history = self.history(group);
        let oldest = history.first()?;
        let is_exact = cursor.ordinal >= REPLAYED
            || history.iter().all(|change| change.revision != cursor.revision);
        if !is_exact || cursor.revision < oldest.revision {
            return None;
        }
        let office = self.leader_view(group, incarnation);
        let later = history.iter().filter(|change| change.revision > cursor.revision);
        let events = later.map(|change| {
            let is_in_office = change.term == office.term && change.leader.is_some();
            Event {
                group: group.clone(),
                revision: change.revision,
                ordinal: REPLAYED,
                term: change.term,
                leader: change.leader.clone(),
                metadata: if is_in_office { office.metadata.clone() } else { Metadata::NONE },
                cause: change.cause,
            }
        });
        let after = Cursor { incarnation, revision: oldest.revision, ordinal: REPLAYED };
        Some(Replay { after, up_to: self.revision(), events: events.collect() })
    }
}

/// The ordinal of events that come from a group's own history.
const REPLAYED: u32 = Cursor::WHOLE - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Entry};
    use crate::policy::Settings;
    use crate::term::Revision;

    /// Asks, and takes the typed answer out of the view.
    fn answers<V>(state: &State, question: Question<V>) -> bool {
        let (query, typed) = question.parts();
        let lens =
            Lens { incarnation: Incarnation(1), remaining: &|_| None, is_silent: &|_| false };
        typed(state.query(&query, lens).unwrap()).is_ok()
    }

    #[test]
    fn every_question_is_answered_by_its_own_kind_of_view() {
        let (group, session) = (Group::new("g").unwrap(), SessionId::new(1).unwrap());
        let mut state = State::new(Settings::default());
        let node = crate::name::Node::new("a").unwrap();
        state.apply(Entry::bare(Command::Open { session, node, ttl_ms: 10_000 }));
        state.apply(Entry::bare(Command::PutPolicy { group: group.clone(), policy: None }));
        let cursor = Cursor::after(Incarnation(1), Revision(0));
        let name = || group.clone();
        assert!(answers(&state, Question::leader(name())));
        assert!(answers(&state, Question::session(session)));
        assert!(answers(&state, Question::heartbeat(session)));
        assert!(answers(&state, Question::candidacy(name(), session, 10_000)));
        assert!(answers(&state, Question::group(name())));
        assert!(answers(&state, Question::groups(String::new(), None, 1)));
        assert!(answers(&state, Question::history(name())));
        assert!(answers(&state, Question::fences(name(), String::new(), None, 1)));
        assert!(answers(&state, Question::replay(name(), cursor)));
        assert!(answers(&state, Question::census()));
        assert!(answers(&state, Question::leaders(vec![name()])));
        assert!(answers(&state, Question::offices(vec![name()])));
        assert!(answers(&state, Question::access(Some(session))));
    }
}
