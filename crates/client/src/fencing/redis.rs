//! Redis: one script that compares, raises and writes, in one hash slot.
//!
//! ```text
//!   {orders}:fence        the highest term admitted for `orders`; no expiry, never deleted
//!   {orders}:7, {orders}  what is written: every key in the slot of the fence
//! ```
//!
//! A script is one step for a Redis server: nothing comes between the comparison and the last command.
//!
//! ```no_run
//! # async fn example(connection: &mut redis::aio::MultiplexedConnection, leadership: &regent::Leadership)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use regent::fencing::redis::{RedisFence, Command};
//!
//! let orders = RedisFence::of("orders")?;
//! let permit = leadership.check()?;
//! let commands = [
//!     Command::new("SET").key("{orders}:7").arg("paid"),
//!     Command::new("ZADD").key("{orders}:done").arg("1700000000").arg("7"),
//! ];
//! orders.write(connection, &permit, &commands).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Any client can do the same without this crate: `EVAL` [`SCRIPT`] with the keys and arguments it names. A
//! refusal is an error reply, `STALE_TERM: term 100 < current 101`.
//!
//! **Numbers.** The script's language compares doubles, which are exact below 2^53, and so is every term.
//!
//! **What it does not hold against.** Commands are made one after the other and not taken back: if one is
//! refused by the server (a wrong type), those before it stand, and the answer is "it may have been
//! written". A key that is evicted is a mark that is lost: `maxmemory-policy` must be `noeviction` or one of
//! the `volatile-` ones. What a failover to a replica or a crash without `appendfsync always` forgets, it
//! forgets with its mark. Who writes these keys without the script is not kept from it, nor are commands that
//! reach keys they do not name (`FLUSHDB`, `EVAL`). One that names the mark is not sent.

use redis::aio::ConnectionLike;
use redis::{ErrorKind, RedisError, Script, Value};

use super::{Proof, WriteError, WriteResult, refuse, stale_in};

/// Keys: the fence, then every key that is written. Arguments: the term; then for each command the number of
/// its words, and the words. Answers with what the commands answered.
pub const SCRIPT: &str = r"
local given = tonumber(ARGV[1])
if not given or given < 1 then
    return redis.error_reply('NO_TERM: term ' .. tostring(ARGV[1]) .. ' was never granted')
end
local held = redis.call('GET', KEYS[1])
local current = 0
if held then
    current = tonumber(held)
    if not current then
        return redis.error_reply('NO_TERM: ' .. KEYS[1] .. ' holds no term')
    end
end
if given < current then
    return redis.error_reply('STALE_TERM: term ' .. ARGV[1] .. ' < current ' .. held)
end
if given > current then
    redis.call('SET', KEYS[1], ARGV[1])
end
local answers = {}
local at = 2
while at <= #ARGV do
    local count = tonumber(ARGV[at])
    answers[#answers + 1] = redis.call(unpack(ARGV, at + 1, at + count))
    at = at + 1 + count
end
return answers
";

/// Commands of one write, and words of one command: the script's language spreads no more over its stack.
const COMMANDS_MAX: usize = 1_000;
const WORDS_MAX: usize = 4_000;

/// Why a write was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The name of a resource is what stands in the braces of its keys.
    #[error("{0:?} cannot stand in the braces of a key; name the resource without {{ and }}")]
    Resource(String),
    /// A key elsewhere: in a cluster it may be on another server, and no script writes both.
    #[error("the key {key:?} is not in the slot of {fence:?}; put {{{resource}}} into it")]
    Slot {
        key: String,
        /// The fence's key.
        fence: String,
        resource: String,
    },
    /// The mark itself, which only the script may touch: it never falls.
    #[error("{0:?} holds the mark, and no command may name it")]
    Mark(String),
    /// More than a script takes.
    #[error("{0} is more than one script takes: at most 1000 commands of 4000 words")]
    TooMany(usize),
}

/// One command of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    words: Vec<Vec<u8>>,
    keys: Vec<Vec<u8>>,
}

impl Command {
    /// A command by its name, like `SET`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { words: vec![name.as_bytes().to_vec()], keys: Vec::new() }
    }

    /// A word that is a key: it must be in the fence's slot.
    #[must_use]
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.keys.push(key.as_ref().to_vec());
        self.arg(key)
    }

    /// Any other word.
    #[must_use]
    pub fn arg(mut self, word: impl AsRef<[u8]>) -> Self {
        self.words.push(word.as_ref().to_vec());
        self
    }
}

/// The fence of one resource.
#[derive(Clone, Debug)]
pub struct RedisFence {
    resource: String,
    key: String,
    script: Script,
}

impl RedisFence {
    /// The fence of the resource whose keys hold `{resource}`.
    pub fn of(resource: &str) -> Result<Self, ShapeError> {
        if resource.is_empty() || resource.contains(['{', '}']) {
            return Err(ShapeError::Resource(resource.to_owned()));
        }
        let key = format!("{{{resource}}}:fence");
        Ok(Self { resource: resource.to_owned(), key, script: Script::new(SCRIPT) })
    }

    /// The key that holds the mark.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Performs the commands, if no higher term was here, and gives what they answered.
    pub async fn write(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        proof: &impl Proof,
        commands: &[Command],
    ) -> WriteResult<Vec<Value>> {
        self.check(commands).map_err(WriteError::failed)?;
        let mut call = self.script.prepare_invoke();
        call.key(&self.key);
        for key in commands.iter().flat_map(|command| &command.keys) {
            call.key(key);
        }
        call.arg(proof.term().get());
        for command in commands {
            call.arg(command.words.len());
            for word in &command.words {
                call.arg(word);
            }
        }
        call.invoke_async(connection).await.map_err(|error| judge(proof, error))
    }

    fn check(&self, commands: &[Command]) -> Result<(), ShapeError> {
        if commands.len() > COMMANDS_MAX {
            return Err(ShapeError::TooMany(commands.len()));
        }
        let slot = slot(self.key.as_bytes());
        for command in commands {
            if command.words.len() > WORDS_MAX {
                return Err(ShapeError::TooMany(command.words.len()));
            }
            // Any word: one that was not said to be a key may be one.
            if command.words.iter().any(|word| word == self.key.as_bytes()) {
                return Err(ShapeError::Mark(self.key.clone()));
            }
            if let Some(key) = command.keys.iter().find(|key| self::slot(key) != slot) {
                let key = String::from_utf8_lossy(key).into_owned();
                let (fence, resource) = (self.key.clone(), self.resource.clone());
                return Err(ShapeError::Slot { key, fence, resource });
            }
        }
        Ok(())
    }
}

/// What an error means: refused, certainly not made, or who knows.
fn judge(proof: &impl Proof, error: RedisError) -> WriteError {
    if let Some(why) = stale_in(&error.to_string()) {
        return refuse(proof, why);
    }
    let is_unsent = error.is_connection_refusal() || error.kind() == ErrorKind::InvalidClientConfig;
    let is_refused_whole = error.to_string().contains("NO_TERM");
    if is_unsent || is_refused_whole {
        WriteError::Failed(error.into())
    } else {
        WriteError::Uncertain(error.into())
    }
}

/// The hash slot of a key, as a cluster counts: CRC-16/XMODEM of what stands in the first braces, or of all.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}').filter(|close| *close > 0)?;
        Some(&rest[..close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the cluster's specification and of `CLUSTER KEYSLOT`.
    #[test]
    fn a_slot_is_counted_as_a_cluster_counts_it() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), slot(b"foo{}{bar}"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"), "an empty pair of braces is none");
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
    }

    #[test]
    fn a_key_of_another_slot_is_never_sent() {
        let fence = RedisFence::of("orders").unwrap();
        assert_eq!(fence.key(), "{orders}:fence");
        let good = Command::new("SET").key("{orders}:7").arg("{elsewhere}");
        assert_eq!(fence.check(&[good]), Ok(()));
        let bad = Command::new("SET").key("invoices:7").arg("x");
        let told = fence.check(&[bad]).unwrap_err().to_string();
        assert!(told.contains("put {orders} into it"), "{told}");
        for name in ["", "a{b", "}"] {
            assert!(RedisFence::of(name).is_err(), "{name:?}");
        }
    }
}
