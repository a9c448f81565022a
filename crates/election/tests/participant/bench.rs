//! One participant, driven by hand: the test is the store, the clock and the application.

use std::time::Duration;

use regent_election::participant::{
    Action, Attempt, Event, LeadershipProof, Participant, Phase, Reply, Request, Transition,
    Trouble, Verb,
};
use regent_election::store::{
    Campaigned, HeartbeatView, LeaderView, OfferView, OfficeState, SessionView, StoreError,
    TenureView,
};
use regent_election::{
    Budget, Cursor, Group, Incarnation, Metadata, Moment, Node, Refusal, Revision, SessionId, Term,
};

pub(crate) const TTL_MS: u64 = 10_000;

pub(crate) fn group(name: &str) -> Group {
    Group::new(name).expect("a test's own name")
}

pub(crate) fn node(name: &str) -> Node {
    Node::new(name).expect("a test's own name")
}

pub(crate) fn term(number: u64) -> Term {
    Term::new(number).expect("a small number")
}

pub(crate) fn at(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

pub(crate) fn uncertain() -> StoreError {
    StoreError::Uncertain { why: "the reply was lost".into() }
}

pub(crate) fn unavailable(retry_after_ms: Option<u64>) -> StoreError {
    let retry_after = retry_after_ms.map(Duration::from_millis);
    StoreError::Unavailable { why: "no quorum".into(), retry_after }
}

pub(crate) fn office(group: &Group, state: OfficeState, term: Term, revision: u64) -> LeaderView {
    let revision = Revision(revision);
    LeaderView {
        group: group.clone(),
        leader: None,
        term,
        state,
        metadata: Metadata::NONE,
        valid_for: None,
        moved_to: None,
        revision,
        cursor: Cursor::after(Incarnation(1), revision),
    }
}

/// The default budget: valid for 9801 ms, renewed every 3333 ms, time-outs of 2 s, 1 s to stop.
pub(crate) struct Bench {
    pub(crate) machine: Participant,
    pub(crate) now_ms: u64,
    /// What was sent and not taken by the test, oldest first.
    pub(crate) sent: Vec<(Attempt, Request)>,
    pub(crate) transitions: Vec<Transition>,
    pub(crate) stops: Vec<(Group, Term, Moment)>,
    pub(crate) last_resorts: Vec<(Group, Term)>,
    pub(crate) troubles: Vec<Trouble>,
    /// What the application was told of offers: where, of which term, and whether it stands.
    pub(crate) offered: Vec<(Group, Term, bool)>,
    /// What the store's list says of them.
    pub(crate) offers: Vec<OfferView>,
    pub(crate) wake_at: Option<Moment>,
    sessions_given: u128,
    pub(crate) needs_session: bool,
    pub(crate) epoch: u64,
    pub(crate) revision: u64,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            machine: Participant::new(node("me"), Budget::default(), 42),
            now_ms: 1000,
            sent: Vec::new(),
            transitions: Vec::new(),
            stops: Vec::new(),
            last_resorts: Vec::new(),
            troubles: Vec::new(),
            offered: Vec::new(),
            offers: Vec::new(),
            wake_at: None,
            sessions_given: 0,
            needs_session: false,
            epoch: 0,
            revision: 10,
        }
    }

    /// One that leads `groups` since now, with the lease of its opening.
    pub(crate) fn leading(groups: &[&str]) -> Self {
        let mut bench = Self::standing(groups);
        for (index, name) in groups.iter().enumerate() {
            let attempt = bench.take_campaign(&group(name));
            bench.elect(attempt, &group(name), term(index as u64 + 1));
        }
        bench.transitions.clear();
        bench
    }

    /// One whose session is open and whose campaigns have been sent.
    pub(crate) fn standing(groups: &[&str]) -> Self {
        let mut bench = Self::new();
        for name in groups {
            bench.stand(name);
        }
        bench.give_session();
        let open = bench.take_open();
        bench.answer_open(open);
        bench
    }

    /// The same process once more, as a cloned machine image runs it: same secret, same numbers.
    pub(crate) fn twin(&self) -> Self {
        Self {
            machine: self.machine.clone(),
            now_ms: self.now_ms,
            wake_at: self.wake_at,
            sessions_given: self.sessions_given,
            epoch: self.epoch,
            revision: self.revision,
            ..Self::new()
        }
    }

    pub(crate) fn stand(&mut self, name: &str) {
        let (group, metadata) = (group(name), Metadata::NONE);
        self.tell(Event::Stand { group, priority: 0, metadata });
    }

    pub(crate) fn give_session(&mut self) {
        assert!(std::mem::take(&mut self.needs_session), "a session was asked for");
        self.sessions_given += 1;
        let id = SessionId::new(self.sessions_given).expect("not zero");
        self.tell(Event::Session(id));
    }

    pub(crate) fn tell(&mut self, event: Event) {
        let actions = self.machine.on(at(self.now_ms), event);
        self.wake_at = None;
        for action in actions {
            assert!(self.wake_at.is_none(), "waking is the last action");
            match action {
                Action::Send { attempt, request } => self.sent.push((attempt, request)),
                Action::Transition(transition) => self.transitions.push(transition),
                Action::StopWork { group, term, by } => self.stops.push((group, term, by)),
                Action::LastResort { group, term } => self.last_resorts.push((group, term)),
                Action::Offered { group, term, .. } => self.offered.push((group, term, true)),
                Action::OfferOver { group, term } => self.offered.push((group, term, false)),
                Action::NeedSession => self.needs_session = true,
                Action::Trouble { trouble, .. } => self.troubles.push(trouble),
                Action::WakeAt(moment) => self.wake_at = Some(moment),
            }
        }
    }

    /// Lets time pass up to `ms`, waking the machine whenever it asked for it.
    pub(crate) fn run_to(&mut self, ms: u64) {
        while let Some(wake_at) = self.wake_at.filter(|wake_at| *wake_at <= at(ms)) {
            self.now_ms = self.now_ms.max(wake_at.as_nanos().div_ceil(1_000_000));
            self.tell(Event::Tick);
            assert!(self.wake_at.is_none_or(|next| next > wake_at), "time goes on");
        }
        self.now_ms = self.now_ms.max(ms);
        self.tell(Event::Tick);
    }

    /// A pause: nothing happens until `ms`.
    pub(crate) fn sleep_to(&mut self, ms: u64) {
        self.now_ms = ms;
    }

    pub(crate) fn answer(&mut self, attempt: Attempt, answer: Result<Reply, StoreError>) {
        self.tell(Event::Answered { attempt, answer });
    }

    pub(crate) fn refuse(&mut self, attempt: Attempt, refusal: Refusal) {
        self.answer(attempt, Err(StoreError::Refused(refusal)));
    }

    fn take(&mut self, what: &str, is_meant: impl Fn(&Request) -> bool) -> (Attempt, Request) {
        let index = self.sent.iter().position(|(_, request)| is_meant(request));
        let index = index.unwrap_or_else(|| panic!("no {what} among {:?}", self.sent));
        self.sent.remove(index)
    }

    pub(crate) fn take_open(&mut self) -> Attempt {
        self.take("open", |request| matches!(request, Request::Open(_))).0
    }

    pub(crate) fn take_list(&mut self) -> Attempt {
        self.take("list", |request| matches!(request, Request::List(_))).0
    }

    pub(crate) fn take_close(&mut self) -> SessionId {
        match self.take("close", |request| matches!(request, Request::Close(_))).1 {
            Request::Close(id) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn take_campaign(&mut self, group: &Group) -> Attempt {
        self.take_campaign_request(group).0
    }

    pub(crate) fn take_campaign_request(
        &mut self,
        group: &Group,
    ) -> (Attempt, regent_election::store::Campaign) {
        let meant =
            |request: &Request| matches!(request, Request::Campaign(c) if c.group == *group);
        match self.take("campaign", meant) {
            (attempt, Request::Campaign(campaign)) => (attempt, campaign),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn take_heartbeat(&mut self) -> (Attempt, regent_election::store::Heartbeat) {
        match self.take("heartbeat", |request| matches!(request, Request::Heartbeat(_))) {
            (attempt, Request::Heartbeat(heartbeat)) => (attempt, heartbeat),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn take_verb(&mut self, verb: &Verb) -> Attempt {
        let name = format!("{verb:?}");
        self.take(&name, |request| matches!(request, Request::Group(r) if r.verb == *verb)).0
    }

    pub(crate) fn has_sent(&self, is_meant: impl Fn(&Request) -> bool) -> bool {
        self.sent.iter().any(|(_, request)| is_meant(request))
    }

    pub(crate) fn view(&self, tenures: Vec<TenureView>, standing: &[&str]) -> SessionView {
        SessionView {
            node: node("me"),
            ttl_ms: TTL_MS,
            epoch: self.epoch,
            tenures,
            standing: standing.iter().map(|name| group(name)).collect(),
            offers: self.offers.clone(),
            revision: Revision(self.revision),
        }
    }

    pub(crate) fn answer_open(&mut self, attempt: Attempt) {
        let view = self.view(vec![], &[]);
        self.answer(attempt, Ok(Reply::Session(view)));
    }

    pub(crate) fn acknowledgement(&self) -> HeartbeatView {
        HeartbeatView { ttl_ms: TTL_MS, epoch: self.epoch, revision: Revision(self.revision) }
    }

    pub(crate) fn acknowledge(&mut self, attempt: Attempt) {
        let heard = self.acknowledgement();
        self.answer(attempt, Ok(Reply::Heartbeat(heard)));
    }

    pub(crate) fn campaigned(
        &mut self,
        attempt: Attempt,
        office: LeaderView,
        elected: Option<Term>,
        standing: bool,
        retry_after_ms: Option<u64>,
    ) {
        let campaigned = Campaigned {
            elected,
            standing,
            office,
            session: None,
            ttl_ms: TTL_MS,
            retry_after: retry_after_ms.map(Duration::from_millis),
        };
        self.answer(attempt, Ok(Reply::Campaigned(campaigned)));
    }

    pub(crate) fn elect(&mut self, attempt: Attempt, group: &Group, term: Term) {
        self.revision += 1;
        let office = office(group, OfficeState::Leading, term, self.revision);
        self.campaigned(attempt, office, Some(term), false, None);
    }

    pub(crate) fn stand_in_line(&mut self, attempt: Attempt, group: &Group) {
        self.revision += 1;
        let office = office(group, OfficeState::Leading, term(9), self.revision);
        self.campaigned(attempt, office, None, true, None);
    }

    pub(crate) fn check(&self, name: &str) -> Option<LeadershipProof> {
        self.machine.check(at(self.now_ms), &group(name))
    }

    pub(crate) fn phase(&self, name: &str) -> Option<Phase> {
        self.machine.phase(&group(name))
    }

    /// The phases that a group went through, oldest first, since last asked.
    pub(crate) fn path(&mut self, name: &str) -> Vec<Phase> {
        let (own, rest) = std::mem::take(&mut self.transitions)
            .into_iter()
            .partition(|transition| transition.group.as_str() == name);
        self.transitions = rest;
        own.into_iter().map(|transition: Transition| transition.to).collect()
    }
}

pub(crate) fn tenure(name: &str, number: u64, state: OfficeState) -> TenureView {
    TenureView {
        group: group(name),
        term: term(number),
        state,
        offered_to: None,
        is_warm: false,
        moves_to: None,
    }
}
