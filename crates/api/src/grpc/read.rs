//! Messages as the checked requests they mirror. What was read is well-formed; what is not is a
//! `BAD_REQUEST` that names its field.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use regent_election::limits::TERM_MAX;
use regent_election::store::Scope;
use regent_election::{
    Cursor, Group, Metadata, Priority, Reason, RequestId, Resource, SessionId, Term,
};

use super::generated as pb;
use crate::limits::WATCH_GROUPS_MAX;
use crate::problem::{Code, Problem};
use crate::{
    AddMemberRequest, BeliefsBody, CampaignRequest, ClaimBody, ClaimsQuery, CloseSessionRequest,
    Consistency, Disowned, FencesQuery, GroupsQuery, HandOverRequest, HeartbeatRequest,
    MoveGroupRequest, OpenSessionRequest, PolicyBody, PriorityRule, PromoteMemberRequest,
    PutGroupRequest, RemoveMemberRequest, RenewRequest, ShowSessionRequest, StepDownRequest,
    StepWord, TenureRequest, TransferClusterRequest, ValidateTokenRequest, WithdrawRequest,
};

type Read<T> = Result<T, Problem>;

fn wrong(field: &str, why: impl Display) -> Problem {
    Problem::new(Code::BadRequest, format!("{field}: {why}")).at(field)
}

/// A checked name.
pub(super) fn text<T: FromStr<Err: Display>>(field: &str, text: &str) -> Read<T> {
    text.parse().map_err(|why| wrong(field, why))
}

/// A checked name, or none.
fn text_option<T: FromStr<Err: Display>>(field: &str, given: Option<String>) -> Read<Option<T>> {
    given.map(|given| text(field, &given)).transpose()
}

fn group(name: &str) -> Read<Group> {
    text("group", name)
}

/// A session's secret. Its text is never repeated in a message.
fn session(secret: &str) -> Read<SessionId> {
    text("session_id", secret)
}

fn request_id(given: Option<String>) -> Read<Option<RequestId>> {
    text_option("request_id", given)
}

fn term(number: u64) -> Read<Term> {
    Term::new(number).ok_or_else(|| wrong("term", format!("{number}: no term is that high")))
}

/// Milliseconds, within the same bound as over JSON.
fn millis(field: &str, number: Option<u64>) -> Read<Option<u64>> {
    match number {
        Some(number) if number > TERM_MAX => {
            Err(wrong(field, format!("{number} is more than {TERM_MAX}")))
        }
        Some(_) | None => Ok(number),
    }
}

fn priority(number: i32) -> Read<Priority> {
    Priority::try_from(number).map_err(|_| {
        let (min, max) = (Priority::MIN, Priority::MAX);
        wrong("priority", format!("{number} is not between {min} and {max}"))
    })
}

fn metadata(entries: BTreeMap<String, String>) -> Read<Metadata> {
    Metadata::new(entries).map_err(|why| wrong("metadata", why))
}

impl pb::CampaignRequest {
    /// The request, and where.
    pub fn read(self) -> Read<(Group, CampaignRequest)> {
        let request = CampaignRequest {
            node_id: text("node_id", &self.node_id)?,
            ttl_ms: millis("ttl_ms", self.ttl_ms)?,
            session_id: text_option("session_id", self.session_id)?,
            wait_ms: millis("wait_ms", self.wait_ms)?,
            priority: priority(self.priority)?,
            metadata: metadata(self.metadata)?,
            request_id: request_id(self.request_id)?,
        };
        Ok((group(&self.group)?, request))
    }
}

impl pb::RenewRequest {
    /// The request, and where.
    pub fn read(self) -> Read<(Group, RenewRequest)> {
        let request = RenewRequest {
            session_id: session(&self.session_id)?,
            term: term(self.term)?,
            extend_by_ms: millis("extend_by_ms", self.extend_by_ms)?,
        };
        Ok((group(&self.group)?, request))
    }
}

impl pb::WithdrawRequest {
    /// The request, and where.
    pub fn read(self) -> Read<(Group, WithdrawRequest)> {
        let request = WithdrawRequest {
            session_id: session(&self.session_id)?,
            request_id: request_id(self.request_id)?,
        };
        Ok((group(&self.group)?, request))
    }
}

/// Messages that say something about one tenure: one shape under many names.
macro_rules! about_a_tenure {
    ($($message:ident)+) => {$(
        secretive! { $message }

        impl pb::$message {
            /// The request, and where.
            pub fn read(self) -> Read<(Group, TenureRequest)> {
                let request = TenureRequest {
                    session_id: session(&self.session_id)?,
                    term: term(self.term)?,
                    request_id: request_id(self.request_id)?,
                };
                Ok((group(&self.group)?, request))
            }
        }
    )+};
}

about_a_tenure! { AcceptRequest ResignRequest WarmRequest }

/// Messages that hand over to a named standby, likewise.
macro_rules! hand_over {
    ($($message:ident)+) => {$(
        secretive! { $message }

        impl pb::$message {
            /// The request, and where.
            pub fn read(self) -> Read<(Group, HandOverRequest)> {
                let request = HandOverRequest {
                    session_id: session(&self.session_id)?,
                    term: term(self.term)?,
                    to: text("to", &self.to)?,
                    request_id: request_id(self.request_id)?,
                };
                Ok((group(&self.group)?, request))
            }
        }
    )+};
}

hand_over! { OfferRequest TransferRequest }

impl pb::LeaderRequest {
    /// How, and where.
    pub fn read(self) -> Read<(Group, Consistency)> {
        let consistency = pb::Consistency::try_from(self.consistency)
            .map_err(|_| wrong("consistency", format!("there is no {}", self.consistency)))?;
        Ok((group(&self.group)?, consistency.into()))
    }
}

impl pb::WatchRequest {
    /// What to watch, and from where.
    pub fn read(self) -> Read<(Scope, Option<Cursor>)> {
        let cursor = text_option("cursor", self.cursor)?;
        Ok((Scope::Group(group(&self.group)?), cursor))
    }
}

impl pb::WatchManyRequest {
    /// What to watch, and from where. The prefix is yet to be checked.
    pub fn read(self) -> Read<(Scope, Option<Cursor>)> {
        let prefix = (!self.prefix.is_empty()).then_some(self.prefix);
        let scope = match (self.groups.is_empty(), prefix) {
            (true, prefix) => Scope::Prefix(prefix.unwrap_or_default()),
            (false, prefix) => scope(&self.groups, prefix, WATCH_GROUPS_MAX)?,
        };
        Ok((scope, text_option("cursor", self.cursor)?))
    }
}

impl pb::Follow {
    /// What to watch, and from where; none if nothing. The prefix is yet to be checked.
    pub fn read(self, groups_max: usize) -> Read<(Option<Scope>, Option<Cursor>)> {
        let cursor = text_option("cursor", self.cursor)?;
        if self.groups.is_empty() && self.prefix.is_none() {
            return Ok((None, cursor));
        }
        Ok((Some(scope(&self.groups, self.prefix, groups_max)?), cursor))
    }
}

fn scope(names: &[String], prefix: Option<String>, groups_max: usize) -> Read<Scope> {
    match prefix {
        Some(_) if !names.is_empty() => {
            Err(wrong("groups", "prefix and groups exclude each other; give one"))
        }
        Some(prefix) => Ok(Scope::Prefix(prefix)),
        None if names.len() > groups_max => {
            let why = format!("at most {groups_max} are named; watch a prefix instead");
            Err(wrong("groups", why))
        }
        None => {
            let named = names.iter().map(|name| text("groups", name));
            let mut groups = named.collect::<Read<Vec<Group>>>()?;
            groups.sort_unstable();
            groups.dedup();
            Ok(Scope::Groups(groups))
        }
    }
}

impl pb::StepDownRequest {
    /// The request, and where.
    pub fn read(self) -> Read<(Group, StepDownRequest)> {
        let request = StepDownRequest {
            reason: Reason::new(&self.reason).map_err(|why| wrong("reason", why))?,
            to: text_option("to", self.to)?,
            immediate: self.immediate,
            request_id: request_id(self.request_id)?,
        };
        Ok((group(&self.group)?, request))
    }
}

impl pb::MoveGroupRequest {
    /// The request, and where.
    pub fn read(self) -> Read<(Group, MoveGroupRequest)> {
        let step = match self.step() {
            pb::MoveStep::Expect => StepWord::Expect,
            pb::MoveStep::Depart => StepWord::Depart,
            pb::MoveStep::Arrive => StepWord::Arrive,
            pb::MoveStep::Stop => StepWord::Stop,
            pb::MoveStep::Resume => StepWord::Resume,
            pb::MoveStep::Unspecified => return Err(wrong("step", "no such step of a move")),
        };
        let above = self
            .above
            .map(|above| Term::new(above).ok_or_else(|| wrong("above", "terms stay below 2^53")));
        let request = MoveGroupRequest {
            step,
            from: text_option("from", self.from)?,
            to: text_option("to", self.to)?,
            since: self.since,
            above: above.transpose()?,
            heir: text_option("heir", self.heir)?,
            request_id: request_id(self.request_id)?,
        };
        Ok((group(&self.group)?, request))
    }
}

impl pb::TokenRequest {
    /// Where, and who proves to hold it.
    pub fn read(self) -> Read<(Group, Option<SessionId>)> {
        let session_id = self.session_id.as_deref().map(session).transpose()?;
        Ok((group(&self.group)?, session_id))
    }
}

impl pb::ValidateTokenRequest {
    /// The request, and where.
    pub fn read(self) -> Read<(Group, ValidateTokenRequest)> {
        let resource = text_option("resource", self.resource)?;
        let request = ValidateTokenRequest { term: term(self.term)?, resource };
        Ok((group(&self.group)?, request))
    }
}

impl pb::ListFencesRequest {
    /// The request, and where.
    pub fn read(self) -> Read<(Group, FencesQuery)> {
        let after = text_option("after", self.after)?;
        let query = FencesQuery { prefix: self.prefix, after, count: self.count };
        Ok((group(&self.group)?, query))
    }
}

impl pb::DeleteFenceRequest {
    /// Where, and which.
    pub fn read(self) -> Read<(Group, Resource)> {
        Ok((group(&self.group)?, text("resource", &self.resource)?))
    }
}

impl pb::HistoryRequest {
    /// The group whose history is asked for.
    pub fn read(self) -> Read<Group> {
        group(&self.group)
    }
}

impl pb::ShowGroupRequest {
    /// The group that is asked for.
    pub fn read(self) -> Read<Group> {
        group(&self.group)
    }
}

impl pb::DeleteGroupRequest {
    /// Where, and the repeat's name.
    pub fn read(self) -> Read<(Group, Option<RequestId>)> {
        Ok((group(&self.group)?, request_id(self.request_id)?))
    }
}

impl pb::PutGroupRequest {
    /// The request, and where.
    pub fn read(self) -> Read<(Group, PutGroupRequest)> {
        let request = PutGroupRequest {
            policy: self.policy.map(pb::Policy::read).transpose()?,
            request_id: request_id(self.request_id)?,
        };
        Ok((group(&self.group)?, request))
    }
}

impl pb::Policy {
    /// The policy; what is left out has its default.
    pub fn read(self) -> Read<PolicyBody> {
        let default = PolicyBody::default();
        let ms = |field, given, default| {
            millis(field, given).map(|given: Option<u64>| given.unwrap_or(default))
        };
        let allow = self.allow.iter().map(|pattern| text("allow", pattern));
        let rules = self.priorities.iter().map(|rule| {
            let nodes = text("priorities", &rule.nodes)?;
            Ok(PriorityRule { nodes, priority: priority(rule.priority)? })
        });
        Ok(PolicyBody {
            ttl_ms_min: ms("ttl_ms_min", self.ttl_ms_min, default.ttl_ms_min)?,
            ttl_ms_max: ms("ttl_ms_max", self.ttl_ms_max, default.ttl_ms_max)?,
            retry_ms_min: ms("retry_ms_min", self.retry_ms_min, default.retry_ms_min)?,
            retry_ms_max: millis("retry_ms_max", self.retry_ms_max)?,
            lock_delay_ms: ms("lock_delay_ms", self.lock_delay_ms, default.lock_delay_ms)?,
            minimum_tenure_ms: ms(
                "minimum_tenure_ms",
                self.minimum_tenure_ms,
                default.minimum_tenure_ms,
            )?,
            prefer_priority: self.prefer_priority.unwrap_or(default.prefer_priority),
            allow: allow.collect::<Read<_>>()?,
            priorities: rules.collect::<Read<_>>()?,
            standbys_max: self.standbys_max.unwrap_or(default.standbys_max),
            four_eyes: self.four_eyes.unwrap_or(default.four_eyes),
        })
    }
}

impl pb::ListGroupsRequest {
    /// The request.
    pub fn read(self) -> Read<GroupsQuery> {
        let after = text_option("after", self.after)?;
        Ok(GroupsQuery { prefix: self.prefix, after, count: self.count })
    }
}

impl pb::OpenSessionRequest {
    /// The request.
    pub fn read(self) -> Read<OpenSessionRequest> {
        Ok(OpenSessionRequest {
            node_id: text("node_id", &self.node_id)?,
            ttl_ms: millis("ttl_ms", self.ttl_ms)?,
            session_id: text_option("session_id", self.session_id)?,
        })
    }
}

impl pb::Hello {
    /// The session to open or to resume: always one of the caller's choice.
    pub fn read(&self) -> Read<OpenSessionRequest> {
        Ok(OpenSessionRequest {
            node_id: text("node_id", &self.node_id)?,
            ttl_ms: millis("ttl_ms", self.ttl_ms)?,
            session_id: Some(session(&self.session_id)?),
        })
    }
}

impl pb::HeartbeatRequest {
    /// The request.
    pub fn read(self) -> Read<HeartbeatRequest> {
        Ok(HeartbeatRequest {
            session_id: session(&self.session_id)?,
            sequence: self.sequence,
            disown: self.disown.into_iter().map(pb::Disowned::read).collect::<Read<_>>()?,
            beliefs: self.beliefs.map(pb::Beliefs::read).transpose()?,
        })
    }
}

impl pb::Heartbeat {
    /// The sign of life of this session.
    pub fn read(self, session_id: SessionId) -> Read<HeartbeatRequest> {
        Ok(HeartbeatRequest {
            session_id,
            sequence: Some(self.sequence),
            disown: self.disown.into_iter().map(pb::Disowned::read).collect::<Read<_>>()?,
            beliefs: self.beliefs.map(pb::Beliefs::read).transpose()?,
        })
    }
}

impl pb::Beliefs {
    fn read(self) -> Read<BeliefsBody> {
        let claim = |claim: pb::Claim| {
            Ok(ClaimBody {
                group: text("claims", &claim.group)?,
                term: term(claim.term)?,
                left_ms: claim.left_ms,
                digest: text_option("digest", claim.digest)?,
            })
        };
        Ok(BeliefsBody {
            node_id: text("node_id", &self.node_id)?,
            ttl_ms: self.ttl_ms,
            margin_ms: self.margin_ms,
            claims: self.claims.into_iter().map(claim).collect::<Read<_>>()?,
            refused: self.refused.into_iter().map(pb::Disowned::read).collect::<Read<_>>()?,
        })
    }
}

impl pb::ClaimsRequest {
    /// What is asked for.
    pub fn read(self) -> Read<ClaimsQuery> {
        Ok(ClaimsQuery {
            group: text_option("group", self.group)?,
            disputed: self.disputed,
            after: text_option("after", self.after)?,
        })
    }
}

impl pb::Disowned {
    fn read(self) -> Read<Disowned> {
        Ok(Disowned { group: text("disown", &self.group)?, term: term(self.term)? })
    }
}

impl pb::ShowSessionRequest {
    /// The request.
    pub fn read(self) -> Read<ShowSessionRequest> {
        Ok(ShowSessionRequest { session_id: session(&self.session_id)? })
    }
}

impl pb::CloseSessionRequest {
    /// The request.
    pub fn read(self) -> Read<CloseSessionRequest> {
        Ok(CloseSessionRequest { session_id: session(&self.session_id)? })
    }
}

impl From<pb::AddMemberRequest> for AddMemberRequest {
    fn from(message: pb::AddMemberRequest) -> Self {
        Self {
            id: message.id,
            peer_address: message.peer_address,
            client_address: message.client_address,
            witness: message.witness,
        }
    }
}

impl From<pb::PromoteMemberRequest> for PromoteMemberRequest {
    fn from(message: pb::PromoteMemberRequest) -> Self {
        Self { id: message.id }
    }
}

impl From<pb::RemoveMemberRequest> for RemoveMemberRequest {
    fn from(message: pb::RemoveMemberRequest) -> Self {
        Self { id: message.id }
    }
}

impl From<pb::TransferClusterRequest> for TransferClusterRequest {
    fn from(message: pb::TransferClusterRequest) -> Self {
        Self { to: message.to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of<T>(read: Read<T>) -> String {
        let Err(problem) = read else { panic!("it was accepted") };
        assert_eq!(problem.code, Code::BadRequest);
        problem.facts.field.unwrap_or_default()
    }

    #[test]
    fn a_malformed_field_is_refused_by_its_name() {
        let good = pb::CampaignRequest {
            group: "g".to_owned(),
            node_id: "a".to_owned(),
            ..pb::CampaignRequest::default()
        };
        assert!(good.clone().read().is_ok());
        let with = |change: fn(&mut pb::CampaignRequest)| {
            let mut message = good.clone();
            change(&mut message);
            field_of(message.read())
        };
        assert_eq!(with(|message| message.group.clear()), "group");
        assert_eq!(with(|message| message.node_id = "a b".to_owned()), "node_id");
        assert_eq!(with(|message| message.ttl_ms = Some(u64::MAX)), "ttl_ms");
        assert_eq!(with(|message| message.wait_ms = Some(u64::MAX)), "wait_ms");
        assert_eq!(with(|message| message.priority = 40_000), "priority");
        assert_eq!(with(|message| message.session_id = Some("x".to_owned())), "session_id");
        assert_eq!(with(|message| message.request_id = Some("x".to_owned())), "request_id");
        let key = |message: &mut pb::CampaignRequest| {
            message.metadata.insert("a b".to_owned(), "c".to_owned());
        };
        assert_eq!(with(key), "metadata");
        let resign = pb::ResignRequest {
            group: "g".to_owned(),
            session_id: "0".repeat(31) + "1",
            term: u64::MAX,
            request_id: None,
        };
        assert_eq!(field_of(resign.read()), "term");
    }

    #[test]
    fn a_watch_names_groups_or_a_prefix_and_not_too_many() {
        let many = |groups: usize, prefix: &str| {
            pb::WatchManyRequest {
                groups: (0..groups).map(|n| format!("g{n}")).collect(),
                prefix: prefix.to_owned(),
                cursor: None,
            }
            .read()
        };
        assert_eq!(many(0, "").unwrap().0, Scope::Prefix(String::new()));
        assert_eq!(many(0, "a").unwrap().0, Scope::Prefix("a".to_owned()));
        assert!(many(WATCH_GROUPS_MAX, "").is_ok());
        assert_eq!(field_of(many(WATCH_GROUPS_MAX + 1, "")), "groups");
        assert_eq!(field_of(many(1, "a")), "groups");
    }

    #[test]
    fn a_policy_left_out_has_its_defaults() {
        assert_eq!(pb::Policy::default().read().unwrap(), PolicyBody::default());
    }
}
