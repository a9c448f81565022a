//! How many connections there may be, in all and from one address.
//!
//! One client that opens connections without end must not keep the others out, so addresses are
//! counted one by one. IPv6 addresses are counted by their /64, since one host owns that many.

use crate::config::ServerConfig;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::count::{Count, Entered};

/// The connections there are.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    all: Arc<Count>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    all_max: usize,
    address_max: usize,
}

/// The place of one connection, until dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _one: Entered,
    address: IpAddr,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NoRoom {
    /// The server has as many connections as it may.
    Full,
    /// This address has as many as one may.
    Address,
}

impl ConnectionLimit {
    pub(crate) fn new(all_max: usize, address_max: usize) -> Self {
        Self { all: Arc::default(), by_address: Arc::default(), all_max, address_max }
    }

    /// How many connections there are.
    pub(crate) fn count(&self) -> &Arc<Count> {
        &self.all
    }

    /// A place for one more from `address`, if there is room.
    pub(crate) fn enter(&self, address: IpAddr) -> Result<ConnectionPermit, NoRoom> {
        let address = household(address);
        let one = self.all.enter(self.all_max).ok_or(NoRoom::Full)?;
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_address.entry(address).or_insert(0);
        if *count >= self.address_max {
            return Err(NoRoom::Address);
        }
        *count += 1;
        Ok(ConnectionPermit { _one: one, address, by_address: Arc::clone(&self.by_address) })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
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

    #[test]
    fn one_address_cannot_take_every_place() {
        let connection_limit = ConnectionLimit::new(3, 2);
        let (greedy, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let one = connection_limit.enter(greedy).unwrap();
        let _two = connection_limit.enter(greedy).unwrap();
        assert_eq!(connection_limit.enter(greedy).unwrap_err(), NoRoom::Address);
        let _three = connection_limit.enter(other).unwrap();
        assert_eq!(connection_limit.enter(other).unwrap_err(), NoRoom::Full);
        drop(one);
        assert!(connection_limit.enter(greedy).is_ok());
    }

    #[test]
    fn a_place_given_back_leaves_nothing_behind() {
        let connection_limit = ConnectionLimit::new(3, 1);
        drop(connection_limit.enter(IpAddr::from([10, 0, 0, 1])).unwrap());
        assert_eq!(connection_limit.count().now(), 0);
        assert!(connection_limit.by_address.lock().unwrap().is_empty());
    }

    #[test]
    fn one_ipv6_network_and_a_mapped_address_count_as_one() {
        let of = |text: &str| household(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
