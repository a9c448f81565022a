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

/// Reads the bytes as a datagram, for the fuzzer. What is read is written as it was.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    use regent_protocols::bully::Bully;
    use regent_protocols::ring::Ring;
    use regent_protocols::ring::chang_roberts::ChangRoberts;

    fn again<P: wire::Spoken>(bytes: &[u8], head: &wire::Head, kind: u8, body: &[u8]) {
        if let Ok(word) = wire::read_word::<P>(kind, body, 5) {
            assert_eq!(wire::write::<P>(head, &word).as_deref(), Some(bytes));
        }
    }
    let Ok((head, kind, body)) = wire::read_head(bytes) else { return };
    again::<Bully>(bytes, &head, kind, body);
    again::<Ring>(bytes, &head, kind, body);
    again::<ChangRoberts>(bytes, &head, kind, body);
}
