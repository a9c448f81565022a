//! A group moves to another store, with its leader and above its terms.
//!
//! The steps and why they are safe are those of `regent_election::door`; here they are taken in their order,
//! each repeated until its outcome is known. Nothing is remembered outside the two stores, so a move that
//! was interrupted anywhere is finished by the same call, and turned round by the opposite one.
//!
//! - `plan`: what is left to do, as a pure function of what the two stores say.
//! - `side`: one of the two stores.
//! - `report`: progress, outcome and errors.

mod plan;
mod report;
mod side;

use std::pin::pin;
use std::time::Duration;

use regent::fresh;
use regent_api::{Code, Problem};
use regent_clock::now;
use regent_election::store::{GroupView, LeaderView, OfficeState};
use regent_election::{Door, Group, Home, Moment, Node, Refusal, RequestId, Revision, Step, Term};

use plan::Plan;
use side::{SideResult, is_passing};

pub use report::{MigrateError, MigrateProgress, Moved, Reached, Stopped, Weaker};
pub use side::{Side, SideError, without_secrets};

/// How often a side is asked while something is waited for: it is what a leaderless moment lasts longer.
const MIGRATE_POLL_EVERY: Duration = Duration::from_millis(2);
/// How long a side that cannot be reached is left alone.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How a move is made.
#[derive(Clone, Debug)]
pub struct MigrateOptions {
    /// The URL that participants are told to go to; the new store's if none.
    pub forward: Option<Home>,
    /// The URL under which the new store knows the old one; the old store's if none.
    pub known_as: Option<Home>,
    /// Whether the new store may claim less than the old one.
    pub allow_weaker: bool,
    /// How long the new store waits for the leader of the old one before it takes another.
    pub heir_wait: Duration,
    /// How long each step may take, the old leader's ttl included.
    pub timeout: Duration,
}

impl Default for MigrateOptions {
    fn default() -> Self {
        Self {
            forward: None,
            known_as: None,
            allow_weaker: false,
            heir_wait: Duration::from_secs(2),
            timeout: Duration::from_secs(120),
        }
    }
}

/// Moves groups from one store to another.
pub struct Mover {
    from: Side,
    to: Side,
    forward: Home,
    /// What the new store calls the old one.
    known_as: Home,
    options: MigrateOptions,
    report: Box<dyn Fn(MigrateProgress) + Send + Sync>,
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover")
            .field("from", &self.from)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// Why a move stopped, and where.
struct Stop {
    problem: Problem,
    reached: Reached,
}

impl Mover {
    /// A mover between two stores, which reports its progress.
    ///
    /// # Errors
    /// If they are the same.
    pub fn new(
        from: Side,
        to: Side,
        options: MigrateOptions,
        report: impl Fn(MigrateProgress) + Send + Sync + 'static,
    ) -> Result<Self, MigrateError> {
        if from.home() == to.home() {
            return Err(MigrateError::SameStore);
        }
        let forward = options.forward.clone().unwrap_or_else(|| to.home().clone());
        let known_as = options.known_as.clone().unwrap_or_else(|| from.home().clone());
        Ok(Self { from, to, forward, known_as, options, report: Box::new(report) })
    }

    /// Where participants are told to go.
    #[must_use]
    pub const fn forward(&self) -> &Home {
        &self.forward
    }

    /// Checks that both stores serve, and that the new one claims no less than the old one, unless that is
    /// allowed.
    ///
    /// # Errors
    /// If one of them does not, and then nothing was changed.
    pub async fn compare_levels(&self) -> Result<(), MigrateError> {
        let old = self.insist(|| self.from.level()).await.map_err(MigrateError::Unready)?;
        let new = self.insist(|| self.to.level()).await.map_err(MigrateError::Unready)?;
        if new >= old {
            return Ok(());
        }
        let (from, to) = (self.from.home().clone(), self.to.home().clone());
        let weaker = Weaker { from, old, to, new };
        if !self.options.allow_weaker {
            return Err(weaker.into());
        }
        (self.report)(MigrateProgress::Weaker(weaker));
        Ok(())
    }

    /// Moves one group, or finishes its move.
    ///
    /// # Errors
    /// Where it stopped, and why. Repeated, it goes on.
    pub async fn migrate(&self, group: &Group) -> Result<Moved, MigrateError> {
        self.take_steps(group).await.map_err(|stop| self.stopped(group, stop))
    }

    /// Only closes the group in the old store and tells participants where it went: for a store that was
    /// restored from before the move.
    ///
    /// # Errors
    /// If that cannot be done; it may have been.
    pub async fn close(&self, group: &Group) -> Result<Moved, MigrateError> {
        let stop = |problem| Stop { problem, reached: Reached::Departed };
        let closed = self.depart(group).await.map_err(stop);
        let closed = closed.map_err(|stop| self.stopped(group, stop))?;
        Ok(Moved { last_term: closed.office.term.get(), ..self.moved(group) })
    }

    /// Lets go of both stores.
    pub async fn shut_down(&self) {
        self.from.shut_down().await;
        self.to.shut_down().await;
    }

    fn stopped(&self, group: &Group, stop: Stop) -> MigrateError {
        let (from, to) = (self.from.home().clone(), self.to.home().clone());
        let Stop { problem, reached } = stop;
        MigrateError::Stopped(Box::new(Stopped {
            group: group.clone(),
            from,
            to,
            reached,
            problem,
        }))
    }

    async fn take_steps(&self, group: &Group) -> Result<Moved, Stop> {
        let stop = |reached| move |problem| Stop { problem, reached };
        self.check_apart(group).await.map_err(stop(Reached::Nothing))?;
        let old = self.insist(|| self.from.group(group)).await.map_err(stop(Reached::Nothing))?;
        let mut new = None;
        match &old {
            None => {
                let home = self.from.home().clone();
                (self.report)(MigrateProgress::UnknownGroup { home, group: group.clone() });
            }
            Some(view) => {
                plan::check_departure(group, view, &self.forward)
                    .map_err(|refusal| stop(Reached::Nothing)(refusal.into()))?;
                if !view.door.is_open() {
                    let read = self.insist(|| self.to.group(group)).await;
                    new = read.map_err(stop(Reached::Nothing))?;
                }
            }
        }
        let has_departed = match plan::plan(old.as_ref(), new.as_ref()) {
            Plan::Finished => {
                (self.report)(MigrateProgress::MovedAlready { group: group.clone() });
                return Ok(self.finished(group, old.as_ref(), new.as_ref()));
            }
            Plan::NeverLeft => {
                let home = self.to.home().clone();
                (self.report)(MigrateProgress::NotLeftYet { group: group.clone(), home });
                self.depart(group).await.map_err(stop(Reached::Nothing))?;
                return Ok(self.finished(group, old.as_ref(), new.as_ref()));
            }
            Plan::Move { has_departed } => has_departed,
        };
        let since = self.expect(group).await.map_err(stop(Reached::Nothing))?;
        let expected = if has_departed { Reached::Departed } else { Reached::Expected };
        if let Some(view) = old.as_ref().filter(|view| view.own_policy) {
            let policy = || self.to.put_policy(group, view.policy.clone());
            self.insist(policy).await.map_err(stop(expected))?;
        }
        let departed = self.depart(group).await.map_err(stop(Reached::Departed))?;
        let led_by = departed.office.leader.clone();
        let stop = stop(Reached::Departed);
        // Whatever can be done before the old office is vacant: nothing but the arrival is left then.
        self.await_room(group).await.map_err(stop)?;
        let request = self.request(&self.to, group).await.map_err(stop)?;
        let vacancy = self.await_vacancy(group, departed.office.term);
        let heir = self.heir_comes(group, led_by.as_ref());
        let (last, vacant_at) = self.meanwhile(vacancy, heir).await.map_err(stop)?;
        let heir = led_by.clone();
        self.arrive(group, Step::Arrive { since, above: last, heir }, request)
            .await
            .map_err(stop)?;
        let office = self.await_leader(group, led_by.is_some()).await.map_err(stop)?;
        let is_led = office.state == OfficeState::Leading;
        let leaderless_ms = u64::try_from(now().since(vacant_at).as_millis()).unwrap_or(u64::MAX);
        Ok(Moved {
            last_term: last.get(),
            leaderless_ms: (is_led && led_by.is_some()).then_some(leaderless_ms),
            led_by: led_by.map(|node| node.to_string()),
            leader: office.leader.filter(|_| is_led).map(|node| node.to_string()),
            term: office.term.get(),
            ..self.moved(group)
        })
    }

    /// What is told of every move of this group.
    fn moved(&self, group: &Group) -> Moved {
        Moved {
            group: group.to_string(),
            from: self.from.home().to_string(),
            to: self.forward.to_string(),
            last_term: 0,
            led_by: None,
            leader: None,
            term: 0,
            leaderless_ms: None,
        }
    }

    /// Closes the door of the old store; its leader is told to stop.
    async fn depart(&self, group: &Group) -> SideResult<GroupView> {
        let request = self.request(&self.from, group).await?;
        let to = &self.forward;
        let depart = || self.from.step(group, Step::Depart { to: to.clone() }, request.clone());
        let view = self.insist(depart).await?;
        if let (Some(leader), OfficeState::Ending) = (&view.office.leader, view.office.state) {
            let (leader, term) = (leader.clone(), view.office.term);
            (self.report)(MigrateProgress::LeaderToldToStop { group: group.clone(), leader, term });
        }
        Ok(view)
    }

    /// A name for one step, so that a try that comes late does nothing.
    async fn request(&self, side: &Side, group: &Group) -> SideResult<Option<RequestId>> {
        let seen = self.insist(|| side.leader(group)).await?.revision;
        let request = fresh::request_id(seen);
        request.map(Some).map_err(|error| Problem::new(Code::StoreUnavailable, error.to_string()))
    }

    /// What became of a move that is over already.
    fn finished(&self, group: &Group, old: Option<&GroupView>, new: Option<&GroupView>) -> Moved {
        let term = |view: Option<&GroupView>| view.map_or(0, |view| view.office.term.get());
        Moved {
            last_term: term(old),
            leader: new.and_then(|view| Some(view.office.leader.as_ref()?.to_string())),
            term: term(new),
            ..self.moved(group)
        }
    }

    /// Closes the door of the new store.
    async fn expect(&self, group: &Group) -> SideResult<Revision> {
        let request = self.request(&self.to, group).await?;
        let from = &self.known_as;
        let expect = || self.to.step(group, Step::Expect { from: from.clone() }, request.clone());
        let view = self.insist(expect).await?;
        match view.door {
            Door::Expected { since, .. } => Ok(since),
            Door::Open | Door::Moved { .. } | Door::Stopped { .. } => {
                let since = Revision(0);
                Err(Refusal::NotExpected { group: group.clone(), since }.into())
            }
        }
    }

    /// Two URLs may name one store, whatever it is known as elsewhere. Its group would depart to itself, and never arrive. A
    /// store is known by the life of its numbering, which every answer tells.
    async fn check_apart(&self, group: &Group) -> SideResult<()> {
        let old = self.insist(|| self.from.leader(group)).await?.cursor.incarnation;
        let new = self.insist(|| self.to.leader(group)).await?.cursor.incarnation;
        if old != new {
            return Ok(());
        }
        let why = "--from and --to are two names of the same store; nothing was changed";
        Err(Problem::new(Code::BadRequest, why))
    }

    /// Waits until nobody leads in the old store, and nobody can; gives the last term that was granted there
    /// and since when it may have been vacant.
    async fn await_vacancy(&self, group: &Group, departed: Term) -> SideResult<(Term, Moment)> {
        let until = now() + self.options.timeout;
        let mut seen_at = now();
        loop {
            let asked_at = now();
            let office = self.insist(|| self.from.leader(group)).await?;
            // A store that was emptied or restored meanwhile knows nothing of its leader either.
            if office.moved_to.as_ref() != Some(&self.forward) {
                let why =
                    format!("{} does not know any more that the group departs", self.from.home());
                return Err(Problem::new(Code::StoreCorrupt, why));
            }
            if office.state == OfficeState::Vacant {
                return Ok((office.term.max(departed), seen_at));
            }
            seen_at = asked_at;
            if now() >= until {
                return Err(Refusal::StillLed { group: group.clone(), term: office.term }.into());
            }
            tokio::time::sleep(MIGRATE_POLL_EVERY).await;
        }
    }

    /// Waits for the vacancy of the old office, and gives the old leader a moment more to come to the new store
    /// if it is not there by then, so that it leads on.
    async fn meanwhile<V>(
        &self,
        vacancy: impl Future<Output = SideResult<V>>,
        heir: impl Future<Output = SideResult<()>>,
    ) -> SideResult<V> {
        let (mut vacancy, mut heir) = (pin!(vacancy), pin!(heir));
        let mut is_there = false;
        let vacated = loop {
            tokio::select! {
                vacated = &mut vacancy => break vacated?,
                came = &mut heir, if !is_there => {
                    came?;
                    is_there = true;
                }
            }
        };
        if !is_there {
            match tokio::time::timeout(self.options.heir_wait, heir).await {
                Ok(came) => came?,
                Err(_) => {
                    (self.report)(MigrateProgress::HeirAbsent { home: self.to.home().clone() })
                }
            }
        }
        Ok(vacated)
    }

    /// Waits until the old leader, if there was one, stands in the new store.
    async fn heir_comes(&self, group: &Group, heir: Option<&Node>) -> SideResult<()> {
        let Some(heir) = heir else { return Ok(()) };
        loop {
            let view = self.insist(|| self.to.group(group)).await?;
            let standbys = view.map(|view| view.standbys).unwrap_or_default();
            if standbys.iter().any(|standby| standby.node == *heir) {
                return Ok(());
            }
            tokio::time::sleep(MIGRATE_POLL_EVERY).await;
        }
    }

    /// Waits until the new store has room: a group that comes back may find its own last tenure ending there.
    async fn await_room(&self, group: &Group) -> SideResult<()> {
        let until = now() + self.options.timeout;
        while self.insist(|| self.to.leader(group)).await?.state != OfficeState::Vacant
            && now() < until
        {
            tokio::time::sleep(MIGRATE_POLL_EVERY).await;
        }
        Ok(())
    }

    /// Opens the door of the new store.
    async fn arrive(
        &self,
        group: &Group,
        step: Step,
        request: Option<RequestId>,
    ) -> SideResult<()> {
        let above = match &step {
            Step::Arrive { above, .. } => *above,
            Step::Expect { .. } | Step::Depart { .. } | Step::Stop | Step::Resume { .. } => {
                Term::NONE
            }
        };
        let arrive = || self.to.step(group, step.clone(), request.clone());
        let refusal = match self.insist(arrive).await {
            Ok(_) => return Ok(()),
            Err(refusal) => refusal,
        };
        // A first try that seemed lost may have opened it.
        let view = self.insist(|| self.to.group(group)).await?;
        let is_open = view.is_some_and(|view| view.door == Door::Open && view.office.term >= above);
        if refusal.code == Code::NotExpected && is_open { Ok(()) } else { Err(refusal) }
    }

    /// Who leads in the new store; waited for a moment only if somebody led in the old one.
    async fn await_leader(&self, group: &Group, is_likely: bool) -> SideResult<LeaderView> {
        let until = now() + self.options.heir_wait;
        loop {
            let office = self.insist(|| self.to.leader(group)).await?;
            let is_led = office.state == OfficeState::Leading;
            if is_led || !is_likely || now() >= until {
                return Ok(office);
            }
            tokio::time::sleep(MIGRATE_POLL_EVERY).await;
        }
    }

    /// Asks until there is a definite answer: every question and every step may be repeated.
    async fn insist<T, F: Future<Output = SideResult<T>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> SideResult<T> {
        let until = now() + self.options.timeout;
        loop {
            match ask().await {
                Err(problem) if is_passing(&problem) && now() < until => {
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                answer => return answer,
            }
        }
    }
}
