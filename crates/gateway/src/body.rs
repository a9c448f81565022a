//! Bodies on their way: up from a client, down from the upstream. Neither is gathered anywhere.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::mpsc;

/// How far an upload is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    frames: AtomicU64,
    is_sent: AtomicBool,
}

impl Progress {
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Whether the client's body has been handed on to its end.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Acquire)
    }
}

/// A client's body on its way to the upstream.
pub(crate) struct Upload {
    body: Incoming,
    progress: Arc<Progress>,
    /// Whom to tell when all of it has left.
    sent: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl Upload {
    pub(crate) fn new(
        body: Incoming,
        progress: Arc<Progress>,
        sent: Option<Box<dyn FnOnce() + Send + Sync>>,
    ) -> Self {
        let mut upload = Self { body, progress, sent };
        upload.look();
        upload
    }

    fn look(&mut self) {
        if self.body.is_end_stream() {
            self.all_left();
        }
    }

    fn all_left(&mut self) {
        self.progress.is_sent.store(true, Ordering::Release);
        if let Some(tell) = self.sent.take() {
            tell();
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.progress.frames.fetch_add(1, Ordering::Relaxed);
        match &frame {
            Some(Ok(_)) => self.look(),
            Some(Err(_)) => {}
            None => self.all_left(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer ended before it was whole.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer of the upstream was cut")]
pub(crate) struct Cut;

/// What a client is answered with.
#[derive(Debug)]
pub(crate) enum GatewayAnswer {
    /// Something short of our own, until it is taken.
    Whole(Option<Bytes>),
    /// The upstream's body, as it comes.
    Stream {
        /// Where it comes from. If it ends without `None`, the answer was cut.
        frames: mpsc::Receiver<Option<Frame<Bytes>>>,
        /// What the upstream said about its length.
        hint: SizeHint,
        /// Whether its end has come.
        is_over: bool,
    },
}

impl GatewayAnswer {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

impl Body for GatewayAnswer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream { is_over: true, .. } => Poll::Ready(None),
            Self::Stream { frames, is_over, .. } => match ready!(frames.poll_recv(cx)) {
                Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                Some(None) => {
                    *is_over = true;
                    Poll::Ready(None)
                }
                None => {
                    *is_over = true;
                    Poll::Ready(Some(Err(Cut)))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream { is_over, .. } => *is_over,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream { hint, .. } => *hint,
        }
    }
}
