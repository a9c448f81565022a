//! One story: who takes part, what strikes them, and what was seen of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use regent_election::store::{
    Campaign, CampaignSession, Consistency, Scope, StepDown, Store, WatchItem,
};
use regent_election::{Group, Metadata, Node, Reason, SessionId, Term};
use tokio::time::{Instant, sleep};

use super::faulty::{Dice, Faulty, Process, SimTime};
use super::player;
use crate::lease::LeaseStore;
use crate::register::memory::MemoryRegister;

/// The ttl of every session.
pub(super) const TTL_MS: u64 = 1000;
const STORES: u64 = 3;
const PLAYERS: u64 = 5;
const GROUPS: u64 = 2;
/// How long the storm lasts.
const STORM: Duration = Duration::from_secs(24);
/// How long the last campaign may take in calm weather: some ttls, and every pause on the way.
const CALM: Duration = Duration::from_secs(60);

/// What a story is drawn from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) is_servers: bool,
}

/// A time during which somebody would have acted as leader.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) group: usize,
    pub(super) term: Term,
    pub(super) player: u64,
    pub(super) from: Instant,
    pub(super) until: Instant,
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) claims: Vec<Claim>,
    /// Rules that somebody saw broken.
    pub(super) broken: Vec<String>,
    /// What happened, for people.
    pub(super) lines: Vec<String>,
}

/// Where everybody writes down what they see.
#[derive(Clone, Debug)]
pub(super) struct Book {
    started: Instant,
    story: Arc<Mutex<Story>>,
}

impl Book {
    pub(super) fn say(&self, line: impl AsRef<str>) {
        let at = self.started.elapsed();
        self.story.lock().unwrap().lines.push(format!("{at:>12.3?} {}", line.as_ref()));
    }

    pub(super) fn broke(&self, what: String) {
        self.say(&what);
        self.story.lock().unwrap().broken.push(what);
    }

    pub(super) fn claim(&self, claim: Claim) {
        self.story.lock().unwrap().claims.push(claim);
    }
}

pub(super) fn group(number: usize) -> Group {
    Group::new(&format!("g{number}")).unwrap()
}

/// Lets a story happen.
pub(super) fn run(plan: Plan) -> Story {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(happen(plan))
}

async fn happen(plan: Plan) -> Story {
    let dice = Dice::new(plan.seed);
    let book = Book { started: Instant::now(), story: Arc::default() };
    let server = Process::new(dice.roll(), 0);
    server.calm_down();
    let time = Arc::new(SimTime(server));
    let inner = match plan.is_servers {
        true => MemoryRegister::with_sessions(time),
        false => MemoryRegister::with_time(time),
    };
    let mut processes = Vec::new();
    let mut stores: Vec<Arc<LeaseStore>> = Vec::new();
    for _ in 0..STORES {
        let pace_ppm = i64::try_from(dice.below(20_000)).unwrap() - 10_000;
        let process = Process::new(dice.roll(), pace_ppm);
        let register = Faulty {
            inner: inner.clone(),
            process: Arc::clone(&process),
            is_servers: plan.is_servers,
        };
        let time = Arc::new(SimTime(Arc::clone(&process)));
        stores.push(Arc::new(LeaseStore::with_time(Arc::new(register), time)));
        processes.push(process);
    }
    let mut tasks = Vec::new();
    for number in 0..PLAYERS {
        let at = usize::try_from(dice.below(STORES)).unwrap();
        let player = player::Player {
            number,
            groups: usize::try_from(GROUPS).unwrap(),
            dice: Dice::new(dice.roll()),
            store: Arc::clone(&stores[at]),
            process: Arc::clone(&processes[at]),
            book: book.clone(),
        };
        tasks.push(tokio::spawn(player.live()));
    }
    for number in 0..usize::try_from(GROUPS).unwrap() {
        let store = Arc::clone(&stores[number % stores.len()]);
        tasks.push(tokio::spawn(watch(store, number, book.clone())));
    }
    let admin = Arc::clone(&stores[usize::try_from(dice.below(STORES)).unwrap()]);
    tasks.push(tokio::spawn(administer(admin, Dice::new(dice.roll()), book.clone())));
    storm(&dice, &processes, &book).await;
    for task in &tasks {
        task.abort();
    }
    for process in &processes {
        process.calm_down();
    }
    book.say("calm");
    for number in 0..usize::try_from(GROUPS).unwrap() {
        let at = usize::try_from(dice.below(STORES)).unwrap();
        succeed(&stores[at], number, &dice, &book).await;
    }
    for store in &stores {
        store.shut_down().await;
    }
    let mut story = book.story.lock().unwrap();
    std::mem::take(&mut *story)
}

/// Pauses processes and cuts them off.
async fn storm(dice: &Dice, processes: &[Arc<Process>], book: &Book) {
    let over_at = Instant::now() + STORM;
    while Instant::now() < over_at {
        sleep(Duration::from_millis(200 + dice.below(1500))).await;
        let at = usize::try_from(dice.below(processes.len() as u64)).unwrap();
        let span = Duration::from_millis(dice.below(2500));
        match dice.below(3) {
            0 => {
                book.say(format!("process {at} is paused for {span:?}"));
                processes[at].pause_for(span);
            }
            1 => {
                book.say(format!("process {at} is cut off for {span:?}"));
                processes[at].cut_off_for(span);
            }
            _ => {}
        }
    }
}

/// Steps leaders down and deletes groups, now and then.
async fn administer(store: Arc<LeaseStore>, dice: Dice, book: Book) {
    loop {
        sleep(Duration::from_millis(1000 + dice.below(4000))).await;
        let number = usize::try_from(dice.below(GROUPS)).unwrap();
        let group = group(number);
        if dice.percent(80) {
            let (reason, to, request) = (Reason::new("drill").unwrap(), None, None);
            let step_down = StepDown { group, reason, to, immediate: false, request };
            let answer = store.step_down(step_down).await;
            book.say(format!("step-down in g{number}: {answer:?}"));
        } else {
            let answer = store.delete(&group, None).await;
            book.say(format!("deletion of g{number}: {answer:?}"));
        }
    }
}

/// Watches a group: what it is told comes in order, and terms never fall.
async fn watch(store: Arc<LeaseStore>, number: usize, book: Book) {
    let mut cursor = None;
    let mut last = (0, Term::NONE);
    loop {
        let Ok(mut watch) = store.watch(Scope::Group(group(number)), cursor).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        for _ in 0..20 {
            match watch.next().await {
                Some(WatchItem::Changed(event)) => {
                    let next = (event.revision.0, event.term);
                    if next.0 <= last.0 || next.1 < last.1 {
                        book.broke(format!("S5: g{number} told {next:?} after {last:?}"));
                    }
                    last = next;
                }
                Some(WatchItem::Gap { at, .. }) => last.0 = last.0.max(at.revision.0),
                None => return,
            }
        }
        cursor = Some(watch.cursor());
    }
}

/// When everybody is gone and the weather is calm, a newcomer leads in the end.
async fn succeed(store: &LeaseStore, number: usize, dice: &Dice, book: &Book) {
    let session = SessionId::new(u128::from(dice.roll()) << 64 | 1).unwrap();
    let node = Node::new("last").unwrap();
    let over_at = Instant::now() + CALM;
    while Instant::now() < over_at {
        let campaign = Campaign {
            group: group(number),
            node: node.clone(),
            session: CampaignSession::Own(session),
            ttl_ms: Some(TTL_MS),
            wait: Some(Duration::from_millis(300)),
            priority: 0,
            metadata: Metadata::NONE,
            request: None,
        };
        match store.campaign(campaign).await {
            Ok(answer) if answer.elected.is_some() => {
                let office = store.leader(&group(number), Consistency::Linearizable).await;
                let is_seen = office.as_ref().is_ok_and(|office| {
                    office.leader.as_ref() == Some(&node) && Some(office.term) == answer.elected
                });
                if !is_seen {
                    book.broke(format!("S6: g{number} was won, but shows {office:?}"));
                }
                return;
            }
            Ok(_) => {}
            Err(error) => {
                book.say(format!("the last campaign in g{number}: {error}"));
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    let office = store.group(&group(number)).await;
    book.broke(format!("L1: nobody could lead g{number} in calm weather: {office:?}"));
}
