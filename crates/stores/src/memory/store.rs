//! The Store port over the core: each method enters the lock once.

use async_trait::async_trait;
use regent_clock::SystemTime;
use regent_election::access::AccessView;
use regent_election::state::{Query, View};
use regent_election::store::{
    Census, Consistency, Description, Done, HeartbeatView, Level, OfficeState, Scope, Store,
    StoreResult, Time, Watch,
};
use regent_election::{Command, Cursor, Group, RequestId, SessionId, Term};

use super::MemoryStore;
use super::core::Core;

#[async_trait]
impl Store for MemoryStore {
    fn describe(&self) -> Description {
        Description {
            name: "memory",
            place: "this process".into(),
            level: Level::BestEffort,
            caveat: Some("nothing survives a restart, not even terms".into()),
        }
    }

    fn time(&self) -> &dyn Time {
        &SystemTime
    }

    async fn ready(&self) -> StoreResult<()> {
        self.shared.enter(|core| core.check_open())
    }

    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<Done> {
        self.shared.enter(|core| {
            let applied = core.ask(command, request)?;
            let (answer, revision) = (applied.answer?, Some(applied.revision));
            let view = then.map(|query| core.query(&query)).transpose()?;
            Ok(Done { answer, view, revision })
        })
    }

    async fn count_heartbeat(
        &self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> StoreResult<HeartbeatView> {
        self.shared.enter(|core| {
            core.check_open()?;
            if let Some((group, term)) = proves {
                prove(core, group, session, term)?;
            }
            let number = core.session(session)?;
            core.count_heartbeat(session, sequence)?;
            core.heartbeat_view(number)
        })
    }

    /// A stale read costs nothing less here, so it is a linearizable one.
    async fn read(&self, query: Query, _consistency: Consistency) -> StoreResult<View> {
        let view = self.shared.enter(|core| {
            core.check_open()?;
            core.query(&query)
        })?;
        Ok(match view {
            View::Census(census) => {
                View::Census(Census { watchers: self.shared.hub.watchers() as u64, ..census })
            }
            View::Access(view) => {
                View::Access(AccessView { live: Some(self.shared.access.clone()), ..view })
            }
            view => view,
        })
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        let replay = self.shared.enter(|core| {
            core.check_open()?;
            Ok(match (&scope, cursor) {
                (Scope::Group(group), Some(cursor)) => {
                    core.state().replay(group, cursor, self.incarnation)
                }
                (Scope::Group(_) | Scope::Groups(_) | Scope::Prefix(_) | Scope::Turn(_), _) => None,
            })
        })?;
        Ok(Box::new(self.shared.hub.subscribe(scope, cursor, replay)))
    }

    async fn shut_down(&self) {
        self.shared.stop();
        self.shared.hub.shut_down();
        let driver = self.take_driver();
        let joined = tokio::task::spawn_blocking(move || super::join(driver)).await;
        if let Err(error) = joined {
            tracing::error!(%error, "the store's thread was not awaited");
        }
    }
}

/// Proves a tenure, and accepts an office to which the session was promoted.
fn prove(core: &mut Core, group: Group, session: SessionId, term: Term) -> StoreResult<()> {
    core.state().may_renew(&group, core.session(session)?, term)?;
    let state = core.state().holder(&group).map(|holder| holder.state);
    if state == Some(OfficeState::Elected) {
        core.ask(Command::Accept { group, session, term }, None)?.answer?;
    }
    Ok(())
}
