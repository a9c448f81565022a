//! Campaigning, renewing, resigning, handing over.

use regent_api::{
    CampaignResponse, Code, Done, GroupResponse, HeartbeatResponse, LeaderResponse, SessionResponse,
};
use regent_election::store::OfficeState;
use serde_json::json;

use crate::support::{Server, eventually, patiently, request, secret};

#[tokio::test]
async fn a_vacant_office_is_won_and_everybody_can_see_it() {
    let server = Server::start().await;
    let body = json!({"node_id": "a", "metadata": {"zone": "b"}});
    let won: CampaignResponse = server.post("/v1/groups/billing/campaign", body).await.ok();
    assert!(won.elected && won.session_id.is_some());
    assert_eq!((won.office.term.get(), won.ttl_ms), (1, 10_000));
    let seen: LeaderResponse = server.get("/v1/groups/billing/leader").await.ok();
    assert_eq!(seen.office.leader.as_ref().unwrap().as_str(), "a");
    assert_eq!(seen.office.state, OfficeState::Leading);
    assert_eq!(seen.office.metadata.iter().collect::<Vec<_>>(), [("zone", "b")]);
    assert!(seen.office.valid_for_ms.is_some_and(|left| left <= 10_000));
}

#[tokio::test]
async fn losing_is_an_answer_and_a_single_shot_leaves_nothing_behind() {
    let server = Server::start().await;
    server.lead("billing", "a").await;
    let lost: CampaignResponse =
        server.post("/v1/groups/billing/campaign", json!({"node_id": "b"})).await.ok();
    assert!(!lost.elected && !lost.standing);
    assert_eq!(lost.session_id, None);
    assert!(lost.retry_after_ms.is_some());
    assert_eq!(lost.office.leader.unwrap().as_str(), "a");
    assert_eq!(server.standbys("billing").await, 0);
}

#[tokio::test]
async fn the_leaders_own_session_gets_the_same_term_and_its_name_alone_gets_nothing() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    let again = json!({"node_id": "a", "session_id": office.session_id});
    let again: CampaignResponse = server.post("/v1/groups/billing/campaign", again).await.ok();
    assert!(again.elected);
    assert_eq!(again.office.term.get(), office.term);
    let twin: CampaignResponse =
        server.post("/v1/groups/billing/campaign", json!({"node_id": "a"})).await.ok();
    assert!(!twin.elected);
}

#[tokio::test]
async fn a_waiting_campaign_is_answered_the_moment_it_wins() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    let body = json!({"node_id": "b", "session_id": secret(7), "wait_ms": 30_000});
    let (waited, ()) = tokio::join!(server.post("/v1/groups/billing/campaign", body), async {
        eventually("a standby", || async { (server.standbys("billing").await == 1).then_some(()) })
            .await;
        office.resign(&server).await;
    });
    let waited: CampaignResponse = waited.ok();
    assert!(waited.elected);
    assert_eq!(waited.office.term.get(), office.term + 1);
}

#[tokio::test]
async fn a_waiting_campaign_whose_connection_drops_leaves_no_standby() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    let body = json!({"node_id": "b", "ttl_ms": 60_000, "wait_ms": 20_000});
    let waiting = server.post("/v1/groups/billing/campaign", body);
    let stood =
        eventually("a standby", || async { (server.standbys("billing").await == 1).then_some(()) });
    tokio::select! {
        answer = waiting => panic!("answered early: {answer:?}"),
        () = stood => {}
    }
    eventually("the standby's leaving", || async {
        (server.standbys("billing").await == 0).then_some(())
    })
    .await;
    office.resign(&server).await;
    let seen: LeaderResponse = server.get("/v1/groups/billing/leader").await.ok();
    assert_eq!(seen.office.leader, None);
}

#[tokio::test]
async fn a_request_id_without_a_session_is_refused_with_the_reason() {
    let server = Server::start().await;
    let body = json!({"node_id": "a", "request_id": "0-x"});
    let problem = server.post("/v1/groups/billing/campaign", body).await.problem(Code::BadRequest);
    assert!(problem.detail.contains("choose a session_id too"), "{problem}");
    let seen: LeaderResponse = server.get("/v1/groups/billing/leader").await.ok();
    assert_eq!((seen.office.leader, seen.office.term.get()), (None, 0));
}

#[tokio::test]
async fn a_repeated_campaign_takes_effect_once() {
    let server = Server::start().await;
    let body = json!({"node_id": "a", "session_id": secret(9), "request_id": "0-first"});
    let first: CampaignResponse =
        server.post("/v1/groups/billing/campaign", body.clone()).await.ok();
    let second: CampaignResponse = server.post("/v1/groups/billing/campaign", body).await.ok();
    assert!(first.elected && second.elected);
    assert_eq!(first.office.term, second.office.term);
}

#[tokio::test]
async fn a_renewal_proves_the_tenure_and_a_wrong_term_is_told_both_numbers() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    let body = json!({"session_id": office.session_id, "term": office.term});
    let heard: HeartbeatResponse = server.post("/v1/groups/billing/renew", body).await.ok();
    assert_eq!(heard.ttl_ms, 10_000);
    let wrong = json!({"session_id": office.session_id, "term": 9});
    let problem = server.post("/v1/groups/billing/renew", wrong).await.problem(Code::NotLeader);
    assert_eq!(problem.facts.given_term.unwrap().get(), 9);
    assert_eq!(problem.facts.current_term.unwrap().get(), office.term);
    let longer =
        json!({"session_id": office.session_id, "term": office.term, "extend_by_ms": 20_000});
    let heard: HeartbeatResponse = server.post("/v1/groups/billing/renew", longer).await.ok();
    assert_eq!(heard.ttl_ms, 20_000);
}

#[tokio::test]
async fn a_leader_that_was_succeeded_is_told_not_leader_by_every_verb() {
    let server = Server::start().await;
    let old = server.lead("billing", "a").await;
    // Its session stays open through another office, so that only the term is what is wrong.
    let body = json!({"node_id": "a", "session_id": old.session_id});
    let _: CampaignResponse = server.post("/v1/groups/other/campaign", body).await.ok();
    old.resign(&server).await;
    server.lead("billing", "b").await;
    let body = json!({"session_id": old.session_id, "term": old.term});
    for verb in ["renew", "resign", "accept"] {
        let path = format!("/v1/groups/billing/{verb}");
        let problem = server.post(&path, body.clone()).await.problem(Code::NotLeader);
        assert_eq!(problem.facts.leader.as_ref().unwrap().as_str(), "b", "{verb}");
    }
    let body = json!({"session_id": old.session_id, "term": old.term, "to": "b"});
    for verb in ["offer", "transfer"] {
        let path = format!("/v1/groups/billing/{verb}");
        server.post(&path, body.clone()).await.problem(Code::NotLeader);
    }
}

#[tokio::test]
async fn an_unknown_session_is_told_that_it_is_not_open() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    let body = json!({"session_id": secret(99), "term": office.term});
    for verb in ["renew", "resign", "accept"] {
        let path = format!("/v1/groups/billing/{verb}");
        server.post(&path, body.clone()).await.problem(Code::SessionExpired);
    }
}

#[tokio::test]
async fn a_hand_over_goes_from_offer_to_warm_to_transfer_to_acceptance() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    server.stand("billing", "b", &secret(5)).await;
    let holder = json!({"session_id": office.session_id, "term": office.term, "to": "b"});
    let standby = json!({"session_id": secret(5), "term": office.term});
    server.post("/v1/groups/billing/warm", standby.clone()).await.problem(Code::NoOffer);
    let _: Done = server.post("/v1/groups/billing/offer", holder.clone()).await.ok();
    let asked: SessionResponse =
        server.post("/v1/sessions/show", json!({"session_id": secret(5)})).await.ok();
    let offer = &asked.offers[0];
    assert_eq!((offer.by.as_str(), offer.term.get(), offer.is_warm), ("a", office.term, false));
    let _: Done = server.post("/v1/groups/billing/warm", standby).await.ok();
    let told: SessionResponse =
        server.post("/v1/sessions/show", json!({"session_id": office.session_id})).await.ok();
    assert!(told.tenures[0].is_warm);
    let _: Done = server.post("/v1/groups/billing/transfer", holder).await.ok();
    let shown: SessionResponse =
        server.post("/v1/sessions/show", json!({"session_id": secret(5)})).await.ok();
    let term = shown.tenures[0].term.get();
    assert_eq!(term, office.term + 1);
    let body = json!({"session_id": secret(5), "term": term});
    let _: HeartbeatResponse = server.post("/v1/groups/billing/accept", body).await.ok();
    let seen: LeaderResponse = server.get("/v1/groups/billing/leader").await.ok();
    assert_eq!(seen.office.leader.unwrap().as_str(), "b");
    assert_eq!(seen.office.state, OfficeState::Leading);
}

#[tokio::test]
async fn an_office_is_not_handed_to_somebody_who_does_not_stand() {
    let server = Server::start().await;
    let office = server.lead("billing", "a").await;
    let body = json!({"session_id": office.session_id, "term": office.term, "to": "nobody"});
    for verb in ["offer", "transfer"] {
        let path = format!("/v1/groups/billing/{verb}");
        server.post(&path, body.clone()).await.problem(Code::SuccessorUnknown);
    }
    for number in [1, 2] {
        server.stand("billing", "twin", &secret(number)).await;
    }
    let body = json!({"session_id": office.session_id, "term": office.term, "to": "twin"});
    server.post("/v1/groups/billing/offer", body).await.problem(Code::SuccessorAmbiguous);
}

#[tokio::test]
async fn who_withdraws_leaves_the_line() {
    let server = Server::start().await;
    server.lead("billing", "a").await;
    server.stand("billing", "b", &secret(5)).await;
    assert_eq!(server.standbys("billing").await, 1);
    let body = json!({"session_id": secret(5)});
    for _ in 0..2 {
        let _: Done = server.post("/v1/groups/billing/withdraw", body.clone()).await.ok();
    }
    assert_eq!(server.standbys("billing").await, 0);
}

#[tokio::test]
async fn a_stale_read_is_marked_as_such() {
    let server = Server::start().await;
    let fresh: LeaderResponse = server.get("/v1/groups/billing/leader").await.ok();
    assert_eq!(fresh.consistency, regent_api::Consistency::Linearizable);
    let stale: LeaderResponse =
        server.get("/v1/groups/billing/leader?consistency=stale").await.ok();
    assert_eq!(stale.consistency, regent_api::Consistency::Stale);
    let problem = server
        .get("/v1/groups/billing/leader?consistency=eventual")
        .await
        .problem(Code::BadRequest);
    assert_eq!(problem.facts.field.as_deref(), Some("consistency"));
}

#[tokio::test]
async fn a_slash_in_a_group_name_is_escaped_and_kept() {
    let server = Server::start().await;
    server.lead("team/svc", "a").await;
    let shown: GroupResponse = server.get("/v1/groups/team%2Fsvc").await.ok();
    assert_eq!(shown.office.group.as_str(), "team/svc");
    let problem = server.get("/v1/groups/team/svc/leader").await.problem(Code::NotFound);
    assert!(problem.detail.contains("%2F"), "{problem}");
}

#[tokio::test]
async fn every_verb_is_served_over_http2_too() {
    let server = Server::start().await;
    let stream = server.connect().await;
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, hyper_util::rt::TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    for (path, body) in [
        ("/v1/groups/billing/campaign", Some(json!({"node_id": "a"}).to_string())),
        ("/v1/groups/billing/leader", None),
    ] {
        let method = if body.is_some() { "POST" } else { "GET" };
        let mut request = request(method, path, body);
        *request.uri_mut() = format!("http://{}{path}", server.address).parse().unwrap();
        request.headers_mut().remove("host");
        let response = patiently("an answer", sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
    }
}
