//! Heartbeats and the validity that comes of them: the one number all leaderships hang on.

use super::candidacy::Then;
use super::request::{Reply, Request};
use super::session::{pause_told, retry_after};
use super::words::{Attempt, Trouble, Why};
use super::{Participant, Pending};
use crate::access::CredentialFlaw;
use crate::limits::{DISOWNED_PER_HEARTBEAT_MAX, HEARTBEAT_LEAP, HEARTBEATS_IN_FLIGHT_MAX};
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::name::Group;
use crate::outcome::Refusal;
use crate::store::{Heartbeat, HeartbeatView, StoreError, StoreResult};
use crate::term::Term;
use crate::timing::Budget;

/// A heartbeat that is under way.
#[derive(Clone, Debug)]
pub(super) struct SentHeartbeat {
    sent_at: Moment,
    sequence: u64,
    /// What it disowns: once acknowledged, the store knows.
    disowned: Vec<(Group, Term)>,
    /// Which refusals it tells of.
    refused: Vec<(Group, Term)>,
}

/// Validity in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    /// When the request that earned it was first sent.
    pub(super) sent_at: Moment,
    /// When it ends.
    pub(super) until: Moment,
}

/// How far a lease has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Renewals are on time.
    Fresh,
    /// A renewal is overdue.
    Jeopardy,
    /// Just enough is left to stop.
    Stopping,
    /// Nothing is left, or there never was any.
    Over,
}

impl Lease {
    /// What an acknowledged request sent at `sent_at` earns, unless that is over already: an answer
    /// that outlived its lease wins nothing.
    pub(super) fn granted(
        sent_at: Moment,
        ttl_ms: u64,
        budget: &Budget,
        now: Moment,
    ) -> Option<Self> {
        let sent_at = if mutant::is(Mutant::CountFromAnswer) { now } else { sent_at };
        let until = sent_at + budget.valid_for_acknowledged(ttl_ms);
        (now < until).then_some(Self { sent_at, until })
    }

    pub(super) fn stops_at(self, budget: &Budget) -> Moment {
        self.until - budget.stop_grace()
    }

    fn jeopardy_at(self, budget: &Budget) -> Moment {
        (self.sent_at + budget.jeopardy_after()).min(self.stops_at(budget))
    }

    fn stage(self, budget: &Budget, now: Moment) -> Stage {
        if now >= self.until {
            Stage::Over
        } else if now >= self.stops_at(budget) {
            Stage::Stopping
        } else if now >= self.jeopardy_at(budget) {
            Stage::Jeopardy
        } else {
            Stage::Fresh
        }
    }
}

impl Participant {
    pub(super) fn stage(&self) -> Stage {
        self.session.lease().map_or(Stage::Over, |lease| lease.stage(&self.budget, self.now))
    }

    /// When the stage of the lease changes next, if that concerns anybody.
    pub(super) fn stage_at(&self) -> Option<Moment> {
        let lease = self.session.lease().filter(|_| !self.leading.is_empty())?;
        [lease.jeopardy_at(&self.budget), lease.stops_at(&self.budget), lease.until]
            .into_iter()
            .find(|at| *at > self.now)
    }

    /// Brings every group in line with what is left of the lease.
    pub(super) fn judge(&mut self) {
        let stage = self.stage();
        let Some(open) = self.session.open_mut() else { return };
        if std::mem::replace(&mut open.judged, stage) == stage {
            return;
        }
        match stage {
            Stage::Fresh | Stage::Jeopardy => {
                for group in self.leading.iter().cloned().collect::<Vec<_>>() {
                    self.warn(&group, stage);
                }
            }
            Stage::Stopping => self.stop_all(Why::LeaseNearlyOver),
            Stage::Over => {
                // All tenures go at once; a fresh session is a smaller word than disowning each.
                if self.lose_all(Why::LeaseOver) {
                    self.abandon(true);
                }
            }
        }
    }

    /// Sends a heartbeat when one is due.
    pub(super) fn heartbeat_due(&mut self) {
        let now = self.now;
        let is_over = self.stage() == Stage::Over;
        let Some(open) = self.session.open_mut() else { return };
        if open.heartbeat_at > now {
            return;
        }
        if open.newest_heartbeat.take().is_some() {
            // The newest had its time-out. With a lease to save the next one goes out at once.
            open.heartbeats_failed += 1;
            if is_over {
                open.heartbeat_at =
                    now + self.dice.back_off(open.heartbeats_failed, self.budget.ttl());
                return;
            }
        }
        self.send_heartbeat();
    }

    /// Makes the next heartbeat due, unless one is under way.
    pub(super) fn hurry_heartbeat(&mut self) {
        let now = self.now;
        if let Some(open) = self.session.open_mut().filter(|open| open.newest_heartbeat.is_none()) {
            open.heartbeat_at = open.heartbeat_at.min(now);
        }
    }

    fn send_heartbeat(&mut self) {
        let now = self.now;
        // Whatever these could earn is over.
        let valid_for = self.budget.valid_for();
        self.pending.retain(|_, pending| match pending {
            Pending::Heartbeat(sent) => now < sent.sent_at + valid_for,
            Pending::Open | Pending::List | Pending::Close(_) | Pending::Errand(_) => true,
        });
        self.trim(HEARTBEATS_IN_FLIGHT_MAX, |pending| matches!(pending, Pending::Heartbeat(_)));
        let beliefs = self.beliefs();
        let Some(open) = self.session.open_mut() else { return };
        open.sequence += 1;
        let (session, sequence) = (open.id, open.sequence);
        let disowned: Vec<(Group, Term)> =
            open.disowned.iter().take(DISOWNED_PER_HEARTBEAT_MAX).cloned().collect();
        let refused = beliefs.as_ref().map(|it| it.refused.clone()).unwrap_or_default();
        let sent = SentHeartbeat { sent_at: now, sequence, disowned: disowned.clone(), refused };
        let heartbeat = Heartbeat { session, sequence: Some(sequence), disowned, beliefs };
        let attempt = self.send(Pending::Heartbeat(sent), Request::Heartbeat(heartbeat));
        let timeout = self.budget.request_timeout();
        if let Some(open) = self.session.open_mut() {
            open.newest_heartbeat = Some(attempt);
            open.heartbeat_at = now + timeout;
        }
    }

    pub(super) fn heartbeat_answered(
        &mut self,
        attempt: Attempt,
        sent: SentHeartbeat,
        answer: StoreResult<Reply>,
    ) {
        let Some(open) = self.session.open_mut() else { return };
        let is_newest = open.newest_heartbeat == Some(attempt);
        match answer {
            Ok(Reply::Heartbeat(heard)) => {
                if is_newest {
                    open.newest_heartbeat = None;
                    open.heartbeats_failed = 0;
                    open.heartbeat_at = (sent.sent_at + self.budget.renew_every()).max(self.now);
                }
                self.heartbeat_acknowledged(sent, &heard);
            }
            Ok(Reply::Session(_) | Reply::Campaigned(_) | Reply::Done) => {}
            // Only the newest attempt's refusal counts (semantics 10).
            Err(_) if !is_newest => {}
            Err(StoreError::Refused(Refusal::SessionUnknown)) => {
                self.session_gone(Why::SessionGone);
            }
            Err(StoreError::Refused(Refusal::HeartbeatNotNewer { last, .. }))
                if last > sent.sequence =>
            {
                // Nobody but us numbers our heartbeats, and this was our highest.
                self.trouble(None, Trouble::SessionShared { given: sent.sequence, last });
                self.session_gone(Why::SessionShared);
            }
            Err(error) => {
                if matches!(error, StoreError::Refused(Refusal::HeartbeatNotNewer { .. })) {
                    // Our own duplicate, or a twin that counts in step with us. Whoever comes after
                    // this leap without having made it meets a higher number, and knows.
                    open.sequence = open.sequence.saturating_add(HEARTBEAT_LEAP);
                }
                let is_shut_out = is_shut_out(&error);
                self.heartbeat_failed(error);
                if is_shut_out {
                    self.stop_all(Why::AccessLost);
                }
            }
        }
    }

    /// Stops in every group, long before the lease is over.
    fn stop_all(&mut self, why: Why) {
        for group in self.leading.iter().cloned().collect::<Vec<_>>() {
            self.begin_stop(&group, why, Then::Resign);
        }
    }

    fn heartbeat_failed(&mut self, error: StoreError) {
        let is_over = self.stage() == Stage::Over;
        let told = pause_told(retry_after(&error));
        let Some(open) = self.session.open_mut() else { return };
        open.newest_heartbeat = None;
        open.heartbeats_failed += 1;
        let pause = if is_over {
            told.unwrap_or_else(|| self.dice.back_off(open.heartbeats_failed, self.budget.ttl()))
        } else {
            // With a lease to save, even a store that asks for patience is asked again in time.
            let pause = self.budget.retry_pause();
            told.unwrap_or(pause).clamp(pause, self.budget.renew_every())
        };
        open.heartbeat_at = self.now + pause;
        self.trouble(None, error.into());
    }

    /// A heartbeat was acknowledged.
    fn heartbeat_acknowledged(&mut self, sent: SentHeartbeat, heard: &HeartbeatView) {
        self.saw(heard.revision);
        self.refusals_told(&sent.refused);
        for (group, term) in &sent.disowned {
            self.settled(group, *term);
        }
        let Some(lease) = Lease::granted(sent.sent_at, heard.ttl_ms, &self.budget, self.now) else {
            return;
        };
        let Some(open) = self.session.open_mut() else { return };
        if open.listing.is_news(heard.epoch) && !mutant::is(Mutant::EpochIgnored) {
            // Extends nothing until the list has been read (semantics 11).
            open.listing.hold_back(heard.epoch, lease);
            self.want_list();
        } else {
            self.extend(lease);
        }
    }

    /// Takes validity that was earned.
    pub(super) fn extend(&mut self, lease: Lease) {
        let Some(open) = self.session.open_mut() else { return };
        if self.now >= lease.until || open.lease.is_some_and(|had| had.until >= lease.until) {
            return;
        }
        let had = open.lease.replace(lease);
        self.note_margin(had);
        self.judge();
        for group in self.won.iter().cloned().collect::<Vec<_>>() {
            self.take_office(&group);
        }
    }

    /// Forgets the oldest attempts of one kind: a store that never answers must not fill memory.
    pub(super) fn trim(&mut self, keep: usize, is_meant: impl Fn(&Pending) -> bool) {
        let meant: Vec<Attempt> = self
            .pending
            .iter()
            .filter(|(_, pending)| is_meant(pending))
            .map(|(attempt, _)| *attempt)
            .collect();
        for attempt in meant.iter().take(meant.len().saturating_sub(keep)) {
            self.pending.remove(attempt);
        }
    }
}

/// Whether no heartbeat of this session will ever be counted again: somebody took the right, or the credential, away.
/// A credential that is past its date is no such thing, since its bearer may be about to show the next one.
fn is_shut_out(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Refused(
            Refusal::Denied { .. } | Refusal::CredentialOver { flaw: CredentialFlaw::Revoked }
        )
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ms(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    #[test]
    fn the_stages_of_a_lease_follow_the_budget() {
        let budget = Budget::default();
        let lease = Lease::granted(ms(0), budget.ttl_ms(), &budget, ms(0)).unwrap();
        for (now_ms, stage) in [
            (0, Stage::Fresh),
            (5332, Stage::Fresh),
            (5333, Stage::Jeopardy),
            (8800, Stage::Jeopardy),
            (8801, Stage::Stopping),
            (9800, Stage::Stopping),
            (9801, Stage::Over),
        ] {
            assert_eq!(lease.stage(&budget, ms(now_ms)), stage, "{now_ms}");
        }
    }

    #[test]
    fn an_answer_that_outlived_its_lease_earns_nothing() {
        let budget = Budget::default();
        assert!(Lease::granted(ms(0), 10_000, &budget, ms(9800)).is_some());
        assert!(Lease::granted(ms(0), 10_000, &budget, ms(9801)).is_none());
    }

    #[test]
    fn a_lease_shorter_than_the_stop_grace_is_for_stopping_only() {
        let budget = Budget::default();
        let lease = Lease::granted(ms(5000), 500, &budget, ms(5000)).unwrap();
        assert_eq!(lease.stage(&budget, ms(5000)), Stage::Stopping);
        assert_eq!(Duration::from_millis(490), ms(5000).until(lease.until));
    }
}
