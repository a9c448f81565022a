//! Clients without a participant: they read, administer, and campaign with bare requests.
//!
//! A caller does one thing at a time. What is not answered in time is tried again under the same
//! request id, perhaps at another replica, perhaps while the first try is still on its way.

use regent_election::state::Query;
use regent_election::store::StoreError;
use regent_election::{
    Answer, Command, Group, IfLost, Metadata, Opening, Policy, Reason, RequestId, Revision,
    SessionId, Term,
};
use regent_replica::io::Response;

use super::net::Address;
use super::parcel::{Ask, Parcel, told};
use super::{Client, Happening, Timer, World, node_name};
use crate::dice::Dice;
use crate::history::{Proc, Stage, What, revision_of};

/// How long an answer is awaited.
const PATIENCE_NS: u64 = 700_000_000;
/// Tries of one request.
const TRIES_MAX: u32 = 4;

/// A client that asks.
#[derive(Debug)]
pub(super) struct Caller {
    number: u32,
    dice: Dice,
    /// The highest revision seen: request ids open with it.
    seen: Revision,
    ids: u64,
    waiting: Option<Waiting>,
    /// An office won with a bare campaign.
    office: Option<(Group, SessionId, Term)>,
    /// What to ask next, before anything by chance.
    orders: Vec<Ask>,
}

#[derive(Debug)]
struct Waiting {
    call: u64,
    ask: Ask,
    tries: u32,
    until: u64,
}

/// What chance brings.
enum Drawn {
    Ask(Ask),
    /// A campaign under a session that is made for it.
    OneShot(Group),
}

impl Caller {
    const fn proc(&self) -> Proc {
        Proc::Client { number: self.number, run: 1 }
    }

    /// What it has won in a group with a bare campaign.
    pub(super) fn office_in(&self, group: &Group) -> Option<(SessionId, Term)> {
        let office = self.office.as_ref().filter(|(won, _, _)| won == group);
        office.map(|(_, session, term)| (*session, *term))
    }

    /// Whether it is about to change something, or may just have done so.
    pub(super) fn is_changing(&self) -> bool {
        let waiting = self.waiting.iter().map(|waiting| &waiting.ask);
        waiting.chain(&self.orders).any(|ask| !matches!(ask, Ask::Read { .. }))
    }

    /// Whether it has nothing left to do by order.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_none() && self.orders.is_empty()
    }
}

impl World {
    /// Adds a client that reads and administers by chance, or by order.
    pub fn add_caller(&mut self) -> u32 {
        let number = self.clients.len() as u32 + 1;
        let dice = self.dice.fork(&format!("caller {number}"));
        let caller = Caller {
            number,
            dice,
            seen: Revision(0),
            ids: 0,
            waiting: None,
            office: None,
            orders: Vec::new(),
        };
        self.clients.insert(number, Client::Caller(caller));
        let at = self.now + 1_000_000;
        self.queue.push(at, Happening::Client { number, run: 1, timer: Timer::Act });
        number
    }

    /// Orders a caller to do this next, again and again until it is answered.
    pub(super) fn order(&mut self, number: u32, ask: Ask) {
        if let Some(Client::Caller(caller)) = self.clients.get_mut(&number) {
            caller.orders.push(ask);
        }
    }

    pub(super) fn caller_timer(&mut self, number: u32) {
        let now = self.now;
        let (stage, groups, members) = (self.stage, self.groups(), self.member_numbers());
        let is_leased = self.is_leased();
        let every = self.plan.call_every_ms.clone();
        let Some(Client::Caller(caller)) = self.clients.get_mut(&number) else { return };
        let at = now + caller.dice.within(every) * 1_000_000;
        self.queue.push(at, Happening::Client { number, run: 1, timer: Timer::Act });
        if let Some(waiting) = &mut caller.waiting {
            if now < waiting.until {
                return;
            }
            let (call, tries, ask) = (waiting.call, waiting.tries, waiting.ask.clone());
            caller.waiting = None;
            let proc = caller.proc();
            self.note(proc, What::Info { call });
            let is_ordered = stage != Stage::Chaos;
            if (tries < TRIES_MAX || is_ordered) && !self.is_once(&ask) {
                self.call(number, ask, tries + 1);
            }
            return;
        }
        if !caller.orders.is_empty() {
            let ask = caller.orders.remove(0);
            self.call(number, ask, 1);
            return;
        }
        let second = if is_leased { caller.draw_second(stage, &groups) } else { None };
        if let Some(ask) = second {
            self.call(number, ask, 1);
            return;
        }
        match caller.draw(stage, &groups, &members) {
            Some(Drawn::Ask(ask)) => self.call(number, ask, 1),
            Some(Drawn::OneShot(group)) => {
                let request = caller.request();
                let session = self.fresh_session();
                self.call(number, one_shot(group, session, number, request), 1);
            }
            None => {}
        }
    }

    /// Whether this is asked once and not again: a server over a register makes the session of such a
    /// campaign for that one request, and ends it with that.
    const fn is_once(&self, ask: &Ask) -> bool {
        self.is_leased() && is_bare_campaign(ask)
    }

    fn call(&mut self, number: u32, ask: Ask, tries: u32) {
        let now = self.now;
        let replicas = self.askable();
        self.calls += 1;
        let call = self.calls;
        let Some(Client::Caller(caller)) = self.clients.get_mut(&number) else { return };
        let proc = caller.proc();
        let op = ask.op();
        let Some(to) = caller.dice.pick(&replicas) else { return };
        let until = now + caller.dice.within(PATIENCE_NS / 4..=PATIENCE_NS);
        caller.waiting = Some(Waiting { call, ask: ask.clone(), tries, until });
        self.note(proc, What::Invoke { call, op });
        self.send(Address::Client(number), Address::Replica(to), Parcel::Ask { call, ask });
    }

    /// Asks one replica, once, at this very instant. What was asked before stays without an answer.
    pub(super) fn ask(&mut self, number: u32, to: u64, ask: Ask) {
        self.calls += 1;
        let call = self.calls;
        let until = self.now + PATIENCE_NS;
        let Some(Client::Caller(caller)) = self.clients.get_mut(&number) else { return };
        let (proc, op, tries) = (caller.proc(), ask.op(), TRIES_MAX);
        caller.waiting = Some(Waiting { call, ask: ask.clone(), tries, until });
        self.note(proc, What::Invoke { call, op });
        self.send(Address::Client(number), Address::Replica(to), Parcel::Ask { call, ask });
    }

    /// Whether a caller waits for nothing.
    pub(super) fn is_answered(&self, number: u32) -> bool {
        match self.clients.get(&number) {
            Some(Client::Caller(caller)) => caller.waiting.is_none(),
            Some(Client::Member(_) | Client::Watcher(_) | Client::Operator(_)) | None => true,
        }
    }

    pub(super) fn arrive_at_caller(&mut self, number: u32, parcel: Parcel) {
        let Parcel::Reply { call, response } = parcel else { return };
        let is_leased = self.is_leased();
        let Some(Client::Caller(caller)) = self.clients.get_mut(&number) else { return };
        let Some(waiting) = caller.waiting.take_if(|waiting| waiting.call == call) else { return };
        let proc = caller.proc();
        caller.learn(&waiting.ask, &response);
        if is_leased && is_bare_campaign(&waiting.ask) {
            self.note(proc, told(call, &response));
            return;
        }
        let is_no = matches!(
            &*response,
            Response::Error(StoreError::Unavailable { .. } | StoreError::Uncertain { .. })
        );
        if is_no && self.stage != Stage::Chaos {
            // By order it is asked until it is answered.
            caller.orders.insert(0, waiting.ask);
        } else if is_no && waiting.tries < TRIES_MAX {
            caller.orders.push(waiting.ask);
        }
        self.note(proc, told(call, &response));
    }
}

impl Caller {
    fn request(&mut self) -> Option<RequestId> {
        self.ids += 1;
        RequestId::new(self.seen, &format!("c{}x{}", self.number, self.ids)).ok()
    }

    fn submit(&mut self, command: Command, query: Option<Query>) -> Ask {
        let request = self.request();
        Ask::Submit { command, request, query }
    }

    /// Something by chance.
    fn draw(&mut self, stage: Stage, groups: &[Group], members: &[u32]) -> Option<Drawn> {
        let at = self.dice.below(groups.len() as u64) as usize;
        let group = groups.get(at)?.clone();
        let is_chaos = stage == Stage::Chaos;
        let choice = self.dice.below(100);
        if !is_chaos || choice < 70 {
            return Some(Drawn::Ask(self.draw_read(group)));
        }
        if let Some((group, session, term)) = self.office.clone() {
            return Some(Drawn::Ask(self.draw_hold(group, session, term)));
        }
        Some(Drawn::Ask(match choice {
            70..=79 => {
                let to = self.dice.once_in(3).then(|| self.dice.pick(members)).flatten();
                let immediate = self.dice.once_in(4);
                let reason = Reason::new("by chance").unwrap_or_default();
                let to = to.map(node_name);
                self.submit(Command::StepDown { group, reason, to, immediate }, None)
            }
            80..=88 => {
                let policy = self.draw_policy(members);
                let query = Some(Query::Group(group.clone()));
                self.submit(Command::PutPolicy { group, policy }, query)
            }
            89..=91 => self.submit(Command::Delete { group }, None),
            _ => return Some(Drawn::OneShot(group)),
        }))
    }

    /// A campaign in a second group, now and then, by the session that won an office in passing. A register knows
    /// each group by itself: leaving one must not end the session that leads in the other.
    fn draw_second(&mut self, stage: Stage, groups: &[Group]) -> Option<Ask> {
        let (led, session, _) = self.office.clone()?;
        if stage != Stage::Chaos || !self.dice.once_in(4) {
            return None;
        }
        let others: Vec<&Group> = groups.iter().filter(|group| **group != led).collect();
        let group = (*self.dice.pick(&others)?).clone();
        let query = Some(Query::Leader(group.clone()));
        let command = Command::Campaign {
            group,
            session,
            opening: None,
            if_lost: IfLost::Leave,
            priority: 0,
            metadata: Metadata::NONE,
        };
        Some(self.submit(command, query))
    }

    fn draw_read(&mut self, group: Group) -> Ask {
        let linearizable = !self.dice.once_in(5);
        let query = match self.dice.below(10) {
            0..=5 => Query::Leader(group),
            6 | 7 => Query::Group(group),
            8 => Query::Groups { prefix: String::new(), after: None, count: 10 },
            _ => Query::Census,
        };
        Ask::Read { query, linearizable }
    }

    /// Renews, gives up or forgets an office won with a bare campaign.
    fn draw_hold(&mut self, group: Group, session: SessionId, term: Term) -> Ask {
        match self.dice.below(4) {
            0 | 1 => Ask::Heartbeat {
                session,
                sequence: None,
                tenure: Some((group, term)),
                disowned: Vec::new(),
            },
            2 => {
                self.office = None;
                self.submit(Command::Resign { group, session, term }, None)
            }
            _ => {
                self.office = None;
                Ask::Read { query: Query::Leader(group), linearizable: true }
            }
        }
    }

    /// Mostly harmless policies, each unlike the last, so that a lost one would be seen.
    fn draw_policy(&mut self, members: &[u32]) -> Option<Box<Policy>> {
        let mut policy = Policy {
            retry_ms_min: 100 + self.dice.below(900),
            retry_ms_max: Some(2_000 + self.dice.below(5_000)),
            ..Policy::default()
        };
        match self.dice.below(6) {
            0 => return None,
            1 => policy.lock_delay_ms = self.dice.within(100..=1_500),
            2 => {
                let keep = self.dice.pick(members).map(|number| format!("n{number}"));
                let pattern = keep.and_then(|name| name.parse().ok());
                policy.allow = pattern.into_iter().collect();
            }
            3 => {
                policy.prefer_priority = true;
                policy.minimum_tenure_ms = 0;
                let first = self.dice.pick(members).map(|number| format!("n{number}"));
                let pattern = first.and_then(|name| name.parse().ok());
                policy.priorities = pattern.into_iter().map(|pattern| (pattern, 10)).collect();
            }
            _ => {}
        }
        Some(Box::new(policy))
    }

    fn learn(&mut self, ask: &Ask, response: &Response) {
        let revision = match response {
            Response::Applied { revision, .. } | Response::Heartbeat { revision, .. } => {
                Some(*revision)
            }
            Response::View { view, .. } => revision_of(view),
            Response::Done | Response::Error(_) => None,
        };
        self.seen = revision.map_or(self.seen, |revision| self.seen.max(revision));
        let Response::Applied { answer: Ok(Answer::Elected { term, .. }), .. } = response else {
            return;
        };
        if let Ask::Submit { command: Command::Campaign { group, session, .. }, .. } = ask {
            self.office = Some((group.clone(), *session, *term));
        }
    }
}

const fn is_bare_campaign(ask: &Ask) -> bool {
    matches!(ask, Ask::Submit { command: Command::Campaign { if_lost: IfLost::Leave, .. }, .. })
}

/// A campaign that leaves nothing behind if it loses.
pub(super) fn one_shot(
    group: Group,
    session: SessionId,
    number: u32,
    request: Option<RequestId>,
) -> Ask {
    let opening = Opening { node: node_name(number), ttl_ms: Some(1_000), passing: true };
    Ask::Submit {
        query: Some(Query::Leader(group.clone())),
        command: Command::Campaign {
            group,
            session,
            opening: Some(opening),
            if_lost: IfLost::Leave,
            priority: 0,
            metadata: Metadata::NONE,
        },
        request,
    }
}
