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
use regent_election::{Command, Entry, Moment, Refusal, RequestId, StateGrowth};

use super::growth::Added;
use super::{Core, Role, unavailable};
use crate::io::{Decline, PeerMessage, Token};
use crate::limits::PROPOSALS_MAX;
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
    /// The Raft leader that it was sent to, and that alone may decline it; none if that is this replica.
    pub(super) sent_to: Option<ReplicaId>,
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
        let mut grows = Added::default();
        // It must not be passed over as silent by its own campaign.
        let mut heard = BTreeSet::new();
        for submission in std::mem::take(&mut self.submissions) {
            match submission {
                Submission::Local { token, command, request, query, since } => {
                    if self.pending.len() >= PROPOSALS_MAX || !self.may_write(&command) {
                        self.refuse(token, self.why_not(&command));
                        continue;
                    }
                    match self.check_budget(&command, request.as_ref(), &grows) {
                        Ok(growth) => grows.note(&command, growth),
                        Err(refusal) => {
                            self.refuse(token, refusal.into());
                            continue;
                        }
                    }
                    heard.extend(self.ledger.asker(&command));
                    self.numbers += 1;
                    let number = self.numbers;
                    let sent_to = None;
                    self.pending.insert(number, Pending { token, query, since, sent_to });
                    locals.push(number);
                    let origin = Origin { replica: self.config.id, boot: self.config.boot, number };
                    let entry = self.ledger.entry(*command, request, self.wall_ms, &heard);
                    entries.push(log_entry(origin, &entry));
                }
                Submission::Remote { replica, boot, number, .. }
                    if self.is_taken(replica, boot, number)
                        && !mutant::is(Mutant::DuplicatesApplied) => {}
                Submission::Remote { replica, boot, number, command, request } => {
                    // At once: a second copy in this very batch must not be declined after the first was taken.
                    self.note_taken(replica, boot, number);
                    match self.check_remote(&command, request.as_ref(), &grows) {
                        Ok(growth) => grows.note(&command, growth),
                        Err(why) => {
                            declined.push((replica, boot, number, why));
                            continue;
                        }
                    }
                    heard.extend(self.ledger.asker(&command));
                    remotes.push((replica, boot, number));
                    let origin = Origin { replica, boot, number };
                    let entry = self.ledger.entry(command, request, self.wall_ms, &heard);
                    entries.push(log_entry(origin, &entry));
                }
            }
        }
        if entries.is_empty() || self.step_proposal(entries) {
            self.growth.appended(self.node.raft.raft_log.last_index(), grows);
            for session in heard {
                self.ledger.shows_life(self.now, session);
            }
            self.decline(declined);
            return;
        }
        for number in locals {
            if let Some(pending) = self.pending.remove(&number) {
                self.refuse(pending.token, unavailable("the log takes nothing at the moment"));
            }
        }
        let unable = |(replica, boot, number)| (replica, boot, number, Decline::Unable);
        self.decline(remotes.into_iter().map(unable).chain(declined));
    }

    /// Whether a change that another replica's client asks for may be appended, and how much it adds.
    fn check_remote(
        &mut self,
        command: &Command,
        request: Option<&RequestId>,
        grows: &Added,
    ) -> Result<StateGrowth, Decline> {
        if command.is_for_drivers() || self.is_held_back(command) {
            return Err(Decline::Unable);
        }
        if !self.may_write(command) {
            return Err(Decline::DiskFull);
        }
        self.check_budget(command, request, grows).map_err(|refusal| {
            if let Refusal::StateFull { used, adds, max } = refusal {
                Decline::StateFull { used, adds, max }
            } else if let Refusal::ShareFull { who, used, adds, max } = refusal {
                Decline::ShareFull { who, used, adds, max }
            } else {
                Decline::Unable
            }
        })
    }

    /// Hands entries to Raft in one message; false means that none of them was appended.
    fn step_proposal(&mut self, entries: Vec<LogEntry>) -> bool {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.config.id.get();
        message.set_entries(entries.into());
        self.node.raft.step(message).is_ok()
    }

    /// Proposes what time has brought; what is not appended goes back.
    pub(super) fn propose_own(&mut self, command: Command) {
        self.numbers += 1;
        let number = self.numbers;
        let origin = Origin { replica: self.config.id, boot: self.config.boot, number };
        let entry = self.ledger.entry(command, None, self.wall_ms, &BTreeSet::new());
        if !self.step_proposal(vec![log_entry(origin, &entry)]) {
            self.ledger.not_proposed(&entry.command);
        }
    }

    /// Proposes to end the hold after a restore; false means that it was not appended.
    pub(super) fn propose_release(&mut self) -> bool {
        let mut entry = LogEntry::default();
        entry.context = RELEASE.to_vec().into();
        self.step_proposal(vec![entry])
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
            if let Err(refusal) = self.check_budget(&command, request.as_ref(), &Added::default()) {
                self.refuse(token, refusal.into());
                continue;
            }
            self.numbers += 1;
            let number = self.numbers;
            let sent_to = Some(leader);
            self.pending.insert(number, Pending { token, query, since, sent_to });
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
                let is_first = !self.is_taken(replica, boot, number);
                is_first.then_some((replica, boot, number, Decline::Unable))
            }
            Submission::Local { .. } => None,
        });
        let first: Vec<_> = first.collect();
        self.decline(first);
    }

    /// Says that proposals were not appended and never will be. They have come for the first time: of one
    /// that was appended before nothing is said, its origin sees it applied or stays uncertain.
    fn decline(&mut self, proposals: impl IntoIterator<Item = (ReplicaId, u64, u64, Decline)>) {
        for (replica, boot, number, why) in proposals {
            self.out.sends.push((replica, PeerMessage::Declined { boot, number, why }));
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

    /// Without room only what frees something or confirms a promotion is taken; after a restore
    /// nobody stands before the leases of the earlier life are over.
    const fn may_write(&self, command: &Command) -> bool {
        !self.is_held_back(command) && (self.has_room || command.passes_full_disk())
    }

    const fn is_held_back(&self, command: &Command) -> bool {
        self.ledger.kept().grants_paused && command.waits_after_restore()
    }

    fn why_not(&self, command: &Command) -> StoreError {
        if self.may_write(command) {
            unavailable("too many changes wait")
        } else if self.is_held_back(command) {
            hold_refusal(self.grants_paused_for().unwrap_or_default())
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

/// Why a restored cluster grants nothing yet, and for how long.
pub(crate) fn hold_refusal(left: Duration) -> StoreError {
    let seconds = left.as_millis().div_ceil(1000);
    let why = format!(
        "it was restored and grants nothing for another {seconds} s: leases granted before that may still run"
    );
    StoreError::Unavailable { why, retry_after: Some(left) }
}

/// A proposal as Raft carries it.
fn log_entry(origin: Origin, proposal: &Entry) -> LogEntry {
    let mut entry = LogEntry::default();
    entry.data = encode_proposal(origin, proposal).into();
    entry
}
