//! Every change and every denial, whichever face or stream it came by, is a line of the audit log.

use regent_api::Code;
use regent_api::grpc as pb;
use regent_api::grpc::answer::Outcome;
use regent_api::grpc::ask::Verb;
use regent_api::grpc::session_down::Message as Down;
use regent_api::grpc::session_up::Message as Up;
use regent_audit::{Act, Content, ReadError};
use regent_server::{AuditConfig, ServerConfig};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::AsciiMetadataValue;

use crate::harness::access::{find, guarded_with};
use crate::support::{patiently, problem, secret};

fn with<T>(message: T, token: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let value = AsciiMetadataValue::try_from(format!("Bearer {token}")).unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

fn campaign(group: &str) -> pb::CampaignRequest {
    pb::CampaignRequest {
        group: group.to_owned(),
        node_id: "participant".to_owned(),
        ..pb::CampaignRequest::default()
    }
}

/// The lines about what somebody did: their word and what they say.
fn acts(directory: &std::path::Path) -> Vec<(&'static str, Act)> {
    let mut acts = Vec::new();
    let unread = regent_audit::lines(directory, |line, _| {
        let word = line.content.word();
        if let Content::Change(act) | Content::Refused(act) | Content::Denied(act) = &line.content {
            acts.push((word, act.clone()));
        }
        Ok::<_, ReadError>(())
    });
    assert_eq!(unread.unwrap(), 0);
    acts
}

#[tokio::test]
async fn changes_and_denials_of_every_face_are_audited() {
    let room = tempfile::tempdir().unwrap();
    let audit = AuditConfig { directory: room.path().join("audit"), bytes_max: 1 << 20 };
    let directory = audit.directory.clone();
    let config = ServerConfig { audit: Some(audit), ..ServerConfig::default() };
    let mut server = guarded_with(config).await;
    let (participant, operator) = (find("participant"), find("operator"));
    let mut client = server.client();

    // HTTP: nobody in particular, again and again.
    for _ in 0..5 {
        let (status, _) = server.http("/v1/groups/mine%2Fa/leader").await;
        assert_eq!(status, 401);
    }
    // gRPC: a change, and a denial that is judged by the message.
    let won = client.campaign(with(campaign("mine/a"), &participant)).await.unwrap();
    let session_id = won.into_inner().session_id.unwrap();
    let no = client.campaign(with(campaign("other/a"), &participant)).await.unwrap_err();
    problem(&no, Code::Forbidden);
    // A stream: opened, a denial on it, a change on it.
    let (up, ups) = mpsc::unbounded_channel();
    let send = |message| up.send(pb::SessionUp { message: Some(message) }).unwrap();
    send(Up::Hello(pb::Hello {
        node_id: "participant".to_owned(),
        ttl_ms: Some(60_000),
        session_id: secret(9),
        ..pb::Hello::default()
    }));
    let stream = with(UnboundedReceiverStream::new(ups), &participant);
    let mut down = client.session(stream).await.unwrap().into_inner();
    for (number, group) in [(1, "other/b"), (2, "mine/b")] {
        send(Up::Ask(pb::Ask { number, verb: Some(Verb::Campaign(campaign(group))) }));
    }
    let mut outcomes = Vec::new();
    while outcomes.len() < 2 {
        let message = patiently("an answer", down.message()).await.unwrap().unwrap().message;
        if let Some(Down::Answer(answer)) = message {
            outcomes.push((answer.number, matches!(answer.outcome, Some(Outcome::Campaign(_)))));
        }
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, [(1, false), (2, true)]);
    // What it may not follow ends the stream.
    let groups = vec!["other/c".to_owned()];
    send(Up::Follow(pb::Follow { groups, ..pb::Follow::default() }));
    patiently("the end", async { while let Ok(Some(_)) = down.message().await {} }).await;
    // An operator: a change, and a refusal by a rule.
    let down_with = |group: &str| pb::StepDownRequest {
        group: group.to_owned(),
        reason: "maintenance".to_owned(),
        immediate: true,
        request_id: (group == "mine/a").then(|| "1-audited".to_owned()),
        ..pb::StepDownRequest::default()
    };
    client.step_down(with(down_with("mine/a"), &operator)).await.unwrap();
    let no = client.step_down(with(down_with("mine/c"), &operator)).await.unwrap_err();
    problem(&no, Code::GroupUnknown);
    let policy = pb::Policy { lock_delay_ms: Some(7), ..pb::Policy::default() };
    let put = pb::PutGroupRequest {
        group: "mine/a".to_owned(),
        policy: Some(policy),
        ..pb::PutGroupRequest::default()
    };
    client.put_group(with(put, &find("administrator"))).await.unwrap();
    drop((up, down, client));
    server.stop();
    server.stopped().await;

    let acts = acts(&directory);
    let found = |word: &str, verb: &str, code: &str, group: Option<&str>| {
        let is_it = |(kind, act): &&(&str, Act)| {
            *kind == word && act.verb == verb && act.code == code && act.group.as_deref() == group
        };
        acts.iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no {word} {verb} {code}: {acts:#?}"))
            .1
            .clone()
    };
    let stranger = found("denied", "leader", "UNAUTHENTICATED", None);
    assert_eq!((stranger.who, stranger.from.as_str()), (None, "127.0.0.1"));
    let counts: Vec<_> =
        acts.iter().filter(|(_, act)| act.verb == "leader").map(|(_, act)| act.count).collect();
    assert_eq!(counts, [None, Some(4)], "repeated denials are one line and a count");
    for group in ["mine/a", "mine/b"] {
        let won = found("change", "campaign", "OK", Some(group));
        assert_eq!(won.who.as_deref(), Some("node:participant"));
        assert_eq!(won.right.as_deref(), Some("stand"));
        assert!(won.revision.is_some(), "{won:?}");
    }
    for group in ["other/a", "other/b"] {
        let denied = found("denied", "campaign", "FORBIDDEN", Some(group));
        assert_eq!(denied.who.as_deref(), Some("node:participant"));
        assert_eq!(denied.right.as_deref(), Some("stand"));
    }
    found("change", "open", "OK", None);
    found("denied", "watchMany", "FORBIDDEN", Some("other/c"));
    let put = found("change", "put_policy", "OK", Some("mine/a"));
    assert!(put.detail.unwrap().contains("lock_delay 7"));
    let ended = found("change", "step_down", "OK", Some("mine/a"));
    assert_eq!(ended.who.as_deref(), Some("node:operator"));
    assert_eq!(ended.request.as_deref(), Some("1-audited"));
    assert_eq!(ended.detail.as_deref(), Some("immediate; maintenance"));
    found("refused", "step_down", "GROUP_UNKNOWN", Some("mine/c"));
    let report = regent_audit::verify(&directory, None, None).unwrap();
    assert!(report.is_complete() && report.has_ended, "{report:?}");
    // Nobody who reads the log can act as those who are in it.
    let text = std::fs::read_to_string(directory.join("audit-00000001.jsonl")).unwrap();
    for secret in [&participant, &operator, &session_id, &secret(9)] {
        assert!(!text.contains(secret.as_str()), "{secret} is in the audit log");
    }
}
