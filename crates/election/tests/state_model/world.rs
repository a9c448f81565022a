//! Both machines side by side: every step becomes one entry, and both must agree on all of it.

use std::fmt::Write as _;

use regent_election::access::{Binding, Role, SecretDigest, TokenId, TokenLabel};
use regent_election::codec::{decode_entry, encode_entry};
use regent_election::{
    Answer, Command, Door, Entry, Group, Home, IfLost, Metadata, Node, Opening, Reason, Refusal,
    RequestId, Resource, Revision, SessionId, SessionNo, Settings, State, Step as Move, Term,
    WaitKind,
};

use super::compare::compare;
use super::model::Model;
use super::promises::Promises;
use super::reach::Reach;
use super::steps::{Id, NODES, Op, SLOTS, Step, To, Which, Who, settings};

/// The state machine, its model, and what has happened so far.
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) model: Model,
    promises: Promises,
    /// A machine that was restored from bytes and goes on in slices of this many groups.
    twin: Option<(State, usize)>,
    /// What can be repeated: the entries that were not refused. Others leave no trace, so that a
    /// failing sequence can shrink without them.
    entries: Vec<Entry>,
    generations: [u64; SLOTS as usize],
    story: String,
    /// What this sequence has come to.
    pub(crate) reach: Reach,
}

pub(crate) fn group(number: u8) -> Group {
    Group::new(&format!("g{number}")).unwrap()
}

pub(crate) fn node(number: u8) -> Node {
    Node::new(&format!("n{}", number % NODES)).unwrap()
}

pub(crate) fn secret(slot: u8, generation: u64) -> SessionId {
    SessionId::new(u128::from(generation) * 100 + u128::from(slot) + 1).unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        let settings = Settings::default();
        Self {
            state: State::new(settings.clone()),
            model: Model::new(settings),
            promises: Promises::default(),
            twin: None,
            entries: Vec::new(),
            generations: [0; SLOTS as usize],
            story: String::new(),
            reach: Reach::default(),
        }
    }

    /// Everything that was applied and not refused, in order.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Runs a step; the error is the whole story up to the disagreement.
    pub(crate) fn run(&mut self, step: &Step) -> Result<(), String> {
        let Some(entry) = self.entry(step) else {
            return Ok(());
        };
        self.take(entry)
    }

    /// Applies an entry to everything that takes entries.
    pub(crate) fn take(&mut self, entry: Entry) -> Result<(), String> {
        let _ = write!(self.story, "\n{:3} {}", self.state.revision().0 + 1, tell(&entry));
        self.judge(entry).map_err(|why| format!("{why}\nafter{}\n", self.story))
    }

    fn judge(&mut self, entry: Entry) -> Result<(), String> {
        let read = through_bytes(&entry)?;
        let before = self.state.clone();
        let known = self.model.clone();
        let expected = self.model.apply(&entry);
        let applied = self.state.apply(read);
        let _ = write!(self.story, "\n      -> {:?}", applied.answer);
        for event in &applied.events {
            let leader = event.leader.as_ref().map_or("nobody", Node::as_str);
            let (group, term, cause) = (&event.group, event.term, event.cause);
            let _ = write!(self.story, "\n         {group}: {leader} leads, term {term} ({cause})");
        }
        self.reach.note(&entry, &applied);
        self.state.check_invariants()?;
        compare(&before, &self.state, &applied, &known, &self.model, &expected)?;
        self.promises.hold(&before, &self.state, &entry, &applied)?;
        if let Some((twin, slice)) = &mut self.twin {
            twin.begin(entry.clone());
            let in_slices = loop {
                if let Some(applied) = twin.advance(*slice) {
                    break applied;
                }
            };
            if in_slices != applied {
                return Err(format!("restored, and in slices of {slice}: {in_slices:?}"));
            }
            if *twin != self.state {
                return Err(format!("restored, and in slices of {slice}, the state differs"));
            }
        }
        match applied.answer {
            Err(_) | Ok(Answer::Overtaken) => {}
            Ok(_) => self.entries.push(entry),
        }
        Ok(())
    }

    /// Semantics 23: a state that is used again after a loss starts above every term it granted, and
    /// nobody of its former life comes back.
    pub(crate) fn end(&self) -> Result<(), String> {
        self.begin_again().map_err(|why| format!("{why}\nafter{}\n", self.story))
    }

    fn begin_again(&self) -> Result<(), String> {
        let mut reborn =
            self.state.clone().reborn(0, 0, Term::NONE).map_err(|why| why.to_string())?;
        reborn.check_invariants()?;
        if State::decode(&reborn.encode()).as_ref() != Ok(&reborn) {
            return Err("a state that begins again changed on its way through bytes".into());
        }
        for session in &self.model.sessions {
            let command = Command::Open {
                session: session.id,
                node: session.node.clone(),
                ttl_ms: session.ttl_ms,
            };
            let answer = reborn.apply(Entry::bare(command)).answer;
            if answer != Err(Refusal::SessionUnknown) {
                return Err(format!("{} came back: {answer:?}", session.no));
            }
        }
        self.promises.outlive(&reborn)
    }

    fn entry(&mut self, step: &Step) -> Option<Entry> {
        let silent = step.silent.iter().map(|slot| self.session_no(*slot)).collect();
        if let Op::Again { back } = step.op {
            let back = self.entries.len().checked_sub(1 + usize::from(back))?;
            return Some(Entry { silent, ..self.entries[back].clone() });
        }
        if let Op::Restart { slice } = step.op {
            let restored = State::decode(&self.state.encode()).expect("it was just written");
            assert_eq!(restored, self.state, "serialise and restore is the identity");
            self.twin = Some((restored, slice.into()));
            return None;
        }
        let command = self.command(&step.op)?;
        let request = self.request(step.id);
        let wall_ms = self.state.revision().0 * 1000;
        Some(Entry { command, request, silent, wall_ms })
    }

    fn request(&self, id: Id) -> Option<RequestId> {
        let revision = self.state.revision().0;
        let nonce = format!("r{revision}");
        let at = |seen: u64| Some(RequestId::new(Revision(seen), &nonce).unwrap());
        match id {
            Id::None => None,
            Id::Fresh(lag) => at(revision.saturating_sub(lag.into())),
            Id::Ahead => at(revision + 1),
            Id::Used(back) => {
                let mut used = self.entries.iter().rev().filter_map(|entry| entry.request.clone());
                used.nth(back.into())
            }
        }
    }

    fn session_no(&self, slot: u8) -> SessionNo {
        let generation = self.generations.get(usize::from(slot)).copied();
        let id = generation.map(|generation| secret(slot, generation));
        let session = id.and_then(|id| self.model.open_session(id));
        session.map_or(SessionNo(99_999), |session| session.no)
    }

    fn who(&mut self, who: Who, of: &Group) -> SessionId {
        match who {
            Who::Slot(slot) => {
                let generation = &mut self.generations[usize::from(slot)];
                if self.model.ended.contains(&secret(slot, *generation)) {
                    *generation += 1;
                }
                secret(slot, *generation)
            }
            Who::Holder => {
                let holder = self.model.holder(of).map(|one| self.model.session(one.session).id);
                holder.unwrap_or(secret(0, self.generations[0]))
            }
            Who::Standby(place) => {
                let line = self.model.line(of);
                let standby = line.get(usize::from(place)).map(|one| one.session);
                let id = standby.map(|no| self.model.session(no).id);
                id.unwrap_or(secret(1, self.generations[1]))
            }
            Who::Offered => {
                let offered = self.model.holding(of).and_then(|holding| holding.offered);
                let id = offered.map(|no| self.model.session(no).id);
                id.unwrap_or(secret(2, self.generations[2]))
            }
            Who::Ghost(slot) => {
                let generation = self.generations[usize::from(slot)];
                secret(slot, generation.saturating_sub(1))
            }
        }
    }

    fn which(&self, which: Which, group: &Group) -> Term {
        let term = self.model.group(group).map_or(Term::NONE, |known| known.term).get();
        let number = match which {
            Which::Current => term,
            Which::Before => term.saturating_sub(1),
            Which::After => term + 1,
        };
        Term::new(number).unwrap()
    }

    fn to(&self, to: To, group: &Group) -> Node {
        match to {
            To::Node(number) => node(number),
            To::Standby(place) => {
                let line = self.model.line(group);
                let standby = line.get(usize::from(place));
                standby.map_or(node(place), |one| self.model.session(one.session).node.clone())
            }
        }
    }

    /// What a slot calls itself: slots share nodes, so that names are not identities.
    fn node_of(&self, id: SessionId) -> Node {
        let open = self.model.open_session(id).map(|session| session.node.clone());
        open.unwrap_or(node((id.get() % 100) as u8))
    }

    fn command(&mut self, op: &Op) -> Option<Command> {
        Some(match *op {
            Op::Open { who, node: number, ttl_ms } => {
                let session = self.who(who, &group(0));
                Command::Open { session, node: node(number), ttl_ms }
            }
            Op::ChangeTtl { who, ttl_ms } => {
                Command::ChangeTtl { session: self.who(who, &group(0)), ttl_ms }
            }
            Op::Close { who } => Command::Close { session: self.who(who, &group(0)) },
            Op::Expire { ref slots } => {
                let sessions = slots.iter().map(|slot| self.session_no(*slot)).collect();
                Command::Expire { sessions }
            }
            Op::Campaign { group: at, who, opening, leave, priority, told } => {
                let group = group(at);
                let session = self.who(who, &group);
                let node = self.node_of(session);
                Command::Campaign {
                    group,
                    session,
                    opening: opening.map(|(ttl_ms, passing)| Opening { node, ttl_ms, passing }),
                    if_lost: if leave { IfLost::Leave } else { IfLost::Stand },
                    priority,
                    metadata: Metadata::new(told.then_some(("zone", "b"))).unwrap(),
                }
            }
            Op::Withdraw { group: at, who } => {
                let group = group(at);
                Command::Withdraw { session: self.who(who, &group), group }
            }
            Op::Accept { group: at, who, term } => {
                let (group, session, term) = self.tenure(at, who, term);
                Command::Accept { group, session, term }
            }
            Op::Resign { group: at, who, term } => {
                let (group, session, term) = self.tenure(at, who, term);
                Command::Resign { group, session, term }
            }
            Op::Offer { group: at, who, term, to } => {
                let (group, session, term) = self.tenure(at, who, term);
                let to = self.to(to, &group);
                Command::Offer { group, session, term, to }
            }
            Op::Warm { group: at, who, term } => {
                let (group, session, term) = self.tenure(at, who, term);
                Command::Warm { group, session, term }
            }
            Op::Transfer { group: at, who, term, to } => {
                let (group, session, term) = self.tenure(at, who, term);
                let to = self.to(to, &group);
                Command::Transfer { group, session, term, to }
            }
            Op::StepDown { group: at, to, immediate, reason } => {
                let group = group(at);
                let to = to.map(|to| self.to(to, &group));
                let reason = Reason::new(if reason { "upgrade" } else { "" }).unwrap();
                Command::StepDown { group, reason, to, immediate }
            }
            Op::PutPolicy { group: at, policy } => {
                let policy = policy.map(|wish| Box::new(wish.policy()));
                Command::PutPolicy { group: group(at), policy }
            }
            Op::Expect { group: at, from } => {
                Command::Move { group: group(at), step: Move::Expect { from: home(from) } }
            }
            Op::Depart { group: at, to } => {
                Command::Move { group: group(at), step: Move::Depart { to: home(to) } }
            }
            Op::Arrive { group: at, late, above, heir } => {
                // Of a group that is expected, if there is one.
                let since = |name: &Group| match self.model.group(name)?.door {
                    Door::Expected { since, .. } => Some(since),
                    Door::Open | Door::Moved { .. } | Door::Stopped { .. } => None,
                };
                let all = [group(at)].into_iter().chain(self.model.names());
                let expected = all.filter_map(|name| Some((since(&name)?, name))).next();
                let (since, group) = expected.unwrap_or((Revision(1), group(at)));
                let since = Revision(since.0 + u64::from(late));
                let heir = heir.map(|heir| self.to(heir, &group));
                let above = self.which(above, &group);
                Command::Move { group, step: Move::Arrive { since, above, heir } }
            }
            Op::Stop { group: at } => Command::Move { group: group(at), step: Move::Stop },
            Op::Resume { group: at, late } => {
                // Of a group that is stopped, if there is one.
                let since = |name: &Group| match self.model.group(name)?.door {
                    Door::Stopped { since } => Some(since),
                    Door::Open | Door::Moved { .. } | Door::Expected { .. } => None,
                };
                let all = [group(at)].into_iter().chain(self.model.names());
                let stopped = all.filter_map(|name| Some((since(&name)?, name))).next();
                let (since, group) = stopped.unwrap_or((Revision(1), group(at)));
                let since = Revision(since.0 + u64::from(late));
                Command::Move { group, step: Move::Resume { since } }
            }
            Op::Admit { group: at, resource: number, term } => {
                let group = group(at);
                let term = self.which(term, &group);
                Command::Admit { group, resource: resource(number), term }
            }
            Op::ForgetFence { group: at, resource: number } => {
                Command::ForgetFence { group: group(at), resource: resource(number) }
            }
            Op::Report { group: at, finding, words } => {
                let reason = Reason::new(&format!("seen {words}")).unwrap();
                Command::Report { group: group(at), finding, reason }
            }
            Op::Relieve { group: at, term, to } => {
                let group = group(at);
                let (term, to) = (self.which(term, &group), self.to(to, &group));
                let reason = Reason::new("predicted").unwrap();
                Command::Relieve { group, term, to, reason }
            }
            Op::Delete { group: at } => Command::Delete { group: group(at) },
            Op::PutSettings { ceiling_ms, auto_create, groups_max, policy } => {
                let settings = settings(ceiling_ms, auto_create, groups_max, policy);
                Command::PutSettings { settings: Box::new(settings) }
            }
            Op::PutBindings { late, roles } => {
                let binding = |role: Role| Binding {
                    who: "node:*".parse().unwrap(),
                    role,
                    groups: vec!["*".parse().unwrap()],
                    nodes: vec!["self".parse().unwrap()],
                };
                let bindings =
                    Role::ALL.into_iter().take(usize::from(roles)).map(binding).collect();
                let expected_version = self.model.bindings.0 + u64::from(late);
                Command::PutBindings { expected_version, bindings }
            }
            Op::CreateToken { token } => Command::CreateToken {
                token: TokenId(u64::from(token)),
                digest: Box::new(SecretDigest([token; 32])),
                principal: "user:alice".parse().unwrap(),
                expires_ms: None,
                label: TokenLabel::new("model").unwrap(),
            },
            Op::RevokeToken { token } => Command::RevokeToken { token: TokenId(u64::from(token)) },
            Op::Elapsed { group: at, kind, late } => {
                let all = [group(at)].into_iter().chain(self.model.names());
                let running = all.filter_map(|name| Some((self.model.wait(&name)?, name)));
                let running = running.map(|((kind, since, _), name)| (name, kind, since)).next();
                let (group, is, since) =
                    running.unwrap_or((group(at), WaitKind::Ending, Revision(1)));
                let since = Revision(since.0 + u64::from(late));
                Command::Elapsed { group, kind: kind.unwrap_or(is), since }
            }
            Op::Refill { who } => {
                let id = self.who(who, &group(0));
                let session = self.model.open_session(id).map(|session| session.no);
                Command::Refill { session: session.unwrap_or(SessionNo(99_999)) }
            }
            Op::Again { .. } | Op::Restart { .. } => return None,
        })
    }

    fn tenure(&mut self, at: u8, who: Who, term: Which) -> (Group, SessionId, Term) {
        let group = group(at);
        let session = self.who(who, &group);
        let term = self.which(term, &group);
        (group, session, term)
    }
}

/// Another store.
fn home(number: u8) -> Home {
    Home::new(&format!("etcd://{number}")).unwrap()
}

pub(crate) fn resource(number: u8) -> Resource {
    Resource::new(["rows", "rows/paid"][usize::from(number)]).unwrap()
}

/// The entry as another machine reads it: whatever will be refused can still be read.
fn through_bytes(entry: &Entry) -> Result<Entry, String> {
    match decode_entry(&encode_entry(entry)) {
        Ok(read) if read == *entry => Ok(read),
        read => Err(format!("an entry changed on its way through bytes: {read:?}")),
    }
}

/// An entry as one readable line.
pub(crate) fn tell(entry: &Entry) -> String {
    let mut line = format!("{:?}", entry.command);
    if let Some(id) = entry.command.session() {
        let (slot, generation) = ((id.get() - 1) % 100, (id.get() - 1) / 100);
        line = line.replace("SessionId(secret)", &format!("s{slot}.{generation}"));
    }
    if let Some(id) = &entry.request {
        let _ = write!(line, " [id {id}]");
    }
    if !entry.silent.is_empty() {
        let _ = write!(line, " [silent {:?}]", entry.silent);
    }
    line
}
