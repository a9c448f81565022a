//! Withdraw: leave the line, or the office.

use std::time::Duration;

use regent_api::{Done, Operation, WithdrawRequest};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Leaves the line or the office; done already if it did neither.
    pub async fn withdraw(&self, group: &Group, request: &WithdrawRequest) -> RemoteResult<()> {
        let path = Operation::Withdraw.route().of_group(group);
        let call = Call::with_body(Operation::Withdraw, path, request);
        let _: Done = self.call(call, Duration::ZERO).await?;
        Ok(())
    }
}
