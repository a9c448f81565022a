//! What `regent run` decides: when the program starts, stops and is killed, when the office is given
//! up, and how it all ends. It reads no clock and starts no process.
//!
//! ```text
//!   idle --elected--> fencing --fenced--> working --nothing alive--> idle, or leaving --> done
//!     |                  |                                             ^
//!     +------------------+--- asked, failed for good, waited in vain --+
//! ```
//!
//! - The office is given up only when **nothing of the tree is alive** (semantics 14), and then at
//!   once. Until then the lease is renewed or runs out; a tree that cannot be killed keeps it.
//! - A stop that the *lease* demands is finished before `valid_until`: the program is told, and what
//!   is left is killed a reserve before the end.
//! - A stop that the *user* demands is a drain: the program gets its signal and its time, and this
//!   process leads on while it ends, so that no successor starts beside it.
//! - A guard that does not acknowledge leases guards nothing, so the tree is killed with it.

mod words;

use regent_election::{Moment, Term};
use regent_tether::Status;

pub(crate) use words::{Action, Ending, Event, Hook, ProbeRules, Rules, Shown};

/// The supervisor of one program in one group.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    rules: Rules,
    now: Moment,
    state: State,
    /// How it will end once it may; set by whoever wants it to.
    ending: Option<Ending>,
    give_up_at: Option<Moment>,
    actions: Vec<Action>,
}

#[derive(Clone, Debug)]
enum State {
    Idle,
    Fencing {
        term: Term,
        valid_until: Moment,
    },
    Working(Work),
    /// The election has been told; `until` is how long its farewell may take.
    Leaving {
        until: Moment,
    },
    Done,
}

/// A program that runs, or what is left of it.
#[derive(Clone, Debug)]
struct Work {
    stop: Option<Stop>,
    /// The leadership ended for another reason than the program's own end or the user's wish.
    is_lost: bool,
    /// It leads and does not prove that it works.
    is_hung: bool,
    has_hooked: bool,
    status: Option<Status>,
    /// A code for a program that never ran.
    failed: Option<u8>,
    /// The oldest lease told and not acknowledged: when, and until when it runs.
    unheard: Option<(Moment, Moment)>,
    /// When the program last proved that it works, or is taken to have.
    proved_at: Option<Moment>,
    has_proved: bool,
    killed_at: Option<Moment>,
    /// When the guard was asked whether anything lives after the end of the lease, and has not answered.
    asked_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The user wants it to end; the lease goes on.
    Drain { kill_at: Moment },
    /// The lease is ending. What is left at `kill_at` is killed from here, too: a guard that was
    /// stopped ends nothing. None if it has been, or if the guard stops by itself.
    Forced { kill_at: Option<Moment> },
}

impl Machine {
    /// A supervisor that stands by from `now` on.
    pub(crate) fn new(rules: Rules, now: Moment) -> Self {
        let give_up_at = rules.wait.map(|wait| now + wait);
        Self { rules, now, state: State::Idle, ending: None, give_up_at, actions: Vec::new() }
    }

    /// Advances the supervisor and says what must now be done, in order.
    pub(crate) fn on(&mut self, now: Moment, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        self.take(event);
        self.pass_time();
        std::mem::take(&mut self.actions)
    }

    /// When time alone will change something.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        let moments = match &self.state {
            State::Idle => [self.give_up_at, None, None, None, None],
            State::Leaving { until } => [Some(*until), None, None, None, None],
            State::Working(work) => [
                work.kill_at(),
                self.unproved_at(work),
                work.unheard.map(|(told_at, _)| told_at + self.rules.guard_silence),
                work.killed_at.map(|killed_at| killed_at + self.rules.reserve / 2),
                work.asked_at.map(|asked_at| asked_at + self.rules.reserve),
            ],
            State::Fencing { .. } | State::Done => [None; 5],
        };
        moments.into_iter().flatten().min()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Elected { term, valid_until } => self.elected(term, valid_until),
            Event::Extended { valid_until } => self.extended(valid_until),
            Event::Jeopardy => self.warned(Shown::Jeopardy),
            Event::Recovered => self.warned(Shown::Leading),
            Event::StopBy { by } => self.stop_by(by),
            Event::Lost => self.lost(),
            Event::OtherLeads => {
                if self.rules.once && matches!(self.state, State::Idle) {
                    self.leave(Ending::NotElected);
                }
            }
            Event::PermanentFailure => {
                if matches!(self.state, State::Idle) {
                    self.leave(Ending::PermanentFailure);
                }
            }
            Event::Left => {
                if matches!(self.state, State::Leaving { .. }) {
                    self.done();
                }
            }
            Event::Fenced { term, is_done } => self.fenced(term, is_done),
            Event::Started(_) => self.started(),
            Event::Failed(code) => self.work(|work, _| work.failed = Some(code)),
            Event::Heard(until) => self.work(|work, _| {
                if work.unheard.is_some_and(|(_, told)| told <= until) {
                    work.unheard = None;
                }
            }),
            Event::Overdue => self.work(|work, _| {
                if !work.is_forced() {
                    work.stop = Some(Stop::Forced { kill_at: None });
                }
                work.is_lost = true;
            }),
            // After a pause of this process the clock is ahead of the guard's reports, which are on their way.
            Event::Overran => {
                let now = self.now;
                self.work(|work, actions| {
                    work.asked_at = Some(now);
                    actions.push(Action::AskGuard);
                });
            }
            Event::Alive => self.work(|work, actions| {
                if work.asked_at.take().is_some() {
                    actions.push(Action::Alarm { has_answered: true });
                }
            }),
            Event::Exited(status) => self.exited(status),
            Event::Over => self.over(),
            Event::Proved { asked_at } => self.work(|work, _| {
                let Some(proved_at) = &mut work.proved_at else { return };
                // From its first answer on, a program is held to the limit of the others.
                let last = if work.has_proved { *proved_at } else { asked_at };
                *proved_at = last.max(asked_at);
                work.has_proved = true;
            }),
            Event::Terminate(signal) => self.terminate(signal),
            Event::Signal(signal) => self.work(|_, actions| actions.push(Action::Forward(signal))),
            Event::Tick => {}
        }
    }

    fn pass_time(&mut self) {
        let now = self.now;
        match &self.state {
            State::Idle if self.give_up_at.is_some_and(|at| at <= now) => {
                self.leave(Ending::NotElected);
            }
            State::Leaving { until } if *until <= now => self.done(),
            State::Working(work) => {
                let is_late = work.kill_at().is_some_and(|at| at <= now);
                let is_hung = self.unproved_at(work).is_some_and(|at| at <= now);
                let silence = self.rules.guard_silence;
                let is_deaf = work.unheard.is_some_and(|(told_at, _)| told_at + silence <= now);
                let is_stuck = work
                    .killed_at
                    .is_some_and(|killed_at| killed_at + self.rules.reserve / 2 <= now);
                let is_unanswered =
                    work.asked_at.is_some_and(|asked_at| asked_at + self.rules.reserve <= now);
                if is_unanswered {
                    self.work(|work, actions| {
                        work.asked_at = None;
                        actions.push(Action::Alarm { has_answered: false });
                    });
                }
                if is_hung {
                    self.hung();
                }
                if is_deaf {
                    // Not the program's fault, so its end is not the end of the command.
                    self.work(|work, _| work.is_lost = true);
                }
                if is_late || is_deaf {
                    self.kill();
                }
                if is_deaf || is_stuck {
                    self.kill_guard();
                }
            }
            State::Idle | State::Fencing { .. } | State::Leaving { .. } | State::Done => {}
        }
    }

    fn elected(&mut self, term: Term, valid_until: Moment) {
        if !matches!(self.state, State::Idle) || self.ending.is_some() {
            // Whoever is on the way out has nothing to run; the term is given back.
            self.actions.push(Action::WorkEnded);
            return;
        }
        self.give_up_at = None;
        self.actions.push(Action::Hook(Hook::Elected));
        if self.rules.fences {
            self.state = State::Fencing { term, valid_until };
            self.show(Shown::Fencing);
            self.actions.push(Action::Fence { term });
        } else {
            self.start(term, valid_until);
        }
    }

    fn start(&mut self, term: Term, valid_until: Moment) {
        self.state = State::Working(Work {
            stop: None,
            is_lost: false,
            is_hung: false,
            has_hooked: false,
            status: None,
            failed: None,
            unheard: Some((self.now, valid_until)),
            proved_at: None,
            has_proved: false,
            killed_at: None,
            asked_at: None,
        });
        self.actions.push(Action::Start { term, valid_until });
    }

    fn fenced(&mut self, fenced: Term, is_done: bool) {
        let State::Fencing { term, valid_until } = self.state else { return };
        // What was done in an earlier term says nothing of who led since.
        if fenced != term {
            return;
        }
        if is_done && self.ending.is_none() {
            self.start(term, valid_until);
        } else {
            // Nothing may run before it; another candidate may have better luck.
            if !is_done {
                self.actions.push(Action::WorkFailed);
            }
            self.give_back(true);
        }
    }

    fn started(&mut self) {
        let now = self.now;
        if let (State::Working(work), Some(probe)) = (&mut self.state, self.rules.probe) {
            // A moment ahead: its first answer has its own time.
            work.proved_at = Some(now + probe.start.saturating_sub(probe.limit));
        }
        self.show(Shown::Leading);
    }

    fn extended(&mut self, until: Moment) {
        let now = self.now;
        match &mut self.state {
            State::Fencing { valid_until, .. } => *valid_until = until,
            State::Working(work) if !work.is_forced() && work.killed_at.is_none() => {
                work.unheard.get_or_insert((now, until));
                self.actions.push(Action::Lease(until));
            }
            State::Idle | State::Working(_) | State::Leaving { .. } | State::Done => {}
        }
    }

    fn warned(&mut self, shown: Shown) {
        let is_running = match &self.state {
            State::Working(work) => work.status.is_none() && work.stop.is_none(),
            State::Fencing { .. } => true,
            State::Idle | State::Leaving { .. } | State::Done => false,
        };
        if is_running {
            if shown == Shown::Jeopardy {
                self.actions.push(Action::Hook(Hook::Jeopardy));
            }
            self.show(shown);
        }
    }

    fn stop_by(&mut self, by: Moment) {
        let kill_at = by - self.rules.reserve;
        // The guard goes first, so that the two do not race; a guard that does nothing is killed
        // half a reserve after this, and that is before the end, too.
        let own_at = kill_at + self.rules.reserve / 4;
        match &mut self.state {
            State::Fencing { .. } => self.give_back(true),
            State::Working(work) => {
                // Asked to leave before: it is the user's stop that the lease overtakes.
                work.is_lost |= work.status.is_none() && work.stop.is_none();
                work.stop = Some(Stop::Forced { kill_at: Some(own_at) });
                let has_ended = work.status.is_some();
                self.actions.push(Action::Stop { kill_at });
                if !has_ended {
                    self.show(Shown::Stopping);
                }
                self.hook_lost();
            }
            State::Idle | State::Leaving { .. } | State::Done => {}
        }
    }

    fn lost(&mut self) {
        match &mut self.state {
            State::Fencing { .. } => self.give_back(true),
            State::Working(work) => {
                work.is_lost |= work.status.is_none() && work.stop.is_none();
                work.stop = Some(Stop::Forced { kill_at: None });
                self.kill();
                self.show(Shown::Lost);
                self.hook_lost();
            }
            State::Idle | State::Leaving { .. } | State::Done => {}
        }
    }

    fn exited(&mut self, status: Status) {
        let State::Working(work) = &mut self.state else { return };
        work.status = Some(status);
        self.show(Shown::Ended(status));
        self.hook_lost();
    }

    /// Nothing is alive: the office can be given up, and it is decided what comes next.
    fn over(&mut self) {
        let State::Working(work) = &self.state else { return };
        let (is_lost, is_hung, failed) = (work.is_lost, work.is_hung, work.failed);
        // A tree that ended without a word was killed with its guard.
        let status = work.status.unwrap_or(Status::Signal(9));
        self.hook_lost();
        let ending = match (failed, self.ending) {
            (Some(code), _) => Some(Ending::Program(code)),
            (None, Some(_)) => Some(Ending::Program(status.exit_code())),
            (None, None) if is_lost => self.rules.exit_on_lost.then_some(Ending::Lost),
            (None, None) if self.rules.restart => None,
            (None, None) => Some(Ending::Program(status.exit_code())),
        };
        if ending.is_none() && (is_hung || !is_lost) {
            self.actions.push(Action::WorkFailed);
        }
        self.actions.push(Action::WorkEnded);
        self.state = State::Idle;
        match ending {
            Some(ending) => self.leave(ending),
            None => self.show(Shown::Standby),
        }
    }

    /// Gives back a term under which nothing runs.
    fn give_back(&mut self, is_lost: bool) {
        self.actions.push(Action::CancelFence);
        self.actions.push(Action::Hook(Hook::Lost));
        self.actions.push(Action::WorkEnded);
        self.state = State::Idle;
        if let Some(ending) = self.ending {
            self.leave(ending);
        } else if is_lost && self.rules.exit_on_lost {
            self.leave(Ending::Lost);
        } else {
            self.show(Shown::Standby);
        }
    }

    fn terminate(&mut self, signal: i32) {
        let kill_at = self.now + self.rules.drain;
        let is_repeated = self.ending.is_some();
        match &mut self.state {
            State::Idle => self.leave(Ending::Asked),
            State::Fencing { .. } => {
                self.ending = Some(Ending::Asked);
                self.give_back(false);
            }
            State::Working(_) if is_repeated => self.kill(),
            State::Working(work) => {
                work.stop.get_or_insert(Stop::Drain { kill_at });
                // Whatever happens to the lease meanwhile, the program's own code is the answer.
                self.ending = Some(Ending::Asked);
                self.actions.push(Action::Forward(signal));
                self.show(Shown::Stopping);
            }
            State::Leaving { .. } => self.done(),
            State::Done => {}
        }
    }

    /// The program runs and does not answer: it must not lead for ever (semantics 31).
    fn hung(&mut self) {
        let State::Working(work) = &mut self.state else { return };
        work.proved_at = None;
        (work.is_lost, work.is_hung) = (true, true);
        self.actions.push(Action::Resign);
    }

    fn kill(&mut self) {
        let State::Working(work) = &mut self.state else { return };
        work.killed_at.get_or_insert(self.now);
        if work.stop.is_some() {
            work.stop = Some(Stop::Forced { kill_at: None });
        }
        self.actions.push(Action::Kill);
    }

    fn kill_guard(&mut self) {
        let State::Working(work) = &mut self.state else { return };
        work.unheard = None;
        work.killed_at = Some(self.now);
        self.actions.push(Action::KillGuard);
    }

    fn hook_lost(&mut self) {
        let State::Working(work) = &mut self.state else { return };
        if !work.has_hooked {
            work.has_hooked = true;
            self.actions.push(Action::Hook(Hook::Lost));
        }
    }

    fn leave(&mut self, ending: Ending) {
        self.ending = Some(ending);
        self.state = State::Leaving { until: self.now + self.rules.farewell };
        self.actions.push(Action::Leave);
        self.show(Shown::Leaving);
    }

    fn done(&mut self) {
        self.state = State::Done;
        if let Some(ending) = self.ending {
            self.actions.push(Action::Exit(ending));
        }
    }

    fn work(&mut self, change: impl FnOnce(&mut Work, &mut Vec<Action>)) {
        if let State::Working(work) = &mut self.state {
            change(work, &mut self.actions);
        }
    }

    /// When a program that has not answered is taken to hang; none if it need not answer.
    fn unproved_at(&self, work: &Work) -> Option<Moment> {
        let is_running = work.status.is_none() && work.stop.is_none();
        work.proved_at
            .filter(|_| is_running)
            .zip(self.rules.probe)
            .map(|(at, probe)| at + probe.limit)
    }

    fn show(&mut self, shown: Shown) {
        self.actions.push(Action::Show(shown));
    }
}

impl Work {
    const fn is_forced(&self) -> bool {
        matches!(self.stop, Some(Stop::Forced { .. }))
    }

    /// When what is left is killed from here.
    const fn kill_at(&self) -> Option<Moment> {
        match self.stop {
            Some(Stop::Drain { kill_at }) => Some(kill_at),
            Some(Stop::Forced { kill_at }) => kill_at,
            None => None,
        }
    }
}

#[cfg(test)]
mod tests;
