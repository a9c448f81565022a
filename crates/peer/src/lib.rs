//! Storeless election: bully and ring between real processes, over UDP. Two leaders are possible.
//!
//! The machines are those of [`regent_protocols`], which the simulator plays too. Here they get a socket
//! and a clock: `engine` decides, `wire` is the datagram, and a [`Member`] is one node in one process.
//! All processes are given the same list.
//!
//! It is for places where a wrong leader is harmless: there is no majority and no term, so a partition or a
//! pause makes two leaders, and nothing downstream could tell them apart ([`Algorithm::weaknesses`] says
//! so). The road not taken is making it safe: that takes a store or a majority.
//!
//! Nothing is kept over a crash, and nothing needs to be: none of these algorithms votes, so there is
//! nothing that must not be said twice, and a node that comes back asks. What others remember of its
//! earlier life they tell it (`wire::Life`).

mod algorithm;
mod drops;
mod engine;
mod limits;
mod member;
mod pace;
mod roster;
mod wire;

pub use algorithm::Algorithm;
pub use member::{Member, News, PeerError, Standing};
pub use pace::{PaceError, Patience, Wishes, settle};
pub use roster::{Peer, Roster, RosterError};
