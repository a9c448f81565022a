//! A signed statement: a compact JWS (RFC 7515) of one type, by one of the service's keys.
//!
//! The type stands in the header, which is signed, so that a statement of one type never passes for another.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::jwks::PublicKeys;
use crate::key::KeyPair;
use crate::token::WhyNot;
use crate::{decode, encode};

/// Longest statement that is read: a hybrid one with the longest names is half of it.
pub const STATEMENT_BYTES_MAX: usize = 16 << 10;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    kid: String,
    typ: String,
}

/// Signs a statement of this type with a key. `None` if it cannot be written or the library refuses.
#[must_use]
pub fn sign<T: Serialize>(typ: &str, payload: &T, kid: &str, key: &KeyPair) -> Option<String> {
    let header = Header {
        alg: key.public().algorithm().word().to_owned(),
        kid: kid.to_owned(),
        typ: typ.to_owned(),
    };
    let header = encode(&serde_json::to_vec(&header).ok()?);
    let payload = encode(&serde_json::to_vec(payload).ok()?);
    let input = format!("{header}.{payload}");
    let signature = encode(&key.sign(input.as_bytes())?);
    Some(format!("{input}.{signature}"))
}

/// The statement of this type that one of these keys signed, and the name of that key.
///
/// The order matters: nothing that a statement says is believed before its signature is, but for the name of the
/// key, which only picks among those that are trusted already.
pub fn open<T: DeserializeOwned>(
    typ: &str,
    signed: &str,
    keys: &PublicKeys,
) -> Result<(T, String), WhyNot> {
    if signed.len() > STATEMENT_BYTES_MAX {
        return Err(WhyNot::Malformed("it is too long"));
    }
    let (input, signature) =
        signed.rsplit_once('.').ok_or(WhyNot::Malformed("it has not three parts"))?;
    let (header, payload) =
        input.split_once('.').ok_or(WhyNot::Malformed("it has not three parts"))?;
    let bytes = |text: &str| decode(text).ok_or(WhyNot::Malformed("a part is not base64url"));
    let header: Header = serde_json::from_slice(&bytes(header)?)
        .map_err(|_| WhyNot::Malformed("its header is not alg, kid and typ"))?;
    let (payload, signature) = (bytes(payload)?, bytes(signature)?);
    if header.typ != typ {
        return Err(WhyNot::Malformed("it is a token of another type"));
    }
    let Some(key) = keys.find(&header.kid) else {
        let kid = header.kid.chars().filter(|it| it.is_ascii_graphic()).take(64).collect();
        return Err(WhyNot::UnknownKey { kid });
    };
    if header.alg != key.algorithm().word() {
        return Err(WhyNot::Algorithm);
    }
    if !key.verifies(input.as_bytes(), &signature) {
        return Err(WhyNot::Signature);
    }
    let payload = serde_json::from_slice(&payload)
        .map_err(|_| WhyNot::Malformed("its payload is not that of its type"))?;
    Ok((payload, header.kid))
}
