//! The budget of the state: who refuses growth, and that replicas with different budgets stay the same.

use regent_election::access::{Binding, Role};
use regent_election::policy::NodePattern;
use regent_election::store::StoreError;
use regent_election::{Command, Group, Policy, Refusal, StateBudget};
use regent_replica::ReplicaId;
use regent_replica::io::{PeerMessage, Request, Response};

use crate::bench::{Cluster, campaign, heartbeat, id, open};

const BUDGET: u64 = 1 << 20;

/// A policy that weighs about 37 KB.
fn large(number: u32) -> Command {
    let allow = (0..256).map(|at| NodePattern::new(&format!("{at:0>96}")).unwrap()).collect();
    let group = Group::new(&format!("g{number}")).unwrap();
    Command::PutPolicy { group, policy: Some(Box::new(Policy { allow, ..Policy::default() })) }
}

fn put(number: u32) -> Request {
    Request::Submit { command: large(number), request: None, query: None }
}

/// A cluster whose replicas have these budgets.
fn with_budgets(budgets: &[(u64, u64)]) -> Cluster {
    let mut cluster = Cluster::new(budgets.len() as u64);
    for (number, bytes_max) in budgets {
        cluster.stop(id(*number));
        cluster.budgets.insert(id(*number), StateBudget::whole(*bytes_max));
        cluster.start(id(*number));
    }
    cluster
}

fn bytes(cluster: &Cluster, replica: ReplicaId) -> u64 {
    cluster.cores[&replica].replicated().state.bytes()
}

/// What is proposed and not applied counts: otherwise everything that fits into the log at once would pass.
#[test]
fn proposals_that_come_together_do_not_pass_the_budget_together() {
    let mut cluster = with_budgets(&[(1, BUDGET)]);
    let leader = cluster.await_leader();
    cluster.submit(leader, open(1, 60_000)).unwrap();
    cluster.submit(leader, campaign(1, "billing")).unwrap();
    let tokens: Vec<_> = (0..200).map(|number| cluster.ask(leader, put(number))).collect();
    cluster.run(50);
    let mut refused = 0;
    for token in tokens {
        match cluster.answers.remove(&token).unwrap() {
            Response::Applied { answer, .. } => drop(answer.unwrap()),
            Response::Error(StoreError::Refused(Refusal::StateFull { used, adds, max })) => {
                assert_eq!(max, BUDGET);
                assert!(used + adds > max && used <= max, "{used} + {adds} of {max}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((150..200).contains(&refused), "{refused} of 200");
    assert!(bytes(&cluster, leader) <= BUDGET, "{}", bytes(&cluster, leader));
    assert!(matches!(cluster.answer(leader, heartbeat(1)), Response::Heartbeat { .. }));
    let delete =
        |number: u32| Command::Delete { group: Group::new(&format!("g{number}")).unwrap() };
    cluster.submit(leader, delete(0)).unwrap();
    cluster.submit(leader, large(0)).unwrap();
}

/// The one that leads decides. A follower that knows the answer says so; one with a larger budget is declined, and
/// all of them keep the same state.
#[test]
fn replicas_with_different_budgets_keep_the_same_state() {
    let mut cluster = with_budgets(&[(1, BUDGET), (2, BUDGET), (3, 4 * BUDGET)]);
    let mut taken = 0;
    for number in 0..400 {
        let asked = id(u64::from(number % 3) + 1);
        match cluster.answer(asked, put(number)) {
            Response::Applied { answer, .. } => {
                answer.unwrap();
                taken += 1;
            }
            Response::Error(StoreError::Refused(Refusal::StateFull { max, .. })) => {
                assert!(max == BUDGET || max == 4 * BUDGET, "{max}");
            }
            // Nobody leads yet.
            Response::Error(StoreError::Unavailable { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    cluster.run(500);
    let leader = cluster.await_leader();
    let bytes_max = cluster.budgets[&leader].bytes_max;
    assert!(taken > 10 && bytes(&cluster, leader) <= bytes_max, "{taken}");
    let state = |number| &cluster.cores[&id(number)].replicated().state;
    assert!(state(1) == state(2) && state(2) == state(3));
    assert_eq!(state(1).bytes(), state(3).bytes());
}

/// A client is told by any replica that the store is full, and not that it should ask again.
#[test]
fn what_the_raft_leader_refuses_for_its_budget_a_followers_client_is_told() {
    let mut cluster = with_budgets(&[(1, 4 * BUDGET), (2, 4 * BUDGET), (3, 4 * BUDGET)]);
    let leader = cluster.await_leader();
    // All are as large, and the leader's becomes smaller: the followers do not know the answer themselves.
    for follower in (1..=3).map(id).filter(|id| *id != leader) {
        cluster.stop(follower);
        cluster.budgets.insert(follower, StateBudget::whole(64 * BUDGET));
        cluster.start(follower);
        cluster.run(500);
    }
    assert_eq!(cluster.leader(), Some(leader));
    let follower = (1..=3).map(id).find(|id| *id != leader).unwrap();
    let mut refused = None;
    for number in 0..400 {
        match cluster.answer(follower, put(number)) {
            Response::Applied { answer, .. } => drop(answer.unwrap()),
            other => {
                refused = Some((number, other));
                break;
            }
        }
    }
    match refused {
        Some((
            number,
            Response::Error(StoreError::Refused(Refusal::StateFull { used, adds, max })),
        )) => {
            assert_eq!(max, 4 * BUDGET);
            assert!(number > 50 && used + adds > max, "{used} + {adds} of {max} after {number}");
        }
        other => panic!("{other:?}"),
    }
}

/// The network delivers a change twice before the Raft leader takes its turn. The second copy finds the budget used up by
/// the first, and says nothing: to say that the change was declined would be untrue.
#[test]
fn a_change_that_comes_twice_at_once_is_not_declined_after_it_was_taken() {
    let mut cluster = with_budgets(&[(1, BUDGET), (2, BUDGET), (3, BUDGET)]);
    let leader = cluster.await_leader();
    let follower = (1..=3).map(id).find(|id| *id != leader).unwrap();
    cluster.submit(leader, large(0)).unwrap();
    let empty = bytes(&cluster, leader);
    cluster.submit(leader, large(1)).unwrap();
    let each = bytes(&cluster, leader) - empty;
    let mut number = 2;
    while bytes(&cluster, leader) + 2 * each <= BUDGET {
        cluster.submit(leader, large(number)).unwrap();
        number += 1;
    }
    cluster.run(100);
    let token = cluster.ask(follower, put(number));
    cluster.turn(follower);
    let is_forwarded = |message: &PeerMessage| matches!(message, PeerMessage::Propose { .. });
    let sent = cluster.mail.iter().find(|(.., message)| is_forwarded(message)).unwrap();
    let forwarded = sent.3.clone();
    for _ in 0..2 {
        cluster.deliver(follower, leader, forwarded.clone());
    }
    cluster.turn(leader);
    cluster.run(100);
    let told = cluster.answers.remove(&token);
    assert!(matches!(told, Some(Response::Applied { answer: Ok(_), .. })), "{told:?}");
}

fn share(bytes: u64) -> StateBudget {
    StateBudget { bytes_max: 64 * BUDGET, share_max: Some(bytes) }
}

/// A cluster in which two principals may make groups, with this budget.
fn with_principals(replicas: u64, budget: StateBudget) -> Cluster {
    let mut cluster = Cluster::new(replicas);
    for number in (1..=replicas).map(id) {
        cluster.stop(number);
        cluster.budgets.insert(number, budget);
        cluster.start(number);
    }
    let leader = cluster.await_leader();
    let operator = |who: &str| Binding {
        who: who.parse().unwrap(),
        role: Role::Operator,
        groups: vec!["*".parse().unwrap()],
        nodes: vec!["self".parse().unwrap()],
    };
    let bindings = vec![operator("user:greedy"), operator("user:modest")];
    let put = Command::PutBindings { expected_version: 0, bindings };
    cluster.submit(leader, put).unwrap();
    cluster
}

fn put_as(who: &str, number: u32) -> Request {
    let command = large(number).on_behalf_of(who.parse().unwrap(), None);
    Request::Submit { command, request: None, query: None }
}

/// What is proposed and not applied counts for the principal that proposed it, and for no other.
#[test]
fn proposals_that_come_together_do_not_pass_a_share_together() {
    let mut cluster = with_principals(1, share(BUDGET));
    let leader = cluster.await_leader();
    let mut tokens = Vec::new();
    for number in 0..200 {
        tokens.push((false, cluster.ask(leader, put_as("user:greedy", number))));
        if number % 20 == 0 {
            tokens.push((true, cluster.ask(leader, put_as("user:modest", 1000 + number))));
        }
    }
    cluster.run(50);
    let mut refused = 0;
    for (is_modest, token) in tokens {
        match cluster.answers.remove(&token).unwrap() {
            Response::Applied { answer, .. } => drop(answer.unwrap()),
            Response::Error(StoreError::Refused(Refusal::ShareFull { who, used, adds, max })) => {
                assert_eq!((who.to_string().as_str(), is_modest), ("user:greedy", false));
                assert_eq!(max, BUDGET);
                assert!(used + adds > max && used <= max, "{used} + {adds} of {max}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((150..200).contains(&refused), "{refused} of 200");
    let state = &cluster.cores[&leader].replicated().state;
    let used = |who: &str| state.bytes_of(&who.parse().unwrap());
    assert!(used("user:greedy") <= BUDGET && used("user:modest") <= BUDGET / 2);
    assert!(used("user:greedy") > BUDGET - (64 << 10), "{}", used("user:greedy"));
    let delete = Command::Delete { group: Group::new("g0").unwrap() };
    cluster.submit(leader, delete.on_behalf_of("user:greedy".parse().unwrap(), None)).unwrap();
    cluster.submit(leader, large(0).on_behalf_of("user:greedy".parse().unwrap(), None)).unwrap();
}

/// A client is told by any replica whose share is full, also if only the Raft leader knows.
#[test]
fn what_the_raft_leader_refuses_for_a_share_a_followers_client_is_told() {
    let mut cluster = with_principals(3, share(BUDGET));
    let leader = cluster.await_leader();
    for follower in (1..=3).map(id).filter(|id| *id != leader) {
        cluster.stop(follower);
        cluster.budgets.insert(follower, share(32 * BUDGET));
        cluster.start(follower);
        cluster.run(500);
    }
    assert_eq!(cluster.leader(), Some(leader));
    let follower = (1..=3).map(id).find(|id| *id != leader).unwrap();
    let refused =
        (0..100).find_map(|number| match cluster.answer(follower, put_as("user:greedy", number)) {
            Response::Applied { answer, .. } => {
                answer.unwrap();
                None
            }
            other => Some(other),
        });
    match refused {
        Some(Response::Error(StoreError::Refused(Refusal::ShareFull { who, max, .. }))) => {
            assert_eq!((who.to_string().as_str(), max), ("user:greedy", BUDGET));
        }
        other => panic!("{other:?}"),
    }
    cluster.run(500);
    let state = |number| &cluster.cores[&id(number)].replicated().state;
    assert!(state(1) == state(2) && state(2) == state(3));
    assert_eq!(state(1).largest_shares(10).len(), 1);
}
