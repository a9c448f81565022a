//! The scripts: one per function that writes. Redis runs a script as one step.
//!
//! Each reads everything it needs before it writes anything, so that a key of a wrong type or a server
//! that may not write stops it while nothing has happened. All keys share the tag `{regent}`: a cluster
//! keeps them on one server.

/// Replaces an entry if it has the version expected (empty: if it is not there).
///
/// Keys: entry, index. Arguments: expected version, nonce, value, name, leader, term, ttl in ms, channel,
/// what to ring. Answers the version now held, or nothing.
///
/// A version is a counter for people and the writer's nonce for us: a server that forgot and counts
/// again must not repeat one.
pub(super) const SWAP: &str = r"
local held = redis.call('HMGET', KEYS[1], 'version', 'nonce')
redis.call('ZSCORE', KEYS[2], ARGV[4])
local version = ''
if held[1] then version = held[1] .. '-' .. (held[2] or '') end
if version ~= ARGV[1] then return false end
local count = string.format('%d', (tonumber(held[1]) or 0) + 1)
redis.call('HSET', KEYS[1], 'value', ARGV[3], 'version', count, 'nonce', ARGV[2],
  'leader', ARGV[5], 'term', ARGV[6], 'ttl_ms', ARGV[7])
redis.call('ZADD', KEYS[2], 0, ARGV[4])
redis.call('PUBLISH', ARGV[8], ARGV[9])
return count .. '-' .. ARGV[2]
";

/// Names in order, and what lies under them.
///
/// Keys: index. Arguments: least, greatest (as ZRANGEBYLEX takes them), count, what keys of entries open
/// with. Answers name, value, version, nonce, name, …
pub(super) const LIST: &str = r"
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])) do
  local held = redis.call('HMGET', ARGV[4] .. name, 'value', 'version', 'nonce')
  found[#found + 1] = { name, held[1], held[2], held[3] }
end
return found
";

/// Begins a session that never was; hears one that is alive. Answers whether it is alive.
///
/// Keys: alive, begun. Arguments: ttl in ms, ms for which an ended one is remembered. The mark `begun`
/// outlives the session: without it, a late request to begin would revive what others saw end.
pub(super) const BEGIN: &str = r"
local left = redis.call('PTTL', KEYS[1])
local begun = redis.call('EXISTS', KEYS[2])
local ttl = tonumber(ARGV[1])
if left < 0 and begun == 1 then return 0 end
if left < ttl then redis.call('SET', KEYS[1], '', 'PX', ARGV[1]) end
redis.call('SET', KEYS[2], '', 'PX', string.format('%d', math.max(left, ttl) + ARGV[2]))
return 1
";

/// Hears a session if it is alive; if not, sees to it that it never will be. Answers whether it is.
///
/// Keys and arguments as for [`BEGIN`]. Its end is never moved nearer: an older request that arrives
/// late must not take back what a newer one was promised.
pub(super) const HEARTBEAT: &str = r"
local left = redis.call('PTTL', KEYS[1])
local ttl = tonumber(ARGV[1])
if left >= 0 and left < ttl then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
redis.call('SET', KEYS[2], '', 'PX', string.format('%d', math.max(left, ttl) + ARGV[2]))
if left < 0 then return 0 end
return 1
";

/// Ends a session for good.
///
/// Keys: alive, begun. Arguments: ms for which it is remembered, channel, what to ring.
pub(super) const END: &str = r"
redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[2], '', 'PX', ARGV[1])
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], ARGV[3])
return 1
";

/// Ms until a session ends; nothing of one that is not alive, which from then on can never be.
///
/// Keys: alive, begun. Arguments: ms for which it is remembered.
pub(super) const LEFT: &str = r"
local left = redis.call('PTTL', KEYS[1])
if left >= 0 then return left end
redis.call('SET', KEYS[2], '', 'PX', ARGV[1])
return false
";
