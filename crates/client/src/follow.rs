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
//!
//! **Only where the group went.** The new store must show that it has the group from the store that sends this process
//! there, by a name that both use; or, if it knows that store by a name that this process does not, that the group
//! arrived at no lower term than the old store tells. A group that came from nowhere is another one of the same name. And
//! whatever a store grants, a term that is not above every one that this process had is given up.
//!
//! **Never for ever.** While the new store does not answer, the stores that sent this process there are asked again: an
//! operator may have named another one, or brought the group back.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use regent_election::participant::Transition;
use regent_election::store::{Consistency, GroupView, StoreError};
use regent_election::{Door, Group, Home, Metadata, Priority, Refusal, Term};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::backend::{Backend, ObservedLeader};
use crate::driver::ClaimId;
use crate::error::{CampaignError, ConnectError};
use crate::leadership::Leadership;
use crate::limits::RECONNECT_MAX;
use crate::places::is_same_store;
use crate::regent::{Campaign, Regent, Standing};
use crate::session::{Command, Session};
use crate::tenure::{self, Scout};
use crate::warming::WarmUp;

/// Moves in a row that one campaign follows before it takes a breath: more of them are a circle.
pub(crate) const HOPS_MAX: usize = 4;

/// How long a candidacy that went ahead waits for the campaign that takes it up: programs that lead again do
/// so at once.
const AHEAD_FOR: Duration = Duration::from_millis(500);

/// How soon a new store that does not answer is asked again whether it expects a group. Every pause is twice the one
/// before it, up to [`RECONNECT_MAX`].
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How many ttls a store that was followed to may be out of reach before the one where this process began is asked. What
/// this process had there is over by then.
const SILENT_TTLS_MAX: u32 = 2;

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
    /// Who is to hear who leads, from the store where the group lives.
    watchers: Vec<(Group, mpsc::UnboundedSender<ObservedLeader>)>,
    warm_ups: Vec<(Group, WarmUp)>,
    /// Candidacies in new stores that no campaign has taken up yet.
    ahead: BTreeMap<Group, Ahead>,
    /// The last term of each group, and the session it belongs to.
    last: BTreeMap<Group, (Weak<Session>, watch::Receiver<tenure::Standing>)>,
    /// The highest term of each group that this process was ever granted, by whichever store.
    highest: BTreeMap<Group, Term>,
    /// How many campaigns of this process are under way.
    wanted: BTreeMap<Group, usize>,
    /// Nothing more is followed: this process leaves.
    is_closed: bool,
}

/// A campaign that is under way; it ends with this.
pub(crate) struct Wanted {
    followed: Arc<Followed>,
    group: Group,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        let mut inside = self.followed.inside();
        let left = inside.wanted.get(&self.group).map_or(0, |count| count - 1);
        match left {
            0 => inside.wanted.remove(&self.group),
            left => inside.wanted.insert(self.group.clone(), left),
        };
    }
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

    /// The sessions that were opened to follow; no more of them are kept.
    pub(crate) fn close(&self) -> Vec<Arc<Session>> {
        let mut inside = self.inside();
        inside.is_closed = true;
        inside.ahead.clear();
        inside.homes.values().cloned().collect()
    }

    /// Takes a term that was granted, if it is above every one that was granted here before. A store that
    /// grants a lower one has lost what it knew, or is not the store that it was taken for.
    pub(crate) fn take_term(&self, group: &Group, term: Term) -> Result<(), CampaignError> {
        let mut inside = self.inside();
        let last = inside.highest.get(group).copied().unwrap_or_default();
        if term <= last {
            return Err(CampaignError::TermNotAbove { group: group.clone(), term, last });
        }
        inside.highest.insert(group.clone(), term);
        Ok(())
    }

    /// Notes that somebody wants to lead this group.
    pub(crate) fn want(self: &Arc<Self>, group: &Group) -> Wanted {
        *self.inside().wanted.entry(group.clone()).or_insert(0) += 1;
        Wanted { followed: Arc::clone(self), group: group.clone() }
    }

    fn is_wanted(&self, group: &Group) -> bool {
        self.inside().wanted.contains_key(group)
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

    /// Remembers somebody who is to hear who leads `group`, wherever it goes.
    pub(crate) fn watch(&self, group: &Group, listener: &mpsc::UnboundedSender<ObservedLeader>) {
        let mut inside = self.inside();
        inside.watchers.retain(|(_, known)| !known.is_closed());
        inside.watchers.push((group.clone(), listener.clone()));
    }

    /// Lets those who watch `group` hear of it from `home`, and from no other session: what is seen where
    /// it no longer lives would contradict what is seen where it does.
    fn watch_at(&self, group: &Group, home: &Arc<Session>, began: &Arc<Session>) {
        let inside = self.inside();
        for (_, listener) in inside.watchers.iter().filter(|(watched, _)| watched == group) {
            for other in inside.homes.values().chain([began]) {
                other.known.unsubscribe(listener);
            }
            home.known.subscribe(group, listener);
        }
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
        if inside.is_closed {
            session.command(Command::Leave(None));
            return;
        }
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
        if self.is_ahead(group, session, claim) {
            self.inside().ahead.remove(group);
        }
    }

    /// Whether nobody has taken this candidacy up yet.
    fn is_ahead(&self, group: &Group, session: &Arc<Session>, claim: ClaimId) -> bool {
        self.inside().ahead.get(group).is_some_and(|ahead| {
            let (known, number) = ahead.standing.identity();
            Arc::ptr_eq(known, session) && number == claim
        })
    }

    fn home_of(&self, group: &Group) -> Option<Arc<Session>> {
        let inside = self.inside();
        inside.homes.get(inside.groups.get(group)?).cloned()
    }

    /// The address of the store that a group was followed to; none if it was not.
    fn url_of(&self, group: &Group) -> Option<String> {
        self.inside().groups.get(group).cloned()
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

    /// Opens a session where `group` went, unless there is one, and remembers it. The store there must show that it
    /// was told of the move: who can write to the old store alone sends nobody to a store that knows nothing of it.
    pub(crate) async fn follow(&self, group: &Group, to: &Home) -> Result<(), ConnectError> {
        let (followed, url) = (self.followed(), to.as_str());
        self.made().may_follow(url)?;
        let there = match (self.made().is_at(url), followed.at(url)) {
            (true, _) => Arc::clone(&self.session().reads),
            (false, Some(known)) => Arc::clone(&known.reads),
            (false, None) => self.made().at_home(url, self.node())?.reads()?,
        };
        self.check_arrival(group, url, &*there).await?;
        let one_at_a_time = followed.connecting.lock().await;
        let session = if self.made().is_at(url) {
            None
        } else if let Some(known) = followed.at(url) {
            Some(known)
        } else {
            let home = self.made().at_home(url, self.node())?.connect().await?;
            Some(Arc::clone(home.session()))
        };
        let before = self.home_of(group);
        followed.remember(group, url, session);
        let home = self.home_of(group);
        if !Arc::ptr_eq(&before, &home) {
            followed.watch_at(group, &home, self.session());
        }
        drop(one_at_a_time);
        Ok(())
    }
}

/// What a store says of a group that it sent this process away from.
enum Told {
    /// It lives there again, or is on its way back.
    Lives,
    Moved(Home),
}

impl Regent {
    /// What the stores that sent this process away say now: the last one, and if that does not answer, the first.
    async fn told_again(&self, group: &Group) -> Option<Told> {
        let last = self.home_of(group);
        if let Some(told) = self.told_by(group, &last).await {
            return Some(told);
        }
        let told = self.told_by(group, self.session()).await?;
        if matches!(told, Told::Lives) {
            self.return_home(group);
        }
        Some(told)
    }

    /// What a store says of a group; none if it does not answer, or knows nothing of it any more.
    async fn told_by(&self, group: &Group, session: &Session) -> Option<Told> {
        Some(match session.reads.group(group).await.ok()?.door {
            Door::Moved { to } => Told::Moved(to),
            Door::Open | Door::Expected { .. } | Door::Stopped { .. } => Told::Lives,
        })
    }

    /// The group lives where this process began.
    fn return_home(&self, group: &Group) {
        tracing::info!(%group, "the group is back where this process began; returning");
        self.followed().remember(group, "", None);
        self.followed().watch_at(group, self.session(), self.session());
    }

    /// Whether a store shows that it expects `group`, or has received it, from where this process knows it to have
    /// lived.
    async fn check_arrival(
        &self,
        group: &Group,
        url: &str,
        there: &dyn Backend,
    ) -> Result<(), ConnectError> {
        let shown = match there.group(group).await {
            Ok(shown) => Some(shown),
            Err(StoreError::Refused(Refusal::GroupUnknown { .. })) => None,
            Err(error @ (StoreError::Unavailable { .. } | StoreError::Uncertain { .. })) => {
                return Err(ConnectError::NoWordThere(error.to_string()));
            }
            Err(error) => return Err(ConnectError::Store(error.to_string())),
        };
        // The old store may be gone by now; what this process led itself is known for certain.
        let told = self.home_of(group).reads.leader(group, Consistency::Stale).await;
        let own = self.followed().inside().highest.get(group).copied().unwrap_or_default();
        let last = told.map_or(own, |told| told.term.max(own));
        let from = self.followed().url_of(group).or_else(|| self.made().url().map(str::to_owned));
        let is_destination = shown.is_some_and(|shown| {
            // Its own operator named the store where this process began: a move that was called off leads back there.
            let is_back = self.made().is_at(url) && has_reached(&shown, last);
            is_back || is_destination(&shown, from.as_deref(), last)
        });
        if is_destination {
            return Ok(());
        }
        Err(ConnectError::NotExpectedThere { group: group.clone(), last })
    }

    /// Waits until nothing of the last term of `group` is alive if the next one may be of another store. One
    /// store sees to that by itself.
    pub(crate) async fn settle(&self, group: &Group) {
        loop {
            let last = self.followed().inside().last.get(group).cloned();
            let Some((session, mut standing)) = last else { return };
            let home = self.home_of(group);
            let is_there = session.upgrade().is_some_and(|session| Arc::ptr_eq(&session, &home));
            let is_settled = |last: &tenure::Standing| {
                let is_gone = last.is_idle && !last.is_scouted;
                is_gone || (is_there && !last.moves)
            };
            if standing.wait_for(is_settled).await.is_err() {
                return;
            }
            // What was waited for may have moved the group.
            if Arc::ptr_eq(&home, &self.home_of(group)) {
                return;
            }
        }
    }
}

/// Whether a store expects a group, or has it at no lower term than `last`.
fn has_reached(shown: &GroupView, last: Term) -> bool {
    match shown.door {
        Door::Expected { .. } => true,
        // It may have moved on since.
        Door::Open | Door::Stopped { .. } | Door::Moved { .. } => shown.office.term >= last,
    }
}

/// Whether a store that shows this of a group is one that it was moved to from the store that this process knows as
/// `from`, and whose last term was `last`.
///
/// If both use one name, no term is compared: after a restore, the old store tells of terms that nobody was granted.
/// If they do not, an arrival shows by its term that it was from there: it raises the term to the old store's last one.
fn is_destination(shown: &GroupView, from: Option<&str>, last: Term) -> bool {
    let is_named = |named: &Home| from.is_some_and(|from| is_same_store(from, named.as_str()));
    match (&shown.door, &shown.came_from) {
        // A store inside the process has no name that could be compared.
        (Door::Expected { from: named, .. }, _) => from.is_none() || is_named(named),
        (Door::Open | Door::Stopped { .. } | Door::Moved { .. }, Some(named)) => {
            is_named(named) || has_reached(shown, last)
        }
        (Door::Open | Door::Stopped { .. } | Door::Moved { .. }, None) => false,
    }
}

impl Campaign {
    /// Follows a group that has moved, and waits for a new store that does not answer at the moment. Whenever it does
    /// not, the stores that sent this process there are asked whether that still holds.
    pub(crate) async fn follow(&self, group: &Group, to: &Home) -> Result<(), CampaignError> {
        let (mut to, mut pause) = (to.clone(), ASK_AGAIN_AFTER);
        loop {
            match self.regent().follow(group, &to).await {
                Ok(()) => return Ok(()),
                Err(ConnectError::NoWordThere(why)) => {
                    tracing::warn!(%group, %to, %why, "the group has moved, and the new store does not answer yet");
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(RECONNECT_MAX);
                    match self.regent().told_again(group).await {
                        Some(Told::Moved(other)) if other != to => {
                            (to, pause) = (other, ASK_AGAIN_AFTER);
                        }
                        Some(Told::Lives) => return Ok(()),
                        Some(Told::Moved(_)) | None => {}
                    }
                }
                Err(error) => {
                    let (group, to, why) = (group.clone(), to.clone(), error.to_string());
                    return Err(CampaignError::CannotFollow { group, to, why });
                }
            }
        }
    }

    /// Ends once the store that `group` was followed to has been out of reach for a while and the one where this
    /// process began tells of another place. Gives that place, if it is not the one where this process began.
    pub(crate) async fn left_behind(&self, group: &Group, home: &Arc<Session>) -> Option<Home> {
        let regent = self.regent();
        let Some(url) = regent.followed().url_of(group) else { return pending().await };
        let mut silent_for = 0;
        loop {
            tokio::time::sleep(self.ttl()).await;
            let is_silent = matches!(
                home.reads.group(group).await,
                Err(StoreError::Unavailable { .. } | StoreError::Uncertain { .. })
            );
            silent_for = if is_silent { silent_for + 1 } else { 0 };
            if silent_for < SILENT_TTLS_MAX {
                continue;
            }
            match regent.told_by(group, regent.session()).await {
                Some(Told::Lives) => {
                    regent.return_home(group);
                    return None;
                }
                Some(Told::Moved(to)) if to.as_str() != url => return Some(to),
                Some(Told::Moved(_)) | None => {}
            }
        }
    }

    /// Goes ahead once this leadership is told to stop because its group moves: stands in the new store
    /// while the work stops in the old one, and lets the old term be given up when the new store knows.
    ///
    /// The candidacy waits for the next campaign of this process, but only while that can still come in time:
    /// work that does not stop before its lease ends must not be followed by another term of the same process.
    pub(crate) fn look_ahead(&self, leadership: &Leadership, home: &Arc<Session>) {
        let mut standing = leadership.tenure().watch();
        let (campaign, home) = (self.clone(), Arc::clone(home));
        let group = leadership.group().clone();
        let last = (Arc::downgrade(&home), standing.clone());
        self.regent().followed().inside().last.insert(group.clone(), last);
        let Ok(runtime) = Handle::try_current() else { return };
        // A handle would keep the term; neither of these does.
        let scout = Scout::of(leadership.hold());
        runtime.spawn(async move {
            let told = standing.wait_for(tenure::Standing::is_to_stop).await;
            let Some(stop_by) = told.ok().filter(|told| told.moves).map(|told| told.stop_by) else {
                return;
            };
            let left = stop_by.map_or(home.budget.stop_grace(), |by| home.now().until(by));
            // The term waits for the scout, but not for long: it must be given up in time.
            let mut scout = Some(scout);
            let mut gone =
                pin!(tokio::time::timeout(left + AHEAD_FOR, campaign.go_ahead(&group, &home)));
            let ahead = tokio::select! {
                biased;
                ahead = &mut gone => ahead,
                () = tokio::time::sleep(left / 2) => {
                    scout = None;
                    gone.await
                }
            };
            drop(scout);
            let Ok(Some((session, claim))) = ahead else { return };
            let until_then = stop_by.map_or(left, |by| home.now().until(by));
            let idle = standing.wait_for(|standing| standing.is_idle);
            let mut may_come = tokio::time::timeout(until_then, idle).await.is_ok();
            let followed = campaign.regent().followed();
            while may_come {
                tokio::time::sleep(AHEAD_FOR).await;
                may_come = followed.is_wanted(&group) && followed.is_ahead(&group, &session, claim);
            }
            followed.forget_ahead(&group, &session, claim);
        });
    }

    /// Stands where the group goes, and waits until the store there knows.
    async fn go_ahead(&self, group: &Group, home: &Session) -> Option<(Arc<Session>, ClaimId)> {
        let asked = home.reads.leader(group, Consistency::Linearizable).await;
        let to = asked.ok()?.moved_to?;
        let regent = self.regent();
        if let Err(error) = self.follow(group, &to).await {
            tracing::warn!(%group, %to, %error, "the group moves to where this process cannot go");
            return None;
        }
        let session = regent.home_of(group);
        let (claim, mut stands) = regent.followed().go_ahead(&session, group, self);
        let _ = stands.wait_for(|stands| *stands).await;
        Some((session, claim))
    }
}
