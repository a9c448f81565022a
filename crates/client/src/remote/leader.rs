//! Leader: who leads a group.

use std::time::Duration;

use regent_api::{Consistency, LeaderQuery, LeaderResponse, Operation};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Asks who leads; nobody is an answer too.
    pub async fn leader(
        &self,
        group: &Group,
        consistency: Consistency,
    ) -> RemoteResult<LeaderResponse> {
        let path = Operation::Leader.route().of_group(group);
        let call = Call::bare(Operation::Leader, path).query(&LeaderQuery { consistency });
        let answer: LeaderResponse = self.call(call, Duration::ZERO).await?;
        self.note(answer.office.revision);
        Ok(answer)
    }
}
