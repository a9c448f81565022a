//! Clients that watch: one connection at a time, resumed elsewhere from the last cursor.
//!
//! A connection keeps its order and loses nothing without breaking, so items are numbered and put
//! back in order here; one that does not come breaks the connection after a while.

use std::collections::BTreeMap;

use regent_election::participant::Event;
use regent_election::store::{Scope, WatchItem};
use regent_election::{Cursor, Incarnation};

use super::net::Address;
use super::parcel::{Item, Parcel};
use super::{Client, Happening, Timer, World};
use crate::dice::Dice;
use crate::history::{Proc, Watched, What};

/// A connection that says nothing for so long is given up.
const PATIENCE_NS: u64 = 1_200_000_000;
/// How often a watcher looks at its connection.
const WATCHER_POLL_EVERY_NS: u64 = 200_000_000;

/// A client that watches.
#[derive(Debug)]
pub(super) struct Watcher {
    number: u32,
    dice: Dice,
    scope: Scope,
    cursor: Option<Cursor>,
    watch: Option<Connection>,
    /// The participant whose process this watch is part of, if any.
    owner: Option<u32>,
}

#[derive(Debug)]
struct Connection {
    watch: u64,
    replica: u64,
    heard_at: u64,
    /// The number of the last item taken.
    taken: u64,
    early: BTreeMap<u64, Item>,
}

impl Watcher {
    const fn proc(&self) -> Proc {
        Proc::Client { number: self.number, run: 1 }
    }
}

impl World {
    /// Adds a client that watches; what it hears it may tell a participant of the same process.
    pub fn add_watcher(&mut self, scope: Scope, owner: Option<u32>) -> u32 {
        let number = self.clients.len() as u32 + 1;
        let dice = self.dice.fork(&format!("watcher {number}"));
        let watcher = Watcher { number, dice, scope, cursor: None, watch: None, owner };
        self.clients.insert(number, Client::Watcher(watcher));
        self.queue.push(self.now, Happening::Client { number, run: 1, timer: Timer::Act });
        number
    }

    pub(super) fn watcher_timer(&mut self, number: u32) {
        let now = self.now;
        let at = now + WATCHER_POLL_EVERY_NS;
        self.queue.push(at, Happening::Client { number, run: 1, timer: Timer::Act });
        let Some(Client::Watcher(watcher)) = self.clients.get_mut(&number) else { return };
        // Now and then a healthy connection is left too, to resume elsewhere.
        let is_bored = watcher.dice.once_in(40);
        let is_broken = watcher
            .watch
            .as_ref()
            .is_none_or(|connection| now >= connection.heard_at + PATIENCE_NS);
        if is_bored || is_broken {
            self.end_watch(number);
            self.begin_watch(number);
        }
    }

    fn end_watch(&mut self, number: u32) {
        let Some(Client::Watcher(watcher)) = self.clients.get_mut(&number) else { return };
        let Some(Connection { watch, replica, .. }) = watcher.watch.take() else { return };
        let proc = watcher.proc();
        self.note(proc, What::Watch { watch, what: Watched::End });
        let to = Address::Replica(replica);
        self.send(Address::Client(number), to, Parcel::Unwatch { watch });
    }

    fn begin_watch(&mut self, number: u32) {
        let now = self.now;
        let replicas = self.watchable();
        self.watches += 1;
        let watch = self.watches;
        let Some(Client::Watcher(watcher)) = self.clients.get_mut(&number) else { return };
        let Some(replica) = watcher.dice.pick(&replicas) else { return };
        let (scope, cursor, proc) = (watcher.scope.clone(), watcher.cursor, watcher.proc());
        watcher.watch =
            Some(Connection { watch, replica, heard_at: now, taken: 0, early: BTreeMap::new() });
        let what = Watched::Open { replica, scope: scope.clone(), cursor };
        self.note(proc, What::Watch { watch, what });
        let parcel = Parcel::Watch { watch, scope, cursor };
        self.send(Address::Client(number), Address::Replica(replica), parcel);
    }

    pub(super) fn arrive_at_watcher(&mut self, number: u32, parcel: Parcel) {
        let (now, incarnation) = (self.now, self.incarnation());
        let Some(Client::Watcher(watcher)) = self.clients.get(&number) else { return };
        let owner = watcher.owner;
        if let Some(owner) = owner
            && let Some(Client::Member(member)) = self.clients.get_mut(&owner)
            && member.pauses > 0
        {
            // One process: it hears nothing while it stands still.
            member.hold_back(parcel);
            return;
        }
        let Parcel::Item { watch, number: item_number, item } = parcel else { return };
        let Some(Client::Watcher(watcher)) = self.clients.get_mut(&number) else { return };
        let proc = watcher.proc();
        let Some(connection) = watcher.watch.as_mut().filter(|c| c.watch == watch) else { return };
        connection.early.insert(item_number, item);
        let mut taken = Vec::new();
        while let Some(item) = connection.early.remove(&(connection.taken + 1)) {
            connection.taken += 1;
            connection.heard_at = now;
            taken.push(item);
        }
        for item in taken {
            let what = watcher_takes(self.clients.get_mut(&number), incarnation, item);
            let Some(what) = what else { continue };
            if let (Some(owner), Watched::Changed(change)) = (owner, &what) {
                let (group, term, leader) =
                    (change.group.clone(), change.term, change.leader.clone());
                self.on_member(owner, Event::Watched { group, term, leader });
            }
            self.note(proc, What::Watch { watch, what });
        }
    }
}

/// Moves the cursor and says what the history is told.
fn watcher_takes(
    client: Option<&mut Client>,
    incarnation: Incarnation,
    item: Item,
) -> Option<Watched> {
    let Some(Client::Watcher(watcher)) = client else { return None };
    Some(match item {
        Item::Hub(WatchItem::Changed(change)) => {
            let (revision, ordinal) = (change.revision, change.ordinal);
            watcher.cursor = Some(Cursor { incarnation, revision, ordinal });
            Watched::Changed(change)
        }
        Item::Hub(WatchItem::Gap { oldest, at }) => {
            watcher.cursor = Some(at);
            Watched::Gap { oldest, at }
        }
        Item::Mark(cursor) => {
            watcher.cursor = Some(cursor);
            Watched::Mark(cursor)
        }
    })
}
