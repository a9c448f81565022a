//! Every verb of the table, from its message to its answer.
//!
//! Each method takes a place, reads its message and calls the function that serves the verb over
//! HTTP as well. tonic's trait has one method per verb, so one that is missing does not compile.

use std::pin::Pin;
use std::sync::Arc;

use regent_api::grpc as pb;
use regent_api::grpc::regent_server::Regent;
use regent_api::{Operation, Problem};
use regent_election::store::Scope;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use crate::admission::Class;
use crate::app::{App, Ask};
use crate::grpc::session::{self, Lookout, Outgoing};
use crate::router::Peer;
use crate::{
    accept, beliefs, campaign, cluster, groups, history, leader, offer, renew, resign, sessions,
    step_down, token, transfer, warm, watch, withdraw,
};

/// Bytes of a backup in one message.
const PIECE_BYTES: usize = 32 << 10;

/// What every method returns.
type Answer<T> = Result<Response<T>, Status>;
/// What every method that streams returns.
type Many<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Serves the verbs.
#[derive(Debug)]
pub(super) struct Verbs {
    pub(super) app: Arc<App>,
    pub(super) lookout: Arc<Lookout>,
}

impl Verbs {
    /// Takes a place for a request of this kind; its message is here already.
    fn enter<M>(&self, operation: Operation, request: Request<M>) -> Result<(Ask, M), Problem> {
        let peer = request.extensions().get::<Peer>().cloned();
        let Peer { talk, .. } = peer.expect("the connection put itself into every request");
        let app = &self.app;
        let place = match Class::of(operation) {
            Some(class) => Some(app.admission.admit(class).ok_or_else(|| app.shed(class))?),
            None => None,
        };
        Ok((Ask { app: Arc::clone(app), talk, place }, request.into_inner()))
    }
}

fn yes<T>(answer: impl Into<T>) -> Answer<T> {
    Ok(Response::new(answer.into()))
}

fn events(queue: tokio::sync::mpsc::Receiver<regent_api::WatchEvent>) -> Many<pb::WatchEvent> {
    Box::pin(ReceiverStream::new(queue).map(|event| Ok(event.into())))
}

#[tonic::async_trait]
impl Regent for Verbs {
    type SessionStream = Outgoing;
    type WatchStream = Many<pb::WatchEvent>;
    type WatchManyStream = Many<pb::WatchEvent>;
    type BackupStream = Many<pb::BackupPiece>;

    async fn session(
        &self,
        request: Request<Streaming<pb::SessionUp>>,
    ) -> Answer<Self::SessionStream> {
        let peer = request.extensions().get::<Peer>().cloned();
        let Peer { talk, .. } = peer.expect("the connection put itself into every request");
        let (app, lookout) = (Arc::clone(&self.app), Arc::clone(&self.lookout));
        yes(session::open(app, talk, lookout, request.into_inner()).await?)
    }

    async fn campaign(
        &self,
        request: Request<pb::CampaignRequest>,
    ) -> Answer<pb::CampaignResponse> {
        let (mut ask, message) = self.enter(Operation::Campaign, request)?;
        let (group, request) = message.read()?;
        yes(campaign::act(&mut ask, group, request).await?)
    }

    async fn renew(&self, request: Request<pb::RenewRequest>) -> Answer<pb::Heard> {
        let (ask, message) = self.enter(Operation::Renew, request)?;
        let (group, request) = message.read()?;
        yes(renew::act(&ask, &group, request).await?)
    }

    async fn resign(&self, request: Request<pb::ResignRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::Resign, request)?;
        let (group, request) = message.read()?;
        yes(resign::act(&ask, &group, request).await?)
    }

    async fn withdraw(&self, request: Request<pb::WithdrawRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::Withdraw, request)?;
        let (group, request) = message.read()?;
        yes(withdraw::act(&ask, &group, request).await?)
    }

    async fn accept(&self, request: Request<pb::AcceptRequest>) -> Answer<pb::Heard> {
        let (ask, message) = self.enter(Operation::Accept, request)?;
        let (group, request) = message.read()?;
        yes(accept::act(&ask, &group, request).await?)
    }

    async fn offer(&self, request: Request<pb::OfferRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::Offer, request)?;
        let (group, request) = message.read()?;
        yes(offer::act(&ask, &group, request).await?)
    }

    async fn warm(&self, request: Request<pb::WarmRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::Warm, request)?;
        let (group, request) = message.read()?;
        yes(warm::act(&ask, &group, request).await?)
    }

    async fn transfer(&self, request: Request<pb::TransferRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::Transfer, request)?;
        let (group, request) = message.read()?;
        yes(transfer::act(&ask, &group, request).await?)
    }

    async fn leader(&self, request: Request<pb::LeaderRequest>) -> Answer<pb::LeaderResponse> {
        let (ask, message) = self.enter(Operation::Leader, request)?;
        let (group, consistency) = message.read()?;
        yes(leader::act(&ask, &group, consistency).await?)
    }

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Answer<Self::WatchStream> {
        let (ask, message) = self.enter(Operation::Watch, request)?;
        let (scope, cursor) = message.read()?;
        yes(events(watch::events(ask, scope, cursor).await?))
    }

    async fn watch_many(
        &self,
        request: Request<pb::WatchManyRequest>,
    ) -> Answer<Self::WatchManyStream> {
        let (ask, message) = self.enter(Operation::WatchMany, request)?;
        let (scope, cursor) = message.read()?;
        if let Scope::Prefix(prefix) = &scope {
            groups::check_prefix(prefix)?;
        }
        yes(events(watch::events(ask, scope, cursor).await?))
    }

    async fn step_down(&self, request: Request<pb::StepDownRequest>) -> Answer<pb::SteppedDown> {
        let (ask, message) = self.enter(Operation::StepDown, request)?;
        let (group, request) = message.read()?;
        yes(step_down::act(&ask, group, request).await?)
    }

    async fn move_group(
        &self,
        request: Request<pb::MoveGroupRequest>,
    ) -> Answer<pb::GroupResponse> {
        let (ask, message) = self.enter(Operation::MoveGroup, request)?;
        let (group, request) = message.read()?;
        yes(groups::act_step(&ask, &group, request).await?)
    }

    async fn token(&self, request: Request<pb::TokenRequest>) -> Answer<pb::TokenResponse> {
        let (ask, message) = self.enter(Operation::Token, request)?;
        let (group, session) = message.read()?;
        yes(token::act_show(&ask, &group, session).await?)
    }

    async fn validate_token(
        &self,
        request: Request<pb::ValidateTokenRequest>,
    ) -> Answer<pb::ValidateTokenResponse> {
        let (ask, message) = self.enter(Operation::ValidateToken, request)?;
        let (group, request) = message.read()?;
        yes(token::act_validate(&ask, group, request).await?)
    }

    async fn list_fences(
        &self,
        request: Request<pb::ListFencesRequest>,
    ) -> Answer<pb::FencesResponse> {
        let (ask, message) = self.enter(Operation::ListFences, request)?;
        let (group, query) = message.read()?;
        yes(token::act_list(&ask, group, query).await?)
    }

    async fn claims(&self, request: Request<pb::ClaimsRequest>) -> Answer<pb::ClaimsResponse> {
        let (ask, message) = self.enter(Operation::Claims, request)?;
        yes(beliefs::act(&ask, &message.read()?)?)
    }

    async fn delete_fence(&self, request: Request<pb::DeleteFenceRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::DeleteFence, request)?;
        let (group, resource) = message.read()?;
        yes(token::act_delete(&ask, &group, &resource).await?)
    }

    async fn history(&self, request: Request<pb::HistoryRequest>) -> Answer<pb::HistoryResponse> {
        let (ask, message) = self.enter(Operation::History, request)?;
        let group = message.read()?;
        yes(history::act(&ask, group).await?)
    }

    async fn put_group(&self, request: Request<pb::PutGroupRequest>) -> Answer<pb::GroupResponse> {
        let (ask, message) = self.enter(Operation::PutGroup, request)?;
        let (group, request) = message.read()?;
        yes(groups::act_put(&ask, &group, request).await?)
    }

    async fn show_group(
        &self,
        request: Request<pb::ShowGroupRequest>,
    ) -> Answer<pb::GroupResponse> {
        let (ask, message) = self.enter(Operation::ShowGroup, request)?;
        let group = message.read()?;
        yes(groups::act_show(&ask, &group).await?)
    }

    async fn delete_group(
        &self,
        request: Request<pb::DeleteGroupRequest>,
    ) -> Answer<pb::SteppedDown> {
        let (ask, message) = self.enter(Operation::DeleteGroup, request)?;
        let (group, request_id) = message.read()?;
        yes(groups::act_delete(&ask, &group, request_id).await?)
    }

    async fn list_groups(
        &self,
        request: Request<pb::ListGroupsRequest>,
    ) -> Answer<pb::GroupsResponse> {
        let (ask, message) = self.enter(Operation::ListGroups, request)?;
        let request = message.read()?;
        yes(groups::act_list(&ask, request).await?)
    }

    async fn open_session(
        &self,
        request: Request<pb::OpenSessionRequest>,
    ) -> Answer<pb::SessionResponse> {
        let (ask, message) = self.enter(Operation::OpenSession, request)?;
        let request = message.read()?;
        yes(sessions::act_open(&ask, request).await?)
    }

    async fn renew_session(&self, request: Request<pb::RenewSessionRequest>) -> Answer<pb::Heard> {
        let (ask, message) = self.enter(Operation::RenewSession, request)?;
        let request = message.read()?;
        yes(sessions::act_renew(&ask, request).await?)
    }

    async fn show_session(
        &self,
        request: Request<pb::ShowSessionRequest>,
    ) -> Answer<pb::SessionResponse> {
        let (ask, message) = self.enter(Operation::ShowSession, request)?;
        let request = message.read()?;
        yes(sessions::act_show(&ask, request).await?)
    }

    async fn close_session(&self, request: Request<pb::CloseSessionRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::CloseSession, request)?;
        let request = message.read()?;
        yes(sessions::act_close(&ask, request).await?)
    }

    async fn show_cluster(
        &self,
        request: Request<pb::ShowClusterRequest>,
    ) -> Answer<pb::ClusterResponse> {
        let (ask, pb::ShowClusterRequest {}) = self.enter(Operation::ShowCluster, request)?;
        yes(cluster::act_show(&ask).await?)
    }

    async fn add_member(&self, request: Request<pb::AddMemberRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::AddMember, request)?;
        yes(cluster::act_add(&ask, message.into()).await?)
    }

    async fn promote_member(&self, request: Request<pb::PromoteMemberRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::PromoteMember, request)?;
        yes(cluster::act_promote(&ask, message.into()).await?)
    }

    async fn remove_member(&self, request: Request<pb::RemoveMemberRequest>) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::RemoveMember, request)?;
        yes(cluster::act_remove(&ask, message.into()).await?)
    }

    async fn transfer_cluster(
        &self,
        request: Request<pb::TransferClusterRequest>,
    ) -> Answer<pb::Done> {
        let (ask, message) = self.enter(Operation::TransferCluster, request)?;
        yes(cluster::act_transfer(&ask, message.into()).await?)
    }

    async fn backup(&self, request: Request<pb::BackupRequest>) -> Answer<Self::BackupStream> {
        let (ask, pb::BackupRequest {}) = self.enter(Operation::Backup, request)?;
        let mut rest = cluster::act_backup(&ask).await?;
        let pieces = std::iter::from_fn(move || {
            let next = rest.len().min(PIECE_BYTES);
            (next > 0).then(|| Ok(pb::BackupPiece { bytes: rest.split_to(next) }))
        });
        let pieces: Many<pb::BackupPiece> = Box::pin(tokio_stream::iter(pieces));
        yes(pieces)
    }
}
