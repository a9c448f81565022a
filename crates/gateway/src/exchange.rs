//! One request on its way to the upstream and its answer on the way back.
//!
//! An exchange is a task of its own, so that it has an end whatever becomes of the client: a write that has
//! left is not over because nobody waits for its answer any more. It ends in one of three ways, and the door
//! is told which: the whole answer came, nothing left, or nobody knows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::{Request, Response, StatusCode};
use regent::fencing::http::door::{Order, Pass};
use regent::fencing::http::{problem_of, problem_of_cut};
use regent_api::{Code, Problem};
use regent_clock::now;
use regent_election::FenceError;
use regent_election::fence::doorkeeper::RequestEnd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::body::{GatewayAnswer, Progress, Upload};
use crate::headers::towards_client;
use crate::limits::FRAMES_AHEAD_MAX;
use crate::upstream::Connection;

type Head = oneshot::Sender<Result<Response<GatewayAnswer>, Problem>>;

/// Passes a request on and gives the answer, as soon as its head is there.
///
/// Without a pass it is a read: it is simply dropped when the client goes.
pub(crate) async fn exchange(
    app: Arc<App>,
    request: Request<Incoming>,
    pass: Option<Pass>,
) -> Result<Response<GatewayAnswer>, Problem> {
    let (tell, told) = oneshot::channel();
    tokio::spawn(run(app, request, Holder(pass), tell));
    told.await.unwrap_or_else(|_| {
        Err(Problem::new(
            Code::Uncertain,
            "the request was dropped on its way; it may have happened",
        ))
    })
}

/// The pass, if there is one.
struct Holder(Option<Pass>);

impl Holder {
    fn over(self, ended: RequestEnd) {
        if let Some(pass) = self.0 {
            pass.over(ended);
        }
    }

    /// Waits until it is told at least to hurry.
    async fn hurried(&mut self) -> Order {
        self.told(|order| order > Order::Stay).await
    }

    /// Waits until it is told to close.
    async fn closed(&mut self) -> Order {
        self.told(|order| matches!(order, Order::Close(_))).await
    }

    async fn told(&mut self, is_it: impl Fn(Order) -> bool) -> Order {
        match &mut self.0 {
            Some(pass) => pass.told(is_it).await,
            None => std::future::pending().await,
        }
    }

    fn is_hurried(&self) -> bool {
        self.0.as_ref().is_some_and(|pass| pass.order() > Order::Stay)
    }

    /// What the client is told of a request that was cut on its way.
    fn cut(&self, order: Order) -> Problem {
        match (&self.0, order) {
            (Some(pass), Order::Hurry(current) | Order::Close(current)) => {
                problem_of_cut(pass.term(), current)
            }
            (Some(_) | None, _) => lost("it was cut"),
        }
    }

    /// What the client is told of a request that did not leave.
    fn superseded(&self, order: Order) -> Problem {
        match (&self.0, order) {
            (Some(pass), Order::Hurry(current) | Order::Close(current)) => {
                problem_of(FenceError::Stale { given: pass.term(), current })
            }
            (Some(_) | None, _) => lost("it was cut"),
        }
    }
}

fn lost(why: &str) -> Problem {
    Problem::new(Code::Uncertain, format!("{why}; the request may have taken effect"))
}

fn unreachable(why: &std::io::Error) -> Problem {
    let detail = format!("the upstream cannot be reached: {why}; nothing was passed on");
    Problem::new(Code::UpstreamUnavailable, detail).retry_after(1000)
}

async fn run(app: Arc<App>, request: Request<Incoming>, mut pass: Holder, head: Head) {
    let progress = Arc::new(Progress::default());
    let (connection, answer) = match send(&app, request, &mut pass, &progress).await {
        Ok(sent) => sent,
        Err((ended, problem)) => {
            pass.over(ended);
            let _ = head.send(Err(problem));
            return;
        }
    };
    let (mut parts, body) = answer.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        connection.close().await;
        pass.over(RequestEnd::Unknown);
        let _ = head.send(Err(lost("the upstream changed the protocol, which nobody asked for")));
        return;
    }
    towards_client(&mut parts.headers);
    let (frames, coming) = mpsc::channel(FRAMES_AHEAD_MAX);
    let stream = GatewayAnswer::Stream { frames: coming, hint: body.size_hint(), is_over: false };
    let is_there = head.send(Ok(Response::from_parts(parts, stream))).is_ok();
    let client = is_there.then_some(frames);
    let ended = carry(&app, body, client, &mut pass).await;
    match ended {
        // An answer that came before the request had left in full: the rest must not follow.
        Carried::Whole(_) if !progress.is_sent() => connection.close().await,
        Carried::Whole(_) => app.upstream.keep(connection),
        Carried::Cut => connection.close().await,
    }
    pass.over(match ended {
        Carried::Whole(_) => RequestEnd::Settled,
        Carried::Cut => RequestEnd::Unknown,
    });
    if let Carried::Whole(Some(client)) = ended {
        // The last word after the pass is back: whoever reads it finds the door as it says.
        let _ = timeout(app.timing.idle, client.send(None)).await;
    }
}

/// Sends a request and waits for the head of its answer.
async fn send(
    app: &App,
    request: Request<Incoming>,
    pass: &mut Holder,
    progress: &Arc<Progress>,
) -> Result<(Connection, Response<Incoming>), (RequestEnd, Problem)> {
    let (parts, body) = request.into_parts();
    let sent = pass.0.as_ref().map(|pass| Box::new(pass.sent()) as Box<dyn FnOnce() + Send + Sync>);
    let mut connection = tokio::select! {
        biased;
        order = pass.closed() => return Err((RequestEnd::Settled, pass.superseded(order))),
        made = app.upstream.connection() => {
            made.map_err(|error| (RequestEnd::Settled, unreachable(&error)))?
        }
    };
    let began_at = now();
    let mut request = Request::from_parts(parts, Upload::new(body, Arc::clone(progress), sent));
    loop {
        let is_used = connection.is_used;
        let outcome = {
            let mut sending = pin!(connection.sender.try_send_request(request));
            tokio::select! {
                biased;
                outcome = &mut sending => Ok(outcome),
                order = pass.closed() => Err(pass.cut(order)),
                () = stalled(app, progress) => Err(lost(if progress.is_sent() {
                    "the upstream did not answer in time"
                } else {
                    "the request came too slowly, or the upstream took it too slowly"
                })),
            }
        };
        match outcome {
            Ok(Ok(answer)) => {
                app.metrics.answered(now().since(began_at));
                return Ok((connection, answer));
            }
            Ok(Err(mut failed)) => {
                let unsent = failed.take_message();
                connection.close().await;
                let Some(unsent) = unsent else {
                    let why = format!("the upstream did not answer: {}", failed.error());
                    return Err((RequestEnd::Unknown, lost(&why)));
                };
                if !is_used {
                    let error = std::io::Error::other(failed.into_error());
                    return Err((RequestEnd::Settled, unreachable(&error)));
                }
                // Nothing of it has left: the upstream had closed a connection that waited.
                request = unsent;
                connection = app
                    .upstream
                    .fresh()
                    .await
                    .map_err(|error| (RequestEnd::Settled, unreachable(&error)))?;
            }
            Err(problem) => {
                connection.close().await;
                return Err((RequestEnd::Unknown, problem));
            }
        }
    }
}

/// Waits until nothing has moved for too long.
async fn stalled(app: &App, progress: &Progress) {
    let mut seen = progress.frames();
    let mut was_sent = progress.is_sent();
    loop {
        sleep(if was_sent { app.timing.answer } else { app.timing.idle }).await;
        let (frames, is_sent) = (progress.frames(), progress.is_sent());
        if frames == seen && is_sent == was_sent {
            return;
        }
        (seen, was_sent) = (frames, is_sent);
    }
}

type Client = mpsc::Sender<Option<Frame<Bytes>>>;

/// How an answer's body ended.
enum Carried {
    /// Whole; the client, if it is still there, has not been told its end.
    Whole(Option<Client>),
    /// Not whole, or nobody knows.
    Cut,
}

/// Carries the answer's body to the client; to its end, too, if the client has gone.
async fn carry(
    app: &App,
    mut body: Incoming,
    mut client: Option<Client>,
    pass: &mut Holder,
) -> Carried {
    let mut alone_until = None;
    loop {
        if client.is_none() {
            if pass.0.is_none() {
                return Carried::Cut;
            }
            // Nobody waits for it but the door, and the door not for ever.
            alone_until.get_or_insert_with(|| now() + app.timing.answer);
        }
        let left = alone_until.map_or(app.timing.answer, |until| now().until(until));
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            _ = pass.closed() => return Carried::Cut,
            () = sleep(left) => return Carried::Cut,
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => return Carried::Cut,
            None => return Carried::Whole(client),
        };
        if let Some(to) = &client
            && !hand(to, frame, pass, app.timing.idle).await
        {
            client = None;
        }
    }
}

/// Hands a frame to the client, unless it reads too slowly: a higher term waits for no reader.
async fn hand(to: &Client, frame: Frame<Bytes>, pass: &mut Holder, patience: Duration) -> bool {
    match to.try_send(Some(frame)) {
        Ok(()) => true,
        Err(mpsc::error::TrySendError::Closed(_)) => false,
        Err(mpsc::error::TrySendError::Full(_)) if pass.is_hurried() => false,
        Err(mpsc::error::TrySendError::Full(frame)) => tokio::select! {
            biased;
            sent = timeout(patience, to.send(frame)) => matches!(sent, Ok(Ok(()))),
            _ = pass.hurried() => false,
        },
    }
}
