//! How many connections there may be, in all and from one address, and who gives way when there are too many.
//!
//! One client that opens connections without end must not keep the others out, so addresses are counted one by one.
//! IPv6 addresses are counted by their /64, since one host owns that many. But clients of one machine, or behind one
//! proxy, share an address with whoever floods it. So a full limit refuses nobody while somebody can give way:
//!
//! - **Idle connections give way**, those that came first being asked first. The one that last carried a session's
//!   opening or renewal does not, for two ttls: a flood of sockets must not cost a leader its office (L7). It is one
//!   for each session, so that a single session cannot keep a flood alive, and sessions that have ended keep none.
//! - **The last sixteenth is a reserve** for connections that do not wait: a watch, a campaign that waits or a session
//!   stream is refused there. So a flood of watches, which are not idle, leaves room for renewals.
//!
//! The road not taken: to look for the connection that has been idle longest. That takes a search, or a list that
//! every request changes; going round in the order of arrival finds one that is idle as well.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regent_election::SessionId;
use tokio::time::Instant;

use crate::config::ServerConfig;
use crate::count::{Count, Entered};
use crate::socket::ConnectionActivity;

/// One part in so many of a limit is the reserve.
const RESERVE_PART: usize = 16;
/// Connections that are looked at for one that gives way; the next newcomer goes on where this one ended.
const LOOKED_AT_MAX: usize = 1024;
/// Connections that have given way and are not closed yet, at most: they still hold their sockets.
const LEAVING_MAX: usize = 32;
/// For how many ttls a connection stays for the session that it carried: a session without a renewal lives for one,
/// and for another if the log gets a new leader meanwhile.
const TTLS: u32 = 2;

/// The connections there are.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    /// Those that hold a socket, including those that are giving way.
    all: Arc<Count>,
    places: Arc<Mutex<Places>>,
    all_max: usize,
    address_max: usize,
}

/// Who has a place, by the number of their arrival.
#[derive(Debug, Default)]
struct Places {
    last: u64,
    taken: BTreeMap<u64, (IpAddr, Arc<ConnectionActivity>)>,
    addresses: HashMap<IpAddr, Address>,
    /// Which connection last carried a session.
    carriers: HashMap<SessionId, u64>,
    /// Who was looked at last, of all.
    hand: u64,
}

/// The places of one address.
#[derive(Debug, Default)]
struct Address {
    numbers: BTreeSet<u64>,
    /// Who was looked at last, of these.
    hand: u64,
}

/// The place of one connection, until dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _one: Entered,
    number: u64,
    places: Arc<Mutex<Places>>,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NoRoom {
    /// The server has as many connections as it may.
    Full,
    /// This address has as many as one may.
    Address,
}

impl Places {
    fn remove(&mut self, number: u64) {
        let Some((address, activity)) = self.taken.remove(&number) else { return };
        if let Some(session) = activity.carried()
            && self.carriers.get(&session) == Some(&number)
        {
            self.carriers.remove(&session);
        }
        if let Some(of) = self.addresses.get_mut(&address) {
            of.numbers.remove(&number);
            if of.numbers.is_empty() {
                self.addresses.remove(&address);
            }
        }
    }

    fn count_of(&self, address: IpAddr) -> usize {
        self.addresses.get(&address).map_or(0, |of| of.numbers.len())
    }

    /// Makes one connection give way, of this address or of all; false if none of those looked at can.
    fn make_room(&mut self, of: Option<IpAddr>) -> bool {
        let now = Instant::now();
        let can = |number: &u64| self.taken.get(number).is_some_and(|(_, it)| it.can_give_way(now));
        let hand = match of {
            Some(address) => self.addresses.get(&address).map_or(0, |of| of.hand),
            None => self.hand,
        };
        let (after, up_to) =
            ((Bound::Excluded(hand), Bound::Unbounded), (Bound::Unbounded, Bound::Included(hand)));
        let (found, last) = match of.map(|address| self.addresses.get(&address)) {
            Some(None) => return false,
            Some(Some(of)) => {
                first(of.numbers.range(after).chain(of.numbers.range(up_to)).copied(), can)
            }
            None => {
                let numbers = |range| self.taken.range::<u64, _>(range).map(|(number, _)| *number);
                first(numbers(after).chain(numbers(up_to)), can)
            }
        };
        match of.and_then(|address| self.addresses.get_mut(&address)) {
            Some(of) => of.hand = last.unwrap_or(hand),
            None => self.hand = last.unwrap_or(hand),
        }
        let Some(number) = found else { return false };
        if let Some((_, activity)) = self.taken.get(&number) {
            activity.give_up();
        }
        self.remove(number);
        true
    }
}

/// The first of these that can, and the last that was looked at.
fn first(
    numbers: impl Iterator<Item = u64>,
    can: impl Fn(&u64) -> bool,
) -> (Option<u64>, Option<u64>) {
    let mut last = None;
    for number in numbers.take(LOOKED_AT_MAX) {
        last = Some(number);
        if can(&number) {
            return (Some(number), last);
        }
    }
    (None, last)
}

/// What is left of a limit without its reserve.
const fn open(max: usize) -> usize {
    max - max / RESERVE_PART
}

impl ConnectionLimit {
    pub(crate) fn new(all_max: usize, address_max: usize) -> Self {
        Self { all: Arc::default(), places: Arc::default(), all_max, address_max }
    }

    /// How many connections there are.
    pub(crate) fn count(&self) -> &Arc<Count> {
        &self.all
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so many are giving way that a newcomer should wait until some of them have gone.
    pub(crate) fn is_clearing(&self) -> bool {
        self.all.now().saturating_sub(self.places().taken.len()) >= LEAVING_MAX
    }

    /// A place for one more from `address`, if there is room or somebody gives way.
    pub(crate) fn enter(
        &self,
        address: IpAddr,
        activity: &Arc<ConnectionActivity>,
    ) -> Result<ConnectionPermit, NoRoom> {
        let address = household(address);
        activity.comes_from(address);
        let mut places = self.places();
        // Whoever gave way still has a socket until its task has ended.
        let leaving = self.all.now().saturating_sub(places.taken.len());
        let may_evict = leaving < LEAVING_MAX;
        if places.count_of(address) >= open(self.address_max) {
            let has_room = may_evict && places.make_room(Some(address));
            if !has_room && places.count_of(address) >= self.address_max {
                return Err(NoRoom::Address);
            }
        }
        if places.taken.len() >= open(self.all_max) {
            let has_room = may_evict && places.make_room(None);
            if !has_room && places.taken.len() >= self.all_max {
                return Err(NoRoom::Full);
            }
        }
        let one = self.all.enter(self.all_max + LEAVING_MAX).ok_or(NoRoom::Full)?;
        places.last += 1;
        let number = places.last;
        places.addresses.entry(address).or_default().numbers.insert(number);
        places.taken.insert(number, (address, Arc::clone(activity)));
        activity.place_taken(number, self.is_reserve(&places, address));
        Ok(ConnectionPermit { _one: one, number, places: Arc::clone(&self.places) })
    }

    fn is_reserve(&self, places: &Places, address: IpAddr) -> bool {
        places.taken.len() > open(self.all_max) || places.count_of(address) > open(self.address_max)
    }

    /// A connection carried an opening or a renewal that was acknowledged: it does not give way while the session may
    /// live by that, and the one that carried this session before does.
    pub(crate) fn carries(&self, activity: &ConnectionActivity, session: SessionId, ttl: Duration) {
        let until = Instant::now() + ttl * TTLS;
        if activity.carries_on(session, until) {
            return;
        }
        let mut places = self.places();
        let number = activity.place();
        if !places.taken.contains_key(&number) {
            return;
        }
        if let Some(before) = activity.carry(Some((session, until))) {
            places.carriers.remove(&before);
        }
        let other = places.carriers.insert(session, number).filter(|other| *other != number);
        if let Some((_, other)) = other.and_then(|other| places.taken.get(&other)) {
            other.carry(None);
        }
    }

    /// A session was closed: no connection stays for it.
    pub(crate) fn closed(&self, session: SessionId) {
        let mut places = self.places();
        let number = places.carriers.remove(&session);
        if let Some((_, carrier)) = number.and_then(|number| places.taken.get(&number)) {
            carrier.carry(None);
        }
    }

    /// Whether a connection may wait: it has a place outside the reserve, or there is one by now.
    pub(crate) fn may_wait(&self, activity: &ConnectionActivity) -> bool {
        if !activity.is_in_reserve() {
            return true;
        }
        let places = self.places();
        let number = activity.place();
        let Some((address, _)) = places.taken.get(&number) else { return false };
        let has_room = !self.is_reserve(&places, *address);
        if has_room {
            activity.place_taken(number, false);
        }
        has_room
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).remove(self.number);
    }
}

/// What counts as one address.
fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) if address.is_loopback() => IpAddr::V6(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

/// The open files this process may have, where that can be read.
fn open_files_max() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Open files kept back for the store, the log and the listeners: a server that cannot open its
/// own journal because strangers hold all the sockets has lost more than those strangers.
const OPEN_FILES_RESERVE: usize = 64;

/// `connections_max`, or fewer if this process could not hold that many open.
pub(crate) fn within_open_files(connections_max: usize) -> usize {
    let Some(files_max) = open_files_max() else { return connections_max };
    let fit = files_max.saturating_sub(OPEN_FILES_RESERVE).max(1);
    // Nobody asked for the default in particular: fewer are no surprise then.
    let is_asked_for = connections_max != ServerConfig::default().connections_max;
    if fit < connections_max && is_asked_for {
        tracing::warn!(
            connections_max,
            fit,
            files_max,
            "the open-files limit allows fewer connections than configured; raise it (ulimit -n)"
        );
    }
    connections_max.min(fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    const TTL: Duration = Duration::from_secs(10);

    /// A connection with a request under way for as long as the second part is kept.
    fn busy() -> (Arc<ConnectionActivity>, crate::socket::Exchange) {
        let activity = Arc::new(ConnectionActivity::begin());
        let exchange = activity.head_arrived(false);
        (activity, exchange)
    }

    fn session(number: u128) -> SessionId {
        SessionId::new(number).unwrap()
    }

    #[test]
    fn a_session_keeps_one_connection_from_giving_way() {
        let connection_limit = ConnectionLimit::new(64, 32);
        let connections: Vec<_> = (0..3).map(|_| Arc::new(ConnectionActivity::begin())).collect();
        let mut places: Vec<_> =
            connections.iter().map(|it| connection_limit.enter(GREEDY, it).unwrap()).collect();
        let stays =
            || connections.iter().map(|it| !it.can_give_way(Instant::now())).collect::<Vec<_>>();
        connection_limit.carries(&connections[0], session(1), TTL);
        connection_limit.carries(&connections[1], session(2), TTL);
        assert_eq!(stays(), [true, true, false]);
        connection_limit.carries(&connections[2], session(1), TTL);
        assert_eq!(stays(), [false, true, true], "the last one that carried it");
        connection_limit.carries(&connections[2], session(3), TTL);
        connection_limit.carries(&connections[0], session(1), TTL);
        assert_eq!(stays(), [true, true, true]);
        places.clear();
        assert!(connection_limit.places().carriers.is_empty());
    }

    /// L7: thousands of sessions that are opened once and expire do not hold their connections for ever.
    #[test]
    fn a_connection_stays_for_two_ttls_of_its_session_and_no_longer() {
        let connection_limit = ConnectionLimit::new(64, 32);
        let connections: Vec<_> = (0..3).map(|_| Arc::new(ConnectionActivity::begin())).collect();
        let _places: Vec<_> =
            connections.iter().map(|it| connection_limit.enter(GREEDY, it).unwrap()).collect();
        let start = Instant::now();
        let stays =
            |at: Instant| connections.iter().map(|it| !it.can_give_way(at)).collect::<Vec<_>>();
        for (number, connection) in (1..).zip(&connections) {
            connection_limit.carries(connection, session(number), TTL);
        }
        assert_eq!(stays(start + TTL + TTL / 2), [true, true, true]);
        assert_eq!(stays(Instant::now() + 2 * TTL), [false, false, false]);
        // Every renewal counts, and the ttl that it was answered with.
        connection_limit.carries(&connections[0], session(1), 10 * TTL);
        connection_limit.closed(session(3));
        assert_eq!(stays(start), [true, true, false], "a closed session keeps none");
        assert_eq!(stays(Instant::now() + 2 * TTL), [true, false, false]);
        assert_eq!(stays(Instant::now() + 20 * TTL), [false, false, false]);
    }

    #[test]
    fn one_address_cannot_take_every_place() {
        let connection_limit = ConnectionLimit::new(3, 2);
        let (activity, _exchange) = busy();
        let one = connection_limit.enter(GREEDY, &activity).unwrap();
        let _two = connection_limit.enter(GREEDY, &activity).unwrap();
        assert_eq!(connection_limit.enter(GREEDY, &activity).unwrap_err(), NoRoom::Address);
        let _three = connection_limit.enter(OTHER, &activity).unwrap();
        assert_eq!(connection_limit.enter(OTHER, &activity).unwrap_err(), NoRoom::Full);
        drop(one);
        assert!(connection_limit.enter(GREEDY, &activity).is_ok());
    }

    #[test]
    fn a_place_given_back_leaves_nothing_behind() {
        let connection_limit = ConnectionLimit::new(3, 1);
        drop(connection_limit.enter(GREEDY, &busy().0).unwrap());
        assert_eq!(connection_limit.count().now(), 0);
        let places = connection_limit.places();
        assert!(places.taken.is_empty() && places.addresses.is_empty());
    }

    /// L7: whoever only holds a socket gives way; whoever has carried a session, or is being served, does not.
    #[test]
    fn idle_connections_give_way_in_the_order_of_their_arrival() {
        let connection_limit = ConnectionLimit::new(4, 4);
        let idle = || Arc::new(ConnectionActivity::begin());
        let (busy, _exchange) = busy();
        let (leader, first, second) = (idle(), idle(), idle());
        let _served = connection_limit.enter(GREEDY, &busy).unwrap();
        let _led = connection_limit.enter(GREEDY, &leader).unwrap();
        connection_limit.carries(&leader, session(1), TTL);
        let _first = connection_limit.enter(GREEDY, &first).unwrap();
        let _second = connection_limit.enter(GREEDY, &second).unwrap();
        let newcomers: Vec<_> = (0..20).map(|_| idle()).collect();
        let mut kept = Vec::new();
        for (count, newcomer) in newcomers.iter().enumerate() {
            kept.push(connection_limit.enter(GREEDY, newcomer).unwrap());
            assert_eq!(connection_limit.places().taken.len(), 4);
            assert_eq!((first.is_given_up(), second.is_given_up()), (true, count > 0));
        }
        assert!(!busy.is_given_up() && !leader.is_given_up());
        let left: Vec<bool> = newcomers.iter().map(|it| !it.is_given_up()).collect();
        assert_eq!(left.iter().filter(|is_left| **is_left).count(), 2);
        assert!(left[18] && left[19], "the last ones stay: {left:?}");
    }

    #[test]
    fn those_that_gave_way_and_hold_their_socket_are_bounded() {
        let connection_limit = ConnectionLimit::new(4, 4);
        let mut kept = Vec::new();
        let mut refused = 0;
        for _ in 0..100 {
            match connection_limit.enter(GREEDY, &Arc::new(ConnectionActivity::begin())) {
                Ok(place) => kept.push(place),
                Err(_) => refused += 1,
            }
        }
        assert_eq!((kept.len(), refused), (4 + LEAVING_MAX, 100 - 4 - LEAVING_MAX));
        drop(kept);
        assert_eq!(connection_limit.count().now(), 0);
    }

    #[test]
    fn the_reserve_is_not_for_those_that_wait() {
        let connection_limit = ConnectionLimit::new(64, 32);
        let (activity, _exchange) = busy();
        let mut places: Vec<_> =
            (0..30).map(|_| connection_limit.enter(GREEDY, &activity).unwrap()).collect();
        assert!(connection_limit.may_wait(&activity));
        let (late, _exchange) = busy();
        let _late = connection_limit.enter(GREEDY, &late).unwrap();
        assert!(!connection_limit.may_wait(&late), "it has one of the last two places");
        let _last = connection_limit.enter(GREEDY, &activity).unwrap();
        assert_eq!(connection_limit.enter(GREEDY, &activity).unwrap_err(), NoRoom::Address);
        places.truncate(10);
        assert!(connection_limit.may_wait(&late), "there is room by now");
    }

    #[test]
    fn one_ipv6_network_and_a_mapped_address_count_as_one() {
        let of = |text: &str| household(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
