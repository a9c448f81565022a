//! Handing over: resigning, transferring, offering, withdrawing.

use super::bench::{Bench, LONG_MS, node, refused};
use super::{Fault, ensure};
use crate::name::Reason;
use crate::outcome::{Cause, Refusal};
use crate::policy::Policy;
use crate::store::{Consistency, OfferView, OfficeState, Scope};
use crate::term::Term;

pub(super) async fn resigning_hands_over_at_once(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    // The leader's ttl is far longer than a case's patience: only the resignation can free it.
    alice.resign(&group, term).await?;
    let next = bob.take_over(&bench, &group).await?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    Ok(())
}

pub(super) async fn the_commit_that_ends_a_tenure_starts_the_next(
    bench: Bench,
) -> Result<(), Fault> {
    needs_promotion(&bench)?;
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    let mut watch = bench.store().watch(Scope::Group(group.clone()), None).await?;
    alice.resign(&group, term).await?;
    let event = bench.change(&mut *watch).await?;
    ensure!(
        event.leader == Some(node("bob"))
            && Some(event.term) == term.next()
            && event.cause == Cause::Resigned,
        "the office was empty in between: {event:?}"
    );
    let office = bench.leader(&group).await?;
    ensure!(office.state == OfficeState::Elected, "bob may act before he knows: {office:?}");
    let view = bob.session().await?;
    let is_told = view.tenures.iter().any(|tenure| {
        tenure.group == group && tenure.term == event.term && tenure.state == OfficeState::Elected
    });
    ensure!(is_told && view.epoch > 0, "bob cannot learn of it: {view:?}");
    bob.store.accept(&group, bob.session, event.term, None).await?;
    bob.leads(&bench, &group, event.term).await
}

pub(super) async fn a_transfer_goes_to_the_standby_it_names(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let carol = bench.player("carol", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    carol.stand(&group).await?;
    alice.transfer(&group, term, &carol.node).await?;
    let next = carol.take_over(&bench, &group).await?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    refused("renewal after a transfer", alice.renew(&group, term).await, |refusal| {
        matches!(refusal, Refusal::NotLeader { .. })
    })?;
    carol.leads(&bench, &group, next).await
}

pub(super) async fn a_transfer_that_cannot_be_leaves_the_leader_in_office(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let quiet_ms = 4_000;
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&group).await?;
    let quiet = bench.player("quiet", quiet_ms).await?;
    quiet.stand(&group).await?;
    for _ in 0..2 {
        bench.player("twin", LONG_MS).await?.stand(&group).await?;
    }
    let unknown = alice.transfer(&group, term, &node("nobody")).await;
    refused("a transfer to nobody", unknown, |refusal| {
        matches!(refusal, Refusal::SuccessorUnknown { .. })
    })?;
    refused("a transfer to two", alice.transfer(&group, term, &node("twin")).await, |refusal| {
        matches!(refusal, Refusal::SuccessorAmbiguous { count: 2, .. })
    })?;
    bench.falls_silent(&group, "quiet").await?;
    refused("a transfer to the silent", alice.transfer(&group, term, &quiet.node).await, |no| {
        matches!(no, Refusal::SuccessorSilent { .. })
    })?;
    let twin = bench.player("bob", LONG_MS).await?;
    let foreign = twin.transfer(&group, term, &node("quiet")).await;
    refused("a transfer by another", foreign, |refusal| {
        matches!(refusal, Refusal::NotLeader { .. })
    })?;
    alice.renew(&group, term).await?;
    alice.leads(&bench, &group, term).await
}

pub(super) async fn an_offer_warms_a_standby_while_the_leader_leads_on(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let carol = bench.player("carol", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    carol.stand(&group).await?;
    let store = bench.store();
    store.offer(&group, alice.session, term, &carol.node, None).await?;
    alice.renew(&group, term).await?;
    alice.leads(&bench, &group, term).await?;
    let tenures = alice.session().await?.tenures;
    let is_listed =
        tenures.iter().any(|tenure| tenure.offered_to == Some(node("carol")) && !tenure.is_warm);
    ensure!(is_listed, "the leader's list does not show its offer: {tenures:?}");
    let asked = carol.session().await?;
    let offer = OfferView { group: group.clone(), term, by: node("alice"), is_warm: false };
    ensure!(asked.offers == [offer.clone()], "carol's list does not show the offer: {asked:?}");
    ensure!(asked.epoch > 0, "carol is given no reason to read her list: {asked:?}");
    let heard = carol.heartbeat().await?;
    ensure!(heard.epoch == asked.epoch, "her heartbeat tells another epoch: {heard:?}");
    let other = bob.session().await?;
    ensure!(other.offers.is_empty(), "bob was offered what is carol's: {other:?}");
    let epoch = alice.session().await?.epoch;
    refused(
        "warmth of one that was not asked",
        store.warm(&group, bob.session, term, None).await,
        |refusal| matches!(refusal, Refusal::NoOffer { .. }),
    )?;
    store.warm(&group, carol.session, term, None).await?;
    let told = alice.session().await?;
    let is_warm = told.tenures.iter().any(|tenure| tenure.is_warm);
    ensure!(is_warm && told.epoch > epoch, "alice is not told that carol is warm: {told:?}");
    let offers = carol.session().await?.offers;
    ensure!(offers == [OfferView { is_warm: true, ..offer }], "carol's list shows {offers:?}");
    alice.transfer(&group, term, &carol.node).await?;
    let next = carol.take_over(&bench, &group).await?;
    ensure!(Some(next) == term.next(), "term {next} follows term {term}");
    let offers = carol.session().await?.offers;
    ensure!(offers.is_empty(), "an office in hand is still on offer: {offers:?}");
    Ok(())
}

pub(super) async fn relief_is_an_offer_for_one_term_that_says_why(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let carol = bench.player("carol", LONG_MS).await?;
    let store = bench.store();
    let reason = || Reason::new("alice's renewals come later and later").unwrap_or_default();
    let unknown = store.relieve(&group, Term::NONE, &node("bob"), reason()).await;
    refused("relief of nobody", unknown, |no| matches!(no, Refusal::GroupUnknown { .. }))?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    carol.stand(&group).await?;
    // Another server may be behind: "from now" is after the election only once it knows of it.
    bench.other().leader(&group, Consistency::Linearizable).await?;
    let mut watch = bench.other().watch(Scope::Group(group.clone()), None).await?;
    let absent = store.relieve(&group, term, &node("dave"), reason()).await;
    refused("relief by nobody", absent, |no| matches!(no, Refusal::SuccessorUnknown { .. }))?;
    store.relieve(&group, term, &node("carol"), reason()).await?;
    // Another server comes to another conclusion, too late.
    bench.other().relieve(&group, term, &node("bob"), reason()).await?;
    let event = bench.change(&mut *watch).await?;
    let is_told = event.term == term && event.leader == Some(node("alice"));
    ensure!(is_told && event.cause == Cause::Failing, "watchers see {event:?}");
    alice.renew(&group, term).await?;
    alice.leads(&bench, &group, term).await?;
    let view = alice.session().await?;
    let is_listed = view.tenures.iter().any(|tenure| tenure.offered_to == Some(node("carol")));
    ensure!(is_listed && view.epoch > 0, "alice is not asked: {view:?}");
    let offers = carol.session().await?.offers;
    let offer = OfferView { group: group.clone(), term, by: node("alice"), is_warm: false };
    ensure!(offers == [offer], "carol is not asked: {offers:?}");
    store.warm(&group, carol.session, term, None).await?;
    alice.transfer(&group, term, &carol.node).await?;
    let next = carol.take_over(&bench, &group).await?;
    let late = store.relieve(&group, term, &node("bob"), reason()).await;
    refused("relief of an earlier term", late, |no| matches!(no, Refusal::StaleTerm { .. }))?;
    let history = bench.store().history(&group).await?;
    let told: Vec<_> = history.iter().filter(|it| it.cause == Cause::Failing).collect();
    let is_kept = told.len() == 1 && told[0].reason.as_deref() == Some(&reason());
    ensure!(is_kept, "the history tells {told:?}");
    carol.leads(&bench, &group, next).await
}

pub(super) async fn withdrawing_leaves_the_line_or_the_office(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    alice.win(&group).await?;
    bob.stand(&group).await?;
    bench.store().withdraw(&group, bob.session, None).await?;
    let view = bench.view(&group).await?;
    ensure!(view.standbys_count == 0, "bob stands after withdrawing: {view:?}");
    bench.store().withdraw(&group, alice.session, None).await?;
    let office = bench.leader(&group).await?;
    ensure!(
        matches!(office.state, OfficeState::Ending | OfficeState::Vacant),
        "alice leads on after withdrawing: {office:?}"
    );
    if office.state == OfficeState::Ending {
        alice.resign(&group, office.term).await?;
    }
    let office = bench.leader(&group).await?;
    ensure!(office.leader.is_none(), "alice leads after she has stopped: {office:?}");
    bench.store().withdraw(&group, alice.session, None).await?;
    let last = bench.store().history(&group).await?.pop();
    let cause = last.map(|change| change.cause);
    ensure!(cause == Some(Cause::Withdrawn), "the history says {cause:?}");
    Ok(())
}

pub(super) async fn renewing_an_office_accepts_it(bench: Bench) -> Result<(), Fault> {
    needs_promotion(&bench)?;
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let term = alice.win(&group).await?;
    bob.stand(&group).await?;
    alice.resign(&group, term).await?;
    let office = bench.leader(&group).await?;
    ensure!(office.state == OfficeState::Elected, "bob may act before he knows: {office:?}");
    bob.renew(&group, office.term).await?;
    bob.leads(&bench, &group, office.term).await
}

pub(super) async fn a_promoted_standby_that_does_not_accept_is_passed_over(
    bench: Bench,
) -> Result<(), Fault> {
    needs_promotion(&bench)?;
    let group = bench.group();
    let ttl_ms = 3_000;
    let alice = bench.player("alice", LONG_MS).await?;
    let absent = bench.player("absent", ttl_ms).await?;
    let carol = bench.player("carol", LONG_MS).await?;
    let term = alice.win(&group).await?;
    absent.stand(&group).await?;
    carol.stand(&group).await?;
    let resigned_at = bench.now();
    alice.resign(&group, term).await?;
    let promoted = bench.leader(&group).await?;
    ensure!(
        promoted.leader == Some(node("absent")) && promoted.state == OfficeState::Elected,
        "the first in line was not promoted: {promoted:?}"
    );
    let next = bench
        .until("carol is promoted", || async {
            let office = bench.leader(&group).await?;
            Ok((office.leader == Some(node("carol"))).then_some(office))
        })
        .await?;
    let waited_for = bench.now().since(resigned_at);
    ensure!(
        waited_for >= bench.at_least(ttl_ms / 3),
        "passed over after {waited_for:?}, a third of {ttl_ms} ms was its time"
    );
    ensure!(Some(next.term) == promoted.term.next(), "{} follows {}", next.term, promoted.term);
    let late = absent.store.accept(&group, absent.session, promoted.term, None).await;
    refused("acceptance after being passed over", late, |refusal| {
        matches!(refusal, Refusal::NotLeader { .. })
    })?;
    carol.store.accept(&group, carol.session, next.term, None).await?;
    carol.leads(&bench, &group, next.term).await
}

pub(super) async fn an_office_nobody_audible_stood_for_is_filled_when_one_is_heard(
    bench: Bench,
) -> Result<(), Fault> {
    needs_promotion(&bench)?;
    let group = bench.group();
    let quiet_ms = 4_000;
    let alice = bench.player("alice", LONG_MS).await?;
    let quiet = bench.player("quiet", quiet_ms).await?;
    let term = alice.win(&group).await?;
    quiet.stand(&group).await?;
    bench.falls_silent(&group, "quiet").await?;
    alice.resign(&group, term).await?;
    let office = bench.leader(&group).await?;
    ensure!(office.state == OfficeState::Vacant, "a silent standby was promoted: {office:?}");
    quiet.heartbeat().await?;
    let office = bench
        .until("the standby is promoted once it is heard", || async {
            let office = bench.leader(&group).await?;
            Ok((office.state == OfficeState::Elected).then_some(office))
        })
        .await?;
    ensure!(office.leader == Some(node("quiet")), "somebody else was promoted: {office:?}");
    quiet.store.accept(&group, quiet.session, office.term, None).await?;
    quiet.leads(&bench, &group, office.term).await
}

pub(super) async fn every_office_that_waited_for_a_silent_standby_is_filled_when_it_is_heard(
    bench: Bench,
) -> Result<(), Fault> {
    needs_promotion(&bench)?;
    let groups = [bench.group(), bench.group(), bench.group()];
    let alice = bench.player("alice", LONG_MS).await?;
    let quiet = bench.player("quiet", 8_000).await?;
    let mut terms = Vec::new();
    for group in &groups {
        terms.push(alice.win(group).await?);
        quiet.stand(group).await?;
    }
    for group in &groups {
        bench.falls_silent(group, "quiet").await?;
    }
    for (group, term) in groups.iter().zip(terms) {
        alice.resign(group, term).await?;
        let office = bench.leader(group).await?;
        ensure!(office.state == OfficeState::Vacant, "a silent standby was promoted: {office:?}");
    }
    quiet.heartbeat().await?;
    for group in &groups {
        let is_promoted = || async {
            let office = bench.leader(group).await?;
            Ok((office.leader == Some(node("quiet"))).then_some(()))
        };
        bench.until("the standby is promoted in every group", is_promoted).await?;
        // Others wait for it, too: it must not fall silent meanwhile.
        quiet.heartbeat().await?;
    }
    Ok(())
}

pub(super) async fn a_change_of_policy_promotes_no_silent_standby(
    bench: Bench,
) -> Result<(), Fault> {
    needs_promotion(&bench)?;
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let quiet = bench.player("quiet", 6_000).await?;
    let term = alice.win(&group).await?;
    quiet.stand(&group).await?;
    bench.falls_silent(&group, "quiet").await?;
    alice.resign(&group, term).await?;
    let policy = Policy { lock_delay_ms: 1, ..Policy::default() };
    bench.store().put_policy(&group, Some(policy), None).await?;
    let office = bench.leader(&group).await?;
    ensure!(office.leader.is_none(), "a silent standby was promoted: {office:?}");
    quiet.heartbeat().await?;
    let is_promoted = || async {
        let office = bench.leader(&group).await?;
        Ok((office.leader == Some(node("quiet"))).then_some(()))
    };
    bench.until("the standby is promoted once it is heard", is_promoted).await
}

fn needs_promotion(bench: &Bench) -> Result<(), Fault> {
    if bench.abilities().promotes_in_one_commit {
        return Ok(());
    }
    Err(Fault::Skipped("this store's candidates take an office by themselves".into()))
}
