//! The names of a replica's files; each kind has one way to be written, and only that one counts.
//!
//! | name | what |
//! |---|---|
//! | `lock` | held by the process that uses the directory |
//! | `founding` | there while a directory is being founded |
//! | `acked` | how far the log was durable, kept apart from it |
//! | `peers` | which life of each peer was met |
//! | `wal-N` | segment N of the log |
//! | `spare-N` | zeros that will become a segment |
//! | `snapshot-N` | everything up to index N |
//! | `….tmp` | half-made; removed at the next start |

/// What marks a directory that is being founded.
pub(super) const FOUNDING: &str = "founding";
/// How far the log was durable.
pub(super) const ACKED: &str = "acked";
/// Which life of each peer was met.
pub(super) const PEERS: &str = "peers";
/// What half-made files end in.
const BESIDE: &str = ".tmp";

pub(super) fn segment(number: u64) -> String {
    format!("wal-{number:020}")
}

pub(super) fn spare(number: u64) -> String {
    format!("spare-{number:020}")
}

pub(super) fn snapshot(index: u64) -> String {
    format!("snapshot-{index:020}")
}

/// The name beside another one, for a file that is being made.
pub(super) fn beside(name: &str) -> String {
    format!("{name}{BESIDE}")
}

/// The files of a directory by kind, numbers rising. What is not ours is left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) segments: Vec<u64>,
    pub(super) spares: Vec<u64>,
    pub(super) snapshots: Vec<u64>,
    pub(super) half_made: Vec<String>,
    pub(super) has_acked: bool,
    pub(super) has_peers: bool,
    pub(super) is_founding: bool,
}

impl Listing {
    pub(super) fn new(names: Vec<String>) -> Self {
        let mut listing = Self::default();
        for name in names {
            if let Some(number) = number_in("wal-", segment, &name) {
                listing.segments.push(number);
            } else if let Some(number) = number_in("spare-", spare, &name) {
                listing.spares.push(number);
            } else if let Some(index) = number_in("snapshot-", snapshot, &name) {
                listing.snapshots.push(index);
            } else if name.strip_suffix(BESIDE).is_some_and(is_ours) {
                listing.half_made.push(name);
            } else {
                listing.has_acked |= name == ACKED;
                listing.has_peers |= name == PEERS;
                listing.is_founding |= name == FOUNDING;
            }
        }
        listing.segments.sort_unstable();
        listing.spares.sort_unstable();
        listing.snapshots.sort_unstable();
        listing
    }

    /// Whether a replica lives, or lived, here.
    pub(super) fn is_inhabited(&self) -> bool {
        self.has_acked || !self.segments.is_empty() || !self.snapshots.is_empty()
    }

    /// Every file of ours but the lock and the mark of founding.
    pub(super) fn all(&self) -> impl Iterator<Item = String> {
        let acked = self.has_acked.then(|| ACKED.to_owned());
        let peers = self.has_peers.then(|| PEERS.to_owned());
        let segments = self.segments.iter().copied().map(segment);
        let spares = self.spares.iter().copied().map(spare);
        let snapshots = self.snapshots.iter().copied().map(snapshot);
        let half_made = self.half_made.iter().cloned();
        acked
            .into_iter()
            .chain(peers)
            .chain(segments)
            .chain(spares)
            .chain(snapshots)
            .chain(half_made)
    }
}

fn is_ours(name: &str) -> bool {
    name == ACKED
        || name == PEERS
        || number_in("wal-", segment, name).is_some()
        || number_in("spare-", spare, name).is_some()
        || number_in("snapshot-", snapshot, name).is_some()
}

fn number_in(prefix: &str, name_of: fn(u64) -> String, name: &str) -> Option<u64> {
    let number = name.strip_prefix(prefix)?.parse().ok()?;
    (name_of(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_files_of_a_replica() {
        let mut names: Vec<String> =
            ["wal-1", "wal-+0000000000000000001", "notes.tmp", "acked.tmp"]
                .map(str::to_owned)
                .to_vec();
        names.extend([segment(12), segment(9), spare(3), snapshot(u64::MAX), beside(&segment(4))]);
        let listing = Listing::new(names);
        assert_eq!(listing.segments, [9, 12]);
        assert_eq!((listing.spares.len(), &*listing.snapshots), (1, &[u64::MAX][..]));
        assert_eq!(listing.half_made, ["acked.tmp".to_owned(), beside(&segment(4))]);
        assert!(!listing.has_acked && !listing.is_founding && listing.is_inhabited());
        assert_eq!(listing.all().count(), 6);
    }
}
