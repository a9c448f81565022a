//! A store whose answers are lost: every request takes effect and its first answer never comes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;

use async_trait::async_trait;
use regent::Regent;
use regent::backend::{Backend, DirectBackend, ObservedLeaders};
use regent_election::Group;
use regent_election::participant::{Reply, Request};
use regent_election::store::{Consistency, LeaderView, Scope, StoreError, StoreResult};

use crate::bench::{Bench, leader_of, soon};

struct Forgetful {
    inner: DirectBackend,
    answered: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for Forgetful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forgetful")
    }
}

#[async_trait]
impl Backend for Forgetful {
    async fn perform(&self, request: Request) -> StoreResult<Reply> {
        // A repeat is the same request under the same ids; heartbeats carry numbers and differ.
        let name = format!("{request:?}");
        let answer = self.inner.perform(request).await;
        if self.answered.lock().unwrap().insert(name) {
            return Err(StoreError::Uncertain { why: "the answer was lost".to_owned() });
        }
        answer
    }

    async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView> {
        self.inner.leader(group, consistency).await
    }

    async fn watch(&self, scope: Scope, sights: ObservedLeaders) {
        self.inner.watch(scope, sights).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_neither_deposes_its_holder_nor_burns_a_term() {
    let bench = Bench::start();
    let request_timeout = std::time::Duration::from_secs(2);
    let inner = DirectBackend::new(bench.store.clone(), request_timeout);
    let office = Forgetful { inner, answered: Mutex::default() };
    let connect = Regent::through(std::sync::Arc::new(office)).node("a");
    let regent = connect.connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    assert_eq!(leadership.term().get(), 1);
    soon("resigned", leadership.resign()).await.unwrap();
    assert_eq!(leader_of(&bench, "billing").await, None);
    let leadership = soon("elected again", regent.campaign("billing")).await.unwrap();
    assert_eq!(leadership.term().get(), 2);
}
