//! Tenures that others end: told first, vacant only when the holder confirms or its ttl is over.

use std::time::Duration;

use super::bench::{Bench, LONG_MS, SHORT_MS, node, refused};
use super::{Fault, ensure};
use crate::outcome::{Cause, Refusal};
use crate::policy::{NodePattern, Policy};
use crate::store::{OfficeState, SteppedDown};
use crate::together::both;

fn needs_endings(bench: &Bench) -> Result<(), Fault> {
    if bench.abilities().has_endings {
        return Ok(());
    }
    Err(Fault::Skipped("this store's tenures end without being told first".into()))
}

pub(super) async fn a_step_down_grants_nobody_until_the_holder_confirms(
    bench: Bench,
) -> Result<(), Fault> {
    needs_endings(&bench)?;
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    let before = alice.heartbeat().await?;
    let answer = bench.step_down(&group, false).await?;
    ensure!(
        answer == SteppedDown::Ending(Duration::from_millis(LONG_MS)),
        "the holder's time is {answer:?}"
    );
    let office = bench.leader(&group).await?;
    ensure!(
        office.state == OfficeState::Ending
            && office.term == term
            && office.leader == Some(node("alice")),
        "the term is not taken any more: {office:?}"
    );
    let heard = alice.heartbeat().await?;
    ensure!(heard.epoch > before.epoch, "the holder is not told: {heard:?} after {before:?}");
    refused("renewal of an ending tenure", alice.renew(&group, term).await, |refusal| {
        matches!(refusal, Refusal::TenureEnding { cause: Cause::SteppedDown, .. })
    })?;
    let bid = bob.campaign(&group).await?;
    ensure!(bid.elected.is_none(), "bob was granted too early: {bid:?}");
    alice.resign(&group, term).await?;
    let next = bob.take_over(&bench, &group).await?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    let history = bench.store().history(&group).await?;
    let said = history.iter().find(|change| change.cause == Cause::SteppedDown);
    let reason = said.and_then(|change| change.reason.as_ref()).map(|reason| reason.as_str());
    ensure!(reason == Some("contract"), "the history does not say why: {history:?}");
    Ok(())
}

pub(super) async fn an_ending_that_nobody_confirms_lasts_a_whole_ttl(
    bench: Bench,
) -> Result<(), Fault> {
    needs_endings(&bench)?;
    let group = bench.group();
    let ttl_ms = 2 * SHORT_MS;
    let alice = bench.player("alice", ttl_ms).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    let asked_at = bench.now();
    bench.step_down(&group, false).await?;
    // The holder's session lives on: what ends is the tenure, and only by the ending.
    let (taken_over, alive) = both(
        async {
            let term = bob.take_over(&bench, &group).await?;
            Ok::<_, Fault>((term, bench.now()))
        },
        bench.until("the holder's list no longer shows it", || async {
            alice.heartbeat().await?;
            Ok(alice.session().await?.tenures.is_empty().then_some(()))
        }),
    )
    .await;
    let (next, granted_at) = taken_over?;
    alive?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    let waited_for = granted_at.since(asked_at);
    ensure!(
        waited_for >= bench.at_least(ttl_ms),
        "granted {waited_for:?} after the step-down; the holder had {ttl_ms} ms"
    );
    Ok(())
}

pub(super) async fn a_forced_step_down_says_that_two_may_act(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    let answer = bench.step_down(&group, true).await?;
    ensure!(
        answer == SteppedDown::Forced(Duration::from_millis(LONG_MS)),
        "the overlap is {answer:?}"
    );
    let next = bob.take_over(&bench, &group).await?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    refused("renewal after being forced out", alice.renew(&group, term).await, |refusal| {
        matches!(refusal, Refusal::NotLeader { .. })
    })?;
    let history = bench.store().history(&group).await?;
    let is_recorded = history.iter().any(|change| change.cause == Cause::Forced);
    ensure!(is_recorded, "the history is silent about it: {history:?}");
    Ok(())
}

pub(super) async fn nobody_steps_down_where_nobody_leads(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    refused("step-down in an unknown group", bench.step_down(&group, true).await, |refusal| {
        matches!(refusal, Refusal::GroupUnknown { .. } | Refusal::NobodyLeads { .. })
    })?;
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    alice.resign(&group, term).await?;
    refused("step-down in a vacant group", bench.step_down(&group, false).await, |refusal| {
        matches!(refusal, Refusal::NobodyLeads { .. })
    })
}

pub(super) async fn a_tightened_policy_ends_a_tenure_gently(bench: Bench) -> Result<(), Fault> {
    needs_endings(&bench)?;
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let only_bob = NodePattern::new("bob").expect("a name is a pattern");
    let policy = Policy { allow: vec![only_bob], ..Policy::default() };
    let view = bench.store().put_policy(&group, Some(policy), None).await?;
    ensure!(
        view.office.state == OfficeState::Ending && view.ending == Some(Cause::Policy),
        "the tenure is not ending: {view:?}"
    );
    bob.stand(&group).await?;
    refused("renewal against the policy", alice.renew(&group, term).await, |refusal| {
        matches!(refusal, Refusal::TenureEnding { cause: Cause::Policy, .. })
    })?;
    alice.resign(&group, term).await?;
    let next = bob.take_over(&bench, &group).await?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    Ok(())
}

pub(super) async fn a_deleted_group_ends_gently_and_its_terms_never_come_back(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let answer = bench.store().delete(&group, None).await?;
    if bench.abilities().has_endings {
        ensure!(
            answer == SteppedDown::Ending(Duration::from_millis(LONG_MS)),
            "the holder's time is {answer:?}"
        );
        let bob = bench.newcomer("bob", LONG_MS);
        let bid = bob.store.campaign(bob.passing_bid(&group)).await;
        refused("a campaign in a group being deleted", bid, |refusal| {
            matches!(refusal, Refusal::GroupEnding { .. })
        })?;
        alice.resign(&group, term).await?;
    }
    refused("a deleted group", bench.store().group(&group).await, |refusal| {
        matches!(refusal, Refusal::GroupUnknown { .. })
    })?;
    let again = alice.win(&group).await?;
    ensure!(again > term, "term {again} came back after term {term}");
    Ok(())
}
