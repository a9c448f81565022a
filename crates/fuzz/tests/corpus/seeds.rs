//! What corpora begin with: real encodings, made by the code that writes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::id;

use prost::Message as _;
use raft::eraftpb::{Entry as LogEntry, HardState, Message, MessageType};
use regent_api::grpc as pb;
use regent_audit::{Act, Audit};
use regent_election::access::{BearerToken, TokenId};
use regent_election::codec::{Wire, encode_entry};
use regent_election::store::{Campaign, CampaignSession, Store};
use regent_election::{
    Command, Entry, Group, IfLost, Metadata, Node, Opening, SessionId, Settings, State, Term,
};
use regent_replica::backup::Backup;
use regent_replica::io::PeerMessage;
use regent_replica::member::{Member, Members, ReplicaId};
use regent_replica::raft_codec::{put_entry, put_hard_state};
use regent_replica::replicated::ReplicatedState;
use regent_signing::{KeyPair, PublicKeys, SigningAlgorithm, statement};
use regent_tls::authority::{self, Host, Subject};

type Seeds = Vec<(String, Vec<u8>)>;

/// The seeds of every target.
pub(crate) fn all() -> Vec<(&'static str, Seeds)> {
    let claims = r#"{"cluster":"c","group":"billing","node":"a","term":7,"session":"s","iat":1699999990,"exp":1700000100,"not_after":1700000100}"#;
    vec![
        ("api_body", bodies()),
        ("api_grpc", messages()),
        ("api_http", texts(&HTTP)),
        ("api_answer", texts(&ANSWERS)),
        ("names", texts(&NAMES)),
        ("store_url", texts(&URLS)),
        (
            "settings",
            texts(&[&regent_service::settings::SAMPLE[..4000], SETTINGS, BINDINGS, ISSUERS]),
        ),
        ("scenario", scenarios()),
        ("session_file", texts(&["0123456789abcdef0123456789abcdef", SESSION_FILE])),
        ("token", tokens()),
        ("signed_term", signed(claims)),
        ("certificate", certificates()),
        ("gateway", texts(&GATEWAY)),
        ("peer_link", numbered(vec![greeting(), peer_messages().swap_remove(0)])),
        ("peer_message", numbered(peer_messages())),
        ("datagram", numbered(datagrams())),
        ("log", numbered(logs())),
        ("entry", numbered(entries().iter().map(encode_entry).collect())),
        ("snapshot", numbered(vec![state().encode(), replicated().encode()])),
        ("backup", numbered(vec![backup().into_bytes(), replicated().encode()])),
        ("record", numbered(records())),
        ("zookeeper", numbered(zookeeper())),
        ("consul", texts(&CONSUL)),
        ("audit", numbered(vec![audit()])),
        ("recording", texts(&[RECORDING])),
    ]
}

fn numbered(seeds: Vec<Vec<u8>>) -> Seeds {
    seeds.into_iter().enumerate().map(|(at, bytes)| (format!("seed-{at:02}"), bytes)).collect()
}

fn texts(all: &[&str]) -> Seeds {
    numbered(all.iter().map(|text| text.as_bytes().to_vec()).collect())
}

/// Each behind the byte that chooses how it is read.
fn chosen(all: Vec<(u8, Vec<u8>)>) -> Seeds {
    numbered(all.into_iter().map(|(choice, bytes)| [vec![choice], bytes].concat()).collect())
}

fn group() -> Group {
    Group::new("billing").unwrap()
}

fn node() -> Node {
    Node::new("web-1").unwrap()
}

fn session() -> SessionId {
    SessionId::new(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef).unwrap()
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("regent-seeds-{name}-{}", id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bodies() -> Seeds {
    let secret = "0123456789abcdef0123456789abcdef";
    let tenure = format!(r#"{{"session_id":"{secret}","term":7,"request_id":"5-abc"}}"#);
    let all: Vec<(u8, String)> = vec![
        (0, format!(r#"{{"node_id":"web-1","session_id":"{secret}","ttl_ms":10000,"wait_ms":0,"priority":3,"metadata":{{"a":"b"}}}}"#)),
        (1, format!(r#"{{"session_id":"{secret}","term":7,"extend_by_ms":1000}}"#)),
        (2, tenure.clone()),
        (3, format!(r#"{{"session_id":"{secret}","term":7,"to":"web-2"}}"#)),
        (4, format!(r#"{{"session_id":"{secret}"}}"#)),
        (5, r#"{"reason":"maintenance","immediate":true}"#.to_owned()),
        (6, r#"{"step":"depart","to":"http://127.0.0.1:7400"}"#.to_owned()),
        (7, r#"{"term":7,"resource":"disk"}"#.to_owned()),
        (8, r#"{"policy":{"ttl_ms_min":1000,"allow":["web-*"],"priorities":[{"node":"a","priority":2}]}}"#.to_owned()),
        (9, format!(r#"{{"node_id":"web-1","session_id":"{secret}","ttl_ms":10000}}"#)),
        (10, format!(r#"{{"session_id":"{secret}","sequence":7,"disown":[{{"group":"a","term":3}}],"beliefs":{{"claims":[{{"group":"a","term":3}}]}}}}"#)),
        (13, r#"{"id":4,"peer_address":"10.0.0.4:7401","client_address":"10.0.0.4:7400","witness":true}"#.to_owned()),
        (17, r#"{"expected_version":0,"bindings":[{"who":"node:web-*","role":"participant","groups":["billing"],"nodes":["self"]}]}"#.to_owned()),
        (18, r#"{"principal":"node:web-1","label":"a","expires_in_ms":1000}"#.to_owned()),
        (19, r#"{"id":"0123456789abcdef"}"#.to_owned()),
        (20, "consistency=linearizable".to_owned()),
        (21, "cursor=5-1-0&wait_ms=1000".to_owned()),
        (22, "groups=a,b%2Fc&prefix=team%2F&cursor=5-1-0".to_owned()),
        (23, "prefix=a&after=b&count=10".to_owned()),
    ];
    chosen(all.into_iter().map(|(choice, text)| (choice, text.into_bytes())).collect())
}

fn messages() -> Seeds {
    let secret = || Some("0123456789abcdef0123456789abcdef".to_owned());
    let campaign = pb::CampaignRequest {
        group: "billing".to_owned(),
        node_id: "web-1".to_owned(),
        session_id: secret(),
        ttl_ms: Some(10_000),
        ..pb::CampaignRequest::default()
    };
    let renew = pb::RenewRequest { group: "billing".to_owned(), term: 7, ..Default::default() };
    let watch = pb::WatchManyRequest {
        groups: vec!["a".to_owned(), "b/c".to_owned()],
        cursor: Some("5-1-0".to_owned()),
        ..Default::default()
    };
    let down =
        pb::StepDownRequest { group: "a".to_owned(), reason: "b".to_owned(), ..Default::default() };
    let policy = pb::Policy { allow: vec!["web-*".to_owned()], ..Default::default() };
    let put =
        pb::PutGroupRequest { group: "a".to_owned(), policy: Some(policy), ..Default::default() };
    chosen(vec![
        (0, campaign.encode_to_vec()),
        (1, renew.encode_to_vec()),
        (10, watch.encode_to_vec()),
        (11, down.encode_to_vec()),
        (17, put.encode_to_vec()),
    ])
}

fn scenarios() -> Seeds {
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/scenarios").join(name);
        fs::read(path).unwrap()
    };
    numbered(
        ["calm.scenario", "cascade.scenario", "witness.scenario", "lossy.scenario"]
            .map(read)
            .into(),
    )
}

fn pair() -> KeyPair {
    let seed = vec![7; SigningAlgorithm::EdDsa.seed_bytes()];
    KeyPair::from_seed(SigningAlgorithm::EdDsa, &seed).unwrap()
}

fn tokens() -> Seeds {
    let token = BearerToken::new("0123456789abcdef".parse::<TokenId>().unwrap(), [9; 32]).reveal();
    let claims = serde_json::json!({
        "iss": "https://example.org", "aud": ["regent"], "sub": "web-1", "exp": 1_700_000_100, "nbf": 1
    });
    let pair = pair();
    let jwt = statement::sign("JWT", &claims, &pair.public().id(), &pair).unwrap();
    let keys = PublicKeys::new([pair.public().clone()]).to_jwks();
    let keys = serde_json::to_string(&keys).unwrap();
    texts(&[&token, &format!("{keys}\n{jwt}"), &keys, &claims.to_string()])
}

fn signed(claims: &str) -> Seeds {
    let pair = pair();
    let value: serde_json::Value = serde_json::from_str(claims).unwrap();
    let term = statement::sign("regent-term+jwt", &value, &pair.public().id(), &pair).unwrap();
    let keys = PublicKeys::new([pair.public().clone()]).to_jwks();
    let checkpoint = r#"{"chain":"c","seq":3,"hash":"00","at_ms":5}"#;
    texts(&[claims, &term, &serde_json::to_string(&keys).unwrap(), checkpoint])
}

fn certificates() -> Seeds {
    let folder = Folder::new("ca");
    let ca = folder.path().join("ca");
    let now_s = 1_700_000_000;
    authority::init(&ca, 3650, now_s).unwrap();
    let hosts: Vec<Host> = vec!["localhost".parse().unwrap(), "127.0.0.1".parse().unwrap()];
    let replica = regent_tls::ReplicaName { cluster: 0xab, replica: 1 };
    let mut seeds = Vec::new();
    for subject in [
        Subject::Server(hosts),
        Subject::Node { cluster: 0xab, name: node() },
        Subject::Replica(replica),
    ] {
        let made = authority::issue(&ca, &subject, 365, now_s).unwrap();
        let pem = fs::read_to_string(&made.certificate).unwrap();
        seeds.push(der(&pem));
        seeds.push(pem.into_bytes());
    }
    authority::revoke(&ca, &authority::Owner::Node(node()), now_s).unwrap();
    seeds.push(fs::read(ca.join("ca.crl")).unwrap());
    numbered(seeds)
}

/// The bytes that the base64 of a PEM file stands for.
fn der(pem: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let lines = pem.lines().filter(|line| !line.starts_with('-'));
    let (mut bits, mut count, mut out) = (0_u32, 0, Vec::new());
    for digit in lines.flat_map(str::bytes).filter_map(|c| digits.iter().position(|d| *d == c)) {
        bits = bits << 6 | u32::try_from(digit).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

fn greeting() -> Vec<u8> {
    let numbers = [1_u64, 2, 77].map(u64::to_le_bytes).concat();
    // The target sets the checksum right.
    [&b"RGNTPEER"[..], &[3, 1], &7_u128.to_le_bytes(), &numbers, &[0; 4]].concat()
}

fn peer_messages() -> Vec<Vec<u8>> {
    let mut append = Message::default();
    append.set_msg_type(MessageType::MsgAppend);
    (append.from, append.to, append.term) = (2, 1, 5);
    (append.index, append.log_term, append.commit) = (10, 5, 5);
    let mut entry = LogEntry::default();
    (entry.term, entry.index) = (5, 11);
    append.entries.push(entry);
    let mut vote = Message::default();
    vote.set_msg_type(MessageType::MsgRequestVote);
    (vote.from, vote.to, vote.term, vote.index, vote.log_term) = (2, 1, 6, 10, 5);
    let command = campaign();
    let all = [
        PeerMessage::Raft(Box::new(append)),
        PeerMessage::Raft(Box::new(vote)),
        PeerMessage::Propose { boot: 1, number: 2, command, request: None },
        PeerMessage::Look { boot: 1, number: 2, group: group() },
        PeerMessage::Removed { members: replicated().members },
    ];
    let put = |message: &PeerMessage| {
        let mut out = Vec::new();
        message.put(&mut out);
        out
    };
    all.iter().map(put).collect()
}

fn datagrams() -> Vec<Vec<u8>> {
    let head = |algorithm: u8, kind: u8, body: &[u8]| {
        let life = [&1_u32.to_be_bytes()[..], &9_u64.to_be_bytes()].concat();
        let start = [b"rgpr", &[1, algorithm, 2, kind][..]].concat();
        [&start[..], &7_u64.to_be_bytes(), &life, body].concat()
    };
    let numbers = [3_u64, 4].map(u64::to_be_bytes).concat();
    let mut all = Vec::new();
    for algorithm in 0..4 {
        all.push(head(algorithm, 0, &[]));
        all.push(head(algorithm, 16, &[]));
        all.push(head(algorithm, 32, &[&numbers[..], &[2, 0, 1]].concat()));
        all.push(head(algorithm, 48, &[&numbers[..], &[1]].concat()));
    }
    all
}

fn campaign() -> Command {
    Command::Campaign {
        group: group(),
        session: session(),
        opening: Some(Opening { node: node(), ttl_ms: Some(10_000), passing: false }),
        if_lost: IfLost::Stand,
        priority: 3,
        metadata: Metadata::new([("a", "b")]).unwrap(),
    }
}

fn entries() -> Vec<Entry> {
    vec![
        Entry::bare(campaign()),
        Entry::bare(Command::Withdraw { group: group(), session: session() }),
        Entry::bare(Command::PutSettings { settings: Box::new(Settings::default()) }),
        Entry {
            request: Some("5-abc".parse().unwrap()),
            wall_ms: 1_700_000_000_000,
            ..Entry::bare(campaign())
        },
    ]
}

fn state() -> State {
    let mut state = State::new(Settings::default());
    for entry in entries() {
        state.apply(entry);
    }
    state
}

fn replicated() -> ReplicatedState {
    let member = |number: u64| Member {
        peer_address: format!("10.0.0.{number}:7401"),
        client_address: format!("10.0.0.{number}:7400"),
        is_witness: number == 2,
    };
    let members: Members =
        (1..=2).map(|number| (ReplicaId::new(number).unwrap(), member(number))).collect();
    ReplicatedState::restored(state(), members)
}

fn backup() -> Backup {
    Backup::of(7, 9, 11, replicated())
}

/// Records of a log as the target reads them: kind, length, payload.
fn logs() -> Vec<Vec<u8>> {
    let mut batch = Vec::new();
    None::<(u64, u64)>.put(&mut batch);
    true.put(&mut batch);
    let mut hard_state = HardState::default();
    (hard_state.term, hard_state.vote, hard_state.commit) = (5, 1, 1);
    put_hard_state(&hard_state, &mut batch);
    2_u64.put(&mut batch);
    for index in 1..=2 {
        let mut entry = LogEntry::default();
        (entry.term, entry.index) = (5, index);
        put_entry(&entry, &mut batch);
    }
    let record = |kind: u8, payload: &[u8]| {
        let length = u16::try_from(payload.len()).unwrap().to_le_bytes();
        [&[kind][..], &length, payload].concat()
    };
    vec![[record(1, &1_u64.to_le_bytes()), record(2, &batch)].concat(), record(2, &batch)]
}

/// What the store `file:` keeps after an election: the files, and the records in them.
fn records() -> Vec<Vec<u8>> {
    let folder = Folder::new("store");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("file:{}", folder.path().join("store").display());
        let store = regent_stores::open_url(&url).unwrap();
        let campaign = Campaign {
            group: group(),
            node: node(),
            session: CampaignSession::Own(session()),
            ttl_ms: Some(10_000),
            wait: None,
            priority: 0,
            metadata: Metadata::default(),
            request: None,
        };
        let won = <dyn Store>::campaign(&*store, campaign).await.unwrap();
        assert_eq!(won.elected, Term::new(1));
    });
    let mut seeds = Vec::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(path).unwrap();
            let head_end = bytes.windows(2).position(|pair| pair == b"\n\n");
            if let Some(at) = head_end {
                seeds.push(bytes[at + 2..].to_vec());
                seeds.push(bytes);
            }
        }
    }
    seeds.sort();
    assert!(seeds.len() >= 4, "a group and a session");
    seeds
}

fn zookeeper() -> Vec<Vec<u8>> {
    let int = |number: i32| number.to_be_bytes().to_vec();
    let long = |number: i64| number.to_be_bytes().to_vec();
    let answer = [int(7), long(9), int(0)].concat();
    let stat = [
        long(1),
        long(2),
        long(3),
        long(4),
        int(5),
        int(0),
        int(0),
        long(0),
        int(0),
        int(0),
        long(9),
    ];
    vec![
        [int(0), int(4000), long(77), int(16), vec![3; 16], vec![0]].concat(),
        [answer.clone(), int(3), b"abc".to_vec(), stat.concat()].concat(),
        [answer.clone(), int(2), int(1), b"a".to_vec(), int(1), b"b".to_vec()].concat(),
        [answer, int(13), vec![0], int(0), int(-1), vec![1], int(-1)].concat(),
    ]
}

/// The audit log of a short life.
fn audit() -> Vec<u8> {
    let folder = Folder::new("audit");
    let directory = folder.path().join("audit");
    let act = Act {
        who: Some("node:web-1".to_owned()),
        from: "127.0.0.1:1".to_owned(),
        verb: "campaign".to_owned(),
        right: Some("stand".to_owned()),
        group: Some("billing".to_owned()),
        revision: Some(3),
        code: "OK".to_owned(),
        ..Act::default()
    };
    let log = Audit::start(&directory, 1 << 20, "seeds", None).unwrap();
    log.changed(act.clone());
    log.denied(Act { code: "FORBIDDEN".to_owned(), ..act });
    drop(log);
    let mut files: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|it| it.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    fs::read(&files[0]).unwrap()
}

const HTTP: [&str; 6] = [
    "GET /v1/groups/billing/leader?consistency=linearizable HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "POST /v1/groups/team%2Fbilling/campaign HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 32\r\n\r\n{\"node_id\":\"web-1\",\"wait_ms\":0}\n",
    "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n13\r\n{\"node_id\":\"web-1\"}\r\n0\r\n\r\n",
    "GET /v1/groups?prefix=a&count=10 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer rgt_a_b_c\r\norigin: http://localhost\r\n\r\n",
    "PUT /v1/groups/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 35\r\n\r\n{\"policy\":{\"standbys_max\":3}}      \n",
    "HEAD /metrics HTTP/1.1\r\nhost: localhost\r\n\r\nGET /openapi.json HTTP/1.0\r\n\r\n",
];

const ANSWERS: [&str; 3] = [
    "\u{feff}: hello\r\n\r\nid: 5-1-0\nevent: BOOKMARK\ndata: {\"cursor\":\"5-1-0\"}\n\nevent:X\rdata:one\rdata: two\r\r",
    "{\"type\":\"about:blank\",\"title\":\"stale\",\"status\":409,\"code\":\"STALE_TERM\",\"detail\":\"x\",\"given_term\":3,\"current_term\":5}",
    "event: LEADER_CHANGED\ndata: {\"group\":\"a\",\"term\":3,\"leader\":null,\"cause\":\"expired\",\"revision\":5,\"cursor\":\"5-1-0\",\"metadata\":{}}\n\n",
];

const NAMES: [&str; 16] = [
    "billing",
    "team/billing:eu.1@x",
    "node:web-1",
    "user:alice",
    "node:spiffe:example.org/web",
    "web-*",
    "self",
    "administrator",
    "5-1-0",
    "5-abc",
    "0123456789abcdef0123456789abcdef",
    "http://127.0.0.1:7400/regent",
    "unix:///run/regent.sock",
    "1=10.0.0.1:7401/10.0.0.1:7400,2=b:7401/b:7400",
    "regent://000000000000000000000000000000ab/replica/7",
    "a=127.0.0.1:7501",
];

const URLS: [&str; 5] = [
    "etcd://user:p%40ss@h1:2379,h2,[::1]:7/root?tls=true&ca=%2Fca.crt",
    "zookeeper://h1,h2/some/where?mode=session",
    "redis://127.0.0.1/0",
    "consul://h?dc=a&mode=cas",
    "a=2Fb=3D",
];

const SETTINGS: &str = "listen = \"127.0.0.1:7400\"\nrequests_max = 10\nidle_timeout = \"5s\"\nhosts_allowed = [\"a\"]\ninsecure = true\n";
const BINDINGS: &str = "[[binding]]\nwho = \"node:web-*\"\nrole = \"participant\"\ngroups = [\"billing\", \"orders/*\"]\nnodes = [\"self\"]\n";
const ISSUERS: &str = "[[issuer]]\nissuer = \"https://example.org\"\naudience = [\"regent\"]\nkeys = \"keys.json\"\nprincipal = \"node\"\nleeway = \"30s\"\nalgorithms = [\"RS256\"]\n";
const SESSION_FILE: &str =
    "{\"session_id\":\"0123456789abcdef0123456789abcdef\",\"terms\":{\"billing\":7}}\n";

const GATEWAY: [&str; 3] = [
    "PUT /row?a=b HTTP/1.1\nhost: a\nregent-term: 7\ncontent-length: 3\nconnection: close, x-a\nx-a: b",
    "GET /row?_method=put\nhost: a\nx-http-method-override: PUT\nte: trailers",
    "regent fence mark, version 1\ngroup billing\nterm 7\nended quiet\n",
];

const CONSUL: [&str; 4] = [
    r#"{"Results":[{"KV":{"Key":"regent/groups/a","Value":"YWJj","Session":"s","ModifyIndex":7}}],"Errors":null}"#,
    r#"{"Results":null,"Errors":[{"OpIndex":0,"What":"index is stale"}]}"#,
    r#"[{"Key":"regent/groups/a","Value":null,"ModifyIndex":7}]"#,
    r#"[{"ID":"a","TTL":"10000ms"}]"#,
];

const RECORDING: &str = r#"{"ev":"begin","at_ms":1,"format":1,"cluster":"00000000000000000000000000000007","replica":1,"version":"0.1.0"}
{"ev":"raft","at_ms":1,"leader":1,"raft_term":2,"voters":[1,2,3]}
{"ev":"deed","at_ms":1,"rev":1,"deed":"open","session":1,"node":"a","ttl_ms":1000}
{"ev":"deed","at_ms":2,"rev":2,"deed":"campaign","group":"g","session":1,"node":"a","ttl_ms":1000}
{"ev":"change","at_ms":2,"rev":2,"group":"g","term":1,"leader":"a","cause":"elected"}
{"ev":"gap","at_ms":5,"to":9,"why":"queue"}
{"ev":"end","at_ms":6,"rev":9}
"#;
