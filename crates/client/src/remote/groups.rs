//! Groups and their policies.

use std::time::Duration;

use regent_api::{
    DeleteGroupQuery, GroupResponse, GroupsQuery, GroupsResponse, MoveGroupRequest, Operation,
    PutGroupRequest, SteppedDown,
};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Creates a group or replaces its policy.
    pub async fn put_group(
        &self,
        group: &Group,
        request: &PutGroupRequest,
    ) -> RemoteResult<GroupResponse> {
        let path = Operation::PutGroup.route().of_group(group);
        self.group_answer(Call::with_body(Operation::PutGroup, path, request)).await
    }

    /// Takes one step of a group's move between two stores; repeating it changes nothing.
    pub async fn move_group(
        &self,
        group: &Group,
        request: &MoveGroupRequest,
    ) -> RemoteResult<GroupResponse> {
        let path = Operation::MoveGroup.route().of_group(group);
        self.group_answer(Call::with_body(Operation::MoveGroup, path, request)).await
    }

    /// Shows a group as an operator sees it.
    pub async fn show_group(&self, group: &Group) -> RemoteResult<GroupResponse> {
        let path = Operation::ShowGroup.route().of_group(group);
        self.group_answer(Call::bare(Operation::ShowGroup, path)).await
    }

    /// Deletes a group; its terms never come back.
    pub async fn delete_group(
        &self,
        group: &Group,
        query: &DeleteGroupQuery,
    ) -> RemoteResult<SteppedDown> {
        let path = Operation::DeleteGroup.route().of_group(group);
        let call = Call::bare(Operation::DeleteGroup, path).query(query);
        self.call(call, Duration::ZERO).await
    }

    /// One page of groups; `next` of the answer asks for the one after.
    pub async fn list_groups(&self, query: &GroupsQuery) -> RemoteResult<GroupsResponse> {
        let path = Operation::ListGroups.route().path.to_owned();
        let call = Call::bare(Operation::ListGroups, path).query(query);
        let page: GroupsResponse = self.call(call, Duration::ZERO).await?;
        self.note(page.revision);
        Ok(page)
    }

    async fn group_answer(&self, call: Call) -> RemoteResult<GroupResponse> {
        let answer: GroupResponse = self.call(call, Duration::ZERO).await?;
        self.note(answer.office.revision);
        Ok(answer)
    }
}
