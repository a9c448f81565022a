//! What entries hold: written and read back, settled after lost replies, and refused when cut.

use regent_election::{Command, Group, IfLost, Metadata, Node, Opening, Revision, SessionId};

use crate::lease::record::{GroupRecord, Landed, NONCES_MAX};
use crate::lease::session::SessionRecord;
use crate::lease::turn::{Known, LeaseRequest, Turned, turn};

fn group() -> Group {
    Group::new("g").unwrap()
}

fn campaign(record: &GroupRecord, session: u128, nonce: u128) -> Turned {
    let opening = Opening {
        node: Node::new(&format!("n{session}")).unwrap(),
        ttl_ms: Some(10_000),
        passing: false,
    };
    let command = Command::Campaign {
        group: group(),
        session: SessionId::new(session).unwrap(),
        opening: Some(opening),
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: Metadata::NONE,
    };
    let known = Known {
        group: &group(),
        seen_term: regent_election::Term::NONE,
        highest: Revision(0),
        ended: &[],
        silent: &[],
        holds: &[],
        wall_ms: 0,
        nonce,
    };
    turn(record, &known, Some(LeaseRequest { command, request: None, asker: None }))
}

#[test]
fn entries_are_read_back_as_they_were_written_and_refused_when_cut() {
    let mut record = GroupRecord::new();
    for session in 1..=4 {
        record = campaign(&record, session, session * 100).record;
    }
    record.untold = vec![7, 8];
    let bytes = record.record(&group()).value;
    assert_eq!(GroupRecord::decode(&group(), &bytes).unwrap(), record);
    for length in 0..bytes.len() {
        assert!(GroupRecord::decode(&group(), &bytes[..length]).is_err(), "{length}");
    }
    let session = SessionRecord::open(5, Node::new("a").unwrap(), 900, true);
    let session = session.with_heartbeat(6, |open| {
        open.groups.insert(group(), Default::default());
        open.sequence = Some(9);
    });
    for record in [session.clone(), session.over(7)] {
        let bytes = record.record().value;
        assert_eq!(SessionRecord::decode(&bytes).unwrap(), record);
        for length in 0..bytes.len() {
            assert!(SessionRecord::decode(&bytes[..length]).is_err(), "{length}");
        }
    }
}

#[test]
fn a_lost_reply_is_settled_even_under_later_writes_and_never_guessed() {
    let empty = GroupRecord::new();
    let mine = campaign(&empty, 1, 11).record;
    assert_eq!(mine.has_landed(11, empty.writes), Landed::Yes);
    let theirs = campaign(&empty, 2, 22).record;
    assert_eq!(theirs.has_landed(11, empty.writes), Landed::No);
    let (mut over_mine, mut over_theirs) = (mine, theirs);
    for number in 0..NONCES_MAX as u128 {
        over_mine = campaign(&over_mine, 100 + number, 1000 + number).record;
        over_theirs = campaign(&over_theirs, 100 + number, 1000 + number).record;
        assert_eq!(over_mine.has_landed(11, empty.writes), Landed::Yes);
        assert_eq!(over_theirs.has_landed(11, empty.writes), Landed::No);
    }
    for record in [over_mine, over_theirs] {
        let later = campaign(&record, 500, 5000).record;
        assert_eq!(later.has_landed(11, empty.writes), Landed::Unknown);
    }
    // An engine that forgot writes makes nothing certain.
    assert_eq!(empty.has_landed(11, 3), Landed::Unknown);
}

#[test]
fn what_changes_nothing_is_not_written() {
    let first = campaign(&GroupRecord::new(), 1, 11);
    assert!(first.write.is_some());
    let again = campaign(&first.record, 1, 12);
    assert!(again.write.is_none(), "{again:?}");
    assert!(again.answer.unwrap().elected().is_some());
}

#[test]
fn whoever_is_promoted_is_untold_until_somebody_writes_again() {
    let led = campaign(&GroupRecord::new(), 1, 11).record;
    let stood = campaign(&led, 2, 12).record;
    assert!(stood.untold.is_empty());
    let known = Known {
        group: &group(),
        seen_term: regent_election::Term::NONE,
        highest: Revision(0),
        ended: &[1],
        silent: &[],
        holds: &[],
        wall_ms: 0,
        nonce: 13,
    };
    let promoted = turn(&stood, &known, None).record;
    assert_eq!(promoted.untold, [2]);
    let summary = promoted.state.session_summary(SessionId::new(2).unwrap()).unwrap();
    let session = SessionRecord::open(1, Node::new("n2").unwrap(), 10_000, false);
    assert!(session.is_untold(&group(), summary));
    let told = session.told(2, &group(), summary);
    assert!(!told.is_untold(&group(), summary) && told.heartbeat == session.heartbeat);
    assert!(!session.over(3).is_untold(&group(), summary));
    assert!(campaign(&promoted, 3, 14).record.untold.is_empty());
}

#[test]
fn digests_are_neither_the_secret_nor_each_other_and_stay_what_they_are() {
    let digest = |secret| SessionId::new(secret).unwrap().digest().get();
    assert_ne!(digest(1), digest(2));
    assert_ne!(digest(1), 1);
    assert_eq!(digest(1), 0xccd2_3988_3f5e_535c_2cb9_72e6_beb7_4ba7);
}
