//! A session that was opened for one campaign, and is used in a second group: leaving one of them ends nothing in
//! the other. Whoever ends it there lets a standby follow at once, while the holder counts on its last heartbeat.

use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{Campaign, CampaignSession, Store, StoreError};
use regent_election::{Node, Term};

use super::directed::{bid, group, heartbeat, secret, step_down, win};
use super::passed_on::{Call, Scene, Stage, is_unknown};
use crate::register::RegisterError;

const TTL_MS: u64 = 10_000;

/// Who was elected by a session made for that campaign alone.
async fn win_in_passing(store: &dyn Store, name: &str) -> Term {
    let session = CampaignSession::Passing(secret(1));
    let campaign = Campaign { session, ..bid(name, "a", 1, TTL_MS) };
    store.campaign(campaign).await.unwrap().elected.unwrap()
}

/// A leads g by a passing session, and b stands behind it.
async fn led_in_passing(times_sessions: bool) -> (Stage, Term) {
    let stage = Stage::on(times_sessions);
    let term = win_in_passing(&*stage.one, "g").await;
    assert!(stage.two.campaign(bid("g", "b", 2, 60_000)).await.unwrap().standing);
    (stage, term)
}

/// The last heartbeat counts: nobody follows within its ttl.
async fn leads_on(stage: &Stage, what: &str) {
    stage.one.heartbeat(heartbeat(1)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    for second in 1..10 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(stage.leader("g").await, Some(node("a")), "{what}, second {second}");
    }
}

fn node(name: &str) -> Node {
    Node::new(name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn resigning_in_one_group_ends_nothing_in_another() {
    for times_sessions in [true, false] {
        let (stage, term) = led_in_passing(times_sessions).await;
        let there = win(&*stage.one, "h", "a", 1, TTL_MS).await;
        stage.one.resign(&group("h"), secret(1), there, None).await.unwrap();
        leads_on(&stage, "resigned").await;
        // With its last group it goes.
        stage.one.heartbeat(heartbeat(1)).await.unwrap();
        stage.one.resign(&group("g"), secret(1), term, None).await.unwrap();
        assert!(is_unknown(&stage.one.heartbeat(heartbeat(1)).await), "{times_sessions}");
    }
}

/// Whoever tidies a list has read its groups before: a campaign may have won in one of them since.
#[tokio::test(start_paused = true)]
async fn a_late_tidying_of_its_list_does_not_let_a_passing_session_end_in_another_group() {
    for times_sessions in [true, false] {
        let (stage, _) = led_in_passing(times_sessions).await;
        let there = win(&*stage.one, "h", "a", 1, TTL_MS).await;
        stage.shared.unlist(secret(1).digest().get(), &[group("g")]).await;
        stage.one.resign(&group("h"), secret(1), there, None).await.unwrap();
        leads_on(&stage, "tidied").await;
    }
}

#[tokio::test(start_paused = true)]
async fn withdrawing_from_one_group_ends_nothing_in_another() {
    for times_sessions in [true, false] {
        let (stage, _) = led_in_passing(times_sessions).await;
        win(&*stage.two, "h", "c", 3, 60_000).await;
        assert!(stage.one.campaign(bid("h", "a", 1, TTL_MS)).await.unwrap().standing);
        stage.one.withdraw(&group("h"), secret(1), None).await.unwrap();
        leads_on(&stage, "withdrew").await;
    }
}

#[tokio::test(start_paused = true)]
async fn being_stepped_down_in_one_group_ends_nothing_in_another() {
    for times_sessions in [true, false] {
        let (stage, _) = led_in_passing(times_sessions).await;
        let there = win(&*stage.one, "h", "a", 1, TTL_MS).await;
        stage.two.step_down(step_down("h")).await.unwrap();
        stage.one.resign(&group("h"), secret(1), there, None).await.unwrap();
        leads_on(&stage, "stepped down").await;
    }
}

/// The campaign in h is heard, loses a race for the entry of h, and cannot read it again.
#[tokio::test(start_paused = true)]
async fn failing_to_campaign_in_one_group_ends_nothing_in_another() {
    for times_sessions in [true, false] {
        let (stage, _) = led_in_passing(times_sessions).await;
        stage.before(Call::SwapGroup, async |two: Arc<dyn Store>| {
            win(&*two, "h", "c", 3, 60_000).await;
        });
        stage.play(Call::LoadGroup, Scene::Refused(RegisterError::unavailable("not now")));
        let answer = stage.one.campaign(bid("h", "a", 1, TTL_MS)).await;
        assert!(stage.is_over(), "{answer:?}");
        assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
        leads_on(&stage, "failed").await;
    }
}

/// A resignation is written; before it has ended its session, the same session campaigns there again and wins.
#[tokio::test(start_paused = true)]
async fn a_session_that_campaigns_again_before_its_resignation_has_ended_it_lives_on() {
    for times_sessions in [true, false] {
        let stage = Stage::on(times_sessions);
        let term = win_in_passing(&*stage.one, "g").await;
        stage.one.heartbeat(heartbeat(1)).await.unwrap();
        stage.before(Call::SwapSession, async |two: Arc<dyn Store>| {
            win(&*two, "g", "a", 1, TTL_MS).await;
            assert!(two.campaign(bid("g", "b", 2, 60_000)).await.unwrap().standing);
        });
        stage.one.resign(&group("g"), secret(1), term, None).await.unwrap();
        assert!(stage.is_over());
        leads_on(&stage, "campaigned again").await;
    }
}

/// A campaign is heard and has not won yet when its session is looked at, whose groups are all vacant.
#[tokio::test(start_paused = true)]
async fn looking_at_a_session_that_is_about_to_win_does_not_end_it() {
    for times_sessions in [true, false] {
        let stage = Stage::on(times_sessions);
        stage.before(Call::SwapGroup, async |two: Arc<dyn Store>| {
            let view = two.session(secret(1)).await.unwrap();
            assert!(view.tenures.is_empty() && view.standing.is_empty(), "{view:?}");
        });
        win_in_passing(&*stage.one, "g").await;
        assert!(stage.is_over());
        assert!(stage.two.campaign(bid("g", "b", 2, 60_000)).await.unwrap().standing);
        leads_on(&stage, "looked at").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_campaign_that_is_heard_and_then_loses_leaves_no_session_behind_that_it_opened() {
    for times_sessions in [true, false] {
        let stage = Stage::on(times_sessions);
        stage.before(Call::SwapGroup, async |two: Arc<dyn Store>| {
            win(&*two, "g", "c", 3, 60_000).await;
        });
        let session = CampaignSession::Passing(secret(1));
        let campaign = Campaign { session, ..bid("g", "a", 1, TTL_MS) };
        let answer = stage.one.campaign(campaign).await.unwrap();
        assert!(stage.is_over() && answer.elected.is_none() && !answer.standing, "{answer:?}");
        assert!(is_unknown(&stage.two.heartbeat(heartbeat(1)).await), "{times_sessions}");
    }
}
