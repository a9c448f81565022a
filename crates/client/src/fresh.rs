//! Random secrets and ids, from the operating system.
//!
//! A caller that chooses its own session id and request id can repeat a request whose answer was
//! lost: the store recognises both. Nothing weaker than the system's own generator is used, since
//! whoever guesses a session id can resign for its owner.

use regent_election::{RequestId, Revision, SessionId};

/// The operating system gave no randomness. Nothing secret can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no random numbers: {0}")]
pub struct NoRandomness(String);

/// The secret of a session that nobody else knows.
pub fn session_id() -> Result<SessionId, NoRandomness> {
    loop {
        let mut bytes = [0; 16];
        fill(&mut bytes)?;
        // Zero is refused; meeting it by chance means one more throw.
        if let Ok(session) = SessionId::new(u128::from_be_bytes(bytes)) {
            return Ok(session);
        }
    }
}

/// The name of one request, made by somebody who has seen the store at `seen`.
pub fn request_id(seen: Revision) -> Result<RequestId, NoRandomness> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    let nonce = format!("{:032x}", u128::from_be_bytes(bytes));
    Ok(RequestId::new(seen, &nonce).expect("32 hexadecimal digits fit a request id"))
}

/// A random number, for jitter.
pub fn number() -> Result<u64, NoRandomness> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

fn fill(bytes: &mut [u8]) -> Result<(), NoRandomness> {
    getrandom::fill(bytes).map_err(|error| NoRandomness(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sessions_are_never_the_same() {
        assert_ne!(session_id().unwrap(), session_id().unwrap());
    }

    #[test]
    fn a_request_id_opens_with_the_revision_its_sender_had_seen() {
        let id = request_id(Revision(17)).unwrap();
        assert_eq!(id.seen, Revision(17));
        assert_eq!(id.to_string().parse::<RequestId>().unwrap(), id);
    }
}
