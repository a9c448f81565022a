//! How offices, sessions and policies look to people. Shared by the verbs of the command.

use std::time::Duration;

use regent_api::{Office, PolicyBody, SessionResponse, SteppedDown};
use regent_election::Metadata;

use crate::tables::{ColumnSide as Side, facts, or_dash, table, yes};

/// Who leads a group, fact by fact.
#[must_use]
pub fn office_facts(office: &Office) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("group", office.group.to_string()),
        ("leader", or_dash(office.leader.as_ref())),
        ("term", office.term.to_string()),
        ("state", office.state.word().to_owned()),
    ];
    if let Some(valid_for_ms) = office.valid_for_ms {
        facts.push(("valid for", format!("{} unless renewed", show_ms(valid_for_ms))));
    }
    if let Some(to) = &office.moved_to {
        facts.push(("moved to", to.to_string()));
    }
    facts.extend(metadata_facts(&office.metadata));
    facts
}

fn metadata_facts(metadata: &Metadata) -> Option<(&'static str, String)> {
    let told: Vec<String> = metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!told.is_empty()).then(|| ("metadata", told.join(" ")))
}

/// Many offices, one per line.
#[must_use]
pub fn office_table<'a>(offices: impl Iterator<Item = &'a Office>) -> String {
    let rows = offices.map(|office| {
        vec![
            office.group.to_string(),
            or_dash(office.leader.as_ref()),
            office.term.to_string(),
            office.state.word().to_owned(),
        ]
    });
    let head = [
        ("group", Side::Left),
        ("leader", Side::Left),
        ("term", Side::Right),
        ("state", Side::Left),
    ];
    table(&head, rows.collect())
}

/// A policy, fact by fact.
#[must_use]
pub fn policy_facts(policy: &PolicyBody, own: bool) -> Vec<(&'static str, String)> {
    let list = |items: Vec<String>, none: &str| {
        if items.is_empty() { none.to_owned() } else { items.join(" ") }
    };
    let allow = policy.allow.iter().map(ToString::to_string).collect();
    let priorities =
        policy.priorities.iter().map(|rule| format!("{}={}", rule.nodes, rule.priority)).collect();
    let minimum_tenure = match policy.minimum_tenure_ms {
        0 => "off".to_owned(),
        ms => show_ms(ms),
    };
    let mut lines = vec![
        ("policy", if own { "its own" } else { "the default of the store" }.to_owned()),
        ("ttl", format!("{} to {}", show_ms(policy.ttl_ms_min), show_ms(policy.ttl_ms_max))),
        (
            "retry",
            format!(
                "{} to {}",
                show_ms(policy.retry_ms_min),
                policy.retry_ms_max.map_or_else(|| "half the ttl".to_owned(), show_ms)
            ),
        ),
        ("lock delay", show_ms(policy.lock_delay_ms)),
        ("minimum tenure", minimum_tenure),
        ("prefers priority", yes(policy.prefer_priority)),
        ("allows", list(allow, "everybody")),
        ("priorities", list(priorities, "as claimed")),
        ("standbys", format!("at most {}", policy.standbys_max)),
    ];
    if policy.four_eyes {
        lines.push(("four eyes", "two operators are needed".to_owned()));
    }
    lines
}

/// A session as its owner sees it; `secret` says where its secret is, if that is to be told.
#[must_use]
pub fn session(session: &SessionResponse, secret: Option<String>) -> String {
    let mut about: Vec<(&str, String)> =
        secret.into_iter().map(|secret| ("session", secret)).collect();
    about.extend([
        ("node", session.node_id.to_string()),
        ("ttl", show_ms(session.ttl_ms)),
        ("epoch", session.epoch.to_string()),
        ("leads", session.tenures.len().to_string()),
        ("stands in", session.standing.len().to_string()),
    ]);
    let mut shown = facts(about);
    if session.tenures.is_empty() && session.standing.is_empty() {
        return shown;
    }
    let tenures = session.tenures.iter().map(|tenure| {
        vec![
            tenure.group.to_string(),
            tenure.term.to_string(),
            tenure.state.word().to_owned(),
            match &tenure.offered_to {
                Some(to) => format!("to {to}{}", warmth(tenure.is_warm)),
                None => "-".into(),
            },
        ]
    });
    let standing = session.standing.iter().map(|group| {
        let offer = session.offers.iter().find(|offer| offer.group == *group);
        let (term, offered) = match offer {
            Some(offer) => {
                (offer.term.to_string(), format!("by {}{}", offer.by, warmth(offer.is_warm)))
            }
            None => ("-".into(), "-".into()),
        };
        vec![group.to_string(), term, "standby".into(), offered]
    });
    let head = [
        ("group", Side::Left),
        ("term", Side::Right),
        ("state", Side::Left),
        ("offered", Side::Left),
    ];
    shown.push_str("\n\n");
    shown.push_str(&table(&head, tenures.chain(standing).collect()));
    shown
}

const fn warmth(is_warm: bool) -> &'static str {
    if is_warm { ", warm" } else { "" }
}

/// What became of a tenure that was told to end.
#[must_use]
pub fn stepped_down(group: &str, ended: SteppedDown) -> String {
    match ended {
        SteppedDown::Over => format!("{group}: the tenure is over"),
        SteppedDown::Ending { within_ms } => {
            format!("{group}: the leader was told to stop; it has at most {}", show_ms(within_ms))
        }
        SteppedDown::Forced { overlap_possible_ms } => format!(
            "{group}: the tenure was ended at once; the old leader may go on acting for {}, and only fencing protects until then",
            show_ms(overlap_possible_ms)
        ),
    }
}

fn show_ms(ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}
