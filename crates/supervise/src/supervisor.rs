//! [`Supervisor`]: prepares everything, then carries what happens to the runner.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use regent::fresh::NoRandomness;
use regent::{CampaignError, Connect, ConnectError, LastResort, NotElected};
use regent_election::{BudgetError, Term};
use regent_tether::Means;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::election::Election;
use crate::machine::{Event, Shown};
use crate::observer::{Logged, Observer, SharedObserver};
use crate::plan::Plan;
use crate::runner::{Runner, Setup};
use crate::status;
use crate::view::{Shared, StateFile, View};

/// Runs one program in one group.
pub struct Supervisor {
    plan: Plan,
    observer: SharedObserver,
    event: mpsc::UnboundedSender<Event>,
    events: mpsc::UnboundedReceiver<Event>,
}

/// A way to reach a supervisor that runs. Cheap to clone; dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct Handle(mpsc::UnboundedSender<Event>);

impl Handle {
    /// Asks the supervisor to end. A program that runs gets this signal and its time to drain; the second
    /// time it is killed.
    pub fn terminate(&self, signal: i32) {
        let _ = self.0.send(Event::Terminate(signal));
    }

    /// Passes a signal on to the program's process group.
    pub fn signal(&self, signal: i32) {
        let _ = self.0.send(Event::Signal(signal));
    }
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With the program: its exit code, or 128 and the signal that ended it. 127 and 126 if it cannot be
    /// found or run, 125 if nothing can guard it.
    Program(u8),
    /// Asked to, while no program ran.
    Asked,
    /// The office was not won in time.
    NotElected(NotElected),
    /// The leadership was lost, and the plan says to end then.
    Lost,
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// Timers that do not fit together: change the ttl or the grace.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The tree cannot be held together as the plan says.
    #[error("{0}")]
    Contain(String),
    /// A file or directory cannot be made.
    #[error("{}: {error}", path.display())]
    File {
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The address of the status page cannot be had.
    #[error("{address}: {error}")]
    Listen {
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// Other machines would reach the status page, and nobody said that they may.
    #[error(
        "--status-listen {address} can be reached from other machines, without encryption or authentication; listen on 127.0.0.1 or [::1], or accept that with --status-insecure"
    )]
    StatusExposed { address: SocketAddr },
    /// The system gives no random numbers.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// There is no session to be had there.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The candidate may never stand.
    #[error(transparent)]
    Refused(#[from] CampaignError),
}

impl Supervisor {
    /// Does what the plan says, once it [`run`](Self::run)s.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let (event, events) = mpsc::unbounded_channel();
        Self { plan, observer: Arc::new(Logged), event, events }
    }

    /// Tells this observer what happens; the log, without one.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// A way to reach it while it runs.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(self.event.clone())
    }

    /// Runs the program, its name first, whenever this process leads; returns when the plan says so. The
    /// session is opened at the place given, under its node name and with the plan's timers.
    ///
    /// To be called on a thread that lives as long as the program. Dropping the future kills the program
    /// with all it started; its term is given up when nothing of it is alive. A watchdog is not disarmed then.
    pub async fn run<P>(
        mut self,
        at: Connect,
        program: impl IntoIterator<Item = P>,
    ) -> Result<Ended, SuperviseError>
    where
        P: Into<OsString>,
    {
        let program = program.into_iter().map(Into::into).collect();
        let event = self.event.clone();
        let overran = self.event.clone();
        let at = at.last_resort(LastResort::Ask(Arc::new(move |_, _| {
            let _ = overran.send(Event::Overran);
        })));
        let mut runner = Runner::new(prepare(self.plan, self.observer, at, program).await?, event);
        loop {
            if let Some(ending) = runner.turn() {
                return runner.end(ending).await;
            }
            let pause = runner.pause();
            let happened = tokio::select! {
                biased;
                Some(event) = self.events.recv() => event,
                news = runner.election.next() => news,
                () = tokio::time::sleep(pause) => Event::Tick,
            };
            runner.happened(happened);
        }
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// Everything that can be refused is, before this process stands.
async fn prepare(
    plan: Plan,
    observer: SharedObserver,
    at: Connect,
    program: Vec<OsString>,
) -> Result<Setup, SuperviseError> {
    let budget = plan.budget()?;
    if let Some(address) = plan.status_listen.filter(|it| !it.ip().is_loopback())
        && !plan.status_insecure
    {
        return Err(SuperviseError::StatusExposed { address });
    }
    let means = Means::find(plan.contain).map_err(SuperviseError::Contain)?;
    let file = StateFile::new(plan.state_file.clone())?;
    let listener = match plan.status_listen {
        None => None,
        Some(address) => Some(
            tokio::net::TcpListener::bind(address)
                .await
                .map_err(|error| SuperviseError::Listen { address, error })?,
        ),
    };
    let election = Election::stand(&plan, &budget, at, Arc::clone(&observer)).await?;
    let view = Shared::new(View {
        group: plan.group.clone(),
        node: election.node().clone(),
        shown: Shown::Standby,
        leader: None,
        term: Term::NONE,
        valid_until: None,
        pid: None,
        means: means.to_string(),
    });
    observer
        .remark(&format!("everything the program starts is held by {means}; {}", means.limits()));
    let mut page = JoinSet::new();
    if let Some(listener) = listener {
        if let Ok(address) = listener.local_addr() {
            observer.remark(&format!("status is at http://{address}/"));
        }
        page.spawn(status::serve(listener, view.clone()));
    }
    Ok(Setup { plan, observer, program, budget, means, file, election, view, page })
}
