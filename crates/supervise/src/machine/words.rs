//! What the supervisor is told, and what it says.

use std::time::Duration;

use regent_election::{Moment, Term};
use regent_tether::Status;

/// What a user wants, as far as it decides anything.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// How long before the end of the lease everything is killed, so that it is gone by then.
    pub(crate) reserve: Duration,
    /// How long a guard may leave a lease unacknowledged.
    pub(crate) guard_silence: Duration,
    /// How long a program may take to end when the user, not the lease, wants it to.
    pub(crate) drain: Duration,
    /// How long to wait for the office; none is for ever.
    pub(crate) wait: Option<Duration>,
    /// Whether to go as soon as somebody else is seen to lead.
    pub(crate) once: bool,
    /// Whether to stand again when the program has ended by itself.
    pub(crate) restart: bool,
    /// Whether to go when the leadership is lost.
    pub(crate) exit_on_lost: bool,
    /// Whether something must succeed before the program starts.
    pub(crate) fences: bool,
    /// How the program proves that it works; none if it need not.
    pub(crate) probe: Option<ProbeRules>,
    /// How long the store may take to hear of the end.
    pub(crate) farewell: Duration,
}

/// What a probe must show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeRules {
    /// How long the program may be silent.
    pub(crate) limit: Duration,
    /// How long its first answer may take.
    pub(crate) start: Duration,
}

/// What the supervisor is told.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// This process leads.
    Elected { term: Term, valid_until: Moment },
    /// The lease was renewed.
    Extended { valid_until: Moment },
    /// Renewals fail.
    Jeopardy,
    /// Renewals work again.
    Recovered,
    /// The work must have ended by then.
    StopBy { by: Moment },
    /// The term is gone.
    Lost,
    /// Somebody else leads.
    OtherLeads,
    /// This candidate may never stand.
    PermanentFailure,
    /// Nothing is left to tell the store.
    Left,
    /// What must succeed before the program starts in this term has, or has not.
    Fenced { term: Term, is_done: bool },
    /// The program runs, under this number.
    Started(u32),
    /// The program cannot be started at all; the code that shells use for it.
    Failed(u8),
    /// The guard counts on the lease.
    Heard(Moment),
    /// The guard stops the program by itself.
    Overdue,
    /// The lease is over, and nobody has said yet that the work has ended.
    Overran,
    /// The guard was asked, and something of the tree is alive.
    Alive,
    /// The program has ended.
    Exited(Status),
    /// Nothing of the tree is alive.
    Over,
    /// A probe that began then succeeded.
    Proved { asked_at: Moment },
    /// Somebody wants this process to end; the signal is for the program, too.
    Terminate(i32),
    /// A signal for the program alone.
    Signal(i32),
    /// Time has passed.
    Tick,
}

/// What must be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Run what must succeed before the program starts.
    Fence { term: Term },
    /// End that command: it is not needed any more.
    CancelFence,
    /// Start the program.
    Start { term: Term, valid_until: Moment },
    /// Tell the guard.
    Lease(Moment),
    /// Tell the program to stop, and kill the tree then.
    Stop { kill_at: Moment },
    /// Kill the tree.
    Kill,
    /// Kill the guard, which does not do what it is told.
    KillGuard,
    /// Ask the guard whether anything of the tree is alive.
    AskGuard,
    /// Tell people that work runs, or may run, though its lease is over.
    Alarm { has_answered: bool },
    /// Pass a signal on.
    Forward(i32),
    /// Tell the election that the work failed by itself, and that this process will stand again.
    WorkFailed,
    /// Tell the election that nothing of the work runs any more.
    WorkEnded,
    /// Tell the election that this term is to be given up once the work has ended.
    Resign,
    /// Tell the election that this process leaves.
    Leave,
    /// Run a hook of the user's.
    Hook(Hook),
    /// Tell everybody who looks.
    Show(Shown),
    /// End with this.
    Exit(Ending),
}

/// When the user's own commands run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// This process leads.
    Elected,
    /// Renewals fail.
    Jeopardy,
    /// This process leads no more, or is about to.
    Lost,
}

/// What everybody who looks may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// It waits for the office.
    Standby,
    /// It leads; the program is not started yet.
    Fencing,
    /// It leads and the program runs.
    Leading,
    /// It leads, and renewals fail.
    Jeopardy,
    /// The program has been told to stop.
    Stopping,
    /// The term is gone while the program was running.
    Lost,
    /// The program has ended; others of its tree may live.
    Ended(Status),
    /// Nothing runs any more, and it is on its way out.
    Leaving,
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With the program's own code.
    Program(u8),
    /// Asked to, while no program ran.
    Asked,
    /// The office was not won in time.
    NotElected,
    /// The leadership is gone.
    Lost,
    /// The candidate may never stand.
    PermanentFailure,
}
