//! How a token is judged: a pure function of the token, the issuers, their keys and the time.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use regent_election::access::Principal;
use serde::Deserialize;
use serde_json::Value;

use crate::issuers::Issuer;
use crate::keys::{KeySet, TokenAlgorithm};
use crate::limits::TOKEN_BYTES_MAX;

/// Whom a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub who: Principal,
    /// When it ends, the leeway included, in milliseconds since 1970. That may be in the past.
    pub expires_at_ms: u64,
}

/// Why a token is not believed. Nothing of the token is in the message but public names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyNot {
    #[error("it is no token: neither rgt_… nor three parts with dots between")]
    Shape,
    #[error("its issuer is not one that this server believes")]
    Issuer,
    #[error("it is signed by {0:?}, which this server does not believe for its issuer")]
    Algorithm(String),
    #[error("it names no key (`kid`)")]
    NoKey,
    #[error("its issuer has no key called {0:?}")]
    UnknownKey(String),
    #[error("its signature is wrong")]
    Signature,
    #[error("it has the extension `crit`, which is not understood")]
    Critical,
    #[error("it is for another audience")]
    Audience,
    #[error("it has no {0:?}")]
    Missing(&'static str),
    #[error("it is not good before {0} s from now")]
    NotYet(u64),
    #[error("{0}")]
    Name(String),
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// The parts of a token, decoded and not believed.
#[derive(Debug)]
pub struct Unverified<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    algorithm: String,
    kid: String,
    claims: serde_json::Map<String, Value>,
}

impl<'a> Unverified<'a> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(token: &'a str) -> Result<Self, WhyNot> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(WhyNot::Shape);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(WhyNot::Shape)?;
        let (header, claims) = signed.split_once('.').ok_or(WhyNot::Shape)?;
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| WhyNot::Shape);
        let header: Header = serde_json::from_slice(&bytes(header)?).map_err(|_| WhyNot::Shape)?;
        if header.crit.is_some() {
            return Err(WhyNot::Critical);
        }
        let Ok(Value::Object(claims)) = serde_json::from_slice(&bytes(claims)?) else {
            return Err(WhyNot::Shape);
        };
        let kid = header.kid.filter(|kid| !kid.is_empty()).ok_or(WhyNot::NoKey)?;
        Ok(Self { signed, signature: bytes(signature)?, algorithm: header.alg, kid, claims })
    }

    /// The issuer that it names, among those that are believed.
    ///
    /// # Errors
    /// If it names another one.
    pub fn issuer<'i>(
        &self,
        issuers: impl IntoIterator<Item = &'i Issuer>,
    ) -> Result<&'i Issuer, WhyNot> {
        let named = self.text("iss")?;
        issuers.into_iter().find(|issuer| issuer.issuer == named).ok_or(WhyNot::Issuer)
    }

    /// The name of the key that it says it is signed by.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    fn text(&self, claim: &'static str) -> Result<&str, WhyNot> {
        self.claims.get(claim).and_then(Value::as_str).ok_or(WhyNot::Missing(claim))
    }

    /// Seconds since 1970; a fraction counts down, so that nothing lasts longer than it says.
    fn seconds(&self, claim: &str) -> Option<u64> {
        let value = self.claims.get(claim)?;
        let whole = value.as_f64().filter(|it| it.is_finite() && *it >= 0.0 && *it < 1e15);
        value.as_u64().or_else(|| whole.map(|seconds| seconds as u64))
    }
}

/// Judges a token of an issuer by its keys. One that is over is believed as far as whom it names.
///
/// # Errors
/// If it is not believed.
pub fn verify(
    token: &Unverified<'_>,
    issuer: &Issuer,
    keys: &KeySet,
    now_s: u64,
) -> Result<Verified, WhyNot> {
    let algorithm = TokenAlgorithm::find(&token.algorithm)
        .filter(|algorithm| issuer.algorithms.contains(algorithm))
        .ok_or_else(|| WhyNot::Algorithm(token.algorithm.chars().take(20).collect()))?;
    if !keys.knows(&token.kid) {
        return Err(WhyNot::UnknownKey(token.kid.chars().take(100).collect()));
    }
    if !keys.verifies(&token.kid, algorithm, token.signed.as_bytes(), &token.signature) {
        return Err(WhyNot::Signature);
    }
    // From here on the claims are the issuer's own.
    let is_for_us = match token.claims.get("aud") {
        Some(Value::String(one)) => issuer.audience.contains(one),
        Some(Value::Array(several)) => several
            .iter()
            .filter_map(Value::as_str)
            .any(|one| issuer.audience.iter().any(|ours| ours == one)),
        Some(_) | None => false,
    };
    if !is_for_us {
        return Err(WhyNot::Audience);
    }
    let leeway_s = issuer.leeway.as_secs();
    let expires_s = token.seconds("exp").ok_or(WhyNot::Missing("exp"))?;
    if token.claims.contains_key("nbf") {
        let from_s = token.seconds("nbf").ok_or(WhyNot::Missing("nbf"))?;
        if from_s > now_s.saturating_add(leeway_s) {
            return Err(WhyNot::NotYet(from_s - now_s));
        }
    }
    // Some issuers let users write any address there.
    if issuer.claim == "email" && token.claims.get("email_verified") != Some(&Value::Bool(true)) {
        return Err(WhyNot::Name("its e-mail address is not verified".to_owned()));
    }
    let name = token.claims.get(&issuer.claim).and_then(Value::as_str);
    let name = name.ok_or_else(|| WhyNot::Name(format!("it has no text {:?}", issuer.claim)))?;
    let who = issuer.principal(name).map_err(WhyNot::Name)?;
    let expires_at_ms = expires_s.saturating_add(leeway_s).saturating_mul(1000);
    Ok(Verified { who, expires_at_ms })
}
