//! What one access table says of one caller, worked out once for a table instead of once for a request.
//!
//! A caller on a connection that is kept asks again and again, and the table changes seldom. Which bindings name the caller,
//! and whether its token is known and not revoked, follows from the table and the caller alone: both are kept together
//! with the number of the table ([`LiveAccess::version`]). **What ends it:** any other table. What depends on more than the
//! table is judged each time: the group and the node of a request, dates at which tokens and certificates end, revocation
//! lists.
//!
//! Only a yes is told here. What is not allowed by this is judged by the table itself, which explains the denial.
//!
//! [`LiveAccess::version`]: super::LiveAccess::version

use std::sync::Arc;

use super::judge::judge_by;
use super::{AccessTable, Bindings, Caller, CredentialFlaw, Request, TokenRecord};

/// See the module. It holds the bindings and not the tokens: an idle connection must not keep old tables of tokens.
#[derive(Debug)]
pub(super) struct Standing {
    version: u64,
    bindings: Arc<Bindings>,
    /// The places of those bindings that name the caller.
    named: Box<[usize]>,
    token: TokenStanding,
}

/// What a table says of the token that a caller has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenStanding {
    /// None was shown.
    NotShown,
    /// It is good until this moment of the wall clock, if one is set.
    Good { expires_ms: Option<u64> },
    /// It is revoked, of another principal, or not known any more: then it was revoked long ago.
    Revoked,
}

impl TokenStanding {
    pub(super) fn of(caller: &Caller, table: &AccessTable) -> Self {
        let Some(id) = caller.token else { return Self::NotShown };
        let record = table.token(id).filter(|record| record.principal == caller.who);
        record.map_or(Self::Revoked, Self::of_record)
    }

    pub(super) const fn of_record(record: &TokenRecord) -> Self {
        match record {
            TokenRecord { revoked: true, .. } => Self::Revoked,
            TokenRecord { expires_ms, .. } => Self::Good { expires_ms: *expires_ms },
        }
    }

    /// Why it is not good any more, if so. The clock is read only if it matters.
    pub(super) fn flaw(self, wall_ms: impl FnOnce() -> u64) -> Option<CredentialFlaw> {
        match self {
            Self::Good { expires_ms: Some(at) } if at <= wall_ms() => Some(CredentialFlaw::Expired),
            Self::NotShown | Self::Good { .. } => None,
            Self::Revoked => Some(CredentialFlaw::Revoked),
        }
    }
}

impl Standing {
    /// Works it out of the table with this number.
    pub(super) fn of(caller: &Caller, version: u64, table: &AccessTable) -> Self {
        let bindings = Arc::clone(&table.bindings);
        let named = bindings.naming(&caller.who).map(|(place, _)| place).collect();
        Self { version, bindings, named, token: TokenStanding::of(caller, table) }
    }

    /// The number of the table that it was worked out of.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Why the caller's credential is not good any more, if so.
    pub(super) fn flaw(&self, caller: &Caller) -> Option<CredentialFlaw> {
        caller.flaw_with(self.token)
    }

    /// Whether the caller has a good credential and what is asked for is allowed.
    pub(super) fn allows(&self, caller: &Caller, asked: Request<'_>) -> bool {
        let list = self.bindings.list();
        let named = self.named.iter().filter_map(|place| Some((*place, list.get(*place)?)));
        self.flaw(caller).is_none() && judge_by(named, asked).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{
        Binding, Extent, NodeRule, Principal, Right, Role, SecretDigest, TokenId, TokenLabel, judge,
    };
    use crate::name::{Group, Node};

    fn who(text: &str) -> Principal {
        text.parse().unwrap()
    }

    fn binding(who: &str, role: Role, group: &str, node: &str) -> Binding {
        Binding {
            who: who.parse().unwrap(),
            role,
            groups: vec![group.parse().unwrap()],
            nodes: vec![node.parse::<NodeRule>().unwrap()],
        }
    }

    fn caller(name: &str, token: Option<u64>) -> Caller {
        Caller { who: who(name), token: token.map(TokenId), voucher: None, wall_ms: || 100 }
    }

    fn table(list: Vec<Binding>) -> AccessTable {
        let mut table = AccessTable {
            bindings: Arc::new(Bindings::new(1, list).unwrap()),
            ..Default::default()
        };
        for (number, revoked, expires_ms) in
            [(1, false, None), (2, true, None), (3, false, Some(100)), (4, false, Some(101))]
        {
            let label = TokenLabel::new("").unwrap();
            let (digest, principal) = (SecretDigest([0; 32]), who("node:a"));
            let record =
                TokenRecord { digest, principal, label, created_ms: 0, expires_ms, revoked };
            table.tokens.insert(TokenId(number), record);
        }
        table
    }

    /// What is worked out once says the same as the table asked anew, whoever asks for what by which token.
    #[test]
    fn it_allows_exactly_what_the_table_allows() {
        let lists = [
            vec![],
            vec![
                binding("node:a", Role::Observer, "*", "self"),
                binding("node:*", Role::Participant, "mine/*", "self"),
                binding("user:*", Role::Administrator, "*", "self"),
                binding("node:b", Role::Operator, "other", "*"),
                binding("node:a", Role::Participant, "other", "b"),
            ],
        ];
        let groups = ["mine/1", "other"].map(|name| Group::new(name).unwrap());
        let nodes = ["a", "b"].map(|name| Node::new(name).unwrap());
        let extents = [
            Extent::Group(&groups[0]),
            Extent::Group(&groups[1]),
            Extent::SomeGroup,
            Extent::Cluster,
        ];
        let (mut allowed, mut refused) = (0, 0);
        for list in lists {
            let table = table(list);
            for name in ["node:a", "node:b", "user:a", "local:root", "replica:1"] {
                for token in [None, Some(1), Some(2), Some(3), Some(4), Some(5)] {
                    let caller = caller(name, token);
                    let standing = Standing::of(&caller, 7, &table);
                    assert_eq!(standing.flaw(&caller), caller.flaw(&table), "{name} {token:?}");
                    for right in Right::ALL {
                        for extent in extents {
                            for node in [None, Some(&nodes[0]), Some(&nodes[1])] {
                                let asked = Request { who: &caller.who, right, extent, node };
                                let by_table = caller.flaw(&table).is_none()
                                    && judge(table.bindings(), asked).is_ok();
                                assert_eq!(standing.allows(&caller, asked), by_table, "{asked:?}");
                                *(if by_table { &mut allowed } else { &mut refused }) += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(allowed > 50 && refused > 50, "{allowed} {refused}");
    }
}
