//! `regent cluster`: our own store as an operator sees it. One verb, one file.

mod founding;
mod init;
mod members;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::logs::LogArgs;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  regent cluster init --id 1 --members 1=a:7401/a:7400,2=b:7401/b:7400,3=c:7401/c:7400";

/// Verbs of `regent cluster`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum ClusterVerb {
    /// Prepare the data directory of one replica
    Init(init::InitArgs),
}

impl ClusterVerb {
    /// For whom a failure is told.
    pub(crate) fn output(&self) -> Output {
        match self {
            Self::Init(args) => args.output,
        }
    }
}

/// Runs one of the verbs.
pub(crate) async fn run(verb: ClusterVerb, log: &LogArgs) -> Outcome {
    match verb {
        ClusterVerb::Init(args) => init::run(args, log),
    }
}
