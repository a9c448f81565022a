//! What happened in a run, as one list of events: all that a checker may look at.
//!
//! Every event has its true time. A process never knows that time; it is how a run is judged
//! afterwards. The text form is one JSON line per event (`json`); `story` is the same for people.

mod json;
mod story;

use std::fmt;

use regent_election::participant::Phase;
use regent_election::state::{Query, View};
use regent_election::store::{Scope, StoreError};
use regent_election::{
    Answer, Command, Cursor, Event as Change, Group, Node, Refusal, RequestId, Revision, SessionId,
    Settings, Term,
};
use regent_replica::{MemberChange, Members, ReplicaId, ReplicatedState};

use regent_stores::register::Key;

use crate::plan::RegisterPlan;

pub use json::{fingerprint, write_json};

/// Who did it; another one after every restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proc {
    /// The world itself: faults, phases, and what no single process could know.
    World,
    /// A replica of the store.
    Replica {
        id: u64,
        /// Which run of it.
        run: u64,
    },
    /// A client: a participant, a caller or a watcher.
    Client {
        number: u32,
        /// Which run of it.
        run: u32,
    },
}

impl fmt::Display for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World => f.write_str("world"),
            Self::Replica { id, run } => write!(f, "r{id}.{run}"),
            Self::Client { number, run } => write!(f, "c{number}.{run}"),
        }
    }
}

/// What a client asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Submit {
        command: Command,
        /// Makes a repeat take effect once.
        request: Option<RequestId>,
        /// What to read in the moment after.
        query: Option<Query>,
    },
    /// Keep a session alive.
    Heartbeat {
        session: SessionId,
        /// Its rising number.
        sequence: Option<u64>,
        /// The tenure to be proved.
        tenure: Option<(Group, Term)>,
        /// Terms given up beside it.
        disowned: Vec<(Group, Term)>,
    },
    Read {
        query: Query,
        /// Whether only the present will do.
        linearizable: bool,
    },
    /// Change the members.
    Members(MemberChange),
    /// Hand Raft leadership over.
    RaftTransfer { to: Option<ReplicaId> },
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// A change was applied, or refused by the rules.
    Applied {
        /// The rules' answer.
        answer: Result<Answer, Refusal>,
        /// What was read right after it, without the driver's hints.
        view: Option<Result<View, Refusal>>,
    },
    /// A heartbeat was acknowledged.
    Heartbeat {
        /// The ttl that counts from its send.
        ttl_ms: u64,
        /// The session's epoch.
        epoch: u64,
    },
    /// A read, without the driver's hints.
    Seen(View),
    /// It is done.
    Done,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A request leaves its client. Every try is a call of its own.
    Invoke {
        /// Names the call.
        call: u64,
        /// What is asked.
        op: Op,
    },
    /// It was answered.
    Ok {
        /// Names the call.
        call: u64,
        /// The revision that served the answer, if it has one.
        revision: Option<Revision>,
        /// Boxed: a view of a group would make every event larger.
        out: Box<Out>,
    },
    /// A definite no: nothing happened.
    Fail {
        /// Names the call.
        call: u64,
        error: StoreError,
    },
    /// It may have happened.
    Info {
        /// Names the call.
        call: u64,
    },

    /// The validity in hand changed: until when a check passes if nothing else happens.
    Lead {
        group: Group,
        /// The session that holds it.
        session: SessionId,
        /// The term; none when no check passes any more.
        held: Option<Term>,
        /// True time at which the process's clock reaches the end of its validity.
        until: u64,
    },
    /// The participant told its application of a change.
    Phase {
        group: Group,
        phase: Phase,
        /// The term it is about.
        term: Term,
    },
    /// The application says whether it wants to lead.
    Stand { group: Group, wants: bool },
    /// One call of `check()`: the instant is that of the clock read.
    Guard {
        group: Group,
        /// The session asked about, if there is one.
        session: Option<SessionId>,
        /// The term it passed for, if it passed.
        passed: Option<Term>,
    },
    /// An application of a user's own sends a write.
    Attempt {
        node: Node,
        /// The group whose storage it writes to.
        group: Group,
        /// The term that it writes under.
        term: Term,
        /// Whether a check at this very instant would have passed for that term.
        is_covered: bool,
    },
    /// A write reached a register.
    Write {
        /// The group whose leaders write there.
        group: Group,
        /// Whether the register has a fence.
        fenced: bool,
        /// The term that came with it.
        term: Term,
        /// Whether it was admitted.
        admitted: bool,
    },

    /// Something about a watch.
    Watch {
        /// Names the watch; another one after every reconnection.
        watch: u64,
        what: Watched,
    },

    /// A process begins.
    Up,
    /// A process ends.
    Down,
    /// A process stands still from here…
    Paused,
    /// …until here.
    Resumed,

    /// A replica leads the log.
    RaftLeader {
        /// In which of Raft's terms.
        raft_term: u64,
    },
    /// A Raft leader begins to judge sessions.
    Serving {
        /// What its clock shows.
        clock: u64,
    },
    /// It does not any more.
    ServingOver {
        /// What its clock shows.
        clock: u64,
    },
    /// A Raft leader's loop was away.
    Gap {
        /// What its clock shows on return.
        clock: u64,
        /// For how long it was away, by its own clock.
        away: u64,
    },
    /// A heartbeat, or another wish of a session, has reached the Raft leader.
    Hear {
        /// Whether it is a heartbeat, which counts as a sign of life in any case.
        is_heartbeat: bool,
        /// Whether it counts for certain. If the leader has yet to apply something that is committed, it judges later,
        /// and may then refuse what was true when it arrived.
        is_sure: bool,
        session: SessionId,
        sequence: Option<u64>,
        /// What the leader's clock showed when it arrived.
        clock: u64,
        /// What it showed when the leader's loop came round to it.
        taken: u64,
    },
    /// A Raft leader has put an entry into its log.
    Append {
        /// Whose wish it was, if a session's: a sign of life, whatever becomes of it.
        session: Option<SessionId>,
        index: u64,
        /// In which of Raft's terms.
        raft_term: u64,
        /// What its clock shows.
        clock: u64,
    },
    /// An entry was applied for the first time anywhere: it can never be undone.
    Commit {
        index: u64,
        /// In which of Raft's terms it was appended.
        raft_term: u64,
        /// Whether it is a change of members.
        is_conf: bool,
        data: Vec<u8>,
        /// What stands beside them: a change of members, or a mark.
        context: Vec<u8>,
    },
    /// A replica has applied everything up to here.
    Apply {
        /// The last index.
        index: u64,
        /// A print of all entries up to it.
        chain: u64,
        /// What its clock shows.
        clock: u64,
    },
    /// A print of a replica's whole state.
    StateHash {
        /// As of this index.
        index: u64,
        /// As of this revision.
        revision: Revision,
        hash: u64,
    },

    /// An entry of the register was replaced, by the host that asked for it.
    Entry { key: Key, value: Vec<u8> },
    /// The engine, which times sessions itself, has heard one.
    Heartbeat {
        /// Which, by its digest.
        session: u128,
    },

    /// A fault begins or ends.
    Fault {
        /// What, for people.
        what: String,
        /// Whether it breaks the assumption on clocks: S1 and S4 are then not owed.
        beyond_a1: bool,
    },
    /// The run enters another phase.
    Stage {
        stage: Stage,
        /// The replicas that are healthy and connected from here on.
        core: Vec<u64>,
    },
}

/// What a watch does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    Open {
        /// The replica that is asked.
        replica: u64,
        /// What is watched.
        scope: Scope,
        cursor: Option<Cursor>,
    },
    /// It delivers a change.
    Changed(Change),
    /// It says that changes are not known any more.
    Gap {
        /// From where one could resume.
        oldest: Cursor,
        /// Where it goes on.
        at: Cursor,
    },
    /// Everything up to here was delivered.
    Mark(Cursor),
    /// It ends, for whatever reason.
    End,
}

/// The phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Faults come and go; only safety is owed.
    Chaos,
    /// A core is healed, the rest stays broken for ever; progress is owed.
    Core,
    /// The core had its time: nothing may change any more without a reason.
    Steady,
    /// Every leader gives its office up in turn.
    Rotation,
    /// Everything is healed.
    Healed,
    /// All lost power at once and were started again.
    Reborn,
    End,
}

impl Stage {
    /// The word for histories.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Chaos => "chaos",
            Self::Core => "core",
            Self::Steady => "steady",
            Self::Rotation => "rotation",
            Self::Healed => "healed",
            Self::Reborn => "reborn",
            Self::End => "end",
        }
    }
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// True time in nanoseconds.
    pub at: u64,
    pub proc: Proc,
    pub what: What,
}

/// What a run began with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    pub seed: u64,
    /// The register that kept the elections, if one did.
    pub register: Option<RegisterPlan>,
    /// Who founded the cluster.
    pub members: Members,
    /// What held for the store at first.
    pub settings: Settings,
    /// The drift bound ρ all participants were configured with, in parts per million.
    pub drift_ppm: u32,
    /// The log index of the founding state.
    pub founded_at: u64,
    /// What the store started with, as bytes, if it was restored and did not start with nothing.
    pub replicated: Option<Vec<u8>>,
}

impl Setup {
    /// What the store started with.
    ///
    /// # Panics
    /// If what it was restored from cannot be read.
    #[must_use]
    pub fn founding(&self) -> ReplicatedState {
        match &self.replicated {
            None => ReplicatedState::found(self.settings.clone(), self.members.clone()),
            Some(bytes) => {
                ReplicatedState::decode(bytes).expect("it was encoded when it was restored")
            }
        }
    }
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// What it began with.
    pub setup: Setup,
    /// What happened, in order of true time.
    pub events: Vec<Event>,
}

impl History {
    /// A run in which nothing has happened.
    #[must_use]
    pub const fn new(setup: Setup) -> Self {
        Self { setup, events: Vec::new() }
    }

    /// Whether a fault broke the assumption on clocks.
    #[must_use]
    pub fn is_beyond_a1(&self) -> bool {
        self.events.iter().any(|event| matches!(event.what, What::Fault { beyond_a1: true, .. }))
    }

    /// When it ended.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.events.last().map_or(0, |event| event.at)
    }

    /// The text form, one JSON line per event.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let mut text = String::new();
        for event in &self.events {
            write_json(event, &mut text).expect("a string takes everything");
            text.push('\n');
        }
        text
    }
}

/// A view without the driver's hints: those depend on who was asked and when.
#[must_use]
pub fn plain(mut view: View) -> View {
    match &mut view {
        View::Leader(office) => office.valid_for = None,
        View::Leaders(offices) => {
            for office in offices {
                office.valid_for = None;
            }
        }
        // Only who serves measures.
        View::Offices(offices) => offices.times = None,
        View::Candidacy(candidacy) => candidacy.office.valid_for = None,
        View::Group(group) => {
            group.office.valid_for = None;
            for standby in &mut group.standbys {
                standby.silent = false;
            }
        }
        View::Groups(page) => {
            for office in &mut page.groups {
                office.valid_for = None;
            }
        }
        // The budget is each replica's own.
        View::Census(census) => census.state_bytes_max = 0,
        View::Shares(shares) => shares.share_bytes_max = None,
        View::Session(_)
        | View::Heartbeat(_)
        | View::History(_)
        | View::Fences(_)
        | View::Access(_)
        | View::Replay(_) => {}
    }
    view
}

/// The revision at which a view was true, if it says.
#[must_use]
pub fn revision_of(view: &View) -> Option<Revision> {
    match view {
        View::Leader(office) => Some(office.revision),
        View::Leaders(offices) => offices.first().map(|office| office.revision),
        View::Session(session) => Some(session.revision),
        View::Heartbeat(heard) => Some(heard.revision),
        View::Candidacy(candidacy) => Some(candidacy.office.revision),
        View::Group(group) => Some(group.office.revision),
        View::Groups(page) => Some(page.revision),
        View::Fences(page) => Some(page.revision),
        View::Census(census) => Some(census.revision),
        View::History(_)
        | View::Replay(_)
        | View::Offices(_)
        | View::Shares(_)
        | View::Access(_) => None,
    }
}
