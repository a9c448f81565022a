//! Every verb over gRPC, and the same refusals as over HTTP.

use regent_api::grpc as pb;
use regent_api::grpc::stepped_down::Outcome;
use regent_api::{Code, Problem};
use serde_json::json;
use tonic::body::Body;

use crate::support::{Server, channel, lead, patiently, problem, resign, secret};

fn stand(group: &str, node: &str, session_id: &str) -> pb::CampaignRequest {
    pb::CampaignRequest {
        group: group.to_owned(),
        node_id: node.to_owned(),
        session_id: Some(session_id.to_owned()),
        ..pb::CampaignRequest::default()
    }
}

#[tokio::test]
async fn an_office_is_won_kept_handed_over_and_given_up() {
    let server = Server::start().await;
    let mut client = server.client();
    let (a, b) = (secret(1), secret(2));
    let open = pb::OpenSessionRequest {
        node_id: "a".to_owned(),
        ttl_ms: Some(60_000),
        session_id: Some(a.clone()),
    };
    let session = client.open_session(open).await.unwrap().into_inner();
    assert_eq!((session.session_id.as_str(), session.ttl_ms), (a.as_str(), 60_000));

    let won = client.campaign(stand("g", "a", &a)).await.unwrap().into_inner();
    assert!(won.elected && !won.standing);
    let office = won.office.unwrap();
    assert_eq!((office.leader.as_deref(), office.term), (Some("a"), 1));
    assert_eq!(office.state(), pb::OfficeState::Leading);
    let mut second = stand("g", "b", &b);
    second.ttl_ms = Some(60_000);
    second.priority = 7;
    second.metadata = [("zone".to_owned(), "x".to_owned())].into();
    let lost = client.campaign(second).await.unwrap().into_inner();
    assert!(!lost.elected && lost.standing);

    let leader = pb::LeaderRequest { group: "g".to_owned(), consistency: 1 };
    let told = client.leader(leader).await.unwrap().into_inner();
    assert_eq!(told.consistency(), pb::Consistency::Stale);
    assert_eq!(told.office.unwrap().leader.as_deref(), Some("a"));

    let renew = pb::RenewRequest {
        group: "g".to_owned(),
        session_id: a.clone(),
        term: 1,
        extend_by_ms: None,
    };
    assert_eq!(client.renew(renew).await.unwrap().into_inner().ttl_ms, 60_000);
    let heartbeat = |sequence| pb::HeartbeatRequest {
        session_id: a.clone(),
        sequence: Some(sequence),
        ..pb::HeartbeatRequest::default()
    };
    client.heartbeat(heartbeat(5)).await.unwrap();
    let refused = client.heartbeat(heartbeat(5)).await.unwrap_err();
    assert_eq!(problem(&refused, Code::HeartbeatNotNewer).facts.last_sequence, Some(5));

    let offer = pb::OfferRequest {
        group: "g".to_owned(),
        session_id: a.clone(),
        term: 1,
        to: "b".to_owned(),
        request_id: None,
    };
    client.offer(offer).await.unwrap();
    let show = pb::ShowSessionRequest { session_id: a.clone() };
    let shown = client.show_session(show).await.unwrap().into_inner();
    assert_eq!(shown.tenures[0].offered_to.as_deref(), Some("b"));
    let warm =
        pb::WarmRequest { group: "g".to_owned(), session_id: b.clone(), term: 1, request_id: None };
    let show = pb::ShowSessionRequest { session_id: b.clone() };
    let asked = client.show_session(show.clone()).await.unwrap().into_inner();
    let offer = pb::Offer { group: "g".to_owned(), term: 1, by: "a".to_owned(), is_warm: false };
    assert_eq!(asked.offers, [offer]);
    client.warm(warm).await.unwrap();
    let told = client.show_session(show).await.unwrap().into_inner();
    assert!(told.offers[0].is_warm);
    let transfer = pb::TransferRequest {
        group: "g".to_owned(),
        session_id: a.clone(),
        term: 1,
        to: "b".to_owned(),
        request_id: Some("0-handover".to_owned()),
    };
    client.transfer(transfer).await.unwrap();
    let accept = pb::AcceptRequest {
        group: "g".to_owned(),
        session_id: b.clone(),
        term: 2,
        request_id: None,
    };
    assert_eq!(client.accept(accept).await.unwrap().into_inner().ttl_ms, 60_000);
    let shown = client.show_session(pb::ShowSessionRequest { session_id: b.clone() }).await;
    let shown = shown.unwrap().into_inner();
    assert_eq!((shown.node_id.as_str(), shown.tenures[0].term), ("b", 2));
    assert_eq!(shown.tenures[0].state(), pb::OfficeState::Leading);

    let farewell =
        pb::ResignRequest { group: "g".to_owned(), session_id: b, term: 2, request_id: None };
    client.resign(farewell).await.unwrap();
    let stood = client.campaign(stand("g", "a", &a)).await.unwrap().into_inner();
    assert!(stood.elected);
    let close = pb::CloseSessionRequest { session_id: a };
    client.close_session(close).await.unwrap();
    let history = client.history(pb::HistoryRequest { group: "g".to_owned() }).await.unwrap();
    let causes: Vec<_> = history.into_inner().changes.iter().map(pb::Change::cause).collect();
    assert_eq!(causes.first(), Some(&pb::Cause::Elected));
    assert!(causes.contains(&pb::Cause::Transferred), "{causes:?}");
}

#[tokio::test]
async fn an_operator_sees_and_changes_groups() {
    let server = Server::start().await;
    let mut client = server.client();
    let policy = pb::Policy {
        ttl_ms_max: Some(20_000),
        allow: vec!["web-*".to_owned()],
        priorities: vec![pb::PriorityRule { nodes: "web-1".to_owned(), priority: 9 }],
        ..pb::Policy::default()
    };
    let put = pb::PutGroupRequest {
        group: "team/g".to_owned(),
        policy: Some(policy),
        request_id: Some("0-put".to_owned()),
    };
    let shown = client.put_group(put).await.unwrap().into_inner();
    let policy = shown.policy.unwrap();
    assert!(shown.own_policy);
    assert_eq!((policy.ttl_ms_max, policy.allow.as_slice()), (Some(20_000), &["web-*".into()][..]));

    let strangers = pb::CampaignRequest {
        group: "team/g".to_owned(),
        node_id: "db-1".to_owned(),
        ..pb::CampaignRequest::default()
    };
    problem(&client.campaign(strangers).await.unwrap_err(), Code::NotAllowed);
    lead(&mut client, "team/g", "web-1").await;
    let waiting = client.campaign(stand("team/g", "web-2", &secret(3))).await.unwrap();
    assert!(waiting.into_inner().standing);
    let show = pb::ShowGroupRequest { group: "team/g".to_owned() };
    let shown = client.show_group(show).await.unwrap().into_inner();
    assert_eq!(shown.standbys_count, 1);
    assert_eq!(shown.standbys[0].node_id, "web-2");
    let withdraw =
        pb::WithdrawRequest { group: "team/g".to_owned(), session_id: secret(3), request_id: None };
    client.withdraw(withdraw).await.unwrap();

    let down = pb::StepDownRequest {
        group: "team/g".to_owned(),
        reason: "an upgrade".to_owned(),
        immediate: true,
        ..pb::StepDownRequest::default()
    };
    let outcome = client.step_down(down).await.unwrap().into_inner().outcome;
    assert!(matches!(outcome, Some(Outcome::Forced(_))), "{outcome:?}");
    let list = pb::ListGroupsRequest { prefix: "team/".to_owned(), after: None, count: Some(1) };
    let page = client.list_groups(list).await.unwrap().into_inner();
    assert_eq!(page.groups[0].group, "team/g");
    let delete = pb::DeleteGroupRequest { group: "team/g".to_owned(), request_id: None };
    let outcome = client.delete_group(delete).await.unwrap().into_inner().outcome;
    assert!(matches!(outcome, Some(Outcome::Over(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_store_without_replicas_says_so() {
    let server = Server::start().await;
    let mut client = server.client();
    let refused = client.show_cluster(pb::ShowClusterRequest {}).await.unwrap_err();
    problem(&refused, Code::Unsupported);
    let add = pb::AddMemberRequest { id: 2, ..pb::AddMemberRequest::default() };
    problem(&client.add_member(add).await.unwrap_err(), Code::Unsupported);
    let promote = client.promote_member(pb::PromoteMemberRequest { id: 2 }).await.unwrap_err();
    problem(&promote, Code::Unsupported);
    let remove = client.remove_member(pb::RemoveMemberRequest { id: 2 }).await.unwrap_err();
    problem(&remove, Code::Unsupported);
    let transfer = client.transfer_cluster(pb::TransferClusterRequest { to: None }).await;
    problem(&transfer.unwrap_err(), Code::Unsupported);
    problem(&client.backup(pb::BackupRequest {}).await.unwrap_err(), Code::Unsupported);
}

/// The problem that the HTTP face answers to this body.
async fn over_http(server: &Server, path: &str, body: serde_json::Value) -> Problem {
    let request = hyper::Request::builder()
        .method("POST")
        .uri(format!("{}{path}", server.url()))
        .header("content-type", "application/json")
        .body(Body::new(http_body_util::Full::new(body.to_string().into())))
        .unwrap();
    let response = patiently("an answer", channel().request(request)).await.unwrap();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn a_refusal_is_the_same_problem_over_both_faces() {
    let server = Server::start().await;
    let mut client = server.client();
    let first = lead(&mut client, "g", "a").await;
    resign(&mut client, &first).await;
    lead(&mut client, "g", "b").await;

    let stale = pb::RenewRequest {
        group: "g".to_owned(),
        session_id: first.session_id.clone(),
        term: first.term,
        extend_by_ms: None,
    };
    let refused = client.renew(stale).await.unwrap_err();
    let body = json!({"session_id": first.session_id, "term": first.term});
    let same = over_http(&server, "/v1/groups/g/renew", body).await;
    assert_eq!(problem(&refused, same.code), same);

    let absurd = pb::OpenSessionRequest {
        node_id: "a".to_owned(),
        ttl_ms: Some(1),
        session_id: Some(secret(9)),
    };
    let refused = client.open_session(absurd).await.unwrap_err();
    let body = json!({"node_id": "a", "ttl_ms": 1, "session_id": secret(9)});
    let same = over_http(&server, "/v1/sessions/open", body).await;
    assert_eq!(problem(&refused, Code::TtlOutOfBounds), same);
}

#[tokio::test]
async fn what_one_face_does_the_other_sees() {
    let server = Server::start().await;
    let office = lead(&mut server.client(), "g", "a").await;
    let (status, body) = server.http("/v1/groups/g/leader").await;
    assert_eq!(status, 200);
    let told: regent_api::LeaderResponse = serde_json::from_str(&body).unwrap();
    assert_eq!(told.office.term.get(), office.term);
    assert_eq!(told.office.leader.unwrap().as_str(), "a");
}
