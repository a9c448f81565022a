//! Requests that are repeated until their outcome is known.

use std::time::Duration;

use regent::fresh::NoRandomness;
use regent::remote::{Remote, RemoteError, RemoteResult};
use regent_api::{Code, Consistency, Done};
use regent_election::{Group, RequestId};
use tokio::time::{sleep, timeout};

use crate::unknown_group::explained;

/// How often a request with an uncertain outcome is repeated.
const REPEATS_MAX: u32 = 3;

/// How soon the cluster is asked again while its lead moves.
const LEAD_MOVES_WITHIN: Duration = Duration::from_millis(250);

/// Why something that was to be done once was not, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// The server refused it, could not be asked, or its outcome stayed uncertain.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// There is no random number for the id of the request.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// Does something exactly once: the request has an id, and is repeated under the same id while its outcome
/// is uncertain.
///
/// A fresh process has seen no revision, and a store that has forgotten its oldest ids refuses one that was
/// made before them, so the group is read first.
///
/// # Errors
/// Whatever the last attempt ended with.
pub async fn exactly_once<A>(
    remote: &Remote,
    group: &Group,
    ask: impl AsyncFn(RequestId) -> RemoteResult<A>,
) -> Result<A, OnceError> {
    remote.leader(group, Consistency::Linearizable).await?;
    let request = remote.request_id()?;
    let mut repeats = 0;
    loop {
        match ask(request.clone()).await {
            Err(RemoteError::Uncertain { why, .. }) if repeats < REPEATS_MAX => {
                tracing::debug!(%why, "repeating under the same request id");
                repeats += 1;
            }
            ended => return Ok(explained(remote, group, ended).await?),
        }
    }
}

/// Gives up something that the caller's own session holds, exactly once.
///
/// With a credential that is over, or without a right, nothing can be read any more and so no request be named; giving up
/// is allowed all the same. It is then asked once and without an id: what is given up twice is given up once.
///
/// # Errors
/// Whatever the last attempt ended with.
pub async fn given_up_once<A>(
    remote: &Remote,
    group: &Group,
    ask: impl AsyncFn(Option<RequestId>) -> RemoteResult<A>,
) -> Result<A, OnceError> {
    let is_shut_out = |error: &RemoteError| {
        let code = error.problem().map(|problem| problem.code);
        matches!(code, Some(Code::CredentialOver | Code::Forbidden))
    };
    match remote.leader(group, Consistency::Linearizable).await {
        Err(error) if is_shut_out(&error) => Ok(ask(None).await?),
        Ok(_) | Err(_) => exactly_once(remote, group, async |id| ask(Some(id)).await).await,
    }
}

/// Asks until it is done or refused. "Not at the moment" is a definite no, so asking again is safe: a
/// learner catches up, and a log without a leader soon has one.
///
/// # Errors
/// Whatever the last attempt ended with. When the time is over it is made once more, because what it waited
/// for, and not that it waited, is what an operator wants to know.
pub async fn until_ready<T>(
    limit: Duration,
    ask: impl AsyncFn() -> RemoteResult<T>,
) -> RemoteResult<T> {
    let asked = async {
        loop {
            match ask().await {
                Err(RemoteError::Unavailable { retry_after: Some(pause), why, .. }) => {
                    tracing::debug!(%why, "not yet");
                    sleep(pause).await;
                }
                ended => return ended,
            }
        }
    };
    match timeout(limit, asked).await {
        Ok(ended) => ended,
        Err(_) => ask().await,
    }
}

/// Changes the cluster until it is changed or refused, whoever leads the log meanwhile.
///
/// The lead may move while it is asked: then another replica leads, or none for a moment, or the outcome is uncertain
/// because the one that took the change leads no more. All of that passes, so it is asked again. Before a change whose
/// outcome is uncertain is asked for again, `is_done` looks: made twice, it would be refused as made already.
///
/// # Errors
/// The refusal; or when the time is over, what it waited for.
pub async fn until_changed(
    limit: Duration,
    ask: impl AsyncFn() -> RemoteResult<Done>,
    is_done: impl AsyncFn() -> RemoteResult<bool>,
) -> RemoteResult<Done> {
    let mut last = None;
    let asked = async {
        let (mut has_answered, mut must_look) = (false, false);
        loop {
            if must_look && is_done().await == Ok(true) {
                return Ok(Done::YES);
            }
            let error = match ask().await {
                Ok(done) => return Ok(done),
                // Its outcome is known by now: it was done, and is refused as done already.
                Err(error @ RemoteError::Refused(_)) if must_look => match is_done().await {
                    Ok(true) => return Ok(Done::YES),
                    Ok(false) | Err(_) => error,
                },
                Err(error) => error,
            };
            let has_moved = error.code() == Some(Code::OtherReplicaLeads);
            let pause = match &error {
                RemoteError::Unavailable { retry_after: Some(pause), .. } => *pause,
                // Who cannot be reached at all is not waited for, but who went away while the lead moved is.
                RemoteError::Unavailable { retry_after: None, .. } if has_answered => {
                    LEAD_MOVES_WITHIN
                }
                RemoteError::Refused(_) if has_moved => LEAD_MOVES_WITHIN,
                RemoteError::Uncertain { .. } => {
                    must_look = true;
                    LEAD_MOVES_WITHIN
                }
                RemoteError::Unavailable { .. }
                | RemoteError::Refused(_)
                | RemoteError::Protocol { .. } => return Err(error),
            };
            has_answered |= error.problem().is_some() || must_look;
            tracing::debug!(why = %error, "not yet");
            last = Some(error);
            sleep(pause).await;
        }
    };
    match timeout(limit, asked).await {
        Ok(ended) => ended,
        Err(_) => match last {
            Some(error) => Err(error),
            None => ask().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use regent_api::Problem;

    use super::*;

    fn not_yet() -> RemoteError {
        let retry_after = Some(Duration::from_millis(1));
        RemoteError::Unavailable { why: "it catches up".into(), retry_after, problem: None }
    }

    #[tokio::test]
    async fn not_yet_is_asked_again_and_a_refusal_is_not() {
        let asked = Cell::new(0);
        let third = async || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 { Err(not_yet()) } else { Ok(asked.get()) }
        };
        assert_eq!(until_ready(Duration::from_secs(60), third).await.unwrap(), 3);
        let asked = Cell::new(0);
        let broken = async || {
            asked.set(asked.get() + 1);
            Err::<(), _>(RemoteError::Protocol { why: "no Regent".into() })
        };
        assert!(until_ready(Duration::from_secs(60), broken).await.is_err());
        assert_eq!(asked.get(), 1);
    }

    #[tokio::test]
    async fn when_time_is_over_the_reason_is_what_it_waited_for() {
        let never = async || Err::<(), _>(not_yet());
        let error = until_ready(Duration::from_millis(20), never).await.unwrap_err();
        assert_eq!(error.to_string(), "it catches up");
    }

    fn moved() -> RemoteError {
        let problem = Problem::new(Code::OtherReplicaLeads, "replica 2 leads the log; ask it");
        RemoteError::Refused(Box::new(problem))
    }

    fn refused() -> RemoteError {
        let why = "replica 3 is no member";
        RemoteError::Refused(Box::new(Problem::new(Code::MemberRefused, why)))
    }

    fn uncertain() -> RemoteError {
        let why = "this replica led the log and leads it no more".to_owned();
        RemoteError::Uncertain { why, problem: None }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_cluster_follows_the_lead_when_it_moves() {
        let asked = Cell::new(0);
        let moves = async || {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 => Err(moved()),
                2 => Err(not_yet()),
                3 => Err(uncertain()),
                4 => Err(RemoteError::Unavailable {
                    why: String::new(),
                    retry_after: None,
                    problem: None,
                }),
                _ => Ok(Done::YES),
            }
        };
        assert_eq!(until_changed(MINUTE, moves, async || Ok(false)).await, Ok(Done::YES));
        assert_eq!(asked.get(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_was_made_though_its_answer_was_lost_is_done() {
        let (asked, looked) = (Cell::new(0), Cell::new(0));
        let lost = async || {
            asked.set(asked.get() + 1);
            Err(if asked.get() == 1 { uncertain() } else { refused() })
        };
        // The replica that is looked at first has not applied it yet.
        let is_done = async || {
            looked.set(looked.get() + 1);
            Ok(looked.get() > 1)
        };
        assert_eq!(until_changed(MINUTE, lost, is_done).await, Ok(Done::YES));
        assert_eq!((asked.get(), looked.get()), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_refused_or_reaches_nobody_ends_at_once_and_time_ends_the_rest() {
        let no = async || Err(refused());
        assert_eq!(until_changed(MINUTE, no, async || Ok(true)).await, Err(refused()));
        let nobody =
            || RemoteError::Unavailable { why: "x".into(), retry_after: None, problem: None };
        let alone = async || Err(nobody());
        assert_eq!(until_changed(MINUTE, alone, async || Ok(false)).await, Err(nobody()));
        let for_ever = async || Err(moved());
        assert_eq!(until_changed(MINUTE, for_ever, async || Ok(false)).await, Err(moved()));
    }
}
