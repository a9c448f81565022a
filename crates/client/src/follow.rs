//! Groups that have moved to another store: this process follows them.
//!
//! Whoever campaigns where a group no longer lives is told where it went. There a second session is opened,
//! with the same node and the same timers, and the campaign goes on; it is remembered, so that the next one
//! begins where the group is, though the old store be gone. There is one session for each place, however
//! often groups come and go.
//!
//! A leader that is told to stop because its group moves **goes ahead**: it stands in the new store while its
//! work still stops in the old one, and gives its old term up when the new store knows of it. So nobody waits for
//! its return, and its office is vacant for one commit in each store. Its next campaign takes up that
//! candidacy; if there is none, it is withdrawn.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regent_election::participant::{Transition, Why};
use regent_election::store::Consistency;
use regent_election::{Group, Home, Metadata, Priority};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::driver::ClaimId;
use crate::error::ConnectError;
use crate::leadership::Leadership;
use crate::regent::{Campaign, Regent, Standing};
use crate::session::{Command, Session};
use crate::tenure::{self, Scout};
use crate::warming::WarmUp;

/// Moves in a row that one campaign follows before it takes a breath: more of them are a circle.
pub(crate) const HOPS_MAX: usize = 4;

/// How long a candidacy that went ahead waits for the campaign that takes it up: programs that lead again do
/// so at once.
const AHEAD_FOR: Duration = Duration::from_millis(500);

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
    /// Candidacies in new stores that no campaign has taken up yet.
    ahead: BTreeMap<Group, Ahead>,
}

/// A candidacy that went ahead, and what it claims.
struct Ahead {
    standing: Standing,
    priority: Priority,
    metadata: Metadata,
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

    /// Stands at `home`, or takes up the candidacy that went ahead there, if it claims the same; any other
    /// is withdrawn. Under one lock with [`go_ahead`](Self::go_ahead): of two claims the first is elected, and it
    /// must be the one that somebody waits for.
    pub(crate) fn stand(
        &self,
        home: &Arc<Session>,
        group: &Group,
        campaign: &Campaign,
    ) -> Standing {
        let mut inside = self.inside();
        let ahead = inside.ahead.remove(group).filter(|ahead| {
            let is_there = Arc::ptr_eq(ahead.standing.identity().0, home);
            is_there && (ahead.priority, &ahead.metadata) == campaign.claim()
        });
        ahead.map_or_else(|| campaign.stand(home, group), |ahead| ahead.standing)
    }

    /// Stands at `home` ahead of the campaign that will take it up.
    fn go_ahead(
        &self,
        home: &Arc<Session>,
        group: &Group,
        campaign: &Campaign,
    ) -> (ClaimId, watch::Receiver<bool>) {
        let mut inside = self.inside();
        let standing = campaign.stand(home, group);
        let (claim, stands) = (standing.identity().1, standing.stands());
        let (priority, metadata) = campaign.claim();
        let ahead = Ahead { standing, priority, metadata: metadata.clone() };
        inside.ahead.insert(group.clone(), ahead);
        (claim, stands)
    }

    /// Withdraws a candidacy that nobody took up.
    fn forget_ahead(&self, group: &Group, session: &Arc<Session>, claim: ClaimId) {
        let mut inside = self.inside();
        let is_same = |ahead: &Ahead| {
            let (known, number) = ahead.standing.identity();
            Arc::ptr_eq(known, session) && number == claim
        };
        if inside.ahead.get(group).is_some_and(is_same) {
            inside.ahead.remove(group);
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
}

impl Campaign {
    /// Goes ahead once this leadership is told to stop because its group moves: stands in the new store
    /// while the work stops in the old one, and lets the old term be given up when the new store knows.
    pub(crate) fn look_ahead(&self, leadership: &Leadership, home: &Arc<Session>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (campaign, home) = (self.clone(), Arc::clone(home));
        let group = leadership.group().clone();
        // A handle would keep the term; neither of these does.
        let scout = Scout::of(leadership.hold());
        let mut standing = leadership.tenure().watch();
        runtime.spawn(async move {
            let told = standing.wait_for(tenure::Standing::is_to_stop).await;
            if told.map_or(true, |standing| standing.why != Why::Moving) {
                return;
            }
            // The term waits for the scout, but not for long: it must be given up in time.
            let patience = scout.remaining().unwrap_or_default() / 2;
            let mut scout = Some(scout);
            let mut gone = pin!(campaign.go_ahead(&group, &home));
            let ahead = tokio::select! {
                biased;
                ahead = &mut gone => ahead,
                () = tokio::time::sleep(patience) => {
                    scout = None;
                    gone.await
                }
            };
            drop(scout);
            let Some((session, claim)) = ahead else { return };
            // Whoever led stands again when its term is over, or does not want to lead any more.
            let _ = standing.wait_for(|standing| standing.is_over).await;
            tokio::time::sleep(AHEAD_FOR).await;
            campaign.regent().followed().forget_ahead(&group, &session, claim);
        });
    }

    /// Stands where the group goes, and waits until the store there knows.
    async fn go_ahead(&self, group: &Group, home: &Session) -> Option<(Arc<Session>, ClaimId)> {
        let asked = home.reads.leader(group, Consistency::Linearizable).await;
        let to = asked.ok()?.moved_to?;
        let regent = self.regent();
        if let Err(error) = regent.follow(group, &to).await {
            tracing::warn!(%group, %to, %error, "the group moves to where this process cannot go");
            return None;
        }
        let session = regent.home_of(group);
        let (claim, mut stands) = regent.followed().go_ahead(&session, group, self);
        let _ = stands.wait_for(|stands| *stands).await;
        Some((session, claim))
    }
}
