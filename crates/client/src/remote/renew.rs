//! Renew: keep a session alive and prove one tenure.

use std::time::Duration;

use regent_api::{Heard, Operation, RenewRequest};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Renews. Anything but an answer extends nothing; a refusal means: stop at once.
    pub async fn renew(&self, group: &Group, request: &RenewRequest) -> RemoteResult<Heard> {
        let path = Operation::Renew.route().of_group(group);
        let call = Call::with_body(Operation::Renew, path, request);
        let heard: Heard = self.call(call, Duration::ZERO).await?;
        self.note(heard.revision);
        Ok(heard)
    }
}
