//! What others hold of a running replica: they ask it, look at it, and shut it down.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use regent_election::access::LiveAccess;
use regent_election::store::{StoreError, StoreResult};
use tokio::sync::oneshot;

use crate::core::{Role, Status};
use crate::disk::{Identity as Whose, Snapshots};
use crate::fitting::Tuned;
use crate::io::{Request, Response};
use crate::measure::Measures;
use crate::member::ReplicaId;
use crate::node::CoreMessage;
use crate::peers::Peers;
use crate::timing::Timing;
use crate::tuning::{Advice, Tune};

/// How long a shutting down leader waits for somebody to take over.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(2);

/// Speaks to a running replica; clones speak to the same.
#[derive(Clone)]
pub struct Handle {
    pub(crate) inbox: SyncSender<CoreMessage>,
    pub(crate) status: Arc<Mutex<Status>>,
    /// Who may do what, as far as it has applied.
    pub(crate) access: LiveAccess,
    pub(crate) peers: Arc<Peers>,
    pub(crate) threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
    pub(crate) is_stopping: Arc<AtomicBool>,
    /// Tells the core's thread to end. No message: that could be dropped where the inbox is full.
    pub(crate) must_end: Arc<AtomicBool>,
    pub(crate) whose: Whose,
    pub(crate) snapshots: Snapshots,
    pub(crate) is_witness: Arc<AtomicBool>,
    pub(crate) leader_changes: Arc<AtomicU64>,
    pub(crate) timing: Timing,
    pub(crate) tune: Tune,
    pub(crate) tuned: Arc<Tuned>,
    pub(crate) measures: Arc<Measures>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("peers", &self.peers).finish_non_exhaustive()
    }
}

fn stopped() -> StoreError {
    StoreError::Unavailable { why: "the replica is shutting down".into(), retry_after: None }
}

impl Handle {
    /// Asks the replica and awaits its answer.
    ///
    /// # Errors
    /// If the replica is stopping, or too many wait already.
    pub async fn ask(&self, request: Request) -> StoreResult<Response> {
        let (sender, answer) = oneshot::channel();
        match self.inbox.try_send(CoreMessage::Ask(request, Some(sender))) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(StoreError::Unavailable {
                    why: "too many requests wait".into(),
                    retry_after: Some(Duration::from_millis(100)),
                });
            }
            Err(TrySendError::Disconnected(_)) => return Err(stopped()),
        }
        // A replica that stops without an answer leaves the outcome open.
        answer.await.map_err(|_| StoreError::Uncertain { why: "the replica stopped".into() })
    }

    /// Asks for something whose answer nobody awaits.
    pub fn post(&self, request: Request) {
        let _ = self.inbox.try_send(CoreMessage::Ask(request, None));
    }

    /// The replica's condition, at most some turns old.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who may do what, as far as this replica has applied; whoever was told of a change finds it here. The core is not
    /// asked: strangers must not make it work.
    #[must_use]
    pub const fn access(&self) -> &LiveAccess {
        &self.access
    }

    /// Which replica of which cluster it is.
    #[must_use]
    pub const fn identity(&self) -> Whose {
        self.whose
    }

    /// Whether it votes and keeps the log but no state: it can answer nothing about elections.
    #[must_use]
    pub fn is_witness(&self) -> bool {
        self.is_witness.load(Ordering::Relaxed)
    }

    /// How often it has seen the leader of the log change since it started.
    #[must_use]
    pub fn leader_changes(&self) -> u64 {
        self.leader_changes.load(Ordering::Relaxed)
    }

    /// The snapshots on its disk.
    #[must_use]
    pub const fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// How long its work takes.
    #[must_use]
    pub fn measures(&self) -> &Measures {
        &self.measures
    }

    /// When the certificate of this replica's links ends, in seconds since 1970, if they have one.
    #[must_use]
    pub fn links_expire_at_s(&self) -> Option<u64> {
        self.peers.expires_at_s()
    }

    /// How often files of that certificate changed and could not be used.
    #[must_use]
    pub fn links_reload_failures(&self) -> u64 {
        self.peers.reload_failures()
    }

    /// The measured round trips to the peers that answer.
    #[must_use]
    pub fn round_trips(&self) -> std::collections::BTreeMap<ReplicaId, Duration> {
        self.peers.round_trips()
    }

    /// The peers whose links are alive, whoever leads: they answered a ping lately.
    #[must_use]
    pub fn connected(&self) -> std::collections::BTreeSet<ReplicaId> {
        self.peers.connected()
    }

    /// A warning if the network measured is too slow for this replica's timers.
    #[must_use]
    pub fn timing_warning(&self) -> Option<String> {
        timing_warning(self.timing(), &self.peers)
    }

    /// The timers that hold: those configured, or with more patience.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.tuned.timing(self.timing)
    }

    /// What is done about timers that do not suit the network.
    #[must_use]
    pub const fn tune(&self) -> Tune {
        self.tune
    }

    /// How the timers suit what was measured; none while too little was, or nobody wants to know.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        self.tuned.advice()
    }

    /// Hands Raft leadership over if there is somebody to take it, then stops.
    pub async fn shut_down(&self) {
        if self.is_stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        let status = self.status();
        if status.role == Role::Leader && status.voters.len() > 1 {
            let asked = self.ask(Request::Transfer { to: None }).await;
            if matches!(asked, Ok(Response::Done)) {
                self.await_successor().await;
            }
        }
        self.must_end.store(true, Ordering::SeqCst);
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a thread of the replica panicked");
                }
            }
        });
        let _ = joined.await;
        self.peers.close().await;
    }

    async fn await_successor(&self) {
        let until = tokio::time::Instant::now() + HAND_OVER_WITHIN;
        while self.status().role == Role::Leader && tokio::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// See [`Handle::timing_warning`].
pub(crate) fn timing_warning(timing: Timing, peers: &Peers) -> Option<String> {
    let slowest = peers.round_trips().into_values().max()?;
    timing.warning(u64::try_from(slowest.as_millis()).unwrap_or(u64::MAX))
}
