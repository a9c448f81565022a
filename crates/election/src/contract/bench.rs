//! What the cases share: fresh names, players with sessions, patience.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{Abilities, Fault, Harness, ensure};
use crate::moment::Moment;
use crate::name::{Group, Metadata, Node, Reason, RequestId, SessionId};
use crate::outcome::{Event, Refusal};
use crate::policy::Priority;
use crate::store::{
    Campaign, CampaignSession, Campaigned, Consistency, GroupView, Heartbeat, HeartbeatView,
    LeaderView, OfficeState, Open, SessionView, StepDown, Store, StoreError, StoreResult, Watch,
    WatchItem,
};
use crate::term::{Revision, Term};
use crate::together::{First, first};

/// The ttl of sessions that are to die in a case.
pub(super) const SHORT_MS: u64 = 600;
/// The ttl of sessions that are to live through a case unheard, and not to seem silent either.
pub(super) const LONG_MS: u64 = 30_000;
/// How long a case waits for what must happen; far above what any store needs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const CONTRACT_POLL_EVERY: Duration = Duration::from_millis(15);

/// The workplace of one case.
#[derive(Clone)]
pub(super) struct Bench {
    harness: Arc<dyn Harness>,
}

impl Bench {
    pub(super) fn new(harness: Arc<dyn Harness>) -> Self {
        Self { harness }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.harness.store()
    }

    pub(super) fn other(&self) -> Arc<dyn Store> {
        self.harness.other()
    }

    pub(super) fn now(&self) -> Moment {
        self.harness.now()
    }

    pub(super) fn abilities(&self) -> Abilities {
        self.harness.abilities()
    }

    pub(super) async fn sleep_ms(&self, for_ms: u64) {
        self.harness.sleep(Duration::from_millis(for_ms)).await;
    }

    /// A group nobody has named.
    pub(super) fn group(&self) -> Group {
        self.group_under("contract")
    }

    /// A group nobody has named, below `parent`.
    pub(super) fn group_under(&self, parent: &str) -> Group {
        let name = format!("{parent}/{:x}", self.harness.unique());
        Group::new(&name).expect("hexadecimal digits are a group name")
    }

    /// A name under which no group is.
    pub(super) fn parent(&self) -> String {
        format!("contract/{:x}", self.harness.unique())
    }

    pub(super) fn secret(&self) -> SessionId {
        SessionId::new(self.harness.unique() | 1).expect("an odd number is not zero")
    }

    pub(super) fn request(&self, seen: Revision) -> RequestId {
        let nonce = format!("{:x}", self.harness.unique());
        RequestId::new(seen, &nonce).expect("hexadecimal digits are a nonce")
    }

    /// A node with an open session.
    pub(super) async fn player(&self, node: &str, ttl_ms: u64) -> Result<Player, Fault> {
        let player = self.newcomer(node, ttl_ms);
        player.open().await?;
        Ok(player)
    }

    /// A node whose session is not open yet.
    pub(super) fn newcomer(&self, name: &str, ttl_ms: u64) -> Player {
        Player { store: self.store(), node: node(name), session: self.secret(), ttl_ms }
    }

    pub(super) async fn leader(&self, group: &Group) -> Result<LeaderView, Fault> {
        Ok(self.store().leader(group, Consistency::Linearizable).await?)
    }

    pub(super) async fn view(&self, group: &Group) -> Result<GroupView, Fault> {
        Ok(self.store().group(group).await?)
    }

    /// Waits until a standby of this name is known to be silent. It takes half its ttl or, if the store
    /// itself was held up, more.
    pub(super) async fn falls_silent(&self, group: &Group, name: &str) -> Result<(), Fault> {
        if !self.abilities().knows_silence {
            return Err(Fault::Skipped("this store cannot tell who is silent".into()));
        }
        let what = format!("{name} falls silent");
        let look = || async {
            let view = self.view(group).await?;
            let is_silent =
                view.standbys.iter().any(|standby| standby.node == node(name) && standby.silent);
            Ok(is_silent.then_some(()))
        };
        self.until(&what, look).await
    }

    /// Looks until there is something to see.
    pub(super) async fn until<T, L>(
        &self,
        what: &str,
        mut look: impl FnMut() -> L + Send,
    ) -> Result<T, Fault>
    where
        L: Future<Output = Result<Option<T>, Fault>> + Send,
        T: Send,
    {
        let given_up_at = self.now() + PATIENCE;
        loop {
            if let Some(seen) = look().await? {
                return Ok(seen);
            }
            ensure!(self.now() < given_up_at, "{what}: not within {PATIENCE:?}");
            self.harness.sleep(CONTRACT_POLL_EVERY).await;
        }
    }

    /// The answer, unless it takes longer than patience.
    pub(super) async fn in_time<T: Send>(
        &self,
        what: &str,
        future: impl Future<Output = T> + Send,
    ) -> Result<T, Fault> {
        match first(future, self.harness.sleep(PATIENCE)).await {
            First::Left(answer) => Ok(answer),
            First::Right(()) => Err(Fault::Broken(format!("{what}: not within {PATIENCE:?}"))),
        }
    }

    /// The next change of a watch; a gap breaks the case.
    pub(super) async fn change(&self, watch: &mut dyn Watch) -> Result<Event, Fault> {
        match self.in_time("the next change", watch.next()).await? {
            Some(WatchItem::Changed(event)) => Ok(event),
            Some(gap @ WatchItem::Gap { .. }) => Err(Fault::Broken(format!("unexpected {gap:?}"))),
            None => Err(Fault::Broken("the watch ended".into())),
        }
    }

    /// Breaks the case unless the watch ends without another word.
    pub(super) async fn ended(&self, watch: &mut dyn Watch) -> Result<(), Fault> {
        match self.in_time("the end of the watch", watch.next()).await? {
            None => Ok(()),
            Some(item) => Err(Fault::Broken(format!("unexpected {item:?}"))),
        }
    }

    /// Breaks the case if the watch has anything to say for a while.
    pub(super) async fn nothing(&self, watch: &mut dyn Watch) -> Result<(), Fault> {
        match first(watch.next(), self.harness.sleep(Duration::from_millis(100))).await {
            First::Left(item) => Err(Fault::Broken(format!("unexpected {item:?}"))),
            First::Right(()) => Ok(()),
        }
    }

    /// The shortest time, on this machine's clock, that may pass as `ms` on the store's.
    pub(super) fn at_least(&self, ms: u64) -> Duration {
        let nanos = ms * (1_000_000 - u64::from(self.abilities().drift_ppm));
        Duration::from_nanos(nanos)
    }

    pub(super) async fn step_down(
        &self,
        group: &Group,
        immediate: bool,
    ) -> StoreResult<crate::store::SteppedDown> {
        let reason = Reason::new("contract").expect("a plain word is a reason");
        let step_down =
            StepDown { group: group.clone(), reason, to: None, immediate, request: None };
        self.store().step_down(step_down).await
    }
}

pub(super) fn node(name: &str) -> Node {
    Node::new(name).expect("the cases name nodes well")
}

/// The refusal that was expected, or a broken case.
pub(super) fn refused<T: std::fmt::Debug>(
    what: &str,
    answer: StoreResult<T>,
    is_meant: impl Fn(&Refusal) -> bool,
) -> Result<(), Fault> {
    match answer {
        Err(StoreError::Refused(refusal)) if is_meant(&refusal) => Ok(()),
        Err(error @ StoreError::Unsupported { .. }) => Err(error.into()),
        other => Err(Fault::Broken(format!("{what}: {other:?}"))),
    }
}

/// A node with a session of its own.
pub(super) struct Player {
    pub(super) store: Arc<dyn Store>,
    pub(super) node: Node,
    pub(super) session: SessionId,
    pub(super) ttl_ms: u64,
}

impl Player {
    pub(super) async fn open(&self) -> Result<SessionView, Fault> {
        let open = Open { node: self.node.clone(), ttl_ms: self.ttl_ms, session: self.session };
        Ok(self.store.open(open).await?)
    }

    /// A campaign of this player, to be changed before it is sent.
    pub(super) fn bid(&self, group: &Group) -> Campaign {
        Campaign {
            group: group.clone(),
            node: self.node.clone(),
            session: CampaignSession::Own(self.session),
            ttl_ms: Some(self.ttl_ms),
            wait: None,
            priority: 0,
            metadata: Metadata::NONE,
            request: None,
        }
    }

    /// The same with a session made for this campaign alone.
    pub(super) fn passing_bid(&self, group: &Group) -> Campaign {
        Campaign { session: CampaignSession::Passing(self.session), ..self.bid(group) }
    }

    pub(super) async fn campaign(&self, group: &Group) -> Result<Campaigned, Fault> {
        Ok(self.store.campaign(self.bid(group)).await?)
    }

    /// Campaigns and must win.
    pub(super) async fn win(&self, group: &Group) -> Result<Term, Fault> {
        let answer = self.campaign(group).await?;
        match answer.elected {
            Some(term) => Ok(term),
            None => Err(Fault::Broken(format!("{} did not win: {answer:?}", self.node))),
        }
    }

    /// Campaigns and must stand.
    pub(super) async fn stand(&self, group: &Group) -> Result<(), Fault> {
        self.stand_with(group, 0).await
    }

    pub(super) async fn stand_with(&self, group: &Group, priority: Priority) -> Result<(), Fault> {
        let bid = Campaign { priority, ..self.bid(group) };
        let answer = self.store.campaign(bid).await?;
        ensure!(
            answer.standing && answer.elected.is_none(),
            "{} does not stand: {answer:?}",
            self.node
        );
        Ok(())
    }

    /// Campaigns until it has taken office.
    pub(super) async fn take_over(&self, bench: &Bench, group: &Group) -> Result<Term, Fault> {
        let what = format!("{} takes over", self.node);
        bench.until(&what, || async { Ok(self.campaign(group).await?.elected) }).await
    }

    pub(super) async fn heartbeat(&self) -> StoreResult<HeartbeatView> {
        let heartbeat = Heartbeat {
            session: self.session,
            sequence: None,
            disowned: Vec::new(),
            beliefs: None,
        };
        self.store.heartbeat(heartbeat).await
    }

    pub(super) async fn renew(&self, group: &Group, term: Term) -> StoreResult<HeartbeatView> {
        self.store.renew(group, self.session, term, None).await
    }

    pub(super) async fn resign(&self, group: &Group, term: Term) -> StoreResult<()> {
        self.store.resign(group, self.session, term, None).await
    }

    pub(super) async fn transfer(&self, group: &Group, term: Term, to: &Node) -> StoreResult<()> {
        self.store.transfer(group, self.session, term, to, None).await
    }

    pub(super) async fn session(&self) -> Result<SessionView, Fault> {
        Ok(self.store.session(self.session).await?)
    }

    /// Must lead, with this term.
    pub(super) async fn leads(
        &self,
        bench: &Bench,
        group: &Group,
        term: Term,
    ) -> Result<(), Fault> {
        let office = bench.leader(group).await?;
        let is_so = office.leader.as_ref() == Some(&self.node)
            && office.term == term
            && office.state == OfficeState::Leading;
        ensure!(is_so, "{} does not lead with term {term}: {office:?}", self.node);
        Ok(())
    }
}
