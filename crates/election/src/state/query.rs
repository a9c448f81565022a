//! Reads as values: what can be asked of a state, and what it says.
//!
//! A store that answers from another thread or another machine sends the question to the state
//! instead of the state to the questioner.

use std::fmt;
use std::time::Duration;

use super::State;
use crate::name::{Group, SessionId, SessionNo};
use crate::outcome::{Change, Refusal};
use crate::store::{Census, GroupView, GroupsPage, LeaderView, SessionView};
use crate::term::Incarnation;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Who leads a group?
    Leader(Group),
    /// What does this session hold?
    Session(SessionId),
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
    /// To [`Query::Group`].
    Group(GroupView),
    /// To [`Query::Groups`].
    Groups(GroupsPage),
    /// To [`Query::History`].
    History(Vec<Change>),
    /// To [`Query::Census`].
    Census(Census),
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
            Query::Census => View::Census(self.census()),
        })
    }
}
