//! Every rule of admission, each on a message that is in order but for what the rule is about.

use raft::eraftpb::Snapshot;
use regent_election::Settings;

use super::*;
use crate::Members;

/// Replica 2 of three, led by replica 1 in term 3, with entries up to 8 of which 7 are committed, all of term 3.
fn local(judge: impl FnOnce(&mut LocalRaft<'_>)) -> LocalRaft<'static> {
    let mut local = LocalRaft {
        id: 2,
        term: 3,
        is_leader: false,
        leader: 1,
        has_voters: true,
        knows_sender: true,
        last: 8,
        committed: 7,
        is_durable: true,
        may_campaign: true,
        read_rounds: 0,
        term_of: &|index| if (1..=8).contains(&index) { 3 } else { 0 },
    };
    judge(&mut local);
    local
}

fn message(kind: MessageType, change: impl FnOnce(&mut Message)) -> Message {
    let mut message = Message::default();
    message.set_msg_type(kind);
    (message.from, message.to, message.term) = (1, 2, 3);
    change(&mut message);
    message
}

fn entry(index: u64, term: u64, data: &[u8]) -> Entry {
    let mut entry = Entry::default();
    (entry.index, entry.term, entry.data) = (index, term, data.to_vec().into());
    entry
}

fn append(change: impl FnOnce(&mut Message)) -> Message {
    message(MessageType::MsgAppend, |message| {
        (message.index, message.log_term, message.commit) = (8, 3, 8);
        message.set_entries(vec![entry(9, 3, b""), entry(10, 3, b"")].into());
        change(message);
    })
}

fn round(from: u64) -> Vec<Entry> {
    vec![entry(0, 0, &[from.to_le_bytes(), [0; 8], [9; 8]].concat())]
}

fn judge(message: &Message) -> Admitted {
    admit(&local(|_| {}), 1, message)
}

fn is_refused(message: &Message) -> bool {
    judge(message).is_err()
}

#[test]
fn what_replicas_send_passes() {
    use MessageType as M;
    assert_eq!(judge(&append(|_| {})), Ok(Admission::Step));
    // A leader probes beyond what this replica has, and below.
    for (index, log_term) in [(1000, 3), (3, 2), (0, 0)] {
        let probe = append(|m| {
            (m.index, m.log_term) = (index, log_term);
            m.entries.clear();
        });
        assert_eq!(judge(&probe), Ok(Admission::Step), "{index}");
    }
    for kind in [
        M::MsgHeartbeat,
        M::MsgHeartbeatResponse,
        M::MsgAppendResponse,
        M::MsgRequestVote,
        M::MsgRequestVoteResponse,
        M::MsgRequestPreVote,
        M::MsgRequestPreVoteResponse,
        M::MsgTimeoutNow,
    ] {
        assert_eq!(judge(&message(kind, |m| m.commit = 8)), Ok(Admission::Step), "{kind:?}");
    }
    let answer = message(M::MsgReadIndexResp, |m| m.set_entries(round(2).into()));
    assert_eq!(judge(&answer), Ok(Admission::Step));
    let question = message(M::MsgReadIndex, |m| {
        m.term = 0;
        m.set_entries(round(1).into());
    });
    assert_eq!(admit(&local(|it| it.is_leader = true), 1, &question), Ok(Admission::Step));
}

#[test]
fn kinds_that_no_replica_sends_are_refused() {
    use MessageType as M;
    for kind in [
        M::MsgHup,
        M::MsgBeat,
        M::MsgPropose,
        M::MsgUnreachable,
        M::MsgSnapStatus,
        M::MsgCheckQuorum,
        M::MsgTransferLeader,
    ] {
        assert!(is_refused(&message(kind, |_| {})), "{kind:?}");
        assert!(is_refused(&message(kind, |m| m.term = 0)), "{kind:?}");
    }
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let with = |change: fn(&mut Message)| is_refused(&append(change));
    assert!(with(|m| m.from = 3) && with(|m| m.to = 3));
    assert!(with(|m| m.term = 0) && with(|m| m.term = u64::MAX));
    assert!(with(|m| m.index = u64::MAX) && with(|m| m.commit = u64::MAX));
    assert!(with(|m| m.reject_hint = u64::MAX) && with(|m| m.commit_term = 4));
    assert!(with(|m| m.request_snapshot = 1));
    assert!(with(|m| m.context = vec![0; CONTEXT_BYTES_MAX + 1].into()));
    assert!(is_refused(&message(MessageType::MsgHeartbeat, |m| m.commit = 9)));
}

#[test]
fn entries_that_do_not_follow_or_cannot_be_read_are_refused() {
    let with = |change: fn(&mut Message)| is_refused(&append(change));
    assert!(with(|m| m.log_term = 0) && with(|m| m.index = 0));
    assert!(with(|m| m.entries[1].index = 11) && with(|m| m.entries[0].index = 8));
    assert!(with(|m| m.entries[0].term = 4) && with(|m| m.entries[0].term = 2));
    assert!(with(|m| m.entries[0].data = b"nonsense".to_vec().into()));
    assert!(with(|m| m.entries[0].context = b"odd".to_vec().into()));
    assert!(with(|m| m.entries[0].set_entry_type(EntryType::EntryConfChange)));
    assert!(with(|m| m.entries[0].set_entry_type(EntryType::EntryConfChangeV2)));
    assert!(!with(|m| m.entries[0].context = RELEASE.to_vec().into()));
    let elsewhere = |kind| is_refused(&append(|m| m.set_msg_type(kind)));
    assert!(elsewhere(MessageType::MsgHeartbeat) && elsewhere(MessageType::MsgRequestVote));
}

#[test]
fn a_leader_that_was_replaced_may_contradict_and_the_present_one_may_not() {
    let contradiction = |term| {
        append(|m| {
            (m.index, m.log_term, m.term) = (6, 1, term);
            m.set_entries(vec![entry(7, 2, b"")].into());
        })
    };
    assert_eq!(judge(&contradiction(2)), Ok(Admission::Step));
    assert!(is_refused(&contradiction(3)) && is_refused(&contradiction(4)));
}

#[test]
fn what_came_too_early_too_late_or_to_the_wrong_place_is_ignored() {
    use MessageType as M;
    let ignored = |change: fn(&mut LocalRaft<'_>), message: &Message| {
        admit(&local(change), 1, message) == Ok(Admission::Ignore)
    };
    let question = message(M::MsgReadIndex, |m| {
        m.term = 0;
        m.set_entries(round(1).into());
    });
    assert!(ignored(|_| {}, &question), "it leads nobody");
    let is_flooded = |it: &mut LocalRaft<'_>| {
        (it.is_leader, it.read_rounds) = (true, READ_ROUNDS_PER_MEMBER_MAX)
    };
    assert!(ignored(is_flooded, &question));
    let answer = message(M::MsgReadIndexResp, |m| m.set_entries(round(2).into()));
    assert!(ignored(|it| it.leader = 3, &answer) && ignored(|it| it.term = 2, &answer));
    let call = message(M::MsgTimeoutNow, |_| {});
    assert!(ignored(|it| it.leader = 3, &call) && ignored(|it| it.may_campaign = false, &call));
    assert!(ignored(|it| it.is_durable = false, &call));
    let vote = message(M::MsgRequestVoteResponse, |_| {});
    assert!(ignored(|it| it.is_durable = false, &vote));
    let request = message(M::MsgRequestVote, |_| {});
    assert!(ignored(|it| it.has_voters = false, &request));
}

/// A liar that came first must not cut the true leader: it is not refused.
#[test]
fn a_second_leader_of_one_term_is_ignored() {
    let by = |leader: u64, message: &Message| admit(&local(|it| it.leader = leader), 1, message);
    for message in [append(|_| {}), message(MessageType::MsgHeartbeat, |_| {})] {
        assert_eq!(by(3, &message), Ok(Admission::Ignore));
        assert_eq!(by(0, &message), Ok(Admission::Step), "nobody led it before");
        let later = Message { term: 4, ..message };
        assert_eq!(by(3, &later), Ok(Admission::Step), "it was elected since");
    }
}

#[test]
fn a_peer_on_trial_leads_and_asks_for_votes_and_nothing_else_of_it_is_heard() {
    use MessageType as M;
    let judge = |message: &Message| admit(&local(|it| it.knows_sender = false), 1, message);
    let kinds = [M::MsgHeartbeat, M::MsgRequestVote, M::MsgRequestPreVote];
    for kind in kinds {
        assert_eq!(judge(&message(kind, |_| {})), Ok(Admission::Step), "{kind:?}");
    }
    assert_eq!(judge(&append(|_| {})), Ok(Admission::Step));
    for kind in [
        M::MsgTimeoutNow,
        M::MsgAppendResponse,
        M::MsgHeartbeatResponse,
        M::MsgRequestVoteResponse,
        M::MsgRequestPreVoteResponse,
    ] {
        assert_eq!(judge(&message(kind, |_| {})), Ok(Admission::Ignore), "{kind:?}");
    }
}

#[test]
fn a_round_is_asked_for_in_ones_own_name_and_by_one_context() {
    let question = |entries: Vec<Entry>| {
        message(MessageType::MsgReadIndex, |m| {
            m.term = 0;
            m.set_entries(entries.into());
        })
    };
    assert!(is_refused(&question(round(3))));
    assert!(is_refused(&question(Vec::new())));
    assert!(is_refused(&question([round(1), round(1)].concat())));
    assert!(is_refused(&message(MessageType::MsgReadIndex, |m| m.set_entries(round(1).into()))));
    assert!(is_refused(&message(MessageType::MsgReadIndexResp, |m| {
        m.term = 0;
        m.set_entries(round(2).into());
    })));
}

#[test]
fn a_follower_confirms_no_entries_that_its_leader_does_not_have() {
    let confirmed = message(MessageType::MsgAppendResponse, |m| m.index = 9);
    let leads = local(|it| it.is_leader = true);
    assert!(admit(&leads, 1, &confirmed).is_err());
    assert_eq!(judge(&confirmed), Ok(Admission::Step), "it is nothing to a follower");
}

fn members(voters: &[u64], learners: &[u64], outgoing: &[u64], next: &[u64]) -> ConfState {
    let mut members = ConfState::default();
    members.voters = voters.to_vec();
    members.learners = learners.to_vec();
    members.voters_outgoing = outgoing.to_vec();
    members.learners_next = next.to_vec();
    members
}

/// What passes is restored by the library without a word; what does not may end it.
#[test]
fn members_that_raft_cannot_restore_are_refused() {
    let sound = [
        members(&[1, 2, 3], &[], &[], &[]),
        members(&[1], &[2, 3], &[], &[]),
        members(&[1, 2], &[4], &[1, 2, 3], &[]),
        members(&[1, 2], &[], &[1, 2, 3], &[3]),
    ];
    for members in sound {
        assert_eq!(check_members(&members), Ok(()));
        let mut place = raft::eraftpb::SnapshotMetadata::default();
        (place.index, place.term) = (1, 1);
        place.set_conf_state(members);
        let mut hard_state = raft::eraftpb::HardState::default();
        (hard_state.term, hard_state.commit) = (1, 1);
        let log = crate::log::Log::new(hard_state, place, Vec::new());
        let config = raft::Config::new(1);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        raft::RawNode::new(&config, log, &logger).unwrap();
    }
    let many: Vec<u64> = (1..=1 + MEMBERS_LISTED_MAX as u64).collect();
    assert_eq!(check_members(&members(&many[1..], &[], &[], &[])), Ok(()));
    for unsound in [
        members(&many, &[], &[], &[]),
        members(&[1000], &many, &[], &[]),
        members(&[1000], &[], &many, &[]),
        members(&[], &[], &[], &[]),
        members(&[0, 1], &[], &[], &[]),
        members(&[1, 1], &[], &[], &[]),
        members(&[1, 2], &[2], &[], &[]),
        members(&[1], &[2], &[1, 2], &[]),
        members(&[1], &[], &[], &[2]),
        members(&[1, 2], &[], &[1, 2], &[2]),
    ] {
        assert!(check_members(&unsound).is_err(), "{unsound:?}");
    }
    let mut leaving = members(&[1, 2], &[], &[1, 2, 3], &[]);
    leaving.auto_leave = true;
    assert!(check_members(&leaving).is_err());
}

#[test]
fn a_snapshot_stands_at_a_possible_place_and_holds_a_later_state() {
    let at = |index: u64, term: u64| {
        message(MessageType::MsgSnapshot, |m| {
            let mut snapshot = Snapshot::default();
            let place = snapshot.mut_metadata();
            (place.index, place.term) = (index, term);
            place.set_conf_state(members(&[1, 2, 3], &[], &[], &[]));
            m.set_snapshot(snapshot);
        })
    };
    let replicated = ReplicatedState::found(Settings::default(), Members::new());
    let revision = replicated.state.revision();
    let judge =
        |message: &Message| admit_snapshot(&local(|_| {}), 1, message, &replicated, revision);
    assert_eq!(judge(&at(20, 3)), Ok(Admission::Step));
    assert_eq!(judge(&at(5, 3)), Ok(Admission::Step), "Raft tells its sender how far it is");
    assert!(judge(&at(5, 2)).is_err(), "it contradicts");
    assert!(judge(&at(20, 0)).is_err() && judge(&at(20, 4)).is_err() && judge(&at(0, 3)).is_err());
    assert!(judge(&at(8 + SNAPSHOT_LEAP_MAX, 3)).is_ok());
    assert!(judge(&at(9 + SNAPSHOT_LEAP_MAX, 3)).is_err());
    let joins = local(|it| (it.last, it.committed) = (0, 0));
    assert!(admit_snapshot(&joins, 1, &at(1 << 50, 3), &replicated, revision).is_ok());
    let later = Revision(revision.0 + 1);
    assert!(admit_snapshot(&local(|_| {}), 1, &at(20, 3), &replicated, later).is_err());
    let bare = replicated.clone().without_state();
    assert!(admit_snapshot(&local(|_| {}), 1, &at(20, 3), &bare, revision).is_err());
    assert_eq!(
        admit_snapshot(&local(|it| it.leader = 3), 1, &at(20, 3), &replicated, revision),
        Ok(Admission::Ignore)
    );
    assert_eq!(
        admit_snapshot(&local(|it| it.term = 4), 1, &at(20, 3), &replicated, revision),
        Ok(Admission::Ignore)
    );
}
