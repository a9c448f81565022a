//! A definite no on the wire, and back: a client gets the refusal that the store gave.

use std::str::FromStr;

use regent_election::access::{CredentialFlaw, Right};
use regent_election::{Cause, Refusal};

use crate::problem::{Code, Problem};

/// The code of a definite no.
#[must_use]
pub const fn code_of(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::SessionUnknown => Code::SessionExpired,
        Refusal::SessionMismatch => Code::SessionMismatch,
        Refusal::HeartbeatNotNewer { .. } => Code::HeartbeatNotNewer,
        Refusal::NotLeader { .. } => Code::NotLeader,
        Refusal::TenureEnding { .. } => Code::TenureEnding,
        Refusal::TtlOutOfBounds { .. } => Code::TtlOutOfBounds,
        Refusal::NotAllowed { .. } => Code::NotAllowed,
        Refusal::GroupUnknown { .. } => Code::GroupUnknown,
        Refusal::GroupEnding { .. } => Code::GroupEnding,
        Refusal::Moved { .. } => Code::Moved,
        Refusal::OnItsWay { .. } => Code::OnItsWay,
        Refusal::NotExpected { .. } => Code::NotExpected,
        Refusal::Stopped { .. } => Code::GroupStopped,
        Refusal::StillLed { .. } => Code::StillLed,
        Refusal::NobodyLeads { .. } => Code::NobodyLeads,
        Refusal::Full { .. } | Refusal::StateFull { .. } | Refusal::ShareFull { .. } => Code::Full,
        Refusal::SuccessorUnknown { .. } => Code::SuccessorUnknown,
        Refusal::SuccessorAmbiguous { .. } => Code::SuccessorAmbiguous,
        Refusal::SuccessorSilent { .. } => Code::SuccessorSilent,
        Refusal::NoOffer { .. } => Code::NoOffer,
        Refusal::RequestTooOld { .. } => Code::RequestTooOld,
        Refusal::RequestAhead { .. } => Code::RequestAhead,
        Refusal::RequestReused => Code::RequestReused,
        Refusal::Policy(_) => Code::PolicyRefused,
        Refusal::StaleTerm { .. } => Code::StaleTerm,
        Refusal::TermOver { .. } => Code::TermOver,
        Refusal::NeverGranted { .. } => Code::NeverGranted,
        Refusal::FenceUnknown { .. } => Code::FenceUnknown,
        Refusal::TermsExhausted { .. } => Code::TermsExhausted,
        Refusal::TermTooHigh { .. } => Code::BadRequest,
        Refusal::Denied { .. } => Code::Forbidden,
        Refusal::Unauthenticated { .. } => Code::Unauthenticated,
        Refusal::SessionOfAnother => Code::SessionOfAnother,
        Refusal::CredentialOver { .. } => Code::CredentialOver,
        Refusal::BindingsChanged { .. } => Code::BindingsChanged,
        Refusal::Access(_) => Code::AccessRefused,
        Refusal::TokenUnknown { .. } => Code::AuthTokenUnknown,
        Refusal::TokenExists { .. } => Code::AuthTokenExists,
        Refusal::SecondApprovalNeeded { .. } | Refusal::NobodyToApprove { .. } => {
            Code::SecondApprovalNeeded
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let mut problem = Self::new(code_of(&refusal), refusal.to_string());
        let facts = &mut *problem.facts;
        match refusal {
            Refusal::HeartbeatNotNewer { given, last } => {
                facts.given_sequence = Some(given);
                facts.last_sequence = Some(last);
            }
            Refusal::NotLeader { group, given, term, leader } => {
                facts.group = Some(group);
                facts.given_term = Some(given);
                facts.current_term = Some(term);
                facts.leader = leader;
            }
            Refusal::TenureEnding { group, term, cause } => {
                facts.group = Some(group);
                facts.current_term = Some(term);
                facts.cause = Some(cause);
            }
            Refusal::TtlOutOfBounds { group, ttl_ms, min, max } => {
                facts.group = group;
                facts.ttl_ms = Some(ttl_ms);
                facts.ttl_ms_min = Some(min);
                facts.ttl_ms_max = Some(max);
            }
            Refusal::Moved { group, to } => {
                facts.group = Some(group);
                facts.moved_to = Some(to);
            }
            Refusal::OnItsWay { group, from } => {
                facts.group = Some(group);
                facts.moved_from = Some(from);
            }
            Refusal::NotExpected { group, since } | Refusal::Stopped { group, since } => {
                facts.group = Some(group);
                facts.given_revision = Some(since);
            }
            Refusal::StillLed { group, term } => {
                facts.group = Some(group);
                facts.current_term = Some(term);
            }
            Refusal::StaleTerm { group, resource, given, current } => {
                facts.group = Some(group);
                facts.resource = resource;
                facts.given_term = Some(given);
                facts.current_term = Some(current);
            }
            Refusal::NeverGranted { group, given, current } => {
                facts.group = Some(group);
                facts.given_term = Some(given);
                facts.current_term = Some(current);
            }
            Refusal::TermOver { group, given } | Refusal::TermTooHigh { group, given, .. } => {
                facts.group = Some(group);
                facts.given_term = Some(given);
            }
            Refusal::FenceUnknown { group, resource } => {
                facts.group = Some(group);
                facts.resource = Some(resource);
            }
            Refusal::NotAllowed { group, node }
            | Refusal::SuccessorUnknown { group, to: node }
            | Refusal::SuccessorSilent { group, to: node } => {
                facts.group = Some(group);
                facts.node = Some(node);
            }
            Refusal::SuccessorAmbiguous { group, to, count } => {
                facts.group = Some(group);
                facts.node = Some(to);
                facts.count = Some(count);
            }
            Refusal::RequestTooOld { seen, forgotten: known }
            | Refusal::RequestAhead { seen, revision: known } => {
                facts.given_revision = Some(seen);
                facts.known_revision = Some(known);
            }
            Refusal::GroupUnknown { group }
            | Refusal::GroupEnding { group }
            | Refusal::NobodyLeads { group }
            | Refusal::NoOffer { group }
            | Refusal::NobodyToApprove { group }
            | Refusal::TermsExhausted { group } => facts.group = Some(group),
            Refusal::SecondApprovalNeeded { group, proposal, .. } => {
                facts.group = Some(group);
                facts.known_revision = Some(proposal);
            }
            Refusal::Denied { right, group, why: _ } => {
                facts.group = group;
                facts.right = Some(right.word().to_owned());
            }
            Refusal::CredentialOver { flaw } => facts.flaw = Some(flaw.word().to_owned()),
            Refusal::Unauthenticated { .. }
            | Refusal::SessionOfAnother
            | Refusal::BindingsChanged { .. }
            | Refusal::Access(_)
            | Refusal::TokenUnknown { .. }
            | Refusal::TokenExists { .. }
            | Refusal::SessionUnknown
            | Refusal::SessionMismatch
            | Refusal::Full { .. }
            | Refusal::StateFull { .. }
            | Refusal::ShareFull { .. }
            | Refusal::RequestReused
            | Refusal::Policy(_) => {}
        }
        problem
    }
}

/// Stands for a name that the sender left out.
const UNTOLD: &str = "untold";

impl Problem {
    /// The refusal that this problem was made of. None for every other problem, and for a bound or a policy
    /// (`FULL`, `POLICY_REFUSED`) or about credentials, which only people read.
    ///
    /// A definite no stays one whatever its sender left out: an older server knows fewer facts, and a
    /// participant that took its no for "not now" would ask for ever. What is missing is a zero, or a name
    /// that says so.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let facts = &*self.facts;
        let group = named(&facts.group)?;
        let (node, to) = (named(&facts.node)?, named(&facts.moved_to)?);
        let (from, at) = (named(&facts.moved_from)?, named(&facts.resource)?);
        let (given, term) =
            (facts.given_term.unwrap_or_default(), facts.current_term.unwrap_or_default());
        let (seen, known) =
            (facts.given_revision.unwrap_or_default(), facts.known_revision.unwrap_or_default());
        let ttl_ms = facts.ttl_ms.unwrap_or_default();
        Some(match self.code {
            Code::SessionExpired => Refusal::SessionUnknown,
            Code::SessionMismatch => Refusal::SessionMismatch,
            Code::HeartbeatNotNewer => Refusal::HeartbeatNotNewer {
                given: facts.given_sequence.unwrap_or_default(),
                last: facts.last_sequence.unwrap_or_default(),
            },
            Code::NotLeader => {
                Refusal::NotLeader { group, given, term, leader: facts.leader.clone() }
            }
            Code::TenureEnding => {
                let cause = facts.cause.unwrap_or(Cause::SteppedDown);
                Refusal::TenureEnding { group, term, cause }
            }
            Code::TtlOutOfBounds => Refusal::TtlOutOfBounds {
                group: facts.group.clone(),
                ttl_ms,
                min: facts.ttl_ms_min.unwrap_or_default(),
                max: facts.ttl_ms_max.unwrap_or_default(),
            },
            Code::NotAllowed => Refusal::NotAllowed { group, node },
            Code::GroupUnknown => Refusal::GroupUnknown { group },
            Code::GroupEnding => Refusal::GroupEnding { group },
            Code::Moved => Refusal::Moved { group, to },
            Code::OnItsWay => Refusal::OnItsWay { group, from },
            Code::NotExpected => Refusal::NotExpected { group, since: seen },
            Code::GroupStopped => Refusal::Stopped { group, since: seen },
            Code::StillLed => Refusal::StillLed { group, term },
            Code::NobodyLeads => Refusal::NobodyLeads { group },
            Code::SuccessorUnknown => Refusal::SuccessorUnknown { group, to: node },
            Code::SuccessorAmbiguous => {
                let count = facts.count.unwrap_or_default();
                Refusal::SuccessorAmbiguous { group, to: node, count }
            }
            Code::SuccessorSilent => Refusal::SuccessorSilent { group, to: node },
            Code::NoOffer => Refusal::NoOffer { group },
            Code::RequestTooOld => Refusal::RequestTooOld { seen, forgotten: known },
            Code::RequestAhead => Refusal::RequestAhead { seen, revision: known },
            Code::RequestReused => Refusal::RequestReused,
            Code::StaleTerm => {
                let resource = facts.resource.clone();
                Refusal::StaleTerm { group, resource, given, current: term }
            }
            Code::TermOver => Refusal::TermOver { group, given },
            Code::NeverGranted => Refusal::NeverGranted { group, given, current: term },
            Code::FenceUnknown => Refusal::FenceUnknown { group, resource: at },
            Code::TermsExhausted => Refusal::TermsExhausted { group },
            Code::Forbidden => Refusal::Denied {
                right: facts
                    .right
                    .as_deref()
                    .and_then(|it| it.parse().ok())
                    .unwrap_or(Right::Observe),
                group: facts.group.clone(),
                why: self.detail.clone().into_boxed_str(),
            },
            Code::Unauthenticated => {
                Refusal::Unauthenticated { why: self.detail.clone().into_boxed_str() }
            }
            Code::SessionOfAnother => Refusal::SessionOfAnother,
            // A server that does not say which: then it may be one that its bearer can replace.
            Code::CredentialOver => Refusal::CredentialOver {
                flaw: facts
                    .flaw
                    .as_deref()
                    .and_then(|it| it.parse().ok())
                    .unwrap_or(CredentialFlaw::Expired),
            },
            Code::BadRequest
            | Code::AuthTokenUnknown
            | Code::AuthTokenExists
            | Code::SecondApprovalNeeded
            | Code::BindingsChanged
            | Code::AccessRefused
            | Code::CrossOrigin
            | Code::NotFound
            | Code::MethodNotAllowed
            | Code::RequestTimeout
            | Code::Full
            | Code::TermMissing
            | Code::TokenRefused
            | Code::UpstreamUnavailable
            | Code::FenceClosed
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
}

/// What was told, or the name that stands for "not told".
fn named<T: Clone + FromStr>(told: &Option<T>) -> Option<T> {
    told.clone().or_else(|| UNTOLD.parse().ok())
}

#[cfg(test)]
mod tests {
    use regent_election::{Group, Home, Node, Resource, Revision, Term};

    use super::*;

    fn refusals() -> Vec<Refusal> {
        let group = || Group::new("billing").unwrap();
        let (to, node) = (Node::new("web-2").unwrap(), Node::new("web-3").unwrap());
        let home = || Home::new("etcd://a").unwrap();
        let resource = Resource::new("table").unwrap();
        let (given, current) = (Term::new(5).unwrap(), Term::new(6).unwrap());
        let (seen, known) = (Revision(3), Revision(9));
        let leader = Some(to.clone());
        let sent_by = |group| Refusal::TtlOutOfBounds { group, ttl_ms: 7, min: 8, max: 9 };
        let at = |resource| Refusal::StaleTerm { group: group(), resource, given, current };
        vec![
            Refusal::SessionUnknown,
            Refusal::SessionMismatch,
            Refusal::Unauthenticated { why: "no credential was shown".into() },
            Refusal::SessionOfAnother,
            Refusal::CredentialOver { flaw: CredentialFlaw::Expired },
            Refusal::CredentialOver { flaw: CredentialFlaw::Revoked },
            Refusal::Denied { right: Right::Stand, group: Some(group()), why: "no binding".into() },
            Refusal::HeartbeatNotNewer { given: 5, last: 9 },
            Refusal::NotLeader { group: group(), given, term: current, leader },
            Refusal::NotLeader { group: group(), given, term: current, leader: None },
            Refusal::TenureEnding { group: group(), term: current, cause: Cause::Policy },
            sent_by(Some(group())),
            sent_by(None),
            Refusal::NotAllowed { group: group(), node },
            Refusal::GroupUnknown { group: group() },
            Refusal::GroupEnding { group: group() },
            Refusal::Moved { group: group(), to: home() },
            Refusal::OnItsWay { group: group(), from: home() },
            Refusal::NotExpected { group: group(), since: seen },
            Refusal::Stopped { group: group(), since: seen },
            Refusal::StillLed { group: group(), term: current },
            Refusal::NobodyLeads { group: group() },
            Refusal::SuccessorUnknown { group: group(), to: to.clone() },
            Refusal::SuccessorAmbiguous { group: group(), to: to.clone(), count: 3 },
            Refusal::SuccessorSilent { group: group(), to },
            Refusal::NoOffer { group: group() },
            Refusal::RequestTooOld { seen, forgotten: known },
            Refusal::RequestAhead { seen, revision: known },
            Refusal::RequestReused,
            at(Some(resource.clone())),
            at(None),
            Refusal::TermOver { group: group(), given },
            Refusal::NeverGranted { group: group(), given, current },
            Refusal::FenceUnknown { group: group(), resource },
            Refusal::TermsExhausted { group: group() },
        ]
    }

    #[test]
    fn a_refusal_survives_the_wire_as_it_was() {
        for sent in refusals() {
            let json = serde_json::to_string(&Problem::from(sent.clone())).unwrap();
            let problem: Problem = serde_json::from_str(&json).unwrap();
            assert_eq!(problem.refusal(), Some(sent), "{json}");
        }
    }

    #[cfg(feature = "grpc")]
    #[test]
    fn a_refusal_survives_grpc_as_it_was() {
        for sent in refusals() {
            let status = tonic::Status::from(Problem::from(sent.clone()));
            let problem = crate::grpc::status::problem(&status).unwrap();
            assert_eq!(problem.refusal(), Some(sent));
        }
    }

    /// A server of another version may tell less. Its no must not become "try again": the participant would.
    #[test]
    fn a_refusal_stays_one_whatever_its_sender_leaves_out() {
        let full = serde_json::to_value(Problem::new(Code::Full, "because")).unwrap();
        let required: Vec<_> = full.as_object().unwrap().keys().cloned().collect();
        for sent in refusals() {
            let whole = serde_json::to_value(Problem::from(sent.clone())).unwrap();
            let members = whole.as_object().unwrap().keys();
            let optional: Vec<_> = members.filter(|it| !required.contains(it)).cloned().collect();
            let each = optional.iter().map(|it| vec![it.clone()]);
            for left_out in each.chain([optional.clone()]) {
                let mut json = whole.clone();
                json.as_object_mut().unwrap().retain(|it, _| !left_out.contains(it));
                let problem: Problem = serde_json::from_value(json).unwrap();
                let read = problem.refusal().as_ref().map(code_of);
                assert_eq!(read, Some(code_of(&sent)), "without {left_out:?}");
            }
        }
    }

    #[test]
    fn every_code_of_a_refusal_is_read_without_any_fact() {
        let codes: Vec<_> = refusals().iter().map(code_of).collect();
        for code in Code::ALL {
            let read = Problem::new(*code, "because").refusal().as_ref().map(code_of);
            assert_eq!(read, codes.contains(code).then_some(*code), "{code}");
        }
    }

    #[test]
    fn a_cause_of_a_later_version_leaves_the_rest_readable() {
        let sent = refusals().into_iter().find(|it| matches!(it, Refusal::TenureEnding { .. }));
        let mut json = serde_json::to_value(Problem::from(sent.unwrap())).unwrap();
        json["cause"] = "of_the_future".into();
        let problem: Problem = serde_json::from_value(json).unwrap();
        assert_eq!(problem.refusal().as_ref().map(code_of), Some(Code::TenureEnding));
    }

    #[test]
    fn a_stale_leader_is_told_both_terms_and_who_leads() {
        let refusal = Refusal::NotLeader {
            group: Group::new("billing").unwrap(),
            given: Term::new(3).unwrap(),
            term: Term::new(5).unwrap(),
            leader: Some(Node::new("web-2").unwrap()),
        };
        let json = serde_json::to_value(Problem::from(refusal)).unwrap();
        assert_eq!(json["code"], "NOT_LEADER");
        assert_eq!(json["type"], "urn:regent:problem:not_leader");
        assert_eq!((&json["given_term"], &json["current_term"]), (&3.into(), &5.into()));
        assert_eq!(json["leader"], "web-2");
        assert_eq!(json["detail"], "term 3 < current 5: web-2 leads billing; stop at once");
    }
}
