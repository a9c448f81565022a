//! An entry that is filled to the brim: whoever is new waits outside, and whoever is inside can still leave.

use regent_election::limits::METADATA_BYTES_MAX;
use regent_election::{
    Command, Group, IfLost, Metadata, Node, Opening, Refusal, Resource, Revision, SessionId, Term,
};

use crate::lease::record::GroupRecord;
use crate::lease::turn::{Known, LeaseRequest, Turned, turn};
use crate::register::VALUE_BYTES_MAX;

fn group() -> Group {
    Group::new("g").unwrap()
}

fn turned(record: &GroupRecord, ended: &[u128], command: Option<Command>) -> Turned {
    let known = Known {
        group: &group(),
        seen_term: Term::NONE,
        highest: Revision(0),
        ended,
        silent: &[],
        holds: &[],
        wall_ms: 0,
        nonce: 7,
    };
    let wish = command.map(|command| LeaseRequest { command, request: None, asker: None });
    turn(record, &known, wish)
}

fn secret(number: u128) -> SessionId {
    SessionId::new(number).unwrap()
}

/// A candidacy: the first one tells nothing about itself, the others as much as they may.
fn campaign(number: u128) -> Command {
    let node = Node::new(&format!("n{number}")).unwrap();
    let opening = Opening { node, ttl_ms: Some(10_000), passing: false };
    let heavy = || Metadata::new([("m".to_owned(), "m".repeat(METADATA_BYTES_MAX - 8))]).unwrap();
    Command::Campaign {
        group: group(),
        session: secret(number),
        opening: Some(opening),
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: if number == 1 { Metadata::NONE } else { heavy() },
    }
}

fn admit(resource: &str, term: Term) -> Command {
    Command::Admit { group: group(), resource: Resource::new(resource).unwrap(), term }
}

fn is_full(turned: &Turned) -> bool {
    matches!(turned.answer, Err(Refusal::Full { .. }))
}

fn bytes(record: &GroupRecord) -> usize {
    record.record(&group()).value.len()
}

/// A group with a leader (1), a fence, and as many standbys as it takes. Also who was the last to come in.
fn brimful() -> (GroupRecord, u128) {
    let mut record = turned(&GroupRecord::new(), &[], Some(campaign(1))).record;
    record = turned(&record, &[], Some(admit("db", record.state.last_term(&group())))).record;
    for number in 2.. {
        let next = turned(&record, &[], Some(campaign(number)));
        if is_full(&next) {
            assert!(next.write.is_none() && next.record == record);
            return (record, number - 1);
        }
        next.answer.unwrap();
        record = next.record;
    }
    unreachable!("an entry has an end")
}

#[test]
fn newcomers_leave_an_eighth_of_the_entry_to_those_inside() {
    let (record, _) = brimful();
    let most = VALUE_BYTES_MAX - VALUE_BYTES_MAX / 8;
    assert!(bytes(&record) <= most, "{} of {most}", bytes(&record));
    assert!(bytes(&record) > most - 2 * METADATA_BYTES_MAX, "there was room for one more");
}

#[test]
fn a_full_entry_takes_no_new_fence_and_raises_those_it_has() {
    let (mut record, last) = brimful();
    let term = record.state.last_term(&group());
    // With names as long as they may be, until nothing fits.
    let is_refused = (0..256).any(|number| {
        let name = format!("{number:0>200}");
        let next = turned(&record, &[], Some(admit(&name, term)));
        if !is_full(&next) {
            next.answer.unwrap();
            record = next.record;
            return false;
        }
        true
    });
    assert!(is_refused && bytes(&record) <= VALUE_BYTES_MAX - VALUE_BYTES_MAX / 8);
    // The next leader raises the mark of a fence that is there.
    let resign = Command::Resign { group: group(), session: secret(1), term };
    let resigned = turned(&record, &[], Some(resign));
    resigned.answer.unwrap();
    let term = resigned.record.state.last_term(&group());
    let raised = turned(&resigned.record, &[], Some(admit("db", term)));
    assert!(raised.answer.is_ok() && raised.write.is_some());
    assert!(last > 2);
}

#[test]
fn everybody_in_a_full_entry_can_still_leave_it() {
    let (full, last) = brimful();
    // A standby says again that it stands there.
    assert!(turned(&full, &[], Some(campaign(last))).answer.is_ok());
    // One leader after the other resigns.
    let mut record = full.clone();
    for number in 1..last {
        let term = record.state.last_term(&group());
        let resign = Command::Resign { group: group(), session: secret(number), term };
        let resigned = turned(&record, &[], Some(resign));
        assert!(resigned.answer.is_ok() && resigned.write.is_some(), "{:?}", resigned.answer);
        record = turned(&resigned.record, &[], None).record;
        assert!(record.state.last_term(&group()) > term, "the next one leads");
    }
    // One leader after the other goes silent.
    let mut record = full.clone();
    for number in 1..last {
        let expired = turned(&record, &[number], None);
        assert!(expired.answer.is_ok() && expired.write.is_some(), "{:?}", expired.answer);
        record = expired.record;
        assert!(record.state.session_summary(secret(number)).is_none());
    }
}

#[test]
fn a_newcomer_that_finds_no_room_still_buries_the_dead() {
    let (full, last) = brimful();
    // The leader is dead and leaves little behind: its standby is promoted, and the newcomer finds no room.
    let turned = turned(&full, &[1], Some(campaign(last + 1)));
    assert!(is_full(&turned), "{:?}", turned.answer);
    let record = turned.record;
    assert!(record.state.session_summary(secret(1)).is_none(), "the dead leader is gone");
    assert!(record.state.last_term(&group()) > full.state.last_term(&group()));
    assert!(turned.write.is_some());
}
