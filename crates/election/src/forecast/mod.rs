//! Forecasts: who leads today and, by its own renewals, will not for long; and who would do better.
//!
//! A leader does not fail at once. Its machine swaps, its network fills, its runtime lags, and each renewal comes a
//! little later than the one before, until one comes too late and the office stands empty for a ttl. But every
//! heartbeat says how much was left when the last renewal came ([`Beliefs::margin_ms`](crate::belief::Beliefs)), so
//! whoever hears heartbeats can see it coming while there is still time to hand over.
//!
//! - [`Margins`] are the last renewals of one session, and the [`Outlook`] that they give. One bad renewal is none.
//! - [`Forecaster`] keeps everybody's, and says whether a hand-over would help: not if nobody does clearly better, not
//!   if everybody is slow, not twice in a row.
//!
//! It decides nothing but to *ask*: the leader hands over by itself or leads on (`state/relieve.rs`). A forecast that
//! is wrong costs a change of leader.
//!
//! The roads not taken: phi-accrual and other models of arrival times, which answer whether somebody is gone *by
//! now*, and need floats and a distribution to do so; and a threshold alone, which sees a steep fall too late and
//! calls a steady low margin a fall.

mod forecaster;
mod margins;

pub use forecaster::{ForecastAction, ForecastDecision, Forecaster, SuspectOffice, Suspicion};
pub use margins::{Margins, Outlook};
