//! Requests that are repeated until their outcome is known.

use std::time::Duration;

use regent::fresh::NoRandomness;
use regent::remote::{Remote, RemoteError, RemoteResult};
use regent_api::{Code, Consistency};
use regent_election::{Group, RequestId};
use tokio::time::{sleep, timeout};

/// How often a request with an uncertain outcome is repeated.
const REPEATS_MAX: u32 = 3;

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
            ended => return Ok(ended?),
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

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
}
