//! The contract every store keeps, as cases that run against a real one in real time.
//!
//! A case is a fact about elections, named so, and knows the store only through the
//! [`Store`] port. [`cases()`] lists them; a caller runs them one by one or all at
//! once and prints what held, what broke, and what was skipped and why. Each case makes its own
//! groups and sessions, so cases never meet and any number may run together, twice, or on a store in
//! use.
//!
//! Time is measured only one way: that nothing happens too *soon*. How long a store takes is bounded
//! by patience, far above what any store needs, so a slow machine fails nothing.
//!
//! There is no runtime here: the [`Harness`] sleeps, reads the clock and makes names.
//!
//! The road not taken is a macro that expands into `#[test]` functions: it would bind the suite to a
//! test runner, while an operator also wants to run it against a store before trusting it.

mod access;
mod bench;
mod campaign;
mod case;
mod ending;
mod fences;
mod groups;
mod handover;
mod moves;
mod policy;
mod renew;
mod requests;
mod sessions;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::moment::Moment;
use crate::store::{Store, StoreError};
use crate::{cases, ensure};
use bench::Bench;
pub use case::{Case, CaseResult, Fault};

/// What a case needs of the outside.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The store under test.
    fn store(&self) -> Arc<dyn Store>;

    /// Another way to the same store: a second server or connection, if there is one.
    fn other(&self) -> Arc<dyn Store> {
        self.store()
    }

    /// Waits.
    async fn sleep(&self, for_how_long: Duration);

    /// The lease clock of this machine.
    fn now(&self) -> Moment;

    /// A number that this store has never been given: names and secrets are made of it.
    fn unique(&self) -> u128;

    /// What this store does beyond the least.
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }
}

/// What a store may do without; cases about it are skipped then, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The commit that ends a tenure starts the next.
    pub promotes_in_one_commit: bool,
    /// A tenure that others end is *ending* first, and its holder can confirm.
    pub has_endings: bool,
    /// The store knows who has not been heard for half its ttl.
    pub knows_silence: bool,
    /// A request id is known to have been used wherever its session asks again, not only in one group.
    pub ids_span_groups: bool,
    /// A watch of several groups tells their changes in the order in which they happened.
    pub orders_across_groups: bool,
    /// How far the store's clock may stray from the harness's, in parts per million.
    pub drift_ppm: u32,
}

impl Default for Abilities {
    fn default() -> Self {
        Self {
            promotes_in_one_commit: true,
            has_endings: true,
            knows_silence: true,
            ids_span_groups: true,
            orders_across_groups: true,
            drift_ppm: 0,
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unsupported { .. } => Self::Skipped(error.to_string()),
            StoreError::Refused(_)
            | StoreError::Unavailable { .. }
            | StoreError::Uncertain { .. }
            | StoreError::Corrupt(_) => Self::Broken(format!("unexpected answer: {error}")),
        }
    }
}

/// All cases, in the order of a reader's interest.
#[must_use]
pub fn cases() -> Vec<Case<dyn Harness>> {
    cases! {
        campaign:
            a_first_campaign_wins_and_everybody_can_read_it,
            every_tenure_has_a_term_one_higher,
            a_loser_learns_the_leader_and_leaves_nothing_behind,
            a_loser_with_its_own_session_stands_until_it_is_promoted_and_accepts,
            the_leaders_own_session_campaigning_again_keeps_its_term,
            the_same_node_id_from_another_session_loses,
            a_campaign_opens_the_session_it_names,
            a_campaign_with_another_ttl_than_its_session_is_refused,
            a_waiting_campaign_is_answered_when_it_is_elected,
            a_waiting_campaign_that_is_dropped_leaves_no_standby,
            a_wait_that_is_over_leaves_only_an_own_session_standing,
            racing_campaigns_have_one_winner;
        renew:
            only_the_holder_of_the_current_term_renews,
            a_refused_renewal_extends_nothing,
            a_silent_leader_is_succeeded_after_a_whole_ttl_and_not_a_moment_sooner,
            heartbeats_keep_a_leader_in_office,
            one_heartbeat_keeps_all_tenures_of_a_session,
            a_campaign_is_a_sign_of_life,
            a_heartbeat_that_is_not_newer_is_refused,
            a_renewal_by_another_length_changes_the_ttl,
            a_disowned_term_is_resigned_by_the_heartbeat_that_lists_it;
        handover:
            resigning_hands_over_at_once,
            the_commit_that_ends_a_tenure_starts_the_next,
            a_transfer_goes_to_the_standby_it_names,
            a_transfer_that_cannot_be_leaves_the_leader_in_office,
            an_offer_warms_a_standby_while_the_leader_leads_on,
            relief_is_an_offer_for_one_term_that_says_why,
            withdrawing_leaves_the_line_or_the_office,
            renewing_an_office_accepts_it,
            a_promoted_standby_that_does_not_accept_is_passed_over,
            an_office_nobody_audible_stood_for_is_filled_when_one_is_heard,
            every_office_that_waited_for_a_silent_standby_is_filled_when_it_is_heard,
            a_change_of_policy_promotes_no_silent_standby;
        ending:
            a_step_down_grants_nobody_until_the_holder_confirms,
            an_ending_that_nobody_confirms_lasts_a_whole_ttl,
            a_forced_step_down_says_that_two_may_act,
            nobody_steps_down_where_nobody_leads,
            a_tightened_policy_ends_a_tenure_gently,
            a_deleted_group_ends_gently_and_its_terms_never_come_back;
        watch:
            a_watch_sees_every_change_in_order_and_that_nobody_leads,
            a_watch_resumes_from_any_cursor_without_a_gap_or_a_repeat,
            a_watch_from_a_read_misses_nothing,
            a_cursor_in_the_future_yields_nothing_older,
            a_cursor_of_another_life_is_told_of_a_gap,
            a_watch_sees_only_what_it_covers;
        policy:
            a_policy_refuses_ttls_and_nodes_outside_it,
            an_absurd_policy_is_refused_and_changes_nothing,
            priorities_order_the_line_and_depose_nobody,
            a_lock_delay_follows_a_lost_leader_but_not_a_resignation,
            a_full_line_takes_nobody_more;
        requests:
            a_repeated_campaign_takes_effect_once_and_is_evaluated_again,
            a_repeated_resignation_does_not_touch_the_next_tenure,
            a_request_id_serves_one_request;
        sessions:
            a_session_lists_what_it_holds_and_its_epoch_tells_of_unasked_changes,
            opening_again_answers_the_same_session,
            closing_a_session_ends_everything_it_had,
            a_passing_session_that_leads_another_group_outlives_its_resignation_here,
            an_ended_session_cannot_come_back,
            a_session_that_is_not_heard_expires_with_all_its_tenures;
        groups:
            an_answer_is_seen_by_every_later_read,
            many_groups_are_read_in_the_order_asked_and_counted,
            terms_rise_through_resignation_expiry_and_deletion,
            a_groups_history_tells_the_causes,
            a_finding_is_kept_and_told_once_and_changes_nobodys_office,
            groups_are_listed_in_pages_by_name,
            a_group_nobody_named_has_no_leader;
        moves:
            a_group_that_departs_lets_its_leader_stop_and_tells_where_it_went,
            an_expected_group_grants_nobody_until_it_arrives_above_the_old_terms,
            a_closed_door_outlives_deletion_and_opens_by_two_steps_only,
            a_group_stopped_for_recovery_elects_nobody_until_it_is_resumed;
        fences:
            a_resource_admits_no_lower_term_after_a_higher_one,
            a_forgotten_fence_keeps_its_mark_for_all_resources_of_its_group,
            no_fence_falls_when_its_group_is_deleted_or_moves_and_comes_back;
        access:
            bindings_are_replaced_only_from_the_version_that_was_read,
            a_token_is_kept_until_it_is_revoked_and_never_changes_hands,
            a_principal_acts_only_where_it_is_bound_and_under_its_own_name,
            a_session_serves_only_the_principal_that_opened_it,
            a_principal_that_may_no_longer_stand_is_told_to_stop_and_can_still_resign,
            what_needs_two_principals_is_done_when_another_one_asks_for_the_same,
            lists_and_watches_show_only_groups_that_may_be_observed;
    }
}
