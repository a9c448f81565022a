//! Sessions by etcd's own leases.
//!
//! A session is a key that hangs on a lease and goes with it, beside a mark that hangs on a lease of a
//! week: what has its mark and not its key has ended.
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
use super::{EtcdRegister, TXN};
use crate::engine::limits::ENDED_REMEMBERED_FOR;
use crate::engine::{Effect, fresh};
use crate::register::{RegisterResult, ServerSessions};

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";

/// How often a sign of life is tried against others that change the same session.
const ATTEMPTS_MAX: usize = 3;

/// The two keys of a session.
struct Keys {
    alive: String,
    begun: String,
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

impl Keys {
    fn neither(&self) -> Vec<Compare> {
        vec![Compare::is_absent(&self.alive), Compare::is_absent(&self.begun)]
    }
}

/// A lease of so many seconds or more.
async fn grant(link: &Link, ttl_s: i64) -> Result<LeaseGrantResponse, Refused> {
    Ok(link.unary(GRANT, LeaseGrantRequest { ttl_s }).await?)
}

/// Gives back a lease that nothing hangs on. It would end by itself, only later.
async fn give_back(link: &Link, lease: i64) {
    let _: Result<LeaseResponse, _> = link.unary(REVOKE, LeaseRequest { id: lease }).await;
}

/// Begins a session, or hears it.
async fn begin(link: &Link, keys: &Keys, ttl_s: i64) -> Result<bool, Refused> {
    let week_s = whole_s(ENDED_REMEMBERED_FOR);
    // The look first: leases are not to be made for every repeat.
    let look = TxnRequest {
        compare: keys.neither(),
        success: vec![],
        failure: vec![range(&keys.alive).into()],
    };
    let mut seen: TxnResponse = link.unary(TXN, look.clone()).await?;
    if seen.succeeded {
        let (life, memory) = (grant(link, ttl_s).await?.id, grant(link, week_s).await?.id);
        let write = vec![put(&keys.alive, life).into(), put(&keys.begun, memory).into()];
        seen = link.unary(TXN, TxnRequest { success: write, ..look }).await?;
        if seen.succeeded {
            return Ok(true);
        }
        give_back(link, life).await;
        give_back(link, memory).await;
    }
    if seen.found().is_some() { beat(link, keys, ttl_s).await } else { Ok(false) }
}

/// Hears a session if it is alive; if not, sees to it that it never will be.
async fn beat(link: &Link, keys: &Keys, ttl_s: i64) -> Result<bool, Refused> {
    for _ in 0..ATTEMPTS_MAX {
        let touch = PutRequest {
            key: keys.alive.as_str().into(),
            value: format!("{:016x}", fresh()).into_bytes(),
            lease: 0,
            ignore_lease: true,
        };
        let write = TxnRequest {
            compare: vec![Compare::is_there(&keys.alive)],
            success: vec![Request::Put(touch).into(), range(&keys.alive).into()],
            failure: vec![],
        };
        let written: TxnResponse = link.unary(TXN, write).await?;
        let Some(KeyValue { lease, mod_revision, .. }) = written.found().cloned() else {
            forbid(link, keys).await?;
            return Ok(false);
        };
        let kept = link.keep_alive(lease).await?;
        let member =
            |header: Option<super::messages::Header>| header.map(|header| header.member_id);
        if member(kept.header) != member(written.header) {
            return Err(Refused::Doubt(
                "two members of etcd answered on one connection, so nobody knows who counts; connect to \
                 the members themselves",
            ));
        }
        if kept.ttl_s >= ttl_s {
            return Ok(true);
        }
        if kept.ttl_s <= 0 {
            forbid(link, keys).await?;
            return Ok(false);
        }
        // A longer ttl needs another lease, which counts from its granting.
        let longer = grant(link, ttl_s).await?.id;
        let moved: TxnResponse = link
            .unary(
                TXN,
                TxnRequest {
                    compare: vec![Compare::changed_at(&keys.alive, mod_revision)],
                    success: vec![put(&keys.alive, longer).into()],
                    failure: vec![],
                },
            )
            .await?;
        if moved.succeeded {
            return Ok(true);
        }
        give_back(link, longer).await;
    }
    Err(Refused::Doubt("others changed the same session again and again"))
}

/// Whether a session is alive; one that is not can never be from then on.
async fn is_alive(link: &Link, keys: &Keys) -> Result<bool, Refused> {
    let look = TxnRequest {
        compare: vec![Compare::is_there(&keys.alive)],
        success: vec![],
        failure: vec![range(&keys.begun).into()],
    };
    let seen: TxnResponse = link.unary(TXN, look).await?;
    if seen.succeeded {
        return Ok(true);
    }
    if seen.found().is_some() {
        return Ok(false);
    }
    forbid(link, keys).await
}

/// Marks a session that is not alive as begun, so that it cannot begin. Whether it is alive after all.
async fn forbid(link: &Link, keys: &Keys) -> Result<bool, Refused> {
    let memory = grant(link, whole_s(ENDED_REMEMBERED_FOR)).await?.id;
    let mark = TxnRequest {
        compare: keys.neither(),
        success: vec![put(&keys.begun, memory).into()],
        failure: vec![range(&keys.alive).into()],
    };
    let marked: TxnResponse = link.unary(TXN, mark).await?;
    if !marked.succeeded {
        give_back(link, memory).await;
    }
    Ok(marked.found().is_some())
}

/// Ends a session.
async fn end(link: &Link, keys: &Keys) -> Result<(), Refused> {
    let write = TxnRequest {
        compare: vec![Compare::is_there(&keys.alive)],
        success: vec![
            range(&keys.alive).into(),
            Request::Delete(DeleteRangeRequest { key: keys.alive.as_str().into() }).into(),
        ],
        failure: vec![range(&keys.begun).into()],
    };
    let written: TxnResponse = link.unary(TXN, write).await?;
    match written.found() {
        Some(held) if written.succeeded => give_back(link, held.lease).await,
        Some(_) => {}
        None => {
            forbid(link, keys).await?;
        }
    }
    Ok(())
}

impl EtcdRegister {
    fn keys(&self, session: u128) -> Keys {
        Keys {
            alive: self.alive_key(session),
            begun: format!("{}/begun/{session:032x}", self.root),
        }
    }
}

#[async_trait]
impl ServerSessions for EtcdRegister {
    fn granted(&self, ttl: Duration) -> Duration {
        Duration::from_secs(u64::try_from(whole_s(ttl)).unwrap_or(u64::MAX))
    }

    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        let (keys, ttl_s) = (self.keys(session), whole_s(ttl));
        self.wire.ask(Effect::Writes, async |link: Link| begin(&link, &keys, ttl_s).await).await
    }

    async fn beat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        let (keys, ttl_s) = (self.keys(session), whole_s(ttl));
        self.wire.ask(Effect::Writes, async |link: Link| beat(&link, &keys, ttl_s).await).await
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        let keys = self.keys(session);
        self.wire.ask(Effect::Reads, async |link: Link| is_alive(&link, &keys).await).await
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        let keys = self.keys(session);
        self.wire.ask(Effect::Writes, async |link: Link| end(&link, &keys).await).await
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        let ear = self.listen();
        if self.is_alive(session).await? {
            self.tower.heard(ear, &format!("alive/{session:032x}"), patience).await;
        }
        Ok(())
    }
}
