//! One node between datagrams and timers: everything that `regent peer` decides, and nothing that it does.
//!
//! It stands around the same machine that the lab plays. Told the time, a datagram or that timers may be
//! over, it says what is to be posted and who leads; it reads no clock and owns no socket, so a test plays
//! any number of them without either.
//!
//! Of its own it has one thing, because processes, unlike a stage, do not count their runs: a [`Life`].
//! Whoever hears a peer in a life that is not above an earlier one drops what it says and tells it so, and
//! the peer begins again above. The road not taken is a counter on disk: whoever remembers an earlier life
//! is there to tell of it, and if nobody is, nobody can mistake the one for the other.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use regent_election::Moment;
use regent_protocols::{Message, NodeId, Out, Pace, Setup};

use crate::limits::{STEP_OWN_MAX, TIMERS_MAX};
use crate::roster::Roster;
use crate::wire::{self, Dropped, Head, Life, Post, Spoken, Word};

/// What comes back to a node from its own step.
enum Inward<M> {
    /// A message to itself.
    Said(M),
    /// What it wanted kept is.
    Durable,
}

/// The node, and what it has to say since it was last asked.
#[derive(Debug)]
pub(crate) struct Engine<P: Spoken> {
    roster: Roster,
    setup: Setup,
    digest: u64,
    life: Life,
    machine: P,
    timers: BTreeMap<P::Timer, Moment>,
    /// By number: in which life a peer was heard last.
    heard: Vec<Option<Life>>,
    posts: Vec<Post>,
    /// Whom it has taken for the leader, in order.
    leaders: Vec<Option<NodeId>>,
    /// The last of them.
    leader: Option<NodeId>,
}

impl<P: Spoken> Engine<P> {
    /// Comes into being; `chance` is what its nonce and its dice are made of.
    pub(crate) fn start(roster: Roster, pace: Pace, chance: u64, now: Moment) -> Self {
        let life = Life { run: 1, nonce: chance };
        let setup = Setup {
            me: roster.me(),
            nodes: roster.count(),
            pace,
            seed: chance,
            run: life.run,
            witnesses: Vec::new(),
            is_liar: false,
        };
        let mut out = Out::new();
        let machine = P::start(&setup, None, now, &mut out);
        let mut engine = Self {
            digest: roster.digest(&pace),
            heard: vec![None; usize::from(roster.count())],
            roster,
            setup,
            life,
            machine,
            timers: BTreeMap::new(),
            posts: Vec::new(),
            leaders: vec![None],
            leader: None,
        };
        engine.greet();
        engine.see_to(now, out);
        engine
    }

    /// Takes a datagram, or says why not.
    pub(crate) fn take(
        &mut self,
        now: Moment,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), Dropped> {
        let (head, kind, body) = wire::read_head(bytes)?;
        if head.algorithm != P::ALGORITHM {
            return Err(Dropped::OtherAlgorithm(head.algorithm));
        }
        if head.digest != self.digest {
            return Err(Dropped::OtherList);
        }
        if self.roster.find(from) != Some(head.sender) || head.sender == self.setup.me {
            return Err(Dropped::Stranger);
        }
        let word = wire::read_word::<P>(kind, body, self.setup.nodes)?;
        if let Word::Known(life) = word {
            // Whatever its sender's own life is: it knows something about this one.
            self.begin_above(now, life);
            return Ok(());
        }
        self.check_life(head.sender, head.life)?;
        match word {
            Word::Hello | Word::Known(_) => Ok(()),
            Word::Said(_) if self.timers.len() >= TIMERS_MAX => Err(Dropped::Busy),
            Word::Said(message) => {
                let sender = self.name(head.sender);
                tracing::debug!(from = sender, kind = message.kind(), "heard");
                self.step(now, |machine, out| machine.receive(now, head.sender, message, out));
                Ok(())
            }
        }
    }

    /// Wakes the machine for every timer that is over, in the order in which they were due.
    pub(crate) fn wake(&mut self, now: Moment) {
        let mut due: Vec<(Moment, P::Timer)> = self
            .timers
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(timer, at)| (*at, *timer))
            .collect();
        due.sort();
        for (at, timer) in due {
            // The one before it may have stopped it, or set it anew.
            if self.timers.get(&timer) == Some(&at) {
                self.timers.remove(&timer);
                self.step(now, |machine, out| machine.wake(now, timer, out));
            }
        }
    }

    /// When the next timer is over.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        self.timers.values().min().copied()
    }

    /// What is to be sent, in order; each is given once.
    pub(crate) fn posts(&mut self) -> Vec<Post> {
        std::mem::take(&mut self.posts)
    }

    /// Whom it has taken for the leader since the last call, in order. The first is nobody, so that whoever
    /// listens forgets what an earlier life has said.
    pub(crate) fn leaders(&mut self) -> Vec<Option<NodeId>> {
        std::mem::take(&mut self.leaders)
    }

    /// Who is who.
    pub(crate) const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Asks everybody whether an earlier life of this node is known.
    fn greet(&mut self) {
        for other in self.roster.others() {
            self.post(other, &Word::Hello);
        }
    }

    /// An earlier life of this node is known: it begins again above it.
    fn begin_above(&mut self, now: Moment, known: Life) {
        if known == self.life || known.run < self.life.run {
            return;
        }
        // Above the highest there is nothing; no number of restarts gets there, only a forged datagram.
        let Some(run) = known.run.checked_add(1) else { return };
        tracing::debug!(run, "an earlier life of this node is known: begins above it");
        self.life.run = run;
        self.setup.run = run;
        self.timers.clear();
        let mut out = Out::new();
        self.machine = P::start(&self.setup, None, now, &mut out);
        self.greet();
        self.see_to(now, out);
    }

    /// Whether a peer speaks in its last life that is known; if not, it is told.
    fn check_life(&mut self, sender: NodeId, life: Life) -> Result<(), Dropped> {
        let heard = &mut self.heard[usize::from(sender.0)];
        match *heard {
            Some(known) if known == life => Ok(()),
            Some(known) if life.run <= known.run => {
                self.post(sender, &Word::Known(known));
                Err(Dropped::Stale)
            }
            Some(_) | None => {
                *heard = Some(life);
                Ok(())
            }
        }
    }

    fn step(&mut self, now: Moment, tell: impl FnOnce(&mut P, &mut Out<P>)) {
        let mut out = Out::new();
        tell(&mut self.machine, &mut out);
        self.see_to(now, out);
    }

    /// Sees to what a step says, and to what comes back from it at once.
    fn see_to(&mut self, now: Moment, out: Out<P>) {
        let mut back = VecDeque::new();
        self.absorb(now, out, &mut back);
        for _ in 0..STEP_OWN_MAX {
            let Some(inward) = back.pop_front() else { break };
            let (me, mut out) = (self.setup.me, Out::new());
            match inward {
                Inward::Said(message) => self.machine.receive(now, me, message, &mut out),
                Inward::Durable => self.machine.durable(now, &mut out),
            }
            self.absorb(now, out, &mut back);
        }
    }

    fn absorb(&mut self, now: Moment, out: Out<P>, back: &mut VecDeque<Inward<P::Message>>) {
        // Remarks name nodes by letter; here they have names, and the lines say who leads.
        let Out { sends, kept, timers, remarks: _ } = out;
        for (timer, at) in timers {
            match at {
                Some(at) => self.timers.insert(timer, at),
                None => self.timers.remove(&timer),
            };
        }
        for (to, message) in sends {
            if to == self.setup.me {
                back.push_back(Inward::Said(message));
            } else {
                tracing::debug!(to = self.name(to), kind = message.kind(), "says");
                self.post(to, &Word::Said(message));
            }
        }
        // There is nothing in a `()`: it is durable as soon as it is kept.
        if kept.is_some() {
            back.push_back(Inward::Durable);
        }
        self.look(now);
    }

    fn look(&mut self, now: Moment) {
        let leader = self.machine.belief(now).leader;
        if leader != self.leader {
            self.leader = leader;
            self.leaders.push(leader);
        }
    }

    fn post(&mut self, to: NodeId, word: &Word<P::Message>) {
        let head = Head {
            algorithm: P::ALGORITHM,
            sender: self.setup.me,
            digest: self.digest,
            life: self.life,
        };
        let (Some(to), Some(bytes)) = (self.roster.address(to), wire::write::<P>(&head, word))
        else {
            // A token that was on its way while half of the ring died and came back: the next one is short.
            tracing::debug!("a message that does not fit is not sent");
            return;
        };
        self.posts.push(Post { to, bytes });
    }

    fn name(&self, node: NodeId) -> &str {
        self.roster.name(node).map_or("?", |name| name.as_str())
    }
}

#[cfg(test)]
mod tests;
