//! Regent from Rust: leader election as a value.
//!
//! [`connect`] joins the elections of a service (or of a store in this process) under one session;
//! a thread of its own keeps that session alive, whatever the application's runtime does. Then there
//! are three levels:
//!
//! **1. [`Regent::lead`]** runs something while leading, and nothing while not:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let regent = regent::connect("memory:").await?; // or http://127.0.0.1:7400
//! let (sender, mut terms) = tokio::sync::mpsc::channel(1);
//! let leading = regent.lead("billing", |leadership: regent::Leadership| {
//!     let sender = sender.clone();
//!     async move {
//!         let _ = sender.send(leadership.term()).await;
//!         leadership.lost().await; // clean up within what is left of the lease
//!     }
//! });
//! tokio::select! {
//!     never = leading => return Err(never.into()),
//!     term = terms.recv() => assert_eq!(term.map(|term| term.get()), Some(1)),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **2. [`Regent::campaign`]** gives a [`Leadership`], a value to check, to wait on and to give up:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut rows = Vec::new();
//! # let mut write = |row: regent::Fenced<&'static str>| rows.push(row);
//! let regent = regent::Regent::at("memory:").node("web-1").connect().await?;
//! let leadership = regent.campaign("billing").priority(5).await?;
//! while let Ok(permit) = leadership.check() {
//!     write(permit.fence("paid")); // carries the term to where it is compared
//! #   break;
//! }
//! leadership.resign().await?;
//! # assert_eq!(rows.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! **3. [`Regent::elector`]** is the classic [`Elector`] with questions and callbacks:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let regent = regent::connect("memory:").await?;
//! let elector = regent.elector("billing")?;
//! elector.on_leadership_lost(|stop| println!("stop within {:?}", stop.within));
//! elector.on_leader_changed(|now| println!("{:?} leads", now.leader));
//! if elector.try_become_leader().await? {
//!     assert!(elector.is_leader());
//! }
//! println!("{:?} leads", elector.current_leader().await?.leader);
//! # Ok(())
//! # }
//! ```
//!
//! [`Regent::lock`] and [`Regent::semaphore`] are leadership for as long as a guard lives;
//! [`health`] keeps who cannot do the job from leading. [`fencing`] teaches other people's storage to refuse
//! whoever led before.
//!
//! # What is stable
//!
//! Everything that this page shows without the feature `tools`, and nothing else: from 1.0 on it changes by the
//! rules of semantic versioning. The types of the rules that its signatures need (names, terms, causes, errors)
//! are re-exported one by one. The feature `tools` adds what the command `regent` and the gateway are made of
//! (every verb over HTTP, stores and offices by value, other clocks); it may change in any release. The crates
//! behind this one (`regent-election`, `regent-api`, …) are not for applications.
//!
//! Nothing here decides who leads or for how long: that is `regent-election`. This crate carries the
//! question there and the answer back, and says honestly when it does not know the answer.

#[cfg(feature = "tools")]
pub mod backend;
#[cfg(not(feature = "tools"))]
#[allow(dead_code, unreachable_pub, reason = "public with the feature `tools`")]
mod backend;
mod connect;
mod elector;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
mod fenced;
pub mod fencing;
mod follow;
#[cfg(feature = "tools")]
pub mod fresh;
#[cfg(not(feature = "tools"))]
#[allow(dead_code, unreachable_pub, reason = "public with the feature `tools`")]
mod fresh;
pub mod health;
mod keeper;
mod known;
mod lead;
mod leader_watch;
mod leadership;
mod limits;
mod lock;
pub mod metrics;
#[cfg(feature = "tools")]
mod not_elected;
mod options;
mod places;
mod regent;
#[cfg(feature = "tools")]
pub mod remote;
#[cfg(not(feature = "tools"))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "public with the feature `tools`")]
mod remote;
mod semaphore;
mod session;
mod tenure;
#[cfg(feature = "tools")]
mod tools;
mod warming;
mod watcher;

pub use connect::{Connect, connect};
pub use elector::Elector;
#[cfg(feature = "embedded")]
pub use embedded::{Embedded, Replica};
pub use error::{CampaignError, ConnectError, Lost, TransferError, Untold};
pub use fenced::{Fenced, Permit};
pub use leader_watch::{Current, LeaderWatch};
pub use leadership::{Leadership, Stop};
pub use lock::{Lock, LockError, LockGuard};
#[cfg(feature = "tools")]
pub use not_elected::NotElected;
pub use options::{LastResort, Overran};
pub use regent::{Campaign, Regent, ToGroup, Transitions};
pub use regent_election::participant::{Phase, Transition, Trouble, Why};
pub use regent_election::store::{StoreError, StoreResult};
pub use regent_election::{
    Budget, BudgetError, Cause, Digest, Fence, FenceError, Group, Home, Metadata, Moment,
    NameError, Node, Priority, Refusal, Resource, Revision, Term,
};
#[cfg(feature = "embedded")]
pub use regent_replica::Timing;
pub use remote::AddressError;
pub use semaphore::{Semaphore, SemaphoreError, SemaphoreGuard};
pub use warming::{Offer, OfferError};

use regent_election::driver;
