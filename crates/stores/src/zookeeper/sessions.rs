//! `?mode=session`: sessions that ZooKeeper times.
//!
//! A session is a node below `ROOT/alive/` that stays, and below that one, `life`, which goes with a session of
//! ZooKeeper's. A mark with its life is alive, one without has ended, and where no mark is nothing ever began.
//! The life is created in the transaction that creates the mark, and never again, except in the transaction that
//! takes it from one session of ZooKeeper's to another: what has ended stays so.
//!
//! A session of ZooKeeper's is not kept alive by a connection here. A sign of life *attaches*: it connects with
//! the session's number and password, writes, and hangs up without a farewell. So a participant that is silent
//! behind a service that runs is not kept alive by it, and one whose service dies has its whole ttl to be heard
//! through another. Attaching is not a matter of taste. The server that leads counts, and neither a ping nor a write
//! through a follower reaches its count before the follower's next report, which may never come: a session that
//! wrote a moment ago can be ended for what it did not say before. A session that is gone on with is counted anew by
//! the leader itself before the follower says yes, and the write behind it on the same connection, for which
//! a majority vouches, says that it was the leader: whoever leads later counts a whole ttl from after it.
//!
//! One moment is left. A leader takes those who are due from its list first and marks them as ended next, and
//! whoever is counted in between is ended all the same. So a sign of life is taken for one only if it was answered
//! before the session can have been due, by this process's own count from the send of the last one. Any other
//! *moves* the life to a fresh session of ZooKeeper's, which counts from its making; so does the first one that
//! comes through another process, which therefore needs no password, and none is stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Moment;
use regent_election::timing::Drift;
use tokio::sync::Semaphore;

use super::ZookeeperRegister;
use super::connection::{Link, Refused, WatchRequest};
use super::messages::{
    self, Ask, BAD_VERSION, NO_NODE, NODE_EXISTS, Pass, SESSION_EXPIRED, SESSION_MOVED, Stay, Step,
    TransactionOutcome,
};
use super::wire::{Attached, Bounds, meaning};
use crate::engine::{Effect, Sent, fresh, in_time, whole_ms};
use crate::register::{RegisterError, RegisterResult, ServerSessions};

/// Where the marks of sessions are, below the root.
pub(super) const SHELF: &str = "alive";

/// Connections at the same time, beside the one that is kept; a server allows one address 60 unless configured.
const ATTACHED_MAX: usize = 16;

/// How often a session is looked at again that others change.
const ATTEMPTS_MAX: usize = 5;

/// Slots that come before those which are of no use are given back.
const SLOTS_SWEEP: usize = 256;

/// The sessions that are heard through this process.
#[derive(Debug)]
pub(super) struct Sessions {
    slots: Mutex<BTreeMap<u128, Slot>>,
    attached: Semaphore,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { slots: Mutex::default(), attached: Semaphore::new(ATTACHED_MAX) }
    }
}

/// What is known of a session; locked while it is gone on with, because ZooKeeper cuts the connection that
/// another replaces.
pub(super) type Slot = Arc<tokio::sync::Mutex<Option<ResumableSession>>>;

/// A session of ZooKeeper's that this process can go on with.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResumableSession {
    pass: Pass,
    ttl_ms: u64,
    /// The version of the mark since the life hangs on it.
    version: i32,
    /// When the last sign of life was sent that was taken for one.
    heard_at: Moment,
}

impl ResumableSession {
    /// Whether the server that leads cannot have found it due by this moment.
    pub(super) fn is_within(&self, now: Moment) -> bool {
        let valid_for = Duration::from_millis(Drift::default().valid_for_ms(self.ttl_ms));
        now < self.heard_at + valid_for
    }
}

/// As what a session was read: the version of its mark, which every move raises, and that of its life, which every
/// touch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    mark: i32,
    life: i32,
}

impl At {
    /// Writes the mark and takes the life away, if nobody has moved or touched the session since.
    const fn unchanged<'a>(self, mark: &'a str, data: &'a [u8], life: &'a str) -> [Step<'a>; 2] {
        [
            Step::Set { path: mark, data, version: self.mark },
            Step::DeleteVersion { path: life, version: self.life },
        ]
    }
}

/// What the nodes of a session say.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    Unbegun,
    Alive { at: At, ttl_ms: u64 },
    Ended,
}

/// What became of going on with a session.
#[derive(Debug, PartialEq, Eq)]
enum Touched {
    Extended,
    /// The life hangs on it no more, or it is no more.
    Gone,
}

/// The bytes of a mark, for people: on which session of ZooKeeper's the life hangs, and its ttl.
fn mark(pass: Pass, ttl_ms: u64) -> Vec<u8> {
    format!("session={:#x} ttl_ms={ttl_ms}\n", pass.id).into_bytes()
}

/// The ttl that a mark tells; none of one that was only to forbid a beginning.
fn ttl_of(mark: &[u8]) -> u64 {
    let text = std::str::from_utf8(mark).ok().and_then(|text| text.split("ttl_ms=").nth(1));
    text.and_then(|text| text.trim_end().parse().ok()).unwrap_or(0)
}

impl ZookeeperRegister {
    fn mark_path(&self, session: u128) -> String {
        format!("{}/{SHELF}/{session:032x}", self.root)
    }

    pub(super) fn life_path(&self, session: u128) -> String {
        format!("{}/life", self.mark_path(session))
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<u128, Slot>> {
        self.sessions.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a session here; one that nothing is known of, to be filled.
    fn slot(&self, session: u128) -> Slot {
        let mut slots = self.slots();
        if slots.len() % SLOTS_SWEEP == SLOTS_SWEEP - 1 {
            let now = regent_clock::now();
            let is_used = |slot: &Slot| match slot.try_lock() {
                Ok(held) => held.is_some_and(|held| held.is_within(now)),
                Err(_) => true,
            };
            slots.retain(|_, slot| is_used(slot));
        }
        Arc::clone(slots.entry(session).or_default())
    }

    /// What is known of a session here, if anything is.
    pub(super) fn slot_if_heard(&self, session: u128) -> Option<Slot> {
        self.slots().get(&session).cloned()
    }

    /// Connects to go on with a session; none if the servers know it no more. Its leader counts it anew.
    pub(super) async fn attach(&self, held: &ResumableSession) -> RegisterResult<Option<Attached>> {
        self.wire.attach(held.ttl_ms, Some(held.pass)).await
    }

    /// A place among the connections that may be open at once.
    pub(super) async fn seat(&self) -> tokio::sync::SemaphorePermit<'_> {
        // Nobody closes it.
        self.sessions.attached.acquire().await.expect("the semaphore is never closed")
    }

    /// What is known of a session, by a majority.
    async fn life(&self, session: u128) -> RegisterResult<Life> {
        let (mark, life) = (self.mark_path(session), self.life_path(session));
        let reading = async |link: Link| {
            let fresh = self.freshen(&link).await?;
            // In this order: the mark is never without a life before its life has ended.
            let (mark, life) = (
                link.ask(Ask::Get { path: &mark }).await?,
                link.ask(Ask::Get { path: &life }).await?,
            );
            fresh.answer().await?;
            let mark = match mark.answer().await? {
                (0, body) => messages::found(&body)?,
                (NO_NODE, _) => return Ok(Life::Unbegun),
                (code, _) => return Err(Refused::Code(code)),
            };
            match life.answer().await? {
                (0, body) => {
                    let at = At { mark: mark.1, life: messages::found(&body)?.1 };
                    Ok(Life::Alive { at, ttl_ms: ttl_of(&mark.0) })
                }
                (NO_NODE, _) => Ok(Life::Ended),
                (code, _) => Err(Refused::Code(code)),
            }
        };
        self.wire.ask(Effect::Reads, reading).await
    }

    /// Sees to it that a session that never began never will. Whether it is so; if not it has begun. A doubt about
    /// it is none about anything else: nothing is changed but what must not change any more.
    async fn forbid(&self, session: u128) -> RegisterResult<bool> {
        let (path, rights) = (self.mark_path(session), self.wire.rights());
        let steps = [Step::Create { path: &path, data: b"\n", rights, stay: Stay::ForGood }];
        let forbidding = async |link: Link| match link
            .ask(Ask::Transaction { steps: &steps })
            .await?
            .transacted()
            .await?
        {
            TransactionOutcome::Done => Ok(true),
            TransactionOutcome::Failed { code: NODE_EXISTS, .. } => Ok(false),
            TransactionOutcome::Failed { code, .. } => Err(Refused::Code(code)),
        };
        self.wire.ask(Effect::Reads, forbidding).await
    }

    /// What is known of a session, with one that never began forbidden to.
    async fn settled(&self, session: u128) -> RegisterResult<Option<(At, u64)>> {
        for _ in 0..ATTEMPTS_MAX {
            match self.life(session).await? {
                Life::Alive { at, ttl_ms } => return Ok(Some((at, ttl_ms))),
                Life::Ended => return Ok(None),
                Life::Unbegun if self.forbid(session).await? => return Ok(None),
                Life::Unbegun => {}
            }
        }
        Err(RegisterError::unavailable(changing()))
    }

    /// Goes on with a session of ZooKeeper's and writes through it.
    async fn touch(
        &self,
        session: u128,
        held: &ResumableSession,
        sent: &Sent,
    ) -> RegisterResult<Touched> {
        let _seat = self.seat().await;
        let Some(attached) = self.attach(held).await? else { return Ok(Touched::Gone) };
        let (mark, life) = (self.mark_path(session), self.life_path(session));
        let nonce = format!("{:016x}\n", fresh());
        let steps = [
            Step::CheckVersion { path: &mark, version: held.version },
            Step::SetAny { path: &life, data: nonce.as_bytes() },
        ];
        sent.leaves_now();
        match transact(&attached.link, &steps).await {
            Ok(TransactionOutcome::Done) => Ok(Touched::Extended),
            Ok(TransactionOutcome::Failed {
                code: BAD_VERSION | NO_NODE | SESSION_EXPIRED | SESSION_MOVED,
                ..
            }) => Ok(Touched::Gone),
            Ok(TransactionOutcome::Failed { code, .. }) => Err(self.meaning(&Refused::Code(code))),
            Err(refused) => Err(self.meaning(&refused)),
        }
    }

    /// Hangs the life of a session on a fresh session of ZooKeeper's: a life that begins, or one that nobody has
    /// moved or touched since it was read. None if it was refused, or took so long that nobody may count on it.
    ///
    /// ZooKeeper counts the fresh session from when it was made, which is after that read. Over a touch that came in
    /// between, acknowledged through another process, a move that was held up would hang the life on a count that
    /// is older than the touch: hence the version of the life itself.
    async fn make(
        &self,
        session: u128,
        ttl_ms: u64,
        over: Option<At>,
        sent: &Sent,
    ) -> RegisterResult<Option<ResumableSession>> {
        let _seat = self.seat().await;
        let heard_at = regent_clock::now();
        let Some(Attached { link, pass }) = self.wire.attach(ttl_ms, None).await? else {
            return Err(RegisterError::unavailable("ZooKeeper grants no session"));
        };
        let (mark_path, life, rights) =
            (self.mark_path(session), self.life_path(session), self.wire.rights());
        let data = mark(pass, ttl_ms);
        let begin = Step::Create { path: &life, data: b"", rights, stay: Stay::WithSession };
        let (steps, version) = match over {
            None => {
                let stay = Stay::ForGood;
                (vec![Step::Create { path: &mark_path, data: &data, rights, stay }, begin], 0)
            }
            Some(at) => {
                let mut steps = at.unchanged(&mark_path, &data, &life).to_vec();
                steps.push(begin);
                (steps, at.mark.wrapping_add(1))
            }
        };
        sent.leaves_now();
        match transact(&link, &steps).await {
            Ok(TransactionOutcome::Done) => {
                let held = ResumableSession { pass, ttl_ms, version, heard_at };
                Ok(Some(held).filter(|held| held.is_within(regent_clock::now())))
            }
            Ok(TransactionOutcome::Failed {
                code: BAD_VERSION | NO_NODE | NODE_EXISTS, ..
            }) => {
                // Nothing hangs on it; it would end by itself, only later.
                let _ = link.ask(Ask::End).await;
                Ok(None)
            }
            Ok(TransactionOutcome::Failed { code, .. }) => Err(self.meaning(&Refused::Code(code))),
            Err(refused) => Err(self.meaning(&refused)),
        }
    }

    /// Hears a session that has begun.
    async fn extend_session(
        &self,
        session: u128,
        ttl_ms: u64,
        slot: &mut Option<ResumableSession>,
        sent: &Sent,
    ) -> RegisterResult<bool> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(held) = slot.as_mut().filter(|held| held.ttl_ms >= ttl_ms) {
                let sent_at = regent_clock::now();
                if held.is_within(sent_at)
                    && self.touch(session, held, sent).await? == Touched::Extended
                    && held.is_within(regent_clock::now())
                {
                    held.heard_at = sent_at;
                    return Ok(true);
                }
            }
            *slot = None;
            let Some((at, kept_ms)) = self.settled(session).await? else { return Ok(false) };
            // Never nearer than somebody may count on, whose request this one has overtaken.
            let made = self.make(session, ttl_ms.max(kept_ms), Some(at), sent).await?;
            if made.is_some() {
                *slot = made;
                return Ok(true);
            }
        }
        Err(RegisterError::uncertain(changing()))
    }

    /// Ends a session of ZooKeeper's on which nothing hangs that is still of use.
    async fn let_go(&self, held: &ResumableSession) {
        // What may be over may be another's: a server that starts again counts its sessions anew.
        if !held.is_within(regent_clock::now()) {
            return;
        }
        let _seat = self.seat().await;
        match self.attach(held).await {
            Ok(Some(attached)) => {
                if let Ok(asked) = attached.link.ask(Ask::End).await {
                    let _ = asked.answer().await;
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(%error, "a session of ZooKeeper's is left to its ttl");
            }
        }
    }

    async fn in_time<T>(
        &self,
        effect: Effect,
        request: impl AsyncFnOnce(&Sent) -> RegisterResult<T>,
    ) -> RegisterResult<T> {
        let server = format!("ZooKeeper at {}", self.wire.place());
        in_time(self.wire.request_for(), effect, &server, request).await
    }

    /// Makes these steps on a connection of its own.
    pub(super) async fn in_time_on(
        &self,
        link: &Link,
        steps: &[Step<'_>],
    ) -> RegisterResult<Result<TransactionOutcome, Refused>> {
        self.in_time(Effect::Writes, async |sent: &Sent| {
            sent.leaves_now();
            Ok(transact(link, steps).await)
        })
        .await
    }

    /// What a refusal says about a question that writes.
    pub(super) fn meaning(&self, refused: &Refused) -> RegisterError {
        meaning(Effect::Writes, &format!("ZooKeeper at {}", self.wire.place()), refused)
    }
}

/// Makes these steps.
pub(super) async fn transact(
    link: &Link,
    steps: &[Step<'_>],
) -> Result<TransactionOutcome, Refused> {
    link.ask(Ask::Transaction { steps }).await?.transacted().await
}

/// What is wrong with servers that keep sessions for different times, if they do.
pub(super) fn unlike(found: &[(String, Bounds)]) -> Option<String> {
    let told =
        |(server, Bounds { min, max }): &(String, Bounds)| format!("{server} {min} to {max} ms");
    let is_alike = found.windows(2).all(|pair| pair[0].1 == pair[1].1);
    (!is_alike).then(|| {
        format!(
            "the servers keep sessions for different times ({}): a session is entrusted only to those that keep its \
             ttl; set minSessionTimeout and maxSessionTimeout alike",
            found.iter().map(told).collect::<Vec<_>>().join(", ")
        )
    })
}

fn changing() -> &'static str {
    "others changed the same session again and again"
}

#[async_trait]
impl ServerSessions for ZookeeperRegister {
    async fn bounds(&self) -> RegisterResult<(Duration, Duration)> {
        let found = self.wire.bounds().await?;
        let min = found.iter().map(|(_, bounds)| bounds.min).max().unwrap_or(0);
        let max = found.iter().map(|(_, bounds)| bounds.max).min().unwrap_or(u64::MAX);
        Ok((Duration::from_millis(min), Duration::from_millis(max)))
    }

    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.agree().await?;
        let ttl_ms = whole_ms(ttl);
        let slot = self.slot(session);
        let mut slot = slot.lock().await;
        self.in_time(Effect::Writes, async |sent| {
            match self.life(session).await? {
                Life::Ended => return Ok(false),
                Life::Alive { .. } => {}
                Life::Unbegun => {
                    *slot = self.make(session, ttl_ms, None, sent).await?;
                    if slot.is_some() {
                        return Ok(true);
                    }
                }
            }
            self.extend_session(session, ttl_ms, &mut slot, sent).await
        })
        .await
    }

    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.agree().await?;
        let slot = self.slot(session);
        let mut slot = slot.lock().await;
        self.in_time(Effect::Writes, async |sent| {
            self.extend_session(session, whole_ms(ttl), &mut slot, sent).await
        })
        .await
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        self.agree().await?;
        let asked = self.in_time(Effect::Reads, async |_: &Sent| self.settled(session).await);
        Ok(asked.await?.is_some())
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        self.agree().await?;
        let slot = self.slot(session);
        let mut slot = slot.lock().await;
        let (mark, life) = (self.mark_path(session), self.life_path(session));
        let steps = [Step::Check { path: &mark }, Step::Delete { path: &life }];
        let ending = async |link: Link| match transact(&link, &steps).await? {
            TransactionOutcome::Done => Ok(true),
            TransactionOutcome::Failed { step, code: NO_NODE } => Ok(step > 0),
            TransactionOutcome::Failed { code, .. } => Err(Refused::Code(code)),
        };
        let has_begun = self.wire.ask(Effect::Writes, ending).await?;
        if !has_begun && !self.forbid(session).await? {
            return Err(RegisterError::unavailable(changing()));
        }
        if let Some(held) = slot.take() {
            // What hangs on it beside its life goes at once, and not after a ttl.
            self.let_go(&held).await;
        }
        self.slots().remove(&session);
        Ok(())
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        let mut subscription = self.wire.listen();
        let life = self.life_path(session);
        // A sign of life writes it, and is not what is waited for.
        if self.wish(&[WatchRequest::End(life.clone())]).await? {
            let _ = tokio::time::timeout(patience, subscription.changed(&life)).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S4: a move that was held up must not hang a life on a count older than a touch that was acknowledged since.
    #[test]
    fn a_move_is_refused_if_anybody_moved_or_touched_the_session_since_it_was_read() {
        let steps = At { mark: 3, life: 7 }.unchanged("/alive/s", b"told", "/alive/s/life");
        let [Step::Set { path, version: mark, .. }, Step::DeleteVersion { path: life, version }] =
            steps
        else {
            panic!("{steps:?}");
        };
        assert_eq!((path, mark), ("/alive/s", 3), "every move raises it");
        assert_eq!((life, version), ("/alive/s/life", 7), "every touch raises it");
    }

    #[test]
    fn a_sign_of_life_counts_only_if_its_answer_came_before_the_session_can_have_been_due() {
        let pass = messages::welcome(&[&[0; 4][..], &[1; 12], &[0, 0, 0, 16], &[1; 16]].concat());
        let heard_at = Moment::from_millis(1000);
        let held = ResumableSession {
            pass: pass.unwrap().unwrap().pass,
            ttl_ms: 10_000,
            version: 0,
            heard_at,
        };
        assert!(held.is_within(Moment::from_millis(1000)));
        assert!(held.is_within(Moment::from_millis(10_700)));
        // Clocks stray: a server's may be ahead by then.
        assert!(!held.is_within(Moment::from_millis(10_950)));
        assert!(!held.is_within(Moment::from_millis(11_000)));
    }

    #[test]
    fn servers_that_keep_sessions_for_different_times_are_warned_of() {
        let one = |server: &str, max| (server.to_owned(), Bounds { min: 4000, max });
        assert_eq!(unlike(&[one("a", 40_000), one("b", 40_000)]), None);
        let said = unlike(&[one("a", 40_000), one("b", 20_000)]).unwrap();
        assert!(said.contains("b 4000 to 20000 ms"), "{said}");
    }

    #[test]
    fn a_mark_tells_the_ttl_that_its_life_hangs_on() {
        let said = Vec::from(&b"session=0x4d ttl_ms=4000\n"[..]);
        assert_eq!(ttl_of(&said), 4000);
        for other in [&b"\n"[..], b"", b"ttl_ms=x", b"\xff"] {
            assert_eq!(ttl_of(other), 0, "{other:?}");
        }
    }
}
