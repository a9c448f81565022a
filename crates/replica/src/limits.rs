//! Every bound of the replica, each with its reason.

use std::time::Duration;

/// One tick of Raft. Heartbeats and the quorum check count in these; elections count in milliseconds.
pub const TICK_MS: u64 = 10;

/// Most bytes of entries in one message to a follower.
pub const APPEND_BYTES_MAX: u64 = 1 << 20;
/// Most messages of entries on their way to one follower.
pub const APPENDS_INFLIGHT_MAX: usize = 256;
/// Most bytes proposed and not yet committed: beyond it a proposal is refused, not queued.
pub const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// Most committed bytes handed over for applying at once.
pub const COMMITTED_BYTES_PER_TURN: u64 = 4 << 20;

/// Rounds of read confirmation under way at once; later reads share the next one.
pub const ROUNDS_INFLIGHT_MAX: usize = 4;
/// Reads and heartbeats that may wait for a round.
pub const WAITING_FOR_ROUND_MAX: usize = 200_000;
/// Proposals of this replica that may wait for their commit.
pub const PROPOSALS_MAX: usize = 200_000;
/// Requests forwarded to the Raft leader that may wait for their answer.
pub const FORWARDED_MAX: usize = 200_000;

/// Groups' worth of one entry that is applied before messages and heartbeats get their turn again:
/// about 2 ms of work (semantics 24).
pub const APPLY_GROUPS_PER_SLICE: usize = 512;
/// Effects of one entry that are timed before messages and heartbeats get their turn again.
pub const APPLY_EFFECTS_PER_SLICE: usize = 4096;
/// Entries applied before messages and heartbeats get their turn again.
pub const APPLY_ENTRIES_PER_TURN: usize = 1024;
/// Queued checks looked at per turn for sessions that may be due.
pub const CHECKS_PER_TURN: usize = 4096;

/// Entries after which the log before a snapshot is dropped.
pub const LOG_ENTRIES_BETWEEN_SNAPSHOTS: u64 = 100_000;
/// How long nothing must have been applied until a tenth of that is enough.
pub const SNAPSHOT_WHEN_IDLE_FOR: Duration = Duration::from_secs(3);
/// Bytes of log in memory after which it is dropped before a snapshot, however few entries they are:
/// a client that writes large policies must not fill the memory.
pub const LOG_BYTES_BETWEEN_SNAPSHOTS: usize = 64 << 20;
/// Entries kept before a snapshot, so that a follower slightly behind needs no snapshot.
pub const LOG_ENTRIES_KEPT: u64 = 10_000;
/// Bytes of those, however few they are.
pub const LOG_BYTES_KEPT: usize = 16 << 20;

/// How soon a snapshot is tried again that the disk had no room for; twice as long with every attempt.
pub const SNAPSHOT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The longest such pause.
pub const SNAPSHOT_AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);

/// A sync of the Raft leader's log that takes this long is slow: clients see it, and a disk in order needs a tenth.
pub const SLOW_SYNC_FROM: Duration = Duration::from_millis(200);
/// So many slow ones in a row, each later than another voter's, and leadership is handed over: about two seconds of them.
pub const SLOW_SYNCS: u32 = 8;
/// How much time lies between two hand-overs for that.
pub const SLOW_HAND_OVER_EVERY: Duration = Duration::from_secs(60);

/// Longest a drawn election time-out may grow after split votes, as a multiple of the first draw.
pub const BACKOFF_FACTOR_MAX: u32 = 10;

/// The most patience that is applied, in per cent of what is configured: sixteen times a data centre's is that
/// between continents. Whoever needs more has to say so.
pub const PATIENCE_PERCENT_MAX: u64 = 1600;
/// How much time lies between two changes of patience, each by a factor of two at most: far more than an election
/// takes, so that the effect of one is seen before the next.
pub const PATIENCE_CHANGE_EVERY: Duration = Duration::from_secs(60);
/// For how long less must have been enough until less is recommended: what comes every few minutes is seen.
pub const PATIENCE_CALM_FOR: Duration = Duration::from_secs(5 * 60);
/// How far back round trips and pauses count.
pub const MEASURED_FOR: Duration = Duration::from_secs(20 * 60);
/// Round trips on one way before anything is said about it: ten seconds of them.
pub const TRIPS_TO_JUDGE_BY: u64 = 20;
/// How often measurements are judged.
pub const JUDGE_EVERY: Duration = Duration::from_secs(5);

const _: () = assert!(PATIENCE_CALM_FOR.as_secs() <= MEASURED_FOR.as_secs() / 2);

/// Most replicas in a cluster, learners and witnesses included.
pub const REPLICAS_MAX: usize = 16;

/// Committed entries that a learner may lack when it becomes a voter: a fraction of a second's worth under load, so that
/// it does not hold up what it has to confirm.
pub const PROMOTED_BEHIND_MAX: u64 = 1000;

/// Most members in a list that a peer sends, and beyond which an `Add` in the log means nothing. Far more than an honest
/// leader adds: a replica must not refuse what another build, with a larger [`REPLICAS_MAX`], has committed. Raft takes
/// time that grows with the square of it to restore such a list.
pub const MEMBERS_LISTED_MAX: usize = 4 * REPLICAS_MAX;

/// Connections at a time whose other end has not proved who it is: some for every replica there can be. With one more,
/// the first of them gives way.
pub const UNPROVEN_MAX: usize = 4 * REPLICAS_MAX;
/// Snapshots that arrive at a time: one of every replica there can be, each in a file.
pub const SNAPSHOTS_ARRIVING_MAX: usize = REPLICAS_MAX;
/// How long a peer has to connect, to prove who it is and to greet.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(2);
/// A leader that said nothing for this long leads nobody: longer than the slowest heartbeat there is, with all
/// patience applied (250 ms × 16).
pub const LED_WITHIN: Duration = Duration::from_secs(5);
/// How often at most the log tells of connections that were refused: a stranger must not fill it.
pub const REFUSALS_TOLD_EVERY: Duration = Duration::from_secs(10);

/// The largest Raft term and index that a message may bear: sums with it do not overflow.
pub const RAFT_NUMBER_MAX: u64 = u64::MAX / 4;
/// By how much the Raft term rises at most, within [`TERM_LEAP_EVERY`], by what peers say.
///
/// A replica that was away hears of all terms since at once, and an honest cluster makes far fewer: sixteen replicas that
/// each begin an election every 100 ms need 310 days for so many. A hostile member that raises the term for as long as it
/// is there needs 2^62 / 2^32 seconds, 34 years, to use all terms up; with no bound it took one message.
pub const TERM_LEAP_MAX: u64 = 1 << 32;
/// In which time.
pub const TERM_LEAP_EVERY: Duration = Duration::from_secs(1);
/// How far beyond this replica's log a snapshot may stand, if it has a log: at 10,000 entries a second, three and a half
/// years away. A replica that joins has none and takes any place.
pub const SNAPSHOT_LEAP_MAX: u64 = 1 << 40;
/// By how much the number of a replica's runs rises at most between two of its proposals that are applied: a restart a
/// second for eight years, none of which proposed anything.
pub const BOOT_LEAP_MAX: u64 = 1 << 28;
/// The same for the numbers of proposals within a run. Heartbeats take numbers, too: 100,000 a second for 89 years.
pub const PROPOSAL_LEAP_MAX: u64 = 1 << 48;
/// Longest context of a message: that of a read round has 24 bytes, that of a transfer 16.
pub const CONTEXT_BYTES_MAX: usize = 64;
/// Read rounds of one replica that wait for a quorum at the Raft leader. A replica has four under way, and begins late
/// ones again; a leader without a quorum resigns before there are this many. Each has its own, so that a member that asks
/// without end keeps nobody else from reading.
pub const READ_ROUNDS_PER_MEMBER_MAX: usize = 16 * ROUNDS_INFLIGHT_MAX;

/// Bytes of one peer's messages that wait for the core, as they weigh in memory. With more, its link is not read until
/// some were taken. Two frames of the longest kind fit, and of all peers together [`PEERS_INBOX_BYTES_MAX`].
pub const PEER_INBOX_BYTES_MAX: usize = 16 << 20;
/// The same for all peers that there can be.
pub const PEERS_INBOX_BYTES_MAX: usize = PEER_INBOX_BYTES_MAX * REPLICAS_MAX;
/// What the shortest message counts there: so one peer takes at most 16,384 of the places of the inbox, a quarter, and
/// the core is still told what others say.
pub const PEER_MESSAGE_BYTES_MIN: usize = 1 << 10;
/// Bytes of messages that wait to be sent to one peer, beside what they share with the log. With more they are dropped,
/// as a network would: a peer that reads nothing, and asks for everything again and again, fills no memory.
pub const PEER_OUTBOX_BYTES_MAX: usize = 64 << 20;
/// What an entry of the log weighs in a message beside its bytes, and at most an element of a list in a command.
pub const ENTRY_RECORD_BYTES: usize = 128;
