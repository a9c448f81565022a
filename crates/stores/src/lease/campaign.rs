//! Campaign: win, stand, or wait in line while the request is open.
//!
//! A wait ends when the caller is promoted (its acceptance is then written on its behalf before it is
//! told), when its time is over, or when it can no longer win. A campaign without a session of its own
//! leaves nothing behind, however its future ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use regent_election::limits::TTL_MS_DEFAULT;
use regent_election::store::{Campaign, CampaignSession, Campaigned, OfficeState, StoreResult};
use regent_election::{
    Answer, Command, Group, IfLost, Moment, Opening, Refusal, Revision, SessionId, Term,
};

use super::Shared;
use super::desk::Seen;
use super::hearing::{check_same, check_ttl};
use super::keeper::For;
use super::office::{Outcome, Own};
use super::record::GroupRecord;
use super::session::digest;
use super::store::half_done;
use super::turn::{Asker, Wish};

/// Far enough away to mean "for ever" to a timer.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// One campaign under way. Dropped before its end, it closes a passing session.
struct Bid {
    shared: Arc<Shared>,
    group: Group,
    /// As the caller knows it.
    secret: SessionId,
    /// As the store knows it.
    session: SessionId,
    ttl_ms: u64,
    is_passing: bool,
    is_over: bool,
}

pub(super) async fn campaign(shared: &Arc<Shared>, campaign: Campaign) -> StoreResult<Campaigned> {
    let started_at = shared.desk.now();
    let (secret, is_passing) = match campaign.session {
        CampaignSession::Own(session) => (session, false),
        CampaignSession::Passing(session) => (session, true),
    };
    let wait = campaign.wait.unwrap_or_default();
    let mut bid = Bid {
        shared: Arc::clone(shared),
        group: campaign.group.clone(),
        secret,
        session: SessionId::new(digest(secret.get())).map_err(|_| Refusal::SessionUnknown)?,
        ttl_ms: campaign.ttl_ms.unwrap_or(TTL_MS_DEFAULT),
        is_passing,
        is_over: !is_passing,
    };
    let outcome = bid.begin(campaign, !wait.is_zero()).await?;
    let elected = outcome.answer.elected();
    let stands = matches!(outcome.answer, Answer::Standing { .. });
    let answer = if elected.is_some() || !stands {
        bid.over(&outcome.record, elected).await
    } else {
        shared.follow_for(&bid.group, bid.session.get());
        // Semantics 3: validity counts from the send, so a passing session's wait ends within it.
        let longest = if is_passing { Duration::from_millis(bid.ttl_ms / 3) } else { WAIT_MAX };
        bid.wait(outcome, started_at + wait.min(longest)).await
    };
    // The candidacy is written: whatever fails from here on, something has happened.
    let answer = answer.map_err(half_done)?;
    bid.is_over = true;
    Ok(answer)
}

impl Bid {
    /// Sends the campaign.
    async fn begin(&mut self, campaign: Campaign, waits: bool) -> StoreResult<Outcome> {
        let (record, _) = self.shared.desk.look(self.session.get()).await?;
        let mut opening =
            Opening { node: campaign.node, ttl_ms: campaign.ttl_ms, passing: self.is_passing };
        match record.as_ref().map(|record| record.as_open()) {
            None => check_ttl(self.ttl_ms)?,
            Some(None) => return Err(Refusal::SessionUnknown.into()),
            Some(Some(open)) => {
                check_same(open, Some(&opening))?;
                self.ttl_ms = open.ttl_ms;
                opening.passing = open.passing;
            }
        }
        opening.ttl_ms = Some(self.ttl_ms);
        let if_lost = if self.is_passing && !waits { IfLost::Leave } else { IfLost::Stand };
        let command = Command::Campaign {
            group: campaign.group,
            session: self.session,
            opening: Some(opening.clone()),
            if_lost,
            priority: campaign.priority,
            metadata: campaign.metadata,
        };
        let asker =
            Asker { session: self.session, node: opening.node.clone(), ttl_ms: self.ttl_ms };
        let wish = Wish { command, request: campaign.request, asker: Some(asker) };
        let own = Own::Touch { session: self.session.get(), opening };
        self.shared.run(&self.group, Some(wish), &[], own).await
    }

    /// Waits in line.
    async fn wait(&mut self, outcome: Outcome, over_at: Moment) -> StoreResult<Campaigned> {
        let began = outcome.record.state.revision();
        if self.shared.desk.now() >= over_at {
            return self.lose(&outcome.record).await;
        }
        let _waiting = Waiting::new(&self.shared);
        let following = self.shared.follow(&self.group, For::Bid);
        loop {
            let mut read = pin!(following.feed.read());
            read.as_mut().enable();
            if let Some(seen) = fresh(following.feed.latest(), began)
                && let Some(answer) = self.decided(&seen).await?
            {
                return Ok(answer);
            }
            let left = self.shared.desk.now().until(over_at);
            let is_late = tokio::select! {
                biased;
                () = self.shared.closed() => true,
                () = read => false,
                () = self.shared.desk.time.sleep(left) => true,
            };
            if is_late {
                let seen = self.shared.desk.load(&self.group).await?;
                if let Some(answer) = self.decided(&seen).await? {
                    return Ok(answer);
                }
                return self.lose(&seen.record).await;
            }
        }
    }

    /// The answer, if what was read decides it.
    async fn decided(&mut self, seen: &Seen) -> StoreResult<Option<Campaigned>> {
        let state = &seen.record.state;
        let session = state.find_session(self.session);
        let holder = state.holder(&self.group).filter(|holder| Some(holder.session) == session);
        match holder.map(|holder| (holder.state, holder.term)) {
            Some((OfficeState::Leading, term)) => {
                return self.over(&seen.record, Some(term)).await.map(Some);
            }
            Some((OfficeState::Elected, term)) => {
                let command =
                    Command::Accept { group: self.group.clone(), session: self.session, term };
                let wish = Wish { command, request: None, asker: None };
                return match self.shared.run(&self.group, Some(wish), &[], Own::Nothing).await {
                    Ok(outcome) => self.over(&outcome.record, Some(term)).await.map(Some),
                    // It came too late: somebody else has been given the office.
                    Err(regent_election::store::StoreError::Refused(_)) => Ok(None),
                    Err(error) => Err(error),
                };
            }
            Some((OfficeState::Ending | OfficeState::Vacant | OfficeState::Delayed, _)) | None => {}
        }
        let may_win = session.is_some_and(|session| state.stands(&self.group, session));
        if may_win {
            return Ok(None);
        }
        self.lose(&seen.record).await.map(Some)
    }

    /// The answer of one who did not win. A passing session leaves nothing behind.
    async fn lose(&mut self, record: &GroupRecord) -> StoreResult<Campaigned> {
        if !self.is_passing {
            return self.over(record, None).await;
        }
        self.is_over = true;
        let left = vanish(&self.shared, &self.group, self.session).await?;
        self.over(&left, None).await
    }

    /// The answer by the group as it is.
    async fn over(&self, record: &GroupRecord, elected: Option<Term>) -> StoreResult<Campaigned> {
        let state = &record.state;
        let open = state.find_session(self.session);
        let standing = open.is_some_and(|session| state.stands(&self.group, session));
        let has_session = !self.is_passing || elected.is_some() || standing;
        let needs_retry = elected.is_none() && !standing;
        Ok(Campaigned {
            elected,
            standing,
            office: self.shared.view(&self.group, record).await?,
            session: has_session.then_some(self.secret),
            ttl_ms: self.ttl_ms,
            retry_after: needs_retry.then(|| self.pause(record)),
        })
    }

    /// When a loser tries again: anywhere within the policy's bounds, so that losers do not come back
    /// together.
    fn pause(&self, record: &GroupRecord) -> Duration {
        let policy = record.state.policy(&self.group);
        let (min, max) = (policy.retry_ms_min, policy.retry_ms_max_for(self.ttl_ms));
        let width = u128::from(max.saturating_sub(min).saturating_add(1));
        let share = u64::try_from(self.shared.desk.time.chance() % width).unwrap_or_default();
        Duration::from_millis(min + share)
    }
}

/// What was read, if it is no older than the campaign.
fn fresh(seen: Option<Arc<Seen>>, began: Revision) -> Option<Arc<Seen>> {
    seen.filter(|seen| seen.record.state.revision() >= began)
}

/// Ends a passing session and takes it out of its group.
async fn vanish(
    shared: &Arc<Shared>,
    group: &Group,
    session: SessionId,
) -> StoreResult<GroupRecord> {
    shared.end(session.get()).await?;
    let wish = Wish { command: Command::Close { session }, request: None, asker: None };
    Ok(shared.run(group, Some(wish), &[], Own::Nothing).await?.record)
}

impl Drop for Bid {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (shared, group, session) = (Arc::clone(&self.shared), self.group.clone(), self.session);
        // Outside of a runtime nobody can write; the session then expires by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = vanish(&shared, &group, session).await {
                    tracing::debug!(%error, "an abandoned session will expire by itself");
                }
            });
        }
    }
}

/// Counts a campaign that waits, so that shutting down waits for it.
struct Waiting(Arc<Shared>);

impl Waiting {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.waiters.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::AcqRel);
    }
}
