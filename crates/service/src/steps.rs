//! What an operator does next, on this machine and on the others, after a replica was founded.

use std::cmp::Ordering;

use regent_election::Term;
use regent_replica::{Members, ReplicaId};

use crate::duration::show_ms;
use crate::founding::Founded;
use crate::restore::{Restored, together_s};

/// After a replica was prepared to join.
#[must_use]
pub fn join_steps(id: ReplicaId, directory: &str) -> String {
    format!(
        "replica {id} is ready to join, in {directory}\nnext:\n  \
         regent serve --data-dir {directory} --listen ADDR:PORT --peer-listen ADDR:PORT\n  \
         regent cluster add --id {id} --peer HOST:PORT --client HOST:PORT\n  \
         regent cluster promote {id}"
    )
}

impl Founded {
    /// After a replica of a new cluster was founded, the first one or another.
    #[must_use]
    pub fn next_steps(&self, is_first: bool, members: &Members) -> String {
        let mut text = String::new();
        if is_first && self.voters > 1 {
            text.push_str("\n\non the other machines, with the same list and settings:");
            for id in self.others() {
                text.push_str(&format!(
                    "\n  regent cluster init --id {id} --members {}{} --cluster-id {}",
                    self.members,
                    self.witness_flag(),
                    self.cluster_id
                ));
            }
        }
        let own = members.iter().find(|(id, _)| id.get() == self.replica);
        if let Some((_, own)) = own {
            text.push_str(&format!(
                "\n\nthen, here:\n  regent serve --data-dir {} --listen {} --peer-listen {}",
                self.data_dir, own.client_address, own.peer_address
            ));
        }
        text
    }

    /// The numbers of the other members.
    fn others(&self) -> impl Iterator<Item = &str> {
        let own = self.replica.to_string();
        let ids = self.members.split(',').filter_map(|part| part.split('=').next());
        ids.filter(move |id| *id != own)
    }

    /// `--witness` as it was given.
    fn witness_flag(&self) -> String {
        self.witnesses.iter().map(|id| format!(" --witness {id}")).collect()
    }
}

/// How a cluster was restored on the first machine: the others need the same.
#[derive(Clone, Copy, Debug)]
pub struct RestoredBy<'a> {
    /// The backup, as it was named.
    pub from: &'a str,
    pub term_floor: Term,
    /// Whether this machine was the first.
    pub is_first: bool,
}

impl Restored {
    /// After a replica of a restored cluster was founded.
    #[must_use]
    pub fn next_steps(&self, by: RestoredBy<'_>) -> String {
        let Self { founded, as_of_s, hold_ms, .. } = self;
        let mut text = String::new();
        if by.is_first && founded.voters > 1 {
            let longest =
                self.ttl_ms_told().map(|ms| format!(" --ttl-max {ms}ms")).unwrap_or_default();
            let within = show_ms(together_s(*hold_ms) * 1000);
            text.push_str(&format!("\n\non the other machines, within {within}:"));
            for id in founded.others() {
                text.push_str(&format!(
                    "\n  regent cluster restore --from {} --id {id} --members {}{} --term-floor {} --cluster-id {} --as-of {as_of_s}{longest}",
                    by.from,
                    founded.members,
                    founded.witness_flag(),
                    by.term_floor.get(),
                    founded.cluster_id
                ));
            }
        }
        let (hold, of_backup) = (show_ms(*hold_ms), show_ms(self.hold_ms_of_backup));
        text.push_str(&format!(
            "\n\nthe restored cluster grants nothing for {hold} after it starts: leases of the earlier one may still run"
        ));
        match hold_ms.cmp(&self.hold_ms_of_backup) {
            Ordering::Less => text.push_str(&format!(
                "\n--ttl-max made that shorter than the {of_backup} of the backup: if any lease of the earlier cluster was longer than {hold}, two leaders are possible until it is over"
            )),
            Ordering::Greater => text.push_str(&format!(
                "\n--ttl-max made that longer than the {of_backup} of the backup"
            )),
            Ordering::Equal => text.push_str(
                "\nif no lease of it was that long, restore again into an empty directory with the longest ttl that clients used (--ttl-max)",
            ),
        }
        text
    }
}
