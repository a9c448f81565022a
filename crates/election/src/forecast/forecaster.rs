//! Everybody's margins, and whether a leader that is about to fail should be asked to hand over. Pure: it reads no
//! clock and asks nobody.
//!
//! ```text
//!   heartbeat ──► margins fail? ──► Suspicion ──► (who leads, who stands: read by a quorum) ──► Verdict
//!                                                                                                  │
//!   nothing helps: nobody better, everybody slow, too soon, overtaken ◄────────────────────────────┴──► hand over
//! ```
//!
//! **A hand-over must help.** It is asked for only if somebody stands there who does *clearly* better
//! ([`BETTER_BY`]) by its own renewals, heard by the same server: what is slow for both is the network or the store,
//! and a hand-over would only add to it. If a third of all leaders fail at once it is not the leaders.
//!
//! **It must not repeat itself.** One decision for a group in [`COOL_DOWN`], not before its leader has served the
//! policy's minimum tenure, a few leaders a minute; and whoever was replaced follows nobody in that group for
//! [`REST`], however well it looks while it does not work.
//!
//! Margins are believed as they are told, and only from sessions that the store has just acknowledged. What is not
//! known (a server that restarted, a table that is full) counts as a reason to do nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use super::margins::{Margins, Outlook};
use crate::belief::Beliefs;
use crate::limits::{
    CLAIMS_PER_HEARTBEAT_MAX, FORECASTS_MAX, RELIEVED_PER_MINUTE_MAX, SUSPECTS_PER_HEARTBEAT_MAX,
    TTL_MS_CEILING, TTL_MS_FLOOR,
};
use crate::moment::Moment;
use crate::name::{Group, Node, SessionId};
use crate::term::Term;

/// By how much of its ttl, in thousandths, the worst of a standby's last renewals must be better than the leader's last.
const BETTER_BY: i64 = 100;
/// How many renewals of a standby must be so.
const COMPARED: usize = 4;
/// How many margins of a leader are told to people.
const TOLD: usize = 3;
/// How long a group is left alone after a decision.
const COOL_DOWN: Duration = Duration::from_secs(5 * 60);
/// How long whoever was replaced in a group follows nobody there.
const REST: Duration = Duration::from_secs(30 * 60);
/// From this many failing leaders on it matters how many there are in all.
const MANY: usize = 3;
/// If more than one in this many leaders is failing, it is not the leaders.
const FAILING_ONE_IN: usize = 3;
/// How often in a ttl an office is looked at while its leader is failing, at most: with every heartbeat.
const LOOKS_PER_TTL: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// How often those that are gone are forgotten at most.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// A leader whose renewals say that it is about to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    pub session: SessionId,
    pub node: Node,
    /// Where it leads, and under which term: some of it, if it is much.
    pub offices: Vec<(Group, Term)>,
}

/// What a quorum says about one office of a suspect.
#[derive(Clone, Copy, Debug)]
pub struct SuspectOffice<'a> {
    pub session: SessionId,
    pub group: &'a Group,
    /// Under which term.
    pub term: Term,
    /// Whether that session leads there under that term, and its office is on offer to nobody.
    pub leads_on: bool,
    /// Who stands there and can be heard, the next one first.
    pub standbys: &'a [Node],
    /// What the policy grants every leader.
    pub minimum_tenure: Duration,
}

/// What is to be done about a leader that is about to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForecastAction {
    /// A hand-over helps.
    HandOver {
        /// Who does clearly better.
        to: Node,
    },
    /// Nobody who stands there is known to do clearly better.
    NobodyBetter,
    /// Too many fail at once: it is not the leaders.
    EverybodySlow,
    /// The leader has not served its minimum tenure, or there was a decision about the group not long ago.
    TooSoon,
    /// It recovered, or leads no more, or hands over already.
    Overtaken,
}

impl ForecastAction {
    /// The word for wires and people.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::HandOver { .. } => "hand_over",
            Self::NobodyBetter => "nobody_better",
            Self::EverybodySlow => "everybody_slow",
            Self::TooSoon => "too_soon",
            Self::Overtaken => "overtaken",
        }
    }
}

/// A decision with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForecastDecision {
    /// What is to be done.
    pub outcome: ForecastAction,
    /// Why, in a sentence for the history; empty if it was overtaken.
    pub reason: String,
    /// Whether the last verdict about this term was another one, or there was none.
    pub is_news: bool,
}

/// Everybody's margins, and what was decided.
#[derive(Debug, Default)]
pub struct Forecaster {
    sessions: BTreeMap<SessionId, SessionMargins>,
    /// Who claims which office, and since when it is heard to.
    tenures: BTreeMap<Group, Tenure>,
    /// What was decided about a group.
    judged: BTreeMap<Group, Judged>,
    /// Which leaders were found to need relief within the last minute.
    relieved: VecDeque<(Moment, SessionId)>,
    forgot_at: Option<Moment>,
}

/// One session.
#[derive(Debug)]
struct SessionMargins {
    node: Node,
    ttl_ms: u64,
    heard_at: Moment,
    margins: Margins,
    leads: bool,
    outlook: Outlook,
}

impl SessionMargins {
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    fn is_gone(&self, now: Moment) -> bool {
        self.heard_at + self.ttl() <= now
    }

    fn is_failing(&self) -> bool {
        self.leads && self.outlook.is_failing()
    }
}

#[derive(Debug)]
struct Tenure {
    session: SessionId,
    term: Term,
    since: Moment,
}

#[derive(Debug)]
struct Judged {
    /// The last verdict: the term it was about, its word, and when the group is looked at again.
    term: Term,
    word: &'static str,
    look_at: Moment,
    /// When a hand-over was last asked for.
    decided_at: Option<Moment>,
    /// Who was replaced, and when.
    replaced: Vec<(Node, Moment)>,
}

/// Everybody of one name, counted.
#[derive(Debug, Default)]
struct Named {
    stand: usize,
    heard: usize,
    do_better: usize,
}

impl Judged {
    fn is_cooling(&self, now: Moment) -> bool {
        self.decided_at.is_some_and(|at| now < at + COOL_DOWN)
    }

    fn rests(&self, now: Moment, node: &Node) -> bool {
        self.replaced.iter().any(|(other, at)| other == node && now < *at + REST)
    }

    fn is_over(&self, now: Moment) -> bool {
        self.look_at + COOL_DOWN <= now
            && !self.is_cooling(now)
            && self.replaced.iter().all(|(_, at)| *at + REST <= now)
    }
}

impl Forecaster {
    /// A heartbeat came that the store has acknowledged.
    pub fn heartbeat(
        &mut self,
        now: Moment,
        session: SessionId,
        beliefs: &Beliefs,
    ) -> Option<Suspicion> {
        if !self.has_room(now, session) {
            return None;
        }
        let ttl_ms = beliefs.ttl_ms.clamp(TTL_MS_FLOOR, TTL_MS_CEILING);
        let heard = self.sessions.entry(session).or_insert_with(|| SessionMargins {
            node: beliefs.node.clone(),
            ttl_ms,
            heard_at: now,
            margins: Margins::default(),
            leads: false,
            outlook: Outlook::Steady,
        });
        if heard.node != beliefs.node || heard.is_gone(now) {
            // What was is not what is.
            heard.margins = Margins::default();
            heard.outlook = Outlook::Steady;
        }
        heard.node.clone_from(&beliefs.node);
        (heard.ttl_ms, heard.heard_at) = (ttl_ms, now);
        heard.leads = !beliefs.claims.is_empty();
        if let Some(margin_ms) = beliefs.margin_ms {
            heard.margins.note(margin_ms, ttl_ms);
            heard.outlook = heard.margins.outlook();
        }
        let is_failing = heard.is_failing();
        let mut offices = Vec::new();
        for claim in beliefs.claims.iter().take(CLAIMS_PER_HEARTBEAT_MAX) {
            self.claimed(now, session, &claim.group, claim.term);
            let is_due = self.judged.get(&claim.group).is_none_or(|it| it.look_at <= now);
            if is_failing && is_due && offices.len() < SUSPECTS_PER_HEARTBEAT_MAX {
                offices.push((claim.group.clone(), claim.term));
            }
        }
        let node = beliefs.node.clone();
        (!offices.is_empty()).then_some(Suspicion { session, node, offices })
    }

    /// Somebody says that it leads. What it says is checked before anything is done about it.
    fn claimed(&mut self, now: Moment, session: SessionId, group: &Group, term: Term) {
        if let Some(known) = self.tenures.get_mut(group) {
            if (known.session, known.term) != (session, term) {
                *known = Tenure { session, term, since: now };
            }
        } else if self.tenures.len() < FORECASTS_MAX {
            self.tenures.insert(group.clone(), Tenure { session, term, since: now });
        }
    }

    /// Decides about one office of a suspect.
    pub fn judge(&mut self, now: Moment, sight: SuspectOffice<'_>) -> ForecastDecision {
        self.forget(now);
        let suspect = self.sessions.get(&sight.session);
        let weighed = suspect.map(|suspect| (suspect, self.weigh(now, sight, suspect)));
        // Whoever claims what it does not hold changes nothing about the group.
        let Some((suspect, outcome)) = weighed.filter(|(_, it)| *it != ForecastAction::Overtaken)
        else {
            return ForecastDecision {
                outcome: ForecastAction::Overtaken,
                reason: String::new(),
                is_news: false,
            };
        };
        let reason = self.told(suspect, &outcome);
        let (node, again_at) = (suspect.node.clone(), now + suspect.ttl() / LOOKS_PER_TTL);
        let (word, is_decided) =
            (outcome.word(), matches!(outcome, ForecastAction::HandOver { .. }));
        let look_at = if is_decided { now + COOL_DOWN } else { again_at };
        if is_decided && !self.relieved.iter().any(|(_, of)| *of == sight.session) {
            self.relieved.push_back((now, sight.session));
        }
        if !self.has_place(sight.group) {
            return ForecastDecision { outcome, reason, is_news: false };
        }
        let judged = self.judged.entry(sight.group.clone()).or_insert_with(|| Judged {
            term: Term::NONE,
            word: "",
            look_at,
            decided_at: None,
            replaced: Vec::new(),
        });
        // Decided once more, it is to be done once more: the standby that was asked may have left.
        let is_news = is_decided || (judged.term, judged.word) != (sight.term, word);
        (judged.term, judged.word, judged.look_at) = (sight.term, word, look_at);
        if is_decided {
            judged.decided_at = Some(now);
            judged.replaced.retain(|(other, at)| *other != node && now < *at + REST);
            judged.replaced.push((node, now));
        }
        ForecastDecision { outcome, reason, is_news }
    }

    fn weigh(
        &self,
        now: Moment,
        sight: SuspectOffice<'_>,
        suspect: &SessionMargins,
    ) -> ForecastAction {
        let SuspectOffice { session, group, term, leads_on, standbys, minimum_tenure } = sight;
        if !leads_on || suspect.is_gone(now) || !suspect.is_failing() {
            return ForecastAction::Overtaken;
        }
        let (leading, failing) = self.count(now);
        let is_many = failing >= MANY && failing * FAILING_ONE_IN > leading;
        let others: BTreeSet<SessionId> =
            self.relieved.iter().map(|(_, of)| *of).filter(|of| *of != session).collect();
        if is_many || others.len() >= RELIEVED_PER_MINUTE_MAX {
            return ForecastAction::EverybodySlow;
        }
        let tenure = self.tenures.get(group);
        let tenure = tenure.filter(|tenure| (tenure.session, tenure.term) == (session, term));
        let has_served = tenure.is_some_and(|tenure| tenure.since + minimum_tenure <= now);
        let judged = self.judged.get(group);
        if !has_served
            || !self.has_place(group)
            || judged.is_some_and(|judged| judged.is_cooling(now))
        {
            return ForecastAction::TooSoon;
        }
        let better = self.better(now, standbys, suspect);
        let may_follow = |node: &&Node| {
            better.contains(*node) && !judged.is_some_and(|judged| judged.rests(now, node))
        };
        match standbys.iter().find(may_follow) {
            Some(to) => ForecastAction::HandOver { to: to.clone() },
            None => ForecastAction::NobodyBetter,
        }
    }

    /// Those standbys of whose name there is one, and every session of that name that is heard does clearly better;
    /// none is heard, none does. Everybody is looked at once, however many stand.
    fn better<'a>(
        &self,
        now: Moment,
        standbys: &'a [Node],
        suspect: &SessionMargins,
    ) -> BTreeSet<&'a Node> {
        let Some(last) = suspect.margins.worst(1) else { return BTreeSet::new() };
        let mut named: BTreeMap<&Node, Named> = BTreeMap::new();
        for node in standbys {
            named.entry(node).or_default().stand += 1;
        }
        for heard in self.sessions.values() {
            let Some(named) = named.get_mut(&heard.node) else { continue };
            if heard.is_gone(now) {
                continue;
            }
            let does_better = !heard.outlook.is_failing()
                && heard.margins.worst(COMPARED).is_some_and(|it| it >= last + BETTER_BY);
            named.heard += 1;
            named.do_better += usize::from(does_better);
        }
        let is_better = |it: &Named| it.stand == 1 && it.heard > 0 && it.do_better == it.heard;
        named.into_iter().filter(|(_, it)| is_better(it)).map(|(node, _)| node).collect()
    }

    /// Whether a verdict about this group can be remembered.
    fn has_place(&self, group: &Group) -> bool {
        self.judged.len() < FORECASTS_MAX || self.judged.contains_key(group)
    }

    /// How many sessions lead, as far as is heard, and how many of them are about to fail.
    #[must_use]
    pub fn count(&self, now: Moment) -> (usize, usize) {
        let leading = self.sessions.values().filter(|heard| heard.leads && !heard.is_gone(now));
        leading.fold((0, 0), |(all, failing), heard| {
            (all + 1, failing + usize::from(heard.is_failing()))
        })
    }

    /// What was decided could not be done: it may be decided again.
    pub fn undone(&mut self, now: Moment, group: &Group) {
        if let Some(judged) = self.judged.get_mut(group) {
            judged.replaced.retain(|(_, at)| Some(*at) != judged.decided_at);
            (judged.decided_at, judged.look_at, judged.word) = (None, now, "");
        }
    }

    /// A session was closed by its owner.
    pub fn closed(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// The verdict in a sentence, with its numbers.
    fn told(&self, suspect: &SessionMargins, outcome: &ForecastAction) -> String {
        let SessionMargins { node, ttl_ms, margins, outlook, .. } = suspect;
        let came: Vec<String> = margins.last_ms(TOLD).map(seconds).collect();
        let (came, ttl) = (came.join(", "), seconds(*ttl_ms));
        let mut told = format!("predicted: {node}'s renewals came with {came} of {ttl} left");
        let _ = match outlook {
            Outlook::Steady => Ok(()),
            Outlook::Falling { too_late_in } => {
                write!(told, " and would come too late within {too_late_in} more")
            }
            Outlook::Close { count } => write!(told, ", {count} times close to too late"),
        };
        let _ = match outcome {
            ForecastAction::HandOver { to } => {
                let other = self.sessions.values().filter(|heard| heard.node == *to);
                let has = other.flat_map(|heard| heard.margins.last_ms(1)).min();
                write!(told, "; {to} has {}", seconds(has.unwrap_or_default()))
            }
            ForecastAction::NobodyBetter => {
                write!(told, "; no standby is known to do clearly better")
            }
            ForecastAction::EverybodySlow => {
                write!(told, "; so do others': it is not this leader alone")
            }
            ForecastAction::TooSoon => write!(told, "; it is too soon to replace it"),
            ForecastAction::Overtaken => {
                told.clear();
                Ok(())
            }
        };
        told
    }

    fn has_room(&mut self, now: Moment, session: SessionId) -> bool {
        if self.sessions.contains_key(&session) {
            return true;
        }
        if self.sessions.len() >= FORECASTS_MAX {
            self.forget(now);
        }
        self.sessions.len() < FORECASTS_MAX
    }

    /// Forgets whoever is gone and whatever is over, now and then.
    fn forget(&mut self, now: Moment) {
        if self.forgot_at.is_some_and(|at| now < at + FORGET_EVERY) {
            return;
        }
        self.forgot_at = Some(now);
        while self.relieved.front().is_some_and(|(at, _)| *at + MINUTE <= now) {
            self.relieved.pop_front();
        }
        self.sessions.retain(|_, heard| !heard.is_gone(now));
        let sessions = &self.sessions;
        self.tenures.retain(|_, tenure| sessions.contains_key(&tenure.session));
        self.judged.retain(|_, judged| !judged.is_over(now));
    }
}

/// Milliseconds as people read them.
fn seconds(ms: u64) -> String {
    format!("{}.{}s", ms / 1000, ms % 1000 / 100)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
