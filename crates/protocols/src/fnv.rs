//! A print of bytes: stable for ever, fast enough, and no secret depends on it.

/// FNV-1a.
#[must_use]
pub fn print(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(START, step)
}

/// The print of nothing.
pub const START: u64 = 0xcbf2_9ce4_8422_2325;

/// The print of one byte more.
pub const fn step(print: u64, byte: u8) -> u64 {
    (print ^ byte as u64).wrapping_mul(0x0100_0000_01b3)
}
