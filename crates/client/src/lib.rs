//! Regent from Rust: leader election as a value.
//!
//! [`connect`] joins the elections of a service (or of a store in this process) under one session;
//! a thread of its own keeps that session alive, whatever the application's runtime does. Then there
//! are three levels:
//!
//! **1. [`Regent::lead`]** runs something while leading, and nothing while not:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let regent = regent::connect("http://127.0.0.1:7400").await?;
//! let never = regent
//!     .lead("billing", async |leadership: regent::Leadership| {
//!         println!("leading under term {}", leadership.term());
//!         leadership.lost().await;
//!     })
//!     .await;
//! # drop(never);
//! # Ok(())
//! # }
//! ```
//!
//! **2. [`Regent::campaign`]** gives a [`Leadership`], a value to check, to wait on and to give up:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! # fn write(_: regent::Fenced<&str>) {}
//! let regent = regent::Regent::at("http://a:7400,http://b:7400").node("web-1").connect().await?;
//! let leadership = regent.campaign("billing").priority(5).await?;
//! while let Ok(permit) = leadership.check() {
//!     write(permit.fence("paid"));
//! #   break;
//! }
//! leadership.resign().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **3. [`Regent::elector`]** is the classic [`Elector`] with questions and callbacks:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let regent = regent::connect("http://127.0.0.1:7400").await?;
//! let elector = regent.elector("billing")?;
//! elector.on_leadership_lost(|stop| println!("stop within {:?}", stop.within));
//! elector.on_leader_changed(|now| println!("{:?} leads", now.leader));
//! if elector.try_become_leader().await? {
//!     println!("we lead: {}", elector.is_leader());
//! } else {
//!     println!("{:?} leads", elector.current_leader().await?.leader);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Below all of them is the [`driver`], a machine without clock, dice or threads, and [`office`], the few
//! calls it makes of the world. [`remote::Remote`] speaks to a server over HTTP, one method per verb.
//!
//! Nothing here decides who leads or for how long: that is `regent-election`. This crate carries the
//! question there and the answer back, and says honestly when it does not know the answer.

mod connect;
pub mod driver;
mod elector;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
mod fenced;
pub mod fresh;
pub mod health;
mod keeper;
mod known;
mod lead;
mod leadership;
pub mod limits;
mod lock;
pub mod metrics;
pub mod office;
mod options;
mod regent;
pub mod remote;
mod semaphore;
mod session;
mod tenure;
mod watcher;

pub use connect::{Connect, connect};
pub use elector::{Current, Elector};
#[cfg(feature = "embedded")]
pub use embedded::{Embedded, Replica};
pub use error::{CampaignError, ConnectError, Lost, TransferError, Untold};
pub use fenced::{Fenced, Permit};
pub use leadership::{Leadership, Stop};
pub use lock::{Lock, LockError, LockGuard};
pub use options::{LastResort, Overran};
pub use regent::{Campaign, Regent, ToGroup, Transitions};
pub use regent_api as api;
pub use regent_election as election;
pub use regent_election::participant::{Phase, Transition, Why};
pub use semaphore::{Semaphore, SemaphoreError, SemaphoreGuard};
