//! The ledger alone: what travels beside an entry, what is due, and who judges.

use super::*;
use crate::command::{IfLost, Opening, WaitKind};
use crate::name::{Metadata, Node, Reason};
use crate::policy::Settings;
use crate::store::OfficeState;

pub(super) const TTL_MS: u64 = 10_000;

pub(super) fn at(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

pub(super) fn group(number: usize) -> Group {
    Group::new(&format!("g{number:04}")).unwrap()
}

pub(super) fn secret(number: u128) -> SessionId {
    SessionId::new(number + 1).unwrap()
}

pub(super) fn campaign(who: u128, in_group: usize) -> Command {
    let node = Node::new(&format!("n{who}")).unwrap();
    Command::Campaign {
        group: group(in_group),
        session: secret(who),
        opening: Some(Opening { node, ttl_ms: Some(TTL_MS), passing: false }),
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: Metadata::NONE,
    }
}

pub(super) fn ledger() -> Ledger {
    let mut ledger = Ledger::new(State::new(Settings::default()), Incarnation(1), at(0));
    ledger.serve(at(0));
    ledger
}

fn nobody() -> BTreeSet<SessionNo> {
    BTreeSet::new()
}

pub(super) fn apply(ledger: &mut Ledger, now_ms: u64, command: Command) -> Applied {
    let entry = ledger.entry(command, None, 0, &nobody());
    ledger.apply(at(now_ms), entry, |_| {})
}

/// Turns every 100 ms up to a moment, without a gap, and applies what is due.
pub(super) fn pass(ledger: &mut Ledger, from_ms: u64, to_ms: u64) {
    for now_ms in (from_ms..=to_ms).step_by(100) {
        ledger.turn(at(now_ms));
        for command in ledger.due(at(now_ms), usize::MAX) {
            apply(ledger, now_ms, command);
        }
    }
}

pub(super) fn no(ledger: &Ledger, who: u128) -> SessionNo {
    ledger.state().find_session(secret(who)).unwrap()
}

fn settings() -> Command {
    Command::PutSettings { settings: Box::default() }
}

/// Sessions 0 and 1 stand in group 0, which 2 leads; 0 and 1 are silent, 2 was just heard.
fn two_silent() -> Ledger {
    let mut ledger = ledger();
    for who in [2, 0, 1] {
        apply(&mut ledger, 0, campaign(who, 0));
    }
    pass(&mut ledger, 100, 5_000);
    assert_eq!(ledger.heartbeat(at(5_000), secret(2), None), HeartbeatOutcome::Extended);
    ledger
}

#[test]
fn silent_sessions_travel_with_what_may_promote_and_with_nothing_else() {
    let ledger = two_silent();
    let silent = vec![no(&ledger, 0), no(&ledger, 1)];
    let term = ledger.state().holder(&group(0)).unwrap().term;
    let resign = Command::Resign { group: group(0), session: secret(2), term };
    let accept = Command::Accept { group: group(0), session: secret(2), term };
    let beside = |command| ledger.entry(command, None, 0, &nobody()).silent;
    assert_eq!(beside(resign.clone()), silent);
    assert_eq!(beside(settings()), silent);
    assert_eq!(beside(accept), []);
    let heard = BTreeSet::from([silent[0]]);
    assert_eq!(ledger.entry(resign, None, 0, &heard).silent, [silent[1]]);
}

/// Where more are silent than travel, those of vacant groups count for a change of settings: these
/// are the offices it may fill.
#[test]
fn of_very_many_silent_sessions_those_of_the_groups_concerned_travel() {
    let mut ledger = ledger();
    apply(&mut ledger, 0, campaign(0, 0));
    apply(&mut ledger, 0, campaign(1, 0));
    apply(&mut ledger, 0, campaign(2, 1));
    apply(&mut ledger, 0, campaign(3, 1));
    for who in 4..=SILENT_WHOLE_MAX as u128 + 4 {
        let node = Node::new("crowd").unwrap();
        apply(&mut ledger, 0, Command::Open { session: secret(who), node, ttl_ms: TTL_MS });
    }
    pass(&mut ledger, 100, 5_000);
    let stranding = Command::Close { session: secret(0) };
    let entry = ledger.entry(stranding, None, 0, &nobody());
    assert_eq!(entry.silent, [no(&ledger, 1)]);
    ledger.apply(at(5_000), entry, |_| {});
    assert!(ledger.state().has_stranded(), "nobody audible stands in the first group");
    let entry = ledger.entry(settings(), None, 0, &nobody());
    assert_eq!(entry.silent, [no(&ledger, 1)], "not the one of the second group, which is led");
}

/// L1.
#[test]
fn a_vacant_office_is_filled_when_a_standby_is_heard_and_looked_at_every_50_ms() {
    let mut ledger = two_silent();
    apply(&mut ledger, 5_000, Command::Close { session: secret(2) });
    assert!(ledger.state().has_stranded());
    assert_eq!(ledger.due(at(5_000), usize::MAX), [], "nobody is audible");
    assert!(ledger.next_at() <= Some(at(5_050)));
    ledger.heartbeat(at(5_010), secret(1), None);
    assert_eq!(ledger.due(at(5_049), usize::MAX), [], "too early for another look");
    let session = no(&ledger, 1);
    assert_eq!(ledger.due(at(5_050), usize::MAX), [Command::Refill { session }]);
    apply(&mut ledger, 5_050, Command::Refill { session });
    assert_eq!(ledger.state().holder(&group(0)).map(|holder| holder.session), Some(session));
    assert_eq!(ledger.due(at(5_100), usize::MAX), []);
}

#[test]
fn lines_of_silent_sessions_hide_no_audible_one() {
    let mut ledger = ledger();
    let groups = 2 * STRANDED_PER_LOOK_MAX + 1;
    for number in 0..groups {
        apply(&mut ledger, 0, campaign(0, number));
        let standby = if number + 1 == groups { 2 } else { 1 };
        apply(&mut ledger, 0, campaign(standby, number));
    }
    pass(&mut ledger, 100, 5_000);
    apply(&mut ledger, 5_000, Command::Close { session: secret(0) });
    assert_eq!(ledger.state().stranded().count(), groups);
    ledger.heartbeat(at(5_000), secret(2), None);
    let session = no(&ledger, 2);
    let found: Vec<Vec<Command>> =
        [5_000, 5_050, 5_100, 5_150].map(|ms| ledger.due(at(ms), usize::MAX)).to_vec();
    assert_eq!(found, [vec![], vec![], vec![Command::Refill { session }], vec![]]);
}

#[test]
fn who_only_follows_judges_nobody_and_a_full_ttl_begins_with_serving() {
    let mut follower = Ledger::new(State::new(Settings::default()), Incarnation(1), at(0));
    let entry = follower.entry(campaign(0, 0), None, 0, &nobody());
    follower.apply(at(0), entry, |_| {});
    let session = no(&follower, 0);
    let reason = Reason::new("test").unwrap();
    let step_down = Command::StepDown { group: group(0), reason, to: None, immediate: false };
    apply(&mut follower, 0, step_down);
    assert_eq!(follower.remaining(at(1), session), None);
    assert_eq!(follower.due(at(1), usize::MAX), []);

    follower.serve(at(60_000));
    let left = follower.remaining(at(60_000), session).unwrap();
    assert!(left >= Duration::from_millis(TTL_MS), "{left:?}");
    follower.turn(at(60_100));
    assert_eq!(follower.due(at(60_100), usize::MAX), []);
    let mut brought = Vec::new();
    for now_ms in (60_200..=71_100).step_by(100) {
        follower.turn(at(now_ms));
        brought.extend(follower.due(at(now_ms), usize::MAX));
    }
    let has_waited = brought
        .iter()
        .any(|command| matches!(command, Command::Elapsed { kind: WaitKind::Ending, .. }));
    assert!(has_waited, "the wait began again with serving: {brought:?}");
    assert!(brought.contains(&Command::Expire { sessions: vec![session] }), "{brought:?}");
}

#[test]
fn what_was_not_proposed_comes_again() {
    let mut ledger = ledger();
    apply(&mut ledger, 0, campaign(0, 0));
    pass(&mut ledger, 100, 9_900);
    let session = no(&ledger, 0);
    let expire = Command::Expire { sessions: vec![session] };
    let mut now_ms = 9_900;
    let mut wait = |ledger: &mut Ledger| loop {
        now_ms += 100;
        ledger.turn(at(now_ms));
        let due = ledger.due(at(now_ms), usize::MAX);
        if !due.is_empty() {
            return due;
        }
    };
    assert_eq!(wait(&mut ledger), std::slice::from_ref(&expire));
    assert_eq!(
        (ledger.expiring(), ledger.heartbeat(at(12_000), secret(0), None)),
        (1, HeartbeatOutcome::Expiring)
    );
    ledger.not_proposed(&expire);
    assert_eq!(ledger.expiring(), 0);
    assert_eq!(ledger.remaining(at(12_000), session), Some(Duration::from_millis(TTL_MS)));
    assert_eq!(wait(&mut ledger), [expire], "and was heard of meanwhile");

    ledger.stop_serving();
    assert_eq!((ledger.expiring(), ledger.is_serving()), (0, false));
}

#[test]
fn effects_are_timed_in_slices_and_told_once() {
    let mut ledger = ledger();
    for number in 0..5 {
        apply(&mut ledger, 0, campaign(0, number));
        apply(&mut ledger, 0, campaign(1, number));
    }
    let entry = ledger.entry(Command::Close { session: secret(0) }, None, 0, &nobody());
    ledger.begin(entry);
    let slice = Slice { groups_max: 2, effects_max: 2 };
    let (mut told, mut slices) = (0, 0);
    let applied = loop {
        slices += 1;
        if let Some(applied) = ledger.advance(at(0), slice, |_| told += 1) {
            break applied;
        }
    };
    assert_eq!((applied.events.len(), applied.effects.len()), (5, 0));
    // Five waits for acceptance, five offices that lost their leader, and the end of a session.
    assert_eq!(told, 11);
    assert!(slices >= 5, "{slices}");
    let is_promoted = |number| {
        ledger.state().holder(&group(number)).map(|holder| holder.state)
            == Some(OfficeState::Elected)
    };
    assert!((0..5).all(is_promoted));
}

#[test]
fn what_another_principal_asks_for_is_no_sign_of_life_of_the_session_it_names() {
    use crate::access::{Binding, Role};
    let mut ledger = ledger();
    let binding = |who: &str| Binding {
        who: who.parse().unwrap(),
        role: Role::Participant,
        groups: vec!["*".parse().unwrap()],
        nodes: vec!["*".parse().unwrap()],
    };
    let bindings = vec![binding("node:n0"), binding("node:thief")];
    apply(&mut ledger, 0, Command::PutBindings { expected_version: 0, bindings }).answer.unwrap();
    let owner = |command: Command| command.on_behalf_of("node:n0".parse().unwrap(), None);
    let thief = |command: Command| command.on_behalf_of("node:thief".parse().unwrap(), None);
    apply(&mut ledger, 0, owner(campaign(0, 0))).answer.unwrap();
    assert_eq!(ledger.asker(&owner(campaign(0, 1))), Some(no(&ledger, 0)));
    assert_eq!(ledger.asker(&thief(campaign(0, 1))), None);
    assert_eq!(ledger.asker(&thief(Command::Close { session: secret(0) })), None);
    // Whoever may only give up, because its token was revoked, must not live on by giving up nothing.
    let group = Group::new("nothing-of-its-own").unwrap();
    assert_eq!(ledger.asker(&owner(Command::Withdraw { group, session: secret(0) })), None);
}

#[test]
fn a_command_of_a_revoked_token_is_no_sign_of_life() {
    use crate::access::{Binding, Role, SecretDigest, TokenId, TokenLabel};
    let mut ledger = ledger();
    let binding = Binding {
        who: "node:n0".parse().unwrap(),
        role: Role::Participant,
        groups: vec!["*".parse().unwrap()],
        nodes: vec!["*".parse().unwrap()],
    };
    let (token, bindings) = (TokenId(7), vec![binding]);
    apply(&mut ledger, 0, Command::PutBindings { expected_version: 0, bindings }).answer.unwrap();
    let create = Command::CreateToken {
        token,
        digest: Box::new(SecretDigest([0; 32])),
        principal: "node:n0".parse().unwrap(),
        expires_ms: None,
        label: TokenLabel::new("").unwrap(),
    };
    apply(&mut ledger, 0, create).answer.unwrap();
    let owner = |command: Command| command.on_behalf_of("node:n0".parse().unwrap(), Some(token));
    apply(&mut ledger, 0, owner(campaign(0, 0))).answer.unwrap();
    assert_eq!(ledger.asker(&owner(campaign(0, 1))), Some(no(&ledger, 0)));
    apply(&mut ledger, 0, Command::RevokeToken { token }).answer.unwrap();
    assert_eq!(ledger.asker(&owner(campaign(0, 1))), None);
}
