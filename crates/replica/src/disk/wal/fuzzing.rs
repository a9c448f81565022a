//! The log as a fuzzer feeds it: as it is, and with every checksum set right, so that what lies behind them is reached.

use std::io;

use super::super::files::{DirectoryLock, Files, OpenFile};
use super::super::identity::Identity;
use super::payload::Summary;
use super::read::read;
use super::record::{self, Kind};
use super::segment::Header;
use super::{Segment, lead};
use crate::member::ReplicaId;

/// The one segment that there is.
#[derive(Debug)]
struct One(Vec<u8>);

impl Files for One {
    fn lock(&self) -> io::Result<Box<dyn DirectoryLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read(&self, _: &str, _: u64) -> io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }

    fn create(&self, _: &str) -> io::Result<Box<dyn OpenFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open(&self, _: &str) -> io::Result<Box<dyn OpenFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn identity() -> Identity {
    let replica = ReplicaId::new(1).expect("one is a number of a replica");
    Identity { cluster: 7, replica, incarnation: 9 }
}

/// Reads the bytes as the segment of a log, and then as records of one: for each a byte for its kind, two for the length
/// of its payload, and the payload.
pub fn log(bytes: &[u8]) {
    let identity = identity();
    let _ = read(&One(bytes.to_vec()), &identity, &[1], 0);
    let (whole, count) = segment(bytes);
    for acked in [0, count] {
        if let Ok(log) = read(&One(whole.clone()), &identity, &[1], acked) {
            assert_eq!(log.segments.len(), 1);
            let Segment { number, .. } = log.segments[0];
            assert_eq!(number, 1);
        }
    }
}

/// A segment of these records, and the number of the last.
fn segment(mut bytes: &[u8]) -> (Vec<u8>, u64) {
    let mut records = Vec::new();
    while let [kind, low, high, rest @ ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (payload, after) = rest.split_at(length);
        let kind = match kind % 4 {
            0 => Kind::Opening,
            1 => Kind::Boot,
            _ => Kind::Batch,
        };
        records.push((kind, payload));
        bytes = after;
    }
    let total: usize = records.iter().map(|(_, payload)| record::record_bytes(payload.len())).sum();
    let file_bytes = (total + 4096).next_multiple_of(4096);
    let header = Header {
        identity: identity(),
        number: 1,
        first_record: 1,
        file_bytes: file_bytes as u64,
        chain: 0,
    };
    let (mut out, mut place) = lead(&header, 0, &Summary::default());
    for (kind, payload) in records {
        place = record::put(place, place.number - 1, kind, payload, &mut out);
    }
    out.resize(file_bytes.max(out.len()), 0);
    (out, place.number - 1)
}
