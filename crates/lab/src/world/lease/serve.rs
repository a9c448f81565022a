//! What the server in front of a store makes of a client's question, and of the store's answer.
//!
//! Clients speak as they do to a replica. A lease has no log, so what is said of revisions and handles
//! there is not said here: checkers of a lease go by what was written to the register.

use std::time::Duration;

use regent_election::state::{Query, View};
use regent_election::store::{
    Campaign, CampaignSession, Campaigned, Consistency, Done, Heartbeat, HeartbeatView, Store,
    StoreError, StoreResult,
};
use regent_election::{Answer, Command, IfLost, RequestId, Revision, SessionNo};
use regent_replica::io::Response;

use crate::history::revision_of;
use crate::world::parcel::Ask;

/// Serves one question. A campaign of one who keeps no session may wait in line for so long.
pub(super) async fn serve(store: &dyn Store, ask: Ask, wait: Duration) -> Response {
    let served = match ask {
        Ask::Submit { command, request, query } => {
            submit(store, command, request, query, wait).await
        }
        Ask::Heartbeat { session, sequence, tenure: None, disowned } => store
            .heartbeat(Heartbeat { session, sequence, disowned, beliefs: None })
            .await
            .map(acknowledged),
        Ask::Heartbeat { session, tenure: Some((group, term)), .. } => {
            store.renew(&group, session, term, None).await.map(acknowledged)
        }
        Ask::Read { query, linearizable } => {
            let consistency = match linearizable {
                true => Consistency::Linearizable,
                false => Consistency::Stale,
            };
            let read = store.read(query, consistency).await;
            read.map(|view| Response::View { view, stale_ms: None })
        }
        Ask::Members(_) => Err(unsupported("change its members")),
        Ask::RaftTransfer { .. } => Err(unsupported("hand its log over")),
    };
    served.unwrap_or_else(Response::Error)
}

fn unsupported(what: &'static str) -> StoreError {
    StoreError::Unsupported { store: "lab", what }
}

fn acknowledged(heard: HeartbeatView) -> Response {
    let HeartbeatView { ttl_ms, epoch, revision } = heard;
    Response::Heartbeat { ttl_ms, epoch, revision, must_accept: false }
}

fn applied(Done { answer, view, .. }: Done) -> Response {
    let revision = view.as_ref().and_then(revision_of).unwrap_or(Revision(0));
    Response::Applied { answer: Ok(answer), revision, view: view.map(Ok) }
}

async fn submit(
    store: &dyn Store,
    command: Command,
    request: Option<RequestId>,
    query: Option<Query>,
    wait: Duration,
) -> StoreResult<Response> {
    match command {
        Command::Campaign {
            group,
            session,
            opening: Some(opening),
            if_lost: IfLost::Leave,
            priority,
            metadata,
        } => {
            let session = CampaignSession::Passing(session);
            let (node, ttl_ms, wait) = (opening.node, opening.ttl_ms, Some(wait));
            let campaign =
                Campaign { group, node, session, ttl_ms, wait, priority, metadata, request };
            store.campaign(campaign).await.map(campaigned)
        }
        // Whoever accepts counts its lease from there: the session must be heard.
        Command::Accept { group, session, term } => {
            store.accept(&group, session, term, request).await.map(acknowledged)
        }
        command => store.submit(command, request, query).await.map(applied),
    }
}

fn campaigned(campaigned: Campaigned) -> Response {
    let Campaigned { elected, standing, office, ttl_ms, .. } = campaigned;
    let session = SessionNo(0);
    let answer = match (elected, standing) {
        (Some(term), _) => Answer::Elected { session, ttl_ms, term },
        (None, true) => Answer::Standing { session, ttl_ms, place: 0 },
        (None, false) => Answer::Lost,
    };
    applied(Done { answer, view: Some(View::Leader(office)), revision: None })
}
