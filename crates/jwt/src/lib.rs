//! JSON Web Tokens of other issuers, as credentials of callers.
//!
//! An operator lists the issuers that are believed, each with its audience, its keys and what its tokens name
//! ([`issuers`]). A token is judged by the entry of its issuer and by the key that it names: the key has one
//! algorithm, and what the token says of itself chooses none ([`token`]). Keys come from a file or an HTTPS address
//! and are read again while the server runs ([`keys`], [`Believed`]).
//!
//! The road not taken is a general JOSE library: the freedoms of that format (`none`, shared secrets, keys inside
//! tokens, `crit`) are where its verifiers were broken. What is not in the short list of algorithms is not believed.
//!
//! Left to others: what a principal may do. A token that is over still names its caller, because a caller may
//! always give up what it holds; the server judges the time.

pub mod issuers;
pub mod keys;
pub mod limits;
mod source;
pub mod token;

pub use issuers::{Issuer, IssuersError, KeyPlace};
pub use keys::{KeyError, KeySet, TokenAlgorithm};
pub use source::{Believed, SignedBy};
pub use token::{Verified, WhyNot, verify};
