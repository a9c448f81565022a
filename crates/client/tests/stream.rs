//! A session over its gRPC stream, on real servers: it is used, it breaks, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent::Regent;
use regent::backend::{Backend, HttpBackend, ObservedLeaders, StreamBackend};
use regent::fresh;
use regent::remote::Address;
use regent_api::{AddMemberRequest, ClusterResponse, Code, Problem, ReplicaRole};
use regent_election::participant::{GroupRequest, Reply, Request, Verb};
use regent_election::store::{Campaign, CampaignSession, Heartbeat, Open, Scope, Store};
use regent_election::{Group, Metadata, Node, Revision, SessionId, Term};
use regent_server::{BackupFile, Cluster, Measured, ServerConfig, serve_cluster};
use regent_stores::MemoryStore;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Nothing here should take this long; it only keeps a broken test from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {PATIENCE:?}"),
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    patiently(what, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<()>>,
}

impl Server {
    async fn over(store: Arc<dyn Store>, cluster: Option<Arc<dyn Cluster>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let shutdown = async move {
                let _ = stopped.await;
            };
            let config = ServerConfig::default();
            serve_cluster(vec![listener], store, cluster, config, shutdown).await.unwrap();
        });
        Self { address, stop: Some(stop), served: Some(served) }
    }

    fn url(&self) -> Address {
        format!("http://{}", self.address).parse().unwrap()
    }

    /// Ends it as a crash would, without a word to anybody.
    fn kill(&mut self) {
        drop(self.stop.take());
        self.served.take().unwrap().abort();
    }
}

/// A participant's requests, made by hand.
struct Hand {
    office: Arc<StreamBackend>,
    node: Node,
    session: SessionId,
    sequence: u64,
}

impl Hand {
    fn new(addresses: &[Address]) -> Self {
        let office = StreamBackend::new(addresses, Duration::from_secs(5)).unwrap();
        let session = fresh::session_id().unwrap();
        Self { office: Arc::new(office), node: Node::new("a").unwrap(), session, sequence: 0 }
    }

    async fn open(&self) {
        let open = Open { node: self.node.clone(), ttl_ms: 60_000, session: self.session };
        let reply = self.office.perform(Request::Open(open)).await.unwrap();
        assert!(matches!(reply, Reply::Session(_)), "{reply:?}");
    }

    async fn streams(&self) -> Address {
        until("a stream", || self.office.stream_address().is_some()).await;
        self.office.stream_address().unwrap()
    }

    async fn heartbeat(&mut self) -> Result<Reply, regent_election::store::StoreError> {
        self.sequence += 1;
        let (session, sequence) = (self.session, Some(self.sequence));
        let heartbeat = Heartbeat { session, sequence, disowned: Vec::new(), beliefs: None };
        self.office.perform(Request::Heartbeat(heartbeat)).await
    }

    async fn campaign(&self, group: &Group) -> Reply {
        let campaign = Campaign {
            group: group.clone(),
            node: self.node.clone(),
            session: CampaignSession::Own(self.session),
            ttl_ms: None,
            wait: None,
            priority: 3,
            metadata: Metadata::new([("zone", "b")]).unwrap(),
            request: Some(fresh::request_id(Revision(0)).unwrap()),
        };
        self.office.perform(Request::Campaign(campaign)).await.unwrap()
    }

    async fn in_group(&self, group: &Group, verb: Verb) -> Reply {
        let (group, session) = (group.clone(), self.session);
        let request = fresh::request_id(Revision(0)).unwrap();
        let request = Request::Group(GroupRequest { group, session, request, verb });
        self.office.perform(request).await.unwrap()
    }
}

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

/// What a proxy lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lets {
    Everything,
    OnlyHttp1,
    OnlyHttp2,
}

/// A way to a server that lets pass what it is told to; what it lets pass no longer is cut.
async fn proxy(to: SocketAddr, lets: watch::Receiver<Lets>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut lets = lets.clone();
            tokio::spawn(async move {
                let mut first = [0; 3];
                let read = near.peek(&mut first).await;
                let is_cut = match &first {
                    b"PRI" => Lets::OnlyHttp1,
                    _ => Lets::OnlyHttp2,
                };
                if read.is_err() || *lets.borrow() == is_cut {
                    return;
                }
                let mut far = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = lets.wait_for(|lets| *lets == is_cut) => {}
                }
            });
        }
    });
    format!("http://{address}").parse().unwrap()
}

#[tokio::test]
async fn a_life_goes_over_the_stream_once_there_is_one() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let server = Server::over(Arc::clone(&store), None).await;
    let (lets, rule) = watch::channel(Lets::Everything);
    let proxy = proxy(server.address, rule).await;
    let mut hand = Hand::new(std::slice::from_ref(&proxy));
    hand.open().await;
    assert_eq!(hand.streams().await, proxy);
    // From here on, what is answered was asked over the stream.
    lets.send_replace(Lets::OnlyHttp2);
    let g = group("g");
    let Reply::Campaigned(won) = hand.campaign(&g).await else { panic!("no campaign") };
    let term = won.elected.unwrap();
    assert_eq!((term, won.session), (Term::new(1).unwrap(), Some(hand.session)));
    assert_eq!(won.office.metadata, Metadata::new([("zone", "b")]).unwrap());
    let heard = hand.heartbeat().await.unwrap();
    assert!(matches!(&heard, Reply::Heartbeat(heard) if heard.ttl_ms == 60_000), "{heard:?}");
    let Reply::Session(shown) = hand.office.perform(Request::List(hand.session)).await.unwrap()
    else {
        panic!("no list")
    };
    assert_eq!(shown.tenures[0].group, g);
    assert_eq!(hand.in_group(&g, Verb::Resign(term)).await, Reply::Done);
    let again = hand.campaign(&g).await;
    assert!(matches!(&again, Reply::Campaigned(won) if won.elected.is_some()), "{again:?}");
    lets.send_replace(Lets::Everything);
    let closed = hand.office.perform(Request::Close(hand.session)).await.unwrap();
    assert_eq!(closed, Reply::Done);
    assert_eq!(hand.office.stream_address(), None);
    assert_eq!(store.census().await.unwrap().sessions, 0);
}

/// The farewell to a session that was given up comes late, when the next one has its stream.
#[tokio::test]
async fn a_farewell_to_an_earlier_session_leaves_the_stream_of_the_present_one() {
    let server = Server::over(Arc::new(MemoryStore::new().unwrap()), None).await;
    let earlier = Hand::new(&[server.url()]);
    earlier.open().await;
    earlier.streams().await;
    let session = fresh::session_id().unwrap();
    let mut present =
        Hand { office: Arc::clone(&earlier.office), session, ..Hand::new(&[server.url()]) };
    present.open().await;
    present.streams().await;
    earlier.office.perform(Request::Close(earlier.session)).await.unwrap();
    assert_eq!(present.office.stream_address(), Some(server.url()));
    present.heartbeat().await.unwrap();
    present.office.perform(Request::Close(present.session)).await.unwrap();
    assert_eq!(present.office.stream_address(), None);
}

#[tokio::test]
async fn a_refusal_over_the_stream_is_the_one_that_http_gives() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let server = Server::over(Arc::clone(&store), None).await;
    let mut hand = Hand::new(&[server.url()]);
    hand.open().await;
    hand.sequence = 7;
    let over_http = {
        hand.heartbeat().await.unwrap();
        hand.sequence -= 1;
        hand.heartbeat().await.unwrap_err()
    };
    hand.streams().await;
    hand.sequence -= 1;
    let over_stream = hand.heartbeat().await.unwrap_err();
    assert_eq!(over_stream, over_http);
}

#[tokio::test]
async fn when_a_stream_breaks_requests_go_on_and_another_is_opened() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let mut first = Server::over(Arc::clone(&store), None).await;
    let second = Server::over(Arc::clone(&store), None).await;
    let mut hand = Hand::new(&[first.url(), second.url()]);
    hand.open().await;
    assert_eq!(hand.streams().await, first.url());
    hand.heartbeat().await.unwrap();
    first.kill();
    // One attempt may be lost with the stream; a participant has several.
    patiently("a heartbeat that is heard", async {
        while hand.heartbeat().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    until("a stream at the other", || hand.office.stream_address() == Some(second.url())).await;
    hand.heartbeat().await.unwrap();
}

#[tokio::test]
async fn sights_come_over_the_stream_and_go_on_when_it_breaks() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let mut first = Server::over(Arc::clone(&store), None).await;
    let second = Server::over(Arc::clone(&store), None).await;
    let hand = Hand::new(&[first.url(), second.url()]);
    hand.open().await;
    hand.streams().await;
    let (sights, mut seen) = ObservedLeaders::channel();
    let office = Arc::clone(&hand.office);
    let watching =
        tokio::spawn(async move { office.watch(Scope::Group(group("g")), sights).await });
    let nobody = patiently("a sight", seen.recv()).await.unwrap();
    assert_eq!(nobody.leader, None);
    let g = group("g");
    let Reply::Campaigned(won) = hand.campaign(&g).await else { panic!("no campaign") };
    let seen_leader = patiently("a sight", seen.recv()).await.unwrap();
    assert_eq!(seen_leader.leader, Some(hand.node.clone()));
    first.kill();
    store.resign(&g, hand.session, won.elected.unwrap(), None).await.unwrap();
    patiently("the last sight", async { while seen.recv().await.unwrap().leader.is_some() {} })
        .await;
    watching.abort();
}

/// A cluster whose log is led elsewhere.
#[derive(Debug)]
struct Follows(SocketAddr);

#[async_trait]
impl Cluster for Follows {
    async fn show(&self) -> ClusterResponse {
        ClusterResponse {
            cluster_id: "0".repeat(32),
            replica: 1,
            role: ReplicaRole::Follower,
            raft_term: 1,
            leader: Some(2),
            leader_address: Some(self.0.to_string()),
            leader_changes: 1,
            voters: 3,
            quorum: 2,
            voters_heard: Some(3),
            has_quorum: Some(true),
            failures_survived: 1,
            removed: false,
            grants_paused_for_ms: None,
            changing: false,
            last_index: 1,
            committed_index: 1,
            applied_index: 1,
            snapshot_index: 0,
            log_bytes: 0,
            snapshot_bytes: 0,
            members: Vec::new(),
            warnings: Vec::new(),
            tuning: None,
            auth: None,
            caller: None,
        }
    }

    fn confirmed_ago(&self) -> Duration {
        Duration::ZERO
    }

    fn measured(&self) -> Measured {
        Measured::default()
    }

    async fn add(&self, _: AddMemberRequest) -> Result<(), Problem> {
        Err(not_here())
    }

    async fn promote(&self, _: u64) -> Result<(), Problem> {
        Err(not_here())
    }

    async fn remove(&self, _: u64) -> Result<(), Problem> {
        Err(not_here())
    }

    async fn transfer(&self, _: Option<u64>) -> Result<(), Problem> {
        Err(not_here())
    }

    async fn backup(&self) -> Result<BackupFile, Problem> {
        Err(not_here())
    }
}

fn not_here() -> Problem {
    Problem::new(Code::OtherReplicaLeads, "another replica leads the log")
}

#[tokio::test]
async fn the_stream_moves_to_the_replica_that_leads_the_log() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let leader = Server::over(Arc::clone(&store), None).await;
    let follows: Arc<dyn Cluster> = Arc::new(Follows(leader.address));
    let follower = Server::over(Arc::clone(&store), Some(follows)).await;
    // The participant was told of the follower alone.
    let mut hand = Hand::new(&[follower.url()]);
    hand.open().await;
    until("a stream at the leader", || hand.office.stream_address() == Some(leader.url())).await;
    hand.heartbeat().await.unwrap();
}

/// Over HTTP, too: what is asked for next arrives at the leader, here told apart by its store.
#[tokio::test]
async fn over_http_the_replica_that_leads_the_log_is_preferred() {
    let near = MemoryStore::new().unwrap();
    let far: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let leader = Server::over(Arc::clone(&far), None).await;
    let follows: Arc<dyn Cluster> = Arc::new(Follows(leader.address));
    let follower = Server::over(Arc::new(near), Some(follows)).await;
    let office = HttpBackend::new(&[follower.url(), leader.url()], PATIENCE).unwrap();
    let node = Node::new("a").unwrap();
    patiently("a session at the leader", async {
        loop {
            let session = fresh::session_id().unwrap();
            let open = Open { session, node: node.clone(), ttl_ms: 60_000 };
            office.perform(Request::Open(open)).await.unwrap();
            if far.session(session).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn where_no_stream_passes_everything_goes_over_http() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let server = Server::over(Arc::clone(&store), None).await;
    let (_lets, rule) = watch::channel(Lets::OnlyHttp1);
    let mut hand = Hand::new(&[proxy(server.address, rule).await]);
    hand.open().await;
    for _ in 0..5 {
        hand.heartbeat().await.unwrap();
    }
    let won = hand.campaign(&group("g")).await;
    assert!(matches!(&won, Reply::Campaigned(won) if won.elected.is_some()), "{won:?}");
    assert_eq!(hand.office.stream_address(), None);
}

#[tokio::test]
async fn a_leadership_outlives_the_server_that_its_stream_was_at() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let mut first = Server::over(Arc::clone(&store), None).await;
    let second = Server::over(Arc::clone(&store), None).await;
    let url = format!("{},{}", first.url(), second.url());
    let regent = Regent::at(url).node("a").ttl(Duration::from_secs(5)).connect().await.unwrap();
    let leadership = patiently("an election", async { regent.campaign("g").await }).await.unwrap();
    first.kill();
    let before = leadership.valid_for();
    until("less validity", || leadership.valid_for() + Duration::from_millis(500) < before).await;
    let least = leadership.valid_for();
    until("more validity", || leadership.valid_for() > least).await;
    assert!(leadership.check().is_ok());
    leadership.resign().await.unwrap();
}
