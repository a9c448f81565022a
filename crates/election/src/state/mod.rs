//! The state machine: one entry in, one [`Applied`] out, the same on every machine and every time.
//!
//! It keeps sessions, groups and their lines, and decides every change of office. It knows no time:
//! a driver measures and proposes `Expire` and `Elapsed`, and what the machine wants timed it says in
//! [`Effect`]s. A vacancy is filled in the very entry that made it, so that a crashed node with
//! 100,000 offices is succeeded by one entry.
//!
//! One verb, one file: `sessions` (open, close, expire), `campaign`, `resign` (and withdraw),
//! `transfer` (offer, warm, transfer, accept), `step_down`, `groups` (policies and deletion), `door` (moves),
//! `fences`, `elapsed`, `access` (bindings and tokens), `four_eyes` (what needs two principals). They meet in `office`, the only place that ends and begins
//! tenures. `repeat` makes a repeated request take effect once; `view` reads; `snapshot` writes and reads the whole
//! state; `weight` counts its bytes, `accounts` for whom, and `budget` says what would be too many.
//!
//! The road not taken: deciding promotions outside, by a controller that watches vacancies. It would
//! need a second round for every failover, and 100,000 of them for a crashed node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::access::AccessTable;
use crate::command::{Command, Entry};
use crate::name::{Group, Metadata, Node, SessionId, SessionNo};
use crate::outcome::{Answer, Applied, Cause, Effect, Event, OfficeChange, Refusal};
use crate::policy::{Policy, Settings};
use crate::term::{Revision, Term};

mod access;
mod accounts;
mod budget;
mod campaign;
mod door;
mod elapsed;
mod fences;
mod four_eyes;
mod group;
mod group_table;
mod groups;
mod invariants;
mod office;
mod query;
mod reborn;
mod relieve;
mod repeat;
mod report;
mod resign;
mod session;
mod sessions;
mod single_group;
mod snapshot;
mod step_down;
mod transfer;
mod view;
mod weight;

use accounts::{Accounts, Payer};
use four_eyes::Proposals;
use group::GroupState;
use group_table::GroupTable;
use repeat::Requests;
use session::{EndedSessions, Session};

pub use budget::{StateBudget, StateGrowth};
pub use query::{Candidacy, Lens, Query, Question, Typed, View};
pub use reborn::RebirthError;
pub use single_group::SessionSummary;
pub use snapshot::STATE_VERSION;
pub use view::{Holder, Wait};

/// Everything an election store must remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    settings: Settings,
    revision: Revision,
    /// No group starts below this term: the terms of every deleted group lie at or under it.
    term_floor: Term,
    sessions: BTreeMap<SessionNo, Session>,
    /// What they weigh.
    sessions_bytes: u64,
    by_secret: BTreeMap<SessionId, SessionNo>,
    groups: GroupTable,
    requests: Requests,
    ended: EndedSessions,
    access: Arc<AccessTable>,
    proposals: Proposals,
    accounts: Accounts,
    index: Index,
    /// The entry that is being applied in slices, if any.
    work: Option<Work>,
}

/// What can be computed from the groups but is asked too often for a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Index {
    /// Groups in which something is being waited for.
    waiting: BTreeSet<Group>,
    /// Groups that nobody leads although somebody stands: all who stand were silent.
    stranded: BTreeSet<Group>,
    led: u64,
    contended: u64,
}

/// What one entry is bringing about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    revision: Revision,
    wall_ms: u64,
    silent: Vec<SessionNo>,
    /// Who asks, if it is known: the owner of a session that is opened, and who is charged for what is made.
    who: Payer,
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl Turn {
    fn is_silent(&self, session: SessionNo) -> bool {
        self.silent.binary_search(&session).is_ok()
    }

    fn time_office(&mut self, group: &Group, change: OfficeChange) {
        self.effects.push(Effect::Office { group: group.clone(), change });
    }

    fn tell(&mut self, group: &Group, term: Term, leader: Option<(Node, Metadata)>, cause: Cause) {
        let ordinal = u32::try_from(self.events.len())
            .expect("an entry touches at most GROUPS_PER_SESSION_MAX groups a session");
        let (leader, metadata) = leader.map_or((None, Metadata::NONE), |(n, m)| (Some(n), m));
        self.events.push(Event {
            group: group.clone(),
            revision: self.revision,
            ordinal,
            term,
            leader,
            metadata,
            cause,
        });
    }
}

/// An entry that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Work {
    turn: Turn,
    rest: Rest,
    answer: Result<Answer, Refusal>,
}

/// What is left to do of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    /// These sessions end, for this cause; the last one first.
    EndSessions(Vec<SessionNo>, Cause),
    /// These vacant offices may be filled; the last one first.
    Fill(Vec<Group>),
    /// These groups are brought in line with a changed policy; the last one first.
    Enforce(Vec<Group>),
    /// These groups are brought in line with changed bindings; the last one first.
    Rebind(Vec<Group>),
}

/// What a verb's file returns: an answer, and what is left to do in slices.
type VerbResult = Result<(Answer, Rest), Refusal>;

const fn done() -> VerbResult {
    Ok((Answer::Done, Rest::Nothing))
}

impl State {
    /// A state in which nothing has happened.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            revision: Revision(0),
            term_floor: Term::NONE,
            sessions: BTreeMap::new(),
            sessions_bytes: 0,
            by_secret: BTreeMap::new(),
            groups: GroupTable::default(),
            requests: Requests::without_session(),
            ended: EndedSessions::default(),
            access: Arc::default(),
            proposals: Proposals::new(),
            accounts: Accounts::default(),
            index: Index::default(),
            work: None,
        }
    }

    /// Applies one entry as a whole.
    pub fn apply(&mut self, entry: Entry) -> Applied {
        self.begin(entry);
        loop {
            if let Some(applied) = self.advance(usize::MAX) {
                return applied;
            }
        }
    }

    /// Begins an entry whose work [`State::advance`] then does in slices.
    ///
    /// Until `advance` has returned the result, this state is between two revisions: no read, hash
    /// or snapshot may look at it, and no other entry may begin.
    pub fn begin(&mut self, entry: Entry) {
        assert!(self.work.is_none(), "an entry began before the one before it was finished");
        self.revision = self.revision.next();
        let Entry { command, request, mut silent, wall_ms } = entry;
        let admitted = self.admits(&command);
        let (who, command) = command.into_parts();
        if !silent.is_sorted() {
            silent.sort_unstable();
        }
        let mut turn = Turn {
            revision: self.revision,
            wall_ms,
            silent,
            who: who.map(|who| self.accounts.intern(who)),
            events: Vec::new(),
            effects: Vec::new(),
        };
        let verdict = admitted.and_then(|()| match &request {
            None => self.run_approved(&mut turn, command),
            Some(id) => self.run_once(&mut turn, id, command),
        });
        let (answer, rest) = match verdict {
            Ok((answer, rest)) => (Ok(answer), rest),
            Err(refusal) => (Err(refusal), Rest::Nothing),
        };
        self.work = Some(Work { turn, rest, answer });
    }

    /// Does at most `groups_max` groups' worth of the entry that was begun, and returns its result
    /// when it is finished.
    pub fn advance(&mut self, groups_max: usize) -> Option<Applied> {
        let applied = self.advance_slice(groups_max);
        self.groups.weigh(&mut self.accounts);
        applied
    }

    fn advance_slice(&mut self, groups_max: usize) -> Option<Applied> {
        let mut work = self.work.take()?;
        let mut budget = groups_max.max(1);
        while budget > 0 {
            match &mut work.rest {
                Rest::Nothing => {
                    let Work { turn, answer, .. } = work;
                    return Some(Applied {
                        revision: turn.revision,
                        answer,
                        events: turn.events,
                        effects: turn.effects,
                    });
                }
                Rest::EndSessions(sessions, cause) => {
                    let cause = *cause;
                    match sessions.last().copied() {
                        None => work.rest = Rest::Nothing,
                        Some(session) => {
                            if self.end_session_step(&mut work.turn, session, cause) {
                                sessions.pop();
                            }
                        }
                    }
                }
                Rest::Fill(groups) => match groups.pop() {
                    None => work.rest = Rest::Nothing,
                    Some(group) => self.fill(&mut work.turn, &group, Cause::Elected, None),
                },
                Rest::Enforce(groups) => match groups.pop() {
                    None => work.rest = Rest::Nothing,
                    Some(group) => self.enforce(&mut work.turn, &group),
                },
                Rest::Rebind(groups) => match groups.pop() {
                    None => work.rest = Rest::Nothing,
                    Some(group) => self.rebind(&mut work.turn, &group),
                },
            }
            budget -= 1;
        }
        self.work = Some(work);
        None
    }

    fn run(&mut self, turn: &mut Turn, command: Command) -> VerbResult {
        match command {
            Command::Open { session, node, ttl_ms } => self.open(turn, session, node, ttl_ms),
            Command::ChangeTtl { session, ttl_ms } => self.change_ttl(turn, session, ttl_ms),
            Command::Close { session } => Ok(self.close(session)),
            Command::Expire { sessions } => Ok(self.expire(sessions)),
            Command::Campaign { group, session, opening, if_lost, priority, metadata } => {
                self.campaign(turn, group, session, opening, if_lost, priority, metadata)
            }
            Command::Withdraw { group, session } => self.withdraw(turn, &group, session),
            Command::Accept { group, session, term } => self.accept(turn, &group, session, term),
            Command::Resign { group, session, term } => self.resign(turn, &group, session, term),
            Command::Offer { group, session, term, to } => {
                self.offer(turn, &group, session, term, &to)
            }
            Command::Warm { group, session, term } => self.warm(&group, session, term),
            Command::Transfer { group, session, term, to } => {
                self.transfer(turn, &group, session, term, &to)
            }
            Command::StepDown { group, reason, to, immediate } => {
                self.step_down(turn, &group, reason, to.as_ref(), immediate)
            }
            Command::PutPolicy { group, policy } => self.put_policy(turn, group, policy),
            Command::Move { group, step } => self.move_group(turn, &group, step),
            Command::Delete { group } => self.delete(turn, &group),
            Command::Admit { group, resource, term } => self.admit(turn, &group, resource, term),
            Command::ForgetFence { group, resource } => self.forget_fence(&group, &resource),
            Command::Report { group, finding, reason } => {
                self.report(turn, &group, finding, reason)
            }
            Command::Relieve { group, term, to, reason } => {
                self.relieve(turn, &group, term, &to, reason)
            }
            Command::PutSettings { settings } => self.put_settings(*settings),
            Command::PutBindings { expected_version, bindings } => {
                self.put_bindings(expected_version, bindings)
            }
            Command::CreateToken { token, digest, principal, expires_ms, label } => {
                self.create_token(turn, token, *digest, principal, expires_ms, label)
            }
            Command::RevokeToken { token } => self.revoke_token(token),
            // Who asks was taken off before, and nobody asks on behalf of two.
            Command::As { .. } => Err(Refusal::SessionOfAnother),
            Command::Elapsed { group, kind, since } => self.elapsed(turn, &group, kind, since),
            Command::Refill { session } => Ok(self.refill(session)),
        }
    }

    /// The policy that holds in a group. Borrowed: a mass expiry asks for it once per group, and a
    /// long allow-list takes longer to copy than everything else an office needs.
    fn policy_of<'a>(&'a self, group: &'a GroupState) -> &'a Policy {
        group.policy.as_deref().unwrap_or(&self.settings.default_policy)
    }
}
