//! A reference store, as small as the rules allow: one map of sessions, one of groups, and a clock
//! of its own that is told to it. It frees everything at the first moment it may, so that a holder
//! that stops late is caught.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use regent_election::participant::{GroupRequest, Reply, Request, Verb};
use regent_election::store::{
    Campaign, CampaignSession, Campaigned, Heartbeat, HeartbeatView, OfferView, OfficeState,
    SessionView, StoreError, TenureView,
};
use regent_election::{Group, Moment, Node, Refusal, RequestId, Revision, SessionId, Term};

use crate::bench::{office, term};

type Answer = Result<Reply, Refusal>;

/// What a world needs of a store. All moments are of the store's own clock.
pub(crate) trait Keeper {
    /// Answers a request that has arrived.
    fn handle(&mut self, now: Moment, request: Request) -> Result<Reply, StoreError>;

    /// An administrator ends a tenure: the holder has a full ttl to say that it stopped.
    fn step_down(&mut self, now: Moment, group: &Group);

    /// Frees whatever is due, at the very moment it is.
    fn pass_time(&mut self, now: Moment);

    /// When something is due next.
    fn next_at(&self) -> Option<Moment>;

    /// What watchers are to be told since last asked: group, term, who leads.
    fn changes(&mut self) -> Vec<(Group, Term, Option<Node>)>;
}

#[derive(Default)]
pub(crate) struct RefStore {
    revision: u64,
    sessions: BTreeMap<SessionId, Session>,
    ended: BTreeSet<SessionId>,
    groups: BTreeMap<Group, Seat>,
    /// Every term ever granted, and to which session: S2 says that this is a function.
    granted: BTreeMap<(Group, u64), SessionId>,
    changes: Vec<(Group, Term, Option<Node>)>,
}

struct Session {
    node: Node,
    ttl_ms: u64,
    deadline: Moment,
    epoch: u64,
    sequence: u64,
    ran: BTreeSet<RequestId>,
}

#[derive(Default)]
struct Seat {
    term: u64,
    office: Office,
    line: Vec<SessionId>,
    offered_to: Option<Node>,
    warm: bool,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Office {
    #[default]
    Vacant,
    Promoted {
        session: SessionId,
        accept_by: Moment,
    },
    Led {
        session: SessionId,
    },
    Ending {
        session: SessionId,
        until: Moment,
    },
}

impl Office {
    fn session(self) -> Option<SessionId> {
        match self {
            Self::Vacant => None,
            Self::Promoted { session, .. }
            | Self::Led { session }
            | Self::Ending { session, .. } => Some(session),
        }
    }

    fn state(self) -> OfficeState {
        match self {
            Self::Vacant => OfficeState::Vacant,
            Self::Promoted { .. } => OfficeState::Elected,
            Self::Led { .. } => OfficeState::Leading,
            Self::Ending { .. } => OfficeState::Ending,
        }
    }
}

impl Keeper for RefStore {
    fn handle(&mut self, now: Moment, request: Request) -> Result<Reply, StoreError> {
        self.pass_time(now);
        self.revision += 1;
        let answer = match request {
            Request::Open(open) => self.open(now, open),
            Request::Heartbeat(heartbeat) => self.heartbeat(now, heartbeat),
            Request::List(id) => self.list(id),
            Request::Close(id) => {
                self.end(now, id);
                Ok(Reply::Done)
            }
            Request::Campaign(campaign) => self.campaign(campaign),
            Request::Group(request) => self.group_request(now, request),
        };
        answer.map_err(StoreError::Refused)
    }

    fn step_down(&mut self, now: Moment, group: &Group) {
        self.pass_time(now);
        self.revision += 1;
        let Some(seat) = self.groups.get_mut(group) else { return };
        match seat.office {
            Office::Led { session } => {
                let Some(record) = self.sessions.get_mut(&session) else { return };
                record.epoch += 1;
                let until = now + Duration::from_millis(record.ttl_ms);
                seat.office = Office::Ending { session, until };
            }
            Office::Promoted { .. } => self.vacate(now, group),
            Office::Vacant | Office::Ending { .. } => {}
        }
    }

    fn pass_time(&mut self, now: Moment) {
        let due = |session: &Session| session.deadline <= now;
        let expired: Vec<SessionId> =
            self.sessions.iter().filter(|(_, s)| due(s)).map(|(id, _)| *id).collect();
        for id in expired {
            self.revision += 1;
            self.end(now, id);
        }
        let over: Vec<Group> = self
            .groups
            .iter()
            .filter(|(_, seat)| match seat.office {
                Office::Ending { until, .. } => until <= now,
                Office::Promoted { accept_by, .. } => accept_by <= now,
                Office::Vacant | Office::Led { .. } => false,
            })
            .map(|(group, _)| group.clone())
            .collect();
        for group in over {
            self.revision += 1;
            self.bump(&group);
            self.vacate(now, &group);
        }
    }

    fn next_at(&self) -> Option<Moment> {
        let sessions = self.sessions.values().map(|session| session.deadline);
        let seats = self.groups.values().filter_map(|seat| match seat.office {
            Office::Ending { until, .. } => Some(until),
            Office::Promoted { accept_by, .. } => Some(accept_by),
            Office::Vacant | Office::Led { .. } => None,
        });
        sessions.chain(seats).min()
    }

    fn changes(&mut self) -> Vec<(Group, Term, Option<Node>)> {
        std::mem::take(&mut self.changes)
    }
}

impl RefStore {
    fn open(&mut self, now: Moment, open: regent_election::store::Open) -> Answer {
        if self.ended.contains(&open.session) {
            return Err(Refusal::SessionUnknown);
        }
        self.sessions.entry(open.session).or_insert_with(|| Session {
            node: open.node,
            ttl_ms: open.ttl_ms,
            deadline: now + Duration::from_millis(open.ttl_ms),
            epoch: 0,
            sequence: 0,
            ran: BTreeSet::new(),
        });
        self.list(open.session)
    }

    fn heartbeat(&mut self, now: Moment, heartbeat: Heartbeat) -> Answer {
        let Heartbeat { session: id, sequence, disowned, beliefs: _ } = heartbeat;
        let session = self.sessions.get_mut(&id).ok_or(Refusal::SessionUnknown)?;
        let given = sequence.unwrap_or(u64::MAX);
        if given <= session.sequence {
            return Err(Refusal::HeartbeatNotNewer { given, last: session.sequence });
        }
        session.sequence = given;
        session.deadline = session.deadline.max(now + Duration::from_millis(session.ttl_ms));
        for (group, term) in disowned {
            self.resign(now, &group, id, term).ok();
        }
        self.acknowledgement(id)
    }

    fn acknowledgement(&self, id: SessionId) -> Answer {
        let session = self.sessions.get(&id).ok_or(Refusal::SessionUnknown)?;
        let (ttl_ms, epoch) = (session.ttl_ms, session.epoch);
        Ok(Reply::Heartbeat(HeartbeatView { ttl_ms, epoch, revision: Revision(self.revision) }))
    }

    fn list(&self, id: SessionId) -> Answer {
        let session = self.sessions.get(&id).ok_or(Refusal::SessionUnknown)?;
        let held = self.groups.iter().filter(|(_, seat)| seat.office.session() == Some(id));
        let stands = self.groups.iter().filter(|(_, seat)| seat.line.contains(&id));
        Ok(Reply::Session(SessionView {
            node: session.node.clone(),
            ttl_ms: session.ttl_ms,
            epoch: session.epoch,
            tenures: held
                .map(|(group, seat)| TenureView {
                    group: group.clone(),
                    term: term(seat.term),
                    state: seat.office.state(),
                    offered_to: seat.offered_to.clone(),
                    is_warm: seat.warm,
                    moves_to: None,
                })
                .collect(),
            standing: stands.map(|(group, _)| group.clone()).collect(),
            offers: self.offers(id),
            revision: Revision(self.revision),
        }))
    }

    fn offers(&self, id: SessionId) -> Vec<OfferView> {
        let node = &self.sessions[&id].node;
        let offers = self.groups.iter().filter_map(|(group, seat)| {
            let Office::Led { session } = seat.office else { return None };
            let is_meant = seat.line.contains(&id) && seat.offered_to.as_ref() == Some(node);
            is_meant.then(|| OfferView {
                group: group.clone(),
                term: term(seat.term),
                by: self.sessions[&session].node.clone(),
                is_warm: seat.warm,
            })
        });
        offers.collect()
    }

    fn end(&mut self, now: Moment, id: SessionId) {
        if self.sessions.remove(&id).is_none() {
            return;
        }
        self.ended.insert(id);
        for seat in self.groups.values_mut() {
            seat.line.retain(|other| *other != id);
        }
        let held: Vec<Group> = self
            .groups
            .iter()
            .filter(|(_, seat)| seat.office.session() == Some(id))
            .map(|(group, _)| group.clone())
            .collect();
        for group in held {
            self.vacate(now, &group);
        }
    }

    fn campaign(&mut self, campaign: Campaign) -> Answer {
        let id = match campaign.session {
            CampaignSession::Own(id) | CampaignSession::Passing(id) => id,
        };
        let session = self.sessions.get_mut(&id).ok_or(Refusal::SessionUnknown)?;
        let is_repeat = campaign.request.is_some_and(|request| !session.ran.insert(request));
        let (ttl_ms, group) = (session.ttl_ms, campaign.group);
        let seat = self.groups.entry(group.clone()).or_default();
        let holds = seat.office.session() == Some(id) && seat.office.state() != OfficeState::Ending;
        if !is_repeat && !holds {
            if seat.office == Office::Vacant && seat.line.is_empty() {
                seat.term += 1;
                seat.office = Office::Led { session: id };
                let granted = seat.term;
                self.grant(&group, granted, id);
            } else if !seat.line.contains(&id) {
                seat.line.push(id);
            }
        }
        let seat = &self.groups[&group];
        let holds = seat.office.session() == Some(id) && seat.office.state() != OfficeState::Ending;
        let view = office(&group, seat.office.state(), term(seat.term), self.revision);
        Ok(Reply::Campaigned(Campaigned {
            elected: holds.then(|| term(seat.term)),
            standing: seat.line.contains(&id),
            office: view,
            session: Some(id),
            ttl_ms,
            retry_after: None,
        }))
    }

    fn group_request(&mut self, now: Moment, request: GroupRequest) -> Answer {
        let GroupRequest { group, session: id, request, verb } = request;
        let session = self.sessions.get(&id).ok_or(Refusal::SessionUnknown)?;
        if session.ran.contains(&request) && !matches!(verb, Verb::Accept(_)) {
            return Ok(Reply::Done);
        }
        let answer = self.run(now, group, id, verb)?;
        // Only what took effect is remembered: what was refused may run when it is asked again.
        if let Some(session) = self.sessions.get_mut(&id) {
            session.ran.insert(request);
        }
        Ok(answer)
    }

    fn run(&mut self, now: Moment, group: Group, id: SessionId, verb: Verb) -> Answer {
        match verb {
            Verb::Withdraw => {
                let seat = self.groups.entry(group.clone()).or_default();
                seat.line.retain(|other| *other != id);
                if seat.office.session() == Some(id) {
                    self.vacate(now, &group);
                }
                Ok(Reply::Done)
            }
            Verb::Accept(term) => {
                let seat = self.held(&group, id, term)?;
                match seat.office {
                    Office::Ending { .. } => {
                        let cause = regent_election::Cause::SteppedDown;
                        return Err(Refusal::TenureEnding { group, term, cause });
                    }
                    Office::Promoted { session, .. } => seat.office = Office::Led { session },
                    Office::Vacant | Office::Led { .. } => {}
                }
                self.acknowledgement(id)
            }
            Verb::Resign(term) => self.resign(now, &group, id, term),
            Verb::Offer(term, to) | Verb::Transfer(term, to)
                if !self.stands(&group, &to) || self.held(&group, id, term).is_err() =>
            {
                Err(Refusal::SuccessorUnknown { group, to })
            }
            Verb::Offer(term, to) => {
                let asked: Vec<SessionId> = self.groups[&group].line.clone();
                let seat = self.held(&group, id, term)?;
                seat.warm &= seat.offered_to.as_ref() == Some(&to);
                seat.offered_to = Some(to.clone());
                self.bump(&group);
                for id in asked {
                    let session = self.sessions.get_mut(&id).expect("it stands");
                    session.epoch += u64::from(session.node == to);
                }
                Ok(Reply::Done)
            }
            Verb::Warm(term) => {
                if !self.offers(id).iter().any(|offer| offer.group == group && offer.term == term) {
                    return Err(Refusal::NoOffer { group });
                }
                self.groups.get_mut(&group).expect("it has a leader").warm = true;
                self.bump(&group);
                Ok(Reply::Done)
            }
            Verb::Transfer(term, to) => {
                let heir = self.groups[&group]
                    .line
                    .iter()
                    .position(|other| self.sessions[other].node == to)
                    .expect("it stands");
                let seat = self.held(&group, id, term)?;
                let heir = seat.line.remove(heir);
                seat.line.insert(0, heir);
                self.vacate(now, &group);
                Ok(Reply::Done)
            }
        }
    }

    fn stands(&self, group: &Group, node: &Node) -> bool {
        let line = self.groups.get(group).map(|seat| seat.line.as_slice()).unwrap_or_default();
        line.iter().any(|id| self.sessions.get(id).is_some_and(|session| session.node == *node))
    }

    fn held(&mut self, group: &Group, id: SessionId, given: Term) -> Result<&mut Seat, Refusal> {
        let seat = self.groups.entry(group.clone()).or_default();
        if seat.office.session() == Some(id) && seat.term == given.get() {
            return Ok(seat);
        }
        Err(Refusal::NotLeader { group: group.clone(), given, term: term(seat.term), leader: None })
    }

    fn resign(&mut self, now: Moment, group: &Group, id: SessionId, term: Term) -> Answer {
        self.held(group, id, term)?;
        self.vacate(now, group);
        Ok(Reply::Done)
    }

    /// Ends a tenure and begins the next one in the same step.
    fn vacate(&mut self, now: Moment, group: &Group) {
        let Some(seat) = self.groups.get_mut(group) else { return };
        seat.office = Office::Vacant;
        (seat.offered_to, seat.warm) = (None, false);
        if seat.line.is_empty() {
            self.changes.push((group.clone(), term(seat.term), None));
            return;
        }
        let next = seat.line.remove(0);
        seat.term += 1;
        let granted = seat.term;
        let third = self.sessions[&next].ttl_ms / 3;
        let accept_by = now + Duration::from_millis(third);
        seat.office = Office::Promoted { session: next, accept_by };
        self.bump(group);
        self.grant(group, granted, next);
    }

    fn grant(&mut self, group: &Group, number: u64, id: SessionId) {
        let before = self.granted.insert((group.clone(), number), id);
        assert!(before.is_none(), "S2: term {number} of {group} granted twice");
        let leader = self.sessions[&id].node.clone();
        self.changes.push((group.clone(), term(number), Some(leader)));
    }

    /// The holder's list has changed without its asking.
    fn bump(&mut self, group: &Group) {
        let holder = self.groups.get(group).and_then(|seat| seat.office.session());
        if let Some(session) = holder.and_then(|id| self.sessions.get_mut(&id)) {
            session.epoch += 1;
        }
    }
}
