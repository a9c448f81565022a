//! What the audit log is told: every change at the Store port, and every denial where it is answered.
//!
//! Changes are recorded below the guard and above the store: whatever route, face or stream a request came by, its
//! commands pass here, and here it is known who asks, for what, in which group, under which request id, and what came of
//! it. A request that is dropped while its command is under way is recorded as `UNCERTAIN`: it may take effect.
//!
//! Denials are recorded where they are answered, because most of them never reach the store.
//!
//! Not recorded: reads, watches, heartbeats, renewals, and terms that a fence admits (they are as frequent as writes);
//! campaigns that were lost and left nothing behind; refusals of what participants ask, but for denials; and what the
//! servers do by themselves, which has no principal: the flight recorder has those.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use regent_api::problem::code_of;
use regent_api::{Code, Gate, Operation, Problem, Route};
use regent_audit::{Act, Audit};
use regent_election::access::{Principal, Right};
use regent_election::state::{Query, View};
use regent_election::store::{
    Consistency, Description, Done, HeartbeatView, Scope, Store, StoreError, StoreResult, Time,
    Watch,
};
use regent_election::{
    Answer, Command, Cursor, Group, Policy, RequestId, SessionId, Settings, Term,
};

use crate::app::{App, Ask};

/// Where a request came from, and who sent it, once that is known.
#[derive(Debug)]
pub(crate) struct Trail {
    /// An address, or the user of the Unix socket.
    from: Arc<str>,
    who: OnceLock<Principal>,
}

impl Trail {
    pub(crate) fn new(from: &Arc<str>) -> Arc<Self> {
        Arc::new(Self { from: Arc::clone(from), who: OnceLock::new() })
    }

    /// It is known who calls.
    pub(crate) fn identified(&self, who: &Principal) {
        let _ = self.who.set(who.clone());
    }
}

/// The store of a connection, whose changes are recorded if anything is.
pub(crate) fn store(app: &App, trail: &Trail) -> Arc<dyn Store> {
    match &app.audit {
        Some(audit) => {
            let (inner, audit) = (Arc::clone(&app.store), Arc::clone(audit));
            Arc::new(AuditedStore { inner, audit, from: Arc::clone(&trail.from) })
        }
        None => Arc::clone(&app.store),
    }
}

/// Records an answer that is a denial.
pub(crate) fn answered(
    app: &App,
    trail: &Trail,
    route: &Route,
    group: Option<&Group>,
    problem: &Problem,
) {
    let Some(audit) = &app.audit else { return };
    if !is_denial(problem.code) {
        return;
    }
    let right = match route.gate {
        Gate::Needs(right) => Some(right.word().to_owned()),
        Gate::Open => None,
    };
    let who = trail.who.get().map(ToString::to_string);
    // Strangers name what they like, and every name would be a line.
    let group = problem.facts.group.as_ref().or(group).filter(|_| who.is_some());
    let act = Act {
        from: trail.from.to_string(),
        verb: route.id.to_owned(),
        // The guard names the right and the group of the command itself.
        right: problem.facts.right.clone().or(right),
        group: group.map(ToString::to_string),
        who,
        code: problem.code.word().to_owned(),
        ..Act::default()
    };
    audit.denied(act);
}

fn is_denial(code: Code) -> bool {
    matches!(code.status(), 401 | 403)
}

/// A change that is under way. Dropped without an outcome, it may have been made.
#[derive(Debug)]
pub(crate) struct Pending {
    audit: Option<Arc<Audit>>,
    right: Right,
    act: Act,
}

impl Pending {
    /// A change beside the store: of the cluster, not of its state.
    pub(crate) fn beside_store(ask: &Ask, operation: Operation, detail: &str) -> Self {
        let route = operation.route();
        let act = Act {
            who: ask.who(),
            from: ask.trail.from.to_string(),
            verb: route.id.to_owned(),
            right: Some(Right::Administer.word().to_owned()),
            ..Act::default()
        };
        let audit = ask.app.audit.clone();
        Self { audit, right: Right::Administer, act: act.with_detail(detail.to_owned()) }
    }

    /// It is known what came of it.
    pub(crate) fn settle<T>(mut self, outcome: &Result<T, Problem>) {
        let code = outcome.as_ref().err().map(|problem| problem.code);
        self.end(code, None);
    }

    fn end(&mut self, code: Option<Code>, revision: Option<u64>) {
        let Some(audit) = self.audit.take() else { return };
        let mut act = std::mem::take(&mut self.act);
        act.code = code.map_or("OK", Code::word).to_owned();
        act.revision = revision;
        match code {
            None => audit.changed(act),
            Some(code) if !code.nothing_happened() => audit.changed(act),
            // Where the denial is answered it is recorded, with whatever else is known.
            Some(code) if is_denial(code) => {}
            Some(_) => match self.right {
                Right::Operate | Right::Administer | Right::Replicate => audit.refused(act),
                Right::Observe | Right::Stand => {}
            },
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.end(Some(Code::Uncertain), None);
    }
}

/// The answer of a store, as it is awaited.
type Answering<'a, T> = Pin<Box<dyn Future<Output = StoreResult<T>> + Send + 'a>>;

/// A store whose changes are recorded.
#[derive(Debug)]
struct AuditedStore {
    inner: Arc<dyn Store>,
    audit: Arc<Audit>,
    from: Arc<str>,
}

impl AuditedStore {
    /// What is to be recorded of a command; none for one that changes nothing worth a line.
    fn pending(&self, command: &Command, request: Option<&RequestId>) -> Option<Pending> {
        let detail = detail(command.plain())?;
        let right = command.right();
        let act = Act {
            who: command.who().map(ToString::to_string),
            from: self.from.to_string(),
            verb: command.name().to_owned(),
            right: Some(right.word().to_owned()),
            group: command.group().map(ToString::to_string),
            request: request.map(ToString::to_string),
            ..Act::default()
        };
        let audit = Some(Arc::clone(&self.audit));
        Some(Pending { audit, right, act: act.with_detail(detail) })
    }
}

/// What exactly is asked for, without any secret; none for what is not recorded.
fn detail(command: &Command) -> Option<String> {
    let text = match command {
        Command::Open { node, ttl_ms, .. } => format!("node {node}, ttl {ttl_ms} ms"),
        Command::ChangeTtl { ttl_ms, .. } => format!("ttl {ttl_ms} ms"),
        Command::Campaign { opening, priority, .. } => match opening {
            Some(opening) => format!("node {}, priority {priority}", opening.node),
            None => format!("priority {priority}"),
        },
        Command::Accept { term, .. }
        | Command::Resign { term, .. }
        | Command::Warm { term, .. } => {
            format!("term {term}")
        }
        Command::Offer { term, to, .. } | Command::Transfer { term, to, .. } => {
            format!("term {term}, to {to}")
        }
        Command::StepDown { reason, to, immediate, .. } => {
            let how = if *immediate { "immediate" } else { "in order" };
            let to = to.as_ref().map(|to| format!(", to {to}")).unwrap_or_default();
            format!("{how}{to}; {}", reason.as_str())
        }
        Command::PutPolicy { policy: None, .. } => "the default policy".to_owned(),
        Command::PutPolicy { policy: Some(policy), .. } => policy_text(policy),
        Command::PutSettings { settings } => {
            let Settings { ttl_ms_ceiling, auto_create, groups_max, default_policy } = &**settings;
            let policy = policy_text(default_policy);
            format!(
                "ttl_ms_ceiling {ttl_ms_ceiling}, auto_create {auto_create}, groups_max {groups_max}; {policy}"
            )
        }
        Command::Move { step, .. } => step.word().to_owned(),
        Command::ForgetFence { resource, .. } => format!("resource {resource}"),
        Command::Report { finding, .. } => finding.word().to_owned(),
        Command::Relieve { term, to, .. } => format!("term {term}, to {to}"),
        Command::PutBindings { expected_version, bindings } => {
            format!("{} bindings in place of version {expected_version}", bindings.len())
        }
        Command::CreateToken { token, principal, .. } => format!("token {token} for {principal}"),
        Command::RevokeToken { token } => format!("token {token}"),
        Command::Close { .. } | Command::Withdraw { .. } | Command::Delete { .. } => String::new(),
        // A command on behalf of somebody is asked for its plain part; drivers are no callers.
        Command::As { .. }
        | Command::Admit { .. }
        | Command::Expire { .. }
        | Command::Elapsed { .. }
        | Command::Refill { .. } => return None,
    };
    Some(text)
}

/// What a policy says, with the names of its settings. Long lists are counted: a line is short.
fn policy_text(policy: &Policy) -> String {
    let Policy {
        ttl_ms_min,
        ttl_ms_max,
        retry_ms_min,
        retry_ms_max,
        lock_delay_ms,
        minimum_tenure_ms,
        prefer_priority,
        allow,
        priorities,
        standbys_max,
        four_eyes,
    } = policy;
    let retry_ms_max = retry_ms_max.map_or("-".to_owned(), |ms| ms.to_string());
    let (allowed, ranked) = (allow.len(), priorities.len());
    let first = allow.first().map(|pattern| format!(" ({pattern}...)")).unwrap_or_default();
    format!(
        "four_eyes {four_eyes}, ttl {ttl_ms_min}..{ttl_ms_max}, retry {retry_ms_min}..{retry_ms_max}, lock_delay {lock_delay_ms}, minimum_tenure {minimum_tenure_ms} ms, prefer_priority {prefer_priority}, standbys_max {standbys_max}, priorities {ranked}, allow {allowed}{first}"
    )
}

#[async_trait]
impl Store for AuditedStore {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn time(&self) -> &dyn Time {
        self.inner.time()
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }

    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<Done> {
        let pending = self.pending(&command, request.as_ref());
        let outcome = self.inner.submit(command, request, then).await;
        if let Some(mut pending) = pending {
            match &outcome {
                // Nothing was left behind.
                Ok(Done { answer: Answer::Lost, .. }) => pending.audit = None,
                Ok(done) => pending.end(None, done.revision.map(|revision| revision.0)),
                Err(error) => pending.end(Some(code(error)), None),
            }
        }
        outcome
    }

    /// Passed on as it is, without a future of its own: heartbeats and reads are most of all requests.
    fn count_heartbeat<'life0, 'async_trait>(
        &'life0 self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> Answering<'async_trait, HeartbeatView>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.inner.count_heartbeat(session, sequence, proves)
    }

    fn read<'life0, 'async_trait>(
        &'life0 self,
        query: Query,
        consistency: Consistency,
    ) -> Answering<'async_trait, View>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        self.inner.read(query, consistency)
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        self.inner.watch(scope, cursor).await
    }

    /// Callers do not end stores.
    async fn shut_down(&self) {}
}

fn code(error: &StoreError) -> Code {
    match error {
        StoreError::Refused(refusal) => code_of(refusal),
        StoreError::Unavailable { .. } => Code::StoreUnavailable,
        StoreError::Uncertain { .. } => Code::Uncertain,
        StoreError::Unsupported { .. } => Code::Unsupported,
        StoreError::Corrupt(_) => Code::StoreCorrupt,
    }
}
