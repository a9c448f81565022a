//! Corners in which machine and model once disagreed, or that chance finds too rarely: each as the
//! smallest case that shows it.

use regent_election::limits::TERM_MAX;
use regent_election::store::OfficeState;
use regent_election::{
    Answer, Applied, Cause, Command, Entry, Event, Finding, IfLost, Metadata, Node, NodePattern,
    Opening, Policy, Priority, Reason, Refusal, RequestId, Revision, SessionNo, Settings, State,
    Term, WaitKind,
};

use super::world::{group, secret};

/// A state machine with short words for what these corners need.
struct Bench(State);

impl Bench {
    fn new() -> Self {
        Self(State::new(Settings::default()))
    }

    fn apply(&mut self, entry: Entry) -> Applied {
        let applied = self.0.apply(entry);
        assert_eq!(self.0.check_invariants(), Ok(()));
        applied
    }

    fn run(&mut self, command: Command) -> Applied {
        self.apply(Entry::bare(command))
    }

    fn done(&mut self, command: Command) -> Vec<Event> {
        let applied = self.run(command);
        assert_eq!(applied.answer, Ok(Answer::Done));
        applied.events
    }

    fn stand(&mut self, slot: u8, priority: Priority) -> Answer {
        self.run(campaign(slot, priority)).answer.unwrap()
    }

    fn put(&mut self, policy: Policy) {
        self.done(Command::PutPolicy { group: group(0), policy: Some(Box::new(policy)) });
    }

    fn number(&self, slot: u8) -> SessionNo {
        self.0.find_session(secret(slot, 0)).unwrap()
    }

    fn epoch(&self, slot: u8) -> u64 {
        self.0.epoch(self.number(slot)).unwrap()
    }

    fn offered(&self, slot: u8) -> Option<String> {
        let tenure = self.0.session_view(secret(slot, 0)).unwrap().tenures.pop().unwrap();
        tenure.offered_to.map(|to| to.to_string())
    }

    fn office(&self) -> (Option<SessionNo>, OfficeState) {
        let holder = self.0.holder(&group(0));
        (holder.map(|holder| holder.session), holder.map_or(OfficeState::Vacant, |one| one.state))
    }

    /// The minimum tenure of the leader is served.
    fn serve(&mut self) {
        let wait = self.0.waits().find(|wait| wait.kind == WaitKind::MinimumTenure).unwrap();
        self.done(Command::Elapsed { group: wait.group, kind: wait.kind, since: wait.since });
    }

    /// Nobody leads, and these stand: they were silent when the office fell vacant.
    fn strand(&mut self, standbys: &[(u8, Priority)]) {
        self.stand(9, 0);
        for (slot, priority) in standbys {
            self.stand(*slot, *priority);
        }
        let silent = standbys.iter().map(|(slot, _)| self.number(*slot)).collect();
        let command = Command::Close { session: secret(9, 0) };
        self.apply(Entry { silent, ..Entry::bare(command) });
        assert_eq!(self.office(), (None, OfficeState::Vacant));
    }
}

/// Stands in the one group there is; the slot's node has the slot's number.
fn campaign(slot: u8, priority: Priority) -> Command {
    Command::Campaign {
        group: group(0),
        session: secret(slot, 0),
        opening: Some(Opening { node: name(slot), ttl_ms: None, passing: false }),
        if_lost: IfLost::Stand,
        priority,
        metadata: Metadata::NONE,
    }
}

fn name(slot: u8) -> Node {
    Node::new(&format!("n{slot}")).unwrap()
}

fn withdraw(slot: u8) -> Command {
    Command::Withdraw { group: group(0), session: secret(slot, 0) }
}

fn resign(slot: u8, term: u64) -> Command {
    Command::Resign { group: group(0), session: secret(slot, 0), term: Term::new(term).unwrap() }
}

fn preferring() -> Policy {
    Policy { prefer_priority: true, minimum_tenure_ms: 5000, ..Policy::default() }
}

/// A finding changes nothing about who leads, and makes no offer either: who reports may be a nuisance.
#[test]
fn a_finding_offers_the_office_to_nobody() {
    let mut bench = Bench::new();
    bench.put(preferring());
    bench.stand(1, 0);
    bench.stand(2, 1);
    let wait = bench.0.waits().find(|wait| wait.kind == WaitKind::MinimumTenure).unwrap();
    let served = Command::Elapsed { group: wait.group, kind: wait.kind, since: wait.since };
    let silent = vec![bench.number(2)];
    bench.apply(Entry { silent, ..Entry::bare(served) });
    assert_eq!(bench.offered(1), None, "the better one was silent when the season opened");
    let reason = Reason::new("seen").unwrap();
    let told =
        bench.done(Command::Report { group: group(0), finding: Finding::SplitBrain, reason });
    assert_eq!((told.len(), bench.offered(1)), (1, None));
    assert_eq!(bench.0.waits().count(), 0);
    bench.stand(2, 1);
    assert_eq!(bench.offered(1).as_deref(), Some("n2"), "it says again that it stands");
}

/// Semantics 7: a holder whose answer was lost relies on the old ttl, and a driver that starts after
/// a failover has nobody else to tell it.
#[test]
fn a_driver_that_starts_counts_the_longest_ttl_a_holder_may_rely_on() {
    let mut bench = Bench::new();
    bench.done(Command::PutPolicy { group: group(0), policy: None });
    bench.stand(1, 0);
    bench.done(Command::ChangeTtl { session: secret(1, 0), ttl_ms: 1000 });
    assert_eq!(bench.0.ttl_ms(bench.number(1)), Some(1000));
    let counted: Vec<_> = bench.0.sessions().collect();
    assert_eq!(counted, [(bench.number(1), 10_000)]);
}

/// Semantics 18: the close of a request that was given up may overtake the request itself.
#[test]
fn a_session_closed_before_it_opens_never_opens() {
    let mut bench = Bench::new();
    bench.done(Command::Close { session: secret(1, 0) });
    assert_eq!(bench.run(campaign(1, 0)).answer, Err(Refusal::SessionUnknown));
    assert_eq!(bench.office(), (None, OfficeState::Vacant));
}

/// A session that ends is never promoted by the entry that ends it, not even in its own place.
#[test]
fn a_holder_that_stands_again_and_closes_is_not_promoted() {
    let mut bench = Bench::new();
    bench.stand(1, 0);
    let reason = Reason::default();
    bench.run(Command::StepDown { group: group(0), reason, to: None, immediate: false });
    assert!(matches!(bench.stand(1, 0), Answer::Standing { .. }));
    let events = bench.done(Command::Close { session: secret(1, 0) });
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((events[0].term.get(), events[0].cause), (1, Cause::SteppedDown));
    assert_eq!(bench.office(), (None, OfficeState::Vacant));
}

/// Semantics 22 and 23: a group that was being deleted is gone in the next life, its terms are not.
#[test]
fn a_restored_store_starts_above_the_terms_of_a_group_that_was_being_deleted() {
    let mut bench = Bench::new();
    bench.stand(1, 0);
    bench.run(Command::Delete { group: group(0) });
    let mut bench = Bench(bench.0.reborn(0, 0, Term::NONE).unwrap());
    let answer = bench.stand(2, 0);
    let Answer::Elected { term, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(term.get(), 1 + (1 << 32) + 1);
}

#[test]
fn a_standby_that_claims_more_wins_the_vacant_office_it_speaks_for() {
    let mut bench = Bench::new();
    bench.strand(&[(1, 5), (2, 0)]);
    let answer = bench.stand(2, 9);
    assert!(matches!(answer, Answer::Elected { .. }), "{answer:?}");
    assert_eq!(bench.office(), (Some(bench.number(2)), OfficeState::Leading));
}

/// Whoever campaigns is heard, even if the proposer listed it as silent a moment before.
#[test]
fn an_heir_that_speaks_is_not_passed_over_as_silent() {
    let mut bench = Bench::new();
    bench.stand(0, 0);
    bench.stand(1, 5);
    bench.stand(2, 0);
    let reason = Reason::default();
    let to = Some(name(2));
    bench.run(Command::StepDown { group: group(0), reason, to, immediate: false });
    let silent = vec![bench.number(1), bench.number(2)];
    bench.apply(Entry { silent, ..Entry::bare(resign(0, 1)) });
    let silent = vec![bench.number(2)];
    let answer = bench.apply(Entry { silent, ..Entry::bare(campaign(2, 0)) }).answer.unwrap();
    assert!(matches!(answer, Answer::Elected { .. }), "{answer:?}");
}

/// Semantics 16: the policy's priority counts for a leader as it does for a standby.
#[test]
fn a_policy_that_raises_the_leader_spares_it_the_offer() {
    let mut bench = Bench::new();
    bench.put(preferring());
    bench.stand(1, 0);
    bench.stand(2, 5);
    let priorities = vec![(NodePattern::new("n1").unwrap(), 9)];
    bench.put(Policy { priorities, ..preferring() });
    bench.serve();
    assert_eq!(bench.offered(1), None);
}

/// S4: a forced end is a distinct event, reported and never silent.
#[test]
fn a_forced_end_of_a_group_that_is_being_deleted_is_told_as_forced() {
    let mut bench = Bench::new();
    bench.stand(1, 0);
    bench.run(Command::Delete { group: group(0) });
    let reason = Reason::default();
    let applied =
        bench.run(Command::StepDown { group: group(0), reason, to: None, immediate: true });
    assert_eq!(applied.answer, Ok(Answer::Forced { overlap_possible_ms: 10_000 }));
    let causes: Vec<Cause> = applied.events.iter().map(|event| event.cause).collect();
    assert_eq!(causes, [Cause::Forced, Cause::Deleted]);
}

#[test]
fn an_offer_that_lapses_is_told_to_the_leader_and_made_to_the_next_best() {
    let mut bench = Bench::new();
    bench.put(preferring());
    bench.stand(1, 0);
    bench.stand(2, 5);
    bench.stand(3, 4);
    bench.serve();
    assert_eq!(bench.offered(1).as_deref(), Some("n2"));
    bench.serve();
    let (leader, next) = (bench.epoch(1), bench.epoch(3));
    bench.done(withdraw(2));
    assert_eq!(bench.offered(1).as_deref(), Some("n3"));
    assert!(bench.epoch(1) > leader && bench.epoch(3) > next);

    bench.serve();
    let leader = bench.epoch(1);
    bench.done(Command::Expire { sessions: vec![bench.number(3)] });
    assert_eq!(bench.offered(1), None);
    assert!(bench.epoch(1) > leader);
}

/// S9, semantics 19: `elected` only if the tenure that this very request stood for is in office.
#[test]
fn a_repeated_campaign_is_not_elected_by_a_later_candidacy() {
    let mut bench = Bench::new();
    bench.stand(1, 0);
    let request = RequestId::new(Revision(0), "first").unwrap();
    let first = Entry { request: Some(request), ..Entry::bare(campaign(2, 0)) };
    assert!(matches!(bench.apply(first.clone()).answer, Ok(Answer::Standing { .. })));
    bench.done(withdraw(2));
    bench.stand(2, 0);
    assert_eq!(bench.apply(first.clone()).answer, Ok(Answer::Lost));
    bench.done(resign(1, 1));
    assert_eq!(bench.apply(first).answer, Ok(Answer::Lost));
    assert_eq!(bench.office(), (Some(bench.number(2)), OfficeState::Elected));
}

#[test]
fn a_repeated_campaign_accepts_the_promotion_it_stood_for() {
    let mut bench = Bench::new();
    bench.stand(1, 0);
    let request = RequestId::new(Revision(0), "first").unwrap();
    let first = Entry { request: Some(request), ..Entry::bare(campaign(2, 0)) };
    bench.apply(first.clone());
    // Saying again that it stands keeps the place and the candidacy.
    bench.stand(2, 3);
    bench.done(resign(1, 1));
    let again = bench.apply(first).answer;
    assert!(matches!(again, Ok(Answer::Elected { .. })), "{again:?}");
}

#[test]
fn the_same_policy_again_does_not_restart_the_minimum_tenure() {
    let mut bench = Bench::new();
    bench.put(preferring());
    bench.stand(1, 0);
    let before: Vec<_> = bench.0.waits().collect();
    bench.put(preferring());
    assert_eq!(bench.0.waits().collect::<Vec<_>>(), before);
}

/// S2 at the end of the range: a refusal, never a term that wraps or repeats.
#[test]
fn a_group_that_has_used_every_term_grants_no_more() {
    // An empty state ends with seven zeros, and the second of them is the term floor.
    let mut bytes = State::new(Settings::default()).encode();
    let floor = bytes.len() - 6;
    let mut number = Vec::new();
    regent_election::codec::Wire::put(&(TERM_MAX - 1), &mut number);
    bytes.splice(floor..=floor, number);
    let mut bench = Bench(State::decode(&bytes).unwrap());

    let answer = bench.stand(1, 0);
    assert!(matches!(answer, Answer::Elected { term, .. } if term.get() == TERM_MAX));
    bench.done(resign(1, TERM_MAX));
    let refused = bench.run(campaign(1, 0)).answer;
    assert_eq!(refused, Err(Refusal::TermsExhausted { group: group(0) }));
    bench.done(Command::Delete { group: group(0) });
    assert!(matches!(bench.run(campaign(1, 0)).answer, Err(Refusal::Full { .. })));
    assert_eq!(bench.office(), (None, OfficeState::Vacant));
}
