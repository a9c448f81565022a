//! The lease in the world: processes that keep elections in a register that they share.
//!
//! Where a replicated world has replicas, this one has hosts: processes with the whole real lease
//! ([`regent_stores::LeaseStore`]), its keepers, campaigns and watches, each on a clock of its own; and one
//! engine, whose entries they swap. Everybody else is the same: the participants, callers and watchers,
//! the links, the clocks, the strikes, the stages, the history and, where they do not ask for a log, the
//! checkers. Between a host and the engine everything may go wrong that the register's contract allows:
//! questions are lost, late, doubled and overtaken; answers are lost after the deed; the engine is away,
//! slow, or without room. It never answers from the past, and never says no to what it did: engines that
//! do are not registers, and are found by the register's own contract suite.
//!
//! - `host`: a process; `port`: how it meets the world; `serve`: how it answers clients.
//! - `engine`: the entries; `strikes`: what befalls links and the engine.
//!
//! Roads not taken. Driving only the pure parts (`turn`, `duty`, `sight`): the mistakes of a lease hide in
//! the order of loads and swaps between them, and a driver written for the lab would be another order. And
//! a runtime with a paused clock for all processes together, as the lease's own tests once had: there a
//! paused process still runs to its next request, and the runtime's clock would be built into `regent`.

mod engine;
mod host;
mod port;
mod serve;
mod strikes;

use std::collections::BTreeMap;
use std::time::Duration;

use regent_election::Incarnation;
use regent_election::store::StoreError;
use regent_replica::io::Response;
use regent_stores::lease::reading;
use regent_stores::register::{Key, RegisterError, RegisterResult, Swapped};

use self::engine::{Asker, Engine, EngineOutcome};
use self::host::{Handed, Host, Running};
use super::net::Address;
use super::parcel::Parcel;
use super::{Happening, World};
use crate::clock::Clock;
use crate::history::{Proc, Stage, What};
use crate::plan::RegisterPlan;

pub(super) use self::engine::{Asker as EngineAsker, EngineAnswer, Question};

/// Longest wait in line of a campaign that keeps no session.
const WAIT_MS_MAX: u64 = 300;
/// One question in so many is given up by its client while it is served.
const HANGS_UP_ONCE_IN: u64 = 40;

/// The hosts and their engine.
#[derive(Debug)]
pub(super) struct Lease {
    plan: RegisterPlan,
    engine: Engine,
    hosts: BTreeMap<u64, Host>,
}

/// Something that happens in a host, or to it.
#[derive(Debug)]
pub(super) enum HostTimer {
    /// It comes round.
    Turn,
    /// What it has to say leaves.
    Depart,
    /// A pause may be over.
    Slept { token: u64 },
    /// An answer is not awaited any longer.
    TimedOut { token: u64 },
    /// The client of a call is gone.
    HangUp { call: u64 },
}

impl World {
    /// Gives the world hosts and an engine, if its plan has them.
    pub(super) fn found_lease(&mut self) {
        let Some(plan) = self.plan.register else { return };
        let engine = Engine::new(self.draw_clock("clock of the engine"));
        self.lease = Some(Box::new(Lease { plan, engine, hosts: BTreeMap::new() }));
        for id in 1..=self.plan.replicas {
            let clock = self.draw_clock(&format!("clock of replica {id}"));
            let host = Host { clock, pauses: 0, lag_ns: 0, runs: 0, running: None };
            if let Some(lease) = &mut self.lease {
                lease.hosts.insert(id, host);
            }
            self.start_host(id);
        }
    }

    /// Whether this world keeps its elections in a register.
    pub(super) const fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    fn host(&mut self, id: u64) -> Option<&mut Host> {
        self.lease.as_mut()?.hosts.get_mut(&id)
    }

    /// All hosts, and those that run.
    pub(super) fn hosts(&self, is_running: bool) -> Vec<u64> {
        let hosts = self.lease.iter().flat_map(|lease| &lease.hosts);
        let is_meant = |host: &Host| !is_running || host.running.is_some();
        hosts.filter(|(_, host)| is_meant(host)).map(|(id, _)| *id).collect()
    }

    /// The life of the store's numbering.
    pub(super) fn incarnation(&self) -> Incarnation {
        let Some(lease) = &self.lease else { return Incarnation(1) };
        let found = lease.engine.entry(&Key::setting("life"));
        let bytes = found.and_then(|found| found.value.first_chunk()).copied();
        Incarnation(bytes.map_or(0, u64::from_be_bytes))
    }

    /// Groups whose entry shows another policy than the default.
    pub(super) fn leased_groups_of_another_policy(&self) -> Vec<regent_election::Group> {
        let Some(lease) = &self.lease else { return Vec::new() };
        let is_other = |group: &regent_election::Group| {
            let found = lease.engine.entry(&Key::group(group));
            let entry = found.and_then(|found| reading::group(group, &found.value).ok());
            entry.is_some_and(|entry| {
                entry.state.policy(group) != &entry.state.settings().default_policy
            })
        };
        self.groups().into_iter().filter(is_other).collect()
    }

    /// Starts a host that does not run. It remembers nothing.
    pub(super) fn start_host(&mut self, id: u64) {
        let (now, drift_ppm) = (self.now, self.plan.drift_ppm);
        let dice = crate::dice::Dice::new(self.dice.roll());
        let Some(lease) = &mut self.lease else { return };
        let plan = lease.plan;
        let Some(host) = lease.hosts.get_mut(&id) else { return };
        if host.running.is_some() {
            return;
        }
        host.runs += 1;
        let run = host.runs;
        let running = Running::start(run, now, host.clock, drift_ppm, dice, plan);
        host.running = Some(Box::new(running));
        self.note(Proc::Replica { id, run }, What::Up);
    }

    /// A host dies, with everything it was about to do.
    pub(super) fn crash_host(&mut self, id: u64) {
        let Some(host) = self.host(id) else { return };
        let Some(running) = host.running.take() else { return };
        let run = running.run;
        drop(running);
        self.stats.crashes += 1;
        self.note(Proc::Replica { id, run }, What::Down);
    }

    pub(super) fn pause_host(&mut self, id: u64) {
        let Some(host) = self.host(id) else { return };
        host.pauses += 1;
        let Some(running) = &mut host.running else { return };
        running.turn_at = None;
        let run = running.run;
        self.note(Proc::Replica { id, run }, What::Paused);
    }

    pub(super) fn resume_host(&mut self, id: u64) {
        let Some(host) = self.host(id) else { return };
        host.pauses = host.pauses.saturating_sub(1);
        if host.pauses > 0 {
            return;
        }
        let Some(running) = &host.running else { return };
        let run = running.run;
        self.note(Proc::Replica { id, run }, What::Resumed);
        self.host_later(self.now, id, run, HostTimer::Depart);
        self.wake_host(id, 50_000);
    }

    /// Makes a host healthy, whatever was done to it.
    pub(super) fn restore_host(&mut self, id: u64) {
        let Some(host) = self.host(id) else { return };
        host.lag_ns = 0;
        let is_paused = host.pauses > 0;
        host.pauses = u32::from(is_paused);
        if is_paused {
            self.resume_host(id);
        }
        self.start_host(id);
    }

    /// Changes the clock of a host, and with it when its pauses are over.
    pub(super) fn change_host_clock(&mut self, id: u64, change: impl FnOnce(&mut Clock, u64)) {
        let now = self.now;
        let Some(host) = self.host(id) else { return };
        change(&mut host.clock, now);
        let clock = host.clock;
        let Some(running) = &host.running else { return };
        let run = running.run;
        let sleeping = {
            let mut port = port::lock(&running.port);
            port.clock = clock;
            port.now = now;
            port.sleeping()
        };
        for token in sleeping {
            self.host_sleeps(id, run, token);
        }
    }

    fn host_later(&mut self, at: u64, host: u64, run: u64, timer: HostTimer) {
        self.queue.push(at, Happening::Host { host, run, timer });
    }

    fn host_sleeps(&mut self, id: u64, run: u64, token: u64) {
        let Some(running) = self.host(id).and_then(|host| host.running.as_ref()) else { return };
        let at = port::lock(&running.port).wakes_at(token);
        if let Some(at) = at {
            self.host_later(at.max(self.now), id, run, HostTimer::Slept { token });
        }
    }

    pub(super) fn host_timer(&mut self, id: u64, run: u64, timer: HostTimer) {
        let now = self.now;
        let Some(host) = self.host(id) else { return };
        let (is_paused, running) = (host.pauses > 0, &mut host.running);
        let Some(running) = running.as_mut().filter(|running| running.run == run) else { return };
        match timer {
            HostTimer::Turn => {
                if !is_paused && running.turn_at == Some(now) {
                    running.turn_at = None;
                    self.host_turn(id);
                }
            }
            HostTimer::Depart => {
                if !is_paused {
                    for (to, parcel) in std::mem::take(&mut running.outbox) {
                        self.send(Address::Replica(id), to, parcel);
                    }
                }
            }
            HostTimer::Slept { token } => self.hand(id, Handed::Slept { token }),
            HostTimer::TimedOut { token } => self.hand(id, Handed::TimedOut { token }),
            HostTimer::HangUp { call } => self.hand(id, Handed::HangUp { call }),
        }
    }

    /// Puts something into a host's inbox.
    fn hand(&mut self, id: u64, handed: Handed) {
        let Some(running) = self.host(id).and_then(|host| host.running.as_mut()) else { return };
        running.inbox.push_back(handed);
        let after = 20_000 + self.dice.skewed(0..=100_000);
        self.wake_host(id, after);
    }

    /// Sees to it that a host comes round after so long, or later if it lags.
    fn wake_host(&mut self, id: u64, after: u64) {
        let now = self.now;
        let lag_ns = self.host(id).map_or(0, |host| host.lag_ns);
        let at = now + after + self.dice.skewed(0..=lag_ns);
        let Some(host) = self.host(id) else { return };
        if host.pauses > 0 {
            return;
        }
        let Some(running) = &mut host.running else { return };
        if running.turn_at.is_none() {
            running.turn_at = Some(at);
            let run = running.run;
            self.host_later(at, id, run, HostTimer::Turn);
        }
    }

    fn host_turn(&mut self, id: u64) {
        let now = self.now;
        self.stats.turns += 1;
        let Some(running) = self.host(id).and_then(|host| host.running.as_mut()) else { return };
        let fresh = running.turn(now);
        let run = running.run;
        if let Some(how) = fresh.panicked {
            panic!("r{id}.{run}: {how}");
        }
        for token in fresh.sleeps {
            self.host_sleeps(id, run, token);
        }
        let timeout = self.plan.register.map_or(0, |plan| plan.timeout_ms) * 1_000_000;
        let mut parcels = fresh.said;
        for (token, question) in fresh.questions {
            let given = question.patience().map_or(timeout, |patience: Duration| {
                u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX / 4)
            });
            self.host_later(now + given, id, run, HostTimer::TimedOut { token });
            let parcel = Parcel::Question { run, token, question: Box::new(question) };
            parcels.push((Address::Engine, parcel));
        }
        if parcels.is_empty() {
            return;
        }
        if let Some(running) = self.host(id).and_then(|host| host.running.as_mut()) {
            running.outbox.extend(parcels);
        }
        let at = now + self.dice.skewed(1_000..=200_000);
        self.host_later(at, id, run, HostTimer::Depart);
    }

    /// Something has reached a host.
    pub(super) fn arrive_at_host(&mut self, from: Address, id: u64, parcel: Parcel) {
        let Some(run) = self.host(id).and_then(|host| host.running.as_ref()).map(|it| it.run)
        else {
            self.refuse_call(from, id, &parcel);
            return;
        };
        let handed = match (parcel, from) {
            (Parcel::Ask { call, ask }, Address::Client(client)) => {
                let is_chaos = self.stage == Stage::Chaos;
                let wait = Duration::from_millis(self.dice.skewed(0..=WAIT_MS_MAX));
                if is_chaos && self.dice.once_in(HANGS_UP_ONCE_IN) {
                    let at = self.now + self.dice.skewed(1_000_000..=400_000_000);
                    self.host_later(at, id, run, HostTimer::HangUp { call });
                }
                Handed::Ask { client, call, ask, wait }
            }
            (Parcel::Watch { watch, scope, cursor }, Address::Client(client)) => {
                Handed::Watch { client, watch, scope, cursor }
            }
            (Parcel::Unwatch { watch }, Address::Client(_)) => Handed::Unwatch { watch },
            (Parcel::Told { run: meant, token, answer }, Address::Engine) if meant == run => {
                Handed::Answered { token, answer: *answer }
            }
            (
                _,
                Address::Replica(_) | Address::Client(_) | Address::Registers | Address::Engine,
            ) => {
                return;
            }
        };
        self.hand(id, handed);
    }

    /// A dead process's machine refuses connections; a dead machine says nothing.
    fn refuse_call(&mut self, from: Address, id: u64, parcel: &Parcel) {
        if let Parcel::Ask { call, .. } = parcel
            && self.dice.once_in(2)
        {
            let error = StoreError::Unavailable { why: "refused".into(), retry_after: None };
            let response = Box::new(Response::Error(error));
            self.send(Address::Replica(id), from, Parcel::Reply { call: *call, response });
        }
    }

    /// A question has reached the engine's machine.
    pub(super) fn arrive_at_engine(&mut self, from: Address, parcel: Parcel) {
        let (Address::Replica(host), Parcel::Question { run, token, question }) = (from, parcel)
        else {
            return;
        };
        let asker = Asker { host, run, token };
        let took = self.dice.skewed(self.plan.disk.sync_ns.clone());
        let speaks = self.dice.once_in(2);
        let Some(lease) = &mut self.lease else { return };
        if lease.engine.outages == 0 {
            let at = (self.now + took).max(lease.engine.stalled_until);
            self.queue.push(at, Happening::Engine { asker, question });
        } else if speaks && lease.engine.refuse(asker) {
            self.tell_host(asker, Err(RegisterError::unavailable("refused")));
        }
    }

    /// The engine does what was asked: from here on it has happened.
    pub(super) fn engine_works(&mut self, asker: Asker, question: Box<Question>) {
        let Some(lease) = &mut self.lease else { return };
        let engine = &mut lease.engine;
        if engine.outages > 0 || engine.is_refused(asker) {
            return;
        }
        let own_now = engine.clock.read(self.now);
        let answer = match engine.work(own_now, asker, &question) {
            EngineOutcome::Answer(answer) => answer,
            EngineOutcome::Later(None) => return,
            EngineOutcome::Later(Some(moment)) => {
                let at = engine.clock.when(moment).max(self.now + 1_000);
                self.queue.push(at, Happening::Engine { asker, question });
                return;
            }
        };
        let is_first = engine.is_first(asker);
        self.note_work(asker, *question, &answer);
        if is_first {
            self.tell_host(asker, answer);
        }
    }

    /// Tells the history what the engine did, and whoever waits for it.
    fn note_work(
        &mut self,
        asker: Asker,
        question: Question,
        answer: &RegisterResult<EngineAnswer>,
    ) {
        let proc = Proc::Replica { id: asker.host, run: asker.run };
        match (question, answer) {
            (Question::Swap { key, value, .. }, Ok(EngineAnswer::Swapped(Swapped::Done(_)))) => {
                let over = self.lease.as_mut().map(|lease| lease.engine.stirred(&key));
                self.note(proc, What::Entry { key, value });
                for waiting in over.unwrap_or_default() {
                    self.tell_host(waiting, Ok(EngineAnswer::Done));
                }
            }
            (
                Question::Begin { session, .. } | Question::Heartbeat { session, .. },
                Ok(EngineAnswer::Alive(true)),
            ) => self.note(proc, What::Heartbeat { session }),
            (_, Ok(_) | Err(_)) => {}
        }
    }

    fn tell_host(&mut self, asker: Asker, answer: RegisterResult<EngineAnswer>) {
        let Asker { host, run, token } = asker;
        let parcel = Parcel::Told { run, token, answer: Box::new(answer) };
        self.send(Address::Engine, Address::Replica(host), parcel);
    }
}
