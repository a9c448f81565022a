//! Campaign: win, stand, or wait in line while the request is open.
//!
//! A wait ends when the caller is promoted (its acceptance is then applied on its behalf before it
//! is told), when its time is over, or when it can no longer win. A campaign without a session of its
//! own leaves nothing behind, however its future ends: being dropped is an end like any other.

use std::sync::Arc;
use std::time::Duration;

use regent_election::limits::TTL_MS_DEFAULT;
use regent_election::store::{Campaign, CampaignSession, Campaigned, OfficeState, StoreResult};
use regent_election::{Answer, Command, Group, IfLost, Opening, SessionId, SessionNo, Term};
use tokio::time::{Instant, sleep_until};

use super::core::{Core, Phase};
use super::shared::Shared;
use super::waiting::Place;

/// Far enough away to mean "for ever" to a timer.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// One campaign under way. Dropped before its end, it leaves the line and closes a passing session.
struct Bid {
    shared: Arc<Shared>,
    group: Group,
    session: SessionId,
    /// What a loser's pause is measured by, if no session tells.
    ttl_ms: u64,
    is_passing: bool,
    place: Option<Place>,
    is_over: bool,
}

/// What a look at a waiting campaign found.
enum Progress {
    Over(Box<Campaigned>),
    Waiting,
}

pub(super) async fn campaign(shared: &Arc<Shared>, campaign: Campaign) -> StoreResult<Campaigned> {
    let started_at = Instant::now();
    let (session, is_passing) = match campaign.session {
        CampaignSession::Own(session) => (session, false),
        CampaignSession::Passing(session) => (session, true),
    };
    let mut bid = Bid {
        shared: Arc::clone(shared),
        group: campaign.group.clone(),
        session,
        ttl_ms: campaign.ttl_ms.unwrap_or(TTL_MS_DEFAULT),
        is_passing,
        place: None,
        is_over: false,
    };
    let wait = campaign.wait;
    let mut progress = shared.visit(|core| bid.begin(core, campaign)).await?;
    // Semantics 3: validity counts from the send, so a passing session's wait ends well within it.
    let longest = if is_passing { Duration::from_millis(bid.ttl_ms / 3) } else { WAIT_MAX };
    let over_at = started_at + wait.unwrap_or_default().min(longest);
    loop {
        match progress {
            Progress::Over(answer) => {
                bid.is_over = true;
                return Ok(*answer);
            }
            Progress::Waiting => {
                let is_late = bid.wait_until(over_at).await;
                progress = shared.visit(|core| bid.look(core, is_late)).await?;
            }
        }
    }
}

impl Bid {
    /// Sends the campaign.
    fn begin(&mut self, core: &mut Core, campaign: Campaign) -> StoreResult<Progress> {
        let waits = campaign.wait.is_some_and(|wait| !wait.is_zero());
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
        // Whoever campaigns is alive, and must not be passed over as silent by its own campaign.
        core.check_open()?;
        core.hear_of(self.session);
        let answer = core.ask(command, campaign.request)?.answer?;
        match answer {
            Answer::Elected { term, .. } => Ok(self.over(core, Some(term))),
            Answer::Standing { session, ttl_ms, .. } if waits => {
                self.ttl_ms = ttl_ms;
                self.place = Some(core.waiting.join(session, self.passing()));
                self.look(core, false)
            }
            Answer::Standing { .. } | Answer::Lost => Ok(self.over(core, None)),
            Answer::Session { .. }
            | Answer::Done
            | Answer::Ending { .. }
            | Answer::Forced { .. }
            | Answer::Overtaken => unreachable!("a campaign is never answered {answer:?}"),
        }
    }

    /// Whether the wait is over, as far as the state tells.
    fn look(&mut self, core: &mut Core, is_late: bool) -> StoreResult<Progress> {
        let Some(session) = core.state.find_session(self.session) else {
            return Ok(self.over(core, None));
        };
        if matches!(core.phase, Phase::Stopped { .. }) {
            return Ok(self.over(core, None));
        }
        if let Some(term) = self.accept(core, session) {
            return Ok(self.over(core, Some(term)));
        }
        let may_win = core.state.stands(&self.group, session);
        let is_over = is_late || !may_win || core.phase != Phase::Open;
        if is_over && self.is_passing {
            core.run(Command::Close { session: self.session }, None);
        }
        Ok(if is_over { self.over(core, None) } else { Progress::Waiting })
    }

    /// Takes the office to which this session was promoted, if it was.
    fn accept(&self, core: &mut Core, session: SessionNo) -> Option<Term> {
        let holder = core.state.holder(&self.group).filter(|holder| holder.session == session)?;
        match holder.state {
            OfficeState::Leading => Some(holder.term),
            OfficeState::Elected => {
                let command = Command::Accept {
                    group: self.group.clone(),
                    session: self.session,
                    term: holder.term,
                };
                core.run(command, None).answer.is_ok().then_some(holder.term)
            }
            OfficeState::Ending | OfficeState::Vacant | OfficeState::Delayed => None,
        }
    }

    /// The answer by the state as it is.
    fn over(&self, core: &Core, elected: Option<Term>) -> Progress {
        let open = core.state.find_session(self.session);
        let standing = open.is_some_and(|session| core.state.stands(&self.group, session));
        let ttl_ms = open.and_then(|no| core.state.ttl_ms(no)).unwrap_or(self.ttl_ms);
        let needs_retry = elected.is_none() && !standing;
        Progress::Over(Box::new(Campaigned {
            elected,
            standing,
            office: core.office(&self.group),
            session: open.map(|_| self.session),
            ttl_ms,
            retry_after: needs_retry.then(|| self.pause(core, ttl_ms)),
        }))
    }

    /// When a loser tries again: anywhere within the policy's bounds, so that losers do not come
    /// back together.
    fn pause(&self, core: &Core, ttl_ms: u64) -> Duration {
        let policy = core.state.policy(&self.group);
        let (min, max) = (policy.retry_ms_min, policy.retry_ms_max_for(ttl_ms));
        let width = max.saturating_sub(min).saturating_add(1);
        // Without chance everybody waits the longest, which is safe and merely slow.
        let share = getrandom::u64().map_or(width - 1, |chance| chance % width);
        Duration::from_millis(min + share)
    }

    /// Waits for the bell; true when the time is over.
    async fn wait_until(&self, over_at: Instant) -> bool {
        let Some(place) = &self.place else { return true };
        tokio::select! {
            biased;
            () = place.bell.notified() => false,
            () = sleep_until(over_at) => true,
        }
    }

    fn passing(&self) -> Option<SessionId> {
        self.is_passing.then_some(self.session)
    }
}

impl Drop for Bid {
    /// Never waits for the disk: what it applies is written in its turn.
    fn drop(&mut self) {
        if self.place.is_none() && (self.is_over || !self.is_passing) {
            return;
        }
        let (_, _ticket) = self.shared.enter(|core| {
            if let Some(place) = self.place.take() {
                core.waiting.leave(&place);
            }
            let is_abandoned = self.is_passing
                && !self.is_over
                && !matches!(core.phase, Phase::Stopped { .. })
                && core.state.find_session(self.session).is_some();
            if is_abandoned {
                core.run(Command::Close { session: self.session }, None);
            }
            Ok(())
        });
    }
}
