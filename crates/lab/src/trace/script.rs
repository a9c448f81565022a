//! What has to be done so that a recorded course comes about again: a pure function of the trace.
//!
//! A deed of somebody's becomes a step at its time; a change becomes something to wait for, so that what
//! came after it is done after it again. A session that expired had been silent for a ttl before: its process
//! dies that much earlier. Long stretches in which nobody does anything are shortened, for
//! nothing can come of them.

use std::collections::{BTreeMap, BTreeSet};

use regent_election::deed::{Deed, Party};
use regent_election::{Command, Group, Node, Priority, SessionNo};
use regent_recording::{LineContent, RecordedLine};

use super::Trace;
use super::course::Step as Change;

/// What a stretch without deeds is shortened to, beyond two of the longest ttl.
const QUIET_MS: u64 = 5_000;
/// The longest outage of a store of one replica that is acted at its length.
const OUTAGE_MS_MAX: u64 = 5_000;

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// When, counted from the beginning, without what was shortened.
    pub(super) at_ms: u64,
    /// The line it comes from.
    pub(super) line: usize,
    pub(super) what: What,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// A session stands in a group; its process starts if it has not.
    Stand { who: Party, group: Group, priority: Priority },
    /// A session that was promoted says that it will act: nobody asks it to, but what follows waits for it.
    Accept { session: SessionNo, group: Group },
    /// A session gives up what it has in a group.
    Withdraw { session: SessionNo, group: Group },
    /// A leader hands over.
    Transfer { session: SessionNo, group: Group, to: Node },
    /// A session is closed.
    Leave { session: SessionNo },
    /// The process of a session dies.
    Fall { session: SessionNo },
    /// An administrator does something.
    Administer(Command),
    /// The replica that leads the log dies, and comes back when another one leads.
    LogLeaderFalls,
    /// A store of one replica is down for this long.
    StoreDown { for_ms: u64 },
    /// The leader of a group changes.
    Expect(Change),
}

/// Everything to do, in order, and what cannot be done again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Script {
    pub(super) steps: Vec<Step>,
    pub(super) lasts_ms: u64,
    /// How much time without deeds was left out.
    pub(super) shortened_ms: u64,
    pub(super) remarks: Vec<String>,
}

/// Puts the script of a trace together.
pub(super) fn script(trace: &Trace) -> Script {
    let mut writer = Writer::default();
    writer.is_alone = trace.replicas() == 1;
    let began_ms = trace.lines().first().map_or(0, |line| line.at_ms);
    writer.stage_the_absent(trace.lines());
    for line in trace.lines() {
        writer.take(line.at_ms - began_ms, line);
    }
    writer.finish(trace)
}

#[derive(Debug, Default)]
struct Writer {
    is_alone: bool,
    /// Steps with what orders those of one instant.
    steps: Vec<((u64, usize, u8), Step)>,
    /// When each session did something last, and in which line.
    last: BTreeMap<SessionNo, (u64, usize)>,
    /// Where a session is known to stand or lead.
    stands: BTreeSet<(SessionNo, Group)>,
    ttl_ms_max: u64,
    has_begun: bool,
    log_leader: Option<u64>,
    last_ms: u64,
    gaps: usize,
    undone: BTreeMap<String, usize>,
}

impl Writer {
    /// Sessions that act in a group without ever having stood there stood before the recording began.
    fn stage_the_absent(&mut self, lines: &[RecordedLine]) {
        let mut stood: BTreeSet<(SessionNo, &Group)> = BTreeSet::new();
        for line in lines {
            let LineContent::Deed { deed, party: Some(party), .. } = &line.told else { continue };
            let Some(group) = &deed.group else { continue };
            let is_known = !stood.insert((party.session, group));
            if is_known || deed.verb == "campaign" {
                continue;
            }
            let what = What::Stand { who: party.clone(), group: group.clone(), priority: 0 };
            self.push(0, 0, 0, what);
            self.skip("sessions that stood before the recording began");
        }
    }

    fn push(&mut self, at_ms: u64, line: usize, rank: u8, what: What) {
        self.steps.push(((at_ms, line, rank), Step { at_ms, line, what }));
    }

    fn take(&mut self, at_ms: u64, line: &RecordedLine) {
        match &line.told {
            LineContent::Begin { .. } => self.begin(at_ms, line.number),
            LineContent::Deed { deed, party, .. } => {
                self.deed(at_ms, line.number, deed, party.as_ref())
            }
            LineContent::Change { group, term, leader, cause, .. } if !cause.is_finding() => {
                let (group, leader) = (group.clone(), leader.clone());
                let change = Change { group, leader, term: *term, cause: *cause };
                self.push(at_ms, line.number, 0, What::Expect(change));
            }
            LineContent::Change { .. } | LineContent::End => {}
            LineContent::LogLeader { leader, .. } => {
                let is_another = leader.is_some() && *leader != self.log_leader;
                if is_another && self.log_leader.is_some() && !self.is_alone {
                    self.push(at_ms, line.number, 0, What::LogLeaderFalls);
                }
                self.log_leader = leader.or(self.log_leader);
            }
            LineContent::Gap { .. } => self.gaps += 1,
        }
        self.last_ms = at_ms;
    }

    /// A replica that begins to record once more was down.
    fn begin(&mut self, at_ms: u64, line: usize) {
        if self.has_begun && self.is_alone {
            let for_ms = at_ms.saturating_sub(self.last_ms).clamp(100, OUTAGE_MS_MAX);
            self.push(at_ms, line, 0, What::StoreDown { for_ms });
        }
        self.has_begun = true;
    }

    fn deed(&mut self, at_ms: u64, line: usize, deed: &Deed, party: Option<&Party>) {
        self.ttl_ms_max = self.ttl_ms_max.max(party.map_or(0, |party| party.ttl_ms));
        match (deed.verb, party, deed.group.clone()) {
            ("expire", Some(party), _) => return self.fall(at_ms, line, party),
            ("campaign", Some(party), Some(group)) => {
                // A repeated campaign of somebody who stands already changes nothing.
                if self.stands.insert((party.session, group.clone())) {
                    let (who, priority) = (party.clone(), deed.priority);
                    self.push(at_ms, line, 0, What::Stand { who, group, priority });
                }
            }
            ("withdraw" | "resign", Some(party), Some(group)) => {
                self.stands.remove(&(party.session, group.clone()));
                self.push(at_ms, line, 0, What::Withdraw { session: party.session, group });
            }
            ("transfer", Some(Party { session, .. }), Some(group)) => {
                self.stands.remove(&(*session, group.clone()));
                if let (session, Some(to)) = (*session, deed.to.clone()) {
                    self.push(at_ms, line, 0, What::Transfer { session, group, to });
                }
            }
            ("close", Some(party), _) => {
                self.push(at_ms, line, 0, What::Leave { session: party.session });
            }
            ("step_down", _, Some(group)) => {
                let (reason, to) = (deed.reason.clone().unwrap_or_default(), deed.to.clone());
                let command = Command::StepDown { group, reason, to, immediate: deed.immediate };
                self.push(at_ms, line, 0, What::Administer(command));
            }
            ("put_policy", _, Some(group)) => {
                let command = Command::PutPolicy { group, policy: deed.policy.clone() };
                self.push(at_ms, line, 0, What::Administer(command));
            }
            ("delete", _, Some(group)) => {
                self.push(at_ms, line, 0, What::Administer(Command::Delete { group }));
            }
            ("accept", Some(party), Some(group)) => {
                self.push(at_ms, line, 0, What::Accept { session: party.session, group });
            }
            // These follow by themselves, or did not change who leads.
            ("open" | "offer" | "warm" | "report" | "relieve" | "elapsed" | "refill", ..) => {}
            ("change_ttl", ..) => self.skip("changes of a ttl"),
            ("move", ..) => self.skip("moves to another store"),
            ("put_settings", ..) => self.skip("changes of the store's settings"),
            (
                "expire" | "campaign" | "accept" | "withdraw" | "resign" | "transfer" | "close",
                None,
                _,
            ) => self.skip("deeds of nobody"),
            // The simulator cannot repeat it yet: the replay says so.
            (other, ..) => self.skip(&format!("deeds {other:?}")),
        }
        if let Some(party) = party {
            self.last.insert(party.session, (at_ms, line));
        }
    }

    fn skip(&mut self, what: &str) {
        *self.undone.entry(what.to_owned()).or_default() += 1;
    }

    /// The process of an expired session died a ttl before, and not before it last did something.
    fn fall(&mut self, at_ms: u64, line: usize, party: &Party) {
        let (did_ms, did_line) = self.last.get(&party.session).copied().unwrap_or((0, 0));
        let fell_ms = at_ms.saturating_sub(party.ttl_ms).max(did_ms);
        let order = if fell_ms == did_ms { did_line } else { line };
        self.push(fell_ms, order, 1, What::Fall { session: party.session });
        self.stands.retain(|(session, _)| *session != party.session);
    }

    fn finish(mut self, trace: &Trace) -> Script {
        self.steps.sort_by_key(|(order, _)| *order);
        let quiet_ms = 2 * self.ttl_ms_max + QUIET_MS;
        let (mut before_ms, mut shortened_ms) = (0, 0);
        let mut steps = Vec::with_capacity(self.steps.len());
        for (_, mut step) in self.steps {
            shortened_ms += step.at_ms.saturating_sub(before_ms).saturating_sub(quiet_ms);
            before_ms = step.at_ms;
            step.at_ms -= shortened_ms;
            steps.push(step);
        }
        let tail_ms = trace.lasts_ms().saturating_sub(before_ms);
        shortened_ms += tail_ms.saturating_sub(quiet_ms);
        let mut remarks: Vec<String> =
            self.undone.iter().map(|(what, count)| remark(what, *count)).collect();
        if self.gaps > 0 {
            let gaps = self.gaps;
            remarks
                .push(format!("the recording has {gaps} gaps: what happened there is not acted"));
        }
        if trace.back_ms_max() > 0 {
            let back_ms = trace.back_ms_max();
            remarks.push(format!(
                "wall clocks went back by up to {back_ms} ms; the order of revisions counts"
            ));
        }
        Script { steps, lasts_ms: trace.lasts_ms() - shortened_ms, shortened_ms, remarks }
    }
}

fn remark(what: &str, count: usize) -> String {
    if what.starts_with("sessions") {
        return format!("{count} {what}: they are let to stand at its beginning");
    }
    format!("{count} {what} are not acted")
}
