//! `regent campaign --keep`: stand until elected, lead until interrupted or lost.
//!
//! The library stands and leads; this file prints what it tells. If the group moves to another store while
//! this process stands in it, the library goes on there.
//!
//! It does no work of its own: the reader of its lines does. An unasked stop is therefore announced
//! half a stop grace before it is confirmed to the store. A signal means that the work has been stopped.

use std::pin::pin;
use std::time::Duration;

use regent::{
    CampaignError, Current, LeaderWatch, Leadership, NotElected, Phase, Regent, Transition,
    Transitions,
};
use regent_election::limits::TTL_MS_DEFAULT;
use regent_election::{Group, Moment, Node, Refusal, Term};
use regent_operate::keep_line::KeepLine;

use crate::campaign::CampaignArgs;
use crate::duration::{show, show_ms};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Screen, remark};
use crate::signals::Signals;

/// Timers stand still while a machine sleeps, and the lease clock does not: it is read at least this
/// often.
const TICK: Duration = Duration::from_millis(250);

/// Leads until it is over.
pub(crate) async fn run(args: CampaignArgs) -> CommandResult {
    let mut signals = Signals::listen()?;
    args.client.is_regent().await?;
    let ttl = args.ttl.unwrap_or(Duration::from_millis(TTL_MS_DEFAULT));
    let at = Regent::at(args.client.url()?).node(args.node.as_str()).ttl(ttl);
    let at = args.follow_to.iter().fold(at, |at, place| at.follow_to(place));
    let regent = at.connect().await?;
    let mut teller = Teller {
        node: args.node.clone(),
        group: args.group.clone(),
        screen: Screen::chosen(),
        transitions: regent.transitions(),
    };
    let watch = regent.watch_leader(&args.group)?;
    let ending = match stand(&args, &regent, watch, &mut signals, &teller).await? {
        Ok(leadership) => lead(leadership, &regent, &mut signals, &mut teller).await?,
        Err(ending) => ending,
    };
    leave(ending, regent, &mut signals, &mut teller).await
}

/// How it ends.
#[derive(Debug)]
enum Ending {
    /// Interrupted: resign what is held, and go.
    Asked(Option<Leadership>),
    /// The wait was over before the office was won.
    NotElected(NotElected),
    /// The leadership is gone.
    Lost,
}

/// Stands until this process leads, or it ends before.
async fn stand(
    args: &CampaignArgs,
    regent: &Regent,
    mut watch: LeaderWatch,
    signals: &mut Signals,
    teller: &Teller,
) -> Result<Result<Leadership, Ending>, Failure> {
    let campaign = regent.campaign(&args.group).priority(args.priority).metadata(args.metadata()?);
    let mut standing = campaign.clone().into_future();
    let mut gives_up = pin!(reached(args.wait.map(|wait| regent_clock::now() + wait)));
    loop {
        let error = tokio::select! {
            biased;
            _ = signals.next() => return Ok(Err(Ending::Asked(None))),
            won = &mut standing => match won {
                Ok(leadership) => return Ok(Ok(leadership)),
                Err(error) => error,
            },
            current = watch.next() => {
                teller.standing_by(&current)?;
                continue;
            }
            () = &mut gives_up => {
                return Ok(Err(Ending::NotElected(regent.why_not_elected(&args.group, false))));
            }
        };
        match error {
            // The group may come back, or the way to it be opened.
            CampaignError::CannotFollow { .. } | CampaignError::Refused(Refusal::Moved { .. }) => {
                remark(&format!("{error}; trying again after a ttl"));
            }
            error => return Err(error.into()),
        }
        let (again, pause) = (campaign.clone(), regent.budget().ttl());
        standing = Box::pin(async move {
            tokio::time::sleep(pause).await;
            again.await
        });
    }
}

/// Tells every change of phase until this process must not lead any more.
async fn lead(
    leadership: Leadership,
    regent: &Regent,
    signals: &mut Signals,
    teller: &mut Teller,
) -> Result<Ending, Failure> {
    let mut stopped_at = None;
    loop {
        let transition = tokio::select! {
            biased;
            _ = signals.next(), if stopped_at.is_none() => {
                return Ok(Ending::Asked(Some(leadership)));
            }
            transition = teller.next() => transition,
            () = reached(stopped_at) => return Ok(Ending::Lost),
        };
        teller.tell(&transition)?;
        match transition.to {
            Phase::Standby | Phase::Leading | Phase::Jeopardy => {}
            Phase::Stopping => {
                let grace = regent.budget().stop_grace() / 2;
                stopped_at = Some((regent_clock::now() + grace).min(leadership.valid_until()));
            }
            Phase::Stopped | Phase::Lost => return Ok(Ending::Lost),
        }
    }
}

/// Leaves, and says what becomes of the office. The second signal leaves things to the ttl.
async fn leave(
    ending: Ending,
    regent: Regent,
    signals: &mut Signals,
    teller: &mut Teller,
) -> CommandResult {
    let ttl = show(regent.budget().ttl());
    let (mut held, exit) = match ending {
        Ending::Asked(held) => (held, None),
        Ending::NotElected(why) => (None, Some(Err(Failure::not_elected(&teller.group, &why)))),
        Ending::Lost => (None, Some(Ok(Exit::Lost))),
    };
    let mut closing = pin!(regent.close());
    let is_told = loop {
        tokio::select! {
            biased;
            transition = teller.next() => {
                teller.tell(&transition)?;
                // The work has stopped before the signal came.
                held = None;
            }
            name = signals.next(), if exit.is_none() => {
                let message = format!("{name} again: gone at once; the office is free after {ttl}");
                return Err(Failure::new(Exit::Interrupted, message));
            }
            is_told = &mut closing => break is_told,
        }
    };
    drop(held);
    teller.tell_rest().await?;
    match exit {
        Some(ended) => ended,
        None if is_told => Ok(Exit::Done),
        None => Err(Failure::new(
            Exit::Uncertain,
            format!("the server did not hear the resignation; the office is free after {ttl}"),
        )),
    }
}

/// Waits until the lease clock shows this moment; for ever without one.
async fn reached(at: Option<Moment>) {
    let Some(at) = at else { return std::future::pending().await };
    loop {
        let left = regent_clock::now().until(at);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(TICK)).await;
    }
}

/// Prints what happens in one group.
struct Teller {
    node: Node,
    group: Group,
    screen: Screen,
    transitions: Transitions,
}

impl Teller {
    /// The next change of phase of a term.
    async fn next(&mut self) -> Transition {
        loop {
            match self.transitions.next().await {
                Some(next) if next.group == self.group && next.term != Term::NONE => return next,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    fn tell(&self, transition: &Transition) -> Result<(), Failure> {
        if transition.to == Phase::Standby {
            return Ok(());
        }
        let told = KeepLine::of(transition, &self.node);
        let valid_for = show_ms(told.remaining_ms);
        self.screen.answer(&told, || told.line(transition.to, &self.node, &valid_for))
    }

    /// Prints what came before the session ended and was not printed yet.
    async fn tell_rest(&mut self) -> Result<(), Failure> {
        loop {
            let transition = tokio::select! {
                biased;
                transition = self.next() => transition,
                () = std::future::ready(()) => return Ok(()),
            };
            self.tell(&transition)?;
        }
    }

    /// Another node leads.
    fn standing_by(&self, current: &Current) -> Result<(), Failure> {
        match KeepLine::standing_by(&self.group, current, &self.node) {
            None => Ok(()),
            Some(told) => self.screen.answer(&told, || told.line(Phase::Standby, &self.node, "")),
        }
    }
}
