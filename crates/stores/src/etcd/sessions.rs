//! Sessions by etcd's own leases.
//!
//! A session is a key that hangs on a lease and goes with it. It is put only where neither the key nor the session's
//! entry is there, and elections always create the entry in the same transaction: an entry is never deleted, so what
//! has its entry and not its key has ended for good, and a late request to begin it finds the entry. A session that
//! was begun without an entry (`begin` alone, which no election does) may begin again after its end.
//!
//! Keeping a lease alive does not go through etcd's log. A member that was deposed and does not know it may
//! still say "alive" while its successor counts from an earlier moment, and versions before 3.5.11 do. So a
//! sign of life is a write first, and only then, on the same connection and by the same member, the lease
//! is kept alive: whoever leads after that write began to count after it, and so after the call.

use std::time::Duration;

use async_trait::async_trait;

use super::messages::{
    Compare, DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseGrantResponse, LeaseRequest,
    LeaseResponse, PutRequest, RangeRequest, Request, TxnRequest, TxnResponse,
};
use super::wire::{Link, Refused};
use super::{EtcdRegister, TXN, found, version};
use crate::engine::{Effect, fresh};
use crate::register::{
    Found, Key, Record, RegisterError, RegisterResult, ServerSessions, Swapped, TtlOf,
};

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";

/// How often a sign of life is tried against others that change the same session.
const ATTEMPTS_MAX: usize = 3;

/// The two keys of a session.
struct Keys {
    alive: String,
    entry: String,
}

fn range(key: &str) -> Request {
    Request::Range(RangeRequest { key: key.into(), ..RangeRequest::default() })
}

fn put(key: &str, lease: i64) -> Request {
    let value = format!("{:016x}", fresh()).into_bytes();
    Request::Put(PutRequest { key: key.into(), value, lease, ignore_lease: false })
}

/// Whole seconds, which is what etcd counts in, rounded up.
fn whole_s(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX).max(1)
}

/// A lease of so many seconds or more.
async fn grant(link: &Link, ttl_s: i64) -> Result<LeaseGrantResponse, Refused> {
    Ok(link.unary(GRANT, LeaseGrantRequest { ttl_s }).await?)
}

/// Gives back a lease that nothing hangs on. It would end by itself, only later.
async fn give_back(link: &Link, lease: i64) {
    let _: Result<LeaseResponse, _> = link.unary(REVOKE, LeaseRequest { id: lease }).await;
}

/// Begins a session, with the entry that is to be created. If it was begun before, its key and its entry are read
/// instead.
async fn begin(
    link: &Link,
    keys: &Keys,
    ttl_s: i64,
    entry: Option<Vec<u8>>,
) -> Result<TxnResponse, Refused> {
    let life = grant(link, ttl_s).await?.id;
    let mut success = vec![put(&keys.alive, life).into()];
    success.extend(entry.map(|value| super::put(&keys.entry, value).into()));
    let write = TxnRequest {
        compare: vec![Compare::is_absent(&keys.alive), Compare::is_absent(&keys.entry)],
        success,
        failure: vec![range(&keys.alive).into(), range(&keys.entry).into()],
    };
    let begun: TxnResponse = link.unary(TXN, write).await?;
    if !begun.succeeded {
        give_back(link, life).await;
    }
    Ok(begun)
}

/// Reads the entry of a session and hears the session if it is alive, for the ttl that the entry gives it.
async fn heartbeat(
    link: &Link,
    keys: &Keys,
    ttl_of: impl Fn(Option<&Found>) -> Option<Duration>,
) -> Result<(Option<Found>, bool), Refused> {
    for _ in 0..ATTEMPTS_MAX {
        let touch = PutRequest {
            key: keys.alive.as_str().into(),
            value: format!("{:016x}", fresh()).into_bytes(),
            lease: 0,
            ignore_lease: true,
        };
        // It writes, so that it goes through the log even if the session is found to have ended.
        let write = TxnRequest {
            compare: vec![Compare::is_there(&keys.alive)],
            success: vec![
                Request::Put(touch).into(),
                range(&keys.alive).into(),
                range(&keys.entry).into(),
            ],
            failure: vec![range(&keys.entry).into()],
        };
        let written: TxnResponse = link.unary(TXN, write).await?;
        let (alive, entry) = match written.succeeded {
            true => (written.read(1), written.read(2)),
            false => (None, written.read(0)),
        };
        let entry = entry.cloned().map(found);
        let ttl_s = ttl_of(entry.as_ref()).map(whole_s);
        let (Some(KeyValue { lease, mod_revision, .. }), Some(ttl_s)) = (alive, ttl_s) else {
            return Ok((entry, false));
        };
        let kept = link.keep_alive(*lease).await?;
        let member =
            |header: Option<&super::messages::Header>| header.map(|header| header.member_id);
        if member(kept.header.as_ref()) != member(written.header.as_ref()) {
            return Err(Refused::Doubt(
                "two members of etcd answered on one connection, so nobody knows who counts; connect to \
                 the members themselves",
            ));
        }
        if kept.ttl_s >= ttl_s {
            return Ok((entry, true));
        }
        if kept.ttl_s <= 0 {
            return Ok((entry, false));
        }
        // A longer ttl needs another lease, which counts from its granting.
        let longer = grant(link, ttl_s).await?.id;
        let moved: TxnResponse = link
            .unary(
                TXN,
                TxnRequest {
                    compare: vec![Compare::changed_at(&keys.alive, *mod_revision)],
                    success: vec![put(&keys.alive, longer).into()],
                    failure: vec![],
                },
            )
            .await?;
        if moved.succeeded {
            return Ok((entry, true));
        }
        give_back(link, longer).await;
    }
    Err(Refused::Doubt("others changed the same session again and again"))
}

/// Ends a session.
async fn end(link: &Link, keys: &Keys) -> Result<(), Refused> {
    let write = TxnRequest {
        compare: vec![Compare::is_there(&keys.alive)],
        success: vec![
            range(&keys.alive).into(),
            Request::Delete(DeleteRangeRequest { key: keys.alive.as_str().into() }).into(),
        ],
        failure: vec![],
    };
    let written: TxnResponse = link.unary(TXN, write).await?;
    if let Some(held) = written.read(0) {
        give_back(link, held.lease).await;
    }
    Ok(())
}

impl EtcdRegister {
    fn keys(&self, session: u128) -> Keys {
        Keys { alive: self.alive_key(session), entry: self.entry_key(&Key::session(session)) }
    }
}

#[async_trait]
impl ServerSessions for EtcdRegister {
    fn granted(&self, ttl: Duration) -> Duration {
        Duration::from_secs(u64::try_from(whole_s(ttl)).unwrap_or(u64::MAX))
    }

    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        let (keys, ttl_s) = (self.keys(session), whole_s(ttl));
        let asking = async |link: Link| {
            let begun = begin(&link, &keys, ttl_s, None).await?;
            if begun.succeeded {
                return Ok(true);
            }
            Ok(heartbeat(&link, &keys, |_| Some(ttl)).await?.1)
        };
        self.wire.ask(Effect::Writes, asking).await
    }

    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        let keys = self.keys(session);
        let asking = async |link: Link| Ok(heartbeat(&link, &keys, |_| Some(ttl)).await?.1);
        self.wire.ask(Effect::Writes, asking).await
    }

    async fn begin_with_entry(
        &self,
        session: u128,
        ttl: Duration,
        record: Record,
    ) -> RegisterResult<Option<Swapped>> {
        let (keys, ttl_s) = (self.keys(session), whole_s(ttl));
        let asking = async |link: Link| begin(&link, &keys, ttl_s, Some(record.value)).await;
        let begun = self.wire.ask(Effect::Writes, asking).await?;
        match begun.header {
            Some(header) if begun.succeeded => Ok(Some(Swapped::Done(version(header.revision)))),
            None if begun.succeeded => {
                Err(RegisterError::uncertain("etcd wrote, and did not tell the revision"))
            }
            Some(_) | None if begun.read(1).is_some() => Ok(Some(Swapped::Conflict)),
            // Begun by `begin` alone. It has not ended, so that is not said of it.
            Some(_) | None => Err(RegisterError::unavailable(
                "this session is alive without an entry; try again when it has ended, or use another one",
            )),
        }
    }

    async fn heartbeat_with_entry(
        &self,
        session: u128,
        ttl_of: TtlOf<'_>,
    ) -> RegisterResult<(Option<Found>, bool)> {
        let keys = self.keys(session);
        let asking =
            async |link: Link| heartbeat(&link, &keys, |entry| entry.and_then(ttl_of)).await;
        self.wire.ask(Effect::Writes, asking).await
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        // A plain read, which a majority vouches for: a transaction of comparisons alone would ask nobody.
        let key = self.keys(session).alive.into_bytes();
        Ok(!self.range(RangeRequest { key, ..RangeRequest::default() }).await?.is_empty())
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        let keys = self.keys(session);
        self.wire.ask(Effect::Writes, async |link: Link| end(&link, &keys).await).await
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        let subscription = self.listen();
        if self.is_alive(session).await? {
            self.feed_task.changed(subscription, &format!("alive/{session:032x}"), patience).await;
        }
        Ok(())
    }
}
