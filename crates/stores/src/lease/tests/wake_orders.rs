//! Whom a write wakes where candidates are woken one by one.

use regent_election::{Command, SessionId, Term};

use super::duties::{apply, campaign, ending, group, led};
use crate::lease::record::GroupRecord;
use crate::lease::wake_order;

fn id(session: u128) -> SessionId {
    SessionId::new(session).unwrap()
}

/// The candidates that a command leaves in a group, and those whom it calls.
fn wake_order(before: &GroupRecord, command: Command) -> (Vec<u128>, Vec<u128>) {
    let left = wake_order::after(&group(), before, &apply(before, command));
    (left.candidates.into_iter().map(|(session, _)| session).collect(), left.called)
}

#[test]
fn a_resignation_calls_the_one_who_is_promoted_and_nobody_behind_it() {
    let resign = Command::Resign { group: group(), session: id(1), term: Term::new(1).unwrap() };
    assert_eq!(wake_order(&led(&[2, 3, 4]), resign), (vec![2, 3, 4], vec![2]));
}

#[test]
fn a_departure_from_the_line_calls_nobody() {
    // Whoever was behind it watches it, and it is taken out.
    let withdraw = Command::Withdraw { group: group(), session: id(2) };
    assert_eq!(wake_order(&led(&[2, 3, 4]), withdraw), (vec![1, 3, 4], vec![]));
}

#[test]
fn a_newcomer_calls_the_one_whom_it_comes_before() {
    assert_eq!(wake_order(&led(&[2, 3]), campaign(4, 0)), (vec![1, 2, 3, 4], vec![]));
    assert_eq!(wake_order(&led(&[2, 3]), campaign(4, 9)), (vec![1, 4, 2, 3], vec![2]));
}

#[test]
fn a_promotion_out_of_turn_calls_whoever_is_behind_another_from_then_on() {
    let (to, term) = (regent_election::Node::new("n4").unwrap(), Term::new(1).unwrap());
    let transfer = Command::Transfer { group: group(), session: id(1), term, to };
    // 2 was behind 1, which left; 4 is told that it leads; 3 is behind 2 as before.
    assert_eq!(wake_order(&led(&[2, 3, 4]), transfer), (vec![4, 2, 3], vec![4]));
}

#[test]
fn whoever_must_stop_is_called_and_so_is_the_first_who_can_measure_its_time() {
    let before = led(&[2, 3]);
    let left = wake_order::after(&group(), &before, &ending(&[2, 3]));
    assert_eq!(left.called, [1, 2]);
}

#[test]
fn a_process_stands_where_its_candidates_do_behind_another_s() {
    let record = led(&[2, 3]);
    let place = wake_order::place(&group(), &record, &[3, 7], Some(2)).unwrap();
    assert_eq!(place.own.iter().map(|(session, _)| *session).collect::<Vec<_>>(), [3]);
    assert_eq!(place.before, Some(2));
    // A leader behind whom nobody stands watches itself.
    let alone = wake_order::place(&group(), &led(&[]), &[1], Some(1)).unwrap();
    assert_eq!(alone.before, None);
    assert_eq!(wake_order::place(&group(), &record, &[7], None), None);
}
