//! One line of a recording, as JSON.
//!
//! Fields that say nothing are left out. A field or a word that this program does not know is refused
//! rather than passed over: it would be acted or explained wrongly.

use regent_api::PolicyBody;
use regent_election::command::Kind;
use regent_election::deed::{Deed, DeedRecord, Party};
use regent_election::limits::{TTL_MS_CEILING, TTL_MS_FLOOR};
use regent_election::{
    Cause, Command, Finding, Group, Node, Policy, Reason, Revision, SessionNo, Term, WaitKind,
};
use serde::{Deserialize, Serialize};

use crate::line::{LineContent, RecordedLine};

/// The version of the format.
pub const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "snake_case")]
pub enum Row {
    /// A replica begins to record.
    Begin(Begin),
    /// Something was done.
    Deed(Box<DeedRow>),
    /// Who leads a group changed, or something was found out about it.
    Change(ChangeRow),
    /// Another replica leads the log, or others vote.
    Raft(RaftRow),
    /// What happened before a revision is not here.
    Gap(GapRow),
    /// The recording was ended in order.
    End(EndRow),
}

/// See [`Row::Begin`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// Wall clock of this replica, a note.
    pub at_ms: u64,
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// The cluster's number, as 32 hexadecimal digits.
    pub cluster: String,
    /// The replica that records.
    pub replica: u64,
    /// Version of the program.
    pub version: String,
}

/// See [`Row::Deed`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeedRow {
    at_ms: u64,
    rev: u64,
    deed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    immediate: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<PolicyBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    what: Option<String>,
}

/// See [`Row::Change`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeRow {
    at_ms: u64,
    rev: u64,
    group: String,
    term: u64,
    leader: Option<String>,
    cause: String,
}

/// See [`Row::Raft`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RaftRow {
    /// Wall clock of this replica, a note.
    pub at_ms: u64,
    /// The Raft leader; none while this replica knows none.
    pub leader: Option<u64>,
    /// The Raft term, which is not a term of any group.
    pub raft_term: u64,
    /// The replicas that vote.
    pub voters: Vec<u64>,
}

/// See [`Row::Gap`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GapRow {
    /// Wall clock, a note.
    pub at_ms: u64,
    /// The first revision that is known again.
    pub to: u64,
    /// Why something is missing.
    pub why: String,
}

/// See [`Row::End`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRow {
    /// Wall clock of this replica, a note.
    pub at_ms: u64,
    /// The last revision that was recorded.
    pub rev: u64,
}

impl Row {
    /// The lines of one applied entry: its deed, once for every session it was done to, and its changes.
    #[must_use]
    pub fn of(record: DeedRecord) -> Vec<Self> {
        let DeedRecord { revision, wall_ms, deed, parties, events } = record;
        let bare = deed_row(wall_ms, revision, deed);
        let mut rows: Vec<Self> = Vec::with_capacity(1 + events.len());
        if parties.is_empty() {
            rows.push(Self::Deed(Box::new(bare.clone())));
        }
        for Party { session, node, ttl_ms } in parties {
            let mut row = bare.clone();
            (row.session, row.node) = (Some(session.0), Some(node.to_string()));
            row.ttl_ms = Some(ttl_ms);
            rows.push(Self::Deed(Box::new(row)));
        }
        rows.extend(events.into_iter().map(|event| {
            Self::Change(ChangeRow {
                at_ms: wall_ms,
                rev: revision.0,
                group: event.group.to_string(),
                term: event.term.get(),
                leader: event.leader.map(|leader| leader.to_string()),
                cause: event.cause.word().to_owned(),
            })
        }));
        rows
    }

    /// The line, without its end.
    ///
    /// # Panics
    /// Never: it is made of text, numbers and lists.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it is made of text, numbers and lists")
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, without its place in the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let row: Self = serde_json::from_str(text).map_err(|error| {
            let what = error.to_string();
            // Only the column means anything: the line is the file's.
            what.split(" at line ").next().unwrap_or(&what).to_owned()
        })?;
        match &row {
            Self::Begin(begin) if begin.format > FORMAT => Err(format!(
                "this recording has format {}, and this program knows up to {FORMAT}; use a newer one",
                begin.format
            )),
            _ => Ok(row),
        }
    }

    /// The revision it belongs to, if it belongs to one.
    #[must_use]
    pub fn revision(&self) -> Option<u64> {
        match self {
            Self::Deed(row) => Some(row.rev),
            Self::Change(row) => Some(row.rev),
            Self::End(row) => Some(row.rev),
            Self::Begin(_) | Self::Raft(_) | Self::Gap(_) => None,
        }
    }

    /// The group it is about, if it is about one.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        match self {
            Self::Deed(row) => row.group.as_deref(),
            Self::Change(row) => Some(&row.group),
            Self::Begin(_) | Self::Raft(_) | Self::Gap(_) | Self::End(_) => None,
        }
    }

    /// The session it is about, if it is about one.
    #[must_use]
    pub fn session(&self) -> Option<u64> {
        match self {
            Self::Deed(row) => row.session,
            Self::Change(_) | Self::Begin(_) | Self::Raft(_) | Self::Gap(_) | Self::End(_) => None,
        }
    }

    /// What it says, in the types of the rules.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn line(self, number: usize) -> Result<RecordedLine, String> {
        let (at_ms, told) = match self {
            Self::Begin(row) => (row.at_ms, LineContent::Begin { replica: row.replica }),
            Self::Raft(row) => {
                (row.at_ms, LineContent::LogLeader { leader: row.leader, voters: row.voters.len() })
            }
            Self::Gap(row) => (row.at_ms, LineContent::Gap { to: Revision(row.to) }),
            Self::End(row) => (row.at_ms, LineContent::End),
            Self::Change(row) => (row.at_ms, row.told()?),
            Self::Deed(row) => {
                let (at_ms, revision) = (row.at_ms, Revision(row.rev));
                let party = row.party()?;
                (at_ms, LineContent::Deed { revision, deed: row.told()?, party })
            }
        };
        Ok(RecordedLine { number, at_ms, told })
    }
}

impl ChangeRow {
    fn told(self) -> Result<LineContent, String> {
        let leader = self.leader.as_deref().map(node).transpose()?;
        let found = Cause::ALL.into_iter().find(|cause| cause.word() == self.cause);
        let cause = found.ok_or_else(|| {
            let known: Vec<&str> = Cause::ALL.iter().map(|cause| cause.word()).collect();
            format!("there is no cause {:?}; known are {}", self.cause, known.join(", "))
        })?;
        let (group, term) = (group(&self.group)?, term(self.term)?);
        Ok(LineContent::Change { revision: Revision(self.rev), group, term, leader, cause })
    }
}

impl DeedRow {
    fn party(&self) -> Result<Option<Party>, String> {
        match (self.session, &self.node, self.ttl_ms) {
            (Some(session), Some(name), Some(ttl_ms)) => {
                if !(TTL_MS_FLOOR..=TTL_MS_CEILING).contains(&ttl_ms) {
                    return Err(format!(
                        "ttl_ms {ttl_ms} is none that a session can have; it is {TTL_MS_FLOOR} to {TTL_MS_CEILING}"
                    ));
                }
                Ok(Some(Party { session: SessionNo(session), node: node(name)?, ttl_ms }))
            }
            (None, None, None) => Ok(None),
            _ => Err("session, node and ttl_ms go together".to_owned()),
        }
    }

    fn told(self) -> Result<Deed, String> {
        // Commands about fences are never recorded.
        let is_told = |kind: &&Kind| kind.name == self.deed && !kind.fields.contains(&"resource");
        let Some(Kind { name: verb, fields }) = Command::KINDS.iter().find(is_told) else {
            return Err(format!("there is no deed {:?}", self.deed));
        };
        let has = |field| fields.contains(&field);
        let what = self.what.as_deref();
        let lacks = [
            ("group", has("group") && self.group.is_none()),
            ("term", has("term") && self.term.is_none()),
            // A step-down may name no successor.
            ("to", has("to") && self.to.is_none() && *verb != "step_down"),
            ("what", (has("finding") || has("kind")) && what.is_none()),
        ];
        if let Some((field, _)) = lacks.into_iter().find(|(_, is_missing)| *is_missing) {
            return Err(format!("a deed {verb:?} needs the field {field:?}"));
        }
        Ok(Deed {
            verb,
            group: self.group.as_deref().map(group).transpose()?,
            term: self.term.map(term).transpose()?,
            to: self.to.as_deref().map(node).transpose()?,
            priority: self.priority.unwrap_or_default(),
            reason: self.reason.as_deref().map(reason).transpose()?,
            immediate: self.immediate.unwrap_or_default(),
            finding: what.filter(|_| has("finding")).map(finding).transpose()?,
            wait: what.filter(|_| has("kind")).map(wait).transpose()?,
            policy: self.policy.map(policy).transpose()?,
        })
    }
}

fn deed_row(at_ms: u64, revision: Revision, deed: Deed) -> DeedRow {
    let Deed { verb, group, term, to, priority, reason, immediate, policy, finding, wait } = deed;
    let what = finding.map(Finding::word).or(wait.map(WaitKind::word));
    DeedRow {
        at_ms,
        rev: revision.0,
        deed: verb.to_owned(),
        group: group.map(|group| group.to_string()),
        term: term.map(Term::get),
        priority: (priority != 0).then_some(priority),
        to: to.map(|to| to.to_string()),
        reason: reason.map(|reason| reason.as_str().to_owned()),
        immediate: immediate.then_some(true),
        policy: policy.map(|policy| (*policy).into()),
        what: what.map(str::to_owned),
        ..DeedRow::default()
    }
}

fn group(text: &str) -> Result<Group, String> {
    Group::new(text).map_err(|why| why.to_string())
}

fn node(text: &str) -> Result<Node, String> {
    Node::new(text).map_err(|why| why.to_string())
}

fn term(number: u64) -> Result<Term, String> {
    Term::new(number).ok_or_else(|| format!("{number} is no term"))
}

fn reason(text: &str) -> Result<Reason, String> {
    Reason::new(text).map_err(|why| why.to_string())
}

fn policy(body: PolicyBody) -> Result<Box<Policy>, String> {
    Policy::try_from(body).map(Box::new).map_err(|why| why.to_string())
}

fn finding(word: &str) -> Result<Finding, String> {
    let found = Finding::ALL.into_iter().find(|finding| finding.word() == word);
    found.ok_or_else(|| format!("there is no finding {word:?}"))
}

fn wait(word: &str) -> Result<WaitKind, String> {
    let found = WaitKind::ALL.into_iter().find(|kind| kind.word() == word);
    found.ok_or_else(|| format!("there is no wait {word:?}"))
}

#[cfg(test)]
mod tests {
    use regent_election::{Event, Metadata};

    use super::*;

    /// Every kind that is recorded, with all that it may say; then what may say less, or something else.
    fn deeds() -> Vec<Deed> {
        let (g, to) = (|| Group::new("g").unwrap(), || Node::new("b").unwrap());
        let (at, reason) = (Term::new(3).unwrap(), || Reason::new("because").unwrap());
        let policy = || Box::new(Policy { lock_delay_ms: 777, ..Policy::default() });
        let told = Command::KINDS.iter().filter(|kind| !kind.fields.contains(&"resource"));
        let mut deeds: Vec<Deed> = told
            .map(|Kind { name: verb, fields }| {
                let has = |field| fields.contains(&field);
                Deed {
                    verb,
                    group: has("group").then(g),
                    term: has("term").then_some(at),
                    to: has("to").then(to),
                    priority: if has("priority") { -2 } else { 0 },
                    reason: has("reason").then(reason),
                    immediate: has("immediate"),
                    policy: has("policy").then(policy),
                    finding: has("finding").then_some(Finding::SplitBrain),
                    wait: has("kind").then_some(WaitKind::LockDelay),
                }
            })
            .collect();
        assert_eq!(deeds.len(), Command::KINDS.len() - 2, "all but what fences are asked");
        let bare = |verb| Deed { verb, group: Some(g()), ..Deed::default() };
        deeds.extend([
            Deed { term: Some(at), ..bare("campaign") },
            bare("campaign"),
            bare("step_down"),
            bare("put_policy"),
        ]);
        deeds.extend(Finding::ALL.map(|finding| Deed {
            finding: Some(finding),
            reason: Some(reason()),
            ..bare("report")
        }));
        deeds.extend(WaitKind::ALL.map(|wait| Deed { wait: Some(wait), ..bare("elapsed") }));
        deeds
    }

    #[test]
    fn a_deed_is_written_under_the_names_of_the_format() {
        let (to, term) = (Node::new("b").ok(), Term::new(3));
        let reason = Reason::new("because").ok();
        let deed = Deed {
            verb: "relieve",
            group: Group::new("g").ok(),
            term,
            to,
            reason,
            ..Deed::default()
        };
        let (revision, parties, events) = (Revision(9), Vec::new(), Vec::new());
        let rows = Row::of(DeedRecord { revision, wall_ms: 1, deed, parties, events });
        let text = r#"{"ev":"deed","at_ms":1,"rev":9,"deed":"relieve","group":"g","term":3,"to":"b","reason":"because"}"#;
        assert_eq!(rows[0].to_json(), text);
    }

    #[test]
    fn every_deed_and_every_cause_is_read_back_as_it_was_written() {
        let node = || Node::new("a").unwrap();
        let parties = vec![Party { session: SessionNo(4), node: node(), ttl_ms: 5_000 }];
        for deed in deeds() {
            let (revision, wall_ms) = (Revision(9), 1_700_000_000_123);
            let record = DeedRecord {
                revision,
                wall_ms,
                deed: deed.clone(),
                parties: parties.clone(),
                events: Vec::new(),
            };
            let rows = Row::of(record);
            let text = rows[0].to_json();
            let line = Row::parse(&text).unwrap().line(1).unwrap();
            let party = parties.first().cloned();
            assert_eq!(line.told, LineContent::Deed { revision, deed, party }, "{text}");
            assert_eq!(line.at_ms, wall_ms);
        }
        for cause in Cause::ALL {
            let event = Event {
                group: Group::new("g").unwrap(),
                revision: Revision(9),
                ordinal: 0,
                term: Term::new(2).unwrap(),
                leader: Some(node()),
                metadata: Metadata::NONE,
                cause,
            };
            let deed = Deed { verb: "refill", ..Deed::default() };
            let (revision, parties) = (Revision(9), Vec::new());
            let record = DeedRecord { revision, wall_ms: 1, deed, parties, events: vec![event] };
            let text = Row::of(record)[1].to_json();
            let line = Row::parse(&text).unwrap().line(1).unwrap();
            assert!(
                matches!(line.told, LineContent::Change { cause: told, .. } if told == cause),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_line_of_a_recording_is_refused_with_what_is_wrong() {
        let told = |text: &str| {
            Row::parse(text).and_then(|row| row.line(1)).expect_err("it is no line").clone()
        };
        let change = r#"{"ev":"change","at_ms":1,"rev":2,"group":"g","term":1,"leader":null,"#;
        assert!(told(&format!(r#"{change}"cause":"bored"}}"#)).contains("no cause \"bored\""));
        assert!(told(change).contains("EOF"), "{}", told(change));
        let deed = |rest: &str| told(&format!(r#"{{"ev":"deed","at_ms":1,"rev":2,{rest}}}"#));
        assert!(deed(r#""deed":"yawn""#).contains("no deed \"yawn\""));
        assert!(deed(r#""deed":"admit","group":"g","term":1"#).contains("no deed \"admit\""));
        assert!(deed(r#""deed":"offer","group":"g","term":1"#).contains("needs the field \"to\""));
        assert!(deed(r#""deed":"report","group":"g""#).contains("needs the field \"what\""));
        assert!(deed(r#""deed":"report","group":"g","what":"ending""#).contains("no finding"));
        assert!(deed(r#""deed":"resign","group":"g""#).contains("needs the field \"term\""));
        assert!(deed(r#""deed":"close","session":1"#).contains("go together"));
        assert!(deed(r#""deed":"close","mood":1"#).contains("mood"));
        for ttl_ms in [0, TTL_MS_FLOOR - 1, TTL_MS_CEILING + 1, u64::MAX] {
            let what = deed(&format!(r#""deed":"open","session":1,"node":"a","ttl_ms":{ttl_ms}"#));
            assert!(what.contains(&format!("ttl_ms {ttl_ms} ")), "{what}");
        }
        assert!(told(r#"{"ev":"party"}"#).contains("party"));
        let newer =
            r#"{"ev":"begin","at_ms":1,"format":9,"cluster":"c","replica":1,"version":"9"}"#;
        assert!(told(newer).contains("format 9"));
    }
}
