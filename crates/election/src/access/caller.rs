//! Who calls, by which credentials, and whether these are good.

use std::sync::Arc;

use super::standing::TokenStanding;
use super::{AccessTable, CredentialFlaw, Extent, Principal, Request, Right, TokenId, judge};
use crate::name::Group;
use crate::outcome::Refusal;
use crate::store::Scope;

/// Vouches for a caller beside what the store keeps, as a client certificate does.
pub trait Voucher: std::fmt::Debug + Send + Sync {
    /// For whom.
    fn who(&self) -> &Principal;

    /// Why it is not good any more, if so. Asked with every request, since connections outlive credentials.
    fn flaw(&self) -> Option<CredentialFlaw>;
}

/// Who calls, and by which credentials. All that were shown must be good.
#[derive(Clone, Debug)]
pub struct Caller {
    pub who: Principal,
    /// The token that was shown; none for a caller that is known in another way.
    pub token: Option<TokenId>,
    /// What else vouches for the caller.
    pub voucher: Option<Arc<dyn Voucher>>,
    /// The wall clock of this server, in milliseconds since 1970: for the expiry of tokens only.
    pub wall_ms: fn() -> u64,
}

impl Caller {
    /// Why the credential is not good any more, if so. A token that is not known any more was revoked long ago.
    #[must_use]
    pub fn flaw(&self, table: &AccessTable) -> Option<CredentialFlaw> {
        self.flaw_with(TokenStanding::of(self, table))
    }

    pub(super) fn flaw_with(&self, token: TokenStanding) -> Option<CredentialFlaw> {
        let voucher = self.voucher.as_ref().and_then(|voucher| voucher.flaw());
        voucher.or_else(|| token.flaw(self.wall_ms))
    }

    pub(super) fn check_credential(&self, table: &AccessTable) -> Result<(), Refusal> {
        self.flaw(table).map_or(Ok(()), |flaw| Err(Refusal::CredentialOver { flaw }))
    }

    /// Whether the caller has a good credential and a right.
    pub fn check(
        &self,
        table: &AccessTable,
        right: Right,
        extent: Extent<'_>,
    ) -> Result<(), Refusal> {
        self.check_credential(table)?;
        judge(table.bindings(), Request { who: &self.who, right, extent, node: None })?;
        Ok(())
    }

    /// Whether the caller may watch this. Like a list, a watch of many shows what may be seen; one of which nothing may
    /// be seen would be silent for ever.
    pub(super) fn check_watch(&self, table: &AccessTable, scope: &Scope) -> Result<(), Refusal> {
        let check = |group| self.check(table, Right::Observe, Extent::Group(group));
        match scope {
            Scope::Group(group) | Scope::Turn(group) => check(group),
            Scope::Groups(groups) => {
                self.check(table, Right::Observe, Extent::SomeGroup)?;
                if groups.iter().any(|group| check(group).is_ok()) {
                    return Ok(());
                }
                groups.first().map_or(Ok(()), check)
            }
            Scope::Prefix(_) => self.check(table, Right::Observe, Extent::SomeGroup),
        }
    }

    pub(super) fn may_observe(&self, table: &AccessTable, group: &Group) -> bool {
        self.check(table, Right::Observe, Extent::Group(group)).is_ok()
    }
}
