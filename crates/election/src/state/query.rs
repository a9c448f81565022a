//! Reads as values: what can be asked of a state, and what it says.
//!
//! A store that answers from another thread or another machine sends the question to the state
//! instead of the state to the questioner.

use std::fmt;
use std::time::Duration;

use super::State;
use crate::name::{Group, Metadata, Resource, SessionId, SessionNo};
use crate::outcome::{Change, Event, Refusal};
use crate::store::{Census, FencesPage, GroupView, GroupsPage, Heard, LeaderView, SessionView};
use crate::term::{Cursor, Incarnation};
use crate::watch::Replay;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Who leads a group?
    Leader(Group),
    /// What does this session hold?
    Session(SessionId),
    /// What is an acknowledged heartbeat of this session told?
    Heard(SessionId),
    /// How does this session stand in one group? A session may hold 100,000 others, and a campaign
    /// asks about one.
    Candidacy {
        /// Where.
        group: Group,
        /// Who.
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
    /// What happened to a group lately?
    History(Group),
    /// What have the resources of a group admitted?
    Fences {
        /// Whose.
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
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// To [`Query::Leader`].
    Leader(LeaderView),
    /// To [`Query::Session`].
    Session(SessionView),
    /// To [`Query::Heard`].
    Heard(Heard),
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
            view.valid_for =
                self.holder(&view.group).and_then(|holder| (lens.remaining)(holder.session));
            view
        };
        Ok(match query {
            Query::Leader(group) => View::Leader(timed(self.leader_view(group, lens.incarnation))),
            Query::Session(session) => View::Session(self.session_view(*session)?),
            Query::Heard(session) => {
                let session = self.session_of(*session)?;
                View::Heard(Heard {
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
            Query::History(group) => View::History(self.history(group).to_vec()),
            Query::Fences { group, prefix, after, count } => {
                View::Fences(self.fences_page(group, prefix, after.as_ref(), *count))
            }
            Query::Replay(group, cursor) => {
                View::Replay(self.replay(group, *cursor, lens.incarnation))
            }
            Query::Census => View::Census(self.census()),
        })
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
