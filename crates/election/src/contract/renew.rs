//! Staying alive: heartbeats, renewals, and what silence costs.

use std::time::Duration;

use super::bench::{Bench, LONG_MS, Player, SHORT_MS, node, refused};
use super::{Fault, ensure};
use crate::outcome::Refusal;
use crate::policy::Policy;
use crate::store::{Campaign, Heartbeat};
use crate::term::Term;
use crate::together::both;

pub(super) async fn only_the_holder_of_the_current_term_renews(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let is_not_leader = |refusal: &Refusal| matches!(refusal, Refusal::NotLeader { .. });
    let first = alice.win(&group).await?;
    alice.resign(&group, first).await?;
    refused("renewal after resigning", alice.renew(&group, first).await, is_not_leader)?;
    let term = alice.win(&group).await?;
    alice.renew(&group, term).await?;
    refused("renewal of an old term", alice.renew(&group, first).await, is_not_leader)?;
    let next = term.next().unwrap_or(Term::NONE);
    refused("renewal of a term to come", alice.renew(&group, next).await, is_not_leader)?;
    refused("renewal by another session", bob.renew(&group, term).await, is_not_leader)?;
    let nobody = bench.newcomer("alice", LONG_MS);
    refused("renewal by an unknown session", nobody.renew(&group, term).await, |refusal| {
        matches!(refusal, Refusal::SessionUnknown)
    })?;
    alice.leads(&bench, &group, term).await
}

pub(super) async fn a_refused_renewal_extends_nothing(bench: Bench) -> Result<(), Fault> {
    let (kept, lost) = (bench.group(), bench.group());
    // Long enough for what comes before the silence, on a slow store too.
    let alice = bench.player("alice", 5_000).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let bounds = Policy { ttl_ms_min: 1_000, ttl_ms_max: 40_000, ..Policy::default() };
    bench.store().put_policy(&kept, Some(bounds), None).await?;
    let term = alice.win(&kept).await?;
    let over = alice.win(&lost).await?;
    alice.resign(&lost, over).await?;
    bob.stand(&kept).await?;
    let is_gone =
        |refusal: &Refusal| matches!(refusal, Refusal::NotLeader { .. } | Refusal::SessionUnknown);
    // Many times a ttl: if one of them counted, the session would live on, and with it the other office.
    bench
        .until("succeeding a leader whose renewals are refused", || async {
            refused("renewal of a term that is over", alice.renew(&lost, over).await, is_gone)?;
            let by = |ttl_ms| alice.store.renew(&lost, alice.session, over, Some(ttl_ms));
            refused("the same, by another length", by(6_000).await, is_gone)?;
            // Outside what the group allows, and outside what any store does.
            for ttl_ms in [50_000, 1] {
                let asked = alice.store.renew(&kept, alice.session, term, Some(ttl_ms)).await;
                refused("renewal by a length that is not allowed", asked, |refusal| {
                    matches!(refusal, Refusal::TtlOutOfBounds { .. }) || is_gone(refusal)
                })?;
            }
            Ok((bench.leader(&kept).await?.term > term).then_some(()))
        })
        .await
}

pub(super) async fn a_silent_leader_is_succeeded_after_a_whole_ttl_and_not_a_moment_sooner(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", SHORT_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let bid = Campaign { wait: Some(Duration::from_secs(25)), ..bob.bid(&group) };
    let waiting = async {
        let answer = bench.in_time("bob succeeds", bob.store.campaign(bid)).await;
        (answer, bench.now())
    };
    let ((answer, elected_at), last_sent_at) = both(waiting, async {
        let mut last_sent_at = None;
        for _ in 0..3 {
            bench.sleep_ms(SHORT_MS / 4).await;
            let sent_at = bench.now();
            if alice.renew(&group, term).await.is_ok() {
                last_sent_at = Some(sent_at);
            }
        }
        last_sent_at
    })
    .await;
    let answer = answer??;
    ensure!(answer.elected == term.next(), "the successor's term is odd: {answer:?}");
    let Some(last_sent_at) = last_sent_at else {
        return Err(Fault::Broken("no heartbeat was acknowledged".into()));
    };
    let waited_for = elected_at.since(last_sent_at);
    ensure!(
        waited_for >= bench.at_least(SHORT_MS),
        "succeeded {waited_for:?} after a heartbeat that was good for {SHORT_MS} ms"
    );
    refused("renewal by an expired leader", alice.renew(&group, term).await, |refusal| {
        matches!(refusal, Refusal::SessionUnknown | Refusal::NotLeader { .. })
    })
}

pub(super) async fn heartbeats_keep_a_leader_in_office(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", 2 * SHORT_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    for _ in 0..12 {
        bench.sleep_ms(SHORT_MS / 3).await;
        let heard = alice.renew(&group, term).await?;
        ensure!(heard.ttl_ms == 2 * SHORT_MS, "another ttl was promised: {heard:?}");
    }
    alice.leads(&bench, &group, term).await
}

pub(super) async fn one_heartbeat_keeps_all_tenures_of_a_session(
    bench: Bench,
) -> Result<(), Fault> {
    let groups = [bench.group(), bench.group(), bench.group()];
    let alice = bench.player("alice", 2 * SHORT_MS).await?;
    let mut terms = Vec::new();
    for group in &groups {
        terms.push(alice.win(group).await?);
    }
    for _ in 0..12 {
        bench.sleep_ms(SHORT_MS / 3).await;
        alice.heartbeat().await?;
    }
    for (group, term) in groups.iter().zip(terms) {
        alice.leads(&bench, group, term).await?;
    }
    Ok(())
}

pub(super) async fn a_campaign_is_a_sign_of_life(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    bench.player("alice", LONG_MS).await?.win(&group).await?;
    let bob = bench.player("bob", 2 * SHORT_MS).await?;
    for _ in 0..10 {
        bob.stand(&group).await?;
        bench.sleep_ms(SHORT_MS / 3).await;
    }
    bob.session().await?;
    Ok(())
}

pub(super) async fn a_heartbeat_that_is_not_newer_is_refused(bench: Bench) -> Result<(), Fault> {
    let alice = bench.player("alice", LONG_MS).await?;
    let heartbeat = async |sequence: u64| {
        let heartbeat = Heartbeat {
            session: alice.session,
            sequence: Some(sequence),
            disowned: Vec::new(),
            beliefs: None,
        };
        alice.store.heartbeat(heartbeat).await
    };
    heartbeat(7).await?;
    heartbeat(9).await?;
    for late in [9, 8, 0] {
        refused("a late heartbeat", heartbeat(late).await, |refusal| {
            *refusal == Refusal::HeartbeatNotNewer { given: late, last: 9 }
        })?;
    }
    heartbeat(10).await?;
    Ok(())
}

pub(super) async fn a_renewal_by_another_length_changes_the_ttl(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let longer_ms = LONG_MS + 5_000;
    let extend =
        async |by_ms: u64| alice.store.renew(&group, alice.session, term, Some(by_ms)).await;
    let heard = extend(longer_ms).await?;
    ensure!(heard.ttl_ms == longer_ms, "the answer promises another ttl: {heard:?}");
    let session = alice.session().await?;
    ensure!(session.ttl_ms == longer_ms, "the session has another ttl: {session:?}");
    refused("an absurd ttl", extend(u64::MAX).await, |refusal| {
        matches!(refusal, Refusal::TtlOutOfBounds { .. })
    })?;
    refused("a ttl of nothing", extend(0).await, |refusal| {
        matches!(refusal, Refusal::TtlOutOfBounds { .. })
    })?;
    alice.leads(&bench, &group, term).await
}

pub(super) async fn a_disowned_term_is_resigned_by_the_heartbeat_that_lists_it(
    bench: Bench,
) -> Result<(), Fault> {
    let (kept, lost) = (bench.group(), bench.group());
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let kept_term = alice.win(&kept).await?;
    let lost_term = alice.win(&lost).await?;
    bob.stand(&lost).await?;
    disown(&alice, vec![(lost.clone(), lost_term)]).await?;
    let next = bob.take_over(&bench, &lost).await?;
    ensure!(Some(next) == lost_term.next(), "term {next} follows term {lost_term}");
    // Disowning what is over already, or another's, changes nothing.
    disown(&alice, vec![(lost.clone(), lost_term), (lost.clone(), next)]).await?;
    bob.leads(&bench, &lost, next).await?;
    let office = bench.leader(&kept).await?;
    ensure!(office.leader == Some(node("alice")), "the other office was lost: {office:?}");
    alice.leads(&bench, &kept, kept_term).await
}

async fn disown(player: &Player, disowned: Vec<(crate::Group, Term)>) -> Result<(), Fault> {
    let heartbeat = Heartbeat { session: player.session, sequence: None, disowned, beliefs: None };
    player.store.heartbeat(heartbeat).await?;
    Ok(())
}
