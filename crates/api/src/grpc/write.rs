//! Answers of this crate as messages.

use regent_election::{Metadata, Term};

use super::generated as pb;
use super::generated::{stepped_down, watch_event};
use super::words::cause_number;
use crate::{
    BeliefsBody, BelieverBody, Bookmark, CallerBody, CampaignResponse, Change, ClaimBody,
    ClaimedBody, ClaimsResponse, Closing, ClusterMember, ClusterResponse, ClusterTuning, Disowned,
    Done, DoorBody, FenceBody, FencesResponse, Gap, GroupResponse, GroupsResponse,
    HeartbeatResponse, HistoryResponse, LeaderChanged, LeaderResponse, Offer, Office, PolicyBody,
    Present, PriorityRule, ReplicaTimers, SessionResponse, Stale, Standby, SteppedDown, Tenure,
    TokenResponse, ValidateTokenResponse, WatchEvent,
};

fn metadata(metadata: &Metadata) -> std::collections::BTreeMap<String, String> {
    metadata.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl From<Done> for pb::Done {
    fn from(_: Done) -> Self {
        Self {}
    }
}

impl From<HeartbeatResponse> for pb::HeartbeatResponse {
    fn from(heard: HeartbeatResponse) -> Self {
        Self { ttl_ms: heard.ttl_ms, epoch: heard.epoch, revision: heard.revision.0 }
    }
}

impl From<Office> for pb::Office {
    fn from(office: Office) -> Self {
        Self {
            group: office.group.to_string(),
            leader: office.leader.map(|leader| leader.to_string()),
            term: office.term.get(),
            state: pb::OfficeState::from(office.state) as i32,
            metadata: metadata(&office.metadata),
            valid_for_ms: office.valid_for_ms,
            moved_to: office.moved_to.map(|to| to.to_string()),
            revision: office.revision.0,
            cursor: office.cursor.to_string(),
        }
    }
}

impl From<CampaignResponse> for pb::CampaignResponse {
    fn from(response: CampaignResponse) -> Self {
        Self {
            elected: response.elected,
            standing: response.standing,
            session_id: response.session_id.map(regent_election::SessionId::reveal),
            ttl_ms: response.ttl_ms,
            retry_after_ms: response.retry_after_ms,
            office: Some(response.office.into()),
        }
    }
}

impl From<LeaderResponse> for pb::LeaderResponse {
    fn from(response: LeaderResponse) -> Self {
        Self {
            office: Some(response.office.into()),
            consistency: pb::Consistency::from(response.consistency) as i32,
            valid_for_unknown: response.valid_for_unknown,
        }
    }
}

impl From<Present> for pb::Present {
    fn from(present: Present) -> Self {
        Self {
            offices: present.offices.into_iter().map(pb::Office::from).collect(),
            next: present.next.map(|next| next.to_string()),
            cursor: present.cursor.to_string(),
        }
    }
}

impl From<LeaderChanged> for pb::LeaderChanged {
    fn from(changed: LeaderChanged) -> Self {
        Self {
            group: changed.group.to_string(),
            leader: changed.leader.map(|leader| leader.to_string()),
            term: changed.term.get(),
            cause: pb::Cause::from(changed.cause) as i32,
            metadata: metadata(&changed.metadata),
            revision: changed.revision.0,
            cursor: changed.cursor.to_string(),
        }
    }
}

impl From<Gap> for pb::Gap {
    fn from(gap: Gap) -> Self {
        Self {
            oldest: gap.oldest.to_string(),
            present: Some(gap.present.into()),
            retry_after_ms: gap.retry_after_ms,
        }
    }
}

impl From<Bookmark> for pb::Bookmark {
    fn from(bookmark: Bookmark) -> Self {
        Self {
            revision: bookmark.revision.0,
            cursor: bookmark.cursor.to_string(),
            confirmed_ago_ms: bookmark.confirmed_ago_ms,
        }
    }
}

impl From<Stale> for pb::Stale {
    fn from(stale: Stale) -> Self {
        Self { cursor: stale.cursor.to_string(), confirmed_ago_ms: stale.confirmed_ago_ms }
    }
}

impl From<Closing> for pb::Closing {
    fn from(closing: Closing) -> Self {
        Self { cursor: closing.cursor.to_string(), retry_after_ms: closing.retry_after_ms }
    }
}

impl From<WatchEvent> for pb::WatchEvent {
    fn from(event: WatchEvent) -> Self {
        let event = match event {
            WatchEvent::State(present) => watch_event::Event::State(present.into()),
            WatchEvent::LeaderChanged(changed) => watch_event::Event::LeaderChanged(changed.into()),
            WatchEvent::Gap(gap) => watch_event::Event::Gap(gap.into()),
            WatchEvent::Bookmark(bookmark) => watch_event::Event::Bookmark(bookmark.into()),
            WatchEvent::Closing(closing) => watch_event::Event::Closing(closing.into()),
            WatchEvent::Stale(stale) => watch_event::Event::Stale(stale.into()),
        };
        Self { event: Some(event) }
    }
}

impl From<SteppedDown> for pb::SteppedDown {
    fn from(stepped_down: SteppedDown) -> Self {
        let outcome = match stepped_down {
            SteppedDown::Over => stepped_down::Outcome::Over(stepped_down::Over {}),
            SteppedDown::Ending { within_ms } => {
                stepped_down::Outcome::Ending(stepped_down::Ending { within_ms })
            }
            SteppedDown::Forced { overlap_possible_ms } => {
                stepped_down::Outcome::Forced(stepped_down::Forced { overlap_possible_ms })
            }
        };
        Self { outcome: Some(outcome) }
    }
}

impl From<TokenResponse> for pb::TokenResponse {
    fn from(response: TokenResponse) -> Self {
        Self {
            group: response.group.to_string(),
            term: response.term.get(),
            leader: response.leader.map(|leader| leader.to_string()),
            state: pb::OfficeState::from(response.state) as i32,
            valid_for_ms: response.valid_for_ms,
            token: response.token,
            revision: response.revision.0,
        }
    }
}

impl From<ValidateTokenResponse> for pb::ValidateTokenResponse {
    fn from(response: ValidateTokenResponse) -> Self {
        Self {
            group: response.group.to_string(),
            term: response.term.get(),
            resource: response.resource.map(|resource| resource.to_string()),
            valid: response.valid,
        }
    }
}

impl From<FencesResponse> for pb::FencesResponse {
    fn from(response: FencesResponse) -> Self {
        let fence = |fence: FenceBody| pb::Fence {
            resource: fence.resource.to_string(),
            term: fence.term.get(),
        };
        Self {
            group: response.group.to_string(),
            fences: response.fences.into_iter().map(fence).collect(),
            floor: response.floor.get(),
            next: response.next.map(|next| next.to_string()),
            current_term: response.current_term.get(),
            moved_to: response.moved_to.map(|to| to.to_string()),
            revision: response.revision.0,
        }
    }
}

impl From<BeliefsBody> for pb::Beliefs {
    fn from(body: BeliefsBody) -> Self {
        let claim = |claim: ClaimBody| pb::Claim {
            group: claim.group.to_string(),
            term: claim.term.get(),
            left_ms: claim.left_ms,
            digest: claim.digest.map(|digest| digest.to_string()),
        };
        let refused =
            |lost: Disowned| pb::Disowned { group: lost.group.to_string(), term: lost.term.get() };
        Self {
            node_id: body.node_id.to_string(),
            ttl_ms: body.ttl_ms,
            margin_ms: body.margin_ms,
            claims: body.claims.into_iter().map(claim).collect(),
            refused: body.refused.into_iter().map(refused).collect(),
        }
    }
}

impl From<ClaimsResponse> for pb::ClaimsResponse {
    fn from(response: ClaimsResponse) -> Self {
        let believer = |believer: BelieverBody| pb::Believer {
            node_id: believer.node_id.to_string(),
            term: believer.term.get(),
            left_ms: believer.left_ms,
            ttl_ms: believer.ttl_ms,
            heard_ms_ago: believer.heard_ms_ago,
            standing: believer.standing,
            fault: believer.fault,
            digest: believer.digest.map(|digest| digest.to_string()),
        };
        let claimed = |claimed: ClaimedBody| pb::Claimed {
            group: claimed.group.to_string(),
            term: claimed.term.map(Term::get),
            leader: claimed.leader.map(|leader| leader.to_string()),
            believers: claimed.believers.into_iter().map(believer).collect(),
        };
        Self {
            groups: response.groups.into_iter().map(claimed).collect(),
            next: response.next.map(|next| next.to_string()),
        }
    }
}

impl From<HistoryResponse> for pb::HistoryResponse {
    fn from(response: HistoryResponse) -> Self {
        Self {
            group: response.group.to_string(),
            changes: response.changes.into_iter().map(pb::Change::from).collect(),
        }
    }
}

impl From<Change> for pb::Change {
    fn from(change: Change) -> Self {
        Self {
            revision: change.revision.0,
            at: change.at,
            term: change.term.get(),
            leader: change.leader.map(|leader| leader.to_string()),
            cause: pb::Cause::from(change.cause) as i32,
            reason: change.reason,
        }
    }
}

impl From<PolicyBody> for pb::Policy {
    fn from(policy: PolicyBody) -> Self {
        Self {
            ttl_ms_min: Some(policy.ttl_ms_min),
            ttl_ms_max: Some(policy.ttl_ms_max),
            retry_ms_min: Some(policy.retry_ms_min),
            retry_ms_max: policy.retry_ms_max,
            lock_delay_ms: Some(policy.lock_delay_ms),
            minimum_tenure_ms: Some(policy.minimum_tenure_ms),
            prefer_priority: Some(policy.prefer_priority),
            allow: policy.allow.iter().map(ToString::to_string).collect(),
            priorities: policy.priorities.into_iter().map(pb::PriorityRule::from).collect(),
            standbys_max: Some(policy.standbys_max),
            four_eyes: Some(policy.four_eyes),
        }
    }
}

impl From<PriorityRule> for pb::PriorityRule {
    fn from(rule: PriorityRule) -> Self {
        Self { nodes: rule.nodes.to_string(), priority: i32::from(rule.priority) }
    }
}

impl From<GroupResponse> for pb::GroupResponse {
    fn from(response: GroupResponse) -> Self {
        Self {
            office: Some(response.office.into()),
            policy: Some(response.policy.into()),
            own_policy: response.own_policy,
            door: Some(response.door.into()),
            came_from: response.came_from.map(|from| from.to_string()),
            ending: cause_number(response.ending),
            standbys: response.standbys.into_iter().map(pb::Standby::from).collect(),
            standbys_count: response.standbys_count,
        }
    }
}

impl From<DoorBody> for pb::Door {
    fn from(door: DoorBody) -> Self {
        let (state, from, since, to) = match door {
            DoorBody::Open => (pb::DoorState::Open, None, None, None),
            DoorBody::Expected { from, since } => {
                (pb::DoorState::Expected, Some(from), Some(since.0), None)
            }
            DoorBody::Moved { to } => (pb::DoorState::Moved, None, None, Some(to)),
            DoorBody::Stopped { since } => (pb::DoorState::Stopped, None, Some(since.0), None),
        };
        let text = |home: regent_election::Home| home.to_string();
        Self { state: state as i32, from: from.map(text), since, to: to.map(text) }
    }
}

impl From<Standby> for pb::Standby {
    fn from(standby: Standby) -> Self {
        Self {
            node_id: standby.node_id.to_string(),
            priority: i32::from(standby.priority),
            silent: standby.silent,
        }
    }
}

impl From<GroupsResponse> for pb::GroupsResponse {
    fn from(response: GroupsResponse) -> Self {
        Self {
            groups: response.groups.into_iter().map(pb::Office::from).collect(),
            next: response.next.map(|next| next.to_string()),
            revision: response.revision.0,
        }
    }
}

impl From<SessionResponse> for pb::SessionResponse {
    fn from(response: SessionResponse) -> Self {
        Self {
            session_id: response.session_id.reveal(),
            node_id: response.node_id.to_string(),
            ttl_ms: response.ttl_ms,
            epoch: response.epoch,
            tenures: response.tenures.into_iter().map(pb::Tenure::from).collect(),
            standing: response.standing.iter().map(ToString::to_string).collect(),
            revision: response.revision.0,
            offers: response.offers.into_iter().map(pb::Offer::from).collect(),
        }
    }
}

impl From<Offer> for pb::Offer {
    fn from(offer: Offer) -> Self {
        Self {
            group: offer.group.to_string(),
            term: offer.term.get(),
            by: offer.by.to_string(),
            is_warm: offer.is_warm,
        }
    }
}

impl From<Tenure> for pb::Tenure {
    fn from(tenure: Tenure) -> Self {
        Self {
            group: tenure.group.to_string(),
            term: tenure.term.get(),
            state: pb::OfficeState::from(tenure.state) as i32,
            offered_to: tenure.offered_to.map(|node| node.to_string()),
            is_warm: tenure.is_warm,
            moves_to: tenure.moves_to.map(|to| to.to_string()),
        }
    }
}

impl From<ClusterResponse> for pb::ClusterResponse {
    fn from(response: ClusterResponse) -> Self {
        Self {
            cluster_id: response.cluster_id,
            replica: response.replica,
            role: pb::ReplicaRole::from(response.role) as i32,
            raft_term: response.raft_term,
            leader: response.leader,
            leader_address: response.leader_address,
            leader_changes: response.leader_changes,
            voters: response.voters,
            quorum: response.quorum,
            failures_survived: response.failures_survived,
            changing: response.changing,
            last_index: response.last_index,
            committed_index: response.committed_index,
            applied_index: response.applied_index,
            snapshot_index: response.snapshot_index,
            log_bytes: response.log_bytes,
            snapshot_bytes: response.snapshot_bytes,
            members: response.members.into_iter().map(pb::ClusterMember::from).collect(),
            warnings: response.warnings,
            tuning: response.tuning.map(pb::ClusterTuning::from),
            auth: response.auth,
            caller: response.caller.map(pb::Caller::from),
            voters_heard: response.voters_heard,
            has_quorum: response.has_quorum,
            removed: response.removed,
            grants_paused_for_ms: response.grants_paused_for_ms,
        }
    }
}

impl From<CallerBody> for pb::Caller {
    fn from(caller: CallerBody) -> Self {
        let CallerBody { principal, bindings } = caller;
        Self { principal, bindings: bindings.into_iter().map(pb::Binding::from).collect() }
    }
}

impl From<ClusterTuning> for pb::ClusterTuning {
    fn from(tuning: ClusterTuning) -> Self {
        Self {
            mode: pb::TuneMode::from(tuning.mode) as i32,
            measured_for_ms: tuning.measured_for_ms,
            round_trips: tuning.round_trips,
            round_trip_us_p50: tuning.round_trip_us_p50,
            round_trip_us_p99: tuning.round_trip_us_p99,
            pauses: tuning.pauses,
            pause_ms_max: tuning.pause_ms_max,
            present: Some(tuning.present.into()),
            false_elections_per_year: tuning.false_elections_per_year,
            better: tuning.better.map(pb::ReplicaTimers::from),
            ttl_ms_min: tuning.ttl_ms_min,
            why: tuning.why,
        }
    }
}

impl From<ReplicaTimers> for pb::ReplicaTimers {
    fn from(timers: ReplicaTimers) -> Self {
        Self {
            heartbeat_ms: timers.heartbeat_ms,
            election_ms_min: timers.election_ms_min,
            election_ms_max: timers.election_ms_max,
            patience_percent: timers.patience_percent,
        }
    }
}

impl From<ClusterMember> for pb::ClusterMember {
    fn from(member: ClusterMember) -> Self {
        Self {
            id: member.id,
            kind: pb::MemberKind::from(member.kind) as i32,
            leads: member.leads,
            peer_address: member.peer_address,
            client_address: member.client_address,
            matched_index: member.matched_index,
            heard: member.heard,
            round_trip_us: member.round_trip_us,
            connected: member.connected,
        }
    }
}
