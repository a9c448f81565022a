//! Watching: every change, in order, once, or an explicit gap (S5).

use super::bench::{Bench, LONG_MS, Player, node};
use super::{Fault, ensure};
use crate::name::Group;
use crate::outcome::{Cause, Event};
use crate::store::{Scope, WatchItem};
use crate::term::{Cursor, Incarnation, Revision, Term};

/// Two changes: a tenure begins, and ends with nobody in office.
async fn reign(player: &Player, group: &Group) -> Result<Term, Fault> {
    let term = player.win(group).await?;
    player.resign(group, term).await?;
    Ok(term)
}

fn is_election(event: &Event, group: &Group, term: Term) -> bool {
    event.group == *group
        && event.term == term
        && event.leader == Some(node("alice"))
        && event.cause == Cause::Elected
}

fn is_resignation(event: &Event, group: &Group, term: Term) -> bool {
    event.group == *group
        && event.term == term
        && event.leader.is_none()
        && event.cause == Cause::Resigned
}

pub(super) async fn a_watch_sees_every_change_in_order_and_that_nobody_leads(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let mut watch = bench.other().watch(Scope::Group(group.clone()), None).await?;
    let mut last: Option<Event> = None;
    for _ in 0..4 {
        let term = reign(&alice, &group).await?;
        let elected = bench.change(&mut *watch).await?;
        ensure!(is_election(&elected, &group, term), "expected term {term}, saw {elected:?}");
        let resigned = bench.change(&mut *watch).await?;
        ensure!(is_resignation(&resigned, &group, term), "expected a vacancy, saw {resigned:?}");
        if let Some(last) = last {
            ensure!(last.revision < elected.revision, "{elected:?} came after {last:?}");
        }
        ensure!(elected.revision < resigned.revision, "{resigned:?} came after {elected:?}");
        last = Some(resigned);
    }
    bench.nothing(&mut *watch).await
}

pub(super) async fn a_watch_resumes_from_any_cursor_without_a_gap_or_a_repeat(
    bench: Bench,
) -> Result<(), Fault> {
    let group = bench.group();
    let scope = Scope::Group(group.clone());
    let alice = bench.player("alice", LONG_MS).await?;
    let mut watch = bench.store().watch(scope.clone(), None).await?;
    let mut cursors = vec![watch.cursor()];
    for _ in 0..3 {
        reign(&alice, &group).await?;
    }
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(bench.change(&mut *watch).await?);
        cursors.push(watch.cursor());
    }
    for (known, cursor) in cursors.into_iter().enumerate() {
        let mut resumed = bench.other().watch(scope.clone(), Some(cursor)).await?;
        for expected in &seen[known..] {
            let event = bench.change(&mut *resumed).await?;
            ensure!(event == *expected, "after {cursor} came {event:?}, not {expected:?}");
        }
        if known == 0 || known == seen.len() {
            bench.nothing(&mut *resumed).await?;
        }
    }
    Ok(())
}

pub(super) async fn a_watch_from_a_read_misses_nothing(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    reign(&alice, &group).await?;
    let read = bench.leader(&group).await?;
    let term = reign(&alice, &group).await?;
    let mut watch = bench.other().watch(Scope::Group(group.clone()), Some(read.cursor)).await?;
    let event = bench.change(&mut *watch).await?;
    ensure!(is_election(&event, &group, term), "after the read came {event:?}");
    let event = bench.change(&mut *watch).await?;
    ensure!(is_resignation(&event, &group, term), "then came {event:?}");
    bench.nothing(&mut *watch).await
}

pub(super) async fn a_cursor_in_the_future_yields_nothing_older(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let present = bench.leader(&group).await?.cursor;
    let ahead = Cursor { revision: Revision(present.revision.0 + 4), ..present };
    let mut watch = bench.store().watch(Scope::Group(group.clone()), Some(ahead)).await?;
    let mut terms = Vec::new();
    for _ in 0..6 {
        terms.push(reign(&alice, &group).await?);
    }
    let Some(last) = terms.last() else { return Ok(()) };
    loop {
        let event = bench.change(&mut *watch).await?;
        ensure!(event.revision > ahead.revision, "{event:?} is older than {ahead}");
        if is_resignation(&event, &group, *last) {
            return Ok(());
        }
    }
}

pub(super) async fn a_cursor_of_another_life_is_told_of_a_gap(bench: Bench) -> Result<(), Fault> {
    let group = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let present = bench.leader(&group).await?.cursor;
    let foreign = Cursor { incarnation: Incarnation(present.incarnation.0 ^ 1), ..present };
    let mut watch = bench.store().watch(Scope::Group(group.clone()), Some(foreign)).await?;
    let item = bench.in_time("a gap", watch.next()).await?;
    let Some(WatchItem::Gap { at, .. }) = item else {
        return Err(Fault::Broken(format!("a cursor of another life was served: {item:?}")));
    };
    ensure!(at.incarnation == present.incarnation, "it goes on in another life: {at}");
    let term = reign(&alice, &group).await?;
    let event = bench.change(&mut *watch).await?;
    ensure!(is_election(&event, &group, term), "after the gap came {event:?}");
    Ok(())
}

pub(super) async fn a_watch_sees_only_what_it_covers(bench: Bench) -> Result<(), Fault> {
    let parent = bench.parent();
    let (one, two) = (bench.group_under(&parent), bench.group_under(&parent));
    let stranger = bench.group();
    let alice = bench.player("alice", LONG_MS).await?;
    let store = bench.store();
    let mut below = store.watch(Scope::Prefix(format!("{parent}/")), None).await?;
    let mut listed = store.watch(Scope::Groups(vec![two.clone(), one.clone()]), None).await?;
    let mut single = store.watch(Scope::Group(two.clone()), None).await?;
    let first = reign(&alice, &one).await?;
    reign(&alice, &stranger).await?;
    let second = reign(&alice, &two).await?;
    for watch in [&mut below, &mut listed] {
        let mut events = Vec::new();
        for _ in 0..4 {
            events.push(bench.change(&mut **watch).await?);
        }
        if !bench.abilities().orders_across_groups {
            // The changes of each group still come in order.
            events.sort_by_key(|event| event.group != one);
        }
        for (group, term, pair) in [(&one, first, &events[..2]), (&two, second, &events[2..])] {
            ensure!(is_election(&pair[0], group, term), "expected {group}, saw {events:?}");
            ensure!(is_resignation(&pair[1], group, term), "expected {group}, saw {events:?}");
        }
        bench.nothing(&mut **watch).await?;
    }
    let event = bench.change(&mut *single).await?;
    ensure!(is_election(&event, &two, second), "expected {two}, saw {event:?}");
    Ok(())
}
