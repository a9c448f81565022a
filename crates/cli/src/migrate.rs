//! `regent migrate`: a group moves to another store, with its leader and above its terms.

use std::time::Duration;

use clap::Args;
use regent_election::{Group, Home};
use regent_operate::migrate::{
    MigrateError, MigrateOptions, Moved, Mover, Side, SideError, without_secrets,
};

use crate::client::credential_of_context;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure, exit_of};
use crate::output::{Screen, facts, or_dash, remark};
use crate::serve::unopened;

/// Flags of `regent migrate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Three steps: the new store reserves the group and elects no leader. The old store stops its leader
and forwards participants to the new store. When the old office is vacant, the new store elects,
with terms above the old ones. Until then the group has no leader. Participants that use the
library or `regent run` follow by themselves, the leader first. After an interruption, the same
command finishes the move, and the opposite one reverses it.

What stays behind: the history of the group, and a tombstone that names the new store. Keep the
old store until no process is started with its URL any more.

Examples:
  regent migrate --from http://127.0.0.1:7400 --to postgres://regent@db/x --group billing
  regent migrate --from redis://cache --to http://a:7400,b:7400 --group billing --group mail
  regent migrate --from etcd://a,b,c --to redis://cache --group billing --allow-weaker")]
pub(crate) struct MigrateArgs {
    /// The store it is in: a service (http://...), or whatever `regent store list` shows
    #[arg(long, value_name = "URL")]
    from: String,
    /// The store it moves to
    #[arg(long, value_name = "URL")]
    to: String,
    /// The group; repeat it for more
    #[arg(long, required = true, value_name = "GROUP")]
    group: Vec<Group>,
    /// The URL that participants are forwarded to [default: --to without its password]
    #[arg(long, value_name = "URL")]
    forward: Option<String>,
    /// The URL under which the new store knows the old one, if the group comes back and was told another
    #[arg(long, value_name = "URL")]
    from_known_as: Option<String>,
    /// Only close the group in the old store and forward participants: for a store that was restored
    /// from before the move
    #[arg(long)]
    close_only: bool,
    /// Move even if the new store claims less than the old one
    #[arg(long)]
    allow_weaker: bool,
    /// How long the new store waits for the leader of the old one before it takes another
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    heir_wait: Duration,
    /// How long each step may take, the old leader's ttl included
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    timeout: Duration,
}

/// Runs the verb.
pub(crate) async fn run(args: MigrateArgs) -> CommandResult {
    credential_of_context()?;
    let (from, to) = (Side::open(&args.from)?, Side::open(&args.to)?);
    let home = |url: &Option<String>| url.as_deref().map(Home::new).transpose();
    let options = MigrateOptions {
        forward: home(&args.forward)?,
        known_as: home(&args.from_known_as)?,
        allow_weaker: args.allow_weaker,
        heir_wait: args.heir_wait,
        timeout: args.timeout,
    };
    let mover = Mover::new(from, to, options, |progress| remark(&progress.to_string()))?;
    warn_of_secrets(&args, mover.forward())?;
    if !args.close_only {
        mover.compare_levels().await?;
    }
    for group in &args.group {
        let moved = match args.close_only {
            true => mover.close(group).await?,
            false => mover.migrate(group).await?,
        };
        Screen::chosen().answer(&moved, || show(&moved))?;
    }
    mover.shut_down().await;
    Ok(Exit::Done)
}

/// Every client that asks for the group sees where it went.
fn warn_of_secrets(args: &MigrateArgs, forward: &Home) -> Result<(), Failure> {
    match &args.forward {
        Some(url) if without_secrets(url)? != *url => remark(
            "warning: every client that asks for the group sees --forward, with its password",
        ),
        Some(_) => {}
        None if forward.as_str() != args.to => remark(&format!(
            "participants are forwarded to {forward}, without the secrets of --to: configure those in \
             the participants, or name another URL with --forward"
        )),
        None => {}
    }
    Ok(())
}

impl From<SideError> for Failure {
    fn from(error: SideError) -> Self {
        match error {
            SideError::Secret { .. } => Self::usage(error.to_string()),
            SideError::Name(error) => error.into(),
            SideError::Address(error) => error.into(),
            SideError::Store(error) => unopened(error),
        }
    }
}

impl From<MigrateError> for Failure {
    fn from(error: MigrateError) -> Self {
        let message = error.to_string();
        match error {
            MigrateError::SameStore => Self::usage("--from and --to are the same store"),
            MigrateError::Unready(problem) => Self::new(exit_of(problem.code), message),
            MigrateError::Weaker(_) => {
                let way_out = "nothing was done; if that is meant, add --allow-weaker";
                Self::new(Exit::Refused, format!("{message}; {way_out}"))
            }
            MigrateError::Stopped(stopped) => Self::new(exit_of(stopped.problem.code), message),
        }
    }
}

fn show(moved: &Moved) -> String {
    let leaderless = moved.leaderless_ms.map(|ms| format!("{ms} ms"));
    facts(vec![
        ("group", moved.group.clone()),
        ("moved to", moved.to.clone()),
        ("last term", moved.last_term.to_string()),
        ("led by", or_dash(moved.led_by.as_ref())),
        ("leader", or_dash(moved.leader.as_ref())),
        ("term", moved.term.to_string()),
        ("leaderless", or_dash(leaderless)),
    ])
}
