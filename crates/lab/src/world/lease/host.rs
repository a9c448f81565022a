//! One process that serves elections over the engine: the real lease, whole, on a runtime of its own.
//!
//! The runtime has no timer and no network, and one thread, the world's. It is run only when the world
//! hands the process something, until every task waits; so a process that stands still does nothing at
//! all, and one that dies is dropped with everything it was about to do.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use regent_election::Cursor;
use regent_election::store::{Scope, Store};
use regent_stores::LeaseStore;
use regent_stores::register::RegisterResult;
use regent_stores::time::Time;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

use super::engine::EngineAnswer as Answer;
use super::port::{Fresh, Port, SharedPort, Wire, WorldTime, lock};
use super::serve;
use crate::clock::Clock;
use crate::dice::Dice;
use crate::plan::RegisterPlan;
use crate::world::net::Address;
use crate::world::parcel::{Ask, Item, Parcel};

/// How often a watch says that everything was delivered.
const MARK_EVERY: Duration = Duration::from_millis(300);

/// A process and its machine.
#[derive(Debug)]
pub(in crate::world) struct Host {
    pub(super) clock: Clock,
    /// Strikes that keep it paused.
    pub(super) pauses: u32,
    /// How long it takes to come round.
    pub(super) lag_ns: u64,
    pub(super) runs: u64,
    pub(super) running: Option<Box<Running>>,
}

/// What a process is handed.
#[derive(Debug)]
pub(super) enum Handed {
    Ask {
        client: u32,
        call: u64,
        ask: Ask,
        wait: Duration,
    },
    Watch {
        client: u32,
        watch: u64,
        scope: Scope,
        cursor: Option<Cursor>,
    },
    Unwatch {
        watch: u64,
    },
    /// The client of this call is gone.
    HangUp {
        call: u64,
    },
    Answered {
        token: u64,
        answer: RegisterResult<Answer>,
    },
    TimedOut {
        token: u64,
    },
    Slept {
        token: u64,
    },
}

/// One run of a process.
pub(super) struct Running {
    pub(super) run: u64,
    pub(super) port: SharedPort,
    pub(super) inbox: VecDeque<Handed>,
    pub(super) outbox: VecDeque<(Address, Parcel)>,
    pub(super) turn_at: Option<u64>,
    store: Arc<LeaseStore>,
    asks: BTreeMap<u64, AbortHandle>,
    watches: BTreeMap<u64, AbortHandle>,
    idle: Arc<Idle>,
    runtime: Runtime,
}

impl Running {
    pub(super) fn start(
        run: u64,
        now: u64,
        clock: Clock,
        drift_ppm: u32,
        dice: Dice,
        plan: RegisterPlan,
    ) -> Self {
        let idle = Arc::new(Idle::default());
        let parked = Arc::clone(&idle);
        let runtime = Builder::new_current_thread()
            .on_thread_park(move || parked.reached())
            .build()
            .expect("a runtime without drivers needs nothing of the system");
        let port = Arc::new(Mutex::new(Port::new(now, clock, drift_ppm, dice)));
        let wire = Wire {
            port: Arc::clone(&port),
            times_sessions: plan.times_sessions,
            poll_every: plan.poll_ms.map(Duration::from_millis),
        };
        let time = Arc::new(WorldTime(Arc::clone(&port)));
        let store = {
            let _within = runtime.enter();
            Arc::new(LeaseStore::with_time(Arc::new(wire), time))
        };
        Self {
            run,
            port,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            turn_at: None,
            store,
            asks: BTreeMap::new(),
            watches: BTreeMap::new(),
            idle,
            runtime,
        }
    }

    /// Hands it everything that waits, one after the other, and says what it has to say.
    pub(super) fn turn(&mut self, now: u64) -> Fresh {
        lock(&self.port).now = now;
        while let Some(handed) = self.inbox.pop_front() {
            self.take(handed);
            self.idle.begin();
            self.runtime.block_on(UntilIdle(Arc::clone(&self.idle)));
        }
        std::mem::take(&mut lock(&self.port).fresh)
    }

    fn take(&mut self, handed: Handed) {
        match handed {
            Handed::Ask { client, call, ask, wait } => {
                self.asks.retain(|_, task| !task.is_finished());
                let (store, port) = (Arc::clone(&self.store), Arc::clone(&self.port));
                let task = self.spawn(async move {
                    let response = Box::new(serve::serve(&*store, ask, wait).await);
                    let reply = Parcel::Reply { call, response };
                    lock(&port).fresh.said.push((Address::Client(client), reply));
                });
                self.asks.insert(call, task);
            }
            Handed::Watch { client, watch, scope, cursor } => {
                let (store, port) = (Arc::clone(&self.store), Arc::clone(&self.port));
                let task = self.spawn(tell(store, port, client, watch, scope, cursor));
                self.watches.insert(watch, task);
            }
            Handed::Unwatch { watch } => {
                if let Some(task) = self.watches.remove(&watch) {
                    task.abort();
                }
            }
            Handed::HangUp { call } => {
                if let Some(task) = self.asks.remove(&call) {
                    task.abort();
                }
            }
            Handed::Answered { token, answer } => lock(&self.port).answered(token, answer),
            Handed::TimedOut { token } => lock(&self.port).timed_out(token),
            Handed::Slept { token } => lock(&self.port).wake(token),
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let guarded = Guarded { task: Box::pin(task), port: Arc::clone(&self.port) };
        self.runtime.spawn(guarded).abort_handle()
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("run", &self.run).finish_non_exhaustive()
    }
}

/// Delivers what a watch tells, and marks, until the store ends it.
async fn tell(
    store: Arc<LeaseStore>,
    port: SharedPort,
    client: u32,
    watch: u64,
    scope: Scope,
    cursor: Option<Cursor>,
) {
    let Ok(mut watching) = store.watch(scope, cursor).await else { return };
    let time = WorldTime(Arc::clone(&port));
    for number in 1.. {
        let item = tokio::select! {
            biased;
            item = watching.next() => match item {
                Some(item) => Item::Hub(item),
                None => return,
            },
            () = time.sleep(MARK_EVERY) => Item::Mark(watching.cursor()),
        };
        let parcel = Parcel::Item { watch, number, item };
        lock(&port).fresh.said.push((Address::Client(client), parcel));
    }
}

/// A task whose panic is told to the world: a runtime would swallow it.
struct Guarded<F> {
    task: Pin<Box<F>>,
    port: SharedPort,
}

impl<F: Future<Output = ()>> Future for Guarded<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &mut self.task;
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(panic) => {
                let said = panic.downcast_ref::<String>().map(String::as_str);
                let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
                let how = said.unwrap_or("without a word").to_owned();
                lock(&self.port).fresh.panicked = Some(how);
                Poll::Ready(())
            }
        }
    }
}

/// Whether every task of a runtime waits: it is about to park its thread.
#[derive(Debug, Default)]
struct Idle {
    is_reached: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Idle {
    fn begin(&self) {
        self.is_reached.store(false, Ordering::Relaxed);
    }

    fn reached(&self) {
        self.is_reached.store(true, Ordering::Relaxed);
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Ready when every task waits.
struct UntilIdle(Arc<Idle>);

impl Future for UntilIdle {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.is_reached.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = Some(context.waker().clone());
        Poll::Pending
    }
}
