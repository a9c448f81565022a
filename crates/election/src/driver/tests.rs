//! The driver against a store that the test itself plays.

use crate::participant::{Attempt, Reply, Verb};
use crate::store::{
    Campaigned, HeartbeatView, LeaderView, OfficeState, SessionView, StoreResult, TenureView,
};
use crate::{Cursor, Incarnation, Revision, SessionId};

use super::*;

fn at(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

fn group() -> Group {
    Group::new("billing").unwrap()
}

fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

fn claim(number: u64) -> Input {
    let (claim, metadata) = (ClaimId(number), Metadata::NONE);
    Input::Claim { claim, group: group(), priority: 0, metadata }
}

/// A driver and what it has said.
struct Stage {
    driver: Driver,
    said: Vec<Output>,
}

impl Stage {
    fn new(probes: bool) -> Self {
        let budget = Budget::default();
        let probe = probes.then(|| RuntimeProbe::new(&budget));
        let driver = Driver::new(Node::new("a").unwrap(), budget, 7, probe);
        Self { driver, said: Vec::new() }
    }

    fn on(&mut self, ms: u64, input: Input) {
        let outputs = self.driver.on(at(ms), input);
        self.said.extend(outputs);
    }

    /// The requests that wait for an answer, taken.
    fn asked(&mut self) -> Vec<(Attempt, Request)> {
        let mut asked = Vec::new();
        for output in std::mem::take(&mut self.said) {
            match output {
                Output::Send { attempt, request } => asked.push((attempt, request)),
                other => self.said.push(other),
            }
        }
        asked
    }

    fn answer(&mut self, ms: u64, attempt: Attempt, answer: StoreResult<Reply>) {
        self.on(ms, Input::Answered { attempt, answer });
    }

    /// Answers everything that is asked as a store does in which nobody else stands.
    fn serve(&mut self, ms: u64, next_term: &mut u64) {
        if self.said.iter().any(|output| matches!(output, Output::NeedSession)) {
            self.said.retain(|output| !matches!(output, Output::NeedSession));
            self.on(ms, Input::Session(SessionId::new(9).unwrap()));
        }
        for (attempt, request) in self.asked() {
            let reply = match request {
                Request::Open(open) => Reply::Session(SessionView {
                    node: open.node,
                    ttl_ms: open.ttl_ms,
                    epoch: 0,
                    tenures: Vec::new(),
                    standing: Vec::new(),
                    offers: Vec::new(),
                    revision: Revision(1),
                }),
                Request::Heartbeat(_) => Reply::Heartbeat(HeartbeatView {
                    ttl_ms: 10_000,
                    epoch: 0,
                    revision: Revision(1),
                }),
                Request::List(_) => panic!("there is no news"),
                Request::Close(_) => Reply::Done,
                Request::Campaign(campaign) => {
                    *next_term += 1;
                    Reply::Campaigned(campaigned(campaign.node, *next_term))
                }
                Request::Group(_) => Reply::Done,
            };
            self.answer(ms, attempt, Ok(reply));
        }
    }

    fn elected(&self) -> Vec<(ClaimId, Term)> {
        let elected = |output: &Output| match output {
            Output::Elected { claim, term, .. } => Some((*claim, *term)),
            _ => None,
        };
        self.said.iter().filter_map(elected).collect()
    }

    fn over(&self) -> Vec<Term> {
        let over = |output: &Output| match output {
            Output::Over { term, .. } => Some(*term),
            _ => None,
        };
        self.said.iter().filter_map(over).collect()
    }

    /// A driver that leads under term 1 since the moment 0.
    fn leading(probes: bool) -> Self {
        let mut stage = Self::new(probes);
        let mut next_term = 0;
        stage.on(0, claim(1));
        for _ in 0..4 {
            stage.serve(0, &mut next_term);
        }
        assert_eq!(stage.elected(), [(ClaimId(1), term(1))]);
        stage
    }
}

fn campaigned(node: Node, number: u64) -> Campaigned {
    let revision = Revision(number + 1);
    Campaigned {
        elected: Some(term(number)),
        standing: false,
        office: LeaderView {
            group: group(),
            leader: Some(node),
            term: term(number),
            state: OfficeState::Leading,
            metadata: Metadata::NONE,
            valid_for: None,
            moved_to: None,
            revision,
            cursor: Cursor { incarnation: Incarnation(1), revision, ordinal: 0 },
        },
        session: None,
        ttl_ms: 10_000,
        retry_after: None,
    }
}

#[test]
fn claims_of_one_group_are_served_in_turn_one_term_each() {
    let mut stage = Stage::leading(false);
    stage.on(10, claim(2));
    assert_eq!(stage.elected().len(), 1, "the second waits while the first works");
    stage.on(20, Input::Idle { group: group(), term: term(1) });
    let mut next_term = 1;
    for ms in (20..12_000).step_by(50) {
        stage.on(ms, Input::Tick);
        stage.serve(ms, &mut next_term);
    }
    assert_eq!(stage.over(), [term(1)]);
    assert_eq!(stage.elected(), [(ClaimId(1), term(1)), (ClaimId(2), term(2))]);
}

#[test]
fn a_term_that_nobody_waits_for_any_more_is_given_back_before_anybody_leads() {
    let mut stage = Stage::new(false);
    let mut next_term = 0;
    stage.on(0, claim(1));
    stage.serve(0, &mut next_term);
    let asked = stage.asked();
    let (attempt, Request::Campaign(campaign)) = &asked[0] else { panic!("{asked:?}") };
    stage.on(1, Input::Unclaim { claim: ClaimId(1) });
    stage.answer(2, *attempt, Ok(Reply::Campaigned(campaigned(campaign.node.clone(), 1))));
    assert_eq!(stage.elected(), []);
    let asked = stage.asked();
    let resigns = |request: &Request| match request {
        Request::Group(request) => request.verb == Verb::Resign(term(1)),
        _ => false,
    };
    assert!(asked.iter().any(|(_, request)| resigns(request)), "{asked:?}");
}

#[test]
fn a_resignation_is_sent_when_nothing_works_and_not_before() {
    let mut stage = Stage::leading(false);
    stage.on(10, Input::GiveUp { group: group(), term: term(1) });
    assert!(stage.said.iter().any(|it| matches!(it, Output::Stop { .. })), "the work is told");
    assert!(stage.asked().is_empty(), "the work still runs");
    stage.on(20, Input::Idle { group: group(), term: term(1) });
    let asked = stage.asked();
    let [(attempt, Request::Group(request))] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(request.verb, Verb::Resign(term(1)));
    assert!(stage.over().is_empty());
    stage.answer(30, *attempt, Ok(Reply::Done));
    assert_eq!(stage.over(), [term(1)]);
    assert!(stage.said.iter().any(|it| matches!(it, Output::Unwatch(_))));
}

const WITHIN: Duration = Duration::from_secs(5);

impl Stage {
    /// Begins to hand the office to b; the store has acknowledged the offer.
    fn offering() -> Self {
        let mut stage = Self::leading(false);
        let (to, within) = (Node::new("b").unwrap(), WITHIN);
        stage.on(10, Input::HandOver { group: group(), term: term(1), to: to.clone(), within });
        let asked = stage.asked();
        let [(attempt, Request::Group(offer))] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!(offer.verb, Verb::Offer(term(1), to));
        stage.answer(20, *attempt, Ok(Reply::Done));
        assert_eq!(stage.driver.phase(&group()), Some(Phase::Leading), "nobody is warm yet");
        stage
    }

    /// The next heartbeat brings news: b is warm.
    fn is_warm(&mut self, ms: u64) {
        let (heartbeat, _) = self.asked()[0].clone();
        let heard = HeartbeatView { ttl_ms: 10_000, epoch: 1, revision: Revision(5) };
        self.answer(ms, heartbeat, Ok(Reply::Heartbeat(heard)));
        let (list, request) = self.asked()[0].clone();
        assert!(matches!(request, Request::List(_)), "{request:?}");
        let tenure = TenureView {
            group: group(),
            term: term(1),
            state: OfficeState::Leading,
            offered_to: Some(Node::new("b").unwrap()),
            is_warm: true,
            moves_to: None,
        };
        let view = SessionView {
            node: Node::new("a").unwrap(),
            ttl_ms: 10_000,
            epoch: 1,
            tenures: vec![tenure],
            standing: Vec::new(),
            offers: Vec::new(),
            revision: Revision(5),
        };
        self.answer(ms, list, Ok(Reply::Session(view)));
    }

    fn faults(&self) -> Vec<HandOverFault> {
        let fault = |output: &Output| match output {
            Output::HandOverRefused { why, .. } => Some(why.clone()),
            _ => None,
        };
        self.said.iter().filter_map(fault).collect()
    }
}

#[test]
fn a_hand_over_ends_in_a_transfer_though_nobody_here_stands_any_more() {
    let mut stage = Stage::offering();
    stage.is_warm(30);
    assert_eq!(stage.driver.phase(&group()), Some(Phase::Stopping));
    stage.on(30, Input::Idle { group: group(), term: term(1) });
    let asked = stage.asked();
    let [(_, Request::Group(transfer))] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(transfer.verb, Verb::Transfer(term(1), Node::new("b").unwrap()));
}

#[test]
fn a_standby_that_does_not_get_warm_in_time_is_told_and_the_term_goes_on() {
    let mut stage = Stage::offering();
    stage.on(10 + 5_000, Input::Tick);
    assert_eq!(stage.faults(), [HandOverFault::NotWarm]);
    assert_eq!(stage.driver.phase(&group()), Some(Phase::Leading));
}

#[test]
fn a_refused_offer_is_told_and_the_term_goes_on() {
    let mut stage = Stage::leading(false);
    let (to, within) = (Node::new("b").unwrap(), WITHIN);
    stage.on(10, Input::HandOver { group: group(), term: term(1), to: to.clone(), within });
    let (attempt, _) = stage.asked()[0].clone();
    let refusal = StoreError::Refused(Refusal::SuccessorUnknown { group: group(), to });
    stage.answer(20, attempt, Err(refusal.clone()));
    assert_eq!(stage.faults(), [HandOverFault::Refused(refusal)]);
    assert_eq!(stage.driver.phase(&group()), Some(Phase::Leading));
}

#[test]
fn a_campaign_that_can_never_win_fails_and_one_that_may_goes_on() {
    for (refusal, is_final) in [
        (Refusal::NotAllowed { group: group(), node: Node::new("a").unwrap() }, true),
        (Refusal::GroupUnknown { group: group() }, true),
        (Refusal::GroupEnding { group: group() }, false),
        (Refusal::Full { what: "the line", max: 1 }, false),
    ] {
        let mut stage = Stage::new(false);
        let mut next_term = 0;
        stage.on(0, claim(1));
        stage.serve(0, &mut next_term);
        let (attempt, _) = stage.asked()[0].clone();
        stage.answer(1, attempt, Err(StoreError::Refused(refusal.clone())));
        let failed = stage.said.iter().any(|it| matches!(it, Output::Failed { .. }));
        assert_eq!(failed, is_final, "{refusal}");
    }
}

/// When the next campaign after a moment is sent, within two minutes. Everything else is answered.
fn campaigns_at(stage: &mut Stage, from_ms: u64) -> u64 {
    for ms in (from_ms..from_ms + 120_000).step_by(10) {
        stage.on(ms, Input::Tick);
        let is_campaign =
            |output: &Output| matches!(output, Output::Send { request: Request::Campaign(_), .. });
        if stage.said.iter().any(is_campaign) {
            return ms;
        }
        stage.serve(ms, &mut 0);
    }
    panic!("it campaigns no more: {:?}", stage.said);
}

/// Whoever fails as soon as it leads waits longer and longer, and again only a moment once it has led for a while.
#[test]
fn work_that_fails_right_after_an_election_costs_a_growing_pause() {
    for is_ill in [false, true] {
        let mut stage = Stage::leading(false);
        let (mut ms, mut number, mut pauses) = (0, 1, Vec::new());
        // Leads for so long, then fails.
        for led_ms in [10, 10, 10, 31_000, 10] {
            for at_ms in (ms..ms + led_ms).step_by(1_000) {
                stage.on(at_ms, Input::Tick);
                stage.serve(at_ms, &mut number);
            }
            ms += led_ms;
            if is_ill {
                stage.on(ms, Input::Health { is_healthy: false });
            } else {
                stage.on(ms, Input::Failed { group: group(), term: term(number) });
            }
            stage.on(ms, Input::Idle { group: group(), term: term(number) });
            stage.serve(ms, &mut number);
            stage.on(ms, Input::Health { is_healthy: true });
            stage.on(ms, claim(number + 1));
            stage.said.retain(|output| !matches!(output, Output::Elected { .. }));
            let next = campaigns_at(&mut stage, ms);
            pauses.push(next - ms);
            ms = next;
            stage.serve(ms, &mut number);
            assert_eq!(stage.elected().len(), 1, "it leads again: {:?}", stage.said);
        }
        let is_within = |pause: u64, low: u64| pause >= low && pause <= 2 * low + 10;
        assert!(is_within(pauses[0], 500), "{pauses:?}");
        assert!(is_within(pauses[1], 1_000) && is_within(pauses[2], 2_000), "{pauses:?}");
        assert!(pauses[3] < 5_100, "it had led for the minimum tenure: {pauses:?}");
        assert!(is_within(pauses[4], 500), "the count began anew: {pauses:?}");
    }
}

fn no_credential() -> StoreError {
    StoreError::Refused(Refusal::Unauthenticated { why: "no credential was shown".into() })
}

/// Answers the next request of this kind, within a minute, and says when.
fn answer_next(
    stage: &mut Stage,
    from_ms: u64,
    is_meant: impl Fn(&Request) -> bool,
    error: &StoreError,
) -> u64 {
    for ms in (from_ms..from_ms + 60_000).step_by(10) {
        stage.on(ms, Input::Tick);
        if let Some((attempt, _)) = stage.asked().into_iter().find(|(_, it)| is_meant(it)) {
            stage.answer(ms, attempt, Err(error.clone()));
            return ms;
        }
    }
    panic!("it asks no more: {:?}", stage.said);
}

#[test]
fn a_process_that_the_servers_do_not_know_gives_up_at_the_second_refusal() {
    let over = Refusal::CredentialOver { flaw: crate::access::CredentialFlaw::Revoked };
    for error in [no_credential(), StoreError::Refused(over)] {
        let mut stage = Stage::new(false);
        stage.on(0, claim(1));
        stage.said.clear();
        stage.on(0, Input::Session(SessionId::new(9).unwrap()));
        let is_failed = |stage: &Stage| {
            stage.said.iter().any(|it| {
                matches!(it, Output::Failed { why, .. }
                if *why == PermanentFailure::Refused(match &error {
                    StoreError::Refused(refusal) => refusal.clone(),
                    other => panic!("{other}"),
                }))
            })
        };
        let is_open = |request: &Request| matches!(request, Request::Open(_));
        let ms = answer_next(&mut stage, 1, is_open, &error);
        assert!(!is_failed(&stage), "a replica may lag behind");
        answer_next(&mut stage, ms, is_open, &error);
        assert!(is_failed(&stage), "{error}");
    }
}

/// Its token may be replaced in its file at any moment.
#[test]
fn a_process_that_was_known_before_asks_on() {
    let mut stage = Stage::new(false);
    stage.on(0, claim(1));
    let mut next_term = 0;
    stage.serve(0, &mut next_term);
    let (attempt, _) = stage.asked()[0].clone();
    let mut ms = 1;
    stage.answer(ms, attempt, Err(no_credential()));
    for _ in 0..5 {
        let is_campaign = |request: &Request| matches!(request, Request::Campaign(_));
        ms = answer_next(&mut stage, ms, is_campaign, &no_credential());
        let failed = stage.said.iter().any(|it| matches!(it, Output::Failed { .. }));
        assert!(!failed, "at {ms} ms");
    }
}

/// A group that is stopped while it is put in order: its candidates are refused, and wait.
#[test]
fn who_was_let_in_once_waits_until_it_is_let_in_again() {
    let mut stage = Stage::leading(false);
    let mut next_term = 1;
    stage.on(10, Input::Idle { group: group(), term: term(1) });
    stage.serve(10, &mut next_term);
    stage.on(20, claim(2));
    let refusal = Refusal::NotAllowed { group: group(), node: Node::new("a").unwrap() };
    let mut refused = 0;
    for ms in (30..30_000).step_by(10) {
        stage.on(ms, Input::Tick);
        let (campaigns, others): (Vec<_>, Vec<_>) =
            stage.asked().into_iter().partition(|(_, it)| matches!(it, Request::Campaign(_)));
        let send = |(attempt, request)| Output::Send { attempt, request };
        stage.said.extend(others.into_iter().map(send));
        for (attempt, _) in campaigns {
            refused += 1;
            stage.answer(ms, attempt, Err(StoreError::Refused(refusal.clone())));
        }
        let failed = stage.said.iter().any(|it| matches!(it, Output::Failed { .. }));
        assert!(!failed, "at {ms} ms");
        stage.serve(ms, &mut next_term);
    }
    assert!(refused > 2, "it asks again and again: {refused}");
}

/// Semantics 31.
#[test]
fn a_hung_application_is_not_renewed_and_loses_its_term_by_the_clock() {
    let mut stage = Stage::leading(true);
    let mut next_term = 1;
    let mut last_heartbeat_ms = 0;
    for ms in (10..20_000).step_by(10) {
        stage.on(ms, Input::Tick);
        let is_heartbeat =
            |output: &Output| matches!(output, Output::Send { request: Request::Heartbeat(_), .. });
        if stage.said.iter().any(is_heartbeat) {
            last_heartbeat_ms = ms;
        }
        // The store answers everything; only the application does not.
        stage.serve(ms, &mut next_term);
        if stage.driver.phase(&group()) == Some(Phase::Lost) {
            assert!(last_heartbeat_ms <= 5_000, "renewed at {last_heartbeat_ms} ms");
            assert!(last_heartbeat_ms > 3_000, "a silence of less than half a ttl is no reason");
            assert_eq!(ms, last_heartbeat_ms + 9_810, "the lease ran out, no sooner");
            return;
        }
    }
    panic!("it leads on though the application hangs");
}

#[test]
fn an_application_that_answers_is_renewed_for_ever_and_asked_one_thing_at_a_time() {
    let mut stage = Stage::leading(true);
    let mut next_term = 1;
    for ms in (10..60_000).step_by(10) {
        stage.on(ms, Input::Tick);
        stage.serve(ms, &mut next_term);
        let asked = stage.said.iter().filter(|it| matches!(it, Output::Probe)).count();
        assert!(asked <= 1, "{asked} questions are open");
        if ms % 4_000 == 0 && asked == 1 {
            stage.said.retain(|it| !matches!(it, Output::Probe));
            stage.on(ms, Input::Alive { at: at(ms) });
        }
    }
    assert_eq!(stage.driver.phase(&group()), Some(Phase::Leading));
}

#[test]
fn whoever_leaves_fails_its_claims_stops_its_work_and_closes_the_session() {
    let mut stage = Stage::leading(false);
    stage.on(10, claim(2));
    stage.on(20, Input::Leave);
    let failed = stage
        .said
        .iter()
        .any(|it| matches!(it, Output::Failed { claim: ClaimId(2), why: PermanentFailure::Left }));
    assert!(failed);
    assert!(stage.said.iter().any(|it| matches!(it, Output::Stop { .. })));
    stage.on(30, Input::Idle { group: group(), term: term(1) });
    let mut next_term = 1;
    for _ in 0..4 {
        stage.serve(30, &mut next_term);
    }
    assert!(stage.said.iter().any(|it| matches!(it, Output::Done)));
    stage.on(40, claim(3));
    let failed = stage
        .said
        .iter()
        .any(|it| matches!(it, Output::Failed { claim: ClaimId(3), why: PermanentFailure::Left }));
    assert!(failed, "nobody stands after leaving");
}

#[test]
fn the_same_history_gives_the_same_outputs() {
    let history = || {
        let mut stage = Stage::leading(true);
        let mut next_term = 1;
        for ms in (10..8_000).step_by(10) {
            stage.on(ms, Input::Tick);
            stage.serve(ms, &mut next_term);
        }
        format!("{:?}", stage.said)
    };
    assert_eq!(history(), history());
}
