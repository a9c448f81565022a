//! The stage: any algorithm of [`crate::protocols`] under any scenario, in virtual time.
//!
//! It is lighter than [`crate::world`], which runs whole replicas with sessions and clients and judges
//! promises. Here nodes only elect; a leader that may act writes to a simulated storage, and what is asked
//! is what it cost, how long nobody or more than one acted, and which writes were wrong. One seed decides
//! everything: links, disks, clocks, starts and every choice of a scenario.
//!
//! A leader's work is the common mistake made on purpose: it checks that it may act, works for a while, then
//! writes. Whoever is paused in between writes late, and only the storage can notice.

mod actor;
mod algorithm;
pub mod compare;
pub mod draw;
mod json;
mod library;
mod links;
mod measure;
mod parse;
mod play;
mod record;
mod scenario;
mod storage;
mod strike;
mod text;

pub use algorithm::Algorithm;
pub use json::{entry_json, figures_json};
pub use library::{FindError, NamedScenario, find, library, read};
pub use measure::{Figures, Reign, figures, figures_from, reigns};
pub use parse::{ParseError, parse};
pub(crate) use play::play_quietly;
pub use play::{Run, RunError, fits, play};
pub use record::{Fate, FenceSays, StageEvent, StageRecord, What};
pub use scenario::{Blow, Links, Scenario, Strike, Who};
pub use text::{history, line, seconds};
