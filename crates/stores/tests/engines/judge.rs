//! What every engine is judged by.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use regent_election::Group;
use regent_stores::register::contract::{CaseResult, Harness, cases};
use regent_stores::register::{Key, Record, Register, RegisterError, Swapped};
use regent_stores::time::{SystemTime, Time};

use regent_servers::{Server, report};

/// Clients that write at the same time while their server is killed.
const WRITERS: usize = 4;
/// Kills that it lives through.
const KILLS: usize = 3;
/// Writes between two of them.
const WRITES_BETWEEN_KILLS: usize = 60;

struct Hands {
    here: Arc<dyn Register>,
    there: Arc<dyn Register>,
    drift_ppm: u32,
}

#[async_trait]
impl Harness for Hands {
    fn register(&self) -> Arc<dyn Register> {
        Arc::clone(&self.here)
    }

    fn other(&self) -> Arc<dyn Register> {
        Arc::clone(&self.there)
    }

    fn time(&self) -> Arc<dyn Time> {
        SystemTime::shared()
    }

    fn unique(&self) -> u128 {
        unique()
    }

    fn drift_ppm(&self) -> u32 {
        self.drift_ppm
    }
}

pub(crate) fn unique() -> u128 {
    let half = || u128::from(getrandom::u64().expect("the system has random numbers"));
    half() << 64 | half()
}

/// Holds the contract of registers against a server, through two clients. `are_sessions_its_own` says
/// whether the engine claims to time sessions: what it claims must not be skipped.
pub(crate) async fn keeps_the_contract(
    store: &str,
    server: &Server,
    are_sessions_its_own: bool,
    client: impl Fn() -> Arc<dyn Register>,
) {
    // The wall clock of a server is slewed by its time daemon; our lease clock is not.
    let harness = Arc::new(Hands { here: client(), there: client(), drift_ppm: 10_000 });
    let warnings = harness.here.examine().await.expect("a fresh server can be examined");
    let running: Vec<_> = cases()
        .into_iter()
        .map(|case| {
            let harness = Arc::clone(&harness) as Arc<dyn Harness>;
            (case.name, tokio::spawn(async move { case.run(harness).await }))
        })
        .collect();
    let (mut held, mut skipped, mut broken) = (0, Vec::new(), Vec::new());
    for (name, verdict) in running {
        match verdict.await.expect("a case panicked") {
            CaseResult::Held => held += 1,
            CaseResult::Skipped(why) => skipped.push(format!("{name}: {why}")),
            CaseResult::Broken(why) => broken.push(format!("{name}: {why}")),
        }
    }
    harness.here.shut_down().await;
    harness.there.shut_down().await;
    let note = match (broken.len(), warnings.len()) {
        (0, 0) => "register contract".to_owned(),
        (0, _) => format!("register contract; warned: {}", warnings.join("; ")),
        (count, _) => format!("register contract BROKEN in {count}"),
    };
    report(store, &server.version, held, skipped.len(), &note);
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    assert!(!are_sessions_its_own || skipped.is_empty(), "{skipped:#?}");
}

/// What the writers of one run came to.
#[derive(Debug, Default)]
struct Tally {
    /// How often each number was acknowledged as written; more than once is two winners of one term.
    written: BTreeMap<u64, usize>,
    uncertain: usize,
    unavailable: usize,
}

/// Raises the number under a key for ever: the shape of a term.
async fn raise(register: Arc<dyn Register>, key: Key, is_over: Arc<AtomicBool>, tally: Shared) {
    let mut seen = 0;
    while !is_over.load(Ordering::Acquire) {
        let found = match register.load(&key).await {
            Ok(found) => found,
            Err(RegisterError::Unavailable { .. }) => {
                tally.lock().unwrap().unavailable += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            Err(error) => panic!("a read is never in doubt: {error:?}"),
        };
        let number = found.as_ref().map_or(0, |found| number(&found.value));
        assert!(number >= seen, "{number} was read after {seen}");
        seen = number + 1;
        let record = Record::bare(format!("{seen} {:032x}", unique()).into_bytes());
        match register.swap(&key, found.as_ref().map(|found| &found.version), record).await {
            Ok(Swapped::Done(_)) => *tally.lock().unwrap().written.entry(seen).or_default() += 1,
            Ok(Swapped::Conflict) => seen = number,
            Err(RegisterError::Uncertain { .. }) => {
                tally.lock().unwrap().uncertain += 1;
                seen = number;
            }
            Err(RegisterError::Unavailable { .. }) => {
                tally.lock().unwrap().unavailable += 1;
                seen = number;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error @ (RegisterError::Corrupt { .. } | RegisterError::Unfit { .. })) => {
                panic!("{error:?}")
            }
        }
    }
}

type Shared = Arc<std::sync::Mutex<Tally>>;

fn number(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("what was written is text");
    text.split(' ').next().unwrap().parse().expect("and opens with a number")
}

/// Until so many more numbers were written.
async fn until_written(tally: &Shared, more: usize) {
    let written = || tally.lock().unwrap().written.len();
    let goal = written() + more;
    while written() < goal {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Kills and restarts a server while clients write: nothing acknowledged is taken back, nothing is
/// acknowledged twice, and the clients find back by themselves. `strike` kills and restarts.
pub(crate) async fn takes_nothing_back(
    store: &str,
    server: &mut Server,
    client: impl Fn() -> Arc<dyn Register>,
    strike: impl FnMut(&mut Server),
) {
    takes_nothing_back_through("kill", store, server, client, strike).await;
}

/// The same through whatever blow this is called, be it to the server or to what leads there.
pub(crate) async fn takes_nothing_back_through(
    blow: &str,
    store: &str,
    server: &mut Server,
    client: impl Fn() -> Arc<dyn Register>,
    mut strike: impl FnMut(&mut Server),
) {
    let key = Key::group(&Group::new(&format!("kill/{:032x}", unique())).unwrap());
    let tally = Shared::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (key, is_over, tally) = (key.clone(), Arc::clone(&is_over), Arc::clone(&tally));
            tokio::spawn(raise(client(), key, is_over, tally))
        })
        .collect();
    let mut recoveries = Vec::new();
    for _ in 0..KILLS {
        until_written(&tally, WRITES_BETWEEN_KILLS).await;
        let killed_at = Instant::now();
        strike(server);
        until_written(&tally, 1).await;
        recoveries.push(killed_at.elapsed());
    }
    until_written(&tally, WRITES_BETWEEN_KILLS).await;
    is_over.store(true, Ordering::Release);
    for writer in writers {
        writer.await.expect("no writer saw a number fall");
    }
    let last = client().load(&key).await.unwrap().expect("the entry is there");
    let last = number(&last.value);
    let tally = tally.lock().unwrap();
    let twice: Vec<_> = tally.written.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "acknowledged to two writers: {twice:?}");
    let (&highest, _) = tally.written.last_key_value().unwrap();
    assert!(last >= highest, "{highest} was acknowledged, {last} is left");
    // Every number up to the last was written by somebody: acknowledged, or in doubt.
    let unaccounted = usize::try_from(last).unwrap() - tally.written.len();
    assert!(
        unaccounted <= tally.uncertain,
        "{unaccounted} numbers nobody was told of, but only {} doubts",
        tally.uncertain
    );
    let slowest = recoveries.iter().max().copied().unwrap_or_default();
    let note = format!(
        "{KILLS} {blow}s under load: {last} writes, {} in doubt, none taken back; writing again at most {:.1} s \
         after a {blow}",
        tally.uncertain,
        slowest.as_secs_f64()
    );
    report(store, &server.version, 1, 0, &note);
}

/// Kills the first process and starts it again.
pub(crate) fn kill_and_restart(server: &mut Server) {
    let process = &mut server.processes[0];
    process.kill();
    process.start_again().expect("a server that was killed starts again");
}
