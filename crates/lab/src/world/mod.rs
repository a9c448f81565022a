//! A simulated world: true time in nanoseconds, one seed, and the real replica and participant in it.
//!
//! The world owns everything that a process must not: true time, every clock, every link and disk.
//! Processes are driven as their real drivers drive them: what has arrived is drained, then one turn
//! is made, then what came of it leaves. A pause may fall between any two of these steps, so an
//! answer that was computed before a pause can leave after it.
//!
//! - `replica` and `turn`: replicas; `disk` (`directory`, `files`), `clock`, `net`: what they stand on.
//! - `lease`: in place of replicas, hosts that keep elections in a register.
//! - `member`: participants and their applications; `caller`: other clients; `watcher`: watches.
//! - `puppet`, `app`: participants in the hand of a script, or of a user's own application; `wire`: what
//!   they ask, as a replica is asked.
//! - `acts`: what can be done to the world, by hand in scenarios (`script`) or by chance (`strike`).
//!
//! Road not taken: running the real asynchronous server over a simulated network. It would cover
//! more code and a thousand times fewer elections; the real processes have tests of their own.

mod acts;
mod app;
mod caller;
mod directory;
mod disk;
mod driven;
mod files;
mod lease;
mod member;
mod net;
mod operator;
mod parcel;
mod puppet;
mod replica;
mod script;
mod stages;
mod strike;
mod turn;
mod watcher;
mod wire;

use std::collections::BTreeMap;

use regent_election::fence::Fence;
use regent_election::{Drift, Event as Change, Group, Node, Revision, SessionId, Term};
use regent_replica::{Member as Seat, Members, ReplicaId};

use crate::dice::Dice;
use crate::history::{Event, History, Proc, Setup, Stage, What};
use crate::plan::{Plan, Sabotage};
use crate::stats::Stats;

use crate::clock::Clock;
use crate::queue::Queue;
use caller::Caller;
use disk::Disk;
use member::Member;
use net::Net;
use operator::Operator;
use parcel::{Ask, Parcel};
use replica::{InboxItem, Replica};
use strike::Strike;
use watcher::Watcher;

pub use app::{Application, Context, Written};
pub use net::Address;
pub(crate) use stages::AGREE_MS_MAX;
pub use stages::live;

/// The log index of the founding state.
const FOUNDED_AT: u64 = 1;
/// True time at the start: clocks may be behind it.
const START: u64 = 1_000_000_000;

/// Something that is going to happen.
#[derive(Debug)]
enum Happening {
    /// A replica's loop comes round.
    Turn { replica: u64, run: u64 },
    /// What a replica has to say leaves.
    Depart { replica: u64, run: u64 },
    /// A message arrives.
    Arrive { from: Address, to: Address, parcel: Parcel },
    /// A replica's inbox is told something by its own machine.
    Tell { replica: u64, run: u64, told: InboxItem },
    /// A sync ends.
    Synced { replica: u64, run: u64 },
    /// A client has something to do.
    Client { number: u32, run: u32, timer: Timer },
    /// A fault begins or ends.
    Strike(Strike),
    /// A host of a leased world has something to do.
    Host { host: u64, run: u64, timer: lease::HostTimer },
    /// The engine does what it was asked.
    Engine { asker: lease::EngineAsker, question: Box<lease::Question> },
}

/// What a client waits for.
#[derive(Clone, Debug)]
enum Timer {
    /// Its machine wants to be called.
    Wake,
    /// What it has to say leaves.
    Depart,
    /// Its application does something.
    Act,
    /// The work of a group has ended.
    Drained { group: Group, term: Term },
    /// A dead one is started again.
    Start,
}

/// Registers of one group: the same writes reach both.
#[derive(Debug, Default)]
struct Registers {
    fence: Fence,
    /// The highest term that the unfenced one was written with.
    highest: Term,
    /// What applications of a user's own wrote, as it landed.
    written: Vec<Written>,
}

/// A client, whatever it does.
#[derive(Debug)]
enum Client {
    Member(Box<Member>),
    Caller(Caller),
    Watcher(Watcher),
    Operator(Operator),
}

/// One world.
#[derive(Debug)]
pub struct World {
    plan: Plan,
    now: u64,
    began: u64,
    dice: Dice,
    queue: Queue<Happening>,
    net: Net,
    replicas: BTreeMap<u64, Replica>,
    /// In place of replicas, hosts that share a register.
    lease: Option<Box<lease::Lease>>,
    clients: BTreeMap<u32, Client>,
    registers: BTreeMap<Group, Registers>,
    history: History,
    /// What the store told watchers, in the order of its revisions, with when it was first applied.
    changes: Vec<(u64, Change)>,
    /// The last revision that is in them.
    changed: Revision,
    stats: Stats,
    stage: Stage,
    voters: stages::Voters,
    /// The last index applied anywhere.
    committed: u64,
    calls: u64,
    watches: u64,
    sessions: u64,
    replicas_made: u64,
    /// Whether strikes still begin.
    is_striking: bool,
    strikes: strike::Strikes,
}

impl World {
    /// A world that is about to begin.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let settings = plan.settings.clone();
        let is_witness = |id: u64| plan.witness == Some(id);
        let replicas = if plan.register.is_some() { 0 } else { plan.replicas };
        let members: Members =
            (1..=replicas).map(|id| (replica_id(id), seat(id, is_witness(id)))).collect();
        let (seed, drift_ppm, founded_at) = (plan.seed, plan.drift_ppm, FOUNDED_AT);
        let register = plan.register;
        let setup =
            Setup { seed, register, members, settings, drift_ppm, founded_at, replicated: None };
        Self::founded(plan, setup, START)
    }

    /// A world whose store starts with what the setup says, at this true time.
    fn founded(plan: Plan, setup: Setup, now: u64) -> Self {
        let dice = Dice::new(plan.seed);
        let replicated = setup.founding();
        let mut world = Self {
            now,
            began: now,
            net: Net::new(plan.net.clone(), dice.fork("net")),
            queue: Queue::new(),
            replicas: BTreeMap::new(),
            lease: None,
            clients: BTreeMap::new(),
            registers: BTreeMap::new(),
            history: History::new(setup),
            changes: Vec::new(),
            changed: replicated.state.revision(),
            stats: Stats::default(),
            stage: Stage::Chaos,
            voters: stages::Voters::new(1..=plan.replicas),
            committed: FOUNDED_AT,
            calls: 0,
            watches: 0,
            sessions: 0,
            replicas_made: plan.replicas,
            is_striking: false,
            strikes: strike::Strikes::new(&dice),
            dice,
            plan,
        };
        if world.plan.register.is_some() {
            world.found_lease();
            return world;
        }
        let medium = world.plan.disk.medium;
        for id in 1..=world.plan.replicas {
            let disk = Disk::founding(medium, replica_id(id), &replicated, FOUNDED_AT);
            world.add_replica(id, disk);
            world.start_replica(id);
        }
        world
    }

    /// Lets time pass until `at`.
    pub fn run_until(&mut self, at: u64) {
        while self.queue.next_at().is_some_and(|next| next <= at) {
            let Some((due_at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(due_at);
            self.stats.happenings += 1;
            self.happen(happening);
        }
        self.now = self.now.max(at);
    }

    /// Lets this much time pass.
    pub fn run_for_ms(&mut self, ms: u64) {
        self.run_until(self.now + ms * 1_000_000);
    }

    /// True time.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// What has happened so far.
    #[must_use]
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// Every change of who leads that the store has made so far, with its true time.
    #[must_use]
    pub fn changes(&self) -> &[(u64, Change)] {
        &self.changes
    }

    /// What was counted so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Ends the world and gives its history.
    #[must_use]
    pub fn into_history(mut self) -> (History, Stats) {
        self.stats.simulated_ns += self.now - self.began;
        (self.history, self.stats)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Turn { replica, run } => self.turn(replica, run),
            Happening::Depart { replica, run } => self.depart(replica, run),
            Happening::Arrive { from, to, parcel } => self.arrive(from, to, parcel),
            Happening::Tell { replica, run, told } => {
                if self.replicas.get(&replica).is_some_and(|r| r.run() == Some(run)) {
                    self.tell(replica, told);
                }
            }
            Happening::Synced { replica, run } => self.synced(replica, run),
            Happening::Client { number, run, timer } => self.client_timer(number, run, timer),
            Happening::Strike(strike) => self.strike(strike),
            Happening::Host { host, run, timer } => self.host_timer(host, run, timer),
            Happening::Engine { asker, question } => self.engine_works(asker, question),
        }
    }

    fn note(&mut self, proc: Proc, what: What) {
        self.stats.count(&what);
        self.history.events.push(Event { at: self.now, proc, what });
    }

    fn note_fault(&mut self, what: String, beyond_a1: bool) {
        self.note(Proc::World, What::Fault { what, beyond_a1 });
    }

    /// Enters another stage.
    pub fn enter(&mut self, stage: Stage, core: Vec<u64>) {
        self.stage = stage;
        self.note(Proc::World, What::Stage { stage, core });
    }

    /// Sends something; what becomes of it is the net's affair.
    fn send(&mut self, from: Address, to: Address, parcel: Parcel) {
        // A client's connection repeats nothing by itself; among replicas that is not relied on.
        let is_once = matches!(
            &parcel,
            Parcel::Ask { ask: Ask::Submit { .. }, .. }
                | Parcel::Watch { .. }
                | Parcel::Item { .. }
        );
        let arrivals = self.net.send(self.now, from, to, is_once);
        self.stats.messages += 1;
        let Some((last, others)) = arrivals.split_last() else {
            self.lost(from, to, &parcel);
            return;
        };
        for at in others {
            let parcel = parcel.clone();
            self.queue.push(*at, Happening::Arrive { from, to, parcel });
        }
        self.queue.push(*last, Happening::Arrive { from, to, parcel });
    }

    /// A connection notices some of what it loses.
    fn lost(&mut self, from: Address, to: Address, parcel: &Parcel) {
        let (Address::Replica(from), Address::Replica(to)) = (from, to) else { return };
        let Some(run) = self.replicas.get(&from).and_then(Replica::run) else { return };
        let is_snapshot = matches!(parcel, Parcel::Peer { snapshot: Some(_), .. });
        let told = if is_snapshot {
            InboxItem::SnapshotSent { to: replica_id(to), arrived: false }
        } else if self.dice.once_in(4) {
            InboxItem::Unreachable { replica: replica_id(to) }
        } else {
            return;
        };
        let at = self.now + self.dice.skewed(1_000_000..=40_000_000);
        self.queue.push(at, Happening::Tell { replica: from, run, told });
    }

    fn arrive(&mut self, from: Address, to: Address, parcel: Parcel) {
        // A link that was cut while the message was on its way has lost it.
        if self.net.is_cut(from, to) {
            self.lost(from, to, &parcel);
            return;
        }
        match to {
            Address::Replica(id) if self.is_leased() => self.arrive_at_host(from, id, parcel),
            Address::Replica(id) => self.arrive_at_replica(from, id, parcel),
            Address::Engine => self.arrive_at_engine(from, parcel),
            Address::Client(number) => self.arrive_at_client(from, number, parcel),
            Address::Registers => self.arrive_at_registers(from, parcel),
        }
    }

    fn arrive_at_registers(&mut self, from: Address, parcel: Parcel) {
        let (Address::Client(number), Parcel::Write { group, term, run, value }) = (from, parcel)
        else {
            return;
        };
        let node = self.node_of(number).cloned();
        let proc = Proc::Client { number, run };
        let registers = self.registers.entry(group.clone()).or_default();
        let is_fence_off = self.plan.sabotage == Some(Sabotage::FenceOff);
        let admitted = registers.fence.admit(term).is_ok() || is_fence_off;
        self.stats.unfenced_harm += u64::from(term < registers.highest);
        registers.highest = registers.highest.max(term);
        if let (Some(node), Some(value)) = (node, value) {
            let (at, is_admitted, value) = (self.now, admitted, value.into());
            registers.written.push(Written { at, node, term, value, is_admitted });
        }
        for (fenced, admitted) in [(true, admitted), (false, true)] {
            let group = group.clone();
            self.note(proc, What::Write { group, fenced, term, admitted });
        }
        if !admitted {
            self.send(Address::Registers, from, Parcel::Refused { group, term });
        }
    }

    fn fresh_session(&mut self) -> SessionId {
        self.sessions += 1;
        SessionId::new(self.sessions.into()).expect("it is not zero")
    }

    /// The names of all groups of this run.
    fn groups(&self) -> Vec<Group> {
        (1..=self.plan.groups).map(group_name).collect()
    }

    fn drift(&self) -> Drift {
        Drift::from_ppm(self.plan.drift_ppm).expect("a plan keeps within the bound")
    }

    /// A clock with an unknown start; its rate is within the bound, and at the bound more often than
    /// not, since that is where mistakes show.
    fn draw_clock(&mut self, concern: &str) -> Clock {
        let mut dice = self.dice.fork(concern);
        let rate_ppm = if self.plan.faults.contains(&crate::plan::Fault::Drift) {
            self.draw_rate(&mut dice)
        } else {
            0
        };
        Clock::new(self.now, dice.within(0..=1 << 50), rate_ppm)
    }

    fn draw_rate(&self, dice: &mut Dice) -> i64 {
        let bound = i64::from(self.plan.drift_ppm);
        match dice.below(3) {
            0 => bound,
            1 => -bound,
            _ => i64::try_from(dice.below(2 * u64::from(self.plan.drift_ppm))).unwrap_or(0) - bound,
        }
    }
}

fn replica_id(number: u64) -> ReplicaId {
    ReplicaId::new(number).expect("replicas are counted from one")
}

fn seat(id: u64, is_witness: bool) -> Seat {
    Seat { peer_address: format!("peer-{id}"), client_address: format!("client-{id}"), is_witness }
}

fn group_name(number: u32) -> Group {
    Group::new(&format!("g{number}")).expect("a letter and a number are a name")
}

fn node_name(number: u32) -> Node {
    Node::new(&format!("n{number}")).expect("a letter and a number are a name")
}
