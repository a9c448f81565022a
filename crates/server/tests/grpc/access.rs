//! Who may do what over gRPC: every role, every method, compared with the same reference as over HTTP (S11).

use regent_api::grpc as pb;
use regent_api::grpc::status;
use regent_api::{Code, Gate, ROUTES};
use tonic::metadata::AsciiMetadataValue;

use crate::harness::access::{EVERYBODY, Reach, find, guarded, lets_in, token_of};
use crate::support::{Server, call, framed, problem, secret};

/// The code of a refusal for want of a credential or a right; none if the call got past the door.
async fn refusal(server: &Server, method: &str, token: Option<&str>) -> Option<Code> {
    let mut request = call(server, method);
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", value);
    }
    let outcome = server.raw(request, &framed(&[]), true).await;
    let code = status::problem(outcome.status.as_ref()?).map(|problem| problem.code)?;
    let meant = [Code::Unauthenticated, Code::CredentialOver, Code::Forbidden];
    Some(code).filter(|code| meant.contains(code))
}

#[tokio::test]
async fn every_role_gets_past_the_door_of_exactly_its_methods() {
    let server = guarded().await;
    for route in ROUTES {
        // A stream that is let in stays open.
        let Some(method) = route.method_name().filter(|it| !it.starts_with("Watch")) else {
            continue;
        };
        assert_ne!(route.gate, Gate::Open, "{method}");
        for token in [None, Some("rgt_nonsense".to_owned()), Some(token_of(99).reveal())] {
            let code = refusal(&server, &method, token.as_deref()).await;
            assert_eq!(code, Some(Code::Unauthenticated), "{method}");
        }
        for (number, someone) in EVERYBODY.iter().enumerate() {
            let token = token_of(number).reveal();
            let code = refusal(&server, &method, Some(&token)).await;
            let expected = (!lets_in(*someone, route, Reach::Some)).then_some(Code::Forbidden);
            assert_eq!(code, expected, "{} asks {method}", someone.name);
        }
    }
}

fn with<T>(message: T, token: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let value = AsciiMetadataValue::try_from(format!("Bearer {token}")).unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

#[tokio::test]
async fn the_group_of_a_message_is_judged_as_that_of_an_address() {
    let server = guarded().await;
    let mut client = server.client();
    let campaign = |group: &str, node: &str| pb::CampaignRequest {
        group: group.to_owned(),
        node_id: node.to_owned(),
        session_id: Some(secret(7)),
        ..pb::CampaignRequest::default()
    };
    let participant = find("participant");
    for (group, node) in [("other/a", "participant"), ("mine/a", "operator")] {
        let no = client.campaign(with(campaign(group, node), &participant)).await.unwrap_err();
        assert_eq!(no.code(), tonic::Code::PermissionDenied);
        assert_eq!(problem(&no, Code::Forbidden).facts.right.as_deref(), Some("stand"));
    }
    let won = client.campaign(with(campaign("mine/a", "participant"), &participant)).await;
    assert!(won.unwrap().into_inner().elected);
    let down = |group: &str| pb::StepDownRequest {
        group: group.to_owned(),
        reason: "test".to_owned(),
        ..pb::StepDownRequest::default()
    };
    let operator = find("operator");
    let no = client.step_down(with(down("other/a"), &operator)).await.unwrap_err();
    problem(&no, Code::Forbidden);
    client.step_down(with(down("mine/a"), &operator)).await.unwrap();
    let validate = |group: &str| pb::ValidateTokenRequest {
        group: group.to_owned(),
        term: 1,
        ..pb::ValidateTokenRequest::default()
    };
    let no = client.validate_token(with(validate("other/a"), &participant)).await.unwrap_err();
    problem(&no, Code::Forbidden);
    let no = client.leader(pb::LeaderRequest { group: "mine/a".to_owned(), ..Default::default() });
    assert_eq!(no.await.unwrap_err().code(), tonic::Code::Unauthenticated);
}
