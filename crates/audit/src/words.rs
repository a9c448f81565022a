//! A line for people, and which lines they want.

use std::time::{Duration, UNIX_EPOCH};

use crate::line::{Content, Line};

/// The last millisecond of the year 9999: dates beyond it are no dates.
const MS_MAX: u64 = 253_402_300_799_999;

/// A time of a file as people write it.
fn shown_ms(ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms.min(MS_MAX))).to_string()
}

/// Which lines are wanted; what is left out is not asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub group: Option<String>,
    /// Of this principal.
    pub who: Option<String>,
    /// Denials only.
    pub is_denied: bool,
    /// Written at this time or later, in milliseconds since 1970.
    pub since_ms: Option<u64>,
}

impl Filter {
    /// Whether a line is wanted.
    #[must_use]
    pub fn takes(&self, line: &Line) -> bool {
        let act = line.content.act();
        let is = |wanted: &Option<String>, found: Option<&String>| match wanted {
            Some(wanted) => found == Some(wanted),
            None => true,
        };
        is(&self.group, act.and_then(|act| act.group.as_ref()))
            && is(&self.who, act.and_then(|act| act.who.as_ref()))
            && (!self.is_denied || matches!(line.content, Content::Denied(_)))
            && self.since_ms.is_none_or(|since| line.at_ms >= since)
    }
}

impl Line {
    /// What it says, for people. Its values were written by others: escape them for a terminal.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (seq, at, word) = (self.seq, shown_ms(self.at_ms), self.content.word());
        let told = match &self.content {
            Content::Change(act) | Content::Refused(act) | Content::Denied(act) => {
                let mut words = vec![
                    format!("{} from {}", act.who.as_deref().unwrap_or("-"), act.from),
                    act.verb.clone(),
                    act.code.clone(),
                ];
                let named = [
                    ("group", act.group.clone()),
                    ("right", act.right.clone()),
                    ("revision", act.revision.map(|revision| revision.to_string())),
                    ("request", act.request.clone()),
                    ("detail", act.detail.clone()),
                    ("more", act.count.map(|count| count.to_string())),
                ];
                words.extend(
                    named
                        .into_iter()
                        .filter_map(|(name, value)| value.map(|value| format!("{name}={value}"))),
                );
                words.join("  ")
            }
            Content::Begin(begin) => match &begin.after {
                Some(why) => format!("another chain begins: {why}"),
                None => format!("chain {}", begin.chain),
            },
            Content::Start { clean: false, .. } => "after a kill".to_owned(),
            Content::Gap { lost, why } => format!("{lost} lines were lost: {why}"),
            Content::Repaired { bytes, .. } => {
                format!("half a line of {bytes} bytes was taken away")
            }
            Content::Trimmed { file } => format!("files before {file} were removed"),
            Content::File { file, .. } => format!("file {file}"),
            Content::Start { clean: true, .. }
            | Content::Checkpoint { .. }
            | Content::End
            | Content::Unknown => String::new(),
        };
        format!("{seq}  {at}  {word}  {told}").trim_end().to_owned()
    }
}
