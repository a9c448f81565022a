//! A service over HTTP.
//!
//! Heartbeats have connections of their own: nothing that an application asks for, however much of
//! it, can stand in a queue before them.
//!
//! Any replica serves. Now and then it is asked who leads the log, and that one is preferred if it is
//! among the addresses given.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use regent_api::{ValidateTokenRequest, WatchEvent};
use regent_election::participant::{Reply, Request};
use regent_election::store::{Consistency, GroupView, LeaderView, Scope, StoreError, StoreResult};
use regent_election::{Group, Moment, PolicyError, Resource, SessionId, Term};

use super::{Backend, ObservedLeader, ObservedLeaders};
use crate::remote::{Address, AddressError, Remote, RemoteError, Watched};

/// A service at one or several addresses.
#[derive(Debug)]
pub struct HttpBackend {
    heartbeats: Remote,
    errands: Remote,
    watches: Remote,
    /// When it was last asked who leads the log.
    asked_at: Mutex<Option<Moment>>,
}

/// How often it is asked who leads the log.
const FOLLOW_EVERY: Duration = Duration::from_secs(5);

impl HttpBackend {
    /// The service at these addresses, waiting so long for an answer.
    pub fn new(addresses: &[Address], request_timeout: Duration) -> Result<Self, AddressError> {
        let remote = || Remote::at(addresses.to_vec());
        Ok(Self {
            heartbeats: remote()?.with_timeout(request_timeout),
            errands: remote()?.with_timeout(request_timeout),
            watches: remote()?,
            asked_at: Mutex::default(),
        })
    }

    /// Looks for the log's leader, if it is time for that; nobody waits for it.
    fn follow(&self) {
        if self.heartbeats.addresses().len() < 2 {
            return;
        }
        let mut asked_at = self.asked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = regent_clock::now();
        if asked_at.is_some_and(|at| now.since(at) < FOLLOW_EVERY) {
            return;
        }
        *asked_at = Some(now);
        drop(asked_at);
        for remote in [self.heartbeats.clone(), self.errands.clone()] {
            tokio::spawn(async move { remote.follow_log_leader().await });
        }
    }
}

#[async_trait]
impl Backend for HttpBackend {
    async fn perform(&self, request: Request) -> StoreResult<Reply> {
        let remote = match &request {
            Request::Open(_) | Request::Heartbeat(_) => &self.heartbeats,
            Request::List(_) | Request::Close(_) | Request::Campaign(_) | Request::Group(_) => {
                &self.errands
            }
        };
        let performed = remote.perform(&request).await;
        if matches!(request, Request::Open(_) | Request::Heartbeat(_)) {
            self.follow();
        }
        performed.map_err(RemoteError::into_store_error)
    }

    async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView> {
        let consistency = match consistency {
            Consistency::Linearizable => regent_api::Consistency::Linearizable,
            Consistency::Stale => regent_api::Consistency::Stale,
        };
        match self.errands.leader(group, consistency).await {
            Ok(answer) => Ok(answer.office.into()),
            Err(error) => Err(error.into_read_error()),
        }
    }

    async fn group(&self, group: &Group) -> StoreResult<GroupView> {
        let shown = self.errands.show_group(group).await.map_err(|error| match error {
            refused @ RemoteError::Refused(_) => refused.into_store_error(),
            other => other.into_read_error(),
        })?;
        let is_odd = |error: PolicyError| StoreError::Corrupt(error.to_string());
        shown.try_into().map_err(is_odd)
    }

    async fn admit(&self, group: &Group, resource: &Resource, term: Term) -> StoreResult<()> {
        let request = ValidateTokenRequest { term, resource: Some(resource.clone()) };
        match self.errands.validate_token(group, &request).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into_admission_error()),
        }
    }

    async fn signed_term(
        &self,
        group: &Group,
        session: SessionId,
    ) -> StoreResult<Option<(Term, String)>> {
        match self.errands.token(group, Some(session)).await {
            Ok(answer) => Ok(answer.token.map(|token| (answer.term, token))),
            Err(error) => Err(error.into_read_error()),
        }
    }

    async fn watch(&self, scope: Scope, sights: ObservedLeaders) {
        let mut watch = self.watches.watch(scope, None);
        loop {
            match watch.next().await {
                Ok(Watched::Event(event)) => {
                    if !seen(*event).into_iter().all(|sight| sights.tell(sight)) {
                        return;
                    }
                }
                Ok(Watched::Interrupted { why, retry_in }) => {
                    tracing::debug!(%why, ?retry_in, "the watch broke and is opened again");
                }
                Err(error) => {
                    tracing::warn!(%error, "going on without a watch: promotions are noticed by the next heartbeat");
                    return;
                }
            }
        }
    }
}

/// What an event shows.
pub(super) fn seen(event: WatchEvent) -> Vec<ObservedLeader> {
    let of_present = |offices: Vec<regent_api::Office>| {
        offices.into_iter().map(|office| ObservedLeader::from(LeaderView::from(office))).collect()
    };
    match event {
        WatchEvent::LeaderChanged(changed) => vec![ObservedLeader {
            group: changed.group,
            leader: changed.leader,
            term: changed.term,
            metadata: changed.metadata,
            revision: changed.revision,
        }],
        WatchEvent::State(present) => of_present(present.offices),
        WatchEvent::Gap(gap) => of_present(gap.present.offices),
        WatchEvent::Bookmark(_) | WatchEvent::Stale(_) | WatchEvent::Closing(_) => Vec::new(),
    }
}
