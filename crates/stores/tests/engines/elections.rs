//! Whole elections on an engine: the contract of stores, and offices held while the server is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use regent_election::contract::{Abilities, CaseResult, Harness, cases};
use regent_election::store::{Campaign, CampaignSession, Heartbeat, Store};
use regent_election::timing::Drift;
use regent_election::{Group, Metadata, Moment, Node, SessionId, Term};
use regent_stores::LeaseStore;
use regent_stores::register::{Key, Register};

use crate::judge::unique;
use regent_servers::{Server, report};

/// Cases that run at once: their ttls are short, and a machine that is busy with all of them would be too
/// slow for any.
const CASES_AT_ONCE: usize = 4;

/// Keys that are looked at before anything is timed, so that every connection there may be is made.
const WARMED_UP_WITH: usize = 64;

/// The ttl of participants whose server is killed.
const TTL_MS: u64 = 2000;
/// Participants that want the same office.
const PARTICIPANTS: usize = 3;
/// Kills that they live through.
const KILLS: usize = 3;
/// Tenures between two of them.
const TENURES_BETWEEN_KILLS: usize = 3;

struct Lease {
    stores: [Arc<LeaseStore>; 2],
    is_servers: bool,
}

#[async_trait]
impl Harness for Lease {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.stores[0]) as Arc<dyn Store>
    }

    fn other(&self) -> Arc<dyn Store> {
        Arc::clone(&self.stores[1]) as Arc<dyn Store>
    }

    async fn sleep(&self, for_how_long: Duration) {
        tokio::time::sleep(for_how_long).await;
    }

    fn now(&self) -> Moment {
        regent_clock::now()
    }

    fn unique(&self) -> u128 {
        unique()
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            ids_span_groups: false,
            orders_across_groups: false,
            knows_silence: !self.is_servers,
            ..Abilities::default()
        }
    }
}

/// Holds the whole contract of stores against the lease on an engine.
pub(crate) async fn keeps_elections(
    store: &str,
    server: &Server,
    client: impl Fn() -> Arc<dyn Register>,
) {
    let is_servers = client().sessions().is_some();
    let mut stores = Vec::new();
    for _ in 0..2 {
        let register = client();
        warm_up(&*register).await;
        stores.push(Arc::new(LeaseStore::new(register)));
    }
    let stores = stores.try_into().expect("there are two");
    let harness = Arc::new(Lease { stores, is_servers });
    let seats = Arc::new(tokio::sync::Semaphore::new(CASES_AT_ONCE));
    let running: Vec<_> = cases()
        .into_iter()
        .map(|case| {
            let harness = Arc::clone(&harness) as Arc<dyn Harness>;
            let seats = Arc::clone(&seats);
            let run = async move {
                let _seat = seats.acquire().await.expect("nobody closes it");
                case.run(harness).await
            };
            (case.name, tokio::spawn(run))
        })
        .collect();
    let (mut held, mut skipped, mut broken) = (0, Vec::new(), Vec::new());
    for (name, verdict) in running {
        match verdict.await.expect("a case panicked") {
            CaseResult::Held => held += 1,
            CaseResult::Skipped(_) => skipped.push(name),
            CaseResult::Broken(why) => broken.push(format!("{name}: {why}")),
        }
    }
    for store in &harness.stores {
        store.shut_down().await;
    }
    let note = match broken.len() {
        0 => format!("election contract; skipped: {}", skipped.join(", ")),
        count => format!("election contract BROKEN in {count}"),
    };
    report(store, &server.version, held, skipped.len(), &note);
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    // Four cases need a store that knows who is silent, which one that times sessions itself does not tell.
    // Seven are about bindings, tokens and approvals of principals, which a register does not keep.
    let skipped_max = 7 + if is_servers { 5 } else { 3 };
    assert!(skipped.len() <= skipped_max, "{skipped:#?}");
}

/// Makes the connections that would otherwise be made while a short ttl is counted.
async fn warm_up(register: &dyn Register) {
    for _ in 0..WARMED_UP_WITH {
        register.load(&Key::session(unique())).await.expect("a fresh server answers");
        if let Some(sessions) = register.sessions() {
            let session = unique();
            sessions.begin(session, Duration::from_secs(60)).await.expect("a fresh server answers");
            sessions.end(session).await.expect("a fresh server answers");
        }
    }
}

/// One office as its holder saw it: it acted from its answer until it had to stop.
#[derive(Clone, Debug)]
struct Held {
    term: Term,
    #[allow(dead_code, reason = "printed when two acted at once")]
    node: usize,
    from: Moment,
    until: Moment,
}

type Tenures = Arc<Mutex<Vec<Held>>>;

fn valid_until(sent_at: Moment) -> Moment {
    let drift = Drift::default();
    sent_at + Duration::from_millis(drift.valid_for_ms(TTL_MS))
}

/// Wants the office, holds it for a while, and gives it up or falls silent, again and again.
async fn take_part(
    store: Arc<dyn Store>,
    group: Group,
    node: usize,
    is_over: Arc<AtomicBool>,
    tenures: Tenures,
) {
    let mut round = node;
    while !is_over.load(Ordering::Acquire) {
        round += 1;
        let session = SessionId::new(unique()).unwrap();
        let campaign = Campaign {
            group: group.clone(),
            node: Node::new(&format!("node-{node}")).unwrap(),
            session: CampaignSession::Own(session),
            ttl_ms: Some(TTL_MS),
            wait: Some(Duration::from_millis(TTL_MS / 3)),
            priority: 0,
            metadata: Metadata::NONE,
            request: None,
        };
        let elected = loop {
            let sent_at = regent_clock::now();
            match store.campaign(campaign.clone()).await {
                Ok(answer) => match answer.elected {
                    Some(term) => break Some((term, sent_at)),
                    None if is_over.load(Ordering::Acquire) => break None,
                    None => {}
                },
                Err(_) => break None,
            }
        };
        let Some((term, sent_at)) = elected else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let place = {
            let mut tenures = tenures.lock().unwrap();
            let (from, until) = (regent_clock::now(), valid_until(sent_at));
            tenures.push(Held { term, node, from, until: until.max(from) });
            tenures.len() - 1
        };
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(TTL_MS / 8)).await;
            let sent_at = regent_clock::now();
            if sent_at >= tenures.lock().unwrap()[place].until {
                break;
            }
            let heartbeat =
                Heartbeat { session, sequence: None, disowned: Vec::new(), beliefs: None };
            let Ok(_) = store.heartbeat(heartbeat).await else { continue };
            let (now, until) = (regent_clock::now(), valid_until(sent_at));
            let mut tenures = tenures.lock().unwrap();
            // What comes after the end revives nothing.
            if now < tenures[place].until {
                tenures[place].until = until.max(tenures[place].until);
            }
        }
        if !round.is_multiple_of(3) {
            // It stops first, then says so.
            {
                let mut tenures = tenures.lock().unwrap();
                let now = regent_clock::now();
                tenures[place].until = now.min(tenures[place].until);
            }
            let _ = store.resign(&group, session, term, None).await;
            let _ = store.close(session).await;
        }
    }
    store.shut_down().await;
}

/// Participants hold one office in turn while their server is killed: terms rise, and nobody acts while
/// another does.
pub(crate) async fn elects_through_kills(
    store: &str,
    server: &mut Server,
    client: impl Fn() -> Arc<dyn Register>,
    strike: impl FnMut(&mut Server),
) {
    elects_through("kill", store, server, client, strike).await;
}

/// The same through whatever blow this is called, be it to the server or to what leads there.
pub(crate) async fn elects_through(
    blow: &str,
    store: &str,
    server: &mut Server,
    client: impl Fn() -> Arc<dyn Register>,
    mut strike: impl FnMut(&mut Server),
) {
    let group = Group::new(&format!("elections/{:032x}", unique())).unwrap();
    let tenures = Tenures::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let participants: Vec<_> = (0..PARTICIPANTS)
        .map(|node| {
            let store: Arc<dyn Store> = Arc::new(LeaseStore::new(client()));
            let (group, is_over) = (group.clone(), Arc::clone(&is_over));
            tokio::spawn(take_part(store, group, node, is_over, Arc::clone(&tenures)))
        })
        .collect();
    let until_more = async |more: usize| {
        let goal = tenures.lock().unwrap().len() + more;
        while tenures.lock().unwrap().len() < goal {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut slowest = Duration::ZERO;
    for _ in 0..KILLS {
        until_more(TENURES_BETWEEN_KILLS).await;
        let killed_at = Instant::now();
        strike(server);
        until_more(1).await;
        slowest = slowest.max(killed_at.elapsed());
    }
    until_more(TENURES_BETWEEN_KILLS).await;
    is_over.store(true, Ordering::Release);
    for participant in participants {
        participant.await.expect("no participant panicked");
    }
    let mut tenures = tenures.lock().unwrap().clone();
    // In the order in which they began to act.
    tenures.sort_by_key(|held| held.from);
    for pair in tenures.windows(2) {
        assert!(pair[0].term < pair[1].term, "a term fell or came twice: {pair:#?}");
        assert!(pair[0].until <= pair[1].from, "two acted at once: {pair:#?}");
    }
    let note = format!(
        "elections through {KILLS} {blow}s: {} tenures, terms rose, no two at once; a leader again at most \
         {:.1} s after a {blow} (ttl {} s)",
        tenures.len(),
        slowest.as_secs_f64(),
        TTL_MS / 1000
    );
    report(store, &server.version, 1, 0, &note);
}
