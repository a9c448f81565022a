//! Every verb of the table, from its message to its answer.
//!
//! Each method takes a place, reads its message and calls the function that serves the verb over
//! HTTP as well. tonic's trait has one method per verb, so one that is missing does not compile.

use std::pin::Pin;
use std::sync::Arc;

use regent_api::grpc as pb;
use regent_api::grpc::regent_server::Regent;
use regent_api::{Operation, Problem};
use regent_election::access::GuardedStore;
use regent_election::store::Scope;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use crate::app::{App, Ask};
use crate::grpc::session::{self, Link, Lookout, Outgoing};
use crate::router::Peer;
use crate::{
    access, backup, beliefs, campaign, cluster, groups, history, leader, sessions, step_down,
    tenure, token, watch,
};

/// What every method returns.
type GrpcResult<T> = Result<Response<T>, Status>;
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
        let Peer { activity, trail, .. } =
            peer.expect("the connection put itself into every request");
        let guard = request.extensions().get::<GuardedStore>().cloned();
        let app = &self.app;
        let place = app.enter(operation, guard.as_ref(), &activity)?;
        let app = Arc::clone(app);
        Ok((Ask { app, guard, activity, trail, place }, request.into_inner()))
    }
}

fn yes<T>(answer: impl Into<T>) -> GrpcResult<T> {
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
    ) -> GrpcResult<Self::SessionStream> {
        let peer = request.extensions().get::<Peer>().cloned();
        let Peer { activity, trail, .. } =
            peer.expect("the connection put itself into every request");
        let guard = request.extensions().get::<GuardedStore>().cloned();
        let (app, lookout) = (Arc::clone(&self.app), Arc::clone(&self.lookout));
        let link = Link { app, guard, activity, trail };
        yes(session::open(link, lookout, request.into_inner()).await?)
    }

    async fn campaign(
        &self,
        request: Request<pb::CampaignRequest>,
    ) -> GrpcResult<pb::CampaignResponse> {
        let (mut ask, message) = self.enter(Operation::Campaign, request)?;
        let (group, request) = message.read()?;
        yes(campaign::act(&mut ask, group, request).await?)
    }

    async fn renew(&self, request: Request<pb::RenewRequest>) -> GrpcResult<pb::HeartbeatResponse> {
        let (ask, message) = self.enter(Operation::Renew, request)?;
        let (group, request) = message.read()?;
        yes(tenure::renew(&ask, &group, request).await?)
    }

    async fn resign(&self, request: Request<pb::ResignRequest>) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::Resign, request)?;
        let (group, request) = message.read()?;
        yes(tenure::resign(&ask, &group, request).await?)
    }

    async fn withdraw(&self, request: Request<pb::WithdrawRequest>) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::Withdraw, request)?;
        let (group, request) = message.read()?;
        yes(tenure::withdraw(&ask, &group, request).await?)
    }

    async fn accept(
        &self,
        request: Request<pb::AcceptRequest>,
    ) -> GrpcResult<pb::HeartbeatResponse> {
        let (ask, message) = self.enter(Operation::Accept, request)?;
        let (group, request) = message.read()?;
        yes(tenure::accept(&ask, &group, request).await?)
    }

    async fn offer(&self, request: Request<pb::OfferRequest>) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::Offer, request)?;
        let (group, request) = message.read()?;
        yes(tenure::offer(&ask, &group, request).await?)
    }

    async fn warm(&self, request: Request<pb::WarmRequest>) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::Warm, request)?;
        let (group, request) = message.read()?;
        yes(tenure::warm(&ask, &group, request).await?)
    }

    async fn transfer(&self, request: Request<pb::TransferRequest>) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::Transfer, request)?;
        let (group, request) = message.read()?;
        yes(tenure::transfer(&ask, &group, request).await?)
    }

    async fn leader(&self, request: Request<pb::LeaderRequest>) -> GrpcResult<pb::LeaderResponse> {
        let (ask, message) = self.enter(Operation::Leader, request)?;
        let (group, consistency) = message.read()?;
        yes(leader::act(&ask, &group, consistency).await?)
    }

    async fn watch(&self, request: Request<pb::WatchRequest>) -> GrpcResult<Self::WatchStream> {
        let (ask, message) = self.enter(Operation::Watch, request)?;
        let (scope, cursor) = message.read()?;
        yes(events(watch::events(ask, scope, cursor).await?))
    }

    async fn watch_many(
        &self,
        request: Request<pb::WatchManyRequest>,
    ) -> GrpcResult<Self::WatchManyStream> {
        let (ask, message) = self.enter(Operation::WatchMany, request)?;
        let (scope, cursor) = message.read()?;
        if let Scope::Prefix(prefix) = &scope {
            groups::check_prefix(prefix)?;
        }
        yes(events(watch::events(ask, scope, cursor).await?))
    }

    async fn step_down(
        &self,
        request: Request<pb::StepDownRequest>,
    ) -> GrpcResult<pb::SteppedDown> {
        let (ask, message) = self.enter(Operation::StepDown, request)?;
        let (group, request) = message.read()?;
        yes(step_down::act(&ask, group, request).await?)
    }

    async fn move_group(
        &self,
        request: Request<pb::MoveGroupRequest>,
    ) -> GrpcResult<pb::GroupResponse> {
        let (ask, message) = self.enter(Operation::MoveGroup, request)?;
        let (group, request) = message.read()?;
        yes(groups::act_step(&ask, &group, request).await?)
    }

    async fn token(&self, request: Request<pb::TokenRequest>) -> GrpcResult<pb::TokenResponse> {
        let (ask, message) = self.enter(Operation::Token, request)?;
        let (group, session) = message.read()?;
        yes(token::act_show(&ask, &group, session).await?)
    }

    async fn validate_token(
        &self,
        request: Request<pb::ValidateTokenRequest>,
    ) -> GrpcResult<pb::ValidateTokenResponse> {
        let (ask, message) = self.enter(Operation::ValidateToken, request)?;
        let (group, request) = message.read()?;
        yes(token::act_validate(&ask, group, request).await?)
    }

    async fn list_fences(
        &self,
        request: Request<pb::ListFencesRequest>,
    ) -> GrpcResult<pb::FencesResponse> {
        let (ask, message) = self.enter(Operation::ListFences, request)?;
        let (group, query) = message.read()?;
        yes(token::act_list(&ask, group, query).await?)
    }

    async fn claims(&self, request: Request<pb::ClaimsRequest>) -> GrpcResult<pb::ClaimsResponse> {
        let (ask, message) = self.enter(Operation::Claims, request)?;
        yes(beliefs::act(&ask, &message.read()?).await?)
    }

    async fn delete_fence(&self, request: Request<pb::DeleteFenceRequest>) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::DeleteFence, request)?;
        let (group, resource) = message.read()?;
        yes(token::act_delete(&ask, &group, &resource).await?)
    }

    async fn history(
        &self,
        request: Request<pb::HistoryRequest>,
    ) -> GrpcResult<pb::HistoryResponse> {
        let (ask, message) = self.enter(Operation::History, request)?;
        let group = message.read()?;
        yes(history::act(&ask, group).await?)
    }

    async fn put_group(
        &self,
        request: Request<pb::PutGroupRequest>,
    ) -> GrpcResult<pb::GroupResponse> {
        let (ask, message) = self.enter(Operation::PutGroup, request)?;
        let (group, request) = message.read()?;
        yes(groups::act_put(&ask, &group, request).await?)
    }

    async fn show_group(
        &self,
        request: Request<pb::ShowGroupRequest>,
    ) -> GrpcResult<pb::GroupResponse> {
        let (ask, message) = self.enter(Operation::ShowGroup, request)?;
        let group = message.read()?;
        yes(groups::act_show(&ask, &group).await?)
    }

    async fn delete_group(
        &self,
        request: Request<pb::DeleteGroupRequest>,
    ) -> GrpcResult<pb::SteppedDown> {
        let (ask, message) = self.enter(Operation::DeleteGroup, request)?;
        let (group, request_id) = message.read()?;
        yes(groups::act_delete(&ask, &group, request_id).await?)
    }

    async fn list_groups(
        &self,
        request: Request<pb::ListGroupsRequest>,
    ) -> GrpcResult<pb::GroupsResponse> {
        let (ask, message) = self.enter(Operation::ListGroups, request)?;
        let request = message.read()?;
        yes(groups::act_list(&ask, request).await?)
    }

    async fn open_session(
        &self,
        request: Request<pb::OpenSessionRequest>,
    ) -> GrpcResult<pb::SessionResponse> {
        let (ask, message) = self.enter(Operation::OpenSession, request)?;
        let request = message.read()?;
        yes(sessions::act_open(&ask, request).await?)
    }

    async fn heartbeat(
        &self,
        request: Request<pb::HeartbeatRequest>,
    ) -> GrpcResult<pb::HeartbeatResponse> {
        let (ask, message) = self.enter(Operation::Heartbeat, request)?;
        let request = message.read()?;
        yes(sessions::act_heartbeat(&ask, request).await?)
    }

    async fn show_session(
        &self,
        request: Request<pb::ShowSessionRequest>,
    ) -> GrpcResult<pb::SessionResponse> {
        let (ask, message) = self.enter(Operation::ShowSession, request)?;
        let request = message.read()?;
        yes(sessions::act_show(&ask, request).await?)
    }

    async fn close_session(
        &self,
        request: Request<pb::CloseSessionRequest>,
    ) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::CloseSession, request)?;
        let request = message.read()?;
        yes(sessions::act_close(&ask, request).await?)
    }

    async fn show_cluster(
        &self,
        request: Request<pb::ShowClusterRequest>,
    ) -> GrpcResult<pb::ClusterResponse> {
        let (ask, pb::ShowClusterRequest {}) = self.enter(Operation::ShowCluster, request)?;
        yes(cluster::act_show(&ask).await?)
    }

    async fn add_member(&self, request: Request<pb::AddMemberRequest>) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::AddMember, request)?;
        yes(cluster::act_add(&ask, message.into()).await?)
    }

    async fn promote_member(
        &self,
        request: Request<pb::PromoteMemberRequest>,
    ) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::PromoteMember, request)?;
        yes(cluster::act_promote(&ask, message.into()).await?)
    }

    async fn remove_member(
        &self,
        request: Request<pb::RemoveMemberRequest>,
    ) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::RemoveMember, request)?;
        yes(cluster::act_remove(&ask, message.into()).await?)
    }

    async fn transfer_cluster(
        &self,
        request: Request<pb::TransferClusterRequest>,
    ) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::TransferCluster, request)?;
        yes(cluster::act_transfer(&ask, message.into()).await?)
    }

    async fn backup(&self, request: Request<pb::BackupRequest>) -> GrpcResult<Self::BackupStream> {
        let (ask, pb::BackupRequest {}) = self.enter(Operation::Backup, request)?;
        let pieces = backup::act(&ask).await?.map(|piece| match piece {
            Ok(bytes) => Ok(pb::BackupPiece { bytes }),
            Err(error) => Err(Status::data_loss(error.to_string())),
        });
        let pieces: Many<pb::BackupPiece> = Box::pin(pieces);
        yes(pieces)
    }

    async fn show_bindings(
        &self,
        request: Request<pb::ShowBindingsRequest>,
    ) -> GrpcResult<pb::BindingsResponse> {
        let (ask, pb::ShowBindingsRequest {}) = self.enter(Operation::ShowBindings, request)?;
        yes(access::act_show(&ask).await?)
    }

    async fn put_bindings(
        &self,
        request: Request<pb::PutBindingsRequest>,
    ) -> GrpcResult<pb::BindingsResponse> {
        let (ask, message) = self.enter(Operation::PutBindings, request)?;
        yes(access::act_put(&ask, message.into()).await?)
    }

    async fn show_usage(
        &self,
        request: Request<pb::ShowUsageRequest>,
    ) -> GrpcResult<pb::UsageResponse> {
        let (ask, pb::ShowUsageRequest {}) = self.enter(Operation::ShowUsage, request)?;
        yes(access::act_usage(&ask).await?)
    }

    async fn list_auth_tokens(
        &self,
        request: Request<pb::ListAuthTokensRequest>,
    ) -> GrpcResult<pb::AuthTokensResponse> {
        let (ask, pb::ListAuthTokensRequest {}) = self.enter(Operation::ListAuthTokens, request)?;
        yes(access::act_tokens(&ask).await?)
    }

    async fn create_auth_token(
        &self,
        request: Request<pb::CreateAuthTokenRequest>,
    ) -> GrpcResult<pb::CreateAuthTokenResponse> {
        let (ask, message) = self.enter(Operation::CreateAuthToken, request)?;
        yes(access::act_create(&ask, message.read()?).await?)
    }

    async fn revoke_auth_token(
        &self,
        request: Request<pb::RevokeAuthTokenRequest>,
    ) -> GrpcResult<pb::Done> {
        let (ask, message) = self.enter(Operation::RevokeAuthToken, request)?;
        yes(access::act_revoke(&ask, message.read()?).await?)
    }
}
