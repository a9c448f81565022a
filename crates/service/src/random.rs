//! Random numbers, for ids that must not be drawn twice.

use crate::error::ReplicaError;

/// 128 random bits.
pub(crate) fn random() -> Result<u128, ReplicaError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}
