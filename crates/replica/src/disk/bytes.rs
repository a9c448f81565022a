//! Fixed fields, checksums and zeros, as all files of the disk have them.

/// The number at this place; the caller has checked that it is there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes[at..].first_chunk().expect("callers check the length first");
    u32::from_le_bytes(*field)
}

/// The number at this place; the caller has checked that it is there.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let field = bytes[at..].first_chunk().expect("callers check the length first");
    u64::from_le_bytes(*field)
}

/// A checksum that goes on from another one.
pub(crate) fn checksum(from: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(from);
    hasher.update(bytes);
    hasher.finalize()
}

/// Whether there is nothing but zeros. Compared block by block: segments are large.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|block| *block == ZEROS[..block.len()])
}
