//! Repeats: a request takes effect once, and its answer is evaluated again.

use super::bench::{Bench, LONG_MS, refused};
use super::{Fault, ensure};
use crate::outcome::Refusal;
use crate::store::Campaign;
use crate::term::Revision;

pub(super) async fn a_repeated_campaign_takes_effect_once_and_is_evaluated_again(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let request = Some(bench.request(Revision(0)));
    let bid = Campaign { request, ..alice.bid(&group) };
    let first = alice.store.campaign(bid.clone()).await?;
    let Some(term) = first.elected else {
        return Err(Fault::Broken(format!("a first campaign lost: {first:?}")));
    };
    let again = alice.store.campaign(bid.clone()).await?;
    ensure!(again.elected == Some(term), "the repeat answers {again:?}");
    alice.resign(&group, term).await?;
    // The tenure that this request won is over; a late duplicate must not win another.
    let late = alice.store.campaign(bid).await?;
    ensure!(late.elected.is_none(), "a late duplicate won: {late:?}");
    let office = bench.leader(&group).await?;
    ensure!(office.leader.is_none() && office.term == term, "a duplicate ran: {office:?}");
    Ok(())
}

pub(super) async fn a_repeated_resignation_does_not_touch_the_next_tenure(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let request = bench.request(Revision(0));
    let resign =
        async || alice.store.resign(&group, alice.session, term, Some(request.clone())).await;
    resign().await?;
    let next = alice.win(&group).await?;
    resign().await?;
    alice.leads(&bench, &group, next).await?;
    refused("an old term without an id", alice.resign(&group, term).await, |refusal| {
        matches!(refusal, Refusal::NotLeader { .. })
    })?;
    alice.leads(&bench, &group, next).await
}

pub(super) async fn a_request_id_serves_one_request(bench: Bench) -> Result<(), Fault> {
    if !bench.abilities().ids_span_groups {
        return Err(Fault::Skipped("this store's request ids belong to one group each".into()));
    }
    let (one, two) = (bench.group(), bench.group());
    let alice = bench.player("alice", LONG_MS).await?;
    let request = Some(bench.request(Revision(0)));
    let bid = Campaign { request: request.clone(), ..alice.bid(&one) };
    alice.store.campaign(bid).await?;
    let other = Campaign { request, ..alice.bid(&two) };
    refused("an id used again", alice.store.campaign(other).await, |refusal| {
        matches!(refusal, Refusal::RequestReused)
    })?;
    let office = bench.leader(&two).await?;
    ensure!(office.leader.is_none(), "a refused request ran: {office:?}");
    Ok(())
}
