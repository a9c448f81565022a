//! Warm: the answer of a standby to an offer.

use std::time::Duration;

use regent_api::{Done, Operation, WarmRequest};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Says that the standby of an offer is ready to take over.
    pub async fn warm(&self, group: &Group, request: &WarmRequest) -> RemoteResult<()> {
        let path = Operation::Warm.route().of_group(group);
        let call = Call::with_body(Operation::Warm, path, request);
        let _: Done = self.call(call, Duration::ZERO).await?;
        Ok(())
    }
}
