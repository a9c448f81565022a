//! Signals for the program: two of them also mean that this process is to end.

use std::io;

use regent_supervise::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that came.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given {
    /// For the program alone.
    Pass(i32),
    /// This process is to end, too.
    End(i32),
}

impl Given {
    /// Passes it on.
    pub(crate) fn pass(self, handle: &Handle) {
        match self {
            Self::Pass(signal) => handle.signal(signal),
            Self::End(signal) => handle.terminate(signal),
        }
    }
}

/// Every signal that is passed on, from when it is made.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
    user_one: Signal,
    user_two: Signal,
    window: Signal,
}

impl Signals {
    /// Starts to listen. From here on none of them ends the process by itself.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            user_one: signal(SignalKind::user_defined1())?,
            user_two: signal(SignalKind::user_defined2())?,
            window: signal(SignalKind::window_change())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Given {
        let pass = |kind: SignalKind| Given::Pass(kind.as_raw_value());
        let end = |kind: SignalKind| Given::End(kind.as_raw_value());
        tokio::select! {
            _ = self.interrupt.recv() => end(SignalKind::interrupt()),
            _ = self.terminate.recv() => end(SignalKind::terminate()),
            _ = self.hangup.recv() => pass(SignalKind::hangup()),
            _ = self.quit.recv() => pass(SignalKind::quit()),
            _ = self.user_one.recv() => pass(SignalKind::user_defined1()),
            _ = self.user_two.recv() => pass(SignalKind::user_defined2()),
            _ = self.window.recv() => pass(SignalKind::window_change()),
        }
    }
}
