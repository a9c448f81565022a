//! The rules of deadlines, one by one.

use super::*;

const A: SessionNo = SessionNo(1);
const B: SessionNo = SessionNo(2);

/// A driver's loop from one moment to another, on time throughout.
fn run(deadlines: &mut Deadlines, from_ms: u64, to_ms: u64) -> Vec<(u64, SessionNo)> {
    let mut due = Vec::new();
    for now in (from_ms..=to_ms).step_by(10) {
        assert_eq!(deadlines.turn(at(now)), Turn::Steady);
        due.extend(deadlines.due(at(now), ALL).into_iter().map(|session| (now, session)));
    }
    due
}

#[test]
fn a_silent_session_is_due_after_a_whole_ttl_and_not_a_moment_sooner() {
    let mut deadlines = Deadlines::new();
    deadlines.open(A, 1000, at(0));
    deadlines.open(B, 1000, at(0));
    assert_eq!(run(&mut deadlines, 0, 400), []);
    assert_eq!(deadlines.heartbeat(A, None, at(400)), HeartbeatOutcome::Extended);
    assert_eq!(run(&mut deadlines, 410, 1500), [(1000, B), (1400, A)]);
}

/// Semantics 5: arrival itself extends; a turn drains heartbeats before it asks who is due.
#[test]
fn a_heartbeat_that_arrives_in_the_last_moment_counts() {
    let mut deadlines = Deadlines::new();
    deadlines.open(A, 1000, at(0));
    assert_eq!(run(&mut deadlines, 0, 990), []);
    assert_eq!(deadlines.heartbeat(A, None, at(1000)), HeartbeatOutcome::Extended);
    assert_eq!(deadlines.due(at(1000), ALL), []);
    assert_eq!(deadlines.remaining(A, at(1000)), Some(ms(1000)));
}

#[test]
fn an_expiring_session_is_never_revived() {
    let mut deadlines = Deadlines::new();
    deadlines.open(A, 1000, at(0));
    assert_eq!(run(&mut deadlines, 0, 1000), [(1000, A)]);
    assert_eq!(deadlines.heartbeat(A, None, at(1001)), HeartbeatOutcome::Expiring);
    assert_eq!(deadlines.remaining(A, at(1001)), Some(Duration::ZERO));
    assert_eq!(run(&mut deadlines, 1010, 5000), [], "and it is told once");
    deadlines.close(A);
    assert_eq!(deadlines.heartbeat(A, None, at(5001)), HeartbeatOutcome::Unknown);
}

#[test]
fn a_spared_session_keeps_what_was_heard_of_it() {
    let mut deadlines = Deadlines::new();
    deadlines.open(A, 1000, at(0));
    deadlines.open(B, 1000, at(0));
    assert_eq!(run(&mut deadlines, 0, 1000), [(1000, A), (1000, B)]);
    assert_eq!(deadlines.heartbeat(A, None, at(1005)), HeartbeatOutcome::Expiring);
    deadlines.spare(A);
    deadlines.spare(B);
    assert_eq!(deadlines.remaining(A, at(1005)), Some(ms(1000)));
    assert_eq!(deadlines.silent().iter().collect::<Vec<_>>(), [&B]);
    assert_eq!(run(&mut deadlines, 1010, 2010), [(1010, B), (2010, A)]);
}

/// Semantics 10.
#[test]
fn a_heartbeat_that_is_not_newer_counts_for_nothing() {
    let mut deadlines = Deadlines::new();
    deadlines.open(A, 1000, at(0));
    assert_eq!(deadlines.heartbeat(A, Some(7), at(100)), HeartbeatOutcome::Extended);
    for late in [7, 6, 0] {
        assert_eq!(
            deadlines.heartbeat(A, Some(late), at(900)),
            HeartbeatOutcome::NotNewer { last: 7 }
        );
    }
    assert_eq!(deadlines.remaining(A, at(900)), Some(ms(200)));
    assert_eq!(deadlines.heartbeat(A, None, at(900)), HeartbeatOutcome::Extended);
    assert_eq!(deadlines.heartbeat(A, Some(8), at(900)), HeartbeatOutcome::Extended);
}

/// Semantics 7, both ways round.
#[test]
fn the_larger_ttl_holds_for_one_old_ttl() {
    let mut deadlines = Deadlines::new();
    deadlines.open(A, 4000, at(0));
    deadlines.change_ttl(A, 1000, at(100));
    deadlines.heartbeat(A, None, at(4000));
    assert_eq!(deadlines.remaining(A, at(4000)), Some(ms(4000)), "before 100 + 4000");
    deadlines.heartbeat(A, None, at(4100));
    assert_eq!(deadlines.remaining(A, at(4100)), Some(ms(3900)), "never shortened");
    deadlines.heartbeat(A, None, at(7500));
    assert_eq!(deadlines.remaining(A, at(7500)), Some(ms(1000)), "the smaller from here on");

    deadlines.change_ttl(A, 9000, at(7600));
    assert_eq!(deadlines.remaining(A, at(7600)), Some(ms(9000)), "a longer one holds at once");
}

#[test]
fn promotion_gives_everybody_a_full_ttl_and_spreads_the_unheard() {
    let mut deadlines = Deadlines::new();
    for no in 0..100 {
        deadlines.open(SessionNo(no), 2000, at(0));
    }
    deadlines.turn(at(1900));
    deadlines.promote(at(1900));
    for no in 0..50 {
        assert_eq!(deadlines.heartbeat(SessionNo(no), None, at(1900)), HeartbeatOutcome::Extended);
    }
    let due = run(&mut deadlines, 1900, 4200);
    let (heard, unheard): (Vec<_>, Vec<_>) = due.iter().partition(|(_, no)| no.0 < 50);
    assert!(heard.iter().all(|(now, _)| *now == 3900));
    assert!(unheard.iter().all(|(now, _)| (3900..=4110).contains(now)), "ttl/10 at most");
    let instants: BTreeSet<u64> = unheard.iter().map(|(now, _)| *now).collect();
    assert_eq!((heard.len(), unheard.len()), (50, 50));
    assert!(instants.len() > 10, "a burst is spread, not moved: {instants:?}");
}

/// A store that has just started reads its sessions and is promoted in one moment: nobody has been
/// heard since.
#[test]
fn sessions_found_at_the_start_are_spread_too() {
    let mut deadlines = Deadlines::new();
    for no in 0..100 {
        deadlines.open(SessionNo(no), 2000, at(0));
    }
    deadlines.promote(at(0));
    let due = run(&mut deadlines, 0, 2300);
    let instants: BTreeSet<u64> = due.iter().map(|(now, _)| *now).collect();
    assert_eq!(due.len(), 100);
    assert!(instants.len() > 10 && instants.first() >= Some(&2000), "{instants:?}");
}

/// Semantics 8: a store that slept must not expire the living.
#[test]
fn a_gap_in_the_loop_restarts_all_deadlines() {
    let mut deadlines = Deadlines::new();
    deadlines.open(A, 10_000, at(0));
    assert_eq!(deadlines.turn(at(500)), Turn::Steady);
    assert_eq!(deadlines.turn(at(60_000)), Turn::Restarted { away: ms(59_500) });
    assert_eq!(deadlines.due(at(60_000), ALL), []);
    assert!(deadlines.remaining(A, at(60_000)).unwrap() >= ms(10_000));
    assert!(deadlines.remaining(A, at(60_000)).unwrap() <= ms(11_000));
}

#[test]
fn a_quarter_of_the_smallest_ttl_is_a_gap_too() {
    let mut deadlines = Deadlines::new();
    deadlines.open(A, 10_000, at(0));
    deadlines.open(B, 800, at(0));
    assert_eq!(deadlines.turn(at(200)), Turn::Steady);
    assert_eq!(deadlines.turn(at(401)), Turn::Restarted { away: ms(201) });
    deadlines.close(B);
    assert_eq!(deadlines.turn(at(901)), Turn::Steady, "only the living count");
}

#[test]
fn a_driver_that_follows_next_at_never_makes_a_gap_and_an_idle_one_rests() {
    let mut deadlines = Deadlines::new();
    assert_eq!(deadlines.next_at(), None);
    assert_eq!(deadlines.turn(at(0)), Turn::Steady);
    deadlines.open(A, 3000, at(90_000));
    let mut expired_at = None;
    while let Some(next_at) = deadlines.next_at() {
        assert_eq!(deadlines.turn(next_at), Turn::Steady);
        for session in deadlines.due(next_at, ALL) {
            deadlines.close(session);
            expired_at = Some(next_at);
        }
    }
    assert_eq!(expired_at, Some(at(93_000)));
}

#[test]
fn who_was_silent_and_is_heard_is_silent_no_more() {
    let mut deadlines = Deadlines::new();
    deadlines.open(A, 1000, at(0));
    run(&mut deadlines, 0, 490);
    assert!(deadlines.silent().is_empty());
    run(&mut deadlines, 500, 500);
    assert_eq!(deadlines.silent().iter().collect::<Vec<_>>(), [&A]);
    deadlines.heartbeat(A, None, at(600));
    assert!(deadlines.silent().is_empty());
    assert_eq!(run(&mut deadlines, 610, 1090), []);
    run(&mut deadlines, 1100, 1100);
    assert!(deadlines.silent().contains(&A), "and falls silent again half a ttl later");
}

/// Semantics 13: waits restart in full after a promotion.
#[test]
fn waits_are_told_once_and_restart_with_a_promotion() {
    let mut deadlines = Deadlines::new();
    let over = |now, deadlines: &mut Deadlines| deadlines.elapsed(at(now), ALL);
    deadlines.wait(group("a"), WaitKind::Ending, Revision(3), 1000, at(0));
    deadlines.wait(group("b"), WaitKind::LockDelay, Revision(4), 100, at(0));
    assert_eq!(deadlines.next_at(), Some(at(100)));
    assert_eq!(over(99, &mut deadlines), []);
    assert_eq!(over(100, &mut deadlines), [(group("b"), WaitKind::LockDelay, Revision(4))]);
    deadlines.promote(at(900));
    assert_eq!(over(1899, &mut deadlines), []);
    assert_eq!(over(1900, &mut deadlines), [(group("a"), WaitKind::Ending, Revision(3))]);
    assert_eq!(over(9999, &mut deadlines), []);
    deadlines.wait(group("a"), WaitKind::Ending, Revision(5), 10, at(9999));
    deadlines.forget_waits();
    assert_eq!(deadlines.next_at(), None);
}

#[test]
fn a_later_wait_takes_the_place_of_an_earlier_one() {
    let mut deadlines = Deadlines::new();
    deadlines.wait(group("a"), WaitKind::MinimumTenure, Revision(3), 1000, at(0));
    deadlines.wait(group("a"), WaitKind::MinimumTenure, Revision(9), 1000, at(500));
    deadlines.wait(group("a"), WaitKind::MinimumTenure, Revision(4), 1, at(600));
    assert_eq!(deadlines.elapsed(at(1499), ALL), []);
    let over = [(group("a"), WaitKind::MinimumTenure, Revision(9))];
    assert_eq!(deadlines.elapsed(at(1500), ALL), over);
}

/// Semantics 38: each proposal has its own ten minutes, and one that is over takes no memory.
#[test]
fn proposals_of_one_group_are_timed_each_and_dropped_when_they_are_over() {
    let mut deadlines = Deadlines::new();
    let approval = |since| (group("a"), WaitKind::Approval, Revision(since));
    for since in 1..=3 {
        let (group, kind, revision) = approval(since);
        deadlines.wait(group, kind, revision, 1000, at(100 * since));
    }
    let (dropped, kind, since) = approval(2);
    deadlines.drop_wait(dropped, kind, since);
    assert_eq!(deadlines.elapsed(at(1100), ALL), [approval(1)]);
    assert_eq!(deadlines.elapsed(at(1299), ALL), []);
    assert_eq!(deadlines.elapsed(at(1300), ALL), [approval(3)]);
    assert_eq!(deadlines.next_at(), None, "nothing is left");
}
