//! Groups that move to another store, or come from one.

use super::bench::{Bench, LONG_MS, refused};
use super::{Fault, ensure};
use crate::door::{Door, Step};
use crate::name::{Group, Home, Node};
use crate::outcome::{Cause, Refusal};
use crate::policy::Policy;
use crate::store::OfficeState;
use crate::term::{Revision, Term};

fn home(url: &str) -> Home {
    Home::new(url).expect("the cases name places well")
}

/// Closes the door for a group that is to come, and says by which revision it is named.
async fn expected(bench: &Bench, group: &Group) -> Result<Revision, Fault> {
    let from = home("memory:elsewhere");
    let view = bench.store().move_group(group, Step::Expect { from: from.clone() }, None).await?;
    match view.door {
        Door::Expected { from: known, since } if known == from => Ok(since),
        door => Err(Fault::Broken(format!("it is not expected: {door:?}"))),
    }
}

fn arrival(since: Revision, above: u64, heir: Option<&Node>) -> Step {
    let above = Term::new(above).expect("the cases name terms well");
    Step::Arrive { since, above, heir: heir.cloned() }
}

pub(super) async fn a_group_that_departs_lets_its_leader_stop_and_tells_where_it_went(
    bench: Bench,
) -> Result<(), Fault> {
    let (group, to) = (bench.group(), home("memory:elsewhere"));
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    let depart = Step::Depart { to: to.clone() };
    for _ in 0..2 {
        let view = bench.store().move_group(&group, depart.clone(), None).await?;
        ensure!(view.door == Door::Moved { to: to.clone() }, "{view:?}");
        ensure!(view.ending == Some(Cause::Moved) && view.standbys_count == 0, "{view:?}");
    }
    refused("renewing while it departs", alice.renew(&group, term).await, |no| {
        matches!(no, Refusal::TenureEnding { cause: Cause::Moved, .. })
    })?;
    let is_moved = |no: &Refusal| matches!(no, Refusal::Moved { to: known, .. } if *known == to);
    refused("standing while it departs", bob.store.campaign(bob.bid(&group)).await, is_moved)?;
    alice.resign(&group, term).await?;
    let office = bench.leader(&group).await?;
    ensure!(office.state == OfficeState::Vacant && office.term == term, "{office:?}");
    ensure!(office.moved_to.as_ref() == Some(&to), "a reader is not told: {office:?}");
    refused("coming after it moved", alice.store.campaign(alice.bid(&group)).await, is_moved)?;
    let standing = bob.session().await?.standing;
    ensure!(!standing.contains(&group), "bob still stands where nobody is elected");
    let elsewhere = Step::Depart { to: home("memory:another") };
    let again = bench.store().move_group(&group, elsewhere, None).await;
    refused("moving it to two places", again, is_moved)
}

pub(super) async fn an_expected_group_grants_nobody_until_it_arrives_above_the_old_terms(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let since = expected(&bench, &group).await?;
    ensure!(since == expected(&bench, &group).await?, "a repeat closed the door anew");
    // Neither another move nor the group itself gets past it.
    let is_on_its_way = |no: &Refusal| matches!(no, Refusal::OnItsWay { .. });
    let strange = home("memory:another");
    for step in [Step::Expect { from: strange.clone() }, Step::Depart { to: strange }] {
        let answer = bench.store().move_group(&group, step, None).await;
        refused("a second move at once", answer, is_on_its_way)?;
    }
    let bob = bench.player("bob", LONG_MS).await?;
    let alice = bench.player("alice", LONG_MS).await?;
    bob.stand(&group).await?;
    alice.stand(&group).await?;
    let late = bench
        .store()
        .move_group(&group, arrival(Revision(since.0 + 1_000_000), 41, None), None)
        .await;
    refused("an arrival of another move", late, |no| matches!(no, Refusal::NotExpected { .. }))?;
    let view = bench.view(&group).await?;
    ensure!(view.office.leader.is_none() && view.standbys_count == 2, "{view:?}");
    let step = arrival(since, 41, Some(&alice.node));
    bench.store().move_group(&group, step.clone(), None).await?;
    let term = alice.take_over(&bench, &group).await?;
    ensure!(term.get() == 42, "it arrived above term 41 and alice leads under {term}");
    // A second try of the arrival opens nothing and changes nothing.
    let again = bench.store().move_group(&group, step, None).await;
    refused("a second arrival", again, |no| matches!(no, Refusal::NotExpected { .. }))?;
    alice.leads(&bench, &group, term).await
}

pub(super) async fn a_group_stopped_for_recovery_elects_nobody_until_it_is_resumed(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    let stopped = bench.store().move_group(&group, Step::Stop, None).await?;
    let Door::Stopped { since } = stopped.door else {
        return Err(Fault::Broken(format!("it is not stopped: {stopped:?}")));
    };
    // Its leader ends gently, its line stays, and the same again changes nothing.
    let again = bench.store().move_group(&group, Step::Stop, None).await?;
    for view in [stopped, again] {
        ensure!(view.door == Door::Stopped { since }, "{view:?}");
        ensure!(view.office.state == OfficeState::Ending && view.standbys_count == 1, "{view:?}");
    }
    refused("renewing in a stopped group", alice.renew(&group, term).await, |no| {
        matches!(no, Refusal::TenureEnding { cause: Cause::SteppedDown, .. })
    })?;
    alice.resign(&group, term).await?;
    // Neither a candidate, nor another policy, nor another verb opens the door.
    alice.stand(&group).await?;
    bench.store().put_policy(&group, Some(Policy::default()), None).await?;
    bench.store().put_policy(&group, None, None).await?;
    let is_stopped =
        |no: &Refusal| matches!(no, Refusal::Stopped { since: at, .. } if *at == since);
    refused("deleting it", bench.store().delete(&group, None).await, is_stopped)?;
    let from = home("memory:elsewhere");
    let other = Step::Resume { since: Revision(since.0 + 1_000_000) };
    for step in [Step::Expect { from: from.clone() }, Step::Depart { to: from }, other] {
        let answer = bench.store().move_group(&group, step, None).await;
        refused("a step that is not its resumption", answer, is_stopped)?;
    }
    let view = bench.view(&group).await?;
    ensure!(view.office.leader.is_none() && view.office.term == term, "{view:?}");
    ensure!(view.door == Door::Stopped { since } && view.standbys_count == 2, "{view:?}");
    for _ in 0..2 {
        let view = bench.store().move_group(&group, Step::Resume { since }, None).await?;
        ensure!(view.door == Door::Open, "{view:?}");
    }
    let next = bob.take_over(&bench, &group).await?;
    ensure!(next.get() == term.get() + 1, "it stopped at {term} and went on at {next}");
    Ok(())
}

pub(super) async fn a_closed_door_outlives_deletion_and_opens_by_two_steps_only(
    bench: Bench,
) -> Result<(), Fault> {
    let (group, to) = (bench.group(), home("memory:elsewhere"));
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let expect = Step::Expect { from: to.clone() };
    let early = bench.store().move_group(&group, expect.clone(), None).await;
    refused("expecting one that is led here", early, |no| matches!(no, Refusal::StillLed { .. }))?;
    bench.store().move_group(&group, Step::Depart { to: to.clone() }, None).await?;
    alice.resign(&group, term).await?;
    let is_moved = |no: &Refusal| matches!(no, Refusal::Moved { .. });
    refused("deleting one that moved", bench.store().delete(&group, None).await, is_moved)?;
    let at_once = bench.store().move_group(&group, arrival(Revision(1), 1, None), None).await;
    refused("reopening it by one step", at_once, is_moved)?;
    let strange = Step::Expect { from: home("memory:another") };
    let answer = bench.store().move_group(&group, strange, None).await;
    refused("expecting it from where it did not go", answer, is_moved)?;
    let view = bench.store().move_group(&group, expect, None).await?;
    let Door::Expected { since, .. } = view.door else {
        return Err(Fault::Broken(format!("it is not expected back: {view:?}")));
    };
    refused("deleting one on its way", bench.store().delete(&group, None).await, |no| {
        matches!(no, Refusal::OnItsWay { .. })
    })?;
    bench.store().move_group(&group, arrival(since, term.get() + 7, None), None).await?;
    let back = alice.take_over(&bench, &group).await?;
    ensure!(back.get() == term.get() + 8, "it left at {term} and came back to {back}");
    Ok(())
}
