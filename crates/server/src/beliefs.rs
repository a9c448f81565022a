//! `GET /v1/claims`, and the monitor of what heartbeats claim: who acts, who must not, and who came close to losing.
//!
//! The rules are in `regent_election::belief`; this file gives them a clock, reads offices for them, and tells what
//! they find: to the log, the metrics, the group's history and watchers, and to whoever is to be called.
//!
//! Heartbeats never wait for any of it: what is to be read or told goes into a queue, and if that is full, it is
//! asked for again with the next heartbeat. The same holds for whose a session is (`owners`).
//!
//! **Nobody speaks for another.** What a heartbeat says counts only if its session is open and belongs to the node that
//! it names. Who acts although its session has expired is whom all this is about; so a session stays believed, under
//! the node that it had, once this server has known it to be open. A session that its owner closed does not.
//! The road not taken: believing whoever names a session that is over. Its secret proves that there was a session,
//! not whose it was, and whoever likes could frame any node and have the operator's command run.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regent_api::{ClaimedBody, ClaimsQuery, ClaimsResponse, Problem};
use regent_election::access::Right;
use regent_election::belief::{
    Accusation, Answered, Asked, Beliefs, ClaimFault, ClaimedGroup, Detector,
};
use regent_election::limits::{BELIEVERS_MAX, REFUSALS_PER_HEARTBEAT_MAX};
use regent_election::store::{Consistency, StoreError};
use regent_election::{Event, Finding, Group, Node, SessionId, Term};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::app::{App, Ask, Call, Phase};
use crate::forecast::short;
use crate::owners::SessionOwners;
use crate::quiet::{self, Quiet};
use crate::reply::{self, Reply};

/// Reads and reports that wait at most.
const QUEUE: usize = 1024;
/// Reports that are remembered, so that each is made once.
const REPORTED_MAX: usize = 4096;
/// Groups of one heartbeat whose history tells of its near miss: a leader of 100,000 must not cause as many writes
/// when everything is slow already.
const NEAR_MISSES_PER_HEARTBEAT: usize = 4;
/// A renewal that came with less than this part of the ttl left was a near miss.
const NEAR: u64 = 10;
/// Claims in one page.
const PAGE: usize = 1000;
/// Tries to write a finding into a history, and the pause between them.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// Sessions whose owner is remembered; of others the store is asked again.
const OWNERS_MAX: usize = BELIEVERS_MAX;
/// Alarms within a while: as many as people can look into.
const ALARMS_MAX: u32 = 10;
const ALARMS_PER: Duration = Duration::from_secs(60);

static FRAMED: Quiet = quiet::lines();
static NEAR_MISSES: Quiet = quiet::lines();
static ACCUSED: Quiet = quiet::lines();
static UNWRITTEN: Quiet = quiet::lines();

/// Who is called when somebody acts who must not.
#[derive(Clone)]
pub struct Alarm(Arc<dyn Fn(&Accusation) + Send + Sync>);

impl Alarm {
    /// Calls this; it must return at once.
    pub fn new(call: impl Fn(&Accusation) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }
}

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alarm")
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Alarm {}

/// A finding to be written into a history.
#[derive(Clone, Debug)]
struct HistoryLine {
    group: Group,
    finding: Finding,
    reason: String,
    key: Key,
}

/// What makes a finding the same as another: how little was left differs every time.
type Key = (Group, Finding, String);

/// What this server has heard.
#[derive(Debug)]
pub(crate) struct ClaimMonitor {
    detector: Mutex<Detector>,
    reported: Mutex<HashSet<Key>>,
    /// Whose the sessions are that were open when they were heard. Locked before the detector.
    owners: Mutex<SessionOwners>,
    alarms: Quiet,
    strangers: mpsc::Sender<SessionId>,
    reads: mpsc::Sender<(Group, Asked)>,
    lines: mpsc::Sender<HistoryLine>,
}

/// The other end of the queues. Writing may take long when a store is in trouble; reading must not wait for it.
#[derive(Debug)]
pub(crate) struct Jobs {
    strangers: mpsc::Receiver<SessionId>,
    reads: mpsc::Receiver<(Group, Asked)>,
    lines: mpsc::Receiver<HistoryLine>,
}

impl ClaimMonitor {
    pub(crate) fn new() -> (Self, Jobs) {
        let (strangers, to_ask) = mpsc::channel(QUEUE);
        let (reads, to_read) = mpsc::channel(QUEUE);
        let (lines, to_write) = mpsc::channel(QUEUE);
        let monitor = Self {
            detector: Mutex::default(),
            reported: Mutex::default(),
            owners: Mutex::new(SessionOwners::new(OWNERS_MAX, QUEUE)),
            alarms: Quiet::new(ALARMS_MAX, ALARMS_PER),
            strangers,
            reads,
            lines,
        };
        (monitor, Jobs { strangers: to_ask, reads: to_read, lines: to_write })
    }

    fn detector(&self) -> MutexGuard<'_, Detector> {
        self.detector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many act as far as this server has heard, and where how many act who must not.
    pub(crate) fn count(&self) -> (u64, BTreeMap<Group, u64>) {
        self.detector().count(regent_clock::now())
    }

    /// A watch told who leads.
    pub(crate) fn watched(&self, event: &Event) {
        self.detector().watched(&event.group, event.term, event.leader.as_ref());
    }

    /// Changes went by untold.
    pub(crate) fn blind(&self) {
        let mut detector = self.detector();
        detector.blind();
        detector.forget(regent_clock::now());
    }

    /// Asks for a finding to be written into a group's history, once.
    pub(crate) fn report(&self, group: &Group, finding: Finding, of: String, reason: String) {
        let key = (group.clone(), finding, of);
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() >= REPORTED_MAX {
            reported.clear();
        }
        let line = HistoryLine { group: group.clone(), finding, reason, key: key.clone() };
        if reported.insert(key.clone()) && self.lines.try_send(line).is_err() {
            reported.remove(&key);
        }
    }

    fn forget_report(&self, key: &Key) {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn owners(&self) -> MutexGuard<'_, SessionOwners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store says that a session is open and whose it is.
    pub(crate) fn opened(&self, session: SessionId, owner: Node) {
        self.owners().insert(session, owner);
    }

    /// A session was closed by its owner.
    pub(crate) fn closed(&self, session: SessionId) {
        self.owners().closed(session);
        self.detector().closed(session);
    }
}

impl App {
    /// A heartbeat said what its node holds itself for. If it is not known whose its session is, that is judged later.
    pub(crate) fn heartbeat(&self, session: SessionId, is_open: bool, beliefs: Box<Beliefs>) {
        let monitor = &self.claim_monitor;
        let mut owners = monitor.owners();
        if let Some(owner) = owners.of(session) {
            let is_own = is_own(owner, &beliefs.node);
            drop(owners);
            if is_own {
                self.judge(session, is_open, &beliefs);
            }
        } else if is_open
            && owners.wait(session, beliefs)
            && monitor.strangers.try_send(session).is_err()
        {
            owners.waited(session);
        }
    }

    /// What a node says of itself.
    fn judge(&self, session: SessionId, is_known: bool, beliefs: &Beliefs) {
        let (answered, has_led) = {
            let mut detector = self.claim_monitor.detector();
            // A heartbeat tells the margin of the renewal before it, which counts if that one came from a leader, too, and
            // found one that this server had heard: the first renewal after an election ends the wait of a standby, and
            // after a start of this server the first one tells how long the server was away. Who only stands by, or
            // stood by then, tells a margin that is nobody's miss.
            let has_led = detector.heartbeats_claiming(session) > 1;
            (detector.heartbeat(regent_clock::now(), session, is_known, beliefs), has_led)
        };
        if is_known {
            self.foresee(session, beliefs);
        }
        if let Answered::Ask(asks) = answered {
            for (group, asked) in asks {
                if self.claim_monitor.reads.try_send((group.clone(), asked)).is_err() {
                    self.claim_monitor.detector().failed(&group, asked);
                }
            }
        }
        if let Some(margin_ms) = beliefs.margin_ms.filter(|_| has_led) {
            self.metrics.renewed_with(margin_ms);
            if margin_ms.saturating_mul(NEAR) < beliefs.ttl_ms {
                self.near_miss(beliefs, margin_ms);
            }
        }
        for (group, term) in beliefs.refused.iter().take(REFUSALS_PER_HEARTBEAT_MAX) {
            self.stale_attempt(group, *term, Some(beliefs.node.as_str()));
        }
    }

    fn near_miss(&self, beliefs: &Beliefs, margin_ms: u64) {
        let (node, ttl_ms) = (&beliefs.node, beliefs.ttl_ms);
        if let Some(untold) = NEAR_MISSES.admit() {
            let groups = beliefs.claims.len();
            tracing::warn!(%node, margin_ms, ttl_ms, groups, untold, "a near miss");
        }
        self.metrics.near_miss();
        for claim in beliefs.claims.iter().take(NEAR_MISSES_PER_HEARTBEAT) {
            let term = claim.term;
            let reason = format!(
                "{node} renewed term {term} with {margin_ms} ms left before it would have had to stop (ttl {ttl_ms} ms)"
            );
            self.claim_monitor.report(&claim.group, Finding::NearMiss, term.to_string(), reason);
        }
    }

    /// A fence refused a term that was over.
    pub(crate) fn stale_attempt(&self, group: &Group, term: Term, node: Option<&str>) {
        let who = node.unwrap_or("somebody");
        if node.is_some() {
            self.metrics.refused_elsewhere();
        }
        let reason = format!("{who} wanted to write under term {term}; a fence refused it");
        self.claim_monitor.report(group, Finding::StaleAttempt, term.to_string(), reason);
    }

    fn accuse(&self, accusation: &Accusation) {
        let Accusation { group, believer, term, leader, .. } = accusation;
        let leads = leader.as_ref().map_or("nobody", |leader| leader.as_str());
        if let Some(untold) = ACCUSED.admit() {
            tracing::error!(
                %group,
                node = %believer.node,
                acts_under = believer.term.get(),
                left_ms = believer.left_ms,
                fault = accusation.fault.word(),
                term = term.get(),
                leader = leads,
                diverged = accusation.has_diverged(),
                untold,
                "SPLIT BRAIN: somebody acts who must not; `regent doctor split-brain` walks the way out"
            );
        }
        self.metrics.by_group.split_brain(group);
        let told = told(accusation);
        self.claim_monitor.report(group, Finding::SplitBrain, told.clone(), told);
        // Of more than these, log, metrics and histories tell: a command that pages people must not be a flood.
        if let Some(Alarm(call)) = &self.config.on_split_brain
            && self.claim_monitor.alarms.admit().is_some()
            && catch_unwind(AssertUnwindSafe(|| call(accusation))).is_err()
        {
            tracing::error!("the alarm panicked");
        }
    }
}

/// The accusation in a sentence, for the history.
fn told(accusation: &Accusation) -> String {
    let Accusation { fault, believer, term, leader, .. } = accusation;
    let (node, claimed) = (&believer.node, believer.term);
    let leader = leader.as_ref();
    let mut told = match (fault, leader) {
        (ClaimFault::Over, Some(leader)) => {
            format!("{node} acts under term {claimed}, but {leader} leads under term {term}")
        }
        (ClaimFault::Over, None) => format!("{node} acts under term {claimed}, which is over"),
        (ClaimFault::Another, Some(leader)) => {
            format!("{node} acts under term {claimed}, which is {leader}'s")
        }
        (ClaimFault::Another, None) => {
            format!("{node} acts under term {claimed}, which is nobody's")
        }
        (ClaimFault::NeverGranted, _) => {
            format!("{node} acts under term {claimed}, which was never granted; the last is {term}")
        }
    };
    if believer.left_ms == 0 {
        told.push_str("; its work did not stop in time");
    }
    if accusation.has_diverged() {
        told.push_str("; their states differ");
    }
    told
}

/// Reads what must be read and writes what must be written, until the server closes.
pub(crate) async fn attend(app: Arc<App>, mut jobs: Jobs) {
    let asking = async {
        while let Some(session) = jobs.strangers.recv().await {
            ask_owner(&app, session).await;
        }
    };
    let reading = async {
        while let Some((group, asked)) = jobs.reads.recv().await {
            read(&app, &group, asked).await;
        }
    };
    let writing = async {
        while let Some(line) = jobs.lines.recv().await {
            if !write(&app, &line).await {
                app.claim_monitor.forget_report(&line.key);
            }
        }
    };
    tokio::select! {
        () = app.reached(Phase::Closing) => {}
        ((), (), ()) = async { tokio::join!(asking, reading, writing) } => {}
    }
}

/// Asks the store whose a session is, and judges the claim that waits for it.
async fn ask_owner(app: &App, session: SessionId) {
    let shown = timeout(app.config.request_timeout, app.store.session(session)).await;
    let mut owners = app.claim_monitor.owners();
    let waited = owners.waited(session);
    // Without an answer the next heartbeat asks again.
    let (Ok(Ok(view)), Some(beliefs)) = (shown, waited) else { return };
    owners.insert(session, view.node.clone());
    // Under the lock, so that no later heartbeat is judged before this one.
    if is_own(&view.node, &beliefs.node) {
        app.judge(session, true, &beliefs);
    }
}

/// Whether a session speaks for the node that it belongs to.
fn is_own(owner: &Node, node: &Node) -> bool {
    let is_own = owner == node;
    if !is_own && let Some(untold) = FRAMED.admit() {
        tracing::warn!(%owner, %node, untold, "a session spoke for another node; it is not believed");
    }
    is_own
}

/// The quorum check: a linearizable read that began after the claim was heard.
async fn read(app: &App, group: &Group, asked: Asked) {
    let office = app.store.leader(group, Consistency::Linearizable);
    match timeout(app.config.request_timeout, office).await {
        Ok(Ok(view)) => {
            let now = regent_clock::now();
            let leader = view.leader.as_ref();
            let found =
                app.claim_monitor.detector().confirm(now, (group, asked), view.term, leader);
            for accusation in &found {
                app.accuse(accusation);
            }
        }
        Ok(Err(_)) | Err(_) => app.claim_monitor.detector().failed(group, asked),
    }
}

/// Writes a finding into a group's history; false if that may be tried again some time.
async fn write(app: &App, line: &HistoryLine) -> bool {
    let HistoryLine { group, finding, reason, .. } = line;
    let kept = short(reason);
    for attempt in 1..=TRIES {
        let written = app.store.report(group, *finding, kept.clone());
        match timeout(app.config.request_timeout, written).await {
            Ok(Ok(())) => return true,
            // The group is gone or lives elsewhere: there is no history to write into.
            Ok(Err(StoreError::Refused(refusal))) => {
                if let Some(untold) = UNWRITTEN.admit() {
                    tracing::warn!(%group, reason, %refusal, untold, "a finding was not written into the history");
                }
                return true;
            }
            Ok(Err(_)) | Err(_) if attempt < TRIES => tokio::time::sleep(PAUSE).await,
            Ok(Err(_)) | Err(_) => {}
        }
    }
    if let Some(untold) = UNWRITTEN.admit() {
        tracing::warn!(%group, reason, untold, "a finding could not be written into the history");
    }
    false
}

pub(crate) async fn answer(call: Call) -> Reply {
    let query = call.query()?;
    reply::json(&act(&call, &query).await?)
}

pub(crate) async fn act(ask: &Ask, query: &ClaimsQuery) -> Result<ClaimsResponse, Problem> {
    let permitted = match &ask.guard {
        Some(guarded) => Some(guarded.permitted(Right::Observe).await?),
        None => None,
    };
    let may_see = |group: &Group| permitted.as_ref().is_none_or(|it| it.covers(group, None));
    let claim_monitor = &ask.app.claim_monitor;
    let now = regent_clock::now();
    let mut after = query.after.clone();
    let (page, is_full) = loop {
        let detector = claim_monitor.detector();
        let page: Vec<ClaimedGroup> = match &query.group {
            None => detector.page(now, after.as_ref(), query.disputed, PAGE),
            Some(group) => detector.of(now, group, query.disputed).into_iter().collect(),
        };
        drop(detector);
        let told: usize = page.iter().map(|claimed| claimed.believers.len()).sum();
        after = page.last().map(|claimed| claimed.group.clone());
        let shown: Vec<ClaimedGroup> =
            page.into_iter().filter(|claimed| may_see(&claimed.group)).collect();
        // A page of which nothing may be shown is passed over: its last name would be told as the place to go on.
        if !shown.is_empty() || told < PAGE || query.group.is_some() {
            break (shown, told >= PAGE);
        }
    };
    let next = page.last().map(|claimed| claimed.group.clone()).filter(|_| is_full);
    let groups = page.into_iter().map(|claimed| ClaimedBody::new(claimed, now)).collect();
    Ok(ClaimsResponse { groups, next })
}

#[cfg(test)]
mod tests {
    use regent_election::belief::{Believer, ClaimStanding};

    use super::*;

    #[test]
    fn an_accusation_reads_as_a_sentence() {
        let node = |name: &str| Node::new(name).unwrap();
        let term = |number| Term::new(number).unwrap();
        let mut accusation = Accusation {
            group: Group::new("g").unwrap(),
            fault: ClaimFault::Over,
            believer: Believer {
                node: node("a"),
                term: term(5),
                left_ms: 0,
                digest: None,
                ttl_ms: 1000,
                heard_at: regent_election::Moment::ZERO,
                standing: ClaimStanding::Accused(ClaimFault::Over),
            },
            term: term(6),
            leader: Some(node("b")),
            leader_digest: None,
        };
        assert_eq!(
            told(&accusation),
            "a acts under term 5, but b leads under term 6; its work did not stop in time"
        );
        accusation.believer.left_ms = 1;
        accusation.fault = ClaimFault::NeverGranted;
        accusation.believer.term = term(9);
        assert_eq!(
            told(&accusation),
            "a acts under term 9, which was never granted; the last is 6"
        );
    }

    #[tokio::test]
    async fn a_finding_is_asked_for_once() {
        let (claim_monitor, mut jobs) = ClaimMonitor::new();
        let group = Group::new("g").unwrap();
        for _ in 0..3 {
            claim_monitor.report(&group, Finding::NearMiss, "5".to_owned(), "80 ms".to_owned());
            claim_monitor.report(&group, Finding::NearMiss, "5".to_owned(), "79 ms".to_owned());
        }
        let line = jobs.lines.recv().await.unwrap();
        assert!(jobs.lines.try_recv().is_err());
        claim_monitor.forget_report(&line.key);
        claim_monitor.report(&group, Finding::NearMiss, "5".to_owned(), "78 ms".to_owned());
        assert!(jobs.lines.try_recv().is_ok(), "it could not be written, so it is asked for again");
    }
}
