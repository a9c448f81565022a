//! What a participant asks, over HTTP.
//!
//! The participant's machine speaks the words of the Store port. This is where they become calls of a
//! [`Remote`], and where what the server said becomes what the machine understands. A problem holds
//! less than a refusal (it is for people and programs that asked the question), so the rest is taken
//! from the question.

use std::time::Duration;

use regent_api::problem::{Code, Problem};
use regent_api::{
    AcceptRequest, CampaignRequest, CloseSessionRequest, OfferRequest, OpenSessionRequest,
    RenewSessionRequest, ResignRequest, ShowSessionRequest, TransferRequest, WarmRequest,
    WithdrawRequest,
};
use regent_election::participant::{GroupRequest, Reply, Request, Verb};
use regent_election::store::StoreError;
use regent_election::{Cause, Group, Node, Refusal, RequestId, Term};

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
                let request = RenewSessionRequest::from(heartbeat.clone());
                Ok(Reply::Heard(self.renew_session(&request).await?.into()))
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
                let request = AcceptRequest { session_id, term, request_id };
                return Ok(Reply::Heard(self.accept(group, &request).await?.into()));
            }
            Verb::Withdraw => {
                self.withdraw(group, &WithdrawRequest { session_id, request_id }).await?;
            }
            Verb::Resign(term) => {
                self.resign(group, &ResignRequest { session_id, term, request_id }).await?;
            }
            Verb::Offer(term, to) => {
                self.offer(group, &OfferRequest { session_id, term, to, request_id }).await?;
            }
            Verb::Warm(term) => {
                self.warm(group, &WarmRequest { session_id, term, request_id }).await?;
            }
            Verb::Transfer(term, to) => {
                let request = TransferRequest { session_id, term, to, request_id };
                self.transfer(group, &request).await?;
            }
        }
        Ok(Reply::Done)
    }
}

impl RemoteError {
    /// The same, as a participant understands it, given what was asked.
    #[must_use]
    pub fn into_store_error(self, asked: &Request) -> StoreError {
        match self {
            Self::Refused(problem) => match refusal(&problem, asked) {
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

/// The refusal that a problem tells of; none if it is one that no participant acts on.
fn refusal(problem: &Problem, asked: &Request) -> Option<Refusal> {
    let facts = &problem.facts;
    let group = facts.group.clone().or_else(|| group_of(asked).cloned());
    let to = successor_of(asked).cloned();
    let seen = request_id_of(asked).map(|request| request.seen);
    let term = facts.current_term.or_else(|| term_of(asked)).unwrap_or(Term::NONE);
    Some(match problem.code {
        Code::SessionExpired => Refusal::SessionUnknown,
        Code::SessionMismatch => {
            let (node, ttl_ms) = opening_of(asked)?;
            Refusal::SessionMismatch { node: node.clone(), ttl_ms }
        }
        Code::HeartbeatNotNewer => {
            let Request::Heartbeat(heartbeat) = asked else { return None };
            let given = heartbeat.sequence?;
            Refusal::HeartbeatNotNewer { given, last: facts.last_sequence.unwrap_or(given) }
        }
        Code::NotLeader => Refusal::NotLeader {
            group: group?,
            given: facts.given_term.or_else(|| term_of(asked)).unwrap_or(Term::NONE),
            term,
            leader: facts.leader.clone(),
        },
        Code::TenureEnding => {
            let cause = facts.cause.unwrap_or(Cause::SteppedDown);
            Refusal::TenureEnding { group: group?, term, cause }
        }
        Code::TtlOutOfBounds => Refusal::TtlOutOfBounds {
            group: facts.group.clone(),
            ttl_ms: opening_of(asked).map_or(0, |(_, ttl_ms)| ttl_ms),
            min: facts.ttl_ms_min?,
            max: facts.ttl_ms_max?,
        },
        Code::NotAllowed => {
            let Request::Campaign(campaign) = asked else { return None };
            Refusal::NotAllowed { group: group?, node: campaign.node.clone() }
        }
        Code::GroupUnknown => Refusal::GroupUnknown { group: group? },
        Code::GroupEnding => Refusal::GroupEnding { group: group? },
        Code::Moved => Refusal::Moved { group: group?, to: facts.moved_to.clone()? },
        Code::StillLed => Refusal::StillLed { group: group?, term },
        Code::NobodyLeads => Refusal::NobodyLeads { group: group? },
        Code::SuccessorUnknown => Refusal::SuccessorUnknown { group: group?, to: to? },
        // How many there are is not told; two is the fewest that makes it true.
        Code::SuccessorAmbiguous => {
            Refusal::SuccessorAmbiguous { group: group?, to: to?, count: 2 }
        }
        Code::SuccessorSilent => Refusal::SuccessorSilent { group: group?, to: to? },
        Code::NoOffer => Refusal::NoOffer { group: group? },
        Code::RequestTooOld => Refusal::RequestTooOld { seen: seen?, forgotten: seen? },
        Code::RequestAhead => Refusal::RequestAhead { seen: seen?, revision: seen? },
        Code::RequestReused => Refusal::RequestReused,
        Code::TermsExhausted => Refusal::TermsExhausted { group: group? },
        Code::BadRequest
        | Code::CrossOrigin
        | Code::NotFound
        | Code::MethodNotAllowed
        | Code::RequestTimeout
        | Code::Full
        | Code::OnItsWay
        | Code::TermMissing
        | Code::TokenRefused
        | Code::UpstreamUnavailable
        | Code::FenceClosed
        | Code::NotExpected
        | Code::StaleTerm
        | Code::TermOver
        | Code::NeverGranted
        | Code::FenceUnknown
        | Code::OtherReplicaLeads
        | Code::MemberRefused
        | Code::PayloadTooLarge
        | Code::UnsupportedMediaType
        | Code::PolicyRefused
        | Code::RateLimited
        | Code::Internal
        | Code::StoreCorrupt
        | Code::Unsupported
        | Code::StoreUnavailable
        | Code::ShuttingDown
        | Code::Uncertain
        | Code::Unrecognised => return None,
    })
}

fn group_of(asked: &Request) -> Option<&Group> {
    match asked {
        Request::Campaign(campaign) => Some(&campaign.group),
        Request::Group(request) => Some(&request.group),
        Request::Open(_) | Request::Heartbeat(_) | Request::List(_) | Request::Close(_) => None,
    }
}

fn opening_of(asked: &Request) -> Option<(&Node, u64)> {
    match asked {
        Request::Open(open) => Some((&open.node, open.ttl_ms)),
        Request::Campaign(campaign) => Some((&campaign.node, campaign.ttl_ms?)),
        Request::Group(_) | Request::Heartbeat(_) | Request::List(_) | Request::Close(_) => None,
    }
}

fn request_id_of(asked: &Request) -> Option<&RequestId> {
    match asked {
        Request::Campaign(campaign) => campaign.request.as_ref(),
        Request::Group(request) => Some(&request.request),
        Request::Open(_) | Request::Heartbeat(_) | Request::List(_) | Request::Close(_) => None,
    }
}

fn term_of(asked: &Request) -> Option<Term> {
    let Request::Group(request) = asked else { return None };
    match &request.verb {
        Verb::Withdraw => None,
        Verb::Accept(term)
        | Verb::Resign(term)
        | Verb::Offer(term, _)
        | Verb::Warm(term)
        | Verb::Transfer(term, _) => Some(*term),
    }
}

fn successor_of(asked: &Request) -> Option<&Node> {
    let Request::Group(request) = asked else { return None };
    match &request.verb {
        Verb::Offer(_, to) | Verb::Transfer(_, to) => Some(to),
        Verb::Withdraw | Verb::Accept(_) | Verb::Resign(_) | Verb::Warm(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use regent_api::problem::code_of;
    use regent_election::store::Heartbeat;
    use regent_election::{Home, Revision, SessionId};

    use super::*;

    fn asked() -> Request {
        Request::Group(GroupRequest {
            group: Group::new("billing").unwrap(),
            session: SessionId::new(7).unwrap(),
            request: RequestId::new(Revision(3), "a").unwrap(),
            verb: Verb::Transfer(Term::new(5).unwrap(), Node::new("web-2").unwrap()),
        })
    }

    /// What a participant acts on comes back as it was; numbers that the wire does not carry aside.
    #[test]
    fn a_refusal_survives_the_way_over_the_wire() {
        let group = Group::new("billing").unwrap();
        let (to, term) = (Node::new("web-2").unwrap(), Term::new(6).unwrap());
        for sent in [
            Refusal::SessionUnknown,
            Refusal::NotLeader {
                group: group.clone(),
                given: Term::new(5).unwrap(),
                term,
                leader: Some(to.clone()),
            },
            Refusal::TenureEnding { group: group.clone(), term, cause: Cause::Policy },
            Refusal::GroupUnknown { group: group.clone() },
            Refusal::GroupEnding { group: group.clone() },
            Refusal::Moved { group: group.clone(), to: Home::new("etcd://a").unwrap() },
            Refusal::SuccessorUnknown { group: group.clone(), to: to.clone() },
            Refusal::SuccessorSilent { group: group.clone(), to: to.clone() },
            Refusal::SuccessorAmbiguous { group: group.clone(), to, count: 2 },
            Refusal::NoOffer { group },
            Refusal::RequestReused,
        ] {
            let problem = Box::new(Problem::from(sent.clone()));
            let error = RemoteError::Refused(problem).into_store_error(&asked());
            assert_eq!(error, StoreError::Refused(sent));
        }
    }

    /// Without the last number no participant could tell its own duplicate from a twin (S14).
    #[test]
    fn a_heartbeat_that_came_too_late_is_told_the_last_number() {
        let session = SessionId::new(7).unwrap();
        let asked = Request::Heartbeat(Heartbeat {
            session,
            sequence: Some(5),
            disowned: Vec::new(),
            beliefs: None,
        });
        let sent = Refusal::HeartbeatNotNewer { given: 5, last: 9 };
        let wire = serde_json::to_string(&Problem::from(sent.clone())).unwrap();
        let problem = serde_json::from_str(&wire).unwrap();
        let error = RemoteError::Refused(problem).into_store_error(&asked);
        assert_eq!(error, StoreError::Refused(sent));
    }

    #[test]
    fn a_definite_no_of_any_kind_never_becomes_perhaps() {
        for code in Code::ALL.iter().filter(|code| code.nothing_happened()) {
            let problem = Box::new(Problem::new(*code, "because"));
            let error = RemoteError::Refused(problem).into_store_error(&asked());
            assert!(!matches!(error, StoreError::Uncertain { .. }), "{code}: {error:?}");
            if let StoreError::Refused(refusal) = error {
                assert_eq!(code_of(&refusal), *code);
            }
        }
    }
}
