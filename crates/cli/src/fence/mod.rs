//! `regent fence`: whatever compares terms where a write lands. Every verb is a file of the same name.

mod gateway;
mod install;
mod keys;
mod test;

use clap::Subcommand;

use crate::failure::CommandResult;

/// Verbs of `regent fence`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
Examples:
  regent fence gateway --group billing --upstream http://127.0.0.1:9000 --data ./fence
  regent fence keys new /etc/regent/signing.keys
  regent fence install postgres://admin@db/shop --table public.orders
  regent fence test postgres://admin@db/shop --trials 1000")]
pub(crate) enum FenceVerb {
    /// Run a reverse proxy that admits writes of the current leader only
    Gateway(Box<gateway::GatewayArgs>),
    /// The keys by which a service signs terms
    #[command(subcommand)]
    Keys(keys::KeysVerb),
    /// Put a fence on a table of PostgreSQL, or take it away
    Install(install::InstallArgs),
    /// Hammer a fence from paused leaders, and show the stale write if there is one
    Test(test::TestArgs),
}

impl FenceVerb {
    /// Whether it serves many at once, and so wants more than one thread.
    pub(crate) const fn serves_many(&self) -> bool {
        match self {
            Self::Gateway(_) => true,
            Self::Install(_) | Self::Keys(_) | Self::Test(_) => false,
        }
    }
}

/// Runs the verb.
pub(crate) async fn run(verb: FenceVerb) -> CommandResult {
    match verb {
        FenceVerb::Gateway(args) => gateway::run(*args).await,
        FenceVerb::Keys(verb) => keys::run(&verb),
        FenceVerb::Install(args) => install::run(args).await,
        FenceVerb::Test(args) => test::run(args).await,
    }
}
