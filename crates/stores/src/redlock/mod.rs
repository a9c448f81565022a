//! `redlock://a,b,c`: several Redis servers that know nothing of each other, as one register.
//!
//! Each is an acceptor of `paxos`, by scripts; a majority decides. It works while a majority can be
//! reached, refuses without one, and its versions rise whichever minority is down. Sessions are timed by
//! those who watch them: no clock of any server counts.
//!
//! What it cannot bear is an acceptor that forgets what it promised: two of three that lose their last
//! writes may give one term twice. So every server needs its append-only file synced on every write, and
//! this engine claims leases only.

mod paxos;
#[cfg(test)]
mod simulation;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::{Script, Value};
use regent_election::store::{Description, Level};
use tokio::sync::{Mutex, mpsc};

use crate::engine::address::StoreAddress;
use crate::engine::limits::POLL_EVERY;
use crate::engine::pages::{PageStart, Pages};
use crate::engine::tls::ClientTls;
use crate::engine::tls::options::{TLS, environment, once_each};
use crate::engine::{Effect, UrlError, fresh, whole_ms};
use crate::redis::wire::{WORDS, Wire};
use crate::redis::{examine, lex_range};
use crate::register::{
    Encryption, Found, HumanSummary, Key, KeyKind, Record, Register, RegisterError, RegisterResult,
    Swapped, Version,
};
use paxos::{Accepted, Ask, Ballot, Entry, Proposal, ProposalOutcome, ProposedChange, Reply, Step};

/// What every key opens with.
const TAG: &str = "{regent-redlock}";

/// The longest rest between two attempts of writers that disturb each other: longer than a round takes on
/// a machine that is busy with their quarrel.
const REST_MS_MAX: u64 = 1000;

/// How often a read looks again for a write to end before it takes a hand in it, and disturbs it.
const LOOKS_MAX: usize = 4;

/// Queues in which the writers of this process wait for each other: keys share them by chance.
const QUEUES: usize = 64;

/// Keys: entry. Arguments: ballot. Answers 1 and what was accepted, or 0 and what was promised.
const PREPARE: &str = r"
local held = redis.call('HMGET', KEYS[1], 'promised', 'accepted', 'version', 'ancestors', 'value', 'plate')
if held[1] and held[1] > ARGV[1] then return { 0, held[1] } end
redis.call('HSET', KEYS[1], 'promised', ARGV[1])
return { 1, held[2], held[3], held[4], held[5], held[6] }
";

/// Keys: entry, index. Arguments: ballot, version, ancestors, value, plate, name.
const ACCEPT: &str = r"
local promised = redis.call('HGET', KEYS[1], 'promised')
redis.call('ZSCORE', KEYS[2], ARGV[6])
if promised and promised > ARGV[1] then return { 0, promised } end
redis.call('HSET', KEYS[1], 'promised', ARGV[1], 'accepted', ARGV[1], 'version', ARGV[2],
  'ancestors', ARGV[3], 'value', ARGV[4], 'plate', ARGV[5])
redis.call('ZADD', KEYS[2], 0, ARGV[6])
return { 1 }
";

/// A register on a majority of independent Redis servers.
#[derive(Debug)]
pub struct RedlockRegister {
    acceptors: Vec<Arc<Acceptor>>,
    /// Who we are among all who propose.
    proposer: u64,
    /// The highest round used or heard of.
    round: AtomicU64,
    request_for: Duration,
    place: String,
    /// Writers of one process need not quarrel over ballots: they take turns.
    queues: Vec<Mutex<()>>,
}

/// One of the servers.
#[derive(Debug)]
struct Acceptor {
    wire: Wire,
    prepare: Script,
    accept: Script,
}

impl RedlockRegister {
    /// A register on the servers that `url` names; it connects to each when it is first asked.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let place = StoreAddress::parse(url, 6379)?;
        let mut known = WORDS.parameters();
        known.push(TLS);
        place.knows_only(&known)?;
        once_each(&place.options)?;
        let tls = WORDS.wanted(false, &place.options, &environment)?;
        let tls = tls.map(|tls| ClientTls::open(tls, None)).transpose()?.map(Arc::new);
        let distinct: BTreeSet<_> = place.servers.iter().collect();
        if distinct.len() != place.servers.len() {
            return Err(UrlError::new("one server is named twice, and would be counted as two"));
        }
        if place.servers.len() < 3 {
            return Err(UrlError::new(format_args!(
                "{} servers are no majority of anything that may fail; name three or five, like \
                 redlock://a,b,c",
                place.servers.len()
            )));
        }
        let login = place.login.as_ref().map_or_else(String::new, |(user, password)| {
            format!("{}:{}@", encoded(user), encoded(password))
        });
        let acceptors = place
            .servers
            .iter()
            .map(|server| {
                let url = format!("redis://{login}{server}/{}", place.path);
                Ok(Arc::new(Acceptor {
                    wire: Wire::by(&url, tls.clone(), request_for)?,
                    prepare: Script::new(PREPARE),
                    accept: Script::new(ACCEPT),
                }))
            })
            .collect::<Result<Vec<_>, UrlError>>()?;
        let (proposer, round) = (fresh(), AtomicU64::new(0));
        let queues = (0..QUEUES).map(|_| Mutex::new(())).collect();
        Ok(Self { acceptors, proposer, round, request_for, place: place.to_string(), queues })
    }

    /// A ballot never used before, above this round.
    fn ballot(&self, above: u64) -> RegisterResult<Ballot> {
        self.round.fetch_max(above, Ordering::AcqRel);
        let round = self.round.fetch_add(1, Ordering::AcqRel).checked_add(1);
        let round =
            round.ok_or_else(|| RegisterError::corrupt("the rounds of ballots are used up"))?;
        Ok(Ballot { round, proposer: self.proposer })
    }

    fn queue(&self, key: &Key) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let number = hasher.finish() % self.queues.len() as u64;
        &self.queues[usize::try_from(number).unwrap_or_default()]
    }

    /// Brings a wish to its end, in time.
    async fn propose(&self, key: &Key, wish: ProposedChange) -> RegisterResult<ProposalOutcome> {
        let is_read = matches!(wish, ProposedChange::Read);
        let mut proposal = Proposal::new(self.acceptors.len(), wish);
        let mut last_words = Vec::new();
        let running = async {
            if is_read {
                let step = proposal.look();
                return self.run(key, &mut proposal, step, LOOKS_MAX, &mut last_words).await;
            }
            let _turn = self.queue(key).lock().await;
            let step = proposal.prepare(self.ballot(0)?);
            self.run(key, &mut proposal, step, 0, &mut last_words).await
        };
        let why = match tokio::time::timeout(self.request_for, running).await {
            Ok(Ok(Some(outcome))) => return Ok(outcome),
            Ok(Ok(None)) => "no majority answers",
            Ok(Err(error)) => return Err(error),
            Err(_) => "not settled in time",
        };
        last_words.dedup();
        let why = format!(
            "{why} of {} servers within {:?}: {}",
            self.acceptors.len(),
            self.request_for,
            last_words.join("; ")
        );
        let effect = if proposal.is_shown() { Effect::Writes } else { Effect::Reads };
        Err(effect.unanswered(why))
    }

    /// Does what the proposal says until it has an answer; none if it will have none.
    async fn run(
        &self,
        key: &Key,
        proposal: &mut Proposal,
        mut step: Step,
        mut looks: usize,
        last_words: &mut Vec<String>,
    ) -> RegisterResult<Option<ProposalOutcome>> {
        let mut answers = None;
        let mut rest_ms = 4;
        loop {
            step = match step {
                Step::Ask(ask) => {
                    answers = Some(self.ask(key, &ask));
                    Step::Wait
                }
                Step::Wait => {
                    // Everyone who was asked answers or is given up, and then nobody waits.
                    let Some(answers) = &mut answers else { return Ok(None) };
                    let answer: Option<(usize, RegisterResult<Reply>)> = answers.recv().await;
                    match answer {
                        None => return Ok(None),
                        Some((acceptor, Ok(reply))) => proposal.heard(acceptor, reply),
                        Some((acceptor, Err(error))) => {
                            last_words.push(error.to_string());
                            proposal.lost(acceptor)
                        }
                    }
                }
                Step::Retry(above) => {
                    tokio::time::sleep(Duration::from_millis(fresh() % rest_ms)).await;
                    rest_ms = (rest_ms * 2).min(REST_MS_MAX);
                    if looks > 0 {
                        looks -= 1;
                        proposal.look()
                    } else {
                        proposal.prepare(self.ballot(above.round)?)
                    }
                }
                Step::Stuck => return Ok(None),
                Step::Answer(outcome) => return Ok(Some(outcome)),
            };
        }
    }

    /// Asks everybody. Those who are not waited for are asked all the same: what a minority missed would
    /// otherwise be missing when it is needed.
    fn ask(&self, key: &Key, ask: &Ask) -> mpsc::Receiver<(usize, RegisterResult<Reply>)> {
        let (sender, receiver) = mpsc::channel(self.acceptors.len());
        for (number, acceptor) in self.acceptors.iter().enumerate() {
            let (acceptor, sender) = (Arc::clone(acceptor), sender.clone());
            let (key, ask) = (key.clone(), ask.clone());
            tokio::spawn(async move {
                let reply = acceptor.on(&key, &ask).await;
                // Nobody waits any more: a majority answered.
                let _ = sender.send((number, reply)).await;
            });
        }
        receiver
    }

    /// Names of a kind that a majority knows of, in order; some may turn out to be of nothing.
    async fn names(
        &self,
        kind: KeyKind,
        prefix: &str,
        start: &PageStart,
        count: usize,
    ) -> RegisterResult<Vec<String>> {
        let (sender, mut receiver) = mpsc::channel(self.acceptors.len());
        let (least, greatest) = lex_range(prefix, start);
        let mut request = redis::cmd("ZRANGEBYLEX");
        request.arg(index_key(kind)).arg(least).arg(greatest).arg("LIMIT").arg(0).arg(count);
        for acceptor in &self.acceptors {
            let (acceptor, sender, request) =
                (Arc::clone(acceptor), sender.clone(), request.clone());
            tokio::spawn(async move {
                let names: RegisterResult<Vec<String>> =
                    acceptor.wire.send(Effect::Reads, &request).await;
                let _ = sender.send(names).await;
            });
        }
        drop(sender);
        let (mut names, mut answered, mut last_words) = (BTreeSet::new(), 0, Vec::new());
        while let Some(answer) = receiver.recv().await {
            match answer {
                Ok(some) => {
                    names.extend(some);
                    answered += 1;
                }
                Err(error) => last_words.push(error.to_string()),
            }
            if answered > self.acceptors.len() / 2 {
                return Ok(names.into_iter().take(count).collect());
            }
        }
        Err(RegisterError::unavailable(format_args!(
            "no majority answers: {}",
            last_words.join("; ")
        )))
    }
}

impl Acceptor {
    async fn on(&self, key: &Key, ask: &Ask) -> RegisterResult<Reply> {
        let (entry, index) = (entry_key(key), index_key(key.kind()));
        let parts: Vec<Value> = match ask {
            Ask::Look => {
                let mut request = redis::cmd("HMGET");
                request.arg(&entry).arg(&["accepted", "version", "ancestors", "value", "plate"]);
                let held: Vec<Value> = self.wire.send(Effect::Reads, &request).await?;
                std::iter::once(Value::Int(1)).chain(held).collect()
            }
            Ask::Prepare(ballot) => {
                let mut script = self.prepare.prepare_invoke();
                script.key(&entry).arg(ballot.to_string());
                self.wire.run(Effect::Writes, &script).await?
            }
            Ask::Accept(ballot, proposed) => {
                let ancestors: Vec<_> = proposed.ancestors.iter().map(Ballot::to_string).collect();
                let mut script = self.accept.prepare_invoke();
                script
                    .key(&entry)
                    .key(index)
                    .arg(ballot.to_string())
                    .arg(proposed.version.to_string())
                    .arg(ancestors.join(" "))
                    .arg(&proposed.value[..])
                    .arg(&proposed.summary)
                    .arg(key.name());
                self.wire.run(Effect::Writes, &script).await?
            }
        };
        reply(ask, parts).ok_or_else(|| {
            RegisterError::corrupt(format_args!(
                "the hash {entry} of Redis at {} is none of ours",
                self.wire.place()
            ))
        })
    }
}

/// What an acceptor said; none if an acceptor of ours would not say so.
fn reply(ask: &Ask, parts: Vec<Value>) -> Option<Reply> {
    let text = |value: Value| match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    };
    let ballot = |bytes: &[u8]| Ballot::parse(std::str::from_utf8(bytes).ok()?);
    let mut parts = parts.into_iter();
    if parts.next()? == Value::Int(0) {
        return Some(Reply::Refused(ballot(&text(parts.next()?)?)?));
    }
    if matches!(ask, Ask::Accept(..)) {
        return Some(Reply::Accepted);
    }
    let Some(accepted) = text(parts.next()?) else {
        // A promise may be all there is.
        return Some(Reply::Holds(None));
    };
    let (version, ancestors) = (text(parts.next()?)?, text(parts.next()?)?);
    let (value, summary) = (text(parts.next()?)?, text(parts.next()?)?);
    let ancestors = ancestors
        .split(|byte| *byte == b' ')
        .filter(|part| !part.is_empty())
        .map(ballot)
        .collect::<Option<Vec<_>>>()?;
    let summary = String::from_utf8(summary).ok()?;
    let entry = Entry { version: ballot(&version)?, ancestors, value, summary };
    let accepted: Accepted = Some((ballot(&accepted)?, entry));
    Some(Reply::Holds(accepted))
}

fn entry_key(key: &Key) -> String {
    format!("{TAG}:{}:{}", key.kind().word(), key.name())
}

fn index_key(kind: KeyKind) -> String {
    format!("{TAG}:{}", kind.word())
}

/// What people see beside the value.
fn summary_text(summary: &HumanSummary) -> String {
    let leader = summary.leader.as_ref().map_or("-", |node| node.as_str());
    let term = summary.term.map_or(0, regent_election::Term::get);
    format!("leader={leader} term={term} ttl_ms={}", summary.ttl.map_or(0, whole_ms))
}

/// A login as a URL takes it.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn found(entry: Entry) -> Found {
    Found { value: entry.value, version: Version(entry.version.to_string()) }
}

#[async_trait]
impl Register for RedlockRegister {
    fn describe(&self) -> Description {
        Description {
            name: "redlock",
            place: self.place.clone(),
            level: Level::LeaseOnly,
            caveat: Some(
                "terms rise only while no server forgets what it promised: each needs appendfsync always, \
                 and one that lost its data must not come back under its name"
                    .into(),
            ),
        }
    }

    fn encryption(&self) -> Option<Encryption> {
        self.acceptors.first().map(|acceptor| acceptor.wire.encryption())
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        let mut warnings = Vec::new();
        let mut unreachable = Vec::new();
        for acceptor in &self.acceptors {
            let place = acceptor.wire.place();
            match examine(&acceptor.wire).await {
                Ok(some) => {
                    warnings.extend(some.into_iter().map(|what| format!("{place}: {what}")));
                }
                Err(error) => unreachable.push(format!("{place} cannot be examined: {error}")),
            }
        }
        if unreachable.len() > (self.acceptors.len() - 1) / 2 {
            return Err(RegisterError::unavailable(unreachable.join("; ")));
        }
        warnings.extend(unreachable);
        if self.acceptors.len().is_multiple_of(2) {
            warnings.push(format!(
                "{} servers bear the loss of no more than {} would",
                self.acceptors.len(),
                self.acceptors.len() - 1
            ));
        }
        Ok(warnings)
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        match self.propose(key, ProposedChange::Read).await? {
            ProposalOutcome::Found(entry) => Ok(entry.map(found)),
            ProposalOutcome::Swapped(_) | ProposalOutcome::Conflict | ProposalOutcome::Doubt => {
                Err(RegisterError::unavailable("a read was answered with something else"))
            }
        }
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        // A version that is no ballot was never given out: it cannot be the one that is held.
        let expected = match expected.map(|version| Ballot::parse(&version.0)) {
            None => None,
            Some(Some(ballot)) => Some(ballot),
            Some(None) => return Ok(Swapped::Conflict),
        };
        let summary = summary_text(&record.summary);
        match self
            .propose(key, ProposedChange::Swap { expected, value: record.value, summary })
            .await?
        {
            ProposalOutcome::Swapped(version) => Ok(Swapped::Done(Version(version.to_string()))),
            ProposalOutcome::Conflict => Ok(Swapped::Conflict),
            ProposalOutcome::Doubt | ProposalOutcome::Found(_) => Err(RegisterError::uncertain(
                "others wrote so often meanwhile that nobody knows whether this write was among them",
            )),
        }
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        let held = self.load(key).await?;
        if held.as_ref().map(|found| &found.version) == seen {
            tokio::time::sleep(patience.min(POLL_EVERY)).await;
        }
        Ok(())
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let mut pages = Pages::new(prefix, after, count);
        while let Some((start, at_once)) = pages.next_page() {
            let mut found = Vec::new();
            for name in self.names(kind, prefix, &start, at_once).await? {
                let key = Key::found(kind, &name).ok_or_else(|| {
                    RegisterError::corrupt(format_args!("{name:?} is indexed and is no name"))
                })?;
                // A name without an entry is what a writer without a majority left behind.
                let held = self.load(&key).await?;
                found.push((key, held));
            }
            pages.add(found);
        }
        Ok(pages.into_entries())
    }

    async fn shut_down(&self) {
        for acceptor in &self.acceptors {
            acceptor.wire.hang_up().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_promises_no_majority_is_refused() {
        let refusal = |url: &str| {
            RedlockRegister::new(url, Duration::from_secs(1)).expect_err("refused").to_string()
        };
        assert!(refusal("redlock://a,b").contains("three or five"));
        assert!(refusal("redlock://a,b,a:6379").contains("twice"));
        assert!(refusal("redlock://a,b,c?x=1").contains("known are cacert, cert, key, sni, tls"));
        assert!(refusal("redlock://a,b,c?cacert=/no/such/file").contains("/no/such/file"));
        let register =
            RedlockRegister::new("redlock://me:s%40crt@a,b:1,c/2", Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "a:6379,b:1,c:6379/2");
        assert_eq!(register.acceptors[1].wire.place(), "b:1/2");
    }

    #[test]
    fn what_no_acceptor_says_is_not_believed() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let ballot = Ballot { round: 1, proposer: 2 };
        let (look, one) = (Ask::Prepare(ballot), || Value::Int(1));
        let b = || text(&ballot.to_string());
        assert_eq!(reply(&look, vec![one(), Value::Nil]), Some(Reply::Holds(None)));
        assert_eq!(reply(&look, vec![Value::Int(0), b()]), Some(Reply::Refused(ballot)));
        assert_eq!(reply(&look, vec![Value::Int(0), text("x")]), None);
        let whole = vec![one(), b(), b(), text(""), text("v"), text("p")];
        assert!(matches!(reply(&look, whole), Some(Reply::Holds(Some(_)))));
        assert_eq!(reply(&look, vec![one(), b(), b(), Value::Nil]), None);
        assert_eq!(reply(&look, vec![]), None);
    }
}
