//! A store as one authenticated caller sees it.
//!
//! The guard stands at the Store port, below every verb and above every engine, so no verb can be reached around it:
//! what a caller may not do is refused, what it may not see is left out. Commands are judged twice. Here, by what this
//! server has applied, so that a hopeless one costs no log entry; and where they are applied, on behalf of the caller,
//! which is the judgement that counts (S11). Reads, heartbeats and watches are judged here.
//!
//! The methods of the port are in `guard_port`, and what a watch shows in `guarded_watch`.
//!
//! What is read here may be old, on a server that is cut off. Such a server can neither apply a command nor
//! acknowledge a heartbeat.
//!
//! **Two ways to a yes.** If the store shows its table ([`LiveAccess`]), a request is judged by what that table says of the
//! caller ([`Standing`]), without asking and without waiting. Whatever that does not allow, and every store that shows none,
//! takes the way through the store, which also explains the denial. Both judge by the same table with the same function.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::standing::Standing;
use super::{
    AccessTable, AccessView, Binding, Caller, Extent, KnownSessions, LiveAccess, Request, Right,
    SessionOwner, judge,
};
use crate::limits::{GROUPS_PAGE_MAX, PAGES_SEARCHED_MAX};
use crate::name::{Group, Node, SessionId};
use crate::outcome::Refusal;
use crate::state::Question;
use crate::store::{Consistency, GroupsPage, Store, StoreError, StoreResult};

/// Where a caller has one right, at one moment.
#[derive(Debug)]
pub struct Permitted {
    table: Arc<AccessTable>,
    guarded: Arc<Guarded>,
    right: Right,
}

impl Permitted {
    /// Whether the caller has the right in a group, under the name of a node if one is given.
    #[must_use]
    pub fn covers(&self, group: &Group, node: Option<&Node>) -> bool {
        let caller = &self.guarded.caller;
        let (who, right, extent) = (&caller.who, self.right, Extent::Group(group));
        caller.flaw(&self.table).is_none()
            && judge(self.table.bindings(), Request { who, right, extent, node }).is_ok()
    }
}

/// A store as one caller may use it. A clone is the same guard, and costs a count.
#[derive(Clone, Debug)]
pub struct GuardedStore {
    pub(super) guarded: Arc<Guarded>,
    /// Whether the credential was over already: then only what an open session of the caller holds can be given up.
    pub(super) is_over: bool,
}

/// What all clones of a guard share.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) inner: Arc<dyn Store>,
    pub(super) caller: Caller,
    known: Arc<KnownSessions>,
    /// Where the store shows its table, once it was asked.
    live: OnceLock<LiveAccess>,
    /// What the table says of the caller. It ends with the table.
    standing: Mutex<Option<Standing>>,
}

impl Guarded {
    /// Who may do what, as far as this server has applied.
    async fn access(&self, session: Option<SessionId>) -> StoreResult<AccessView> {
        let view = self.inner.ask(Question::access(session), Consistency::Stale).await?;
        if let Some(live) = &view.live {
            self.live.get_or_init(|| live.clone());
        }
        Ok(view)
    }

    /// The same for what changes something, or keeps an office: not from before this server started, when what was
    /// revoked since may have been good.
    pub(super) async fn access_now(&self) -> StoreResult<AccessView> {
        let view = self.access(None).await?;
        if view.may_be_old {
            let why = "this server has not heard of a majority since it started, and does not know who may do what now";
            return Err(StoreError::Unavailable { why: why.into(), retry_after: None });
        }
        Ok(view)
    }

    /// The table alone.
    pub(super) async fn table(&self) -> StoreResult<Arc<AccessTable>> {
        match self.live.get() {
            Some(live) => Ok(live.table()),
            None => Ok(self.access(None).await?.table),
        }
    }

    /// What follows from what the table that is shown says of the caller; none if none is shown, or if it may be from
    /// before this server started.
    fn by_standing<T>(&self, judged: impl FnOnce(&Standing) -> T) -> Option<T> {
        let live = self.live.get().filter(|live| live.has_caught_up())?;
        let mut kept = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = match kept.take().filter(|it| it.version() == live.version()) {
            Some(standing) => standing,
            None => {
                let (version, table) = live.look();
                Standing::of(&self.caller, version, &table)
            }
        };
        Some(judged(kept.insert(standing)))
    }

    /// Whether the caller may do this by the table that is shown. A no is not the last word.
    pub(super) fn is_allowed(&self, right: Right, extent: Extent<'_>) -> bool {
        let asked = Request { who: &self.caller.who, right, extent, node: None };
        self.by_standing(|standing| standing.allows(&self.caller, asked)) == Some(true)
    }

    /// Whether the caller may use a session by the table that is shown. A no is not the last word.
    pub(super) fn is_session_allowed(&self, session: SessionId, group: Option<&Group>) -> bool {
        let Some(open) = self.known.get(session) else { return false };
        let Caller { who, .. } = &self.caller;
        let extent = group.map_or(Extent::SomeGroup, Extent::Group);
        let asked = Request { who, right: Right::Stand, extent, node: Some(&open.node) };
        open.owner.as_ref().is_none_or(|owner| owner == who)
            && self.by_standing(|standing| standing.allows(&self.caller, asked)) == Some(true)
    }
}

impl GuardedStore {
    /// Guards a store against a caller. All guards of one store share what they know of its sessions.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, caller: Caller, known: Arc<KnownSessions>) -> Self {
        let (live, standing) = (OnceLock::new(), Mutex::new(None));
        let guarded = Arc::new(Guarded { inner, caller, known, live, standing });
        Self { guarded, is_over: false }
    }

    /// The same, for a route that only gives something up: a caller whose credential is over may use it for its own
    /// open sessions, and for nothing else.
    pub async fn for_giving_up(self) -> StoreResult<Self> {
        let table = self.guarded.table().await?;
        let is_over = self.guarded.caller.flaw(&table).is_some();
        Ok(Self { is_over, ..self })
    }

    /// Whether a session is the caller's, or was: as far as this server remembers, which has heard its heartbeats.
    #[must_use]
    pub fn remembers_as_own(&self, session: SessionId) -> bool {
        let Guarded { caller, known, .. } = &*self.guarded;
        let open = known.get(session);
        open.is_some_and(|open| open.owner.as_ref().is_none_or(|owner| *owner == caller.who))
    }

    /// Whether the caller's credential is known to be good, without asking the store. If not, [`Self::for_giving_up`]
    /// tells.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let Guarded { caller, .. } = &*self.guarded;
        self.guarded.by_standing(|standing| standing.flaw(caller).is_none()) == Some(true)
    }

    /// Whether the caller is known to have a good credential and this right, without asking the store. If not,
    /// [`Self::check`] tells.
    #[must_use]
    pub fn is_allowed(&self, right: Right, extent: Extent<'_>) -> bool {
        self.guarded.is_allowed(right, extent)
    }

    /// Judges by what this server has applied, and before it refuses by what the store says now: a server that is
    /// behind must not turn away a caller whose binding or token is new to it.
    async fn judged(
        &self,
        is_allowed: impl Fn(&AccessTable) -> Result<(), Refusal>,
    ) -> StoreResult<()> {
        match is_allowed(&self.guarded.access(None).await?.table) {
            Ok(()) => return Ok(()),
            // What is over stays so, and no session changes hands: who tries that must not have the store asked.
            Err(sure @ (Refusal::CredentialOver { .. } | Refusal::SessionOfAnother)) => {
                return Err(sure.into());
            }
            Err(_) => {}
        }
        let now = self.guarded.inner.ask(Question::access(None), Consistency::Linearizable).await?;
        Ok(is_allowed(&now.table)?)
    }

    /// Whether the caller has come to give something up with a credential that is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Who calls.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.guarded.caller
    }

    /// The bindings that name the caller, as far as this server has applied.
    pub async fn bindings_of_caller(&self) -> StoreResult<Vec<Binding>> {
        let table = self.guarded.table().await?;
        let named = table.bindings().naming(&self.guarded.caller.who);
        Ok(named.map(|(_, binding)| binding.clone()).collect())
    }

    /// Refuses a caller without a good credential or without this right: for what a server does beside its store.
    pub async fn check(&self, right: Right, extent: Extent<'_>) -> StoreResult<()> {
        if self.guarded.is_allowed(right, extent) {
            return Ok(());
        }
        self.judged(|table| self.guarded.caller.check(table, right, extent)).await
    }

    /// The same by what this server has applied alone, which may be old.
    pub async fn check_applied(&self, right: Right, extent: Extent<'_>) -> StoreResult<()> {
        Ok(self.guarded.caller.check(&self.guarded.access(None).await?.table, right, extent)?)
    }

    /// Where the caller has a right: for lists that a server keeps beside its store.
    pub async fn permitted(&self, right: Right) -> StoreResult<Permitted> {
        let table = self.guarded.table().await?;
        Ok(Permitted { table, guarded: Arc::clone(&self.guarded), right })
    }

    /// Refuses a caller whose session this is not. One that was opened without authentication is anybody's who may
    /// stand under its name.
    pub async fn check_session(
        &self,
        session: SessionId,
        group: Option<&Group>,
    ) -> StoreResult<()> {
        let open = self.session(session).await?;
        let now = self.guarded.access_now().await?;
        let caller = &self.guarded.caller;
        let (who, right, node) = (&caller.who, Right::Stand, Some(&open.node));
        let extent = group.map_or(Extent::SomeGroup, Extent::Group);
        let is_allowed = |table: &AccessTable| {
            caller.check_credential(table)?;
            if open.owner.as_ref().is_some_and(|owner| owner != who) {
                return Err(Refusal::SessionOfAnother);
            }
            judge(table.bindings(), Request { who, right, extent, node })?;
            Ok(())
        };
        if is_allowed(&now.table).is_ok() {
            return Ok(());
        }
        // A leader stops when its heartbeat is denied, so a server that is behind must not deny it.
        self.judged(is_allowed).await
    }

    /// Whose a session is. One that is remembered may be closed by now: the store knows.
    async fn session(&self, session: SessionId) -> StoreResult<Arc<SessionOwner>> {
        let Guarded { inner, known, .. } = &*self.guarded;
        if let Some(open) = known.get(session) {
            return Ok(open);
        }
        let mut view = self.guarded.access(Some(session)).await?;
        if view.session.is_none() {
            // It may be too new for what this server has applied.
            let fresh = Question::access(Some(session));
            view = inner.ask(fresh, Consistency::Linearizable).await?;
        }
        let open = Arc::new(view.session.ok_or(Refusal::SessionUnknown)?);
        known.insert(session, Arc::clone(&open));
        Ok(open)
    }

    /// Refuses what is not about an open session of the caller.
    pub(super) async fn check_own(&self, session: Option<SessionId>) -> StoreResult<()> {
        let open = match session {
            None => None,
            Some(session) => match self.session(session).await {
                Err(StoreError::Refused(Refusal::SessionUnknown)) => None,
                other => Some(other?),
            },
        };
        let caller = &self.guarded.caller;
        match open.as_ref().and_then(|open| open.owner.as_ref()) {
            Some(owner) if *owner == caller.who => Ok(()),
            Some(_) | None => Ok(caller.check_credential(&*self.guarded.table().await?)?),
        }
    }

    /// The groups of a page that the caller may see. Nothing names those that it may not: the page goes on behind the
    /// last group that was seen.
    pub(super) async fn groups(
        &self,
        prefix: &str,
        after: Option<Group>,
        count: usize,
        consistency: Consistency,
    ) -> StoreResult<GroupsPage> {
        let count = count.clamp(1, GROUPS_PAGE_MAX);
        let Guarded { inner, caller, .. } = &*self.guarded;
        let table = self.guarded.table().await?;
        caller.check(&table, Right::Observe, Extent::SomeGroup)?;
        let (mut seen, mut from) = (Vec::new(), after);
        for _ in 0..PAGES_SEARCHED_MAX {
            let question = Question::groups(prefix.to_owned(), from, GROUPS_PAGE_MAX);
            let mut page = inner.ask(question, consistency).await?;
            let groups = std::mem::take(&mut page.groups);
            for view in groups.into_iter().filter(|it| caller.may_observe(&table, &it.group)) {
                if seen.len() == count {
                    page.next =
                        seen.last().map(|last: &crate::store::LeaderView| last.group.clone());
                    page.groups = seen;
                    return Ok(page);
                }
                seen.push(view);
            }
            match page.next.take() {
                None => return Ok(GroupsPage { groups: seen, ..page }),
                next => from = next,
            }
        }
        Err(Refusal::Full {
            what: "the part of the list that one request may search for groups you may observe (name a longer prefix)",
            max: (PAGES_SEARCHED_MAX * GROUPS_PAGE_MAX) as u64,
        }
        .into())
    }
}
