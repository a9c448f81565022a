//! Fences: what a resource has admitted, and the refusal of less (S3).

use super::bench::{Bench, LONG_MS, Player, refused};
use super::{Fault, ensure};
use crate::door::{Door, Step};
use crate::name::{Group, Home, Resource};
use crate::outcome::Refusal;
use crate::store::StoreResult;
use crate::term::Term;

fn resource(name: &str) -> Resource {
    Resource::new(name).expect("the cases name resources well")
}

async fn admit(bench: &Bench, group: &Group, at: &str, term: Term) -> StoreResult<()> {
    bench.store().admit(group, &resource(at), term).await
}

fn is_stale(given: Term, higher: Term) -> impl Fn(&Refusal) -> bool {
    move |no| {
        matches!(no, Refusal::StaleTerm { given: told, current, .. }
            if (*told, *current) == (given, higher))
    }
}

/// A group that had two leaders, their terms, and the second of them.
async fn two_terms(bench: &Bench, group: &Group) -> Result<(Term, Term, Player), Fault> {
    let alice = bench.player("alice", LONG_MS).await?;
    let first = alice.win(group).await?;
    admit(bench, group, "rows", first).await?;
    alice.resign(group, first).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let second = bob.win(group).await?;
    Ok((first, second, bob))
}

pub(super) async fn a_resource_admits_no_lower_term_after_a_higher_one(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let never = |no: &Refusal| matches!(no, Refusal::NeverGranted { .. });
    let early = admit(&bench, &group, "rows", Term::new(1).unwrap_or_default()).await;
    refused("a term that nobody was granted", early, never)?;
    let (first, second, _bob) = two_terms(&bench, &group).await?;
    // Nobody has written under the later term yet: the earlier one may finish.
    admit(&bench, &group, "rows", first).await?;
    for _ in 0..2 {
        bench.other().admit(&group, &resource("rows"), second).await?;
    }
    let late = admit(&bench, &group, "rows", first).await;
    refused("a stale term", late, is_stale(first, second))?;
    let ahead = second.next().unwrap_or_default();
    refused("a term that is yet to come", admit(&bench, &group, "rows", ahead).await, never)?;
    let none = admit(&bench, &group, "rows", Term::NONE).await;
    refused("no term at all", none, never)?;
    // Another resource has its own mark.
    admit(&bench, &group, "logs", first).await?;
    let page = bench.other().fences(&group, "", None, 1).await?;
    ensure!(page.fences.len() == 1 && page.fences[0].mark == first, "{page:?}");
    ensure!(page.next == Some(resource("logs")) && page.term == second, "{page:?}");
    let page = bench.store().fences(&group, "", page.next.as_ref(), 10).await?;
    ensure!(page.fences.len() == 1 && page.fences[0].resource == resource("rows"), "{page:?}");
    ensure!(page.fences[0].mark == second && page.next.is_none(), "{page:?}");
    Ok(())
}

pub(super) async fn a_forgotten_fence_keeps_its_mark_for_all_resources_of_its_group(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let (first, second, _bob) = two_terms(&bench, &group).await?;
    admit(&bench, &group, "rows", second).await?;
    bench.store().forget_fence(&group, &resource("rows")).await?;
    let again = bench.store().forget_fence(&group, &resource("rows")).await;
    refused("forgetting twice", again, |no| matches!(no, Refusal::FenceUnknown { .. }))?;
    for at in ["rows", "logs"] {
        let late = admit(&bench, &group, at, first).await;
        refused("a stale term at a forgotten resource", late, is_stale(first, second))?;
    }
    let page = bench.store().fences(&group, "", None, 10).await?;
    ensure!(page.fences.is_empty() && page.floor == second, "{page:?}");
    admit(&bench, &group, "logs", second).await?;
    Ok(())
}

pub(super) async fn no_fence_falls_when_its_group_is_deleted_or_moves_and_comes_back(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let (first, second, bob) = two_terms(&bench, &group).await?;
    admit(&bench, &group, "rows", second).await?;
    let away = Home::new("memory:elsewhere").expect("the cases name places well");
    bench.store().move_group(&group, Step::Depart { to: away.clone() }, None).await?;
    let gone = admit(&bench, &group, "rows", second).await;
    refused("asking where it was", gone, |no| matches!(no, Refusal::Moved { .. }))?;
    bob.resign(&group, second).await?;
    let view = bench.store().move_group(&group, Step::Expect { from: away }, None).await?;
    let Door::Expected { since, .. } = view.door else {
        return Err(Fault::Broken(format!("it is not expected back: {view:?}")));
    };
    // It had four more leaders where it was.
    let above = Term::new(second.get() + 4).unwrap_or_default();
    bench.store().move_group(&group, Step::Arrive { since, above, heir: None }, None).await?;
    for at in ["rows", "logs"] {
        let late = admit(&bench, &group, at, second).await;
        refused("a term from before it moved", late, is_stale(second, above))?;
    }
    bench.store().delete(&group, None).await?;
    let carol = bench.player("carol", LONG_MS).await?;
    let reborn = carol.win(&group).await?;
    ensure!(reborn > above, "{reborn} was granted after {above}");
    for given in [first, second, above] {
        let late = admit(&bench, &group, "rows", given).await;
        refused("a term of the deleted group", late, is_stale(given, reborn))?;
    }
    admit(&bench, &group, "rows", reborn).await?;
    Ok(())
}
