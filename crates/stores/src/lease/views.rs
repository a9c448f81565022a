//! Reads: questions answered from the entries of groups and sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regent_election::limits::GROUPS_PAGE_MAX;
use regent_election::state::{Lens, Query, View};
use regent_election::store::{
    Census, Consistency, GroupsPage, HeartbeatView, LeaderView, OfficesView, SessionView,
    StoreError, StoreResult,
};
use regent_election::{Digests, Group, Refusal, SessionId, SessionNo};

use super::entries::Seen;
use super::observed::Liveness;
use super::office::Own;
use super::record::GroupRecord;
use super::{Shared, lock, session};
use crate::register::KeyKind;

/// Most sessions in one page of a listing.
const PAGE: usize = 512;
/// Groups of the past that a session's list may name before it is tidied.
const STRANGE_MAX: usize = 16;

/// Why a register keeps neither bindings nor tokens.
pub(super) const fn no_access() -> StoreError {
    let what =
        "keep bindings and tokens; serve it with auth = \"off\", or use the replicas' own store";
    StoreError::Unsupported { store: "a register", what }
}

impl Shared {
    pub(super) async fn read(
        self: &Arc<Self>,
        query: Query,
        consistency: Consistency,
    ) -> StoreResult<View> {
        match &query {
            Query::Session(session) => self.session_view(*session).await.map(View::Session),
            Query::Heartbeat(session) => {
                let open = self.opened(session.digest()).await?;
                Ok(View::Heartbeat(self.heartbeat_view(&open)))
            }
            Query::Groups { prefix, after, count } => {
                let count = (*count).clamp(1, GROUPS_PAGE_MAX);
                self.page(prefix, after.as_ref(), count).await.map(View::Groups)
            }
            Query::Leaders(groups) => {
                let mut views = Vec::with_capacity(groups.len());
                for group in groups {
                    let record = self.present(group).await?;
                    self.observe_holder(group, &record).await?;
                    views.push(self.view(group, &record).await?);
                }
                Ok(View::Leaders(views))
            }
            Query::Offices(groups) => self.offices(groups).await.map(View::Offices),
            Query::Census => self.census().await.map(View::Census),
            Query::Access(_) | Query::Shares => Err(no_access()),
            Query::Candidacy { group, .. } => {
                let latest = match consistency {
                    Consistency::Stale => self.latest(group),
                    Consistency::Linearizable => None,
                };
                let seen = match latest {
                    Some(seen) => seen,
                    None => Arc::new(self.entries.load(group).await?),
                };
                self.read_from(&seen.record, query, false).await
            }
            Query::Leader(group) => {
                let record = self.present(group).await?;
                self.observe_holder(group, &record).await?;
                self.read_from(&record, query, false).await
            }
            Query::Fences { group, .. } => {
                let record = self.present(group).await?;
                self.read_from(&record, query, false).await
            }
            Query::Group(group) => {
                let seen = self.entries.load(group).await?;
                self.observe_holder(group, &seen.record).await?;
                let state = &seen.record.state;
                let standbys: Vec<_> = state.standbys(group).take(GROUPS_PAGE_MAX).collect();
                for id in standbys.into_iter().filter_map(|session| state.id_of(session)) {
                    self.entries.look(id.get()).await?;
                }
                self.read_from(&seen.record, query, false).await
            }
            Query::History(group) | Query::Replay(group, _) => {
                let seen = self.entries.load(group).await?;
                self.read_from(&seen.record, query, false).await
            }
        }
    }

    /// Answers a question about a group from its entry. A group does not know every session that is
    /// open, so how one stands there takes a look at its own entry, unless it is known to be gone.
    pub(super) async fn read_from(
        &self,
        record: &GroupRecord,
        query: Query,
        is_gone: bool,
    ) -> StoreResult<View> {
        let query = query.with_digest(&mut Digests::default());
        let incarnation = self.entries.life().await?;
        let mut view = {
            let id_of = |session: SessionNo| record.state.id_of(session).map(SessionId::get);
            let remaining = |session| {
                let now = self.entries.now();
                id_of(session).and_then(|id| lock(&self.entries.observed).remaining(id, now))
            };
            let is_silent = |session| {
                id_of(session).is_some_and(|id| match self.entries.verdict(id) {
                    Liveness::Silent { .. } | Liveness::Due { .. } | Liveness::Ended => true,
                    Liveness::Unseen | Liveness::Audible { .. } => false,
                })
            };
            let lens = Lens { incarnation, remaining: &remaining, is_silent: &is_silent };
            record.state.query(&query, lens)?
        };
        if let (View::Candidacy(view), Query::Candidacy { session, .. }) = (&mut view, &query)
            && view.ttl_ms.is_none()
            && !is_gone
        {
            let (found, _) = self.entries.look(session.get()).await?;
            view.ttl_ms = found.as_ref().and_then(|it| it.as_open()).map(|open| open.ttl_ms);
        }
        Ok(view)
    }

    /// Looks at the session of a leader that this process has not seen for a while, so that a read can say how long it
    /// lasts.
    async fn observe_holder(&self, group: &Group, record: &GroupRecord) -> StoreResult<()> {
        let holder = record.state.holder(group).map(|holder| holder.session);
        let Some(id) = holder.and_then(|session| record.state.id_of(session)) else {
            return Ok(());
        };
        let is_outdated = lock(&self.entries.observed).is_outdated(id.get(), self.entries.now());
        if is_outdated {
            self.entries.look(id.get()).await?;
        }
        Ok(())
    }

    /// A group as it is. An engine that finds less than this process has seen was restored or has lost a write:
    /// then the group is raised above that before anything is read from it.
    async fn present(self: &Arc<Self>, group: &Group) -> StoreResult<GroupRecord> {
        let seen = self.entries.load(group).await?;
        if seen.record.state.last_term(group) >= self.entries.seen_term(group) {
            return Ok(seen.record);
        }
        Ok(self.run(group, None, &[], Own::Nothing).await?.record)
    }

    /// A group as it was read last on behalf of those who follow it here.
    fn latest(&self, group: &Group) -> Option<Arc<Seen>> {
        lock(&self.feeds).get(group).and_then(|feed| feed.latest())
    }

    /// The entry of a session that is open.
    pub(super) async fn opened(&self, session: SessionId) -> StoreResult<session::Open> {
        let (record, _) = self.entries.look(session.get()).await?;
        let open = record.as_ref().and_then(|record| record.as_open()).cloned();
        open.ok_or_else(|| Refusal::SessionUnknown.into())
    }

    pub(super) fn heartbeat_view(&self, open: &session::Open) -> HeartbeatView {
        HeartbeatView { ttl_ms: open.ttl_ms, epoch: open.epoch, revision: self.entries.highest() }
    }

    /// What a session holds. Its epoch is read first: what happens later raises it once more.
    async fn session_view(&self, secret: SessionId) -> StoreResult<SessionView> {
        let id = secret.digest();
        let open = self.opened(id).await?;
        let (mut tenures, mut standing, mut offers) = (Vec::new(), Vec::new(), Vec::new());
        let mut strange = Vec::new();
        for group in open.groups.keys() {
            let seen = self.entries.load(group).await?;
            let Ok(view) = seen.record.state.session_view(id) else {
                strange.push(group.clone());
                continue;
            };
            if view.tenures.is_empty() && view.standing.is_empty() {
                strange.push(group.clone());
            }
            tenures.extend(view.tenures);
            standing.extend(view.standing);
            offers.extend(view.offers);
        }
        if strange.len() > STRANGE_MAX {
            self.unlist(id.get(), &strange).await;
        }
        let revision = self.entries.highest();
        let (node, ttl_ms, epoch) = (open.node, open.ttl_ms, open.epoch);
        Ok(SessionView { node, ttl_ms, epoch, tenures, standing, offers, revision })
    }

    /// Who leads, with the hint how long.
    async fn view(&self, group: &Group, record: &GroupRecord) -> StoreResult<LeaderView> {
        let life = self.entries.life().await?;
        let mut view = record.state.leader_view(group, life);
        view.valid_for = record.state.holder(group).and_then(|holder| {
            let id = record.state.id_of(holder.session)?;
            let left = lock(&self.entries.observed).remaining(id.get(), self.entries.now())?;
            Some(record.state.at_most_ttl(holder.session, left))
        });
        Ok(view)
    }

    async fn page(
        &self,
        prefix: &str,
        after: Option<&Group>,
        count: usize,
    ) -> StoreResult<GroupsPage> {
        let mut groups = Vec::new();
        let mut from = after.map(|after| after.as_str().to_owned());
        loop {
            let register = &self.entries.register;
            let listed = register.list(KeyKind::Group, prefix, from.as_deref(), count + 1).await;
            let listed = listed.map_err(super::entries::store_error)?;
            let is_last = listed.len() <= count;
            from = listed.last().map(|(key, _)| key.name().to_owned());
            for (key, found) in listed {
                let Ok(group) = Group::new(key.name()) else { continue };
                let seen = self.entries.listed(&group, found)?;
                // Of a deleted group only its terms are left.
                if seen.record.state.knows(&group) {
                    groups.push(self.view(&group, &seen.record).await?);
                }
            }
            if is_last || groups.len() > count {
                break;
            }
        }
        let has_more = groups.len() > count;
        groups.truncate(count);
        let next = groups.last().filter(|_| has_more).map(|last| last.group.clone());
        Ok(GroupsPage { groups, next, revision: self.entries.highest() })
    }

    /// How groups are led. Nothing counts here how long elections took: their beginning may have been in another process.
    ///
    /// A damaged entry is left out and does not hide how all other groups do: whoever asks for its own group is told.
    async fn offices(&self, groups: &[Group]) -> StoreResult<OfficesView> {
        let (mut led, mut wanted, mut notes) = (0, 0, BTreeMap::new());
        let asked: BTreeSet<&Group> = groups.iter().collect();
        let (mut damaged, mut first) = (0, None);
        self.each(KeyKind::Group, "", |group, record| {
            let one = match record {
                Err(StoreError::Corrupt(why)) => {
                    damaged += 1;
                    first.get_or_insert(why);
                    return Ok(());
                }
                other => other?.state.offices_view(std::slice::from_ref(&group)),
            };
            led += one.led;
            wanted += one.wanted;
            if asked.contains(&group) {
                notes.extend(one.offices.into_iter().flatten().map(|note| (group.clone(), note)));
            }
            Ok(())
        })
        .await?;
        if let Some(first) = first {
            tracing::warn!(damaged, first, "groups that cannot be read are left out of the counts");
        }
        let offices = groups.iter().map(|group| notes.get(group).copied()).collect();
        Ok(OfficesView { offices, led, wanted, times: None })
    }

    async fn census(&self) -> StoreResult<Census> {
        let mut census = Census { watchers: self.watchers(), ..Census::default() };
        self.each(KeyKind::Group, "", |_, record| {
            let one = record?.state.census();
            census.groups += one.groups;
            census.led += one.led;
            census.contended += one.contended;
            Ok(())
        })
        .await?;
        let mut after: Option<String> = None;
        loop {
            let listed =
                self.entries.register.list(KeyKind::Session, "", after.as_deref(), PAGE).await;
            let listed = listed.map_err(super::entries::store_error)?;
            let Some((last, _)) = listed.last() else { break };
            after = Some(last.name().to_owned());
            for (_, found) in &listed {
                let record = session::SessionRecord::decode(&found.value);
                census.sessions += u64::from(record.is_ok_and(|record| record.as_open().is_some()));
            }
        }
        Ok(Census { revision: self.entries.highest(), ..census })
    }
}
