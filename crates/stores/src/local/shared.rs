//! What callers, the driver and the syncer share: one lock and two bells.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use regent_election::store::StoreResult;
use regent_election::watch::Hub;

use super::core::{Core, Phase};
use super::log::Ticket;

/// The store without its threads.
#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    pub(super) hub: Hub,
    /// Rings when something may be due earlier than the driver would look.
    driver_bell: Condvar,
    /// Rings when something waits to be written.
    syncer_bell: Condvar,
}

impl Shared {
    pub(super) fn new(core: Core, hub: Hub) -> Self {
        Self {
            core: Mutex::new(core),
            hub,
            driver_bell: Condvar::new(),
            syncer_bell: Condvar::new(),
        }
    }

    /// The lock. A thread that panicked while it held it has broken an invariant: the state may be
    /// between two revisions, and nothing it could say is worth believing.
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|_| broken())
    }

    /// Gives the lock back until the driver is called, or for so long.
    pub(super) fn rest_driver<'a>(
        &self,
        core: MutexGuard<'a, Core>,
        for_how_long: Duration,
    ) -> MutexGuard<'a, Core> {
        match self.driver_bell.wait_timeout(core, for_how_long) {
            Ok((core, _)) => core,
            Err(_) => broken(),
        }
    }

    /// Gives the lock back until the syncer is called.
    pub(super) fn rest_syncer<'a>(&self, core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        match self.syncer_bell.wait(core) {
            Ok(core) => core,
            Err(_) => broken(),
        }
    }

    /// Lets nothing more be applied, and calls both threads to their ends.
    pub(super) fn stop(&self, is_clean: bool) {
        let mut core = self.lock();
        if !matches!(core.phase, Phase::Stopped { .. }) {
            core.phase = Phase::Stopped { is_clean };
        }
        drop(core);
        self.driver_bell.notify_all();
        self.syncer_bell.notify_all();
    }

    /// Does something under the lock; its answer may be told when the ticket is redeemed.
    pub(super) fn enter<T>(
        &self,
        visit: impl FnOnce(&mut Core) -> StoreResult<T>,
    ) -> (StoreResult<T>, Ticket) {
        let mut core = self.lock();
        let answer = visit(&mut core);
        self.settle(&mut core);
        let revision = core.state.revision();
        let ticket = core.log.ticket(revision);
        (answer, ticket)
    }

    /// The same, and waits until the answer may be told.
    pub(super) async fn visit<T>(
        &self,
        visit: impl FnOnce(&mut Core) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let (answer, ticket) = self.enter(visit);
        ticket.redeem().await?;
        answer
    }

    /// Sees to it that what was applied becomes durable and known, and that the driver looks in time.
    /// To be called before the lock is given back after any change.
    pub(super) fn settle(&self, core: &mut Core) {
        if core.log.has_pending() {
            if core.log.is_kept() {
                self.syncer_bell.notify_one();
            } else {
                self.publish(core);
            }
        }
        if core.deadlines.next_at().is_some_and(|at| at < core.driver_wakes_at) {
            self.driver_bell.notify_one();
        }
    }

    /// A store that writes nothing has nothing to wait for.
    fn publish(&self, core: &mut Core) {
        for (revision, events) in core.log.take().caused {
            self.hub.publish(revision, &events);
        }
        let revision = core.state.revision();
        core.log.settle(revision);
    }
}

#[cold]
fn broken() -> ! {
    end_the_process("a thread of the store panicked")
}

/// Ends the process at once, saying why: in the log, and on standard error in case nobody logs.
#[cold]
pub(super) fn end_the_process(why: &str) -> ! {
    tracing::error!(why, "the store stops the process");
    eprintln!("the store stops the process: {why}");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use regent_election::state::State;
    use regent_election::store::Scope;
    use regent_election::watch::Bounds;
    use regent_election::{Command, Group, Incarnation, Revision, Settings};

    use super::super::log::Log;
    use super::*;

    fn shared(room_bytes: Option<u64>) -> Shared {
        let (life, start) = (Incarnation(1), Revision(0));
        let log = Log::new(start, room_bytes);
        let core = Core::new(State::new(Settings::default()), life, log, regent_clock::now());
        Shared::new(core, Hub::new(life, start, Bounds::default()))
    }

    fn delete_of_a_fresh_group(core: &mut Core) -> StoreResult<()> {
        let group = Group::new("billing").unwrap();
        core.ask(Command::PutPolicy { group: group.clone(), policy: None }, None)?.answer?;
        core.ask(Command::Delete { group }, None)?.answer?;
        Ok(())
    }

    #[tokio::test]
    async fn nothing_is_known_before_it_is_durable() {
        let shared = shared(Some(1 << 20));
        let mut watch = shared.hub.subscribe(Scope::Prefix(String::new()), None, None);
        let (answer, ticket) = shared.enter(delete_of_a_fresh_group);
        answer.unwrap();
        let (_, read) = shared.enter(|_| Ok(()));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(watch.poll_next(&mut context), Poll::Pending);
        let mut told = Box::pin(async { (ticket.redeem().await, read.redeem().await) });
        assert!(told.as_mut().poll(&mut context).is_pending());

        // What the syncer does once the disk has said yes.
        let batch = shared.lock().log.take();
        let (_, last) = batch.span().unwrap();
        for (revision, events) in &batch.caused {
            shared.hub.publish(*revision, events);
        }
        shared.lock().log.settle(last);
        assert_eq!(told.await, (Ok(()), Ok(())));
        assert!(matches!(watch.poll_next(&mut context), Poll::Ready(Some(_))));
    }

    #[tokio::test]
    async fn in_memory_applied_is_known() {
        let shared = shared(None);
        let mut watch = shared.hub.subscribe(Scope::Prefix(String::new()), None, None);
        shared.visit(delete_of_a_fresh_group).await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(watch.poll_next(&mut context), Poll::Ready(Some(_))));
    }
}
