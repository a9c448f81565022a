//! A signed term on a request: the gateway and the layer read it here, and nowhere else.

use hyper::HeaderMap;
use regent_api::{Code, Problem};

use super::{TERM_HEADER, TOKEN_HEADER, term_of};
use crate::fencing::signed::{Unbelieved, Verified, Verifier, WhyNot};

/// How soon to try again when the keys are too old: they are fetched no sooner.
const RETRY_AFTER_MS: u64 = 10_000;

impl Verifier {
    /// The term that a request's token (`Regent-Token`) is signed for. A number beside it (`Regent-Term`) is not
    /// needed, and must be the same; a number alone is no token.
    pub async fn of_headers(&self, headers: &HeaderMap) -> Result<Verified, Problem> {
        let mut all = headers.get_all(TOKEN_HEADER).iter();
        let token = all.next().ok_or_else(|| {
            let detail = "this needs a signed term; send it as Regent-Token";
            Problem::new(Code::TermMissing, detail)
        })?;
        if all.next().is_some() {
            return Err(Problem::new(Code::BadRequest, "Regent-Token came more than once"));
        }
        let token = token.to_str().map_err(|_| {
            problem_of_token(&WhyNot::Malformed("it holds more than plain letters").into())
        })?;
        let verified = self.verify(token).await.map_err(|why| problem_of_token(&why))?;
        // Whoever sends both means the same by both.
        if headers.contains_key(TERM_HEADER) && term_of(headers)? != verified.term() {
            let detail = "Regent-Term is not the term of Regent-Token; send the token alone";
            return Err(Problem::new(Code::BadRequest, detail));
        }
        Ok(verified)
    }
}

fn problem_of_token(why: &Unbelieved) -> Problem {
    match why {
        Unbelieved::Not(why) => Problem::new(Code::TokenRefused, why.to_string()),
        Unbelieved::KeysTooOld { .. } => {
            Problem::new(Code::FenceClosed, why.to_string()).retry_after(RETRY_AFTER_MS)
        }
    }
}
