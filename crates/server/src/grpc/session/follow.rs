//! Events of the groups that a session follows, told on its stream.
//!
//! They come from the same watch as everywhere, wait there while the peer takes none, and become a
//! gap if that lasts too long. When an event says that this node was elected, what the session holds
//! is told first: the node's name proves nothing, the list of the session does.

use std::sync::Arc;

use regent_api::grpc as pb;
use regent_api::{Code, Operation, Problem, WatchEvent};
use regent_election::Cursor;
use regent_election::store::Scope;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::Shared;
use super::limits::{FOLLOW_MAX, STATE_PAGE_MAX, WATCH_AGAIN_AFTER};
use crate::groups::check_prefix;
use crate::stream::{self, Patience};

/// What to follow, and from where.
#[derive(Clone, Debug, Default)]
pub(super) struct FollowRequest {
    scope: Option<Scope>,
    cursor: Option<Cursor>,
}

/// A wish from its message.
pub(super) fn read(message: pb::Follow) -> Result<FollowRequest, Problem> {
    let (scope, cursor) = message.read(FOLLOW_MAX)?;
    if let Some(Scope::Prefix(prefix)) = &scope {
        check_prefix(prefix)?;
    }
    Ok(FollowRequest { scope, cursor })
}

/// Follows whatever is wished for, until the stream ends.
pub(super) async fn follow(shared: Arc<Shared>, mut wishes: watch::Receiver<FollowRequest>) {
    loop {
        let wish = wishes.borrow_and_update().clone();
        tokio::select! {
            biased;
            () = shared.outbox.gone() => return,
            changed = wishes.changed() => match changed {
                Ok(()) => {}
                // The reader is gone, and what it ended is told without more events.
                Err(_) => return,
            },
            () = tell(&shared, wish) => return,
        }
    }
}

/// Tells one wish's events for as long as that is possible.
async fn tell(shared: &Shared, wish: FollowRequest) {
    let FollowRequest { scope: Some(scope), mut cursor } = wish else {
        return std::future::pending().await;
    };
    loop {
        match tell_from(shared, &scope, &mut cursor).await {
            // The watch ended, or cannot be had now: it goes on where it was.
            Ok(()) => {}
            Err(problem) if is_passing(problem.code) => {
                tracing::debug!(%problem, "a session's watch is opened again");
            }
            Err(problem) => return shared.outbox.end(Some(problem)),
        }
        tokio::time::sleep(WATCH_AGAIN_AFTER).await;
    }
}

/// Whether asking again may help.
fn is_passing(code: Code) -> bool {
    matches!(code, Code::StoreUnavailable | Code::ShuttingDown | Code::RateLimited)
}

async fn open(
    shared: &Shared,
    scope: &Scope,
    cursor: Option<Cursor>,
) -> Result<mpsc::Receiver<WatchEvent>, Problem> {
    // Opening counts like any watch. Afterwards the stream itself has a place among those that wait.
    let place = shared.enter(Operation::WatchMany)?;
    let ask = shared.link.ask(None);
    let watch = ask.read(ask.store().watch(scope.clone(), cursor)).await?;
    let patience = Patience { waits_for_ever: true, state_page_max: STATE_PAGE_MAX };
    let events = stream::open(ask, scope.clone(), watch, cursor.is_none(), patience).await;
    drop(place);
    events
}

async fn tell_from(
    shared: &Shared,
    scope: &Scope,
    cursor: &mut Option<Cursor>,
) -> Result<(), Problem> {
    let (began_at, opened) = (Instant::now(), open(shared, scope, *cursor).await);
    shared.count(Operation::WatchMany, &opened, began_at);
    let mut events = opened?;
    while let Some(event) = events.recv().await {
        if let WatchEvent::LeaderChanged(changed) = &event
            && changed.leader.as_ref() == Some(&shared.node)
        {
            shared.tell_holds(changed.revision).await;
        }
        let at = event.cursor();
        shared.outbox.event(event.into()).await;
        *cursor = Some(at);
    }
    Ok(())
}
