//! Leaders that are about to fail: seen in their heartbeats, told, and asked to hand over if an operator allows it.
//!
//! The rules are in `regent_election::forecast`; this file gives them a clock, reads who leads and who stands, and
//! does what they decide. Nothing here ends a tenure: the most that happens is that the office is offered to a
//! standby in the leader's stead (`Store::relieve`), which the leader takes for what it is, a hand-over.
//!
//! Heartbeats never wait for it. A suspicion that finds no place in the queue comes again with the next heartbeat.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_election::belief::Beliefs;
use regent_election::forecast::{
    ForecastAction, ForecastDecision, Forecaster, SuspectOffice, Suspicion,
};
use regent_election::limits::REASON_BYTES_MAX;
use regent_election::store::{GroupView, OfficeState, SessionView, StoreResult};
use regent_election::{Finding, Group, Node, Reason, SessionId, Term};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::app::{App, Phase};

/// Suspicions that wait at most.
const QUEUE: usize = 256;

/// What is done about a leader that is about to fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplaceFailing {
    /// It is told: in the log, the metrics and the group's history.
    #[default]
    Report,
    /// It is told, and asked to hand over to a standby that does clearly better.
    HandOver,
    /// Nothing is foreseen.
    Off,
}

impl ReplaceFailing {
    /// Every word, the default first.
    pub const WORDS: [&'static str; 3] = ["report", "hand-over", "off"];

    /// The word for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::HandOver => "hand-over",
            Self::Off => "off",
        }
    }
}

impl FromStr for ReplaceFailing {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "report" => Ok(Self::Report),
            "hand-over" => Ok(Self::HandOver),
            "off" => Ok(Self::Off),
            _ => Err(format!("{word:?} is not known; choose one of {}", Self::WORDS.join(", "))),
        }
    }
}

/// What became of a prediction, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    /// A hand-over would help, and nobody is asked for one here.
    Reported,
    /// The office is on offer to a standby.
    HandOver,
    /// The store would not have it: the office or the standby had changed.
    Refused,
    /// See [`ForecastAction::NobodyBetter`].
    NobodyBetter,
    /// See [`ForecastAction::EverybodySlow`].
    EverybodySlow,
    /// See [`ForecastAction::TooSoon`].
    TooSoon,
}

impl Became {
    pub(crate) const ALL: [Self; 6] = [
        Self::Reported,
        Self::HandOver,
        Self::Refused,
        Self::NobodyBetter,
        Self::EverybodySlow,
        Self::TooSoon,
    ];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::HandOver => "hand_over",
            Self::Refused => "refused",
            Self::NobodyBetter => "nobody_better",
            Self::EverybodySlow => "everybody_slow",
            Self::TooSoon => "too_soon",
        }
    }
}

/// What this server has heard of everybody's margins.
#[derive(Debug)]
pub(crate) struct FailureForecast {
    forecaster: Mutex<Forecaster>,
    suspicions: mpsc::Sender<Suspicion>,
}

/// The other end of the queue.
#[derive(Debug)]
pub(crate) struct Suspicions(mpsc::Receiver<Suspicion>);

impl FailureForecast {
    pub(crate) fn new() -> (Self, Suspicions) {
        let (suspicions, to_examine) = mpsc::channel(QUEUE);
        (Self { forecaster: Mutex::default(), suspicions }, Suspicions(to_examine))
    }

    fn forecaster(&self) -> MutexGuard<'_, Forecaster> {
        self.forecaster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many leaders are about to fail, as far as this server has heard.
    pub(crate) fn failing(&self) -> u64 {
        self.forecaster().count(regent_clock::now()).1 as u64
    }

    /// A session was closed by its owner.
    pub(crate) fn closed(&self, session: SessionId) {
        self.forecaster().closed(session);
    }
}

impl App {
    /// A heartbeat that the store has acknowledged told how much was left.
    pub(crate) fn foresee(&self, session: SessionId, beliefs: &Beliefs) {
        if self.config.replace_failing == ReplaceFailing::Off {
            return;
        }
        let now = regent_clock::now();
        let suspicion = self.failure_forecast.forecaster().heartbeat(now, session, beliefs);
        if let Some(suspicion) = suspicion {
            // If there is no place for it, the next heartbeat says the same.
            let _ = self.failure_forecast.suspicions.try_send(suspicion);
        }
    }

    /// Tells what was decided and does it.
    async fn foretell(&self, group: &Group, term: Term, node: &Node, verdict: ForecastDecision) {
        let ForecastDecision { outcome, reason, is_news } = verdict;
        if !is_news || outcome == ForecastAction::Overtaken {
            return;
        }
        tracing::warn!(%group, %node, term = term.get(), outcome = outcome.word(), "{reason}");
        let key = || format!("{term}: {}", outcome.word());
        let became = match &outcome {
            ForecastAction::HandOver { to }
                if self.config.replace_failing == ReplaceFailing::HandOver =>
            {
                self.relieve(group, term, to, &reason).await
            }
            ForecastAction::HandOver { .. } => {
                let reason = format!("{reason}; nobody is asked to hand over (replace_failing)");
                self.claim_monitor.report(group, Finding::Failing, key(), reason);
                Became::Reported
            }
            ForecastAction::NobodyBetter => {
                self.claim_monitor.report(group, Finding::Failing, key(), reason);
                Became::NobodyBetter
            }
            // Not one by one into histories: many are slow already.
            ForecastAction::EverybodySlow => Became::EverybodySlow,
            ForecastAction::TooSoon | ForecastAction::Overtaken => Became::TooSoon,
        };
        self.metrics.predicted(became);
    }

    /// Asks a leader to hand over. Whatever does not come about may be decided again.
    async fn relieve(&self, group: &Group, term: Term, to: &Node, reason: &str) -> Became {
        let reason = short(&format!("{reason} and is asked to take over"));
        let asked = self.store.relieve(group, term, to, reason);
        let undone = match timeout(self.config.request_timeout, asked).await {
            Ok(Ok(())) => return Became::HandOver,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the store did not answer in time".to_owned(),
        };
        tracing::warn!(%group, term = term.get(), %to, undone, "a hand-over was not begun");
        self.failure_forecast.forecaster().undone(regent_clock::now(), group);
        Became::Refused
    }
}

/// As much of a reason as a history keeps.
pub(crate) fn short(reason: &str) -> Reason {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    Reason::new(&reason[..end]).unwrap_or_default()
}

/// Looks into suspicions, one after another, until the server closes.
pub(crate) async fn attend(app: Arc<App>, mut suspicions: Suspicions) {
    let examining = async {
        while let Some(suspicion) = suspicions.0.recv().await {
            examine(&app, suspicion).await;
        }
    };
    tokio::select! {
        () = app.reached(Phase::Closing) => {}
        () = examining => {}
    }
}

/// Reads what the store says of the offices concerned, and has them judged.
async fn examine(app: &App, suspicion: Suspicion) {
    let Suspicion { session, node, offices } = suspicion;
    let Some(held) = read(app, app.store.session(session)).await else { return };
    for (group, term) in offices {
        let Some(seen) = read(app, app.store.group(&group)).await else { continue };
        let standbys: Vec<Node> = seen
            .standbys
            .iter()
            .filter(|standby| !standby.silent)
            .map(|standby| standby.node.clone())
            .collect();
        let sight = SuspectOffice {
            session,
            group: &group,
            term,
            leads_on: leads_on(&held, &seen, &node, term),
            standbys: &standbys,
            minimum_tenure: std::time::Duration::from_millis(seen.policy.minimum_tenure_ms),
        };
        let verdict = app.failure_forecast.forecaster().judge(regent_clock::now(), sight);
        app.foretell(&group, term, &node, verdict).await;
    }
}

/// Whether the session itself, not another that bears its name, leads under this term and hands over to nobody yet.
fn leads_on(held: &SessionView, seen: &GroupView, node: &Node, term: Term) -> bool {
    let office = &seen.office;
    let is_held = held.tenures.iter().any(|tenure| {
        tenure.group == office.group
            && tenure.term == term
            && tenure.state == OfficeState::Leading
            && tenure.offered_to.is_none()
    });
    let is_seen = office.term == term
        && office.state == OfficeState::Leading
        && office.leader.as_ref() == Some(node);
    is_held && is_seen && held.node == *node
}

async fn read<T>(app: &App, asked: impl Future<Output = StoreResult<T>>) -> Option<T> {
    timeout(app.config.request_timeout, asked).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back() {
        for word in ReplaceFailing::WORDS {
            assert_eq!(word.parse::<ReplaceFailing>().map(ReplaceFailing::word), Ok(word));
        }
        assert_eq!(ReplaceFailing::WORDS[0], ReplaceFailing::default().word());
        assert!("always".parse::<ReplaceFailing>().unwrap_err().contains("hand-over"));
    }

    #[test]
    fn a_reason_that_is_too_long_is_cut_between_characters() {
        let reason = "é".repeat(REASON_BYTES_MAX);
        assert_eq!(short(&reason).as_str().len(), REASON_BYTES_MAX);
        assert_eq!(short("short").as_str(), "short");
    }
}
