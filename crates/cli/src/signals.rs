//! Being asked to end: `SIGINT` and `SIGTERM`.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::exit::Exit;
use crate::failure::Failure;

/// Counts requests to end, from when it is made: a signal that came before its first wait counts.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// Ready when a service is to end in order.
pub(crate) type Ending = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Signals {
    /// Starts to listen. From here on the signals no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = || {
            let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
            Ok(Self { interrupt: signal(interrupt)?, terminate: signal(terminate)? })
        };
        listen().map_err(|error| unheard(&error))
    }

    /// Waits for the next one and gives its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// Runs a service until it ends by itself. The first signal, or `or_else`, asks it to end in order;
    /// the next signal ends it at once.
    pub(crate) async fn serve<F: Future>(
        &mut self,
        start: impl FnOnce(Ending) -> F,
        or_else: impl Future<Output = ()>,
    ) -> Result<F::Output, Failure> {
        let (tell, told) = oneshot::channel();
        let ending = async {
            let _ = told.await;
        };
        let mut service = Box::pin(start(Box::pin(ending)));
        tokio::select! {
            ended = &mut service => return Ok(ended),
            () = or_else => {}
            name = self.next() => tracing::info!(signal = name, "told to end; once more ends at once"),
        }
        let _ = tell.send(());
        tokio::select! {
            ended = &mut service => Ok(ended),
            name = self.next() => {
                Err(Failure::new(Exit::Interrupted, format!("{name} again: ended at once")))
            }
        }
    }
}

/// The system does not let this process listen to a signal.
pub(crate) fn unheard(error: &io::Error) -> Failure {
    Failure::new(Exit::Unavailable, format!("signals: {error}"))
}
