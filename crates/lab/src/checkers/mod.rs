//! Checkers, each named after the promise it holds a history to.
//!
//! They see nothing but the history: no replica, no participant, no world. Each is a sweep over the
//! events, or a search that is bounded; none trusts another.

mod guard;
mod judge;
mod l1;
mod l3;
mod l4;
mod l5;
mod l6;
mod lease;
mod living;
mod s1;
mod s13;
mod s2;
mod s3;
mod s4;
mod s5;
mod s6;
mod s7;
mod s8;
mod s9;
mod silent;
mod void;
pub mod wgl;

use std::collections::BTreeMap;
use std::fmt;

use crate::chronicle::Chronicle;
use crate::history::{Event, History, Op, Out, Proc, Stage, What};

pub use void::why_void;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub promise: &'static str,
    /// When it shows, in true time.
    pub at: u64,
    pub how: String,
}

impl Violation {
    /// A broken promise.
    #[must_use]
    pub fn new(promise: &'static str, at: u64, how: impl Into<String>) -> Self {
        Self { promise, at, how: how.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.at / 1_000_000_000, self.at / 1000 % 1_000_000);
        write!(f, "{} broken at {seconds}.{micros:06}: {}", self.promise, self.how)
    }
}

/// What one checker finds.
pub type CheckResult = Result<(), Violation>;

/// A history with what is easily derived from it.
#[derive(Debug)]
pub struct Case<'a> {
    pub history: &'a History,
    /// What the store did.
    pub chronicle: &'a Chronicle,
    pub calls: BTreeMap<u64, Call<'a>>,
}

/// One call: what was asked, and what was answered if anything was.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Who asked.
    pub proc: Proc,
    pub op: &'a Op,
    /// When it left.
    pub sent: u64,
    /// What came back.
    pub end: End<'a>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// It was answered.
    Ok {
        at: u64,
        /// The revision that served the answer.
        revision: Option<regent_election::Revision>,
        out: &'a Out,
    },
    /// A definite no.
    Fail { at: u64 },
    /// Nobody knows.
    Unknown,
}

impl<'a> Case<'a> {
    /// Puts calls together.
    #[must_use]
    pub fn new(history: &'a History, chronicle: &'a Chronicle) -> Self {
        let mut calls: BTreeMap<u64, Call<'a>> = BTreeMap::new();
        for Event { at, proc, what } in &history.events {
            match what {
                What::Invoke { call, op } => {
                    let end = End::Unknown;
                    calls.insert(*call, Call { proc: *proc, op, sent: *at, end });
                }
                What::Ok { call, revision, out } => {
                    if let Some(call) = calls.get_mut(call) {
                        call.end = End::Ok { at: *at, revision: *revision, out };
                    }
                }
                What::Fail { call, .. } => {
                    if let Some(call) = calls.get_mut(call) {
                        call.end = End::Fail { at: *at };
                    }
                }
                _ => {}
            }
        }
        Self { history, chronicle, calls }
    }

    /// When a stage began, if it did; the last time, should its core have been widened.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> Option<(u64, &'a [u64])> {
        self.history.events.iter().rev().find_map(|event| match &event.what {
            What::Stage { stage: entered, core } if *entered == stage => {
                Some((event.at, core.as_slice()))
            }
            _ => None,
        })
    }

    /// The end of validity in true time of what was sent at `sent` and acknowledged with this ttl,
    /// if every clock keeps the bound: `D·(1−ε)/(1−ρ)`, which is `D/(1+ρ)`.
    #[must_use]
    pub fn valid_until(&self, sent: u64, ttl_ms: u64) -> u64 {
        let ttl_ns = u128::from(ttl_ms) * 1_000_000;
        let rho = u128::from(self.history.setup.drift_ppm);
        sent + u64::try_from(ttl_ns * 1_000_000 / (1_000_000 + rho)).unwrap_or(u64::MAX)
    }
}

type Checker = fn(&Case<'_>) -> CheckResult;

/// Every checker with its name, in the order in which they are asked.
const ALL: &[(&str, Checker)] = &[
    ("S8", s8::check),
    ("S7", s7::check),
    ("S6", s6::check),
    ("S2", s2::check),
    ("S1", s1::check),
    ("S3", s3::check),
    ("S4", s4::check),
    ("S5", s5::check),
    ("S9", s9::check),
    ("S13", s13::check),
    ("L3", living::check),
    ("L3", silent::check),
    ("L1", l1::check),
    ("L3", l3::check),
    ("L4", l4::check),
    ("L5", l5::check),
    ("L6", l6::check),
    ("guard", guard::check),
];

/// The same for elections that are kept in a register: those that ask for a log have others in their
/// place, and replicas that agree there are none.
const OF_LEASES: &[(&str, Checker)] = &[
    ("S7", lease::s7::check),
    ("S2", s2::check),
    ("S1", s1::check),
    ("S3", s3::check),
    ("S4", s4::check),
    ("S5", lease::s5::check),
    ("S9", lease::s9::check),
    ("S13", s13::check),
    ("L3", lease::living::check),
    ("L1", l1::check),
    ("L3", l3::check),
    ("L4", lease::l4::check),
    ("L6", lease::l6::check),
    ("guard", guard::check),
];

/// Holds a history to every promise, and says which are broken.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let chronicle = match Chronicle::of(history) {
        Ok(chronicle) => chronicle,
        Err(violation) => return vec![violation],
    };
    let case = Case::new(history, &chronicle);
    let all = if history.setup.register.is_some() { OF_LEASES } else { ALL };
    all.iter().filter_map(|(_, checker)| checker(&case).err()).collect()
}

/// Holds a history to one promise, by name.
#[must_use]
pub fn check_one(history: &History, promise: &str) -> Vec<Violation> {
    check(history).into_iter().filter(|violation| violation.promise == promise).collect()
}
