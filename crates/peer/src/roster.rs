//! Who takes part: names and addresses, the same in every process, sorted into the numbers that the
//! machines know.
//!
//! A list is checked once, here; its [`Roster::digest`] goes with every datagram, so that two processes
//! that were given different lists never elect each other. The road not taken is a list that changes while
//! it is used: the algorithms of the literature know no such thing.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use regent_election::Node;
use regent_protocols::fnv;
use regent_protocols::{NodeId, Pace};

use crate::limits::{PEERS_MAX, PEERS_MIN};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What it is called.
    pub name: Node,
    /// Where it listens, and what it sends from.
    pub address: SocketAddr,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').ok_or_else(|| {
            format!("{text:?} is no peer; write NAME=IP:PORT, like a=127.0.0.1:7501")
        })?;
        let name = Node::new(name).map_err(|error| error.to_string())?;
        let address = address.parse().map_err(|_| {
            format!(
                "{address:?} is no address for {name}; write IP:PORT, like 127.0.0.1:7501 or [::1]:7501: \
                 whoever sends is known by its address, so a name that is looked up will not do"
            )
        })?;
        Ok(Self { name, address })
    }
}

/// Why a list is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    #[error("{0} peers are refused: {PEERS_MIN} to {PEERS_MAX}")]
    Count(usize),
    #[error("two peers are called {0}; give each a name of its own")]
    DoubledName(Node),
    #[error("{first} and {second} have the same address {address}; give each a port of its own")]
    DoubledAddress { first: Node, second: Node, address: SocketAddr },
    #[error("{me} is not in --peers, which names {names}; --node is one of them")]
    NotThere { me: Node, names: String },
    #[error("{name} has {address}, where nobody can be reached; name its IP address and its port")]
    Nowhere { name: Node, address: SocketAddr },
    #[error(
        "{name} has {address}, which is not on loopback: nothing is authenticated, whoever reaches the \
         port can make itself leader; if the network is yours alone, add --allow-remote"
    )]
    Remote { name: Node, address: SocketAddr },
    #[error(
        "{first} has {first_at} and {second} has {second_at}, which cannot reach each other: all on \
         loopback or none, all of one family"
    )]
    Apart { first: Node, first_at: SocketAddr, second: Node, second_at: SocketAddr },
}

/// The list, sorted by name: the last name is the highest.
#[derive(Clone, Debug)]
pub struct Roster {
    peers: Vec<Peer>,
    me: NodeId,
}

impl Roster {
    /// Checks a list and finds this process in it.
    pub fn new(mut peers: Vec<Peer>, me: &Node, allow_remote: bool) -> Result<Self, RosterError> {
        if !(PEERS_MIN..=PEERS_MAX).contains(&peers.len()) {
            return Err(RosterError::Count(peers.len()));
        }
        peers.sort_by(|one, other| one.name.cmp(&other.name));
        for pair in peers.windows(2) {
            if pair[0].name == pair[1].name {
                return Err(RosterError::DoubledName(pair[0].name.clone()));
            }
        }
        check_addresses(&peers, allow_remote)?;
        let Some(number) = peers.iter().position(|peer| peer.name == *me) else {
            let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
            return Err(RosterError::NotThere { me: me.clone(), names: names.join(", ") });
        };
        let me = NodeId(u16::try_from(number).expect("there are at most 26"));
        Ok(Self { peers, me })
    }

    /// This process.
    pub const fn me(&self) -> NodeId {
        self.me
    }

    /// How many there are.
    pub fn count(&self) -> u16 {
        u16::try_from(self.peers.len()).expect("there are at most 26")
    }

    /// What a node is called; none if there is no such node.
    pub fn name(&self, node: NodeId) -> Option<&Node> {
        self.peers.get(usize::from(node.0)).map(|peer| &peer.name)
    }

    /// What this process is called.
    pub fn own_name(&self) -> &Node {
        &self.peers[usize::from(self.me.0)].name
    }

    /// Where a node listens; none if there is no such node.
    pub fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.peers.get(usize::from(node.0)).map(|peer| peer.address)
    }

    /// Where this process listens.
    pub fn own_address(&self) -> SocketAddr {
        self.peers[usize::from(self.me.0)].address
    }

    /// Everybody else.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + use<> {
        let me = self.me;
        (0..self.count()).map(NodeId).filter(move |node| *node != me)
    }

    /// Who sends from this address, if anybody.
    pub fn find(&self, address: SocketAddr) -> Option<NodeId> {
        // By address and port alone: the scope and the flow of an IPv6 packet are the link's affair.
        let is_it = |peer: &Peer| place(peer.address) == place(address);
        let number = self.peers.iter().position(is_it)?;
        u16::try_from(number).ok().map(NodeId)
    }

    /// A print of what every process has to be given alike: names, addresses and paces. It finds mistakes,
    /// not liars.
    pub fn digest(&self, pace: &Pace) -> u64 {
        let mut text = String::new();
        for Peer { name, address } in &self.peers {
            text.push_str(&format!("{name}={address}\n"));
        }
        let Pace { heartbeat_every, patience_min, patience_max, answer_within, ttl: _ } = pace;
        for time in [heartbeat_every, patience_min, patience_max, answer_within] {
            text.push_str(&format!("{}ms\n", time.as_millis()));
        }
        fnv::print(text.bytes())
    }
}

fn place(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip(), address.port())
}

fn check_addresses(peers: &[Peer], allow_remote: bool) -> Result<(), RosterError> {
    let mut seen = BTreeSet::new();
    for Peer { name, address } in peers {
        let (name, address) = (name.clone(), *address);
        let ip = address.ip();
        let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        if address.port() == 0 || ip.is_unspecified() || ip.is_multicast() || is_broadcast {
            return Err(RosterError::Nowhere { name, address });
        }
        if !ip.is_loopback() && !allow_remote {
            return Err(RosterError::Remote { name, address });
        }
        if !seen.insert(place(address)) {
            let is_it = |peer: &&Peer| place(peer.address) == place(address);
            let first = peers.iter().find(is_it).map_or(&name, |peer| &peer.name).clone();
            return Err(RosterError::DoubledAddress { first, second: name, address });
        }
    }
    let kind = |peer: &Peer| (peer.address.is_ipv4(), peer.address.ip().is_loopback());
    for pair in peers.windows(2) {
        if kind(&pair[0]) != kind(&pair[1]) {
            return Err(RosterError::Apart {
                first: pair[0].name.clone(),
                first_at: pair[0].address,
                second: pair[1].name.clone(),
                second_at: pair[1].address,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(list: &str) -> Vec<Peer> {
        list.split(',').map(|peer| peer.parse().unwrap()).collect()
    }

    fn roster(list: &str, me: &str) -> Result<Roster, RosterError> {
        Roster::new(read(list), &Node::new(me).unwrap(), false)
    }

    fn pace(heartbeat_ms: u64) -> Pace {
        let ms = Duration::from_millis;
        Pace {
            heartbeat_every: ms(heartbeat_ms),
            patience_min: ms(400),
            patience_max: ms(800),
            answer_within: ms(100),
            ttl: ms(800),
        }
    }

    #[test]
    fn names_sort_to_numbers_whatever_order_they_are_given_in() {
        let one = roster("c=127.0.0.1:3,a=127.0.0.1:1,b=127.0.0.1:2", "b").unwrap();
        let other = roster("a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3", "c").unwrap();
        assert_eq!((one.me(), one.own_name().as_str()), (NodeId(1), "b"));
        assert_eq!(other.own_address(), "127.0.0.1:3".parse().unwrap());
        assert_eq!(one.others().collect::<Vec<_>>(), [NodeId(0), NodeId(2)]);
        assert_eq!(one.find("127.0.0.1:3".parse().unwrap()), Some(NodeId(2)));
        assert_eq!(one.find("127.0.0.1:4".parse().unwrap()), None);
        assert_eq!(one.digest(&pace(100)), other.digest(&pace(100)));
    }

    #[test]
    fn other_names_addresses_or_paces_give_another_digest() {
        let digest =
            |list: &str, heartbeat_ms| roster(list, "a").unwrap().digest(&pace(heartbeat_ms));
        let all = [
            digest("a=127.0.0.1:1,b=127.0.0.1:2", 100),
            digest("a=127.0.0.1:1,c=127.0.0.1:2", 100),
            digest("a=127.0.0.1:1,b=127.0.0.1:3", 100),
            digest("a=127.0.0.1:1,b=127.0.0.1:2", 101),
            digest("a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3", 100),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn lists_that_cannot_work_are_refused_with_the_way_out() {
        let refused = |list: &str, me: &str| roster(list, me).unwrap_err().to_string();
        assert!(refused("a=127.0.0.1:1", "a").contains("1 peers are refused: 2 to 26"));
        let many: Vec<String> = (0..27).map(|n| format!("n{n:02}=127.0.0.1:{}", n + 1)).collect();
        assert!(refused(&many.join(","), "n00").contains("27 peers are refused"));
        let pair = "a=127.0.0.1:1,b=127.0.0.1:2";
        assert!(refused(pair, "x").contains("x is not in --peers, which names a, b"));
        let doubled = refused("a=127.0.0.1:1,a=127.0.0.1:2", "a");
        assert!(doubled.contains("two peers are called a"), "{doubled}");
        let doubled = refused("a=127.0.0.1:1,b=127.0.0.1:1", "a");
        assert!(doubled.contains("a and b have the same address 127.0.0.1:1"), "{doubled}");
        for nowhere in ["127.0.0.1:0", "0.0.0.0:7", "[::]:7", "224.0.0.1:7", "255.255.255.255:7"] {
            let text = refused(&format!("a=127.0.0.1:1,b={nowhere}"), "a");
            assert!(text.contains("nobody can be reached"), "{text}");
        }
        let remote = refused("a=127.0.0.1:1,b=10.0.0.2:2", "a");
        assert!(remote.contains("nothing is authenticated") && remote.contains("--allow-remote"));
        let apart = refused("a=127.0.0.1:1,b=[::1]:2", "a");
        assert!(apart.contains("cannot reach each other"), "{apart}");
    }

    #[test]
    fn remote_addresses_need_to_be_allowed_and_then_all_are_remote() {
        let a = Node::new("a").unwrap();
        let remote = read("a=10.0.0.1:1,b=10.0.0.2:1");
        assert!(Roster::new(remote, &a, true).is_ok());
        let mixed = Roster::new(read("a=127.0.0.1:1,b=10.0.0.2:1"), &a, true).unwrap_err();
        assert!(matches!(mixed, RosterError::Apart { .. }));
    }

    #[test]
    fn what_is_no_peer_is_refused_with_an_example() {
        for (text, why) in [
            ("a", "write NAME=IP:PORT"),
            ("=127.0.0.1:1", "must not be empty"),
            ("a=localhost:1", "write IP:PORT"),
            ("a=127.0.0.1", "write IP:PORT"),
            ("a=127.0.0.1:99999", "write IP:PORT"),
            ("a b=127.0.0.1:1", "letters, digits"),
        ] {
            let error = text.parse::<Peer>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
