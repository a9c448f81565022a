//! Who may do what: principals, rights, roles and the bindings between them.
//!
//! A [`Principal`] is an authenticated caller. A [`Right`] is what one request needs. A [`Binding`] gives the
//! principals of a pattern one [`Role`], which is a set of rights, in the groups of some patterns. [`judge`] is the
//! only function that decides, and it explains its answer. What no binding allows is denied.
//!
//! The road not taken: a policy language (Cedar, Rego, Casbin). Four roles and patterns can be printed on one page
//! and compared with a reference function of thirty lines, which a test does.
//!
//! Left to others: how a caller proves who it is (`regent-server`), and the replicated copy of the bindings
//! (`state`).

mod binding;
mod caller;
mod guard;
mod guard_port;
mod guarded_watch;
mod judge;
mod known;
mod live;
mod pattern;
mod principal;
mod right;
mod standing;
mod table;
mod token;

pub use binding::{AccessError, Binding, Bindings, NodeRule};
pub use caller::{Caller, Voucher};
pub use guard::{GuardedStore, Permitted};
pub use judge::{Denial, Extent, Grant, Nearest, Request, judge};
pub use known::{Generations, KnownSessions};
pub use live::LiveAccess;
pub use pattern::Pattern;
pub use principal::{Principal, PrincipalError};
pub use right::{Right, Role};
pub use table::{AccessTable, AccessView, SessionOwner};
pub use token::{
    BearerToken, CredentialFlaw, SecretDigest, TOKEN_PREFIX, TokenError, TokenId, TokenLabel,
    TokenRecord,
};
