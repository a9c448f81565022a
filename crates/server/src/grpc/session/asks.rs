//! Requests of a session stream, each served by the function that serves it elsewhere.
//!
//! The session of the stream is the session of the request. A request that names another is refused:
//! whoever mixes two sessions up would act under the wrong one.

use std::sync::Arc;

use regent_api::grpc as pb;
use regent_api::grpc::answer::Outcome;
use regent_api::grpc::ask::Verb;
use regent_api::{Code, HeartbeatResponse, Operation, Problem};
use tokio::time::Instant;

use super::limits::HOLDS_MAX;
use super::{Shared, bad};
use crate::{campaign, leader, sessions, tenure};

/// Serves one request and answers it.
pub(super) async fn serve(shared: Arc<Shared>, ask: pb::Ask) {
    let pb::Ask { number, verb } = ask;
    let outcome = match verb {
        Some(verb) => {
            let (began_at, operation) = (Instant::now(), operation(&verb));
            let answer = act(&shared, operation, verb, began_at).await;
            shared.count(operation, &answer, began_at);
            answer
        }
        None => Err(bad("there is no such request, at least not in this version")),
    };
    let is_close = matches!(outcome, Ok(Closed::Yes(_)));
    let outcome = match outcome {
        Ok(Closed::Yes(outcome) | Closed::No(outcome)) => outcome,
        Err(problem) => Outcome::Problem((&problem).into()),
    };
    shared.outbox.answer(pb::Answer { number, outcome: Some(outcome) });
    if is_close {
        shared.outbox.end(None);
    }
}

/// An answer, and whether it ended the session.
enum Closed {
    Yes(Outcome),
    No(Outcome),
}

const fn operation(verb: &Verb) -> Operation {
    match verb {
        Verb::Campaign(_) => Operation::Campaign,
        Verb::Withdraw(_) => Operation::Withdraw,
        Verb::Accept(_) => Operation::Accept,
        Verb::Renew(_) => Operation::Renew,
        Verb::Resign(_) => Operation::Resign,
        Verb::Offer(_) => Operation::Offer,
        Verb::Warm(_) => Operation::Warm,
        Verb::Transfer(_) => Operation::Transfer,
        Verb::Leader(_) => Operation::Leader,
        Verb::Show(_) => Operation::ShowSession,
        Verb::Close(_) => Operation::CloseSession,
    }
}

async fn act(
    shared: &Shared,
    operation: Operation,
    mut verb: Verb,
    began_at: Instant,
) -> Result<Closed, Problem> {
    own(shared, &mut verb)?;
    let mut ask = shared.enter(operation)?;
    let heard = |heard: HeartbeatResponse| {
        shared.heartbeat_acknowledged(began_at, heard.ttl_ms);
        Outcome::Heartbeat(heard.into())
    };
    let done = |done: regent_api::Done| Outcome::Done(done.into());
    Ok(Closed::No(match verb {
        Verb::Campaign(message) => {
            let (group, request) = message.read()?;
            let answer = campaign::act(&mut ask, group, request).await?;
            Outcome::Campaign(answer.into())
        }
        Verb::Withdraw(message) => {
            let (group, request) = message.read()?;
            done(tenure::withdraw(&ask, &group, request).await?)
        }
        Verb::Accept(message) => {
            let (group, request) = message.read()?;
            heard(tenure::accept(&ask, &group, request).await?)
        }
        Verb::Renew(message) => {
            let (group, request) = message.read()?;
            heard(tenure::renew(&ask, &group, request).await?)
        }
        Verb::Resign(message) => {
            let (group, request) = message.read()?;
            done(tenure::resign(&ask, &group, request).await?)
        }
        Verb::Offer(message) => {
            let (group, request) = message.read()?;
            done(tenure::offer(&ask, &group, request).await?)
        }
        Verb::Warm(message) => {
            let (group, request) = message.read()?;
            done(tenure::warm(&ask, &group, request).await?)
        }
        Verb::Transfer(message) => {
            let (group, request) = message.read()?;
            done(tenure::transfer(&ask, &group, request).await?)
        }
        Verb::Leader(message) => {
            let (group, consistency) = message.read()?;
            Outcome::Leader(leader::act(&ask, &group, consistency).await?.into())
        }
        Verb::Show(message) => {
            let shown = sessions::act_show(&ask, message.read()?).await?;
            let count = shown.tenures.len() + shown.standing.len() + shown.offers.len();
            if count > HOLDS_MAX {
                let why = format!(
                    "the session has {count} tenures, candidacies and offers, more than the {HOLDS_MAX} told on its stream; call ShowSession"
                );
                return Err(Problem::new(Code::Unsupported, why));
            }
            Outcome::Session(shown.into())
        }
        Verb::Close(message) => {
            let closed = sessions::act_close(&ask, message.read()?).await?;
            return Ok(Closed::Yes(done(closed)));
        }
    }))
}

/// Makes the request one of this stream's session.
fn own(shared: &Shared, verb: &mut Verb) -> Result<(), Problem> {
    let named = match verb {
        Verb::Campaign(message) => {
            if message.wait_ms.is_some_and(|wait_ms| wait_ms > 0) {
                let why = "a campaign on a stream does not wait: a later election is told";
                return Err(bad(why).at("wait_ms"));
            }
            if message.node_id.is_empty() {
                message.node_id = shared.node.to_string();
            }
            if message.node_id != shared.node.as_str() {
                return Err(bad("the stream is another node's").at("node_id"));
            }
            message.session_id.get_or_insert_default()
        }
        Verb::Withdraw(message) => &mut message.session_id,
        Verb::Accept(message) => &mut message.session_id,
        Verb::Renew(message) => &mut message.session_id,
        Verb::Resign(message) => &mut message.session_id,
        Verb::Offer(message) => &mut message.session_id,
        Verb::Warm(message) => &mut message.session_id,
        Verb::Transfer(message) => &mut message.session_id,
        Verb::Show(message) => &mut message.session_id,
        Verb::Close(message) => &mut message.session_id,
        Verb::Leader(_) => return Ok(()),
    };
    let own = shared.session.reveal();
    if named.is_empty() {
        *named = own;
    } else if *named != own {
        return Err(bad("the stream is another session's").at("session_id"));
    }
    Ok(())
}
