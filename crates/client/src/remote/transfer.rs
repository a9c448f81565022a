//! Transfer: hand the office to a named standby.

use std::time::Duration;

use regent_api::{Done, Operation, TransferRequest};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Hands an office to a named standby. The caller has stopped before it asks.
    pub async fn transfer(&self, group: &Group, request: &TransferRequest) -> RemoteResult<()> {
        let path = Operation::Transfer.route().of_group(group);
        let call = Call::with_body(Operation::Transfer, path, request);
        let _: Done = self.call(call, Duration::ZERO).await?;
        Ok(())
    }
}
