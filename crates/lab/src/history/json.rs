//! One JSON line per event, written by hand: flat, short keys, the same for the same event.

use std::fmt::{self, Write};

use regent_election::state::{Query, View};
use regent_election::store::{Scope, StoreError};
use regent_election::{Answer, Event as Change, Group, Refusal, Term};

use super::{Event, Op, Out, Watched, What};
use crate::fnv::{START, step};

/// Writes one event as a JSON object, without the line's end.
pub fn write_json(event: &Event, out: &mut dyn Write) -> fmt::Result {
    let mut line = Line { out, is_first: true };
    line.out.write_char('{')?;
    line.number("t", event.at)?;
    line.display("proc", &event.proc)?;
    what(&mut line, &event.what)?;
    line.out.write_char('}')
}

/// A print of a whole history: equal runs have equal ones.
#[must_use]
pub fn fingerprint(events: &[Event]) -> u64 {
    let mut print = Print(START);
    for event in events {
        write_json(event, &mut print).expect("a print takes everything");
    }
    print.0
}

struct Print(u64);

impl Write for Print {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = step(self.0, byte);
        }
        Ok(())
    }
}

struct Line<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

impl Line<'_> {
    fn key(&mut self, key: &str) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.out.write_char(',')?;
        }
        write!(self.out, "\"{key}\":")
    }

    fn number(&mut self, key: &str, number: u64) -> fmt::Result {
        self.key(key)?;
        write!(self.out, "{number}")
    }

    fn flag(&mut self, key: &str, flag: bool) -> fmt::Result {
        self.key(key)?;
        write!(self.out, "{flag}")
    }

    fn display(&mut self, key: &str, text: &dyn fmt::Display) -> fmt::Result {
        self.key(key)?;
        self.out.write_char('"')?;
        write!(Escaped(self.out), "{text}")?;
        self.out.write_char('"')
    }

    fn debug(&mut self, key: &str, text: &dyn fmt::Debug) -> fmt::Result {
        self.display(key, &format_args!("{text:?}"))
    }

    /// A number, a truth value or a name as JSON has it, anything else as text.
    fn value(&mut self, key: &str, value: &dyn fmt::Debug) -> fmt::Result {
        let text = format!("{value:?}");
        if text.starts_with('"') || text.parse::<i128>().is_ok() || text.parse::<bool>().is_ok() {
            self.key(key)?;
            return self.out.write_str(&text);
        }
        self.display(key, &text)
    }

    fn group(&mut self, group: &Group) -> fmt::Result {
        self.display("g", group)
    }

    fn term(&mut self, term: Term) -> fmt::Result {
        self.number("term", term.get())
    }
}

/// Writes text so that it may stand between quotes.
struct Escaped<'a>(&'a mut dyn Write);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '"' => self.0.write_str("\\\"")?,
                '\\' => self.0.write_str("\\\\")?,
                '\n' => self.0.write_str("\\n")?,
                low if (low as u32) < 0x20 => write!(self.0, "\\u{:04x}", low as u32)?,
                other => self.0.write_char(other)?,
            }
        }
        Ok(())
    }
}

fn what(line: &mut Line<'_>, what: &What) -> fmt::Result {
    line.display("ev", &word(what))?;
    match what {
        What::Invoke { call, op: asked } => {
            line.number("call", *call)?;
            op(line, asked)
        }
        What::Ok { call, revision, out } => {
            line.number("call", *call)?;
            if let Some(revision) = revision {
                line.number("idx", revision.0)?;
            }
            answer(line, out)
        }
        What::Fail { call, error } => {
            line.number("call", *call)?;
            line.display("why", &failure(error))
        }
        What::Info { call } => line.number("call", *call),
        What::Lead { group, session, held, until } => {
            line.group(group)?;
            line.display("session", &format_args!("{:x}", session.get()))?;
            if let Some(term) = held {
                line.term(*term)?;
                line.number("until", *until)?;
            }
            Ok(())
        }
        What::Phase { group, phase, term } => {
            line.group(group)?;
            line.term(*term)?;
            line.display("phase", phase)
        }
        What::Stand { group, wants } => {
            line.group(group)?;
            line.flag("wants", *wants)
        }
        What::Guard { group, session, passed } => {
            line.group(group)?;
            if let Some(session) = session {
                line.display("session", &format_args!("{:x}", session.get()))?;
            }
            match passed {
                Some(term) => line.term(*term),
                None => line.flag("out", false),
            }
        }
        What::Attempt { node, group, term, is_covered } => {
            line.display("node", node)?;
            line.group(group)?;
            line.term(*term)?;
            line.flag("covered", *is_covered)
        }
        What::Write { group, fenced, term, admitted } => {
            line.group(group)?;
            line.term(*term)?;
            line.flag("fenced", *fenced)?;
            line.flag("out", *admitted)
        }
        What::Watch { watch, what } => {
            line.number("watch", *watch)?;
            watched(line, what)
        }
        What::Up | What::Down | What::Paused | What::Resumed => Ok(()),
        What::RaftLeader { raft_term } => line.number("raft_term", *raft_term),
        What::Serving { clock } | What::ServingOver { clock } => line.number("clock", *clock),
        What::Gap { clock, away } => {
            line.number("clock", *clock)?;
            line.number("away", *away)
        }
        What::Hear { is_heartbeat, is_sure, session, sequence, clock, taken } => {
            line.flag("heartbeat", *is_heartbeat)?;
            line.flag("sure", *is_sure)?;
            line.display("session", &format_args!("{:x}", session.get()))?;
            if let Some(sequence) = sequence {
                line.number("seq", *sequence)?;
            }
            line.number("clock", *clock)?;
            line.number("taken", *taken)
        }
        What::Append { session, index, raft_term, clock } => {
            if let Some(session) = session {
                line.display("session", &format_args!("{:x}", session.get()))?;
            }
            line.number("log", *index)?;
            line.number("raft_term", *raft_term)?;
            line.number("clock", *clock)
        }
        What::Commit { index, raft_term, is_conf, data, context } => {
            line.number("log", *index)?;
            line.number("raft_term", *raft_term)?;
            line.flag("conf", *is_conf)?;
            line.display("data", &Hex(data))?;
            line.display("context", &Hex(context))
        }
        What::Apply { index, chain, clock } => {
            line.number("log", *index)?;
            line.display("chain", &format_args!("{chain:016x}"))?;
            line.number("clock", *clock)
        }
        What::StateHash { index, revision, hash } => {
            line.number("log", *index)?;
            line.number("idx", revision.0)?;
            line.display("hash", &format_args!("{hash:016x}"))
        }
        What::Entry { key, value } => {
            line.display("key", key)?;
            line.display("data", &Hex(value))
        }
        What::Heartbeat { session } => line.display("session", &format_args!("{session:032x}")),
        What::Fault { what, beyond_a1 } => {
            line.display("what", what)?;
            line.flag("beyond_A1", *beyond_a1)
        }
        What::Stage { stage, core } => {
            line.display("stage", &stage.word())?;
            line.debug("core", core)
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in self.0 {
            f.write_char(char::from(DIGITS[usize::from(byte >> 4)]))?;
            f.write_char(char::from(DIGITS[usize::from(byte & 15)]))?;
        }
        Ok(())
    }
}

const fn word(what: &What) -> &'static str {
    match what {
        What::Invoke { .. } => "invoke",
        What::Ok { .. } => "ok",
        What::Fail { .. } => "fail",
        What::Info { .. } => "info",
        What::Lead { held: Some(_), .. } => "lead_on",
        What::Lead { held: None, .. } => "lead_off",
        What::Phase { .. } => "phase",
        What::Stand { .. } => "stand",
        What::Guard { .. } => "guard",
        What::Attempt { .. } => "attempt",
        What::Write { admitted: true, .. } => "fence_ok",
        What::Write { admitted: false, .. } => "fence_no",
        What::Watch { what: Watched::Open { .. }, .. } => "watch_open",
        What::Watch { what: Watched::Changed(_), .. } => "watch_ev",
        What::Watch { what: Watched::Gap { .. }, .. } => "watch_gap",
        What::Watch { what: Watched::Mark(_), .. } => "watch_mark",
        What::Watch { what: Watched::End, .. } => "watch_end",
        What::Up => "up",
        What::Down => "down",
        What::Paused => "paused",
        What::Resumed => "resumed",
        What::RaftLeader { .. } => "raft_leader",
        What::Serving { .. } => "serving",
        What::ServingOver { .. } => "serving_over",
        What::Gap { .. } => "gap",
        What::Hear { .. } => "hear",
        What::Append { .. } => "append",
        What::Commit { .. } => "commit",
        What::Apply { .. } => "apply",
        What::StateHash { .. } => "state_hash",
        What::Entry { .. } => "entry",
        What::Heartbeat { .. } => "heartbeat",
        What::Fault { .. } => "fault",
        What::Stage { .. } => "health",
    }
}

fn op(line: &mut Line<'_>, op: &Op) -> fmt::Result {
    match op {
        Op::Submit { command, request, query } => {
            line.display("op", &command.name())?;
            if let Some(group) = command.group() {
                line.group(group)?;
            }
            if let Some(session) = command.session() {
                line.display("session", &format_args!("{:x}", session.get()))?;
            }
            if let Some(term) = command.term() {
                line.term(term)?;
            }
            for (field, value) in command.fields() {
                let is_told = match field {
                    "group" => true,
                    "session" => command.session().is_some(),
                    "term" => command.term().is_some(),
                    _ => false,
                };
                if !is_told {
                    line.value(field, value)?;
                }
            }
            if let Some(request) = request {
                line.display("rid", request)?;
            }
            match query {
                Some(query) => question(line, query),
                None => Ok(()),
            }
        }
        Op::Heartbeat { session, sequence, tenure, disowned } => {
            line.display("op", &"renew")?;
            line.display("session", &format_args!("{:x}", session.get()))?;
            if let Some(sequence) = sequence {
                line.number("seq", *sequence)?;
            }
            if let Some((group, term)) = tenure {
                line.group(group)?;
                line.term(*term)?;
            }
            if disowned.is_empty() { Ok(()) } else { line.debug("disowned", disowned) }
        }
        Op::Read { query, linearizable } => {
            line.display("op", &"get")?;
            line.flag("linearizable", *linearizable)?;
            question(line, query)
        }
        Op::Members(change) => {
            line.display("op", &"members")?;
            line.debug("in", change)
        }
        Op::RaftTransfer { to } => {
            line.display("op", &"raft_transfer")?;
            line.number("to", to.map_or(0, regent_replica::ReplicaId::get))
        }
    }
}

fn question(line: &mut Line<'_>, query: &Query) -> fmt::Result {
    match query {
        Query::Leader(group) => line.display("q", &format_args!("leader {group}")),
        Query::Session(session) => line.display("q", &format_args!("session {:x}", session.get())),
        Query::Heartbeat(session) => {
            line.display("q", &format_args!("heartbeat {:x}", session.get()))
        }
        Query::Candidacy { group, session, .. } => {
            line.display("q", &format_args!("candidacy {group} {:x}", session.get()))
        }
        Query::Group(group) => line.display("q", &format_args!("group {group}")),
        Query::Groups { prefix, .. } => line.display("q", &format_args!("groups {prefix}")),
        Query::Fences { group, prefix, .. } => {
            line.display("q", &format_args!("fences {group} {prefix}"))
        }
        Query::History(group) => line.display("q", &format_args!("history {group}")),
        Query::Leaders(groups) => line.display("q", &format_args!("leaders {}", groups.len())),
        Query::Offices(groups) => line.display("q", &format_args!("offices {}", groups.len())),
        Query::Census => line.display("q", &"census"),
        Query::Shares => line.display("q", &"shares"),
        Query::Access(_) => line.display("q", &"access"),
        Query::Replay(group, cursor) => line.display("q", &format_args!("replay {group} {cursor}")),
    }
}

fn answer(line: &mut Line<'_>, out: &Out) -> fmt::Result {
    match out {
        Out::Applied { answer, view } => {
            if let Some(term) = answer.as_ref().ok().and_then(Answer::elected) {
                line.term(term)?;
            }
            match answer {
                Ok(answer) => line.debug("out", answer)?,
                Err(refusal) => line.display("refused", &refusal_word(refusal))?,
            }
            match view {
                Some(Ok(view)) => seen(line, view),
                Some(Err(refusal)) => line.display("view_refused", &refusal_word(refusal)),
                None => Ok(()),
            }
        }
        Out::Heartbeat { ttl_ms, epoch } => {
            line.number("ttl_ms", *ttl_ms)?;
            line.number("epoch", *epoch)
        }
        Out::Seen(view) => seen(line, view),
        Out::Done => line.flag("out", true),
    }
}

fn seen(line: &mut Line<'_>, view: &View) -> fmt::Result {
    match view {
        View::Leader(office) => {
            line.display("state", &office.state.word())?;
            line.number("seen_term", office.term.get())?;
            match &office.leader {
                Some(leader) => line.display("leader", leader),
                None => Ok(()),
            }
        }
        View::Session(session) => {
            line.number("epoch", session.epoch)?;
            line.debug("tenures", &session.tenures)?;
            line.debug("standing", &session.standing)
        }
        View::Heartbeat(_)
        | View::Leaders(_)
        | View::Offices(_)
        | View::Fences(_)
        | View::Candidacy(_)
        | View::Group(_)
        | View::Groups(_)
        | View::History(_)
        | View::Census(_)
        | View::Shares(_)
        | View::Access(_)
        | View::Replay(_) => line.debug("view", view),
    }
}

/// The short name of a refusal, without its sentence.
pub(super) fn refusal_word(refusal: &Refusal) -> String {
    let text = format!("{refusal:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

/// An error in a few words.
pub(super) fn failure(error: &StoreError) -> String {
    match error {
        StoreError::Refused(refusal) => format!("refused: {}", refusal_word(refusal)),
        StoreError::Unavailable { why, .. } => format!("unavailable: {why}"),
        StoreError::Uncertain { why } => format!("uncertain: {why}"),
        StoreError::Unsupported { what, .. } => format!("unsupported: {what}"),
        StoreError::Corrupt(what) => format!("corrupt: {what}"),
    }
}

fn watched(line: &mut Line<'_>, what: &Watched) -> fmt::Result {
    match what {
        Watched::Open { replica, scope, cursor } => {
            line.number("replica", *replica)?;
            match scope {
                Scope::Group(group) | Scope::Turn(group) => line.group(group)?,
                Scope::Groups(groups) => line.debug("groups", groups)?,
                Scope::Prefix(prefix) => line.display("prefix", prefix)?,
            }
            match cursor {
                Some(cursor) => line.display("cursor", cursor),
                None => Ok(()),
            }
        }
        Watched::Changed(change) => self::change(line, change),
        Watched::Gap { oldest, at } => {
            line.display("oldest", oldest)?;
            line.display("at", at)
        }
        Watched::Mark(cursor) => line.display("cursor", cursor),
        Watched::End => Ok(()),
    }
}

fn change(line: &mut Line<'_>, change: &Change) -> fmt::Result {
    line.group(&change.group)?;
    line.term(change.term)?;
    line.number("idx", change.revision.0)?;
    line.number("ordinal", change.ordinal.into())?;
    if let Some(leader) = &change.leader {
        line.display("leader", leader)?;
    }
    line.display("cause", &change.cause)
}

#[cfg(test)]
mod tests {
    use regent_election::{Command, Node, Reason, SessionId};

    use super::super::Proc;
    use super::*;

    fn line(command: Command) -> String {
        let op = Op::Submit { command, request: None, query: None };
        let what = What::Invoke { call: 7, op };
        let mut out = String::new();
        write_json(&Event { at: 1, proc: Proc::World, what }, &mut out).unwrap();
        out
    }

    #[test]
    fn a_command_is_told_field_by_field_as_json() {
        let (session, node) = (SessionId::new(0xab).unwrap(), Node::new("a").unwrap());
        let open = line(Command::Open { session, node: node.clone(), ttl_ms: 5000 });
        let head = r#"{"t":1,"proc":"world","ev":"invoke","call":7"#;
        let fields = r#""op":"open","session":"ab","node":"a","ttl_ms":5000"#;
        assert_eq!(open, format!("{head},{fields}}}"));
        let (group, term) = (Group::new("g").unwrap(), Term::new(3).unwrap());
        let offer = line(Command::Offer { group: group.clone(), session, term, to: node });
        let fields = r#""op":"offer","g":"g","session":"ab","term":3,"to":"a""#;
        assert_eq!(offer, format!("{head},{fields}}}"));
        let (reason, to) = (Reason::new("say \"please\"").unwrap(), None);
        let down = line(Command::StepDown { group, reason, to, immediate: true });
        let parsed: serde_json::Value = serde_json::from_str(&down).unwrap();
        assert_eq!(parsed["immediate"], true, "{down}");
        assert!(parsed["reason"].as_str().unwrap().contains("please"), "{down}");
    }
}
