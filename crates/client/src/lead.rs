//! Level 1: run something while leading, and nothing while not.

use std::future::Future;

use tracing::Instrument;

use crate::error::CampaignError;
use crate::leadership::{Guarded, Leadership, Patience};
use crate::regent::{Campaign, Regent, ToGroup};

impl Regent {
    /// Runs `work` whenever this process leads `group`, for ever; returns only if it never can.
    ///
    /// - `work` is polled only while the lease runs: after a pause longer than the lease it does not
    ///   go on, it is dropped.
    /// - When the term must end, work that awaits [`Leadership::lost`] has the rest of the lease to
    ///   clean up; work that does not is dropped at once.
    /// - What it started with [`Leadership::spawn`], and every clone and permit it gave away, is
    ///   awaited before the term is given up and before the next one begins.
    /// - When `work` returns, the term is resigned, and the next campaign begins.
    ///
    /// Dropping the future gives up what is held, in the background.
    pub async fn lead<F, W>(&self, group: impl ToGroup, work: F) -> CampaignError
    where
        F: FnMut(Leadership) -> W,
        W: Future<Output = ()>,
    {
        self.campaign(group).lead(work).await
    }
}

impl Campaign {
    /// The same as [`Regent::lead`], with this campaign's priority and metadata.
    pub async fn lead<F, W>(self, mut work: F) -> CampaignError
    where
        F: FnMut(Leadership) -> W,
        W: Future<Output = ()>,
    {
        loop {
            let leadership = match self.clone().await {
                Ok(leadership) => leadership,
                Err(
                    refusal @ (CampaignError::Refused(_)
                    | CampaignError::CannotFollow { .. }
                    | CampaignError::TermNotAbove { .. }),
                ) => {
                    // An operator may allow tomorrow what is refused today.
                    tracing::warn!(%refusal, "cannot stand; trying again after a ttl");
                    tokio::time::sleep(self.ttl()).await;
                    continue;
                }
                Err(
                    error @ (CampaignError::Name(_)
                    | CampaignError::TooManyGroups
                    | CampaignError::Closed),
                ) => return error,
            };
            // A handle of its own: work that ignores its leadership still works under it.
            let own = leadership.clone();
            let (group, node, term) = (own.group(), own.node(), own.term());
            let span = tracing::info_span!("lead", %group, %node, %term);
            let work = work(leadership).instrument(span);
            // The work is dropped with the end of this statement, before the term is given up.
            let _ = Guarded::new(own.hold(), Patience::IfListening, work).await;
            own.give_up();
        }
    }
}
