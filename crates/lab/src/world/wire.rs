//! Between a participant and a replica: what a server makes of a request, and a library of an answer.

use regent_election::participant::{Reply, Request};
use regent_election::state::{Query, View};
use regent_election::store::{
    CampaignSession, Campaigned, Heartbeat, HeartbeatView, Open, StoreResult,
};
use regent_election::{Answer, Command, IfLost, Opening, Revision};
use regent_replica::io::Response;

use super::parcel::Ask;

/// What a server in front of a replica makes of a participant's request.
pub(super) fn ask_of(request: Request) -> Ask {
    match request {
        Request::Open(Open { node, ttl_ms, session }) => Ask::Submit {
            command: Command::Open { session, node, ttl_ms },
            request: None,
            query: Some(Query::Session(session)),
        },
        Request::Heartbeat(Heartbeat { session, sequence, disowned, beliefs: _ }) => {
            Ask::Heartbeat { session, sequence, tenure: None, disowned }
        }
        Request::List(session) => Ask::Read { query: Query::Session(session), linearizable: true },
        Request::Close(session) => {
            Ask::Submit { command: Command::Close { session }, request: None, query: None }
        }
        Request::Campaign(campaign) => {
            let (CampaignSession::Own(session) | CampaignSession::Passing(session)) =
                campaign.session;
            let opening = Opening { node: campaign.node, ttl_ms: campaign.ttl_ms, passing: false };
            Ask::Submit {
                query: Some(Query::Leader(campaign.group.clone())),
                command: Command::Campaign {
                    group: campaign.group,
                    session,
                    opening: Some(opening),
                    if_lost: IfLost::Stand,
                    priority: campaign.priority,
                    metadata: campaign.metadata,
                },
                request: campaign.request,
            }
        }
        Request::Group(asked) => {
            let query = asked.is_heard().then_some(Query::Session(asked.session));
            let (command, request) = asked.command();
            Ask::Submit { command, request: Some(request), query }
        }
    }
}

/// What a client library makes of a replica's answer.
pub(super) fn reply_of(response: Response) -> StoreResult<Reply> {
    match response {
        Response::Error(error) => Err(error),
        Response::Heartbeat { ttl_ms, epoch, revision, .. } => {
            Ok(Reply::Heartbeat(HeartbeatView { ttl_ms, epoch, revision }))
        }
        Response::View { view: View::Session(view), .. } => Ok(Reply::Session(view)),
        Response::View { .. } | Response::Done => Ok(Reply::Done),
        Response::Applied { answer: Err(refusal), .. } => Err(refusal.into()),
        Response::Applied { answer: Ok(answer), revision, view } => {
            applied(answer, revision, view.transpose()?)
        }
    }
}

fn applied(answer: Answer, revision: Revision, view: Option<View>) -> StoreResult<Reply> {
    let elected = answer.elected();
    let standing = matches!(answer, Answer::Standing { .. });
    Ok(match (answer, view) {
        (Answer::Session { .. }, Some(View::Session(view))) => Reply::Session(view),
        (Answer::Done, Some(View::Session(view))) => {
            Reply::Heartbeat(HeartbeatView { ttl_ms: view.ttl_ms, epoch: view.epoch, revision })
        }
        (
            Answer::Elected { .. } | Answer::Standing { .. } | Answer::Lost,
            Some(View::Leader(office)),
        ) => Reply::Campaigned(Campaigned {
            elected,
            standing,
            office,
            session: None,
            ttl_ms: 0,
            retry_after: None,
        }),
        (_, _) => Reply::Done,
    })
}
