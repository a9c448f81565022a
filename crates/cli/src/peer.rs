//! `regent peer`: storeless election between processes; [`regent_peer`] elects, this prints.

use std::time::Duration;

use clap::{Args, ValueEnum};
use regent::fresh;
use regent_election::Node;
use regent_peer::{Member, News, Patience, Peer, PeerError, Roster, Standing, Wishes, settle};
use regent_tether::hook::ChangeHook;

use crate::duration::{parse, show};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Screen, remark};
use crate::signals::Signals;

/// How long a command of `--on-change` may take.
const HOOK_MAX: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  regent peer --node a --peers a=127.0.0.1:7501,b=127.0.0.1:7502,c=127.0.0.1:7503
  regent peer --algorithm ring --node b --peers a=127.0.0.1:7501,b=127.0.0.1:7502
  regent peer --node a --peers a=[::1]:7501,b=[::1]:7502 --output json
  regent peer --node a --peers a=127.0.0.1:7501,b=127.0.0.1:7502 --on-change ./changed.sh

One process for each name, all with the same --peers and paces; the highest name that is alive
leads. Whoever is cut off or paused may lead beside another leader: only for places where that
does no harm. Where it does, use `regent run`.

It prints a line for each change (`c leads`, `a follows c`, `nobody leads`). The command of
--on-change gets REGENT_NODE, REGENT_LEADER (empty if nobody leads) and REGENT_IS_LEADER (true or
false); it has 30 s, one runs at a time, and the last change wins.";

/// The algorithms that need nothing but peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Algorithm {
    /// The highest name that is alive leads, and takes the office back when it returns
    #[default]
    Bully,
    /// A token collects names, and the highest wins
    Ring,
    /// A token of one name, replaced by higher ones
    ChangRoberts,
}

impl From<Algorithm> for regent_peer::Algorithm {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Bully => Self::Bully,
            Algorithm::Ring => Self::Ring,
            Algorithm::ChangRoberts => Self::ChangRoberts,
        }
    }
}

/// Flags of `regent peer`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PeerArgs {
    /// How they elect
    #[arg(long, value_enum, default_value_t)]
    algorithm: Algorithm,
    /// Which of the peers this process is
    #[arg(long)]
    node: Node,
    /// Everybody, this process included; the same in every process
    #[arg(long, value_name = "NAME=IP:PORT,…", value_delimiter = ',', required = true)]
    peers: Vec<Peer>,
    /// A command that is run whenever it changes who leads
    #[arg(long, value_name = "COMMAND")]
    on_change: Option<String>,
    /// Let peers be elsewhere than on loopback, though nothing is authenticated
    #[arg(long)]
    allow_remote: bool,
    /// How often a leader shows itself [default: 100ms]
    #[arg(long, value_name = "DURATION", value_parser = parse, help_heading = "Paces")]
    heartbeat: Option<Duration>,
    /// Election timeout, chosen at random from this range [default: what fits, like 400ms..800ms]
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_patience, help_heading = "Paces")]
    patience: Option<Patience>,
    /// How long an answer is waited for: a whole round trip [default: 100ms]
    #[arg(long, value_name = "DURATION", value_parser = parse, help_heading = "Paces")]
    answer: Option<Duration>,
}

fn parse_patience(text: &str) -> Result<Patience, String> {
    let (min, max) = text.split_once("..").ok_or_else(|| {
        format!(
            "{text:?} is no range of times; write the shortest and the longest, like 400ms..800ms"
        )
    })?;
    Ok(Patience { min: parse(min)?, max: parse(max)? })
}

/// Takes part until it is told to end.
pub(crate) async fn run(args: PeerArgs) -> CommandResult {
    let algorithm = regent_peer::Algorithm::from(args.algorithm);
    let roster = Roster::new(args.peers, &args.node, args.allow_remote)
        .map_err(|error| Failure::usage(format!("--peers: {error}")))?;
    let wishes = Wishes { heartbeat: args.heartbeat, patience: args.patience, answer: args.answer };
    let pace = settle(algorithm, roster.count(), &wishes)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let greeting = format!(
        "{} is one of {} peers by {}, on {}; a silent leader is missed after {} to {}",
        roster.own_name(),
        roster.count(),
        algorithm.name(),
        roster.own_address(),
        show(pace.patience_min),
        show(pace.patience_max),
    );
    let mut signals = Signals::listen()?;
    let mut member =
        Member::start(algorithm, roster, pace, fresh::number()?).await.map_err(unavailable)?;
    for line in algorithm.weaknesses() {
        remark(&line);
    }
    remark(&greeting);
    let failed = |why: &str| remark(&format!("--on-change: {why}"));
    let mut hook = ChangeHook::new(args.on_change, HOOK_MAX, failed);
    let screen = Screen::chosen();
    loop {
        tokio::select! {
            biased;
            name = signals.next() => {
                remark(&format!("{name}: leaves"));
                break;
            }
            () = hook.ended() => {}
            news = member.next() => match news.map_err(unavailable)? {
                News::Remark(line) => remark(&line),
                News::Changed(standing) => {
                    screen.answer(&standing, || standing.to_string())?;
                    hook.run(standing.environment());
                }
            },
        }
    }
    if let Some(line) = member.dropped() {
        remark(&line);
    }
    // Nothing is answered any more, as if it had died.
    drop(member);
    hook.run(Standing { node: args.node, leader: None }.environment());
    tokio::select! {
        () = hook.finish() => Ok(Exit::Done),
        name = signals.next() => {
            let text = format!("{name} again: the command of --on-change is ended");
            Err(Failure::new(Exit::Interrupted, text))
        }
    }
}

fn unavailable(error: PeerError) -> Failure {
    Failure::new(Exit::Unavailable, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patience_is_two_times() {
        assert!(parse_patience("400ms").unwrap_err().contains("400ms..800ms"));
        assert!(parse_patience("400..800").unwrap_err().contains("no duration"));
    }
}
