//! Changes on their way into the log.
//!
//! A replica that leads appends its own and its followers' proposals in one batch; one that follows
//! sends its own to the leader, once. A proposal is never sent twice: whoever does not see it applied
//! within the deadline answers `uncertain`, and the request id makes the client's retry safe. The network
//! may deliver one twice, or after a later one: that would be applied by nobody, and is no sign of life.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use raft::eraftpb::{Entry as LogEntry, Message, MessageType};
use regent_election::mutant::{self, Mutant};
use regent_election::state::Query;
use regent_election::store::StoreError;
use regent_election::{Command, Entry, Group, Moment, RequestId, SessionNo, Step};

use super::{Core, Role, unavailable};
use crate::io::{PeerMessage, Token};
use crate::limits::{PROPOSALS_MAX, SILENT_LOOKED_AT_MAX, SILENT_WHOLE_MAX};
use crate::member::ReplicaId;
use crate::replicated::{Origin, RELEASE, encode_proposal};

/// A change that waits to be proposed or sent to the leader.
#[derive(Debug)]
pub(super) enum Submission {
    Local {
        token: Token,
        command: Box<Command>,
        request: Option<RequestId>,
        query: Option<Query>,
        since: Moment,
    },
    Remote {
        replica: ReplicaId,
        boot: u64,
        number: u64,
        command: Command,
        request: Option<RequestId>,
    },
}

/// A proposal of this replica's client that was appended or sent.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) token: Token,
    pub(super) query: Option<Query>,
    pub(super) since: Moment,
}

impl Core {
    /// Appends or forwards everything that waits.
    pub(super) fn propose(&mut self) {
        if self.submissions.is_empty() {
            return;
        }
        match (self.role, self.leader()) {
            // A witness leads to hand over, and takes nothing.
            (Role::Leader, _) if self.config.is_witness => self.decline_remote(),
            (Role::Leader, _) => self.append_submissions(),
            (Role::Follower | Role::Candidate, Some(leader)) => self.forward_submissions(leader),
            // Nobody leads: what came from others is declined, what is our own waits its time.
            (Role::Follower | Role::Candidate, None) => self.decline_remote(),
        }
    }

    fn append_submissions(&mut self) {
        let mut entries = Vec::new();
        let mut locals = Vec::new();
        let mut remotes = Vec::new();
        let mut declined = Vec::new();
        let mut heard = BTreeSet::new();
        for submission in std::mem::take(&mut self.submissions) {
            match submission {
                Submission::Local { token, command, request, query, since } => {
                    if self.pending.len() >= PROPOSALS_MAX || !self.may_write(&command) {
                        self.refuse(token, self.why_not(&command));
                        continue;
                    }
                    heard.extend(self.session_of(&command));
                    self.numbers += 1;
                    let number = self.numbers;
                    self.pending.insert(number, Pending { token, query, since });
                    locals.push(number);
                    let origin = Origin { replica: self.config.id, boot: self.config.boot, number };
                    entries.push(self.log_entry(origin, *command, request, &heard));
                }
                Submission::Remote { replica, boot, number, .. }
                    if self.is_taken(replica, boot, number)
                        && !mutant::is(Mutant::DuplicatesApplied) => {}
                Submission::Remote { replica, boot, number, command, request } => {
                    let is_for_drivers = matches!(
                        command,
                        Command::Expire { .. } | Command::Elapsed { .. } | Command::Refill { .. }
                    );
                    if is_for_drivers || !self.may_write(&command) {
                        declined.push((replica, boot, number));
                        continue;
                    }
                    heard.extend(self.session_of(&command));
                    remotes.push((replica, boot, number));
                    let origin = Origin { replica, boot, number };
                    entries.push(self.log_entry(origin, command, request, &heard));
                }
            }
        }
        if entries.is_empty() || self.step_proposal(entries) {
            for (replica, boot, number) in remotes {
                self.note_taken(replica, boot, number);
            }
            for session in heard {
                let _ = self.deadlines.heard(session, None, self.now);
            }
            self.decline(declined);
            return;
        }
        for number in locals {
            if let Some(pending) = self.pending.remove(&number) {
                self.refuse(pending.token, unavailable("the log takes nothing at the moment"));
            }
        }
        self.decline(remotes.into_iter().chain(declined));
    }

    /// Whose wish it is. Whatever is appended for a session is a sign of life: it must not be passed over
    /// as silent by its own campaign.
    fn session_of(&self, command: &Command) -> Option<SessionNo> {
        command.session().and_then(|id| self.whole.state.find_session(id))
    }

    /// Hands entries to Raft in one message; false means that none of them was appended.
    fn step_proposal(&mut self, entries: Vec<LogEntry>) -> bool {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.config.id.get();
        message.set_entries(entries.into());
        self.node.raft.step(message).is_ok()
    }

    /// Proposes something that no client asked for; false means that it was not appended.
    pub(super) fn propose_own(&mut self, command: Command) -> bool {
        self.numbers += 1;
        let number = self.numbers;
        let origin = Origin { replica: self.config.id, boot: self.config.boot, number };
        let entry = self.log_entry(origin, command, None, &BTreeSet::new());
        self.step_proposal(vec![entry])
    }

    /// Proposes to end the hold after a restore; false means that it was not appended.
    pub(super) fn propose_release(&mut self) -> bool {
        let mut entry = LogEntry::default();
        entry.context = RELEASE.to_vec().into();
        self.step_proposal(vec![entry])
    }

    /// The entry with what travels beside the command: who is silent, save for those just `heard`.
    fn log_entry(
        &self,
        origin: Origin,
        command: Command,
        request: Option<RequestId>,
        heard: &BTreeSet<SessionNo>,
    ) -> LogEntry {
        let mut silent = self.silent_for(&command);
        silent.retain(|session| !heard.contains(session));
        let proposal = Entry { command, request, silent, wall_ms: self.wall_ms };
        let mut entry = LogEntry::default();
        entry.data = encode_proposal(origin, &proposal).into();
        entry
    }

    /// The silent sessions among the standbys that a command may promote.
    fn silent_for(&self, command: &Command) -> Vec<SessionNo> {
        if mutant::is(Mutant::SilentPromoted) {
            return Vec::new();
        }
        let promotes_nobody = matches!(
            command,
            Command::Open { .. }
                | Command::ChangeTtl { .. }
                | Command::Accept { .. }
                | Command::Warm { .. }
        );
        if promotes_nobody {
            return Vec::new();
        }
        let silent: &BTreeSet<SessionNo> = self.deadlines.silent();
        if silent.len() <= SILENT_WHOLE_MAX {
            return silent.iter().copied().collect();
        }
        let groups = self.concerned(command);
        let standbys = groups.iter().flat_map(|group| self.whole.state.standbys(group));
        let concerned: BTreeSet<SessionNo> =
            standbys.take(SILENT_LOOKED_AT_MAX).filter(|no| silent.contains(no)).collect();
        concerned.into_iter().collect()
    }

    /// The groups in which a command may promote somebody.
    fn concerned(&self, command: &Command) -> Vec<Group> {
        let state = &self.whole.state;
        let of_session = |session: SessionNo| {
            state.led_by(session).chain(state.stood_by(session)).cloned().collect::<Vec<_>>()
        };
        match command {
            Command::Open { .. }
            | Command::ChangeTtl { .. }
            | Command::Accept { .. }
            | Command::Admit { .. }
            | Command::ForgetFence { .. }
            | Command::Report { .. }
            | Command::Warm { .. } => Vec::new(),
            Command::Close { session } => {
                state.find_session(*session).map(of_session).unwrap_or_default()
            }
            Command::Expire { sessions } => {
                sessions.iter().flat_map(|session| of_session(*session)).collect()
            }
            Command::Refill { session } => of_session(*session),
            // It may concern any group; those that would be filled are the vacant ones.
            Command::PutSettings { .. } => state.stranded().cloned().collect(),
            Command::Campaign { group, .. }
            | Command::Withdraw { group, .. }
            | Command::Resign { group, .. }
            | Command::Offer { group, .. }
            | Command::Relieve { group, .. }
            | Command::Transfer { group, .. }
            | Command::StepDown { group, .. }
            | Command::PutPolicy { group, .. }
            | Command::Move { group, .. }
            | Command::Delete { group }
            | Command::Elapsed { group, .. } => vec![group.clone()],
        }
    }

    fn forward_submissions(&mut self, leader: ReplicaId) {
        self.decline_remote();
        let boot = self.config.boot;
        for submission in std::mem::take(&mut self.submissions) {
            let Submission::Local { token, command, request, query, since } = submission else {
                continue;
            };
            if self.pending.len() >= PROPOSALS_MAX {
                self.refuse(token, unavailable("too many changes wait"));
                continue;
            }
            if self.is_held_back(&command) {
                // The leader would decline it without a word; here it is known why.
                self.refuse(token, self.why_not(&command));
                continue;
            }
            self.numbers += 1;
            let number = self.numbers;
            self.pending.insert(number, Pending { token, query, since });
            let message = PeerMessage::Propose { boot, number, command: *command, request };
            self.out.sends.push((leader, message));
        }
    }

    /// One hop only: what another replica sent here because it took us for the leader goes back.
    fn decline_remote(&mut self) {
        let (remote, local): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.submissions)
            .into_iter()
            .partition(|submission| matches!(submission, Submission::Remote { .. }));
        self.submissions = local;
        let first = remote.into_iter().filter_map(|submission| match submission {
            Submission::Remote { replica, boot, number, .. } => {
                (!self.is_taken(replica, boot, number)).then_some((replica, boot, number))
            }
            Submission::Local { .. } => None,
        });
        let first: Vec<_> = first.collect();
        self.decline(first);
    }

    /// Says that proposals were not appended and never will be. They have come for the first time: of one
    /// that was appended before nothing is said, its origin sees it applied or stays uncertain.
    fn decline(&mut self, proposals: impl IntoIterator<Item = (ReplicaId, u64, u64)>) {
        for (replica, boot, number) in proposals {
            self.out.sends.push((replica, PeerMessage::Declined { boot, number }));
            // What the network delivers again must not make that untrue.
            self.note_taken(replica, boot, number);
        }
    }

    fn note_taken(&mut self, replica: ReplicaId, boot: u64, number: u64) {
        let taken = self.taken.entry(replica).or_default();
        *taken = (*taken).max((boot, number));
    }

    /// Whether this proposal of another replica, or a later one, was appended or declined here before.
    fn is_taken(&self, replica: ReplicaId, boot: u64, number: u64) -> bool {
        self.taken.get(&replica).is_some_and(|taken| (boot, number) <= *taken)
    }

    /// Without room only what frees an office or a session is taken; after a restore nobody stands
    /// before the leases of the earlier life are over.
    const fn may_write(&self, command: &Command) -> bool {
        if self.is_held_back(command) {
            return false;
        }
        self.has_room
            || matches!(
                command,
                Command::Close { .. }
                    | Command::Withdraw { .. }
                    | Command::Resign { .. }
                    | Command::Expire { .. }
                    | Command::Elapsed { .. }
            )
    }

    /// Nobody stands before the leases of an earlier life are over, nobody changes the longest ttl, by
    /// which that is measured, and no group leaves: its office looks vacant, and may not be.
    const fn is_held_back(&self, command: &Command) -> bool {
        self.whole.is_held
            && matches!(
                command,
                Command::Campaign { .. }
                    | Command::PutSettings { .. }
                    | Command::Move { step: Step::Depart { .. } | Step::Arrive { .. }, .. }
            )
    }

    fn why_not(&self, command: &Command) -> StoreError {
        if self.may_write(command) {
            unavailable("too many changes wait")
        } else if self.is_held_back(command) {
            let retry_after = self.released_at.map(|at| self.now.until(at));
            let why = "it was restored, and leases granted before that may still run".into();
            StoreError::Unavailable { why, retry_after }
        } else {
            unavailable("the disk of the Raft leader is full")
        }
    }

    /// What was never sent is a definite no; what was is uncertain.
    pub(super) fn time_out_proposals(&mut self) {
        let now = self.now;
        let unsent_for = Duration::from_millis(2 * self.timing.election_ms_max());
        while let Some(Submission::Local { since, token, .. }) = self.submissions.front()
            && now.since(*since) >= unsent_for
        {
            let token = *token;
            self.submissions.pop_front();
            self.refuse(token, unavailable("no Raft leader is known"));
        }
        let sent_for = Duration::from_millis(10 * self.timing.election_ms_max());
        while let Some(entry) = self.pending.first_entry()
            && now.since(entry.get().since) >= sent_for
        {
            let pending = entry.remove();
            let why = "the change was sent to the Raft leader and has not come back".into();
            self.refuse(pending.token, StoreError::Uncertain { why });
        }
    }
}
