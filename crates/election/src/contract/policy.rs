//! Policies: who may campaign, in which order, and when.

use super::bench::{Bench, LONG_MS, SHORT_MS, node, refused};
use super::{Fault, ensure};
use crate::outcome::Refusal;
use crate::policy::{NodePattern, Policy};
use crate::store::OfficeState;
use crate::together::both;

fn pattern(text: &str) -> NodePattern {
    NodePattern::new(text).expect("the cases write patterns well")
}

pub(super) async fn a_policy_refuses_ttls_and_nodes_outside_it(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let policy = Policy {
        ttl_ms_min: 5_000,
        ttl_ms_max: 40_000,
        allow: vec![pattern("web-*")],
        ..Policy::default()
    };
    let view = bench.store().put_policy(&group, Some(policy.clone()), None).await?;
    ensure!(view.own_policy && view.policy == policy, "the policy is not kept: {view:?}");
    let hasty = bench.newcomer("web-1", 1_000);
    refused("a ttl too short", hasty.store.campaign(hasty.bid(&group)).await, |refusal| {
        matches!(refusal, Refusal::TtlOutOfBounds { ttl_ms: 1_000, min: 5_000, max: 40_000, .. })
    })?;
    let lazy = bench.newcomer("web-2", 50_000);
    refused("a ttl too long", lazy.store.campaign(lazy.bid(&group)).await, |refusal| {
        matches!(refusal, Refusal::TtlOutOfBounds { .. })
    })?;
    let stranger = bench.player("db-1", LONG_MS).await?;
    refused("a node not allowed", stranger.store.campaign(stranger.bid(&group)).await, |no| {
        matches!(no, Refusal::NotAllowed { .. })
    })?;
    let view = bench.view(&group).await?;
    ensure!(view.standbys_count == 0 && view.office.leader.is_none(), "{view:?}");
    let welcome = bench.player("web-3", LONG_MS).await?;
    welcome.win(&group).await?;
    let view = bench.store().put_policy(&group, None, None).await?;
    ensure!(!view.own_policy, "the default policy does not hold again: {view:?}");
    stranger.stand(&group).await
}

pub(super) async fn an_absurd_policy_is_refused_and_changes_nothing(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let good = Policy { lock_delay_ms: 1_000, ..Policy::default() };
    bench.store().put_policy(&group, Some(good.clone()), None).await?;
    for absurd in [
        Policy { ttl_ms_min: 0, ..Policy::default() },
        Policy { ttl_ms_max: u64::MAX, ..Policy::default() },
        Policy { ttl_ms_min: 9_000, ttl_ms_max: 8_000, ..Policy::default() },
        Policy { lock_delay_ms: u64::MAX, ..Policy::default() },
        Policy { minimum_tenure_ms: 1, ..Policy::default() },
        Policy { retry_ms_min: 0, ..Policy::default() },
    ] {
        let answer = bench.store().put_policy(&group, Some(absurd), None).await;
        refused("an absurd policy", answer, |refusal| matches!(refusal, Refusal::Policy(_)))?;
    }
    let view = bench.view(&group).await?;
    ensure!(view.policy == good, "a refused policy left a trace: {view:?}");
    Ok(())
}

pub(super) async fn priorities_order_the_line_and_depose_nobody(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let policy = Policy { priorities: vec![(pattern("vip"), 50)], ..Policy::default() };
    bench.store().put_policy(&group, Some(policy), None).await?;
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let claims = [("early", 0), ("low", -7), ("high", 9), ("late", 0), ("vip", -100)];
    let mut standbys = Vec::new();
    for (name, priority) in claims {
        let standby = bench.player(name, LONG_MS).await?;
        standby.stand_with(&group, priority).await?;
        standbys.push(standby);
    }
    alice.leads(&bench, &group, term).await?;
    let view = bench.view(&group).await?;
    let line: Vec<_> = view.standbys.iter().map(|standby| standby.node.as_str()).collect();
    ensure!(line == ["vip", "high", "early", "late", "low"], "the line is {line:?}");
    ensure!(view.standbys_count == 5, "{} stand", view.standbys_count);
    alice.resign(&group, term).await?;
    let vip = standbys.iter().find(|standby| standby.node == node("vip"));
    let Some(vip) = vip else { return Ok(()) };
    vip.take_over(&bench, &group).await?;
    Ok(())
}

pub(super) async fn a_lock_delay_follows_a_lost_leader_but_not_a_resignation(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let delay_ms = 700;
    let policy = Policy { lock_delay_ms: delay_ms, ..Policy::default() };
    bench.store().put_policy(&group, Some(policy), None).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let first = bob.win(&group).await?;
    bob.resign(&group, first).await?;
    let office = bench.leader(&group).await?;
    ensure!(office.state == OfficeState::Vacant, "a resignation was delayed: {office:?}");

    let alice = bench.player("alice", SHORT_MS).await?;
    let sent_at = bench.now();
    let term = alice.win(&group).await?;
    let delayed = bench.until("the delay begins", || async {
        let office = bench.leader(&group).await?;
        Ok((office.state == OfficeState::Delayed).then_some(office))
    });
    let taken_over = async {
        let term = bob.take_over(&bench, &group).await?;
        Ok::<_, Fault>((term, bench.now()))
    };
    let (delayed, taken_over) = both(delayed, taken_over).await;
    let office = delayed?;
    ensure!(office.leader.is_none() && office.term == term, "the delay shows {office:?}");
    let (next, granted_at) = taken_over?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    let waited_for = granted_at.since(sent_at);
    ensure!(
        waited_for >= bench.at_least(SHORT_MS + delay_ms),
        "granted {waited_for:?} after the last sign of life, not {SHORT_MS} + {delay_ms} ms"
    );
    Ok(())
}

pub(super) async fn a_full_line_takes_nobody_more(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let policy = Policy { standbys_max: 1, ..Policy::default() };
    bench.store().put_policy(&group, Some(policy), None).await?;
    bench.player("alice", LONG_MS).await?.win(&group).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    bob.stand(&group).await?;
    let carol = bench.player("carol", LONG_MS).await?;
    refused("a second standby", carol.store.campaign(carol.bid(&group)).await, |refusal| {
        matches!(refusal, Refusal::Full { max: 1, .. })
    })?;
    bob.stand(&group).await?;
    let one_shot = bench.newcomer("dave", LONG_MS);
    let answer = one_shot.store.campaign(one_shot.passing_bid(&group)).await?;
    ensure!(answer.elected.is_none() && !answer.standing, "it wanted no place: {answer:?}");
    Ok(())
}
