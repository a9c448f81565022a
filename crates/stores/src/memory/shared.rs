//! What callers and the driver share: one lock and one notification.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use regent_election::access::LiveAccess;
use regent_election::store::StoreResult;
use regent_election::watch::Hub;

use super::core::{Core, Phase};

/// The store without its thread.
#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    pub(super) hub: Hub,
    /// Who may do what.
    pub(super) access: LiveAccess,
    /// Rings when something may be due earlier than the driver would look.
    driver_bell: Condvar,
}

impl Shared {
    pub(super) fn new(core: Core, hub: Hub) -> Self {
        let access = LiveAccess::new(Arc::clone(core.state().access()));
        // Nothing was committed before it started.
        access.catch_up();
        Self { core: Mutex::new(core), hub, access, driver_bell: Condvar::new() }
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

    /// Lets nothing more be applied, and calls the driver to its end.
    pub(super) fn stop(&self) {
        self.lock().phase = Phase::Stopped;
        self.driver_bell.notify_all();
    }

    /// Does something under the lock.
    pub(super) fn enter<T>(
        &self,
        visit: impl FnOnce(&mut Core) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let mut core = self.lock();
        let answer = visit(&mut core);
        self.settle(&mut core);
        answer
    }

    /// Publishes what was applied, and sees to it that the driver looks in time. To be called before
    /// the lock is given back after any change.
    pub(super) fn settle(&self, core: &mut Core) {
        self.access.show(core.state().access());
        for (revision, events) in core.caused.drain(..) {
            self.hub.publish(revision, &events);
        }
        if core.ledger.next_at().is_some_and(|at| at < core.driver_wakes_at) {
            self.driver_bell.notify_one();
        }
    }
}

/// Ends the process, saying why: in the log, and on standard error in case nobody logs.
#[cold]
fn broken() -> ! {
    let why = "a thread of the store panicked";
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
    use regent_election::{Command, Group, Incarnation, Revision, Settings, StateBudget};

    use super::*;

    #[test]
    fn what_is_applied_is_known_before_it_is_answered() {
        let life = Incarnation(1);
        let (state, now) = (State::new(Settings::default()), regent_clock::now());
        let core = Core::new(state, life, now, StateBudget::whole(u64::MAX));
        let shared = Shared::new(core, Hub::new(life, Revision(0), Bounds::default()));
        let mut watch = shared.hub.subscribe(Scope::Prefix(String::new()), None, None);
        let group = Group::new("billing").unwrap();
        let answer = shared.enter(|core| {
            core.ask(Command::PutPolicy { group: group.clone(), policy: None }, None)?.answer?;
            Ok(core.ask(Command::Delete { group }, None)?.answer?)
        });
        answer.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(watch.poll_next(&mut context), Poll::Ready(Some(_))));
    }
}
