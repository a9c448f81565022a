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
//! | `arriving-N.tmp` | a snapshot that arrives from replica N; never without `.tmp` |
//! | `….tmp` | half-made; removed at the next start |
//!
//! `journal-N.log` and `state-N.snap` are files of the store `local:`, which was removed. A replica
//! never starts beside them: its terms would begin again below theirs.

/// What marks a directory that is being founded.
pub(super) const FOUNDING: &str = "founding";
/// How far the log was durable.
pub(super) const ACKED: &str = "acked";
/// Which life of each peer was met.
pub(super) const PEERS: &str = "peers";
/// Held by the process that uses the directory.
pub(super) const LOCK: &str = "lock";
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

pub(super) fn arriving(from: u64) -> String {
    format!("arriving-{from:020}")
}

/// The name beside another one, for a file that is being made.
pub(super) fn beside(name: &str) -> String {
    format!("{name}{BESIDE}")
}

/// The files of a directory by kind, numbers rising. What is not ours is never touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) segments: Vec<u64>,
    pub(super) spares: Vec<u64>,
    pub(super) snapshots: Vec<u64>,
    pub(super) half_made: Vec<String>,
    pub(super) has_acked: bool,
    pub(super) has_peers: bool,
    pub(super) is_founding: bool,
    /// A file of the removed store `local:`.
    pub(super) of_local: Option<String>,
    /// What no replica calls its files.
    pub(super) others: Vec<String>,
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
            } else if is_of_local(&name) {
                listing.of_local = Some(name);
            } else {
                match &*name {
                    ACKED => listing.has_acked = true,
                    PEERS => listing.has_peers = true,
                    FOUNDING => listing.is_founding = true,
                    LOCK => {}
                    _ => listing.others.push(name),
                }
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

/// Whether the removed store `local:` called its files so.
#[must_use]
pub fn is_of_local(name: &str) -> bool {
    let journal = name.strip_prefix("journal-").and_then(|rest| rest.strip_suffix(".log"));
    let snapshot = name.strip_prefix("state-").and_then(|rest| rest.strip_suffix(".snap"));
    journal.or(snapshot).is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Whether a replica calls a file so, be it half-made.
pub(super) fn is_of_replica(name: &str) -> bool {
    [LOCK, FOUNDING].contains(&name) || is_ours(name.strip_suffix(BESIDE).unwrap_or(name))
}

fn is_ours(name: &str) -> bool {
    name == ACKED
        || name == PEERS
        || number_in("wal-", segment, name).is_some()
        || number_in("spare-", spare, name).is_some()
        || number_in("snapshot-", snapshot, name).is_some()
        || number_in("arriving-", arriving, name).is_some()
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
        assert_eq!(listing.others, ["wal-1", "wal-+0000000000000000001", "notes.tmp"]);
        assert_eq!(listing.of_local, None);
        for (name, is_local) in
            [("journal-0.log", true), ("state-17.snap", true), ("journal-x.log", false)]
        {
            assert_eq!(Listing::new(vec![name.to_owned()]).of_local.is_some(), is_local, "{name}");
        }
    }
}
