//! `regent run`: a program that runs while this process leads, and not a moment longer.
//!
//! Three parts, none of which knows the others: the **election** keeps the lease, the **tether** holds
//! the program and all it starts, and the **supervisor**'s machine decides. This file carries what
//! happens to the machine and does what it says.
//!
//! Whatever becomes of this process, the guard of the tether knows until when the lease is valid and
//! ends the tree before. So nothing here has to be in time for safety's sake; it has to be in time to
//! be graceful.

mod args;
mod election;
mod fence;
mod machine;
mod notify;
mod place;
mod probe;
mod runner;
mod signals;
mod status;
mod view;
mod watchdog;

use std::time::Duration;

use regent_election::Term;
use regent_tether::Means;
use tokio::sync::mpsc;

pub(crate) use args::RunArgs;
use election::{Candidate, Election};
use machine::{Event, Shown};
use place::Place;
use probe::Probe;
use runner::{Runner, Setup};
use signals::Signals;
use view::{Shared, StateFile, View};

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::remark;

/// How long the store may take to be told of the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Runs the program whenever it may.
pub(crate) async fn run(args: RunArgs) -> Outcome {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
    let (event, mut events) = mpsc::unbounded_channel();
    let mut runner = Runner::new(prepare(args).await?, event);
    loop {
        if let Some(ending) = runner.turn() {
            return runner.end(ending).await;
        }
        let pause = runner.pause();
        let happened = tokio::select! {
            biased;
            signal = signals.next() => signal,
            Some(event) = events.recv() => event,
            news = runner.election.next() => news,
            () = tokio::time::sleep(pause) => Event::Tick,
        };
        runner.happened(happened);
    }
}

/// Everything that can be refused is, before anybody stands.
async fn prepare(args: RunArgs) -> Result<Setup, Failure> {
    let budget = args.budget()?;
    let place = Place::find(&args).await?;
    let probe = args.probe.as_deref().map(Probe::parse).transpose();
    let probe = probe.map_err(|why| Failure::usage(format!("--probe: {why}")))?;
    let means = Means::find(args.contain.into())
        .map_err(|why| Failure::new(Exit::Unavailable, format!("--contain: {why}")))?;
    let candidate = Candidate {
        group: args.group.clone(),
        node: args.node.clone(),
        priority: args.priority,
        metadata: args.metadata()?,
        follows: !args.no_follow && args.fence_previous.is_none(),
    };
    let file = StateFile::new(args.state_file.clone())?;
    let listener = match args.status_listen {
        None => None,
        Some(address) => Some(tokio::net::TcpListener::bind(address).await.map_err(|error| {
            Failure::new(Exit::Unavailable, format!("--status-listen {address}: {error}"))
        })?),
    };
    let election = Election::stand(candidate, &budget, &place).await?;
    let view = Shared::new(View {
        group: args.group.clone(),
        node: election.node().clone(),
        shown: Shown::Standby,
        leader: None,
        term: Term::NONE,
        valid_until: None,
        pid: None,
        means: means.to_string(),
    });
    remark(&format!("everything the program starts is held by {means}; {}", means.limits()));
    if let Some(listener) = listener {
        if let Ok(address) = listener.local_addr() {
            remark(&format!("status is at http://{address}/"));
        }
        tokio::spawn(status::serve(listener, view.clone()));
    }
    Ok(Setup { args, budget, place, probe, means, file, election, view })
}
