//! Several futures in one task, without a runtime.

use std::future::{Future, poll_fn};
#[cfg(feature = "contract")]
use std::pin::Pin;
use std::pin::pin;
use std::task::Poll;

/// A boxed future.
#[cfg(feature = "contract")]
pub(crate) type Running<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which of two came first.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Runs all to their ends; the answers stand in the order of the futures.
#[cfg(feature = "contract")]
pub(crate) async fn all<T>(mut futures: Vec<Running<'_, T>>) -> Vec<T> {
    let mut answers: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, answer) in futures.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Runs two to their ends.
#[cfg(feature = "contract")]
pub(crate) async fn both<A, B>(
    left: impl Future<Output = A> + Send,
    right: impl Future<Output = B> + Send,
) -> (A, B) {
    let (mut left, mut right) = (Box::pin(left), Box::pin(right));
    let (mut left_answer, mut right_answer) = (None, None);
    poll_fn(|context| {
        if left_answer.is_none()
            && let Poll::Ready(answer) = left.as_mut().poll(context)
        {
            left_answer = Some(answer);
        }
        if right_answer.is_none()
            && let Poll::Ready(answer) = right.as_mut().poll(context)
        {
            right_answer = Some(answer);
        }
        match (left_answer.take(), right_answer.take()) {
            (Some(left), Some(right)) => Poll::Ready((left, right)),
            (left, right) => {
                (left_answer, right_answer) = (left, right);
                Poll::Pending
            }
        }
    })
    .await
}

/// Runs two until one ends; the other is dropped.
pub(crate) async fn first<A, B>(
    left: impl Future<Output = A>,
    right: impl Future<Output = B>,
) -> First<A, B> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(answer) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(answer));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}
