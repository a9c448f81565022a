//! What those who lead, stand or take over ask in a group: one body, one answer, no waiting.

use std::time::Duration;

use regent_api::{
    Done, HandOverRequest, HeartbeatResponse, Operation, RenewRequest, TenureRequest,
    WithdrawRequest,
};
use regent_election::Group;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Renews: keeps the session alive and proves one tenure. Anything but an answer extends nothing; a refusal
    /// means: stop at once.
    pub async fn renew(
        &self,
        group: &Group,
        request: &RenewRequest,
    ) -> RemoteResult<HeartbeatResponse> {
        self.heard(Operation::Renew, group, request).await
    }

    /// Accepts an office to which a standby was promoted; it may act once this is answered. The validity counts from
    /// when this was sent.
    pub async fn accept(
        &self,
        group: &Group,
        request: &TenureRequest,
    ) -> RemoteResult<HeartbeatResponse> {
        self.heard(Operation::Accept, group, request).await
    }

    /// Gives an office up. The caller has stopped before it asks, whatever the answer will be.
    pub async fn resign(&self, group: &Group, request: &TenureRequest) -> RemoteResult<()> {
        self.done(Operation::Resign, group, request).await
    }

    /// Leaves the line or the office; done already if it did neither.
    pub async fn withdraw(&self, group: &Group, request: &WithdrawRequest) -> RemoteResult<()> {
        self.done(Operation::Withdraw, group, request).await
    }

    /// Asks a standby to get warm; the caller goes on leading.
    pub async fn offer(&self, group: &Group, request: &HandOverRequest) -> RemoteResult<()> {
        self.done(Operation::Offer, group, request).await
    }

    /// Says that the standby of an offer is ready to take over.
    pub async fn warm(&self, group: &Group, request: &TenureRequest) -> RemoteResult<()> {
        self.done(Operation::Warm, group, request).await
    }

    /// Hands an office to a named standby. The caller has stopped before it asks.
    pub async fn transfer(&self, group: &Group, request: &HandOverRequest) -> RemoteResult<()> {
        self.done(Operation::Transfer, group, request).await
    }

    async fn heard(
        &self,
        operation: Operation,
        group: &Group,
        request: &impl Serialize,
    ) -> RemoteResult<HeartbeatResponse> {
        let heard: HeartbeatResponse = self.ask_in(operation, group, request).await?;
        self.note(heard.revision);
        Ok(heard)
    }

    async fn done(
        &self,
        operation: Operation,
        group: &Group,
        request: &impl Serialize,
    ) -> RemoteResult<()> {
        let _: Done = self.ask_in(operation, group, request).await?;
        Ok(())
    }

    async fn ask_in<A: DeserializeOwned>(
        &self,
        operation: Operation,
        group: &Group,
        request: &impl Serialize,
    ) -> RemoteResult<A> {
        let path = operation.route().of_group(group);
        self.call(Call::with_body(operation, path, request), Duration::ZERO).await
    }
}
