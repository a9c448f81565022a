//! A participant and its application: the real machine, driven as a real process drives it. Half of
//! them run the library's driver around it, see `driven`.
//!
//! The application does what applications do: it checks, pauses, writes, stops when told (not always
//! in time), resigns, hands over, leaves and comes back. Everything it says leaves a little later,
//! so a pause may fall between the clock read and the send, and between the check and the write.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use regent_election::participant::{Action, Attempt, Event, Phase, Request};
use regent_election::store::StoreError;
use regent_election::{Budget, Group, Metadata, Moment, Node, Priority, SessionId, Term};
use regent_replica::io::Response;

use super::driven::{Machine, Manner};
use super::net::Address;
use super::parcel::{Parcel, told};
use super::puppet::{Hand, Stops};
use super::wire::{ask_of, reply_of};
use super::{Client, Happening, Timer, World, node_name};
use crate::clock::Clock;
use crate::dice::Dice;
use crate::history::{Proc, Stage, What};

/// A participant's process.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) number: u32,
    pub(super) node: Node,
    /// Who decides what its application does.
    pub(super) hand: Hand,
    pub(super) run: u32,
    pub(super) clock: Clock,
    pub(super) pauses: u32,
    pub(super) machine: Option<Machine>,
    pub(super) budget: Budget,
    pub(super) dice: Dice,
    /// The groups its application stands in whenever it lives.
    pub(super) groups: Vec<Group>,
    /// The replica asked last; another one after a failure.
    favourite: u64,
    pub(super) session: Option<SessionId>,
    /// Until when a hand-over that it was told to make may come about.
    pub(super) hands_over_until: u64,
    pub(super) calls: BTreeMap<u64, Sent>,
    inbox: VecDeque<Parcel>,
    pub(super) outbox: VecDeque<(Address, Parcel)>,
    wake_at: Option<u64>,
    /// The client that watches for it, if any.
    pub(super) ears: Option<u32>,
    /// What the history knows of its validity.
    leads: BTreeMap<Group, (Term, u64)>,
}

/// A request that was not answered yet.
#[derive(Debug)]
pub(super) struct Sent {
    attempt: Attempt,
    to: u64,
    at: u64,
    /// Whether its silence has been held against the replica.
    is_blamed: bool,
}

/// How long a leader waits for a standby to get warm: longer than some outages, shorter than others.
const WARM_WITHIN: Duration = Duration::from_secs(5);
/// Requests whose answers are still awaited.
const CALLS_MAX: usize = 128;

impl Member {
    pub(super) const fn proc(&self) -> Proc {
        Proc::Client { number: self.number, run: self.run }
    }

    /// Whether it leads anywhere.
    pub(super) fn is_leading(&self) -> bool {
        !self.leads.is_empty()
    }

    /// Asks the next replica from here on, as the library does: whoever asked one that is gone does not
    /// meet it again before it has asked all others.
    fn turn_away(&mut self, replicas: &[u64]) {
        let favourite = self.favourite;
        let after = replicas.iter().copied().filter(|id| *id > favourite).min();
        self.favourite = after.or_else(|| replicas.iter().copied().min()).unwrap_or(favourite);
        // What was sent there before says nothing about it when it comes round again.
        for sent in self.calls.values_mut() {
            sent.is_blamed = true;
        }
    }

    fn leave(&mut self, replicas: &[u64]) {
        let favourite = self.favourite;
        let others: Vec<u64> = replicas.iter().copied().filter(|id| *id != favourite).collect();
        self.favourite = self.dice.pick(&others).unwrap_or(favourite);
    }

    /// Keeps what arrives in a pause for afterwards.
    pub(super) fn hold_back(&mut self, parcel: Parcel) {
        self.inbox.push_back(parcel);
    }

    /// The groups it leads at this instant and has not been told to leave.
    pub(super) fn settled(&self, now: u64) -> Vec<Group> {
        let phase = |group: &Group| self.machine.as_ref().and_then(|machine| machine.phase(group));
        let leads = self
            .leads
            .iter()
            .filter(|(group, (_, until))| *until > now && phase(group) == Some(Phase::Leading));
        leads.map(|(group, _)| group.clone()).collect()
    }
}

impl World {
    /// Adds a participant that stands in these groups.
    pub fn add_member(&mut self, ttl_ms: u64, groups: Vec<Group>) -> u32 {
        let node = node_name(self.clients.len() as u32 + 1);
        self.add_by_hand(node, ttl_ms, groups, Hand::Chance)
    }

    /// Adds a participant of this name whose application is in somebody's hand.
    pub(super) fn add_by_hand(
        &mut self,
        node: Node,
        ttl_ms: u64,
        groups: Vec<Group>,
        hand: Hand,
    ) -> u32 {
        let number = self.clients.len() as u32 + 1;
        let dice = self.dice.fork(&format!("member {number}"));
        let clock = self.draw_clock(&format!("clock of client {number}"));
        let budget = Budget::new(ttl_ms, self.drift()).expect("every ttl in bounds has a budget");
        let member = Member {
            number,
            node,
            hand,
            run: 0,
            clock,
            pauses: 0,
            machine: None,
            budget,
            dice,
            groups,
            favourite: 1,
            session: None,
            hands_over_until: 0,
            calls: BTreeMap::new(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            wake_at: None,
            ears: None,
            leads: BTreeMap::new(),
        };
        self.clients.insert(number, Client::Member(Box::new(member)));
        self.start_member(number);
        number
    }

    pub(super) fn start_member(&mut self, number: u32) {
        let act_every = self.plan.act_every_ms.clone();
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        if member.machine.is_some() {
            return;
        }
        member.run += 1;
        let seed = member.dice.roll();
        let manner = match member.hand {
            Hand::Chance if number.is_multiple_of(2) => Manner::Driven,
            Hand::Chance => Manner::Bare,
            Hand::Puppet => Manner::Obedient,
            Hand::App(_) => Manner::Attentive,
        };
        let machine = Machine::new(member.node.clone(), member.budget, seed, manner);
        member.machine = Some(machine);
        let (run, groups) = (member.run, member.groups.clone());
        let act_at = self.now + member.dice.within(act_every) * 1_000_000;
        self.queue.push(act_at, Happening::Client { number, run, timer: Timer::Act });
        self.note(Proc::Client { number, run }, What::Up);
        self.start_app(number);
        for group in groups {
            self.stand(number, group, 0);
        }
    }

    /// Ends a participant's process on the spot.
    pub fn kill_client(&mut self, number: u32) {
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        if member.machine.take().is_none() {
            return;
        }
        let proc = member.proc();
        member.calls.clear();
        member.inbox.clear();
        member.outbox.clear();
        member.leads.clear();
        member.wake_at = None;
        member.session = None;
        self.note(proc, What::Down);
    }

    pub(super) fn stand(&mut self, number: u32, group: Group, priority: Priority) {
        let Some(Client::Member(member)) = self.clients.get(&number) else { return };
        self.note(member.proc(), What::Stand { group: group.clone(), wants: true });
        let metadata = Metadata::NONE;
        self.on_member(number, Event::Stand { group, priority, metadata });
    }

    pub(super) fn withdraw(&mut self, number: u32, group: Group) {
        let Some(Client::Member(member)) = self.clients.get(&number) else { return };
        self.note(member.proc(), What::Stand { group: group.clone(), wants: false });
        self.on_member(number, Event::Withdraw { group });
    }

    /// Tells the machine something and does what it says.
    pub(super) fn on_member(&mut self, number: u32, event: Event) {
        let (now, is_calm) = (self.now, self.stage != Stage::Chaos);
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let own_now = member.clock.read(now);
        let Some(machine) = &mut member.machine else { return };
        let actions = machine.on(own_now, event, is_calm);
        for action in actions {
            self.do_action(number, action);
            // The dead do nothing more.
            let Some(Client::Member(member)) = self.clients.get(&number) else { return };
            if member.machine.is_none() {
                return;
            }
        }
        self.note_leads(number);
        let Some(Client::Member(member)) = self.clients.get(&number) else { return };
        if !member.outbox.is_empty() && member.pauses == 0 {
            let run = member.run;
            let at = now + self.dice.skewed(1_000..=300_000);
            self.queue.push(at, Happening::Client { number, run, timer: Timer::Depart });
        }
        self.tell_app(number);
    }

    fn do_action(&mut self, number: u32, action: Action) {
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let proc = member.proc();
        match action {
            Action::Send { attempt, request } => self.ask_for(number, attempt, request),
            Action::Transition(transition) => {
                member.hand.news(&transition);
                let (group, phase, term) = (transition.group, transition.to, transition.term);
                self.note(proc, What::Phase { group, phase, term });
            }
            Action::StopWork { group, term, by } => self.stop_work(number, group, term, by),
            Action::LastResort { group, term } => self.end_by_force(number, group, term),
            // Some never get ready: a leader must not wait for them for ever.
            Action::Offered { group, term, .. }
                if !member.hand.is_chance() || !member.dice.once_in(8) =>
            {
                self.on_member(number, Event::Warm { group, term });
            }
            Action::Offered { .. } | Action::OfferOver { .. } => {}
            Action::NeedSession => {
                let id = self.fresh_session();
                if let Some(Client::Member(member)) = self.clients.get_mut(&number) {
                    member.session = Some(id);
                }
                self.on_member(number, Event::Session(id));
            }
            Action::Trouble { .. } => {}
            Action::WakeAt(at) => {
                let at = member.clock.when(at).max(self.now + 1_000);
                if member.wake_at.is_none_or(|before| at < before || before <= self.now) {
                    member.wake_at = Some(at);
                    let run = member.run;
                    self.queue.push(at, Happening::Client { number, run, timer: Timer::Wake });
                }
            }
        }
    }

    /// Work that did not stop in time is killed; half of the time its process dies with it.
    fn end_by_force(&mut self, number: u32, group: Group, term: Term) {
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        // The library does no more than to say so; the term is over in any case.
        if !member.hand.is_chance() {
            return;
        }
        if member.dice.once_in(2) {
            self.kill_client(number);
            self.restart_client_later(number);
        } else {
            let run = member.run;
            let timer = Timer::Drained { group, term };
            self.queue.push(self.now + 1_000_000, Happening::Client { number, run, timer });
        }
    }

    fn stop_work(&mut self, number: u32, group: Group, term: Term, by: Moment) {
        let overruns_ppm = if self.stage == Stage::Chaos { self.plan.overruns_ppm } else { 0 };
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let left = member.clock.when(by).saturating_sub(self.now);
        let takes = match member.hand.told_to_stop(&group, term, left) {
            Stops::WhenItSays => return,
            Stops::Within(ns) => ns,
            Stops::ByChance if member.dice.chance(overruns_ppm) => {
                left + member.dice.within(1_000_000..=2_000_000_000)
            }
            Stops::ByChance => member.dice.below(left * 3 / 4 + 1),
        };
        let run = member.run;
        let timer = Timer::Drained { group, term };
        self.queue.push(self.now + takes, Happening::Client { number, run, timer });
    }

    /// The work of a term has ended. What was killed before it had stopped by itself ended then, and the
    /// work of a later term is another.
    fn drained(&mut self, number: u32, group: Group, term: Term) {
        let Some(Client::Member(member)) = self.clients.get(&number) else { return };
        let held = member.machine.as_ref().and_then(|machine| machine.held().get(&group).copied());
        if held.is_none_or(|(held, _)| held == term) {
            self.on_member(number, Event::Stopped { group });
        }
    }

    /// Puts a request into the outbox.
    fn ask_for(&mut self, number: u32, attempt: Attempt, request: Request) {
        self.choose_replica(number);
        let ask = ask_of(request);
        self.calls += 1;
        let call = self.calls;
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let proc = member.proc();
        let to = member.favourite;
        member.calls.insert(call, Sent { attempt, to, at: self.now, is_blamed: false });
        if member.calls.len() > CALLS_MAX {
            member.calls.pop_first();
        }
        let op = ask.op();
        member.outbox.push_back((Address::Replica(to), Parcel::Ask { call, ask }));
        self.note(proc, What::Invoke { call, op });
    }

    /// One that has not answered in time is left; in bad times others are tried without reason, too.
    fn choose_replica(&mut self, number: u32) {
        let now = self.now;
        let replicas = self.known_to_clients();
        let wanders = self.stage == Stage::Chaos;
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let favourite = member.favourite;
        let patience = u64::try_from(member.budget.request_timeout().as_nanos()).unwrap_or(0);
        let mut is_late = !replicas.contains(&favourite);
        for sent in member.calls.values_mut() {
            if sent.to == favourite && !sent.is_blamed && now >= sent.at + patience {
                sent.is_blamed = true;
                is_late = true;
            }
        }
        if is_late {
            member.turn_away(&replicas);
        } else if wanders && member.dice.once_in(4) {
            member.leave(&replicas);
        }
    }

    pub(super) fn member_timer(&mut self, number: u32, timer: Timer) {
        match timer {
            Timer::Wake => {
                let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
                if member.wake_at.is_some_and(|at| at <= self.now) {
                    member.wake_at = None;
                    self.on_member(number, Event::Tick);
                }
            }
            Timer::Depart => {
                let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
                for (to, parcel) in std::mem::take(&mut member.outbox) {
                    self.send(Address::Client(number), to, parcel);
                }
            }
            Timer::Act => self.act_member(number),
            Timer::Drained { group, term } => self.drained(number, group, term),
            Timer::Start => {}
        }
    }

    /// The application does something: mostly its work, now and then something rarer.
    fn act_member(&mut self, number: u32) {
        let now = self.now;
        let act_every = self.plan.act_every_ms.clone();
        let members: Vec<u32> = self.member_numbers();
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let act_every = match &member.hand {
            Hand::Chance | Hand::Puppet => act_every,
            Hand::App(cast) => cast.tick_ms(),
        };
        let at = now + member.dice.within(act_every) * 1_000_000;
        let run = member.run;
        self.queue.push(at, Happening::Client { number, run, timer: Timer::Act });
        if member.hand.is_app() {
            self.tick_app(number);
            return;
        }
        for group in member.groups.clone() {
            self.work(number, &group);
        }
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        if self.stage != Stage::Chaos || !member.hand.is_chance() {
            return;
        }
        let Some(at) = member.dice.pick(&(0..member.groups.len()).collect::<Vec<_>>()) else {
            return;
        };
        let group = member.groups[at].clone();
        let is_led = member.leads.contains_key(&group);
        match member.dice.below(60) {
            0 if is_led => self.on_member(number, Event::Resign { group }),
            1 | 2 if is_led => {
                let others: Vec<u32> =
                    members.into_iter().filter(|other| *other != number).collect();
                if let Some(to) = member.dice.pick(&others) {
                    let (to, within) = (node_name(to), WARM_WITHIN);
                    // Until the other one is warm, and then until the work has stopped.
                    let lasts = within + member.budget.ttl();
                    member.hands_over_until = self.now + lasts.as_nanos() as u64;
                    self.on_member(number, Event::Transfer { group, to, within });
                }
            }
            3 => self.withdraw(number, group),
            4..=9 => self.stand(number, group, 0),
            10 => self.on_member(number, Event::Unhealthy),
            11..=20 => self.on_member(number, Event::Healthy),
            _ => {}
        }
    }

    /// Checks, and writes if the check passes. What happens in between is the fence's business.
    pub(super) fn work(&mut self, number: u32, group: &Group) {
        let now = self.now;
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let Some(machine) = &member.machine else { return };
        let passed = machine.check(member.clock.read(now), group);
        let (proc, session) = (member.proc(), member.session);
        let run = member.run;
        self.note(proc, What::Guard { group: group.clone(), session, passed });
        if let Some(term) = passed
            && let Some(Client::Member(member)) = self.clients.get_mut(&number)
        {
            let parcel = Parcel::Write { group: group.clone(), term, run, value: None };
            member.outbox.push_back((Address::Registers, parcel));
            let at = now + self.dice.skewed(1_000..=20_000_000);
            self.queue.push(at, Happening::Client { number, run, timer: Timer::Depart });
        }
    }

    pub(super) fn arrive_at_member(&mut self, number: u32, parcel: Parcel) {
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        if member.pauses > 0 {
            member.hold_back(parcel);
            return;
        }
        let ears = member.ears;
        match parcel {
            Parcel::Reply { call, response } => self.replied(number, call, *response),
            Parcel::Refused { group, term } => {
                self.on_member(number, Event::FenceRefused { group, term });
            }
            Parcel::Item { .. } => {
                if let Some(ears) = ears {
                    self.arrive_at_watcher(ears, parcel);
                }
            }
            Parcel::Peer { .. }
            | Parcel::Ask { .. }
            | Parcel::Watch { .. }
            | Parcel::Unwatch { .. }
            | Parcel::Question { .. }
            | Parcel::Told { .. }
            | Parcel::Write { .. } => {}
        }
    }

    fn replied(&mut self, number: u32, call: u64, response: Response) {
        let replicas = self.known_to_clients();
        let is_calm = self.stage != Stage::Chaos;
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let Some(Sent { attempt, to: from, .. }) = member.calls.remove(&call) else { return };
        let proc = member.proc();
        let is_failure = matches!(
            &response,
            Response::Error(StoreError::Unavailable { .. } | StoreError::Uncertain { .. })
        );
        // A late failure of one that was left long ago says nothing about the present one.
        if is_failure && from == member.favourite {
            member.leave(&replicas);
        } else if !is_failure && is_calm {
            member.favourite = from;
        }
        self.note(proc, told(call, &response));
        let answer = reply_of(response);
        self.on_member(number, Event::Answered { attempt, answer });
    }

    /// A paused process goes on: its application may act before its machine is called.
    pub(super) fn resume_member(&mut self, number: u32) {
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        if member.machine.is_none() {
            return;
        }
        let (groups, run) = (member.groups.clone(), member.run);
        let inbox = std::mem::take(&mut member.inbox);
        member.wake_at = None;
        if member.hand.is_app() {
            self.tick_app(number);
        } else {
            for group in groups {
                self.work(number, &group);
            }
        }
        self.queue.push(self.now, Happening::Client { number, run, timer: Timer::Depart });
        self.on_member(number, Event::Tick);
        for parcel in inbox {
            self.arrive_at_member(number, parcel);
        }
    }

    /// Tells the history how validity has changed.
    pub(super) fn note_leads(&mut self, number: u32) {
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let Some(machine) = &member.machine else { return };
        let held: BTreeMap<Group, (Term, u64)> = machine
            .held()
            .into_iter()
            .map(|(group, (term, until))| (group, (term, member.clock.when(until))))
            .collect();
        if held == member.leads {
            return;
        }
        let before = std::mem::replace(&mut member.leads, held.clone());
        let (proc, session) = (member.proc(), member.session);
        let Some(session) = session else { return };
        for group in before.keys().filter(|group| !held.contains_key(*group)) {
            let group = group.clone();
            self.note(proc, What::Lead { group, session, held: None, until: 0 });
        }
        for (group, (term, until)) in held {
            if before.get(&group) != Some(&(term, until)) {
                self.note(proc, What::Lead { group, session, held: Some(term), until });
            }
        }
    }
}
