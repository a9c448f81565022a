//! What the server in front of a store makes of a client's question, and of the store's answer.
//!
//! Clients speak as they do to a replica. A lease has no log, so what is said of revisions and handles
//! there is not said here: checkers of a lease go by what was written to the register.

use std::time::Duration;

use regent_election::state::{Query, View};
use regent_election::store::{
    Campaign, CampaignSession, Campaigned, Consistency, Heard, Heartbeat, Open, StepDown,
    SteppedDown, Store, StoreError, StoreResult,
};
use regent_election::{Answer, Command, IfLost, RequestId, Revision, SessionNo};
use regent_replica::io::Response;
use regent_stores::LeaseStore;

use crate::world::parcel::Ask;

/// Nobody's handle: a lease shows none.
const NOBODY: SessionNo = SessionNo(0);

/// Serves one question. A campaign of one who keeps no session may wait in line for so long.
pub(super) async fn serve(store: &LeaseStore, ask: Ask, wait: Duration) -> Response {
    let served = match ask {
        Ask::Submit { command, request, .. } => submit(store, command, request, wait).await,
        Ask::Heartbeat { session, sequence, tenure: None, disowned } => store
            .heartbeat(Heartbeat { session, sequence, disowned, beliefs: None })
            .await
            .map(heard),
        Ask::Heartbeat { session, tenure: Some((group, term)), .. } => {
            store.renew(&group, session, term, None).await.map(heard)
        }
        Ask::Read { query, linearizable } => read(store, query, linearizable).await,
        Ask::Members(_) => Err(unsupported("change its members")),
        Ask::RaftTransfer { .. } => Err(unsupported("hand its log over")),
    };
    served.unwrap_or_else(Response::Error)
}

fn unsupported(what: &'static str) -> StoreError {
    StoreError::Unsupported { store: "lab", what }
}

fn heard(heard: Heard) -> Response {
    let Heard { ttl_ms, epoch, revision } = heard;
    Response::Heard { ttl_ms, epoch, revision, must_accept: false }
}

fn applied(answer: Answer, revision: Revision, view: View) -> Response {
    Response::Applied { answer: Ok(answer), revision, view: Some(Ok(view)) }
}

async fn submit(
    store: &LeaseStore,
    command: Command,
    request: Option<RequestId>,
    wait: Duration,
) -> StoreResult<Response> {
    match command {
        Command::Open { session, node, ttl_ms } => {
            let view = store.open(Open { node, ttl_ms, session }).await?;
            let answer = Answer::Session { session: NOBODY, ttl_ms: view.ttl_ms };
            Ok(applied(answer, view.revision, View::Session(view)))
        }
        Command::Close { session } => store.close(session).await.map(|()| Response::Done),
        Command::Campaign { group, session, opening, if_lost, priority, metadata } => {
            let Some(opening) = opening else { return Err(unsupported("campaign for nobody")) };
            let is_passing = matches!(if_lost, IfLost::Leave);
            let session = match is_passing {
                true => CampaignSession::Passing(session),
                false => CampaignSession::Own(session),
            };
            let wait = is_passing.then_some(wait);
            let (node, ttl_ms) = (opening.node, opening.ttl_ms);
            let campaign =
                Campaign { group, node, session, ttl_ms, wait, priority, metadata, request };
            store.campaign(campaign).await.map(campaigned)
        }
        Command::Withdraw { group, session } => {
            store.withdraw(&group, session, request).await.map(|()| Response::Done)
        }
        Command::Accept { group, session, term } => {
            store.accept(&group, session, term, request).await.map(heard)
        }
        Command::Resign { group, session, term } => {
            store.resign(&group, session, term, request).await.map(|()| Response::Done)
        }
        Command::Offer { group, session, term, to } => {
            store.offer(&group, session, term, &to, request).await.map(|()| Response::Done)
        }
        Command::Warm { group, session, term } => {
            store.warm(&group, session, term, request).await.map(|()| Response::Done)
        }
        Command::Transfer { group, session, term, to } => {
            store.transfer(&group, session, term, &to, request).await.map(|()| Response::Done)
        }
        Command::StepDown { group, reason, to, immediate } => {
            let step_down = StepDown { group, reason, to, immediate, request };
            store.step_down(step_down).await.map(stepped_down)
        }
        Command::PutPolicy { group, policy } => {
            let view = store.put_policy(&group, policy.map(|policy| *policy), request).await?;
            Ok(applied(Answer::Done, view.office.revision, View::Group(view)))
        }
        Command::Move { group, step } => {
            let view = store.move_group(&group, step, request).await?;
            Ok(applied(Answer::Done, view.office.revision, View::Group(view)))
        }
        Command::Admit { group, resource, term } => {
            store.admit(&group, &resource, term).await?;
            Ok(Response::Applied { answer: Ok(Answer::Done), revision: Revision(0), view: None })
        }
        Command::ForgetFence { group, resource } => {
            store.forget_fence(&group, &resource).await?;
            Ok(Response::Applied { answer: Ok(Answer::Done), revision: Revision(0), view: None })
        }
        Command::Report { group, finding, reason } => {
            store.report(&group, finding, reason).await?;
            Ok(Response::Applied { answer: Ok(Answer::Done), revision: Revision(0), view: None })
        }
        Command::Relieve { group, term, to, reason } => {
            store.relieve(&group, term, &to, reason).await?;
            Ok(Response::Applied { answer: Ok(Answer::Done), revision: Revision(0), view: None })
        }
        Command::Delete { group } => store.delete(&group, request).await.map(stepped_down),
        Command::ChangeTtl { .. }
        | Command::Expire { .. }
        | Command::PutSettings { .. }
        | Command::Elapsed { .. }
        | Command::Refill { .. } => Err(unsupported("do what only drivers may ask for")),
    }
}

fn campaigned(campaigned: Campaigned) -> Response {
    let Campaigned { elected, standing, office, ttl_ms, .. } = campaigned;
    let answer = match (elected, standing) {
        (Some(term), _) => Answer::Elected { session: NOBODY, ttl_ms, term },
        (None, true) => Answer::Standing { session: NOBODY, ttl_ms, place: 0 },
        (None, false) => Answer::Lost,
    };
    applied(answer, office.revision, View::Leader(office))
}

fn stepped_down(how: SteppedDown) -> Response {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let answer = match how {
        SteppedDown::Over => Answer::Done,
        SteppedDown::Ending(within) => Answer::Ending { within_ms: ms(within) },
        SteppedDown::Forced(overlap) => Answer::Forced { overlap_possible_ms: ms(overlap) },
    };
    Response::Applied { answer: Ok(answer), revision: Revision(0), view: None }
}

async fn read(store: &LeaseStore, query: Query, linearizable: bool) -> StoreResult<Response> {
    let consistency = match linearizable {
        true => Consistency::Linearizable,
        false => Consistency::Stale,
    };
    let view = match query {
        Query::Leader(group) => View::Leader(store.leader(&group, consistency).await?),
        Query::Session(session) => View::Session(store.session(session).await?),
        Query::Group(group) => View::Group(store.group(&group).await?),
        Query::Groups { prefix, after, count } => {
            View::Groups(store.groups(&prefix, after.as_ref(), count).await?)
        }
        Query::Fences { group, prefix, after, count } => {
            View::Fences(store.fences(&group, &prefix, after.as_ref(), count).await?)
        }
        Query::History(group) => View::History(store.history(&group).await?),
        Query::Census => View::Census(store.census().await?),
        Query::Heard(_) | Query::Candidacy { .. } | Query::Replay(..) => {
            return Err(unsupported("be asked what only a replica's server asks"));
        }
    };
    Ok(Response::View { view, stale_ms: None })
}
