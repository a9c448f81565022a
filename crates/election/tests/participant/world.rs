//! A world for several participants and one store: true time, a clock per machine that drifts within
//! the bound, a network that delays, loses, doubles and reorders, processes that pause, work that
//! does not stop. Everything is decided by one seed.
//!
//! S1 is checked at every instant at which anything happens. That is exact: a check can begin to
//! pass only at an event of its own machine, so the first instant of any overlap is an event.

use std::collections::{BTreeMap, BTreeSet};

use regent_election::participant::{
    Action, Attempt, Event, Participant, Phase, Reply, Request, Transition, Why,
};
use regent_election::store::StoreError;
use regent_election::{Group, Metadata, Node, SessionId, Term};

use crate::bench::{group, node, unavailable, uncertain};
use crate::plan::{Chaos, Clock, MS, Plan};
use crate::store::Keeper;

struct Seat {
    machine: Participant,
    clock: Clock,
    cut_until: u64,
    paused_until: u64,
    waits: Vec<Happening>,
    /// The wake-up that counts: each one asked for replaces the one before.
    wake: u64,
    /// The groups whose work runs, and under which term.
    work: BTreeMap<Group, Term>,
    phases: BTreeMap<Group, Phase>,
    lost: BTreeSet<(Group, Term)>,
    /// What passed a check at the last instant, and what did so once and does no more.
    passing: BTreeSet<(Group, Term)>,
    passed: BTreeSet<(Group, Term)>,
}

enum Happening {
    Arrives { from: usize, attempt: Attempt, request: Request },
    Answered { who: usize, attempt: Attempt, answer: Result<Reply, StoreError> },
    Told { who: usize, event: Event },
    Wakes { who: usize, wake: u64 },
    Resumes { who: usize },
    StoreWakes,
    Strikes(Chaos),
}

pub(crate) struct World {
    plan: Plan,
    now_ns: u64,
    dice: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    queued: u64,
    store: Box<dyn Keeper>,
    store_clock: Clock,
    outage_until: u64,
    seats: Vec<Seat>,
    sessions_given: u128,
    calm: bool,
    /// The terms for whose office somebody got warm.
    warm: BTreeSet<(Group, Term)>,
    /// How often work was told to stop for a hand-over.
    pub(crate) hand_overs: u64,
    /// How often somebody began to lead.
    pub(crate) elections: u64,
}

impl World {
    pub(crate) fn new(plan: Plan, store: Box<dyn Keeper>) -> Self {
        let mut world = Self {
            now_ns: 0,
            dice: plan.seed,
            queue: BTreeMap::new(),
            queued: 0,
            store,
            store_clock: Clock::new(&plan.budget, plan.drifts[0], 7_777 * MS),
            outage_until: 0,
            seats: Vec::new(),
            sessions_given: 0,
            calm: false,
            warm: BTreeSet::new(),
            hand_overs: 0,
            elections: 0,
            plan,
        };
        for who in 0..world.plan.participants {
            let drift = world.plan.drifts[who + 1];
            let name = node(&format!("n{who}"));
            let seed = world.plan.seed ^ who as u64;
            world.seats.push(Seat {
                machine: Participant::new(name, world.plan.budget, seed),
                clock: Clock::new(&world.plan.budget, drift, (who as u64 + 1) * 1_000_000 * MS),
                cut_until: 0,
                paused_until: 0,
                waits: Vec::new(),
                wake: 0,
                work: BTreeMap::new(),
                phases: BTreeMap::new(),
                lost: BTreeSet::new(),
                passing: BTreeSet::new(),
                passed: BTreeSet::new(),
            });
            for index in 0..world.plan.groups {
                let event = world.stand(index);
                world.after(who as u64 * 3 * MS, Happening::Told { who, event });
            }
        }
        for (at_ms, chaos) in world.plan.chaos.clone() {
            world.after(at_ms * MS, Happening::Strikes(chaos));
        }
        world
    }

    fn stand(&self, index: usize) -> Event {
        Event::Stand { group: name(index), priority: 0, metadata: Metadata::NONE }
    }

    /// Runs until `until_ms` of true time.
    pub(crate) fn run_to(&mut self, until_ms: u64) {
        while let Some(entry) = self.queue.first_entry().filter(|e| e.key().0 <= until_ms * MS) {
            let ((at_ns, _), happening) = entry.remove_entry();
            self.now_ns = self.now_ns.max(at_ns);
            self.happen(happening);
            self.watch_store();
            self.check_s1();
        }
        self.now_ns = until_ms * MS;
    }

    /// Everything heals: links, clocks' leaps are over, everybody is well and stands everywhere.
    pub(crate) fn heal(&mut self) {
        self.calm = true;
        self.outage_until = 0;
        for who in 0..self.seats.len() {
            self.seats[who].cut_until = 0;
            let mut events = vec![Event::Healthy];
            events.extend((0..self.plan.groups).map(|index| self.stand(index)));
            for event in events {
                self.after(0, Happening::Told { who, event });
            }
        }
    }

    /// Who passes a check in a group at this very instant.
    pub(crate) fn leaders(&self, group: &Group) -> Vec<(usize, Term)> {
        let held = |seat: &Seat| seat.machine.check(seat.clock.read(self.now_ns), group);
        self.seats
            .iter()
            .enumerate()
            .filter_map(|(who, seat)| Some((who, held(seat)?.term)))
            .collect()
    }

    /// S1: at most one unexpired leadership per group at any real instant.
    /// And what a check has denied once, no check grants again: a term is over only once.
    fn check_s1(&mut self) {
        let mut passing = vec![BTreeSet::new(); self.seats.len()];
        for index in 0..self.plan.groups {
            let group = name(index);
            let leaders = self.leaders(&group);
            assert!(leaders.len() <= 1, "S1: {leaders:?} lead {group} at {}ns", self.now_ns);
            for (who, term) in leaders {
                passing[who].insert((group.clone(), term));
            }
        }
        for (seat, passing) in self.seats.iter_mut().zip(passing) {
            let before = std::mem::replace(&mut seat.passing, passing);
            seat.passed.extend(before.difference(&seat.passing).cloned());
            for held in &seat.passing {
                assert!(!seat.lost.contains(held), "{held:?} was declared lost");
                assert!(!seat.passed.contains(held), "{held:?} came back");
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        let who = match &happening {
            Happening::Answered { who, .. }
            | Happening::Told { who, .. }
            | Happening::Wakes { who, .. } => Some(*who),
            Happening::Arrives { .. }
            | Happening::Resumes { .. }
            | Happening::StoreWakes
            | Happening::Strikes(_) => None,
        };
        if let Some(seat) = who.map(|who| &mut self.seats[who])
            && self.now_ns < seat.paused_until
        {
            seat.waits.push(happening);
            return;
        }
        match happening {
            Happening::Arrives { from, attempt, request } => self.arrives(from, attempt, request),
            Happening::Answered { who, attempt, answer } => {
                self.tell(who, Event::Answered { attempt, answer });
            }
            Happening::Told { who, event } => self.told(who, event),
            Happening::Wakes { who, wake } => {
                if self.seats[who].wake == wake {
                    self.tell(who, Event::Tick);
                }
            }
            Happening::Resumes { who } => {
                // What waited comes at once, in any order.
                let mut waits = std::mem::take(&mut self.seats[who].waits);
                while !waits.is_empty() {
                    let index = self.roll(waits.len() as u64) as usize;
                    self.after(0, waits.swap_remove(index));
                }
            }
            Happening::StoreWakes => self.store.pass_time(self.store_clock.read(self.now_ns)),
            Happening::Strikes(chaos) => self.strike(chaos),
        }
    }

    fn told(&mut self, who: usize, event: Event) {
        if let Event::Warm { group, term } = &event {
            self.warm.insert((group.clone(), *term));
        }
        if let Event::Stopped { group } = &event {
            // Told once per end of work: a second word would be about the next work.
            if self.seats[who].work.remove(group).is_none() {
                return;
            }
        }
        self.tell(who, event);
    }

    fn tell(&mut self, who: usize, event: Event) {
        let seat = &mut self.seats[who];
        let actions = seat.machine.on(seat.clock.read(self.now_ns), event);
        for action in actions {
            self.act(who, action);
        }
    }

    fn act(&mut self, who: usize, action: Action) {
        match action {
            Action::Send { attempt, request } => self.post(who, attempt, request),
            Action::Transition(transition) => self.transition(who, transition),
            Action::StopWork { group, by, .. } => {
                // Most work stops in time, some late, some never.
                let left_ns = self.seats[who].clock.when(by).saturating_sub(self.now_ns);
                let fate = if self.calm { 0 } else { self.roll(10) };
                let stops_in = match fate {
                    0..=6 => self.roll(left_ns.max(1)),
                    7 | 8 => left_ns + self.roll(500 * MS),
                    _ => return,
                };
                self.after(stops_in, Happening::Told { who, event: Event::Stopped { group } });
            }
            Action::LastResort { group, .. } => {
                self.after(0, Happening::Told { who, event: Event::Stopped { group } });
            }
            Action::Offered { group, term, .. } => {
                // Most get warm, sooner or later; some never do.
                let fate = if self.calm { 0 } else { self.roll(10) };
                let warm_in = match fate {
                    0..=7 => self.roll(self.plan.budget.ttl_ms() * MS),
                    _ => return,
                };
                self.after(warm_in, Happening::Told { who, event: Event::Warm { group, term } });
            }
            Action::OfferOver { .. } => {}
            Action::NeedSession => {
                self.sessions_given += 1;
                let id = SessionId::new(self.sessions_given).expect("not zero");
                self.after(0, Happening::Told { who, event: Event::Session(id) });
            }
            Action::Trouble { .. } => {}
            Action::WakeAt(moment) => {
                let wakes_in = self.seats[who].clock.when(moment).saturating_sub(self.now_ns);
                let late = self.roll(3 * MS);
                self.seats[who].wake += 1;
                let wake = self.seats[who].wake;
                self.after(wakes_in + late, Happening::Wakes { who, wake });
            }
        }
    }

    /// Transitions come in order and none is missing; work never runs twice in one process.
    fn transition(&mut self, who: usize, transition: Transition) {
        let Transition { group, from, to, term, why, .. } = transition;
        let seat = &mut self.seats[who];
        let before = seat.phases.insert(group.clone(), to).unwrap_or(Phase::Standby);
        let is_return = before == Phase::Stopped && from == Phase::Standby;
        assert!(before == from || is_return, "{group} went from {before}, not from {from}");
        match (from, to) {
            (Phase::Standby, Phase::Leading) => {
                let running = seat.work.insert(group.clone(), term);
                assert_eq!(running, None, "n{who} works twice in {group}");
                self.elections += 1;
            }
            (_, Phase::Stopping) if why == Why::HandOver => {
                // Semantics 15: the leader works on until somebody can take over.
                let is_warm = self.warm.contains(&(group.clone(), term));
                assert!(is_warm, "n{who} stopped in {group} for one that is not warm");
                self.hand_overs += 1;
            }
            (_, Phase::Lost) => {
                seat.lost.insert((group, term));
            }
            (_, _) => {}
        }
    }

    fn post(&mut self, from: usize, attempt: Attempt, request: Request) {
        let copies = if self.chance(self.plan.network.double_percent) { 2 } else { 1 };
        for _ in 0..copies {
            let request = request.clone();
            if self.is_cut(from) || self.chance(self.plan.network.loss_percent) {
                self.fail(from, attempt);
                continue;
            }
            let delay = self.delay();
            self.after(delay, Happening::Arrives { from, attempt, request });
        }
    }

    /// A driver learns of a failure in one of three ways: never, "perhaps", or "no".
    fn fail(&mut self, who: usize, attempt: Attempt) {
        let error = match self.roll(3) {
            0 => return,
            1 => uncertain(),
            _ => unavailable(None),
        };
        let delay = self.delay();
        self.after(delay, Happening::Answered { who, attempt, answer: Err(error) });
    }

    fn arrives(&mut self, from: usize, attempt: Attempt, request: Request) {
        let answer = self.store.handle(self.store_clock.read(self.now_ns), request);
        if self.is_cut(from) || self.chance(self.plan.network.loss_percent) {
            // It happened, and nobody will say so.
            if self.chance(50) {
                let answer = Err(uncertain());
                let delay = self.delay();
                self.after(delay, Happening::Answered { who: from, attempt, answer });
            }
            return;
        }
        let delay = self.delay();
        self.after(delay, Happening::Answered { who: from, attempt, answer });
    }

    /// Lets the store free what is due at the first true instant, and tells watchers.
    fn watch_store(&mut self) {
        if let Some(next_at) = self.store.next_at() {
            let at_ns = self.store_clock.when(next_at).max(self.now_ns);
            let is_queued = self
                .queue
                .range((at_ns, 0)..=(at_ns, u64::MAX))
                .any(|(_, happening)| matches!(happening, Happening::StoreWakes));
            if !is_queued {
                self.after(at_ns - self.now_ns, Happening::StoreWakes);
            }
        }
        for (group, term, leader) in self.store.changes() {
            for who in 0..self.seats.len() {
                if !self.plan.network.hints || self.is_cut(who) || self.chance(20) {
                    continue;
                }
                let (group, leader) = (group.clone(), leader.clone());
                let delay = self.delay();
                let event = Event::Watched { group, term, leader };
                self.after(delay, Happening::Told { who, event });
            }
        }
    }

    pub(crate) fn strike_now(&mut self, chaos: Chaos) {
        self.after(0, Happening::Strikes(chaos));
    }

    fn strike(&mut self, chaos: Chaos) {
        let now_ns = self.now_ns;
        match chaos {
            Chaos::Cut { who, for_ms } => self.seats[who].cut_until = now_ns + for_ms * MS,
            Chaos::Pause { who, for_ms } => {
                let seat = &mut self.seats[who];
                seat.paused_until = seat.paused_until.max(now_ns + for_ms * MS);
                let resumes_in = seat.paused_until - now_ns;
                self.after(resumes_in, Happening::Resumes { who });
            }
            Chaos::Leap { who, by_ms } => {
                self.seats[who].clock.offset_ns += by_ms * MS;
                self.now(who, Event::Tick);
            }
            Chaos::Outage { for_ms } => self.outage_until = now_ns + for_ms * MS,
            Chaos::StepDown { group } => {
                self.store.step_down(self.store_clock.read(now_ns), &name(group));
            }
            Chaos::Resign { who, group } => self.now(who, Event::Resign { group: name(group) }),
            Chaos::Transfer { who, group, to } => {
                let to: Node = node(&format!("n{to}"));
                let within = self.plan.budget.ttl() * 2;
                self.now(who, Event::Transfer { group: name(group), to, within });
            }
            Chaos::Health { who, healthy: true } => self.now(who, Event::Healthy),
            Chaos::Health { who, healthy: false } => self.now(who, Event::Unhealthy),
            Chaos::Withdraw { who, group } => {
                self.now(who, Event::Withdraw { group: name(group) });
            }
            Chaos::Stand { who, group } => {
                let event = self.stand(group);
                self.now(who, event);
            }
            Chaos::Fence { who, group } => {
                let group = name(group);
                let held = self.seats[who].machine.valid_until(&group);
                if let Some((term, _)) = held {
                    self.now(who, Event::FenceRefused { group, term });
                }
            }
        }
    }

    fn now(&mut self, who: usize, event: Event) {
        self.after(0, Happening::Told { who, event });
    }

    fn after(&mut self, delay_ns: u64, happening: Happening) {
        self.queued += 1;
        self.queue.insert((self.now_ns + delay_ns, self.queued), happening);
    }

    fn is_cut(&self, who: usize) -> bool {
        self.now_ns < self.seats[who].cut_until || self.now_ns < self.outage_until
    }

    fn delay(&mut self) -> u64 {
        // Mostly quick, sometimes as slow as the plan allows.
        let max_ns = self.plan.network.delay_ms_max * MS;
        if self.calm || self.chance(80) { self.roll(5 * MS) } else { self.roll(max_ns.max(1)) }
    }

    fn chance(&mut self, percent: u64) -> bool {
        !self.calm && self.roll(100) < percent
    }

    /// A number below `below`.
    fn roll(&mut self, below: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below.max(1)
    }
}

pub(crate) fn name(index: usize) -> Group {
    group(&format!("g{index}"))
}
