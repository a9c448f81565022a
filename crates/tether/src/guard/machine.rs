//! What a guard decides: when to start, warn and kill, and when its work is over. No clock, no process.
//!
//! ```text
//!   waiting --lease--> running --stop, overdue, closed, program ended--> stopping --kill_at--> killing
//!                                                                            |  nothing left      |
//!                                                                            +------> over <------+
//! ```
//!
//! Before `valid_until` there is a grace for the program and then a reserve, in which the kernel is to
//! be done with what was killed. A wrapper in good health says `stop` when the grace begins. The guard
//! begins by itself in the middle of it, so that the two do not race, and kills when the reserve
//! begins, whatever was said.

use std::time::Duration;

use regent_election::Moment;

use crate::words::{GuardReport, Order, Status};

/// How often a kill is repeated while anything is left: a listing may have missed a fork.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// What the guard is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The wrapper said this.
    Order(Order),
    /// The wrapper is gone, or says things that mean nothing.
    Closed,
    /// The program was started.
    Started(u32),
    /// The program could not be started.
    Failed(i32, String),
    /// The program ended.
    Exited(Status),
    /// No descendant is left.
    Empty,
    /// Time has passed.
    Tick,
}

/// What must be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start the program.
    Start,
    /// This signal to the program's process group.
    SignalGroup(i32),
    /// `SIGTERM` to all that is left.
    TerminateAll,
    /// End everything by force.
    KillAll,
    /// Tell the wrapper.
    Tell(GuardReport),
    /// End the guard.
    Quit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Stopping { kill_at: Moment },
    Killing { again_at: Moment },
    Over,
}

/// The guard of one program.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    grace: Duration,
    reserve: Duration,
    state: State,
    valid_until: Moment,
    has_exited: bool,
    actions: Vec<Action>,
}

impl Machine {
    /// A guard that waits for its first lease.
    pub(crate) fn new(grace: Duration, reserve: Duration) -> Self {
        Self {
            grace,
            reserve,
            state: State::Waiting,
            valid_until: Moment::ZERO,
            has_exited: false,
            actions: Vec::new(),
        }
    }

    /// Advances the guard and says what must now be done, in order.
    pub(crate) fn on(&mut self, now: Moment, event: Event) -> Vec<Action> {
        // Time before news: a lease that comes when the stop is due finds it begun.
        self.pass_time(now);
        match event {
            Event::Order(order) => self.order(now, order),
            Event::Closed => self.closed(now),
            Event::Started(pid) => self.tell(GuardReport::Started(pid)),
            Event::Failed(number, text) => {
                self.tell(GuardReport::Failed(number, text));
                self.over();
            }
            Event::Exited(status) => self.exited(now, status),
            Event::Empty => self.over(),
            Event::Tick => {}
        }
        self.pass_time(now);
        std::mem::take(&mut self.actions)
    }

    /// When time alone will change something.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        match self.state {
            State::Running => Some(self.begin_at()),
            State::Stopping { kill_at } => Some(kill_at.min(self.last_at())),
            State::Killing { again_at } => Some(again_at),
            State::Waiting | State::Over => None,
        }
    }

    /// The guard begins to stop by itself here.
    fn begin_at(&self) -> Moment {
        self.last_at() - self.grace / 2
    }

    /// Nothing keeps the tree alive beyond this.
    fn last_at(&self) -> Moment {
        self.valid_until - self.reserve
    }

    fn pass_time(&mut self, now: Moment) {
        if self.state == State::Running && self.begin_at() <= now {
            self.tell(GuardReport::Overdue);
            self.stop(self.last_at());
        }
        if let State::Stopping { kill_at } = self.state
            && kill_at.min(self.last_at()) <= now
        {
            self.kill(now);
        }
        if let State::Killing { again_at } = self.state
            && again_at <= now
        {
            self.kill(now);
        }
    }

    fn order(&mut self, now: Moment, order: Order) {
        match (order, &self.state) {
            (Order::Lease(until), State::Waiting) => {
                self.valid_until = until;
                if self.begin_at() <= now {
                    // Too late to begin at all.
                    self.tell(GuardReport::Overdue);
                    self.over();
                    return;
                }
                self.state = State::Running;
                self.actions.push(Action::Start);
                self.tell(GuardReport::Heard(until));
            }
            (Order::Lease(until), State::Running) => {
                // Leases arrive in order; a lower one would be a mistake of the wrapper, and the
                // safe reading of a mistake is the earlier end.
                self.valid_until = until;
                self.tell(GuardReport::Heard(until));
            }
            (Order::Stop(kill_at), State::Running) => self.stop(kill_at),
            (Order::Stop(earlier), State::Stopping { kill_at }) => {
                self.state = State::Stopping { kill_at: earlier.min(*kill_at) };
            }
            (Order::Kill, State::Running | State::Stopping { .. }) => self.kill(now),
            (Order::Kill | Order::Stop(_), State::Waiting) => self.over(),
            (Order::Signal(number), State::Running | State::Stopping { .. }) => {
                if !self.has_exited {
                    self.actions.push(Action::SignalGroup(number));
                }
            }
            // After its end, the last report says so.
            (Order::Ask, State::Running | State::Stopping { .. } | State::Killing { .. }) => {
                self.tell(GuardReport::Alive);
            }
            (Order::Ask, State::Waiting | State::Over) => {}
            (
                Order::Lease(_) | Order::Stop(_) | Order::Kill | Order::Signal(_),
                State::Stopping { .. } | State::Killing { .. } | State::Over | State::Waiting,
            ) => {}
        }
    }

    /// Nobody renews any more, and nobody will resign: the tree has its grace to end.
    fn closed(&mut self, now: Moment) {
        match self.state {
            State::Waiting => self.over(),
            State::Running => self.stop(now + self.grace),
            State::Stopping { .. } | State::Killing { .. } | State::Over => {}
        }
    }

    fn exited(&mut self, now: Moment, status: Status) {
        self.has_exited = true;
        self.tell(GuardReport::Exited(status));
        let soon_at = now + self.grace;
        match self.state {
            State::Running | State::Stopping { .. } => {
                let kill_at = match self.state {
                    State::Stopping { kill_at } => kill_at.min(soon_at),
                    State::Waiting | State::Running | State::Killing { .. } | State::Over => {
                        soon_at
                    }
                };
                self.state = State::Stopping { kill_at };
                self.actions.push(Action::TerminateAll);
            }
            State::Waiting | State::Killing { .. } | State::Over => {}
        }
    }

    fn stop(&mut self, kill_at: Moment) {
        self.state = State::Stopping { kill_at };
        self.actions.push(Action::SignalGroup(libc::SIGTERM));
        // A program that was stopped must wake to hear it.
        self.actions.push(Action::SignalGroup(libc::SIGCONT));
    }

    fn kill(&mut self, now: Moment) {
        self.state = State::Killing { again_at: now + AGAIN_AFTER };
        self.actions.push(Action::KillAll);
    }

    fn over(&mut self) {
        if self.state != State::Over {
            self.state = State::Over;
            self.tell(GuardReport::Over);
            self.actions.push(Action::Quit);
        }
    }

    fn tell(&mut self, report: GuardReport) {
        self.actions.push(Action::Tell(report));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Action = Action::SignalGroup(libc::SIGTERM);
    const CONT: Action = Action::SignalGroup(libc::SIGCONT);

    fn at(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    fn machine() -> Machine {
        Machine::new(Duration::from_millis(500), Duration::from_millis(500))
    }

    /// A guard whose program runs under a lease until 10 s.
    fn running() -> Machine {
        let mut machine = machine();
        let begun = machine.on(at(0), Event::Order(Order::Lease(at(10_000))));
        assert_eq!(begun, [Action::Start, Action::Tell(GuardReport::Heard(at(10_000)))]);
        machine.on(at(1), Event::Started(2));
        machine
    }

    #[test]
    fn a_lease_that_is_not_renewed_ends_the_program_with_a_reserve_to_spare() {
        let mut machine = running();
        assert_eq!(machine.wake_at(), Some(at(9_250)));
        assert_eq!(machine.on(at(9_249), Event::Tick), []);
        let begun = machine.on(at(9_250), Event::Tick);
        assert_eq!(begun, [Action::Tell(GuardReport::Overdue), TERM, CONT]);
        assert_eq!(machine.wake_at(), Some(at(9_500)));
        assert_eq!(machine.on(at(9_500), Event::Tick), [Action::KillAll]);
    }

    #[test]
    fn a_guard_that_overslept_kills_at_once() {
        let mut machine = running();
        let done = machine.on(at(60_000), Event::Tick);
        assert_eq!(done, [Action::Tell(GuardReport::Overdue), TERM, CONT, Action::KillAll]);
    }

    #[test]
    fn a_renewal_that_comes_when_the_stop_is_due_revives_nothing() {
        let mut machine = running();
        let done = machine.on(at(9_300), Event::Order(Order::Lease(at(20_000))));
        assert_eq!(done, [Action::Tell(GuardReport::Overdue), TERM, CONT]);
        assert_eq!(machine.wake_at(), Some(at(9_500)));
    }

    #[test]
    fn a_renewal_moves_the_end() {
        let mut machine = running();
        let done = machine.on(at(3_000), Event::Order(Order::Lease(at(13_000))));
        assert_eq!(done, [Action::Tell(GuardReport::Heard(at(13_000)))]);
        assert_eq!(machine.wake_at(), Some(at(12_250)));
    }

    #[test]
    fn a_wrapper_that_is_gone_leaves_a_grace() {
        let mut machine = running();
        assert_eq!(machine.on(at(2_000), Event::Closed), [TERM, CONT]);
        assert_eq!(machine.wake_at(), Some(at(2_500)));
        assert_eq!(machine.on(at(2_500), Event::Tick), [Action::KillAll]);
    }

    #[test]
    fn a_stop_never_allows_more_than_the_lease() {
        let mut machine = running();
        assert_eq!(machine.on(at(9_000), Event::Order(Order::Stop(at(99_000)))), [TERM, CONT]);
        assert_eq!(machine.wake_at(), Some(at(9_500)));
        machine.on(at(9_001), Event::Order(Order::Stop(at(9_100))));
        assert_eq!(machine.on(at(9_100), Event::Tick), [Action::KillAll]);
    }

    #[test]
    fn a_kill_is_repeated_until_nothing_is_left() {
        let mut machine = running();
        assert_eq!(machine.on(at(100), Event::Order(Order::Kill)), [Action::KillAll]);
        assert_eq!(machine.on(at(105), Event::Tick), []);
        assert_eq!(machine.on(at(110), Event::Tick), [Action::KillAll]);
        let ended = machine.on(at(111), Event::Exited(Status::Signal(9)));
        assert_eq!(ended, [Action::Tell(GuardReport::Exited(Status::Signal(9)))]);
        assert_eq!(
            machine.on(at(112), Event::Empty),
            [Action::Tell(GuardReport::Over), Action::Quit]
        );
    }

    #[test]
    fn what_a_program_leaves_behind_is_told_to_end_and_then_killed() {
        let mut machine = running();
        let ended = machine.on(at(1_000), Event::Exited(Status::Code(0)));
        assert_eq!(
            ended,
            [Action::Tell(GuardReport::Exited(Status::Code(0))), Action::TerminateAll]
        );
        assert_eq!(machine.on(at(1_100), Event::Order(Order::Signal(1))), []);
        assert_eq!(machine.on(at(1_500), Event::Tick), [Action::KillAll]);
    }

    #[test]
    fn a_lease_that_is_nearly_over_starts_nothing() {
        let mut machine = machine();
        let done = machine.on(at(9_250), Event::Order(Order::Lease(at(10_000))));
        let over =
            [Action::Tell(GuardReport::Overdue), Action::Tell(GuardReport::Over), Action::Quit];
        assert_eq!(done, over);
    }

    #[test]
    fn a_wrapper_that_is_gone_before_its_first_lease_starts_nothing() {
        let mut machine = machine();
        assert_eq!(
            machine.on(at(1), Event::Closed),
            [Action::Tell(GuardReport::Over), Action::Quit]
        );
        assert_eq!(machine.on(at(2), Event::Order(Order::Lease(at(10_000)))), []);
    }

    /// Time goes first: a guard that overslept kills before it answers.
    #[test]
    fn a_guard_that_is_asked_says_that_something_lives_until_nothing_does() {
        let alive = Action::Tell(GuardReport::Alive);
        let mut machine = machine();
        assert_eq!(machine.on(at(0), Event::Order(Order::Ask)), []);
        let mut machine = running();
        assert_eq!(machine.on(at(5), Event::Order(Order::Ask)), std::slice::from_ref(&alive));
        let done = machine.on(at(60_000), Event::Order(Order::Ask));
        assert_eq!(done[3..], [Action::KillAll, alive]);
        machine.on(at(60_001), Event::Empty);
        assert_eq!(machine.on(at(60_002), Event::Order(Order::Ask)), []);
    }

    #[test]
    fn signals_reach_the_program_while_it_lives() {
        let mut machine = running();
        let forwarded = machine.on(at(5), Event::Order(Order::Signal(10)));
        assert_eq!(forwarded, [Action::SignalGroup(10)]);
    }
}
