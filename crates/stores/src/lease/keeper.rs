//! Keeping watch over groups, for the sessions that are heard through this process and for whoever
//! watches here. One task for each group; what it has to do is decided by `duty`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use regent_election::{Group, SessionId};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::duty::{Duty, Post, Timers, duty};
use super::entries::Seen;
use super::office::Own;
use super::turn::LeaseRequest;
use super::{Locked, Shared, lock, wake_order};
use crate::register::{Key, QueuePosition};

/// Longest time between two looks at a group, whatever the engine announces.
const PATIENCE: Duration = Duration::from_secs(5);
/// Shortest time between two looks at a group when there is nothing to do.
const REST_MIN: Duration = Duration::from_millis(5);
/// Things done in a row before a pause: more than any office needs at once.
const BUSY_MAX: u32 = 8;

/// A group that is followed, and why.
#[derive(Debug)]
pub(super) struct Feed {
    wake: Notify,
    /// The group as it was read last.
    latest: Locked<Option<Arc<Seen>>>,
    /// Rings whenever it was read. Not a channel: those wake in an order that no seed repeats.
    read: Notify,
    needs: Locked<Needs>,
}

/// Why a group is followed.
#[derive(Debug, Default)]
struct Needs {
    /// Sessions that stand there, as far as is known.
    sessions: BTreeSet<u128>,
    watches: usize,
    /// Campaigns that wait.
    bids: usize,
    /// Something begun here must be seen to its end.
    has_chore: bool,
}

impl Feed {
    /// The group as it was read last.
    pub(super) fn latest(&self) -> Option<Arc<Seen>> {
        lock(&self.latest).clone()
    }

    /// Comes when it is read again. What is read after it was enabled is not missed.
    pub(super) fn read(&self) -> Notified<'_> {
        self.read.notified()
    }
}

/// What a group is followed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Every change of it.
    Watch,
    /// The turn of a session that stands in it.
    Bid,
}

/// A need for a feed. Dropping it ends the need.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) feed: Arc<Feed>,
    what: For,
}

impl Drop for Following {
    fn drop(&mut self) {
        *lock(&self.feed.needs).of(self.what) -= 1;
        self.feed.wake.notify_one();
    }
}

impl Needs {
    fn of(&mut self, what: For) -> &mut usize {
        match what {
            For::Watch => &mut self.watches,
            For::Bid => &mut self.bids,
        }
    }
}

impl Shared {
    /// Follows a group for as long as the answer is kept.
    pub(super) fn follow(self: &Arc<Self>, group: &Group, what: For) -> Following {
        let feed = self.follow_with(group, |needs| *needs.of(what) += 1);
        if what == For::Watch && self.entries.register.wake_orders().is_some() {
            // It may be waiting for its turn alone.
            feed.wake.notify_one();
        }
        Following { feed, what }
    }

    /// Follows a group while this session stands in it.
    pub(super) fn follow_for(self: &Arc<Self>, group: &Group, session: u128) {
        self.follow_with(group, |needs| {
            needs.sessions.insert(session);
        });
    }

    /// Follows a group until nothing is waited for in it.
    pub(super) fn follow_chore(self: &Arc<Self>, group: &Group) {
        self.follow_with(group, |needs| needs.has_chore = true);
    }

    fn follow_with(self: &Arc<Self>, group: &Group, need: impl FnOnce(&mut Needs)) -> Arc<Feed> {
        let mut feeds = lock(&self.feeds);
        if let Some(feed) = feeds.get(group) {
            need(&mut lock(&feed.needs));
            return Arc::clone(feed);
        }
        let mut needs = Needs::default();
        need(&mut needs);
        let feed = Arc::new(Feed {
            wake: Notify::new(),
            latest: Locked::default(),
            read: Notify::new(),
            needs: Locked::new(needs),
        });
        feeds.insert(group.clone(), Arc::clone(&feed));
        drop(feeds);
        if !*self.closing.borrow() {
            let keeper = keep(Arc::clone(self), group.clone(), Arc::clone(&feed));
            match &self.runtime {
                Some(runtime) => runtime.spawn(keeper),
                None => tokio::spawn(keeper),
            };
        }
        feed
    }

    /// Something was written here: whoever follows looks again.
    pub(super) fn stir(&self, group: &Group) {
        if let Some(feed) = lock(&self.feeds).get(group) {
            feed.wake.notify_one();
        }
        self.stirred.notify_waiters();
    }

    /// Stops to follow a group unless it is needed.
    fn leave(&self, group: &Group, feed: &Feed, seen: &Seen, locals: &[u128]) -> bool {
        let mut feeds = lock(&self.feeds);
        let mut needs = lock(&feed.needs);
        let state = &seen.record.state;
        let stands = |id: u128| {
            let session = SessionId::new(id).ok().and_then(|id| state.find_session(id));
            session.is_some_and(|session| state.stands(group, session))
        };
        needs.sessions.retain(|id| locals.contains(id) && stands(*id));
        needs.has_chore &= !seen.record.untold.is_empty() || state.waits().next().is_some();
        if needs.sessions.is_empty() && needs.watches == 0 && needs.bids == 0 && !needs.has_chore {
            feeds.remove(group);
            return true;
        }
        false
    }
}

/// Follows one group until nobody needs it.
async fn keep(shared: Arc<Shared>, group: Group, feed: Arc<Feed>) {
    let mut timers = Timers::default();
    let mut told: (u128, Vec<u128>) = (0, Vec::new());
    let (mut failures, mut busy) = (0, 0);
    while shared.check_open().is_ok() {
        let seen = match shared.entries.load(&group).await {
            Ok(seen) => Arc::new(seen),
            Err(error) => {
                tracing::debug!(%group, %error, "a group could not be read");
                shared.entries.pause(failures).await;
                failures = (failures + 1).min(8);
                continue;
            }
        };
        *lock(&feed.latest) = Some(Arc::clone(&seen));
        feed.read.notify_waiters();
        let locals = shared.locals_in(&seen.record);
        if shared.leave(&group, &feed, &seen, &locals) {
            return;
        }
        if told.0 != seen.record.nonce {
            told = (seen.record.nonce, Vec::new());
        }
        let next = {
            let observed = lock(&shared.entries.observed);
            let post = Post {
                group: &group,
                record: &seen.record,
                locals: &locals,
                told: &told.1,
                observed: &observed,
                now: shared.entries.now(),
            };
            duty(&post, &mut timers)
        };
        let is_rest = matches!(next, Duty::Rest { .. });
        let rested_at = shared.entries.now();
        busy = if is_rest { 0 } else { busy + 1 };
        let done = shared.do_duty(&group, &feed, &seen, next, &mut timers, &mut told.1).await;
        if let Err(error) = done {
            tracing::debug!(%group, %error, "a duty could not be done");
            shared.entries.pause(failures).await;
            failures = (failures + 1).min(8);
        } else {
            failures = 0;
        }
        if is_rest && shared.entries.now().since(rested_at) < REST_MIN {
            // An engine whose waits end at once must not be asked for ever.
            shared.entries.time.sleep(REST_MIN).await;
        }
        if busy >= BUSY_MAX {
            shared.entries.pause(busy).await;
        }
    }
}

impl Shared {
    async fn do_duty(
        self: &Arc<Self>,
        group: &Group,
        feed: &Feed,
        seen: &Seen,
        next: Duty,
        timers: &mut Timers,
        told: &mut Vec<u128>,
    ) -> regent_election::store::StoreResult<()> {
        match next {
            Duty::Tell(session) => {
                self.tell(group, &seen.record, session).await?;
                told.push(session);
            }
            Duty::Look(session) => {
                match self.entries.look(session).await?.0 {
                    Some(record) => timers.looked(record.as_open().map_or(0, |open| open.hold_ms)),
                    // The group was read before, so one that is not there is forgotten and will not come.
                    None => {
                        self.run(group, None, &[session], Own::Nothing).await?;
                    }
                }
            }
            Duty::End(session) => {
                if self.entries.lapse(session).await? {
                    self.run(group, None, &[session], Own::Nothing).await?;
                }
            }
            Duty::Expire(session) => {
                self.run(group, None, &[session], Own::Nothing).await?;
            }
            Duty::Run(command) => {
                let wish = LeaseRequest { command, request: None, asker: None };
                let outcome = self.run(group, Some(wish), &[], Own::Nothing).await?;
                if !outcome.has_changed {
                    // Somebody else did it, or nobody can be promoted: look again in a while.
                    self.entries.time.sleep(Duration::from_millis(50)).await;
                }
            }
            Duty::Rest { watch, until } => {
                let patience =
                    until.map_or(PATIENCE, |until| self.entries.now().until(until).min(PATIENCE));
                self.rest(group, feed, seen, watch, patience).await?;
            }
        }
        Ok(())
    }

    /// Waits until something may have changed.
    async fn rest(
        &self,
        group: &Group,
        feed: &Feed,
        seen: &Seen,
        watch: Option<u128>,
        patience: Duration,
    ) -> regent_election::store::StoreResult<()> {
        let key = Key::group(group);
        if let Some(wake_orders) = self.entries.register.wake_orders()
            && let Some(place) = self.only_stands(group, feed, seen, watch)
        {
            tokio::select! {
                biased;
                () = self.closed() => return Ok(()),
                () = feed.wake.notified() => return Ok(()),
                waited = wake_orders.wait(&key, seen.version.as_ref(), &place, patience) => {
                    waited.map_err(super::entries::store_error)?;
                }
                () = self.entries.time.sleep(patience) => {}
            }
            if let Some(session) = watch {
                self.entries.look(session).await?;
            }
            return Ok(());
        }
        let watch = watch.filter(|session| !self.sees_without_looking(*session));
        let watched = async {
            let Some(session) = watch else { return std::future::pending().await };
            let waited = match self.entries.register.sessions() {
                Some(sessions) => sessions.wait_for_end(session, patience).await,
                None => {
                    let version = lock(&self.entries.observed).version(session);
                    let key = Key::session(session);
                    self.entries.register.wait(&key, version.as_ref(), patience).await
                }
            };
            waited.map_err(super::entries::store_error)?;
            self.entries.look(session).await?;
            Ok(())
        };
        tokio::select! {
            biased;
            () = self.closed() => Ok(()),
            () = feed.wake.notified() => Ok(()),
            waited = self.entries.register.wait(&key, seen.version.as_ref(), patience) => {
                waited.map_err(super::entries::store_error)
            }
            looked = watched => looked,
            () = self.entries.time.sleep(patience) => Ok(()),
        }
    }

    /// Where this process stands in a group, if nobody wants to see every change there.
    fn only_stands(
        &self,
        group: &Group,
        feed: &Feed,
        seen: &Seen,
        watch: Option<u128>,
    ) -> Option<QueuePosition> {
        // A chore has a time of its own; whoever does it first, the other finds it done.
        if lock(&feed.needs).watches > 0 {
            return None;
        }
        wake_order::place(group, &seen.record, &self.locals_in(&seen.record), watch)
    }

    /// How many watches are under way.
    pub(super) fn watchers(&self) -> u64 {
        self.watchers.load(Ordering::Relaxed) as u64
    }
}
