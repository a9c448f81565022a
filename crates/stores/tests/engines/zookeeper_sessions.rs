//! `zookeeper://…?mode=session` on a real ZooKeeper: sessions that it times, and lines that wake one by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{
    Campaign, CampaignSession, Consistency, Heartbeat, OfficeState, Store,
};
use regent_election::{Group, Metadata, Node, SessionId};
use regent_stores::LeaseStore;
use regent_stores::register::{Key, Record, RegisterError};
use tokio::task::JoinHandle;

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, kill_and_restart, takes_nothing_back, unique};
use crate::zookeeper::{client, kill_the_leader};
use regent_servers::zookeeper::{own, ports, told, with_any_sessions};
use regent_servers::{or_skip, report, starting};

/// What these tests call the engine in this mode.
const NAME: &str = "zookeeper, sessions";

/// The URL of the same ZooKeeper that is to time sessions itself.
fn timed(url: &str) -> String {
    format!("{url}?mode=session")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_keeps_the_contract_of_registers_with_its_own_sessions() {
    let Some(server) = or_skip(NAME, starting(|| with_any_sessions(1))) else { return };
    keeps_the_contract(NAME, &server, true, || client(&timed(&server.url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_of_zookeeper_keeps_the_contract_of_registers_with_its_own_sessions() {
    // Of the ttls that it keeps by itself, and no others.
    let Some(server) = or_skip(NAME, starting(|| own(3))) else { return };
    keeps_the_contract(NAME, &server, true, || client(&timed(&server.url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_keeps_the_contract_of_stores_with_its_own_sessions() {
    let Some(server) = or_skip(NAME, starting(|| with_any_sessions(1))) else { return };
    keeps_elections(NAME, &server, || client(&timed(&server.url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_zookeeper_takes_nothing_back_with_its_own_sessions() {
    let Some(mut server) = or_skip(NAME, starting(|| own(1))) else { return };
    let url = timed(&server.url);
    takes_nothing_back(NAME, &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_the_leader_of_zookeeper_with_its_own_sessions() {
    let Some(mut server) = or_skip(NAME, starting(|| own(3))) else { return };
    let url = timed(&server.url);
    elects_through_kills(NAME, &mut server, || client(&url), kill_the_leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_zookeeper_may_be_cut_under_its_own_sessions() {
    let Some(mut server) = or_skip(NAME, starting(|| own(1))) else { return };
    bears_cuts(NAME, &mut server, |url| client(&timed(url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_zookeeper_does_not_keep_and_a_mode_that_others_do_not_share_are_refused() {
    let Some(server) = or_skip(NAME, starting(|| own(1))) else { return };
    let register = client(&timed(&server.url));
    let sessions = register.sessions().unwrap();
    // Two ticks of half a second to twenty of them.
    for ttl in [Duration::from_millis(999), Duration::from_millis(10_001)] {
        let session = unique();
        let refusal = sessions.begin(session, ttl).await.unwrap_err();
        assert!(
            matches!(&refusal, RegisterError::Unavailable { why }
                if why.contains("1000 to 10000 ms") && why.contains("mode=session")),
            "{refusal:?}"
        );
        assert!(!sessions.is_alive(session).await.unwrap());
    }
    let session = unique();
    assert!(sessions.begin(session, Duration::from_secs(2)).await.unwrap());
    assert!(sessions.heartbeat(session, Duration::from_secs(4)).await.unwrap());
    assert!(sessions.is_alive(session).await.unwrap());

    let watching = client(&server.url);
    let record = Record::bare(b"x".to_vec());
    let refusal = watching.swap(&Key::setting("any"), None, record).await.unwrap_err();
    assert!(
        matches!(&refusal, RegisterError::Unfit { why } if why.contains("mode=cas")),
        "{refusal:?}"
    );
    let refusal = watching.examine().await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unfit { .. }), "{refusal:?}");
}

/// Candidates of one group, each in a process of its own as far as ZooKeeper can tell.
const CANDIDATES: usize = 8;
/// Their ttl.
const TTL_MS: u64 = 3000;
/// How soon a successor must lead that was woken: well before anybody looks without being woken.
const WOKEN_WITHIN: Duration = Duration::from_millis(2500);

/// One who leads or stands, for as long as its task runs.
struct Candidate {
    store: Arc<dyn Store>,
    node: String,
    session: SessionId,
    task: JoinHandle<()>,
}

impl Candidate {
    /// Stands for a group and goes on doing so; the first one leads.
    async fn stand(url: &str, group: &Group, number: usize) -> Self {
        let store: Arc<dyn Store> = Arc::new(LeaseStore::new(client(url)));
        let (node, session) = (format!("node-{number}"), SessionId::new(unique()).unwrap());
        let campaign = |wait: Duration| Campaign {
            group: group.clone(),
            node: Node::new(&node).unwrap(),
            session: CampaignSession::Own(session),
            ttl_ms: Some(TTL_MS),
            wait: Some(wait),
            priority: 0,
            metadata: Metadata::NONE,
            request: None,
        };
        let asked = store.campaign(campaign(Duration::ZERO)).await.unwrap();
        assert!(asked.standing || asked.elected.is_some());
        let (turn, waiting) = (campaign(Duration::from_secs(60)), Arc::clone(&store));
        let task = tokio::spawn(async move {
            let heartbeats = async {
                loop {
                    let heartbeat =
                        Heartbeat { session, sequence: None, disowned: Vec::new(), beliefs: None };
                    waiting.heartbeat(heartbeat).await.expect("a session that is heard lives");
                    tokio::time::sleep(Duration::from_millis(TTL_MS / 4)).await;
                }
            };
            // Nothing but being woken ends this early.
            let turns = async {
                waiting.campaign(turn).await.expect("it still stands");
            };
            tokio::join!(heartbeats, turns);
        });
        Self { store, node, session, task }
    }

    /// Goes, without a word.
    async fn vanish(self) {
        self.task.abort();
        self.store.shut_down().await;
    }

    /// Waits until it leads; how long that took.
    async fn leads(&self, group: &Group, within: Duration) -> Duration {
        let since = std::time::Instant::now();
        loop {
            let office = self.store.leader(group, Consistency::Linearizable).await.unwrap();
            // Whoever leads has accepted, and so was woken; being promoted takes no part of its own.
            if office.state == OfficeState::Leading
                && office.leader.as_ref().is_some_and(|leader| leader.as_str() == self.node)
            {
                return since.elapsed();
            }
            assert!(since.elapsed() < within, "{} does not lead: {office:?}", self.node);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Everything that a server counts, by name.
fn counts(port: u16) -> BTreeMap<String, f64> {
    let told = told(port, "mntr").expect("the server is up");
    let count = |line: &str| {
        let (name, value) = line.split_once('\t')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    told.lines().filter_map(count).collect()
}

/// Waits until a server has the watches of a line in which so many stand behind the leader, each at its own node and at
/// the one before. A leader that was promoted may have left one at its own.
async fn until_watched(port: u16, standbys: usize) {
    let since = std::time::Instant::now();
    loop {
        let found = counts(port)["zk_watch_count"];
        if (2 * standbys..=2 * standbys + 1).any(|watches| watches.to_string() == found.to_string())
        {
            return;
        }
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "{found} watches of {standbys} who stand"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many watches were told of something while this was done.
async fn woken<T>(port: u16, doing: impl Future<Output = T>) -> (T, BTreeMap<&'static str, f64>) {
    let kinds = ["deleted", "changed", "children", "created"];
    let told = |kind: &str| counts(port)[&format!("zk_sum_node_{kind}_watch_count")];
    let before = kinds.map(told);
    let done = doing.await;
    let after = kinds.map(told);
    (
        done,
        kinds
            .into_iter()
            .zip(after.iter().zip(before).map(|(after, before)| after - before))
            .collect(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_candidate_wakes_the_one_behind_it_and_nobody_else() {
    let Some(server) = or_skip(NAME, starting(|| own(1))) else { return };
    let (url, port) = (timed(&server.url), ports(&server.url)[0]);
    let group = Group::new("herd").unwrap();
    let mut line = Vec::new();
    for number in 0..CANDIDATES {
        line.push(Candidate::stand(&url, &group, number).await);
    }
    until_watched(port, CANDIDATES - 1).await;

    // The leader dies: its node goes when ZooKeeper ends its session.
    let leader = line.remove(0);
    leader.vanish().await;
    let (took, told) = woken(port, async {
        line[0].leads(&group, Duration::from_millis(TTL_MS) + WOKEN_WITHIN).await
    })
    .await;
    assert_eq!(told["deleted"], 1.0, "{told:?}");
    // Its own node told the winner, if it still listened.
    assert!(told["changed"] <= 1.0 && told["children"] + told["created"] < 0.5, "{told:?}");
    until_watched(port, line.len() - 1).await;

    // One in the middle dies: one is told, and nobody leads who did not.
    let middle = line.remove(3);
    middle.vanish().await;
    let ((), told) = woken(port, async {
        tokio::time::sleep(Duration::from_millis(TTL_MS * 2)).await;
    })
    .await;
    assert_eq!(told["deleted"], 1.0, "{told:?}");
    assert!(told["changed"] + told["children"] + told["created"] < 0.5, "{told:?}");
    until_watched(port, line.len() - 1).await;

    // The leader resigns: the next one is told in the transaction that says so, and by nothing else.
    let resigned = line.remove(0);
    resigned.task.abort();
    let office = resigned.store.leader(&group, Consistency::Linearizable).await.unwrap();
    let term = office.term;
    let (soon, told) = woken(port, async {
        resigned.store.resign(&group, resigned.session, term, None).await.unwrap();
        line[0].leads(&group, WOKEN_WITHIN).await
    })
    .await;
    // Its own process listened at its node, too.
    assert!((1.0..=2.0).contains(&told["deleted"]), "{told:?}");
    // The winner is called at its node, and accepts. The process that resigned does not stand any more; it sees
    // to it that somebody accepts, and for that it may have watched the entry already.
    assert!(told["changed"] <= 2.0 && told["children"] + told["created"] < 0.5, "{told:?}");
    let note = format!(
        "of {CANDIDATES} candidates, the end of the first woke one, which led {:.1} s later (ttl {} s), and a \
         resignation one, which led {} ms later",
        took.as_secs_f64(),
        TTL_MS / 1000,
        soon.as_millis()
    );
    report(NAME, &server.version, 1, 0, &note);
    for candidate in line {
        candidate.vanish().await;
    }
}
