//! One node in this process: carries datagrams and time between its engine and the world.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use regent_election::error_text::plain;
use regent_election::{Moment, Node};
use regent_protocols::bully::Bully;
use regent_protocols::ring::Ring;
use regent_protocols::ring::chang_roberts::ChangRoberts;
use regent_protocols::{NodeId, Pace};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use tokio::net::UdpSocket;

use crate::Algorithm;
use crate::drops::Drops;
use crate::engine::Engine;
use crate::limits::{DATAGRAM_BYTES_MAX, SOCKET_ERRORS_MAX, TICK, TURN_DATAGRAMS_MAX};
use crate::roster::Roster;
use crate::wire::{Dropped, Post, Spoken};

/// Whom a node takes for the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The node that believes it.
    pub node: Node,
    /// The leader, if it knows of one.
    pub leader: Option<Node>,
}

impl Standing {
    /// Whether it takes itself for the leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leader.as_ref() == Some(&self.node)
    }

    /// What a command that is run at a change gets: what this process believes, which is all there is. There is no
    /// term, and no promise that no other process believes the same of itself.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let leader = self.leader.as_ref().map_or("", |leader| leader.as_str());
        vec![
            ("REGENT_NODE", self.node.as_str().into()),
            ("REGENT_LEADER", leader.into()),
            ("REGENT_IS_LEADER", self.is_leader().to_string().into()),
        ]
    }
}

impl Serialize for Standing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Standing", 3)?;
        object.serialize_field("is_leader", &self.is_leader())?;
        object.serialize_field("leader", &self.leader.as_ref().map(Node::as_str))?;
        object.serialize_field("node", self.node.as_str())?;
        object.end()
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.node;
        match &self.leader {
            None => write!(f, "nobody leads"),
            Some(leader) if leader == node => write!(f, "{node} leads"),
            Some(leader) => write!(f, "{node} follows {leader}"),
        }
    }
}

/// What a member has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It takes another node for the leader than before. The first is nobody.
    Changed(Standing),
    /// A line for people: datagrams are dropped, or the socket fails for a while.
    Remark(String),
}

/// Why a member cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Its address cannot be listened on.
    #[error("{name} cannot listen on {address}: {}{}", plain(.error), hint(.name, .error))]
    Listen {
        /// Its name in the list.
        name: Node,
        /// Its address in the list.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// Its socket does nothing but fail.
    #[error("{address}: {}", plain(.error))]
    Socket {
        /// Its address in the list.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
}

fn hint(name: &Node, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => format!("; is {name} running already?"),
        ErrorKind::AddrNotAvailable => "; that is no address of this machine".to_owned(),
        _ => String::new(),
    }
}

/// An engine of any algorithm.
trait Machine: Send + fmt::Debug {
    fn take(&mut self, now: Moment, from: SocketAddr, bytes: &[u8]) -> Result<(), Dropped>;
    fn wake(&mut self, now: Moment);
    fn wake_at(&self) -> Option<Moment>;
    fn posts(&mut self) -> Vec<Post>;
    fn leaders(&mut self) -> Vec<Option<NodeId>>;
    fn roster(&self) -> &Roster;
}

impl<P> Machine for Engine<P>
where
    P: Spoken + Send,
    P::Timer: Send,
{
    fn take(&mut self, now: Moment, from: SocketAddr, bytes: &[u8]) -> Result<(), Dropped> {
        Self::take(self, now, from, bytes)
    }

    fn wake(&mut self, now: Moment) {
        Self::wake(self, now);
    }

    fn wake_at(&self) -> Option<Moment> {
        Self::wake_at(self)
    }

    fn posts(&mut self) -> Vec<Post> {
        Self::posts(self)
    }

    fn leaders(&mut self) -> Vec<Option<NodeId>> {
        Self::leaders(self)
    }

    fn roster(&self) -> &Roster {
        Self::roster(self)
    }
}

/// A node that takes part as long as [`Member::next`] is called; dropped, it answers nothing any more. The
/// algorithms know no farewell: the others miss it like one that has died.
#[derive(Debug)]
pub struct Member {
    socket: UdpSocket,
    engine: Box<dyn Machine>,
    drops: Drops,
    /// Errors of the socket in a row.
    errors: u32,
    news: VecDeque<News>,
    /// Told after the news that led to it.
    failure: Option<PeerError>,
}

impl Member {
    /// Listens on its address of the list and starts to elect. `chance` is random, from the system: it
    /// tells this process from an earlier one of the same name, and seeds its dice.
    pub async fn start(
        algorithm: Algorithm,
        roster: Roster,
        pace: Pace,
        chance: u64,
    ) -> Result<Self, PeerError> {
        let socket = listen(&roster).await?;
        let now = regent_clock::now();
        let engine: Box<dyn Machine> = match algorithm {
            Algorithm::Bully => Box::new(Engine::<Bully>::start(roster, pace, chance, now)),
            Algorithm::Ring => Box::new(Engine::<Ring>::start(roster, pace, chance, now)),
            Algorithm::ChangRoberts => {
                Box::new(Engine::<ChangRoberts>::start(roster, pace, chance, now))
            }
        };
        Ok(Self {
            socket,
            engine,
            drops: Drops::default(),
            errors: 0,
            news: VecDeque::new(),
            failure: None,
        })
    }

    /// Takes part until there is something to tell. Nothing is lost if the wait is given up.
    pub async fn next(&mut self) -> Result<News, PeerError> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Ok(news);
            }
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            self.failure = self.turn().err();
            // A port that is flooded is always readable: other tasks have their turn none the less.
            tokio::task::yield_now().await;
            if !self.news.is_empty() || self.failure.is_some() {
                continue;
            }
            let pause = self.pause();
            tokio::select! {
                biased;
                ready = self.socket.readable() => {
                    ready.map_err(|error| self.broken(error))?;
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// How many datagrams were dropped and why, for people; none if there were none.
    #[must_use]
    pub fn dropped(&self) -> Option<String> {
        self.drops.summary()
    }

    /// Takes what has come, then what time brings, and sends. In this order: a node that was paused hears
    /// what it has missed before it acts on a timer that is long over.
    fn turn(&mut self) -> Result<(), PeerError> {
        self.receive()?;
        self.engine.wake(regent_clock::now());
        self.send()?;
        for leader in self.engine.leaders() {
            let roster = self.engine.roster();
            let leader = leader.and_then(|leader| roster.name(leader)).cloned();
            let standing = Standing { node: roster.own_name().clone(), leader };
            tracing::info!(node = %standing.node, leader = ?standing.leader, "the leader changed");
            self.news.push_back(News::Changed(standing));
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), PeerError> {
        // One byte more than any of ours, so that a longer one is seen to be longer.
        let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
        for _ in 0..TURN_DATAGRAMS_MAX {
            match self.socket.try_recv_from(&mut buffer) {
                Ok((length, from)) => {
                    self.errors = 0;
                    let taken = self.engine.take(regent_clock::now(), from, &buffer[..length]);
                    if let Err(dropped) = taken {
                        self.note(from, dropped);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self.endure(error)?,
            }
        }
        Ok(())
    }

    fn note(&mut self, from: SocketAddr, dropped: Dropped) {
        tracing::debug!(%from, %dropped, "a datagram is dropped");
        if let Some(line) = self.drops.count(from, dropped) {
            self.news.push_back(News::Remark(line));
        }
    }

    /// What cannot be sent at once is lost, as it might be on the way; the algorithms stand that.
    fn send(&mut self) -> Result<(), PeerError> {
        for post in self.engine.posts() {
            match self.socket.try_send_to(&post.bytes, post.to) {
                Ok(_) => self.errors = 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    tracing::debug!(to = %post.to, "the socket is full; a datagram is lost");
                }
                Err(error) => self.endure(error)?,
            }
        }
        Ok(())
    }

    /// A socket may fail for a while, as when a link is down; one that does nothing else is no socket.
    fn endure(&mut self, error: io::Error) -> Result<(), PeerError> {
        if self.errors == 0 {
            let address = self.engine.roster().own_address();
            self.news.push_back(News::Remark(format!("{address}: {}", plain(&error))));
        }
        self.errors += 1;
        if self.errors >= SOCKET_ERRORS_MAX { Err(self.broken(error)) } else { Ok(()) }
    }

    fn broken(&self, error: io::Error) -> PeerError {
        PeerError::Socket { address: self.engine.roster().own_address(), error }
    }

    /// How long to sleep at most.
    fn pause(&self) -> Duration {
        let now = regent_clock::now();
        self.engine.wake_at().map_or(TICK, |at| now.until(at).min(TICK))
    }
}

async fn listen(roster: &Roster) -> Result<UdpSocket, PeerError> {
    let (name, address) = (roster.own_name(), roster.own_address());
    let unavailable = |error| PeerError::Listen { name: name.clone(), address, error };
    let socket = UdpSocket::bind(address).await.map_err(unavailable)?;
    // Nothing is sent by `try_send_to` before the runtime has seen once that it can be.
    socket.writable().await.map_err(unavailable)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Peer, Wishes, settle};

    #[test]
    fn a_standing_is_one_object_for_programs() {
        let told = |leader: Option<&str>| Standing {
            node: Node::new("a").unwrap(),
            leader: leader.map(|name| Node::new(name).unwrap()),
        };
        let text = serde_json::to_string(&told(Some("c"))).unwrap();
        assert_eq!(text, r#"{"is_leader":false,"leader":"c","node":"a"}"#);
        let text = serde_json::to_string(&told(None)).unwrap();
        assert_eq!(text, r#"{"is_leader":false,"leader":null,"node":"a"}"#);
    }

    #[test]
    fn a_standing_is_one_line() {
        let told = |leader: Option<&str>| Standing {
            node: Node::new("a").unwrap(),
            leader: leader.map(|name| Node::new(name).unwrap()),
        };
        assert_eq!(told(None).to_string(), "nobody leads");
        assert_eq!(told(Some("a")).to_string(), "a leads");
        assert_eq!(told(Some("c")).to_string(), "a follows c");
    }

    #[test]
    fn a_command_learns_who_leads_and_whether_it_is_this_process() {
        let told = |leader: &str| {
            Standing { node: Node::new("a").unwrap(), leader: Node::new(leader).ok() }.environment()
        };
        let as_told = |leader: &str, is_leader: &str| -> Vec<(&'static str, OsString)> {
            vec![
                ("REGENT_NODE", "a".into()),
                ("REGENT_LEADER", leader.into()),
                ("REGENT_IS_LEADER", is_leader.into()),
            ]
        };
        assert_eq!(told(""), as_told("", "false"));
        assert_eq!(told("a"), as_told("a", "true"));
    }

    /// Two members in one process, without the command.
    #[tokio::test]
    async fn two_members_elect_the_higher_name() {
        // Both ports are held until both are known, so that they differ.
        let held = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let addresses = held.each_ref().map(|socket| socket.local_addr().unwrap());
        drop(held);
        let peers = || {
            let named = ["a", "b"].into_iter().zip(addresses);
            named.map(|(name, address)| Peer { name: Node::new(name).unwrap(), address }).collect()
        };
        let mut members = Vec::new();
        for (chance, name) in (1..).zip(["a", "b"]) {
            let roster = Roster::new(peers(), &Node::new(name).unwrap(), false).unwrap();
            let pace = settle(Algorithm::Bully, roster.count(), &Wishes::default()).unwrap();
            members.push(Member::start(Algorithm::Bully, roster, pace, chance).await.unwrap());
        }
        let [mut a, mut b] = <[Member; 2]>::try_from(members).unwrap();
        let (mut last_a, mut last_b) = (String::new(), String::new());
        while (last_a.as_str(), last_b.as_str()) != ("a follows b", "b leads") {
            let (news, last) = tokio::select! {
                news = a.next() => (news, &mut last_a),
                news = b.next() => (news, &mut last_b),
            };
            if let News::Changed(standing) = news.unwrap() {
                *last = standing.to_string();
            }
        }
    }
}
