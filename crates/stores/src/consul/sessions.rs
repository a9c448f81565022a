//! `?mode=session`: sessions that Consul times.
//!
//! A session is a key below `ROOT/alive/`, locked by one of Consul's own sessions, which releases it when it
//! ends and deletes nothing. A key that is locked is alive, one that nobody holds has ended, and one that is
//! not there never began. It is locked in the transaction that creates it and never again, except by a longer
//! session in the transaction that takes it from the shorter: what has ended stays so. Terms lie elsewhere,
//! in entries that no session of Consul's touches.
//!
//! By default a session of Consul's ends with the health of the node it was made on, and with the node: at
//! once, when an agent leaves, while the leader behind it counts on its ttl. So ours are made without checks,
//! on a node that no agent stands behind and that is registered when it is first missed.
//!
//! A renewal does not go through Consul's log: the server that leads resets a timer in its memory. One that
//! was deposed and does not know it may do so while its successor counts from an earlier moment. So a renewal
//! follows a consistent read, for which a majority vouches: whoever leads after that read began to count after
//! it. This holds for requests that one server takes; an agent that is no server may send two to two. There
//! the time is left that Consul adds to every ttl: it ends none before twice as long.

use std::time::Duration;

use async_trait::async_trait;

use super::wire::{self, TransactionOutcome, failure};
use super::{ConsulRegister, Mode};
use crate::engine::Effect;
use crate::engine::http::{Ask, HttpAnswer};
use crate::engine::limits::POLL_EVERY;
use crate::register::{RegisterError, RegisterResult, ServerSessions};

/// The node that sessions are made on.
const NODE: &str = "regent-sessions";

/// How often a session is looked at again that others change.
const ATTEMPTS_MAX: usize = 5;

/// What the key of a session says.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    Unbegun,
    /// The session of Consul's that holds it.
    Alive(String),
    Ended,
}

/// Whole milliseconds, rounded up.
fn ms_of(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl ConsulRegister {
    fn alive_key(&self, session: u128) -> String {
        format!("{}/alive/{session:032x}", self.root)
    }

    /// What is known of a session, and the index that a change of it is waited for from.
    async fn life(&self, key: &str) -> RegisterResult<(Life, u64)> {
        let (row, index) = self.read(key, None).await?;
        let life = match row.map(|row| row.session) {
            None => Life::Unbegun,
            Some(Some(holder)) => Life::Alive(holder),
            Some(None) => Life::Ended,
        };
        Ok((life, index))
    }

    async fn tell(&self, effect: Effect, path: &str, body: Vec<u8>) -> RegisterResult<HttpAnswer> {
        let datacenter = self.datacenter.trim_start_matches('&');
        self.http.send(Ask::put(effect, format!("{path}?{datacenter}"), body)).await
    }

    /// Makes a session of Consul's that holds nothing yet. A doubt about it is none about ours: what nobody
    /// binds to a key ends by itself.
    async fn make(&self, ttl: Duration) -> RegisterResult<String> {
        let ttl_ms = ms_of(ttl);
        if ttl_ms == 0 {
            return Err(RegisterError::unavailable(
                "Consul would keep a session of no ttl for ever",
            ));
        }
        let create = || self.tell(Effect::Reads, "/v1/session/create", wire::session(NODE, ttl_ms));
        let mut answer = create().await?;
        if says(&answer, "Missing node registration") {
            let node = wire::node(NODE);
            let registered = self.tell(Effect::Reads, "/v1/catalog/register", node).await?;
            if registered.status.as_u16() != 200 {
                return Err(failure(Effect::Reads, &self.place, &registered));
            }
            answer = create().await?;
        }
        match answer.status.as_u16() {
            200 => wire::made(&answer),
            _ if says(&answer, "Invalid Session TTL") => Err(RegisterError::unavailable(format!(
                "Consul at {} keeps no session of {ttl:?}: {}; choose such a ttl, or leave out mode=session",
                self.place,
                words(&answer).trim(),
            ))),
            _ => Err(failure(Effect::Reads, &self.place, &answer)),
        }
    }

    /// Ends a session of Consul's that holds nothing. It would end by itself, only later.
    async fn unmake(&self, id: &str) {
        if let Err(error) = self.destroy(Effect::Reads, id).await {
            tracing::debug!(place = %self.place, %error, "a session of Consul's is left to its ttl");
        }
    }

    async fn destroy(&self, effect: Effect, id: &str) -> RegisterResult<()> {
        let answer = self.tell(effect, &format!("/v1/session/destroy/{id}"), Vec::new()).await?;
        match answer.status.as_u16() {
            200 => Ok(()),
            _ => Err(failure(effect, &self.place, &answer)),
        }
    }

    /// Renews a session of Consul's; its ttl, or none if it is gone.
    async fn renew(&self, id: &str) -> RegisterResult<Option<u64>> {
        let path = format!("/v1/session/renew/{id}");
        let answer = self.tell(Effect::Writes, &path, Vec::new()).await?;
        match answer.status.as_u16() {
            200 => wire::renewed(&answer).map(Some).map_err(RegisterError::uncertain),
            404 => Ok(None),
            _ => Err(failure(Effect::Writes, &self.place, &answer)),
        }
    }

    async fn transact(&self, steps: Vec<u8>) -> RegisterResult<TransactionOutcome> {
        let answer = self.tell(Effect::Writes, "/v1/txn", steps).await?;
        wire::outcome(Effect::Writes, &self.place, &answer)
    }

    /// Sees to it that a session that never began never will. Whether it is so; if not it has begun.
    async fn forbid(&self, key: &str) -> RegisterResult<bool> {
        match self.transact(wire::create_steps(key, b"", None)).await? {
            TransactionOutcome::Done(_) => Ok(true),
            TransactionOutcome::Refused(_) => Ok(false),
        }
    }

    /// What is known of a session, with one that never began forbidden to.
    async fn settled(&self, key: &str) -> RegisterResult<Option<String>> {
        for _ in 0..ATTEMPTS_MAX {
            match self.life(key).await? {
                (Life::Alive(holder), _) => return Ok(Some(holder)),
                (Life::Ended, _) => return Ok(None),
                (Life::Unbegun, _) if self.forbid(key).await? => return Ok(None),
                (Life::Unbegun, _) => {}
            }
        }
        Err(changing())
    }
}

fn words(answer: &HttpAnswer) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&answer.body)
}

/// Whether a refusal has these words: Consul has no other way to tell its refusals apart.
fn says(answer: &HttpAnswer, refusal: &str) -> bool {
    answer.status.as_u16() != 200 && words(answer).contains(refusal)
}

fn changing() -> RegisterError {
    RegisterError::uncertain("others changed the same session again and again")
}

#[async_trait]
impl ServerSessions for ConsulRegister {
    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.agree().await?;
        let key = self.alive_key(session);
        let refusal = match self.life(&key).await?.0 {
            Life::Ended => return Ok(false),
            Life::Alive(_) => return self.heartbeat(session, ttl).await,
            Life::Unbegun => {
                let id = self.make(ttl).await?;
                match self.transact(wire::create_steps(&key, b"", Some(&id))).await? {
                    TransactionOutcome::Done(_) => return Ok(true),
                    TransactionOutcome::Refused(why) => {
                        self.unmake(&id).await;
                        why
                    }
                }
            }
        };
        match self.life(&key).await?.0 {
            Life::Ended => Ok(false),
            Life::Alive(_) => self.heartbeat(session, ttl).await,
            Life::Unbegun => Err(RegisterError::unavailable(refusal)),
        }
    }

    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        let key = self.alive_key(session);
        for _ in 0..ATTEMPTS_MAX {
            // Before the renewal, for the reason that opens this file.
            let Some(id) = self.settled(&key).await? else { return Ok(false) };
            let Some(kept_ms) = self.renew(&id).await? else { continue };
            if kept_ms < ms_of(ttl) {
                // A longer ttl needs another session, which counts from its making.
                let longer = self.make(ttl).await?;
                match self.transact(wire::move_steps(&key, &id, &longer)).await? {
                    TransactionOutcome::Done(_) => {
                        self.unmake(&id).await;
                        return Ok(true);
                    }
                    TransactionOutcome::Refused(_) => self.unmake(&longer).await,
                }
                continue;
            }
            // What was renewed may have lost the key to a longer one meanwhile, which counts from before.
            if self.life(&key).await?.0 == Life::Alive(id) {
                return Ok(true);
            }
        }
        Err(changing())
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        let settled = self.settled(&self.alive_key(session)).await;
        let settled = settled.map_err(|error| match error {
            // Nothing is changed but what must not change any more.
            RegisterError::Uncertain { why } => RegisterError::Unavailable { why },
            other => other,
        });
        Ok(settled?.is_some())
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        let key = self.alive_key(session);
        for _ in 0..ATTEMPTS_MAX {
            let Some(id) = self.settled(&key).await? else { return Ok(()) };
            self.destroy(Effect::Writes, &id).await?;
        }
        Err(changing())
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        let Ok(_place) = self.waits.try_acquire() else {
            tokio::time::sleep(patience.min(POLL_EVERY)).await;
            return Ok(());
        };
        let key = self.alive_key(session);
        let (Life::Alive(_), index) = self.life(&key).await? else { return Ok(()) };
        // A renewal does not change the key: what is waited for is its release.
        let changed = self.read(&key, Some((index, patience)));
        tokio::time::timeout(patience, changed).await.map_or(Ok(()), |read| read.map(|_| ()))
    }
}

impl ConsulRegister {
    /// Makes sure, once, that all who elect below this root time sessions in one way: to those who watch, a
    /// session that Consul times looks silent, and they would end it under its leader.
    pub(super) async fn agree(&self) -> RegisterResult<()> {
        let agreeing = async || {
            let key = format!("{}/mode", self.root);
            let mut said = self.read(&key, None).await?.0;
            if said.is_none() {
                let steps = wire::create_steps(&key, self.mode.word().as_bytes(), None);
                // Whoever was first has written it; a doubt about this is none about what is asked after it.
                let answer = self.tell(Effect::Reads, "/v1/txn", steps).await?;
                wire::outcome(Effect::Reads, &self.place, &answer)?;
                said = self.read(&key, None).await?.0;
            }
            let said = said.map(|row| row.found()).transpose()?;
            match said {
                Some(said) if said.value == self.mode.word().as_bytes() => Ok(()),
                Some(said) => Err(RegisterError::unfit(format_args!(
                    "others elect below {} in Consul with mode={}, and here it is mode={}; two ways to time a \
                     session would end it under its leader: give all the same mode, or another path",
                    self.root,
                    String::from_utf8_lossy(&said.value),
                    self.mode.word(),
                ))),
                None => Err(RegisterError::unavailable(format_args!("Consul does not hold {key}"))),
            }
        };
        self.agreed.get_or_try_init(agreeing).await.copied()
    }

    /// Sessions timed by Consul, in the mode for it.
    pub(super) fn timed(&self) -> Option<&dyn ServerSessions> {
        match self.mode {
            Mode::Cas => None,
            Mode::Session => Some(self),
        }
    }
}
