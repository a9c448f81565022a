//! Health-gated leadership: who cannot do the job does not lead.
//!
//! A heartbeat says that a process lives, not that it works. A [`Check`] looks at what the work needs,
//! every so often; a gate turns a row of results into one verdict, with patience in both
//! directions, so that one bad look deposes nobody and one good look restores nobody. Unhealthy
//! candidates do not stand; an unhealthy leader's work is told to stop, and the office is given to
//! whoever is next.
//!
//! Checks run on the application's runtime: they are its code. One that does not answer in time has
//! failed, and so has one that panics. If the runtime itself hangs, the probe of the session's thread
//! notices that.

mod gate;
mod ready_made;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::driver::Input;
use crate::session::Session;

pub use gate::Thresholds;
use gate::{Gate, HealthVerdict};
pub use ready_made::{Beacon, Command, DiskSpace, Memory, PeerQuorum, Probe, Progress, Working};

/// How soon after the end of a session nobody looks any more.
const SESSION_LOOK_EVERY: Duration = Duration::from_secs(1);

/// What one look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// As it should be.
    Well,
    /// Not as it should be: what, for people.
    Ill(String),
}

/// Something that must be so for this process to lead.
#[async_trait]
pub trait Check: Send + Sync + 'static {
    /// What it looks at, for logs.
    fn name(&self) -> &str;

    /// Looks once.
    async fn look(&self) -> Finding;

    /// How often it looks, and how many results change its mind.
    fn thresholds(&self) -> Thresholds {
        Thresholds::default()
    }
}

/// The checks of a session.
#[derive(Clone, Default)]
pub(crate) struct Checks(pub(crate) Vec<Arc<dyn Check>>);

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|check| check.name())).finish()
    }
}

/// Looks at everything for as long as the session lives, and tells its thread when the verdict on the
/// whole changes. Before every check has looked once, nobody stands.
pub(crate) fn watch(checks: &Checks, session: &Arc<Session>) {
    if checks.0.is_empty() {
        return;
    }
    session.tell(Input::Health { is_healthy: false });
    let (sender, mut verdicts) = mpsc::unbounded_channel();
    let mut looking = JoinSet::new();
    for (number, check) in checks.0.iter().enumerate() {
        let (check, sender) = (Arc::clone(check), sender.clone());
        looking.spawn(look_for_ever(check, move |verdict| sender.send((number, verdict)).is_ok()));
    }
    let mut known = vec![HealthVerdict::Ill; checks.0.len()];
    let session = Arc::downgrade(session);
    tokio::spawn(async move {
        // Owned here: when the session is gone, nobody looks any more.
        let _looking = looking;
        let mut was_healthy = false;
        loop {
            let heard = tokio::time::timeout(SESSION_LOOK_EVERY, verdicts.recv()).await;
            let Some(session) = session.upgrade() else { return };
            let Ok(Some((number, verdict))) = heard else { continue };
            known[number] = verdict;
            let is_healthy = known.iter().all(|verdict| *verdict == HealthVerdict::Well);
            if std::mem::replace(&mut was_healthy, is_healthy) != is_healthy {
                session.tell(Input::Health { is_healthy });
            }
        }
    });
}

/// Looks once. A task of its own, so that a check that panics has failed and nothing else: whoever
/// stopped looking would believe the last verdict for ever.
async fn look_once(check: &Arc<dyn Check>, timeout: Duration) -> Finding {
    let check = Arc::clone(check);
    // Dropped, it ends the look: one that takes too long is not left behind.
    let mut looking = JoinSet::new();
    looking.spawn(async move { check.look().await });
    match tokio::time::timeout(timeout, looking.join_next()).await {
        Ok(Some(Ok(finding))) => finding,
        Ok(Some(Err(_)) | None) => Finding::Ill("the check itself panicked".to_owned()),
        Err(_) => Finding::Ill(format!("no answer within {} ms", timeout.as_millis())),
    }
}

/// Looks at one thing for ever; ends when nobody listens.
async fn look_for_ever(check: Arc<dyn Check>, tell: impl Fn(HealthVerdict) -> bool) {
    let thresholds = check.thresholds();
    let mut gate = Gate::new(thresholds);
    loop {
        let finding = look_once(&check, thresholds.timeout).await;
        if let Some(verdict) = gate.take(&finding) {
            match &finding {
                Finding::Well => tracing::info!(check = check.name(), "well again"),
                Finding::Ill(what) => {
                    tracing::warn!(check = check.name(), %what, "this process must not lead");
                }
            }
            if !tell(verdict) {
                return;
            }
        }
        tokio::time::sleep(thresholds.every.max(Duration::from_millis(1))).await;
    }
}
