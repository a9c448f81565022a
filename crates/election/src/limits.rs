//! Every bound of the rules, each with its reason. Relations between them are checked by the compiler.

/// Longest group name in bytes. Long enough for `team/service/component`, short enough for a log line.
pub const GROUP_BYTES_MAX: usize = 200;
/// Longest node name in bytes. Host names end at 253; a node name also has to fit a metric and a table.
pub const NODE_BYTES_MAX: usize = 128;
/// Most entries in a leader's metadata.
pub const METADATA_ENTRIES_MAX: usize = 32;
/// Most bytes of all metadata keys and values of one candidate, together.
pub const METADATA_BYTES_MAX: usize = 4096;
/// Longest reason an administrator may give.
pub const REASON_BYTES_MAX: usize = 500;
/// Longest URL of a store that a group has moved to or comes from.
pub const HOME_BYTES_MAX: usize = 500;
/// Longest name of a fenced resource in bytes: a table, a bucket and a key, a path.
pub const RESOURCE_BYTES_MAX: usize = 200;
/// Most fences of one group: few enough that a store which keeps a group in one entry can write them all every
/// time. A resource with more parts keeps their marks beside them.
pub const FENCES_PER_GROUP_MAX: usize = 256;
/// Fewest different bytes among the sixteen of a session id that a client chooses: a random one has fewer once in
/// 10^11.
pub const SESSION_DISTINCT_BYTES_MIN: u32 = 8;
/// Longest own part of a request id.
pub const REQUEST_NONCE_BYTES_MAX: usize = 40;

/// Most bindings of principals to roles: every request of a client may look at all of them.
pub const BINDINGS_MAX: usize = 256;
/// Most patterns for groups, and most for nodes, of one binding.
pub const PATTERNS_PER_BINDING_MAX: usize = 64;
/// Longest pattern of a binding in bytes: as long as the longest group name.
pub const PATTERN_BYTES_MAX: usize = GROUP_BYTES_MAX;
/// Most bytes of all bindings, as they are encoded: they travel in one entry and in every snapshot.
pub const BINDINGS_BYTES_MAX: usize = 64 << 10;
/// Most tokens, the revoked ones included: all of them are in every snapshot. A revoked one makes room for a new one.
pub const TOKENS_MAX: usize = 4096;
/// Longest label of a token in bytes.
pub const TOKEN_LABEL_BYTES_MAX: usize = 100;
/// Shortest pause of a candidate whose work failed soon after its election; it doubles with each failure in a row.
pub const DAMPING_MS_MIN: u64 = 500;
/// Longest pause of such a candidate. A node that was repaired should not be left out much longer.
pub const DAMPING_MS_MAX: u64 = 60_000;
/// A process that the servers do not know gives up at this refusal. One more than the first: a replica that lags
/// behind may not know a token that was made a moment ago.
pub const CREDENTIAL_REFUSALS_MAX: u32 = 2;

/// Terms stay exact in JSON numbers, that is below 2^53.
pub const TERM_MAX: u64 = (1 << 53) - 1;
/// Highest term that an operator may raise a group to, by an arrival or a floor: half of all terms stay for those that
/// are granted. A restored store takes its terms from the clock, which reaches this in the year 2106.
pub const TERM_GIVEN_MAX: u64 = TERM_MAX.div_ceil(2);

/// Shortest ttl any policy may allow: below it, scheduling noise looks like death.
pub const TTL_MS_FLOOR: u64 = 500;
/// Longest ttl any policy may allow; a restored store waits this long before its first grant.
pub const TTL_MS_CEILING: u64 = 24 * 60 * 60 * 1000;
/// Default lower bound of a group's ttl.
pub const TTL_MS_MIN_DEFAULT: u64 = 500;
/// Default upper bound of a group's ttl.
pub const TTL_MS_MAX_DEFAULT: u64 = 60 * 60 * 1000;
/// The ttl of a session that names none.
pub const TTL_MS_DEFAULT: u64 = 10_000;

/// Default shortest pause between two campaigns of one candidate.
pub const RETRY_MS_MIN_DEFAULT: u64 = 100;
/// Longest pause a policy may ask for between two campaigns.
pub const RETRY_MS_CEILING: u64 = TTL_MS_MAX_DEFAULT;
/// Longest lock delay.
pub const LOCK_DELAY_MS_MAX: u64 = 10 * 60 * 1000;
/// Minimum tenure is 0 (off) or lies between these two.
pub const MINIMUM_TENURE_MS_LOW: u64 = 5_000;
/// See [`MINIMUM_TENURE_MS_LOW`].
pub const MINIMUM_TENURE_MS_HIGH: u64 = 60_000;
/// Default minimum tenure.
pub const MINIMUM_TENURE_MS_DEFAULT: u64 = 30_000;

/// Most entries of a policy's allow-list.
pub const ALLOW_MAX: usize = 256;
/// Most entries of a policy's priority table.
pub const PRIORITIES_MAX: usize = 256;
/// Default and largest number of standbys of one group.
pub const STANDBYS_MAX_DEFAULT: u32 = 10_000;
/// See [`STANDBYS_MAX_DEFAULT`].
pub const STANDBYS_MAX: u32 = 100_000;

/// Most groups in which one session may lead or stand.
pub const GROUPS_PER_SESSION_MAX: usize = 131_072;
/// Default most groups a store creates by itself on the first campaign.
pub const GROUPS_MAX_DEFAULT: u64 = 2_000_000;
/// Most sessions at once.
pub const SESSIONS_MAX: usize = 4_000_000;

/// Default most bytes that the state of a store may weigh (`state/weight.rs`): about 700,000 groups that are led, each
/// counted with a full history.
/// Measured with 3,000 policies of 56 KB: a server takes 1.01 bytes of memory for each, and 3.6 while it writes a
/// snapshot. So a server with this budget fits into 4 GiB.
pub const STATE_BYTES_MAX_DEFAULT: u64 = 1 << 30;
/// Least that it may be set to: less than a policy with full lists takes would refuse everything.
pub const STATE_BYTES_MAX_FLOOR: u64 = 1 << 20;
/// One part in so many of the budget is kept above it for commands that add little: a store that is full must
/// still be operated.
pub const STATE_BYTES_RESERVE_PART: u64 = 16;

/// Default part of the budget that one principal may take, in percent (`state/accounts.rs`): four that take all they can
/// fill the state.
pub const STATE_PERCENT_PER_PRINCIPAL_DEFAULT: u32 = 25;
/// Principals that are shown as those that take most.
pub const SHARES_SHOWN_MAX: usize = 10;

/// Changes remembered per group in the state itself.
pub const HISTORY_PER_GROUP: usize = 8;
/// Of these, most that tell of somebody who acted and must not.
pub const SPLIT_BRAINS_PER_GROUP_MAX: usize = 2;
/// Request ids remembered per session.
pub const REQUESTS_PER_SESSION: usize = 64;
/// Request ids remembered that belong to no session.
pub const REQUESTS_WITHOUT_SESSION: usize = 65_536;
/// Ended session ids remembered, so that a delayed duplicate cannot revive one.
pub const SESSIONS_ENDED_REMEMBERED: usize = 65_536;

/// Most bytes of events kept for watchers that resume.
pub const EVENT_RING_BYTES_MAX: usize = 64 << 20;
/// Fewest events kept whatever their size: twice the largest session, so that one mass expiry
/// never turns every watcher's cursor into a gap.
pub const EVENT_RING_COUNT_MIN: usize = 2 * GROUPS_PER_SESSION_MAX;
/// Events queued for one watcher before it is sent back to the ring.
pub const WATCHER_QUEUE_MAX: usize = 1024;

/// Most that a term may rise above the mark of a fence in front of a resource in one step, if nobody vouches for it. A
/// term rises by one with every election: this is a week of elections, one every ten seconds, without a single write. A
/// term that leaps further is an attack, or a group that was restored or moved: an operator confirms that.
pub const TERM_STEP_MAX: u64 = 1 << 16;

/// Most groups in one page of a listing.
pub const GROUPS_PAGE_MAX: usize = 512;
/// Pages that one request searches for groups that its caller may observe.
pub const PAGES_SEARCHED_MAX: usize = 64;
/// How often a watch of an authenticated caller is judged that has nothing to tell. A revoked token keeps its places for
/// that long at most; more often, ten thousand silent watches would cost more than those that tell something.
pub const WATCH_JUDGED_EVERY_MS: u64 = 5000;
/// Sessions whose owners a server remembers, so that their heartbeats ask for nothing else: about 40 MB of names.
pub const KNOWN_SESSIONS_MAX: usize = 200_000;

/// Largest clock drift a budget may assume, in parts per million: beyond 40 % less than half of a
/// ttl could be used.
pub const DRIFT_PPM_MAX: u32 = 400_000;
/// Shortest pause between two renewals, and shortest request time-out.
pub const RENEW_MS_MIN: u64 = 10;
/// Longest pause before a failed heartbeat is tried again.
pub const HEARTBEAT_RETRY_MS_MAX: u64 = 1000;
/// Most requests about groups that one participant has under way, heartbeats not counted: few enough
/// that the store still remembers the id of the slowest one when the others are answered.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 32;
/// Tries of one request whose answers are still recognised.
pub const TRIES_REMEMBERED: usize = 4;
/// Heartbeats whose answers are still awaited.
pub const HEARTBEATS_IN_FLIGHT_MAX: usize = 64;
/// By how much heartbeats are numbered ahead after one that was not newer: far more than a twin of
/// this process could send before the next one arrives.
pub const HEARTBEAT_LEAP: u64 = 1 << 20;
/// Most lost terms that one heartbeat disowns; the rest are resigned one by one.
pub const DISOWNED_PER_HEARTBEAT_MAX: usize = 1000;
/// Most terms that one heartbeat claims; the others have their turn in the next ones.
pub const CLAIMS_PER_HEARTBEAT_MAX: usize = 64;
/// Most refusals by fences that one heartbeat tells.
pub const REFUSALS_PER_HEARTBEAT_MAX: usize = 16;
/// Claims that one server remembers.
pub const BELIEVERS_MAX: usize = 200_000;
/// Of these, claims by sessions that the store does not know.
pub const STRANGERS_MAX: usize = 4096;
/// Margins that are remembered of one session: a few minutes of it, long enough to tell a fall from noise.
pub const MARGINS_MAX: usize = 16;
/// Sessions whose margins one server remembers, and groups of which it remembers since when they are led, or what was
/// decided last.
pub const FORECASTS_MAX: usize = 100_000;
/// Most groups of one heartbeat that are looked at because its leader is failing; the others have their turn with the
/// next ones.
pub const SUSPECTS_PER_HEARTBEAT_MAX: usize = 8;
/// Most leaders that one server finds failing and would replace within a minute: if there are more, it is not them.
pub const RELIEVED_PER_MINUTE_MAX: usize = 4;
/// How long a proposal waits for its second principal (semantics 38): long enough to wake a colleague, too short to be
/// forgotten.
pub const APPROVAL_MS: u64 = 10 * 60 * 1000;
/// Most proposals of one group, each of another principal. More than two, so that one principal cannot keep others from
/// proposing; few, because each of them is kept in every snapshot.
pub const PROPOSALS_PER_GROUP_MAX: usize = 4;
/// Bytes in a digest of an application's state.
pub const DIGEST_BYTES_MAX: usize = 128;
/// Abandoned sessions that a participant still tries to close; older ones expire by themselves.
pub const SESSIONS_CLOSING_MAX: usize = 4;

/// A store's loop that was away for longer than this cannot tell who was silent.
pub const LOOP_GAP_MS_MAX: u64 = 500;
/// Most by which expiries are spread after a store's promotion.
pub const SPREAD_MS_MAX: u64 = 1000;

/// Silent sessions that travel with a command as they are; beyond it only those concerned do.
pub const SILENT_WHOLE_MAX: usize = 4096;
/// Standbys looked at for those concerned.
pub const SILENT_LOOKED_AT_MAX: usize = 100_000;
/// How often offices are looked at that stayed vacant because all who stand were silent.
pub const REFILL_EVERY_MS: u64 = 50;
/// How many of them one look takes.
pub const STRANDED_PER_LOOK_MAX: usize = 256;

/// Vacancies that are timed at once; more are not measured.
pub const ELECTIONS_TIMED_MAX: usize = 100_000;
/// Groups of which it is remembered that a campaign lost there and comes back.
pub const ELECTIONS_ASKED_MAX: usize = 10_000;

/// Steps of one histogram of round trips that an estimate of time-outs looks at.
pub const TRIP_STEPS_MAX: usize = 256;
/// Ways to peers that it looks at: more than a cluster has replicas.
pub const WAYS_MAX: usize = 64;
/// Kinds of pauses that it looks at beside each other.
pub const PAUSES_MAX: usize = 16;
/// The largest loss it assumes, in parts per million: of a network that loses nine of ten messages no
/// time-out makes a good one.
pub const LOSS_PPM_MAX: u32 = 900_000;

const _: () = {
    assert!(TTL_MS_FLOOR <= TTL_MS_MIN_DEFAULT);
    assert!(TTL_MS_MIN_DEFAULT <= TTL_MS_DEFAULT && TTL_MS_DEFAULT <= TTL_MS_MAX_DEFAULT);
    assert!(TTL_MS_MAX_DEFAULT <= TTL_MS_CEILING);
    assert!(EVENT_RING_COUNT_MIN >= 2 * GROUPS_PER_SESSION_MAX);
    assert!(STANDBYS_MAX_DEFAULT <= STANDBYS_MAX);
    assert!(3 * RENEW_MS_MIN < TTL_MS_FLOOR / 4);
    assert!(2 * REQUESTS_IN_FLIGHT_MAX <= REQUESTS_PER_SESSION);
    assert!(PROPOSALS_PER_GROUP_MAX > 2);
    assert!(LOOP_GAP_MS_MAX <= TTL_MS_FLOOR && DRIFT_PPM_MAX < 1_000_000);
};
