//! Steps of a random sequence: few groups, nodes and sessions, so that everything meets everything.
//!
//! A step is a wish in relative words ("the holder resigns its current term"). It becomes an entry
//! only when it is run, against what is true then, so a sequence keeps its sense while it shrinks.

use proptest::prelude::*;
use proptest::sample::select;
use regent_election::{Finding, NodePattern, Policy, Priority, Settings, WaitKind};

pub(crate) const GROUPS: u8 = 3;
pub(crate) const SLOTS: u8 = 5;
pub(crate) const NODES: u8 = 3;

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) id: Id,
    /// Slots whose sessions are told to be silent; one beyond all slots is a session that never was.
    pub(crate) silent: Vec<u8>,
}

/// Which session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// The one that lives in this slot; a fresh one if it has ended.
    Slot(u8),
    /// Whoever holds the office of the group meant.
    Holder,
    /// The standby at this place of the group meant.
    Standby(u8),
    /// The one that was offered the office of the group meant.
    Offered,
    /// One that ended, if any did in this slot.
    Ghost(u8),
}

/// Which term.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Current,
    Before,
    After,
}

/// Which node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    Node(u8),
    Standby(u8),
}

/// Which request id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Id {
    None,
    /// One never used, made this many revisions ago.
    Fresh(u8),
    /// One that opens with a revision yet to come.
    Ahead,
    /// That of an earlier entry, this many ids ago.
    Used(u8),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Open {
        who: Who,
        node: u8,
        ttl_ms: u64,
    },
    ChangeTtl {
        who: Who,
        ttl_ms: u64,
    },
    Close {
        who: Who,
    },
    Expire {
        slots: Vec<u8>,
    },
    Campaign {
        group: u8,
        who: Who,
        opening: Option<(Option<u64>, bool)>,
        leave: bool,
        priority: Priority,
        told: bool,
    },
    Withdraw {
        group: u8,
        who: Who,
    },
    Accept {
        group: u8,
        who: Who,
        term: Which,
    },
    Resign {
        group: u8,
        who: Who,
        term: Which,
    },
    Offer {
        group: u8,
        who: Who,
        term: Which,
        to: To,
    },
    Warm {
        group: u8,
        who: Who,
        term: Which,
    },
    Transfer {
        group: u8,
        who: Who,
        term: Which,
        to: To,
    },
    StepDown {
        group: u8,
        to: Option<To>,
        immediate: bool,
        reason: bool,
    },
    PutPolicy {
        group: u8,
        policy: Option<Wish>,
    },
    Delete {
        group: u8,
    },
    /// To or from one of two other stores.
    Expect {
        group: u8,
        from: u8,
    },
    Depart {
        group: u8,
        to: u8,
    },
    /// Of the move that is under way, or of one that is not.
    Arrive {
        group: u8,
        late: u8,
        above: Which,
        heir: Option<To>,
    },
    Stop {
        group: u8,
    },
    /// Of the stop that holds, or of one that does not.
    Resume {
        group: u8,
        late: u8,
    },
    Admit {
        group: u8,
        resource: u8,
        term: Which,
    },
    ForgetFence {
        group: u8,
        resource: u8,
    },
    Report {
        group: u8,
        finding: Finding,
        words: u8,
    },
    Relieve {
        group: u8,
        term: Which,
        to: To,
    },
    PutSettings {
        ceiling_ms: u64,
        auto_create: bool,
        groups_max: u64,
        policy: Wish,
    },
    /// From the version that holds, or from another.
    PutBindings {
        late: u8,
        roles: u8,
    },
    CreateToken {
        token: u8,
    },
    RevokeToken {
        token: u8,
    },
    /// A wait that is running (of another group if nothing runs in this one), or another kind of
    /// wait, or another beginning.
    Elapsed {
        group: u8,
        kind: Option<WaitKind>,
        late: u8,
    },
    Refill {
        who: Who,
    },
    /// The very entry that was applied this many entries ago comes once more.
    Again {
        back: u8,
    },
    /// The state goes through its bytes, and a second machine goes on from them in slices.
    Restart {
        slice: u8,
    },
}

/// A policy in few words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) ttl_ms: (u64, u64),
    pub(crate) lock_delay_ms: u64,
    pub(crate) minimum_tenure_ms: u64,
    pub(crate) prefer: bool,
    /// Only this node may campaign.
    pub(crate) only: Option<u8>,
    /// This node's priority, whatever it claims.
    pub(crate) priority: Option<(u8, Priority)>,
    pub(crate) standbys_max: u32,
}

impl Wish {
    pub(crate) fn policy(self) -> Policy {
        let pattern = |node: u8| NodePattern::new(&format!("n{node}")).unwrap();
        Policy {
            ttl_ms_min: self.ttl_ms.0,
            ttl_ms_max: self.ttl_ms.1,
            lock_delay_ms: self.lock_delay_ms,
            minimum_tenure_ms: self.minimum_tenure_ms,
            prefer_priority: self.prefer,
            allow: self.only.map(pattern).into_iter().collect(),
            priorities: self.priority.map(|(node, own)| (pattern(node), own)).into_iter().collect(),
            standbys_max: self.standbys_max,
            ..Policy::default()
        }
    }
}

pub(crate) fn settings(
    ceiling_ms: u64,
    auto_create: bool,
    groups_max: u64,
    policy: Wish,
) -> Settings {
    Settings {
        ttl_ms_ceiling: ceiling_ms,
        auto_create,
        groups_max,
        default_policy: policy.policy(),
    }
}

fn ttl() -> impl Strategy<Value = u64> {
    prop_oneof![
        12 => select(vec![1000u64, 2000, 3000]),
        1 => select(vec![499u64, 500, 9000, 99_000_000]),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let bounds = prop_oneof![
        9 => Just((500, 20_000)),
        2 => Just((500, 2000)),
        1 => Just((1500, 20_000)),
        1 => Just((9, 1)),
    ];
    let only = prop_oneof![7 => Just(None), 1 => (0..NODES).prop_map(Some)];
    let priority = prop_oneof![2 => Just(None), 1 => (0..NODES, -1i16..4).prop_map(Some)];
    let standbys_max = prop_oneof![10 => Just(10u32), 2 => 0u32..3, 1 => Just(u32::MAX)];
    let lock_delay_ms = prop_oneof![1 => Just(0u64), 1 => Just(700u64)];
    let minimum_tenure_ms = select(vec![0u64, 5000, 6000]);
    let prefer = prop::bool::weighted(0.7);
    (bounds, lock_delay_ms, minimum_tenure_ms, prefer, only, priority, standbys_max).prop_map(
        |(ttl_ms, lock_delay_ms, minimum_tenure_ms, prefer, only, priority, standbys_max)| Wish {
            ttl_ms,
            lock_delay_ms,
            minimum_tenure_ms,
            prefer,
            only,
            priority,
            standbys_max,
        },
    )
}

/// Mostly the same group: a crowd in one shows more than a few in many.
fn group() -> impl Strategy<Value = u8> {
    prop_oneof![5 => Just(0u8), 2 => Just(1u8), 1 => 2..GROUPS]
}

fn slot() -> impl Strategy<Value = Who> {
    prop_oneof![24 => (0..SLOTS).prop_map(Who::Slot), 1 => (0..SLOTS).prop_map(Who::Ghost)]
}

fn holder() -> impl Strategy<Value = Who> {
    prop_oneof![12 => Just(Who::Holder), 1 => slot()]
}

fn standby() -> impl Strategy<Value = Who> {
    prop_oneof![3 => Just(Who::Offered), 3 => (0u8..2).prop_map(Who::Standby), 1 => slot()]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![12 => Just(Which::Current), 1 => Just(Which::Before), 1 => Just(Which::After)]
}

fn to() -> impl Strategy<Value = To> {
    prop_oneof![6 => (0u8..3).prop_map(To::Standby), 1 => (0..NODES).prop_map(To::Node)]
}

fn campaign() -> impl Strategy<Value = Op> {
    let opening = prop_oneof![
        1 => Just(None),
        6 => Just(Some((None, false))),
        2 => Just(Some((None, true))),
        1 => (ttl(), any::<bool>()).prop_map(|(ttl_ms, passing)| Some((Some(ttl_ms), passing))),
    ];
    let leave = prop::bool::weighted(0.15);
    // A holder that was told to stop may stand again.
    let who = prop_oneof![8 => slot(), 1 => Just(Who::Holder)];
    (group(), who, opening, leave, -1i16..4, any::<bool>()).prop_map(
        |(group, who, opening, leave, priority, told)| Op::Campaign {
            group,
            who,
            opening,
            leave,
            priority,
            told,
        },
    )
}

/// What participants ask for.
fn asked() -> impl Strategy<Value = Op> {
    let tenure = || (group(), holder(), which());
    prop_oneof![
        24 => campaign(),
        2 => (slot(), 0..NODES, ttl())
            .prop_map(|(who, node, ttl_ms)| Op::Open { who, node, ttl_ms }),
        3 => (slot(), ttl()).prop_map(|(who, ttl_ms)| Op::ChangeTtl { who, ttl_ms }),
        1 => prop_oneof![slot(), holder()].prop_map(|who| Op::Close { who }),
        3 => (group(), prop_oneof![holder(), standby()])
            .prop_map(|(group, who)| Op::Withdraw { group, who }),
        8 => tenure().prop_map(|(group, who, term)| Op::Accept { group, who, term }),
        6 => tenure().prop_map(|(group, who, term)| Op::Resign { group, who, term }),
        4 => (tenure(), to())
            .prop_map(|((group, who, term), to)| Op::Offer { group, who, term, to }),
        4 => (group(), standby(), which())
            .prop_map(|(group, who, term)| Op::Warm { group, who, term }),
        4 => (tenure(), to())
            .prop_map(|((group, who, term), to)| Op::Transfer { group, who, term, to }),
    ]
}

/// What administrators ask for.
fn ordered() -> impl Strategy<Value = Op> {
    let ceiling = prop_oneof![6 => Just(20_000u64), 1 => Just(2000u64), 1 => Just(7u64)];
    let settings = (ceiling, prop::bool::weighted(0.9), select(vec![1u64, 3, 3, 3, 3]), wish());
    prop_oneof![
        6 => (group(), prop::option::of(to()), prop::bool::weighted(0.3), any::<bool>()).prop_map(
            |(group, to, immediate, reason)| Op::StepDown { group, to, immediate, reason }
        ),
        5 => (group(), prop::option::weighted(0.8, wish()))
            .prop_map(|(group, policy)| Op::PutPolicy { group, policy }),
        1 => group().prop_map(|group| Op::Delete { group }),
        6 => (group(), 0u8..2, which())
            .prop_map(|(group, resource, term)| Op::Admit { group, resource, term }),
        1 => (group(), 0u8..2).prop_map(|(group, resource)| Op::ForgetFence { group, resource }),
        4 => (group(), finding(), 0u8..3)
            .prop_map(|(group, finding, words)| Op::Report { group, finding, words }),
        4 => (group(), which(), to())
            .prop_map(|(group, term, to)| Op::Relieve { group, term, to }),
        2 => (group(), 0u8..2).prop_map(|(group, from)| Op::Expect { group, from }),
        2 => (group(), 0u8..2).prop_map(|(group, to)| Op::Depart { group, to }),
        5 => (group(), prop_oneof![8 => Just(0u8), 1 => 1u8..3], which(), prop::option::of(to()))
            .prop_map(|(group, late, above, heir)| Op::Arrive { group, late, above, heir }),
        2 => group().prop_map(|group| Op::Stop { group }),
        5 => (group(), prop_oneof![8 => Just(0u8), 1 => 1u8..3])
            .prop_map(|(group, late)| Op::Resume { group, late }),
        1 => settings.prop_map(|(ceiling_ms, auto_create, groups_max, policy)| {
            Op::PutSettings { ceiling_ms, auto_create, groups_max, policy }
        }),
        1 => (prop_oneof![4 => Just(0u8), 1 => Just(1u8)], 0u8..3)
            .prop_map(|(late, roles)| Op::PutBindings { late, roles }),
        1 => (0u8..3).prop_map(|token| Op::CreateToken { token }),
        1 => (0u8..3).prop_map(|token| Op::RevokeToken { token }),
    ]
}

fn finding() -> impl Strategy<Value = Finding> {
    select(vec![Finding::SplitBrain, Finding::StaleAttempt, Finding::NearMiss, Finding::Failing])
}

/// What the driver proposes, and what goes wrong on the way.
fn driven() -> impl Strategy<Value = Op> {
    let kind = select(vec![
        WaitKind::LockDelay,
        WaitKind::Ending,
        WaitKind::Acceptance,
        WaitKind::MinimumTenure,
    ]);
    let kind = prop_oneof![12 => Just(None), 1 => kind.prop_map(Some)];
    let late = prop_oneof![12 => Just(0u8), 1 => 1u8..3];
    prop_oneof![
        10 => (group(), kind, late)
            .prop_map(|(group, kind, late)| Op::Elapsed { group, kind, late }),
        3 => prop::collection::vec(0..=SLOTS, 1..3).prop_map(|slots| Op::Expire { slots }),
        3 => (0..SLOTS).prop_map(|slot| Op::Refill { who: Who::Slot(slot) }),
        5 => (0u8..20).prop_map(|back| Op::Again { back }),
        2 => (1u8..6).prop_map(|slice| Op::Restart { slice }),
    ]
}

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let op = prop_oneof![12 => asked(), 2 => ordered(), 4 => driven()];
    let id = prop_oneof![
        20 => Just(Id::None),
        20 => (0u8..3).prop_map(Id::Fresh),
        1 => Just(Id::Ahead),
        1 => (0u8..6).prop_map(Id::Used),
    ];
    let silent = prop_oneof![
        9 => Just(Vec::new()),
        3 => prop::collection::vec(0..=SLOTS, 1..4),
        2 => Just((0..SLOTS).collect()),
    ];
    let step = (op, id, silent).prop_map(|(op, id, silent)| Step { op, id, silent });
    prop::collection::vec(step, 1..most)
}
