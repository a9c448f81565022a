//! What a run, or many, amounted to.

use std::fmt;
use std::ops::AddAssign;

use crate::history::What;

/// Counts of a run. Added up over a sweep they say what was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Virtual time.
    pub simulated_ns: u64,
    /// Things that happened in the world.
    pub happenings: u64,
    /// Turns of replicas' loops.
    pub turns: u64,
    /// Messages sent.
    pub messages: u64,
    /// Requests of clients.
    pub calls: u64,
    /// Requests answered by the store, with a yes or a rule's no.
    pub answers: u64,
    /// Times that a replica began to lead the log.
    pub raft_elections: u64,
    /// Entries committed.
    pub commits: u64,
    /// Times that a participant began to lead.
    pub takeovers: u64,
    /// Checks that passed.
    pub guards: u64,
    /// Writes that a fence refused.
    pub fenced_off: u64,
    /// Writes to an unfenced register after one of a higher term: what fencing prevents.
    pub unfenced_harm: u64,
    /// Changes delivered to watchers.
    pub watched: u64,
    /// Gaps told to watchers.
    pub gaps: u64,
    /// Replicas that died.
    pub crashes: u64,
    /// Faults of all kinds.
    pub faults: u64,
}

impl Stats {
    pub(crate) fn count(&mut self, what: &What) {
        use crate::history::Watched;
        use regent_election::participant::Phase;
        match what {
            What::Invoke { .. } => self.calls += 1,
            What::Ok { .. } => self.answers += 1,
            What::RaftLeader { .. } => self.raft_elections += 1,
            What::Commit { .. } | What::Entry { .. } => self.commits += 1,
            What::Phase { phase: Phase::Leading, .. } => self.takeovers += 1,
            What::Guard { passed: Some(_), .. } => self.guards += 1,
            What::Write { fenced: true, admitted: false, .. } => self.fenced_off += 1,
            What::Watch { what: Watched::Changed(_), .. } => self.watched += 1,
            What::Watch { what: Watched::Gap { .. }, .. } => self.gaps += 1,
            What::Fault { .. } => self.faults += 1,
            What::Fail { .. }
            | What::Info { .. }
            | What::Lead { .. }
            | What::Phase { .. }
            | What::Stand { .. }
            | What::Guard { .. }
            | What::Attempt { .. }
            | What::Write { .. }
            | What::Watch { .. }
            | What::Up
            | What::Down
            | What::Paused
            | What::Resumed
            | What::Serving { .. }
            | What::ServingOver { .. }
            | What::Gap { .. }
            | What::Hear { .. }
            | What::Append { .. }
            | What::Apply { .. }
            | What::StateHash { .. }
            | What::Heartbeat { .. }
            | What::Stage { .. } => {}
        }
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.simulated_ns += other.simulated_ns;
        self.happenings += other.happenings;
        self.turns += other.turns;
        self.messages += other.messages;
        self.calls += other.calls;
        self.answers += other.answers;
        self.raft_elections += other.raft_elections;
        self.commits += other.commits;
        self.takeovers += other.takeovers;
        self.guards += other.guards;
        self.fenced_off += other.fenced_off;
        self.unfenced_harm += other.unfenced_harm;
        self.watched += other.watched;
        self.gaps += other.gaps;
        self.crashes += other.crashes;
        self.faults += other.faults;
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.simulated_ns / 60_000_000_000;
        write!(
            f,
            "{minutes} simulated minutes, {} Raft elections, {} takeovers, {} faults ({} crashes), \
             {} commits, {} calls ({} answered), {} checks passed, {} writes fenced off \
             ({} would have done harm), {} changes watched, {} gaps",
            self.raft_elections,
            self.takeovers,
            self.faults,
            self.crashes,
            self.commits,
            self.calls,
            self.answers,
            self.guards,
            self.fenced_off,
            self.unfenced_harm,
            self.watched,
            self.gaps
        )
    }
}
