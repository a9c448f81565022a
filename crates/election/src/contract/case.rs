//! A case of a contract: a fact that is found to hold, to be broken, or to be skipped. Shared by the
//! contract of stores and that of registers.

use std::fmt;
use std::sync::Arc;

use crate::together::Running;

/// One fact about what the harness `H` holds.
pub struct Case<H: ?Sized> {
    /// The fact.
    pub name: &'static str,
    /// Finds out; an error ends it early.
    pub body: fn(Arc<H>) -> Running<'static, Result<(), Fault>>,
}

impl<H: ?Sized> Case<H> {
    /// Finds out whether the fact holds.
    pub async fn run(&self, harness: Arc<H>) -> CaseResult {
        match (self.body)(harness).await {
            Ok(()) => CaseResult::Held,
            Err(Fault::Skipped(why)) => CaseResult::Skipped(why),
            Err(Fault::Broken(why)) => CaseResult::Broken(why),
        }
    }
}

impl<H: ?Sized> Clone for Case<H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: ?Sized> Copy for Case<H> {}

impl<H: ?Sized> fmt::Debug for Case<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseResult {
    Held,
    /// What is tested cannot do what it is about.
    Skipped(String),
    /// It does not hold.
    Broken(String),
}

/// Why a case ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What is tested cannot do what it is about.
    Skipped(String),
    /// It does not hold.
    Broken(String),
}

/// Breaks the case, with what was found, unless the fact holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($found:tt)+) => {
        if !$holds {
            return Err($crate::contract::Fault::Broken(format!($($found)+)));
        }
    };
}

/// Lists cases by their files; each takes a `Bench` that is made of the harness.
#[macro_export]
macro_rules! cases {
    ($($file:ident: $($case:ident),+;)+) => {
        vec![$($($crate::contract::Case {
            name: stringify!($case),
            body: |harness| Box::pin($file::$case(Bench::new(harness))),
        }),+),+]
    };
}
