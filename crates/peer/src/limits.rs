//! Every bound of a member, each with its reason.

use std::time::Duration;

use regent_protocols::NODES_MAX;

/// Fewer than two elect nothing.
pub(crate) const PEERS_MIN: usize = 2;
/// As many as the machines were played with in the lab.
pub(crate) const PEERS_MAX: usize = NODES_MAX as usize;

/// Names on a token. A round has each once; a node that died and came back while the token was on its way
/// may stand on it twice.
pub(crate) const NAMES_MAX: usize = 2 * PEERS_MAX;
/// What every datagram begins with.
pub(crate) const HEAD_BYTES: usize = 28;
/// The longest datagram: an announcement with all its names. A longer one is not ours.
pub(crate) const DATAGRAM_BYTES_MAX: usize = HEAD_BYTES + 8 + 8 + 1 + 1 + NAMES_MAX;

/// Datagrams that are taken before timers and sends have their turn: whoever floods the port delays an
/// election, and does not stop it.
pub(crate) const TURN_DATAGRAMS_MAX: usize = 64;
/// Messages of a node to itself in one step. A ring sends one, when nobody else is left to take a token.
pub(crate) const STEP_OWN_MAX: usize = 8;
/// Timers of one node. A ring has one for each token that was not acknowledged; beyond this many, further
/// datagrams are dropped until some are over.
pub(crate) const TIMERS_MAX: usize = 1024;
/// Senders of whom it is told why what they send is dropped; of more, only their number.
pub(crate) const TOLD_MAX: usize = 32;
/// Errors of the socket in a row after which it is no socket.
pub(crate) const SOCKET_ERRORS_MAX: u32 = 100;

/// The shortest pace: below it the scheduler of a busy machine decides who leads.
pub(crate) const PACE_MIN: Duration = Duration::from_millis(10);
/// The longest one: a leader that is missed after a day is no leader.
pub(crate) const PACE_MAX: Duration = Duration::from_secs(600);

/// Timers of the runtime stand still while a machine sleeps: the clock is read at least this often.
pub(crate) const TICK: Duration = Duration::from_millis(250);

const _: () = assert!(PEERS_MIN >= 2 && PEERS_MAX <= u8::MAX as usize);
const _: () = assert!(NAMES_MAX <= u8::MAX as usize);
// One packet on every link there is.
const _: () = assert!(DATAGRAM_BYTES_MAX <= 508);
