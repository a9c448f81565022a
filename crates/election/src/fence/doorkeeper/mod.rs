//! The doorkeeper: whoever comes with a higher term enters only when everybody below is out.
//!
//! A [`Fence`](crate::Fence) compares terms in the very step that writes. What stands *in front of* a
//! resource cannot: checking a request and handing it on are two steps, and a request of term 100 that
//! was admitted may still be on its way when one of term 101 is. Comparing is then not enough, and three
//! more rules make up for it:
//!
//! 1. The first request of a higher term raises the mark at once: from then on nothing lower is admitted.
//! 2. It is itself admitted only when the mark is *kept* where a crash cannot lower it,
//! 3. and when every request admitted under a lower term is over.
//!
//! Over is a request whose whole answer has come, or that never left. One whose connection ended without
//! a whole answer may still take effect: whoever it was sent to may have it in a buffer. Nobody can know
//! for how long, so that is an assumption with a name and a number, `settle_for`: a request whose
//! connection is gone takes effect within that time, or never. Until then nobody above enters.
//!
//! The road not taken is to forward at once and hope that a connection opened later arrives later. It is
//! how proxies fence by a header alone, and it loses writes whenever a request waits in a queue.
//!
//! This is the rule alone: the gateway drives it for requests that it forwards, the middleware for
//! handlers in its own process. It reads no clock and touches no file.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::fence::FenceError;
use crate::moment::Moment;
use crate::term::Term;

/// One request, by a number that the driver never gives twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What the doorkeeper assumes and how long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorRules {
    /// How long a request that was sent in full may take to be answered once a higher term waits, and how
    /// long a request of that higher term waits before it is told to come again.
    pub drain_for: Duration,
    /// How long after the end of its connection a request may still take effect.
    pub settle_for: Duration,
    /// Most requests that wait at once.
    pub waiting_max: usize,
}

/// How a request that was admitted ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// Its whole answer came, or nothing of it ever left: it takes no effect from here on.
    Settled,
    /// Its connection is gone and no whole answer came: it may still take effect for a while.
    Unknown,
}

/// What happens at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request came with this term.
    Arrived {
        ticket: Ticket,
        /// Under which term.
        term: Term,
    },
    /// A request that waits gave up.
    Left { ticket: Ticket },
    /// All of it has left.
    Sent { ticket: Ticket },
    /// It is over. If its connection was closed, then before this was said.
    Over { ticket: Ticket, ended: RequestEnd },
    /// The mark is kept where a crash cannot lower it. It may be higher than the one that was asked for:
    /// somebody else raised it.
    Kept {
        /// The mark that is kept.
        mark: Term,
    },
    /// The mark could not be kept.
    NotKept,
    /// Time has passed: [`Doorkeeper::wake_at`] asked for it.
    Woken,
}

/// Why a request is turned away. Nothing of it was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnedAway {
    /// By its term.
    #[error(transparent)]
    Term(#[from] FenceError),
    /// Requests of lower terms are not over, or may still take effect.
    #[error("requests of lower terms may still take effect; try again in {} ms", retry_after.as_millis())]
    NotOver {
        /// When it may be otherwise.
        retry_after: Duration,
    },
    /// The mark could not be kept, so nobody may enter under it.
    #[error("the mark could not be kept; nothing of a higher term may pass")]
    NotKept,
    /// As many wait as may.
    #[error("too many requests wait for those of lower terms; try again in {} ms", retry_after.as_millis())]
    Full {
        /// When it may be otherwise.
        retry_after: Duration,
    },
}

/// What must be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keep this mark where a crash cannot lower it, then say [`Event::Kept`] or [`Event::NotKept`].
    Keep { mark: Term },
    /// Let it pass.
    Admit { ticket: Ticket },
    /// Turn it away.
    Refuse { ticket: Ticket, why: TurnedAway },
    /// Its term is over, and all of it has left: whoever sent it need not be answered, but its answer must be
    /// awaited.
    Hurry {
        ticket: Ticket,
        /// The mark that is above it.
        current: Term,
    },
    /// Its term is over: close its connection, then say [`Event::Over`].
    Close {
        ticket: Ticket,
        /// The mark that is above it.
        current: Term,
    },
}

/// A request that was admitted and is not over.
#[derive(Clone, Copy, Debug)]
struct Inside {
    /// Whether all of it has left.
    is_sent: bool,
    /// Since when a higher term waits for it, and whether it was told to close.
    below: Option<(Moment, bool)>,
}

/// The machine at the door.
#[derive(Clone, Debug)]
pub struct Doorkeeper {
    rules: DoorRules,
    /// The highest term that came.
    mark: Term,
    /// The highest term that is kept.
    kept: Term,
    /// Whether a mark is being kept, and which.
    keeping: Option<Term>,
    inside: BTreeMap<Ticket, Inside>,
    /// How many of those inside came under a lower term than the mark.
    below_count: usize,
    /// Requests of the mark's term that may not enter yet, oldest first.
    waiting: VecDeque<(Ticket, Moment)>,
    /// When requests of lower terms without an answer take effect no more.
    below_settled_at: Moment,
    /// The same for requests of the mark's own term: it matters once the mark rises.
    own_settled_at: Moment,
}

impl Doorkeeper {
    /// A doorkeeper that takes over at `kept`. Requests that an earlier one admitted take no effect from
    /// `settled_at` on.
    #[must_use]
    pub const fn new(rules: DoorRules, kept: Term, settled_at: Moment) -> Self {
        Self {
            rules,
            mark: kept,
            kept,
            keeping: None,
            inside: BTreeMap::new(),
            below_count: 0,
            waiting: VecDeque::new(),
            below_settled_at: settled_at,
            own_settled_at: settled_at,
        }
    }

    /// The highest term that came.
    #[must_use]
    pub const fn mark(&self) -> Term {
        self.mark
    }

    /// How many were admitted and are not over.
    #[must_use]
    pub fn inside_count(&self) -> usize {
        self.inside.len()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing that was admitted can take effect any more.
    #[must_use]
    pub fn is_quiet(&self, now: Moment) -> bool {
        self.inside.is_empty() && now >= self.below_settled_at && now >= self.own_settled_at
    }

    /// When to say [`Event::Woken`] at the latest; `None` if time alone changes nothing.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        let first_waits = self.waiting.front().map(|&(_, since)| since + self.rules.drain_for);
        let opens = (!self.waiting.is_empty() && self.below_count == 0 && self.kept >= self.mark)
            .then_some(self.below_settled_at);
        let closes = (self.below_count > 0).then(|| self.closes_at()).flatten();
        [first_waits, opens, closes].into_iter().flatten().min()
    }

    /// Advances the doorkeeper and says what must now be done, in order.
    ///
    /// The same history always gives the same actions: it reads no clock, rolls no dice and touches no
    /// network. Events about tickets that are over are ignored.
    pub fn on(&mut self, now: Moment, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Arrived { ticket, term } => self.arrived(now, ticket, term, &mut actions),
            Event::Left { ticket } => self.waiting.retain(|&(waits, _)| waits != ticket),
            Event::Sent { ticket } => {
                if let Some(inside) = self.inside.get_mut(&ticket) {
                    inside.is_sent = true;
                }
            }
            Event::Over { ticket, ended } => self.over(now, ticket, ended),
            Event::Kept { mark } => self.was_kept(now, mark, &mut actions),
            Event::NotKept => {
                self.keeping = None;
                if self.kept < self.mark {
                    self.turn_all_away(TurnedAway::NotKept, &mut actions);
                }
            }
            Event::Woken => {}
        }
        self.close_late_ones(now, &mut actions);
        self.open(now, &mut actions);
        self.turn_late_ones_away(now, &mut actions);
        actions
    }

    fn arrived(&mut self, now: Moment, ticket: Ticket, term: Term, actions: &mut Vec<Action>) {
        if term == Term::NONE {
            let why = FenceError::NeverGranted.into();
            return actions.push(Action::Refuse { ticket, why });
        }
        if term < self.mark {
            let why = FenceError::Stale { given: term, current: self.mark }.into();
            return actions.push(Action::Refuse { ticket, why });
        }
        if term > self.mark {
            self.raise(now, term, actions);
        }
        if self.kept < self.mark && self.keeping != Some(self.mark) {
            self.keeping = Some(self.mark);
            actions.push(Action::Keep { mark: self.mark });
        }
        if self.waiting.len() >= self.rules.waiting_max && !self.is_open(now) {
            let why = TurnedAway::Full { retry_after: self.opens_in(now) };
            return actions.push(Action::Refuse { ticket, why });
        }
        self.waiting.push_back((ticket, now));
    }

    /// From here on nothing below `term` is admitted.
    fn raise(&mut self, now: Moment, term: Term, actions: &mut Vec<Action>) {
        let below = self.mark;
        self.mark = term;
        let why = FenceError::Stale { given: below, current: term }.into();
        self.turn_all_away(why, actions);
        self.below_settled_at = self.below_settled_at.max(self.own_settled_at);
        self.own_settled_at = Moment::ZERO;
        self.below_count = self.inside.len();
        for (&ticket, inside) in &mut self.inside {
            if inside.below.is_some() {
                continue;
            }
            inside.below = Some((now, !inside.is_sent));
            actions.push(if inside.is_sent {
                Action::Hurry { ticket, current: term }
            } else {
                Action::Close { ticket, current: term }
            });
        }
    }

    fn over(&mut self, now: Moment, ticket: Ticket, ended: RequestEnd) {
        let Some(inside) = self.inside.remove(&ticket) else { return };
        let settled_at = match ended {
            RequestEnd::Settled => Moment::ZERO,
            RequestEnd::Unknown => now + self.rules.settle_for,
        };
        if inside.below.is_some() {
            self.below_count -= 1;
            self.below_settled_at = self.below_settled_at.max(settled_at);
        } else {
            self.own_settled_at = self.own_settled_at.max(settled_at);
        }
    }

    fn was_kept(&mut self, now: Moment, mark: Term, actions: &mut Vec<Action>) {
        if self.keeping.is_some_and(|asked| asked <= mark) {
            self.keeping = None;
        }
        self.kept = self.kept.max(mark);
        if mark > self.mark {
            self.raise(now, mark, actions);
        }
    }

    /// Whether the mark's own requests may enter.
    fn is_open(&self, now: Moment) -> bool {
        self.kept >= self.mark && self.below_count == 0 && now >= self.below_settled_at
    }

    fn open(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if !self.is_open(now) {
            return;
        }
        for (ticket, _) in self.waiting.drain(..) {
            self.inside.insert(ticket, Inside { is_sent: false, below: None });
            actions.push(Action::Admit { ticket });
        }
    }

    /// When the next request of a lower term is closed for want of an answer.
    fn closes_at(&self) -> Option<Moment> {
        let late = self.inside.values().filter_map(|inside| match inside.below {
            Some((since, false)) => Some(since + self.rules.drain_for),
            Some((_, true)) | None => None,
        });
        late.min()
    }

    fn close_late_ones(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.below_count == 0 {
            return;
        }
        for (&ticket, inside) in &mut self.inside {
            if let Some((since, false)) = inside.below
                && since + self.rules.drain_for <= now
            {
                inside.below = Some((since, true));
                actions.push(Action::Close { ticket, current: self.mark });
            }
        }
    }

    fn turn_late_ones_away(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let retry_after = self.opens_in(now);
        while let Some(&(ticket, since)) = self.waiting.front()
            && since + self.rules.drain_for <= now
        {
            self.waiting.pop_front();
            actions.push(Action::Refuse { ticket, why: TurnedAway::NotOver { retry_after } });
        }
    }

    fn turn_all_away(&mut self, why: TurnedAway, actions: &mut Vec<Action>) {
        actions.extend(self.waiting.drain(..).map(|(ticket, _)| Action::Refuse { ticket, why }));
    }

    /// How long it takes, as far as is known, until the mark's own requests may enter.
    fn opens_in(&self, now: Moment) -> Duration {
        let drained = self.closes_at().map_or(Duration::ZERO, |at| now.until(at));
        let unsettled =
            if self.below_count > 0 { drained + self.rules.settle_for } else { Duration::ZERO };
        unsettled.max(now.until(self.below_settled_at))
    }
}

#[cfg(test)]
mod tests;
