//! The checkers: what must be true of every story.

use std::collections::BTreeMap;

use super::world::{Claim, Story};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    pub(super) broken: Vec<String>,
    pub(super) claims: usize,
}

/// Judges a story. S1: at no instant do two act as leader of a group. S2: a term is held by one, and
/// later tenures have higher terms.
pub(super) fn judge(story: &Story) -> Verdicts {
    let mut broken = story.broken.clone();
    let mut by_group: BTreeMap<usize, Vec<&Claim>> = BTreeMap::new();
    for claim in &story.claims {
        by_group.entry(claim.group).or_default().push(claim);
    }
    for claims in by_group.values_mut() {
        claims.sort_by_key(|claim| (claim.from, claim.until));
        for (at, one) in claims.iter().enumerate() {
            for other in &claims[at + 1..] {
                let is_same = one.term == other.term && one.player == other.player;
                if !is_same && other.from < one.until {
                    broken.push(format!("S1: two act at once: {one:?}, {other:?}"));
                }
                if !is_same && other.term <= one.term {
                    broken.push(format!("S2: terms do not rise: {one:?}, {other:?}"));
                }
            }
        }
    }
    Verdicts { broken, claims: story.claims.len() }
}
