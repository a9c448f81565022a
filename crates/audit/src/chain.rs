//! Heads, hashes, and the verifier.
//!
//! The verifier takes the lines of all files in order and says what is wrong and where. After a defect it goes on from
//! the line that it has, so that one defect is told once and a second one is found, too.

use std::fmt;
use std::str::FromStr;

use regent_signing::{PublicKeys, WhyNot};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::checkpoint::Checkpoint;
use crate::limits::DEFECTS_LISTED_MAX;
use crate::line::{Begin, Content, Line};

/// The SHA-256 of some bytes, in hexadecimal.
pub(crate) fn hash(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * Sha256::output_size());
    for byte in Sha256::digest(bytes) {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The last line of a chain: its number, and the hash that the next line carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub seq: u64,
    pub hash: String,
}

/// Why a text names no head.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no head of a chain; write NUMBER:SHA256, as `regent audit verify` prints it")]
pub struct HeadError(String);

impl Head {
    /// Before the first line.
    pub(crate) fn none() -> Self {
        Self { seq: 0, hash: "0".repeat(64) }
    }

    /// The head after a line with these bytes.
    pub(crate) fn after(seq: u64, bytes: &[u8]) -> Self {
        Self { seq, hash: hash(bytes) }
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

impl FromStr for Head {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let refuse = || HeadError(text.chars().take(100).collect());
        let (seq, hash) = text.split_once(':').ok_or_else(refuse)?;
        let seq = seq.parse().map_err(|_| refuse())?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash.then(|| Self { seq, hash: hash.to_ascii_lowercase() }).ok_or_else(refuse)
    }
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The number of the file.
    pub file: u64,
    /// The number of the line in it, from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "audit-{:08}.jsonl:{}", self.file, self.line)
    }
}

/// What is wrong with a log. The messages are clauses for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    #[error("{place}: this is no line of an audit log")]
    Unreadable { place: Place },
    #[error("{place}: line {seq} does not follow from the line before: one of the two was changed")]
    Changed { place: Place, seq: u64 },
    #[error("{place}: lines {from} to {to} are missing before this one")]
    Missing { place: Place, from: u64, to: u64 },
    #[error("{place}: line {seq} stands here a second time, or in the wrong order")]
    Repeated { place: Place, seq: u64 },
    #[error("{place}: another chain begins here: {why}")]
    NewChain { place: Place, why: String },
    #[error(
        "{place}: the first files are missing: the log says that only those before {kept_from} were removed"
    )]
    StartMissing { place: Place, kept_from: u64 },
    #[error(
        "{place}: the log does not begin with a chain but with line {seq}: what stood before it was removed"
    )]
    NoBeginning { place: Place, seq: u64 },
    #[error("{place}: this was file {file} when it was written: files were removed or renamed")]
    Renamed { place: Place, file: u64 },
    #[error("{place}: half a line stands in the middle of the log")]
    Torn { place: Place },
    #[error("{place}: the checkpoint is not good: {why}")]
    Checkpoint { place: Place, why: String },
    #[error("no checkpoint is signed by one of the keys given")]
    Unsigned,
    #[error(
        "the log ends at line {last}, and line {kept} was there when its hash was kept: the end was cut off"
    )]
    CutOff { last: u64, kept: u64 },
    #[error("line {kept} is another one than when its hash was kept")]
    OtherHead { kept: u64 },
    #[error("line {kept}, whose hash was kept, is not there to compare: the log begins at {first}")]
    HeadGone { kept: u64, first: u64 },
}

/// Something that the log itself says is not in it, or may not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Omission {
    /// Lines that the server could not write.
    Gap { seq: u64, lost: u64, why: String },
    /// The run before was killed: lines that it had not written are missing.
    Killed { seq: u64 },
    /// Half a line was taken away.
    Repaired { seq: u64, bytes: u64 },
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { seq, lost, why } => write!(f, "line {seq}: {lost} lines were lost: {why}"),
            Self::Killed { seq } => write!(
                f,
                "line {seq}: the server was killed before; what it had not written is missing"
            ),
            Self::Repaired { seq, bytes } => {
                write!(f, "line {seq}: half a line of {bytes} bytes was taken away")
            }
        }
    }
}

/// What the verifier found.
#[derive(Clone, Debug)]
pub struct Report {
    pub lines: u64,
    /// The number of the first line that is there.
    pub first: u64,
    /// The last line, to be kept elsewhere.
    pub head: Head,
    /// Everything up to this line is covered by a checkpoint that one of the keys signed.
    pub signed_to: Option<u64>,
    /// The key of that checkpoint.
    pub signed_by: Option<String>,
    /// Checkpoints that are signed by one of the keys.
    pub checkpoints_good: u64,
    /// Checkpoints whose key was not given.
    pub checkpoints_unknown: u64,
    /// Whether keys were given.
    pub has_keys: bool,
    /// Whether the last run ended in order.
    pub has_ended: bool,
    /// Bytes of half a line at the end.
    pub torn_bytes: u64,
    /// What the log says is not in it.
    pub found: Vec<Omission>,
    /// The first defects.
    pub defects: Vec<Defect>,
    /// How many defects there are.
    pub defects_count: u64,
}

impl Report {
    /// Whether nothing was changed, removed or moved, as far as the chain and its signatures show.
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.defects_count == 0
    }

    /// Whether it is intact and the log says of nothing that it is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_intact() && self.found.is_empty() && self.torn_bytes == 0
    }

    /// All of it, for programs.
    #[must_use]
    pub fn object(&self) -> serde_json::Value {
        serde_json::json!({
            "intact": self.is_intact(),
            "complete": self.is_complete(),
            "lines": self.lines,
            "first": self.first,
            "head": self.head.to_string(),
            "signed_to": self.signed_to,
            "signed_by": self.signed_by,
            "checkpoints_good": self.checkpoints_good,
            "checkpoints_unknown": self.checkpoints_unknown,
            "ended_in_order": self.has_ended,
            "torn_bytes": self.torn_bytes,
            "missing": self.found,
            "defects": self.defects.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "defects_count": self.defects_count,
        })
    }
}

/// Takes the lines of a log, one after the other.
#[derive(Debug)]
pub struct Verifier<'a> {
    keys: Option<&'a PublicKeys>,
    kept: Option<Head>,
    has_seen_kept: bool,
    head: Option<Head>,
    first: Option<(Place, u64)>,
    chain: Option<String>,
    /// The newest word about which files were removed, and the newest that a checkpoint covers. With keys only that
    /// one counts: behind the last checkpoint anybody can write.
    trimmed_to: u64,
    kept_from: u64,
    report: Report,
}

impl<'a> Verifier<'a> {
    /// With keys, checkpoints are verified; with a head that was kept, the log must contain it.
    #[must_use]
    pub fn new(keys: Option<&'a PublicKeys>, kept: Option<Head>) -> Self {
        Self {
            keys,
            kept,
            has_seen_kept: false,
            head: None,
            first: None,
            chain: None,
            trimmed_to: 1,
            kept_from: 1,
            report: Report {
                lines: 0,
                first: 0,
                head: Head::none(),
                signed_to: None,
                signed_by: None,
                checkpoints_good: 0,
                checkpoints_unknown: 0,
                has_keys: keys.is_some(),
                has_ended: false,
                torn_bytes: 0,
                found: Vec::new(),
                defects: Vec::new(),
                defects_count: 0,
            },
        }
    }

    fn defect(&mut self, defect: Defect) {
        self.report.defects_count += 1;
        if self.report.defects.len() < DEFECTS_LISTED_MAX {
            self.report.defects.push(defect);
        }
    }

    /// The next line, without its end.
    pub fn line(&mut self, place: Place, bytes: &[u8]) {
        self.report.lines += 1;
        let Ok(line) = serde_json::from_slice::<Line>(bytes) else {
            self.defect(Defect::Unreadable { place });
            // It stands for the line that should be here; the next one says whether it follows.
            if let Some(head) = &self.head {
                self.head = Some(Head::after(head.seq.saturating_add(1), bytes));
            }
            return;
        };
        if self.first.is_none() {
            self.first = Some((place, line.seq));
            self.report.first = line.seq;
        }
        self.link(place, &line);
        self.content(place, &line);
        let head = Head::after(line.seq, bytes);
        if let Some(kept) = self.kept.clone().filter(|kept| kept.seq == head.seq) {
            self.has_seen_kept = true;
            if kept != head {
                self.defect(Defect::OtherHead { kept: kept.seq });
            }
        }
        self.head = Some(head);
    }

    /// Half a line: at the very end a kill may have left it, anywhere else it is a defect.
    pub fn torn(&mut self, place: Place, bytes: u64, is_last: bool) {
        if is_last {
            self.report.torn_bytes = bytes;
        } else {
            self.defect(Defect::Torn { place });
        }
    }

    fn link(&mut self, place: Place, line: &Line) {
        let Some(head) = &self.head else {
            self.link_first(place, line);
            return;
        };
        let (seq, follows) = (head.seq.saturating_add(1), head.hash == line.prev);
        if let Content::Begin(begin) = &line.content {
            let why = begin.after.as_deref().unwrap_or("nothing says why");
            self.defect(Defect::NewChain { place, why: why.chars().take(300).collect() });
            (self.chain, self.report.signed_to, self.report.signed_by) = (None, None, None);
        } else if line.seq > seq {
            self.defect(Defect::Missing { place, from: seq, to: line.seq - 1 });
        } else if line.seq < seq {
            self.defect(Defect::Repeated { place, seq: line.seq });
        } else if !follows {
            self.defect(Defect::Changed { place, seq: line.seq });
        }
    }

    /// The first line of all: the beginning of a chain, or of a file that follows on others which were removed.
    fn link_first(&mut self, place: Place, line: &Line) {
        let is_numbered = line.seq == 1 && line.prev == Head::none().hash;
        match &line.content {
            Content::Begin(_) if !is_numbered => {
                self.defect(Defect::Changed { place, seq: line.seq });
            }
            // Another chain was in the files before, and the first file has none before it.
            Content::Begin(Begin { after: Some(why), .. }) if place.file == 1 => {
                self.defect(Defect::NewChain { place, why: why.chars().take(300).collect() });
            }
            Content::Begin(_) | Content::File { .. } => {}
            Content::Start { .. }
            | Content::Change(_)
            | Content::Refused(_)
            | Content::Denied(_)
            | Content::Gap { .. }
            | Content::Repaired { .. }
            | Content::Trimmed { .. }
            | Content::Checkpoint { .. }
            | Content::End
            | Content::Unknown => self.defect(Defect::NoBeginning { place, seq: line.seq }),
        }
    }

    fn content(&mut self, place: Place, line: &Line) {
        // The checkpoint that covers the end stands behind it.
        if !matches!(line.content, Content::Checkpoint { .. }) {
            self.report.has_ended = matches!(line.content, Content::End);
        }
        match &line.content {
            Content::Begin(begin) => self.chain = Some(begin.chain.clone()),
            Content::File { chain, file } => {
                if *file != place.file {
                    self.defect(Defect::Renamed { place, file: *file });
                }
                if self.chain.as_ref().is_some_and(|known| known != chain) {
                    self.defect(Defect::Changed { place, seq: line.seq });
                }
                self.chain = Some(chain.clone());
            }
            Content::Start { clean: false, .. } => {
                self.report.found.push(Omission::Killed { seq: line.seq });
            }
            Content::Gap { lost, why } => {
                let why = why.chars().take(200).collect();
                self.report.found.push(Omission::Gap { seq: line.seq, lost: *lost, why });
            }
            Content::Repaired { bytes, .. } => {
                self.report.found.push(Omission::Repaired { seq: line.seq, bytes: *bytes });
            }
            Content::Trimmed { file } => self.trimmed_to = self.trimmed_to.max(*file),
            Content::Checkpoint { signed } => self.checkpoint(place, line, signed),
            Content::Start { clean: true, .. }
            | Content::Change(_)
            | Content::Refused(_)
            | Content::Denied(_)
            | Content::End
            | Content::Unknown => {}
        }
    }

    fn checkpoint(&mut self, place: Place, line: &Line, signed: &str) {
        let Some(keys) = self.keys else { return };
        match Checkpoint::open(signed, keys) {
            Ok((checkpoint, kid)) => {
                let is_of_chain = self.chain.as_ref().is_none_or(|id| *id == checkpoint.chain);
                let is_head =
                    checkpoint.seq.checked_add(1) == Some(line.seq) && checkpoint.hash == line.prev;
                if is_of_chain && is_head {
                    self.report.checkpoints_good += 1;
                    self.report.signed_to = Some(checkpoint.seq);
                    self.report.signed_by = Some(kid);
                    self.kept_from = self.trimmed_to;
                } else {
                    let why = format!("it signs line {} of another chain", checkpoint.seq);
                    self.defect(Defect::Checkpoint { place, why });
                }
            }
            // The key may have been retired long ago; a later checkpoint covers what this one does.
            Err(WhyNot::UnknownKey { .. }) => self.report.checkpoints_unknown += 1,
            Err(why) => self.defect(Defect::Checkpoint { place, why: why.to_string() }),
        }
    }

    /// What was found.
    #[must_use]
    pub fn finish(mut self) -> Report {
        if self.keys.is_none() {
            self.kept_from = self.trimmed_to;
        }
        if let Some((place, _)) = self.first
            && place.file > self.kept_from
        {
            let kept_from = self.kept_from;
            self.defect(Defect::StartMissing { place, kept_from });
        }
        let first = self.report.first;
        let head = self.head.take().unwrap_or_else(Head::none);
        if let Some(kept) = self.kept.take().map(|kept| kept.seq).filter(|_| !self.has_seen_kept) {
            self.defect(if kept > head.seq {
                Defect::CutOff { last: head.seq, kept }
            } else {
                Defect::HeadGone { kept, first }
            });
        }
        if self.keys.is_some() && self.report.lines > 0 && self.report.signed_to.is_none() {
            self.defect(Defect::Unsigned);
        }
        self.report.head = head;
        self.report
    }
}
