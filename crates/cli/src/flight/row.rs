//! One line of a recording, as JSON: written by the recorder, read by whoever wants to know.
//!
//! Fields that say nothing are left out. A field or a word that this program does not know is refused
//! rather than passed over: it would be acted or explained wrongly.

use regent_api::PolicyBody;
use regent_election::deed::{Deed, Party, Record, Stood};
use regent_election::limits::{TTL_MS_CEILING, TTL_MS_FLOOR};
use regent_election::{
    Cause, Finding, Group, Node, Policy, Reason, Revision, SessionNo, Term, WaitKind,
};
use regent_lab::trace::{Line, Told};
use serde::{Deserialize, Serialize};

/// The version of the format.
pub(crate) const FORMAT: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "snake_case")]
pub(crate) enum Row {
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
pub(crate) struct Begin {
    pub(crate) at_ms: u64,
    pub(crate) format: u32,
    pub(crate) cluster: String,
    pub(crate) replica: u64,
    pub(crate) version: String,
}

/// See [`Row::Deed`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeedRow {
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
pub(crate) struct ChangeRow {
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
pub(crate) struct RaftRow {
    pub(crate) at_ms: u64,
    pub(crate) leader: Option<u64>,
    pub(crate) raft_term: u64,
    pub(crate) voters: Vec<u64>,
}

/// See [`Row::Gap`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GapRow {
    pub(crate) at_ms: u64,
    /// The first revision that is known again.
    pub(crate) to: u64,
    pub(crate) why: String,
}

/// See [`Row::End`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndRow {
    pub(crate) at_ms: u64,
    /// The last revision that was recorded.
    pub(crate) rev: u64,
}

impl Row {
    /// The lines of one applied entry: its deed, once for every session it was done to, and its changes.
    pub(crate) fn of(record: Record) -> Vec<Self> {
        let Record { revision, wall_ms, deed, parties, events } = record;
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

    /// The line.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it is made of text, numbers and lists")
    }

    /// Reads a line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
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
    pub(crate) fn revision(&self) -> Option<u64> {
        match self {
            Self::Deed(row) => Some(row.rev),
            Self::Change(row) => Some(row.rev),
            Self::End(row) => Some(row.rev),
            Self::Begin(_) | Self::Raft(_) | Self::Gap(_) => None,
        }
    }

    /// The group it is about, if it is about one.
    pub(crate) fn group(&self) -> Option<&str> {
        match self {
            Self::Deed(row) => row.group.as_deref(),
            Self::Change(row) => Some(&row.group),
            Self::Begin(_) | Self::Raft(_) | Self::Gap(_) | Self::End(_) => None,
        }
    }

    /// The session it is about, if it is about one.
    pub(crate) fn session(&self) -> Option<u64> {
        match self {
            Self::Deed(row) => row.session,
            Self::Change(_) | Self::Begin(_) | Self::Raft(_) | Self::Gap(_) | Self::End(_) => None,
        }
    }

    /// As the lab acts it.
    pub(crate) fn line(self, number: usize) -> Result<Line, String> {
        let (at_ms, told) = match self {
            Self::Begin(row) => (row.at_ms, Told::Begin { replica: row.replica }),
            Self::Raft(row) => {
                (row.at_ms, Told::LogLeader { leader: row.leader, voters: row.voters.len() })
            }
            Self::Gap(row) => (row.at_ms, Told::Gap { to: Revision(row.to) }),
            Self::End(row) => (row.at_ms, Told::End),
            Self::Change(row) => (row.at_ms, row.told()?),
            Self::Deed(row) => {
                let (at_ms, revision) = (row.at_ms, Revision(row.rev));
                let party = row.party()?;
                (at_ms, Told::Deed { revision, deed: row.told()?, party })
            }
        };
        Ok(Line { number, at_ms, told })
    }
}

impl ChangeRow {
    fn told(self) -> Result<Told, String> {
        let leader = self.leader.as_deref().map(node).transpose()?;
        let found = Cause::ALL.into_iter().find(|cause| cause.word() == self.cause);
        let cause = found.ok_or_else(|| {
            let known: Vec<&str> = Cause::ALL.iter().map(|cause| cause.word()).collect();
            format!("there is no cause {:?}; known are {}", self.cause, known.join(", "))
        })?;
        let (group, term) = (group(&self.group)?, term(self.term)?);
        Ok(Told::Change { revision: Revision(self.rev), group, term, leader, cause })
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
        let deed = self.deed.clone();
        let lacks = |field: &str| format!("a deed {deed:?} needs the field {field:?}");
        let place = || group(self.group.as_deref().ok_or_else(|| lacks("group"))?);
        let at = || term(self.term.ok_or_else(|| lacks("term"))?);
        let to = || node(self.to.as_deref().ok_or_else(|| lacks("to"))?);
        let said = || {
            Reason::new(self.reason.as_deref().unwrap_or_default()).map_err(|why| why.to_string())
        };
        Ok(match self.deed.as_str() {
            "open" => Deed::Open,
            "change_ttl" => Deed::ChangeTtl,
            "close" => Deed::Close,
            "expire" => Deed::Expire,
            "campaign" => {
                let stood = match self.term {
                    Some(at) => Stood::Leads(term(at)?),
                    None => Stood::InLine,
                };
                let priority = self.priority.unwrap_or_default();
                Deed::Campaign { group: place()?, priority, stood }
            }
            "withdraw" => Deed::Withdraw { group: place()? },
            "accept" => Deed::Accept { group: place()?, term: at()? },
            "resign" => Deed::Resign { group: place()?, term: at()? },
            "offer" => Deed::Offer { group: place()?, term: at()?, to: to()? },
            "warm" => Deed::Warm { group: place()?, term: at()? },
            "transfer" => Deed::Transfer { group: place()?, term: at()?, to: to()? },
            "step_down" => Deed::StepDown {
                group: place()?,
                reason: said()?,
                to: self.to.as_deref().map(node).transpose()?,
                immediate: self.immediate.unwrap_or_default(),
            },
            "put_policy" => {
                let policy = self.policy.clone().map(Policy::try_from).transpose();
                let policy = policy.map_err(|why| why.to_string())?;
                Deed::PutPolicy { group: place()?, policy: policy.map(Box::new) }
            }
            "delete" => Deed::Delete { group: place()? },
            "move" => Deed::Move { group: place()? },
            "report" => {
                let what = self.what.as_deref().ok_or_else(|| lacks("what"))?;
                Deed::Report { group: place()?, finding: finding(what)?, reason: said()? }
            }
            "relieve" => Deed::Relieve { group: place()?, term: at()?, to: to()?, reason: said()? },
            "put_settings" => Deed::PutSettings,
            "elapsed" => {
                let what = self.what.as_deref().ok_or_else(|| lacks("what"))?;
                Deed::Elapsed { group: place()?, kind: wait(what)? }
            }
            "refill" => Deed::Refill,
            other => return Err(format!("there is no deed {other:?}")),
        })
    }
}

fn deed_row(at_ms: u64, revision: Revision, deed: Deed) -> DeedRow {
    let mut row = DeedRow {
        at_ms,
        rev: revision.0,
        deed: deed.word().to_owned(),
        group: deed.group().map(ToString::to_string),
        ..DeedRow::default()
    };
    match deed {
        Deed::Open
        | Deed::ChangeTtl
        | Deed::Close
        | Deed::Expire
        | Deed::Withdraw { .. }
        | Deed::Delete { .. }
        | Deed::Move { .. }
        | Deed::PutSettings
        | Deed::Refill => {}
        Deed::Campaign { priority, stood, .. } => {
            row.priority = (priority != 0).then_some(priority);
            row.term = match stood {
                Stood::Leads(term) => Some(term.get()),
                Stood::InLine => None,
            };
        }
        Deed::Accept { term, .. } | Deed::Resign { term, .. } | Deed::Warm { term, .. } => {
            row.term = Some(term.get());
        }
        Deed::Offer { term, to, .. } | Deed::Transfer { term, to, .. } => {
            (row.term, row.to) = (Some(term.get()), Some(to.to_string()));
        }
        Deed::StepDown { reason, to, immediate, .. } => {
            row.reason = (!reason.is_empty()).then(|| reason.as_str().to_owned());
            row.to = to.map(|to| to.to_string());
            row.immediate = immediate.then_some(true);
        }
        Deed::PutPolicy { policy, .. } => row.policy = policy.map(|policy| (*policy).into()),
        Deed::Report { finding, reason, .. } => {
            row.what = Some(finding_word(finding).to_owned());
            row.reason = Some(reason.as_str().to_owned());
        }
        Deed::Relieve { term, to, reason, .. } => {
            (row.term, row.to) = (Some(term.get()), Some(to.to_string()));
            row.reason = Some(reason.as_str().to_owned());
        }
        Deed::Elapsed { kind, .. } => row.what = Some(wait_word(kind).to_owned()),
    }
    row
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

const FINDINGS: [Finding; 4] =
    [Finding::SplitBrain, Finding::StaleAttempt, Finding::NearMiss, Finding::Failing];
const WAITS: [WaitKind; 4] =
    [WaitKind::LockDelay, WaitKind::Ending, WaitKind::Acceptance, WaitKind::MinimumTenure];

const fn finding_word(finding: Finding) -> &'static str {
    match finding {
        Finding::SplitBrain => "split_brain",
        Finding::StaleAttempt => "stale_attempt",
        Finding::NearMiss => "near_miss",
        Finding::Failing => "failing",
    }
}

const fn wait_word(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::LockDelay => "lock_delay",
        WaitKind::Ending => "ending",
        WaitKind::Acceptance => "acceptance",
        WaitKind::MinimumTenure => "minimum_tenure",
    }
}

fn finding(word: &str) -> Result<Finding, String> {
    let found = FINDINGS.into_iter().find(|finding| finding_word(*finding) == word);
    found.ok_or_else(|| format!("there is no finding {word:?}"))
}

fn wait(word: &str) -> Result<WaitKind, String> {
    let found = WAITS.into_iter().find(|kind| wait_word(*kind) == word);
    found.ok_or_else(|| format!("there is no wait {word:?}"))
}

#[cfg(test)]
mod tests {
    use regent_election::{Event, Metadata};

    use super::*;

    fn deeds() -> Vec<Deed> {
        let (g, to) = (|| Group::new("g").unwrap(), || Node::new("b").unwrap());
        let (at, reason) = (Term::new(3).unwrap(), Reason::new("because").unwrap());
        let mut deeds = vec![
            Deed::Open,
            Deed::ChangeTtl,
            Deed::Close,
            Deed::Expire,
            Deed::Campaign { group: g(), priority: -2, stood: Stood::Leads(at) },
            Deed::Campaign { group: g(), priority: 0, stood: Stood::InLine },
            Deed::Withdraw { group: g() },
            Deed::Accept { group: g(), term: at },
            Deed::Resign { group: g(), term: at },
            Deed::Offer { group: g(), term: at, to: to() },
            Deed::Relieve { group: g(), term: at, to: to(), reason: reason.clone() },
            Deed::Warm { group: g(), term: at },
            Deed::Transfer { group: g(), term: at, to: to() },
            Deed::StepDown { group: g(), reason: reason.clone(), to: Some(to()), immediate: true },
            Deed::StepDown { group: g(), reason: Reason::default(), to: None, immediate: false },
            Deed::PutPolicy { group: g(), policy: None },
            Deed::PutPolicy {
                group: g(),
                policy: Some(Box::new(Policy { lock_delay_ms: 777, ..Policy::default() })),
            },
            Deed::Delete { group: g() },
            Deed::Move { group: g() },
            Deed::PutSettings,
            Deed::Refill,
        ];
        deeds.extend(FINDINGS.map(|finding| {
            let reason = reason.clone();
            Deed::Report { group: g(), finding, reason }
        }));
        deeds.extend(WAITS.map(|kind| Deed::Elapsed { group: g(), kind }));
        deeds
    }

    #[test]
    fn every_deed_and_every_cause_is_read_back_as_it_was_written() {
        let node = || Node::new("a").unwrap();
        let parties = vec![Party { session: SessionNo(4), node: node(), ttl_ms: 5_000 }];
        for deed in deeds() {
            let (revision, wall_ms) = (Revision(9), 1_700_000_000_123);
            let record = Record {
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
            assert_eq!(line.told, Told::Deed { revision, deed, party }, "{text}");
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
            let (revision, deed, parties) = (Revision(9), Deed::Refill, Vec::new());
            let record = Record { revision, wall_ms: 1, deed, parties, events: vec![event] };
            let text = Row::of(record)[1].to_json();
            let line = Row::parse(&text).unwrap().line(1).unwrap();
            assert!(
                matches!(line.told, Told::Change { cause: told, .. } if told == cause),
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
