//! A leader whose work does not stop is found out by what its own heartbeats say.

use std::time::Duration;

use regent::remote::Remote;
use regent_api::{ClaimedBody, ClaimsQuery};
use regent_election::store::StepDown;
use regent_election::{Cause, Digest, Group, Reason};

use crate::bench::{Bench, leader_of, soon, until};

const TTL: Duration = Duration::from_secs(2);

async fn claimed(remote: &Remote, group: &Group) -> Option<ClaimedBody> {
    let query = ClaimsQuery { group: Some(group.clone()), ..ClaimsQuery::default() };
    remote.claims(&query).await.unwrap().groups.pop()
}

/// Its office was given to another by force, and it holds on to its work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_does_not_stop_is_found_out_when_another_leads() {
    let bench = Bench::start();
    let remote = Remote::new(&bench.url).unwrap();
    let group: Group = "billing".parse().unwrap();
    let alice = bench.at("alice").ttl(TTL).connect().await.unwrap();
    let held = soon("alice leads", alice.campaign("billing")).await.unwrap();
    held.tell_digest(&Digest::new("sha256:aa").unwrap());
    let state = || async {
        let claimed = claimed(&remote, &group).await?;
        let alice = claimed.believers.into_iter().find(|it| it.node_id.as_str() == "alice")?;
        Some((alice.term, alice.standing, alice.digest.map(|it| it.to_string())))
    };
    until("alice tells", || async {
        let digest = Some("sha256:aa".to_owned());
        state().await == Some((held.term(), "agrees".to_owned(), digest))
    })
    .await;

    let (reason, to) = (Reason::new("a test").unwrap(), None);
    let step_down = StepDown { group: group.clone(), reason, to, immediate: true, request: None };
    bench.store.step_down(step_down).await.unwrap();
    let bob = bench.at("bob").ttl(TTL).connect().await.unwrap();
    let led = soon("bob leads", bob.campaign("billing")).await.unwrap();
    led.tell_digest(&Digest::new("sha256:bb").unwrap());
    soon("alice is told", held.lost()).await;
    // The handle is still held: the work of the old term has not ended.
    until("alice is accused", || async {
        state()
            .await
            .is_some_and(|(term, standing, _)| term == held.term() && standing == "accused")
    })
    .await;
    until("the history tells", || async {
        let history = bench.store.history(&group).await.unwrap();
        history.iter().any(|it| it.cause == Cause::SplitBrain)
    })
    .await;
    assert_eq!(
        leader_of(&bench, "billing").await.as_deref(),
        Some("bob"),
        "nobody lost its office"
    );
    assert!(led.check().is_ok(), "bob leads on");

    drop(held);
    until("alice acts no more", || async { state().await.is_none() }).await;
}
