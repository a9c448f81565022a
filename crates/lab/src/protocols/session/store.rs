//! The store of a stage: the thinnest driver there can be around the real state and the real
//! deadlines.

use regent_election::deadlines::{Deadlines, Hearing};
use regent_election::participant::{GroupRequest, Reply, Request, Verb};
use regent_election::store::{Campaign, CampaignSession, Campaigned, Heard, Heartbeat, StoreError};
use regent_election::{
    Answer, Command, Effect, Entry, IfLost, Incarnation, Moment, Opening, Refusal, RequestId,
    SessionId, Settings, State,
};

use super::{NodeId, Out, Session, SessionTimer, Word, name, office};

/// Sessions and waits that are looked at in one turn.
const LOOKED_AT_MAX: usize = 64;

/// What the store keeps: everything but how long sessions were silent.
#[derive(Clone, Debug)]
pub struct Kept(State);

/// The store.
#[derive(Debug)]
pub struct Store {
    nodes: u16,
    state: State,
    deadlines: Deadlines,
}

impl Store {
    pub(super) fn new(nodes: u16, kept: Option<Kept>, now: Moment) -> Self {
        let state = kept.map_or_else(|| State::new(Settings::default()), |kept| kept.0);
        let mut deadlines = Deadlines::new();
        for (session, ttl_ms) in state.sessions() {
            deadlines.open(session, ttl_ms, now);
        }
        deadlines.promote(now);
        for wait in state.waits() {
            deadlines.wait(wait.group, wait.kind, wait.since, wait.for_ms, now);
        }
        Self { nodes, state, deadlines }
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
        self.deadlines.turn(now);
        let sessions = self.deadlines.due(now, LOOKED_AT_MAX);
        if !sessions.is_empty() {
            let _ = self.apply(now, Command::Expire { sessions }, None, out);
        }
        for (group, kind, since) in self.deadlines.elapsed(now, LOOKED_AT_MAX) {
            let _ = self.apply(now, Command::Elapsed { group, kind, since }, None, out);
        }
        for session in self.deadlines.audible() {
            let _ = self.apply(now, Command::Refill { session }, None, out);
        }
        if let Some(at) = self.deadlines.next_at() {
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
                self.state.session_view(session).map(Reply::Session)
            }
            Request::List(session) => self.state.session_view(session).map(Reply::Session),
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
        let silent = self.deadlines.silent().iter().copied().collect();
        let applied = self.state.apply(Entry { command, request, silent, wall_ms: 0 });
        for effect in applied.effects {
            match effect {
                Effect::SessionOpened { session, ttl_ms } => {
                    self.deadlines.open(session, ttl_ms, now);
                }
                Effect::TtlChanged { session, ttl_ms } => {
                    self.deadlines.change_ttl(session, ttl_ms, now);
                }
                Effect::SessionEnded { session } => self.deadlines.close(session),
                Effect::Wait { group, kind, since, for_ms } => {
                    self.deadlines.wait(group, kind, since, for_ms, now);
                }
            }
        }
        for event in applied.events {
            let leads = |node: &NodeId| event.leader.as_ref() == Some(&name(*node));
            let leader = (0..self.nodes).map(NodeId).find(leads);
            out.send_all((0..self.nodes).map(NodeId), &Word::Told(event.term, leader));
        }
        out.keep(Kept(self.state.clone()));
        applied.answer
    }

    fn heartbeat(
        &mut self,
        now: Moment,
        heartbeat: Heartbeat,
        out: &mut Out<Session>,
    ) -> Result<Reply, Refusal> {
        let Heartbeat { session, sequence, disowned, beliefs: _ } = heartbeat;
        let number = self.state.find_session(session).ok_or(Refusal::SessionUnknown)?;
        match self.deadlines.heard(number, sequence, now) {
            Hearing::Heard => {}
            Hearing::Unknown | Hearing::Expiring => return Err(Refusal::SessionUnknown),
            Hearing::NotNewer { last } => {
                let given = sequence.unwrap_or_default();
                return Err(Refusal::HeartbeatNotNewer { given, last });
            }
        }
        for (group, term) in disowned {
            // One that is not held any more is disowned already.
            let _ = self.apply(now, Command::Resign { group, session, term }, None, out);
        }
        self.heard(session)
    }

    fn heard(&self, session: SessionId) -> Result<Reply, Refusal> {
        let view = self.state.session_view(session)?;
        let (ttl_ms, epoch, revision) = (view.ttl_ms, view.epoch, view.revision);
        Ok(Reply::Heard(Heard { ttl_ms, epoch, revision }))
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
        self.state.find_session(session).ok_or(Refusal::SessionUnknown)?;
        let Campaign { group, node, priority, metadata, request, .. } = campaign;
        let opening = Some(Opening { node, ttl_ms: None, passing: false });
        let if_lost = IfLost::Stand;
        let command = Command::Campaign { group, session, opening, if_lost, priority, metadata };
        let answer = self.apply(now, command, request, out)?;
        Ok(Reply::Campaigned(Campaigned {
            elected: answer.elected(),
            standing: matches!(answer, Answer::Standing { .. }),
            office: self.state.leader_view(&office(), Incarnation(1)),
            session: Some(session),
            ttl_ms: self.state.session_view(session)?.ttl_ms,
            retry_after: None,
        }))
    }

    fn in_group(
        &mut self,
        now: Moment,
        request: GroupRequest,
        out: &mut Out<Session>,
    ) -> Result<Reply, Refusal> {
        let GroupRequest { group, session, request, verb } = request;
        let is_acceptance = matches!(verb, Verb::Accept(_));
        let command = match verb {
            Verb::Withdraw => Command::Withdraw { group, session },
            Verb::Accept(term) => Command::Accept { group, session, term },
            Verb::Resign(term) => Command::Resign { group, session, term },
            Verb::Offer(term, to) => Command::Offer { group, session, term, to },
            Verb::Warm(term) => Command::Warm { group, session, term },
            Verb::Transfer(term, to) => Command::Transfer { group, session, term, to },
        };
        self.apply(now, command, Some(request), out)?;
        if is_acceptance { self.heard(session) } else { Ok(Reply::Done) }
    }
}
