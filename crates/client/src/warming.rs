//! Getting warm: what an application does when the leader of a group offers it the office.
//!
//! The leader goes on leading meanwhile, so a warm-up may take its time: fill caches, open
//! connections, read a log. When it has ended, the store is told, and the leader drains and hands
//! over. Without a warm-up, a standby is warm at once.
//!
//! A warm-up runs on the application's runtime, never on the session's thread. It is dropped when the
//! offer is over: because it lapsed, or because this process leads already. One that panics is not
//! warm, and the leader's patience runs out.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use regent_election::{Group, NameError, Node, Term};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::driver::Input;
use crate::session::Command;

/// An office that its leader offers to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub group: Group,
    /// The leader's term. If this process takes over, its own is higher.
    pub term: Term,
    pub by: Node,
}

/// Why a warm-up cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// A name that no group can have.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Not called within a Tokio runtime.
    #[error("there is no Tokio runtime here to warm up on; set the warm-up within one")]
    NoRuntime,
}

type Warm = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is run when an office is offered, and where.
#[derive(Clone)]
pub(crate) struct WarmUp {
    run: Arc<dyn Fn(Offer) -> Warm + Send + Sync>,
    runtime: Handle,
}

impl WarmUp {
    pub(crate) fn new<F, Work>(warm_up: F) -> Result<Self, OfferError>
    where
        F: Fn(Offer) -> Work + Send + Sync + 'static,
        Work: Future<Output = ()> + Send + 'static,
    {
        let runtime = Handle::try_current().map_err(|_| OfferError::NoRuntime)?;
        Ok(Self { run: Arc::new(move |offer| Box::pin(warm_up(offer))), runtime })
    }
}

impl fmt::Debug for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WarmUp")
    }
}

/// The warm-ups of a session, and those that are under way.
#[derive(Debug, Default)]
pub(crate) struct Warming {
    warm_ups: BTreeMap<Group, WarmUp>,
    running: BTreeMap<Group, (Term, AbortHandle)>,
}

impl Warming {
    pub(crate) fn set(&mut self, group: Group, warm_up: WarmUp) {
        self.warm_ups.insert(group, warm_up);
    }

    /// Gets warm for an office; the session's thread is told when it is.
    pub(crate) fn begin(&mut self, offer: Offer, commands: mpsc::UnboundedSender<Command>) {
        let (group, term) = (offer.group.clone(), offer.term);
        self.end(&group);
        let warm = Command::Tell(Input::Warm { group: group.clone(), term });
        match self.warm_ups.get(&group) {
            Some(WarmUp { run, runtime }) => {
                let run = Arc::clone(run);
                let task = runtime.spawn(async move {
                    run(offer).await;
                    let _ = commands.send(warm);
                });
                self.running.insert(group, (term, task.abort_handle()));
            }
            None => {
                let _ = commands.send(warm);
            }
        }
    }

    /// The offer of this term is over.
    pub(crate) fn over(&mut self, group: &Group, term: Term) {
        if self.running.get(group).is_some_and(|(running, _)| *running == term) {
            self.end(group);
        }
    }

    fn end(&mut self, group: &Group) {
        if let Some((_, task)) = self.running.remove(group) {
            task.abort();
        }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        for (_, task) in self.running.values() {
            task.abort();
        }
    }
}
