//! Carries what happens to the supervisor's machine, and does what it says.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::time::Duration;

use regent_election::timing::Budget;
use regent_election::{Moment, Term};
use regent_tether::{Means, Order, Report, Tether};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::args::RunArgs;
use super::election::{self, Election};
use super::machine::{Action, Ending, Event, Hook, Shown, Supervisor};
use super::notify::{self, Notify};
use super::place::Place;
use super::probe::Probe;
use super::view::{Shared, StateFile};
use super::watchdog::Petted;
use super::{FAREWELL, fence};
use crate::duration::{millis, show};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::output::{Output, json, remark};
use crate::shell::{self, Told};

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
    pub(crate) args: RunArgs,
    pub(crate) budget: Budget,
    pub(crate) place: Place,
    pub(crate) probe: Option<Probe>,
    pub(crate) means: Means,
    pub(crate) file: StateFile,
    pub(crate) election: Election,
    pub(crate) view: Shared,
}

/// Everything that is carried about.
pub(crate) struct Runner {
    args: RunArgs,
    supervisor: Supervisor,
    pub(crate) election: Election,
    place: Place,
    budget: Budget,
    means: Means,
    probe: Option<Probe>,
    /// For tasks and threads that have something to say.
    event: mpsc::UnboundedSender<Event>,
    ahead: VecDeque<Event>,
    view: Shared,
    file: StateFile,
    notify: Notify,
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
        let Setup { args, budget, place, probe, means, file, election, view } = setup;
        let now = regent_clock::now();
        let mut runner = Self {
            supervisor: Supervisor::new(args.plan(&budget, FAREWELL), now),
            election,
            place,
            budget,
            means,
            probe,
            event,
            ahead: VecDeque::new(),
            view,
            file,
            notify: Notify::from_environment(),
            tether: None,
            watchdog: None,
            fence: None,
            prober: None,
            hooks: JoinSet::new(),
            brief_hooks: Vec::new(),
            args,
        };
        runner.show(now, Shown::Standby);
        runner.notify.tell("READY=1");
        runner
    }

    /// Something has happened.
    pub(crate) fn happened(&mut self, event: Event) {
        self.ahead.push_back(event);
    }

    /// Lets the supervisor take everything that has happened, and does what it says.
    pub(crate) fn turn(&mut self) -> Option<Ending> {
        while let Some(event) = self.ahead.pop_front() {
            self.note(&event);
            if let Event::Started(_) = event {
                self.begin_probe();
            }
            let now = regent_clock::now();
            for action in self.supervisor.on(now, event) {
                if let Some(ending) = self.act(now, action) {
                    return Some(ending);
                }
            }
        }
        let now = regent_clock::now();
        self.notify.alive(now);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.look(now, self.view.get().valid_until);
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
                | Event::Hopeless
                | Event::Left
                | Event::Fenced { .. }
                | Event::Failed(_)
                | Event::Heard(_)
                | Event::Overdue
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
            Action::Forward(signal) => self.tell_guard(|tether| tether.signal(signal)),
            Action::Kill => self.with_tether(Tether::kill),
            Action::KillGuard => self.with_tether(Tether::kill_guard),
            Action::WorkEnded => self.work_ended(),
            Action::Resign => {
                remark("the program runs but does not prove that it works; the office is given up");
                self.election.resign();
            }
            Action::Leave => self.election.leave(),
            Action::Hook(hook) => self.hook(now, hook),
            Action::Show(shown) => self.show(now, shown),
            Action::Exit(ending) => return Some(ending),
        }
        None
    }

    fn start(&mut self, term: Term, valid_until: Moment) {
        let mut words = self.args.program.iter().cloned();
        let program = words.next().unwrap_or_default();
        let reserve = self.args.reserve();
        let order = Order {
            arguments: words.collect(),
            environment: self.environment(term),
            means: self.means.clone(),
            grace: self.budget.stop_grace().saturating_sub(reserve),
            reserve,
            valid_until,
            program: program.clone(),
        };
        let event = self.event.clone();
        let name = program.to_string_lossy().into_owned();
        let report = move |report| {
            // Nobody listens any more once the command has ended.
            let _ = event.send(event_of(&name, report));
        };
        if let Err(why) = self.arm() {
            remark(&why);
            self.ahead.extend([Event::Failed(NOT_TETHERED), Event::Over]);
            return;
        }
        match Tether::start(order, report) {
            Ok(tether) => self.tether = Some(tether),
            Err(error) => {
                remark(&format!("no guard can be started: {error}"));
                self.ahead.extend([Event::Failed(NOT_TETHERED), Event::Over]);
            }
        }
    }

    /// Nothing runs unwatched that is to be watched.
    fn arm(&mut self) -> Result<(), String> {
        if let Some(path) = &self.args.watchdog {
            self.watchdog = Some(Petted::open(path, self.budget.ttl())?);
        }
        Ok(())
    }

    /// The whole environment of the program: ours, what it is told, and nothing that was meant for us.
    fn environment(&self, term: Term) -> Vec<(OsString, OsString)> {
        let told = self.told(term);
        let is_ours = |name: &OsString| {
            notify::VARIABLES.iter().any(|ours| name == ours)
                || told.iter().any(|(own, _)| name == own)
        };
        let inherited = std::env::vars_os().filter(|(name, _)| !is_ours(name));
        let own = told.iter().map(|(name, value)| (OsString::from(name), value.clone()));
        inherited.chain(own).collect()
    }

    fn told(&self, term: Term) -> Told {
        vec![
            ("REGENT_GROUP", self.args.group.as_str().into()),
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
            watchdog.disarm();
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
        let (line, server) = (self.args.fence_previous.clone(), self.place.server().cloned());
        let (Some(line), Some(remote)) = (line, server) else { return };
        let known = self.election.predecessor(term).cloned();
        let (group, event) = (self.args.group.clone(), self.event.clone());
        let mut told = self.told(term);
        let task = tokio::spawn(async move {
            let fenced = fence::run(&remote, &group, term, known, &line, &mut told).await;
            if let Err(why) = &fenced {
                remark(&format!("--fence-previous: {why}; the office is given up"));
            }
            let _ = event.send(Event::Fenced { term, is_done: fenced.is_ok() });
        });
        self.fence = Some(task.abort_handle());
    }

    fn begin_probe(&mut self) {
        let Some(probe) = self.probe.clone() else { return };
        let (event, told) = (self.event.clone(), self.told(self.view.get().term));
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
                        remark(&format!("--probe: {why}"));
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
            Hook::Elected => (&self.args.on_elected, "elected"),
            Hook::Jeopardy => (&self.args.on_jeopardy, "jeopardy"),
            Hook::Lost => (&self.args.on_lost, "lost"),
        };
        let Some(line) = line.clone() else { return };
        let mut told = self.told(view.term);
        told.push(("REGENT_EVENT", name.into()));
        told.push(("REGENT_REMAINING_MS", millis(view.remaining(now)).to_string().into()));
        let task = self.hooks.spawn(async move {
            if let Err(why) = shell::run(&line, &told, HOOK_MAX).await {
                remark(&format!("--on-{name}: {why}"));
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
        let object = json(&view.object(now));
        if let Err(error) = self.file.write(&format!("{object}\n")) {
            remark(&format!("{}: {error}", self.file.path().display()));
        }
        let line = view.line(now, self.election.stops_for.word());
        match self.args.client.output {
            Output::Text => remark(&line),
            Output::Json => remark_object(&object),
        }
        let stopping = if shown == Shown::Leaving { "STOPPING=1\n" } else { "" };
        self.notify.tell(&format!("{stopping}STATUS={line}"));
    }

    /// How long to sleep at most.
    pub(crate) fn pause(&self) -> Duration {
        let now = regent_clock::now();
        let left = self.supervisor.wake_at().map_or(TICK, |at| now.until(at).min(TICK));
        left.max(Duration::from_millis(1))
    }

    /// How the command ends.
    pub(crate) async fn end(mut self, ending: Ending) -> Outcome {
        if !self.election.is_settled() {
            let ttl = show(self.budget.ttl());
            remark(&format!("the server did not hear the end; the office is free after {ttl}"));
        }
        // What tells of the end is waited for; it has a limit of its own.
        while self.hooks.join_next().await.is_some() {}
        match ending {
            Ending::Program(code) => Ok(Exit::Program(code)),
            Ending::Asked => Ok(Exit::Done),
            Ending::NotElected => Ok(Exit::No),
            Ending::Lost => Ok(Exit::Lost),
            Ending::Hopeless => match self.election.hopeless.take() {
                Some(error) => Err(election::hopeless(&error)),
                None => Ok(Exit::Refused),
            },
        }
    }
}

fn remark_object(object: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{object}");
}

fn event_of(program: &str, report: Report) -> Event {
    match report {
        Report::Started(pid) => Event::Started(pid),
        Report::Failed(number, why) => {
            remark(&format!("{program}: {why}"));
            Event::Failed(if number == NO_SUCH_FILE { NOT_FOUND } else { NOT_RUNNABLE })
        }
        Report::Heard(until) => Event::Heard(until),
        Report::Overdue => {
            remark("the lease was not renewed in time; the guard stops the program");
            Event::Overdue
        }
        Report::Exited(status) => Event::Exited(status),
        Report::Over => Event::Over,
    }
}
