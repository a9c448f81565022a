//! A history for people: one short line per event.

use std::fmt;

use regent_election::Group;
use regent_election::store::Scope;
use regent_stores::lease::reading::{self, SessionEntry};
use regent_stores::register::{Key, KeyKind};

use super::json::{failure, refusal_word};
use super::{Event, Op, Out, Watched, What};

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.at / 1_000_000_000, self.at / 1000 % 1_000_000);
        write!(f, "{seconds:>3}.{micros:06} {:<7} {}", self.proc.to_string(), self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invoke { call, op } => write!(f, "[{call}] {op}"),
            Self::Ok { call, revision, out } => {
                write!(f, "[{call}] -> {out}")?;
                revision.map_or(Ok(()), |revision| write!(f, " at revision {revision}"))
            }
            Self::Fail { call, error } => write!(f, "[{call}] -> no: {}", failure(error)),
            Self::Info { call } => write!(f, "[{call}] -> perhaps"),
            Self::Lead { group, held: Some(term), until, .. } => {
                let (seconds, micros) = (until / 1_000_000_000, until / 1000 % 1_000_000);
                write!(f, "may act in {group} under term {term} until {seconds}.{micros:06}")
            }
            Self::Lead { group, held: None, .. } => write!(f, "may not act in {group}"),
            Self::Phase { group, phase, term } => write!(f, "{phase} in {group}, term {term}"),
            Self::Stand { group, wants: true } => write!(f, "wants to lead {group}"),
            Self::Stand { group, wants: false } => write!(f, "wants out of {group}"),
            Self::Guard { group, passed: Some(term), .. } => {
                write!(f, "check of {group} passes for term {term}")
            }
            Self::Guard { group, passed: None, .. } => write!(f, "check of {group} fails"),
            Self::Attempt { node, group, term, is_covered: true } => {
                write!(f, "{node} writes to {group} under term {term}")
            }
            Self::Attempt { node, group, term, is_covered: false } => {
                write!(f, "{node} writes to {group} under term {term}, which no check covers")
            }
            Self::Write { group, fenced, term, admitted } => {
                let register = if *fenced { "fenced" } else { "unfenced" };
                let verdict = if *admitted { "admitted" } else { "refused" };
                write!(f, "write of term {term} to the {register} register of {group}: {verdict}")
            }
            Self::Watch { watch, what } => write!(f, "watch {watch} {what}"),
            Self::Up => f.write_str("starts"),
            Self::Down => f.write_str("dies"),
            Self::Paused => f.write_str("stands still"),
            Self::Resumed => f.write_str("goes on"),
            Self::RaftLeader { raft_term } => write!(f, "leads the log, Raft term {raft_term}"),
            Self::Serving { .. } => f.write_str("begins to judge sessions"),
            Self::ServingOver { .. } => f.write_str("judges no more"),
            Self::Gap { away, .. } => write!(f, "was away for {} ms", away / 1_000_000),
            Self::Hear { session, .. } => write!(f, "hears session {:x}", session.get()),
            Self::Append { index, .. } => write!(f, "appends entry {index}"),
            Self::Commit { index, is_conf: true, .. } => {
                write!(f, "entry {index} is committed: members")
            }
            Self::Commit { index, data, .. } => {
                write!(f, "entry {index} is committed: {}", payload(data))
            }
            Self::Apply { index, .. } => write!(f, "has applied {index}"),
            Self::StateHash { index, hash, .. } => write!(f, "state at {index} is {hash:016x}"),
            Self::Entry { key, value } => write!(f, "writes {key}: {}", entry(key, value)),
            Self::Heartbeat { session } => write!(f, "the engine hears session {session:032x}"),
            Self::Fault { what, .. } => write!(f, "fault: {what}"),
            Self::Stage { stage, core } => write!(f, "stage {}, core {core:?}", stage.word()),
        }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { replica, scope, cursor } => {
                let scope = match scope {
                    Scope::Group(group) | Scope::Turn(group) => group.to_string(),
                    Scope::Groups(groups) => format!("{groups:?}"),
                    Scope::Prefix(prefix) => format!("{prefix}*"),
                };
                write!(f, "of {scope} at {replica}")?;
                cursor.map_or(Ok(()), |cursor| write!(f, " after {cursor}"))
            }
            Self::Changed(change) => {
                let leader = change.leader.as_ref().map_or("nobody", |leader| leader.as_str());
                let (group, term, cause) = (&change.group, change.term, change.cause);
                let (revision, ordinal) = (change.revision, change.ordinal);
                write!(f, "{leader} leads {group}, term {term}, {cause}, {revision}-{ordinal}")
            }
            Self::Gap { oldest, at } => write!(f, "has a gap, oldest {oldest}, goes on at {at}"),
            Self::Mark(cursor) => write!(f, "has told all up to {cursor}"),
            Self::End => f.write_str("ends"),
        }
    }
}

/// What an entry of the register says, if it can be read.
fn entry(key: &Key, value: &[u8]) -> String {
    match key.kind() {
        KeyKind::Setting => "a setting".into(),
        KeyKind::Session => match reading::session(value) {
            Ok(SessionEntry { heartbeat, open: Some(open) }) => {
                format!(
                    "open, ttl {} ms, epoch {}, heartbeat {heartbeat:032x}",
                    open.hold_ms, open.epoch
                )
            }
            Ok(SessionEntry { open: None, .. }) => "ended".into(),
            Err(error) => error.to_string(),
        },
        KeyKind::Group => {
            let Ok(group) = Group::new(key.name()) else { return "no group".into() };
            let entry = match reading::group(&group, value) {
                Ok(entry) => entry,
                Err(error) => return error.to_string(),
            };
            let revision = entry.state.revision();
            let line = entry.state.standbys(&group).count();
            let office = match entry.state.holder(&group) {
                None => "nobody leads".to_owned(),
                Some(holder) => {
                    let node = entry.state.node(holder.session).map_or("?", |node| node.as_str());
                    let (term, state) = (holder.term, holder.state.word());
                    format!("{node} is {state}, term {term}")
                }
            };
            format!("{office}, {line} in line, revision {revision}")
        }
    }
}

/// What an entry's bytes say, if they can be read.
fn payload(data: &[u8]) -> String {
    let mut entry = raft::eraftpb::Entry::default();
    entry.data = data.to_vec().into();
    match regent_replica::replicated::payload(&entry) {
        Ok(regent_replica::replicated::Payload::Proposal(_, proposal)) => {
            let asked =
                Op::Submit { command: proposal.command, request: proposal.request, query: None };
            asked.to_string()
        }
        Ok(_) => "nothing".into(),
        Err(error) => error.to_string(),
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submit { command, request, .. } => {
                f.write_str(command.name())?;
                if let Some(group) = command.group() {
                    write!(f, " {group}")?;
                }
                if let Some(term) = command.term() {
                    write!(f, " term {term}")?;
                }
                if let Some(session) = command.session() {
                    write!(f, " session {:x}", session.get())?;
                }
                if let regent_election::Command::Expire { sessions } = command {
                    write!(f, " {sessions:?}")?;
                }
                request.as_ref().map_or(Ok(()), |request| write!(f, " id {request}"))
            }
            Self::Heartbeat { session, sequence, disowned, .. } => {
                write!(f, "heartbeat session {:x}", session.get())?;
                if let Some(sequence) = sequence {
                    write!(f, " number {sequence}")?;
                }
                if disowned.is_empty() { Ok(()) } else { write!(f, " disowns {disowned:?}") }
            }
            Self::Read { query, linearizable } => {
                let how = if *linearizable { "reads" } else { "reads stale" };
                write!(f, "{how} {query:?}")
            }
            Self::Members(change) => write!(f, "members {change:?}"),
            Self::RaftTransfer { to } => write!(f, "hands Raft leadership to {to:?}"),
        }
    }
}

impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied { answer: Ok(answer), .. } => write!(f, "{answer:?}"),
            Self::Applied { answer: Err(refusal), .. } => {
                write!(f, "refused: {}", refusal_word(refusal))
            }
            Self::Heartbeat { ttl_ms, epoch } => {
                write!(f, "acknowledged, ttl {ttl_ms} ms, epoch {epoch}")
            }
            Self::Seen(view) => write!(f, "{view:?}"),
            Self::Done => f.write_str("done"),
        }
    }
}
