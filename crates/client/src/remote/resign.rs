//! Resign: give the office up.

use std::time::Duration;

use regent_api::{Done, Operation, ResignRequest};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Gives an office up. The caller has stopped before it asks, whatever the answer will be.
    pub async fn resign(&self, group: &Group, request: &ResignRequest) -> RemoteResult<()> {
        let path = Operation::Resign.route().of_group(group);
        let call = Call::with_body(Operation::Resign, path, request);
        let _: Done = self.call(call, Duration::ZERO).await?;
        Ok(())
    }
}
