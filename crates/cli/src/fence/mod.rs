//! `regent fence`: whatever compares terms where a write lands. Every verb is a file of the same name.

mod install;
mod target;
mod test;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::output::Output;

/// Verbs of `regent fence`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
Examples:
  regent fence install postgres://admin@db/shop --table public.orders
  regent fence test postgres://admin@db/shop --trials 1000")]
pub(crate) enum FenceVerb {
    /// Put a fence on a table of PostgreSQL, or take it away
    Install(install::InstallArgs),
    /// Hammer a fence from paused leaders, and show the stale write if there is one
    Test(test::TestArgs),
}

impl FenceVerb {
    /// For whom a failure is told.
    pub(crate) fn output(&self) -> Output {
        match self {
            Self::Install(args) => args.output,
            Self::Test(args) => args.output,
        }
    }
}

/// Runs the verb.
pub(crate) async fn run(verb: FenceVerb) -> Outcome {
    match verb {
        FenceVerb::Install(args) => install::run(args).await,
        FenceVerb::Test(args) => test::run(args).await,
    }
}
