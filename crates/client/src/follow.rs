//! Groups that have moved to another store: this process follows them.
//!
//! Whoever campaigns where a group no longer lives is told where it went. There a second session is opened,
//! with the same node and the same timers, and the campaign goes on; it is remembered, so that the next one
//! begins where the group is, though the old store be gone. There is one session for each place, however
//! often groups come and go. A leader that is told to stop asks where its group goes while its work still
//! stops, so that the way is open when it is needed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_election::participant::{Transition, Why};
use regent_election::store::Consistency;
use regent_election::{Group, Home};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::error::ConnectError;
use crate::leadership::Leadership;
use crate::regent::Regent;
use crate::session::{Command, Session};
use crate::warming::WarmUp;

/// Moves in a row that one campaign follows before it takes a breath: more of them are a circle.
pub(crate) const HOPS_MAX: usize = 4;

/// Where groups went, shared by all sessions of one process that belong together. It holds sessions and no
/// [`Regent`], which holds it: so it goes with the last of those, and the sessions with it.
#[derive(Default)]
pub(crate) struct Followed {
    inside: Mutex<Inside>,
    /// One at a time connects, so that all groups that went to one place share a session there.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Inside {
    /// The sessions, by the URLs of their places.
    homes: BTreeMap<String, Arc<Session>>,
    /// Where each group was last known to live; those that are not named live where the process began.
    groups: BTreeMap<Group, String>,
    /// What every session is told as soon as it is opened.
    subscribers: Vec<mpsc::UnboundedSender<Transition>>,
    warm_ups: Vec<(Group, WarmUp)>,
}

impl Followed {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Every change is one insertion, so a panic elsewhere leaves nothing half done.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sessions that were opened to follow.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.inside().homes.values().cloned().collect()
    }

    /// Tells every session here and to come of somebody who listens.
    pub(crate) fn subscribe(&self, listener: &mpsc::UnboundedSender<Transition>) {
        let mut inside = self.inside();
        for session in inside.homes.values() {
            session.command(Command::Subscribe(listener.clone()));
        }
        inside.subscribers.retain(|known| !known.is_closed());
        inside.subscribers.push(listener.clone());
    }

    /// Tells every session here and to come what to do about an offer.
    pub(crate) fn warm_up(&self, group: &Group, warm_up: &WarmUp) {
        let mut inside = self.inside();
        for session in inside.homes.values() {
            session.command(Command::WarmUp(group.clone(), warm_up.clone()));
        }
        inside.warm_ups.retain(|(known, _)| known != group);
        inside.warm_ups.push((group.clone(), warm_up.clone()));
    }

    /// Remembers that `group` lives at `url`, in this session; none means where the process began.
    fn remember(&self, group: &Group, url: &str, session: Option<Arc<Session>>) {
        let mut inside = self.inside();
        let Some(session) = session else {
            inside.groups.remove(group);
            return;
        };
        if inside.groups.insert(group.clone(), url.to_owned()).as_deref() == Some(url) {
            return;
        }
        tracing::info!(%group, to = url, "the group has moved; following");
        // Who asks for its leader is answered from there.
        session.command(Command::Observe(group.clone()));
        if !inside.homes.contains_key(url) {
            for listener in &inside.subscribers {
                session.command(Command::Subscribe(listener.clone()));
            }
            for (group, warm_up) in &inside.warm_ups {
                session.command(Command::WarmUp(group.clone(), warm_up.clone()));
            }
            inside.homes.insert(url.to_owned(), session);
        }
    }

    fn home_of(&self, group: &Group) -> Option<Arc<Session>> {
        let inside = self.inside();
        inside.homes.get(inside.groups.get(group)?).cloned()
    }

    fn at(&self, url: &str) -> Option<Arc<Session>> {
        self.inside().homes.get(url).cloned()
    }
}

impl fmt::Debug for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.inside().groups).finish()
    }
}

impl Regent {
    /// The session in the store where `group` was last known to live.
    pub(crate) fn home_of(&self, group: &Group) -> Arc<Session> {
        self.followed().home_of(group).unwrap_or_else(|| Arc::clone(self.session()))
    }

    /// Opens a session where `group` went, unless there is one, and remembers it.
    pub(crate) async fn follow(&self, group: &Group, to: &Home) -> Result<(), ConnectError> {
        if !self.made().follows() {
            return Err(ConnectError::StaysHere);
        }
        let (followed, url) = (self.followed(), to.as_str());
        let one_at_a_time = followed.connecting.lock().await;
        let session = if self.made().is_at(url) {
            None
        } else if let Some(known) = followed.at(url) {
            Some(known)
        } else {
            let home = self.made().at_home(url, self.node())?.connect().await?;
            Some(Arc::clone(home.session()))
        };
        followed.remember(group, url, session);
        drop(one_at_a_time);
        Ok(())
    }

    /// Finds out, once this leadership is told to stop, whether its group moves, and gets ready.
    pub(crate) fn look_ahead(&self, leadership: &Leadership, home: &Arc<Session>) {
        // A handle would keep the term; what is watched does not.
        let (regent, home, group) = (self.clone(), Arc::clone(home), leadership.group().clone());
        let mut standing = leadership.tenure().watch();
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let told = standing.wait_for(|standing| standing.is_to_stop()).await;
            if told.map_or(true, |standing| standing.why != Why::Ending) {
                return;
            }
            let asked = home.reads.leader(&group, Consistency::Linearizable).await;
            let Ok(Some(to)) = asked.map(|office| office.moved_to) else { return };
            if let Err(error) = regent.follow(&group, &to).await {
                tracing::warn!(%group, %to, %error, "the group moves to where this process cannot go");
            }
        });
    }
}
