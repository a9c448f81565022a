//! S5 against a naive model: a watch delivers the full log filtered to (cursor, last], each event
//! once and in order, or says that it cannot.
//!
//! The model keeps every event that was ever published and, for each watch, the place it has
//! reached. It knows nothing of queues, rings and stretches; the bounds of the hub are tiny, so that
//! all of them are crossed all the time.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;
use regent_election::store::{Scope, Watch, WatchItem};
use regent_election::watch::{Bounds, Hub, HubWatch, Replay};
use regent_election::{Cause, Cursor, Event, Group, Incarnation, Metadata, Node, Revision, Term};

const LIFE: Incarnation = Incarnation(0xfeed);
const GROUPS: [&str; 5] = ["a", "a/1", "a/2", "b", "b/1"];
const WATCHES: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    /// One entry with an event for each of these groups; perhaps none.
    Publish(Vec<usize>),
    /// Replaces watch `slot`.
    Watch { slot: usize, scope: usize, from: From },
    /// Asks watch `slot` up to `times` times for its next item.
    Poll { slot: usize, times: usize },
    /// Drops watch `slot` and begins it again from its own cursor.
    Resume { slot: usize },
}

#[derive(Clone, Debug)]
enum From {
    Now,
    /// After the event that is this far back, or after its whole revision.
    Back {
        events: usize,
        whole: bool,
    },
    /// This many revisions ahead.
    Ahead(u64),
    /// In a life that sorts before or after this one.
    OtherLife(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = 0..WATCHES;
    let from = prop_oneof![
        2 => Just(From::Now),
        4 => (0usize..20, any::<bool>()).prop_map(|(events, whole)| From::Back { events, whole }),
        1 => (1u64..4).prop_map(From::Ahead),
        1 => prop_oneof![Just(1), Just(u64::MAX)].prop_map(From::OtherLife),
    ];
    let step = prop_oneof![
        6 => prop::collection::vec(0..GROUPS.len(), 0..7).prop_map(Step::Publish),
        2 => (slot.clone(), 0usize..6, from)
            .prop_map(|(slot, scope, from)| Step::Watch { slot, scope, from }),
        6 => (slot.clone(), 1usize..6).prop_map(|(slot, times)| Step::Poll { slot, times }),
        1 => slot.prop_map(|slot| Step::Resume { slot }),
    ];
    prop::collection::vec(step, 1..120)
}

fn scope(number: usize) -> Scope {
    let group = |name: &str| Group::new(name).unwrap();
    match number {
        0 => Scope::Group(group("a/1")),
        1 => Scope::Group(group("b")),
        2 => Scope::Groups(vec![group("b/1"), group("a"), group("b/1")]),
        3 => Scope::Prefix("a".into()),
        4 => Scope::Prefix("a/".into()),
        _ => Scope::Prefix(String::new()),
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Slot {
    watch: HubWatch,
    scope: Scope,
    /// Everything up to here has been delivered, by the model's count.
    at: Cursor,
    /// The last cursor the watch named.
    said: Cursor,
    flag: Arc<Flag>,
    /// Whether the last poll found nothing and left its waker.
    asleep: bool,
}

struct World {
    hub: Hub,
    bounds: Bounds,
    log: Vec<Event>,
    revision: Revision,
    slots: Vec<Option<Slot>>,
}

fn place(event: &Event) -> Cursor {
    Cursor { incarnation: LIFE, revision: event.revision, ordinal: event.ordinal }
}

impl World {
    fn new(bounds: Bounds) -> Self {
        let hub = Hub::new(LIFE, Revision(0), bounds);
        let slots = (0..WATCHES).map(|_| None).collect();
        Self { hub, bounds, log: Vec::new(), revision: Revision(0), slots }
    }

    fn publish(&mut self, groups: &[usize]) {
        self.revision = self.revision.next();
        let events: Vec<_> = groups
            .iter()
            .zip(0..)
            .map(|(group, ordinal)| Event {
                group: Group::new(GROUPS[*group]).unwrap(),
                revision: self.revision,
                ordinal,
                term: Term::new(self.revision.0).unwrap(),
                leader: (ordinal % 2 == 0).then(|| Node::new("n").unwrap()),
                metadata: Metadata::NONE,
                cause: Cause::Elected,
            })
            .collect();
        self.hub.publish(self.revision, &events);
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.asleep) {
            let concerned = events
                .iter()
                .any(|event| slot.scope.covers(&event.group) && place(event) > slot.at);
            let woken = slot.flag.0.load(Ordering::SeqCst);
            assert!(woken || !concerned, "a sleeping watch was not woken");
        }
        self.log.extend(events);
    }

    fn cursor(&self, from: &From) -> Option<Cursor> {
        match from {
            From::Now => None,
            From::Back { events, whole } => {
                let event = self.log.get(self.log.len().wrapping_sub(1 + events));
                let at = event.map_or(Cursor::after(LIFE, Revision(0)), place);
                Some(if *whole { Cursor::after(LIFE, at.revision) } else { at })
            }
            From::Ahead(more) => Some(Cursor::after(LIFE, Revision(self.revision.0 + more))),
            From::OtherLife(life) => Some(Cursor::after(Incarnation(*life), self.revision)),
        }
    }

    /// What a store would keep in the group itself: its last two changes.
    fn replay(&self, scope: &Scope) -> Option<Replay> {
        let Scope::Group(group) = scope else { return None };
        let mut events: Vec<_> =
            self.log.iter().filter(|event| event.group == *group).cloned().collect();
        let after = match events.len().checked_sub(3) {
            None => Cursor::after(LIFE, Revision(0)),
            Some(last_forgotten) => place(&events[last_forgotten]),
        };
        events.retain(|event| place(event) > after);
        Some(Replay { after, up_to: self.revision, events })
    }

    fn watch(&mut self, slot: usize, scope: Scope, cursor: Option<Cursor>, replays: bool) {
        let replay = if replays { self.replay(&scope) } else { None };
        let at = cursor.unwrap_or(Cursor::after(LIFE, self.revision));
        let watch = self.hub.subscribe(scope.clone(), cursor, replay);
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        self.slots[slot] = Some(Slot { watch, scope, at, said: at, flag, asleep: false });
    }

    /// Polls until an item comes or the watch really sleeps.
    fn poll(&mut self, slot: usize) -> bool {
        let Some(slot) = self.slots[slot].as_mut() else { return false };
        let waker = Waker::from(Arc::clone(&slot.flag));
        loop {
            slot.flag.0.store(false, Ordering::SeqCst);
            match slot.watch.poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(item)) => {
                    slot.asleep = false;
                    Self::check(slot, item, &self.log, self.revision, self.bounds);
                    return true;
                }
                Poll::Ready(None) => panic!("nobody shut the hub down"),
                Poll::Pending if slot.flag.0.load(Ordering::SeqCst) => {}
                Poll::Pending => {
                    slot.asleep = true;
                    assert_eq!(slot.at.incarnation, LIFE, "another life needs a gap");
                    let next = Self::next(slot, &self.log);
                    assert_eq!(next, None, "a watch sleeps over an event");
                    let present = Cursor::after(LIFE, self.revision);
                    assert_eq!(slot.watch.cursor(), slot.at.max(present));
                    slot.at = slot.watch.cursor();
                    return false;
                }
            }
        }
    }

    fn next<'a>(slot: &Slot, log: &'a [Event]) -> Option<&'a Event> {
        log.iter().find(|event| slot.scope.covers(&event.group) && place(event) > slot.at)
    }

    fn check(slot: &mut Slot, item: WatchItem, log: &[Event], revision: Revision, bounds: Bounds) {
        match item {
            WatchItem::Changed(event) => {
                assert_eq!(slot.at.incarnation, LIFE, "another life needs a gap first");
                assert_eq!(Some(&event), Self::next(slot, log));
                slot.at = place(&event);
            }
            WatchItem::Gap { oldest, at } => {
                let missed = log.iter().filter(|event| place(event) > slot.at).count();
                let is_justified = slot.at.incarnation != LIFE
                    || (oldest > slot.at && missed > bounds.ring_count_min);
                assert!(is_justified, "gap after {} with {missed} missed", slot.at);
                assert_eq!(at, Cursor::after(LIFE, revision));
                slot.at = at;
            }
        }
    }

    /// A cursor never falls, never lies before what was delivered, and skips nothing owed.
    fn check_cursors(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            let cursor = slot.watch.cursor();
            assert!(cursor >= slot.said || slot.said.incarnation != LIFE, "a cursor fell");
            slot.said = cursor;
            if slot.at.incarnation != LIFE {
                assert_eq!(cursor, slot.at, "the gap was not delivered yet");
                continue;
            }
            assert!(slot.at <= cursor);
            let next = Self::next(slot, &self.log).map(place);
            assert!(next.is_none_or(|next| cursor < next), "{cursor} skips {next:?}");
        }
    }

    fn run(&mut self, step: Step, replays: bool) {
        match step {
            Step::Publish(groups) => self.publish(&groups),
            Step::Watch { slot, scope: number, from } => {
                self.watch(slot, scope(number), self.cursor(&from), replays);
            }
            Step::Poll { slot, times } => {
                let _ = (0..times).take_while(|_| self.poll(slot)).count();
            }
            Step::Resume { slot } => {
                let Some(old) = self.slots[slot].take() else { return };
                let cursor = old.watch.cursor();
                let scope = old.scope.clone();
                drop(old);
                self.watch(slot, scope, Some(cursor), replays);
            }
        }
        self.check_cursors();
        let running = self.slots.iter().flatten().count();
        assert_eq!(self.hub.watchers(), running, "a dropped watch is gone");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_watch_delivers_the_log_after_its_cursor_once_and_in_order_or_says_gap(
        steps in steps(),
        queue_max in 1usize..5,
        ring_count_min in 1usize..12,
        replays in any::<bool>(),
    ) {
        let bounds = Bounds { ring_bytes_max: 1, ring_count_min, queue_max };
        let mut world = World::new(bounds);
        for step in steps {
            world.run(step, replays);
        }
        for slot in 0..WATCHES {
            while world.poll(slot) {}
        }
    }
}

#[test]
fn a_default_hub_never_gaps_a_watcher_that_missed_the_largest_mass_expiry() {
    let mut world = World::new(Bounds { ring_bytes_max: 1, ..Bounds::default() });
    world.watch(0, Scope::Prefix(String::new()), None, false);
    let everything: Vec<_> = (0..regent_election::limits::GROUPS_PER_SESSION_MAX)
        .map(|number| number % GROUPS.len())
        .collect();
    world.publish(&everything);
    world.publish(&everything);
    let slot = world.slots[0].as_mut().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for event in &world.log {
        let item = slot.watch.poll_next(&mut context);
        assert_eq!(item, Poll::Ready(Some(WatchItem::Changed(event.clone()))));
    }
}

#[test]
fn shutting_down_ends_every_watch_and_loses_nothing_of_its_cursor() {
    let mut world = World::new(Bounds::default());
    world.watch(0, scope(5), None, false);
    world.publish(&[0, 1, 2]);
    assert!(world.poll(0));
    let slot = world.slots[0].as_mut().unwrap();
    let before = slot.watch.cursor();
    world.hub.shut_down();
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(slot.watch.poll_next(&mut context), Poll::Ready(None));
    assert_eq!(slot.watch.cursor(), before, "two events are still owed");
    let mut late = world.hub.subscribe(scope(5), Some(before), None);
    assert_eq!(late.poll_next(&mut context), Poll::Ready(None));
}

#[test]
fn a_one_group_watch_is_served_from_the_groups_own_history_when_the_ring_has_moved_on() {
    let bounds = Bounds { ring_bytes_max: 1, ring_count_min: 2, queue_max: 4 };
    let mut world = World::new(bounds);
    world.publish(&[1]);
    let start = Cursor::after(LIFE, world.revision);
    world.publish(&[1]);
    for _ in 0..10 {
        world.publish(&[3]);
    }
    world.watch(0, scope(0), Some(start), true);
    let slot = world.slots[0].as_mut().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let item = slot.watch.poll_next(&mut context);
    assert_eq!(item, Poll::Ready(Some(WatchItem::Changed(world.log[1].clone()))));
    slot.at = place(&world.log[1]);
    assert!(!world.poll(0), "the rest of the ring holds nothing for this group");
}
