//! Every deliberate mistake is found: by a named scenario, or by one of the first seeds.
//!
//! Only with the feature `mutants`, which no binary that serves is built with:
//! `cargo test -p regent-lab --features mutants --test mutants`.

#![cfg(feature = "mutants")]

use regent_lab::mutants::{Planted, hunt};

/// Within so many seeds each must be found.
const SEEDS_MAX: u64 = 1_000;

fn is_found(word: &str) {
    let planted: Planted = word.parse().expect("the word of a mistake");
    let found = hunt(planted, SEEDS_MAX);
    let found = found.unwrap_or_else(|| panic!("{word} is not found within {SEEDS_MAX} seeds"));
    println!("{word}: by {}: {}", found.by, found.violation);
}

macro_rules! found {
    ($($name:ident: $word:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                is_found($word);
            }
        )*

        #[test]
        fn no_mistake_is_forgotten_here() {
            let hunted = [$($word),*];
            for planted in Planted::all() {
                assert!(hunted.contains(&planted.to_string().as_str()), "nobody hunts {planted}");
            }
        }
    };
}

found! {
    a_margin_of_one_drift_is_found: "margin-once",
    counting_from_the_answer_is_found: "count-from-answer",
    an_election_that_extends_is_found: "election-extends",
    a_lost_term_that_is_kept_is_found: "lost-not-disowned",
    an_arrival_that_extends_nothing_is_found: "arrival-extends-nothing",
    a_heartbeat_without_a_round_is_found: "heartbeat-without-round",
    an_answer_before_its_apply_is_found: "answer-before-apply",
    no_ttl_after_a_promotion_is_found: "no-ttl-after-promotion",
    a_store_that_slept_and_judges_is_found: "no-gap-rule",
    a_reused_context_is_found: "context-reused",
    a_read_without_a_round_is_found: "read-without-round",
    a_revived_session_is_found: "expiring-revived",
    an_ending_that_is_skipped_is_found: "ending-skipped",
    an_epoch_that_is_ignored_is_found: "epoch-ignored",
    acting_before_acceptance_is_found: "acts-unaccepted",
    promoting_the_silent_is_found: "silent-promoted",
    a_repeat_that_runs_again_is_found: "repeats-run-again",
    terms_that_start_again_are_found: "terms-restart",
    a_duplicate_that_is_applied_is_found: "duplicates-applied",
    no_pre_vote_is_found: "no-pre-vote",
    no_check_of_the_quorum_is_found: "no-check-quorum",
    a_restore_that_keeps_its_terms_is_found: "restore-keeps-terms",
    a_restore_that_grants_at_once_is_found: "restore-grants-at-once",
    unequal_priorities_are_found: "unequal-priorities",
    a_stripped_witness_is_found: "stripped-witness",
    a_disk_that_skips_syncs_is_found: "fsync-skipped",
    expiries_before_arrivals_are_found: "expiries-first",
    a_vote_from_a_wiped_disk_is_found: "wiped-votes",
    a_register_without_its_fence_is_found: "fence-off",
    a_boot_number_that_is_reused_is_found: "boot-reused",
    a_nonce_that_is_not_compared_is_found: "nonce-ignored",
    a_session_taken_for_dead_at_once_is_found: "steals-at-once",
    a_session_expired_before_it_ended_is_found: "expires-without-ending",
    a_holder_that_nobody_told_is_found: "nobody-is-told",
    a_conflict_taken_for_success_is_found: "conflict-ignored",
}
