//! A replica that was removed from its cluster, and how it learns of that.
//!
//! It may not receive the entry that removes it, and nobody tells it that the entry is committed: from the end of the
//! change on, the others have no reason to send it anything. So there are two ways. If it applied the entry, it knows.
//! If not, it notices that no leader is heard, and whom it then asks for a vote answers that it is no member
//! ([`PeerMessage::Removed`]), as does a link that it opens.
//!
//! Numbers are never used again, so "removed" is final, and one member that has applied it is enough. That member may lie,
//! though. So it is believed only while no leader is heard, and it changes nothing but answers: this replica refuses at
//! once what it would otherwise refuse after two election time-outs. It still stands for election, asks and votes. When
//! a leader is heard again, the member was wrong.

use regent_election::store::StoreError;

use super::proposals::Submission;
use super::{Away, Core, Role};
use crate::io::PeerMessage;
use crate::member::{Member, Members, ReplicaId};

impl Core {
    /// Who is in the cluster, if this replica was removed from it.
    pub(super) fn removed_from(&self) -> Option<&Members> {
        let kept = self.ledger.kept();
        let own = self.config.id;
        // One that joins has a number above all that were used, until it is added.
        let is_removed = !kept.members.contains_key(&own) && kept.highest >= own.get();
        let told =
            self.told_removed.as_ref().filter(|_| !self.is_led()).map(|(_, members)| members);
        is_removed.then_some(&kept.members).or(told)
    }

    /// Whether a replica was a member and is none any more, as of what is applied here.
    fn has_removed(&self, id: ReplicaId) -> bool {
        !self.knows(id) && id.get() <= self.ledger.kept().highest
    }

    /// Tells a replica that was removed so, when it asks for a vote: it hears no leader, and will never hear one.
    pub(super) fn tell_removed(&mut self, id: ReplicaId) {
        if self.has_removed(id) {
            let members = self.ledger.kept().members.clone();
            self.out.sends.push((id, PeerMessage::Removed { members }));
        }
    }

    /// A member says that this replica is none. It may be said while the last word of a leader is still fresh.
    pub(super) fn on_removed(&mut self, from: ReplicaId, members: Members) {
        if self.knows(from) && !members.contains_key(&self.config.id) {
            self.told_removed = Some((self.now, members));
        }
    }

    /// Refuses everything that waits once it is known that nothing will come of it, and believes a leader more than a
    /// member that said otherwise.
    pub(super) fn notice_removal(&mut self) {
        let (role, contact_at) = (self.role, self.contact_at);
        self.told_removed
            .take_if(|(told_at, _)| role == Role::Leader || contact_at > Some(*told_at));
        let Some(members) = self.removed_from() else { return };
        let why = refusal(self.config.id, members);
        for waiter in self.rounds.give_up() {
            self.give_up_for(waiter, &why);
        }
        for (_, Away { waiter, .. }) in std::mem::take(&mut self.away) {
            self.give_up_for(waiter, &why);
        }
        let (local, remote) = std::mem::take(&mut self.submissions)
            .into_iter()
            .partition(|submission| matches!(submission, Submission::Local { .. }));
        self.submissions = remote;
        for submission in local {
            if let Submission::Local { token, .. } = submission {
                self.refuse(token, why.clone());
            }
        }
    }

    /// Why a request of a client is refused at once, if this replica was removed.
    pub(super) fn removal_refusal(&self) -> Option<StoreError> {
        self.removed_from().map(|members| refusal(self.config.id, members))
    }
}

/// The refusal, with the members that serve clients. Nothing happened, and nothing ever will here.
fn refusal(own: ReplicaId, members: &Members) -> StoreError {
    StoreError::Unavailable { why: removed(own, members), retry_after: None }
}

/// That a replica was removed, and whom to ask instead.
#[must_use]
pub fn removed(own: ReplicaId, members: &Members) -> String {
    let serving = members.iter().filter(|(_, member)| !member.is_witness);
    let others: Vec<String> = serving
        .map(|(id, Member { client_address, .. })| format!("replica {id} at {client_address}"))
        .collect();
    match others.as_slice() {
        [] => format!("replica {own} was removed from this cluster; ask another one"),
        others => {
            format!("replica {own} was removed from this cluster; ask {}", others.join(" or "))
        }
    }
}
