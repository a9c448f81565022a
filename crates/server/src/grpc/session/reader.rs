//! What comes in on a session stream.
//!
//! The reader takes one message after the other and waits for none of them to be served: heartbeats
//! and requests become tasks, bounded in number, that end with the stream. So however much is asked,
//! the next heartbeat is taken as soon as its bytes are here.

use std::sync::Arc;
use std::time::Duration;

use regent_api::grpc as pb;
use regent_api::grpc::heartbeat_answer::Outcome;
use regent_api::grpc::session_up::Message;
use regent_api::{Code, Operation, Problem};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tonic::Streaming;

use super::follow::{self, FollowRequest};
use super::{Shared, asks, bad, told_by};
use crate::admission::{self, Class};
use crate::app::{Phase, dice};
use crate::sessions;

/// Within which time the participants of a closing server come back.
const CLOSING_SPREAD_MS: u64 = 1000;

/// Reads until one side has had enough.
pub(super) async fn read(
    shared: Arc<Shared>,
    mut inbound: Streaming<pb::SessionUp>,
    wishes: watch::Sender<FollowRequest>,
) {
    let mut tasks = JoinSet::new();
    let ended = loop {
        // A peer that sends without end must leave others their turn.
        tokio::task::consume_budget().await;
        let look_at = match look(&shared) {
            Ok(look_at) => look_at,
            Err(problem) => break Err(problem),
        };
        let message = tokio::select! {
            biased;
            () = shared.outbox.gone() => return,
            () = shared.app.reached(Phase::Closing) => break Err(closing()),
            () = sleep_until(look_at) => continue,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            message = inbound.message() => message,
        };
        match message {
            Ok(Some(pb::SessionUp { message: Some(message) })) => {
                if let Err(problem) = take(&shared, &mut tasks, &wishes, message) {
                    break Err(problem);
                }
            }
            // A kind of message of a later version: nobody waits for an answer to it.
            Ok(Some(pb::SessionUp { message: None })) => {}
            Ok(None) => break Ok(()),
            Err(status) => break Err(told_by(&status)),
        }
    };
    match ended {
        // It has nothing more to say, and may still read what it asked for.
        Ok(()) => {
            tokio::select! {
                () = shared.outbox.gone() => {}
                () = async { while tasks.join_next().await.is_some() {} } => shared.outbox.end(None),
            }
        }
        Err(problem) => {
            tracing::debug!(node = %shared.node, %problem, "a session stream ends");
            shared.outbox.end(Some(problem));
            until_gone(&shared).await;
        }
    }
}

/// The end is told after everything that waits; a peer that does not take it is left.
async fn until_gone(shared: &Shared) {
    let patience = shared.app.config.write_timeout;
    if tokio::time::timeout(patience, shared.outbox.gone()).await.is_err() {
        shared.link.activity.give_up();
    }
}

fn take(
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
    wishes: &watch::Sender<FollowRequest>,
    message: Message,
) -> Result<(), Problem> {
    match message {
        Message::Hello(_) => Err(bad("a session says hello once")),
        Message::Heartbeat(heartbeat) => {
            let arrived_at = Instant::now();
            shared.outbox.begin_heartbeat().map_err(|_| unread())?;
            tasks.spawn(serve_heartbeat(Arc::clone(shared), heartbeat, arrived_at));
            Ok(())
        }
        Message::Ask(ask) => {
            if shared.outbox.begin_ask().is_ok() {
                tasks.spawn(asks::serve(Arc::clone(shared), ask));
                return Ok(());
            }
            let refusal = admission::refuse(Class::Campaign, dice());
            let outcome = Some(pb::answer::Outcome::Problem((&refusal).into()));
            shared.outbox.refuse(pb::Answer { number: ask.number, outcome }).map_err(|_| unread())
        }
        Message::Follow(follow) => {
            wishes.send_replace(follow::read(follow)?);
            Ok(())
        }
        Message::Taken(pb::Taken { events }) => {
            shared.outbox.taken(events);
            Ok(())
        }
    }
}

fn unread() -> Problem {
    let why = "more was asked on this stream than its answers were read; read them, then ask";
    Problem::new(Code::RateLimited, why).retry_after(1000)
}

fn closing() -> Problem {
    let why = "this server is going away; resume the session at another";
    Problem::new(Code::ShuttingDown, why).retry_after(dice() % CLOSING_SPREAD_MS)
}

async fn serve_heartbeat(shared: Arc<Shared>, heartbeat: pb::Heartbeat, arrived_at: Instant) {
    let sequence = heartbeat.sequence;
    let answer = async {
        let request = heartbeat.read(shared.session)?;
        let ask = shared.enter(Operation::Heartbeat)?;
        sessions::act_heartbeat(&ask, request).await
    };
    let answer = answer.await;
    shared.count(Operation::Heartbeat, &answer, arrived_at);
    let outcome = match &answer {
        Ok(heard) => Outcome::Heartbeat(heard.clone().into()),
        Err(problem) => Outcome::Problem(problem.into()),
    };
    let outcome = Some(outcome);
    shared.outbox.answer_heartbeat(pb::HeartbeatAnswer { sequence, outcome });
    match answer {
        Ok(heard) => {
            shared.heartbeat_acknowledged(arrived_at, heard.ttl_ms);
            let is_known = shared.told().epoch == heard.epoch;
            if !is_known {
                shared.tell_holds(heard.revision).await;
            }
            shared.tell_log_leader().await;
        }
        Err(problem) => {
            // A stream shows its token once: one whose token is over is opened anew, with the token of then.
            let is_over = matches!(
                problem.code,
                Code::SessionExpired | Code::CredentialOver | Code::Unauthenticated
            );
            shared.told().trouble = Some(problem.clone());
            if is_over {
                shared.outbox.end(Some(problem));
            }
        }
    }
}

/// Looks whether the session is still being heard and its stream still being read; when to look
/// again.
fn look(shared: &Shared) -> Result<Instant, Problem> {
    let (now, patience) = (Instant::now(), shared.app.config.write_timeout);
    if shared.outbox.waits_since().is_some_and(|since| since + patience <= now) {
        // Nothing sent on this stream would arrive, not even its end.
        shared.link.activity.give_up();
    }
    let mut told = shared.told();
    let (hint_at, end_at) = (told.heard_at + told.ttl / 2, told.heard_at + told.ttl);
    // The warning comes before the end, however late both are seen.
    if hint_at <= now && !told.is_in_jeopardy {
        told.is_in_jeopardy = true;
        shared.outbox.note_jeopardy(pb::Jeopardy {
            unheard_for_ms: millis(now - told.heard_at),
            ttl_ms: millis(told.ttl),
            problem: told.trouble.as_ref().map(pb::Problem::from),
        });
    }
    if end_at <= now {
        let ttl_ms = told.ttl.as_millis();
        let why = format!(
            "no heartbeat was acknowledged on this stream for the session's ttl, {ttl_ms} ms; if the session lives, resume it"
        );
        return Err(Problem::new(Code::RequestTimeout, why));
    }
    let next = if told.is_in_jeopardy { end_at } else { hint_at };
    Ok(next.min(now + patience / 2))
}

fn millis(duration: Duration) -> u64 {
    regent_api::leader::millis(duration)
}
