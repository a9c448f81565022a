//! What every request shares, and what one request brings.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{HeaderMap, Uri};
use regent_api::{Code, Gate, Operation, Problem, Route, decode};
use regent_audit::Audit;
use regent_election::access::{Extent, GuardedStore, KnownSessions, Right};
use regent_election::belief::Beliefs;
use regent_election::store::{Store, StoreResult};
use regent_election::{Group, SessionId};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::admission::{self, Admission, Class};
use crate::audit::Trail;
use crate::beliefs::ClaimMonitor;
use crate::cluster::Cluster;
use crate::config::ServerConfig;
use crate::connection_limit::ConnectionLimit;
use crate::count::{Count, Entered};
use crate::delay::{QueueDelay, told_at};
use crate::forecast::FailureForecast;
use crate::held::Holdings;
use crate::issuers::Issuers;
use crate::metrics::Metrics;
use crate::process::Readiness;
use crate::rate::{AskedBy, FailureLimits, RateLimits};
use crate::router;
use crate::signing::Signing;
use crate::socket::ConnectionActivity;
use crate::tls::{Handshakes, Tls};

/// How far the server is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// It accepts nothing more and answers what is under way.
    Closing,
    /// Whatever is still under way is dropped.
    Over,
}

/// What every request shares.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    /// The replicas behind the store, if it has any.
    pub(crate) cluster: Option<Arc<dyn Cluster>>,
    pub(crate) config: ServerConfig,
    pub(crate) admission: Admission,
    /// How late tasks run.
    pub(crate) queue_delay: QueueDelay,
    pub(crate) rates: RateLimits,
    /// How often an address may show what is no credential.
    pub(crate) failures: FailureLimits,
    /// What requests and answers of all connections hold in memory.
    pub(crate) holdings: Holdings,
    pub(crate) connection_limit: ConnectionLimit,
    /// Handshakes of TLS under way.
    pub(crate) handshakes: Arc<Handshakes>,
    /// How TLS is spoken to clients, if it is.
    pub(crate) tls: Option<Arc<dyn Tls>>,
    /// Backups under way: one at most.
    pub(crate) backups: Arc<Count>,
    pub(crate) metrics: Metrics,
    /// What heartbeats say of their nodes.
    pub(crate) claim_monitor: ClaimMonitor,
    /// What they say of their future.
    pub(crate) failure_forecast: FailureForecast,
    pub(crate) signing: Option<Arc<Signing>>,
    /// Who changed what, and who was denied; none if callers are not known.
    pub(crate) audit: Option<Arc<Audit>>,
    /// Whose the sessions are that heartbeats came for.
    pub(crate) known: Arc<KnownSessions>,
    pub(crate) readiness: Readiness,
    /// Whose tokens are believed beside those of the cluster.
    pub(crate) issuers: Option<Issuers>,
    pub(crate) phase: watch::Receiver<Phase>,
}

impl App {
    /// Returns once the server is at least this far on its way out.
    pub(crate) async fn reached(&self, phase: Phase) {
        // An error means that the sender is gone, and with it the server.
        let _ = self.phase.clone().wait_for(|now| *now >= phase).await;
    }

    /// A place for a request, if its caller does not ask too often and not too many are under way. What says how the
    /// process is needs no place, but is counted like a read, unless anybody may ask for it.
    pub(crate) fn enter(
        &self,
        operation: Operation,
        guard: Option<&GuardedStore>,
        activity: &ConnectionActivity,
    ) -> Result<Option<Entered>, Problem> {
        let class = router::class(operation);
        // What tells how the process is takes no place, and is counted of known callers only: where nobody is known,
        // those who look after the server may share an address with whoever floods it.
        let is_told = guard.is_some() && operation.route().gate != Gate::Open;
        if class.is_some() || is_told {
            self.count(class.unwrap_or(Class::Read), guard, activity)?;
        }
        let Some(class) = class else { return Ok(None) };
        self.admission.admit(class).map(Some).ok_or_else(|| self.shed(class))
    }

    /// Refuses a request of this class if tasks run too late, for what needs no body to be known.
    pub(crate) fn check_delay(&self, class: Option<Class>) -> Result<(), Problem> {
        match class {
            Some(class) if self.queue_delay.refuses(class) => Err(self.shed(class)),
            Some(_) | None => Ok(()),
        }
    }

    /// The same by the head of a request. A refusal is held back, unless a session lives by the connection: its next
    /// renewal must not wait for that.
    pub(crate) async fn check_head(
        &self,
        class: Option<Class>,
        activity: &ConnectionActivity,
    ) -> Result<(), Problem> {
        let checked = self.check_delay(class);
        if checked.is_err() && activity.carried().is_none() {
            let now = regent_clock::now();
            let told_at = activity.next_refusal(|last_at| told_at(last_at, now, dice()));
            let rest = activity.rests();
            // Boxed, because it is seldom: the future of every request would have room for a timer.
            Box::pin(tokio::time::sleep(now.until(told_at))).await;
            drop(rest);
        }
        checked
    }

    /// Counts a request of this class against what its caller may ask.
    pub(crate) fn count(
        &self,
        class: Class,
        guard: Option<&GuardedStore>,
        activity: &ConnectionActivity,
    ) -> Result<(), Problem> {
        let caller = || match guard {
            // With a credential that is over nobody uses up what its principal may ask.
            Some(guarded) if !guarded.is_over() => AskedBy::Principal(guarded.caller().who.clone()),
            Some(_) | None => AskedBy::Address(activity.address()),
        };
        let counted = self.rates.take(regent_clock::coarse(), caller, class, dice);
        counted.inspect_err(|_| self.metrics.limited(class))
    }

    /// A place for a stream that anybody may open.
    pub(crate) fn wait_in_the_open(
        &self,
        activity: &ConnectionActivity,
    ) -> Result<Entered, Problem> {
        let may_wait = self.connection_limit.may_wait(activity);
        let place = may_wait.then(|| self.admission.wait_in_the_open()).flatten();
        place.ok_or_else(|| self.shed(Class::Watch))
    }

    /// A refusal for want of a place, counted.
    pub(crate) fn shed(&self, class: Class) -> Problem {
        self.metrics.shed(class);
        admission::refuse(class, dice())
    }
}

/// A number nobody can guess, for spreading retries; a broken source of chance spreads nothing.
pub(crate) fn dice() -> u64 {
    getrandom::u64().unwrap_or_default()
}

/// A secret nobody can guess. Without chance there are no secrets, so that is an error.
pub(crate) fn fresh_session() -> Result<SessionId, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .ok()
        .and_then(|()| SessionId::new(u128::from_le_bytes(bytes)).ok())
        .ok_or_else(|| Problem::new(Code::StoreUnavailable, "this machine gives no random numbers"))
}

/// One request over HTTP, past the door: its place is taken and its body is here.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) ask: Ask,
    pub(crate) route: &'static Route,
    pub(crate) headers: HeaderMap,
    /// The `{group}` of the path.
    pub(crate) group: Option<Group>,
    pub(crate) uri: Uri,
    pub(crate) body: Bytes,
}

impl Call {
    /// The group in the path.
    pub(crate) fn group(&self) -> Result<Group, Problem> {
        self.group.clone().map_or_else(|| decode::group(""), Ok)
    }

    /// The body, decoded.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        decode::from_body(&self.body)
    }

    /// What stands behind the `?`, decoded.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        decode::from_query(self.uri.query().unwrap_or_default())
    }
}

impl Deref for Call {
    type Target = Ask;

    fn deref(&self) -> &Ask {
        &self.ask
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut Ask {
        &mut self.ask
    }
}

/// What a verb needs of its request, whichever face it came by.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) app: Arc<App>,
    /// The store as this caller may use it; none if callers are not authenticated.
    pub(crate) guard: Option<GuardedStore>,
    /// The connection it came by.
    pub(crate) activity: Arc<ConnectionActivity>,
    /// Where it came from, for the audit log.
    pub(crate) trail: Arc<Trail>,
    /// The place among the requests under way; given back when the request ends.
    pub(crate) place: Option<Entered>,
}

impl Ask {
    pub(crate) fn store(&self) -> &dyn Store {
        match &self.guard {
            Some(guarded) => guarded,
            None => &*self.app.store,
        }
    }

    /// Leaves of what a node says about itself only what it may stand for: its word about another's group, or in
    /// another's name, would raise a false alarm.
    pub(crate) async fn only_own(&self, beliefs: &mut Beliefs) {
        let Some(guarded) = &self.guard else { return };
        let Ok(permitted) = guarded.permitted(Right::Stand).await else {
            beliefs.claims.clear();
            beliefs.refused.clear();
            return;
        };
        let node = beliefs.node.clone();
        beliefs.claims.retain(|claim| permitted.covers(&claim.group, Some(&node)));
        beliefs.refused.retain(|(group, _)| permitted.covers(group, Some(&node)));
    }

    /// Who calls, for the log.
    pub(crate) fn who(&self) -> Option<String> {
        self.guard.as_ref().map(|guarded| guarded.caller().who.to_string())
    }

    /// Refuses a caller that lacks the right of an operation in a group: for what the store is not asked for.
    pub(crate) async fn check(&self, operation: Operation, group: &Group) -> Result<(), Problem> {
        match (&self.guard, operation.route().gate) {
            (Some(guarded), Gate::Needs(right)) => {
                Ok(guarded.check(right, Extent::Group(group)).await?)
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Moves from those that ask to those that wait, so that waiting holds up nobody.
    pub(crate) fn step_aside(&mut self, class: Class) -> Result<(), Problem> {
        if !self.app.connection_limit.may_wait(&self.activity) {
            return Err(self.app.shed(class));
        }
        let who = self.guard.as_ref().map(|guarded| &guarded.caller().who);
        let place = self.app.admission.wait(who).ok_or_else(|| self.app.shed(class))?;
        self.place = Some(place);
        Ok(())
    }

    /// This session lives by the connection that the request came by.
    pub(crate) fn carries(&self, session: SessionId, ttl_ms: u64) {
        let ttl = Duration::from_millis(ttl_ms);
        self.app.connection_limit.carries(&self.activity, session, ttl);
    }

    /// Asks the store for something that changes nothing.
    pub(crate) async fn read<T>(
        &self,
        asked: impl Future<Output = StoreResult<T>>,
    ) -> Result<T, Problem> {
        let timeout = self.app.config.request_timeout;
        // Pinned where it is: a time limit would move it otherwise, and some are large.
        match tokio::time::timeout(timeout, pin!(asked)).await {
            Ok(answer) => answer.map_err(Problem::from),
            Err(_) => Err(Problem::new(
                Code::StoreUnavailable,
                format!("the store did not answer within {} ms", timeout.as_millis()),
            )
            .retry_after(1000)),
        }
    }

    /// Asks the store for a change. One that does not answer in time may have made it.
    pub(crate) fn change<T>(
        &self,
        asked: impl Future<Output = StoreResult<T>>,
    ) -> impl Future<Output = Result<T, Problem>> {
        self.change_after(Duration::ZERO, asked)
    }

    /// The same for a request that asked to wait this long.
    pub(crate) async fn change_after<T>(
        &self,
        wait: Duration,
        asked: impl Future<Output = StoreResult<T>>,
    ) -> Result<T, Problem> {
        let timeout = self.app.config.request_timeout + wait;
        match tokio::time::timeout(timeout, pin!(asked)).await {
            Ok(answer) => answer.map_err(Problem::from),
            Err(_) => Err(Problem::new(
                Code::Uncertain,
                format!(
                    "the store did not answer within {} ms; it may have happened, look before you decide anything",
                    timeout.as_millis()
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use regent_stores::MemoryStore;

    use super::*;

    /// A request to a server whose store may take a millisecond.
    fn ask() -> Ask {
        let config =
            ServerConfig { request_timeout: Duration::from_millis(1), ..ServerConfig::default() };
        let app = Arc::new(App {
            store: Arc::new(MemoryStore::new().unwrap()),
            cluster: None,
            admission: Admission::new(1, 1),
            queue_delay: QueueDelay::new(config.queue_delay_max),
            rates: RateLimits::new(0, 0),
            failures: FailureLimits::new(0),
            holdings: Holdings::default(),
            connection_limit: ConnectionLimit::new(1, 1),
            handshakes: Arc::default(),
            tls: None,
            backups: Arc::default(),
            metrics: Metrics::new(&config),
            claim_monitor: ClaimMonitor::new().0,
            failure_forecast: FailureForecast::new().0,
            signing: None,
            audit: None,
            known: Arc::default(),
            readiness: Readiness::default(),
            issuers: None,
            phase: watch::channel(Phase::Serving).1,
            config,
        });
        let (activity, trail) = (Arc::new(ConnectionActivity::begin()), Trail::new(&"test".into()));
        Ask { app, guard: None, activity, trail, place: None }
    }

    #[tokio::test]
    async fn a_change_that_is_not_answered_in_time_may_have_happened() {
        let problem = ask().change(pending::<StoreResult<()>>()).await.unwrap_err();
        assert_eq!(problem.code, Code::Uncertain);
        assert!(!problem.code.nothing_happened());
    }

    #[tokio::test]
    async fn a_read_that_is_not_answered_in_time_can_be_asked_again() {
        let problem = ask().read(pending::<StoreResult<()>>()).await.unwrap_err();
        assert_eq!(problem.code, Code::StoreUnavailable);
        assert!(problem.retry_after_ms.is_some());
    }

    #[test]
    fn two_fresh_sessions_are_never_the_same() {
        assert_ne!(fresh_session().unwrap(), fresh_session().unwrap());
    }
}
