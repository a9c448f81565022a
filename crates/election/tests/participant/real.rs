//! The real state machine with the real lease clock, as a store for the world: the thinnest driver
//! there can be, applying every entry the moment it is proposed.

use regent_election::deadlines::{Deadlines, Hearing};
use regent_election::participant::{GroupRequest, Reply, Request, Verb};
use regent_election::store::{Campaign, CampaignSession, Campaigned, Heard, Heartbeat, StoreError};
use regent_election::{
    Answer, Command, Effect, Entry, Group, IfLost, Incarnation, Moment, Node, Opening, Reason,
    Refusal, RequestId, SessionId, Settings, State, Term,
};

use crate::store::Keeper;

const HELPING: usize = 64;

pub(crate) struct RealStore {
    state: State,
    deadlines: Deadlines,
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
        self.deadlines.turn(now);
        loop {
            let sessions = self.deadlines.due(now, HELPING);
            if !sessions.is_empty() {
                self.apply(now, Command::Expire { sessions }, None).ok();
            }
            for (group, kind, since) in self.deadlines.elapsed(now, HELPING) {
                self.apply(now, Command::Elapsed { group, kind, since }, None).ok();
            }
            for session in self.deadlines.audible() {
                self.apply(now, Command::Refill { session }, None).ok();
            }
            if self.deadlines.next_at().is_none_or(|next_at| next_at > now) {
                return;
            }
        }
    }

    fn next_at(&self) -> Option<Moment> {
        self.deadlines.next_at()
    }

    fn changes(&mut self) -> Vec<(Group, Term, Option<Node>)> {
        std::mem::take(&mut self.changes)
    }
}

impl RealStore {
    pub(crate) fn new() -> Self {
        let state = State::new(Settings::default());
        Self { state, deadlines: Deadlines::new(), changes: Vec::new() }
    }

    fn apply(
        &mut self,
        now: Moment,
        command: Command,
        request: Option<RequestId>,
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
        let told = applied.events.into_iter();
        self.changes.extend(told.map(|event| (event.group, event.term, event.leader)));
        applied.answer
    }

    fn heartbeat(&mut self, now: Moment, heartbeat: Heartbeat) -> Result<Reply, Refusal> {
        let Heartbeat { session, sequence, disowned, beliefs: _ } = heartbeat;
        let no = self.state.find_session(session).ok_or(Refusal::SessionUnknown)?;
        match self.deadlines.heard(no, sequence, now) {
            Hearing::Heard => {}
            Hearing::Unknown | Hearing::Expiring => return Err(Refusal::SessionUnknown),
            Hearing::NotNewer { last } => {
                let given = sequence.unwrap_or_default();
                return Err(Refusal::HeartbeatNotNewer { given, last });
            }
        }
        for (group, term) in disowned {
            // One that is not held any more is disowned already.
            self.apply(now, Command::Resign { group, session, term }, None).ok();
        }
        self.heard(session)
    }

    fn heard(&self, id: SessionId) -> Result<Reply, Refusal> {
        let view = self.state.session_view(id)?;
        let (ttl_ms, epoch, revision) = (view.ttl_ms, view.epoch, view.revision);
        Ok(Reply::Heard(Heard { ttl_ms, epoch, revision }))
    }

    fn list(&self, id: SessionId) -> Result<Reply, Refusal> {
        self.state.session_view(id).map(Reply::Session)
    }

    fn campaign(&mut self, now: Moment, campaign: Campaign) -> Result<Reply, Refusal> {
        let session = match campaign.session {
            CampaignSession::Own(id) | CampaignSession::Passing(id) => id,
        };
        self.state.find_session(session).ok_or(Refusal::SessionUnknown)?;
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
            office: self.state.leader_view(&asked, Incarnation(1)),
            session: Some(session),
            ttl_ms: self.state.session_view(session)?.ttl_ms,
            retry_after: None,
        }))
    }

    fn group_request(&mut self, now: Moment, request: GroupRequest) -> Result<Reply, Refusal> {
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
        self.apply(now, command, Some(request))?;
        if is_acceptance { self.heard(session) } else { Ok(Reply::Done) }
    }
}
