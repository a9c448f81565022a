//! The real ledger as a store for the world: the thinnest driver there can be, applying every entry the
//! moment it is proposed.

use std::collections::BTreeSet;

use regent_election::ledger::{HeartbeatOutcome, Ledger};
use regent_election::participant::{GroupRequest, Reply, Request};
use regent_election::store::{
    Campaign, CampaignSession, Campaigned, Heartbeat, HeartbeatView, StoreError,
};
use regent_election::{
    Answer, Command, Group, IfLost, Incarnation, Moment, Node, Opening, Reason, Refusal, RequestId,
    SessionId, Settings, State, Term,
};

use crate::store::Keeper;

const HELPING: usize = 64;

pub(crate) struct RealStore {
    ledger: Ledger,
    changes: Vec<(Group, Term, Option<Node>)>,
}

impl Keeper for RealStore {
    fn handle(&mut self, now: Moment, request: Request) -> Result<Reply, StoreError> {
        // A heartbeat counts by its arrival: it is heard before anybody is found due.
        let answer = match request {
            Request::Heartbeat(heartbeat) => self.heartbeat(now, heartbeat),
            Request::Open(open) => {
                let (session, node, ttl_ms) = (open.session, open.node, open.ttl_ms);
                self.apply(now, Command::Open { session, node, ttl_ms }, None)
                    .and_then(|_| self.list(session))
            }
            Request::List(id) => self.list(id),
            Request::Close(session) => {
                self.apply(now, Command::Close { session }, None).map(|_| Reply::Done)
            }
            Request::Campaign(campaign) => self.campaign(now, campaign),
            Request::Group(request) => self.group_request(now, request),
        };
        self.pass_time(now);
        answer.map_err(StoreError::Refused)
    }

    fn step_down(&mut self, now: Moment, group: &Group) {
        let (group, reason) = (group.clone(), Reason::default());
        let step_down = Command::StepDown { group, reason, to: None, immediate: false };
        // Nobody may lead; then there is nobody to step down.
        self.apply(now, step_down, None).ok();
    }

    fn pass_time(&mut self, now: Moment) {
        self.ledger.turn(now);
        loop {
            for command in self.ledger.due(now, HELPING) {
                self.apply(now, command, None).ok();
            }
            if self.ledger.next_at().is_none_or(|next_at| next_at > now) {
                return;
            }
        }
    }

    fn next_at(&self) -> Option<Moment> {
        self.ledger.next_at()
    }

    fn changes(&mut self) -> Vec<(Group, Term, Option<Node>)> {
        std::mem::take(&mut self.changes)
    }
}

impl RealStore {
    pub(crate) fn new() -> Self {
        let state = State::new(Settings::default());
        let mut ledger = Ledger::new(state, Incarnation(1), Moment::ZERO);
        ledger.serve(Moment::ZERO);
        Self { ledger, changes: Vec::new() }
    }

    fn apply(
        &mut self,
        now: Moment,
        command: Command,
        request: Option<RequestId>,
    ) -> Result<Answer, Refusal> {
        let entry = self.ledger.entry(command, request, 0, &BTreeSet::new());
        let applied = self.ledger.apply(now, entry, |_| {});
        let told = applied.events.into_iter();
        self.changes.extend(told.map(|event| (event.group, event.term, event.leader)));
        applied.answer
    }

    fn heartbeat(&mut self, now: Moment, heartbeat: Heartbeat) -> Result<Reply, Refusal> {
        let Heartbeat { session, sequence, disowned, beliefs: _ } = heartbeat;
        match self.ledger.heartbeat(now, session, sequence) {
            HeartbeatOutcome::Extended => {}
            HeartbeatOutcome::Unknown | HeartbeatOutcome::Expiring => {
                return Err(Refusal::SessionUnknown);
            }
            HeartbeatOutcome::NotNewer { last } => {
                let given = sequence.unwrap_or_default();
                return Err(Refusal::HeartbeatNotNewer { given, last });
            }
        }
        for (group, term) in disowned {
            // One that is not held any more is disowned already.
            self.apply(now, Command::Resign { group, session, term }, None).ok();
        }
        self.acknowledgement(session)
    }

    fn acknowledgement(&self, id: SessionId) -> Result<Reply, Refusal> {
        let view = self.ledger.state().session_view(id)?;
        let (ttl_ms, epoch, revision) = (view.ttl_ms, view.epoch, view.revision);
        Ok(Reply::Heartbeat(HeartbeatView { ttl_ms, epoch, revision }))
    }

    fn list(&self, id: SessionId) -> Result<Reply, Refusal> {
        self.ledger.state().session_view(id).map(Reply::Session)
    }

    fn campaign(&mut self, now: Moment, campaign: Campaign) -> Result<Reply, Refusal> {
        let session = match campaign.session {
            CampaignSession::Own(id) | CampaignSession::Passing(id) => id,
        };
        self.ledger.state().find_session(session).ok_or(Refusal::SessionUnknown)?;
        let Campaign { group, node, priority, metadata, request, .. } = campaign;
        let opening = Some(Opening { node, ttl_ms: None, passing: false });
        let if_lost = IfLost::Stand;
        let asked = group.clone();
        let command = Command::Campaign { group, session, opening, if_lost, priority, metadata };
        let answer = self.apply(now, command, request)?;
        let elected = answer.elected();
        Ok(Reply::Campaigned(Campaigned {
            elected,
            standing: matches!(answer, Answer::Standing { .. }),
            office: self.ledger.state().leader_view(&asked, Incarnation(1)),
            session: Some(session),
            ttl_ms: self.ledger.state().session_view(session)?.ttl_ms,
            retry_after: None,
        }))
    }

    fn group_request(&mut self, now: Moment, request: GroupRequest) -> Result<Reply, Refusal> {
        let (session, is_heard) = (request.session, request.is_heard());
        let (command, request) = request.command();
        self.apply(now, command, Some(request))?;
        if is_heard { self.acknowledgement(session) } else { Ok(Reply::Done) }
    }
}
