//! Step-down: an administrator ends a tenure.

use std::time::Duration;

use regent_api::{Operation, StepDownRequest, SteppedDown};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Ends a tenure. If the outcome is uncertain, repeat it with the same request id.
    pub async fn step_down(
        &self,
        group: &Group,
        request: &StepDownRequest,
    ) -> RemoteResult<SteppedDown> {
        let path = Operation::StepDown.route().of_group(group);
        self.call(Call::with_body(Operation::StepDown, path, request), Duration::ZERO).await
    }
}
