//! `regent dev`: a whole cluster on this machine in one command, to try things out.
//!
//! The cluster is `regent_service::dev`; this is the page that shows it. What dies is started again a
//! little later.

mod view;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use regent::remote::TlsFiles;
use regent_election::error_text::plain;
use regent_operate::cluster_view::{ClusterObserver, ClusterPicture};
use regent_operate::watch_lines::Changes;
use regent_service::dev::{AGAIN_AFTER, DevCluster, DevError, EndedReplica, Processes};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, remark};
use crate::signals::Signals;
use view::Terminal;

/// How long a cluster may take until one of its replicas leads.
const LEADS_WITHIN: Duration = Duration::from_secs(60);
/// Lines of a replica's log that are shown when it does not start.
const LOG_LINES: usize = 5;
/// How often the picture is renewed.
const DEV_POLL_EVERY: Duration = Duration::from_millis(250);

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
    /// Let clients and replicas speak TLS, by a CA that is made with the cluster
    #[arg(long)]
    tls: bool,
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
pub(crate) async fn run(args: DevArgs) -> CommandResult {
    let mut signals = Signals::listen()?;
    let site = DevCluster::prepare(args.data_dir, args.nodes, args.port, args.witness, args.tls)?;
    TlsFiles { ca: site.ca(), ..TlsFiles::default() }.set_default();
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Exit::Unavailable, format!("this program: {}", plain(&error)))
    })?;
    let mut processes = Processes::of(program);
    for seat in &site.seats {
        processes.start(seat)?;
    }
    let replicas = site.seats.iter().map(|seat| (seat.id.get(), seat.url()));
    let observer = ClusterObserver::new(replicas, &site.servers())?;
    let starting = timeout(LEADS_WITHIN, first_picture(observer, &site, &mut processes));
    let outcome = tokio::select! {
        first = starting => match first {
            Ok(Ok(looking)) => show(&site, looking, &mut processes, &mut signals).await,
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::new(
                Exit::Unavailable,
                format!(
                    "no replica leads after {} s; the logs are {}",
                    LEADS_WITHIN.as_secs(),
                    site.directory().join("replica-*.log").display()
                ),
            )),
        },
        _ = signals.next() => Ok(Exit::Done),
    };
    tokio::select! {
        () = processes.end(site.is_kept()) => {}
        _ = signals.next() => {}
    }
    drop(processes);
    if let Err(error) = site.leave() {
        remark(&error.to_string());
    }
    outcome
}

/// A replica that ended before it had begun.
fn did_not_start(site: &DevCluster, ended: &EndedReplica) -> Failure {
    let EndedReplica { id, how } = ended;
    let tail = site.last_words(*id, LOG_LINES).join("\n  ");
    let why = format!("replica {id} did not start ({how}); its last words:\n  {tail}");
    Failure::new(Exit::Unavailable, why)
}

impl From<DevError> for Failure {
    fn from(error: DevError) -> Self {
        let what = error.to_string();
        let told = |exit, way_out: &str| Self::new(exit, format!("{what}{way_out}"));
        match error {
            DevError::Replica(error) => error.into(),
            DevError::Settings(error) => error.into(),
            DevError::NoAddresses { .. } => told(Exit::Config, ""),
            DevError::File { .. } | DevError::NotRemoved { .. } => told(Exit::Files, ""),
            DevError::AnotherCluster { .. } => told(
                Exit::Usage,
                "; leave --nodes, --port, --witness and --tls out to go on with it, or choose another directory",
            ),
            DevError::Taken { .. } => {
                told(Exit::Config, "; choose an empty directory with --data-dir")
            }
            DevError::PortsTaken { .. } => {
                told(Exit::Unavailable, "; say --port 0 for any that are")
            }
            DevError::NoPorts | DevError::Spawn { .. } => told(Exit::Unavailable, ""),
        }
    }
}

/// Pictures of the cluster, the changes of its groups, and the first picture.
struct Looking {
    pictures: Receiver<ClusterPicture>,
    changes: Changes,
    picture: ClusterPicture,
}

/// Looks until a replica leads and everybody answers. A replica that ends before that will not get
/// better by being started again.
async fn first_picture(
    observer: ClusterObserver,
    site: &DevCluster,
    processes: &mut Processes,
) -> Result<Looking, Failure> {
    let changes = Changes::new(observer.watch());
    let mut pictures = observer.pictures(DEV_POLL_EVERY);
    loop {
        tokio::select! {
            ended = processes.next_ended() => return Err(did_not_start(site, &ended)),
            Some(picture) = pictures.recv() => if picture.is_complete() {
                return Ok(Looking { pictures, changes, picture });
            },
        }
    }
}

/// Shows what happens until it is interrupted.
async fn show(
    site: &DevCluster,
    looking: Looking,
    processes: &mut Processes,
    signals: &mut Signals,
) -> CommandResult {
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
            ended = processes.next_ended() => {
                processes.note_end(&ended);
                let EndedReplica { id, how } = ended;
                let again_s = AGAIN_AFTER.as_secs();
                told.push(format!("replica {id} ended ({how}); it is started again in {again_s} s"));
            }
            change = changes.next() => told.extend(change?),
            Some(seen) = pictures.recv() => {
                told.extend(seen.since(&picture).into_iter().map(|news| news.to_string()));
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
