//! What a connection between two replicas travels on, and what it proves of the other end.
//!
//! Encryption is somebody else's craft: whoever starts a replica hands in a [`Transport`], and this
//! crate needs no cryptography. What is here is the plaintext one, which proves nothing and is
//! therefore confined to the loopback address unless an operator says otherwise.

use std::fmt;
use std::io;
use std::net::IpAddr;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::member::{Members, ReplicaId};

/// Makes a connection fit for peers. Nothing of Raft is sent or read before it has.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync {
    /// Prepares a connection that this replica opened.
    async fn connect(&self, stream: TcpStream) -> io::Result<Channel>;

    /// Prepares a connection that was opened to this replica.
    async fn accept(&self, stream: TcpStream) -> io::Result<Channel>;

    /// When this replica's proof of who it is ends, in seconds since 1970; none if it has none, or it never does.
    fn expires_at_s(&self) -> Option<u64> {
        None
    }

    /// How often another proof was found where the present one came from, and could not be used.
    fn reload_failures(&self) -> u64 {
        0
    }
}

/// Which replica of which cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerName {
    pub cluster: u128,
    pub replica: ReplicaId,
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replica {} of cluster {:032x}", self.replica, self.cluster)
    }
}

/// A connection that is ready for peers.
pub struct Channel {
    /// What the other end says.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What is said to it. Must be flushed.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Who is at the other end, if that was proved.
    pub proven: Option<PeerName>,
}

impl Channel {
    /// A connection whose other end proved to be this replica of this cluster.
    ///
    /// # Errors
    /// If no replica has this number.
    pub fn proven(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        cluster: u128,
        replica: u64,
    ) -> io::Result<Self> {
        let replica = ReplicaId::new(replica)
            .ok_or_else(|| io::Error::other("the certificate names replica 0"))?;
        let proven = Some(PeerName { cluster, replica });
        let (reader, writer) = tokio::io::split(stream);
        Ok(Self { reader: Box::new(reader), writer: Box::new(writer), proven })
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("proven", &self.proven).finish_non_exhaustive()
    }
}

/// Plain TCP: no proof of anything, readable by whoever is on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plaintext {
    /// Only between processes of this machine.
    #[default]
    Loopback,
    /// Anywhere: whoever reaches the port can depose leaders and read secrets.
    Anywhere,
}

impl Plaintext {
    fn channel(self, stream: TcpStream) -> io::Result<Channel> {
        let address = stream.peer_addr()?;
        if self == Self::Loopback && !is_this_machine(address.ip()) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{address} is another machine, and peers without TLS are not spoken to"),
            ));
        }
        let (reader, writer) = stream.into_split();
        Ok(Channel { reader: Box::new(reader), writer: Box::new(writer), proven: None })
    }
}

#[async_trait]
impl Transport for Plaintext {
    async fn connect(&self, stream: TcpStream) -> io::Result<Channel> {
        self.channel(stream)
    }

    async fn accept(&self, stream: TcpStream) -> io::Result<Channel> {
        self.channel(stream)
    }
}

fn is_this_machine(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Whether an address like `127.0.0.1:7401` can be reached from this machine only. A host name may be
/// anywhere, but for `localhost`.
#[must_use]
pub fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(is_this_machine)
}

/// The first address that plaintext peers must not use: where this replica listens, or where a member
/// is reached.
#[must_use]
pub fn beyond_loopback(listen: Option<&str>, members: &Members) -> Option<String> {
    let reached = members.values().map(|member| member.peer_address.as_str());
    listen.into_iter().chain(reached).find(|address| !is_loopback(address)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;

    #[test]
    fn only_addresses_of_this_machine_do_without_tls() {
        for local in
            ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1"]
        {
            assert!(is_loopback(local), "{local}");
        }
        for remote in ["10.0.0.1:1", "0.0.0.0:1", "[::]:1", "db-1:1", "localhost.example:1", ""] {
            assert!(!is_loopback(remote), "{remote}");
        }
        let at = |peer: &str| Member {
            peer_address: peer.to_owned(),
            client_address: String::new(),
            is_witness: false,
        };
        let id = |number| ReplicaId::new(number).unwrap();
        let near = Members::from([(id(1), at("127.0.0.1:1")), (id(2), at("[::1]:2"))]);
        assert_eq!(beyond_loopback(Some("127.0.0.1:1"), &near), None);
        assert_eq!(beyond_loopback(Some("0.0.0.0:1"), &near).as_deref(), Some("0.0.0.0:1"));
        let far = Members::from([(id(1), at("127.0.0.1:1")), (id(2), at("db-2:2"))]);
        assert_eq!(beyond_loopback(None, &far).as_deref(), Some("db-2:2"));
    }
}
