//! The door: turns the doorkeeper, has its marks kept, and tells those inside when their term is over.
//!
//! Nothing is decided here. Events go into the machine under one lock, and its actions are done under the
//! same lock, in their order; none of them waits. The gateway has one, and so has the middleware.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_clock::now;
use regent_election::fence::doorkeeper::{
    Action, DoorRules, Doorkeeper, Event, RequestEnd, Ticket, TurnedAway,
};
use regent_election::{Moment, Term};
use tokio::sync::{Notify, oneshot, watch};

/// What somebody inside is told, more urgent as it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Nothing: its term is the mark.
    Stay,
    /// A higher term waits: nobody need be answered, but the answer must be awaited.
    Hurry(Term),
    /// A higher term waits: close the connection.
    Close(Term),
}

/// The door that all requests with a term pass.
pub struct Door {
    inner: Mutex<Inner>,
    /// The times of the machine may have changed.
    turned: Notify,
    /// Has a mark kept.
    keep: Box<Keep>,
}

/// Has a mark kept, without waiting for it.
type Keep = dyn Fn(&Arc<Door>, Term) + Send + Sync;

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("looks", &self.looks()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    machine: Doorkeeper,
    callers: HashMap<Ticket, Caller>,
    next: u64,
}

/// How somebody at the door is told.
#[derive(Debug)]
enum Caller {
    Waits(oneshot::Sender<Result<watch::Receiver<Order>, TurnedAway>>),
    Inside(watch::Sender<Order>),
}

/// What the door looks like now.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// The highest term that came.
    pub mark: Term,
    /// How many were let in and are not over.
    pub inside: usize,
    /// How many wait.
    pub waiting: usize,
}

impl Door {
    /// Opens the door at a mark. What was let in before takes no effect from `settled_at` on.
    ///
    /// `keep` is told which mark to keep where a crash cannot lower it, in the middle of things: it must not
    /// wait. When it is done it says [`Door::kept`] or [`Door::not_kept`].
    pub fn open(
        rules: DoorRules,
        kept: Term,
        settled_at: Moment,
        keep: impl Fn(&Arc<Self>, Term) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let machine = Doorkeeper::new(rules, kept, settled_at);
        Arc::new(Self {
            inner: Mutex::new(Inner { machine, callers: HashMap::new(), next: 0 }),
            turned: Notify::new(),
            keep: Box::new(keep),
        })
    }

    /// Waits to be let in under a term.
    pub async fn enter(self: &Arc<Self>, term: Term) -> Result<Pass, TurnedAway> {
        let (tell, told) = oneshot::channel();
        let ticket = {
            let mut inner = self.lock();
            inner.next += 1;
            let ticket = Ticket(inner.next);
            inner.callers.insert(ticket, Caller::Waits(tell));
            self.turn(inner, Event::Arrived { ticket, term });
            ticket
        };
        let mut leaving = Leaving { door: Some(self), ticket };
        let orders = told.await.unwrap_or(Err(TurnedAway::NotKept));
        leaving.door = None;
        Ok(Pass { door: Arc::clone(self), ticket, term, orders: orders?, is_over: false })
    }

    /// Says `Woken` when the machine asked for it, for ever.
    pub async fn keep_time(self: &Arc<Self>) {
        loop {
            let turned = self.turned.notified();
            let wake_at = self.lock().machine.wake_at();
            match wake_at {
                None => turned.await,
                Some(at) => {
                    let wait = now().until(at);
                    if wait.is_zero() {
                        self.tell(Event::Woken);
                        // The machine may still wait for somebody else: no turning on the spot.
                        tokio::task::yield_now().await;
                        continue;
                    }
                    tokio::select! {
                        () = turned => {}
                        () = tokio::time::sleep(wait) => self.tell(Event::Woken),
                    }
                }
            }
        }
    }

    /// How it looks, for metrics.
    #[must_use]
    pub fn looks(&self) -> Looks {
        let inner = self.lock();
        Looks {
            mark: inner.machine.mark(),
            inside: inner.machine.inside_count(),
            waiting: inner.machine.waiting_count(),
        }
    }

    /// Whether nothing that passed can take effect any more.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.lock().machine.is_quiet(now())
    }

    /// The mark is kept, or a higher one that somebody else raised.
    pub fn kept(self: &Arc<Self>, mark: Term) {
        self.tell(Event::Kept { mark });
    }

    /// The mark could not be kept.
    pub fn not_kept(self: &Arc<Self>) {
        self.tell(Event::NotKept);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(self: &Arc<Self>, event: Event) {
        self.turn(self.lock(), event);
    }

    /// Turns the machine and does what it says, all under the lock.
    fn turn(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, event: Event) {
        let Inner { machine, callers, .. } = &mut *inner;
        if let Event::Over { ticket, .. } | Event::Left { ticket } = event {
            callers.remove(&ticket);
        }
        let mut is_plain = true;
        for action in machine.on(now(), event) {
            match action {
                Action::Keep { mark } => (self.keep)(self, mark),
                Action::Admit { ticket } => {
                    let (order, orders) = watch::channel(Order::Stay);
                    let caller = callers.insert(ticket, Caller::Inside(order));
                    // Whoever has gone meanwhile says so by itself: its pass is dropped with the answer.
                    if let Some(Caller::Waits(tell)) = caller {
                        let _ = tell.send(Ok(orders));
                    }
                }
                Action::Refuse { ticket, why } => {
                    if let Some(Caller::Waits(tell)) = callers.remove(&ticket) {
                        let _ = tell.send(Err(why));
                    }
                }
                Action::Hurry { ticket, current } => order(callers, ticket, Order::Hurry(current)),
                Action::Close { ticket, current } => order(callers, ticket, Order::Close(current)),
            }
            is_plain &= matches!(action, Action::Admit { .. });
        }
        let is_timed = machine.wake_at().is_some();
        drop(inner);
        if !is_plain || is_timed {
            self.turned.notify_one();
        }
    }
}

fn order(callers: &HashMap<Ticket, Caller>, ticket: Ticket, order: Order) {
    if let Some(Caller::Inside(orders)) = callers.get(&ticket) {
        orders.send_replace(order);
    }
}

/// Says that somebody who waited has gone, unless it was answered.
struct Leaving<'a> {
    door: Option<&'a Arc<Door>>,
    ticket: Ticket,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(door) = self.door {
            door.tell(Event::Left { ticket: self.ticket });
            // It may have been let in at the same moment; nothing of it has left.
            door.tell(Event::Over { ticket: self.ticket, ended: RequestEnd::Settled });
        }
    }
}

/// Somebody inside. Dropped without a word, its outcome is unknown.
#[derive(Debug)]
pub struct Pass {
    door: Arc<Door>,
    ticket: Ticket,
    term: Term,
    orders: watch::Receiver<Order>,
    is_over: bool,
}

impl Pass {
    /// The term it came with.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// What it is told now.
    #[must_use]
    pub fn order(&self) -> Order {
        *self.orders.borrow()
    }

    /// Waits until it is told at least this.
    pub async fn told(&mut self, is_it: impl Fn(Order) -> bool) -> Order {
        let told = self.orders.wait_for(|order| is_it(*order)).await.map(|order| *order);
        match told {
            Ok(order) => order,
            // The door tells nobody any more.
            Err(_) => std::future::pending().await,
        }
    }

    /// A way to say that all of it has left.
    pub fn sent(&self) -> impl FnOnce() + Send + Sync + 'static + use<> {
        let (door, ticket) = (Arc::clone(&self.door), self.ticket);
        move || door.tell(Event::Sent { ticket })
    }

    /// It is over; its connection, if it is not whole, is closed.
    pub fn over(mut self, ended: RequestEnd) {
        self.is_over = true;
        self.door.tell(Event::Over { ticket: self.ticket, ended });
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.is_over {
            self.door.tell(Event::Over { ticket: self.ticket, ended: RequestEnd::Unknown });
        }
    }
}
