//! Groups as operators and readers see them.

use super::bench::{Bench, LONG_MS, SHORT_MS, node, refused};
use super::{Fault, ensure};
use crate::command::Finding;
use crate::name::{Group, Reason};
use crate::outcome::{Cause, Refusal};
use crate::store::{Consistency, OfficeState, Scope};
use crate::term::Term;

pub(super) async fn an_answer_is_seen_by_every_later_read(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let other = bench.other();
    let mut last = None;
    for _ in 0..5 {
        let term = alice.win(&group).await?;
        let office = other.leader(&group, Consistency::Linearizable).await?;
        ensure!(office.term == term && office.leader.is_some(), "won {term}, read {office:?}");
        alice.resign(&group, term).await?;
        let office = other.leader(&group, Consistency::Linearizable).await?;
        ensure!(office.leader.is_none(), "resigned {term}, read {office:?}");
        ensure!(last < Some(office.revision), "revisions fell to {}", office.revision);
        last = Some(office.revision);
    }
    Ok(())
}

pub(super) async fn many_groups_are_read_in_the_order_asked_and_counted(
    bench: Bench,
) -> Result<(), Fault> {
    let (led, vacant, unknown) = (bench.group(), bench.group(), bench.group());
    let alice = bench.player("alice", LONG_MS).await?;
    let term = alice.win(&led).await?;
    let over = alice.win(&vacant).await?;
    alice.resign(&vacant, over).await?;
    let asked = vec![vacant.clone(), led.clone(), unknown.clone()];
    let leaders = bench.store().leaders(asked.clone()).await?;
    let told: Vec<_> = leaders.iter().map(|it| (&it.group, it.term, it.leader.clone())).collect();
    let expected =
        [(&vacant, over, None), (&led, term, Some(node("alice"))), (&unknown, Term::NONE, None)];
    ensure!(told == expected, "the leaders are {told:?}");
    let offices = bench.store().offices(asked).await?;
    let told: Vec<_> =
        offices.offices.iter().map(|note| note.map(|it| (it.is_led, it.is_wanted))).collect();
    ensure!(
        told == [Some((false, false)), Some((true, true)), None],
        "the offices are {offices:?}"
    );
    let is_counted = offices.led >= 1 && offices.wanted >= offices.led;
    ensure!(is_counted, "{} of {} groups are led", offices.led, offices.wanted);
    Ok(())
}

pub(super) async fn terms_rise_through_resignation_expiry_and_deletion(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let mut terms = vec![alice.win(&group).await?];
    alice.resign(&group, terms[0]).await?;

    let brief = bench.player("brief", SHORT_MS).await?;
    terms.push(brief.win(&group).await?);
    terms.push(alice.take_over(&bench, &group).await?);

    bench.store().delete(&group, None).await?;
    bench.store().close(alice.session).await?;
    let carol = bench.player("carol", LONG_MS).await?;
    terms.push(carol.take_over(&bench, &group).await?);
    ensure!(terms.is_sorted_by(|left, right| left < right), "terms went {terms:?}");
    Ok(())
}

pub(super) async fn a_groups_history_tells_the_causes(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let bob = bench.player("bob", LONG_MS).await?;
    let first = alice.win(&group).await?;
    alice.resign(&group, first).await?;
    let second = alice.win(&group).await?;
    bob.stand(&group).await?;
    alice.transfer(&group, second, &bob.node).await?;
    let third = bob.take_over(&bench, &group).await?;
    bench.step_down(&group, true).await?;
    let history = bench.store().history(&group).await?;
    let told: Vec<_> = history
        .iter()
        .map(|change| (change.term, change.leader.clone(), change.cause))
        .filter(|(_, leader, cause)| leader.is_some() || *cause != Cause::Transferred)
        .collect();
    let expected = [
        (first, Some(node("alice")), Cause::Elected),
        (first, None, Cause::Resigned),
        (second, Some(node("alice")), Cause::Elected),
        (third, Some(node("bob")), Cause::Transferred),
        (third, None, Cause::Forced),
    ];
    ensure!(told == expected, "the history tells {told:?}");
    let is_ordered = history.is_sorted_by(|left, right| left.revision < right.revision);
    ensure!(is_ordered, "the history is out of order: {history:?}");
    Ok(())
}

pub(super) async fn a_finding_is_kept_and_told_once_and_changes_nobodys_office(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let is_unknown = |refusal: &Refusal| matches!(refusal, Refusal::GroupUnknown { .. });
    let reason = || Reason::new("mallory acts under term 9").unwrap_or_default();
    let store = bench.store();
    let report = |finding| store.report(&group, finding, reason());
    refused("a finding about nothing", report(Finding::SplitBrain).await, is_unknown)?;
    let alice = bench.player("alice", LONG_MS).await?;
    let mut watch = bench.other().watch(Scope::Group(group.clone()), None).await?;
    let term = alice.win(&group).await?;
    for _ in 0..2 {
        report(Finding::SplitBrain).await?;
    }
    report(Finding::NearMiss).await?;
    for cause in [Cause::Elected, Cause::SplitBrain, Cause::NearMiss] {
        let event = bench.change(&mut *watch).await?;
        let is_same = event.term == term && event.leader == Some(node("alice"));
        ensure!(is_same && event.cause == cause, "expected {cause}, saw {event:?}");
    }
    let history = bench.store().history(&group).await?;
    let told: Vec<_> = history.iter().map(|it| (it.term, it.leader.clone(), it.cause)).collect();
    let expected = [Cause::Elected, Cause::SplitBrain, Cause::NearMiss]
        .map(|cause| (term, Some(node("alice")), cause));
    ensure!(told == expected, "the history tells {told:?}");
    let kept = history.get(1).and_then(|change| change.reason.as_deref());
    ensure!(kept == Some(&reason()), "the history does not say what: {history:?}");
    alice.renew(&group, term).await?;
    alice.resign(&group, term).await?;
    Ok(())
}

pub(super) async fn groups_are_listed_in_pages_by_name(bench: Bench) -> Result<(), Fault> {
    let parent = bench.parent();
    let alice = bench.player("alice", LONG_MS).await?;
    let mut expected: Vec<(Group, Term)> = Vec::new();
    for _ in 0..7 {
        let group = bench.group_under(&parent);
        let term = alice.win(&group).await?;
        expected.push((group, term));
    }
    expected.sort();
    let prefix = format!("{parent}/");
    let mut listed = Vec::new();
    let mut after: Option<Group> = None;
    for _ in 0..10 {
        let page = bench.store().groups(&prefix, after.as_ref(), 3).await?;
        ensure!(page.groups.len() <= 3, "a page of 3 has {}", page.groups.len());
        listed.extend(page.groups.into_iter().map(|office| (office.group, office.term)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    ensure!(after.is_none(), "the pages have no end");
    ensure!(listed == expected, "listed {listed:?}, expected {expected:?}");
    let nothing = bench.store().groups(&bench.parent(), None, 3).await?;
    ensure!(nothing.groups.is_empty() && nothing.next.is_none(), "{nothing:?}");
    Ok(())
}

pub(super) async fn a_group_nobody_named_has_no_leader(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    for consistency in [Consistency::Linearizable, Consistency::Stale] {
        let office = bench.store().leader(&group, consistency).await?;
        ensure!(
            office.leader.is_none()
                && office.state == OfficeState::Vacant
                && office.term == Term::NONE,
            "a read of nothing shows {office:?}"
        );
    }
    let is_unknown = |refusal: &Refusal| matches!(refusal, Refusal::GroupUnknown { .. });
    refused("an unknown group", bench.store().group(&group).await, is_unknown)?;
    refused("its history", bench.store().history(&group).await, is_unknown)?;
    refused("its deletion", bench.store().delete(&group, None).await, is_unknown)?;
    let page = bench.store().groups(group.as_str(), None, 9).await?;
    ensure!(page.groups.is_empty(), "reading made a group: {page:?}");
    Ok(())
}
