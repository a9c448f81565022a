//! How many bytes of the state each principal takes: its share of the budget.
//!
//! Without shares, one principal that may open sessions, or campaign in many groups, could fill the state for all.
//! Every part of the state is charged to the principal that put it there, and released when the part goes:
//!
//! | part | charged to | released by |
//! |---|---|---|
//! | session, its request ids; its offices and places in lines, with their metadata | who opened it | close, expiry; resignation, withdrawal, dismissal |
//! | group: its record, door and history, which is counted as full from the start | who created it | deletion |
//! | policy | who put it last, whoever created the group | deletion, another policy |
//! | fence | who asked for it first | forgetting it, deletion |
//! | proposal that waits for a second principal | who made it | confirmation, ten minutes |
//! | this account | its principal | its last part |
//!
//! So nobody can fill the share of another, with one exception that is bounded: who may operate a group adds up to eight
//! reasons to its history, on its creator's account. It could as well delete the group.
//!
//! **Nobody's.** What was made without authentication is charged to nobody: there is no principal, and an address, which a
//! server could tell callers apart by, is not part of a replicated state. So is what an older program made, what an
//! older snapshot holds, and what a session opened without authentication holds until it ends. Bindings, tokens, request
//! ids without a session and prints of ended sessions are bounded by limits of their own, and nobody's.
//!
//! **Who goes.** A principal without any binding, or a creator that never comes back, stays charged until somebody deletes
//! what it made; whoever may operate a group may delete it, whoever pays for it. A group that leaves for another store
//! stays charged here (its door is kept), and is charged there to whoever expected it. A restored state keeps the charges
//! of groups, policies and fences; sessions and proposals are gone, and so are their charges.
//!
//! **Who decides.** As with the sum of all bytes, no rule of `apply` looks at an account. A store asks
//! `State::check_budget` before it proposes something. So replicas that differ in what was charged before they were
//! upgraded grant the same terms.
//!
//! **Cost.** A change costs a search among the accounts for each part that it touches, and none without authentication;
//! heartbeats touch nothing. An account exists while something is charged to it, so there are never more of them than
//! parts, and they are counted by the budget themselves.
//!
//! The road not taken: bytes sent. They say nothing about what is still there, and only time would release them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{State, weight};
use crate::access::Principal;
use crate::limits::SHARES_SHOWN_MAX;
use crate::store::SharesView;

/// Who is charged for a part of the state; none if it is nobody's.
pub(super) type Payer = Option<Arc<Principal>>;

/// What each principal is charged for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Accounts {
    /// The bytes of all parts; never zero.
    charged: BTreeMap<Arc<Principal>, u64>,
    /// What the accounts themselves weigh.
    bytes: u64,
}

/// A change of an account that was not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Charge(Arc<Principal>, u64),
    Release(Arc<Principal>, u64),
}

/// Changes of accounts, in the order in which they are to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dues(Vec<Due>);

impl Dues {
    pub(super) fn charge(&mut self, payer: &Payer, bytes: u64) {
        self.0.extend(payer.clone().map(|who| Due::Charge(who, bytes)));
    }

    pub(super) fn release(&mut self, payer: &Payer, bytes: u64) {
        self.0.extend(payer.clone().map(|who| Due::Release(who, bytes)));
    }

    pub(super) fn append(&mut self, later: &mut Self) {
        self.0.append(&mut later.0);
    }
}

impl Accounts {
    /// The principal as its account names it, so that its name is kept once however much it makes.
    pub(super) fn intern(&self, who: Principal) -> Arc<Principal> {
        let known = self.charged.get_key_value(&who).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| Arc::new(who))
    }

    pub(super) fn charge(&mut self, payer: &Payer, bytes: u64) {
        let Some(who) = payer else { return };
        match self.charged.get_mut(who) {
            Some(charged) => *charged += bytes,
            None if bytes > 0 => {
                self.bytes += weight::account(who);
                self.charged.insert(Arc::clone(who), bytes);
            }
            None => {}
        }
    }

    pub(super) fn release(&mut self, payer: &Payer, bytes: u64) {
        let Some(who) = payer else { return };
        let Some(charged) = self.charged.get_mut(who) else {
            debug_assert!(bytes == 0, "{bytes} bytes are released that {who} was not charged for");
            return;
        };
        debug_assert!(*charged >= bytes, "{who} is released of {bytes} bytes of {charged}");
        *charged = charged.saturating_sub(bytes);
        if *charged == 0 {
            self.charged.remove(who);
            self.bytes -= weight::account(who);
        }
    }

    pub(super) fn settle(&mut self, dues: Dues) {
        for due in dues.0 {
            match due {
                Due::Charge(who, bytes) => self.charge(&Some(who), bytes),
                Due::Release(who, bytes) => self.release(&Some(who), bytes),
            }
        }
    }

    /// Whether something is charged to this principal.
    pub(super) fn knows(&self, who: &Principal) -> bool {
        self.charged.contains_key(who)
    }

    /// What a principal takes, its account included.
    pub(super) fn used(&self, who: &Principal) -> u64 {
        self.charged.get(who).map_or(0, |charged| charged + weight::account(who))
    }

    /// What the accounts themselves weigh.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn iter(&self) -> impl Iterator<Item = (&Principal, u64)> {
        self.charged.iter().map(|(who, charged)| (&**who, charged + weight::account(who)))
    }
}

impl State {
    /// What a principal takes of the state, in bytes.
    #[must_use]
    pub fn bytes_of(&self, who: &Principal) -> u64 {
        self.accounts.used(who)
    }

    /// The principals that take most, the largest first, at most `count` of them.
    #[must_use]
    pub fn largest_shares(&self, count: usize) -> Vec<(Principal, u64)> {
        let mut largest: Vec<(&Principal, u64)> = Vec::new();
        for (who, bytes) in self.accounts.iter() {
            let place = largest.partition_point(|(_, other)| *other >= bytes);
            if place < count {
                largest.insert(place, (who, bytes));
                largest.truncate(count);
            }
        }
        largest.into_iter().map(|(who, bytes)| (who.clone(), bytes)).collect()
    }

    /// Who takes most; the bound is the driver's to add.
    pub(super) fn shares_view(&self) -> SharesView {
        SharesView {
            largest: self.largest_shares(SHARES_SHOWN_MAX),
            principals: self.accounts.charged.len() as u64,
            share_bytes_max: None,
            state_bytes: self.bytes(),
        }
    }

    /// The accounts, added up from scratch.
    pub(super) fn accounts_recomputed(&self) -> Accounts {
        let mut fresh = Accounts::default();
        for session in self.sessions.values() {
            fresh.charge(&session.owner, weight::session(session));
        }
        for (name, group) in self.groups.iter() {
            weight::parts(name, group, |payer, bytes| fresh.charge(payer, bytes));
            for standby in &group.line {
                fresh.charge(&standby.payer, weight::standby(standby));
            }
        }
        for proposal in self.proposals.values() {
            fresh.charge(&Some(Arc::clone(&proposal.who)), weight::PROPOSAL);
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(name: &str) -> Payer {
        Some(Arc::new(name.parse().unwrap()))
    }

    #[test]
    fn an_account_lives_while_something_is_charged_to_it() {
        let mut accounts = Accounts::default();
        let (alice, own) = (payer("user:alice"), weight::account(&"user:alice".parse().unwrap()));
        accounts.charge(&None, 7);
        accounts.charge(&alice, 0);
        accounts.release(&alice, 0);
        assert_eq!(accounts, Accounts::default());
        accounts.charge(&alice, 100);
        accounts.charge(&payer("user:alice"), 50);
        accounts.release(&alice, 120);
        assert_eq!((accounts.used(alice.as_ref().unwrap()), accounts.bytes()), (30 + own, own));
        assert!(Arc::ptr_eq(
            &accounts.intern("user:alice".parse().unwrap()),
            alice.as_ref().unwrap()
        ));
        let mut dues = Dues::default();
        dues.release(&alice, 30);
        dues.charge(&payer("node:b"), 5);
        dues.charge(&None, 9);
        accounts.settle(dues);
        assert!(!accounts.knows(alice.as_ref().unwrap()));
        assert_eq!(accounts.iter().count(), 1);
    }
}
