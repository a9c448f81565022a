//! What clients send to servers and to the gateway, and what servers answer.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Version};
use prost::Message;
use regent::fencing::http::{refusal, term_of, value_of};
use regent_api::decode::{from_body, from_query, group};
use regent_api::grpc as pb;
use regent_api::{Problem, WatchEvent};
use regent_server::{Auth, Listener, ServerConfig, serve};
use regent_stores::MemoryStore;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;

use crate::with_text;

/// Reads a body. What is read is written, and read again.
fn body<T: DeserializeOwned + Serialize + PartialEq>(bytes: &[u8]) {
    if let Ok(read) = from_body::<T>(bytes) {
        let written = serde_json::to_vec(&read).expect("a request can be written");
        assert!(from_body::<T>(&written).is_ok_and(|again| again == read), "{:?}", text(&written));
    }
}

fn query<T: DeserializeOwned>(bytes: &[u8]) {
    with_text(bytes, |text| {
        let _ = from_query::<T>(text);
    });
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The first byte chooses among these, the others are the input.
fn one_of(bytes: &[u8], all: &[fn(&[u8])]) {
    if let Some((first, rest)) = bytes.split_first() {
        all[usize::from(*first) % all.len()](rest);
    }
}

/// Bodies and queries of the API.
pub(crate) fn api(bytes: &[u8]) {
    with_text(bytes, |text| {
        let _ = group(text);
    });
    one_of(
        bytes,
        &[
            body::<regent_api::CampaignRequest>,
            body::<regent_api::RenewRequest>,
            body::<regent_api::TenureRequest>,
            body::<regent_api::HandOverRequest>,
            body::<regent_api::WithdrawRequest>,
            body::<regent_api::StepDownRequest>,
            body::<regent_api::MoveGroupRequest>,
            body::<regent_api::ValidateTokenRequest>,
            body::<regent_api::PutGroupRequest>,
            body::<regent_api::OpenSessionRequest>,
            body::<regent_api::HeartbeatRequest>,
            body::<regent_api::ShowSessionRequest>,
            body::<regent_api::CloseSessionRequest>,
            body::<regent_api::AddMemberRequest>,
            body::<regent_api::PromoteMemberRequest>,
            body::<regent_api::RemoveMemberRequest>,
            body::<regent_api::TransferClusterRequest>,
            body::<regent_api::PutBindingsRequest>,
            body::<regent_api::CreateAuthTokenRequest>,
            body::<regent_api::RevokeAuthTokenRequest>,
            query::<regent_api::LeaderQuery>,
            query::<regent_api::WatchQuery>,
            query::<regent_api::WatchManyQuery>,
            query::<regent_api::GroupsQuery>,
            query::<regent_api::DeleteGroupQuery>,
            query::<regent_api::FencesQuery>,
            query::<regent_api::DeleteFenceQuery>,
            query::<regent_api::ClaimsQuery>,
        ],
    );
}

macro_rules! message {
    ($($name:ident)*) => {
        &[$(|bytes| {
            if let Ok(message) = pb::$name::decode(bytes) {
                let _ = message.read();
            }
        },)*]
    };
}

/// Messages that clients send, as checked requests; what they receive, as answers.
pub(crate) fn grpc(bytes: &[u8]) {
    let _ = pb::SessionUp::decode(bytes);
    let _ = pb::SessionDown::decode(bytes);
    if let Ok(message) = pb::Follow::decode(bytes) {
        let _ = message.read(64);
    }
    if let Ok(message) = pb::Office::decode(bytes) {
        let _ = message.received();
    }
    if let Ok(message) = pb::CampaignResponse::decode(bytes) {
        let _ = message.received();
    }
    one_of(
        bytes,
        message! {
            CampaignRequest RenewRequest ResignRequest WithdrawRequest AcceptRequest OfferRequest WarmRequest
            TransferRequest LeaderRequest WatchRequest WatchManyRequest StepDownRequest TokenRequest
            ValidateTokenRequest ListFencesRequest DeleteFenceRequest HistoryRequest PutGroupRequest ShowGroupRequest
            DeleteGroupRequest MoveGroupRequest ListGroupsRequest OpenSessionRequest HeartbeatRequest ClaimsRequest
            ShowSessionRequest CloseSessionRequest CreateAuthTokenRequest RevokeAuthTokenRequest
        },
    );
}

/// What servers answer: problems, events of a watch in whatever pieces, refusals of fences.
pub(crate) fn answer(bytes: &[u8]) {
    let whole = regent::remote::fuzz_events(bytes, usize::MAX);
    let piece = usize::from(bytes.first().copied().unwrap_or(1) % 7) + 1;
    assert_eq!(regent::remote::fuzz_events(bytes, piece), whole, "events depend on pieces");
    for (name, data) in whole {
        let _ = WatchEvent::parse(&name, &data);
    }
    if let Ok(problem) = serde_json::from_slice::<Problem>(bytes) {
        let written = serde_json::to_vec(&problem).expect("a problem can be written");
        assert!(serde_json::from_slice::<Problem>(&written).is_ok());
    }
    for status in [409, 412, 503] {
        let _ = refusal(status, bytes);
    }
}

/// The head of a request to the gateway: a method and a path in the first line, then one header a line; and its mark.
pub(crate) fn gateway(bytes: &[u8]) {
    regent_gateway::mark::fuzz(bytes);
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let first = text(lines.next().unwrap_or_default());
    let (method, path) = first.split_once(' ').unwrap_or((&first, "/"));
    let (Ok(method), Ok(uri)) = (Method::from_bytes(method.as_bytes()), path.parse()) else {
        return;
    };
    let mut request = Request::new(http_body_util::Empty::new());
    *request.method_mut() = method;
    *request.uri_mut() = hyper::Uri::clone(&uri);
    *request.version_mut() = Version::HTTP_11;
    for line in lines {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..at]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&line[at + 1..])) {
            request.headers_mut().append(name, value);
        }
    }
    if let Ok(term) = term_of(request.headers()) {
        let value = value_of(term);
        assert_eq!(request.headers().get("regent-term"), Some(&value), "a term has one spelling");
    }
    regent_gateway::fuzz(&mut request);
}

/// A server on a socket, over a store in memory; whoever asks it is an administrator.
struct Site {
    runtime: Runtime,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

/// How long a server waits for what does not come, and the fuzzer for a server.
const PATIENCE: Duration = Duration::from_millis(50);
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Ends a connection whose requests were all answered.
const LAST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

impl Site {
    fn get() -> &'static Self {
        static SITE: OnceLock<Site> = OnceLock::new();
        SITE.get_or_init(|| Self::start().expect("a server over a socket can be started"))
    }

    fn start() -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700))?;
        let socket = folder.path().join("socket");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let inside = runtime.enter();
        let listener = UnixListener::bind(&socket)?;
        let store = Arc::new(MemoryStore::new().map_err(std::io::Error::other)?);
        let config = ServerConfig {
            auth: Auth::Required,
            requests_per_principal: 0,
            renewals_per_principal: 0,
            head_timeout: PATIENCE,
            body_timeout: PATIENCE,
            ..ServerConfig::default()
        };
        runtime.spawn(async move {
            let served =
                serve(vec![Listener::Unix(listener)], store, config, std::future::pending());
            served.await.expect("the server serves");
        });
        drop(inside);
        Ok(Self { runtime, socket, _folder: folder })
    }

    /// What is answered to these bytes and one more request.
    async fn exchange(&self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let mut answer = Vec::new();
        let talk = async {
            // Whoever is refused may not read all of it.
            let _ = stream.write_all(bytes).await;
            let _ = stream.write_all(LAST).await;
            let _ = stream.read_to_end(&mut answer).await;
        };
        let _ = tokio::time::timeout(ANSWERED_WITHIN, talk).await;
        Ok(answer)
    }
}

/// A whole connection to a server: whatever comes, no answer says that the server failed.
pub(crate) fn http(bytes: &[u8]) {
    let site = Site::get();
    let answer = site.runtime.block_on(site.exchange(bytes)).expect("the server accepts");
    let has = |needle: &[u8]| answer.windows(needle.len()).any(|window| window == needle);
    for status in ["HTTP/1.1 500 ", "HTTP/1.1 501 ", "HTTP/1.1 502 "] {
        assert!(!has(status.as_bytes()), "{} was answered: {}", text(bytes), text(&answer));
    }
}
