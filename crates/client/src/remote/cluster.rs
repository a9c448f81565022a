//! The replicas of our own store.
//!
//! Members are changed at the replica that leads the log. Whoever asks another one is told where that
//! is and asks there, once or twice: nothing happened at the first, so nothing can happen twice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Bytes;
use regent_api::{
    AddMemberRequest, ClusterResponse, Code, Done, Operation, PromoteMemberRequest,
    RemoveMemberRequest, TransferClusterRequest,
};
use serde::Serialize;

use super::error::RemoteError;
use super::send::Call;
use super::{Remote, RemoteResult};
use crate::limits::{BACKUP_BYTES_MAX, BACKUP_WITHIN};

/// How often a change follows the lead of the log.
const HOPS_MAX: usize = 3;

impl Remote {
    /// The cluster as one of its replicas knows it.
    pub async fn cluster(&self) -> RemoteResult<ClusterResponse> {
        let path = Operation::ShowCluster.route().path.to_owned();
        self.call(Call::bare(Operation::ShowCluster, path), Duration::ZERO).await
    }

    /// Turns to the replica that leads the log if it is one of the addresses given: whoever asks another
    /// one waits for the way from there to it, too.
    pub(crate) async fn follow_log_leader(&self) {
        let Ok(ClusterResponse { leader_address: Some(leader), .. }) = self.cluster().await else {
            return;
        };
        let Some(index) = self.addresses().iter().position(|known| known.is_at(&leader)) else {
            return;
        };
        // Others reach it, but does this one? No heartbeat shall be the first to find out.
        let Ok(there) = Self::at(vec![self.addresses()[index].clone()]) else { return };
        if there.with_timeout(self.request_timeout).health().await.is_ok() {
            self.shared.preferred.store(index, Ordering::Relaxed);
        }
    }

    /// The cluster as the replica that leads the log knows it, which alone knows how far the others
    /// are; or as another one does, if that one cannot be reached.
    pub async fn cluster_by_leader(&self) -> RemoteResult<ClusterResponse> {
        let answer = self.cluster().await?;
        let leads = answer.leader == Some(answer.replica);
        let elsewhere = answer.leader_address.as_deref().filter(|_| !leads);
        let Some(remote) = elsewhere.and_then(|address| self.towards(address)) else {
            return Ok(answer);
        };
        match remote.cluster().await {
            Ok(better) if better.cluster_id == answer.cluster_id => Ok(better),
            Ok(_) | Err(_) => Ok(answer),
        }
    }

    /// Takes a replica in as a learner.
    pub async fn add_member(&self, request: &AddMemberRequest) -> RemoteResult<Done> {
        self.change_cluster(Operation::AddMember, request).await
    }

    /// Makes a learner that has caught up a voter.
    pub async fn promote_member(&self, id: u64) -> RemoteResult<Done> {
        self.change_cluster(Operation::PromoteMember, &PromoteMemberRequest { id }).await
    }

    /// Removes a replica.
    pub async fn remove_member(&self, id: u64) -> RemoteResult<Done> {
        self.change_cluster(Operation::RemoveMember, &RemoveMemberRequest { id }).await
    }

    /// Hands the lead of the log to another replica; none means the most advanced voter.
    pub async fn transfer_cluster(&self, to: Option<u64>) -> RemoteResult<Done> {
        self.change_cluster(Operation::TransferCluster, &TransferClusterRequest { to }).await
    }

    /// Groups, policies, terms and settings as one checksummed file.
    pub async fn backup(&self) -> RemoteResult<Bytes> {
        let path = Operation::Backup.route().path.to_owned();
        let call = Call::bare(Operation::Backup, path).bytes_max(BACKUP_BYTES_MAX);
        self.call_bytes(call, BACKUP_WITHIN).await
    }

    async fn change_cluster(
        &self,
        operation: Operation,
        request: &impl Serialize,
    ) -> RemoteResult<Done> {
        let mut remote = self.clone();
        let mut hops = 0;
        loop {
            let path = operation.route().path.to_owned();
            let call = Call::with_body(operation, path, request);
            let error = match remote.call(call, Duration::ZERO).await {
                Err(RemoteError::Refused(problem)) if problem.code == Code::OtherReplicaLeads => {
                    let there = problem.facts.leader_address.as_deref();
                    if hops < HOPS_MAX
                        && let Some(next) = there.and_then(|there| self.towards(there))
                    {
                        hops += 1;
                        remote = next;
                        continue;
                    }
                    RemoteError::Refused(problem)
                }
                ended => return ended,
            };
            return Err(error);
        }
    }

    /// The same store at another address: one of those given, or one beside them.
    fn towards(&self, address: &str) -> Option<Self> {
        let known = self.addresses();
        let address = match known.iter().find(|known| known.is_at(address)) {
            Some(given) => given.clone(),
            None => known.first()?.beside(address, self.shows_token()).ok()?,
        };
        Some(Self::at(vec![address]).ok()?.with_timeout(self.request_timeout))
    }
}
