//! The store of a stage: the thinnest driver there can be around the real ledger.

use std::collections::BTreeSet;

use regent_election::ledger::{HeartbeatOutcome, Ledger};
use regent_election::participant::{GroupRequest, Reply, Request};
use regent_election::store::{
    Campaign, CampaignSession, Campaigned, Heartbeat, HeartbeatView, StoreError,
};
use regent_election::{
    Answer, Command, IfLost, Incarnation, Moment, Opening, Refusal, RequestId, SessionId, Settings,
    State,
};

use super::{NodeId, Out, Session, SessionTimer, Word, name, office};

/// Sessions and waits that are looked at in one turn.
const LOOKED_AT_MAX: usize = 64;

/// What the store keeps: everything but how long sessions were silent.
#[derive(Clone, Debug)]
pub struct Kept(State);

/// The store.
#[derive(Debug)]
pub struct SessionStore {
    nodes: u16,
    ledger: Ledger,
}

impl SessionStore {
    pub(super) fn new(nodes: u16, kept: Option<Kept>, now: Moment) -> Self {
        let state = kept.map_or_else(|| State::new(Settings::default()), |kept| kept.0);
        let mut ledger = Ledger::new(state, Incarnation(1), now);
        ledger.serve(now);
        Self { nodes, ledger }
    }

    pub(super) fn receive(
        &mut self,
        now: Moment,
        from: NodeId,
        word: Word,
        out: &mut Out<Session>,
    ) {
        let Word::Ask(attempt, request) = word else { return };
        // A heartbeat counts by its arrival: it is heard before anybody is found due.
        let answer = self.handle(now, *request, out).map_err(StoreError::Refused);
        out.send(from, Word::Answer(attempt, Box::new(answer)));
        self.pass_time(now, out);
    }

    /// Proposes what time has brought.
    pub(super) fn pass_time(&mut self, now: Moment, out: &mut Out<Session>) {
        self.ledger.turn(now);
        for command in self.ledger.due(now, LOOKED_AT_MAX) {
            let _ = self.apply(now, command, None, out);
        }
        if let Some(at) = self.ledger.next_at() {
            out.set(SessionTimer::Wake, at);
        }
    }

    fn handle(
        &mut self,
        now: Moment,
        request: Request,
        out: &mut Out<Session>,
    ) -> Result<Reply, Refusal> {
        match request {
            Request::Heartbeat(heartbeat) => self.heartbeat(now, heartbeat, out),
            Request::Open(open) => {
                let (session, node, ttl_ms) = (open.session, open.node, open.ttl_ms);
                self.apply(now, Command::Open { session, node, ttl_ms }, None, out)?;
                self.ledger.state().session_view(session).map(Reply::Session)
            }
            Request::List(session) => self.ledger.state().session_view(session).map(Reply::Session),
            Request::Close(session) => {
                self.apply(now, Command::Close { session }, None, out).map(|_| Reply::Done)
            }
            Request::Campaign(campaign) => self.campaign(now, campaign, out),
            Request::Group(request) => self.in_group(now, request, out),
        }
    }

    fn apply(
        &mut self,
        now: Moment,
        command: Command,
        request: Option<RequestId>,
        out: &mut Out<Session>,
    ) -> Result<Answer, Refusal> {
        let entry = self.ledger.entry(command, request, 0, &BTreeSet::new());
        let applied = self.ledger.apply(now, entry, |_| {});
        for event in applied.events {
            let leads = |node: &NodeId| event.leader.as_ref() == Some(&name(*node));
            let leader = (0..self.nodes).map(NodeId).find(leads);
            out.send_all((0..self.nodes).map(NodeId), &Word::Told(event.term, leader));
        }
        out.keep(Kept(self.ledger.state().clone()));
        applied.answer
    }

    fn heartbeat(
        &mut self,
        now: Moment,
        heartbeat: Heartbeat,
        out: &mut Out<Session>,
    ) -> Result<Reply, Refusal> {
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
            let _ = self.apply(now, Command::Resign { group, session, term }, None, out);
        }
        self.acknowledgement(session)
    }

    fn acknowledgement(&self, session: SessionId) -> Result<Reply, Refusal> {
        let view = self.ledger.state().session_view(session)?;
        let (ttl_ms, epoch, revision) = (view.ttl_ms, view.epoch, view.revision);
        Ok(Reply::Heartbeat(HeartbeatView { ttl_ms, epoch, revision }))
    }

    fn campaign(
        &mut self,
        now: Moment,
        campaign: Campaign,
        out: &mut Out<Session>,
    ) -> Result<Reply, Refusal> {
        let session = match campaign.session {
            CampaignSession::Own(session) | CampaignSession::Passing(session) => session,
        };
        self.ledger.state().find_session(session).ok_or(Refusal::SessionUnknown)?;
        let Campaign { group, node, priority, metadata, request, .. } = campaign;
        let opening = Some(Opening { node, ttl_ms: None, passing: false });
        let if_lost = IfLost::Stand;
        let command = Command::Campaign { group, session, opening, if_lost, priority, metadata };
        let answer = self.apply(now, command, request, out)?;
        Ok(Reply::Campaigned(Campaigned {
            elected: answer.elected(),
            standing: matches!(answer, Answer::Standing { .. }),
            office: self.ledger.state().leader_view(&office(), Incarnation(1)),
            session: Some(session),
            ttl_ms: self.ledger.state().session_view(session)?.ttl_ms,
            retry_after: None,
        }))
    }

    fn in_group(
        &mut self,
        now: Moment,
        request: GroupRequest,
        out: &mut Out<Session>,
    ) -> Result<Reply, Refusal> {
        let (session, is_heard) = (request.session, request.is_heard());
        let (command, request) = request.command();
        self.apply(now, command, Some(request), out)?;
        if is_heard { self.acknowledgement(session) } else { Ok(Reply::Done) }
    }
}
