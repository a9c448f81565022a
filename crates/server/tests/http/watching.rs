//! Long polls and streams.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use regent_api::{Code, WatchEvent, WatchResponse};
use regent_server::ServerConfig;
use serde_json::json;
use std::time::Duration;

use crate::restless::Restless;
use crate::support::{Server, eventually, exact, patiently, request, secret};

/// A stream of events, read one by one.
struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    async fn open(server: &Server, path: &str, last_event_id: Option<&str>) -> Self {
        let mut request = request("GET", path, None);
        request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        if let Some(id) = last_event_id {
            request.headers_mut().insert("last-event-id", id.parse().unwrap());
        }
        let (_, response) = server.begin(request).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event; none at the end of the stream.
    async fn next(&mut self) -> Option<WatchEvent> {
        patiently("an event", async {
            loop {
                if let Some((block, rest)) = self.text.split_once("\n\n") {
                    let (block, rest) = (block.to_owned(), rest.to_owned());
                    self.text = rest;
                    if let Some(event) = parse(&block) {
                        return Some(event);
                    }
                    continue;
                }
                let frame = self.body.frame().await?.unwrap();
                self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
            }
        })
        .await
    }

    async fn state(&mut self) -> regent_api::Present {
        match self.next().await {
            Some(WatchEvent::State(present)) => present,
            other => panic!("{other:?}"),
        }
    }

    async fn changed(&mut self) -> regent_api::LeaderChanged {
        match self.next().await {
            Some(WatchEvent::LeaderChanged(changed)) => changed,
            other => panic!("{other:?}"),
        }
    }
}

/// One block of lines, checked: known name, an id that is the event's cursor, no unknown fields.
fn parse(block: &str) -> Option<WatchEvent> {
    let line =
        |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let Some(name) = line("event") else {
        assert!(block.starts_with("retry: "), "{block}");
        return None;
    };
    let data = line("data").unwrap();
    let event = WatchEvent::parse(name, data).unwrap().expect("a known name");
    assert_eq!(event.name(), name);
    assert_eq!(line("id").unwrap(), event.cursor().to_string());
    let whole: WatchEvent = exact(
        json!({"event": name, "data": serde_json::from_str::<serde_json::Value>(data).unwrap()})
            .to_string()
            .as_bytes(),
    );
    assert_eq!(whole, event);
    Some(event)
}

fn leader(node: &Option<regent_election::Node>) -> Option<&str> {
    node.as_ref().map(|node| node.as_str())
}

#[tokio::test]
async fn a_stream_tells_that_nobody_leads_and_then_every_change() {
    let server = Server::start().await;
    let mut events = Events::open(&server, "/v1/groups/billing/watch", None).await;
    let present = events.state().await;
    assert_eq!(present.offices.len(), 1);
    assert_eq!(present.offices[0].leader, None);
    let office = server.lead("billing", "a").await;
    office.resign(&server).await;
    server.lead("billing", "b").await;
    for (node, term, cause) in
        [(Some("a"), 1, "elected"), (None, 1, "resigned"), (Some("b"), 2, "elected")]
    {
        let changed = events.changed().await;
        assert_eq!(leader(&changed.leader), node);
        assert_eq!((changed.term.get(), changed.cause.word()), (term, cause));
    }
}

#[tokio::test]
async fn a_stream_resumes_after_the_last_event_it_told() {
    let server = Server::start().await;
    let mut first = Events::open(&server, "/v1/groups/billing/watch", None).await;
    let start = first.state().await.cursor.to_string();
    let office = server.lead("billing", "a").await;
    let seen = first.changed().await;
    drop(first);
    office.resign(&server).await;
    let path = format!("/v1/groups/billing/watch?cursor={start}");
    let mut second = Events::open(&server, &path, Some(&seen.cursor.to_string())).await;
    assert_eq!(second.changed().await.cause.word(), "resigned");
    let mut third = Events::open(&server, &path, None).await;
    assert_eq!(third.changed().await, seen);
    assert_eq!(third.changed().await.cause.word(), "resigned");
}

/// S5: what the state holds already is not told again, and what it does not hold is not left out.
#[tokio::test]
async fn the_first_change_told_is_the_one_after_the_state() {
    let server = Server::start().await;
    let churn = async {
        loop {
            server.lead("billing", "a").await.resign(&server).await;
        }
    };
    let watch = async {
        for _ in 0..40 {
            let mut events = Events::open(&server, "/v1/groups/billing/watch", None).await;
            let state = events.state().await.offices.remove(0);
            let next = events.changed().await;
            assert!(next.cursor > state.cursor, "{state:?} then {next:?}");
            // Elections and resignations alternate, and each is one revision of this store.
            assert_eq!(next.revision.0, state.revision.0 + 1, "{state:?} then {next:?}");
            assert_ne!(next.leader, state.leader);
        }
    };
    tokio::select! {
        () = churn => {}
        () = watch => {}
    }
}

#[tokio::test]
async fn a_silent_stream_shows_that_it_lives() {
    let config =
        ServerConfig { watch_bookmark_every: Duration::from_millis(20), ..ServerConfig::default() };
    let server = Server::with(config).await;
    let mut events = Events::open(&server, "/v1/groups/billing/watch", None).await;
    let start = events.state().await.cursor;
    server.lead("elsewhere", "a").await;
    // A bookmark moves on with the store, though nothing happened in this group.
    patiently("a later bookmark", async {
        loop {
            match events.next().await {
                Some(WatchEvent::Bookmark(bookmark)) if bookmark.cursor > start => return,
                Some(WatchEvent::Bookmark(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn many_groups_are_watched_by_name_and_by_prefix() {
    let server = Server::start().await;
    let mut named = Events::open(&server, "/v1/watch?groups=b%2F1,a", None).await;
    let mut below = Events::open(&server, "/v1/watch?prefix=b%2F", None).await;
    assert_eq!(named.state().await.offices.len(), 2);
    assert_eq!(below.state().await.offices.len(), 0);
    for group in ["a", "b/1", "b/2"] {
        server.lead(group, "node").await;
    }
    assert_eq!(named.changed().await.group.as_str(), "a");
    assert_eq!(named.changed().await.group.as_str(), "b/1");
    assert_eq!(below.changed().await.group.as_str(), "b/1");
    assert_eq!(below.changed().await.group.as_str(), "b/2");
    let all: WatchResponse = server.get("/v1/watch").await.ok();
    assert_eq!(all.state.unwrap().offices.len(), 3);
}

#[tokio::test]
async fn a_long_poll_tells_the_state_then_waits_for_the_next_change() {
    let server = Server::start().await;
    let first: WatchResponse = server.get("/v1/groups/billing/watch").await.ok();
    assert_eq!(first.state.unwrap().offices[0].leader, None);
    let path = format!("/v1/groups/billing/watch?cursor={}", first.cursor);
    let (told, office) = tokio::join!(server.get(&path), server.lead("billing", "a"));
    let told: WatchResponse = told.ok();
    assert_eq!(leader(&told.events[0].leader), Some("a"));
    office.resign(&server).await;
    let path = format!("/v1/groups/billing/watch?cursor={}&wait_ms=0", told.cursor);
    let told: WatchResponse = server.get(&path).await.ok();
    assert_eq!(told.events.len(), 1);
    let path = format!("/v1/groups/billing/watch?cursor={}&wait_ms=0", told.cursor);
    let told: WatchResponse = server.get(&path).await.ok();
    assert!(told.events.is_empty() && told.gap.is_none());
}

/// S5: a cursor of another life of the store gets a gap with the present state, never silence.
#[tokio::test]
async fn a_cursor_of_another_store_gets_a_gap_with_the_present_state() {
    let server = Server::start().await;
    server.lead("billing", "a").await;
    let path = "/v1/groups/billing/watch?cursor=1-3-0";
    let told: WatchResponse = server.get(path).await.ok();
    let gap = told.gap.expect("a gap");
    assert_eq!(leader(&gap.present.offices[0].leader), Some("a"));
    assert!(gap.retry_after_ms < 1000);
    let mut events = Events::open(&server, path, None).await;
    match events.next().await {
        Some(WatchEvent::Gap(gap)) => {
            assert_eq!(leader(&gap.present.offices[0].leader), Some("a"));
        }
        other => panic!("{other:?}"),
    }
    server.stand("billing", "b", &secret(3)).await;
    let body = json!({"reason": "test", "immediate": true});
    let _: regent_api::SteppedDown = server.post("/v1/groups/billing/step-down", body).await.ok();
    assert_eq!(leader(&events.changed().await.leader), Some("b"));
}

#[tokio::test]
async fn a_watch_that_nobody_reads_any_more_is_ended() {
    let server = Server::start().await;
    let watchers = async |count: u64| {
        eventually("that many watchers", || async {
            (server.store.census().await.unwrap().watchers == count).then_some(())
        })
        .await;
    };
    watchers(1).await; // The observer's own.
    let mut events = Events::open(&server, "/v1/groups/billing/watch", None).await;
    events.state().await;
    watchers(2).await;
    drop(events);
    watchers(1).await;
}

#[tokio::test]
async fn watches_beyond_the_bound_are_refused_and_renewals_still_served() {
    let config = ServerConfig { waiting_max: 1, ..ServerConfig::default() };
    let server = Server::with(config).await;
    let office = server.lead("billing", "a").await;
    let mut events = Events::open(&server, "/v1/groups/billing/watch", None).await;
    events.state().await;
    server.get("/v1/groups/billing/watch").await.problem(Code::RateLimited);
    let body = json!({"node_id": "b", "wait_ms": 1000});
    server.post("/v1/groups/billing/campaign", body).await.problem(Code::RateLimited);
    let body = json!({"session_id": office.session_id, "term": office.term});
    let _: regent_api::HeartbeatResponse = server.post("/v1/groups/billing/renew", body).await.ok();
}

#[tokio::test]
async fn wrong_watches_are_refused() {
    let server = Server::start().await;
    let many = vec!["a"; 129].join(",");
    for path in [
        "/v1/watch?groups=a&prefix=b",
        "/v1/watch?groups=",
        "/v1/watch?groups=a,,b",
        &format!("/v1/watch?groups={many}"),
        "/v1/watch?cursor=zz",
        "/v1/groups/a/watch?cursor=",
        "/v1/groups/a/watch?wait_ms=-1",
        "/v1/groups/a/watch?prefix=a",
    ] {
        server.get(path).await.problem(Code::BadRequest);
    }
    let mut request = request("GET", "/v1/groups/a/watch", None);
    request.headers_mut().insert("last-event-id", "zz".parse().unwrap());
    let problem = server.send(request).await.problem(Code::BadRequest);
    assert_eq!(problem.facts.field.as_deref(), Some("Last-Event-ID"));
}

/// A state that is newer than its cursor in one of its groups would be followed by changes that it holds already.
#[tokio::test]
async fn the_state_of_many_groups_and_its_cursor_are_of_one_read() {
    let server = Server::on(Restless::new(), ServerConfig::default()).await;
    for _ in 0..3 {
        let polled: WatchResponse = server.get("/v1/watch?groups=a,b").await.ok();
        let present = polled.state.unwrap();
        for office in &present.offices {
            assert_eq!(office.revision, present.cursor.revision, "{present:?}");
        }
        let mut events = Events::open(&server, "/v1/watch?groups=a,b", None).await;
        let present = events.state().await;
        for office in &present.offices {
            assert_eq!(office.revision, present.cursor.revision, "{present:?}");
        }
        // What happened after the read follows, and nothing else.
        let changed = events.changed().await;
        assert!(changed.cursor > present.cursor, "{changed:?} after {present:?}");
    }
}

/// Over a register the state of a group may be newer than the cursor: then what it holds is not told again.
#[tokio::test]
async fn a_stream_over_a_store_that_reads_groups_one_by_one_tells_nothing_twice() {
    let server = Server::on(Restless::one_by_one(), ServerConfig::default()).await;
    for _ in 0..3 {
        let mut events = Events::open(&server, "/v1/watch?groups=a,b", None).await;
        let present = events.state().await;
        let b = present.offices.iter().find(|office| office.group.as_str() == "b").unwrap();
        assert!(b.revision > present.cursor.revision, "the test tests nothing: {present:?}");
        let changed = events.changed().await;
        assert!(changed.cursor.revision > b.revision, "{changed:?} after {present:?}");
    }
}
