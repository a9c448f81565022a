//! The share of the state that one principal may take, by two tokens: the greedy one gets `FULL`, the other does not notice.

use regent_api::{Code, UsageResponse};
use regent_election::StateBudget;
use regent_election::access::{Binding, Role};
use regent_server::ServerConfig;
use regent_stores::{MemoryOptions, MemoryStore};
use serde_json::{Value, json};

use crate::access::ask;
use crate::harness::access::{find, guarded_on};
use crate::support::{Server, secret};

const SHARE: u64 = 64 << 10;

async fn yes(server: &Server, method: &str, path: &str, body: Value, token: &str) -> Value {
    let answer = ask(server, method, path, body, token).await;
    assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

fn campaign(group: &str) -> String {
    format!("/v1/groups/mine%2F{group}/campaign")
}

#[tokio::test]
async fn a_greedy_principal_fills_its_share_and_nobody_elses() {
    let state_budget = StateBudget { bytes_max: 64 << 20, share_max: Some(SHARE) };
    let options = MemoryOptions { state_budget, ..MemoryOptions::default() };
    let config = ServerConfig::default();
    let server = guarded_on(MemoryStore::with(options).unwrap(), config).await;
    // Two may stand in mine/*. The operator, who makes policies, is a principal of its own.
    let mut bindings = server.store.access().await.unwrap().bindings().list().to_vec();
    bindings.push(Binding {
        who: "node:onlooker".parse().unwrap(),
        role: Role::Participant,
        groups: vec!["mine/*".parse().unwrap()],
        nodes: vec!["self".parse().unwrap()],
    });
    server.store.put_bindings(1, bindings).await.unwrap();
    let [participant, operator, administrator, modest] =
        ["participant", "operator", "administrator", "onlooker"].map(find);
    let body = |number: u128| {
        let told = json!({"k": "x".repeat(1000)});
        let (session_id, node_id) = (secret(number), "participant");
        json!({"session_id": session_id, "node_id": node_id, "ttl_ms": 600_000, "metadata": told})
    };
    let won = yes(&server, "POST", &campaign("first"), body(1), &participant).await;
    let mut taken = 0;
    let problem = loop {
        let path = campaign(&format!("g{taken}"));
        let answer = ask(&server, "POST", &path, body(1), &participant).await;
        if answer.status == 409 {
            break answer.problem(Code::Full);
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        taken += 1;
    };
    assert!((10..60).contains(&taken), "{taken}");
    for part in ["share of node:participant", "at most 65536", "state_percent_per_principal"] {
        assert!(problem.detail.contains(part), "{problem}");
    }
    // The operator fills a share of its own: policies in the groups of the other.
    let policy = |number: usize| {
        let allow: Vec<String> = (0..100).map(|at| format!("{at:0>90}{number}*")).collect();
        json!({"policy": {"allow": allow}})
    };
    let mut put = 0;
    loop {
        let path = format!("/v1/groups/mine%2Fp{put}");
        let answer = ask(&server, "PUT", &path, policy(put), &operator).await;
        if answer.status == 409 {
            let problem = answer.problem(Code::Full);
            assert!(problem.detail.contains("share of node:operator"), "{problem}");
            break;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        put += 1;
    }
    assert!(put > 1, "{put}");
    // The other one does not notice.
    let other = json!({"session_id": secret(7), "node_id": "onlooker", "ttl_ms": 600_000});
    yes(&server, "POST", "/v1/sessions/open", other.clone(), &modest).await;
    yes(&server, "POST", &campaign("g0"), other.clone(), &modest).await;
    let led = yes(&server, "POST", &campaign("other"), other, &modest).await;
    let renewal = json!({"session_id": secret(7), "term": led["term"]});
    yes(&server, "POST", "/v1/groups/mine%2Fother/renew", renewal, &modest).await;
    let usage: UsageResponse =
        ask(&server, "GET", "/v1/auth/usage", json!({}), &administrator).await.ok();
    assert_eq!((usage.bytes_max_each, usage.principals), (Some(SHARE), 3));
    let large = usage.largest.iter().filter(|it| it.bytes > SHARE / 2 && it.bytes <= SHARE);
    assert_eq!((large.count(), usage.largest[2].principal.as_str()), (2, "node:onlooker"));
    ask(&server, "GET", "/v1/auth/usage", json!({}), &operator).await.problem(Code::Forbidden);
    // The greedy one keeps what it has, and may give it up.
    let renewal = json!({"session_id": secret(1), "term": won["term"]});
    yes(&server, "POST", "/v1/groups/mine%2Ffirst/renew", renewal.clone(), &participant).await;
    let heartbeat = json!({"session_id": secret(1)});
    yes(&server, "POST", "/v1/sessions/heartbeat", heartbeat.clone(), &participant).await;
    let again = ask(&server, "POST", &campaign("one-more-group"), body(1), &participant).await;
    again.problem(Code::Full);
    yes(&server, "POST", "/v1/groups/mine%2Ffirst/resign", renewal, &participant).await;
    yes(&server, "DELETE", "/v1/groups/mine%2Fp0", json!({}), &operator).await;
    yes(&server, "PUT", "/v1/groups/mine%2Fagain", policy(9), &operator).await;
    // What it made others may delete: then it may again.
    yes(&server, "DELETE", "/v1/groups/mine%2Ffirst", json!({}), &administrator).await;
    yes(&server, "POST", &campaign("later"), body(1), &participant).await;
    yes(&server, "POST", "/v1/sessions/close", heartbeat, &participant).await;
    yes(&server, "POST", &campaign("once-more"), body(2), &participant).await;
}
