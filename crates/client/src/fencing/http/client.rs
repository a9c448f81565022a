//! The layer of a leader: around a client, every request carries the term, and every answer is heeded.
//!
//! For clients that are `tower` services. A request is sent only if a check passes; an answer that refuses the
//! term is the loss of the office, and comes out as an error like that of any other adapter. Other answers pass
//! as they are, and stream.
//!
//! ```
//! use http_body_util::Full;
//! use hyper::body::Bytes;
//! use hyper_util::client::legacy::Client;
//! use hyper_util::rt::TokioExecutor;
//! use regent::fencing::http::LeaderLayer;
//! use regent::fencing::WriteError;
//! use tower::{Layer, Service, ServiceExt};
//!
//! # async fn example(leadership: regent::Leadership) -> Result<(), WriteError> {
//! let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
//! let mut client = LeaderLayer::new(leadership.clone()).layer(client);
//! let request = hyper::Request::put("http://127.0.0.1:7480/row").body("paid".into()).unwrap();
//! let answer = client.ready().await?.call(request).await?; // stale: an error, and the work stops
//! # Ok(())
//! # }
//! ```

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, Response};
use regent_api::problem::PROBLEM_JSON;
use regent_election::Moment;
use tokio::sync::Mutex;
use tower::{Layer, Service};

use crate::fenced::Permit;
use crate::fencing::{WriteError, WriteResult};
use crate::leadership::Leadership;

/// The largest problem that is read.
const PROBLEM_BYTES_MAX: usize = 64 << 10;
/// A token is good for one ttl, and is asked for again when a third of it has passed.
const TOKEN_PARTS: u32 = 3;

type Boxed = Box<dyn Error + Send + Sync>;

/// Around a client: every request is one of this leader. It holds the leadership: while the layer or a client of
/// it is there, the term is not given up by dropping the other handles.
#[derive(Clone, Debug)]
pub struct LeaderLayer {
    leader: Arc<Leader>,
}

#[derive(Debug)]
struct Leader {
    leadership: Leadership,
    /// Whether terms are sent with the token that proves them, and the one that was given last.
    token: Option<Mutex<Option<Given>>>,
}

#[derive(Debug)]
struct Given {
    token: HeaderValue,
    asked_at: Moment,
}

impl LeaderLayer {
    /// Requests under this leadership.
    #[must_use]
    pub fn new(leadership: Leadership) -> Self {
        Self { leader: Arc::new(Leader { leadership, token: None }) }
    }

    /// Requests under this leadership that carry the signed term as well, for fences that believe nothing else.
    /// The service is asked for it once in a third of a ttl.
    #[must_use]
    pub fn signed(leadership: Leadership) -> Self {
        Self { leader: Arc::new(Leader { leadership, token: Some(Mutex::default()) }) }
    }
}

impl Leader {
    /// The proof that a request may be sent, and what it carries.
    async fn permit(&self, headers: &mut HeaderMap) -> WriteResult<Permit> {
        let token = match &self.token {
            Some(known) => Some(self.token(known).await?),
            None => None,
        };
        // Last of all: whatever was waited for, the check is as fresh as the write.
        let permit = self.leadership.check().map_err(WriteError::failed)?;
        match token {
            Some(token) => permit.stamp_signed(headers, &token),
            None => permit.stamp(headers),
        }
        Ok(permit)
    }

    /// The token at hand, asked for anew if it is old. One asks, the others wait for it.
    async fn token(&self, known: &Mutex<Option<Given>>) -> WriteResult<HeaderValue> {
        let mut known = known.lock().await;
        let permit = self.leadership.check().map_err(WriteError::failed)?;
        let session = permit.session();
        let (now, again_after) = (session.now(), session.budget.ttl() / TOKEN_PARTS);
        if let Some(given) = &*known
            && now.since(given.asked_at) < again_after
        {
            return Ok(given.token.clone());
        }
        let token = permit.token().await?.ok_or_else(|| {
            WriteError::failed(
                "the service gave no signed term: it has no keys, or knows another leader",
            )
        })?;
        *known = Some(Given { token: token.clone(), asked_at: now });
        Ok(token)
    }
}

impl<S> Layer<S> for LeaderLayer {
    type Service = LeaderService<S>;

    fn layer(&self, inner: S) -> LeaderService<S> {
        LeaderService { leader: Arc::clone(&self.leader), inner }
    }
}

/// A client whose requests are a leader's.
#[derive(Clone, Debug)]
pub struct LeaderService<S> {
    leader: Arc<Leader>,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for LeaderService<S>
where
    S: Service<Request<B>, Response = Response<R>, Error: Into<Boxed>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: Body<Data = Bytes, Error: Into<Boxed>> + Send + 'static,
{
    type Response = Response<Either<Full<Bytes>, R>>;
    type Error = WriteError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, WriteError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WriteError>> {
        self.inner.poll_ready(cx).map_err(WriteError::failed)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The one that said it was ready is the one to call.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let leader = Arc::clone(&self.leader);
        Box::pin(async move {
            let permit = leader.permit(request.headers_mut()).await?;
            // What a client says of a failure does not tell whether the request had left.
            let answer = inner.call(request).await.map_err(WriteError::uncertain)?;
            let is_problem =
                answer.headers().get(CONTENT_TYPE).is_some_and(|it| it == PROBLEM_JSON);
            if !is_problem {
                return Ok(answer.map(Either::Right));
            }
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, PROBLEM_BYTES_MAX).collect().await;
            let body = body.map_err(WriteError::uncertain)?.to_bytes();
            permit.heed(head.status.as_u16(), &body)?;
            Ok(Response::from_parts(head, Either::Left(body.into())))
        })
    }
}
