//! A campaign: it is begun, waits if it may, and is answered when it is elected or cannot be any more.

use std::time::Duration;

use regent_election::limits::TTL_MS_DEFAULT;
use regent_election::state::{Candidacy, Query, View};
use regent_election::store::{
    Campaign, CampaignSession, Campaigned, Consistency, OfficeState, Scope, Store, StoreError,
    StoreResult, Watch,
};
use regent_election::{Answer, Command, Group, IfLost, Opening, SessionId, Term};
use tokio::time::{Instant, sleep_until};

use super::{ReplicaStore, misread};
use crate::io::Request;

/// Far enough away to mean "for ever" to a timer.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a waiting campaign looks whether it can still win, beside being woken by events.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// One campaign under way. Dropped before its end, a passing session is closed.
pub(super) struct Bid<'a> {
    store: &'a ReplicaStore,
    group: Group,
    session: SessionId,
    ttl_ms: u64,
    is_passing: bool,
    is_over: bool,
}

impl<'a> Bid<'a> {
    pub(super) async fn run(
        store: &'a ReplicaStore,
        campaign: Campaign,
    ) -> StoreResult<Campaigned> {
        let started_at = Instant::now();
        let (session, is_passing) = match campaign.session {
            CampaignSession::Own(session) => (session, false),
            CampaignSession::Passing(session) => (session, true),
        };
        let group = campaign.group.clone();
        let ttl_ms = campaign.ttl_ms.unwrap_or(TTL_MS_DEFAULT);
        let mut bid =
            Self { store, group: group.clone(), session, ttl_ms, is_passing, is_over: false };
        let wait = campaign.wait.unwrap_or_default();
        // Subscribed before the campaign, so that no promotion falls in between.
        let watch = (!wait.is_zero()).then(|| store.hub.subscribe(Scope::Group(group), None, None));
        let begun = bid.begin(campaign, watch.is_some()).await?;
        let answer = match (begun, watch) {
            (Begun::Over(elected, candidacy), _) => bid.over(elected, candidacy),
            (Begun::Standing(candidacy), None) => bid.over(None, candidacy),
            (Begun::Standing(_), Some(watch)) => {
                // Semantics 3: a passing session's wait ends well within its validity.
                let longest =
                    if is_passing { Duration::from_millis(bid.ttl_ms / 3) } else { WAIT_MAX };
                bid.wait(watch, started_at + wait.min(longest)).await?
            }
        };
        bid.is_over = true;
        Ok(answer)
    }

    async fn begin(&mut self, campaign: Campaign, waits: bool) -> StoreResult<Begun> {
        let if_lost = if self.is_passing && !waits { IfLost::Leave } else { IfLost::Stand };
        let opening =
            Opening { node: campaign.node, ttl_ms: campaign.ttl_ms, passing: self.is_passing };
        let command = Command::Campaign {
            group: campaign.group,
            session: self.session,
            opening: Some(opening),
            if_lost,
            priority: campaign.priority,
            metadata: campaign.metadata,
        };
        // Read in the moment after it was applied: one question, and one state in the answer.
        let query = self.candidacy();
        let done = self.store.submit(command, campaign.request, Some(query)).await?;
        let candidacy = match done.view {
            Some(View::Candidacy(candidacy)) => candidacy,
            other => return Err(StoreError::Corrupt(format!("{other:?}"))),
        };
        match done.answer {
            Answer::Elected { term, ttl_ms, .. } => {
                self.ttl_ms = ttl_ms;
                Ok(Begun::Over(Some(term), candidacy))
            }
            Answer::Standing { ttl_ms, .. } => {
                self.ttl_ms = ttl_ms;
                Ok(Begun::Standing(candidacy))
            }
            Answer::Lost => Ok(Begun::Over(None, candidacy)),
            Answer::Session { .. }
            | Answer::Done
            | Answer::Ending { .. }
            | Answer::Forced { .. }
            | Answer::Overtaken => Err(StoreError::Corrupt(format!("{:?}", done.answer))),
        }
    }

    /// Waits in line until elected, until the time is over, or until it can no longer win.
    async fn wait(&mut self, mut watch: impl Watch, over_at: Instant) -> StoreResult<Campaigned> {
        loop {
            let look_at = (Instant::now() + LOOK_EVERY).min(over_at);
            let is_shut_down = tokio::select! {
                biased;
                item = watch.next() => item.is_none(),
                () = sleep_until(look_at) => false,
            };
            let candidacy = self.look().await?;
            if let Some(term) = self.accept(&candidacy).await? {
                return Ok(self.over(Some(term), self.look().await?));
            }
            let is_late = Instant::now() >= over_at;
            if is_shut_down || is_late || !candidacy.is_standing {
                if self.is_passing {
                    self.store.close(self.session).await?;
                    // The close may have met a promotion on its way; it is resigned with the rest.
                }
                return Ok(self.over(None, self.look().await?));
            }
        }
    }

    fn candidacy(&self) -> Query {
        Query::Candidacy { group: self.group.clone(), session: self.session, ttl_ms: self.ttl_ms }
    }

    /// How the session stands as this replica knows it.
    async fn look(&self) -> StoreResult<Candidacy> {
        let query = self.candidacy();
        match self.store.read(query, Consistency::Stale).await? {
            View::Candidacy(candidacy) => Ok(candidacy),
            other => Err(misread(&other)),
        }
    }

    /// Takes the office to which this session was promoted, if it was. The acceptance is logged, so
    /// what this replica knew before does not matter.
    async fn accept(&self, candidacy: &Candidacy) -> StoreResult<Option<Term>> {
        if !candidacy.is_holder {
            return Ok(None);
        }
        let term = candidacy.office.term;
        match candidacy.office.state {
            OfficeState::Leading | OfficeState::Elected => {
                match self.store.accept(&self.group, self.session, term, None).await {
                    Ok(_) => Ok(Some(term)),
                    Err(StoreError::Refused(_)) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            OfficeState::Ending | OfficeState::Vacant | OfficeState::Delayed => Ok(None),
        }
    }

    /// The answer by what was read.
    fn over(&self, elected: Option<Term>, candidacy: Candidacy) -> Campaigned {
        let Candidacy { office, is_standing, ttl_ms, retry_ms, .. } = candidacy;
        let needs_retry = elected.is_none() && !is_standing;
        Campaigned {
            elected,
            standing: is_standing,
            office,
            session: ttl_ms.map(|_| self.session),
            ttl_ms: ttl_ms.unwrap_or(self.ttl_ms),
            retry_after: needs_retry.then(|| pause(retry_ms)),
        }
    }
}

/// When a loser tries again: anywhere within the policy's bounds, so that losers do not come back
/// together.
fn pause((min, max): (u64, u64)) -> Duration {
    let width = max.saturating_sub(min).saturating_add(1);
    // Without chance everybody waits the longest, which is safe and merely slow.
    let share = getrandom::u64().map_or(width - 1, |chance| chance % width);
    Duration::from_millis(min + share)
}

/// How a campaign began.
enum Begun {
    Over(Option<Term>, Candidacy),
    Standing(Candidacy),
}

impl Drop for Bid<'_> {
    /// Waits for nothing: the close is sent and takes its way.
    fn drop(&mut self) {
        if self.is_passing && !self.is_over {
            let command = Command::Close { session: self.session };
            self.store.handle.post(Request::Submit { command, request: None, query: None });
        }
    }
}
