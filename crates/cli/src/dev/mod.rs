//! `regent dev`: a whole cluster on this machine in one command, to try things out.
//!
//! Every replica is a process of its own, so that one can be killed and the others watched as they
//! go on. What dies is started again a little later. All of them end with this process, even if it
//! is killed itself: each reads a pipe that only this process holds open.
//!
//! The road not taken is all replicas in one process: quicker to start, but then nothing can be
//! killed but everything.

mod look;
mod news;
mod processes;
mod site;
mod view;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Screen};
use crate::signals::Signals;
use look::{Looker, Picture};
use news::Changes;
use processes::Processes;
use site::Site;
use view::Terminal;

/// How long a cluster may take until one of its replicas leads.
const LEADS_WITHIN: Duration = Duration::from_secs(60);
/// How often the picture is renewed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

const EXAMPLES: &str = "\
Examples:
  regent dev                                    # three replicas; nothing is kept
  regent dev --nodes 5 --data-dir ./cluster     # go on with it later by the same command
  regent dev --witness                          # two with state, one that only votes
  regent dev --port 0                           # on any free ports

On a terminal it shows who leads the log and every group, live; otherwise it prints a line per
change. Kill a replica (`kill -9`) and see the others go on; it is started again ten seconds
later. Ctrl-C ends everything.";

/// Flags of `regent dev`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevArgs {
    /// How many replicas: 3 or 5 [default: 3]
    #[arg(long, value_name = "N", value_parser = nodes)]
    nodes: Option<u16>,
    /// Let the last one be a witness: it votes and keeps the log, but no state
    #[arg(long)]
    witness: bool,
    /// The first port; two for each replica. 0 takes free ones [default: 7400 if free]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Keep the data here; left out, they are removed at the end
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

fn nodes(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(count @ (3 | 5)) => Ok(count),
        Ok(_) | Err(_) => Err("3 survive one failure, 5 survive two; say 3 or 5".into()),
    }
}

/// Runs a cluster until it is interrupted.
pub(crate) async fn run(args: DevArgs) -> Outcome {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
    let site = Site::prepare(args.data_dir, args.nodes, args.port, args.witness)?;
    let mut processes = Processes::new();
    for seat in &site.seats {
        processes.start(seat)?;
    }
    let looker = Looker::new(&site)?;
    let starting = timeout(LEADS_WITHIN, first_picture(looker, &site, &mut processes));
    let outcome = tokio::select! {
        first = starting => match first {
            Ok(Ok(looking)) => show(&site, looking, &mut processes, &mut signals).await,
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::new(
                Exit::Unavailable,
                format!("no replica leads after {} s; {}", LEADS_WITHIN.as_secs(), site.logs()),
            )),
        },
        _ = signals.next() => Ok(Exit::Done),
    };
    tokio::select! {
        () = processes.end(site.is_kept()) => {}
        _ = signals.next() => {}
    }
    drop(processes);
    site.leave();
    outcome
}

/// Pictures of the cluster, the changes of its groups, and the first picture.
struct Looking {
    pictures: Receiver<Picture>,
    changes: Changes,
    picture: Picture,
}

/// Looks until a replica leads and everybody answers. A replica that ends before that will not get
/// better by being started again.
async fn first_picture(
    looker: Looker,
    site: &Site,
    processes: &mut Processes,
) -> Result<Looking, Failure> {
    let changes = Changes::new(looker.watch());
    let mut pictures = looker.pictures(LOOK_EVERY);
    loop {
        tokio::select! {
            ended = processes.next_ended() => return Err(site.did_not_start(&ended)),
            Some(picture) = pictures.recv() => if picture.is_complete() {
                return Ok(Looking { pictures, changes, picture });
            },
        }
    }
}

/// Shows what happens until it is interrupted.
async fn show(
    site: &Site,
    looking: Looking,
    processes: &mut Processes,
    signals: &mut Signals,
) -> Outcome {
    let Looking { mut pictures, mut changes, mut picture } = looking;
    let screen = Screen { output: Output::Text };
    let terminal = if io::stdout().is_terminal() { Some(Terminal::enter()?) } else { None };
    if terminal.is_none() {
        screen.line(&site.greeting(processes))?;
    }
    loop {
        let mut told = Vec::new();
        tokio::select! {
            _ = signals.next() => return Ok(Exit::Done),
            ended = processes.next_ended() => told.push(processes.note_end(&ended)),
            change = changes.next() => told.extend(change?),
            Some(seen) = pictures.recv() => {
                told.extend(news::between(&picture, &seen));
                picture = seen;
            }
        }
        for seat in processes.due(&site.seats) {
            processes.start(seat)?;
            told.push(format!("replica {} is started again", seat.id));
        }
        match &terminal {
            Some(terminal) => {
                changes.remember(told);
                terminal.draw(&view::frame(site, processes, &picture, &changes))?;
            }
            None => {
                for line in told {
                    screen.line(&line)?;
                }
            }
        }
    }
}
