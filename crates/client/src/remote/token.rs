//! The token service: the current term, whether a term may still write, and what resources have admitted.

use std::time::Duration;

use regent_api::{
    DeleteFenceQuery, Done, FencesQuery, FencesResponse, Operation, Problem, TokenResponse,
    ValidateTokenRequest, ValidateTokenResponse,
};
use regent_election::store::StoreError;
use regent_election::{Group, Refusal, SessionId};

use super::send::Call;
use super::{Remote, RemoteError, RemoteResult};

impl Remote {
    /// The current fencing token of a group; signed, if `session` holds it and the service has a key.
    pub async fn token(
        &self,
        group: &Group,
        session: Option<SessionId>,
    ) -> RemoteResult<TokenResponse> {
        let path = Operation::Token.route().of_group(group);
        let mut call = Call::bare(Operation::Token, path);
        if let Some(session) = session {
            call = call.proving(session);
        }
        let answer: TokenResponse = self.call(call, Duration::ZERO).await?;
        self.note(answer.revision);
        Ok(answer)
    }

    /// Whether a term may still write; with a resource, its fence is raised in the same step. Asking again
    /// changes nothing.
    pub async fn validate_token(
        &self,
        group: &Group,
        request: &ValidateTokenRequest,
    ) -> RemoteResult<ValidateTokenResponse> {
        let path = Operation::ValidateToken.route().of_group(group);
        let call = Call::with_body(Operation::ValidateToken, path, request);
        self.call(call, Duration::ZERO).await
    }

    /// One page of a group's fences; `next` of the answer asks for the one after.
    pub async fn list_fences(
        &self,
        group: &Group,
        query: &FencesQuery,
    ) -> RemoteResult<FencesResponse> {
        let path = Operation::ListFences.route().of_group(group);
        let call = Call::bare(Operation::ListFences, path).query(query);
        let page: FencesResponse = self.call(call, Duration::ZERO).await?;
        self.note(page.revision);
        Ok(page)
    }

    /// Forgets a fence; what it refused stays refused.
    pub async fn delete_fence(
        &self,
        group: &Group,
        query: &DeleteFenceQuery,
    ) -> RemoteResult<Done> {
        let path = Operation::DeleteFence.route().of_group(group);
        let call = Call::bare(Operation::DeleteFence, path).query(query);
        self.call(call, Duration::ZERO).await
    }
}

impl RemoteError {
    /// The same, as a store would have answered an admission.
    pub(crate) fn into_admission_error(self) -> StoreError {
        let refusal = self.problem().and_then(Problem::refusal);
        if let Some(refusal @ (Refusal::StaleTerm { .. } | Refusal::NeverGranted { .. })) = refusal
        {
            return StoreError::Refused(refusal);
        }
        match self {
            // Raising the same mark again does no harm, so what may have happened may be repeated.
            Self::Uncertain { why, .. } | Self::Protocol { why } => StoreError::Uncertain { why },
            Self::Refused(_) | Self::Unavailable { .. } => {
                let retry_after = self.retry_after();
                StoreError::Unavailable { why: self.to_string(), retry_after }
            }
        }
    }
}
