//! The connection that an engine keeps: made when it is first needed, shared by all questions, and replaced after one
//! failed or waited on it in vain.
//!
//! A question is never repeated here: whether a lost one may be sent again is for the caller to say. MySQL has no
//! part in this: its connections serve one question at a time.

use std::time::Duration;

use tokio::sync::Mutex;

use super::{Abandoned, Effect, Sent, in_time};
use crate::register::RegisterResult;

/// A connection that is kept, or none yet. Clones of `C` are the same connection.
pub(crate) struct Held<C> {
    request_for: Duration,
    /// Whether a connection can still be asked, as far as it knows itself.
    serves: fn(&C) -> bool,
    /// The connection, and how many there were: a failed question gives up its own, not a later one.
    connection: Mutex<(u64, Option<C>)>,
    abandoned: Abandoned,
}

impl<C: Clone> Held<C> {
    /// None yet, for questions that may take so long each.
    pub(crate) fn new(request_for: Duration, serves: fn(&C) -> bool) -> Self {
        let (connection, abandoned) = (Mutex::new((0, None)), Abandoned::default());
        Self { request_for, serves, connection, abandoned }
    }

    /// How long a question may take.
    pub(crate) const fn request_for(&self) -> Duration {
        self.request_for
    }

    /// Asks within one time-out, from connecting to the answer. After an error the connection is given up. Even a
    /// refusal is a reason: the server may no longer be what it was, which connecting again will show.
    pub(crate) async fn ask<T>(
        &self,
        effect: Effect,
        server: &str,
        connect: impl AsyncFnOnce() -> RegisterResult<C>,
        asking: impl AsyncFnOnce(C) -> RegisterResult<T>,
    ) -> RegisterResult<T> {
        in_time(self.request_for, effect, server, async |sent: &Sent| {
            let (number, connection) = self.numbered(connect).await?;
            let question = self.abandoned.asks(number, self.request_for);
            sent.leaves_now();
            let answer = asking(connection).await;
            question.answered();
            if answer.is_err() {
                self.give_up(number).await;
            }
            answer
        })
        .await
    }

    /// The connection, made if there is none that serves.
    pub(crate) async fn connection(
        &self,
        connect: impl AsyncFnOnce() -> RegisterResult<C>,
    ) -> RegisterResult<C> {
        Ok(self.numbered(connect).await?.1)
    }

    async fn numbered(
        &self,
        connect: impl AsyncFnOnce() -> RegisterResult<C>,
    ) -> RegisterResult<(u64, C)> {
        let mut held = self.connection.lock().await;
        let (number, kept) = &mut *held;
        let serves = |kept: &&mut C| (self.serves)(kept) && !self.abandoned.has(*number);
        if let Some(connection) = kept.as_mut().filter(serves) {
            return Ok((*number, connection.clone()));
        }
        let connection = connect().await?;
        *number += 1;
        Ok((*number, kept.insert(connection).clone()))
    }

    /// Drops this connection unless it was replaced already.
    async fn give_up(&self, number: u64) {
        let mut held = self.connection.lock().await;
        if held.0 == number {
            held.1 = None;
        }
    }

    /// Drops whatever connection there is. Questions under way keep theirs until they are answered.
    pub(crate) async fn hang_up(&self) {
        self.connection.lock().await.1 = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::register::RegisterError;

    /// A connection with a number of its own, and whether it is closed.
    type Numbered = Arc<(u32, AtomicBool)>;

    fn held() -> Held<Numbered> {
        let serves = |connection: &Numbered| !connection.1.load(Ordering::Relaxed);
        Held::new(Duration::from_millis(8), serves)
    }

    /// The number of the connection on which a question is asked that ends like this.
    async fn asked(
        held: &Held<Numbered>,
        made: &AtomicU32,
        answer: RegisterResult<()>,
    ) -> RegisterResult<Numbered> {
        let connect = async || {
            Ok(Arc::new((made.fetch_add(1, Ordering::Relaxed) + 1, AtomicBool::new(false))))
        };
        let asking = async |connection: Numbered| answer.map(|()| connection);
        held.ask(Effect::Writes, "a server", connect, asking).await
    }

    #[tokio::test]
    async fn one_connection_serves_until_a_question_on_it_fails() {
        let (held, made) = (held(), AtomicU32::new(0));
        for _ in 0..2 {
            assert_eq!(asked(&held, &made, Ok(())).await.unwrap().0, 1);
        }
        asked(&held, &made, Err(RegisterError::unavailable("no"))).await.unwrap_err();
        let second = asked(&held, &made, Ok(())).await.unwrap();
        assert_eq!(second.0, 2);
        second.1.store(true, Ordering::Relaxed);
        assert_eq!(asked(&held, &made, Ok(())).await.unwrap().0, 3, "the second is closed");
        held.hang_up().await;
        assert_eq!(asked(&held, &made, Ok(())).await.unwrap().0, 4);
    }

    #[tokio::test]
    async fn a_late_failure_gives_up_no_later_connection() {
        let (held, made) = (held(), AtomicU32::new(0));
        asked(&held, &made, Ok(())).await.unwrap();
        asked(&held, &made, Err(RegisterError::unavailable("no"))).await.unwrap_err();
        assert_eq!(asked(&held, &made, Ok(())).await.unwrap().0, 2);
        held.give_up(1).await;
        assert_eq!(asked(&held, &made, Ok(())).await.unwrap().0, 2);
    }

    #[tokio::test]
    async fn a_connection_that_does_not_answer_in_time_is_replaced() {
        let (held, made) = (held(), AtomicU32::new(0));
        let connect = async || Ok(Arc::new((0, AtomicBool::new(false))));
        let never = async |_: Numbered| std::future::pending::<RegisterResult<()>>().await;
        let answer = held.ask(Effect::Writes, "a server", connect, never).await;
        assert!(matches!(answer, Err(RegisterError::Uncertain { .. })), "{answer:?}");
        assert_eq!(asked(&held, &made, Ok(())).await.unwrap().0, 1);
    }
}
