//! An application of a user's own on the library's driver, inside the simulation.
//!
//! The application is a value with four callbacks. The world calls them as a process would be called:
//! when a term is won, when its work must stop, when it is lost, and from time to time in between. A
//! pause falls between two calls, and after one the application acts first, before its participant
//! has looked at the clock: that is where code goes wrong that checked before the pause and writes after it.
//!
//! Callbacks wish, and the world does what they wish when they have returned. So an application can neither
//! see nor do anything that a process could not: it reads its own clock, and knows nobody else's.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use regent_election::participant::{Event, Phase, Transition};
use regent_election::{Group, Moment, Node, Term};

use super::net::Address;
use super::parcel::Parcel;
use super::puppet::Hand;
use super::{Client, Happening, Timer, World};
use crate::dice::Dice;
use crate::history::What;

/// What a user's application is told. Everything it does it asks of the [`Context`].
///
/// All callbacks but [`Application::on_tick`] may be left as they are.
pub trait Application {
    /// A process of it starts, or starts again: it remembers nothing but what it wrote.
    fn on_start(&mut self, _cx: &mut Context<'_>) {}

    /// It leads a group, under this term.
    fn on_gained(&mut self, _cx: &mut Context<'_>, _group: &Group, _term: Term) {}

    /// It must stop the work of this term within `left`, and say [`Context::stopped`] when it has. The
    /// sooner it says so, the sooner another one leads; the term is over with the lease in any case.
    fn on_stop(&mut self, cx: &mut Context<'_>, group: &Group, _term: Term, _left: Duration) {
        cx.stopped(group);
    }

    /// The term is over, for whatever reason. When this has returned, nothing works under it any more.
    fn on_lost(&mut self, _cx: &mut Context<'_>, _group: &Group, _term: Term) {}

    /// Time has passed.
    fn on_tick(&mut self, cx: &mut Context<'_>);

    /// How often [`Application::on_tick`] is called, on average.
    fn tick_every(&self) -> Duration {
        Duration::from_millis(100)
    }
}

/// One write as it landed in the storage of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// True time.
    pub at: u64,
    /// Who wrote.
    pub node: Node,
    /// Under which term.
    pub term: Term,
    pub value: String,
    /// Whether a fence lets it in. A storage without one takes everything.
    pub is_admitted: bool,
}

/// What a callback sees of the world, and how it acts on it.
pub struct Context<'a> {
    node: &'a Node,
    now: Moment,
    held: Vec<(Group, Term, Moment)>,
    dice: &'a mut Dice,
    wishes: Vec<AppRequest>,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("node", self.node).field("now", &self.now).finish()
    }
}

/// What an application wants done.
#[derive(Debug)]
enum AppRequest {
    Write { group: Group, term: Term, value: Box<str> },
    Check { group: Group, passed: Option<Term> },
    Stand(Group),
    Withdraw(Group),
    Resign(Group),
    HandOver { group: Group, to: Node },
    Stopped(Group),
}

impl Context<'_> {
    /// The name of this participant.
    #[must_use]
    pub const fn node(&self) -> &Node {
        self.node
    }

    /// This process's own clock, which no other process shares.
    #[must_use]
    pub const fn now(&self) -> Moment {
        self.now
    }

    /// A number below `bound`, the same for the same seed.
    pub fn dice(&mut self, bound: u64) -> u64 {
        self.dice.below(bound)
    }

    /// The library's check: the term under which this process may act at this instant, and for how
    /// long if nothing is renewed. It is worth nothing after the callback has returned.
    pub fn check(&mut self, group: &Group) -> Option<(Term, Duration)> {
        let held = self.held.iter().find(|(led, _, until)| led == group && self.now < *until);
        let passed = held.map(|(_, term, until)| (*term, self.now.until(*until)));
        let group = group.clone();
        self.wishes.push(AppRequest::Check { group, passed: passed.map(|(term, _)| term) });
        passed
    }

    /// Writes to the storage of a group under a term: once to the copy behind a fence, once to the one
    /// without. It is on its way when the callback has returned.
    pub fn write(&mut self, group: &Group, term: Term, value: &str) {
        self.wishes.push(AppRequest::Write { group: group.clone(), term, value: value.into() });
    }

    /// Wants to lead a group.
    pub fn stand(&mut self, group: &Group) {
        self.wishes.push(AppRequest::Stand(group.clone()));
    }

    /// Does not want to lead it any more.
    pub fn withdraw(&mut self, group: &Group) {
        self.wishes.push(AppRequest::Withdraw(group.clone()));
    }

    /// Gives this term up and stands again.
    pub fn resign(&mut self, group: &Group) {
        self.wishes.push(AppRequest::Resign(group.clone()));
    }

    /// Hands the office to a standby.
    pub fn hand_over(&mut self, group: &Group, to: &Node) {
        self.wishes.push(AppRequest::HandOver { group: group.clone(), to: to.clone() });
    }

    /// The work of this group has stopped.
    pub fn stopped(&mut self, group: &Group) {
        self.wishes.push(AppRequest::Stopped(group.clone()));
    }
}

/// An application and what it has not been told yet.
pub(super) struct Cast {
    /// None while one of its callbacks runs.
    app: Option<Box<dyn Application>>,
    news: VecDeque<News>,
    tick_every_ms: u64,
}

impl fmt::Debug for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cast").field("news", &self.news).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum News {
    Started,
    Gained(Group, Term),
    MustStop(Group, Term, Duration),
    Lost(Group, Term),
    Tick,
}

impl Cast {
    fn new(app: Box<dyn Application>) -> Self {
        let tick_every_ms = u64::try_from(app.tick_every().as_millis()).unwrap_or(u64::MAX);
        Self { app: Some(app), news: VecDeque::new(), tick_every_ms: tick_every_ms.max(1) }
    }

    pub(super) fn moved(&mut self, transition: &Transition) {
        let (group, term) = (transition.group.clone(), transition.term);
        match (transition.from, transition.to) {
            // A renewal after all is no second gain.
            (Phase::Jeopardy | Phase::Stopping, Phase::Leading) => {}
            (_, Phase::Leading) => self.news.push_back(News::Gained(group, term)),
            (Phase::Leading | Phase::Jeopardy | Phase::Stopping, Phase::Stopped | Phase::Lost) => {
                self.news.push_back(News::Lost(group, term));
            }
            (_, _) => {}
        }
    }

    pub(super) fn must_stop(&mut self, group: &Group, term: Term, left: u64) {
        self.news.push_back(News::MustStop(group.clone(), term, Duration::from_nanos(left)));
    }

    /// Between half and one and a half of what it asked for.
    pub(super) const fn tick_ms(&self) -> RangeInclusive<u64> {
        self.tick_every_ms.div_ceil(2)..=self.tick_every_ms * 3 / 2
    }
}

impl World {
    /// Adds a participant that runs an application of a user's own and stands in these groups.
    pub fn add_app(
        &mut self,
        node: Node,
        ttl_ms: u64,
        groups: Vec<Group>,
        app: Box<dyn Application>,
    ) -> u32 {
        let hand = Hand::App(Box::new(Cast::new(app)));
        let number = self.add_by_hand(node, ttl_ms, groups, hand);
        self.give_ears(number);
        number
    }

    /// What was written to the storage of a group, in the order in which it landed.
    #[must_use]
    pub fn written(&self, group: &Group) -> &[Written] {
        self.registers.get(group).map_or(&[], |registers| &registers.written)
    }

    /// The same of all groups, and nothing is left here.
    pub(crate) fn take_written(&mut self) -> BTreeMap<Group, Vec<Written>> {
        let all = self.registers.iter_mut();
        all.map(|(group, it)| (group.clone(), std::mem::take(&mut it.written))).collect()
    }

    /// Starts the process of a participant again, if it is dead.
    pub fn restart_client(&mut self, number: u32) {
        self.start_member(number);
    }

    /// The application of a process that has just started learns so.
    pub(super) fn start_app(&mut self, number: u32) {
        self.put_news(number, News::Started);
        self.tell_app(number);
    }

    /// Time has passed for an application.
    pub(super) fn tick_app(&mut self, number: u32) {
        self.put_news(number, News::Tick);
        self.tell_app(number);
    }

    fn put_news(&mut self, number: u32, news: News) {
        if let Some(Client::Member(member)) = self.clients.get_mut(&number)
            && let Hand::App(cast) = &mut member.hand
        {
            // What an earlier run was not told dies with it.
            if matches!(news, News::Started) {
                cast.news.clear();
            }
            cast.news.push_back(news);
        }
    }

    /// Tells an application what it has not heard yet, and does what it wishes.
    pub(super) fn tell_app(&mut self, number: u32) {
        while let Some(wishes) = self.call_app(number) {
            for wish in wishes {
                self.grant(number, wish);
            }
        }
    }

    /// One callback; none if there is nothing to tell, or one is under way already.
    fn call_app(&mut self, number: u32) -> Option<Vec<AppRequest>> {
        let now = self.now;
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return None };
        let Hand::App(cast) = &mut member.hand else { return None };
        let machine = member.machine.as_ref()?;
        if member.pauses > 0 {
            return None;
        }
        let mut app = cast.app.take()?;
        let Some(news) = cast.news.pop_front() else {
            cast.app = Some(app);
            return None;
        };
        let held = machine.held().into_iter().map(|(group, (term, until))| (group, term, until));
        let mut cx = Context {
            node: &member.node,
            now: member.clock.read(now),
            held: held.collect(),
            dice: &mut member.dice,
            wishes: Vec::new(),
        };
        let over = match &news {
            News::Lost(group, _) => Some(group.clone()),
            News::Started | News::Gained(..) | News::MustStop(..) | News::Tick => None,
        };
        match news {
            News::Started => app.on_start(&mut cx),
            News::Gained(group, term) => app.on_gained(&mut cx, &group, term),
            News::MustStop(group, term, left) => app.on_stop(&mut cx, &group, term, left),
            News::Lost(group, term) => app.on_lost(&mut cx, &group, term),
            News::Tick => app.on_tick(&mut cx),
        }
        let mut wishes = cx.wishes;
        wishes.extend(over.map(AppRequest::Stopped));
        cast.app = Some(app);
        Some(wishes)
    }

    fn grant(&mut self, number: u32, wish: AppRequest) {
        let Some(Client::Member(member)) = self.clients.get(&number) else { return };
        let (proc, session, run) = (member.proc(), member.session, member.run);
        match wish {
            AppRequest::Check { group, passed } => {
                self.note(proc, What::Guard { group, session, passed });
            }
            AppRequest::Write { group, term, value } => {
                self.send_write(number, run, group, term, value)
            }
            AppRequest::Stand(group) => self.let_stand(number, &group, 0),
            AppRequest::Withdraw(group) => self.let_withdraw(number, &group),
            AppRequest::Resign(group) => self.on_member(number, Event::Resign { group }),
            AppRequest::HandOver { group, to } => self.let_transfer(number, &group, &to),
            AppRequest::Stopped(group) => self.on_member(number, Event::Stopped { group }),
        }
    }

    /// A write leaves, and the history keeps whether a check of this instant would have covered it.
    fn send_write(&mut self, number: u32, run: u32, group: Group, term: Term, value: Box<str>) {
        let now = self.now;
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        let machine = member.machine.as_ref();
        let checked = machine.and_then(|machine| machine.check(member.clock.read(now), &group));
        let (proc, node) = (member.proc(), member.node.clone());
        let is_covered = checked == Some(term);
        let parcel = Parcel::Write { group: group.clone(), term, run, value: Some(value) };
        member.outbox.push_back((Address::Registers, parcel));
        self.note(proc, What::Attempt { node, group, term, is_covered });
        let at = now + self.dice.skewed(1_000..=2_000_000);
        self.queue.push(at, Happening::Client { number, run, timer: Timer::Depart });
    }
}
