//! `regent campaign --keep`: stand until elected, lead until interrupted or lost.
//!
//! A thin driver of the participant's machine, which decides everything: this file reads the lease
//! clock, sends what it is told to, and says what happened. Validity counts from the send of the last
//! acknowledged heartbeat with the margin of the timing budget, so this process always says `lost`
//! before the store lets anybody else lead.
//!
//! It does no work of its own: whoever reads its lines does. An unasked stop is therefore announced
//! half a stop grace before it is confirmed to the store. A signal means that the work has been stopped.

use std::collections::VecDeque;
use std::time::Duration;

use regent::fresh;
use regent::remote::{Remote, RemoteError, RemoteResult, Scope, Watched, Watching};
use regent_api::{Code, WatchEvent};
use regent_election::limits::TTL_MS_DEFAULT;
use regent_election::participant::{
    Action, Attempt, Event, Phase, Reply, Request, Transition, Trouble, Why,
};
use regent_election::timing::{Budget, Drift};
use regent_election::{Group, Moment, Node, Participant, Term};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::campaign::CampaignArgs;
use crate::duration::{millis, show, show_ms};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Screen, remark};
use crate::signals::Signals;

/// Timers stand still while a machine sleeps, and the lease clock does not: it is read at least this
/// often.
const TICK: Duration = Duration::from_millis(250);
/// How long the store may take to be told of the end.
const FAREWELL: Duration = Duration::from_secs(5);

type Answer = (Attempt, Request, RemoteResult<Reply>);

/// Leads until it is over.
pub(crate) async fn run(args: CampaignArgs) -> Outcome {
    let ttl_ms = args.ttl.map_or(TTL_MS_DEFAULT, millis);
    let budget = Drift::from_ppm(regent_clock::drift_ppm())
        .and_then(|drift| Budget::new(ttl_ms, drift))
        .map_err(|error| Failure::usage(format!("--ttl: {error}")))?;
    let remote = args.client.remote()?;
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
    let (answer, mut answers) = mpsc::unbounded_channel();
    let mut keeper = Keeper {
        machine: Participant::new(args.node.clone(), budget, fresh::number()?),
        remote: remote.with_timeout(budget.request_timeout()),
        node: args.node.clone(),
        group: args.group.clone(),
        screen: args.client.screen(),
        answer,
        events: VecDeque::new(),
        wake_at: None,
        stopped_at: None,
        ending: None,
        give_up_at: args.wait.map(|wait| regent_clock::now() + wait),
        has_led: false,
        told: String::new(),
    };
    keeper.events.push_back(Event::Stand {
        group: args.group.clone(),
        priority: args.priority,
        metadata: args.metadata()?,
    });
    // A promotion is noticed by the watch at once, and by the next heartbeat without it.
    let mut watch = remote.watch(Scope::Group(args.group.clone()), None);
    loop {
        keeper.turn()?;
        if let Some(outcome) = keeper.outcome() {
            return outcome;
        }
        tokio::select! {
            biased;
            name = signals.next() => keeper.interrupted(name)?,
            Some(answered) = answers.recv() => keeper.answered(answered),
            hint = hint(&mut watch) => keeper.hinted(hint)?,
            () = tokio::time::sleep(keeper.pause()) => keeper.events.push_back(Event::Tick),
        }
    }
}

/// What the watch saw of who leads. A watch that cannot be had is waited for, for ever.
async fn hint(watch: &mut Watching) -> Event {
    loop {
        match watch.next().await {
            Ok(Watched::Event(event)) => match *event {
                WatchEvent::LeaderChanged(changed) => {
                    let (group, term, leader) = (changed.group, changed.term, changed.leader);
                    return Event::Watched { group, term, leader };
                }
                WatchEvent::State(present) => {
                    if let Some(office) = present.offices.into_iter().next() {
                        let (group, term, leader) = (office.group, office.term, office.leader);
                        return Event::Watched { group, term, leader };
                    }
                }
                WatchEvent::Gap(_) | WatchEvent::Bookmark(_) | WatchEvent::Closing(_) => {}
            },
            Ok(Watched::Interrupted { why, .. }) => tracing::debug!(%why, "the watch broke"),
            Err(error) => {
                tracing::warn!(%error, "going on without a watch");
                std::future::pending::<()>().await;
            }
        }
    }
}

/// How it ends.
#[derive(Debug)]
enum Ending {
    /// Interrupted: resign and go.
    Asked,
    /// The wait was over before the office was won.
    NotElected,
    /// The leadership is gone.
    Lost,
    /// The server will never let this candidate stand.
    Hopeless(RemoteError),
}

struct Keeper {
    machine: Participant,
    remote: Remote,
    node: Node,
    group: Group,
    screen: Screen,
    answer: mpsc::UnboundedSender<Answer>,
    events: VecDeque<Event>,
    wake_at: Option<Moment>,
    /// When to confirm that the work has ended.
    stopped_at: Option<Moment>,
    ending: Option<Ending>,
    /// When waiting for the office, or for the store's farewell, ends.
    give_up_at: Option<Moment>,
    has_led: bool,
    /// The last trouble told, so that it is told once.
    told: String,
}

impl Keeper {
    /// Lets the machine take everything that has happened, and does what it says.
    fn turn(&mut self) -> Result<(), Failure> {
        let now = regent_clock::now();
        if self.stopped_at.is_some_and(|at| at <= now) {
            self.stopped_at = None;
            self.events.push_back(Event::Stopped { group: self.group.clone() });
        }
        let waits = self.ending.is_none() && !self.has_led;
        if waits && self.give_up_at.is_some_and(|at| at <= now) {
            self.end(Ending::NotElected);
        }
        while let Some(event) = self.events.pop_front() {
            // Read before anything is sent: validity counts from here.
            let now = regent_clock::now();
            for action in self.machine.on(now, event) {
                self.act(now, action)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, now: Moment, action: Action) -> Result<(), Failure> {
        match action {
            Action::Send { attempt, request } => self.send(attempt, request),
            Action::Transition(transition) => return self.changed(&transition),
            Action::StopWork { by, .. } => {
                let is_asked = matches!(self.ending, Some(Ending::Asked));
                let grace =
                    if is_asked { Duration::ZERO } else { self.machine.budget().stop_grace() / 2 };
                self.stopped_at = Some((now + grace).min(by));
            }
            // There is no work here that could be ended by force; the lease is over, and said so.
            Action::LastResort { .. } => self.stopped_at = Some(now),
            // Nothing is to be warmed up here: whoever runs the command acts when it says "elected".
            Action::Offered { group, term, .. } => {
                self.events.push_back(Event::Warm { group, term });
            }
            Action::OfferOver { .. } => {}
            Action::NeedSession => self.events.push_back(Event::Session(fresh::session_id()?)),
            Action::Trouble { trouble, .. } => self.trouble(&trouble),
            Action::WakeAt(at) => self.wake_at = Some(at),
        }
        Ok(())
    }

    fn send(&self, attempt: Attempt, request: Request) {
        let (remote, answer) = (self.remote.clone(), self.answer.clone());
        tokio::spawn(async move {
            let answered = remote.perform(&request).await;
            // Nobody listens any more once the command has ended.
            let _ = answer.send((attempt, request, answered));
        });
    }

    fn answered(&mut self, (attempt, asked, answered): Answer) {
        if let Err(error) = &answered
            && !self.has_led
            && self.ending.is_none()
            && is_hopeless(error)
        {
            self.end(Ending::Hopeless(error.clone()));
        }
        let answer = answered.map_err(|error| error.into_store_error(&asked));
        self.events.push_back(Event::Answered { attempt, answer });
    }

    fn changed(&mut self, transition: &Transition) -> Result<(), Failure> {
        let is_ours = matches!(self.ending, Some(Ending::Asked));
        match transition.to {
            Phase::Leading => self.has_led = true,
            Phase::Stopping | Phase::Lost if !is_ours => self.end(Ending::Lost),
            Phase::Stopping | Phase::Lost => {}
            Phase::Standby | Phase::Jeopardy | Phase::Stopped => {}
        }
        if transition.to == Phase::Standby || transition.term == Term::NONE {
            return Ok(());
        }
        let told = Told::of(transition, &self.node);
        self.screen.answer(&told, || told.line(transition.to, &self.node))
    }

    /// The watch saw who leads. It is told while there is nothing better to tell.
    fn hinted(&mut self, event: Event) -> Result<(), Failure> {
        if let Event::Watched { group, term, leader: Some(leader) } = &event
            && *leader != self.node
            && self.machine.phase(group) == Some(Phase::Standby)
            && self.ending.is_none()
        {
            let told = Told {
                phase: Phase::Standby.word(),
                group: group.to_string(),
                leader: Some(leader.to_string()),
                term: term.get(),
                why: None,
                remaining_ms: 0,
            };
            self.screen.answer(&told, || told.line(Phase::Standby, &self.node))?;
        }
        self.events.push_back(event);
        Ok(())
    }

    fn trouble(&mut self, trouble: &Trouble) {
        let text = trouble.to_string();
        if self.ending.is_none() && self.told != text {
            remark(&text);
            self.told = text;
        }
    }

    /// The first signal resigns; the second one leaves things to the ttl.
    fn interrupted(&mut self, name: &str) -> Result<(), Failure> {
        if matches!(self.ending, Some(Ending::Asked)) {
            let ttl = show(self.machine.budget().ttl());
            let message = format!("{name} again: gone at once; the office is free after {ttl}");
            return Err(Failure::new(Exit::Interrupted, message));
        }
        if self.ending.is_none() {
            self.end(Ending::Asked);
        }
        Ok(())
    }

    fn end(&mut self, ending: Ending) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(ending);
        self.give_up_at = Some(regent_clock::now() + FAREWELL + self.machine.budget().stop_grace());
        self.events.push_back(Event::Leave);
    }

    /// How the command ends, once nothing is left to tell the store, or it does not listen.
    fn outcome(&mut self) -> Option<Outcome> {
        let is_over = self.give_up_at.is_some_and(|at| at <= regent_clock::now());
        if self.ending.is_none() || !(self.machine.is_done() || is_over) {
            return None;
        }
        let ttl = show(self.machine.budget().ttl());
        let is_told = self.machine.is_done();
        Some(match self.ending.take()? {
            Ending::Asked if is_told => Ok(Exit::Done),
            Ending::Asked => Err(Failure::new(
                Exit::Uncertain,
                format!("the server did not hear the resignation; the office is free after {ttl}"),
            )),
            Ending::NotElected => Ok(Exit::No),
            Ending::Lost => Ok(Exit::Lost),
            Ending::Hopeless(error) => Err(error.into()),
        })
    }

    /// How long to sleep at most.
    fn pause(&self) -> Duration {
        let now = regent_clock::now();
        [self.wake_at, self.stopped_at, self.give_up_at]
            .into_iter()
            .flatten()
            .map(|at| now.until(at))
            .fold(TICK, Duration::min)
            .max(Duration::from_millis(1))
    }
}

/// Whether asking again can never help: the machine itself would try for ever.
fn is_hopeless(error: &RemoteError) -> bool {
    match error {
        RemoteError::Protocol { .. } => true,
        RemoteError::Unavailable { .. } | RemoteError::Uncertain { .. } => false,
        RemoteError::Refused(problem) => matches!(
            problem.code,
            Code::BadRequest
                | Code::CrossOrigin
                | Code::NotAllowed
                | Code::NotFound
                | Code::GroupUnknown
                | Code::MethodNotAllowed
                | Code::TtlOutOfBounds
                | Code::TermsExhausted
                | Code::Unsupported
        ),
    }
}

/// What is told, to people as a line and to programs as an object.
#[derive(Serialize)]
struct Told {
    phase: &'static str,
    group: String,
    /// Who leads, if anybody.
    leader: Option<String>,
    term: u64,
    /// Why the phase changed; none while standing by.
    why: Option<&'static str>,
    remaining_ms: u64,
}

impl Told {
    fn of(transition: &Transition, node: &Node) -> Self {
        let leads = matches!(transition.to, Phase::Leading | Phase::Jeopardy | Phase::Stopping);
        Self {
            phase: transition.to.word(),
            group: transition.group.to_string(),
            leader: leads.then(|| node.to_string()),
            term: transition.term.get(),
            why: Some(transition.why.word()),
            remaining_ms: millis(transition.remaining),
        }
    }

    fn line(&self, phase: Phase, node: &Node) -> String {
        let Self { group, term, .. } = self;
        let valid = format!("term {term}, valid for {}", show_ms(self.remaining_ms));
        let why = self.why.unwrap_or_default();
        match phase {
            Phase::Standby => {
                let leader = self.leader.as_deref().unwrap_or("nobody");
                format!("{group}: standing by; {leader} leads, term {term}")
            }
            Phase::Leading if self.why == Some(Why::Elected.word()) => {
                format!("{group}: {node} leads, {valid}")
            }
            Phase::Leading => format!("{group}: {node} leads, {valid} ({why})"),
            Phase::Jeopardy => format!("{group}: {node} leads in jeopardy, {valid} ({why})"),
            Phase::Stopping => format!("{group}: {node} must stop, {valid} ({why})"),
            Phase::Stopped => format!("{group}: {node} has stopped, term {term} is over ({why})"),
            Phase::Lost => format!("{group}: {node} has lost term {term} ({why})"),
        }
    }
}
