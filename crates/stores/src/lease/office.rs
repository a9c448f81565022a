//! The verbs of a group: load, turn, swap, tell.
//!
//! The order is what keeps it safe when a process dies between any two steps. Whoever was left untold by
//! the last writer is told first. Sessions that are gone are ended before they are expired. A session is
//! heard, and the group is on its list, before it may win anything there. And whoever a write concerns is
//! told after it; until then the write itself says who that is.

use std::collections::BTreeSet;
use std::sync::Arc;

use regent_election::store::{StoreError, StoreResult};
use regent_election::{Answer, Command, Frees, Group, Node, Opening, SessionId, SessionNo, State};

use super::Shared;
use super::entries::{Seen, SessionEntry};
use super::observed::Liveness;
use super::record::GroupRecord;
use super::turn::{Known, LeaseRequest, Turned, turn};

/// Tries of one verb; each failed one means that another's succeeded.
const TRIES_MAX: u32 = 48;
/// Most standbys that are looked at to find one who can be heard.
const LOOKS_MAX: usize = 8;

/// What a verb does with the session that asks.
#[derive(Clone, Debug)]
pub(super) enum Own {
    Nothing,
    /// It campaigns: it is heard, and opened if need be, before it can win. Its entry was read before.
    Touch {
        session: u128,
        opening: Opening,
        entry: Box<SessionEntry>,
    },
}

/// What came of a verb.
#[derive(Clone, Debug)]
pub(super) struct CommandOutcome {
    pub(super) answer: Answer,
    pub(super) record: GroupRecord,
    /// Whether anything was written.
    pub(super) has_changed: bool,
}

/// Who is gone, and who cannot be heard.
#[derive(Debug, Default)]
struct Absent {
    ended: Vec<u128>,
    silent: Vec<u128>,
    /// How long those who may have to stop may count on being alive.
    holds: Vec<(u128, u64)>,
}

impl Shared {
    /// Does what is wished in a group, after expiring there whoever is known to have ended.
    pub(super) async fn run(
        self: &Arc<Self>,
        group: &Group,
        wish: Option<LeaseRequest>,
        ended: &[u128],
        own: Own,
    ) -> StoreResult<CommandOutcome> {
        let mut is_touched = false;
        let outcome = self.run_touching(group, wish, ended, &own, &mut is_touched).await;
        if let Own::Touch { session, opening, .. } = own
            && opening.passing
            && is_touched
            && !is_candidate(&outcome)
        {
            // It is nobody here: nothing stays behind.
            self.end_passing(session, group).await?;
        }
        outcome
    }

    async fn run_touching(
        self: &Arc<Self>,
        group: &Group,
        wish: Option<LeaseRequest>,
        ended: &[u128],
        own: &Own,
        is_touched: &mut bool,
    ) -> StoreResult<CommandOutcome> {
        for tried in 0..TRIES_MAX {
            self.check_open()?;
            let seen = self.entries.load(group).await?;
            self.tell_all(group, &seen.record).await?;
            let mut absent =
                self.look_around(group, &seen, wish.as_ref(), !ended.is_empty()).await?;
            absent.ended.extend_from_slice(ended);
            let known = Known {
                group,
                seen_term: self.entries.seen_term(group),
                highest: self.entries.highest(),
                ended: &absent.ended,
                silent: &absent.silent,
                holds: &absent.holds,
                wall_ms: self.entries.time.wall_ms(),
                nonce: self.entries.time.chance(),
            };
            let turned = turn(&seen.record, &known, wish.clone());
            if let Own::Touch { session, opening, entry } = own
                && !*is_touched
                && turned.answer.as_ref().is_ok_and(|answer| *answer != Answer::Lost)
            {
                self.touch(*session, opening, Some(group), Some(SessionEntry::clone(entry)))
                    .await?;
                *is_touched = true;
            }
            let has_changed = turned.write.is_some();
            if !self.write(group, &seen, &turned).await? {
                self.entries.pause(tried).await;
                continue;
            }
            let is_told = if has_changed { self.spread(group, &turned).await } else { Ok(()) };
            let answer = turned.answer?;
            if let Err(error) = is_told
                && wish.as_ref().is_some_and(|wish| wish.command.ends_others())
            {
                let why = format!("it is done, but those concerned are not told yet: {error}");
                return Err(StoreError::Uncertain { why });
            }
            return Ok(CommandOutcome { answer, record: turned.record, has_changed });
        }
        let why = "too many write the same group at once".into();
        Err(StoreError::Unavailable { why, retry_after: None })
    }

    async fn write(&self, group: &Group, seen: &Seen, turned: &Turned) -> StoreResult<bool> {
        match &turned.write {
            None => Ok(true),
            Some(write) => self.entries.replace(group, seen, &turned.record, write.clone()).await,
        }
    }

    /// Tells everybody whom the last writer may have left untold.
    async fn tell_all(&self, group: &Group, record: &GroupRecord) -> StoreResult<()> {
        for session in &record.untold {
            self.tell(group, record, *session).await?;
        }
        Ok(())
    }

    /// Tells everybody whom a write concerns, ends what it ended, and wakes those who watch here.
    async fn spread(self: &Arc<Self>, group: &Group, turned: &Turned) -> StoreResult<()> {
        let told = self.tell_all(group, &turned.record).await;
        for session in &turned.over {
            if let Err(error) = self.end_passing(*session, group).await {
                tracing::debug!(%error, "a passing session will expire by itself");
            }
        }
        let has_wait = turned.record.state.waits().next().is_some();
        if told.is_err() || has_wait {
            // Somebody must see to it, and nobody else may be watching.
            self.follow_chore(group);
        }
        self.stir(group);
        told
    }

    /// Finds out who is gone and who is silent among those who matter for what is wished.
    async fn look_around(
        &self,
        group: &Group,
        seen: &Seen,
        wish: Option<&LeaseRequest>,
        is_expiry: bool,
    ) -> StoreResult<Absent> {
        let state = &seen.record.state;
        let mut absent = Absent::default();
        let mut is_vacant = is_expiry || state.holder(group).is_none();
        let command = wish.map(|wish| &wish.command);
        let asker = wish.and_then(|wish| wish.command.session()).map(SessionId::get);
        if let Some(Command::Campaign { .. }) = command
            && let Some(holder) =
                state.holder(group).and_then(|holder| id_of(state, holder.session))
            && Some(holder) != asker
        {
            is_vacant |= self.judge(holder, &mut absent).await? == Judged::Ended;
        }
        if command.is_some_and(|command| {
            command.ends_others() || matches!(command, Command::Withdraw { .. })
        }) && let Some(holder) =
            state.holder(group).and_then(|holder| id_of(state, holder.session))
        {
            let (record, _) = self.entries.look(holder).await?;
            let open = record.as_ref().and_then(|record| record.as_open());
            absent.holds.extend(open.map(|open| (holder, open.hold_ms)));
        }
        let wake_order: Vec<u128> =
            state.standbys(group).filter_map(|session| id_of(state, session)).collect();
        let named = named_in(state, group, command.and_then(Command::successor));
        for session in &named {
            self.judge(*session, &mut absent).await?;
        }
        if is_vacant || command.is_some_and(|command| command.frees() != Frees::Nothing) {
            let others =
                wake_order.into_iter().filter(|id| Some(*id) != asker && !named.contains(id));
            for session in others.take(LOOKS_MAX) {
                if self.judge(session, &mut absent).await? == Judged::Audible {
                    break;
                }
            }
        }
        Ok(absent)
    }

    /// Looks at a session; one that is due is ended.
    async fn judge(&self, session: u128, absent: &mut Absent) -> StoreResult<Judged> {
        let (_, verdict) = self.entries.look(session).await?;
        let has_ended = match verdict {
            Liveness::Ended => true,
            Liveness::Due { .. } => self.entries.lapse(session).await?,
            Liveness::Silent { .. } => {
                absent.silent.push(session);
                return Ok(Judged::Silent);
            }
            Liveness::Unseen | Liveness::Audible { .. } => return Ok(Judged::Audible),
        };
        if has_ended {
            absent.ended.push(session);
            return Ok(Judged::Ended);
        }
        Ok(Judged::Audible)
    }
}

/// How a session was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    Audible,
    Silent,
    Ended,
}

fn id_of(state: &State, session: SessionNo) -> Option<u128> {
    state.id_of(session).map(SessionId::get)
}

/// The standbys that call themselves so.
fn named_in(state: &State, group: &Group, to: Option<&Node>) -> BTreeSet<u128> {
    let Some(to) = to else { return BTreeSet::new() };
    state
        .standbys(group)
        .filter(|session| state.node(*session) == Some(to))
        .take(LOOKS_MAX)
        .filter_map(|session| id_of(state, session))
        .collect()
}

/// Whether a campaign left its session in office or in line.
fn is_candidate(outcome: &StoreResult<CommandOutcome>) -> bool {
    match outcome {
        Ok(CommandOutcome { answer, .. }) => {
            matches!(answer, Answer::Elected { .. } | Answer::Standing { .. })
        }
        // It may be one: only its session's end would tell, and the caller may ask again.
        Err(StoreError::Uncertain { .. } | StoreError::Corrupt(_)) => true,
        Err(
            StoreError::Refused(_)
            | StoreError::Unavailable { .. }
            | StoreError::Unsupported { .. },
        ) => false,
    }
}
