//! A leader that writes over HTTP: its term on the request, and the answer heeded.
//!
//! Any client will do; these are the two steps around it.
//!
//! ```no_run
//! # use hyper::HeaderMap;
//! # async fn send(_: HeaderMap, _: &str) -> Result<(u16, Vec<u8>), std::io::Error> { Ok((200, Vec::new())) }
//! # async fn example(leadership: regent::Leadership) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let permit = leadership.check()?;
//! let mut headers = HeaderMap::new();
//! permit.stamp(&mut headers);
//! let (status, body) = send(headers, "paid").await?;
//! permit.heed(status, &body)?; // refused for a higher term: `lost` is ready, and the work stops
//! # Ok(())
//! # }
//! ```

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use regent_api::Code;
use regent_election::FenceError;

use super::{TERM_HEADER, TOKEN_HEADER, refusal, value_of};
use crate::fenced::Permit;
use crate::fencing::{WriteError, WriteResult, refuse};

impl Permit {
    /// Writes the term on a request, in place of any that is there.
    pub fn stamp(&self, headers: &mut HeaderMap) {
        headers.insert(TERM_HEADER, value_of(self.term()));
    }

    /// Writes the term on a request together with the token that proves it, as [`Permit::token`] gave it.
    pub fn stamp_signed(&self, headers: &mut HeaderMap, token: &HeaderValue) {
        self.stamp(headers);
        headers.insert(TOKEN_HEADER, token.clone());
    }

    /// The term, signed by the service in which it was won: asked for now, and good for one ttl. None if that
    /// service has no keys, or does not know this term as ours any more.
    pub async fn token(&self) -> WriteResult<Option<HeaderValue>> {
        let session = self.session();
        let Some(secret) = session.known.session() else { return Ok(None) };
        let signed = session.reads.signed_term(self.group(), secret).await;
        let Some((term, token)) = signed.map_err(WriteError::failed)? else { return Ok(None) };
        if term != self.term() {
            return Ok(None);
        }
        let mut value = HeaderValue::from_str(&token).map_err(WriteError::failed)?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Heeds an answer. One that refuses this permit's term for a higher one is the loss of the office, which is
    /// told before this returns: [`WriteError::Refused`] if nothing was written, [`WriteError::Uncertain`] if the
    /// write was cut on its way. Of any other answer this says nothing: judge it by its status.
    pub fn heed(&self, status: u16, body: &[u8]) -> WriteResult<()> {
        match refusal(status, body) {
            Some(why @ FenceError::Stale { given, .. }) if given == self.term() => {
                let refused = refuse(self, why);
                if status == Code::Uncertain.status() {
                    return Err(WriteError::uncertain(format!("{why}: it was cut on its way")));
                }
                Err(refused)
            }
            Some(_) | None => Ok(()),
        }
    }
}
