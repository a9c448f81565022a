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

fn asks(answered: &Answered) -> bool {
    *answered != Answered::Nothing
}

#[test]
fn a_leader_is_asked_about_once_and_then_left_alone() {
    let mut detector = Detector::default();
    let own = beliefs("a", &[("g", 5, 9_000)]);
    assert!(asks(&detector.hear(at(0), session(1), &own)));
    assert_eq!(detector.confirm(at(1), &group("g"), term(5), Some(&node("a"))), []);
    for round in 1..20 {
        assert!(!asks(&detector.hear(at(round * 3_000), session(1), &own)));
    }
    assert_eq!(detector.count(at(60_000)), (1, 0));
}

/// It was sent before its sender stopped, and read after somebody else began.
#[test]
fn a_claim_that_was_under_way_accuses_nobody() {
    let mut detector = Detector::default();
    let old = beliefs("a", &[("g", 5, 9_000)]);
    detector.hear(at(0), session(1), &old);
    detector.confirm(at(1), &group("g"), term(5), Some(&node("a")));
    detector.watched(&group("g"), term(6), Some(&node("b")));
    for late in [12_000, 12_001, 15_000] {
        assert!(!asks(&detector.hear(at(late), session(1), &old)), "{late}");
    }
    let believers = detector.believers(at(15_000), &group("g"));
    assert_eq!(believers[0].standing, Standing::Contradicted(Fault::Over));
    assert_eq!(detector.count(at(15_000)), (1, 0));
}

#[test]
fn who_claims_for_a_whole_ttl_what_another_holds_is_accused_once() {
    let mut detector = Detector::default();
    let old = beliefs("a", &[("g", 5, 9_000)]);
    detector.hear(at(0), session(1), &old);
    detector.confirm(at(1), &group("g"), term(6), Some(&node("b")));
    assert!(!asks(&detector.hear(at(9_000), session(1), &old)));
    assert!(asks(&detector.hear(at(12_000), session(1), &old)), "a ttl and more");
    assert!(!asks(&detector.hear(at(12_001), session(1), &old)), "one reader is enough");
    let accused = detector.confirm(at(12_002), &group("g"), term(6), Some(&node("b")));
    assert_eq!(accused.len(), 1, "{accused:?}");
    assert_eq!((accused[0].fault, accused[0].believer.term), (Fault::Over, term(5)));
    assert_eq!((accused[0].term, accused[0].leader.clone()), (term(6), Some(node("b"))));
    assert!(!asks(&detector.hear(at(15_000), session(1), &old)), "once");
    assert_eq!(detector.count(at(15_000)), (1, 1));
    detector.hear(at(18_000), session(1), &beliefs("a", &[]));
    assert_eq!(detector.count(at(18_000)), (0, 0), "it acts no more");
}

/// Its work did not stop in time, and it says so.
#[test]
fn who_says_itself_that_its_time_is_over_is_not_waited_for() {
    let mut detector = Detector::default();
    detector.hear(at(0), session(2), &beliefs("b", &[("g", 6, 9_000)]));
    detector.confirm(at(1), &group("g"), term(6), Some(&node("b")));
    assert!(asks(&detector.hear(at(2), session(1), &beliefs("a", &[("g", 5, 0)]))));
    let accused = detector.confirm(at(3), &group("g"), term(6), Some(&node("b")));
    assert_eq!(accused.len(), 1, "{accused:?}");
    assert_eq!(accused[0].believer.node, node("a"));
}

#[test]
fn one_term_with_two_holders_is_found() {
    let mut detector = Detector::default();
    let twin = beliefs("c", &[("g", 5, 9_000)]);
    detector.hear(at(0), session(1), &beliefs("a", &[("g", 5, 9_000)]));
    detector.hear(at(0), session(3), &twin);
    assert_eq!(detector.confirm(at(1), &group("g"), term(5), Some(&node("a"))), []);
    assert!(!asks(&detector.hear(at(2), session(3), &twin)));
    assert!(asks(&detector.hear(at(11_000), session(3), &twin)));
    let accused = detector.confirm(at(11_001), &group("g"), term(5), Some(&node("a")));
    assert_eq!(accused.len(), 1);
    assert_eq!((accused[0].fault, accused[0].believer.node.clone()), (Fault::Another, node("c")));
}

#[test]
fn a_term_that_was_never_granted_is_found_by_the_first_read() {
    let mut detector = Detector::default();
    assert!(asks(&detector.hear(at(0), session(1), &beliefs("a", &[("g", 9, 9_000)]))));
    let accused = detector.confirm(at(1), &group("g"), term(5), Some(&node("b")));
    assert_eq!(accused.len(), 1);
    assert_eq!(accused[0].fault, Fault::NeverGranted);
}

/// The read began before the term was granted, and the claim came before the read's answer.
#[test]
fn a_read_says_nothing_about_who_was_heard_after_it_began() {
    let mut detector = Detector::default();
    assert!(asks(&detector.hear(at(0), session(1), &beliefs("a", &[("g", 5, 9_000)]))));
    assert!(!asks(&detector.hear(at(1), session(2), &beliefs("b", &[("g", 6, 9_000)]))));
    assert_eq!(detector.confirm(at(2), &group("g"), term(5), Some(&node("a"))), []);
    assert!(asks(&detector.hear(at(3), session(2), &beliefs("b", &[("g", 6, 9_000)]))));
    assert_eq!(detector.confirm(at(4), &group("g"), term(6), Some(&node("b"))), []);
}

#[test]
fn what_was_vacated_is_not_filled_again_by_an_older_answer() {
    let mut detector = Detector::default();
    let own = beliefs("a", &[("g", 5, 9_000)]);
    detector.hear(at(0), session(1), &own);
    detector.watched(&group("g"), term(5), None);
    assert_eq!(detector.confirm(at(1), &group("g"), term(5), Some(&node("a"))), []);
    detector.hear(at(2), session(1), &own);
    let believers = detector.believers(at(2), &group("g"));
    assert_eq!(believers[0].standing, Standing::Contradicted(Fault::Over));
}

#[test]
fn states_that_differ_are_told() {
    let mut detector = Detector::default();
    let mut leader = beliefs("b", &[("g", 6, 9_000)]);
    leader.claims[0].digest = Some(Digest::new("sha256:bb").unwrap());
    let mut other = beliefs("a", &[("g", 5, 0)]);
    other.claims[0].digest = Some(Digest::new("sha256:aa").unwrap());
    detector.hear(at(0), session(2), &leader);
    detector.confirm(at(1), &group("g"), term(6), Some(&node("b")));
    detector.hear(at(2), session(1), &other);
    let accused = detector.confirm(at(3), &group("g"), term(6), Some(&node("b")));
    assert!(accused[0].has_diverged(), "{accused:?}");
    assert_eq!(accused[0].leader_digest, Some(Digest::new("sha256:bb").unwrap()));
}

#[test]
fn nobody_fills_the_memory() {
    let mut detector = Detector::default();
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
        detector.hear(at(0), session(number), &many);
    }
    let one = beliefs("z", &[("late", 1, 1)]);
    assert!(!asks(&detector.hear(at(1), session(number + 1), &one)), "no room");
    assert_eq!(detector.believers, BELIEVERS_MAX);
    assert!(asks(&detector.hear(at(3 * TTL_MS + 1), session(number + 1), &one)), "room again");
    assert_eq!(detector.believers, 1);
    assert_eq!(detector.sessions.len(), 1);
}

/// One thing that happens in a world of honest nodes.
#[derive(Clone, Debug)]
enum Step {
    /// The next node is elected; the one before has stopped.
    Elect,
    /// The leader stops and gives the office up.
    Vacate,
    /// The leader sends a heartbeat.
    Beat,
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
        6 => Just(Step::Beat),
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
        let mut detector = Detector::default();
        let place = group("g");
        let (mut now, mut current, mut leading) = (0, 0, false);
        let name = |number: u64| node(&format!("n{}", number % 3));
        let mut mail: Vec<(u64, SessionId, Beliefs)> = Vec::new();
        let mut news: Vec<(u64, bool)> = Vec::new();
        let (mut asked, mut read) = (false, None);
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
                Step::Beat if leading => {
                    let claim = beliefs(name(current).as_str(), &[("g", current, 9_000)]);
                    mail.push((now, session(u128::from(current)), claim));
                }
                Step::Deliver if !mail.is_empty() => {
                    let (_, from, claim) = mail.remove(0);
                    asked |= asks(&detector.hear(at(now), from, &claim));
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
                Step::Read if asked && read.is_none() => read = Some((current, leading)),
                Step::Answer => {
                    if let Some((number, has_leader)) = read.take() {
                        asked = false;
                        let who = has_leader.then(|| name(number));
                        let found = detector.confirm(at(now), &place, term(number), who.as_ref());
                        prop_assert_eq!(found, vec![]);
                    }
                }
                Step::Pass(ms) => {
                    now += ms;
                    // Messages later than a ttl are not in this world.
                    mail.retain(|(sent_at, ..)| now < sent_at + TTL_MS);
                }
                Step::Vacate | Step::Beat | Step::Deliver | Step::Watch | Step::Read => {}
            }
        }
    }

    /// However often it beats: who claims on for two ttls is accused, whatever the watch tells or not.
    #[test]
    fn who_goes_on_is_accused_in_the_end(
        gaps in prop::collection::vec(1_000..3_300u64, 30..60),
        told in any::<bool>(),
    ) {
        let mut detector = Detector::default();
        let old = beliefs("a", &[("g", 5, 9_000)]);
        if told {
            detector.hear(at(0), session(1), &old);
            detector.confirm(at(0), &group("g"), term(5), Some(&node("a")));
            detector.watched(&group("g"), term(6), Some(&node("b")));
        }
        let (mut now, mut found) = (0, 0);
        for gap in gaps {
            now += gap;
            if asks(&detector.hear(at(now), session(1), &old)) {
                found += detector.confirm(at(now), &group("g"), term(6), Some(&node("b"))).len();
            }
        }
        prop_assert_eq!(found, 1);
    }
}
