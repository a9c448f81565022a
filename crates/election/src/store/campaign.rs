//! A campaign above the port: it is submitted, waits if it may, and is answered when the caller is
//! elected or cannot be any more.
//!
//! A wait ends when the caller is promoted (its acceptance is then submitted on its behalf before the
//! answer), when its time is over, or when it can no longer win. A campaign without a session of its
//! own leaves nothing behind, however its future ends: being dropped is an end like any other.

use std::task::{Context, Waker};
use std::time::Duration;

use super::port::{Consistency, Scope, Store, StoreError, StoreResult, Watch};
use super::verbs::{odd, submit_and_read};
use super::views::{LeaderView, OfficeState};
use crate::command::{Command, IfLost, Opening};
use crate::limits::TTL_MS_DEFAULT;
use crate::moment::Moment;
use crate::name::{Group, Metadata, Node, RequestId, SessionId};
use crate::outcome::Answer;
use crate::policy::Priority;
use crate::state::{Candidacy, Question};
use crate::term::Term;
use crate::together::{First, first};

/// Far enough away to mean "for ever" to a timer.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a waiting campaign looks whether it can still win, beside being woken by its watch: a
/// withdrawal through another process is no change of the leader.
const CAMPAIGN_POLL_EVERY: Duration = Duration::from_millis(250);

/// A campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    pub group: Group,
    pub node: Node,
    /// The caller's session. With one of its own the loser stands until it withdraws; without, it
    /// leaves nothing behind.
    pub session: CampaignSession,
    /// The ttl; with an open session it must equal that session's.
    pub ttl_ms: Option<u64>,
    /// How long to wait in line for the answer.
    pub wait: Option<Duration>,
    /// Its claim in the line.
    pub priority: Priority,
    /// What it tells the world as leader.
    pub metadata: Metadata,
    /// Makes a repeat take effect once.
    pub request: Option<RequestId>,
}

/// Whose session a campaign uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CampaignSession {
    /// The caller's own, open or yet to be opened.
    Own(SessionId),
    /// One made for this campaign alone, under this fresh secret.
    Passing(SessionId),
}

/// What became of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaigned {
    /// Whether the caller leads, and under which term.
    pub elected: Option<Term>,
    /// Whether the caller stands in line after this answer.
    pub standing: bool,
    /// The office as it is.
    pub office: LeaderView,
    /// The caller's session, if one is open after this answer.
    pub session: Option<SessionId>,
    /// That session's ttl.
    pub ttl_ms: u64,
    /// When to try again, if neither elected nor standing.
    pub retry_after: Option<Duration>,
}

/// One campaign under way. Dropped before its end, it closes a passing session.
struct Bid<'a> {
    store: &'a dyn Store,
    group: Group,
    session: SessionId,
    ttl_ms: u64,
    is_passing: bool,
    is_over: bool,
}

/// How a campaign began.
enum Begun {
    Over(Option<Term>, Candidacy),
    Standing(Candidacy),
}

/// What woke a campaign that waits.
enum Woken {
    Looks,
    StoreShutsDown,
}

pub(super) async fn campaign(store: &dyn Store, campaign: Campaign) -> StoreResult<Campaigned> {
    let started_at = store.time().now();
    let (session, is_passing) = match campaign.session {
        CampaignSession::Own(session) => (session, false),
        CampaignSession::Passing(session) => (session, true),
    };
    let wait = campaign.wait.unwrap_or_default();
    let mut bid = Bid {
        store,
        group: campaign.group.clone(),
        session,
        ttl_ms: campaign.ttl_ms.unwrap_or(TTL_MS_DEFAULT),
        is_passing,
        is_over: false,
    };
    let begun = bid.begin(campaign, !wait.is_zero()).await;
    // A definite no opened nothing that would have to be closed.
    bid.is_over = matches!(begun, Err(StoreError::Refused(_)));
    let answer = match begun? {
        Begun::Over(elected, candidacy) => Ok(bid.over(elected, candidacy)),
        Begun::Standing(candidacy) if wait.is_zero() => Ok(bid.over(None, candidacy)),
        Begun::Standing(candidacy) => {
            // Semantics 3: validity counts from the send, so a passing session's wait ends well within it.
            let longest = if is_passing { Duration::from_millis(bid.ttl_ms / 3) } else { WAIT_MAX };
            bid.wait(candidacy, started_at + wait.min(longest)).await
        }
    };
    // The candidacy is applied: whatever fails from here on, something has happened.
    let answer = answer.map_err(StoreError::half_done)?;
    bid.is_over = true;
    Ok(answer)
}

impl Bid<'_> {
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
        let (answer, candidacy) =
            submit_and_read(self.store, command, campaign.request, self.question()).await?;
        match answer {
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
            | Answer::Overtaken => Err(odd("a campaign", &answer)),
        }
    }

    /// Waits in line until elected, until the time is over, or until it can no longer win.
    async fn wait(&mut self, begun: Candidacy, over_at: Moment) -> StoreResult<Campaigned> {
        let began = begun.office.revision;
        let mut known = begun;
        // A promotion before this is seen by the first look, a later one rings.
        let mut watch = self.store.watch(Scope::Turn(self.group.clone()), None).await?;
        loop {
            let seen = self.store.ask(self.question(), Consistency::Stale).await?;
            // What is older than the campaign itself tells nothing.
            if seen.office.revision >= began {
                if let Some(elected) = self.accept(&seen).await? {
                    return Ok(elected);
                }
                let may_win = seen.is_standing || is_promoted(&seen);
                known = seen;
                if !may_win {
                    return self.lose(known).await;
                }
            }
            let left = self.store.time().now().until(over_at);
            if left.is_zero() {
                return self.lose(known).await;
            }
            match self.sleep(&mut *watch, left.min(CAMPAIGN_POLL_EVERY)).await {
                Woken::Looks => {}
                Woken::StoreShutsDown => return Ok(self.leave(known)),
            }
        }
    }

    async fn sleep(&self, watch: &mut dyn Watch, at_most: Duration) -> Woken {
        match first(watch.next(), self.store.time().sleep(at_most)).await {
            First::Left(None) => Woken::StoreShutsDown,
            First::Left(Some(_)) | First::Right(()) => Woken::Looks,
        }
    }

    /// How does the session stand in the group?
    fn question(&self) -> Question<Candidacy> {
        Question::candidacy(self.group.clone(), self.session, self.ttl_ms)
    }

    /// Takes the office to which this session was promoted, if it was. The acceptance is applied, so
    /// how stale the look was does not matter.
    async fn accept(&self, seen: &Candidacy) -> StoreResult<Option<Campaigned>> {
        if !is_promoted(seen) {
            return Ok(None);
        }
        let (group, session, term) = (self.group.clone(), self.session, seen.office.term);
        let command = Command::Accept { group, session, term };
        match submit_and_read(self.store, command, None, self.question()).await {
            Ok((_, candidacy)) => Ok(Some(self.over(Some(term), candidacy))),
            // It came too late: the next look tells what became of it.
            Err(StoreError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The answer of one who did not win. A passing session is closed first; a promotion that met the
    /// close on its way is resigned with the rest.
    async fn lose(&mut self, known: Candidacy) -> StoreResult<Campaigned> {
        if !self.is_passing {
            return Ok(self.over(None, known));
        }
        let command = Command::Close { session: self.session };
        let (_, candidacy) = submit_and_read(self.store, command, None, self.question()).await?;
        Ok(self.over(None, candidacy))
    }

    /// The answer when the store shuts down, by what was known last.
    fn leave(&mut self, known: Candidacy) -> Campaigned {
        if !self.is_passing {
            return self.over(None, known);
        }
        self.close();
        self.over(None, Candidacy { is_standing: false, is_holder: false, ttl_ms: None, ..known })
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
            retry_after: needs_retry.then(|| self.pause(retry_ms)),
        }
    }

    /// When a loser tries again: anywhere within the policy's bounds, so that losers do not come back
    /// together.
    fn pause(&self, (min, max): (u64, u64)) -> Duration {
        let width = u128::from(max.saturating_sub(min).saturating_add(1));
        let share = u64::try_from(self.store.time().chance() % width).unwrap_or_default();
        Duration::from_millis(min + share)
    }

    /// Closes a passing session without waiting: the port promises that a close which was polled once
    /// takes its way.
    fn close(&self) {
        let command = Command::Close { session: self.session };
        let mut closing = self.store.submit(command, None, None);
        let _ = closing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// Whether the session has an office that it may accept.
const fn is_promoted(seen: &Candidacy) -> bool {
    seen.is_holder && matches!(seen.office.state, OfficeState::Leading | OfficeState::Elected)
}

impl Drop for Bid<'_> {
    fn drop(&mut self) {
        if self.is_passing && !self.is_over {
            self.close();
        }
    }
}
