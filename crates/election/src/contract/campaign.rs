//! Campaigning: winning, losing, standing, waiting.

use std::time::Duration;

use super::bench::{Bench, LONG_MS, node, refused};
use super::{Fault, ensure};
use crate::name::Metadata;
use crate::outcome::Refusal;
use crate::store::{Campaign, Campaigned, OfficeState, StoreResult};
use crate::term::Term;
use crate::together::{First, Running, all, both, first};

pub(super) async fn a_first_campaign_wins_and_everybody_can_read_it(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let before = bench.leader(&group).await?;
    ensure!(before.leader.is_none(), "somebody leads a fresh group: {before:?}");
    let alice = bench.newcomer("alice", LONG_MS);
    let told = Metadata::new([("address", "10.0.0.1:80"), ("zone", "b")])
        .expect("two short entries are metadata");
    let bid = Campaign { metadata: told.clone(), ..alice.passing_bid(&group) };
    let answer = alice.store.campaign(bid).await?;
    let Some(term) = answer.elected else {
        return Err(Fault::Broken(format!("a first campaign lost: {answer:?}")));
    };
    ensure!(term > before.term, "term {term} is not above {}", before.term);
    ensure!(answer.session == Some(alice.session), "the winner has no session: {answer:?}");
    ensure!(answer.ttl_ms == LONG_MS, "the winner has another ttl: {answer:?}");
    let office = bench.leader(&group).await?;
    ensure!(
        office.leader == Some(node("alice")) && office.term == term && office.metadata == told,
        "the read does not show the winner: {office:?}"
    );
    ensure!(office.state == OfficeState::Leading, "the winner may not act: {office:?}");
    // A store that was held up may give everybody a full ttl again, and a spread on top that it keeps to itself.
    ensure!(
        office.valid_for.is_none_or(|hint| hint <= Duration::from_millis(LONG_MS)),
        "the hint exceeds the ttl: {office:?}"
    );
    Ok(())
}

pub(super) async fn every_tenure_has_a_term_one_higher(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let mut last = alice.win(&group).await?;
    for _ in 0..3 {
        alice.resign(&group, last).await?;
        let term = alice.win(&group).await?;
        ensure!(Some(term) == last.next(), "term {term} follows term {last}");
        last = term;
    }
    Ok(())
}

pub(super) async fn a_loser_learns_the_leader_and_leaves_nothing_behind(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let term = bench.player("alice", LONG_MS).await?.win(&group).await?;
    let bob = bench.newcomer("bob", LONG_MS);
    let answer = bob.store.campaign(bob.passing_bid(&group)).await?;
    ensure!(answer.elected.is_none() && !answer.standing, "bob did not simply lose: {answer:?}");
    ensure!(
        answer.office.leader == Some(node("alice")) && answer.office.term == term,
        "the loser does not learn the leader: {answer:?}"
    );
    let pause = answer.retry_after.unwrap_or_default();
    let bounds = Duration::from_millis(100)..=Duration::from_millis(LONG_MS / 2);
    ensure!(bounds.contains(&pause), "retry_after {pause:?} is outside the policy: {answer:?}");
    ensure!(answer.session.is_none(), "the loser keeps a session: {answer:?}");
    let view = bench.view(&group).await?;
    ensure!(view.standbys_count == 0, "the loser stands: {view:?}");
    refused("a loser's session", bob.store.session(bob.session).await, |refusal| {
        matches!(refusal, Refusal::SessionUnknown)
    })
}

pub(super) async fn a_loser_with_its_own_session_stands_until_it_is_promoted_and_accepts(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    ensure!(bob.session().await?.standing == [group.clone()], "bob's session does not list it");
    alice.resign(&group, term).await?;
    let next = bob.take_over(&bench, &group).await?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    let heard = bob.store.accept(&group, bob.session, next, None).await?;
    ensure!(heard.ttl_ms == LONG_MS, "accepting again answers {heard:?}");
    bob.renew(&group, next).await?;
    bob.leads(&bench, &group, next).await
}

pub(super) async fn the_leaders_own_session_campaigning_again_keeps_its_term(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let again = alice.win(&group).await?;
    ensure!(again == term, "campaigning again turned term {term} into {again}");
    alice.leads(&bench, &group, term).await
}

pub(super) async fn the_same_node_id_from_another_session_loses(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let twin = bench.newcomer("alice", LONG_MS);
    let answer = twin.store.campaign(twin.passing_bid(&group)).await?;
    ensure!(answer.elected.is_none(), "a shared node id won twice: {answer:?}");
    refused("a twin's renewal", twin.renew(&group, term).await, |refusal| {
        matches!(refusal, Refusal::SessionUnknown | Refusal::NotLeader { .. })
    })?;
    alice.leads(&bench, &group, term).await
}

pub(super) async fn a_campaign_opens_the_session_it_names(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.newcomer("alice", LONG_MS);
    let term = alice.win(&group).await?;
    let session = alice.session().await?;
    ensure!(session.node == alice.node && session.ttl_ms == LONG_MS, "it opened {session:?}");
    alice.resign(&group, term).await?;
    alice.session().await?;
    Ok(())
}

pub(super) async fn a_campaign_with_another_ttl_than_its_session_is_refused(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bid = Campaign { ttl_ms: Some(LONG_MS + 1), ..alice.bid(&group) };
    refused("a campaign with another ttl", alice.store.campaign(bid).await, |refusal| {
        matches!(refusal, Refusal::SessionMismatch)
    })?;
    let bid = Campaign { ttl_ms: None, ..alice.bid(&group) };
    let answer = alice.store.campaign(bid).await?;
    ensure!(answer.ttl_ms == LONG_MS, "no ttl means the session's: {answer:?}");
    Ok(())
}

pub(super) async fn a_waiting_campaign_is_answered_when_it_is_elected(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let bid = Campaign { wait: Some(Duration::from_secs(25)), ..bob.bid(&group) };
    let waiting = bench.in_time("bob is elected", bob.store.campaign(bid));
    let (answer, resigned) = both(waiting, async {
        bench.sleep_ms(150).await;
        alice.resign(&group, term).await
    })
    .await;
    resigned?;
    let answer = answer??;
    ensure!(answer.elected.is_some() && answer.elected == term.next(), "{answer:?}");
    bob.leads(&bench, &group, answer.elected.unwrap_or(Term::NONE)).await
}

pub(super) async fn a_waiting_campaign_that_is_dropped_leaves_no_standby(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let bob = bench.newcomer("bob", LONG_MS);
    let bid = Campaign { wait: Some(Duration::from_secs(9)), ..bob.passing_bid(&group) };
    let seen = bench.until("bob stands while he waits", || async {
        let view = bench.view(&group).await?;
        Ok((view.standbys_count == 1).then_some(()))
    });
    match first(bob.store.campaign(bid), seen).await {
        First::Left(answer) => return Err(Fault::Broken(format!("it did not wait: {answer:?}"))),
        First::Right(seen) => seen?,
    }
    bench
        .until("the dropped campaign leaves no standby", || async {
            let view = bench.view(&group).await?;
            Ok((view.standbys_count == 0).then_some(()))
        })
        .await?;
    alice.resign(&group, term).await?;
    let office = bench.leader(&group).await?;
    ensure!(office.leader.is_none(), "somebody who left was promoted: {office:?}");
    Ok(())
}

pub(super) async fn a_wait_that_is_over_leaves_only_an_own_session_standing(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    bench.player("alice", LONG_MS).await?.win(&group).await?;
    let wait = Some(Duration::from_millis(120));
    let bob = bench.newcomer("bob", LONG_MS);
    let answer = bob.store.campaign(Campaign { wait, ..bob.passing_bid(&group) }).await?;
    ensure!(
        answer.elected.is_none() && !answer.standing && answer.session.is_none(),
        "a passing session outlived its wait: {answer:?}"
    );
    let carol = bench.player("carol", LONG_MS).await?;
    let answer = carol.store.campaign(Campaign { wait, ..carol.bid(&group) }).await?;
    ensure!(answer.elected.is_none() && answer.standing, "an own session left: {answer:?}");
    let view = bench.view(&group).await?;
    let names: Vec<_> = view.standbys.iter().map(|standby| standby.node.as_str()).collect();
    ensure!(names == ["carol"], "in line are {names:?}");
    Ok(())
}

pub(super) async fn racing_campaigns_have_one_winner(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let racers: Vec<_> =
        (0..64).map(|number| bench.newcomer(&format!("racer-{number}"), LONG_MS)).collect();
    let others = bench.other();
    let races = racers
        .iter()
        .zip(0..)
        .map(|(racer, number)| {
            let store = if number % 2 == 0 { &racer.store } else { &others };
            Box::pin(store.campaign(racer.passing_bid(&group)))
                as Running<'_, StoreResult<Campaigned>>
        })
        .collect();
    let mut winners = Vec::new();
    for (racer, answer) in racers.iter().zip(all(races).await) {
        let answer = answer?;
        match answer.elected {
            Some(term) => winners.push((racer, term)),
            None => ensure!(answer.office.leader.is_some(), "lost to nobody: {answer:?}"),
        }
    }
    ensure!(winners.len() == 1, "{} of 64 won", winners.len());
    let (winner, term) = winners[0];
    winner.leads(&bench, &group, term).await
}
