//! Sessions: the unit of liveness, and the secret that owns everything under it.

use super::bench::{Bench, LONG_MS, SHORT_MS, node, refused};
use super::{Fault, ensure};
use crate::outcome::Refusal;
use crate::store::{OfficeState, Open, StoreResult};

fn is_unknown(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::SessionUnknown)
}

pub(super) async fn a_session_lists_what_it_holds_and_its_epoch_tells_of_unasked_changes(
    bench: Bench,
) -> Result<(), Fault> {
    let (led, stood) = (bench.group(), bench.group());
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&led).await?;
    let bobs = bob.win(&stood).await?;
    alice.stand(&stood).await?;
    let view = alice.session().await?;
    ensure!(view.node == node("alice") && view.ttl_ms == LONG_MS, "{view:?}");
    ensure!(view.standing == [stood.clone()], "it stands in {:?}", view.standing);
    let tenures: Vec<_> =
        view.tenures.iter().map(|held| (&held.group, held.term, held.state)).collect();
    ensure!(tenures == [(&led, term, OfficeState::Leading)], "it holds {tenures:?}");
    ensure!(view.epoch == 0, "what it asked for raised its epoch: {view:?}");
    bob.resign(&stood, bobs).await?;
    if bench.abilities().promotes_in_one_commit {
        let heard = alice.heartbeat().await?;
        ensure!(heard.epoch > 0, "its promotion did not raise the epoch: {heard:?}");
        let view = alice.session().await?;
        ensure!(view.epoch == heard.epoch, "two epochs at rest: {view:?}, {heard:?}");
        ensure!(view.tenures.len() == 2 && view.standing.is_empty(), "{view:?}");
    }
    Ok(())
}

pub(super) async fn opening_again_answers_the_same_session(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let again = alice.open().await?;
    ensure!(again.tenures.len() == 1, "it is another session: {again:?}");
    for (name, ttl_ms) in [("alice", LONG_MS + 1), ("bob", LONG_MS)] {
        let open = Open { node: node(name), ttl_ms, session: alice.session };
        refused("a session of another kind", alice.store.open(open).await, |refusal| {
            matches!(refusal, Refusal::SessionMismatch)
        })?;
    }
    for ttl_ms in [0, 1, u64::MAX] {
        let open = Open { node: node("carol"), ttl_ms, session: bench.secret() };
        refused("an absurd ttl", alice.store.open(open).await, |refusal| {
            matches!(refusal, Refusal::TtlOutOfBounds { .. })
        })?;
    }
    alice.leads(&bench, &group, term).await
}

pub(super) async fn closing_a_session_ends_everything_it_had(bench: Bench) -> Result<(), Fault> {
    let (led, stood) = (bench.group(), bench.group());
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&led).await?;
    bob.stand(&led).await?;
    bob.win(&stood).await?;
    alice.stand(&stood).await?;
    bench.store().close(alice.session).await?;
    let next = bob.take_over(&bench, &led).await?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    let view = bench.view(&stood).await?;
    ensure!(view.standbys_count == 0, "a closed session stands: {view:?}");
    bench.store().close(alice.session).await?;
    bench.store().close(bench.secret()).await?;
    Ok(())
}

pub(super) async fn a_passing_session_that_leads_another_group_outlives_its_resignation_here(
    bench: Bench,
) -> Result<(), Fault> {
    let (kept, left) = (bench.group(), bench.group());
    let alice = bench.newcomer("alice", LONG_MS);
    let bob = bench.player("bob", LONG_MS).await?;
    let answer = alice.store.campaign(alice.passing_bid(&kept)).await?;
    let Some(term) = answer.elected else {
        return Err(Fault::Broken(format!("alice did not win: {answer:?}")));
    };
    bob.stand(&kept).await?;
    let there = alice.win(&left).await?;
    alice.resign(&left, there).await?;
    alice.heartbeat().await?;
    alice.leads(&bench, &kept, term).await?;
    alice.resign(&kept, term).await?;
    refused("a heartbeat of a passing session that left all", alice.heartbeat().await, is_unknown)
}

pub(super) async fn an_ended_session_cannot_come_back(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bench.store().close(alice.session).await?;
    let open = Open { node: node("alice"), ttl_ms: LONG_MS, session: alice.session };
    refused("opening it again", bench.store().open(open).await, is_unknown)?;
    refused("campaigning with it", alice.store.campaign(alice.bid(&group)).await, is_unknown)?;
    refused("a heartbeat", alice.heartbeat().await, is_unknown)?;
    refused("a renewal", alice.renew(&group, term).await, is_unknown)?;
    refused("looking at it", alice.store.session(alice.session).await, is_unknown)?;
    let office = bench.leader(&group).await?;
    ensure!(office.leader.is_none(), "it leads: {office:?}");
    Ok(())
}

pub(super) async fn a_session_that_is_not_heard_expires_with_all_its_tenures(
    bench: Bench,
) -> Result<(), Fault> {
    let groups = [bench.group(), bench.group()];
    let alice = bench.player("alice", SHORT_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    for group in &groups {
        alice.win(group).await?;
        bob.stand(group).await?;
    }
    for group in &groups {
        bob.take_over(&bench, group).await?;
    }
    let gone: StoreResult<_> = alice.heartbeat().await;
    refused("a heartbeat of an expired session", gone, is_unknown)?;
    let open = Open { node: node("alice"), ttl_ms: SHORT_MS, session: alice.session };
    refused("opening an expired session", bench.store().open(open).await, is_unknown)
}
