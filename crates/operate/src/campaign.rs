//! A candidate over HTTP, one request at a time: what `regent campaign` does without `--keep`.
//!
//! A wait is sent in slices of a third of the ttl. Each slice is a heartbeat, so the session outlives any
//! wait, and an answer is never older than its lease by much. An answer that did come too late is refused
//! here: its lease may be over already.

use std::time::Duration;

use regent::remote::{Remote, RemoteError};
use regent_api::limits::WAIT_MS_MAX;
use regent_api::{CampaignRequest, CampaignResponse, HeartbeatResponse, RenewRequest};
use regent_clock::now;
use regent_election::timing::{Budget, Drift};
use regent_election::{Group, SessionId};
use serde::Serialize;

use crate::unknown_group::explained;

/// Pause before a campaign that was answered early, or not at all, is sent again.
const PAUSE: Duration = Duration::from_millis(200);

/// An answer about a lease, for programs, with how long the lease is safe from when this is printed.
#[derive(Debug, Serialize)]
pub struct SafeAnswer<'a, A> {
    #[serde(flatten)]
    answer: &'a A,
    /// Count from here, and do nothing in the name of the term after it. Absent without a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    safe_for_ms: Option<u64>,
}

impl<'a, A> SafeAnswer<'a, A> {
    /// This answer; `left` is zero if it grants nothing.
    #[must_use]
    pub fn new(answer: &'a A, left: Duration) -> Self {
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Self { answer, safe_for_ms: (left_ms > 0).then_some(left_ms) }
    }
}

/// What became of a campaign.
#[derive(Clone, Debug)]
pub struct CampaignOutcome {
    /// What the server answered.
    pub answer: CampaignResponse,
    /// How long the lease is safe on this machine's clock, if the candidate was elected.
    pub left: Duration,
}

/// What happens while a candidate waits; none of it ends the wait.
#[derive(Debug)]
pub enum CampaignProgress<'a> {
    /// The campaign is sent again after this.
    Retries(&'a RemoteError),
    /// The candidate was elected, and its lease could not be renewed at once: renew soon.
    NotRenewed(&'a RemoteError),
}

/// Why a campaign has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum StandError {
    /// The server refused it, or could not be asked in time.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The lease was granted, but may be over: this process slept, or the answer did.
    #[error("the answer took {took:?}, and the lease was safe for {valid_for:?}")]
    TooLate {
        /// From the request to its answer.
        took: Duration,
        /// From the request to the end of what is safe.
        valid_for: Duration,
    },
}

/// Sends one request, and judges whether its answer came in time.
///
/// # Errors
/// See [`StandError`].
pub async fn campaign_once(
    remote: &Remote,
    group: &Group,
    request: &CampaignRequest,
) -> Result<CampaignOutcome, StandError> {
    let sent_at = now();
    let answer = remote.campaign(group, request).await?;
    let left = safe_for(answer.elected, answer.ttl_ms, now().since(sent_at))?;
    Ok(CampaignOutcome { answer, left })
}

/// Campaigns with this session until it is elected or the wait is over.
///
/// The first request does not wait: its answer tells the ttl of a session that was open before, and with it
/// how long a slice may be. A request that may or may not have arrived is repeated: the same session
/// campaigning again is the same candidate.
///
/// # Errors
/// See [`StandError`].
pub async fn stand(
    remote: &Remote,
    group: &Group,
    request: CampaignRequest,
    session: SessionId,
    wait: Duration,
    report: &mut (dyn FnMut(CampaignProgress<'_>) + Send),
) -> Result<CampaignOutcome, StandError> {
    let mut request = CampaignRequest { session_id: Some(session), ..request };
    let until = now() + wait;
    loop {
        let sent_at = now();
        let failure = match remote.campaign(group, &request).await {
            Ok(answer) => {
                let answered_at = now();
                if answer.elected || answered_at >= until {
                    let left = safe_for(answer.elected, answer.ttl_ms, now().since(sent_at))?;
                    let outcome = CampaignOutcome { answer, left };
                    return refresh(remote, session, outcome, report).await;
                }
                let slice_ms = (answer.ttl_ms / 3).min(WAIT_MS_MAX);
                let asked_for = Duration::from_millis(request.wait_ms.unwrap_or(0));
                let is_early = answered_at < sent_at + asked_for;
                let left_ms = u64::try_from(answered_at.until(until).as_millis());
                request.wait_ms = Some(slice_ms.min(left_ms.unwrap_or(u64::MAX)).max(1));
                if !is_early {
                    continue;
                }
                None
            }
            Err(error @ (RemoteError::Unavailable { .. } | RemoteError::Uncertain { .. })) => {
                Some(error)
            }
            Err(error) => return Err(error.into()),
        };
        let pause = failure.as_ref().and_then(RemoteError::retry_after).unwrap_or(PAUSE);
        if let Some(error) = failure {
            if now() + pause >= until {
                return Err(error.into());
            }
            report(CampaignProgress::Retries(&error));
        }
        tokio::time::sleep(pause).await;
    }
}

/// Renews once; gives the answer and how long the lease is safe from here.
///
/// # Errors
/// See [`StandError`].
pub async fn renew(
    remote: &Remote,
    group: &Group,
    request: &RenewRequest,
) -> Result<(HeartbeatResponse, Duration), StandError> {
    let sent_at = now();
    let heard = explained(remote, group, remote.renew(group, request).await).await?;
    let left = safe_for(true, heard.ttl_ms, now().since(sent_at))?;
    Ok((heard, left))
}

/// How long a lease is safe, counted from the send.
fn safe_for(elected: bool, ttl_ms: u64, took: Duration) -> Result<Duration, StandError> {
    if !elected {
        return Ok(Duration::ZERO);
    }
    let valid_for = valid_for(ttl_ms);
    if took < valid_for {
        return Ok(valid_for - took);
    }
    Err(StandError::TooLate { took, valid_for })
}

/// Renews a lease that was won late in a wait, since being elected adds no time to it. A renewal that
/// fails leaves what is left, unless it is refused.
async fn refresh(
    remote: &Remote,
    session_id: SessionId,
    outcome: CampaignOutcome,
    report: &mut (dyn FnMut(CampaignProgress<'_>) + Send),
) -> Result<CampaignOutcome, StandError> {
    let CampaignOutcome { answer, left } = outcome;
    if !answer.elected || left * 10 > valid_for(answer.ttl_ms) * 9 {
        return Ok(CampaignOutcome { answer, left });
    }
    let request = RenewRequest { session_id, term: answer.office.term, extend_by_ms: None };
    let sent_at = now();
    let left = match remote.renew(&answer.office.group, &request).await {
        Ok(heard) => safe_for(true, heard.ttl_ms, now().since(sent_at))?,
        Err(error @ RemoteError::Refused(_)) => return Err(error.into()),
        Err(error) => {
            report(CampaignProgress::NotRenewed(&error));
            left.saturating_sub(now().since(sent_at))
        }
    };
    Ok(CampaignOutcome { answer, left })
}

/// What is safe of a ttl on this machine's clock, counted from the send.
fn valid_for(ttl_ms: u64) -> Duration {
    Drift::from_ppm(regent_clock::drift_ppm())
        .and_then(|drift| Budget::new(ttl_ms, drift))
        .map_or(Duration::ZERO, |budget| budget.valid_for())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_believed_as_long_as_its_lease_is_safe() {
        let (ttl_ms, second) = (10_000, Duration::from_secs(1));
        let whole = safe_for(true, ttl_ms, Duration::ZERO).unwrap();
        assert!(whole < Duration::from_millis(ttl_ms), "drift and stop are taken off: {whole:?}");
        assert_eq!(safe_for(true, ttl_ms, second).unwrap(), whole - second);
        let late = safe_for(true, ttl_ms, whole);
        assert!(matches!(late, Err(StandError::TooLate { valid_for, .. }) if valid_for == whole));
        assert_eq!(safe_for(false, ttl_ms, whole).unwrap(), Duration::ZERO, "it lost, at any age");
        assert!(safe_for(true, 0, Duration::ZERO).is_err(), "no ttl is no lease");
    }
}
