//! A participant that keeps the rules: it counts its lease from the send of an acknowledged heartbeat,
//! looks at its list when the epoch has risen, and acts for exactly as long as it may.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{
    Campaign, CampaignSession, Campaigned, Heartbeat, OfficeState, Open, Store, StoreError,
    StoreResult,
};
use regent_election::{Metadata, Moment, Node, Refusal, SessionId, Term};
use tokio::time::Instant;

use super::faulty::{DRIFT_PPM, Dice, Process, SimTime};
use super::world::{Book, Claim, TTL_MS, group};
use crate::lease::LeaseStore;
use crate::lease::mutant::{Mutant, is};
use crate::time::Time;

/// One who wants to lead.
pub(super) struct Player {
    pub(super) number: u64,
    pub(super) groups: usize,
    pub(super) dice: Dice,
    pub(super) store: Arc<LeaseStore>,
    pub(super) process: Arc<Process>,
    pub(super) book: Book,
}

/// One session of a player.
struct Life<'a> {
    player: &'a Player,
    time: SimTime,
    session: SessionId,
    sequence: u64,
    /// The epoch up to which its list was read.
    epoch: u64,
    valid_until: Moment,
    held: BTreeMap<usize, Office>,
}

/// An office that it holds.
#[derive(Clone, Copy)]
struct Office {
    term: Term,
    from: Instant,
}

/// Semantics 2: `1 - ε` of a ttl, with `ε = 2ρ/(1+ρ)`.
fn usable() -> Duration {
    let (ttl, drift) = (u128::from(TTL_MS) * 1_000_000, u128::from(DRIFT_PPM));
    let nanos = ttl * (1_000_000 - drift) / (1_000_000 + drift);
    Duration::from_nanos(u64::try_from(nanos).unwrap())
}

impl Player {
    fn node(&self) -> Node {
        Node::new(&format!("p{}", self.number)).unwrap()
    }

    /// Lives many lives, one session after the other.
    pub(super) async fn live(self) {
        loop {
            let secret = u128::from(self.dice.roll()) << 64 | u128::from(self.number + 1);
            let mut life = Life {
                time: SimTime(Arc::clone(&self.process)),
                player: &self,
                session: SessionId::new(secret).unwrap(),
                sequence: 0,
                epoch: 0,
                valid_until: Moment::ZERO,
                held: BTreeMap::new(),
            };
            life.last().await;
            life.stop_all(life.valid_until);
            let pause = Duration::from_millis(self.dice.below(900));
            SimTime(Arc::clone(&self.process)).sleep(pause).await;
        }
    }
}

impl Life<'_> {
    /// One session, from its opening to its end.
    async fn last(&mut self) {
        let dice = &self.player.dice;
        let sent_at = self.time.now();
        let open = Open { node: self.player.node(), ttl_ms: TTL_MS, session: self.session };
        let Ok(view) = self.player.store.open(open).await else { return };
        self.epoch = view.epoch;
        self.count_from(sent_at);
        let rounds = 4 + dice.below(60);
        for _ in 0..rounds {
            if !self.round().await {
                return self.must_be_over().await;
            }
        }
        match dice.below(3) {
            // It vanishes, and its lease runs out.
            0 => self.player.book.say(format!("p{} vanishes", self.player.number)),
            _ => {
                self.stop_all(self.time.now());
                let closed = self.player.store.close(self.session).await;
                self.player.book.say(format!("p{} closes: {closed:?}", self.player.number));
                if closed.is_ok() {
                    self.must_be_over().await;
                }
            }
        }
    }

    /// One heartbeat, and perhaps something else. False when the session is over.
    async fn round(&mut self) -> bool {
        let dice = &self.player.dice;
        self.time.sleep(Duration::from_millis(150 + dice.below(150))).await;
        self.drop_what_is_over();
        match self.beat().await {
            Ok(()) => {}
            Err(StoreError::Refused(Refusal::SessionUnknown)) => return false,
            Err(_) => return true,
        }
        let number = usize::try_from(dice.below(self.player.groups as u64)).unwrap();
        match (self.held.get(&number).copied(), dice.below(100)) {
            (Some(office), 0..6) => {
                self.stop(number, self.time.now());
                let (store, group) = (&self.player.store, group(number));
                let answer = store.resign(&group, self.session, office.term, None).await;
                self.say(format!("resigns g{number} term {}: {answer:?}", office.term));
            }
            (Some(office), 6..9) => {
                let to = Node::new(&format!("p{}", dice.below(5))).unwrap();
                self.stop(number, self.time.now());
                let store = &self.player.store;
                let answer =
                    store.transfer(&group(number), self.session, office.term, &to, None).await;
                self.say(format!("hands g{number} to {to}: {answer:?}"));
                if answer.is_err() {
                    // It has stopped, so it must not keep the office either.
                    let _ = store.resign(&group(number), self.session, office.term, None).await;
                }
            }
            (None, 0..50) => self.campaign(number).await,
            (Some(_) | None, _) => {}
        }
        true
    }

    /// An acknowledged heartbeat extends the lease from its send, once its news were read.
    async fn beat(&mut self) -> StoreResult<()> {
        self.sequence += 1;
        let sent_at = self.time.now();
        let heartbeat = Heartbeat {
            session: self.session,
            sequence: Some(self.sequence),
            disowned: Vec::new(),
        };
        let heard = self.player.store.heartbeat(heartbeat).await?;
        if heard.epoch != self.epoch {
            let view = self.player.store.session(self.session).await?;
            for number in 0..self.player.groups {
                let listed = view.tenures.iter().find(|tenure| tenure.group == group(number));
                let leads = |office: &Office| {
                    listed.is_some_and(|tenure| {
                        tenure.term == office.term && tenure.state == OfficeState::Leading
                    })
                };
                if self.held.get(&number).is_some_and(|office| !leads(office)) {
                    self.say(format!("is told to stop in g{number}"));
                    self.stop(number, self.time.now());
                }
                if let Some(tenure) = listed {
                    self.answer(number, tenure.term, tenure.state).await;
                }
            }
            self.epoch = view.epoch;
        }
        self.count_from(sent_at);
        Ok(())
    }

    /// Accepts an office, or confirms that it has stopped.
    async fn answer(&mut self, number: usize, term: Term, state: OfficeState) {
        let (store, group) = (&self.player.store, group(number));
        match state {
            OfficeState::Elected => {
                let accepted = store.accept(&group, self.session, term, None).await;
                self.say(format!("accepts g{number} term {term}: {accepted:?}"));
                if accepted.is_ok() {
                    self.take(number, term);
                }
            }
            OfficeState::Ending if self.player.dice.percent(50) => {
                let _ = store.resign(&group, self.session, term, None).await;
            }
            OfficeState::Ending
            | OfficeState::Leading
            | OfficeState::Vacant
            | OfficeState::Delayed => {}
        }
    }

    async fn campaign(&mut self, number: usize) {
        let wait = Duration::from_millis(self.player.dice.below(2) * 200);
        let campaign = Campaign {
            group: group(number),
            node: self.player.node(),
            session: CampaignSession::Own(self.session),
            ttl_ms: Some(TTL_MS),
            wait: Some(wait),
            priority: 0,
            metadata: Metadata::NONE,
            request: None,
        };
        if let Ok(Campaigned { elected: Some(term), .. }) =
            self.player.store.campaign(campaign).await
        {
            self.take(number, term);
        }
    }

    /// Being elected adds no time: it acts only within the lease it has.
    fn take(&mut self, number: usize, term: Term) {
        self.drop_what_is_over();
        if self.held.get(&number).is_some_and(|office| office.term == term) {
            return;
        }
        self.say(format!("leads g{number} with term {term}"));
        self.stop(number, self.time.now());
        self.held.insert(number, Office { term, from: Instant::now() });
    }

    fn count_from(&mut self, sent_at: Moment) {
        let from = if is(Mutant::CountsFromAnswer) { self.time.now() } else { sent_at };
        // What is over stays over: a term that was lost is not picked up again (semantics 4).
        self.drop_what_is_over();
        self.valid_until = self.valid_until.max(from + usable());
    }

    /// Offices end with the lease.
    fn drop_what_is_over(&mut self) {
        if self.valid_until <= self.time.now() {
            let numbers: Vec<usize> = self.held.keys().copied().collect();
            for number in numbers {
                self.say(format!("has lost g{number}"));
                self.stop(number, self.valid_until);
            }
        }
    }

    /// Stops acting in a group; writes down for how long it did.
    fn stop(&mut self, number: usize, at: Moment) {
        let Some(office) = self.held.remove(&number) else { return };
        let until = self.player.process.when(at.min(self.valid_until));
        if until > office.from {
            self.player.book.claim(Claim {
                group: number,
                term: office.term,
                player: self.player.number,
                from: office.from,
                until,
            });
        }
    }

    /// Stops acting everywhere. What it holds when it goes without a word lasts as long as its lease.
    fn stop_all(&mut self, at: Moment) {
        let numbers: Vec<usize> = self.held.keys().copied().collect();
        for number in numbers {
            self.stop(number, at);
        }
    }

    /// An ended session is never heard again.
    async fn must_be_over(&mut self) {
        for _ in 0..3 {
            self.sequence += 1;
            let heartbeat = Heartbeat {
                session: self.session,
                sequence: Some(self.sequence),
                disowned: Vec::new(),
            };
            if let Ok(heard) = self.player.store.heartbeat(heartbeat).await {
                let number = self.player.number;
                self.player.book.broke(format!("S7: p{number} was heard after its end: {heard:?}"));
            }
            self.time.sleep(Duration::from_millis(100)).await;
        }
    }

    fn say(&self, what: String) {
        self.player.book.say(format!("p{} {what}", self.player.number));
    }
}

impl Drop for Life<'_> {
    /// A story that ends in the middle of a life still counts what it held.
    fn drop(&mut self) {
        self.stop_all(self.valid_until);
    }
}
