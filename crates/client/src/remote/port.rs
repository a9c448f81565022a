//! What a participant asks, over HTTP.
//!
//! The participant's machine speaks the words of the Store port. This is where they become calls of a
//! [`Remote`], and where what the server said becomes what the machine understands.

use std::time::Duration;

use regent_api::{
    CampaignRequest, CloseSessionRequest, HandOverRequest, HeartbeatRequest, OpenSessionRequest,
    ShowSessionRequest, TenureRequest, WithdrawRequest,
};
use regent_election::participant::{GroupRequest, Reply, Request, Verb};
use regent_election::store::StoreError;

use super::{Remote, RemoteError, RemoteResult};

impl Remote {
    /// Sends one request of a participant. It awaits and chooses nothing.
    pub async fn perform(&self, request: &Request) -> RemoteResult<Reply> {
        match request {
            Request::Open(open) => {
                let request = OpenSessionRequest {
                    node_id: open.node.clone(),
                    ttl_ms: Some(open.ttl_ms),
                    session_id: Some(open.session),
                };
                Ok(Reply::Session(self.open_session(&request).await?.into()))
            }
            Request::Heartbeat(heartbeat) => {
                let request = HeartbeatRequest::from(heartbeat.clone());
                Ok(Reply::Heartbeat(self.heartbeat(&request).await?.into()))
            }
            Request::List(session_id) => {
                let request = ShowSessionRequest { session_id: *session_id };
                Ok(Reply::Session(self.show_session(&request).await?.into()))
            }
            Request::Close(session_id) => {
                self.close_session(&CloseSessionRequest { session_id: *session_id }).await?;
                Ok(Reply::Done)
            }
            Request::Campaign(campaign) => {
                let request = CampaignRequest::from(campaign.clone());
                Ok(Reply::Campaigned(self.campaign(&campaign.group, &request).await?.into()))
            }
            Request::Group(request) => self.perform_in_group(request).await,
        }
    }

    async fn perform_in_group(&self, request: &GroupRequest) -> RemoteResult<Reply> {
        let GroupRequest { group, session, request, verb } = request;
        let (session_id, request_id) = (*session, Some(request.clone()));
        match verb.clone() {
            Verb::Accept(term) => {
                let request = TenureRequest { session_id, term, request_id };
                return Ok(Reply::Heartbeat(self.accept(group, &request).await?.into()));
            }
            Verb::Withdraw => {
                self.withdraw(group, &WithdrawRequest { session_id, request_id }).await?;
            }
            Verb::Resign(term) => {
                self.resign(group, &TenureRequest { session_id, term, request_id }).await?;
            }
            Verb::Offer(term, to) => {
                self.offer(group, &HandOverRequest { session_id, term, to, request_id }).await?;
            }
            Verb::Warm(term) => {
                self.warm(group, &TenureRequest { session_id, term, request_id }).await?;
            }
            Verb::Transfer(term, to) => {
                let request = HandOverRequest { session_id, term, to, request_id };
                self.transfer(group, &request).await?;
            }
        }
        Ok(Reply::Done)
    }
}

impl RemoteError {
    /// The same, as a participant understands it.
    #[must_use]
    pub fn into_store_error(self) -> StoreError {
        match self {
            Self::Refused(problem) => match problem.refusal() {
                Some(refusal) => StoreError::Refused(refusal),
                // A definite no that changes nothing for a participant: it tries again later.
                None => StoreError::Unavailable {
                    why: format!("{} ({})", problem.detail, problem.code),
                    retry_after: problem.retry_after_ms.map(Duration::from_millis),
                },
            },
            Self::Unavailable { why, retry_after, problem: _ } => {
                StoreError::Unavailable { why, retry_after }
            }
            Self::Uncertain { why, problem: _ } | Self::Protocol { why } => {
                StoreError::Uncertain { why }
            }
        }
    }
}

impl RemoteError {
    /// The same for a read, which changes nothing and so is never uncertain.
    #[must_use]
    pub fn into_read_error(self) -> StoreError {
        let retry_after = self.retry_after();
        StoreError::Unavailable { why: self.to_string(), retry_after }
    }
}

#[cfg(test)]
mod tests {
    use regent_api::problem::{Code, Problem, code_of};
    use regent_election::Refusal;

    use super::*;

    /// Without the last number no participant could tell its own duplicate from a twin (S14).
    #[test]
    fn a_heartbeat_that_came_too_late_is_told_the_last_number() {
        let sent = Refusal::HeartbeatNotNewer { given: 5, last: 9 };
        let wire = serde_json::to_string(&Problem::from(sent.clone())).unwrap();
        let problem = serde_json::from_str(&wire).unwrap();
        let error = RemoteError::Refused(problem).into_store_error();
        assert_eq!(error, StoreError::Refused(sent));
    }

    /// Nor if the server is of a version that does not repeat the number it was given.
    #[test]
    fn an_older_server_tells_the_last_number_too() {
        let mut problem = Problem::new(Code::HeartbeatNotNewer, "because");
        problem.facts.last_sequence = Some(9);
        let error = RemoteError::Refused(Box::new(problem)).into_store_error();
        assert!(
            matches!(error, StoreError::Refused(Refusal::HeartbeatNotNewer { last: 9, .. })),
            "{error:?}"
        );
    }

    #[test]
    fn a_definite_no_of_any_kind_never_becomes_perhaps() {
        for code in Code::ALL.iter().filter(|code| code.nothing_happened()) {
            let problem = Box::new(Problem::new(*code, "because"));
            let error = RemoteError::Refused(problem).into_store_error();
            assert!(!matches!(error, StoreError::Uncertain { .. }), "{code}: {error:?}");
            if let StoreError::Refused(refusal) = error {
                assert_eq!(code_of(&refusal), *code);
            }
        }
    }
}
