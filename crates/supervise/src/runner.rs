//! Carries what happens to the machine, and does what it says.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use regent::{CampaignError, NotElected};
use regent_election::timing::Budget;
use regent_election::{Moment, Term};
use regent_tether::shell;
use regent_tether::{GuardReport, Means, Order, Tether};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::election::Election;
use crate::fence;
use crate::machine::{Action, Ending, Event, Hook, Machine, Shown};
use crate::notify::{self, Notify};
use crate::observer::{Observer, SharedObserver};
use crate::plan::{Plan, millis, show};
use crate::supervisor::{Ended, SuperviseError};
use crate::view::{Shared, StateFile};
use crate::watchdog::Petted;

/// How long a hook may take that tells of the end; the others end with the lease.
const HOOK_MAX: Duration = Duration::from_secs(30);
/// Timers stand still while a machine sleeps: clocks are read at least this often.
const TICK: Duration = Duration::from_millis(250);
/// The system's number for it.
const NO_SUCH_FILE: i32 = 2;
/// What shells say of a program that is not there, that cannot be run, and that never got so far.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;
const NOT_TETHERED: u8 = 125;

/// What it takes to begin.
pub(crate) struct Setup {
    pub(crate) plan: Plan,
    pub(crate) observer: SharedObserver,
    /// The program's name and its arguments.
    pub(crate) program: Vec<OsString>,
    pub(crate) budget: Budget,
    pub(crate) means: Means,
    pub(crate) file: StateFile,
    pub(crate) election: Election,
    pub(crate) view: Shared,
    /// The status page, if there is one.
    pub(crate) page: JoinSet<()>,
}

/// The credential of this process, which is not its program's.
const CREDENTIALS: &[&str] =
    &["REGENT_TOKEN", "REGENT_TOKEN_FILE", "REGENT_CERT", "REGENT_CERT_KEY"];

/// Everything that is carried about.
pub(crate) struct Runner {
    plan: Plan,
    observer: SharedObserver,
    program: Vec<OsString>,
    machine: Machine,
    pub(crate) election: Election,
    budget: Budget,
    means: Means,
    /// For tasks and threads that have something to say.
    event: mpsc::UnboundedSender<Event>,
    ahead: VecDeque<Event>,
    view: Shared,
    file: StateFile,
    notify: Notify,
    /// Why it was not elected when it left.
    why_not: NotElected,
    /// Ends with the supervisor.
    _page: JoinSet<()>,
    tether: Option<Tether>,
    watchdog: Option<Petted>,
    fence: Option<AbortHandle>,
    prober: Option<AbortHandle>,
    hooks: JoinSet<()>,
    /// Hooks that end with the leadership.
    brief_hooks: Vec<AbortHandle>,
}

impl Runner {
    /// Stands by; `event` is for tasks and threads that have something to say.
    pub(crate) fn new(setup: Setup, event: mpsc::UnboundedSender<Event>) -> Self {
        let Setup { plan, observer, program, budget, means, file, election, view, page } = setup;
        let now = regent_clock::now();
        let manager =
            if plan.notifies_manager { Notify::from_environment() } else { Notify::default() };
        let mut runner = Self {
            machine: Machine::new(plan.rules(), now),
            observer,
            program,
            election,
            budget,
            means,
            event,
            ahead: VecDeque::new(),
            view,
            file,
            notify: manager,
            why_not: NotElected::Vacant,
            _page: page,
            tether: None,
            watchdog: None,
            fence: None,
            prober: None,
            hooks: JoinSet::new(),
            brief_hooks: Vec::new(),
            plan,
        };
        runner.show(now, Shown::Standby);
        runner.notify.tell("READY=1");
        runner
    }

    /// Something has happened.
    pub(crate) fn happened(&mut self, event: Event) {
        self.ahead.push_back(event);
    }

    /// Lets the machine take everything that has happened, and does what it says.
    pub(crate) fn turn(&mut self) -> Option<Ending> {
        while let Some(event) = self.ahead.pop_front() {
            self.note(&event);
            if let Event::Started(_) = event {
                self.begin_probe();
            }
            let now = regent_clock::now();
            for action in self.machine.on(now, event) {
                if let Some(ending) = self.act(now, action) {
                    return Some(ending);
                }
            }
        }
        let now = regent_clock::now();
        self.notify.alive(now);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.look(now, self.view.get().valid_until, &self.observer);
        }
        while self.hooks.try_join_next().is_some() {}
        None
    }

    /// What others may see changes with what happens, whatever is made of it.
    fn note(&self, event: &Event) {
        let leader = self.election.seen.clone();
        self.view.change(|view| {
            view.leader = leader;
            match event {
                Event::Started(pid) => view.pid = Some(*pid),
                Event::Over => view.pid = None,
                Event::Elected { term, valid_until } => {
                    (view.term, view.valid_until) = (*term, Some(*valid_until));
                }
                Event::Extended { valid_until } => view.valid_until = Some(*valid_until),
                Event::StopBy { by } => {
                    view.valid_until = view.valid_until.map(|until| until.min(*by));
                }
                Event::Lost => view.valid_until = None,
                Event::Jeopardy
                | Event::Recovered
                | Event::OtherLeads
                | Event::PermanentFailure
                | Event::Left
                | Event::Fenced { .. }
                | Event::Failed(_)
                | Event::Heard(_)
                | Event::Overdue
                | Event::Overran
                | Event::Alive
                | Event::Exited(_)
                | Event::Proved { .. }
                | Event::Terminate(_)
                | Event::Signal(_)
                | Event::Tick => {}
            }
        });
    }

    fn act(&mut self, now: Moment, action: Action) -> Option<Ending> {
        match action {
            Action::Fence { term } => self.begin_fence(term),
            Action::CancelFence => {
                if let Some(fence) = self.fence.take() {
                    fence.abort();
                }
            }
            Action::Start { term, valid_until } => self.start(term, valid_until),
            Action::Lease(until) => self.tell_guard(|tether| tether.lease(until)),
            Action::Stop { kill_at } => self.tell_guard(|tether| tether.stop(kill_at)),
            Action::AskGuard => self.tell_guard(Tether::ask),
            Action::Alarm { has_answered } => self.observer.remark(if has_answered {
                "the program still runs though its lease is over; only fencing protects what it writes"
            } else {
                "the guard does not say whether the program still runs though its lease is over; \
                 only fencing protects what it may write"
            }),
            Action::Forward(signal) => self.tell_guard(|tether| tether.signal(signal)),
            Action::Kill => self.with_tether(Tether::kill),
            Action::KillGuard => self.with_tether(Tether::kill_guard),
            Action::WorkFailed => self.election.work_failed(),
            Action::WorkEnded => self.work_ended(),
            Action::Resign => {
                self.observer.remark(
                    "the program runs but does not prove that it works; the office is given up",
                );
                self.election.resign();
            }
            Action::Leave => {
                // With `once` it leaves because another node was just seen to lead.
                self.why_not = self.election.why_not_elected(self.plan.once);
                self.election.leave();
            }
            Action::Hook(hook) => self.hook(now, hook),
            Action::Show(shown) => self.show(now, shown),
            Action::Exit(ending) => return Some(ending),
        }
        None
    }

    fn start(&mut self, term: Term, valid_until: Moment) {
        let mut words = self.program.iter().cloned();
        let program = words.next().unwrap_or_default();
        let reserve = self.plan.reserve();
        let order = Order {
            guard: self.plan.guard.clone(),
            arguments: words.collect(),
            environment: self.environment(term),
            means: self.means.clone(),
            grace: self.budget.stop_grace().saturating_sub(reserve),
            reserve,
            valid_until,
            program: program.clone(),
        };
        let (event, observer) = (self.event.clone(), Arc::clone(&self.observer));
        let name = program.to_string_lossy().into_owned();
        // Held until nothing of the tree is alive, also if the supervisor is dropped (semantics 14).
        let leadership = self.election.leadership();
        let report = move |report| {
            let _held = &leadership;
            // Nobody listens any more once the supervisor has ended.
            let _ = event.send(event_of(&name, report, &*observer));
        };
        if let Err(why) = self.arm() {
            self.observer.remark(&why);
            self.ahead.extend([Event::Failed(NOT_TETHERED), Event::Over]);
            return;
        }
        match Tether::start(order, report) {
            Ok(tether) => self.tether = Some(tether),
            Err(error) => {
                self.observer.remark(&format!("no guard can be started: {error}"));
                self.ahead.extend([Event::Failed(NOT_TETHERED), Event::Over]);
            }
        }
    }

    /// Nothing runs unwatched that is to be watched.
    fn arm(&mut self) -> Result<(), String> {
        if let Some(path) = &self.plan.watchdog {
            self.watchdog = Some(Petted::open(path, self.budget.ttl())?);
        }
        Ok(())
    }

    /// The whole environment of the program: ours, what it is told, and nothing that was meant for us.
    fn environment(&self, term: Term) -> Vec<(OsString, OsString)> {
        let told = self.told(term);
        let is_ours = |name: &OsString| {
            notify::VARIABLES.iter().chain(CREDENTIALS).any(|ours| name == ours)
                || told.iter().any(|(own, _)| name == own)
        };
        let inherited = std::env::vars_os().filter(|(name, _)| !is_ours(name));
        let own = told.iter().map(|(name, value)| (OsString::from(name), value.clone()));
        inherited.chain(own).collect()
    }

    fn told(&self, term: Term) -> shell::ShellEnvironment {
        vec![
            ("REGENT_GROUP", self.plan.group.as_str().into()),
            ("REGENT_NODE", self.election.node().as_str().into()),
            ("REGENT_TERM", term.to_string().into()),
            ("REGENT_FILE", self.file.path().into()),
        ]
    }

    fn with_tether(&self, what: impl FnOnce(&Tether)) {
        if let Some(tether) = &self.tether {
            what(tether);
        }
    }

    /// A guard that cannot be told anything guards nothing.
    fn tell_guard(&self, what: impl FnOnce(&Tether) -> std::io::Result<()>) {
        if let Some(tether) = &self.tether
            && what(tether).is_err()
        {
            tether.kill_guard();
        }
    }

    fn work_ended(&mut self) {
        self.tether = None;
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.disarm(&self.observer);
        }
        if let Some(prober) = self.prober.take() {
            prober.abort();
        }
        for hook in self.brief_hooks.drain(..) {
            hook.abort();
        }
        self.view.change(|view| view.valid_until = None);
        self.election.work_ended();
    }

    fn begin_fence(&mut self, term: Term) {
        let Some(fence) = self.plan.fence_previous.clone() else { return };
        let known = self.election.predecessor(term).cloned();
        let (group, event) = (self.plan.group.clone(), self.event.clone());
        let (mut told, observer) = (self.told(term), Arc::clone(&self.observer));
        let task = tokio::spawn(async move {
            let fenced = fence::run(&fence, &group, term, known, &mut told).await;
            if let Err(why) = &fenced {
                observer.remark(&format!("fence-previous: {why}; the office is given up"));
            }
            let _ = event.send(Event::Fenced { term, is_done: fenced.is_ok() });
        });
        self.fence = Some(task.abort_handle());
    }

    fn begin_probe(&mut self) {
        let Some(probe) = self.plan.probe.clone() else { return };
        let (event, told) = (self.event.clone(), self.told(self.view.get().term));
        let observer = Arc::clone(&self.observer);
        let every = self.budget.ttl() / 5;
        let task = tokio::spawn(async move {
            let mut told_why = String::new();
            loop {
                match probe.ask(&told, every).await {
                    Ok(asked_at) => {
                        told_why.clear();
                        let _ = event.send(Event::Proved { asked_at });
                    }
                    Err(why) if why != told_why => {
                        observer.remark(&format!("probe: {why}"));
                        told_why = why;
                    }
                    Err(_) => {}
                }
                tokio::time::sleep(every).await;
            }
        });
        self.prober = Some(task.abort_handle());
    }

    fn hook(&mut self, now: Moment, hook: Hook) {
        let view = self.view.get();
        let (line, name) = match hook {
            Hook::Elected => (&self.plan.on_elected, "elected"),
            Hook::Jeopardy => (&self.plan.on_jeopardy, "jeopardy"),
            Hook::Lost => (&self.plan.on_lost, "lost"),
        };
        let Some(line) = line.clone() else { return };
        let mut told = self.told(view.term);
        told.push(("REGENT_EVENT", name.into()));
        told.push(("REGENT_REMAINING_MS", millis(view.remaining(now)).to_string().into()));
        let observer = Arc::clone(&self.observer);
        let task = self.hooks.spawn(async move {
            if let Err(why) = shell::run(&line, &told, HOOK_MAX).await {
                observer.remark(&format!("on-{name}: {why}"));
            }
        });
        match hook {
            Hook::Elected | Hook::Jeopardy => self.brief_hooks.push(task),
            Hook::Lost => {}
        }
    }

    fn show(&mut self, now: Moment, shown: Shown) {
        self.view.change(|view| view.shown = shown);
        let view = self.view.get();
        let object = view.json(now);
        if let Err(error) = self.file.write(&format!("{object}\n")) {
            self.observer.remark(&format!("{}: {error}", self.file.path().display()));
        }
        let line = view.line(now, self.election.stops_for.word());
        self.observer.changed(&line, &object);
        let stopping = if shown == Shown::Leaving { "STOPPING=1\n" } else { "" };
        self.notify.tell(&format!("{stopping}STATUS={line}"));
    }

    /// How long to sleep at most.
    pub(crate) fn pause(&self) -> Duration {
        let now = regent_clock::now();
        let left = self.machine.wake_at().map_or(TICK, |at| now.until(at).min(TICK));
        left.max(Duration::from_millis(1))
    }

    /// How it ends.
    pub(crate) async fn end(mut self, ending: Ending) -> Result<Ended, SuperviseError> {
        if !self.election.is_settled() {
            let ttl = show(self.budget.ttl());
            let text = format!("the server did not hear the end; the office is free after {ttl}");
            self.observer.remark(&text);
        }
        // What tells of the end is waited for; it has a limit of its own.
        while self.hooks.join_next().await.is_some() {}
        match ending {
            Ending::Program(code) => Ok(Ended::Program(code)),
            Ending::Asked => Ok(Ended::Asked),
            Ending::NotElected => Ok(Ended::NotElected(self.why_not.clone())),
            Ending::Lost => Ok(Ended::Lost),
            Ending::PermanentFailure => {
                let why = self.election.permanent_failure.take().unwrap_or(CampaignError::Closed);
                Err(SuperviseError::Refused(why))
            }
        }
    }
}

impl Drop for Runner {
    /// A supervisor that is dropped while a program runs supervises nothing any more. A guard that has not
    /// ended it soon, and well before the lease is over, is killed.
    fn drop(&mut self) {
        let (now, reserve) = (regent_clock::now(), self.plan.reserve());
        let left = self.view.get().remaining(now).saturating_sub(reserve / 2);
        self.with_tether(|tether| tether.end(now + left.min(reserve * 4)));
        if let Some(fence) = self.fence.take() {
            fence.abort();
        }
        if let Some(prober) = self.prober.take() {
            prober.abort();
        }
    }
}

fn event_of(program: &str, report: GuardReport, observer: &dyn Observer) -> Event {
    match report {
        GuardReport::Started(pid) => Event::Started(pid),
        GuardReport::Failed(number, why) => {
            observer.remark(&format!("{program}: {why}"));
            Event::Failed(if number == NO_SUCH_FILE { NOT_FOUND } else { NOT_RUNNABLE })
        }
        GuardReport::Heard(until) => Event::Heard(until),
        GuardReport::Overdue => {
            observer.remark("the lease was not renewed in time; the guard stops the program");
            Event::Overdue
        }
        GuardReport::Alive => Event::Alive,
        GuardReport::Exited(status) => Event::Exited(status),
        GuardReport::Over => Event::Over,
    }
}
