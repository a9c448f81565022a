//! A store as one authenticated caller sees it.
//!
//! The guard stands at the Store port, below every verb and above every engine, so no verb can be reached around it:
//! what a caller may not do is refused, what it may not see is left out. Commands are judged twice. Here, by what this
//! server has applied, so that a hopeless one costs no log entry; and where they are applied, on behalf of the caller,
//! which is the judgement that counts (S11). Reads, heartbeats and watches are judged here.
//!
//! What is read here may be old, on a server that is cut off. Such a server can neither apply a command nor
//! acknowledge a heartbeat.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    AccessTable, AccessView, Binding, CredentialFlaw, Extent, KnownSessions, Principal, Request,
    Right, SessionOwner, TokenId, judge,
};
use crate::command::Command;
use crate::limits::{GROUPS_PAGE_MAX, PAGES_SEARCHED_MAX, WATCH_JUDGED_EVERY_MS};
use crate::moment::Moment;
use crate::name::{Group, Node, RequestId, SessionId};
use crate::outcome::Refusal;
use crate::state::{Query, Question, View};
use crate::store::{
    Consistency, Description, Done, GroupsPage, HeartbeatView, Scope, Store, StoreError,
    StoreResult, Time, Watch, WatchItem,
};
use crate::term::{Cursor, Term};
use crate::together::{First, first};

/// Vouches for a caller beside what the store keeps, as a client certificate does.
pub trait Voucher: std::fmt::Debug + Send + Sync {
    /// For whom.
    fn who(&self) -> &Principal;

    /// Why it is not good any more, if so. Asked with every request, since connections outlive credentials.
    fn flaw(&self) -> Option<CredentialFlaw>;
}

/// Who calls, and by which credentials. All that were shown must be good.
#[derive(Clone, Debug)]
pub struct Caller {
    pub who: Principal,
    /// The token that was shown; none for a caller that is known in another way.
    pub token: Option<TokenId>,
    /// What else vouches for the caller.
    pub voucher: Option<Arc<dyn Voucher>>,
    /// The wall clock of this server, in milliseconds since 1970: for the expiry of tokens only.
    pub wall_ms: fn() -> u64,
}

impl Caller {
    /// Why the credential is not good any more, if so. A token that is not known any more was revoked long ago.
    #[must_use]
    pub fn flaw(&self, table: &AccessTable) -> Option<CredentialFlaw> {
        if let Some(flaw) = self.voucher.as_ref().and_then(|voucher| voucher.flaw()) {
            return Some(flaw);
        }
        let id = self.token?;
        match table.token(id).filter(|record| record.principal == self.who) {
            Some(record) => record.flaw((self.wall_ms)()),
            None => Some(CredentialFlaw::Revoked),
        }
    }

    fn check_credential(&self, table: &AccessTable) -> Result<(), Refusal> {
        self.flaw(table).map_or(Ok(()), |flaw| Err(Refusal::CredentialOver { flaw }))
    }

    /// Whether the caller has a good credential and a right.
    pub fn check(
        &self,
        table: &AccessTable,
        right: Right,
        extent: Extent<'_>,
    ) -> Result<(), Refusal> {
        self.check_credential(table)?;
        judge(table.bindings(), Request { who: &self.who, right, extent, node: None })?;
        Ok(())
    }

    /// Whether the caller may watch this. Like a list, a watch of many shows what may be seen; one of which nothing may
    /// be seen would be silent for ever.
    fn check_watch(&self, table: &AccessTable, scope: &Scope) -> Result<(), Refusal> {
        let check = |group| self.check(table, Right::Observe, Extent::Group(group));
        match scope {
            Scope::Group(group) | Scope::Turn(group) => check(group),
            Scope::Groups(groups) => {
                self.check(table, Right::Observe, Extent::SomeGroup)?;
                if groups.iter().any(|group| check(group).is_ok()) {
                    return Ok(());
                }
                groups.first().map_or(Ok(()), check)
            }
            Scope::Prefix(_) => self.check(table, Right::Observe, Extent::SomeGroup),
        }
    }

    fn may_observe(&self, table: &AccessTable, group: &Group) -> bool {
        self.check(table, Right::Observe, Extent::Group(group)).is_ok()
    }
}

/// Where a caller has one right, at one moment.
#[derive(Debug)]
pub struct Permitted {
    table: Arc<AccessTable>,
    caller: Arc<Caller>,
    right: Right,
}

impl Permitted {
    /// Whether the caller has the right in a group, under the name of a node if one is given.
    #[must_use]
    pub fn covers(&self, group: &Group, node: Option<&Node>) -> bool {
        let (who, right, extent) = (&self.caller.who, self.right, Extent::Group(group));
        self.caller.flaw(&self.table).is_none()
            && judge(self.table.bindings(), Request { who, right, extent, node }).is_ok()
    }
}

/// A store as one caller may use it.
#[derive(Clone, Debug)]
pub struct GuardedStore {
    inner: Arc<dyn Store>,
    caller: Arc<Caller>,
    known: Arc<KnownSessions>,
    /// Whether the credential was over already: then only what an open session of the caller holds can be given up.
    is_over: bool,
}

impl GuardedStore {
    /// Guards a store against a caller. All guards of one store share what they know of its sessions.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, caller: Caller, known: Arc<KnownSessions>) -> Self {
        Self { inner, caller: Arc::new(caller), known, is_over: false }
    }

    /// The same, for a route that only gives something up: a caller whose credential is over may use it for its own
    /// open sessions, and for nothing else.
    pub async fn for_giving_up(self) -> StoreResult<Self> {
        let table = access(&*self.inner, None).await?.table;
        let is_over = self.caller.flaw(&table).is_some();
        Ok(Self { is_over, ..self })
    }

    /// Whether a session is the caller's, or was: as far as this server remembers, which has heard its heartbeats.
    #[must_use]
    pub fn remembers_as_own(&self, session: SessionId) -> bool {
        let open = self.known.get(session);
        open.is_some_and(|open| open.owner.as_ref().is_none_or(|owner| *owner == self.caller.who))
    }

    /// Judges by what this server has applied, and before it refuses by what the store says now: a server that is
    /// behind must not turn away a caller whose binding or token is new to it.
    async fn judged(
        &self,
        is_allowed: impl Fn(&AccessTable) -> Result<(), Refusal>,
    ) -> StoreResult<()> {
        match is_allowed(&access(&*self.inner, None).await?.table) {
            Ok(()) => return Ok(()),
            // What is over stays so, and no session changes hands: who tries that must not have the store asked.
            Err(sure @ (Refusal::CredentialOver { .. } | Refusal::SessionOfAnother)) => {
                return Err(sure.into());
            }
            Err(_) => {}
        }
        let now = self.inner.ask(Question::access(None), Consistency::Linearizable).await?;
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
        &self.caller
    }

    /// The bindings that name the caller, as far as this server has applied.
    pub async fn bindings_of_caller(&self) -> StoreResult<Vec<Binding>> {
        let table = access(&*self.inner, None).await?.table;
        let who = self.caller.who.to_string();
        let named = table.bindings().list().iter().filter(|binding| binding.who.matches(&who));
        Ok(named.cloned().collect())
    }

    /// Refuses a caller without a good credential or without this right: for what a server does beside its store.
    pub async fn check(&self, right: Right, extent: Extent<'_>) -> StoreResult<()> {
        self.judged(|table| self.caller.check(table, right, extent)).await
    }

    /// The same by what this server has applied alone, which may be old.
    pub async fn check_applied(&self, right: Right, extent: Extent<'_>) -> StoreResult<()> {
        Ok(self.caller.check(&access(&*self.inner, None).await?.table, right, extent)?)
    }

    /// Where the caller has a right: for lists that a server keeps beside its store.
    pub async fn permitted(&self, right: Right) -> StoreResult<Permitted> {
        let table = access(&*self.inner, None).await?.table;
        Ok(Permitted { table, caller: Arc::clone(&self.caller), right })
    }

    /// Refuses a caller whose session this is not. One that was opened without authentication is anybody's who may
    /// stand under its name.
    pub async fn check_session(
        &self,
        session: SessionId,
        group: Option<&Group>,
    ) -> StoreResult<()> {
        let open = self.session(session).await?;
        let now = access_now(&*self.inner).await?;
        let (who, right, node) = (&self.caller.who, Right::Stand, Some(&open.node));
        let extent = group.map_or(Extent::SomeGroup, Extent::Group);
        let is_allowed = |table: &AccessTable| {
            self.caller.check_credential(table)?;
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
    async fn session(&self, session: SessionId) -> StoreResult<SessionOwner> {
        if let Some(open) = self.known.get(session) {
            return Ok(open);
        }
        let mut view = access(&*self.inner, Some(session)).await?;
        if view.session.is_none() {
            // It may be too new for what this server has applied.
            let fresh = Question::access(Some(session));
            view = self.inner.ask(fresh, Consistency::Linearizable).await?;
        }
        let open = view.session.ok_or(Refusal::SessionUnknown)?;
        self.known.insert(session, open.clone());
        Ok(open)
    }

    /// Refuses what is not about an open session of the caller.
    async fn check_own(&self, session: Option<SessionId>) -> StoreResult<()> {
        let open = match session {
            None => None,
            Some(session) => match self.session(session).await {
                Err(StoreError::Refused(Refusal::SessionUnknown)) => None,
                other => Some(other?),
            },
        };
        match open.and_then(|open| open.owner) {
            Some(owner) if owner == self.caller.who => Ok(()),
            Some(_) | None => {
                let table = access(&*self.inner, None).await?.table;
                Ok(self.caller.check_credential(&table)?)
            }
        }
    }

    /// The groups of a page that the caller may see. Nothing names those that it may not: the page goes on behind the
    /// last group that was seen.
    async fn groups(
        &self,
        prefix: &str,
        after: Option<Group>,
        count: usize,
        consistency: Consistency,
    ) -> StoreResult<GroupsPage> {
        let count = count.clamp(1, GROUPS_PAGE_MAX);
        let table = access(&*self.inner, None).await?.table;
        self.caller.check(&table, Right::Observe, Extent::SomeGroup)?;
        let (mut seen, mut from) = (Vec::new(), after);
        for _ in 0..PAGES_SEARCHED_MAX {
            let question = Question::groups(prefix.to_owned(), from, GROUPS_PAGE_MAX);
            let mut page = self.inner.ask(question, consistency).await?;
            let groups = std::mem::take(&mut page.groups);
            for view in groups.into_iter().filter(|it| self.caller.may_observe(&table, &it.group)) {
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

/// Who may do what, as far as this server has applied.
async fn access(store: &dyn Store, session: Option<SessionId>) -> StoreResult<AccessView> {
    store.ask(Question::access(session), Consistency::Stale).await
}

/// The same for what changes something, or keeps an office: not from before this server started, when what was revoked
/// since may have been good.
async fn access_now(store: &dyn Store) -> StoreResult<AccessView> {
    let view = access(store, None).await?;
    if view.may_be_old {
        let why = "this server has not heard of a majority since it started, and does not know who may do what now";
        return Err(StoreError::Unavailable { why: why.into(), retry_after: None });
    }
    Ok(view)
}

#[async_trait]
impl Store for GuardedStore {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn time(&self) -> &dyn Time {
        self.inner.time()
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }

    /// What is read after a command is about its own group or session, so whoever may have the command applied may
    /// read it: every role observes.
    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<Done> {
        // Giving up waits for nothing here: a campaign that is dropped polls this only once.
        if command.gives_up() {
            if self.is_over {
                self.check_own(command.session()).await?;
            }
        } else {
            let extent = match (command.group(), command.right()) {
                (Some(group), _) => Extent::Group(group),
                (None, Right::Stand) => Extent::SomeGroup,
                (None, _) => Extent::Cluster,
            };
            let (now, right) = (access_now(&*self.inner).await?, command.right());
            if self.caller.check(&now.table, right, extent).is_err() {
                self.check(right, extent).await?;
            }
        }
        let Caller { who, token, .. } = &*self.caller;
        self.inner.submit(command.on_behalf_of(who.clone(), *token), request, then).await
    }

    async fn count_heartbeat(
        &self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> StoreResult<HeartbeatView> {
        self.check_session(session, proves.as_ref().map(|(group, _)| group)).await?;
        self.inner.count_heartbeat(session, sequence, proves).await
    }

    async fn read(&self, query: Query, consistency: Consistency) -> StoreResult<View> {
        match &query {
            Query::Groups { prefix, after, count } => {
                let page = self.groups(prefix, after.clone(), *count, consistency).await?;
                return Ok(View::Groups(page));
            }
            Query::Session(session) | Query::Heartbeat(session) => {
                self.check_session(*session, None).await?;
            }
            // A campaign looks whether its session is promoted. One that is gone has nothing to hide.
            Query::Candidacy { group, session, .. } => {
                match self.check_session(*session, Some(group)).await {
                    Err(StoreError::Refused(Refusal::SessionUnknown)) => {
                        self.check(Right::Stand, Extent::Group(group)).await?;
                    }
                    other => other?,
                }
            }
            Query::Leader(group)
            | Query::Group(group)
            | Query::History(group)
            | Query::Fences { group, .. }
            | Query::Replay(group, _) => self.check(Right::Observe, Extent::Group(group)).await?,
            // Like a list, it shows what may be seen.
            Query::Leaders(groups) => {
                let table = access(&*self.inner, None).await?.table;
                self.caller.check(&table, Right::Observe, Extent::SomeGroup)?;
                let is_seen = |group: &&Group| self.caller.may_observe(&table, group);
                let seen = groups.iter().filter(is_seen).cloned().collect();
                return self.inner.read(Query::Leaders(seen), consistency).await;
            }
            Query::Offices(_) => self.check(Right::Observe, Extent::Cluster).await?,
            Query::Census => self.check(Right::Observe, Extent::SomeGroup).await?,
            Query::Access(_) | Query::Shares => {
                self.check(Right::Administer, Extent::Cluster).await?
            }
        }
        self.inner.read(query, consistency).await
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        let table = access(&*self.inner, None).await?.table;
        self.caller.check_watch(&table, &scope)?;
        let inner = self.inner.watch(scope.clone(), cursor).await?;
        let delivered = inner.cursor();
        let guard = self.clone();
        let judge_at = self.time().now() + JUDGED_EVERY;
        Ok(Box::new(GuardedWatch { inner, guard, scope, held: None, delivered, judge_at }))
    }

    /// Callers do not end stores.
    async fn shut_down(&self) {}
}

/// A watch that leaves out what its caller may not see when it would be delivered, and ends with its credential and with
/// the right to watch. A silent one is judged now and then: otherwise it would hold its place for ever.
#[derive(Debug)]
struct GuardedWatch {
    inner: Box<dyn Watch>,
    guard: GuardedStore,
    scope: Scope,
    /// Taken from the watch and not judged yet.
    held: Option<WatchItem>,
    delivered: Cursor,
    /// When it is judged although nothing happens. Kept here, since a reader may drop and ask for `next` all the time.
    judge_at: Moment,
}

/// How often a watch is judged that has nothing to tell.
const JUDGED_EVERY: Duration = Duration::from_millis(WATCH_JUDGED_EVERY_MS);

impl GuardedWatch {
    /// Takes the next item, or judges the caller once more: whether the watch goes on.
    async fn advance(&mut self) -> Option<()> {
        let time = self.guard.inner.time();
        let pause = time.sleep(time.now().until(self.judge_at));
        let came = first(pause, self.inner.next()).await;
        match came {
            First::Right(item) => self.held = Some(item?),
            First::Left(()) => {
                let table = access(&*self.guard.inner, None).await.ok()?.table;
                self.guard.caller.check_watch(&table, &self.scope).ok()?;
                self.judge_at = self.guard.inner.time().now() + JUDGED_EVERY;
            }
        }
        Some(())
    }
}

#[async_trait]
impl Watch for GuardedWatch {
    async fn next(&mut self) -> Option<WatchItem> {
        loop {
            while self.held.is_none() {
                self.advance().await?;
            }
            let table = access(&*self.guard.inner, None).await.ok()?.table;
            let item = self.held.take()?;
            self.delivered = self.inner.cursor();
            self.guard.caller.check_watch(&table, &self.scope).ok()?;
            let is_seen = match &item {
                WatchItem::Changed(event) => self.guard.caller.may_observe(&table, &event.group),
                WatchItem::Gap { .. } => true,
            };
            if is_seen {
                return Some(item);
            }
        }
    }

    fn cursor(&self) -> Cursor {
        self.delivered
    }
}
