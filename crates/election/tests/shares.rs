//! The share of the budget that one principal may take: what is charged to whom, what is refused, and what is not.

#![allow(clippy::unwrap_used, reason = "a test may")]

use proptest::prelude::*;
use regent_election::access::{Binding, NodeRule, Principal, Role};
use regent_election::limits::METADATA_BYTES_MAX;
use regent_election::policy::NodePattern;
use regent_election::{
    Answer, Command, Entry, Finding, Group, Home, IfLost, Metadata, Node, Opening, Policy, Reason,
    Refusal, RequestId, Resource, Revision, SessionId, Settings, State, StateBudget, StateGrowth,
    Step, Term, WaitKind,
};

const TTL_MS: u64 = 10_000;
/// Nothing is proposed that is not applied.
const NONE: StateGrowth = StateGrowth { state: 0, share: 0 };
/// Room for whatever a test does, and a small share of it.
const BUDGET: StateBudget = StateBudget { bytes_max: 64 << 20, share_max: Some(64 << 10) };
const NO_BUDGET: StateBudget = StateBudget { bytes_max: u64::MAX, share_max: None };

fn principal(name: &str) -> Principal {
    name.parse().unwrap()
}

fn session(number: u128) -> SessionId {
    SessionId::new(number).unwrap()
}

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

fn open(number: u128) -> Command {
    let node = Node::new(&format!("n{number}")).unwrap();
    Command::Open { session: session(number), node, ttl_ms: TTL_MS }
}

fn campaign(number: u128, name: &str, metadata: Metadata) -> Command {
    Command::Campaign {
        group: group(name),
        session: session(number),
        opening: None,
        if_lost: IfLost::Stand,
        priority: 0,
        metadata,
    }
}

/// As much as one candidate may tell.
fn large() -> Metadata {
    let key = |number: usize| (format!("k{number}"), "x".repeat(200));
    Metadata::new((0..METADATA_BYTES_MAX / 256).map(key)).unwrap()
}

/// A policy with this many patterns of 100 bytes.
fn policy(name: &str, patterns: usize) -> Command {
    let allow = (0..patterns).map(|at| NodePattern::new(&format!("n*{at:0>98}")).unwrap());
    let allow = allow.chain([NodePattern::new("n*").unwrap()]).collect();
    let policy = Some(Box::new(Policy { allow, ..Policy::default() }));
    Command::PutPolicy { group: group(name), policy }
}

fn admit(name: &str, resource: &str, term: u64) -> Command {
    let (resource, term) = (Resource::new(resource).unwrap(), Term::new(term).unwrap());
    Command::Admit { group: group(name), resource, term }
}

fn delete(name: &str) -> Command {
    Command::Delete { group: group(name) }
}

/// A store in which these principals may do everything, under any name.
struct Store(State);

impl Store {
    fn new() -> Self {
        let role = |role, nodes: Vec<NodeRule>| Binding {
            who: "*".parse().unwrap(),
            role,
            groups: vec!["*".parse().unwrap()],
            nodes,
        };
        let bindings = vec![
            role(Role::Participant, vec!["*".parse().unwrap()]),
            role(Role::Administrator, vec!["self".parse().unwrap()]),
        ];
        let mut state = State::new(Settings::default());
        let put = Command::PutBindings { expected_version: 0, bindings };
        state.apply(Entry::bare(put)).answer.unwrap();
        Self(state)
    }

    fn apply(&mut self, who: Option<&str>, command: Command) -> Result<Answer, Refusal> {
        self.apply_with(who, command, None)
    }

    fn apply_with(
        &mut self,
        who: Option<&str>,
        command: Command,
        request: Option<RequestId>,
    ) -> Result<Answer, Refusal> {
        let command = of(who, command);
        let applied = self.0.apply(Entry { request, ..Entry::bare(command) });
        assert_eq!(self.0.check_invariants(), Ok(()));
        applied.answer
    }

    /// As a store does it: the budget is asked first.
    fn submit(&mut self, who: &str, command: Command) -> Result<Answer, Refusal> {
        let command = of(Some(who), command);
        self.0.check_budget(&command, None, NONE, BUDGET)?;
        self.apply(None, command)
    }

    fn used(&self, who: &str) -> u64 {
        self.0.bytes_of(&principal(who))
    }

    /// Repeats what a principal asks for until its share is full; how often it was taken.
    fn fill(&mut self, who: &str, command: impl Fn(u32) -> Command) -> u32 {
        for number in 0..10_000 {
            match self.submit(who, command(number)) {
                Ok(_) => {}
                Err(Refusal::ShareFull { who: found, used, adds, max }) => {
                    assert_eq!((*found, used), (principal(who), self.used(who)));
                    assert!(used <= max && used + adds > max, "{used} + {adds} of {max}");
                    return number;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("{who} takes {} bytes", self.used(who));
    }
}

fn of(who: Option<&str>, command: Command) -> Command {
    match who {
        Some(who) => command.on_behalf_of(principal(who), None),
        None => command,
    }
}

fn is_full(answer: &Result<Answer, Refusal>, who: &str) -> bool {
    matches!(answer, Err(Refusal::ShareFull { who: found, .. }) if **found == principal(who))
}

#[test]
fn a_principal_over_its_share_is_refused_growth_and_nothing_else() {
    let (greedy, modest) = ("node:greedy", "node:modest");
    let mut store = Store::new();
    store.submit(greedy, open(1)).unwrap();
    let won = store.submit(greedy, campaign(1, "g", Metadata::NONE)).unwrap();
    let term = won.elected().unwrap();
    assert!(store.fill(greedy, |number| open(1000 + u128::from(number))) > 50);
    for refused in
        [open(2), campaign(1, "another", Metadata::NONE), policy("g", 10), policy("new", 0)]
    {
        let answer = store.submit(greedy, refused.clone());
        assert!(is_full(&answer, greedy), "{refused:?}: {answer:?}");
    }
    let told = store.submit(greedy, open(2)).unwrap_err().to_string();
    for part in ["share of node:greedy", "at most 65536", "state_percent_per_principal", "delete"] {
        assert!(told.contains(part), "{told}");
    }
    // Others do not notice.
    store.submit(modest, open(3)).unwrap();
    store.submit(modest, campaign(3, "m", large())).unwrap();
    store.submit(modest, campaign(3, "g", large())).unwrap();
    store.submit(modest, policy("m", 10)).unwrap();
    // It gives up what it has, and what others made it may end where it has the right.
    let resign = Command::Resign { group: group("g"), session: session(1), term };
    store.submit(greedy, resign).unwrap();
    let withdraw = Command::Withdraw { group: group("m"), session: session(1) };
    store.submit(greedy, withdraw).unwrap();
    let reason = Reason::new("a reason").unwrap();
    let down = Command::StepDown { group: group("m"), reason, to: None, immediate: false };
    store.submit(greedy, down).unwrap();
    store.submit(greedy, Command::Close { session: session(1) }).unwrap();
    store.submit(greedy, Command::Close { session: session(1000) }).unwrap();
    store.submit(greedy, delete("g")).unwrap();
    // And then there is room again.
    store.submit(greedy, open(2)).unwrap();
    // Who administers on the replica's own machine, and who has no name, has no share.
    for number in 0..500 {
        store.submit("local:root", open(5000 + number)).unwrap();
    }
    assert!(store.used("local:root") > BUDGET.share_max.unwrap());
    let nobody = store.0.check_budget(&policy("x", 200), None, NONE, BUDGET);
    assert_eq!(nobody.map(|growth| growth.share), Ok(0));
}

/// Verbs that store something in a group that another principal made: the other must not pay for it.
#[test]
fn nobody_fills_the_share_of_another() {
    let (greedy, modest) = ("node:greedy", "node:modest");
    let mut store = Store::new();
    store.submit(modest, open(1)).unwrap();
    for number in 0..10 {
        store.submit(modest, campaign(1, &format!("g{number}"), Metadata::NONE)).unwrap();
    }
    let before = store.used(modest);
    let taken =
        store.fill(greedy, |number| policy(&format!("g{}", number % 10), 50 + number as usize));
    assert!(taken > 5, "{taken}");
    assert_eq!(store.used(modest), before, "policies");
    for number in 0..10 {
        let none = Command::PutPolicy { group: group(&format!("g{number}")), policy: None };
        store.submit(greedy, none).unwrap();
    }
    assert_eq!(store.used(greedy), 0, "an account ends with what it was charged for");
    let resource = |number: u32| format!("{:0>190}", number / 10);
    let taken =
        store.fill(greedy, |number| admit(&format!("g{}", number % 10), &resource(number), 1));
    assert!(taken > 100, "{taken}");
    assert_eq!(store.used(modest), before, "fences");
    store.submit(modest, admit("g0", &resource(0), 1)).unwrap();
    assert_eq!(store.used(modest), before, "it asks again, and the first who asked pays");
    for number in 0..taken {
        let (group, resource) =
            (group(&format!("g{}", number % 10)), Resource::new(&resource(number)).unwrap());
        store.submit(greedy, Command::ForgetFence { group, resource }).unwrap();
    }
    assert_eq!(store.used(greedy), 0);
    let taken = store.fill(greedy, |number| match number {
        0 => open(77),
        _ => campaign(77, &format!("g{}", number - 1), large()),
    });
    assert!((9..20).contains(&taken), "places in the lines of others, with metadata: {taken}");
    assert_eq!(store.used(modest), before, "standbys");
    // A second policy takes over what the first one put.
    store.submit(modest, policy("g1", 100)).unwrap();
    let paid = store.used(modest);
    let small = store.submit(greedy, policy("g1", 50));
    assert!(is_full(&small, greedy), "{small:?}");
    store.submit("node:third", policy("g1", 90)).unwrap();
    assert_eq!(store.used(modest), before);
    assert!(store.used("node:third") > paid - before - 2000);
}

/// What is changed again and again by one who is over its share: metadata, request ids, proposals.
#[test]
fn repeats_do_not_go_round_a_share() {
    let who = "node:greedy";
    let mut store = Store::new();
    store.submit(who, open(1)).unwrap();
    store.apply(None, open(2)).unwrap();
    for number in 0..40 {
        let name = format!("g{number}");
        store.apply(None, campaign(2, &name, Metadata::NONE)).unwrap();
        store.submit(who, campaign(1, &name, Metadata::NONE)).unwrap();
    }
    let taken = store.fill(who, |number| campaign(1, &format!("g{number}"), large()));
    assert!((5..40).contains(&taken), "{taken}");
    // A session remembers 64 request ids. They are counted, and what is left of the reserve bounds them.
    let (mut remembered, mut refused) = (0, 0);
    let sessions: Vec<u128> = (100..200).collect();
    for number in &sessions {
        store.apply(Some(who), open(*number)).unwrap();
        for nonce in 0..64 {
            let request = RequestId::new(store.0.revision(), &format!("r{nonce}")).unwrap();
            let change = Command::ChangeTtl { session: session(*number), ttl_ms: TTL_MS };
            let change = change.on_behalf_of(principal(who), None);
            match store.0.check_budget(&change, Some(&request), NONE, BUDGET) {
                Ok(_) => {
                    store.apply_with(None, change, Some(request)).unwrap();
                    remembered += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 64 && remembered < 6400, "{remembered} taken, {refused} refused");
}

/// Everything that a principal made is released by its end, whoever ends it.
#[test]
fn charges_end_with_what_they_are_for() {
    let who = "node:a";
    let mut store = Store::new();
    store.apply(Some(who), open(1)).unwrap();
    store.apply(Some(who), campaign(1, "led", large())).unwrap();
    store.apply(Some(who), policy("led", 20)).unwrap();
    store.apply(Some(who), admit("led", "table", 1)).unwrap();
    store.apply(Some("node:b"), open(2)).unwrap();
    store.apply(Some("node:b"), campaign(2, "led", large())).unwrap();
    let (all, standby) = (store.used(who), store.used("node:b"));
    assert!(all > 9_000 && standby > 3_000, "{all}, {standby}");
    // Its session expires: the other one leads, with what it told, and pays for that as before.
    let no = store.0.find_session(session(1)).unwrap();
    store.apply(None, Command::Expire { sessions: vec![no] }).unwrap();
    assert!(store.used(who) < all - 3_000, "session, tenure and metadata");
    assert_eq!(store.used("node:b"), standby);
    // A restored store knows groups, policies and fences, and who made them.
    let reborn = store.0.clone().reborn(0, 0, Term::NONE).unwrap();
    assert_eq!(reborn.check_invariants(), Ok(()));
    assert_eq!(reborn.bytes_of(&principal(who)), store.used(who));
    assert_eq!(reborn.bytes_of(&principal("node:b")), 0);
    assert_eq!(State::decode(&reborn.encode()).unwrap(), reborn);
    // The new leader is told to stop, and the group goes with its tenure.
    store.apply(Some("user:admin"), delete("led")).unwrap();
    let close = Command::Close { session: session(2) };
    store.apply(Some("node:b"), close).unwrap();
    assert!(!store.0.knows(&group("led")));
    assert_eq!((store.used(who), store.used("node:b")), (0, 0));
    assert!(store.0.largest_shares(10).is_empty());
}

/// A group that leaves is charged here for its door; in the store that expects it, to whoever said so.
#[test]
fn a_group_that_moves_stays_charged_where_something_is_kept_of_it() {
    let home = || Home::new("https://other.example:7400").unwrap();
    let mut store = Store::new();
    store.apply(Some("node:a"), open(1)).unwrap();
    store.apply(Some("node:a"), campaign(1, "g", Metadata::NONE)).unwrap();
    let before = store.used("node:a");
    let depart = Command::Move { group: group("g"), step: Step::Depart { to: home() } };
    store.apply(Some("user:admin"), depart).unwrap();
    assert!(store.used("node:a") > before && store.used("user:admin") == 0);
    let expect = Command::Move { group: group("h"), step: Step::Expect { from: home() } };
    store.apply(Some("user:admin"), expect).unwrap();
    let since = store.0.revision();
    let expected = store.used("user:admin");
    let arrive = Step::Arrive { since, above: Term::new(7).unwrap(), heir: None };
    let arrive = Command::Move { group: group("h"), step: arrive };
    store.apply(Some("user:other"), arrive).unwrap();
    assert!(expected > 1000 && store.used("user:admin") > 1000 && store.used("user:other") == 0);
}

/// Snapshots without payers are read, and what is in them is nobody's.
#[test]
fn what_was_made_before_payers_were_kept_is_charged_to_nobody() {
    let mut store = Store::new();
    store.apply(None, open(1)).unwrap();
    store.apply(None, campaign(1, "g", large())).unwrap();
    store.apply(None, policy("g", 5)).unwrap();
    store.apply(None, admit("g", "table", 1)).unwrap();
    let bytes = store.0.encode();
    assert!(bytes[0] < 8, "nobody pays for anything: {}", bytes[0]);
    let mut store = Store(State::decode(&bytes).unwrap());
    assert!(store.0.largest_shares(10).is_empty());
    store.apply(Some("node:a"), admit("g", "other", 1)).unwrap();
    assert_eq!(store.0.encode()[0], 8);
    assert_eq!(State::decode(&store.0.encode()).unwrap(), store.0);
    let made = store.used("node:a");
    assert!((50..400).contains(&made), "a fence and an account: {made}");
    // A list of payers with one who pays for nothing is not what this program writes.
    let bytes = store.0.encode();
    let at = bytes.windows(6).position(|part| part == b"node:a").unwrap();
    let mut other = bytes[..at - 2].to_vec();
    other.push(2);
    other.extend_from_slice(&bytes[at - 1..at + 6]);
    other.extend_from_slice(&bytes[at - 1..at + 5]);
    other.push(b'b');
    other.extend_from_slice(&bytes[at + 6..]);
    let error = State::decode(&other).unwrap_err().to_string();
    assert!(error.contains("node:b pays for nothing"), "{error}");
}

/// L1 for authenticated callers: whoever led before can lead again in a store that is filled to the last byte.
#[test]
fn an_authenticated_leader_that_resigned_can_stand_again_in_a_full_store() {
    let who = "node:a";
    let mut store = Store::new();
    store.apply(Some(who), open(1)).unwrap();
    let won = store.apply(Some(who), campaign(1, "g", Metadata::NONE)).unwrap();
    let term = won.elected().unwrap();
    let resign = Command::Resign { group: group("g"), session: session(1), term };
    store.apply(Some(who), resign).unwrap();
    let [again, new] =
        ["g", "new"].map(|name| campaign(1, name, large()).on_behalf_of(principal(who), None));
    // What is pending fills the budget, or the share, to the brim. Half of the reserve is for such a campaign.
    let max: u64 = 1 << 20;
    let whole = StateBudget { bytes_max: max, share_max: None };
    let share = StateBudget { bytes_max: u64::MAX, share_max: Some(max) };
    for (budget, pending) in [
        (whole, StateGrowth { state: max - store.0.bytes(), share: 0 }),
        (share, StateGrowth { state: 0, share: max - store.used(who) }),
    ] {
        let taken = store.0.check_budget(&again, None, pending, budget);
        assert!(taken.is_ok(), "{taken:?}");
        let refused = store.0.check_budget(&new, None, pending, budget);
        assert!(refused.is_err(), "{refused:?}");
    }
}

/// One step of the property below.
#[derive(Clone, Debug)]
struct Move {
    who: usize,
    verb: u8,
    session: u8,
    group: u8,
    size: u8,
    request: bool,
}

const NAMES: [Option<&str>; 4] = [None, Some("node:a"), Some("user:b"), Some("local:c")];

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = (0..NAMES.len(), 0..29_u8, 0..5_u8, 0..4_u8, any::<u8>(), any::<bool>());
    let one = one.prop_map(|(who, verb, session, group, size, request)| Move {
        who,
        verb,
        session,
        group,
        size,
        request,
    });
    prop::collection::vec(one, 1..120)
}

fn command(state: &State, step: &Move, number: u128) -> Command {
    let (name, size) = (format!("g{}", step.group), step.size);
    let (group, term) = (group(&name), state.last_term(&group(&name)));
    // A secret that has ended is of no use again: every fifth number opens another.
    let number = u128::from(step.session) + 1 + number / 25 * 10;
    let session = session(number);
    let metadata = Metadata::new([("k", "v".repeat(usize::from(size)))]).unwrap();
    let reason = Reason::new(&"r".repeat(usize::from(size))).unwrap();
    let to = Node::new(&format!("n{}", size % 5 + 1)).unwrap();
    match step.verb {
        0 | 1 => open(number),
        2..=4 => campaign(number, &name, metadata),
        5 => Command::Withdraw { group, session },
        6 => Command::Resign { group, session, term },
        7 => Command::Accept { group, session, term },
        8 => Command::Close { session },
        9 => policy(&name, usize::from(size) % 4),
        10 => Command::PutPolicy { group, policy: None },
        11 => delete(&name),
        12 | 13 => admit(&name, &format!("r{}", size % 5), term.get()),
        14 => Command::ForgetFence {
            group,
            resource: Resource::new(&format!("r{}", size % 5)).unwrap(),
        },
        15 => Command::StepDown {
            group,
            reason,
            to: Some(to).filter(|_| size % 2 == 0),
            immediate: true,
        },
        16 => {
            let home = Home::new("https://other.example").unwrap();
            let since = Revision(state.revision().0.saturating_sub(u64::from(size % 3)));
            let step = match size % 5 {
                0 => Step::Stop,
                1 => Step::Resume { since },
                2 => Step::Expect { from: home },
                3 => Step::Depart { to: home },
                _ => Step::Arrive { since, above: term, heir: None },
            };
            Command::Move { group, step }
        }
        17 => Command::ChangeTtl { session, ttl_ms: TTL_MS + u64::from(size) },
        18 => Command::Offer { group, session, term, to },
        19 => Command::Warm { group, session, term },
        20 => Command::Transfer { group, session, term, to },
        21 => Command::Report { group, finding: Finding::NearMiss, reason },
        22 => Command::Relieve { group, term, to, reason },
        // A campaign that opens a session, which may end with it.
        23 | 24 => Command::Campaign {
            group,
            session,
            opening: Some(Opening {
                node: Node::new(&format!("n{number}")).unwrap(),
                ttl_ms: None,
                passing: size % 2 == 0,
            }),
            if_lost: if size % 3 == 0 { IfLost::Leave } else { IfLost::Stand },
            priority: i16::from(size % 4),
            metadata,
        },
        25 => {
            let policy = Policy { lock_delay_ms: 500, ..Policy::default() };
            Command::PutPolicy { group, policy: Some(Box::new(policy)) }
        }
        // What time brings.
        26 => Command::Expire { sessions: state.find_session(session).into_iter().collect() },
        27 => {
            let since = Revision(state.revision().0.saturating_sub(u64::from(size % 4)));
            let kind = WaitKind::ALL[usize::from(step.session) % WaitKind::ALL.len()];
            Command::Elapsed { group, kind, since }
        }
        // Everybody may stand, or nobody but one.
        _ => {
            let everybody = size % 2 == 0;
            let stands = Binding {
                who: if everybody { "*" } else { "node:a" }.parse().unwrap(),
                role: Role::Participant,
                groups: vec!["*".parse().unwrap()],
                nodes: vec!["*".parse().unwrap()],
            };
            let administers = Binding {
                who: "*".parse().unwrap(),
                role: Role::Administrator,
                groups: vec!["*".parse().unwrap()],
                nodes: vec!["self".parse().unwrap()],
            };
            let expected_version = state.access().bindings().version();
            Command::PutBindings { expected_version, bindings: vec![stands, administers] }
        }
    }
}

/// Whether somebody else than its caller may be charged for what a command does: it writes reasons and doors, or it comes
/// from a server without authentication, which lets anybody use any session.
fn writes_for_others(who: Option<&str>, command: &Command) -> bool {
    who.is_none()
        || matches!(
            command,
            Command::StepDown { .. }
                | Command::Move { .. }
                | Command::Report { .. }
                | Command::Relieve { .. }
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// After every entry the accounts are what they are added up from scratch, also after bytes, a restore and in slices
    /// (`check_invariants`, equality); nobody is charged for what another did, and nobody for more than was said before.
    #[test]
    fn accounts_are_what_was_made_and_is_still_there(moves in moves()) {
        let mut store = Store::new();
        for (number, step) in (0..).zip(&moves) {
            let plain = command(&store.0, step, number);
            let asked = of(NAMES[step.who], plain.clone());
            let request = step.request.then(|| {
                RequestId::new(store.0.revision(), &format!("r{number}")).unwrap()
            });
            let before: Vec<u64> = NAMES.iter().flatten().map(|who| store.used(who)).collect();
            let bytes = store.0.bytes();
            let growth = store.0.check_budget(&asked, request.as_ref(), NONE, NO_BUDGET).unwrap();
            let mut twin = State::decode(&store.0.encode()).unwrap();
            prop_assert_eq!(&twin, &store.0);
            let entry = Entry { request: request.clone(), ..Entry::bare(asked) };
            twin.begin(entry.clone());
            while twin.advance(1).is_none() {}
            store.0.apply(entry);
            prop_assert_eq!(store.0.check_invariants(), Ok(()));
            prop_assert_eq!(&twin, &store.0);
            // The ids of what ends something are not asked for: one line of 112 bytes, of 64 at most.
            let slack = if request.is_some() { 112 } else { 0 };
            let ended = 32;
            prop_assert!(
                store.0.bytes() <= bytes + growth.state + slack + 112 + ended,
                "{plain:?}: {bytes} + {growth:?} < {}", store.0.bytes()
            );
            for (who, before) in NAMES.iter().flatten().zip(before) {
                let (is_caller, after) = (NAMES[step.who] == Some(who), store.used(who));
                let may = if is_caller { growth.share + slack } else { 0 };
                prop_assert!(
                    after <= before + may || writes_for_others(NAMES[step.who], &plain),
                    "{plain:?} of {:?} {growth:?}: {who} had {before} and has {after}", NAMES[step.who]
                );
            }
            let sum: u64 = store.0.largest_shares(usize::MAX).iter().map(|(_, bytes)| bytes).sum();
            prop_assert!(sum <= store.0.bytes());
        }
        let reborn = store.0.clone().reborn(0, 0, Term::NONE).unwrap();
        prop_assert_eq!(reborn.check_invariants(), Ok(()));
        prop_assert_eq!(State::decode(&reborn.encode()).unwrap(), reborn);
        // Everything is ended: nobody is charged for anything.
        for number in 1..=100 {
            store.apply(None, Command::Close { session: session(number) }).unwrap();
        }
        let mut left = store.0.without_sessions();
        for name in ["g0", "g1", "g2", "g3"] {
            let resume = |since| Command::Move { group: group(name), step: Step::Resume { since } };
            for since in 0..=left.revision().0 {
                let _ = left.apply(Entry::bare(resume(Revision(since)))).answer;
                if left.door(&group(name)).is_open() {
                    break;
                }
            }
            let _ = left.apply(Entry::bare(delete(name))).answer;
            prop_assert!(!left.knows(&group(name)) || !left.door(&group(name)).is_open());
        }
        let is_left = ["g0", "g1", "g2", "g3"].iter().any(|name| left.knows(&group(name)));
        prop_assert!(is_left || left.largest_shares(10).is_empty());
    }
}
