//! The stage of a script: the real ledger, and a clock that a script moves. The driver is the shortest one that is correct; it applies what is due every 50 ms.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use regent_election::access::{Binding, Role, SecretDigest, TokenLabel};
use regent_election::ledger::{HeartbeatOutcome, Ledger, Turn};
use regent_election::store::OfferView;
use regent_election::{
    Answer, Applied, Command, Door, Event, Group, Home, IfLost, Incarnation, Metadata, Moment,
    Node, NodePattern, Opening, Policy, Reason, RequestId, Revision, SessionId, SessionNo,
    Settings, State, Step, Term, WaitKind,
};

const TURN: Duration = Duration::from_millis(50);

/// A state, its driver, and who is who in the script.
pub(crate) struct Stage {
    now: Moment,
    ledger: Ledger,
    /// The secret of every session a script has named.
    secrets: BTreeMap<String, SessionId>,
    /// Sessions that send heartbeats while the script waits.
    alive: Vec<String>,
}

type Said = Result<String, String>;

/// One line of a script, taken apart.
struct Line<'a> {
    words: Vec<&'a str>,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn new(text: &'a str) -> Self {
        let mut words = Vec::new();
        let mut options = BTreeMap::new();
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => {
                    options.insert(key, value);
                }
                None => words.push(word),
            }
        }
        Self { words, options }
    }

    fn word(&self, at: usize, what: &str) -> Result<&'a str, String> {
        self.words.get(at).copied().ok_or_else(|| format!("{what} is missing"))
    }

    fn group(&self, at: usize) -> Result<Group, String> {
        Group::new(self.word(at, "a group")?).map_err(|why| why.to_string())
    }

    fn node(&self, key: &str) -> Result<Option<Node>, String> {
        let found = self.options.get(key).map(|text| Node::new(text));
        found.transpose().map_err(|why| why.to_string())
    }

    fn to(&self) -> Result<Node, String> {
        self.node("to")?.ok_or_else(|| "to= is missing".into())
    }

    fn is_said(&self, flag: &str) -> bool {
        self.words.contains(&flag)
    }
}

fn millis(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is no duration like 10s or 500ms");
    if let Some(number) = text.strip_suffix("ms") {
        return number.parse().map_err(|_| wrong());
    }
    let number = text.strip_suffix('s').ok_or_else(wrong)?;
    Ok(number.parse::<u64>().map_err(|_| wrong())? * 1000)
}

fn span(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}

impl Stage {
    pub(crate) fn new() -> Self {
        let now = Moment::from_millis(1_000_000);
        let mut ledger = Ledger::new(State::new(Settings::default()), Incarnation(0), now);
        ledger.serve(now);
        Self { now, ledger, secrets: BTreeMap::new(), alive: Vec::new() }
    }

    /// Plays one line and says what came of it.
    pub(crate) fn play(&mut self, text: &str) -> Said {
        let line = Line::new(text);
        let verb = line.word(0, "a command")?;
        match verb {
            "wait" => self.wait(millis(line.word(1, "a duration")?)?),
            "sleep" => self.sleep(millis(line.word(1, "a duration")?)?),
            "alive" => {
                self.alive = line.words[1..].iter().map(|&word| word.to_owned()).collect();
                Ok(String::new())
            }
            "heartbeat" => self.heartbeat(&line),
            "promote" => Ok(self.promote()),
            "restart" => self.restart(),
            "show" => self.show(&line),
            "history" => self.history(&line),
            "session" => self.session(&line),
            "forget-requests" => self.forget_requests(&line),
            _ => self.command(verb, &line),
        }
    }

    fn command(&mut self, verb: &str, line: &Line<'_>) -> Said {
        let (who, mut command) = self.parse(verb, line)?;
        if let Some(by) = line.options.get("by") {
            let token = line.options.get("token").map(|text| text.parse().map_err(show));
            command = command.on_behalf_of(by.parse().map_err(show)?, token.transpose()?);
        }
        let request: Option<RequestId> = match line.options.get("id") {
            None => None,
            Some(text) => Some(text.parse().map_err(|why| format!("{why}"))?),
        };
        // Any request of a session is a sign of life, as every store counts it.
        if let Some(session) = self.ledger.asker(&command) {
            self.ledger.shows_life(self.now, session);
        }
        let group = match command.session() {
            Some(_) => line.words.get(2),
            None => line.words.get(1),
        };
        let group = group.and_then(|word| Group::new(word).ok());
        let mut said = self.bring_due()?;
        let applied = self.apply(command, request);
        said.push_str(&self.tell_answer(&who, group.as_ref(), &applied));
        said.push_str(&tell_events(&applied.events, "  "));
        Ok(said)
    }

    fn parse(&mut self, verb: &str, line: &Line<'_>) -> Result<(String, Command), String> {
        let who = match verb {
            "settings" => String::new(),
            _ => line.word(1, "who")?.to_owned(),
        };
        let session = self.secret(&who);
        let term = |stage: &Self, group: &Group| match line.options.get("term") {
            Some(text) => {
                let number = text.parse().map_err(|_| format!("{text} is no term"))?;
                Term::new(number).ok_or_else(|| format!("{text} is no term"))
            }
            None => Ok(stage.state().leader_view(group, Incarnation(0)).term),
        };
        let command = match verb {
            "open" => Command::Open {
                session,
                node: line.node("node")?.unwrap_or(label(&who)?),
                ttl_ms: millis(line.options.get("ttl").ok_or("ttl= is missing")?)?,
            },
            "ttl" => Command::ChangeTtl { session, ttl_ms: millis(line.word(2, "a ttl")?)? },
            "close" => Command::Close { session },
            "campaign" => Command::Campaign {
                group: line.group(2)?,
                session,
                opening: self.opening(&who, line)?,
                if_lost: if line.is_said("leave") { IfLost::Leave } else { IfLost::Stand },
                priority: line.options.get("priority").map_or(Ok(0), |text| {
                    text.parse().map_err(|_| format!("{text} is no priority"))
                })?,
                metadata: Metadata::new(line.options.get("address").map(|at| ("address", at)))
                    .map_err(|why| why.to_string())?,
            },
            "withdraw" => Command::Withdraw { group: line.group(2)?, session },
            "accept" => {
                let group = line.group(2)?;
                Command::Accept { term: term(self, &group)?, group, session }
            }
            "resign" => {
                let group = line.group(2)?;
                Command::Resign { term: term(self, &group)?, group, session }
            }
            "offer" => {
                let group = line.group(2)?;
                Command::Offer { term: term(self, &group)?, group, session, to: line.to()? }
            }
            "warm" => {
                let group = line.group(2)?;
                Command::Warm { term: term(self, &group)?, group, session }
            }
            "transfer" => {
                let group = line.group(2)?;
                Command::Transfer { term: term(self, &group)?, group, session, to: line.to()? }
            }
            "step-down" => Command::StepDown {
                group: line.group(1)?,
                reason: Reason::new(line.options.get("reason").unwrap_or(&""))
                    .map_err(|why| why.to_string())?,
                to: line.node("to")?,
                immediate: line.is_said("immediate"),
            },
            "relieve" => {
                let group = line.group(1)?;
                let reason = line.options.get("reason").unwrap_or(&"");
                Command::Relieve {
                    term: term(self, &group)?,
                    group,
                    to: line.to()?,
                    reason: Reason::new(reason).map_err(|why| why.to_string())?,
                }
            }
            "policy" => Command::PutPolicy { group: line.group(1)?, policy: policy(line)? },
            "bind" => bind(line, self.state().access().bindings().version())?,
            "token" => Command::CreateToken {
                token: line.word(1, "an id")?.parse().map_err(show)?,
                digest: Box::new(SecretDigest([0; 32])),
                principal: line.word(2, "of whom")?.parse().map_err(show)?,
                expires_ms: None,
                label: TokenLabel::new("").map_err(show)?,
            },
            "revoke" => {
                Command::RevokeToken { token: line.word(1, "an id")?.parse().map_err(show)? }
            }
            "stop" => Command::Move { group: line.group(1)?, step: Step::Stop },
            "resume" => {
                let group = line.group(1)?;
                let since = match (line.options.get("since"), self.state().door(&group)) {
                    (Some(text), _) => {
                        text.parse().map_err(|_| format!("{text} is no revision"))?
                    }
                    (None, Door::Stopped { since }) => since.0,
                    (None, Door::Open | Door::Expected { .. } | Door::Moved { .. }) => 0,
                };
                Command::Move { group, step: Step::Resume { since: Revision(since) } }
            }
            "depart" => {
                let to = Home::new("memory:elsewhere").map_err(show)?;
                Command::Move { group: line.group(1)?, step: Step::Depart { to } }
            }
            "expect" => {
                let from = Home::new("memory:elsewhere").map_err(show)?;
                Command::Move { group: line.group(1)?, step: Step::Expect { from } }
            }
            "arrive" => {
                let group = line.group(1)?;
                let (above, heir) = (term(self, &group)?, None);
                let since = match self.state().door(&group) {
                    Door::Expected { since, .. } => *since,
                    Door::Open | Door::Moved { .. } | Door::Stopped { .. } => Revision(0),
                };
                Command::Move { group, step: Step::Arrive { since, above, heir } }
            }
            "delete" => Command::Delete { group: line.group(1)? },
            "settings" => Command::PutSettings { settings: Box::new(self.settings(line)?) },
            _ => return Err(format!("no such command: {verb}")),
        };
        Ok((who, command))
    }

    /// A campaign opens its session if it is told a ttl, or is to leave nothing behind.
    fn opening(&self, who: &str, line: &Line<'_>) -> Result<Option<Opening>, String> {
        let ttl_ms = line.options.get("ttl").map(|text| millis(text)).transpose()?;
        if ttl_ms.is_none() && !line.is_said("passing") {
            return Ok(None);
        }
        let node = line.node("node")?.unwrap_or(label(who)?);
        Ok(Some(Opening { node, ttl_ms, passing: line.is_said("passing") }))
    }

    fn settings(&self, line: &Line<'_>) -> Result<Settings, String> {
        let mut settings = self.state().settings().clone();
        if let Some(text) = line.options.get("auto-create") {
            settings.auto_create = *text == "yes";
        }
        if let Some(text) = line.options.get("groups") {
            settings.groups_max = text.parse().map_err(|_| format!("{text} is no number"))?;
        }
        settings.default_policy.four_eyes |= line.is_said("four-eyes");
        Ok(settings)
    }

    /// The secret behind a name; a name met for the first time gets one.
    fn secret(&mut self, who: &str) -> SessionId {
        let next = self.secrets.len() as u128 + 1;
        *self
            .secrets
            .entry(who.to_owned())
            .or_insert_with(|| SessionId::new(next).expect("counts from one"))
    }

    fn name_of(&self, session: SessionNo) -> String {
        let found = self
            .secrets
            .iter()
            .find(|(_, secret)| self.state().find_session(**secret) == Some(session));
        found.map_or_else(|| session.to_string(), |(name, _)| name.clone())
    }

    fn apply(&mut self, command: Command, request: Option<RequestId>) -> Applied {
        let entry = self.ledger.entry(command, request, 0, &BTreeSet::new());
        let applied = self.ledger.apply(self.now, entry, |_| {});
        self.state().check_invariants().expect("the state agrees with itself");
        applied
    }

    fn state(&self) -> &State {
        self.ledger.state()
    }

    /// Moves the clock while heartbeats of the living arrive and the driver does what is due.
    fn wait(&mut self, ms: u64) -> Said {
        let mut said = String::new();
        let end = self.now + Duration::from_millis(ms);
        while self.now < end {
            self.now = (self.now + TURN).min(end);
            for name in self.alive.clone() {
                if let Some(id) = self.secrets.get(&name) {
                    self.ledger.heartbeat(self.now, *id, None);
                }
            }
            self.ledger.turn(self.now);
            said.push_str(&self.bring_due()?);
        }
        Ok(said)
    }

    /// Moves the clock while the store itself stands still, as if its machine had slept.
    fn sleep(&mut self, ms: u64) -> Said {
        self.now = self.now + Duration::from_millis(ms);
        Ok(match self.ledger.turn(self.now) {
            Turn::Steady => String::new(),
            Turn::Restarted { .. } => "the store had slept: every session gets a full ttl\n".into(),
        })
    }

    fn at(&self) -> String {
        span(self.now.since(Moment::from_millis(1_000_000)).as_millis() as u64)
    }

    /// Applies what time has brought.
    fn bring_due(&mut self) -> Said {
        let mut said = String::new();
        for command in self.ledger.due(self.now, usize::MAX) {
            let names: Vec<String> =
                command.sessions().iter().map(|session| self.name_of(*session)).collect();
            let (at, names) = (self.at(), names.join(", "));
            let what = match &command {
                Command::Expire { .. } => format!("at {at}: {names} expired"),
                Command::Elapsed { group, kind, .. } => {
                    let what = match kind {
                        WaitKind::LockDelay => "the lock delay is over",
                        WaitKind::Ending => "the holder had its whole ttl to stop",
                        WaitKind::Acceptance => "the promoted did not accept",
                        WaitKind::MinimumTenure => "the minimum tenure is served",
                        WaitKind::Approval => "the proposal found no second principal",
                    };
                    format!("at {at}: {group}: {what}")
                }
                Command::Refill { .. } => format!("{names} is heard again"),
                other => return Err(format!("time brings no {}", other.name())),
            };
            let is_refill = matches!(command, Command::Refill { .. });
            let applied = self.apply(command, None);
            let is_nothing = if is_refill {
                applied.events.is_empty()
            } else {
                applied.answer == Ok(Answer::Overtaken)
            };
            if !is_nothing {
                writeln!(said, "{what}").map_err(show)?;
                said.push_str(&tell_events(&applied.events, "  "));
            }
        }
        Ok(said)
    }

    fn heartbeat(&mut self, line: &Line<'_>) -> Said {
        let who = line.word(1, "who")?;
        let secret = self.secret(who);
        let sequence = line.options.get("seq").map(|text| text.parse().unwrap_or(0));
        let mut said = match self.ledger.heartbeat(self.now, secret, sequence) {
            HeartbeatOutcome::Extended => {
                let session = self.state().find_session(secret);
                let epoch = session.and_then(|session| self.state().epoch(session));
                format!("{who} is heard, epoch {}\n", epoch.unwrap_or(0))
            }
            HeartbeatOutcome::Expiring => format!("{who} is expiring and not revived\n"),
            HeartbeatOutcome::Unknown => format!("{who} has no session\n"),
            HeartbeatOutcome::NotNewer { last } => format!("refused: not above heartbeat {last}\n"),
        };
        said.push_str(&self.bring_due()?);
        Ok(said)
    }

    /// Another machine takes the store over: it counts everything from the start.
    fn promote(&mut self) -> String {
        self.ledger.serve(self.now);
        "every session has a full ttl, every wait starts again\n".into()
    }

    /// The state goes through its bytes; the driver starts from nothing.
    fn restart(&mut self) -> Said {
        let bytes = self.state().encode();
        let state = State::decode(&bytes).map_err(show)?;
        if state != *self.state() {
            return Err("the state changed on its way through bytes".into());
        }
        self.ledger = Ledger::new(state, Incarnation(0), self.now);
        Ok(self.promote())
    }

    /// Lets a session's, or the store's, window of request ids overflow.
    fn forget_requests(&mut self, line: &Line<'_>) -> Said {
        let who = line.word(1, "who")?;
        let session = self.secret(who);
        for number in 0..=regent_election::limits::REQUESTS_PER_SESSION {
            let group = Group::new("elsewhere").map_err(show)?;
            let request = RequestId::new(self.state().revision(), &format!("filler{number}"));
            let command = Command::Withdraw { group, session };
            self.apply(command, Some(request.map_err(show)?));
        }
        Ok(String::new())
    }

    fn show(&self, line: &Line<'_>) -> Said {
        let group = line.group(1)?;
        let is_silent = |session| self.ledger.is_silent(session);
        let view = self.state().group_view(&group, Incarnation(0), is_silent);
        let view = match view {
            Ok(view) => view,
            Err(refusal) => return Ok(format!("{refusal}\n")),
        };
        let leader = view.office.leader.map_or("nobody".to_owned(), |node| node.to_string());
        let mut said = format!("{leader} {}, term {}", view.office.state.word(), view.office.term);
        if let Some(cause) = view.ending {
            write!(said, " ({cause})").map_err(show)?;
        }
        if let Door::Stopped { since } = view.door {
            write!(said, "; stopped since revision {since}").map_err(show)?;
        }
        for standby in view.standbys {
            let silent = if standby.silent { ", silent" } else { "" };
            write!(said, "; {} waits, priority {}{silent}", standby.node, standby.priority)
                .map_err(show)?;
        }
        said.push('\n');
        Ok(said)
    }

    fn history(&self, line: &Line<'_>) -> Said {
        let mut said = String::new();
        for change in self.state().history(&line.group(1)?) {
            let leader = change.leader.as_ref().map_or("nobody", |node| node.as_str());
            write!(said, "term {}: {leader} ({})", change.term, change.cause).map_err(show)?;
            if let Some(reason) = &change.reason {
                write!(said, ": {}", reason.as_str()).map_err(show)?;
            }
            said.push('\n');
        }
        Ok(said)
    }

    fn session(&mut self, line: &Line<'_>) -> Said {
        let secret = self.secret(line.word(1, "who")?);
        let view = match self.state().session_view(secret) {
            Ok(view) => view,
            Err(refusal) => return Ok(format!("refused: {refusal}\n")),
        };
        let mut said = format!("{}, ttl {}, epoch {}", view.node, span(view.ttl_ms), view.epoch);
        for tenure in view.tenures {
            write!(said, "; {} {}, term {}", tenure.state.word(), tenure.group, tenure.term)
                .map_err(show)?;
            if let Some(node) = tenure.offered_to {
                let warm = if tenure.is_warm { ", which is warm" } else { "" };
                write!(said, ", offered to {node}{warm}").map_err(show)?;
            }
        }
        for group in view.standing {
            write!(said, "; stands in {group}").map_err(show)?;
        }
        for offer in view.offers {
            let OfferView { group, term, by, is_warm } = offer;
            let warm = if is_warm { ", and is warm" } else { "" };
            write!(said, "; is offered {group} by {by}, term {term}{warm}").map_err(show)?;
        }
        said.push('\n');
        Ok(said)
    }

    fn tell_answer(&self, who: &str, group: Option<&Group>, applied: &Applied) -> String {
        let office = group.map(|group| {
            let view = self.state().leader_view(group, Incarnation(0));
            match view.leader {
                Some(leader) => format!("{leader} leads {group}, term {}", view.term),
                None => format!("nobody leads {group}, last term {}", view.term),
            }
        });
        let office = office.unwrap_or_default();
        match &applied.answer {
            Ok(Answer::Session { ttl_ms, .. }) => {
                format!("{who} has a session, ttl {}\n", span(*ttl_ms))
            }
            Ok(Answer::Elected { term, .. }) => {
                format!("{who} is elected, term {term}\n")
            }
            Ok(Answer::Standing { place, .. }) => {
                format!("{who} stands by at place {place}; {office}\n")
            }
            Ok(Answer::Lost) => format!("{who} lost; {office}\n"),
            Ok(Answer::Done) => "done\n".into(),
            Ok(Answer::Ending { within_ms }) => format!("ending within {}\n", span(*within_ms)),
            Ok(Answer::Forced { overlap_possible_ms }) => {
                format!("forced; two may act for {}\n", span(*overlap_possible_ms))
            }
            Ok(Answer::Overtaken) => "overtaken\n".into(),
            Err(refusal) => format!("refused: {refusal}\n"),
        }
    }
}

fn show(why: impl std::fmt::Display) -> String {
    why.to_string()
}

fn label(who: &str) -> Result<Node, String> {
    Node::new(who).map_err(|why| why.to_string())
}

/// Those meant, and nobody else, have a role everywhere.
fn bind(line: &Line<'_>, expected_version: u64) -> Result<Command, String> {
    let role = line.options.get("role").map_or(Ok(Role::Administrator), |role| role.parse());
    let binding = Binding {
        who: line.word(1, "who")?.parse().map_err(show)?,
        role: role.map_err(show)?,
        groups: vec!["*".parse().map_err(show)?],
        nodes: vec!["self".parse().map_err(show)?],
    };
    Ok(Command::PutBindings { expected_version, bindings: vec![binding] })
}

fn policy(line: &Line<'_>) -> Result<Option<Box<Policy>>, String> {
    if line.is_said("default") {
        return Ok(None);
    }
    let mut policy = Policy::default();
    for (key, value) in &line.options {
        match *key {
            "ttl" => {
                let (min, max) = value.split_once("..").ok_or("ttl=1s..10s")?;
                (policy.ttl_ms_min, policy.ttl_ms_max) = (millis(min)?, millis(max)?);
            }
            "lock-delay" => policy.lock_delay_ms = millis(value)?,
            "minimum-tenure" => policy.minimum_tenure_ms = millis(value)?,
            "standbys" => {
                policy.standbys_max = value.parse().map_err(|_| format!("{value} is no number"))?;
            }
            "allow" => {
                let patterns = value.split(',').map(NodePattern::new);
                policy.allow = patterns.collect::<Result<_, _>>().map_err(show)?;
            }
            "priorities" => {
                for part in value.split(',') {
                    let (node, number) = part.split_once(':').ok_or("priorities=a:5,b:3")?;
                    let number = number.parse().map_err(|_| format!("{number} is no priority"))?;
                    policy.priorities.push((NodePattern::new(node).map_err(show)?, number));
                }
            }
            "id" | "by" => {}
            other => return Err(format!("no such part of a policy: {other}")),
        }
    }
    policy.prefer_priority = line.is_said("prefer");
    policy.four_eyes = line.is_said("four-eyes");
    Ok(Some(Box::new(policy)))
}

fn tell_events(events: &[Event], indent: &str) -> String {
    let mut said = String::new();
    for event in events {
        let who = match &event.leader {
            Some(leader) => format!("{leader} leads, term {}", event.term),
            None => format!("nobody leads, last term {}", event.term),
        };
        let _ = writeln!(said, "{indent}{}: {who} ({})", event.group, event.cause);
    }
    said
}
