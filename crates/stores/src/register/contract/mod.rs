//! The contract every register keeps, as cases that run against a real one in real time.
//!
//! Built like the contract of stores (`regent_election::contract`): a case is a fact, named so, that
//! makes its own keys, so cases never meet and may run together, twice, or on a register in use. An
//! operator runs them against a deployment before it is trusted, which is why this is no test file.
//!
//! Entries are never deleted, so every run leaves some hundred small ones behind, all named `contract/…`.

mod bench;
mod entries;
mod lists;
mod races;
mod sessions;
mod waits;

use std::sync::Arc;

use async_trait::async_trait;
pub use regent_election::contract::{Case, CaseResult, Fault};
use regent_election::{cases, ensure};

use super::{Register, RegisterError};
use crate::time::Time;
use bench::Bench;

/// What a case needs of the outside.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The register under test.
    fn register(&self) -> Arc<dyn Register>;

    /// Another way to the same entries: a second connection, if there is one.
    fn other(&self) -> Arc<dyn Register> {
        self.register()
    }

    /// The clock of this machine.
    fn time(&self) -> Arc<dyn Time>;

    /// A number that this register has never been given: names are made of it.
    fn unique(&self) -> u128;

    /// How far the server's clock may stray from this machine's, in parts per million.
    fn drift_ppm(&self) -> u32 {
        0
    }
}

impl From<RegisterError> for Fault {
    fn from(error: RegisterError) -> Self {
        Self::Broken(format!("unexpected answer: {error:?}"))
    }
}

/// All cases.
#[must_use]
pub fn cases() -> Vec<Case<dyn Harness>> {
    cases! {
        entries:
            a_key_nobody_wrote_is_not_there,
            what_was_written_is_read_back_byte_for_byte,
            an_entry_is_created_once,
            a_swap_from_an_old_version_conflicts_and_changes_nothing,
            a_swap_of_an_entry_that_is_not_there_conflicts,
            versions_never_repeat,
            an_answered_swap_is_seen_by_every_later_load,
            an_entry_may_be_as_large_as_the_bound,
            odd_names_are_kept_apart,
            kinds_are_kept_apart,
            what_people_see_changes_nothing;
        races:
            racing_creates_have_one_winner,
            racing_swaps_of_one_version_have_one_winner,
            racing_additions_lose_nothing;
        lists:
            a_list_holds_what_opens_with_its_prefix_in_the_order_of_names,
            a_list_goes_on_page_by_page,
            a_listed_entry_is_what_a_load_would_show,
            a_list_shows_every_answered_swap;
        waits:
            a_wait_ends_after_a_change,
            a_wait_for_an_entry_that_is_not_there_ends_after_its_creation,
            a_wait_ends_when_its_patience_does,
            a_wait_for_what_has_changed_already_ends;
        sessions:
            a_session_lives_while_it_is_heard_and_ends_for_good,
            a_session_that_nobody_began_is_not_alive,
            a_session_begins_with_its_entry_once,
            a_session_that_is_alive_without_an_entry_is_not_said_to_have_ended,
            a_session_is_heard_by_what_its_entry_says,
            an_unheard_session_ends_after_a_whole_ttl_and_not_a_moment_sooner,
            a_session_that_is_heard_lives_on,
            a_wait_for_the_end_of_a_session_ends_with_it;
    }
}
