//! The session stream over real TCP: a whole life on one connection, resumed, crowded and abused.

use std::time::Duration;

use regent_api::Code;
use regent_api::grpc as pb;
use regent_api::grpc::ask::Verb;
use regent_api::grpc::session_down::Message as Down;
use regent_api::grpc::session_up::Message as Up;
use regent_api::grpc::watch_event::Event;
use regent_api::grpc::{answer, heartbeat_answer, status};
use regent_server::ServerConfig;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};

use crate::support::{Server, lead, patiently, problem, resign, secret};

/// One end of a stream.
struct Stream {
    up: mpsc::UnboundedSender<pb::SessionUp>,
    down: Streaming<pb::SessionDown>,
    welcome: pb::Welcome,
    asked: u64,
}

fn hello(node: &str, session_id: &str) -> pb::Hello {
    pb::Hello {
        node_id: node.to_owned(),
        ttl_ms: Some(60_000),
        session_id: session_id.to_owned(),
        ..pb::Hello::default()
    }
}

fn follows(hello: pb::Hello, groups: &[&str], cursor: Option<String>) -> pb::Hello {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    pb::Hello { follow: Some(pb::Follow { groups, prefix: None, cursor }), ..hello }
}

impl Stream {
    async fn try_open(server: &Server, first: Up) -> Result<Self, Status> {
        let (up, ups) = mpsc::unbounded_channel();
        up.send(pb::SessionUp { message: Some(first) }).unwrap();
        let asked = server.client().session(UnboundedReceiverStream::new(ups)).await;
        let mut down = asked?.into_inner();
        let message = patiently("a welcome", down.message()).await?.unwrap().message;
        let Some(Down::Welcome(welcome)) = message else { panic!("{message:?} came first") };
        Ok(Self { up, down, welcome, asked: 0 })
    }

    async fn open(server: &Server, hello: pb::Hello) -> Self {
        Self::try_open(server, Up::Hello(hello)).await.unwrap()
    }

    fn send(&self, message: Up) {
        self.up.send(pb::SessionUp { message: Some(message) }).unwrap();
    }

    fn heartbeat(&self, sequence: u64) {
        self.send(Up::Heartbeat(pb::Heartbeat { sequence, ..pb::Heartbeat::default() }));
    }

    fn ask(&mut self, verb: Verb) -> u64 {
        self.asked += 1;
        self.send(Up::Ask(pb::Ask { number: self.asked, verb: Some(verb) }));
        self.asked
    }

    async fn next(&mut self) -> Result<Option<Down>, Status> {
        let message = patiently("a message", self.down.message()).await?;
        Ok(message.map(|down| down.message.expect("this version knows its own messages")))
    }

    /// The next message that `wanted` wants; what comes before it is skipped.
    async fn until<T>(&mut self, mut wanted: impl FnMut(Down) -> Option<T>) -> T {
        loop {
            let message = self.next().await.unwrap().expect("the stream goes on");
            if let Some(found) = wanted(message) {
                return found;
            }
        }
    }

    async fn answer(&mut self, verb: Verb) -> answer::Outcome {
        let number = self.ask(verb);
        self.until(|down| match down {
            Down::Answer(answer) if answer.number == number => answer.outcome,
            _ => None,
        })
        .await
    }

    /// The problem that the stream ends with, of this code.
    async fn end(&mut self, code: Code) {
        let status = loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended without a problem"),
                Err(status) => break status,
            }
        };
        problem(&status, code);
    }
}

fn campaign(group: &str) -> Verb {
    Verb::Campaign(pb::CampaignRequest {
        group: group.to_owned(),
        ..pb::CampaignRequest::default()
    })
}

fn resign_from(group: &str, term: u64) -> Verb {
    let group = group.to_owned();
    Verb::Resign(pb::ResignRequest { group, term, ..pb::ResignRequest::default() })
}

fn event_of(down: Down) -> Option<Event> {
    match down {
        Down::Event(event) => event.event,
        _ => None,
    }
}

#[tokio::test]
async fn a_whole_life_fits_one_stream() {
    let server = Server::start().await;
    let mut stream = Stream::open(&server, follows(hello("a", &secret(1)), &["g"], None)).await;
    let session = stream.welcome.session.clone().unwrap();
    assert_eq!((session.node_id.as_str(), session.ttl_ms), ("a", 60_000));
    let state = stream.until(event_of).await;
    assert!(matches!(state, Event::State(_)), "{state:?}");

    let answer::Outcome::Campaign(won) = stream.answer(campaign("g")).await else { panic!() };
    assert!(won.elected);
    let changed = stream.until(event_of).await;
    assert!(matches!(&changed, Event::LeaderChanged(changed) if changed.term == 1), "{changed:?}");
    stream.heartbeat(1);
    let heard = stream
        .until(|down| match down {
            Down::Heartbeat(answer) if answer.sequence == 1 => answer.outcome,
            _ => None,
        })
        .await;
    assert!(matches!(heard, heartbeat_answer::Outcome::Heartbeat(heard) if heard.ttl_ms == 60_000));
    let shown = stream.answer(Verb::Show(pb::ShowSessionRequest::default())).await;
    assert!(matches!(shown, answer::Outcome::Session(shown) if shown.tenures.len() == 1));
    let asked = pb::LeaderRequest { group: "g".to_owned(), consistency: 0 };
    let told = stream.answer(Verb::Leader(asked)).await;
    assert!(matches!(told, answer::Outcome::Leader(told) if told.office.is_some()));
    let done = stream.answer(resign_from("g", 1)).await;
    assert!(matches!(done, answer::Outcome::Done(_)));
    let closed = stream.answer(Verb::Close(pb::CloseSessionRequest::default())).await;
    assert!(matches!(closed, answer::Outcome::Done(_)));
    // Closing the session is the end of its stream, and a good one.
    while stream.next().await.unwrap().is_some() {}
    let gone = pb::ShowSessionRequest { session_id: secret(1) };
    problem(&server.client().show_session(gone).await.unwrap_err(), Code::SessionExpired);
}

#[tokio::test]
async fn a_standby_is_told_of_its_election_with_the_proof() {
    let server = Server::start().await;
    let office = lead(&mut server.client(), "g", "other").await;
    let mut stream = Stream::open(&server, follows(hello("a", &secret(1)), &["g"], None)).await;
    let answer::Outcome::Campaign(lost) = stream.answer(campaign("g")).await else { panic!() };
    assert!(!lost.elected && lost.standing);
    resign(&mut server.client(), &office).await;
    let mut is_told = false;
    let elected = stream
        .until(|down| match down {
            Down::Holds(holds) => {
                is_told |=
                    holds.tenures.iter().any(|tenure| tenure.group == "g" && tenure.term == 2);
                None
            }
            Down::Event(event) => match event.event {
                Some(Event::LeaderChanged(changed)) if changed.leader.is_some() => Some(changed),
                _ => None,
            },
            _ => None,
        })
        .await;
    assert_eq!((elected.leader.as_deref(), elected.term), (Some("a"), 2));
    assert!(is_told, "the event came before what the session holds");
    let accept = pb::AcceptRequest { group: "g".to_owned(), term: 2, ..Default::default() };
    let accepted = stream.answer(Verb::Accept(accept)).await;
    assert!(matches!(accepted, answer::Outcome::Heartbeat(_)));
}

#[tokio::test]
async fn a_leader_that_follows_nothing_learns_of_its_end_with_its_next_heartbeat() {
    let server = Server::start().await;
    let mut stream = Stream::open(&server, hello("a", &secret(1))).await;
    stream.answer(campaign("g")).await;
    let down = pb::StepDownRequest {
        group: "g".to_owned(),
        reason: "an upgrade".to_owned(),
        ..pb::StepDownRequest::default()
    };
    server.client().step_down(down).await.unwrap();
    stream.heartbeat(1);
    let holds = stream
        .until(|down| match down {
            Down::Holds(holds) => Some(holds),
            _ => None,
        })
        .await;
    assert_eq!(holds.tenures[0].state(), pb::OfficeState::Ending);
}

#[tokio::test]
async fn a_broken_stream_resumes_its_session_and_its_events() {
    let server = Server::start().await;
    let mut first = Stream::open(&server, follows(hello("a", &secret(1)), &["g", "h"], None)).await;
    first.answer(campaign("g")).await;
    let Event::LeaderChanged(seen) = first
        .until(|down| event_of(down).filter(|event| matches!(event, Event::LeaderChanged(_))))
        .await
    else {
        unreachable!("only a change was wanted")
    };
    drop(first);
    // What happens while nobody listens is not lost.
    let office = lead(&mut server.client(), "h", "b").await;
    resign(&mut server.client(), &office).await;
    let resumed = pb::Hello { resume: true, ..hello("a", &secret(1)) };
    let resumed = follows(resumed, &["g", "h"], Some(seen.cursor));
    let mut second = Stream::open(&server, resumed).await;
    let session = second.welcome.session.clone().unwrap();
    assert_eq!(session.tenures[0].group, "g");
    let mut leaders = Vec::new();
    for _ in 0..2 {
        let Event::LeaderChanged(changed) = second.until(event_of).await else { panic!("a gap") };
        assert_eq!(changed.group, "h");
        leaders.push(changed.leader);
    }
    assert_eq!(leaders, [Some("b".to_owned()), None]);
}

#[tokio::test]
async fn a_session_that_is_gone_is_not_resumed_and_not_opened() {
    let server = Server::start().await;
    let gone = pb::Hello { resume: true, ..hello("a", &secret(1)) };
    let refused = Stream::try_open(&server, Up::Hello(gone)).await.err().unwrap();
    problem(&refused, Code::SessionExpired);
    assert_eq!(server.store.census().await.unwrap().sessions, 0);
    Stream::open(&server, hello("a", &secret(2))).await;
    let another = pb::Hello { resume: true, ..hello("b", &secret(2)) };
    let refused = Stream::try_open(&server, Up::Hello(another)).await.err().unwrap();
    problem(&refused, Code::SessionMismatch);
}

#[tokio::test]
async fn events_wait_for_the_window_and_heartbeats_do_not() {
    let server = Server::start().await;
    let windowed = pb::Hello { window: Some(2), ..hello("a", &secret(1)) };
    let mut stream = Stream::open(&server, follows(windowed, &["g"], None)).await;
    for _ in 0..10 {
        let office = lead(&mut server.client(), "g", "b").await;
        resign(&mut server.client(), &office).await;
    }
    // The state and one change fit the window; nineteen changes wait.
    for _ in 0..2 {
        stream.until(event_of).await;
    }
    let mut events = 2;
    for sequence in 1..=5 {
        stream.heartbeat(sequence);
        loop {
            match stream.next().await.unwrap().unwrap() {
                Down::Heartbeat(answer) => {
                    assert_eq!(answer.sequence, sequence);
                    break;
                }
                Down::Event(event) => panic!("{event:?} came beyond the window"),
                _ => {}
            }
        }
    }
    while events < 21 {
        stream.send(Up::Taken(pb::Taken { events }));
        stream.until(event_of).await;
        events += 1;
    }
}

#[tokio::test]
async fn what_a_participant_follows_can_change() {
    let server = Server::start().await;
    let mut stream = Stream::open(&server, follows(hello("a", &secret(1)), &["g"], None)).await;
    stream.until(event_of).await;
    let follow = pb::Follow { groups: Vec::new(), prefix: Some("h".to_owned()), cursor: None };
    stream.send(Up::Follow(follow));
    let state = stream.until(event_of).await;
    assert!(matches!(&state, Event::State(present) if present.offices.is_empty()), "{state:?}");
    lead(&mut server.client(), "g", "b").await;
    lead(&mut server.client(), "h1", "b").await;
    let Event::LeaderChanged(changed) = stream.until(event_of).await else { panic!("no change") };
    assert_eq!(changed.group, "h1");
}

#[tokio::test]
async fn a_silent_participant_is_warned_and_then_left_to_resume() {
    let server = Server::start().await;
    let brief = pb::Hello { ttl_ms: Some(600), ..hello("a", &secret(1)) };
    let mut stream = Stream::open(&server, brief).await;
    let warned = stream
        .until(|down| match down {
            Down::Jeopardy(jeopardy) => Some(jeopardy),
            _ => None,
        })
        .await;
    assert!(warned.unheard_for_ms >= 300 && warned.ttl_ms == 600, "{warned:?}");
    assert!(warned.problem.is_none());
    stream.end(Code::RequestTimeout).await;
}

#[tokio::test]
async fn a_heartbeat_of_a_session_that_ended_says_so_and_ends_the_stream() {
    let server = Server::start().await;
    let mut stream = Stream::open(&server, hello("a", &secret(1))).await;
    let close = pb::CloseSessionRequest { session_id: secret(1) };
    server.client().close_session(close).await.unwrap();
    stream.heartbeat(1);
    let outcome = stream
        .until(|down| match down {
            Down::Heartbeat(answer) => answer.outcome,
            _ => None,
        })
        .await;
    let heartbeat_answer::Outcome::Problem(told) = outcome else { panic!("{outcome:?}") };
    assert_eq!(told.code, Code::SessionExpired.word());
    stream.end(Code::SessionExpired).await;
}

#[tokio::test]
async fn a_closing_server_sends_its_participants_elsewhere() {
    let mut server = Server::start().await;
    let mut stream = Stream::open(&server, hello("a", &secret(1))).await;
    server.stop();
    let stopping = tokio::spawn(async move { server.stopped().await });
    stream.end(Code::ShuttingDown).await;
    patiently("the end of the server", stopping).await.unwrap();
}

#[tokio::test]
async fn streams_that_are_none_are_refused() {
    let server = Server::start().await;
    let heartbeat = Up::Heartbeat(pb::Heartbeat::default());
    let refused = [
        (heartbeat, Code::BadRequest),
        (Up::Hello(pb::Hello::default()), Code::BadRequest),
        (Up::Hello(hello("a b", &secret(1))), Code::BadRequest),
        (Up::Hello(hello("a", "short")), Code::BadRequest),
        (Up::Hello(pb::Hello { ttl_ms: Some(1), ..hello("a", &secret(1)) }), Code::TtlOutOfBounds),
        (Up::Hello(pb::Hello { window: Some(0), ..hello("a", &secret(1)) }), Code::BadRequest),
        (Up::Hello(follows(hello("a", &secret(1)), &["a//b"], None)), Code::BadRequest),
        (Up::Hello(follows(hello("a", &secret(1)), &["g"; 129], None)), Code::BadRequest),
        (Up::Hello(follows(hello("a", &secret(1)), &["g"], Some("x".into()))), Code::BadRequest),
    ];
    for (first, code) in refused {
        let status = Stream::try_open(&server, first).await.err().unwrap();
        problem(&status, code);
    }
    assert_eq!(server.store.census().await.unwrap().sessions, 0);
    server.serves().await;
}

#[tokio::test]
async fn a_stream_acts_for_its_own_session_only() {
    let server = Server::start().await;
    let office = lead(&mut server.client(), "g", "b").await;
    let mut stream = Stream::open(&server, hello("a", &secret(1))).await;
    let strangers = pb::ResignRequest {
        group: "g".to_owned(),
        session_id: office.session_id.clone(),
        term: office.term,
        request_id: None,
    };
    let answer = stream.answer(Verb::Resign(strangers)).await;
    let answer::Outcome::Problem(told) = answer else { panic!("{answer:?}") };
    assert_eq!((told.code.as_str(), told.field.as_deref()), ("BAD_REQUEST", Some("session_id")));
    let mut waiting = pb::CampaignRequest { group: "g".to_owned(), ..Default::default() };
    waiting.wait_ms = Some(1000);
    let answer = stream.answer(Verb::Campaign(waiting)).await;
    assert!(matches!(answer, answer::Outcome::Problem(told) if told.code == "BAD_REQUEST"));
    resign(&mut server.client(), &office).await;
}

#[tokio::test]
async fn a_second_hello_and_an_unreadable_message_end_the_stream() {
    let server = Server::start().await;
    let mut stream = Stream::open(&server, hello("a", &secret(1))).await;
    stream.send(Up::Hello(hello("a", &secret(1))));
    stream.end(Code::BadRequest).await;
    let mut stream = Stream::open(&server, hello("b", &secret(2))).await;
    let huge = pb::CampaignRequest { group: "g".repeat(70 << 10), ..Default::default() };
    stream.ask(Verb::Campaign(huge));
    stream.end(Code::PayloadTooLarge).await;
    server.serves().await;
}

#[tokio::test]
async fn a_hello_that_does_not_come_is_not_waited_for() {
    let server = Server::with(ServerConfig {
        body_timeout: Duration::from_millis(150),
        ..ServerConfig::default()
    })
    .await;
    let outcome = server.raw(crate::support::call(&server, "Session"), b"", false).await;
    outcome.problem(Code::RequestTimeout);
    server.serves().await;
}

#[tokio::test]
async fn requests_without_end_are_refused_and_heartbeats_are_still_answered() {
    let server = Server::start().await;
    let mut stream = Stream::open(&server, hello("a", &secret(1))).await;
    let asked = pb::LeaderRequest { group: "g".to_owned(), consistency: 0 };
    for _ in 0..50 {
        stream.ask(Verb::Leader(asked.clone()));
    }
    stream.heartbeat(1);
    let mut answers = 0;
    let mut is_heard = false;
    while answers < 50 || !is_heard {
        match stream.next().await.unwrap().unwrap() {
            Down::Answer(answer) => {
                assert!(matches!(answer.outcome, Some(answer::Outcome::Leader(_))));
                answers += 1;
            }
            Down::Heartbeat(_) => is_heard = true,
            _ => {}
        }
    }
    // Thousands at once: each is served or refused, or the stream says that it had enough.
    for _ in 0..5000 {
        stream.ask(Verb::Leader(asked.clone()));
    }
    let mut seen = 0;
    while seen < 5000 {
        match stream.next().await {
            Ok(Some(Down::Answer(answer))) => {
                match answer.outcome {
                    Some(answer::Outcome::Leader(_)) => {}
                    Some(answer::Outcome::Problem(told)) => assert_eq!(told.code, "RATE_LIMITED"),
                    other => panic!("{other:?}"),
                }
                seen += 1;
            }
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ended without a word"),
            Err(told) => {
                assert_eq!(status::problem(&told).map(|told| told.code), Some(Code::RateLimited));
                break;
            }
        }
    }
    server.serves().await;
}

/// L7: a stream holds its connection for as long as it lives, so the last places are not for streams.
#[tokio::test]
async fn streams_leave_the_reserve_of_connections_to_renewals() {
    let config = ServerConfig { connections_per_address_max: 32, ..ServerConfig::default() };
    let server = Server::with(config).await;
    let (mut streams, mut refused) = (Vec::new(), 0);
    for number in 1..=40 {
        match Stream::try_open(&server, Up::Hello(hello("a", &secret(number)))).await {
            Ok(stream) => streams.push(stream),
            Err(told) => {
                problem(&told, Code::RateLimited);
                refused += 1;
            }
        }
    }
    assert_eq!((streams.len(), refused), (30, 10));
    server.serves().await;
}
