//! The driver through any history: lost answers, hung applications, claims that come and go.
//!
//! The store is a small model with one group and a rival that takes whatever office is free. Both
//! sides share one clock, so that what the driver believes can be compared with what the store knows
//! at every instant.

use std::collections::{BTreeMap, BTreeSet};

use crate::participant::{Attempt, Reply, Verb};
use crate::store::{
    Campaigned, HeartbeatView, LeaderView, OfficeState, SessionView, StoreResult, TenureView,
};
use crate::{Cursor, Incarnation, Revision, SessionId};
use proptest::prelude::*;

use super::*;

const TTL_MS: u64 = 10_000;
const STEP_MS: u64 = 100;

/// One thing that happens in a step.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Claim,
    Unclaim,
    /// Everything that works under the term ends.
    Idle,
    GiveUp,
    /// The application answers, or does not for a while.
    Answer,
    Hang,
    /// Answers are lost from here on, or come again.
    Cut,
    Mend,
    Ill,
    Well,
    /// Nothing at all happens for so long, on either side but the store's.
    Pause(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        30 => Just(Act::Nothing),
        3 => Just(Act::Claim),
        1 => Just(Act::Unclaim),
        2 => Just(Act::Idle),
        1 => Just(Act::GiveUp),
        3 => Just(Act::Answer),
        1 => Just(Act::Hang),
        1 => Just(Act::Cut),
        3 => Just(Act::Mend),
        1 => Just(Act::Ill),
        2 => Just(Act::Well),
        1 => (1_u64..200).prop_map(|steps| Act::Pause(steps * STEP_MS)),
    ]
}

/// What the store knows.
#[derive(Default)]
struct Model {
    session: Option<(SessionId, u64)>,
    /// Who holds the office: us, or the rival until some moment.
    is_ours: bool,
    rival_until_ms: u64,
    term: u64,
    revision: u64,
}

impl Model {
    fn pass(&mut self, now_ms: u64) {
        if self.session.is_some_and(|(_, deadline_ms)| deadline_ms <= now_ms) {
            self.session = None;
            self.free(now_ms);
        }
    }

    /// The rival is always there, and leads for a while.
    fn free(&mut self, now_ms: u64) {
        if std::mem::take(&mut self.is_ours) {
            self.term += 1;
            self.revision += 1;
            self.rival_until_ms = now_ms + 3_000;
        }
    }

    fn knows(&self, id: SessionId) -> StoreResult<()> {
        match self.session {
            Some((known, _)) if known == id => Ok(()),
            Some(_) | None => Err(StoreError::Refused(Refusal::SessionUnknown)),
        }
    }

    fn view(&self, node: Node) -> SessionView {
        let tenure = TenureView {
            group: group(),
            term: Term::new(self.term).unwrap_or(Term::NONE),
            state: OfficeState::Leading,
            offered_to: None,
            is_warm: false,
            moves_to: None,
        };
        SessionView {
            node,
            ttl_ms: TTL_MS,
            epoch: 0,
            tenures: if self.is_ours { vec![tenure] } else { Vec::new() },
            standing: Vec::new(),
            offers: Vec::new(),
            revision: Revision(self.revision),
        }
    }

    fn perform(&mut self, now_ms: u64, request: &Request) -> StoreResult<Reply> {
        self.pass(now_ms);
        let revision = Revision(self.revision);
        match request {
            Request::Open(open) => {
                if self.session.is_none_or(|(known, _)| known != open.session) {
                    self.free(now_ms);
                }
                self.session = Some((open.session, now_ms + TTL_MS));
                Ok(Reply::Session(self.view(open.node.clone())))
            }
            Request::Heartbeat(heartbeat) => {
                self.knows(heartbeat.session)?;
                self.session = Some((heartbeat.session, now_ms + TTL_MS));
                if heartbeat.disowned.iter().any(|(_, term)| term.get() == self.term) {
                    self.free(now_ms);
                }
                Ok(Reply::Heartbeat(HeartbeatView { ttl_ms: TTL_MS, epoch: 0, revision }))
            }
            Request::List(session) => {
                self.knows(*session)?;
                Ok(Reply::Session(self.view(Node::new("a").unwrap())))
            }
            Request::Close(session) => {
                if self.knows(*session).is_ok() {
                    self.session = None;
                    self.free(now_ms);
                }
                Ok(Reply::Done)
            }
            Request::Campaign(campaign) => self.campaign(now_ms, campaign),
            Request::Group(request) => {
                self.knows(request.session)?;
                if let Verb::Resign(term) = request.verb
                    && term.get() == self.term
                {
                    self.free(now_ms);
                }
                Ok(Reply::Done)
            }
        }
    }

    fn campaign(&mut self, now_ms: u64, campaign: &crate::store::Campaign) -> StoreResult<Reply> {
        let crate::store::CampaignSession::Own(session) = campaign.session else {
            panic!("the driver has a session of its own");
        };
        self.knows(session)?;
        if !self.is_ours && self.rival_until_ms <= now_ms {
            self.is_ours = true;
            self.term += 1;
            self.revision += 1;
        }
        let term = Term::new(self.term).unwrap_or(Term::NONE);
        let revision = Revision(self.revision);
        Ok(Reply::Campaigned(Campaigned {
            elected: self.is_ours.then_some(term),
            standing: false,
            office: LeaderView {
                group: group(),
                leader: None,
                term,
                state: OfficeState::Leading,
                metadata: Metadata::NONE,
                valid_for: None,
                moved_to: None,
                revision,
                cursor: Cursor { incarnation: Incarnation(1), revision, ordinal: 0 },
            },
            session: Some(session),
            ttl_ms: TTL_MS,
            retry_after: None,
        }))
    }
}

fn group() -> Group {
    Group::new("billing").unwrap()
}

/// A driver, the model, and what is known of both.
struct World {
    driver: Driver,
    model: Model,
    now_ms: u64,
    is_cut: bool,
    is_hung: bool,
    alive_ms: u64,
    asks_probe: bool,
    sessions: u128,
    claims: u64,
    waiting: BTreeSet<ClaimId>,
    working: Option<Term>,
    terms: Vec<Term>,
    /// The ends that the driver gave its term when it told the work to stop.
    stop_by: BTreeMap<Term, Moment>,
    over: BTreeSet<Term>,
}

impl World {
    fn new() -> Self {
        let budget = Budget::default();
        let probe = Some(RuntimeProbe::new(&budget));
        Self {
            driver: Driver::new(Node::new("a").unwrap(), budget, 11, probe),
            model: Model::default(),
            now_ms: 0,
            is_cut: false,
            is_hung: false,
            alive_ms: 0,
            asks_probe: false,
            sessions: 0,
            claims: 0,
            waiting: BTreeSet::new(),
            working: None,
            terms: Vec::new(),
            stop_by: BTreeMap::new(),
            over: BTreeSet::new(),
        }
    }

    fn now(&self) -> Moment {
        Moment::from_millis(self.now_ms)
    }

    fn tell(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for output in self.driver.on(self.now(), input) {
                inputs.extend(self.act(output));
            }
        }
    }

    fn act(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Send { attempt, request } => return self.send(attempt, &request),
            Output::Elected { claim, term, .. } => {
                assert!(self.waiting.remove(&claim), "{claim:?} was not waiting");
                assert_eq!(self.working, None, "work of an earlier term is still alive");
                assert!(self.terms.last().is_none_or(|last| *last < term), "terms rise");
                self.working = Some(term);
                self.terms.push(term);
            }
            Output::Failed { claim, why } => panic!("{claim:?} failed: {why:?}"),
            Output::Moved(moved) => match moved.to {
                Phase::Stopped | Phase::Lost => {
                    self.over.insert(moved.term);
                }
                Phase::Standby | Phase::Leading | Phase::Jeopardy | Phase::Stopping => {}
            },
            Output::Stop { term, by, .. } => {
                let known = self.stop_by.entry(term).or_insert(by);
                *known = by.min(*known);
            }
            Output::Probe => {
                assert!(!self.asks_probe, "one question at a time");
                self.asks_probe = true;
            }
            Output::NeedSession => {
                self.sessions += 1;
                return SessionId::new(self.sessions).ok().map(Input::Session);
            }
            Output::LastResort { .. }
            | Output::Offered { .. }
            | Output::OfferOver { .. }
            | Output::HandOverRefused { .. }
            | Output::Over { .. }
            | Output::Watch(_)
            | Output::Unwatch(_)
            | Output::Trouble { .. }
            | Output::Done
            | Output::WakeAt(_) => {}
        }
        None
    }

    fn send(&mut self, attempt: Attempt, request: &Request) -> Option<Input> {
        if matches!(request, Request::Heartbeat(_) | Request::Open(_)) {
            let silent_ms = self.now_ms - self.alive_ms;
            assert!(silent_ms <= TTL_MS / 2, "renewed after {silent_ms} ms of silence");
        }
        // A cut line still carries what is asked; only the answers are lost.
        let answer = self.model.perform(self.now_ms, request);
        (!self.is_cut).then_some(Input::Answered { attempt, answer })
    }

    /// Whether the driver would let a check pass.
    fn believes(&self) -> bool {
        let Some(term) = self.working.filter(|term| !self.over.contains(term)) else {
            return false;
        };
        let own = self.stop_by.get(&term).copied();
        let until = self.driver.lease_until().unwrap_or(Moment::ZERO);
        self.now() < own.map_or(until, |own| own.min(until))
    }

    fn step(&mut self, act: Act) {
        let group = group();
        match act {
            Act::Claim => {
                self.claims += 1;
                let claim = ClaimId(self.claims);
                if self.driver.machine.is_done() {
                    self.alive_ms = self.now_ms;
                }
                self.waiting.insert(claim);
                let metadata = Metadata::NONE;
                self.tell(Input::Claim { claim, group, priority: 0, metadata });
            }
            Act::Unclaim => {
                if let Some(claim) = self.waiting.pop_first() {
                    self.tell(Input::Unclaim { claim });
                }
            }
            Act::Idle => {
                if let Some(term) = self.working.take() {
                    self.over.insert(term);
                    self.tell(Input::Idle { group, term });
                }
            }
            Act::GiveUp => {
                if let Some(term) = self.working {
                    self.tell(Input::GiveUp { group, term });
                }
            }
            Act::Answer => self.is_hung = false,
            Act::Hang => self.is_hung = true,
            Act::Cut => self.is_cut = true,
            Act::Mend => self.is_cut = false,
            Act::Ill => self.tell(Input::Health { is_healthy: false }),
            Act::Well => self.tell(Input::Health { is_healthy: true }),
            Act::Pause(ms) => self.now_ms += ms,
            Act::Nothing => {}
        }
        self.now_ms += STEP_MS;
        self.model.pass(self.now_ms);
        // S1, before the driver has had a chance to notice anything.
        assert!(
            !self.believes() || self.model.is_ours,
            "acts without its office at {}",
            self.now_ms
        );
        self.tell(Input::Tick);
        if std::mem::take(&mut self.asks_probe) {
            if self.is_hung {
                self.asks_probe = true;
            } else {
                self.alive_ms = self.now_ms;
                let at = self.now();
                self.tell(Input::Alive { at });
            }
        }
        assert!(
            !self.believes() || self.model.is_ours,
            "acts without its office at {}",
            self.now_ms
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// S1, semantics 14 and 31, and one term at a time for the claims of one process.
    #[test]
    fn through_any_history_nobody_acts_without_its_office(
        acts in prop::collection::vec(act(), 1..600)
    ) {
        let mut world = World::new();
        for act in acts {
            world.step(act);
        }
    }

    /// Whatever has happened, once all is well again somebody who waits leads.
    #[test]
    fn after_any_history_whoever_waits_leads_in_the_end(
        acts in prop::collection::vec(act(), 1..300)
    ) {
        let mut world = World::new();
        for act in acts {
            world.step(act);
        }
        for act in [Act::Mend, Act::Answer, Act::Well, Act::Idle, Act::Claim] {
            world.step(act);
        }
        // Peace: a ttl for what was lost to expire, the rival's time, and every back-off.
        for _ in 0..1_000 {
            world.step(Act::Nothing);
            if world.believes() {
                break;
            }
            // What lost its term meanwhile ends, as work does.
            if world.working.is_some_and(|term| world.over.contains(&term)) {
                world.step(Act::Idle);
                world.step(Act::Claim);
            }
        }
        prop_assert!(world.believes(), "nobody leads after 100 s of peace");
    }
}
