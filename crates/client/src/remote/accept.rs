//! Accept: a promoted standby takes its office, and may act once this is answered.

use std::time::Duration;

use regent_api::{AcceptRequest, Heard, Operation};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Accepts an office. The validity counts from when this was sent.
    pub async fn accept(&self, group: &Group, request: &AcceptRequest) -> RemoteResult<Heard> {
        let path = Operation::Accept.route().of_group(group);
        let call = Call::with_body(Operation::Accept, path, request);
        let heard: Heard = self.call(call, Duration::ZERO).await?;
        self.note(heard.revision);
        Ok(heard)
    }
}
