//! The operator: replaces replicas whose disk is lost, step by step, as the manual says.
//!
//! Remove the dead one, add another as a learner, start it with an empty disk, promote it when it has
//! caught up. Each step looks at the cluster first, because any answer may have been lost.

use std::collections::BTreeMap;

use regent_replica::{MemberChange, Role, Status};

use super::net::Address;
use super::parcel::{Ask, Parcel, told};
use super::{Client, Happening, Timer, World, replica_id, seat};
use crate::history::{Proc, What};
use crate::world::disk::Disk;

const OPERATOR_POLL_EVERY_NS: u64 = 300_000_000;
const PATIENCE_NS: u64 = 1_500_000_000;

/// The client that changes members.
#[derive(Debug, Default)]
pub(super) struct Operator {
    number: u32,
    /// Who is replaced by whom.
    replacements: BTreeMap<u64, u64>,
    waiting: Option<(u64, u64)>,
}

impl World {
    /// Adds the operator.
    pub(super) fn add_operator(&mut self) -> u32 {
        let number = self.clients.len() as u32 + 1;
        let operator = Operator { number, ..Operator::default() };
        self.clients.insert(number, Client::Operator(operator));
        self.queue.push(self.now, Happening::Client { number, run: 1, timer: Timer::Act });
        number
    }

    /// Orders the replacement of a replica by another one with an empty disk.
    pub fn replace(&mut self, lost: u64) -> Option<u64> {
        let number = self.clients.iter().find_map(|(number, client)| {
            matches!(client, Client::Operator(_)).then_some(*number)
        })?;
        self.replicas_made += 1;
        let fresh = self.replicas_made;
        let settings = self.history.setup.settings.clone();
        let disk = Disk::empty(self.plan.disk.medium, replica_id(fresh), &settings);
        self.add_replica(fresh, disk);
        if let Some(Client::Operator(operator)) = self.clients.get_mut(&number) {
            operator.replacements.insert(lost, fresh);
        }
        Some(fresh)
    }

    /// Whether every replacement is done.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.clients.values().all(|client| match client {
            Client::Operator(operator) => operator.replacements.is_empty(),
            Client::Member(_) | Client::Caller(_) | Client::Watcher(_) => true,
        })
    }

    pub(super) fn operator_timer(&mut self, number: u32) {
        let now = self.now;
        let at = now + OPERATOR_POLL_EVERY_NS;
        self.queue.push(at, Happening::Client { number, run: 1, timer: Timer::Act });
        let Some(status) = self.leading_status() else { return };
        let Some(Client::Operator(operator)) = self.clients.get_mut(&number) else { return };
        if let Some((call, until)) = operator.waiting {
            if now < until {
                return;
            }
            operator.waiting = None;
            self.note(Proc::Client { number, run: 1 }, What::Info { call });
        }
        let Some(Client::Operator(operator)) = self.clients.get(&number) else { return };
        let Some((lost, fresh)) = operator.replacements.first_key_value() else { return };
        let (lost, fresh) = (*lost, *fresh);
        if status.is_joint {
            return;
        }
        let is_in = |list: &[regent_replica::ReplicaId], id: u64| {
            list.iter().any(|member| member.get() == id)
        };
        let change = if is_in(&status.voters, lost) || is_in(&status.learners, lost) {
            MemberChange::Remove { id: replica_id(lost) }
        } else if is_in(&status.voters, fresh) {
            if let Some(Client::Operator(operator)) = self.clients.get_mut(&number) {
                operator.replacements.remove(&lost);
            }
            return;
        } else if is_in(&status.learners, fresh) {
            self.start_replica(fresh);
            MemberChange::Promote { id: replica_id(fresh) }
        } else {
            MemberChange::Add { id: replica_id(fresh), member: seat(fresh, false) }
        };
        self.ask_members(number, status.id.get(), change);
    }

    fn ask_members(&mut self, number: u32, to: u64, change: MemberChange) {
        self.calls += 1;
        let call = self.calls;
        let ask = Ask::Members(change);
        if let Some(Client::Operator(operator)) = self.clients.get_mut(&number) {
            operator.waiting = Some((call, self.now + PATIENCE_NS));
        }
        let op = ask.op();
        self.note(Proc::Client { number, run: 1 }, What::Invoke { call, op });
        self.send(Address::Client(number), Address::Replica(to), Parcel::Ask { call, ask });
    }

    pub(super) fn arrive_at_operator(&mut self, number: u32, parcel: &Parcel) {
        let Parcel::Reply { call, response } = parcel else { return };
        let Some(Client::Operator(operator)) = self.clients.get_mut(&number) else { return };
        if operator.waiting.take_if(|(waiting, _)| waiting == call).is_none() {
            return;
        }
        let proc = Proc::Client { number: operator.number, run: 1 };
        self.note(proc, told(*call, response));
    }

    /// The condition of the Raft leader of the highest term, if one lives.
    #[must_use]
    pub fn leading_status(&self) -> Option<Status> {
        let running = self.replicas.values().filter_map(|replica| replica.running.as_ref());
        running
            .filter(|running| running.core.role() == Role::Leader)
            .max_by_key(|running| running.core.raft_term())
            .map(|running| running.core.status())
    }
}
