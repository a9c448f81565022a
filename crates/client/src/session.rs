//! One session of this process, as its handles see it: a way to the thread that keeps it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use regent_election::participant::Transition;
use regent_election::{Budget, Group, Metadata, Moment, Node, Priority};
use tokio::sync::{mpsc, oneshot, watch};

use crate::backend::{Backend, ObservedLeader};
use crate::driver::{ClaimId, Input, PermanentFailure};
use crate::known::Known;
use crate::tenure::Hold;
use crate::warming::WarmUp;

/// Reads the lease clock, or a simulated one.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> Moment + Send + Sync>);

impl Clock {
    pub(crate) fn new(now: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Moment {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// What the session's thread is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Something for the driver.
    Tell(Input),
    /// Somebody wants to lead and waits for it.
    Claim {
        claim: ClaimId,
        group: Group,
        priority: Priority,
        metadata: Metadata,
        waiter: Waiter,
    },
    /// Somebody wants to know who leads there, or does not any more.
    Observe(Group),
    Unobserve(Group),
    /// A watch saw something.
    Sighted(ObservedLeader),
    /// The store answered a campaign: it knows that this session stands there.
    Campaigned(Group),
    /// Somebody wants to hear every change of phase.
    Subscribe(mpsc::UnboundedSender<Transition>),
    /// What to do when the office of this group is offered.
    WarmUp(Group, WarmUp),
    /// Leave everything; the answer says whether the store knows.
    Leave(Option<oneshot::Sender<bool>>),
}

/// Somebody who waits to be elected.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) session: Arc<Session>,
    pub(crate) group: Group,
    /// Told once the store knows that it stands.
    pub(crate) stands: watch::Sender<bool>,
    pub(crate) reply: oneshot::Sender<Result<Hold, PermanentFailure>>,
}

/// One session. When the last handle of it goes, it is left and closed in the background.
pub(crate) struct Session {
    pub(crate) node: Node,
    pub(crate) budget: Budget,
    pub(crate) known: Arc<Known>,
    /// For reads by the application, on connections of its own.
    pub(crate) reads: Arc<dyn Backend>,
    commands: mpsc::UnboundedSender<Command>,
    clock: Clock,
    claims_made: AtomicU64,
}

impl Session {
    pub(crate) fn new(
        node: Node,
        budget: Budget,
        known: Arc<Known>,
        reads: Arc<dyn Backend>,
        commands: mpsc::UnboundedSender<Command>,
        clock: Clock,
    ) -> Self {
        Self { node, budget, known, reads, commands, clock, claims_made: AtomicU64::new(0) }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Tells the driver something. If its thread has ended, every term has ended with it.
    pub(crate) fn tell(&self, input: Input) {
        self.command(Command::Tell(input));
    }

    pub(crate) fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    pub(crate) fn next_claim(&self) -> ClaimId {
        ClaimId(self.claims_made.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.command(Command::Leave(None));
    }
}
