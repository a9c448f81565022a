//! The detector told event by event, and through any history of honest nodes whose messages are late.

use proptest::prelude::*;

use super::*;
use crate::belief::Claim;

const TTL_MS: u64 = 10_000;

fn at(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

fn node(name: &str) -> Node {
    Node::new(name).unwrap()
}

fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

fn session(number: u128) -> SessionId {
    SessionId::new(number).unwrap()
}

fn beliefs(who: &str, claims: &[(&str, u64, u64)]) -> Beliefs {
    let claims = claims.iter().map(|(place, number, left_ms)| Claim {
        group: group(place),
        term: term(*number),
        left_ms: *left_ms,
        digest: None,
    });
    Beliefs {
        node: node(who),
        ttl_ms: TTL_MS,
        margin_ms: None,
        claims: claims.collect(),
        refused: Vec::new(),
    }
}

/// A detector, and what it has asked for.
#[derive(Default)]
struct Bench {
    detector: Detector,
    asked: Option<Asked>,
}

impl Bench {
    /// Whether a heartbeat makes it ask.
    fn heartbeat(&mut self, ms: u64, from: u128, beliefs: &Beliefs) -> bool {
        match self.detector.heartbeat(at(ms), session(from), true, beliefs) {
            Answered::Nothing => false,
            Answered::Ask(asks) => {
                self.asked = asks.last().map(|(_, asked)| *asked);
                true
            }
        }
    }

    /// The answer to what was asked last.
    fn confirm(&mut self, ms: u64, number: u64, leader: Option<&str>) -> Vec<Accusation> {
        let Some(asked) = self.asked.take() else { return Vec::new() };
        let leader = leader.map(node);
        self.detector.confirm(at(ms), (&group("g"), asked), term(number), leader.as_ref())
    }
}

impl std::ops::Deref for Bench {
    type Target = Detector;

    fn deref(&self) -> &Detector {
        &self.detector
    }
}

impl std::ops::DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Detector {
        &mut self.detector
    }
}

/// How many act, and how many of them are accused.
fn counted(detector: &Detector, now_ms: u64) -> (u64, u64) {
    let (all, accused) = detector.count(at(now_ms));
    (all, accused.values().sum())
}

#[test]
fn a_leader_is_asked_about_once_and_then_left_alone() {
    let mut detector = Bench::default();
    let own = beliefs("a", &[("g", 5, 9_000)]);
    assert!(detector.heartbeat(0, 1, &own));
    assert_eq!(detector.confirm(1, 5, Some("a")), []);
    for round in 1..20 {
        assert!(!detector.heartbeat(round * 3_000, 1, &own));
    }
    assert_eq!(counted(&detector, 60_000), (1, 0));
}

/// It was sent before its sender stopped, and read after somebody else began.
#[test]
fn a_claim_that_was_under_way_accuses_nobody() {
    let mut detector = Bench::default();
    let old = beliefs("a", &[("g", 5, 9_000)]);
    detector.heartbeat(0, 1, &old);
    detector.confirm(1, 5, Some("a"));
    detector.watched(&group("g"), term(6), Some(&node("b")));
    for late in [12_000, 12_001, 15_000] {
        assert!(!detector.heartbeat(late, 1, &old), "{late}");
    }
    let believers = detector.believers(at(15_000), &group("g"));
    assert_eq!(believers[0].standing, ClaimStanding::Contradicted(ClaimFault::Over));
    assert_eq!(counted(&detector, 15_000), (1, 0));
}

#[test]
fn who_claims_for_a_whole_ttl_what_another_holds_is_accused_once() {
    let mut detector = Bench::default();
    let old = beliefs("a", &[("g", 5, 9_000)]);
    detector.heartbeat(0, 1, &old);
    detector.confirm(1, 6, Some("b"));
    assert!(!detector.heartbeat(9_000, 1, &old));
    assert!(detector.heartbeat(12_000, 1, &old), "a ttl and more");
    assert!(!detector.heartbeat(12_001, 1, &old), "one reader is enough");
    let accused = detector.confirm(12_002, 6, Some("b"));
    assert_eq!(accused.len(), 1, "{accused:?}");
    assert_eq!((accused[0].fault, accused[0].believer.term), (ClaimFault::Over, term(5)));
    assert_eq!((accused[0].term, accused[0].leader.clone()), (term(6), Some(node("b"))));
    assert!(!detector.heartbeat(15_000, 1, &old), "once");
    assert_eq!(counted(&detector, 15_000), (1, 1));
    detector.heartbeat(18_000, 1, &beliefs("a", &[]));
    assert_eq!(counted(&detector, 18_000), (0, 0), "it acts no more");
}

/// Its work did not stop in time, and it says so.
#[test]
fn who_says_itself_that_its_time_is_over_is_not_waited_for() {
    let mut detector = Bench::default();
    detector.heartbeat(0, 2, &beliefs("b", &[("g", 6, 9_000)]));
    detector.confirm(1, 6, Some("b"));
    assert!(!detector.heartbeat(2, 1, &beliefs("a", &[("g", 5, 0)])), "it was read just now");
    assert!(detector.heartbeat(1_002, 1, &beliefs("a", &[("g", 5, 0)])));
    let accused = detector.confirm(1_003, 6, Some("b"));
    assert_eq!(accused.len(), 1, "{accused:?}");
    assert_eq!(accused[0].believer.node, node("a"));
}

#[test]
fn one_term_with_two_holders_is_found() {
    let mut detector = Bench::default();
    let twin = beliefs("c", &[("g", 5, 9_000)]);
    detector.heartbeat(0, 1, &beliefs("a", &[("g", 5, 9_000)]));
    detector.heartbeat(0, 3, &twin);
    assert_eq!(detector.confirm(1, 5, Some("a")), []);
    assert!(!detector.heartbeat(2, 3, &twin));
    assert!(detector.heartbeat(11_000, 3, &twin));
    let accused = detector.confirm(11_001, 5, Some("a"));
    assert_eq!(accused.len(), 1);
    assert_eq!(
        (accused[0].fault, accused[0].believer.node.clone()),
        (ClaimFault::Another, node("c"))
    );
}

#[test]
fn a_term_that_was_never_granted_is_found_by_the_first_read() {
    let mut detector = Bench::default();
    assert!(detector.heartbeat(0, 1, &beliefs("a", &[("g", 9, 9_000)])));
    let accused = detector.confirm(1, 5, Some("b"));
    assert_eq!(accused.len(), 1);
    assert_eq!(accused[0].fault, ClaimFault::NeverGranted);
}

/// The read began before the term was granted, and the claim came before the read's answer.
#[test]
fn a_read_says_nothing_about_who_was_heard_after_it_began() {
    let mut detector = Bench::default();
    assert!(detector.heartbeat(0, 1, &beliefs("a", &[("g", 5, 9_000)])));
    assert!(!detector.heartbeat(1, 2, &beliefs("b", &[("g", 6, 9_000)])));
    assert_eq!(detector.confirm(2, 5, Some("a")), []);
    assert!(detector.heartbeat(1_003, 2, &beliefs("b", &[("g", 6, 9_000)])));
    assert_eq!(detector.confirm(1_004, 6, Some("b")), []);
}

#[test]
fn what_was_vacated_is_not_filled_again_by_an_older_answer() {
    let mut detector = Bench::default();
    let own = beliefs("a", &[("g", 5, 9_000)]);
    detector.heartbeat(0, 1, &own);
    detector.watched(&group("g"), term(5), None);
    assert_eq!(detector.confirm(1, 5, Some("a")), []);
    detector.heartbeat(2, 1, &own);
    let believers = detector.believers(at(2), &group("g"));
    assert_eq!(believers[0].standing, ClaimStanding::Contradicted(ClaimFault::Over));
}

#[test]
fn states_that_differ_are_told() {
    let mut detector = Bench::default();
    let mut leader = beliefs("b", &[("g", 6, 9_000)]);
    leader.claims[0].digest = Some(Digest::new("sha256:bb").unwrap());
    let mut other = beliefs("a", &[("g", 5, 0)]);
    other.claims[0].digest = Some(Digest::new("sha256:aa").unwrap());
    detector.heartbeat(0, 2, &leader);
    detector.confirm(1, 6, Some("b"));
    detector.heartbeat(2_000, 1, &other);
    let accused = detector.confirm(2_001, 6, Some("b"));
    assert!(accused[0].has_diverged(), "{accused:?}");
    assert_eq!(accused[0].leader_digest, Some(Digest::new("sha256:bb").unwrap()));
}

#[test]
fn nobody_fills_the_memory() {
    let mut detector = Bench::default();
    let mut number = 0;
    let per_session = CLAIMS_PER_HEARTBEAT_MAX;
    while detector.believers < BELIEVERS_MAX {
        number += 1;
        let mut many = beliefs("a", &[]);
        many.claims = (0..per_session)
            .map(|place| Claim {
                group: group(&format!("g{place}")),
                term: term(1),
                left_ms: 1,
                digest: None,
            })
            .collect();
        detector.heartbeat(0, number, &many);
    }
    let one = beliefs("z", &[("late", 1, 1)]);
    assert!(!detector.heartbeat(1, number + 1, &one), "no room");
    assert_eq!(detector.believers, BELIEVERS_MAX);
    assert!(detector.heartbeat(3 * TTL_MS + 1, number + 1, &one), "room again");
    assert_eq!(detector.believers, 1);
    assert_eq!(detector.sessions.len(), 1);
}

/// A read of a group that nobody knows says nothing about its past.
#[test]
fn a_group_that_is_gone_accuses_nobody() {
    let mut detector = Bench::default();
    assert!(detector.heartbeat(0, 1, &beliefs("a", &[("g", 5, 0)])));
    let asked = detector.asked.take().unwrap();
    assert_eq!(detector.detector.confirm(at(1), (&group("g"), asked), Term::NONE, None), []);
    assert!(
        !detector.heartbeat(2, 1, &beliefs("a", &[("g", 5, 0)])),
        "nor is it read all the time"
    );
}

/// The first reader is slow; meanwhile the group is forgotten, and claimed anew under a later term.
#[test]
fn an_answer_is_for_the_question_that_it_was_asked_by() {
    let mut detector = Bench::default();
    assert!(detector.heartbeat(0, 1, &beliefs("a", &[("g", 5, 9_000)])));
    let slow = detector.asked.take().unwrap();
    detector.heartbeat(1, 1, &beliefs("a", &[]));
    assert!(detector.heartbeat(2, 2, &beliefs("b", &[("g", 6, 9_000)])));
    let late = detector.detector.confirm(at(3), (&group("g"), slow), term(5), Some(&node("a")));
    assert_eq!(late, []);
    assert_eq!(detector.confirm(4, 6, Some("b")), []);
}

#[test]
fn strangers_have_little_room_and_do_not_take_that_of_others() {
    let mut detector = Detector::default();
    for number in 1..=STRANGERS_MAX as u128 + 10 {
        detector.heartbeat(at(0), session(number), false, &beliefs("s", &[("g", 1, 9_000)]));
    }
    assert_eq!((detector.believers, detector.strangers), (STRANGERS_MAX, STRANGERS_MAX));
    detector.heartbeat(at(1), session(1), true, &beliefs("s", &[("g", 1, 9_000)]));
    assert_eq!(detector.strangers, STRANGERS_MAX - 1, "its session is known by now");
    detector.heartbeat(at(2), session(u128::MAX), true, &beliefs("a", &[("h", 1, 9_000)]));
    assert_eq!(detector.believers, STRANGERS_MAX + 1);
    detector.closed(session(1));
    detector.closed(session(2));
    assert_eq!((detector.believers, detector.strangers), (STRANGERS_MAX - 1, STRANGERS_MAX - 2));
    detector.forget(at(4 * TTL_MS));
    assert_eq!((detector.believers, detector.strangers, detector.sessions.len()), (0, 0, 0));
}

/// One thing that happens in a world of honest nodes.
#[derive(Clone, Debug)]
enum Step {
    /// The next node is elected; the one before has stopped.
    Elect,
    /// The leader stops and gives the office up.
    Vacate,
    /// The leader sends a heartbeat.
    Heartbeat,
    /// Who led last says that it acts no more.
    Quiet,
    /// The oldest message arrives.
    Deliver,
    /// The oldest news of the watch arrives.
    Watch,
    /// The watch breaks.
    Gap,
    /// The read that was asked for is made.
    Read,
    /// The answer of the read arrives.
    Answer,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Elect),
        1 => Just(Step::Vacate),
        6 => Just(Step::Heartbeat),
        2 => Just(Step::Quiet),
        5 => Just(Step::Deliver),
        4 => Just(Step::Watch),
        1 => Just(Step::Gap),
        4 => Just(Step::Read),
        4 => Just(Step::Answer),
        4 => (0..4_000u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// Whatever is late, by less than a ttl, and whatever the watch misses: nobody honest is accused.
    #[test]
    fn through_any_history_nobody_honest_is_accused(history in steps()) {
        let mut detector = Bench::default();
        let place = group("g");
        let (mut now, mut current, mut leading) = (0, 0, false);
        let name = |number: u64| node(&format!("n{}", number % 3));
        let mut mail: Vec<(u64, u128, Beliefs)> = Vec::new();
        let mut news: Vec<(u64, bool)> = Vec::new();
        let mut read = None;
        for step in history {
            match step {
                Step::Elect => {
                    current += 1;
                    leading = true;
                    news.push((current, true));
                }
                Step::Vacate if leading => {
                    leading = false;
                    news.push((current, false));
                }
                Step::Heartbeat if leading => {
                    let claim = beliefs(name(current).as_str(), &[("g", current, 9_000)]);
                    mail.push((now, u128::from(current), claim));
                }
                Step::Quiet if current > 0 && !leading => {
                    let nothing = beliefs(name(current).as_str(), &[]);
                    mail.push((now, u128::from(current), nothing));
                }
                Step::Deliver if !mail.is_empty() => {
                    let (_, from, claim) = mail.remove(0);
                    detector.heartbeat(now, from, &claim);
                }
                Step::Watch if !news.is_empty() => {
                    let (number, has_leader) = news.remove(0);
                    let who = has_leader.then(|| name(number));
                    detector.watched(&place, term(number), who.as_ref());
                }
                Step::Gap => {
                    news.clear();
                    detector.blind();
                }
                Step::Read if read.is_none() => {
                    // What is asked for later is not answered by what was read before.
                    read = detector.asked.take().map(|asked| (asked, current, leading));
                }
                Step::Answer => {
                    if let Some((asked, number, has_leader)) = read.take() {
                        let who = has_leader.then(|| name(number));
                        let answered = (&place, asked);
                        let found = detector.detector.confirm(
                            at(now),
                            answered,
                            Term::new(number).unwrap(),
                            who.as_ref(),
                        );
                        prop_assert_eq!(found, vec![]);
                    }
                }
                Step::Pass(ms) => {
                    now += ms;
                    // Messages later than a ttl are not in this world.
                    mail.retain(|(sent_at, ..)| now < sent_at + TTL_MS);
                }
                Step::Vacate
                | Step::Heartbeat
                | Step::Quiet
                | Step::Deliver
                | Step::Watch
                | Step::Read => {}
            }
        }
    }

    /// However many heartbeats it sends: who claims on for two ttls is accused, whatever the watch tells or not.
    #[test]
    fn who_goes_on_is_accused_in_the_end(
        gaps in prop::collection::vec(1_000..3_300u64, 30..60),
        told in any::<bool>(),
    ) {
        let mut detector = Bench::default();
        let old = beliefs("a", &[("g", 5, 9_000)]);
        if told {
            detector.heartbeat(0, 1, &old);
            detector.confirm(0, 5, Some("a"));
            detector.watched(&group("g"), term(6), Some(&node("b")));
        }
        let (mut now, mut found) = (0, 0);
        for gap in gaps {
            now += gap;
            if detector.heartbeat(now, 1, &old) {
                found += detector.confirm(now, 6, Some("b")).len();
            }
        }
        prop_assert_eq!(found, 1);
    }
}
