//! Who may do what over HTTP: every role, every route, compared with a reference (S11).

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use regent_api::{Code, Gate, Operation, ROUTES};
use regent_election::store::{Consistency, Store};
use regent_server::{Auth, Listener, ServerConfig, serve};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::harness::access::{EVERYBODY, Reach, find, guarded, lets_in, token_of};
use crate::support::{Answer, Server, exact, example, patiently, request, secret};

fn shown(
    method: &str,
    path: &str,
    body: Option<Value>,
    token: Option<&str>,
) -> Request<Full<Bytes>> {
    let mut request = request(method, path, body.map(|body| body.to_string()));
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", value);
    }
    request
}

pub(crate) async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    body: Value,
    token: &str,
) -> Answer {
    let body = Some(body).filter(|_| method != "GET" && method != "DELETE");
    server.send(shown(method, path, body, Some(token))).await
}

/// What the door said, whatever came after it: the code of a refusal for want of a credential or a right.
async fn refusal(server: &Server, request: Request<Full<Bytes>>) -> Option<Code> {
    let (_, response) = server.begin(request).await;
    if !matches!(response.status().as_u16(), 401 | 403) {
        return None;
    }
    use http_body_util::BodyExt as _;
    let body = patiently("a problem", response.into_body().collect()).await.unwrap().to_bytes();
    Some(exact::<regent_api::Problem>(&body).code)
}

#[tokio::test]
async fn every_role_gets_past_the_door_of_exactly_its_routes() {
    let server = guarded().await;
    for route in ROUTES {
        for group in ["mine/a", "other/a"] {
            let (method, path, body) = example(route.operation, &group.replace('/', "%2F"));
            let names_group = route.path.contains("{group}");
            let reach = if names_group { Reach::Group(group) } else { Reach::Some };
            let ask = |token: Option<String>| {
                let request = shown(method.word(), &path, body.clone(), token.as_deref());
                refusal(&server, request)
            };
            let is_open = route.gate == Gate::Open;
            for token in [None, Some("rgt_nonsense".to_owned()), Some(token_of(99).reveal())] {
                let expected = (!is_open).then_some(Code::Unauthenticated);
                assert_eq!(ask(token.clone()).await, expected, "{} {token:?}", route.id);
            }
            for (number, someone) in EVERYBODY.iter().enumerate() {
                let code = ask(Some(token_of(number).reveal())).await;
                let expected = (!lets_in(*someone, route, reach)).then_some(Code::Forbidden);
                assert_eq!(code, expected, "{} asks {} in {reach:?}", someone.name, route.id);
            }
        }
    }
}

#[tokio::test]
async fn a_denial_names_the_right_and_the_nearest_binding_and_changes_nothing() {
    let server = guarded().await;
    let (observer, participant) = (find("observer"), find("participant"));
    let body = json!({"node_id": "observer"});
    let path = "/v1/groups/mine%2Fa/campaign";
    let problem = ask(&server, "POST", path, body, &observer).await.problem(Code::Forbidden);
    assert_eq!(problem.facts.right.as_deref(), Some("stand"));
    assert!(
        problem.detail.contains("binding 1 (node:observer is observer in mine/*)"),
        "{problem}"
    );
    for (group, node, why) in [
        ("other%2Fa", "participant", "gives it in other groups"),
        ("mine%2Fa", "somebody", "allows other nodes: self"),
    ] {
        let path = format!("/v1/groups/{group}/campaign");
        let answer = ask(&server, "POST", &path, json!({"node_id": node}), &participant).await;
        let problem = answer.problem(Code::Forbidden);
        assert!(problem.detail.contains(why), "{problem}");
    }
    let page = server.store.groups("", None, 10).await.unwrap();
    assert!(page.groups.is_empty(), "{page:?}");
    assert_eq!(server.store.census().await.unwrap().sessions, 0);
    let unknown = server.get("/v1/groups").await;
    assert_eq!(unknown.header("www-authenticate"), "Bearer realm=\"regent\"");
}

#[tokio::test]
async fn lists_show_only_what_may_be_observed() {
    let server = guarded().await;
    for group in ["mine/a", "mine/b", "other/a", "zzz"] {
        server.store.put_policy(&group.parse().unwrap(), None, None).await.unwrap();
    }
    let seen = |token: String| {
        let server = &server;
        async move {
            let listed: regent_api::GroupsResponse =
                ask(server, "GET", "/v1/groups?count=1", Value::Null, &token).await.ok();
            let next = listed.next.map(|next| next.to_string());
            let all: regent_api::GroupsResponse =
                ask(server, "GET", "/v1/groups", Value::Null, &token).await.ok();
            let names: Vec<_> = all.groups.iter().map(|office| office.group.to_string()).collect();
            (next, names)
        }
    };
    let mine = ["mine/a", "mine/b"].map(str::to_owned).to_vec();
    assert_eq!(seen(find("observer")).await, (Some("mine/a".to_owned()), mine));
    assert_eq!(seen(find("onlooker")).await.1.len(), 4);
}

#[tokio::test]
async fn a_leaked_session_is_worthless_and_a_revoked_token_only_gives_up() {
    let server = guarded().await;
    let (participant, id) = (find("participant"), secret(7));
    let at = |verb: &str| format!("/v1/groups/mine%2Fa/{verb}");
    let bid = json!({"node_id": "participant", "session_id": id});
    let won: regent_api::CampaignResponse =
        ask(&server, "POST", &at("campaign"), bid.clone(), &participant).await.ok();
    let held = json!({"session_id": id, "term": won.office.term.get()});
    // An administrator is somebody else, too.
    let other = find("administrator");
    let resign = ask(&server, "POST", &at("resign"), held.clone(), &other).await;
    resign.problem(Code::SessionOfAnother);
    let session = json!({"session_id": id});
    let close = ask(&server, "POST", "/v1/sessions/close", session.clone(), &other).await;
    close.problem(Code::SessionOfAnother);
    let beat = ask(&server, "POST", "/v1/sessions/heartbeat", session.clone(), &participant).await;
    beat.ok::<regent_api::HeartbeatResponse>();

    let number = EVERYBODY.iter().position(|it| it.name == "participant").unwrap();
    let revoke = json!({"id": token_of(number).id.to_string()});
    let path = Operation::RevokeAuthToken.route().path;
    ask(&server, "POST", path, revoke, &other).await.ok::<regent_api::Done>();
    let renew = ask(&server, "POST", &at("renew"), held.clone(), &participant).await;
    renew.problem(Code::CredentialOver);
    for (path, body) in [
        ("/v1/sessions/heartbeat".to_owned(), session),
        (at("campaign"), bid),
        ("/v1/sessions/open".to_owned(), json!({"node_id": "participant"})),
    ] {
        ask(&server, "POST", &path, body, &participant).await.problem(Code::CredentialOver);
    }
    let resign = ask(&server, "POST", &at("resign"), held, &participant).await;
    resign.ok::<regent_api::Done>();
    let office = server.store.leader(&"mine/a".parse().unwrap(), Consistency::Linearizable).await;
    assert_eq!(office.unwrap().leader, None);
}

/// One connection on which requests follow each other.
struct KeptConnection(hyper::client::conn::http1::SendRequest<Full<Bytes>>);

impl KeptConnection {
    async fn to(server: &Server) -> Self {
        let stream = hyper_util::rt::TokioIo::new(server.connect().await);
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn status(&mut self, request: Request<Full<Bytes>>) -> (u16, String) {
        use http_body_util::BodyExt as _;
        let response = patiently("an answer", self.0.send_request(request)).await.unwrap();
        let status = response.status().as_u16();
        let body = patiently("a body", response.into_body().collect()).await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

/// A server remembers on a connection who its peer is. It must not remember it beyond the table that it was found in.
#[tokio::test]
async fn a_connection_that_was_served_before_is_judged_by_every_change_at_once() {
    let server = guarded().await;
    let (participant, id) = (find("participant"), secret(7));
    let bid = json!({"node_id": "participant", "session_id": id});
    let won: regent_api::CampaignResponse =
        ask(&server, "POST", "/v1/groups/mine%2Fa/campaign", bid, &participant).await.ok();
    let held = json!({"session_id": id, "term": won.office.term.get()});
    let renew =
        |token: &str| shown("POST", "/v1/groups/mine%2Fa/renew", Some(held.clone()), Some(token));
    let read = |token: Option<&str>| shown("GET", "/v1/groups/mine%2Fa/leader", None, token);
    let mut kept = KeptConnection::to(&server).await;
    for _ in 0..3 {
        assert_eq!(kept.status(renew(&participant)).await.0, 200);
        assert_eq!(kept.status(read(Some(&participant))).await.0, 200);
    }
    // What it was served for before helps nobody who shows something else, or nothing.
    assert_eq!(kept.status(read(None)).await.0, 401);
    assert_eq!(kept.status(read(Some(&participant[..participant.len() - 1]))).await.0, 401);
    let stranger = kept.status(read(Some(&find("stranger")))).await;
    assert_eq!(stranger.0, 403, "{}", stranger.1);
    let other = kept.status(renew(&find("administrator"))).await;
    assert!(other.0 == 403 && !other.1.contains("CREDENTIAL"), "{other:?}");
    assert_eq!(kept.status(renew(&participant)).await.0, 200);

    let bindings = server.store.access().await.unwrap().bindings().list().to_vec();
    let without: Vec<_> =
        bindings.iter().filter(|it| it.who.as_str() != "node:participant").cloned().collect();
    server.store.put_bindings(1, without).await.unwrap();
    let denied = kept.status(renew(&participant)).await;
    assert!(denied.0 == 403 && denied.1.contains("no binding names it"), "{denied:?}");
    assert_eq!(kept.status(read(Some(&participant))).await.0, 403);

    server.store.put_bindings(2, bindings).await.unwrap();
    assert_eq!(kept.status(read(Some(&participant))).await.0, 200);
    let number = EVERYBODY.iter().position(|it| it.name == "participant").unwrap();
    server.store.revoke_token(token_of(number).id).await.unwrap();
    for request in [renew(&participant), read(Some(&participant))] {
        let over = kept.status(request).await;
        assert!(over.0 == 401 && over.1.contains("CREDENTIAL_OVER"), "{over:?}");
    }
    let resign =
        shown("POST", "/v1/groups/mine%2Fa/resign", Some(held.clone()), Some(&participant));
    assert_eq!(kept.status(resign).await.0, 200, "what it holds it may give up");
}

/// A full table forgets a token that was revoked long ago; its id may then be that of another token.
#[tokio::test]
async fn a_connection_does_not_know_a_token_by_its_id_alone() {
    let server = guarded().await;
    let old = find("onlooker");
    let read = |token: &str| shown("GET", "/v1/groups/mine%2Fa/leader", None, Some(token));
    let mut kept = KeptConnection::to(&server).await;
    assert_eq!(kept.status(read(&old)).await.0, 200);
    let number = EVERYBODY.iter().position(|it| it.name == "onlooker").unwrap();
    let id = token_of(number).id;
    server.store.revoke_token(id).await.unwrap();
    let new = |id, secret| regent_election::store::NewToken {
        token: id,
        digest: regent_election::access::SecretDigest([secret; 32]),
        principal: "node:onlooker".parse().unwrap(),
        expires_ms: None,
        label: regent_election::access::TokenLabel::new("").unwrap(),
    };
    let many = regent_election::limits::TOKENS_MAX as u64;
    for number in 0..=many - EVERYBODY.len() as u64 {
        let id = regent_election::access::TokenId(1_000_000 + number);
        server.store.create_token(new(id, 1)).await.unwrap();
    }
    assert_eq!(kept.status(read(&old)).await.0, 401, "it is forgotten");
    let spare = regent_election::access::TokenId(1_000_000);
    server.store.revoke_token(spare).await.unwrap();
    server.store.create_token(new(id, 2)).await.unwrap();
    assert_eq!(kept.status(read(&old)).await.0, 401, "the secret is another one");
}

/// It began with a good token; what counts is the token when the office is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_campaign_is_judged_when_it_would_win() {
    let server = guarded().await;
    let group = "mine/a".parse().unwrap();
    let office = server.store.campaign(regent_election::store::Campaign {
        group,
        node: "first".parse().unwrap(),
        session: regent_election::store::CampaignSession::Own(secret(8).parse().unwrap()),
        ttl_ms: Some(60_000),
        wait: None,
        priority: 0,
        metadata: regent_election::Metadata::NONE,
        request: None,
    });
    let term = office.await.unwrap().elected.unwrap();
    let group = "mine/a".parse().unwrap();
    let waits = async {
        let bid = json!({"node_id": "participant", "ttl_ms": 60_000, "wait_ms": 60_000});
        ask(&server, "POST", "/v1/groups/mine%2Fa/campaign", bid, &find("participant")).await
    };
    let frees = async {
        crate::support::eventually("it stands in line", || async {
            let seen = server.store.group(&group).await.unwrap();
            (seen.standbys.len() == 1).then_some(())
        })
        .await;
        let number = EVERYBODY.iter().position(|it| it.name == "participant").unwrap();
        server.store.revoke_token(token_of(number).id).await.unwrap();
        server.store.resign(&group, secret(8).parse().unwrap(), term, None).await.unwrap();
    };
    let (answer, ()) = tokio::join!(waits, frees);
    // It is refused, or told that it was not elected when its watch ended with its token.
    let text = answer.text();
    assert!(answer.status != 200 || text.contains("\"elected\":false"), "{text}");
    crate::support::eventually("nobody leads and nobody stands", || async {
        let seen = server.store.group(&group).await.unwrap();
        (seen.office.leader.is_none() && seen.standbys.is_empty()).then_some(())
    })
    .await;
}

/// The first binding and the first token need no secret that could be lost.
#[tokio::test]
async fn the_servers_own_user_administers_by_the_unix_socket_and_nobody_else_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("regent.sock");
    let listener = Listener::from(UnixListener::bind(&path).unwrap());
    let store: std::sync::Arc<dyn Store> =
        std::sync::Arc::new(regent_stores::MemoryStore::new().unwrap());
    let config = ServerConfig { auth: Auth::Required, ..ServerConfig::default() };
    tokio::spawn(serve(vec![listener], store, config, std::future::pending()));
    let raw = |head: &'static str| {
        let path = path.clone();
        async move {
            let mut stream = UnixStream::connect(path).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            patiently("an answer", stream.read_to_string(&mut answer)).await.unwrap();
            answer
        }
    };
    let end = "host: localhost\r\nconnection: close\r\n\r\n";
    let yes = raw("GET /v1/auth/tokens HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(yes.await.starts_with("HTTP/1.1 200"), "{end}");
    // A credential that is shown counts, even where none would be needed.
    let no = raw(
        "GET /v1/auth/tokens HTTP/1.1\r\nauthorization: Bearer x\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    assert!(no.await.starts_with("HTTP/1.1 401"));
}
