//! Every bound of the disk, each with its reason.

/// Bytes of one segment of the log: large enough that changing segments is rare, small enough that
/// three of them are no burden and that dropping one frees room soon.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// Fewest bytes of a segment, so that ordinary batches fit. Simulators like them small.
pub const SEGMENT_BYTES_MIN: u64 = 4 << 10;
/// Most bytes of a segment that is read back; a batch that fits into no ordinary segment gets one of
/// its own, up to this.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Segments made in advance, so that hard state, expiries, resignations and changes of members still
/// fit when the disk is full (semantics 29).
pub const SPARE_SEGMENTS: usize = 2;

/// Bytes of zeros written at once while a segment is made.
pub const ZEROS_BYTES: usize = 1 << 20;

/// Most bytes of a snapshot: many times a million groups, and still an end to what is read back.
pub const SNAPSHOT_BYTES_MAX: u64 = 16 << 30;
/// Snapshots kept: the newest, and the one before in case the newest is damaged.
pub const SNAPSHOTS_KEPT: usize = 2;

/// Bytes of the buffer for records that is kept between two writes; a larger one is given back.
pub const BUFFER_BYTES_KEPT: usize = 4 << 20;
