//! The thread that keeps a session: one driver, one runtime of its own, its own connections.
//!
//! An application's runtime may be busy, blocked or full of work; the heartbeats of its session are
//! not on it. This thread reads the lease clock, lets the driver decide, and does what it says. It
//! runs no code of the application: callbacks have threads or tasks of their own.
//!
//! If this thread ends, for whatever reason, every term it kept ends with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use regent_election::participant::{Phase, Request, Transition, Trouble, Why};
use regent_election::{Budget, Group, Moment, Node, Term};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use crate::backend::Backend;
use crate::driver::{ClaimId, Driver, Input, Output, PermanentFailure, RuntimeProbe};
use crate::error::ConnectError;
use crate::fresh;
use crate::known::Known;
use crate::limits::{CLOCK_LOOK_EVERY, FAREWELL};
use crate::metrics::Metrics;
use crate::options::LastResort;
use crate::session::{Clock, Command, Session, Waiter};
use crate::tenure::{Hold, Lease, Tenure};
use crate::warming::{Offer, Warming};
use crate::watcher::watch_all;

/// What a session is started with.
pub(crate) struct Setup {
    pub(crate) node: Node,
    pub(crate) budget: Budget,
    /// The runtime to be probed.
    pub(crate) application: Option<Handle>,
    /// For the session's thread alone.
    pub(crate) office: Arc<dyn Backend>,
    /// For the application.
    pub(crate) reads: Arc<dyn Backend>,
    pub(crate) clock: Clock,
    pub(crate) last_resort: LastResort,
    pub(crate) metrics: Arc<dyn Metrics>,
}

/// Starts the thread of a session.
pub(crate) fn start(setup: Setup) -> Result<Arc<Session>, ConnectError> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let known = Arc::new(Known::default());
    let session = Arc::new(Session::new(
        setup.node.clone(),
        setup.budget,
        Arc::clone(&known),
        Arc::clone(&setup.reads),
        sender.clone(),
        setup.clock.clone(),
    ));
    let seed = fresh::number()?;
    let system = |error: std::io::Error| ConnectError::System(error.to_string());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    std::thread::Builder::new()
        .name("regent-session".to_owned())
        .spawn(move || {
            let keeper = Keeper::new(setup, seed, known, sender);
            runtime.block_on(keeper.run(receiver));
        })
        .map_err(system)?;
    Ok(session)
}

struct Keeper {
    driver: Driver,
    node: Node,
    office: Arc<dyn Backend>,
    application: Option<Handle>,
    clock: Clock,
    last_resort: LastResort,
    metrics: Arc<dyn Metrics>,
    /// The way back to this thread, for whatever runs beside it.
    commands: mpsc::UnboundedSender<Command>,
    inputs: VecDeque<Input>,
    waiters: BTreeMap<ClaimId, Waiter>,
    tenures: BTreeMap<Group, Arc<Tenure>>,
    warming: Warming,
    lease: Arc<Lease>,
    known: Arc<Known>,
    watched: watch::Sender<BTreeMap<Group, usize>>,
    listeners: Vec<mpsc::UnboundedSender<Transition>>,
    /// Whether a secret is owed to the driver: the system may refuse one for a while.
    needs_session: bool,
    wake_at: Option<Moment>,
    /// When leaving ends, told or not.
    give_up_at: Option<Moment>,
    leavers: Vec<oneshot::Sender<bool>>,
    is_done: bool,
    /// The last trouble told, so that it is told once.
    told: String,
}

impl Keeper {
    fn new(
        setup: Setup,
        seed: u64,
        known: Arc<Known>,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Self {
        let probe = setup.application.is_some().then(|| RuntimeProbe::new(&setup.budget));
        Self {
            driver: Driver::new(setup.node.clone(), setup.budget, seed, probe),
            node: setup.node,
            office: setup.office,
            application: setup.application,
            clock: setup.clock,
            last_resort: setup.last_resort,
            metrics: setup.metrics,
            commands,
            inputs: VecDeque::new(),
            waiters: BTreeMap::new(),
            tenures: BTreeMap::new(),
            warming: Warming::default(),
            lease: Arc::default(),
            known,
            watched: watch::Sender::new(BTreeMap::new()),
            listeners: Vec::new(),
            needs_session: false,
            wake_at: None,
            give_up_at: None,
            leavers: Vec::new(),
            is_done: false,
            told: String::new(),
        }
    }

    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let watching =
            watch_all(Arc::clone(&self.office), self.watched.subscribe(), self.commands.clone());
        tokio::spawn(watching);
        loop {
            let pause = self.pause();
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.take(command),
                    None => return,
                },
                () = tokio::time::sleep(pause) => self.inputs.push_back(Input::Tick),
            }
            self.turn();
            if self.is_done || self.give_up_at.is_some_and(|at| at <= self.clock.now()) {
                return;
            }
        }
    }

    /// How long to sleep at most.
    fn pause(&self) -> Duration {
        let now = self.clock.now();
        [self.wake_at, self.give_up_at]
            .into_iter()
            .flatten()
            .map(|at| now.until(at))
            .fold(CLOCK_LOOK_EVERY, Duration::min)
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Tell(input) => {
                if let Input::Unclaim { claim } = &input {
                    self.waiters.remove(claim);
                }
                self.inputs.push_back(input);
            }
            Command::Claim { claim, group, priority, metadata, waiter } => {
                self.waiters.insert(claim, waiter);
                self.inputs.push_back(Input::Claim { claim, group, priority, metadata });
            }
            Command::Observe(group) => self.observe(group),
            Command::Unobserve(group) => self.unobserve(&group),
            Command::Sighted(sight) => {
                let (group, term, leader) = (sight.group.clone(), sight.term, sight.leader.clone());
                self.known.note(sight, self.clock.now());
                self.inputs.push_back(Input::Sighted { group, term, leader });
            }
            Command::Campaigned(group) => {
                for waiter in self.waiters.values().filter(|waiter| waiter.group == group) {
                    waiter.stands.send_replace(true);
                }
            }
            Command::Subscribe(listener) => self.listeners.push(listener),
            Command::WarmUp(group, warm_up) => self.warming.set(group, warm_up),
            Command::Leave(leaver) => {
                self.leavers.extend(leaver);
                if self.give_up_at.is_none() {
                    let patience = FAREWELL + self.driver.budget().stop_grace();
                    self.give_up_at = Some(self.clock.now() + patience);
                    self.inputs.push_back(Input::Leave);
                }
            }
        }
    }

    /// Lets the driver take everything that has happened, and does what it says.
    fn turn(&mut self) {
        if self.needs_session {
            self.draw_session();
        }
        while let Some(input) = self.inputs.pop_front() {
            // Read before anything is sent: validity counts from here.
            let now = self.clock.now();
            self.wake_at = None;
            let outputs = self.driver.on(now, input);
            // In this order: what is over is over before a later session's lease is seen, and that
            // lease is seen before anybody is told to lead on it.
            for output in &outputs {
                self.lower(output);
            }
            self.lease.publish(self.driver.lease_until().unwrap_or(Moment::ZERO));
            for output in outputs {
                self.act(output);
            }
        }
    }

    /// The part of an output that ends validity.
    fn lower(&self, output: &Output) {
        match output {
            Output::Moved(moved) => match moved.to {
                Phase::Stopped | Phase::Lost => {
                    self.with_tenure(&moved.group, moved.term, |it| it.ends_by(Moment::ZERO));
                }
                Phase::Standby | Phase::Leading | Phase::Jeopardy | Phase::Stopping => {}
            },
            Output::Stop { group, term, by } => {
                self.with_tenure(group, *term, |tenure| tenure.ends_by(*by));
            }
            Output::Send { .. }
            | Output::Elected { .. }
            | Output::Failed { .. }
            | Output::LastResort { .. }
            | Output::Offered { .. }
            | Output::OfferOver { .. }
            | Output::HandOverRefused { .. }
            | Output::Over { .. }
            | Output::Watch(_)
            | Output::Unwatch(_)
            | Output::Probe
            | Output::NeedSession
            | Output::Trouble { .. }
            | Output::Done
            | Output::WakeAt(_) => {}
        }
    }

    fn act(&mut self, output: Output) {
        self.lower(&output);
        match output {
            Output::Send { attempt, request } => {
                let (office, commands) = (Arc::clone(&self.office), self.commands.clone());
                let (metrics, clock) = (Arc::clone(&self.metrics), self.clock.clone());
                let known = Arc::clone(&self.known);
                tokio::spawn(async move {
                    let (sent_at, kind) = (clock.now(), crate::metrics::RequestKind::of(&request));
                    let stood_for = match &request {
                        Request::Campaign(campaign) => Some(campaign.group.clone()),
                        _ => None,
                    };
                    let stands = matches!(request, Request::Open(_) | Request::Campaign(_));
                    let answer = office.perform(request).await;
                    known.note_answer(stands, &answer);
                    metrics.answered(kind, clock.now().since(sent_at), answer.as_ref().err());
                    if let Some(group) = stood_for.filter(|_| answer.is_ok()) {
                        let _ = commands.send(Command::Campaigned(group));
                    }
                    let _ = commands.send(Command::Tell(Input::Answered { attempt, answer }));
                });
            }
            Output::Elected { claim, group, term } => self.elected(claim, group, term),
            Output::Failed { claim, why } => self.failed(claim, why),
            Output::Moved(transition) => self.moved(transition),
            Output::Stop { group, term, by } => {
                self.with_tenure(&group, term, |it| it.tell(|it| it.stop_by = Some(by)));
            }
            // What waits for a scout that is not back does not work: it is over.
            Output::LastResort { group, term } if self.is_idle(&group, term) => {
                self.inputs.push_back(Input::Idle { group, term });
            }
            Output::LastResort { group, term } => {
                self.metrics.overran(&group, term);
                self.last_resort.call(&group, term);
                self.with_tenure(&group, term, |it| it.tell(|it| it.has_overrun = true));
            }
            Output::Offered { group, term, by } => {
                tracing::info!(%group, %term, %by, node = %self.node, "offered the office");
                self.warming.begin(Offer { group, term, by }, self.commands.clone());
            }
            Output::OfferOver { group, term } => self.warming.over(&group, term),
            Output::HandOverRefused { group, term, why } => {
                self.with_tenure(&group, term, |it| {
                    it.tell(|it| it.hand_over_refused = Some(why));
                });
            }
            Output::Over { group, term } => {
                self.with_tenure(&group, term, |tenure| tenure.tell(|it| it.is_over = true));
                if self.tenures.get(&group).is_some_and(|tenure| tenure.term == term) {
                    self.tenures.remove(&group);
                }
            }
            Output::Watch(group) => self.observe(group),
            Output::Unwatch(group) => self.unobserve(&group),
            Output::Probe => self.probe(),
            Output::NeedSession => self.draw_session(),
            Output::Trouble { group, trouble } => self.trouble(group.as_ref(), &trouble),
            Output::Done => self.is_done = true,
            Output::WakeAt(at) => self.wake_at = Some(at),
        }
    }

    /// Whether nothing of a term is alive.
    fn is_idle(&self, group: &Group, term: Term) -> bool {
        let tenure = self.tenures.get(group).filter(|tenure| tenure.term == term);
        tenure.is_some_and(|tenure| tenure.standing().is_idle)
    }

    fn with_tenure(&self, group: &Group, term: Term, act: impl FnOnce(&Tenure)) {
        if let Some(tenure) = self.tenures.get(group).filter(|tenure| tenure.term == term) {
            act(tenure);
        }
    }

    fn elected(&mut self, claim: ClaimId, group: Group, term: Term) {
        let lease = Arc::clone(&self.lease);
        let tenure = Arc::new(Tenure::new(group.clone(), term, self.node.clone(), lease));
        self.tenures.insert(group.clone(), Arc::clone(&tenure));
        match self.waiters.remove(&claim) {
            Some(Waiter { session, reply, .. }) => {
                // If nobody waits any more, the hold is dropped here, and says that nothing works.
                let _ = reply.send(Ok(Hold::handle(tenure, session)));
            }
            None => self.inputs.push_back(Input::Idle { group, term }),
        }
    }

    fn failed(&mut self, claim: ClaimId, why: PermanentFailure) {
        if let Some(waiter) = self.waiters.remove(&claim) {
            let _ = waiter.reply.send(Err(why));
        }
    }

    fn moved(&mut self, transition: Transition) {
        let Transition { group, from, to, term, why, remaining } = &transition;
        if *term != Term::NONE {
            tracing::info!(
                %group, node = %self.node, %term, %from, %to,
                why = why.word(), remaining_ms = remaining.as_millis(), "changed phase"
            );
        }
        self.with_tenure(group, *term, |tenure| {
            // Before anybody is told: whoever stops at once must find it so.
            if (*to, *why) == (Phase::Stopping, Why::Moving) {
                tenure.await_scout();
            }
            tenure.tell(|standing| standing.moved(*to, *why));
        });
        self.metrics.moved(&transition);
        self.listeners.retain(|listener| listener.send(transition.clone()).is_ok());
    }

    fn observe(&self, group: Group) {
        self.watched.send_if_modified(|watched| {
            let count = watched.entry(group).or_insert(0);
            *count += 1;
            *count == 1
        });
    }

    fn unobserve(&self, group: &Group) {
        let is_last = self.watched.send_if_modified(|watched| {
            let Some(count) = watched.get_mut(group) else { return false };
            *count -= 1;
            *count == 0 && watched.remove(group).is_some()
        });
        if is_last {
            self.known.forget(group);
        }
    }

    fn probe(&self) {
        let Some(application) = &self.application else { return };
        let (commands, clock) = (self.commands.clone(), self.clock.clone());
        // On a runtime that has ended the task is dropped unpolled, and nobody answers.
        application.spawn(async move {
            let _ = commands.send(Command::Tell(Input::Alive { at: clock.now() }));
        });
    }

    fn draw_session(&mut self) {
        match fresh::session_id() {
            Ok(id) => {
                self.needs_session = false;
                self.known.note_session(id);
                self.inputs.push_back(Input::Session(id));
            }
            Err(error) => {
                self.needs_session = true;
                tracing::error!(%error, "no session without a secret; trying again");
            }
        }
    }

    fn trouble(&mut self, group: Option<&Group>, trouble: &Trouble) {
        self.metrics.trouble(group, trouble);
        let text = trouble.to_string();
        if self.told == text {
            tracing::debug!(group = group.map(tracing::field::display), "{text}");
        } else {
            tracing::warn!(group = group.map(tracing::field::display), node = %self.node, "{text}");
            self.told = text;
        }
    }
}

impl Drop for Keeper {
    /// Nobody renews any more and nobody would say so: what is held ends here.
    fn drop(&mut self) {
        for tenure in self.tenures.values() {
            tenure.ends_by(Moment::ZERO);
            tenure.tell(|standing| {
                if !standing.is_to_stop() {
                    (standing.phase, standing.why) = (Phase::Lost, Why::SessionGone);
                }
                standing.has_overrun = true;
                standing.is_over |= self.is_done;
            });
        }
        for leaver in std::mem::take(&mut self.leavers) {
            let _ = leaver.send(self.is_done);
        }
    }
}
