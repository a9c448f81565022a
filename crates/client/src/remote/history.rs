//! History: the last changes of a group and why they came about.

use std::time::Duration;

use regent_api::{HistoryResponse, Operation};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Reads the last changes of a group, oldest first.
    pub async fn history(&self, group: &Group) -> RemoteResult<HistoryResponse> {
        let path = Operation::History.route().of_group(group);
        let answer: HistoryResponse =
            self.call(Call::bare(Operation::History, path), Duration::ZERO).await?;
        if let Some(last) = answer.changes.last() {
            self.note(last.revision);
        }
        Ok(answer)
    }
}
