//! Committed entries become state, in slices that leave room for messages and heartbeats.

use std::time::Duration;

use raft::eraftpb::{Entry as LogEntry, SnapshotMetadata};
use regent_election::deed::Draft;
use regent_election::ledger::Slice;
use regent_election::{Applied, Effect};

use super::admission::has_room_for;
use super::requests::Waiter;
use super::{Core, Role, unavailable};
use crate::io::{Response, SnapshotTask, Token};
use crate::limits::{
    APPLY_EFFECTS_PER_SLICE, APPLY_ENTRIES_PER_TURN, APPLY_GROUPS_PER_SLICE,
    LOG_BYTES_BETWEEN_SNAPSHOTS, REPLICAS_MAX, SNAPSHOT_WHEN_IDLE_FOR,
};
use crate::member::{MemberChange, ReplicaId};
use crate::replicated::{Origin, Payload, payload};

/// An entry that is being applied, over as many turns as its size asks for. Until it is done, nothing
/// is read from the state.
#[derive(Debug)]
pub(super) struct Applying {
    index: u64,
    origin: Origin,
    /// What the recorder is to be told of it, if there is one.
    draft: Option<Draft>,
}

/// What is done of an entry before messages and heartbeats get their turn again.
const SLICE: Slice =
    Slice { groups_max: APPLY_GROUPS_PER_SLICE, effects_max: APPLY_EFFECTS_PER_SLICE };

impl Core {
    pub(super) fn apply(&mut self) {
        for _ in 0..APPLY_ENTRIES_PER_TURN {
            if self.applying.is_some() {
                if !self.advance() {
                    // The rest of a large entry comes next turn, after the messages.
                    return;
                }
                continue;
            }
            let Some(entry) = self.committed.pop_front() else { break };
            self.begin_entry(&entry);
        }
        self.leave_joint();
        self.offer_snapshot();
    }

    /// Does a slice of the entry under way; whether it is done.
    fn advance(&mut self) -> bool {
        let Some(applying) = self.applying.take() else { return true };
        let Self { ledger, held, now, .. } = self;
        let mut decided: Vec<Waiter> = Vec::new();
        let applied = ledger.advance(*now, SLICE, |effect| {
            if let Effect::SessionEnded { session } = effect {
                decided.extend(held.remove(session).into_iter().flatten());
            }
        });
        // Whoever waited for the outcome of an expiry is answered from a state in which it is applied:
        // on another replica, that may be later than here.
        for waiter in decided {
            self.confirm_one(applying.index, waiter);
        }
        let Some(applied) = applied else {
            self.applying = Some(applying);
            return false;
        };
        let Applying { index, origin, draft } = applying;
        if let Some(draft) = draft {
            let Applied { revision, answer, events, .. } = &applied;
            self.out.taped.extend(draft.complete(self.ledger.state(), *revision, answer, events));
        }
        self.finish(index, origin, applied);
        true
    }

    fn begin_entry(&mut self, entry: &LogEntry) {
        let index = entry.index;
        let payload = payload(entry)
            .expect("an entry is read before it is stored, and before it is started from");
        match payload {
            Payload::Empty => self.applied_to(index),
            Payload::Proposal(origin, proposal) => {
                if self.ledger.kept_mut().admit(origin) && !self.config.is_witness {
                    let state = self.ledger.state();
                    let draft = self.config.is_taped.then(|| Draft::of(state, &proposal));
                    self.ledger.begin(proposal);
                    self.applying = Some(Applying { index, origin, draft });
                } else {
                    self.applied_to(index);
                }
            }
            Payload::Release => {
                self.ledger.kept_mut().release();
                self.released_at = None;
                self.applied_to(index);
            }
            Payload::Members(change) => {
                // An honest leader has checked it. One that Raft cannot apply, or that adds too many, means the same to
                // all replicas: nothing.
                let is_known = self.ledger.kept_mut().change_members(&change);
                let is_fitting = is_known && has_room_for(self.node.store().members(), &change);
                let applied =
                    is_fitting.then(|| self.node.apply_conf_change(&change.to_raft()).ok());
                let members = applied.flatten();
                let is_applied = members.is_some();
                if let Some(members) = members {
                    self.node.mut_store().set_members(members);
                }
                self.applied_to(index);
                if is_applied {
                    self.members_changed(&change);
                }
            }
        }
    }

    fn applied_to(&mut self, index: u64) {
        self.applied = index;
        self.applied_at = self.now;
        self.node.advance_apply_to(index);
        self.notice_role();
    }

    /// Tells watchers and, if it was ours, the client that asked. Everything is timed already.
    fn finish(&mut self, index: u64, origin: Origin, applied: Applied) {
        self.applied_to(index);
        let Applied { revision, answer, events, .. } = applied;
        self.out.events.push((revision, events));
        let is_ours = origin.replica == self.config.id && origin.boot == self.config.boot;
        if is_ours && let Some(pending) = self.pending.remove(&origin.number) {
            let view = pending.query.as_ref().map(|query| self.read(query));
            self.answer(pending.token, Response::Applied { answer, revision, view });
        }
    }

    /// Whoever leads and sees a joint configuration with nothing pending proposes to leave it.
    fn leave_joint(&mut self) {
        let is_joint = !self.node.store().members().voters_outgoing.is_empty();
        if is_joint && self.role == Role::Leader && !self.node.raft.has_pending_conf() {
            self.propose_members(&MemberChange::LeaveJoint);
        }
    }

    fn propose_members(&mut self, change: &MemberChange) -> bool {
        let mut context = Vec::new();
        change.put(&mut context);
        self.node.propose_conf_change(context, change.to_raft()).is_ok()
    }

    /// Checks a change of members and proposes it; it is answered when it is complete.
    pub(super) fn change_members(&mut self, token: Token, change: MemberChange) {
        if let Some(why) = self.objection(&change) {
            self.refuse(token, unavailable(&why));
            return;
        }
        if self.propose_members(&change) {
            self.member_change = Some((Some(token), change));
        } else {
            self.refuse(token, unavailable("the log takes nothing at the moment"));
        }
    }

    fn objection(&self, change: &MemberChange) -> Option<String> {
        let members = self.node.store().members();
        let is_voter = |id: &ReplicaId| members.voters.contains(&id.get());
        let is_learner = |id: &ReplicaId| members.learners.contains(&id.get());
        if self.role != Role::Leader {
            return Some(self.leader().map_or_else(
                || "no Raft leader is known; ask again".into(),
                |leader| format!("replica {leader} leads; ask it"),
            ));
        }
        if self.node.raft.has_pending_conf() || !members.voters_outgoing.is_empty() {
            return Some("another change of members is under way; ask again".into());
        }
        match change {
            MemberChange::Add { id, .. } if is_voter(id) || is_learner(id) => {
                Some(format!("replica {id} is a member already"))
            }
            MemberChange::Add { id, .. } if id.get() <= self.ledger.kept().highest => {
                let next = self.ledger.kept().highest.saturating_add(1);
                Some(format!("the number {id} was used before; take {next} or more"))
            }
            MemberChange::Add { .. }
                if members.voters.len() + members.learners.len() >= REPLICAS_MAX =>
            {
                Some(format!("a cluster has at most {REPLICAS_MAX} replicas; remove one first"))
            }
            MemberChange::Add { .. } => None,
            MemberChange::Promote { id } if !is_learner(id) => {
                Some(format!("replica {id} is no learner"))
            }
            MemberChange::Promote { id } => self.status().objection_to_promoting(*id),
            MemberChange::Remove { id } if !is_voter(id) && !is_learner(id) => {
                Some(format!("replica {id} is no member"))
            }
            MemberChange::Remove { id } if is_voter(id) && members.voters.len() == 1 => {
                Some("the last voter cannot be removed".into())
            }
            MemberChange::Remove { id } if *id == self.config.id => {
                Some("a Raft leader does not remove itself: transfer first".into())
            }
            MemberChange::Remove { id } => self.status().objection_to_removing(*id),
            MemberChange::LeaveJoint => Some("there is no joint configuration to leave".into()),
        }
    }

    fn members_changed(&mut self, change: &MemberChange) {
        self.out.members_changed = true;
        if let MemberChange::Remove { id } = change {
            // Its number is never used again.
            self.taken.remove(id);
            self.answered_at.remove(id);
        }
        let is_joint = !self.node.store().members().voters_outgoing.is_empty();
        let id = self.config.id.get();
        let members = self.node.store().members();
        let is_member = members.voters.contains(&id) || members.learners.contains(&id);
        if self.role == Role::Leader && !is_member && !is_joint {
            // The library lets a removed leader lead on; nobody would ever follow another.
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, 0);
        }
        let is_ours = self
            .member_change
            .as_ref()
            .is_some_and(|(_, ours)| ours == change || *change == MemberChange::LeaveJoint);
        if is_ours
            && !is_joint
            && let Some((Some(token), _)) = self.member_change.take()
        {
            self.answer(token, Response::Done);
        }
    }

    /// Hands Raft leadership over, to the one named or to the most advanced voter.
    pub(super) fn transfer(&mut self, token: Token, to: Option<ReplicaId>) {
        if self.role != Role::Leader {
            self.refuse(token, unavailable("this replica does not lead"));
            return;
        }
        let own = self.config.id.get();
        let target = match to {
            Some(to) => self.node.store().members().voters.contains(&to.get()).then_some(to.get()),
            None => self.best_successor(),
        };
        match target {
            Some(target) if target != own => {
                self.node.transfer_leader(target);
                self.answer(token, Response::Done);
            }
            Some(_) => self.answer(token, Response::Done),
            None => self.refuse(token, unavailable("there is no other voter to hand over to")),
        }
    }

    /// The voters beside this one that were heard lately and may serve, with how far they are.
    pub(super) fn successors(&self) -> impl Iterator<Item = (u64, u64)> {
        let own = self.config.id.get();
        let progress = self.node.raft.prs();
        let voters = self.node.store().members().voters.iter().copied();
        voters
            .filter(move |id| *id != own && !self.is_witness(*id))
            .filter_map(|id| Some((progress.get(id)?, id)))
            .filter(|(progress, _)| progress.recent_active)
            .map(|(progress, id)| (progress.matched, id))
    }

    /// The most advanced of them.
    fn best_successor(&self) -> Option<u64> {
        self.successors().max().map(|(_, id)| id)
    }

    /// Nobody who could lead is heard here, but a witness may hear somebody, and votes for nobody else as
    /// long as this one leads. So the witness is given leadership: it hands it to whoever it hears, or
    /// back.
    pub(super) fn give_to_witness(&mut self) {
        let progress = self.node.raft.prs();
        let mut voters = self.node.store().members().voters.iter().copied();
        let witness = voters.find(|id| {
            self.is_witness(*id) && progress.get(*id).is_some_and(|progress| progress.recent_active)
        });
        if let Some(witness) = witness
            && self.is_burdened_for_long()
        {
            self.given_away += 1;
            self.burdened_since = None;
            self.node.transfer_leader(witness);
        }
    }

    /// Whether it has led too long by now. Four times longer each time, if nobody else could: a new Raft
    /// leader owes every session a full ttl, and those must come to their end.
    fn is_burdened_for_long(&mut self) -> bool {
        let since = *self.burdened_since.get_or_insert(self.now);
        self.now.since(since) >= self.respite() * 4u32.saturating_pow(self.given_away.min(8))
    }

    /// Longer than anybody waits between two campaigns.
    pub(super) const fn respite(&self) -> Duration {
        Duration::from_millis(10 * self.timing.election_ms_max())
    }

    /// Whether it is a witness that laid leadership down and neither campaigns nor takes it yet: whoever
    /// was not heard of may have waited for long, and waits long between two campaigns.
    pub(super) fn makes_way(&self) -> bool {
        self.laid_down_at.is_some_and(|at| self.now.since(at) < self.respite())
    }

    /// Whether somebody else leads who has the state to do it.
    pub(super) fn is_led_by_another(&self) -> bool {
        let leader = self.node.raft.leader_id;
        leader != 0 && leader != self.node.raft.id && !self.is_witness(leader)
    }

    fn is_witness(&self, id: u64) -> bool {
        let member = ReplicaId::new(id).and_then(|id| self.ledger.kept().members.get(&id));
        member.is_some_and(|member| member.is_witness)
    }

    /// A witness that leads does one thing: it brings the best full voter up to date and hands over. One
    /// that gave it leadership, or did not take it, comes last, and only after all others had time to be
    /// heard.
    ///
    /// It may lack what the only one it hears needs, while another one that it does not hear has it: then
    /// it lays leadership down, and nobody misses it.
    pub(super) fn hand_over_if_witness(&mut self) {
        if !self.config.is_witness || self.role != Role::Leader {
            return;
        }
        let raft = &self.node.raft;
        if raft.commit_to_current_term() && raft.lead_transferee.is_none() {
            let is_wanted = |id: u64| self.least_wanted != id;
            let best =
                self.successors().max_by_key(|(matched, id)| (is_wanted(*id), *matched, *id));
            let others_had = Duration::from_millis(self.timing.election_ms_min());
            if let Some((_, target)) = best
                && (is_wanted(target) || self.now.since(self.led_since) >= others_had)
            {
                self.least_wanted = target;
                self.node.transfer_leader(target);
            }
        }
        if self.is_burdened_for_long() {
            self.given_away += 1;
            self.laid_down_at = Some(self.now);
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, 0);
            self.notice_role();
        }
    }

    /// Asks for a snapshot when the log has grown enough since the last one. Much less is enough while
    /// nothing happens: it frees the memory, and makes a restart quick, when that costs nobody anything.
    fn offer_snapshot(&mut self) {
        let log = self.node.store();
        let last = log.snapshot_place().index;
        if self.snapshot_task.is_some() || self.applied <= last || self.now < self.snapshot_again_at
        {
            return;
        }
        let grown = self.applied - last;
        let is_idle = self.now.since(self.applied_at) >= SNAPSHOT_WHEN_IDLE_FOR;
        let is_due = grown >= self.config.snapshot_every
            || (is_idle && grown >= self.config.snapshot_every / 10)
            || log.bytes() >= LOG_BYTES_BETWEEN_SNAPSHOTS;
        if !is_due && !log.take_wanted() {
            return;
        }
        let Some(term) = log.term_of(self.applied) else { return };
        let mut place = SnapshotMetadata::default();
        place.index = self.applied;
        place.term = term;
        place.set_conf_state(log.members().clone());
        let entries = log.slice(last + 1, self.applied + 1).to_vec();
        let has_no_state = self.config.is_witness;
        self.snapshot_task = Some(self.applied);
        self.out.snapshot = Some(SnapshotTask { place, entries, has_no_state });
    }
}
