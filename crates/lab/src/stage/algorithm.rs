//! The algorithms that can be played, and what is said of each in words.
//!
//! What the words claim is measured by [`super::compare`] and asserted by the tests of this crate.

/// The algorithms, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Garcia-Molina's.
    Bully,
    /// The collecting token.
    Ring,
    /// The token of one name.
    ChangRoberts,
    /// One store, and a term.
    Lease,
    /// The real replica's.
    Raft,
    /// One decree an epoch.
    Paxos,
    /// Groups elect, and their leaders elect.
    Hierarchy,
    /// Whoever is not suspected.
    Gossip,
    /// Signed votes.
    Byzantine,
}

impl Algorithm {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Bully,
        Self::Ring,
        Self::ChangRoberts,
        Self::Lease,
        Self::Raft,
        Self::Paxos,
        Self::Hierarchy,
        Self::Gossip,
        Self::Byzantine,
    ];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bully => "bully",
            Self::Ring => "ring",
            Self::ChangRoberts => "chang-roberts",
            Self::Lease => "lease",
            Self::Raft => "raft",
            Self::Paxos => "paxos",
            Self::Hierarchy => "hierarchy",
            Self::Gossip => "gossip",
            Self::Byzantine => "byzantine",
        }
    }

    /// What it promises, in a clause.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Bully => "the highest name that is alive leads; O(n²) messages, no terms",
            Self::Ring => "a token collects names and the highest wins; O(n) messages, no terms",
            Self::ChangRoberts => "a token of one name, replaced by higher ones; no terms",
            Self::Lease => "one store grants the office for a time; terms to fence by",
            Self::Raft => "a majority votes, by the real replica; one leader per term, and terms",
            Self::Hierarchy => "groups elect, and their leaders elect among themselves; no terms",
            Self::Gossip => "the highest name that nobody suspects leads, by phi accrual; no terms",
            Self::Byzantine => "signed votes of 2f + 1 among 3f + 1, of whom f may lie; terms",
            Self::Paxos => "a majority agrees on the leader of each epoch; epochs are terms",
        }
    }

    /// What it says about who leads when the network is broken, in a clause.
    #[must_use]
    pub const fn consistency(self) -> &'static str {
        match self {
            Self::Bully | Self::Ring | Self::ChangRoberts => {
                "none in a partition: every part has its leader, and no terms to fence by"
            }
            Self::Lease => {
                "one leader at a time while clocks keep within 1 %; with a fence, always"
            }
            Self::Raft => "one leader per term, always; one that may act, within 1 % of clocks",
            Self::Paxos => "one leader per epoch, always; an old one acts until it hears of it",
            Self::Hierarchy => "none in a partition, nor while a group is without its leader",
            Self::Gossip => "eventual: two lead for as long as news takes",
            Self::Byzantine => "one leader that may act, with up to f liars among 3f + 1",
        }
    }

    /// When there is a leader, in a clause.
    #[must_use]
    pub const fn availability(self) -> &'static str {
        match self {
            Self::Bully => "every part elects; the office follows a flapping highest node",
            Self::Ring | Self::ChangRoberts => "every part elects, once a token has come round",
            Self::Lease => {
                "wherever the one store is reached; a ttl without a leader after a death"
            }
            Self::Raft => "wherever a majority hears itself; none in any smaller part",
            Self::Paxos => "wherever a majority hears itself, unless proposers duel",
            Self::Hierarchy => "every part elects; slower if the leader of all dies",
            Self::Gossip => "every part has one, once silence has become suspicion",
            Self::Byzantine => "wherever two thirds hear each other: 3 of 4, and 4 of 5",
        }
    }

    /// What it costs and needs, in a clause.
    #[must_use]
    pub const fn complexity(self) -> &'static str {
        match self {
            Self::Bully => "O(n²) messages; nothing durable; simple",
            Self::Ring => "O(n) messages that grow with n; nothing durable; simple",
            Self::ChangRoberts => {
                "O(n) to O(n²) messages of one name, by the order of names; nothing durable"
            }
            Self::Lease => {
                "O(n) messages to one store, which keeps the office; simple, and a fence"
            }
            Self::Raft => "O(n) messages; term, vote and log durable; hard to get right",
            Self::Paxos => "O(n²) messages, as everybody learns for itself; promises durable; hard",
            Self::Hierarchy => "the bully among √n, twice; nothing durable",
            Self::Gossip => "no messages to elect: O(n) a round at all times; nothing durable",
            Self::Byzantine => "O(n²) signed messages; votes durable; hardest",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.name() == name)
    }
}
