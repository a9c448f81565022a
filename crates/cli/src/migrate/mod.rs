//! `regent migrate`: a group moves to another store, with its leader and above its terms.
//!
//! The steps and why they are safe are those of `regent_election::door`; here they are taken in their order,
//! each repeated until its outcome is known. Nothing is remembered outside the two stores, so a move that
//! was interrupted anywhere is finished by the same command, and turned round by the opposite one.

mod side;

use std::pin::pin;
use std::time::Duration;

use clap::Args;
use regent::fresh;
use regent_api::{Code, Problem};
use regent_clock::now;
use regent_election::store::{GroupView, LeaderView, OfficeState};
use regent_election::{Door, Group, Home, Moment, Node, Refusal, RequestId, Revision, Step, Term};
use serde::Serialize;

use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome, exit_of};
use crate::output::{Output, Screen, facts, or_dash, remark};
use side::{Side, SideResult, is_passing, without_secrets};

/// How often a side is asked while something is waited for: it is what a leaderless moment lasts longer.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long a side that cannot be reached is left alone.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Flags of `regent migrate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The new store closes its door for the group, the old one tells its leader to stop and everybody
else where to go, and when nobody leads there any more the new one opens, above the old terms.
Participants that use the library or `regent run` follow by themselves; the leader comes first. In
between nobody is elected. Interrupted, the same command finishes the move, and the opposite one
turns it round.

What stays behind: the history of the group, and a tombstone that names the new store. Keep the
old store until no process is started with its URL any more.

Examples:
  regent migrate --from http://127.0.0.1:7400 --to postgres://regent@db/x --group billing
  regent migrate --from redis://cache --to http://a:7400,b:7400 --group billing --group mail
  regent migrate --from etcd://a,b,c --to redis://cache --group billing --allow-weaker")]
pub(crate) struct MigrateArgs {
    /// The store it is in: a service (http://...), or whatever `regent store list` shows
    #[arg(long, value_name = "URL")]
    from: String,
    /// The store it shall go to
    #[arg(long, value_name = "URL")]
    to: String,
    /// The group; may be said several times
    #[arg(long, required = true, value_name = "GROUP")]
    group: Vec<Group>,
    /// The URL that participants are told to go to; --to without its password if not said
    #[arg(long, value_name = "URL")]
    forward: Option<String>,
    /// The URL under which the new store knows the old one, if the group comes back and was told another
    #[arg(long, value_name = "URL")]
    from_known_as: Option<String>,
    /// Only close the group in the old store and tell everybody where it went: for one that was restored
    /// from before the move
    #[arg(long)]
    close_only: bool,
    /// Move even if the new store claims less than the old one
    #[arg(long)]
    allow_weaker: bool,
    /// How long the new store waits for the leader of the old one before it takes another
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    heir_wait: Duration,
    /// How long each step may take, the old leader's ttl included
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse)]
    timeout: Duration,
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t, env = "REGENT_OUTPUT")]
    pub(crate) output: Output,
}

/// What became of one group.
#[derive(Debug, Serialize)]
struct Moved {
    group: String,
    from: String,
    to: String,
    /// The last term of the old store.
    last_term: u64,
    /// Who led there.
    led_by: Option<String>,
    /// Who leads now, if anybody was elected while it was waited for.
    leader: Option<String>,
    term: u64,
    /// For how long nobody led, as far as this command could see.
    leaderless_ms: Option<u64>,
}

/// Runs the verb.
pub(crate) async fn run(args: MigrateArgs) -> Outcome {
    let (from, to) = (Side::open(&args.from)?, Side::open(&args.to)?);
    if from.home() == to.home() {
        return Err(Failure::usage("--from and --to are the same store"));
    }
    let forward = match &args.forward {
        Some(url) => {
            if without_secrets(url)? != *url {
                remark(
                    "warning: everybody who asks for the group is told --forward, with its password",
                );
            }
            Home::new(url)?
        }
        None => to.home().clone(),
    };
    let known_as = match &args.from_known_as {
        Some(url) => Home::new(url)?,
        None => from.home().clone(),
    };
    if args.forward.is_none() && forward.as_str() != args.to {
        remark(&format!(
            "participants are told to go to {forward}, without what is secret in --to: they must know \
             that by another way, or say what they shall be told with --forward"
        ));
    }
    let mover = Mover { from, to, forward, known_as, args };
    if mover.args.close_only {
        return mover.close().await;
    }
    mover.compare_levels().await?;
    for group in &mover.args.group {
        let moved = mover.migrate(group).await.map_err(|stop| mover.failure(group, stop))?;
        Screen { output: mover.args.output }.answer(&moved, || show(&moved))?;
    }
    mover.from.shut_down().await;
    mover.to.shut_down().await;
    Ok(Exit::Done)
}

/// A move to be made.
struct Mover {
    from: Side,
    to: Side,
    forward: Home,
    /// What the new store calls the old one.
    known_as: Home,
    args: MigrateArgs,
}

/// Why a move stopped, and where.
struct Stop {
    problem: Problem,
    reached: Reached,
}

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// Nothing was changed.
    Nothing,
    /// The new store expects it; the old one is as it was.
    Expected,
    /// The old store has told its leader to stop, or may have.
    Departed,
}

impl Mover {
    async fn compare_levels(&self) -> Result<(), Failure> {
        let plain = |problem: Problem| Failure::new(exit_of(problem.code), problem.to_string());
        let old = self.insist(|| self.from.level()).await.map_err(plain)?;
        let new = self.insist(|| self.to.level()).await.map_err(plain)?;
        if new >= old {
            return Ok(());
        }
        let (from, to) = (self.from.home(), self.to.home());
        let weaker = format!("{to} claims {new}, which is less than the {old} of {from}");
        if self.args.allow_weaker {
            remark(&format!("warning: {weaker}"));
            return Ok(());
        }
        let way_out = "nothing was done; if that is meant, add --allow-weaker";
        Err(Failure::new(Exit::Refused, format!("{weaker}; {way_out}")))
    }

    async fn migrate(&self, group: &Group) -> Result<Moved, Stop> {
        let stop = |reached| move |problem| Stop { problem, reached };
        let old = self.insist(|| self.from.group(group)).await.map_err(stop(Reached::Nothing))?;
        self.check_departure(group, old.as_ref()).map_err(stop(Reached::Nothing))?;
        let done = self.finished(group, old.as_ref()).await.map_err(stop(Reached::Nothing))?;
        if let Some(done) = done {
            return Ok(done);
        }
        let had_departed = old.as_ref().is_some_and(|view| view.door.moved_to().is_some());
        let since = self.expect(group).await.map_err(stop(Reached::Nothing))?;
        let expected = if had_departed { Reached::Departed } else { Reached::Expected };
        self.check_apart(group, since).await.map_err(stop(expected))?;
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

    /// Only closes the old store.
    async fn close(&self) -> Outcome {
        for group in &self.args.group {
            let stop = |problem| Stop { problem, reached: Reached::Departed };
            let departed = self.depart(group).await.map_err(stop);
            let closed = departed.map_err(|stop| self.failure(group, stop))?;
            let moved = Moved { last_term: closed.office.term.get(), ..self.moved(group) };
            Screen { output: self.args.output }.answer(&moved, || show(&moved))?;
        }
        Ok(Exit::Done)
    }

    /// Closes the door of the old store; its leader is told to stop.
    async fn depart(&self, group: &Group) -> SideResult<GroupView> {
        let request = self.request(&self.from, group).await?;
        let to = &self.forward;
        let depart = || self.from.step(group, Step::Depart { to: to.clone() }, request.clone());
        let view = self.insist(depart).await?;
        if let (Some(leader), OfficeState::Ending) = (&view.office.leader, view.office.state) {
            remark(&format!(
                "{leader} was told to stop leading {group} (term {})",
                view.office.term
            ));
        }
        Ok(view)
    }

    /// A name for one step, so that a try that comes late does nothing.
    async fn request(&self, side: &Side, group: &Group) -> SideResult<Option<RequestId>> {
        let seen = self.insist(|| side.leader(group)).await?.revision;
        let request = fresh::request_id(seen);
        request.map(Some).map_err(|error| Problem::new(Code::StoreUnavailable, error.to_string()))
    }

    /// A group that moved elsewhere, or is only on its way to the old store, is not the old store's to give.
    fn check_departure(&self, group: &Group, old: Option<&GroupView>) -> SideResult<()> {
        let Some(view) = old else {
            remark(&format!(
                "{} knows no {group} yet; it is closed there all the same",
                self.from.home()
            ));
            return Ok(());
        };
        match &view.door {
            Door::Moved { to } if *to != self.forward => {
                Err(Refusal::Moved { group: group.clone(), to: to.clone() }.into())
            }
            // It can only be turned round.
            Door::Expected { from, .. } if *from != self.forward => {
                Err(Refusal::OnItsWay { group: group.clone(), from: from.clone() }.into())
            }
            Door::Open | Door::Moved { .. } | Door::Expected { .. } => Ok(()),
        }
    }

    /// What became of a move that was finished before, or that never began and is turned round.
    async fn finished(&self, group: &Group, old: Option<&GroupView>) -> SideResult<Option<Moved>> {
        let Some(old) = old.filter(|view| !view.door.is_open()) else { return Ok(None) };
        let new = self.insist(|| self.to.group(group)).await?;
        let Some(new) = new.filter(|view| view.door == Door::Open) else { return Ok(None) };
        let (term, leader) = (new.office.term, new.office.leader);
        match &old.door {
            // The new store opens only at the end of a move, and then above the old terms.
            Door::Moved { .. } if term >= old.office.term => {
                remark(&format!("{group} had moved already"));
            }
            // It was expected in what is now the old store and never left the other one.
            Door::Expected { .. } => {
                remark(&format!("{group} had not left {} yet", self.to.home()));
                self.depart(group).await?;
            }
            Door::Moved { .. } | Door::Open => return Ok(None),
        }
        Ok(Some(Moved {
            last_term: old.office.term.get(),
            leader: leader.map(|node| node.to_string()),
            term: term.get(),
            ..self.moved(group)
        }))
    }

    /// Closes the door of the new store.
    async fn expect(&self, group: &Group) -> SideResult<Revision> {
        let request = self.request(&self.to, group).await?;
        let from = &self.known_as;
        let expect = || self.to.step(group, Step::Expect { from: from.clone() }, request.clone());
        let view = self.insist(expect).await?;
        match view.door {
            Door::Expected { since, .. } => Ok(since),
            Door::Open | Door::Moved { .. } => {
                let since = Revision(0);
                Err(Refusal::NotExpected { group: group.clone(), since }.into())
            }
        }
    }

    /// Two URLs may name one store. Its group would depart to itself, and never arrive.
    async fn check_apart(&self, group: &Group, since: Revision) -> SideResult<()> {
        let Some(old) = self.insist(|| self.from.group(group)).await? else { return Ok(()) };
        let home = self.from.home();
        let is_same =
            matches!(&old.door, Door::Expected { from, since: at } if from == home && *at == since);
        if !is_same {
            return Ok(());
        }
        let above = old.office.term;
        let reopen = || self.to.step(group, Step::Arrive { since, above, heir: None }, None);
        self.insist(reopen).await?;
        let why = "--from and --to are two names of the same store; nothing was changed";
        Err(Problem::new(Code::BadRequest, why))
    }

    /// Waits until nobody leads in the old store, and nobody can; gives the last term that was granted there
    /// and since when it may have been vacant.
    async fn await_vacancy(&self, group: &Group, departed: Term) -> SideResult<(Term, Moment)> {
        let until = now() + self.args.timeout;
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
            tokio::time::sleep(LOOK_EVERY).await;
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
            match tokio::time::timeout(self.args.heir_wait, heir).await {
                Ok(came) => came?,
                Err(_) => remark(&format!(
                    "the old leader has not come to {}; whoever is first leads",
                    self.to.home()
                )),
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
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the new store has room: a group that comes back may find its own last tenure ending there.
    async fn await_room(&self, group: &Group) -> SideResult<()> {
        let until = now() + self.args.timeout;
        while self.insist(|| self.to.leader(group)).await?.state != OfficeState::Vacant
            && now() < until
        {
            tokio::time::sleep(LOOK_EVERY).await;
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
            Step::Expect { .. } | Step::Depart { .. } => Term::NONE,
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
        let until = now() + self.args.heir_wait;
        loop {
            let office = self.insist(|| self.to.leader(group)).await?;
            let is_led = office.state == OfficeState::Leading;
            if is_led || !is_likely || now() >= until {
                return Ok(office);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Asks until there is a definite answer: every question and every step may be repeated.
    async fn insist<T, F: Future<Output = SideResult<T>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> SideResult<T> {
        let until = now() + self.args.timeout;
        loop {
            match ask().await {
                Err(problem) if is_passing(&problem) && now() < until => {
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                answer => return answer,
            }
        }
    }

    /// What a person should know about a move that stopped.
    fn failure(&self, group: &Group, stop: Stop) -> Failure {
        let Stop { problem, reached } = stop;
        let exit = exit_of(problem.code);
        let (from, to) = (self.from.home(), self.to.home());
        let way_out = "say the same again to finish, or the opposite to turn round";
        let state = match reached {
            Reached::Nothing => format!("{group} has not moved: {problem}"),
            Reached::Expected if problem.code == Code::BadRequest => problem.detail.clone(),
            Reached::Expected => format!(
                "{group} is in {from} as before, and {to} elects nobody for it: {problem}; {way_out}"
            ),
            Reached::Departed => format!(
                "{group} is on its way from {from} to {to}, and nobody is elected until it arrives: \
                 {problem}; {way_out}"
            ),
        };
        Failure::new(exit, state)
    }
}

fn show(moved: &Moved) -> String {
    let leaderless = moved.leaderless_ms.map(|ms| format!("{ms} ms"));
    facts(vec![
        ("group", moved.group.clone()),
        ("moved to", moved.to.clone()),
        ("last term", moved.last_term.to_string()),
        ("led by", or_dash(moved.led_by.as_ref())),
        ("leader", or_dash(moved.leader.as_ref())),
        ("term", moved.term.to_string()),
        ("leaderless", or_dash(leaderless)),
    ])
}
